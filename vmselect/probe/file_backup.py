"""Backs up existing files just before a probed script changes them, and restores them afterwards.

A :class:`Backup` is called before every change. It keeps a hard link to the file in a backup folder on the same disk,
and a copy of the content if the content is about to change in place. Before the change, each backup is listed in a
journal, a file with one JSON line per path. :func:`settle` restores all files that the journal lists. If the probe was
killed, the next command of vmselect does this: it recognizes such a journal because no process holds its lock.
"""

from __future__ import annotations

import errno
import filecmp
import json
import os
import re
import secrets
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

JOURNAL = "journal.jsonl"
TRAINING, CUT = "training", "cut"
"""Names of files in the folder of the journal. The first exists if a training has begun, the second if the probe ended
a training early."""

FOLDER_PREFIX = ".vmselect-backup-"
VERSIONS = "vmselect-kept-"
"""Prefix of the folder in which the script's versions of restored files are kept, if no training was ended early."""

LARGE_BYTES = 2**30
"""A message is printed when a backup copies a file of at least this size."""

MAX_LOCK_SECONDS = 10.0
"""Longest time to wait for the lock that all probes of a user share."""

_SYSTEM = ("/proc", "/sys", "/dev", "/run")
_CACHES = (".cache", ".nv", ".triton", ".keras", ".torch")
_OWN_PART = re.compile(
    r"\.vmselect-[0-9a-f]{16}\.part|\..+\.draft-[0-9a-f]{32}|\.vmselect-[0-9a-f]{32}\.draft", re.DOTALL
)
_FICLONE = 0x40049409


@dataclass
class Entry:
    """State of a path before the script first changed it."""

    path: str
    kind: Literal["new", "file", "link", "folder"]
    late: bool = False
    """Whether a training had begun before the change."""
    by: str = ""
    """How a new path was created, if it refers to a file that existed before: "rename" or "link"; else empty."""
    mode: int = 0
    owner: tuple[int, int] = (0, 0)
    times: tuple[int, int] = (0, 0)
    node: tuple[int, int] = (0, 0)
    """Device number and inode number of the file."""
    target: str = ""
    kept: str = ""
    """Path of a hard link to the file in a backup folder; empty if there is none."""
    copy: str = ""
    """Path of a copy of the content in a backup folder; empty if there is none."""


@dataclass
class Settled:
    """What :func:`settle` has done: the paths of restored, removed and kept files."""

    restored: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    versions_folder: str | None = None
    failed: list[str] = field(default_factory=list)
    """Files that could not be restored, with the reason and the path of the backup."""
    journal: str = ""


def _state_folders() -> tuple[Path, Path]:
    """Return two folders for this user's journals: one that survives a restart of the machine, and a temporary one.

    The temporary folder is used if the first folder cannot be written.
    """
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(state) / "vmselect" / "protected", Path(tempfile.gettempdir()) / f"vmselect-protected-{user}"


def _create_state_folder() -> Path:
    lasting, temporary = _state_folders()
    try:
        lasting.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(lasting, os.W_OK):
            return lasting
    except OSError:
        pass
    temporary.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _is_own(temporary):
        raise PermissionError(errno.EPERM, "the folder belongs to another user", str(temporary))
    return temporary


def _is_own(folder: Path) -> bool:
    found = _stat(str(folder))
    return found is not None and stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


