"""Names the machine of records that were made without an instance type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmselect._checks import check_flag
from vmselect._stores import Place, open_folder
from vmselect.errors import ArgumentError, ProfileError
from vmselect.records.record import Record
from vmselect.records.store import MAX_FILE_BYTES, Paths, save_record, walk_records
from vmselect.units import list_some

ORIGINAL = ".original"
"""Ending that is added to the name of a changed file for its first content. Only files that end in .json are read."""


@dataclass(frozen=True)
class Labelled:
    """Files that were changed, files that already name an instance type, and errors of files that cannot be read."""

    changed: Sequence[Place]
    named: Sequence[Place]
    unreadable: Sequence[ProfileError]


def label_records(
    *paths: Paths, instance_type: str, region: str | None = None, provider: str | None = None, replace: bool = False
) -> Labelled:
    """Write ``instance_type``, and ``region`` and ``provider`` if given, to the record files in ``paths``.

    Records that already name an instance type are only changed with ``replace=True``. The first content of a changed
    file is kept in the same folder, under the name of the file followed by ``.original``. If the records to change are
    of different hardware, an ArgumentError is raised and no file is changed.
    """
    replace = check_flag("replace", replace)
    found = list(walk_records(*paths))
    unreadable = [record for _, record in found if isinstance(record, ProfileError)]
    records = [(path, record) for path, record in found if isinstance(record, Record)]
    wanted = [(path, record) for path, record in records if replace or record.instance_type is None]
    hardware = list(dict.fromkeys(filter(None, (_describe_hardware(record) for _, record in wanted))))
    if len(hardware) > 1:
        raise ArgumentError(
            f"The records are of different machines ({list_some(hardware, 4)}). Pass only the files of one machine."
        )
    changed = []
    for path, record in wanted:
        named = record.with_placement(instance_type=instance_type, region=region, provider=provider)
        folder = open_folder(path.parent)
        folder.create(f"{path.name}{ORIGINAL}", folder.read(path.name, limit=MAX_FILE_BYTES))
        save_record(named, path)
        changed.append(path)
    chosen = {id(record) for _, record in wanted}
    return Labelled(changed, [path for path, record in records if id(record) not in chosen], unreadable)


def _describe_hardware(record: Record) -> str:
    """Text with the GPUs and the CPU of the machine of a record; empty if they are not known."""
    seen = record.environment
    gpus = [f"{len(seen.gpus)} x {seen.gpus[0].name}"] if seen.gpus else []
    cores = [f"{seen.cpu_cores} cores"] if seen.cpu_cores else []
    return " with ".join([*gpus, " ".join([*cores, *filter(None, [seen.cpu_model])])]).removesuffix(" with ")
