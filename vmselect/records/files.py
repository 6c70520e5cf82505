"""Record files: saving, finding and reading them in files, folders and at URLs. To add a kind, add it to ``KINDS``.

The model of a kind has its own module beside this one. To change a format, add a format number, an upgrade step in
``KINDS``, a line in the history below, and a frozen file of the old format in ``tests/data``.

The file of a record that is being measured is its own draft (:class:`RecordFile`): it has its final name from the
first write on, and the outcome "interrupted" until the measurement ends. If the process is killed, the file is a valid
record of what was measured so far. Every write replaces the file as a whole, so readers never see an incomplete one.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import itertools
import json
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Discriminator, TypeAdapter, ValidationError
from pydantic_core import from_json

from vmselect._checks import several, suggest_arguments
from vmselect._io import (
    Folder,
    Place,
    Url,
    cache_folder,
    check_place,
    check_writable,
    default_folder,
    has_file,
    has_folder,
    is_folder,
    open_folder,
    read_bytes,
    safe_name,
    write_bytes,
    write_new,
    write_text,
)
from vmselect.errors import ProfileError
from vmselect.records import convergence, forecast, inference, training, transfer
from vmselect.records.base import Record, describe_invalid, new_id
from vmselect.records.training import Profile, list_html

# History of the formats. Fields that may be absent are added without a new number.
#
# training
#   1  one kind of record, without the field kind; no id
#   2  id; boundaries of epochs have before_validation_seconds
#   3  kind "training"; factors. The labels warmup and steady mean the same: the warm-up is detected from the
#      readings whenever a file is read
# convergence
#   1  no id
#   2  id
# inference, transfer, forecast, outcome
#   1


REQUIRED = ("format", "id", "created", "writer")
"""Fields that have default values in a new record but must be present in a file."""

Data = dict[str, Any]
Upgrade = Callable[[Data], Data]


class Kind(NamedTuple):
    """One kind of record: its pydantic model, name, newest format, and upgrade steps from older formats."""

    model: type[Record]
    noun: str
    upgrades: Mapping[int, Upgrade] = {}
    remedy: str = "Load it with vmselect.load_records."

    @property
    def format(self) -> int:
        """The number of the format that this version writes."""
        return int(self.model.model_fields["format"].default)


def _identified(data: Data) -> Data:
    """Add an ID to a record of an old format without IDs. Copies of a file get the same ID."""
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return {**data, "id": digest[:32]}


KINDS: Mapping[str, Kind] = {
    "training": Kind(
        training.Profile,
        "profile",
        {
            # Boundaries had no before_validation_seconds.
            1: lambda data: {**_identified(data), "format": 2},
            # There was one kind, and no factors.
            2: lambda data: {**(data if "id" in data else _identified(data)), "kind": "training", "format": 3},
        },
        "Load it with vmselect.load_profiles.",
    ),
    "convergence": Kind(
        convergence.ConvergenceRecord,
        "convergence study",
        {1: lambda data: {**_identified(data), "format": 2}},
        "Load it with vmselect.ConvergenceStudy.load, or give it to the command line as --study.",
    ),
    "inference": Kind(inference.InferenceRecord, "inference record"),
    "transfer": Kind(transfer.TransferRecord, "transfer record"),
    "forecast": Kind(forecast.Forecast, "forecast"),
    "outcome": Kind(forecast.OutcomeRecord, "outcome"),
}
"""The kinds of records by their name in the field ``kind`` of a file."""


def parse_record(text: bytes, *, source: str, kind: str | None = None) -> Record:
    """Parse the ``text`` of a file as a record of ``kind``, or of any kind if None. Errors name the file ``source``."""
    noun = KINDS[kind].noun if kind else "record"
    text = text.removeprefix(b"\xef\xbb\xbf")
    # Millions of empty values in a file of allowed size would take gigabytes once parsed.
    if sum(map(text.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ProfileError(
            f"{source}: this file is not a {noun}: it has more than {MAX_VALUES:,} values. "
            "Pass a file that vmselect wrote."
        )
    try:
        record = _adapter().validate_json(text)
    except ValidationError as invalid:
        record = _upgrade(text, invalid, source=source, noun=noun)
    missing = [name for name in REQUIRED if name not in record.model_fields_set]
    if missing:
        problem = "it has no format number" if "format" in missing else f"field {missing[0]} is missing"
        raise ProfileError(f"{source}: this file is not a {noun}: {problem}. Pass a file that vmselect wrote.")
    if kind is not None and record.kind != kind:
        other = KINDS[record.kind]
        raise ProfileError(f"{source}: this file is a {other.noun}, not a {noun}. {other.remedy}")
    return record


@functools.cache
def _adapter() -> TypeAdapter[Record]:
    union: Any = functools.reduce(operator.or_, [kind.model for kind in KINDS.values()])
    return TypeAdapter(Annotated[union, Discriminator("kind")])


def _upgrade(text: bytes, invalid: ValidationError, *, source: str, noun: str) -> Record:
    """Parse a record of an older format version. Raises ProfileError if the file is not a valid record."""
    try:
        data = from_json(text)
    except ValueError as broken:
        reason = (str(broken).splitlines() or [type(broken).__name__])[0][:200]
        raise ProfileError(
            f"{source}: this file is not a {noun}: {reason}. Restore the file, or probe again."
        ) from None
    if not isinstance(data, dict) or not isinstance(data.get("format"), int) or isinstance(data["format"], bool):
        raise ProfileError(
            f"{source}: this file is not a {noun}: it has no format number. Pass a file that vmselect wrote."
        )
    name = data.get("kind", "training")  # profiles of the first format have no kind
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ProfileError(
            f"{source}: this file is not a {noun}: this version of vmselect does not know the kind {str(name)[:60]!r}. "
            "Upgrade vmselect: pip install --upgrade vmselect"
        )
    number = data["format"]
    if number > kind.format:
        raise ProfileError(
            f"{source}: this {kind.noun} has format {number}, and this version of vmselect reads formats up to "
            f"{kind.format}. Upgrade vmselect: pip install --upgrade vmselect"
        )
    if number == kind.format:
        raise ProfileError(f"{source}: {_describe(invalid, kind.noun)}") from None
    for step in range(number, kind.format):
        if step not in kind.upgrades:
            raise ProfileError(f"{source}: a {kind.noun} has no format {step}. Pass a file that vmselect wrote.")
        data = kind.upgrades[step](data)
    try:
        return kind.model.model_validate_json(json.dumps(data))
    except ValidationError as remaining:
        raise ProfileError(f"{source}: {_describe(remaining, kind.noun)}") from None


def _describe(invalid: ValidationError, noun: str) -> str:
    # Listing all errors of a hostile file takes much longer than finding them.
    if (count := invalid.error_count()) > MAX_LISTED_ERRORS:
        return f"this {noun} is invalid: {count:,} fields are wrong. Pass a file that vmselect wrote."
    errors = invalid.errors(include_url=False, include_input=False)
    where = errors[0]["loc"]  # begins with the kind
    first = {**errors[0], "loc": where[1:] if where and where[0] in KINDS else where}
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"this {noun} is invalid: {describe_invalid(first)}{more}. Correct the field or probe again."


MAX_VALUES = 2_000_000
"""Maximum number of values in a record file. The largest record that a probe writes, of transfers, has 800,000."""

MAX_LISTED_ERRORS = 1_000

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Maximum size of a record file. A profile of a million steps has about half a megabyte."""

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Profiles(list[Profile]):
    """A list of profiles that notebooks display as a table."""

    def _repr_html_(self) -> str:
        return list_html(self)


