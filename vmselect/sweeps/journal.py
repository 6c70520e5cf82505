"""The journal of a sweep: events as lines of JSON, each on disk before its action; and the state computed from it."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
    "cap": "ended at its time cap",
    "stop": "stopped",
    "cut": "the connection was cut",
    "silent": "the connection went silent",
    "guard": "its supervisor was killed",
    "start": "could not be started",
    "worker": "a worker was lost",
}
"""Why an attempt ended, in its ``gone`` event, to the text for users."""


class Journal:
    """Appends events to ``folder/journal.jsonl``; only one process may, at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file = -1

    @contextmanager
    def opened(self) -> Iterator[Journal]:
        """Lock the journal for writing; raise if another process holds the lock."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as cannot:
            raise SweepError(f"{self.path}: cannot write: {cannot.strerror}. Choose a writable folder.") from cannot
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SweepError(
                    f"{self.path.parent}: a sweep is running here. Wait for it, or end it with Ctrl-C where it runs."
                ) from None
            self._end_torn_line()
            yield self
        finally:
            os.close(self._file)
            self._file = -1

    def write(self, event: str, **facts: Any) -> Event:
        """Append one event and bring it to disk; when this returns, a crash cannot lose it."""
        line = {"event": event, "at": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"), **facts}
        data = json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        try:
            written = os.write(self._file, data)
            if written != len(data):
                raise OSError(28, "No space left on device")
            os.fsync(self._file)
        except OSError as cannot:
            raise SweepError(
                f"{self.path}: cannot write: {cannot.strerror}. What runs is being stopped; make room, then resume."
            ) from cannot
        return line

    def _end_torn_line(self) -> None:
        """End a line that a killed writer left incomplete."""
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")


def read_journal(folder: Path) -> list[Event]:
    """The events so far; an incomplete line, which a crash may leave, is ignored."""
    path = folder / NAME
    if not has_file(path):
        raise SweepError(f"{folder}: no sweep was started here ({NAME} is missing or not readable). Check the folder.")
    events = []
    for line in read_bytes(path, noun="journal", limit=LIMIT_BYTES, error=SweepError).split(b"\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            events.append(event)
    if events and events[0].get("format", FORMAT) > FORMAT:
        raise SweepError(f"{path}: written by a newer vmselect. Upgrade it: pip install --upgrade vmselect")
    return events


@dataclass(frozen=True)
class Skip:
    """Why a trial is skipped; ``sure`` if it cannot change the result, with the cost that this saved."""

    why: str
    sure: bool = False
    worst_usd: float = 0.0
    estimated_usd: float = 0.0


@dataclass
class Attempt:
    """One start of a trial."""

    trial: str
    number: int
    token: str
    began: float
    usd_per_hour: float
    worst_usd: float
    handle: dict[str, Any] = field(default_factory=dict)
    started: bool = False
    seconds: float | None = None
    """Until it was proved gone; None while it may still run."""
    exit: int | None = None
    why: str = ""
    error: str = ""
    fetched: bool = False

    @property
    def open(self) -> bool:
        """Whether it may still run."""
        return self.seconds is None

    @property
    def spent_usd(self) -> float:
        """Its cost; the worst case while that is unknown."""
        return self.worst_usd if self.seconds is None else cost_usd(self.seconds, self.usd_per_hour)


@dataclass
class State:
    """A sweep according to its journal."""

    folder: Path
    about: dict[str, Any] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    records: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, Skip] = field(default_factory=dict)
    added: dict[str, Event] = field(default_factory=dict)
    """Repetitions beyond the plan."""
    budget_usd: float | None = None
    stop_when_sure: bool = False
    epochs: int | None = None

    @property
    def trials(self) -> list[tuple[str, dict[str, Any]]]:
        """Every trial with its factors: those of the plan, then those that were added."""
        planned = [(trial, factors) for trial, factors in self.about.get("trials", [])]
        factors = dict(planned)
        return planned + [(trial, factors.get(event["like"], {})) for trial, event in self.added.items()]

    @property
    def all_attempts(self) -> list[Attempt]:
        """Every start, in order of trials."""
        return [attempt for several in self.attempts.values() for attempt in several]

    @property
    def open_attempts(self) -> list[Attempt]:
        """The attempts that may still run."""
        return [attempt for attempt in self.all_attempts if attempt.open]

    @property
    def spent_usd(self) -> float:
        """The cost of ended attempts, and the worst case of those that may still run."""
        return sum(attempt.spent_usd for attempt in self.all_attempts)

    @property
    def sure(self) -> dict[str, Skip]:
        """Trials that are skipped because they cannot change the result."""
        return {trial: skip for trial, skip in self.skipped.items() if skip.sure}

    def count_statuses(self) -> dict[str, int]:
        """Every status to its number of trials."""
        found = [self.status_of(trial) for trial, _ in self.trials]
        return {status: found.count(status) for status in STATUSES}

    def status_of(self, trial: str) -> str:
        """One of :data:`STATUSES`."""
        if self.records.get(trial):
            return "done"
        last = self._last_attempt(trial)
        if last is not None and last.open:
            return "running" if last.started else "starting"
        if trial in self.skipped:
            return "skipped"
        return "queued" if last is None else "failed"

    def reason_of(self, trial: str) -> str:
        """Why a trial left no record."""
        if trial in self.skipped:
            return self.skipped[trial].why
        last = self._last_attempt(trial)
        if last is None:
            return "not started"
        how = ENDINGS.get(last.why) or (f"exit code {last.exit}" if last.exit is not None else "ended")
        return f"{how}, no whole record{f': {last.error}' if last.error else ''}"

    def decide_anew(self, stop_when_sure: bool) -> None:
        """Forget all skips; with ``stop_when_sure`` keep those of trials that cannot change the result."""
        self.skipped = self.sure if stop_when_sure else {}

    def apply(self, event: Event) -> None:
        """Apply one event; unknown ones, of a later version, are ignored."""
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
            spared = {name: event[name] for name in ("sure", "worst_usd", "estimated_usd") if name in event}
            self.skipped[event["trial"]] = Skip(event["why"], **spared)
        elif kind == "add":
            self.added[event["trial"]] = event
        elif kind == "record":
            self.records.setdefault(event["trial"], []).append(event["file"])
        elif kind == "session":
            self.stop_when_sure, self.epochs = event.get("stop_when_sure", False), event.get("epochs")
            self.decide_anew(self.stop_when_sure)
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

    def _last_attempt(self, trial: str) -> Attempt | None:
        return self.attempts[trial][-1] if self.attempts.get(trial) else None


def fold(folder: Path, events: Iterable[Event]) -> State:
    """The state after ``events``."""
    state = State(folder)
    for event in events:
        state.apply(event)
    return state


def trials_of(plan: Plan, state: State) -> tuple[Trial, ...]:
    """The trials of the plan, in running order, and the repetitions that were added to them."""
    planned = {trial.id: trial for trial in plan.trials}
    added = [
        replace(planned[event["like"]], id=name, repetition=int(event["repetition"]), block="added")
        for name, event in state.added.items()
        if event["like"] in planned
    ]
    return (*plan.trials, *added)
