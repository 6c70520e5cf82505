"""Reading and writing of files: paths on this machine, and URLs such as ``s3://bucket/folder`` through fsspec.

A file is read with a size limit. It is written under a temporary name, synchronized to disk and renamed, so that
readers see either the old or the new content; object stores create each object atomically. Temporary files of killed
processes are removed at the next write to the same folder. New files have unique names: where the system supports it,
creating a file fails if its name exists. No message contains a secret of a URL or of its options.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import secrets as random_bytes
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from vmselect._checks import check_mapping, check_name, check_path
from vmselect._imports import require
from vmselect.errors import ArgumentError, CatalogError, MissingPackageError, ProfileError, VmselectError

ABANDONED_AFTER_SECONDS = 3600.0
"""A temporary file that is older than this is treated as left by a killed process and removed."""

AnyPath = str | os.PathLike[str]

_TEMPORARY = re.compile(r"\.vmselect-[0-9a-f]{16}\.part")
_cleaned: set[Path] = set()
_CHUNK_BYTES = 2**20


_confined: ContextVar[tuple[Path, ...]] = ContextVar("_confined", default=())


@contextmanager
def confined_to(folders: Sequence[Path]) -> Iterator[None]:
    """Context in which a link in one of ``folders`` (without links themselves) that leads out of them is not read."""
    token = _confined.set(tuple(folders))
    try:
        yield
    finally:
        _confined.reset(token)


def _check_confined(path: AnyPath) -> None:
    folders = _confined.get()
    if not folders:
        return
    named, real = Path(path).absolute(), Path(os.path.realpath(path))
    # Files outside, such as the shipped prices, are read only if vmselect itself names them.
    if any(map(named.is_relative_to, folders)) and not any(map(real.is_relative_to, folders)):
        raise OSError(0, "it is a link that leads out of the folders that may be read")


# -- reading -----------------------------------------------------------------------------------------------------------


def read_bytes(path: AnyPath, *, noun: str, limit: int, error: type[VmselectError] = ProfileError) -> bytes:
    """Return the content of the regular file ``path``, of at most ``limit`` bytes.

    Failures raise ``error``, with a message that calls the file a ``noun``, such as "record".
    """
    try:
        _check_confined(path)
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode):
                raise OSError(0, "the path is not a regular file")
            # A buffer of the size: one of the limit takes longer to allocate than a record takes to read.
            data = os.read(handle, min(about.st_size, limit) + 1)
            while len(data) != about.st_size and len(data) <= limit and (more := os.read(handle, _CHUNK_BYTES)):
                data += more
        finally:
            os.close(handle)
    except FileNotFoundError:
        raise error(f"{path}: there is no such file or folder. Check the path.") from None
    except (OSError, ValueError, TypeError) as cannot:
        raise error(f"{path}: the {noun} cannot be read: {_reason(cannot)}. Check the path.") from None
    if len(data) > limit:
        raise error(f"{path} is larger than {limit // 2**20} MiB, so it is not a {noun}. Check the path.")
    return data


def read_text(path: AnyPath, *, noun: str, limit: int, error: type[VmselectError] = ProfileError) -> str:
    """Return the content of the UTF-8 file ``path`` as text; see :func:`read_bytes` for the arguments."""
    try:
        return read_bytes(path, noun=noun, limit=limit, error=error).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"{path} is not UTF-8 text, so it is not a {noun}. Check the path.") from None


# -- writing -----------------------------------------------------------------------------------------------------------


def write_text(path: AnyPath, text: str, *, error: type[VmselectError] = ProfileError) -> Path:
    """Write ``text`` to ``path``. An existing file is replaced and keeps its permissions."""
    return write_bytes(path, text.encode("utf-8"), error=error)


def write_bytes(path: AnyPath, data: bytes, *, error: type[VmselectError] = ProfileError) -> Path:
    """Write ``data`` to ``path``, or to the target of the symbolic link ``path``.

    An existing file is replaced and keeps its permissions.
    """
    with writing(path, error=error):
        target = Path(os.path.realpath(path))
        with _temporary_file(target.parent, data, _mode_of(target)) as temporary:
            temporary.replace(target)
        _sync_folder(target.parent)
    return Path(path)


def write_new(folder: Path, stem: str, text: str) -> Path:
    """Write ``text`` to a new file ``stem``.json in ``folder``, or ``stem``-2.json and so on if that name exists."""
    with writing(folder):
        with _temporary_file(folder, text.encode("utf-8"), None) as temporary:
            target = _claim_name(temporary, stem, otherwise=f"{stem}-{random_bytes.token_hex(4)}")
        _sync_folder(folder)
    return target


def _claim_name(file: Path, stem: str, *, otherwise: str) -> Path:
    """Give ``file`` the name ``stem``.json in its folder, or ``stem``-2.json and so on if that exists.

    The name is a hard link, which fails if the name exists, so that concurrent writers get different names; the caller
    removes the old name. On a file system without links, the file is renamed to the unique stem ``otherwise``.
    """
    for number in itertools.count(1):
        target = file.with_name(f"{stem}{f'-{number}' if number > 1 else ''}.json")
        try:
            os.link(file, target)
        except FileExistsError:
            continue
        except OSError:
            break
        return target
    return file.replace(file.with_name(f"{otherwise}.json"))


@contextmanager
def writing(path: AnyPath, *, error: type[VmselectError] = ProfileError) -> Iterator[None]:
    """Context manager for writing ``path``: it raises ``error`` instead of errors of the operating system."""
    try:
        yield
    except (OSError, ValueError, TypeError) as cannot:
        raise error(f"{path} cannot be written: {_reason(cannot)}. Choose a writable path.") from cannot


def check_writable(path: AnyPath) -> None:
    """Raise a :class:`ProfileError` now if ``path`` (a file or a folder) could not be written later."""
    with writing(path):
        target = Path(path)
        folder = target if is_folder(target) else Path(os.path.realpath(target)).parent
        _mode_of(target)
        while not folder.exists() and folder != folder.parent:  # a check creates no folders
            folder = folder.parent
        with _temporary_file(folder, b"", None):
            pass


def _mode_of(target: Path) -> int | None:
    """Return the permission bits of the file ``target``; None if it does not exist or is a folder."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        return None
    if not stat.S_ISREG(mode):
        raise OSError(0, "the path is not a regular file")
    return stat.S_IMODE(mode)