class Backup:
    """Backs up the files that a probed script is about to change. The journal is in ``folder``.

    The ``will_`` methods are called before each change. Paths in ``unprotected``, and everything in these folders, are
    not backed up; neither are caches, records and drafts of vmselect, ``/proc``, ``/sys``, ``/dev`` and ``/run``.
    """

    def __init__(self, folder: Path, *, unprotected: Iterable[str | os.PathLike[str]] = ()) -> None:
        self.folder = folder
        home = os.path.expanduser("~")
        caches = [os.environ.get("XDG_CACHE_HOME"), *(os.path.join(home, name) for name in _CACHES)]
        given = [os.path.realpath(one) for one in (*unprotected, *filter(None, caches), folder.parent)]
        self._unprotected = tuple(f"{one}/" for one in (*_SYSTEM, *given))
        self._entries: dict[str, Entry] = {}
        self._nodes: dict[tuple[int, int], Entry] = {}
        self._own: set[str] = set()
        self._places: dict[str, str] = {}
        self._journal = os.open(folder / JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._began = os.fstat(self._journal).st_ctime
        self._late = False
        self._many = False

    # -- events, reported before they happen ---------------------------------------------------------------------------

    def will_write(self, path: str, *, truncates: bool = False) -> None:
        """Back up the file ``path``, which the script is about to open for writing. Links are followed.

        ``truncates`` is True if opening the file empties it.
        """
        path = os.path.realpath(path)
        if self._is_unprotected(path):
            return
        now = _stat(path)
        if now is None or path in self._entries:
            self._note_new(path)
        if now is not None and stat.S_ISREG(now.st_mode):
            known = self._nodes.get(_node(now))
            if known is not None:
                if not known.copy:
                    self._copy(known, path)
            elif path not in self._entries:
                with self._alone():
                    if truncates and now.st_nlink == 1 and now.st_uid == os.geteuid() and self._detach(path, now):
                        return
                    self._keep(path, now, content=True)

    def will_remove(self, path: str) -> None:
        """Back up the file, folder or link ``path``, which the script is about to remove or replace."""
        path = _locate(path)
        if self._is_unprotected(path) or path in self._entries:
            return
        now = _stat(path)
        if now is not None and stat.S_ISSOCK(now.st_mode) and now.st_ctime >= self._began:
            self._note_new(path)  # binding a socket is not reported
        elif now is not None:
            with self._alone():
                self._keep(path, now)

    def will_change(self, path: str, *, follow: bool = True) -> None:
        """Back up ``path``, whose permissions, owner or times the script is about to change."""
        self.will_remove(os.path.realpath(path) if follow else path)

    def will_make(self, path: str) -> None:
        """Record the new folder or link ``path``, which the script is about to create, unless ``path`` exists."""
        path = _locate(path)
        if not self._is_unprotected(path) and path not in self._entries and _stat(path) is None:
            self._note_new(path)

    def will_rename(self, source: str, target: str, *, swap: bool = False) -> None:
        """Back up ``source`` and ``target``: the script is about to rename ``source``, a file or folder, to ``target``.

        With ``swap=True`` the script exchanges the two.
        """
        source, target = _locate(source), _locate(target)
        if self._passes_on(source, target):
            return
        now = _stat(source)
        if now is None:
            return
        names = [""]
        if stat.S_ISDIR(now.st_mode):
            for folder, folders, files in os.walk(source):
                names += [os.path.join(folder, name)[len(source) :] for name in (*folders, *files)]
        for name in names:
            self.will_remove(source + name)
        if swap:
            for name in ("", *_names_in(target)):
                self.will_remove(target + name)
        else:
            self.will_remove(target)
        for name in names:
            self._note_new(target + name, by="rename")

    def will_link(self, source: str, target: str) -> None:
        """Back up ``source``, and record its new name ``target``: the script is about to create this hard link."""
        source, target = _locate(source), _locate(target)
        if not self._passes_on(source, target) and _stat(target) is None:
            self.will_remove(source)  # later changes through the new name must be detected
            self._note_new(target, by="link")

    def will_run(self, folder: str, *, budget: int = LARGE_BYTES, most: int = 20_000) -> None:
        """Back up everything in ``folder``: the script is about to start a program whose changes cannot be detected.

        Files are copied, smallest first, while their total size is at most ``budget`` bytes. Of larger files only a
        hard link is kept, which preserves them if they are removed or replaced. At most about ``most`` paths are
        backed up.
        """
        found = []
        for place, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if not self._is_unprotected(os.path.join(place, name))]
            for path in (os.path.join(place, name) for name in (*folders, *files)):
                now = _stat(path)
                if now is not None and not self._is_unprotected(path):
                    found.append((now.st_size if stat.S_ISREG(now.st_mode) else -1, path))
            if len(found) > most:
                break
        self._write({"ran": folder}, lasting=False)
        self._many = True
        try:
            for size, path in sorted(found):
                self.will_remove(path)
                if 0 <= size <= budget:
                    budget -= size
                    self.will_write(path)
        finally:
            self._many = False
            os.fdatasync(self._journal)

    # -- for the probed process ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the journal file, which remains on disk."""
        os.close(self._journal)

    def _is_unprotected(self, path: str) -> bool:
        return (
            path in self._own
            or f"{path}/".startswith(self._unprotected)
            or "/__pycache__/" in path
            or "/.vmselect-scratch-" in path
            or f"/{FOLDER_PREFIX}" in path
            or _OWN_PART.fullmatch(os.path.basename(path)) is not None
        )

    def _passes_on(self, source: str, target: str) -> bool:
        """Return whether renaming or linking ``source`` to ``target`` needs no backup.

        This is so if a record of vmselect gets its final name, or if both paths are unprotected.
        """
        if self._is_unprotected(source):
            if source in self._own or _OWN_PART.fullmatch(os.path.basename(source)):
                self._own.add(target)
                return True
            return self._is_unprotected(target)
        return False

    def _note_new(self, path: str, *, by: str = "") -> None:
        known = self._entries.get(path)
        if known is None and not self._is_unprotected(path):
            self._add(Entry(path, "new", late=self._training_began(), by=by))
        elif known is not None and known.kind == "new":  # written again
            late, by = known.late or self._training_began(), by or known.by
            if (late, by) != (known.late, known.by):
                known.late, known.by = late, by
                self._add(known)

    def _training_began(self) -> bool:
        self._late = self._late or os.path.exists(os.path.join(self.folder, TRAINING))
        return self._late

    def _keep(self, path: str, now: os.stat_result, *, content: bool = False) -> None:
        """Back up the existing ``path``: its permissions, owner, times, and a hard link to it.

        With ``content=True`` its content is copied too, because it may change in place.
        """
        entry = self._find_elsewhere(path) or _describe(path, now)
        other = self._nodes.get(entry.node) if entry.kind == "file" else None
        if other is not None:  # another name of a file that may have been changed already
            entry.mode, entry.owner, entry.times = other.mode, other.owner, other.times
        if entry.kind == "file" and not (entry.kept or entry.copy):
            place = self._place(path)
            entry.kept = f"{place}/{secrets.token_hex(8)}"
            try:
                os.link(path, entry.kept, follow_symlinks=False)
            except OSError:  # a file system without links, or another user's file
                entry.kept, content = "", stat.S_ISREG(now.st_mode)
        self._add(entry)
        if content and entry.kind == "file" and not entry.copy and entry.node == _node(now):
            self._copy(entry, path)

    def _copy(self, entry: Entry, path: str) -> None:
        copy = f"{self._place(entry.path)}/{secrets.token_hex(8)}"
        size = os.stat(path).st_size
        if size >= LARGE_BYTES:
            sys.stderr.write(f"vmselect: copying {path} ({size / 2**30:.0f} GiB) before the script changes it.\n")
        try:
            _copy_content(path, copy)
        except OSError:
            with suppress(OSError):
                os.unlink(copy)
            raise
        entry.copy = copy
        self._add(entry)

    def _detach(self, path: str, now: os.stat_result) -> bool:
        """Replace ``path`` by a new empty file, so that the old file is preserved by its hard link, without a copy.

        Return False if this is not possible.
        """
        fresh = f"{os.path.dirname(path)}/.vmselect-{secrets.token_hex(8)}.part"
        try:
            os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            return False
        try:
            os.chown(fresh, -1, now.st_gid)
            os.chmod(fresh, stat.S_IMODE(now.st_mode))
            self._keep(path, now)
            if not self._entries[path].kept:
                return True  # its content has been copied
            os.replace(fresh, path)
        except OSError:
            return path in self._entries and bool(self._entries[path].copy)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(fresh)
        return True

    def _add(self, entry: Entry) -> None:
        self._write(asdict(entry), lasting=entry.kind != "new")
        self._entries[entry.path] = entry
        if entry.kind == "file":
            self._nodes.setdefault(entry.node, entry)

    def _write(self, line: dict[str, Any], *, lasting: bool = True) -> None:
        os.write(self._journal, json.dumps(line).encode() + b"\n")
        if lasting and not self._many:
            os.fdatasync(self._journal)

    def _place(self, path: str) -> str:
        """Return a backup folder on the disk of ``path``.

        This is the folder of the journal, or else a new folder in the topmost writable folder of that disk.
        """
        parent = os.path.dirname(path)
        if parent not in self._places:
            self._places[parent] = self._choose_place(parent)
        return self._places[parent]

    def _choose_place(self, parent: str) -> str:
        mount = _mount_of(parent)
        if mount == _mount_of(str(self.folder)):
            return str(self.folder)
        known = next((place for folder, place in self._places.items() if _mount_of(folder) == mount), None)
        if known is not None:
            return known
        highest = None
        while _mount_of(parent) == mount:
            if os.access(parent, os.W_OK):
                highest = parent
            if parent == "/":
                break
            parent = os.path.dirname(parent)
        if highest is None:
            return str(self.folder)
        place = f"{highest}/{FOLDER_PREFIX}{secrets.token_hex(8)}"
        self._write({"folder": place})
        try:
            os.mkdir(place, 0o700)
        except OSError:
            return str(self.folder)
        return place

    def _alone(self) -> AbstractContextManager[None]:
        """Context manager in which no other probe makes backups: workers of a training may change the same file."""
        return _only_process(self.folder.parent)

    def _find_elsewhere(self, path: str) -> Entry | None:
        """Return the state of ``path`` before the script of another running probe changed it; None if none did."""
        for journal in self.folder.parent.glob(f"*/{JOURNAL}"):
            if journal.parent == self.folder:
                continue
            with suppress(OSError, ValueError):
                abandoned = _claim(journal)
                if abandoned is not None:
                    os.close(abandoned)
                    continue
                entry = _read(journal)[1].get(path)
                if entry is None:
                    continue
                place = self._place(path)
                for name in ("kept", "copy"):
                    if getattr(entry, name):
                        own = f"{place}/{secrets.token_hex(8)}"
                        os.link(getattr(entry, name), own)
                        setattr(entry, name, own)
                return entry
        return None


