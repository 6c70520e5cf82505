"""Save, find and read records in files and folders, and recover unfinished records of processes that were killed.

While a measurement runs, its process (the writer) keeps a draft of the record in the target folder, under a name that
readers skip. The writer replaces the draft as a whole and holds a lock on the file, which the kernel releases when the
writer ends. A draft that can be locked therefore has no writer any more, and the process that locks the draft renames
it to a record. A draft has the outcome "interrupted" from the beginning, so its content need not change. On file
systems without locks, a draft counts as abandoned after :data:`ABANDONED_AFTER_SECONDS`.

A folder may also be a URL. Its drafts, and records that could not be uploaded, stay in a local folder (the outbox), so
that a training never waits for a network. They are uploaded when this machine next uses the URL.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vmselect._checks import several
from vmselect._files import (
    ABANDONED_AFTER_SECONDS,
    cache_folder,
    check_writable,
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
from vmselect._stores import Folder, Place, Url, check_place
from vmselect.errors import ProfileError
from vmselect.findings import table_html
from vmselect.records import compacted
from vmselect.records.record import Record, new_id
from vmselect.records.registry import KINDS, parse_record
from vmselect.records.training import Profile

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Maximum size of a record file. A profile of a million steps has about half a megabyte."""

_NAME = re.compile(r"\.(?P<target>.+)\.draft(?P<part>-[0-9a-f]{32})?", re.DOTALL)
_FOLDER = "vmselect-"
"""Start of the name of a draft that will be saved in a folder under a new name, not under a name the user gave."""

_open: dict[Path, Draft] = {}
"""The drafts that this process writes, by path."""

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

SHOWN_COLUMNS = ("machine", "model", "batch size", "steps per epoch", "seconds per step", "outcome")
"""Columns of the table of profiles. A column without any value is not shown."""

MAX_SHOWN = 100


class Profiles(list[Profile]):
    """A list of profiles that notebooks display as a table."""

    def _repr_html_(self) -> str:
        summaries = [profile.summary() for profile in self[:MAX_SHOWN]]
        shown = [name for name in SHOWN_COLUMNS if any(name in row for row in summaries)]
        warnings = [sum(finding.severity == "warning" for finding in one.findings) for one in self[:MAX_SHOWN]]
        rows = ([*(row.get(name, "") for name in shown), count] for row, count in zip(summaries, warnings, strict=True))
        more = f"<p>The first {MAX_SHOWN} of {len(self):,} profiles.</p>" if len(self) > MAX_SHOWN else ""
        return table_html(rows, (*shown, "warnings")) + more


def save_record(record: Record, path: str | os.PathLike[str]) -> Place:
    """Write ``record`` to the file ``path``, or to a new file in the folder ``path``; return the path of the file.

    An existing file is replaced if it is a record of the same kind; any other existing file raises ProfileError.
    """
    target = check_place("path", path)
    if isinstance(target, Url):
        check_replaceable(target, record.kind)
        return _upload(record, target)
    if is_folder(target):
        return write_new(target, name_record(record), record.to_json())
    check_replaceable(target, record.kind)
    return write_text(target, record.to_json())


def check_replaceable(path: Place, kind: str) -> None:
    """Raise ProfileError if ``path`` is an existing file but not a record of ``kind``, so that no data are lost."""
    if isinstance(path, Url):
        exists = path.is_record and Folder(path.parent).has(path.name)
    else:
        exists = has_file(path) and path.stat().st_size > 0
    if exists:
        try:
            load_record(path, kind=kind)
        except ProfileError:
            noun = KINDS[kind].noun
            raise ProfileError(
                f"{path}: this file is not a {noun}, so it is not overwritten. Choose another path."
            ) from None


def check_target(path: Place, kind: str) -> None:
    """Raise ProfileError if a record of this ``kind`` cannot be written to ``path``; called before a measurement."""
    if isinstance(path, Url):
        folder, name = Folder(path.parent if path.is_record else path), f".vmselect-{new_id()[:16]}.part"
        folder.create(name, b"")
        folder.remove(name)
        check_replaceable(path, kind)
        return
    check_writable(path)
    if not is_folder(path):
        check_replaceable(path, kind)


