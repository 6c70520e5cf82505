"""A store, reached through fsspec: write, read, remove, list, each with errors in one family and without secrets."""

from __future__ import annotations

import errno
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from vmselect._optional import require
from vmselect.errors import MissingPackageError, TransferError
from vmselect.probe.transfer.address import Address
from vmselect.probe.transfer.content import CHUNK_BYTES, Content

_FOREIGN_ERRORS = (
    ("botocore.exceptions", "BotoCoreError"), ("botocore.exceptions", "ClientError"),
    ("paramiko.ssh_exception", "SSHException"), ("aiohttp.client_exceptions", "ClientError"),
    ("azure.core.exceptions", "AzureError"), ("google.auth.exceptions", "GoogleAuthError"),
)  # fmt: skip
"""Errors of the packages below fsspec that are no OSError; those of packages that are not loaded cannot occur."""


_SFTP = ("sftp", "ssh")


class Storage:
    """One connection to the folder that ``address`` names."""

    def __init__(self, address: Address) -> None:
        self.address = address
        fsspec = require("fsspec", extra="transfer", needed_by="Measuring transfers")
        with self.translating("reach"):
            try:
                # A connection of its own for each stream: a shared one would be waited for in turn.
                options = {**address.options, "skip_instance_cache": True}
                self.files, self.root = fsspec.core.url_to_fs(address.text, **options)
            except ImportError as missing:
                raise MissingPackageError(
                    f"{address.protocol}:// needs a package that is not installed ({address.hide(missing)}). "
                    'Install it, or the common ones with: pip install "vmselect[transfer]"'
                ) from None
            except TypeError as unknown:
                raise TransferError(
                    f"{address.shown} cannot be opened with these options: {address.hide(unknown)}. "
                    "Pass only options that its file system in fsspec takes."
                ) from None
        self.root = self.root.rstrip("/")

    def close(self) -> None:
        """End the connection, where there is one to end."""
        for name in ("ftp", "client"):
            closer = getattr(getattr(self.files, name, None), "close", None)
            if closer is not None and self.address.protocol in _SFTP:
                with self.translating("leave"):
                    closer()

    def path(self, *parts: str) -> str:
        """A path in the store."""
        return "/".join([self.root, *parts])

    def make_folder(self, name: str) -> list[str]:
        """Make a folder, where the store knows folders; returns the paths above it that had to be made as well."""
        made: list[str] = []
        if not (self.address.is_free or self.address.protocol in _SFTP):
            return made  # a bucket is never made, and keys need no folders
        with self.translating("make a folder in"):
            above = self.root
            while above.strip("/") and not self.files.exists(above):
                made.append(above)
                above = above.rpartition("/")[0]
            self.files.makedirs(self.path(name), exist_ok=True)
        return made

    def remove_empty(self, paths: list[str]) -> None:
        """Remove folders that the probe had to make, innermost first, if nothing is in them."""
        with self.translating("remove from"):
            for path in paths:
                self.files.invalidate_cache()
                if self.root.startswith(path) and self.files.isdir(path) and not self.files.ls(path, detail=False):
                    self.files.rmdir(path)

    def write(self, content: bytes, *parts: str) -> None:
        """Write a small file."""
        with self.translating("write to"):
            self.files.pipe_file(self.path(*parts), content)

    def read(self, *parts: str) -> bytes:
        """Read a small file."""
        with self.translating("read from"):
            data: bytes = self.files.cat_file(self.path(*parts))
            return data

    def upload(self, content: Content, *parts: str, stopped: Callable[[], bool] = lambda: False) -> None:
        """Write a file, piece by piece; returns when the store has all of it."""
        with self.translating("write to"), self.files.open(self.path(*parts), "wb") as file:
            # Without this sftp waits for the answer to each of many small packets.
            if self.address.protocol in _SFTP:
                file.set_pipelined(True)
            for chunk in content.chunks():
                if stopped():
                    return
                file.write(chunk)

    def download(self, content: Content, *parts: str, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Read a file to its end; returns whether it holds ``content``, or False once it does not."""
        remote = not self.address.is_free and self.address.protocol not in _SFTP
        options = {"cache_type": "readahead", "block_size": 8 * CHUNK_BYTES} if remote else {}
        with self.translating("read from"), self.files.open(self.path(*parts), "rb", **options) as file:
            if self.address.protocol in _SFTP:
                # Asks for all of it at once instead of waiting for each packet.
                file.prefetch(file.stat().st_size)
            pieces = iter(lambda: b"" if stopped() else file.read(CHUNK_BYTES), b"")
            return content.matches(pieces) or stopped()

    def remove(self, *parts: str) -> None:
        """Remove a folder and all that is in it, uploads that were never finished included."""
        path = self.path(*parts)
        with self.translating("remove from"), suppress(FileNotFoundError):  # no bucket, so nothing is left in it
            if self.files.exists(path):
                self.files.rm(path, recursive=True)
            self._abort_uploads(path)

    def names(self, *parts: str) -> list[str]:
        """Names in a folder; none where there is no such folder."""
        with self.translating("list"):
            try:
                self.files.invalidate_cache()
                return sorted(str(path).rstrip("/").rpartition("/")[2] for path in self.files.ls(
                    self.path(*parts), detail=False))  # fmt: skip
            except FileNotFoundError:
                return []

    def unfinished(self) -> list[str]:
        """Keys of uploads to S3 that were begun and never finished: no listing shows them, and they are billed."""
        return [key for key, _ in self._uploads(self.root)]

    @contextmanager
    def translating(self, doing: str) -> Iterator[None]:
        """Turn whatever a store's packages raise into a :class:`TransferError` that holds no secret."""
        try:
            yield
        except BaseException as cannot:
            if not isinstance(cannot, (OSError, EOFError, ValueError, *_foreign_errors())):
                raise
            raise TransferError(explain(self.address, doing, cannot)) from None

    def _uploads(self, path: str) -> list[tuple[str, str]]:
        if self.address.protocol not in ("s3", "s3a"):
            return []
        bucket, _, prefix = path.lstrip("/").partition("/")
        answer = self.files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix)
        return [(upload["Key"], upload["UploadId"]) for upload in answer.get("Uploads", ())]

    def _abort_uploads(self, path: str) -> None:
        bucket = path.lstrip("/").partition("/")[0]
        for key, upload in self._uploads(path.rstrip("/") + "/"):
            self.files.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload)


def explain(address: Address, doing: str, cannot: BaseException) -> str:
    """The fact and the remedy, by kind of trouble."""
    number = getattr(cannot, "errno", None)
    text = address.hide(getattr(cannot, "strerror", None) or cannot) or type(cannot).__name__
    name = type(cannot).__name__
    if isinstance(cannot, PermissionError) or name in ("AuthenticationException", "NoCredentialsError"):
        remedy = "Check the credentials, and that they may write, read, list and delete there."
    elif number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "Free some space there, or move less with megabytes=."
    elif isinstance(cannot, FileNotFoundError):
        remedy = "Check the address: the bucket or folder must be there."
    else:
        remedy = "Check the address and the connection, then try again."
    return f"Cannot {doing} {address.shown}: {text} ({name}). {remedy}"


def _foreign_errors() -> tuple[type[BaseException], ...]:
    found = []
    for module, name in _FOREIGN_ERRORS:
        if module in sys.modules:
            kind = getattr(importlib.import_module(module), name, None)
            if isinstance(kind, type) and issubclass(kind, Exception):
                found.append(kind)
    return tuple(found)