# -- restoration -------------------------------------------------------------------------------------------------------


def begin() -> tuple[Path, int]:
    """Create a folder with a new journal. Return the folder and the file descriptor that holds the journal's lock.

    While a process holds the lock, no other command restores the files.
    """
    folder = _create_state_folder() / secrets.token_hex(8)
    with _only_process(folder.parent):
        folder.mkdir(mode=0o700)
        first = {"format": 1, "host": socket.gethostname(), "cwd": os.getcwd()}
        with open(folder / JOURNAL, "x", encoding="utf-8") as file:
            file.write(json.dumps(first) + "\n")
        handle = os.open(folder / JOURNAL, os.O_RDONLY | os.O_CLOEXEC)
        if fcntl is not None:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder, handle


def is_in_use(folder: Path) -> bool:
    """Return whether a running probe on this machine uses the journal in ``folder``."""
    with suppress(OSError, ValueError):
        if fcntl is None or _read(folder / JOURNAL)[0].get("host") != socket.gethostname():
            return False
        handle = _claim(folder / JOURNAL)
        if handle is None:
            return True
        os.close(handle)
    return False


def recover() -> list[Settled]:
    """Restore the files that the scripts of killed probes have changed on this machine."""
    done = []
    journals = [one for state in _state_folders() if _is_own(state) for one in sorted(state.glob(f"*/{JOURNAL}"))]
    for journal in journals:
        with suppress(OSError, ValueError):
            with _only_process(journal.parents[1]):
                handle = _claim(journal)
            if handle is not None:
                try:
                    done.append(settle(journal.parent))
                finally:
                    os.close(handle)
    return done