def load_record(path: str | os.PathLike[str], *, kind: str | None = None) -> Record:
    """Read one record of ``kind``, or of any kind if None. If the measuring process was killed, its draft is read."""
    where = check_place("path", path)
    if isinstance(where, Url):
        deliver(where)
        return _parse(Folder(where.parent).read(where.name, limit=MAX_FILE_BYTES), where, kind=kind)
    staying = [] if has_folder(where) else recover(where)
    return _load(staying[0] if staying else where, kind=kind)


def _parse(data: bytes, source: Place, *, kind: str | None = None) -> Record:
    return parse_record(data, source=str(source), kind=kind)


def _load(file: Path, *, kind: str | None = None) -> Record:
    noun = KINDS[kind].noun if kind else "record"
    return parse_record(read_bytes(file, noun=noun, limit=MAX_FILE_BYTES), source=str(file), kind=kind)


def load_profiles(*paths: Paths) -> Profiles:
    """Read profiles from files, and from the ``*.json`` files of folders (without subfolders), sorted by file name.

    Notebooks display the list as a table.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = Profile.from_times(instance_type="a", batch_size=8, iteration_seconds=0.1).save(folder)
    >>> [profile.instance_type for profile in load_profiles(folder)]
    ['a']
    """
    with without_garbage_collection():
        return Profiles(find_records(*paths, kind="training"))


def load_records(*paths: Paths) -> list[Record]:
    """Read records of every kind from files and folders, sorted by file name.

    >>> import tempfile
    >>> path = Profile.from_times(instance_type="a", batch_size=8, iteration_seconds=0.1).save(tempfile.mkdtemp())
    >>> [record.kind for record in load_records(path)]
    ['training']
    """
    with without_garbage_collection():
        return list(find_records(*paths))


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Context without Python's cyclic garbage collector, which would examine all loaded records again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def find_records(*paths: Paths, kind: str | None = None) -> Iterator[Any]:
    """Yield the records in files and in the ``*.json`` files of folders; only those of ``kind`` if it is given."""
    for _, found in walk_records(*paths, kind=kind):
        if isinstance(found, ProfileError):
            raise found
        yield found


def walk_records(*paths: Paths, kind: str | None = None) -> Iterator[tuple[Place, Record | ProfileError]]:
    """Yield (path, record) for every record, and (path, error) for every file that cannot be read."""
    noun = KINDS[kind].noun if kind else "record"
    named = [path for given in paths for path in several(check_place, "path", given)]
    if not named:
        raise ProfileError(f"No {noun} was given. Pass at least one {noun} file or folder.")
    for path in named:
        count = 0
        for file, found in _read_one(path, kind):
            if isinstance(found, ProfileError) or kind is None or found.kind == kind:
                count += 1
                yield file, found
        if not count:
            yield (
                path,
                ProfileError(f"{path}: this folder contains no {noun} (*.json). Run a probe with path={str(path)!r}."),
            )


def _read_one(path: Place, kind: str | None) -> Iterator[tuple[Place, Record | ProfileError]]:
    """Yield (path, record or error) for the file ``path``, or for every record in the folder ``path``."""
    inside = _contents(path) if isinstance(path, Url) and not path.is_record else None
    if inside is None and isinstance(path, Path) and has_folder(path):
        inside = _local_contents(path)
    if inside is None:
        try:
            yield path, load_record(path, kind=kind)
        except ProfileError as unreadable:
            yield path, unreadable
        return
    for file, content in inside:
        try:
            if isinstance(content, ProfileError):
                raise content
            yield file, _parse(content, file)
        except ProfileError as unreadable:
            yield file, unreadable


def _local_contents(folder: Path) -> Iterator[tuple[Place, bytes | ProfileError]]:
    files = _find_inside(folder)
    known = compacted.read_texts(folder)
    for file in files:
        text = known.get(file.name)
        if text is not None:
            yield file, text
            continue
        try:
            yield file, read_bytes(file, noun="record", limit=MAX_FILE_BYTES)
        except ProfileError as unreadable:
            yield file, unreadable


