"""Reading and writing of files in folders that a URL such as ``s3://bucket/folder`` names, through fsspec.

Readers only see complete files: object stores create each object atomically; in other stores, a file is written under a
temporary name and renamed. New files have unique names. Where the store supports this, creating a file fails if
its name exists.
"""

from __future__ import annotations

import errno
import os
import re
import secrets as random_bytes
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from vmselect import _files
from vmselect._checks import check_mapping, check_name, check_path
from vmselect._optional import require
from vmselect.errors import ArgumentError, MissingPackageError, ProfileError, VmselectError

CLOUD_OF_PROTOCOL = {
    "s3": "aws", "s3a": "aws", "az": "azure", "abfs": "azure", "abfss": "azure", "adl": "azure", "gs": "gcp",
    "gcs": "gcp",
}  # fmt: skip
"""Maps a URL protocol to the cloud that stores the files, unless the options contain the address of another server."""

LOCAL_PROTOCOLS = ("file", "local", "memory")
SFTP_PROTOCOLS = ("sftp", "ssh")
S3_PROTOCOLS = ("s3", "s3a")

MAX_URL_LENGTH = 2_000
MIN_SECRET_LENGTH = 4

_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASS(?!I)|CREDENTIAL|_KEY|_SAS|CONNECTION_STRING|_PAT(_|$)|(^|_)AUTH(?!OR(_|$))", re.IGNORECASE
)
_PUBLIC_NAMES = ("host", "hostname", "username", "region_name")
"""Names of fsspec options whose values are not secret, so that messages may show them."""