def settle(folder: Path) -> Settled:
    """Restore every file that the journal in ``folder`` lists, and remove the backups.

    If the probe ended a training early, new files that the script wrote after its training had begun are removed.
    Otherwise new files stay, and the script's versions of restored files are moved to a new folder in the script's
    working folder.
    """
    first, entries, places, ran = _read(folder / JOURNAL)
    done = Settled(journal=str(folder / JOURNAL))
    cut = (folder / CUT).exists()
    existing = [entry for entry in entries.values() if entry.kind != "new"]
    originals = {entry.node for entry in existing if entry.kind == "file"}
    versions = None if cut else _Versions(str(first.get("cwd") or os.getcwd()), originals)
    for path in ran:
        _find_new_names(path, entries, originals)
    for entry in entries.values():
        if entry.kind == "new" and not (cut and entry.late):
            with suppress(OSError):
                _separate(entry, originals)
    for entry in sorted(existing, key=lambda one: (one.kind != "folder", one.path)):
        try:
            if _restore(entry, versions):
                done.restored.append(entry.path)
        except OSError as error:
            done.failed.append(f"{entry.path} ({error.strerror or error}; backup: {entry.copy or entry.kept})")
    for entry in sorted(entries.values(), key=lambda one: one.path, reverse=True):
        if entry.kind == "new":
            with suppress(OSError):
                if _tidy(entry, originals, cut=cut):
                    done.removed.append(entry.path)
    for entry in sorted(existing, key=lambda one: one.path, reverse=True):
        if entry.kind == "folder":
            with suppress(OSError):
                os.chmod(entry.path, entry.mode)
                os.utime(entry.path, ns=entry.times)
    if versions is not None:
        done.versions, done.versions_folder = versions.paths, versions.folder
    if not done.failed:
        for place in (*places, str(folder)):
            shutil.rmtree(place, ignore_errors=True)
    return done