# -- saving ------------------------------------------------------------------------------------------------------------


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
    # A wrong path must not destroy another file: only a record of the same kind is replaced.
    check_replaceable(target, record.kind)
    return write_text(target, record.to_json())


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


_NUMBERED = re.compile(r"(.*-\d{8}T\d{6}(?:-[0-9a-f]{8})?)-(\d{1,9})\.json", re.ASCII)
"""Name of a file in a folder that had a file of this name already; see :func:`name_record`."""


def name_record(record: Record) -> str:
    """File name for ``record`` in a folder, without the extension."""
    return f"{safe_name(record.file_stem)}-{record.created:%Y%m%dT%H%M%S}"


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
        # Permission to write cannot be asked for: an empty file with a name that readers skip is written and removed.
        folder, name = Folder(path.parent if path.is_record else path), f".vmselect-{new_id()[:16]}.part"
        folder.create(name, b"")
        folder.remove(name)
        check_replaceable(path, kind)
        return
    check_writable(path)
    if not is_folder(path):
        check_replaceable(path, kind)


class RecordFile:
    """The file of a record that is being measured, at ``path``: a file, or a new file in a folder.

    While a record for a URL is being measured, its file is in a local folder (:func:`unsent_folder`), because a
    training must not wait for a network. It is uploaded at the end.
    """

    def __init__(self, path: Place) -> None:
        self._url = path if isinstance(path, Url) else None
        self._target = unsent_folder() if isinstance(path, Url) else path
        self._into_folder = is_folder(self._target)
        self._file: Path | None = None
        self._stem = ""
        self._replaced: bytes | None = None
        """Content of the file before the first write, which comes back if the measurement turns out invalid."""
        self._process = os.getpid()

    def write(self, record: Record) -> None:
        """Write the ``record`` so far. Failures such as a full disk are ignored: the training continues."""
        # Data loaders fork: a child has this object too, but measures nothing.
        if os.getpid() == self._process:
            with suppress(ProfileError):
                self._put(record)

    def finish(self, record: Record) -> Place | None:
        """Write the complete ``record`` and return its path; a forked child writes nothing and returns None."""
        if os.getpid() != self._process:
            return None
        file = self._put(record)
        if self._url is None:
            return file
        try:
            saved = _upload(record, self._url)
        except ProfileError as failed:
            remedy = f"The record was saved as {file} instead; copy it to the URL later."
            raise ProfileError(f"{failed} {remedy}") from None
        file.unlink()
        return saved

    def discard(self) -> None:
        """Remove the file, or restore what it replaced, because the measurements are invalid."""
        if os.getpid() != self._process or self._file is None:
            return
        with suppress(OSError, ProfileError):
            if self._replaced is None:
                self._file.unlink()
            else:
                write_bytes(self._file, self._replaced)

    def _put(self, record: Record) -> Path:
        file, text = self._file, record.to_json()
        if not self._into_folder:
            if file is None and has_file(self._target):
                check_replaceable(self._target, record.kind)
                self._replaced = read_bytes(self._target, noun="record", limit=MAX_FILE_BYTES)
            self._file = write_text(self._target, text)
        elif file is not None and name_record(record) == self._stem:
            write_text(file, text)
        else:
            # The name contains the batch size, which a probe may find out after its first write.
            self._stem = name_record(record)
            self._file = write_new(self._target, self._stem, text)
            if file is not None:
                file.unlink(missing_ok=True)
        assert self._file is not None
        return self._file