def is_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder, or does not exist and would become a folder (name without ``.json``)."""
    mode = _mode(path)  # looked up once: another process may create the folder between two look-ups
    return stat.S_ISDIR(mode) or (not mode and path.suffix.lower() != ".json")


def has_file(path: Path) -> bool:
    """Return whether ``path`` is a regular file; False if access is denied."""
    return stat.S_ISREG(_mode(path))


def has_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder; False if access is denied."""
    return stat.S_ISDIR(_mode(path))


def safe_name(text: str) -> str:
    """Return ``text`` as part of a file name: at most 100 characters, with special characters replaced by ``_``."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text).lstrip("._-")[:100].rstrip("._") or "unnamed"


def pricing_folder() -> Path:
    """Return the folder of the prices that ship with vmselect, in the installed package or in a source checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_pricing", package.parent / "pricing"):
        if (folder / "manifest.json").is_file():
            return folder
    raise CatalogError("The prices that ship with vmselect are missing. Install vmselect again.")


def cache_folder() -> Path:
    """Return the folder in the environment variable ``VMSELECT_CACHE_DIR``, or else the platform's cache folder."""
    own = os.environ.get("VMSELECT_CACHE_DIR")
    try:
        return Path(own).expanduser() if own else _platform_folder() / "vmselect"
    except RuntimeError:  # no such user, or one without a home
        place = f"VMSELECT_CACHE_DIR is {own!r}, but that user's home" if own else "The user's home"
        raise CatalogError(f"{place} folder is unknown. Set VMSELECT_CACHE_DIR to an absolute path.") from None