class _Versions:
    """Keeps the script's versions of restored files in a new folder. Used if the probe ended no training early.

    ``near`` is the script's working folder, and ``originals`` contains device and inode of all files to restore.
    """

    def __init__(self, near: str, originals: set[tuple[int, int]]) -> None:
        self._near = near
        self._originals = originals
        self.paths: list[str] = []
        self.folder: str | None = None

    def take(self, path: str, name: str, *, move: bool = True) -> None:
        """Move or copy the file ``path``, which is the script's version of the file ``name``, to the new folder."""
        if move and _node(os.lstat(path)) in self._originals:
            return  # another existing file, which gets its own name back
        if self.folder is None:
            self.folder = tempfile.mkdtemp(prefix=VERSIONS, dir=self._near)
        inside = os.path.relpath(name, self._near)
        target = os.path.join(self.folder, name.lstrip("/") if inside.startswith("..") else inside)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        self.paths.append(name)
        if move:
            with suppress(OSError):
                os.rename(path, target)
                return
        _copy_content(path, target)
        shutil.copystat(path, target)


def _restore(entry: Entry, versions: _Versions | None) -> bool:
    """Restore the path of ``entry``. Return whether it had changed."""
    now = _stat(entry.path)
    if entry.kind == "folder":
        if now is None or not stat.S_ISDIR(now.st_mode):
            _clear(entry.path, now, versions)
            os.makedirs(entry.path, exist_ok=True)
            return True
        return stat.S_IMODE(now.st_mode) != entry.mode  # set at the end
    if entry.kind == "link":
        if now is not None and stat.S_ISLNK(now.st_mode) and os.readlink(entry.path) == entry.target:
            return False
        _clear(entry.path, now, versions)
        os.makedirs(os.path.dirname(entry.path), exist_ok=True)
        os.symlink(entry.target, entry.path)
        return True
    return _restore_file(entry, now, versions)