def _contents(url: Url) -> Iterator[tuple[Place, bytes | ProfileError]]:
    """Yield (URL, content or error) for every record in the folder ``url``, if possible from its compacted history."""
    settle(url)
    folder = Folder(url)
    entries = sorted(compacted.list_records(folder))
    known = compacted.read_texts(url, entries)
    others = folder.read_all([one for one in entries if one.name not in known], limit=MAX_FILE_BYTES)
    for one in entries:
        if (text := known.get(one.name)) is not None:
            yield url / one.name, text
        else:
            read, content = next(others)
            yield url / read.name, content


def _upload(record: Record, url: Url) -> Url:
    """Write ``record`` to the file ``url``, or to a new file in the folder ``url``, and return the URL of the file.

    The name of a new file contains the ID of the record, because some stores replace existing files without an error.
    """
    data = record.to_json().encode("utf-8")
    if url.is_record:
        Folder(url.parent).write(url.name, data)
        return url
    folder, stem = Folder(url), f"{name_record(record)}-{record.id[:8]}"
    for number in itertools.count(1):
        name = f"{stem}{f'-{number}' if number > 1 else ''}.json"
        if folder.create(name, data) or folder.read(name, limit=MAX_FILE_BYTES) == data:
            return url / name
    raise AssertionError  # the loop does not end


def _outbox(url: Url) -> Path:
    """The local folder for records that are not yet uploaded to ``url``."""
    return cache_folder() / "outbox" / hashlib.sha256(os.fspath(url).encode()).hexdigest()[:32]


def deliver(url: Url) -> list[Url]:
    """Upload the records in the outbox of ``url``, including abandoned drafts; return their URLs."""
    outbox = _outbox(url)
    if not has_folder(outbox):
        return []
    recover(outbox)
    uploaded = []
    for file in sorted(outbox.glob("[!.]*.json")):
        with suppress(FileNotFoundError):  # another process uploaded it
            record = _read(file)
            if record is not None:
                uploaded.append(_upload(record, url))
                file.unlink()
    return uploaded


def settle(place: Place) -> None:
    """Turn the drafts of ended processes into records, and upload them if ``place`` is a URL that can be written."""
    if isinstance(place, Url):
        with suppress(ProfileError):  # a store may permit reading only
            deliver(place)
    else:
        recover(place)


def _find_inside(folder: Path) -> list[Path]:
    """The record files in ``folder``, including drafts of processes that were killed."""
    staying = recover(folder)
    try:
        with os.scandir(folder) as entries:
            found = [(e.name, e.is_symlink()) for e in entries if e.name.endswith(".json") and e.name[0] != "."]
    except OSError:  # the folder must not be read
        found = []
    files = []
    for name, is_link in sorted(found):
        files.append(folder / name)
        if is_link:
            staying += recover(files[-1])
    return [*files, *dict.fromkeys(staying)]


def name_record(record: Record) -> str:
    """File name for ``record`` in a folder, without the extension."""
    return f"{safe_name(record.file_stem)}-{record.created:%Y%m%dT%H%M%S}"


