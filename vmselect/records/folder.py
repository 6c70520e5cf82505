"""Records in files and folders: saved under a name of their own, found, and read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vmselect._checks import check_path, several
from vmselect._files import has_file, has_folder, is_folder, read_bytes, write_new, write_text
from vmselect.errors import ProfileError
from vmselect.records.base import Record
from vmselect.records.draft import MAX_FILE_BYTES, name_record, recover
from vmselect.records.registry import KINDS, parse_record
from vmselect.records.training import Profile

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Profiles(list[Profile]):
    """A list of profiles that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from vmselect.records.summary import table_html

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
