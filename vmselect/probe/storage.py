"""Stores to and from which transfers are measured: their addresses, the test data, and access through fsspec."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import re
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

CLOUD_OF_PROTOCOL = {
    "s3": "aws", "s3a": "aws", "az": "azure", "abfs": "azure", "abfss": "azure", "adl": "azure", "gs": "gcp",
    "gcs": "gcp",
}  # fmt: skip
"""Maps a URL protocol to the cloud that stores the files, unless the options name another server."""

LOCAL_PROTOCOLS = ("file", "local", "memory")
SFTP_PROTOCOLS = ("sftp", "ssh")
S3_PROTOCOLS = ("s3", "s3a")

MAX_URL_LENGTH = 2_000
MIN_SECRET_LENGTH = 4

_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASS(?!I)|CREDENTIAL|_KEY|_SAS|CONNECTION_STRING|_PAT(_|$)|(^|_)AUTH(?!OR(_|$))", re.IGNORECASE
)
_PUBLIC_NAMES = ("host", "hostname", "username", "region_name")
"""Names of options that are not secret, so that messages may show their values."""

_STORE_PACKAGES = {"botocore", "paramiko", "aiohttp", "azure", "google"}
"""Packages that fsspec uses and whose exceptions are not OSErrors."""


class Content:
    """Test data of a file: ``size`` incompressible bytes, different for every ``run`` and file ``number``.

    A block of random bytes is created once per run. Each chunk of each file begins at a different position in the
    block, so creating chunks takes no time during the measurement. Verification compares bytes, which is many times
    faster than a checksum.
    """

    def __init__(self, run: str, number: int, size: int) -> None:
        self.size = size
        self._block = _random_block(run)
        self._head = hashlib.sha256(f"{run}/{number}".encode()).digest()
        self._offset = int.from_bytes(self._head[:3], "big")

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Iterate over the bytes in chunks."""
        yield self._head[: self.size]
        left = self.size - len(self._head)
        position = self._offset
        while left > 0:
            length = min(left, CHUNK_BYTES)
            start = position % CHUNK_BYTES
            yield self._block[start : start + length]
            left -= length
            position += 65_537

    def matches(self, pieces: Iterable[bytes]) -> bool:
        """Whether the concatenated ``pieces`` equal this content; stops reading at the first difference."""
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
def _random_block(run: str) -> memoryview:
    return memoryview(random.Random(run).randbytes(2 * CHUNK_BYTES))


@dataclass(frozen=True)
class Address:
    """Address of a folder in a store. ``text`` opens it. ``shown`` may be printed; ``text`` and ``secrets`` may not."""

    text: str = field(repr=False)
    shown: str
    protocol: str
    options: Mapping[str, Any] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def store(self) -> str | None:
        """Name of the cloud that stores the files, or None if unknown."""
        nested = self.options.get("client_kwargs")
        named = nested.get("endpoint_url") if isinstance(nested, Mapping) else None
        if named or self.options.get("endpoint_url") or os.environ.get("AWS_ENDPOINT_URL"):
            return None
        return CLOUD_OF_PROTOCOL.get(self.protocol)

    @property
    def is_local(self) -> bool:
        """Whether the store is on this machine."""
        return self.protocol in LOCAL_PROTOCOLS

    @property
    def is_sftp(self) -> bool:
        """Whether the store is accessed through SFTP."""
        return self.protocol in SFTP_PROTOCOLS

    def hide(self, text: object) -> str:
        """``text`` on one line of at most 300 characters, with secrets replaced by ***."""
        line = " ".join(str(text).split())
        for secret in self.secrets:
            line = line.replace(secret, "***")
        return line[:300]


def read_address(url: str, options: Mapping[str, Any] | None = None) -> Address:
    """Check ``url`` and the fsspec ``options`` that open it; return them as an address."""
    try:
        text = check_name("url", url, longest=MAX_URL_LENGTH)
        given = check_mapping("options", options) if options is not None else {}
    except ArgumentError:  # its message shows the value, which may contain a secret
        raise ArgumentError(
            f"url must be a text of 1 to {MAX_URL_LENGTH} characters, such as protocol://host/folder, and options must "
            "map names to values, such as {'anon': True}."
        ) from None
    if "::" in re.sub(r"^(\w+://[^/\[]*)\[[^/\]]*\]", r"\1", text):  # without the host, which may be an IPv6 address
        raise ArgumentError(
            "url chains several file systems with '::', but only one can be measured. Pass the URL of one file system."
        )
    # A path may contain any character. Only a URL with a protocol is parsed.
    if "://" not in text:
        return Address(text, text, "file", given, _as_shown(_find_secrets(given)))
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ArgumentError("url is not a valid URL. Write it as protocol://host/folder.") from None
    login, _, host = parts.netloc.rpartition("@")
    user, *password = re.split("(?:%(?:25)*3A|:)", login, maxsplit=1, flags=re.IGNORECASE)
    shown = f"{parts.scheme}://{user + '@' if user else ''}{host}{parts.path}"
    values = (pair.partition("=")[2] for pair in parts.query.split("&"))
    hidden = {*password, *map(unquote, password), parts.query, *values}
    return Address(text, shown, parts.scheme, given, _as_shown(_find_secrets(given) | hidden))