def _restore_file(entry: Entry, now: os.stat_result | None, versions: _Versions | None) -> bool:
    kept = entry.kept if entry.kept and os.path.lexists(entry.kept) else ""
    copy = entry.copy if entry.copy and os.path.lexists(entry.copy) else ""
    same = now is not None and _node(now) == entry.node
    if not (kept or copy):
        return False  # restored already
    changed = not same
    if copy and (kept or same) and not filecmp.cmp(copy, kept or entry.path, shallow=False):
        changed = True
        if versions is not None:
            versions.take(kept or entry.path, entry.path, move=False)
        _copy_content(copy, kept or entry.path)  # in place: the file may have other names
    if not same:
        _clear(entry.path, now, versions)
        os.makedirs(os.path.dirname(entry.path), exist_ok=True)
        if kept:
            try:
                os.rename(kept, entry.path)
            except OSError:
                _copy_content(kept, entry.path)
        else:
            _copy_content(copy, entry.path)
    found = os.stat(entry.path)
    if (found.st_uid, found.st_gid) != tuple(entry.owner):
        with suppress(OSError):
            os.chown(entry.path, *entry.owner)
    if stat.S_IMODE(found.st_mode) != entry.mode:
        changed = True
        os.chmod(entry.path, entry.mode)
    os.utime(entry.path, ns=entry.times)
    return changed


def _clear(path: str, now: os.stat_result | None, versions: _Versions | None) -> None:
    """Remove the file or folder that the script has put at ``path``; pass its files to ``versions`` before."""
    if now is None:
        return
    for inside in [path + name for name in _names_in(path)] if stat.S_ISDIR(now.st_mode) else [path]:
        found = _stat(inside)
        if versions is not None and found is not None and stat.S_ISREG(found.st_mode):
            versions.take(inside, inside)
    if stat.S_ISDIR(now.st_mode):
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _find_new_names(folder: str, entries: dict[str, Entry], originals: set[tuple[int, int]]) -> None:
    """Add to ``entries`` the new names in ``folder`` of files that existed before.

    A program whose changes could not be detected has created them.
    """
    lost = {one.node for one in entries.values() if one.kind == "file" and not _is_at(one.path, one.node)}
    own = tuple(f"{os.path.realpath(one)}/" for one in _state_folders())
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(FOLDER_PREFIX)]
        if f"{place}/".startswith(own):
            folders.clear()
            continue
        for path in (os.path.join(place, name) for name in files):
            now = _stat(path)
            if path not in entries and now is not None and now.st_nlink > 1 and _node(now) in originals:
                entries[path] = Entry(path, "new", by="rename" if _node(now) in lost else "link")


