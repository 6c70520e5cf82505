"""The journal of a sweep: one JSON line per event, written before the event is carried out.

The state of a sweep is computed from its journal.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from vmselect._checks import check_host, is_number
from vmselect._io import has_file, read_bytes
from vmselect.errors import ArgumentError, SweepError
from vmselect.sweeps.plan import Plan, Trial
from vmselect.units import cost_usd

NAME = "journal.jsonl"
FORMAT = 1
# The largest plan, 100,000 trials, writes about 150 MB: five events of 300 bytes for each trial.
LIMIT_BYTES = 256 << 20
Json = dict[str, Any]
Event = Json
STATUSES = ("queued", "starting", "running", "done", "failed", "skipped")
ENDINGS = {
    "cap": "the trial was ended at its time limit",
    "stop": "the trial was stopped",
    "cut": "the connection to the trial was cut",
    "silent": "the supervisor of the trial received no heartbeat over its connection",
    "guard": "the supervisor of the trial was killed",
    "start": "the trial could not be started",
    "worker": "a worker of the trial failed",
    "accepted": "the end of the trial could not be proved, and the user accepted the trial as ended",
}
"""Maps each value of ``why`` in a ``gone`` event to a text for users: how an attempt ended."""


class Journal:
    """Appends events to ``folder/journal.jsonl``. A lock allows one writing process at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file = -1

    @contextmanager
    def opened(self) -> Iterator[Journal]:
        """Open and lock the journal for writing. Raise an error if another process holds the lock."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as cannot:
            raise SweepError(f"Cannot write {self.path}: {cannot.strerror}. Choose a writable folder.") from cannot
        try:
            try:
                # A lock of the kernel, not a lock file: it ends with the process, however that ends.
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SweepError(
                    f"A sweep is running in {self.path.parent}. Wait until it ends, or press Ctrl-C in its terminal."
                ) from None
            # Between opening and locking, another process may have discarded its sweep with this folder.
            if not _is_same_file(self._file, self.path):
                raise SweepError(f"{self.path} was just removed by another process. Start the sweep again.")
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                os.write(self._file, b"\n")  # a killed writer left its line incomplete
            yield self
        finally:
            os.close(self._file)
            self._file = -1

    def write(self, event: str, **facts: object) -> Event:
        """Append one event, and synchronize it to disk before returning, so that a crash cannot lose it."""
        line = {"event": event, "at": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"), **facts}
        data = json.dumps(line, ensure_ascii=False, allow_nan=False).encode(errors="backslashreplace") + b"\n"
        try:
            if os.write(self._file, data) != len(data):
                raise OSError(28, "No space left on device")
            os.fsync(self._file)  # before the action: a machine whose start is not noted could never be stopped
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
    """Return all events of the journal in ``folder``. Damaged lines are left out."""
    return [event for _, event, problem in read_lines(folder) if not problem]


def read_lines(folder: Path) -> list[tuple[int, Event, str]]:
    """Return number, event and problem ("" if there is none) of each line of the journal in ``folder``."""
    path = folder / NAME
    if not has_file(path):
        raise SweepError(f"No sweep was started in {folder}: {NAME} is missing or not readable. Check the folder.")
    lines = []
    for number, line in enumerate(
        read_bytes(path, noun="journal", limit=LIMIT_BYTES, error=SweepError).split(b"\n"), 1
    ):
        if not line.strip():
            continue
        # A line that was cut or edited must not hide the others, which say what still runs and costs money.
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        lines.append((number, event if isinstance(event, dict) else {}, find_problem(event)))
    return lines


def find_problem(event: object) -> str:
    """Return the reason why ``event`` is not a valid event, or "". Unknown kinds of events are valid."""
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return "the line is incomplete"
    for name, (check, required) in FIELDS.get(event["event"], {}).items():
        if name not in event:
            if required:
                return f"{name} is missing"
        elif not check(event[name]):
            return f"{name} is invalid"
    if event["event"] == "start" and event["handle"]["token"] != event["token"]:
        return "the two tokens in the line differ"
    return ""


Check = Callable[[object], bool]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and is_number(value) and 0 <= value < 1e12


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and abs(dt.datetime.fromisoformat(value).timestamp()) < 1e12
    except (ValueError, OverflowError, OSError):
        return False


def _is_host(value: object) -> bool:
    try:
        return bool(check_host("host", value) == value)
    except ArgumentError:
        return False


def _matches(pattern: str) -> Check:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII) is not None


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _map_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _is_level(value: object) -> bool:
    return isinstance(value, (str, bool)) or is_number(value)


def _is_planned(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_trial(value[0]) and _map_of(_is_level)(value[1])


def _is_node_count(value: object) -> bool:
    return isinstance(value, int) and _is_count(value) and value <= 1024


_is_trial = _matches(r"\d{1,9}")
_is_file = _matches(r"[^/\0\n]{1,250}\.json")
_is_handle_number = _or_none(lambda value: isinstance(value, int) and 0 <= value < 1 << 62)  # a process or job
HANDLE: dict[str, Check] = {
    "runner": _is_text, "token": _is_text, "guards": _is_node_count,
    "program": _is_text, "hosts": _list_of(_is_host), "far": _is_text, "base": _is_text, "python": _is_text,
    "homes": _list_of(_is_text), "pipes": _list_of(_is_text), "folder": _is_text, "host": _is_text, "boot": _is_text,
    "cores": _list_of(_list_of(_is_handle_number)), "pids": _list_of(_is_handle_number),
    "cluster": _matches(r"[a-z0-9-]{1,63}"), "job": _is_handle_number,
}  # fmt: skip
"""Maps each field of a handle to the check of its value, including fields that only earlier versions wrote."""

NEEDED = {
    "local": ("token", "host", "boot"), "ssh": ("token", "hosts"), "slurm": ("token", "folder"),
    "skypilot": ("token", "cluster", "far"),
}  # fmt: skip
"""Maps each runner to the fields of a handle without which it cannot find a trial."""


def _is_handle(value: object) -> bool:
    return isinstance(value, dict) and all(check(value[name]) for name, check in HANDLE.items() if name in value)


def _is_new_handle(value: object) -> bool:
    if not isinstance(value, dict) or not _is_handle(value):
        return False
    needed = NEEDED.get(value.get("runner", ""))
    return needed is not None and all(name in value for name in needed)


_TRIAL = {"trial": (_is_trial, True), "attempt": (_is_count, True)}
FIELDS: dict[str, dict[str, tuple[Check, bool]]] = {
    "sweep": {
        "format": (_is_count, False), "id": (_matches(r"[0-9A-Za-z]{1,64}"), True), "plan": (_is_text, True),
        "work": (_is_text, True), "budget_usd": (_or_none(_is_amount), False), "prices": (_map_of(_is_amount), True),
        "places": (_map_of(_is_text), False), "trials": (_list_of(_is_planned), True), "url": (_is_text, False),
    },
    "session": {
        "budget_usd": (_or_none(_is_amount), False), "stop_when_sure": (_is_flag, False),
        "epochs": (_or_none(_is_count), False), "enough_regret": (_or_none(_is_amount), False),
    },
    "start": {
        **_TRIAL, "at": (_is_time, True), "token": (_matches(r"[A-Za-z0-9-]{1,200}"), True),
        "usd_per_hour": (_is_amount, True), "worst_usd": (_is_amount, True), "handle": (_is_new_handle, True),
    },
    "started": {**_TRIAL, "handle": (_is_handle, False)},
    "gone": {
        **_TRIAL, "seconds": (_is_amount, True), "why": (_is_text, False), "error": (_is_text, False),
        "exit": (_or_none(lambda value: isinstance(value, int)), False), "token": (_is_text, False),
    },
    **{kind: {**_TRIAL, "why": (_is_text, False)} for kind in ("fetched", "unfetched", "unproved", "empty")},
    **{kind: {"trial": (_is_trial, True), "file": (_is_file, True)} for kind in ("record", "copied")},
    "uncopied": {"trial": (_is_trial, True), "file": (_is_file, True), "why": (_is_text, True)},
    "skip": {
        "trial": (_is_trial, True), "why": (_is_text, True), "sure": (_is_flag, False),
        "worst_usd": (_is_amount, False), "estimated_usd": (_is_amount, False),
    },
    "add": {"trial": (_is_trial, True), "like": (_is_trial, True), "repetition": (_is_count, True)},
}  # fmt: skip
"""Maps each kind of event to its fields, and each field to the check of its value and whether it is required."""


@dataclass(frozen=True)
class Skip:
    """Why a trial is skipped, and the cost that this saves in USD.

    ``sure`` is True if the trial is skipped because running it would not improve the choice of a machine.
    """

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
    handle: Json = field(default_factory=dict)
    started: bool = False
    seconds: float | None = None
    """Paid seconds; None while the attempt may still run."""
    exit: int | None = None
    why: str = ""
    error: str = ""
    fetched: bool = False

    @property
    def open(self) -> bool:
        """Whether the attempt is possibly still running, because its end is not recorded."""
        return self.seconds is None

    @property
    def spent_usd(self) -> float:
        """Cost of the attempt in USD; its worst-case cost while it may still run."""
        return self.worst_usd if self.seconds is None else cost_usd(self.seconds, self.usd_per_hour)


@dataclass
class State:
    """The state of a sweep, computed from the events of its journal."""

    folder: Path
    about: Event = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    records: dict[str, list[str]] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)
    """Files of the records that were copied to the URL of the sweep."""
    uncopied: dict[str, str] = field(default_factory=dict)
    """Maps files of records that could not be copied to the URL yet to the reasons."""
    skipped: dict[str, Skip] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    """Descriptions of the damaged lines of the journal, which were left out."""
    added: dict[str, Event] = field(default_factory=dict)
    """Maps the ID of each repetition that the sweep added to the plan to its event."""
    budget_usd: float | None = None
    confirmed: bool = False
    """Whether the cost of the sweep was confirmed, so that trials may have started."""
    stop_when_sure: bool = False
    epochs: int | None = None
    enough_regret: float | None = None
    _numbered: dict[tuple[str, int], list[Attempt]] = field(default_factory=dict, repr=False)
    """Attempts by trial and number: a trial may have thousands, and most events name one of them."""

    @property
    def url(self) -> str | None:
        """URL to which the records are copied, without secrets; None if they are not copied."""
        return self.about.get("url")

    @property
    def trials(self) -> list[tuple[str, Json]]:
        """ID and factors of each trial: trials of the plan, then added repetitions."""
        planned = dict(self.about.get("trials", [])) or {trial: {} for trial in self.attempts}
        return [*planned.items(), *((trial, planned.get(event["like"], {})) for trial, event in self.added.items())]

    @property
    def id(self) -> str:
        """ID of the sweep: the most frequent ID in the tokens of its attempts.

        The first line of the journal also contains the ID, but may be damaged. It is used only without attempts.
        """
        ids = Counter(parts[1] for a in self.all_attempts if len(parts := a.token.split("-")) == 5)
        return ids.most_common(1)[0][0] if ids else str(self.about.get("id", ""))

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
        """Cost of ended attempts in USD, plus the worst-case cost of attempts that may still run."""
        return sum(attempt.spent_usd for attempt in self.all_attempts)

    @property
    def sure(self) -> dict[str, Skip]:
        """Trials that are skipped because running them would not improve the choice of a machine, by ID."""
        return {trial: skip for trial, skip in self.skipped.items() if skip.sure}

    def count_statuses(self) -> dict[str, int]:
        """Return the number of trials in each status."""
        statuses = [self.status_of(trial) for trial, _ in self.trials]
        return {status: statuses.count(status) for status in STATUSES}

    def status_of(self, trial: str) -> str:
        """Return the status of a trial, one of :data:`STATUSES`."""
        if self.records.get(trial):  # also if a later attempt is open: the trial need not run again
            return "done"
        last = next(reversed(self.attempts.get(trial, [])), None)
        if last is not None and last.open:
            return "running" if last.started else "starting"
        if trial in self.skipped:
            return "skipped"
        return "queued" if last is None else "failed"

    def reason_of(self, trial: str) -> str:
        """Return a text that explains why a trial has no record."""
        if trial in self.skipped:
            return self.skipped[trial].why
        last = next(reversed(self.attempts.get(trial, [])), None)
        if last is None:
            return "the trial was not started"
        how = ENDINGS.get(last.why) or (f"exit code {last.exit}" if last.exit is not None else "the trial ended")
        return f"{how}, without a complete record{f': {last.error}' if last.error else ''}"

    def apply(self, event: Event) -> None:
        """Update the state by one event. Unknown events, written by a later version of vmselect, are ignored."""
        kind = event["event"]
        if kind == "sweep":
            self.about = self.about or event
            self.budget_usd = event.get("budget_usd", self.budget_usd)
        elif kind == "start":
            began = dt.datetime.fromisoformat(event["at"]).timestamp()
            attempt = Attempt(event["trial"], event["attempt"], event["token"], began, event["usd_per_hour"],
                              event["worst_usd"], event.get("handle", {}))  # fmt: skip
            self.attempts.setdefault(attempt.trial, []).append(attempt)
            self._numbered.setdefault((attempt.trial, attempt.number), []).append(attempt)
            self.skipped.pop(attempt.trial, None)
        elif kind == "skip":
            self.skipped[event["trial"]] = Skip(**{f.name: event[f.name] for f in fields(Skip) if f.name in event})
        elif kind == "add":
            self.added[event["trial"]] = event
        elif kind == "record":
            self.records.setdefault(event["trial"], []).append(event["file"])
        elif kind == "copied":
            self.copied.add(event["file"])
            self.uncopied.pop(event["file"], None)
        elif kind == "uncopied":
            self.uncopied[event["file"]] = event["why"]
        elif kind == "session":
            self.confirmed = True
            self.stop_when_sure, self.epochs = event.get("stop_when_sure", False), event.get("epochs")
            self.enough_regret = event.get("enough_regret")
            self.skipped = self.sure if self.stop_when_sure else {}  # the others are decided anew
            self.budget_usd = event.get("budget_usd", self.budget_usd)
        for attempt in self._numbered.get((event.get("trial", ""), event.get("attempt", 0)), ()):
            if event.get("token", attempt.token) != attempt.token:
                continue
            if kind == "started":
                attempt.started = True
                attempt.handle = {**attempt.handle, **event.get("handle", {})}
            elif kind == "gone":
                attempt.seconds = float(event["seconds"])
                attempt.exit, attempt.why = event.get("exit"), event.get("why", "")
                attempt.error = event.get("error", "")
            elif kind == "fetched":
                attempt.fetched = True
            elif kind in ("unfetched", "unproved", "empty"):
                attempt.error = event.get("why", "") or attempt.error


def trials_of(plan: Plan, state: State) -> tuple[Trial, ...]:
    """Return the trials of the plan in the order in which they run, then the repetitions that the sweep added."""
    planned = {trial.id: trial for trial in plan.trials}
    added = [
        replace(planned[event["like"]], id=name, repetition=int(event["repetition"]), block="added")
        for name, event in state.added.items()
        if event["like"] in planned
    ]
    return (*plan.trials, *added)