class Draft:
    """The draft of a record that will be saved to ``path``, a file or a folder."""

    def __init__(self, path: Place, *, identity: str) -> None:
        self._url = path if isinstance(path, Url) else None
        path = _outbox(path) if isinstance(path, Url) else path
        self._into_folder = is_folder(path)
        self._path = path
        target = Path(os.path.realpath(path))  # a link may lead to another disk
        self._replaces = None if self._into_folder else target
        self._folder = target if self._into_folder else target.parent
        self._identity = identity
        self._file = self._folder / (f".{_FOLDER}{identity}.draft" if self._into_folder else f".{target.name}.draft")
        self._handle: int | None = None
        self._process = os.getpid()
        if has_folder(self._folder):
            recover(self._folder)

    def write(self, record: Record) -> None:
        """Write ``record`` as the new draft. An I/O error, such as a full disk, is ignored: the training continues."""
        if os.getpid() == self._process:
            with suppress(OSError):
                self._put(record)

    def finish(self, record: Record) -> Place | None:
        """Save the complete ``record`` under its final name and return its path; a forked child returns None."""
        if os.getpid() != self._process:
            return None
        saved: Place
        if not self._into_folder:
            saved = save_record(record, self._path)
        else:
            with writing(self._path):
                self._put(record)
                saved = self._path / _claim_name(self._file, record).name
                sync_folder(self._folder)
        self.discard()
        return saved if self._url is None else self._deliver(self._url, record)

    def _deliver(self, url: Url, record: Record) -> Url:
        try:
            uploaded = deliver(url)
        except ProfileError as cannot:
            raise ProfileError(
                f"{cannot} The record stays in {self._path} and is uploaded the next time this machine uses the URL."
            ) from None
        ending = f"-{record.id[:8]}.json"
        return next((one for one in uploaded if one.name.endswith(ending)), url)

    def discard(self) -> None:
        """Delete the draft and release its lock."""
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
        mode = (
            mode_of(self._replaces) if self._replaces else None
        )  # a draft gets the permissions of the file that it will replace
        while True:
            handle = os.open(part, flags, 0o666 if mode is None else mode)
            try:
                _lock(handle)
                with os.fdopen(os.dup(handle), "wb") as file:
                    file.write(record.to_json().encode("utf-8"))
                    file.flush()
                    os.fsync(handle)
                part.replace(self._file)
            except FileNotFoundError:  # a reader removed the draft as abandoned just before it was locked
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
    """Turn the abandoned drafts in the folder ``path``, or that of the file ``path``, into records by renaming them.

    Symbolic links are followed. Returns the paths of drafts that were not renamed: drafts in a read-only folder, and
    drafts that this process is writing.
    """
    path = Path(os.path.realpath(path))
    names = [f".{path.name}.draft"]
    folder = path.parent
    if has_folder(path):
        folder = path
        try:
            with os.scandir(path) as entries:
                names = sorted(entry.name for entry in entries if entry.name.startswith("."))
        except OSError:
            return []
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
    """Rename an abandoned draft to its final name. Returns False if the folder is read-only."""
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
    # A draft that cannot be parsed may come from a newer version, so it is kept.
    with suppress(ProfileError):
        return _load(file)
    return None


def _claim_name(file: Path, record: Record) -> Path:
    """Rename a draft to an unused name in its folder. Idempotent: repeating it after a crash leaves a single file."""
    own = _own_name(file, record)
    if own.exists():  # a reader that could not see the lock considered the draft abandoned
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
    """A path in the folder of ``file`` that is unique because it contains the ID of the record."""
    return file.with_name(f"{name_record(record)}-{record.id[:8]}.json")


def _replace(file: Path, target: Path, record: Record) -> None:
    """Replace ``target`` by its draft ``file``, keeping the permissions of ``target``.

    A ``target`` that is newer than the draft, a symbolic link or not a record is not replaced.
    """
    if target.is_symlink() or (target.exists() and _read(target) is None):
        target = _own_name(file, record)
    elif target.exists():
        if target.stat().st_mtime > file.stat().st_mtime:
            file.unlink()
            return
        with suppress(OSError):  # the file of another user
            file.chmod(stat.S_IMODE(target.stat().st_mode))
    file.replace(target)


@contextmanager
def _abandoned(file: Path) -> Iterator[bool]:
    """Context that yields True if no process writes or recovers the draft ``file``, and locks the draft meanwhile."""
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
        pass  # this file system does not support locks
    return time.time() - os.fstat(handle).st_mtime > ABANDONED_AFTER_SECONDS


def _still_there(handle: int, file: Path) -> bool:
    """Whether the open file ``handle`` is still the file at the path ``file``."""
    try:
        seen, now = os.fstat(handle), file.stat()
    except OSError:
        return False
    return (seen.st_ino, seen.st_dev) == (now.st_ino, now.st_dev)


def _forget() -> None:
    """In a forked child process: close the drafts inherited from the parent, which releases their locks."""
    for draft in list(_open.values()):
        draft._release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