def _separate(entry: Entry, originals: set[tuple[int, int]]) -> None:
    """If the new path ``entry`` is a hard link to a file that will be restored, replace it by a copy.

    It is called before the file is restored, so the copy has the content that the script left.
    """
    now = _stat(entry.path)
    if now is None or not stat.S_ISREG(now.st_mode) or _node(now) not in originals or entry.by == "rename":
        return
    if not _is_reached(entry.path):
        return
    fresh = f"{os.path.dirname(entry.path)}/.vmselect-{secrets.token_hex(8)}.part"
    try:
        _copy_content(entry.path, fresh)
        shutil.copystat(entry.path, fresh)
        os.replace(fresh, entry.path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(fresh)


def _is_at(path: str, node: tuple[int, int]) -> bool:
    now = _stat(path)
    return now is not None and _node(now) == node


def _is_reached(path: str) -> bool:
    """Return whether no folder in ``path`` has been replaced by a symbolic link, which may lead to other files."""
    return _locate(path) == path


def _tidy(entry: Entry, originals: set[tuple[int, int]], *, cut: bool) -> bool:
    """Remove the new path ``entry`` if it must not stay. Return whether a new file was removed.

    ``cut`` is True if the probe ended a training early.
    """
    now = _stat(entry.path)
    if now is None or not _is_reached(entry.path):
        return False
    if stat.S_ISDIR(now.st_mode):
        if cut:
            os.rmdir(entry.path)  # fails if anything is left in it
        return False
    renamed = _node(now) in originals and entry.by == "rename"  # an existing file, which has its own name back
    if not renamed and not (cut and entry.late):
        return False
    os.unlink(entry.path)
    return not renamed


def _read(journal: Path) -> tuple[dict[str, Any], dict[str, Entry], list[str], list[str]]:
    """Return the content of ``journal``: first line, entries by path, backup folders, and folders of started programs.

    An unfinished last line is skipped.
    """
    first: dict[str, Any] = {}
    entries: dict[str, Entry] = {}
    places, ran = [], []
    with open(journal, encoding="utf-8") as file:
        for text in file:
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if not isinstance(line, dict):
                continue
            if "folder" in line:
                if os.path.basename(str(line["folder"])).startswith(FOLDER_PREFIX):
                    places.append(str(line["folder"]))
            elif isinstance(line.get("ran"), str):
                ran.append(line["ran"])
            elif "format" in line:
                first = line
            elif isinstance(line.get("path"), str):
                with suppress(TypeError, ValueError, KeyError):
                    entry = Entry(**line)
                    for name in ("owner", "times", "node"):
                        one, other = line[name]
                        setattr(entry, name, (int(one), int(other)))
                    known = entries.get(entry.path)
                    if known is None:
                        entries[entry.path] = entry
                    elif known.node == entry.node:
                        known.late |= entry.late
                        known.copy = known.copy or entry.copy
                        known.by = entry.by or known.by
    if first.get("format") != 1:
        raise ValueError("the journal was written by another version of vmselect")
    return first, entries, places, ran


def _claim(journal: Path) -> int | None:
    """Lock ``journal`` and return its file descriptor; None if a process uses it, or if it is of another machine."""
    with open(journal, encoding="utf-8") as file:
        first = json.loads(file.readline(2**20) or "{}")
    if fcntl is None or first.get("host") != socket.gethostname():
        return None
    return try_lock(journal)


def try_lock(path: Path) -> int | None:
    """Lock the file or folder ``path`` and return its file descriptor; None if it cannot be locked."""
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


@contextmanager
def _only_process(state: Path) -> Iterator[None]:
    """Context manager in which no other probe creates, locks or extends a journal in the folder ``state``.

    After :data:`MAX_LOCK_SECONDS` of waiting, it is entered anyway: a process that was suspended while it held the lock
    must not block every other command.
    """
    handle = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + MAX_LOCK_SECONDS
        while fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    break
                time.sleep(0.01)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(handle)


def _describe(path: str, now: os.stat_result) -> Entry:
    kind: Literal["file", "link", "folder"] = "file"
    target = ""
    if stat.S_ISDIR(now.st_mode):
        kind = "folder"
    elif stat.S_ISLNK(now.st_mode):
        kind, target = "link", os.readlink(path)
    times = (now.st_atime_ns, now.st_mtime_ns)
    owner = (now.st_uid, now.st_gid)
    return Entry(path, kind, mode=stat.S_IMODE(now.st_mode), owner=owner, times=times, node=_node(now), target=target)


def _copy_content(source: str, target: str) -> None:
    """Make the content of ``target`` equal to that of ``source``; in place if ``target`` exists."""
    with open(source, "rb") as old:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as new:
            if fcntl is not None:
                with suppress(OSError):  # only some file systems share blocks
                    fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
                    return
            shutil.copyfileobj(old, new, 2**20)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def _node(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _locate(path: str) -> str:
    """Return the absolute path of ``path``. Symbolic links among its folders are followed, but not ``path`` itself."""
    path = path.rstrip("/") or "/"
    name = os.path.basename(path)
    if name in ("", ".", ".."):
        return os.path.realpath(path)
    return os.path.join(os.path.realpath(os.path.dirname(path) or "."), name)


def _names_in(folder: str) -> list[str]:
    return [os.path.join(place, name)[len(folder) :] for place, fs, ns in os.walk(folder) for name in (*fs, *ns)]


def _mount_of(folder: str) -> int:
    found = _stat(folder)
    return -1 if found is None else found.st_dev