def is_secret_name(name: str) -> bool:
    """Whether the value of an option or environment variable called ``name`` is treated as secret."""
    return _SECRET_NAME.search(name) is not None


def _find_secrets(options: Mapping[str, Any]) -> set[str]:
    """Secret values that no message may show: those of options, and of environment variables named like secrets."""
    found = {value for name, value in os.environ.items() if is_secret_name(name)}
    waiting: list[tuple[str, Any]] = list(options.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(str(key), item) for key, item in value.items()]
        elif "url" in name or name in _PUBLIC_NAMES:
            continue
        elif isinstance(value, str) or is_secret_name(name):  # a number can be a password too
            found.add(str(value))
    return found


def _as_shown(secrets: Iterable[str]) -> tuple[str, ...]:
    """``secrets`` in the forms in which they can appear in a line of text (plain or as a repr), longest first."""
    lines = {" ".join(form.split()) for secret in secrets for form in (secret, repr(secret)[1:-1])}
    return tuple(sorted((line for line in lines if len(line) >= MIN_SECRET_LENGTH), key=len, reverse=True))


def _open(fsspec: Any, address: Address, options: dict[str, Any]) -> tuple[Any, str]:
    """File system and path of ``address``."""
    if not address.is_sftp or "[" not in (parts := urlsplit(address.text)).netloc:
        files, path = fsspec.core.url_to_fs(address.text, **options)
        return files, path
    login = {"host": parts.hostname, "port": parts.port, "username": parts.username, "password": parts.password}
    named = {name: unquote(value) if isinstance(value, str) else value for name, value in login.items() if value}
    return fsspec.filesystem(address.protocol, **{**named, **options}), parts.path  # fsspec would split at "::"