def unsent_folder() -> Path:
    """The local folder of records whose measurement, or upload to a URL, has not ended."""
    return cache_folder() / "unsent"


# -- reading -----------------------------------------------------------------------------------------------------------


def load_record(path: str | os.PathLike[str], *, kind: str | None = None) -> Record:
    """Read one record of ``kind``, or of any kind if None."""
    place = check_place("path", path)
    if isinstance(place, Url):
        text = Folder(place.parent).read(place.name, limit=MAX_FILE_BYTES)
    else:
        text = read_bytes(place, noun=KINDS[kind].noun if kind else "record", limit=MAX_FILE_BYTES)
    return parse_record(text, source=str(place), kind=kind)


@suggest_arguments()
def load_profiles(*paths: Paths) -> Profiles:
    """Read profiles from files, and from the ``*.json`` files of folders (without subfolders), sorted by file name.

    Without arguments, read the folder to which probes write by default: the one in the environment variable
    VMSELECT_FOLDER, else ``profiles``. Notebooks display the list as a table.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = Profile.from_times(instance_type="a", batch_size=8, iteration_seconds=0.1).save(folder)
    >>> [profile.instance_type for profile in load_profiles(folder)]
    ['a']
    """
    with without_garbage_collection():
        return Profiles(find_records(*(paths or (default_folder(),)), kind="training"))


