"""Reading of files with a size limit, atomic writing, and safe file names.

A file is written under a temporary name, synchronized to disk and renamed, so that readers see either the old or the
new content. Temporary files of killed processes are removed at the next write to the same folder.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vmselect.errors import CatalogError, ProfileError, VmselectError

ABANDONED_AFTER_SECONDS = 3600.0
"""A temporary file that is older than this is treated as left by a killed process and removed."""

AnyPath = str | os.PathLike[str]

_TEMPORARY = re.compile(r"\.vmselect-[0-9a-f]{16}\.part")
_cleaned: set[Path] = set()
_CHUNK_BYTES = 2**20


# -- reading -----------------------------------------------------------------------------------------------------------


def read_bytes(path: AnyPath, *, noun: str, limit: int, error: type[VmselectError] = ProfileError) -> bytes:
    """Return the content of the regular file ``path``, of at most ``limit`` bytes.

    Failures raise ``error``, with a message that calls the file a ``noun``, such as "record".
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(0, "the path is not a regular file")
            # A buffer of the size: one of the limit takes longer to allocate than a record takes to read.
            data = os.read(handle, min(found.st_size, limit) + 1)
            while len(data) != found.st_size and len(data) <= limit and (more := os.read(handle, _CHUNK_BYTES)):
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
        with _temporary_file(target.parent, data, mode_of(target)) as temporary:
            temporary.replace(target)
        sync_folder(target.parent)
    return Path(path)


def write_new(folder: Path, stem: str, text: str) -> Path:
    """Write ``text`` to a new file ``stem``.json in ``folder``, or ``stem``-2.json and so on if that name exists."""
    with writing(folder):
        with _temporary_file(folder, text.encode("utf-8"), None) as temporary:
            target = claim_name(temporary, stem, otherwise=f"{stem}-{secrets.token_hex(4)}")
        sync_folder(folder)
    return target


def claim_name(file: Path, stem: str, *, otherwise: str) -> Path:
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
        mode_of(target)
        while not folder.exists() and folder != folder.parent:  # a check creates no folders
            folder = folder.parent
        with _temporary_file(folder, b"", None):
            pass


def mode_of(target: Path) -> int | None:
    """Return the permission bits of the file ``target``; None if it does not exist or is a folder."""
    try:
        found = target.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found):
        return None
    if not stat.S_ISREG(found):
        raise OSError(0, "the path is not a regular file")
    return stat.S_IMODE(found)


def is_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder, or does not exist and would become a folder (name without ``.json``)."""
    return has_folder(path) or (path.suffix.lower() != ".json" and not _mode(path))


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
    path = folder / f".vmselect-{secrets.token_hex(8)}.part"
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


def sync_folder(folder: Path) -> None:
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
