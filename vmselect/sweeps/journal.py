"""The journal of a sweep (JSON lines, each written before its event is carried out), and the state it implies."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from vmselect._files import has_file, read_bytes
from vmselect.errors import SweepError
from vmselect.sweeps.plan import Plan, Trial
from vmselect.units import cost_usd

NAME = "journal.jsonl"
FORMAT = 1
LIMIT_BYTES = 256 << 20
Event = dict[str, Any]
STATUSES = ("queued", "starting", "running", "done", "failed", "skipped")
ENDINGS = {
    "cap": "ended at its time limit",
    "stop": "stopped",
    "cut": "the connection was cut",
    "silent": "no heartbeat arrived over the connection",
    "guard": "its supervisor was killed",
    "start": "could not be started",
    "worker": "a worker was lost",
}
"""Text for users of each value of ``why`` in a ``gone`` event: how an attempt ended."""


class Journal:
    """Appends events to ``folder/journal.jsonl``. A lock allows one writing process at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file = -1

    @contextmanager
    def opened(self) -> Iterator[Journal]:
        """Open and lock the journal for writing; raise if another process holds the lock."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as cannot:
            raise SweepError(f"Cannot write {self.path}: {cannot.strerror}. Choose a writable folder.") from cannot
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SweepError(
                    f"A sweep is running in {self.path.parent}. Wait until it ends, or press Ctrl-C in its terminal."
                ) from None
            if not _is_same_file(self._file, self.path):
                raise SweepError(f"{self.path} was just removed by another process. Start the sweep again.")
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                os.write(self._file, b"\n")  # a killed writer left its line incomplete
            yield self
        finally:
            os.close(self._file)
            self._file = -1

    def write(self, event: str, **facts: Any) -> Event:
        """Append one event and flush it to disk; once this returns, a crash cannot lose the event."""
        line = {"event": event, "at": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"), **facts}
        data = json.dumps(line, ensure_ascii=False, allow_nan=False).encode(errors="backslashreplace") + b"\n"
        try:
            if os.write(self._file, data) != len(data):
                raise OSError(28, "No space left on device")
            os.fsync(self._file)
        except OSError as cannot:
            raise SweepError(
                f"Cannot write {self.path}: {cannot.strerror}. Running trials are stopped; free disk space and resume."
            ) from cannot
        return line


def _is_same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def read_journal(folder: Path) -> list[Event]:
    """Read all events of the journal in ``folder``; lines that a crash left incomplete are ignored."""
    path = folder / NAME
    if not has_file(path):
        raise SweepError(f"No sweep was started in {folder}: {NAME} is missing or not readable. Check the folder.")
    events = []
    for line in read_bytes(path, noun="journal", limit=LIMIT_BYTES, error=SweepError).split(b"\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            events.append(event)
    if events and events[0].get("format", FORMAT) > FORMAT:
        raise SweepError(f"{path} was written by a newer version of vmselect. Upgrade: pip install --upgrade vmselect")
    return events


@dataclass(frozen=True)
class Skip:
    """Why a trial is skipped. ``sure``: it cannot change the result; the costs are those that skipping it saved."""

    why: str
    sure: bool = False
    worst_usd: float = 0.0
    estimated_usd: float = 0.0


@dataclass
class Attempt:
    """One start of a trial, and how it ended."""

    trial: str
    number: int
    token: str
    began: float
    usd_per_hour: float
    worst_usd: float
    handle: dict[str, Any] = field(default_factory=dict)
    started: bool = False
    seconds: float | None = None
    """Seconds to pay for; None while the attempt may still run."""
    exit: int | None = None
    why: str = ""
    error: str = ""
    fetched: bool = False

    @property
    def open(self) -> bool:
        """Whether the attempt may still run."""
        return self.seconds is None

    @property
    def spent_usd(self) -> float:
        """Cost of the attempt; its worst-case cost while it may still run."""
        return self.worst_usd if self.seconds is None else cost_usd(self.seconds, self.usd_per_hour)


@dataclass
class State:
    """The state of a sweep, computed from the events of its journal."""

    folder: Path
    about: dict[str, Any] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    records: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, Skip] = field(default_factory=dict)
    added: dict[str, Event] = field(default_factory=dict)
    """Event of each repetition that was added to the plan, by trial."""
    budget_usd: float | None = None
    confirmed: bool = False
    """Whether the cost of the sweep was confirmed, so that trials may have started."""
    stop_when_sure: bool = False
    epochs: int | None = None

    @property
    def trials(self) -> list[tuple[str, dict[str, Any]]]:
        """ID and factors of each trial: trials of the plan, then added repetitions."""
        planned = dict(self.about.get("trials", []))
        return [*planned.items(), *((trial, planned.get(event["like"], {})) for trial, event in self.added.items())]

    @property
    def all_attempts(self) -> list[Attempt]:
        """All attempts of all trials."""
        return [attempt for several in self.attempts.values() for attempt in several]

    @property
    def open_attempts(self) -> list[Attempt]:
        """Attempts that may still run."""
        return [attempt for attempt in self.all_attempts if attempt.open]

    @property
    def spent_usd(self) -> float:
        """Cost of ended attempts, plus the worst-case cost of attempts that may still run."""
        return sum(attempt.spent_usd for attempt in self.all_attempts)

    @property
    def sure(self) -> dict[str, Skip]:
        """Skipped trials that cannot change the result, by ID."""
        return {trial: skip for trial, skip in self.skipped.items() if skip.sure}

    def count_statuses(self) -> dict[str, int]:
        """Number of trials in each status."""
        found = [self.status_of(trial) for trial, _ in self.trials]
        return {status: found.count(status) for status in STATUSES}

    def status_of(self, trial: str) -> str:
        """Status of a trial, one of :data:`STATUSES`."""
        if self.records.get(trial):
            return "done"
        last = next(reversed(self.attempts.get(trial, [])), None)
        if last is not None and last.open:
            return "running" if last.started else "starting"
        if trial in self.skipped:
            return "skipped"
        return "queued" if last is None else "failed"

    def reason_of(self, trial: str) -> str:
        """Why a trial has no record, as text."""
        if trial in self.skipped:
            return self.skipped[trial].why
        last = next(reversed(self.attempts.get(trial, [])), None)
        if last is None:
            return "not started"
        how = ENDINGS.get(last.why) or (f"exit code {last.exit}" if last.exit is not None else "ended")
        return f"{how}, without a complete record{f': {last.error}' if last.error else ''}"

    def apply(self, event: Event) -> None:
        """Update the state by one event; unknown events, of later versions, are ignored."""
        kind = event["event"]
        if kind == "sweep":
            self.about = self.about or event
            self.budget_usd = event.get("budget_usd", self.budget_usd)
        elif kind == "start":
            began = dt.datetime.fromisoformat(event["at"]).timestamp()
            attempt = Attempt(event["trial"], event["attempt"], event["token"], began, event["usd_per_hour"],
                              event["worst_usd"], event.get("handle", {}))  # fmt: skip
            self.attempts.setdefault(attempt.trial, []).append(attempt)
            self.skipped.pop(attempt.trial, None)
        elif kind == "skip":
            self.skipped[event["trial"]] = Skip(**{f.name: event[f.name] for f in fields(Skip) if f.name in event})
        elif kind == "add":
            self.added[event["trial"]] = event
        elif kind == "record":
            self.records.setdefault(event["trial"], []).append(event["file"])
        elif kind == "session":
            self.confirmed = True
            self.stop_when_sure, self.epochs = event.get("stop_when_sure", False), event.get("epochs")
            self.skipped = self.sure if self.stop_when_sure else {}  # the others are decided anew
            self.budget_usd = event.get("budget_usd", self.budget_usd)
        for found in self.attempts.get(event.get("trial", ""), ()):
            if found.number != event.get("attempt"):
                continue
            if kind == "started":
                found.started = True
                found.handle = {**found.handle, **event.get("handle", {})}
            elif kind == "gone":
                found.seconds = float(event["seconds"])
                found.exit, found.why = event.get("exit"), event.get("why", "")
                found.error = event.get("error", "")
            elif kind == "fetched":
                found.fetched = True
            elif kind in ("unfetched", "unproved", "empty"):
                found.error = event.get("why", "") or found.error


def trials_of(plan: Plan, state: State) -> tuple[Trial, ...]:
    """Trials of the plan in running order, then the repetitions that the sweep added."""
    planned = {trial.id: trial for trial in plan.trials}
    added = [
        replace(planned[event["like"]], id=name, repetition=int(event["repetition"]), block="added")
        for name, event in state.added.items()
        if event["like"] in planned
    ]
    return (*plan.trials, *added)