_STORE_PACKAGES = {"botocore", "paramiko", "aiohttp", "azure", "google"}
"""Packages that fsspec uses and that raise exceptions other than OSError."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_ATOMIC_PROTOCOLS = ("memory", *CLOUD_OF_PROTOCOL)
"""Protocols of stores that create files atomically and can refuse to replace an existing file."""

MAX_ENTRIES = 2_000_000
"""Largest number of files in a folder. Listing a folder with more files raises an error."""

RECENT_SECONDS = 60.0
"""A file that was changed less than this ago may change again within the same second. If the store gives file times in
whole seconds, the time of such a file does not identify its content."""

_BATCH = 200
"""Number of files that are requested from a store at the same time."""


@dataclass(frozen=True)
class Address:
    """Address of a folder in a store.

    ``text`` is the complete URL and may contain a password; ``shown`` is the URL without secrets, for messages.
    ``options`` are passed to fsspec, and ``secrets`` are texts that no message may contain.
    """

    text: str = field(repr=False)
    shown: str
    protocol: str
    options: Mapping[str, Any] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def store(self) -> str | None:
        """Name of the cloud that stores the files, such as "aws"; None if unknown."""
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
        """Return ``text`` on one line of at most 300 characters, with secrets replaced by ``***``."""
        line = " ".join(str(text).split())
        for secret in self.secrets:
            line = line.replace(secret, "***")
        return line[:300]


def read_address(url: str, options: Mapping[str, Any] | None = None) -> Address:
    """Check ``url`` and the ``options`` for fsspec, and return them as an address."""
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
            "url chains several file systems with '::', but only one can be used. Pass the URL of one file system."
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
    """Return whether the value of an option or environment variable called ``name`` is treated as secret."""
    return _SECRET_NAME.search(name) is not None


def _find_secrets(options: Mapping[str, Any]) -> set[str]:
    """Return the values of ``options`` and of environment variables that are treated as secret."""
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
    """Return ``secrets`` as they may appear in a message (plain and as part of a repr), longest first."""
    lines = {" ".join(form.split()) for secret in secrets for form in (secret, repr(secret)[1:-1])}
    return tuple(sorted((line for line in lines if len(line) >= MIN_SECRET_LENGTH), key=len, reverse=True))


def _open(fsspec: Any, address: Address, options: dict[str, Any]) -> tuple[Any, str]:
    """Return the fsspec file system of ``address``, and the path of the folder in it."""
    if not address.is_sftp or "[" not in (parts := urlsplit(address.text)).netloc:
        files, path = fsspec.core.url_to_fs(address.text, **options)
        return files, path
    login = {"host": parts.hostname, "port": parts.port, "username": parts.username, "password": parts.password}
    named = {name: unquote(value) if isinstance(value, str) else value for name, value in login.items() if value}
    return fsspec.filesystem(address.protocol, **{**named, **options}), parts.path  # fsspec would split at "::"


def open_files(address: Address, *, own: bool, error: type[VmselectError]) -> tuple[Any, str]:
    """Return the fsspec file system of ``address``, and the path of the folder in it.

    With ``own=True``, a new connection is opened; otherwise fsspec may reuse an open one. Failures raise ``error``.
    """
    fsspec = require("fsspec", extra="transfer", needed_by="A folder named by a URL")
    with translating(address, "reach", error=error):
        try:
            files, root = _open(fsspec, address, {**address.options, "skip_instance_cache": own})
        except ImportError as missing:
            raise MissingPackageError(
                f"{address.protocol}:// requires a package that is not installed ({address.hide(missing)}). "
                'Install it, or the packages of all common stores with: pip install "vmselect[transfer]"'
            ) from None
        except TypeError as unknown:
            raise error(
                f"{address.shown} cannot be opened with these options: {address.hide(unknown)}. "
                f"Pass only options that fsspec documents for {address.protocol}://."
            ) from None
    return files, root.rstrip("/")


@contextmanager
def translating(address: Address, doing: str, *, error: type[VmselectError]) -> Iterator[None]:
    """Context manager that converts errors of the store to ``error``, with a message without secrets.

    ``doing`` is the verb of the message: "read from" gives "Cannot read from s3://...".
    """
    try:
        yield
    except VmselectError:
        raise
    except Exception as cannot:
        packages = {kind.__module__.partition(".")[0] for kind in type(cannot).__mro__}
        if not isinstance(cannot, (OSError, EOFError, ValueError)) and not packages & _STORE_PACKAGES:
            raise
        raise error(explain(address, doing, cannot)) from None


def explain(address: Address, doing: str, error: Exception) -> str:
    """Return a message about ``error`` with a remedy. ``doing`` is its verb: "read from" gives "Cannot read from"."""
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


# -- folders of records ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Url(os.PathLike[str]):
    """The URL of a file or folder. ``str()`` gives it without secrets, ``os.fspath()`` with them."""

    address: Address

    def __str__(self) -> str:
        return self.address.shown

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and other.address.text == self.address.text

    def __hash__(self) -> int:
        return hash(self.address.text)

    def __fspath__(self) -> str:
        return self.address.text

    def __truediv__(self, name: str) -> Url:
        return Url(read_address(f"{self.address.text.rstrip('/')}/{name}"))

    @property
    def name(self) -> str:
        """Name of the file or folder: the last part of the URL's path."""
        return PurePosixPath(urlsplit(self.address.text).path).name

    @property
    def parent(self) -> Url:
        """The URL of the folder that contains this file."""
        return Url(read_address(self.address.text.rstrip("/").rpartition("/")[0]))

    @property
    def is_record(self) -> bool:
        """Whether this is the URL of a record, which ends in ``.json``, and not of a folder."""
        return self.name.lower().endswith(".json")


Place = Path | Url


