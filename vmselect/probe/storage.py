"""What is moved: bytes that no compression shrinks, different for every file, recognized when they come back."""

from __future__ import annotations

import errno
import hashlib
import importlib
import os
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from vmselect._checks import check_mapping, check_name
from vmselect._optional import require
from vmselect.errors import ArgumentError, MissingPackageError, TransferError

CHUNK_BYTES = 1 << 20


class Content:
    """``size`` bytes that only this ``run`` and file ``number`` have.

    A block of random bytes is created once per run. Each chunk of each file begins at another place in it, so creating
    chunks costs no time while the clock runs. Comparing bytes is many times faster than a checksum, so verification
    does not become part of what is measured.
    """

    def __init__(self, run: str, number: int, size: int) -> None:
        self.size = size
        self._block = _block(run)
        self._head = hashlib.sha256(f"{run}/{number}".encode()).digest()
        self._offset = int.from_bytes(self._head[:3], "big")

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes, in pieces."""
        yield self._head[: self.size]
        left = self.size - len(self._head)
        position = self._offset
        while left > 0:
            piece = min(left, CHUNK_BYTES)
            start = position % CHUNK_BYTES
            yield self._block[start : start + piece]
            left -= piece
            position += 65_537

    def matches(self, pieces: Iterable[bytes]) -> bool:
        """Whether ``pieces``, of any length, together are this content; reads no further than the first difference.

        >>> Content("run", 1, 100).matches([b"something else"])
        False
        """
        chunks = self.chunks()
        expected = memoryview(b"")
        missing = self.size
        for piece in pieces:
            view = memoryview(piece)
            missing -= len(view)
            if missing < 0:
                return False
            while len(view):
                if not len(expected):
                    expected = memoryview(next(chunks))
                size = min(len(view), len(expected))
                if bytes(view[:size]) != bytes(expected[:size]):
                    return False
                view, expected = view[size:], expected[size:]
        return missing == 0


@lru_cache(maxsize=1)
def _block(run: str) -> memoryview:
    return memoryview(random.Random(run).randbytes(2 * CHUNK_BYTES))


# Addresses of stores, without what must not be written down: passwords, keys, tokens.


STORES = {
    "s3": "aws", "s3a": "aws", "az": "azure", "abfs": "azure", "abfss": "azure", "adl": "azure", "gs": "gcp",
    "gcs": "gcp",
}  # fmt: skip
"""Protocol to the cloud that keeps what is written there, unless another server is named."""

FREE = ("file", "local", "memory")
"""Protocols that move nothing over a network."""

_SECRET_NAME = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|_KEY|_SAS|CONNECTION_STRING", re.IGNORECASE)
_OPEN_NAMES = ("host", "hostname", "username", "region_name")
"""Options that are no secrets, and that messages must be able to name."""

SHORTEST_SECRET = 4
LONGEST_URL = 2_000


@dataclass(frozen=True)
class Address:
    """A folder in a store: ``text`` opens it, ``shown`` may be printed, ``secrets`` may not."""

    text: str = field(repr=False)
    shown: str
    protocol: str
    options: Mapping[str, Any] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def store(self) -> str | None:
        """The cloud that keeps the files, or None if unknown."""
        return None if _names_a_server(self.options) else STORES.get(self.protocol)

    @property
    def is_free(self) -> bool:
        """Whether nothing leaves this machine."""
        return self.protocol in FREE

    def hide(self, text: object) -> str:
        """``text`` on one line, without any secret."""
        line = " ".join(str(text).split())
        for secret in self.secrets:
            line = line.replace(secret, "***")
        return line[:300]


def read_address(url: str, options: Mapping[str, Any] | None = None) -> Address:
    """The address that a user gave, with the options that open it.

    >>> read_address("sftp://me:hush@host/data?token=abc").shown
    'sftp://me@host/data'
    """
    with _hiding_value(f"url must be a text of 1 to {LONGEST_URL} characters, such as protocol://host/folder."):
        text = check_name("url", url, longest=LONGEST_URL)
    with _hiding_value("options must map names to values, such as {'anon': True}."):
        given = check_mapping("options", options) if options is not None else {}
    if "::" in text:
        raise ArgumentError("url chains several file systems (::), of which only one can be measured. Give one.")
    # A file's path may hold any character; only what has a protocol is taken apart.
    if "://" not in text:
        return Address(text, text, "file", given, _as_in_a_line(_find_secrets(given)))
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ArgumentError("url cannot be read as an address. Write it as protocol://host/folder.") from None
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    shown = f"{parts.scheme}://{user + '@' if user else ''}{host}{parts.path}"
    hidden = [password, unquote(password), parts.query, *(pair.partition("=")[2] for pair in parts.query.split("&"))]
    return Address(text, shown, parts.scheme, given, _as_in_a_line({*_find_secrets(given), *hidden}))


def is_secret_name(name: str) -> bool:
    """Whether what has that name is not for anyone to see."""
    return _SECRET_NAME.search(name) is not None


@contextmanager
def _hiding_value(rule: str) -> Iterator[None]:
    """Report only the ``rule`` of a check, not the refused value: it may hold a secret."""
    try:
        yield
    except ArgumentError:
        raise ArgumentError(rule) from None


def _find_secrets(options: Mapping[str, Any]) -> set[str]:
    """Texts among the options, and in variables named like secrets, that no message may show."""
    found = {value for name, value in os.environ.items() if is_secret_name(name)}
    waiting: list[tuple[str, Any]] = list(options.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(str(key), item) for key, item in value.items()]
        elif "url" in name or name in _OPEN_NAMES:
            continue
        elif isinstance(value, str) or is_secret_name(name):  # a number can be a password too
            found.add(str(value))
    return found


def _as_in_a_line(secrets: Iterable[str]) -> tuple[str, ...]:
    """``secrets`` as a line of text holds them, plain or with the escapes of a repr; the longest first."""
    lines = {" ".join(form.split()) for secret in secrets for form in (secret, repr(secret)[1:-1])}
    return tuple(sorted((line for line in lines if len(line) >= SHORTEST_SECRET), key=len, reverse=True))


def _names_a_server(options: Mapping[str, Any]) -> bool:
    nested = options.get("client_kwargs")
    named = nested.get("endpoint_url") if isinstance(nested, Mapping) else None
    return bool(named or options.get("endpoint_url") or os.environ.get("AWS_ENDPOINT_URL"))


# A store, reached through fsspec: write, read, remove, list, each with errors in one family and without secrets.


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
