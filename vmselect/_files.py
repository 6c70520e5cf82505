"""Files, whole or not at all: the only place of the package that writes one.

A file is written beside its final name, brought to disk, and then renamed, so that a reader sees the old one or the
new one. What a killed writer left beside is removed by the next one that writes to the folder.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmselect.errors import CatalogError, ProfileError, VmselectError

ABANDONED_AFTER_SECONDS = 3600.0
"""A file beside that is this old has no writer any more."""

AnyPath = str | os.PathLike[str]

_BESIDE = re.compile(r"\.vmselect-[0-9a-f]{16}\.part")
_tidied: set[Path] = set()


# -- reading -----------------------------------------------------------------------------------------------------------


def read_bytes(path: AnyPath, *, noun: str, limit: int, error: type[VmselectError] = ProfileError) -> bytes:
    """The content of any file; ``noun`` names what it should be. Raises only ``error``.

    Pipes and devices are refused: they may never end.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(0, "it is no ordinary file")
            data = file.read(limit + 1)
    except (OSError, ValueError, TypeError) as cannot:
        raise error(f"{path}: cannot read this {noun}: {_reason(cannot)}. Check the path.") from None
    if len(data) > limit:
        raise error(f"{path}: larger than {limit // 2**20} MiB, so it is not a {noun}. Check the path.")
    return data


def read_text(path: AnyPath, *, noun: str, limit: int, error: type[VmselectError] = ProfileError) -> str:
    """The same as text."""
    try:
        return read_bytes(path, noun=noun, limit=limit, error=error).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"{path}: not a {noun}: it is not UTF-8 text. Check the path.") from None


# -- writing -----------------------------------------------------------------------------------------------------------


def write_text(path: AnyPath, text: str, *, error: type[VmselectError] = ProfileError) -> Path:
    """Put ``text`` at ``path``, in the place of the file that is there, whose permissions stay."""
    return write_bytes(path, text.encode("utf-8"), error=error)


def write_bytes(path: AnyPath, data: bytes, *, error: type[VmselectError] = ProfileError) -> Path:
    """The same for bytes. A link is followed to the file that it names; anything but a file is refused."""
    with writing(path, error=error):
        target = Path(os.path.realpath(path))
        mode = mode_of(target)
        with _beside(target.parent, data, mode) as beside:
            beside.replace(target)
        sync_folder(target.parent)
    return Path(path)


def write_new(folder: Path, stem: str, text: str) -> Path:
    """Put ``text`` into ``folder`` under an unused name; see :func:`claim_name`."""
    with writing(folder):
        with _beside(folder, text.encode("utf-8"), None) as beside:
            target = claim_name(beside, stem, otherwise=f"{stem}-{secrets.token_hex(4)}")
        sync_folder(folder)
    return target


def claim_name(file: Path, stem: str, *, otherwise: str) -> Path:
    """Give ``file`` the name ``stem`` in its folder, numbered where that is taken; its old name is left to the caller.

    The name is claimed, not looked up: of many writers at once each gets its own. Where the file system has no links
    a name cannot be claimed, so there the file is moved to ``otherwise``, a stem that no other file can have.
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
    """Turn the system's refusals to write at ``path`` into ``error``."""
    try:
        yield
    except (OSError, ValueError, TypeError) as cannot:
        raise error(f"{path}: cannot write: {_reason(cannot)}. Choose a writable path.") from cannot


def check_writable(path: AnyPath) -> None:
    """Raise a :class:`ProfileError` now if ``path`` (a file or a folder) could not be written later."""
    with writing(path):
        target = Path(path)
        folder = target if is_folder(target) else Path(os.path.realpath(target)).parent
        mode_of(target)
        while not folder.exists() and folder != folder.parent:  # what is made later is not made by asking
            folder = folder.parent
        with _beside(folder, b"", None):
            pass


def mode_of(target: Path) -> int | None:
    """Permissions of the file that will be replaced; None where there is none yet."""
    try:
        found = target.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found):
        return None
    if not stat.S_ISREG(found):
        raise OSError(0, "it is no ordinary file")
    return stat.S_IMODE(found)


def is_folder(path: Path) -> bool:
    """Whether ``path`` means a folder: an existing one, or a name without the ending ``.json``."""
    return has_folder(path) or (path.suffix.lower() != ".json" and not _mode(path))


def has_file(path: Path) -> bool:
    """Whether a file is at ``path``. False where access is refused: the next operation there reports why."""
    return stat.S_ISREG(_mode(path))


def has_folder(path: Path) -> bool:
    """The same for a folder."""
    return stat.S_ISDIR(_mode(path))


def safe_name(text: str) -> str:
    """``text`` as part of a file name: nothing that a file system or a shell could take for more than a name."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text).strip("._")[:100] or "unnamed"


def pricing_folder() -> Path:
    """The folder of the shipped prices: inside an installed package, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_pricing", package.parent / "pricing"):
        if (folder / "manifest.json").is_file():
            return folder
    raise CatalogError("The prices that ship with vmselect are missing. Install vmselect again.")


# -- inside ------------------------------------------------------------------------------------------------------------


def _mode(path: Path) -> int:
    """The mode of what is at ``path``; 0 for nothing, and where access is refused."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


@contextmanager
def _beside(folder: Path, data: bytes, mode: int | None) -> Iterator[Path]:
    """A new file in ``folder`` that holds ``data`` and is gone, or renamed, afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    _tidy(folder)
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


def _tidy(folder: Path) -> None:
    """Remove what killed writers left in ``folder``, once per process."""
    if folder in _tidied:
        return
    _tidied.add(folder)
    oldest = time.time() - ABANDONED_AFTER_SECONDS
    with os.scandir(folder) as entries:
        for entry in entries:
            if _BESIDE.fullmatch(entry.name):
                try:
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        Path(entry.path).unlink()
                except OSError:
                    continue  # its writer finished just now, or it is another user's


def sync_folder(folder: Path) -> None:
    """Bring a new name to disk, where the system lets folders be synchronised."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _reason(cannot: Exception) -> str:
    lines = str(getattr(cannot, "strerror", None) or cannot).splitlines()
    return lines[0][:200] if lines else type(cannot).__name__
