"""Collects the records of trials in the sweep's folder, under the number of their trial."""

from __future__ import annotations

import hashlib
from pathlib import Path

from vmselect._files import write_text
from vmselect.errors import ProfileError, SweepError
from vmselect.records import Record, load_records
from vmselect.records.base import Fact
from vmselect.records.draft import recover
from vmselect.records.folder import load_record
from vmselect.sweeps.plan import Trial


def collect(trial: Trial, attempt_folder: Path, folder: Path) -> tuple[list[Path], list[str]]:
    """Copy every complete record of an attempt into ``folder``; returns the files and the faults of others.

    Repeating it gives the same files: a crash before the journal entry loses and duplicates nothing.
    """
    recover(attempt_folder / "records")  # of a killed trial
    files: list[Path] = []
    faults: list[str] = []
    for source in sorted((attempt_folder / "records").glob("*.json")):
        if source.name.startswith("."):
            continue
        try:
            record = load_record(source)
        except ProfileError as broken:
            faults.append(str(broken))
            continue
        target = folder / f"{trial.id}-{source.name}"
        files.append(write_text(target, _complete(record, trial).to_json(), error=SweepError))
    return files, faults


def load_all(folder: Path, files: list[str]) -> list[Record]:
    """The records of a sweep, in order of trials."""
    return load_records([folder / name for name in sorted(files)]) if files else []


def fingerprint(path: Path) -> str:
    """A hash of the file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _complete(record: Record, trial: Trial) -> Record:
    """The record with the trial's factors and instance type, if it lacks them."""
    changes: dict[str, object] = {}
    if missing := {name: level for name, level in trial.factors.items() if name not in record.factors}:
        changes["factors"] = {**record.factors, **missing}
    if record.placement.instance_type is None and trial.instance_type:
        named = Fact(value=trial.instance_type, source="given")
        changes["placement"] = record.placement.model_copy(update={"instance_type": named})
    return record.model_copy(update=changes) if changes else record