def _platform_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _mode(path: Path) -> int:
    """Return ``st_mode`` of the file or folder ``path``; 0 if it does not exist or access is denied."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


@contextmanager
def _temporary_file(folder: Path, data: bytes, mode: int | None) -> Iterator[Path]:
    """Create a temporary file with ``data`` and the permissions ``mode``; remove it at the end unless renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder)
    path = folder / f".vmselect-{random_bytes.token_hex(8)}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        path.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove old temporary files of killed processes from ``folder``. Later calls for the same folder do nothing."""
    if folder in _cleaned:
        return
    _cleaned.add(folder)
    oldest = time.time() - ABANDONED_AFTER_SECONDS
    with os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name):
                try:
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        Path(entry.path).unlink()
                except OSError:
                    continue  # just renamed, or another user's


def _sync_folder(folder: Path) -> None:
    """Synchronize the file names in ``folder`` to disk, if the operating system supports this."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _reason(cannot: Exception) -> str:
    lines = str(getattr(cannot, "strerror", None) or cannot).splitlines()
    return lines[0][:200] if lines else type(cannot).__name__


# -- addresses of stores ----------------------------------------------------------------------------------------------

CLOUD_OF_PROTOCOL = {
    "s3": "aws", "s3a": "aws", "az": "azure", "abfs": "azure", "abfss": "azure", "adl": "azure", "gs": "gcp",
    "gcs": "gcp",
}  # fmt: skip
"""Maps a URL protocol to the cloud that stores the files, unless the options contain the address of another server."""

HTTP_PROTOCOLS = ("http", "https")
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

_WEB_BATCH = 8
"""The same for a web server, which does not state the sizes of files: each may take the limit below."""

WEB_LIMIT_BYTES = 32 * 2**20
"""Largest response of a web server, the size of the largest record. Reading ends there."""

REDIRECT_HOSTS = "VMSELECT_REDIRECT_HOSTS"
"""Environment variable with the hosts, separated by commas, to which web servers may redirect requests for records."""


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
    def cloud(self) -> str | None:
        """Name of the cloud that stores the files, such as "aws"; None if unknown."""
        nested = self.options.get("client_kwargs")
        named = nested.get("endpoint_url") if isinstance(nested, Mapping) else None
        if named or self.options.get("endpoint_url"):
            return None
        # The variable sends only S3 requests to another server, such as MinIO.
        if self.protocol in S3_PROTOCOLS and os.environ.get("AWS_ENDPOINT_URL"):
            return None
        return CLOUD_OF_PROTOCOL.get(self.protocol)

    @property
    def is_local(self) -> bool:
        """Whether the store is on this machine."""
        return self.protocol in LOCAL_PROTOCOLS

    @property
    def is_web(self) -> bool:
        """Whether the store is a web server."""
        return self.protocol in HTTP_PROTOCOLS

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
        settings = check_mapping("options", options) if options is not None else {}
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
        return Address(text, text, "file", settings, _as_shown(_find_secrets(settings)))
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
    return Address(text, shown, parts.scheme, settings, _as_shown(_find_secrets(settings) | hidden))


def is_secret_name(name: str) -> bool:
    """Return whether the value of an option or environment variable called ``name`` is treated as secret."""
    return _SECRET_NAME.search(name) is not None


def _find_secrets(options: Mapping[str, Any]) -> set[str]:
    """Return the values of ``options`` and of environment variables that are treated as secret."""
    secrets = {value for name, value in os.environ.items() if is_secret_name(name)}
    waiting: list[tuple[str, Any]] = list(options.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(str(key), item) for key, item in value.items()]
        elif "url" in name or name in _PUBLIC_NAMES:
            continue
        elif isinstance(value, str) or is_secret_name(name):  # a number can be a password too
            secrets.add(str(value))
    return secrets


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


# -- web servers -------------------------------------------------------------------------------------------------------


async def open_session(**options: Any) -> Any:
    """Return a session of aiohttp for fsspec that limits responses and refuses redirects to other hosts."""
    import aiohttp  # fsspec needs it for these URLs only

    class Response(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            """Read the body up to the limit: a server need not state the length of a body, or of an endless one."""
            if self._body is None:
                body = bytearray()
                async for chunk in self.content.iter_chunked(_CHUNK_BYTES):
                    body += chunk
                    if len(body) > WEB_LIMIT_BYTES:
                        self.close()
                        raise ProfileError(
                            f"The response of {self.url.host} is larger than {WEB_LIMIT_BYTES // 2**20} MiB, so it is "
                            "not a record. Check the URL."
                        )
                self._body = bytes(body)
            return await super().read()

    async def check_redirect(_session: Any, _context: Any, request: Any) -> None:
        response = request.response
        # aiohttp follows both names of the header.
        location = response.headers.get("Location") or response.headers.get("URI") or ""
        address = str(response.url)
        _check_redirect(urlsplit(address), urlsplit(urljoin(address, location)))

    tracing = aiohttp.TraceConfig()
    tracing.on_request_redirect.append(check_redirect)
    return aiohttp.ClientSession(**{**options, "response_class": Response, "trace_configs": [tracing]})


def _check_redirect(asked: SplitResult, target: SplitResult) -> None:
    """Raise ProfileError if a redirect leaves the server: it could reach services of this machine or network."""
    if (asked.hostname, _port(asked)) == (target.hostname, _port(target)) and asked.scheme <= target.scheme:
        return
    # From http to https of the same host, each at its usual port.
    if (asked.hostname, _port(asked), _port(target)) == (target.hostname, 80, 443) and target.scheme == "https":
        return
    allowed = [host.strip().lower() for host in os.environ.get(REDIRECT_HOSTS, "").split(",")]
    if target.scheme in HTTP_PROTOCOLS and target.hostname in allowed:
        return
    raise ProfileError(
        f"{asked.hostname} redirects to {target.scheme}://{target.netloc.rpartition('@')[2]}, which is not read. "
        f"Pass the final URL if you trust it, or set {REDIRECT_HOSTS}={target.hostname}."
    )


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None


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


def default_folder() -> Place:
    """Return the folder for records whose path nobody names: ``VMSELECT_FOLDER``, else ``profiles``.

    Probes write to it and :func:`vmselect.load_profiles` reads it, so neither needs an argument.
    """
    # An empty variable counts as unset.
    named = os.environ.get("VMSELECT_FOLDER", "").strip()
    return check_place("VMSELECT_FOLDER", named) if named else Path("profiles")


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
        address = url.address
        if address.is_web:
            address = replace(address, options={"get_client": open_session, **address.options})
        self._files, self._root = open_files(address, own=address.is_sftp, error=ProfileError)

    def entries(self, below: str = "") -> list[Entry]:
        """Return the files in the folder or in its subfolder ``below``, in any order; none if it does not exist."""
        files = []
        with translating(self.address, "list", error=ProfileError):
            self._files.invalidate_cache()
            try:
                listed = self._files.ls(self._path(below) if below else self._root, detail=True)
            except FileNotFoundError:
                # A folder of a store exists if it has files, but its bucket has to be created.
                if self.address.protocol in CLOUD_OF_PROTOCOL and not self._files.exists(self._bucket):
                    raise FileNotFoundError(errno.ENOENT, f"there is no bucket {self._bucket}") from None
                return []
            if len(listed) > MAX_ENTRIES:
                raise ProfileError(f"{self.address.shown} has more than {MAX_ENTRIES:,} files. Use several folders.")
            for info in listed:
                name = str(info["name"]).rstrip("/").rpartition("/")[2]
                if info.get("type") == "file" and name:
                    version = "" if self.address.is_sftp and _is_recent(info) else _version(info)
                    files.append(Entry(name, int(info.get("size") or 0), version))
        return files

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
            if not self.address.is_web:  # it may not state the size, and reading ends at a limit anyway
                _check_size(name, int(self._files.info(path).get("size") or 0), limit)
            data: bytes = self._files.cat_file(path)
        _check_size(name, len(data), limit)
        return data

    def read_all(self, entries: Sequence[Entry], *, limit: int) -> Iterator[tuple[Entry, bytes | ProfileError]]:
        """Yield each of ``entries`` with its content, or with an error if it cannot be read or exceeds ``limit`` bytes.

        Several files are requested at the same time.
        """
        size = _WEB_BATCH if self.address.is_web else _BATCH
        for start in range(0, len(entries), size):
            batch = entries[start : start + size]
            small = [self._path(entry.name) for entry in batch if entry.size <= limit]
            with translating(self.address, "read from", error=ProfileError):
                got = self._files.cat(small, on_error="return") if small else {}
            contents = dict(zip(small, [got] if isinstance(got, bytes) else [got.get(p) for p in small], strict=True))
            for entry in batch:
                try:
                    _check_size(entry.name, entry.size, limit)
                    with translating(self.address, f"read {entry.name[:100]!r} from", error=ProfileError):
                        content = contents[self._path(entry.name)]
                        if isinstance(content, Exception):
                            raise content
                        if content is None:
                            raise FileNotFoundError(errno.ENOENT, "the file does not exist any more")
                    _check_size(entry.name, len(content), limit)
                    yield entry, content
                except ProfileError as unreadable:
                    yield entry, unreadable

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

    @property
    def _bucket(self) -> str:
        return self._root.lstrip("/").partition("/")[0]

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
        files = []
        try:
            with os.scandir(self.path / below) as listed:
                for item in listed:
                    try:
                        if item.is_file():
                            about = item.stat()
                            size = about.st_size
                            # An editor can restore the size and the time of a file, but not the time of the change.
                            version = f"{size}-{about.st_mtime_ns}-{about.st_ctime_ns}"
                            files.append(Entry(item.name, size, version))
                    except FileNotFoundError:  # removed since it was listed
                        continue
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as cannot:
            reason = cannot.strerror or type(cannot).__name__
            raise ProfileError(f"{self.path} cannot be read: {reason}. Check the permissions.") from None
        return files

    def subfolders(self, below: str) -> list[str]:
        """Return the names of the folders in the subfolder ``below``."""
        try:
            return sorted(path.name for path in (self.path / below).iterdir() if path.is_dir())
        except OSError:
            return []

    def read(self, name: str, *, limit: int) -> bytes:
        """Return the content of the file ``name``. Raise ProfileError if it has more than ``limit`` bytes."""
        return read_bytes(self.path / name, noun="record", limit=limit)

    def read_all(self, entries: Sequence[Entry], *, limit: int) -> Iterator[tuple[Entry, bytes | ProfileError]]:
        """Yield each of ``entries`` with its content, or with an error if unreadable or larger than ``limit`` bytes."""
        for entry in entries:
            try:
                yield entry, self.read(entry.name, limit=limit)
            except ProfileError as unreadable:
                yield entry, unreadable

    def create(self, name: str, data: bytes) -> bool:
        """Write the new file ``name``, or return False if it exists."""
        if has_file(self.path / name):
            return False
        write_bytes(self.path / name, data)
        return True

    def remove(self, name: str) -> None:
        """Remove the file ``name`` if it exists."""
        with writing(self.path / name):
            (self.path / name).unlink(missing_ok=True)


def open_folder(place: Place) -> Folder | LocalFolder:
    """Return the folder at the path or URL ``place``."""
    return Folder(place) if isinstance(place, Url) else LocalFolder(place)