def check_place(name: str, value: Any) -> Place:
    """Return ``value`` as a Url if it begins with a protocol such as ``s3://``, otherwise as a Path.

    A ``file://`` URL also gives a Path. ``name`` is the name of the argument in error messages.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not _URL.match(text):
        return check_path(name, value)
    address = read_address(text)
    if address.protocol in ("file", "local"):
        return check_path(name, text.partition("://")[2])
    return Url(address)


class Entry(NamedTuple):
    """A file in a folder. ``size`` is in bytes; ``version`` is a text that changes whenever the content changes.

    ``version`` is empty if the store does not provide such a text.
    """

    name: str
    size: int
    version: str


class Folder:
    """A folder in a store. Its methods raise :class:`ProfileError`, with messages that contain no secrets."""

    def __init__(self, url: Url) -> None:
        self.address = url.address
        # A shared connection of sftp may have been closed by the server.
        self._files, self._root = open_files(url.address, own=url.address.is_sftp, error=ProfileError)

    def entries(self, below: str = "") -> list[Entry]:
        """Return the files in the folder or in its subfolder ``below``, in any order; none if it does not exist."""
        found = []
        with translating(self.address, "list", error=ProfileError):
            self._files.invalidate_cache()
            try:
                listed = self._files.ls(self._path(below) if below else self._root, detail=True)
            except FileNotFoundError:
                return []
            if len(listed) > MAX_ENTRIES:
                raise ProfileError(f"{self.address.shown} has more than {MAX_ENTRIES:,} files. Use several folders.")
            for info in listed:
                name = str(info["name"]).rstrip("/").rpartition("/")[2]
                if info.get("type") == "file" and name:
                    version = "" if self.address.is_sftp and _is_recent(info) else _version(info)
                    found.append(Entry(name, int(info.get("size") or 0), version))
        return found

    def subfolders(self, below: str) -> list[str]:
        """Return the names of the folders in the subfolder ``below``."""
        with translating(self.address, "list", error=ProfileError):
            self._files.invalidate_cache()
            try:
                listed = self._files.ls(self._path(below), detail=True)
            except FileNotFoundError:
                return []
            names = (str(info["name"]) for info in listed if info.get("type") == "directory")
            return sorted(name.rstrip("/").rpartition("/")[2] for name in names)

    def has(self, name: str) -> bool:
        """Return whether the file ``name`` exists."""
        with translating(self.address, "read from", error=ProfileError):
            self._files.invalidate_cache()
            return bool(self._files.isfile(self._path(name)))

    def read(self, name: str, *, limit: int) -> bytes:
        """Return the content of the file ``name``. Raise ProfileError if it has more than ``limit`` bytes."""
        with translating(self.address, f"read {name[:100]!r} from", error=ProfileError):
            self._files.invalidate_cache()
            path = self._path(name)
            _check_size(name, int(self._files.info(path).get("size") or 0), limit)
            data: bytes = self._files.cat_file(path)
        _check_size(name, len(data), limit)
        return data

    def read_all(self, entries: Sequence[Entry], *, limit: int) -> Iterator[tuple[Entry, bytes | ProfileError]]:
        """Yield each of ``entries`` with its content, or with an error if it cannot be read or exceeds ``limit`` bytes.

        Several files are requested at the same time.
        """
        for start in range(0, len(entries), _BATCH):
            batch = entries[start : start + _BATCH]
            small = [self._path(one.name) for one in batch if one.size <= limit]
            with translating(self.address, "read from", error=ProfileError):
                got = self._files.cat(small, on_error="return") if small else {}
            contents = dict(zip(small, [got] if isinstance(got, bytes) else [got.get(p) for p in small], strict=True))
            for one in batch:
                try:
                    _check_size(one.name, one.size, limit)
                    with translating(self.address, f"read {one.name[:100]!r} from", error=ProfileError):
                        content = contents[self._path(one.name)]
                        if isinstance(content, Exception):
                            raise content
                        if content is None:
                            raise FileNotFoundError(errno.ENOENT, "the file does not exist any more")
                    _check_size(one.name, len(content), limit)
                    yield one, content
                except ProfileError as unreadable:
                    yield one, unreadable

    def create(self, name: str, data: bytes) -> bool:
        """Write the new file ``name``, or return False if it exists.

        Choose a unique ``name``: in some stores, two writers of the same name can overwrite each other's file.
        """
        with translating(self.address, "write to", error=ProfileError):
            path = self._path(name)
            try:
                if CLOUD_OF_PROTOCOL.get(self.address.protocol) == "azure":
                    self._files.pipe_file(path, data, overwrite=False)  # adlfs does not know the mode
                elif self.address.protocol in _ATOMIC_PROTOCOLS:
                    self._files.pipe_file(path, data, mode="create")
                elif self.address.is_sftp:
                    with self._part(path, data) as part:
                        if self._files.exists(path):
                            return False
                        self._files.ftp.rename(part, path)  # fails if the name exists
                elif self._files.exists(path):
                    return False
                else:
                    self._write(path, data)
            except Exception as cannot:  # Azure has its own class for this
                if not isinstance(cannot, FileExistsError) and type(cannot).__name__ != "ResourceExistsError":
                    raise
                return False
        return True

    def write(self, name: str, data: bytes) -> None:
        """Write the file ``name``. An existing file is replaced atomically."""
        with translating(self.address, "write to", error=ProfileError):
            self._write(self._path(name), data)

    def remove(self, name: str) -> None:
        """Remove the file ``name`` if it exists."""
        with translating(self.address, "remove from", error=ProfileError), suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def _write(self, path: str, data: bytes) -> None:
        if self.address.protocol in _ATOMIC_PROTOCOLS:
            self._files.pipe_file(path, data)
        else:
            with self._part(path, data) as part:
                self._files.mv(part, path)

    @contextmanager
    def _part(self, path: str, data: bytes) -> Iterator[str]:
        """Create a temporary file with ``data`` in the folder of ``path``; remove it at the end unless renamed."""
        folder = path.rpartition("/")[0]
        part = f"{folder}/.vmselect-{random_bytes.token_hex(8)}.part"
        self._files.makedirs(folder, exist_ok=True)
        try:
            self._files.pipe_file(part, data)
            yield part
        finally:
            with suppress(OSError):
                if self._files.exists(part):
                    self._files.rm_file(part)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def _version(info: Mapping[str, Any]) -> str:
    """Return a text that changes with the content of a file, from the file's metadata ``info``."""
    for name in ("ETag", "etag", "md5Hash", "generation", "LastModified", "last_modified", "mtime", "created"):
        if info.get(name):
            return f"{info.get('size') or 0}-{info[name]}"[:200]
    return ""


