"""Records in files and folders: saved under a name of their own, found, and read."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vmselect._checks import check_path, several
from vmselect._files import (
    ABANDONED_AFTER_SECONDS,
    claim_name,
    has_file,
    has_folder,
    is_folder,
    mode_of,
    read_bytes,
    safe_name,
    sync_folder,
    write_new,
    write_text,
    writing,
)
from vmselect.errors import ProfileError
from vmselect.records.record import Record
from vmselect.records.registry import KINDS, parse_record
from vmselect.records.training import Profile

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Profiles(list[Profile]):
    """A list of profiles that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from vmselect.records.training import table_html

        return table_html(self)


def save_record(record: Record, path: str | os.PathLike[str]) -> Path:
    """Write ``record`` to a file, or into a folder under a new name, and return the file's path.

    A file that is there already is replaced if it is a record of the same kind, and refused if it is anything else.
    """
    target = check_path("path", path)
    if is_folder(target):
        return write_new(target, name_record(record), record.to_json())
    check_replaceable(target, record.kind)
    return write_text(target, record.to_json())


def check_replaceable(path: Path, kind: str) -> None:
    """Refuse to write a record over a file that is none of its ``kind``: somebody may have nothing else of it."""
    if has_file(path) and path.stat().st_size:
        try:
            load_record(path, kind=kind)
        except ProfileError:
            raise ProfileError(
                f"{path}: this file is there already and is no {KINDS[kind].noun}, so it is not overwritten. Choose "
                "another path."
            ) from None


def load_record(path: str | os.PathLike[str], *, kind: str | None = None) -> Record:
    """Read one record, of any kind or of ``kind``; if its writer was killed, what it had written by then."""
    where = check_path("path", path)
    staying = [] if has_folder(where) else recover(where)
    return _load(staying[0] if staying else where, kind=kind)