class Storage:
    """One connection to the folder at ``address``. Errors are raised as :class:`TransferError` without secrets."""

    def __init__(self, address: Address) -> None:
        self.address = address
        fsspec = require("fsspec", extra="transfer", needed_by="Measuring transfers")
        with self.translating("reach"):
            try:
                # Each stream needs its own connection: on a shared connection, streams would take turns.
                options = {**address.options, "skip_instance_cache": True}
                self.files, self.root = _open(fsspec, address, options)
            except ImportError as missing:
                raise MissingPackageError(
                    f"{address.protocol}:// requires a package that is not installed ({address.hide(missing)}). "
                    'Install it, or the packages of all common stores with: pip install "vmselect[transfer]"'
                ) from None
            except TypeError as unknown:
                raise TransferError(
                    f"{address.shown} cannot be opened with these options: {address.hide(unknown)}. "
                    f"Pass only options that fsspec documents for {address.protocol}://."
                ) from None
        self.root = self.root.rstrip("/")

    def close(self) -> None:
        """Close the connection, if the protocol keeps one open."""
        for name in ("ftp", "client") if self.address.is_sftp else ():
            close = getattr(getattr(self.files, name, None), "close", None)
            if close is not None:
                with self.translating("leave"):
                    close()

    def path(self, *parts: str) -> str:
        """Path of a file or folder in the store, from its ``parts`` below the root folder."""
        return "/".join([self.root, *parts])

    def make_folder(self, name: str) -> list[str]:
        """Create the folder ``name`` if the store has folders; return the missing parent folders created with it."""
        made: list[str] = []
        if not (self.address.is_local or self.address.is_sftp):
            return made  # buckets are never created, and object stores need no folders
        with self.translating("make a folder in"):
            above = self.root
            while above.strip("/") and not self.files.exists(above):
                made.append(above)
                above = above.rpartition("/")[0]
            self.files.makedirs(self.path(name), exist_ok=True)
        return made

    def remove_empty(self, paths: list[str]) -> None:
        """Remove the empty folders among ``paths``, which the probe has created, innermost first."""
        with self.translating("remove from"):
            for path in paths:
                self.files.invalidate_cache()
                if self.root.startswith(path) and self.files.isdir(path) and not self.files.ls(path, detail=False):
                    self.files.rmdir(path)

    def write(self, content: bytes, *parts: str) -> None:
        """Write ``content`` to a small file."""
        with self.translating("write to"):
            self.files.pipe_file(self.path(*parts), content)

    def read(self, *parts: str) -> bytes:
        """Return the content of a small file."""
        with self.translating("read from"):
            data: bytes = self.files.cat_file(self.path(*parts))
            return data

    def upload(self, content: Content, *parts: str, stopped: Callable[[], bool] = lambda: False) -> None:
        """Write a file in chunks, until done or ``stopped()``; return when the store has received it."""
        with self.translating("write to"), self.files.open(self.path(*parts), "wb") as file:
            if self.address.is_sftp:
                file.set_pipelined(True)  # otherwise SFTP waits for the response to each of many small packets
            for chunk in content.chunks():
                if stopped():
                    return
                file.write(chunk)

    def download(self, content: Content, *parts: str, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Read a file and return whether it equals ``content``. True if ``stopped()`` ended the reading."""
        remote = not (self.address.is_local or self.address.is_sftp)
        options = {"cache_type": "readahead", "block_size": 8 * CHUNK_BYTES} if remote else {}
        with self.translating("read from"), self.files.open(self.path(*parts), "rb", **options) as file:
            if self.address.is_sftp:
                file.prefetch(file.stat().st_size)  # requests the whole file at once instead of packet by packet
            pieces = iter(lambda: b"" if stopped() else file.read(CHUNK_BYTES), b"")
            return content.matches(pieces) or stopped()

    def remove(self, *parts: str) -> None:
        """Remove a folder and its contents, including unfinished multipart uploads."""
        path = self.path(*parts)
        with self.translating("remove from"), suppress(FileNotFoundError):  # no bucket, so nothing is left in it
            if self.files.exists(path):
                self.files.rm(path, recursive=True)
            bucket = path.lstrip("/").partition("/")[0]
            for key, upload in self._unfinished(path + "/"):
                self.files.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload)

    def names(self) -> set[str]:
        """Names of files and folders in the root folder, including unfinished uploads; empty if it does not exist."""
        found: set[str] = set()
        with self.translating("list"):
            self.files.invalidate_cache()
            with suppress(FileNotFoundError):
                found |= {str(path).rstrip("/").rpartition("/")[2] for path in self.files.ls(self.root, detail=False)}
            prefix = self.root.lstrip("/").partition("/")[2]
            with suppress(FileNotFoundError):
                keys = [key for key, _ in self._unfinished(self.root)]
                found |= {key[len(prefix) :].lstrip("/").partition("/")[0] for key in keys}
        return found

    def _unfinished(self, path: str) -> list[tuple[str, str]]:
        """Keys and IDs of unfinished multipart uploads to S3, which are billed but not listed as files."""
        if self.address.protocol not in S3_PROTOCOLS:
            return []
        bucket, _, prefix = path.lstrip("/").partition("/")
        answer = self.files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix)
        return [(upload["Key"], upload["UploadId"]) for upload in answer.get("Uploads", ())]

    @contextmanager
    def translating(self, doing: str) -> Iterator[None]:
        """Convert errors while ``doing`` something with the store to a :class:`TransferError` without secrets."""
        try:
            yield
        except Exception as error:
            packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
            if not isinstance(error, (OSError, EOFError, ValueError)) and not packages & _STORE_PACKAGES:
                raise
            raise TransferError(explain(self.address, doing, error)) from None


def explain(address: Address, doing: str, error: Exception) -> str:
    """Message for ``error`` while ``doing`` something with the store, with a remedy for this kind of error."""
    number, name = getattr(error, "errno", None), type(error).__name__
    text = address.hide(getattr(error, "strerror", None) or error) or name
    if isinstance(error, PermissionError) or name in ("AuthenticationException", "NoCredentialsError"):
        remedy = "Check the credentials, and that they permit writing, reading, listing and deleting in this folder."
    elif number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "Free some space in the store, or transfer less data with megabytes=."
    elif isinstance(error, FileNotFoundError):
        remedy = "Check that the bucket or folder exists."
    else:
        remedy = "Check the address and the network connection, then try again."
    return f"Cannot {doing} {address.shown}: {text} ({name}). {remedy}"