def _is_recent(info: Mapping[str, Any]) -> bool:
    """Return whether a file was changed so recently that its time does not identify its content.

    The file times of SFTP are whole seconds, and the clocks of two machines differ.
    """
    changed = info.get("mtime")
    return not isinstance(changed, datetime) or time.time() - changed.timestamp() < RECENT_SECONDS


def _check_size(name: str, size: int, limit: int) -> None:
    if size > limit:
        raise ProfileError(f"{name} is larger than {limit // 2**20} MiB, so it is not a record. Check the folder.")


class LocalFolder:
    """A folder on this machine, with the methods of :class:`Folder`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def entries(self, below: str = "") -> list[Entry]:
        """Return the files in the folder or in its subfolder ``below``, in any order; none if it does not exist."""
        found = []
        try:
            with os.scandir(self.path / below) as listed:
                for one in listed:
                    try:
                        if one.is_file():
                            about = one.stat()
                            size = about.st_size
                            found.append(Entry(one.name, size, f"{size}-{about.st_mtime_ns}"))
                    except FileNotFoundError:  # removed since it was listed
                        continue
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as cannot:
            reason = cannot.strerror or type(cannot).__name__
            raise ProfileError(f"{self.path} cannot be read: {reason}. Check the permissions.") from None
        return found

    def subfolders(self, below: str) -> list[str]:
        """Return the names of the folders in the subfolder ``below``."""
        try:
            return sorted(one.name for one in (self.path / below).iterdir() if one.is_dir())
        except OSError:
            return []

    def read(self, name: str, *, limit: int) -> bytes:
        """Return the content of the file ``name``. Raise ProfileError if it has more than ``limit`` bytes."""
        return _files.read_bytes(self.path / name, noun="record", limit=limit)

    def read_all(self, entries: Sequence[Entry], *, limit: int) -> Iterator[tuple[Entry, bytes | ProfileError]]:
        """Yield each of ``entries`` with its content, or with an error if unreadable or larger than ``limit`` bytes."""
        for one in entries:
            try:
                yield one, self.read(one.name, limit=limit)
            except ProfileError as unreadable:
                yield one, unreadable

    def create(self, name: str, data: bytes) -> bool:
        """Write the new file ``name``, or return False if it exists."""
        if _files.has_file(self.path / name):
            return False
        _files.write_bytes(self.path / name, data)
        return True

    def remove(self, name: str) -> None:
        """Remove the file ``name`` if it exists."""
        with _files.writing(self.path / name):
            (self.path / name).unlink(missing_ok=True)


def open_folder(place: Place) -> Folder | LocalFolder:
    """Return the folder at the path or URL ``place``."""
    return Folder(place) if isinstance(place, Url) else LocalFolder(place)