def _load(file: Path, *, kind: str | None = None) -> Record:
    noun = KINDS[kind].noun if kind else "record"
    return parse_record(read_bytes(file, noun=noun, limit=MAX_FILE_BYTES), source=str(file), kind=kind)


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read one profile."""
    profile = load_record(path, kind="training")
    assert isinstance(profile, Profile)
    return profile


def load_profiles(*paths: Paths) -> Profiles:
    """Read profiles from files and folders (every ``*.json`` inside, not deeper), in order of file name.

    What comes back is a list; a notebook shows it as a table.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = Profile.from_times(instance_type="a", batch_size=8, iteration_seconds=0.1).save(folder)
    >>> [profile.instance_type for profile in load_profiles(folder)]
    ['a']
    """
    return Profiles(find_records(*paths, kind="training"))


def load_records(*paths: Paths) -> list[Record]:
    """Read records of every kind from files and folders, in order of file name.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = Profile.from_times(instance_type="a", batch_size=8, iteration_seconds=0.1).save(folder)
    >>> [record.kind for record in load_records(folder)]
    ['training']
    """
    return list(find_records(*paths))


def find_records(*paths: Paths, kind: str | None = None) -> Iterator[Any]:
    """The records that ``paths`` name: files themselves, and of folders the ``*.json`` files.

    Kinds may share a folder: there, those that are not of ``kind`` are passed over.
    """
    for _, found in walk_records(*paths, kind=kind):
        if isinstance(found, ProfileError):
            raise found
        yield found


def walk_records(*paths: Paths, kind: str | None = None) -> Iterator[tuple[Path, Record | ProfileError]]:
    """The same, each with its file; what cannot be read comes as the error that says why."""
    noun = KINDS[kind].noun if kind else "record"
    named = [path for given in paths for path in several(check_path, "path", given)]
    if not named:
        raise ProfileError(f"No {noun} was named. Give at least one {noun} file or a folder of them.")
    for path in named:
        inside = _find_inside(path) if has_folder(path) else None
        count = 0
        for file in [path] if inside is None else inside:
            try:
                record = load_record(file, kind=kind) if inside is None else _load(file)
            except ProfileError as unreadable:
                count += 1
                yield file, unreadable
                continue
            if kind is None or record.kind == kind:
                count += 1
                yield file, record
        if not count:
            yield path, ProfileError(f"{path}: no {noun} (*.json) in this folder. Run a probe with path={str(path)!r}.")


def _find_inside(folder: Path) -> list[Path]:
    """The record files of a folder, those included that killed writers left."""
    staying = recover(folder)
    files = sorted(p for p in folder.glob("*.json") if not p.name.startswith("."))
    for file in files:
        if os.path.islink(file):  # noqa: PTH114 - Path.is_symlink raises where the folder must not be searched
            staying += recover(file)
    return [*files, *dict.fromkeys(staying)]


# A record that is still being written: how it outlives its writer, and how the next reader of its folder finds it.
#
# A draft stands beside the record's final place under a name that readers pass over. Its writer replaces it whole,
# and
# holds a lock on it that the kernel releases when the writer dies, however it dies. So a draft that can be locked has
# no
# writer any more: whoever locks it first gives it the name of a record. It says "interrupted" from the beginning, so
# that
# nothing in it needs to be changed. A copied folder has no writer; where files cannot be locked, age decides.


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MAX_FILE_BYTES = 32 * 1024 * 1024
"""A profile of a million watched steps is about half a megabyte; far more is not a record."""

_NAME = re.compile(r"\.(?P<target>.+)\.draft(?P<part>-[0-9a-f]{32})?", re.DOTALL)
_FOLDER = "vmselect-"
"""How the target of a draft begins whose record is to get a name of its own in the folder."""

_open: dict[Path, Draft] = {}
"""The drafts of this process, by where they are."""


def name_record(record: Record) -> str:
    """What a file of ``record`` is called in a folder, without its ending."""
    return f"{safe_name(record.file_stem)}-{record.created:%Y%m%dT%H%M%S}"


class Draft:
    """The draft of one record that will go to ``path``, a file or a folder."""

    def __init__(self, path: Path, *, identity: str) -> None:
        self._into_folder = is_folder(path)
        self._path = path
        target = Path(os.path.realpath(path))  # beside a link it could not be renamed if that leads to another disk
        self._replaces = None if self._into_folder else target
        self._folder = target if self._into_folder else target.parent
        self._identity = identity
        self._file = self._folder / (f".{_FOLDER}{identity}.draft" if self._into_folder else f".{target.name}.draft")
        self._handle: int | None = None
        self._process = os.getpid()
        if has_folder(self._folder):
            recover(self._folder)  # what earlier writers left must not pile up

    def write(self, record: Record) -> None:
        """Put the state so far in the place of the last one. A full disk is no reason to end a training."""
        if os.getpid() == self._process:
            with suppress(OSError):
                self._put(record)

    def finish(self, record: Record) -> Path | None:
        """Give ``record``, the last state, its final name, and return that; None in a child made by fork."""

        if os.getpid() != self._process:
            return None
        if not self._into_folder:
            saved = save_record(record, self._path)
        else:
            with writing(self._path):
                self._put(record)
                saved = self._path / _claim_name(self._file, record).name
                sync_folder(self._folder)
        self.discard()
        return saved

    def discard(self) -> None:
        """There is nothing to keep, or it is kept."""
        if os.getpid() != self._process or self._handle is None:
            return
        with suppress(OSError):
            if os.fstat(self._handle).st_ino == self._file.stat().st_ino:
                self._file.unlink()
        self._release()

    def _put(self, record: Record) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._file.with_name(f"{self._file.name}-{self._identity}")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
        mode = mode_of(self._replaces) if self._replaces else None  # a draft is for nobody who may not read the file
        while True:
            handle = os.open(part, flags, 0o666 if mode is None else mode)
            try:
                _lock(handle)
                with os.fdopen(os.dup(handle), "wb") as file:
                    file.write(record.to_json().encode("utf-8"))
                    file.flush()
                    os.fsync(handle)
                part.replace(self._file)
            except FileNotFoundError:  # a reader took it for abandoned in the moment before it was locked
                os.close(handle)
                continue
            except BaseException:
                os.close(handle)
                part.unlink(missing_ok=True)
                raise
            self._release()
            self._handle = handle
            _open[self._file] = self
            return

    def _release(self) -> None:
        _open.pop(self._file, None)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def recover(path: Path) -> list[Path]:
    """Make records of the abandoned drafts in the folder ``path``, or of the one for the file ``path``.

    A link stands for what it names. Returns the drafts that have to stay where they are but can be read all the same:
    those of a folder that cannot be written, and those of this very process, whose training may be over without a word.
    """
    path = Path(os.path.realpath(path))
    try:
        names = sorted(entry.name for entry in path.iterdir()) if has_folder(path) else [f".{path.name}.draft"]
    except OSError:
        return []
    folder = path if has_folder(path) else path.parent
    staying = []
    for found in filter(None, map(_NAME.fullmatch, names)):
        file = folder / found[0]
        if file in _open:
            staying.append(file)
            continue
        with _abandoned(file) as abandoned:
            if abandoned and not _settle(file, found):
                staying.append(file)
    return staying


def _settle(file: Path, found: re.Match[str]) -> bool:
    """Make an abandoned draft a record under its final name; False if the folder cannot be written."""
    record = None if found["part"] else _read(file)
    try:
        if found["part"]:
            file.unlink()
        elif record is not None and found["target"].startswith(_FOLDER):
            _claim_name(file, record)
        elif record is not None:
            _replace(file, file.with_name(found["target"]), record)
    except OSError:
        return record is None
    return True


def _read(file: Path) -> Record | None:
    # What cannot be read was written by a newer version, or is damaged: it is not ours to remove.
    with suppress(ProfileError):
        return parse_record(read_bytes(file, noun="record", limit=MAX_FILE_BYTES), source=str(file))
    return None


def _claim_name(file: Path, record: Record) -> Path:
    """Give a draft a name of its own in its folder; repeated after a crash in mid-way, it does so once."""
    own = _own_name(file, record)
    if own.exists():  # a reader that could not see our lock took the draft for abandoned
        return file.replace(own)
    if file.stat().st_nlink > 1:
        twin = next((p for p in file.parent.glob("*.json") if p.stat().st_ino == file.stat().st_ino), None)
        if twin is not None:
            file.unlink()
            return twin
    target = claim_name(file, name_record(record), otherwise=own.stem)
    file.unlink(missing_ok=True)
    return target


def _own_name(file: Path, record: Record) -> Path:
    """A name beside ``file`` that no other record has."""
    return file.with_name(f"{name_record(record)}-{record.id[:8]}.json")


def _replace(file: Path, target: Path, record: Record) -> None:
    """Put a draft in the place of the file that it was to become, whose permissions stay; not of a newer one.

    What is no record, or a link, is not ours to replace.
    """
    if target.is_symlink() or (target.exists() and _read(target) is None):
        target = _own_name(file, record)
    elif target.exists():
        if target.stat().st_mtime > file.stat().st_mtime:
            file.unlink()
            return
        with suppress(OSError):  # of another user, then; no more open than the file was
            file.chmod(stat.S_IMODE(target.stat().st_mode))
    file.replace(target)


@contextmanager
def _abandoned(file: Path) -> Iterator[bool]:
    """Whether a draft has no writer and no other reader; as long as this lasts, none can take it."""
    try:
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        yield False
        return
    try:
        yield _lock(handle) and _still_there(handle, file)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False
    except OSError:
        pass  # this file system has no locks
    return time.time() - os.fstat(handle).st_mtime > ABANDONED_AFTER_SECONDS


def _still_there(handle: int, file: Path) -> bool:
    """Whether what was locked is still what stands under that name."""
    try:
        seen, now = os.fstat(handle), file.stat()
    except OSError:
        return False
    return (seen.st_ino, seen.st_dev) == (now.st_ino, now.st_dev)


def _forget() -> None:
    """A child process made by fork has its parent's files open, and with them their locks: let go of them."""
    for draft in list(_open.values()):
        draft._release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
