"""What is planned, running, done and spent: a fold over the journal, and nothing else."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vmselect.sweeps.journal import Event
from vmselect.sweeps.plan import Plan, Trial
from vmselect.units import cost_usd


@dataclass(frozen=True)
class Skip:
    """Why a trial is passed over, whether because it can change nothing any more, and what that spared."""

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
        """What it cost; the worst case while that is not known."""
        return self.worst_usd if self.seconds is None else cost_usd(self.seconds, self.usd_per_hour)


@dataclass
class State:
    """A sweep as its journal tells it."""

    folder: Path
    about: dict[str, Any] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    records: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, Skip] = field(default_factory=dict)
    added: dict[str, Event] = field(default_factory=dict)
    """Repetitions that were not in the plan."""
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
        """What may still run."""
        return [attempt for attempt in self.all_attempts if attempt.open]

    @property
    def spent_usd(self) -> float:
        """What ended attempts cost, and the worst case of those that may still run."""
        return sum(attempt.spent_usd for attempt in self.all_attempts)

    def status_of(self, trial: str) -> str:
        """One of queued, starting, running, done, failed, skipped."""
        if self.records.get(trial):
            return "done"
        last = self.attempts[trial][-1] if self.attempts.get(trial) else None
        if last is not None and last.open:
            return "running" if last.started else "starting"
        if trial in self.skipped:
            return "skipped"
        return "queued" if last is None else "failed"

    def reason_of(self, trial: str) -> str:
        """Why a trial left no record."""
        if trial in self.skipped:
            return self.skipped[trial].why
        last = self.attempts[trial][-1] if self.attempts.get(trial) else None
        if last is None:
            return "not started"
        ends = {"cap": "ended at its time cap", "stop": "stopped", "cut": "the connection was cut",
                "silent": "the connection went silent", "guard": "its supervisor was killed",
                "start": "could not be started", "worker": "a worker was lost"}  # fmt: skip
        how = ends.get(last.why) or (f"exit code {last.exit}" if last.exit is not None else "ended")
        return f"{how}, no whole record{f': {last.error}' if last.error else ''}"

    def decide_anew(self, stop_when_sure: bool) -> None:
        """Forget what was passed over, but for trials that can change nothing, while that is asked for."""
        self.skipped = {trial: skip for trial, skip in self.skipped.items() if skip.sure and stop_when_sure}

    def apply(self, event: Event) -> None:
        """Take in one event; an unknown one, of a later version, changes nothing."""
        kind = event["event"]
        if kind == "sweep":
            self.about = self.about or event
            self.budget_usd = event.get("budget_usd", self.budget_usd)
        elif kind == "start":
            numbers = {name: event[name] for name in ("usd_per_hour", "worst_usd", "token")}
            began = dt.datetime.fromisoformat(event["at"]).timestamp()
            made = Attempt(event["trial"], event["attempt"], began=began, handle=event.get("handle", {}), **numbers)
            self.attempts.setdefault(made.trial, []).append(made)
            self.skipped.pop(made.trial, None)
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
        elif attempt := self._attempt(event):
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

    def _attempt(self, event: Event) -> Attempt | None:
        several = self.attempts.get(event.get("trial", ""), [])
        return next((attempt for attempt in several if attempt.number == event.get("attempt")), None)


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