@suggest_arguments()
def load_records(*paths: Paths) -> list[Record]:
    """Read records of every kind from files and folders, sorted by file name; see :func:`load_profiles`.

    >>> import tempfile
    >>> path = Profile.from_times(instance_type="a", batch_size=8, iteration_seconds=0.1).save(tempfile.mkdtemp())
    >>> [record.kind for record in load_records(path)]
    ['training']
    """
    with without_garbage_collection():
        return list(find_records(*(paths or (default_folder(),))))


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
    for _, record in walk_records(*paths, kind=kind):
        if isinstance(record, ProfileError):
            raise record
        yield record


def walk_records(*paths: Paths, kind: str | None = None) -> Iterator[tuple[Place, Record | ProfileError]]:
    """Yield (path, record) for every record, and (path, error) for every file that cannot be read."""
    noun = KINDS[kind].noun if kind else "record"
    places = [place for path in paths for place in several(check_place, "path", path)]
    if not places:
        raise ProfileError(f"No {noun} was given. Pass at least one {noun} file or folder.")
    for place in places:
        count = 0
        for file, record in _read_place(place, kind):
            if isinstance(record, ProfileError) or kind is None or record.kind == kind:
                count += 1
                yield file, record
        if not count:
            below = None if isinstance(place, Url) else _find_subfolder(place)
            problem = f"{place}: this folder contains no {noun} (*.json)"
            remedy = f"Run a probe with path={str(place)!r}." if below is None else f"Pass its subfolders: {place}/*/."
            yield place, ProfileError(f"{problem}{f', but {below} has JSON files' if below else ''}. {remedy}")


def _find_subfolder(folder: Path) -> Path | None:
    """The first subfolder of ``folder`` with a JSON file, such as that of a repeated sweep; None without one."""
    with suppress(OSError):
        return next((path for path in sorted(folder.iterdir()) if path.is_dir() and any(path.glob("*.json"))), None)
    return None


def _read_place(place: Place, kind: str | None) -> Iterator[tuple[Place, Record | ProfileError]]:
    """Yield (path, record or error) for the file ``place``, or for every record in the folder ``place``."""
    if place.is_record if isinstance(place, Url) else not has_folder(place):
        try:
            yield place, load_record(place, kind=kind)
        except ProfileError as unreadable:
            yield place, unreadable
        return
    for file, content in _read_folder(place):
        try:
            if isinstance(content, ProfileError):
                raise content
            yield file, parse_record(content, source=str(file))
        except ProfileError as unreadable:
            yield file, unreadable


def _read_order(name: str) -> tuple[str, int]:
    """Sort key of a file name: the name; among files of one second, the number with which it was written."""
    match = _NUMBERED.fullmatch(name)
    return (f"{match[1]}.json", int(match[2])) if match else (name, 1)


def _read_folder(place: Place) -> Iterator[tuple[Place, bytes | ProfileError]]:
    """Yield (path, content or error) for every record file in a folder, sorted by file name.

    Files whose content is in the compacted history of the folder are read from there, which is faster.
    """
    from vmselect.records import history  # imports this module

    folder = open_folder(place)
    try:
        entries = sorted(history.list_records(folder), key=lambda entry: _read_order(entry.name))
    except ProfileError as unreadable:
        yield place, unreadable
        return
    texts = history.read_texts(place, entries)
    others = folder.read_all([entry for entry in entries if entry.name not in texts], limit=MAX_FILE_BYTES)
    for entry in entries:
        if (text := texts.get(entry.name)) is not None:
            yield place / entry.name, text
        else:
            read, content = next(others)
            yield place / read.name, content
