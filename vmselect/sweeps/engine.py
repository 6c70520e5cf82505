"""Starts the trials of a sweep within the budget, watches them, collects their records, and ends every trial."""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vmselect._checks import show
from vmselect._io import Url, write_text
from vmselect.errors import EstimateError, ProfileError, SweepError, VmselectError
from vmselect.records import Profile, Record
from vmselect.records.base import Fact
from vmselect.records.files import load_record, save_record
from vmselect.sweeps.journal import Attempt, Event, Journal, State, trials_of
from vmselect.sweeps.plan import Plan, Trial
from vmselect.sweeps.runners.runner import Job, Runner, Seen, count_supervisors, read_status, seen_from
from vmselect.sweeps.runners.supervisor import Json
from vmselect.units import format_usd

if TYPE_CHECKING:
    from vmselect.sweeps.sequential import Sequential

_ROUNDING = 1e-9  # relative: a sum of costs may differ from the budget in its last digits
FETCH_SECONDS = 3600.0
"""Time limit in seconds for fetching records from machines that are not rented."""

MIN_FETCH_SECONDS = 30.0
"""Least time limit in seconds for fetching records from a rented machine, even after the time limit of its trial."""

LATE_SECONDS = 20.0
"""Seconds after its time limit for which a trial is left to its supervisor to end. Then the engine ends it."""

MAX_NAME_BYTES = 200
"""Largest length of the file name of a record, in bytes; a longer name is replaced by a hash. It is below the limit of
file systems, because the temporary name of a file is longer."""

TICK_SECONDS = 0.25
Listener = Callable[[State, Event], None]


@dataclass(frozen=True)
class Budget:
    """Price in USD per hour of each trial, and the largest allowed cost of the sweep."""

    plan: Plan
    prices: dict[str, float]
    limit_usd: float | None = None

    def worst_of(self, trial: str) -> float:
        """Return the worst-case cost of one trial, in USD."""
        return self.plan.worst_usd(self.prices[trial])

    def worst_usd(self, state: State, planned: Collection[str]) -> float:
        """Return the worst-case cost of the sweep in USD: of started trials, plus of the trials ``planned``."""
        return state.spent_usd + sum(self.worst_of(trial) for trial in planned)

    def fits(self, state: State, planned: Collection[str]) -> bool:
        """Return whether the worst-case cost with the trials ``planned`` is within the budget."""
        worst = self.worst_usd(state, planned)
        return self.limit_usd is None or worst <= self.limit_usd * (1 + _ROUNDING)

    def check(self, state: State, planned: Collection[str]) -> None:
        """Raise an error if the worst-case cost with the trials ``planned`` exceeds the budget.

        An interruption may have cost money. If trials were started before, an error is therefore raised only if none of
        the trials ``planned``, taken alone, is within the rest of the budget.
        """
        if state.attempts and any(self.fits(state, [trial]) for trial in planned):
            return
        if planned and not self.fits(state, planned) and self.limit_usd is not None:
            raise SweepError(
                f"The sweep can cost up to {format_usd(self.worst_usd(state, planned))} ({format_usd(state.spent_usd)} "
                f"for started trials, the rest for {len(planned)} trials to start), more than the budget of "
                f"{format_usd(self.limit_usd)}. Lower 'minutes', plan fewer trials, or raise the budget."
            )


def collect(trial: Trial, attempt_folder: Path, folder: Path) -> tuple[list[Path], list[str]]:
    """Copy the usable records of an attempt to ``folder``. Return the files, and an error for each unusable record.

    If a crash interrupts this function, calling it again gives the same files.
    """
    records = attempt_folder / "records"
    if records.is_symlink():
        return [], ["the folder with the records of the trial is a symbolic link"]
    files: list[Path] = []
    faults: list[str] = []
    for source in sorted(records.glob("[!.]*.json")):
        try:
            if source.is_symlink():
                raise ProfileError(f"{source.name} is a symbolic link.")
            record = load_record(source)
            check_record(record, trial)
        except (ProfileError, EstimateError) as broken:
            faults.append(str(broken))
            continue
        name = f"{trial.id}-{source.name}"
        if len(os.fsencode(name)) > MAX_NAME_BYTES or not name.isprintable():
            name = f"{trial.id}-{hashlib.sha256(os.fsencode(source.name)).hexdigest()}.json"
        files.append(write_text(folder / name, _complete(record, trial).to_json(), error=SweepError))
    return files, faults


def check_record(record: Record, trial: Trial) -> None:
    """Raise an error if ``record`` belongs to another trial, or if no time can be estimated from it.

    The record of a training that ran out of memory is accepted: rankings exclude its machine.
    """
    for name, level in trial.factors.items():
        recorded = record.factors.get(name, level)
        if recorded != level and str(recorded) != str(level):
            raise ProfileError(
                f"The record has {name} {show(recorded)}, but its trial has {show(level)}. The record is not used."
            )
    if isinstance(record, Profile) and record.outcome != "out_of_memory":
        from vmselect.estimation import fit_runtime

        try:
            fit_runtime([record])
        except EstimateError:
            fit_runtime([record], steps_per_epoch=1)  # users can give the number of steps later


def _complete(record: Record, trial: Trial) -> Record:
    changes: dict[str, object] = {}
    if missing := {name: level for name, level in trial.factors.items() if name not in record.factors}:
        changes["factors"] = {**record.factors, **missing}
    if record.placement.instance_type is None and trial.instance_type:
        named = Fact(value=trial.instance_type, source="given")
        changes["placement"] = record.placement.model_copy(update={"instance_type": named})
    return record.model_copy(update=changes) if changes else record


@dataclass
class Engine:
    """Runs the trials of one sweep. Every action is written to the journal before it is carried out."""

    plan: Plan
    folder: Path
    work: Path
    journal: Journal
    state: State
    runner: Runner
    budget: Budget
    listener: Listener = lambda state, event: None
    ask_stop: Callable[[], bool] = lambda: True
    sequential: Sequential | None = None
    """Decides which trials are worth running, and their order. If None, all trials run in the order of the plan."""
    url: Url | None = None
    """URL of the folder to which each record is copied when its trial has ended; None if records are not copied."""
    confirmed_usd: float = math.inf
    """The worst-case cost in USD that the user confirmed. Repetitions are added only within this cost."""
    clock: Callable[[], float] = time.time
    """Function that returns the Unix time. Paid time is counted from the start of an attempt in the journal, even if
    another process started it."""
    stopping: threading.Event = field(default_factory=threading.Event)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    listener_error: BaseException | None = None
    """The error that ``listener`` raised. It is raised again when all trials have ended."""
    _adopted: list[Attempt] = field(default_factory=list)
    _retried: set[str] = field(default_factory=set)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials of the plan, followed by the repetitions that the sweep added."""
        return trials_of(self.plan, self.state)

    @property
    def unfinished(self) -> list[Trial]:
        """Trials that still have to start: those that are neither done, nor running, nor skipped."""
        return [trial for trial in self.trials if self.state.status_of(trial.id) in ("queued", "failed")]

    def write(self, event: str, **facts: object) -> None:
        """Write an event to the journal, update the state and call the listener.

        If the listener fails, all trials are ended, and then its error is raised.
        """
        with self._lock:
            line = self.journal.write(event, **facts)
            self.state.apply(line)
            if self.listener_error is None:
                try:
                    self.listener(self.state, line)
                except BaseException as failed:  # noqa: BLE001 - kept, and raised again when nothing runs any more
                    self.listener_error = failed
                    self.stopping.set()

    def reconcile(self, *, adopt: bool = False, accept: Collection[str] = ()) -> list[tuple[Attempt, str]]:
        """End the attempts of an earlier vmselect process that may still run, and collect their records.

        Return these attempts, each with the reason why its end could not be proved, or "". With ``adopt=True``,
        attempts of runners whose trials continue after vmselect exits are not ended: :meth:`run` watches them again.
        Attempts of the trials in ``accept`` are recorded as ended even if this could not be proved.
        """
        trials = {trial.id: trial for trial in self.trials}
        ended: list[tuple[Attempt, str]] = []
        for attempt in self.state.all_attempts:
            trial = trials.get(attempt.trial)  # None if a damaged line added it
            recorded = bool(self.state.records.get(attempt.trial))
            if not attempt.open and (recorded or attempt.fetched or trial is None):
                continue
            if not attempt.open and trial is not None:
                self._take_in(trial, attempt, self._fetch(attempt))
                continue
            adoptable = adopt and self.runner.survives and not recorded and trial is not None
            seen = self.runner.watch(attempt.handle) if adoptable or self.runner.rents else Seen("lost")
            if adoptable and seen.state in ("starting", "running", "unknown"):
                self._adopted.append(attempt)
            else:
                last = seen if seen.state == "gone" else Seen("lost")
                ended.append((attempt, self._end(trial, attempt, last, accepted=attempt.trial in accept)))
        for attempt in self.state.all_attempts:  # a crash may have happened between fetching and recording
            if attempt.fetched and attempt.trial in trials and not self.state.records.get(attempt.trial):
                self._note_records(trials[attempt.trial], attempt, quiet=True)
        return ended

    def run(self, parallel: int) -> None:
        """Run every trial without a record, ``parallel`` at a time. Ctrl-C ends all trials and keeps their records."""
        queue = self.unfinished
        with ThreadPoolExecutor(max_workers=parallel) as pool:
            running: set[Future[None]] = set()
            try:
                for attempt in self._adopted:
                    trial = next(t for t in self.trials if t.id == attempt.trial)
                    running.add(pool.submit(self._launch, trial, attempt, adopted=True))
                while queue or running or self._repeat(queue):
                    if self.listener_error is not None:
                        raise self.listener_error
                    self._fill(pool, queue, running, parallel)
                    try:
                        done, running = wait(running, timeout=TICK_SECONDS, return_when=FIRST_COMPLETED)
                    except KeyboardInterrupt:
                        if self.stopping.is_set() or self.ask_stop():
                            raise
                        continue
                    for future in done:
                        future.result()
            except BaseException:
                self.stopping.set()  # the pool waits until every trial has been ended
                raise

    def _fill(self, pool: ThreadPoolExecutor, queue: list[Trial], running: set[Future[None]], parallel: int) -> None:
        while len(running) < parallel:
            with self._lock:
                if self.sequential is not None and queue:
                    queue[:], hopeless = self.sequential.arrange(queue, self.trials, self.state)
                    for trial, why in hopeless:
                        saved: dict[str, float] = {}
                        if trial.id not in self.state.added:  # the cost of the plan does not include repetitions
                            saved["worst_usd"] = self.budget.worst_of(trial.id)
                            saved["estimated_usd"] = self.plan.estimated_usd(self.budget.prices[trial.id])
                        self.write("skip", trial=trial.id, why=why, sure=True, **saved)
            if not queue:
                return
            if not self.runner.has_room(queue[0]):
                if running:
                    return
                trials = {trial.id: trial for trial in self.trials}
                for attempt in self.state.open_attempts:  # may occupy the machine; tried once each
                    if attempt.token not in self._retried:
                        self._retried.add(attempt.token)
                        self._end(trials.get(attempt.trial), attempt, Seen("lost"))
                if not self.runner.has_room(queue[0]):
                    self.write("skip", trial=queue.pop(0).id, why="another trial may still run on this machine")
                    continue
            trial = queue.pop(0)
            with self._lock:
                if not self.budget.fits(self.state, [trial.id, *(waiting.id for waiting in queue)]):
                    self.write("skip", trial=trial.id, why="the worst-case cost exceeds the rest of the budget")
                    continue
                attempt = self._announce(trial)
            running.add(pool.submit(self._launch, trial, attempt))

    def _repeat(self, queue: list[Trial]) -> bool:
        """Add repetitions of tied trials to the queue, within the confirmed cost. Return whether any was added."""
        if self.sequential is None:
            return False
        limit = min(self.confirmed_usd, math.inf if self.budget.limit_usd is None else self.budget.limit_usd)
        for like, why in self.sequential.to_repeat(self.trials, self.state):
            with self._lock:
                agreed = replace(self.budget, limit_usd=limit)
                if not agreed.fits(self.state, [like.id, *(waiting.id for waiting in queue)]):
                    continue
                name = f"{len(self.trials) + 1:0{len(like.id)}d}"
                repetition = 1 + sum(trial.factors == like.factors for trial in self.trials)
                self.budget.prices[name] = self.budget.prices[like.id]
                self.write("add", trial=name, like=like.id, repetition=repetition, why=why)
                queue.append(self.trials[-1])
        return bool(queue)

    def _announce(self, trial: Trial) -> Attempt:
        number = len(self.state.attempts.get(trial.id, ())) + 1
        token = f"vmselect-{self.state.about['id']}-{trial.id}-{number}-{secrets.token_hex(4)}"
        job = self._job(trial, number, token)
        try:
            for folder in ("records", *(f"worker-{rank}" for rank in range(1, trial.nodes))):
                (job.folder / folder).mkdir(parents=True, exist_ok=True)
        except OSError as cannot:
            raise SweepError(f"Cannot create {job.folder}: {cannot.strerror}. Choose a writable folder.") from cannot
        self.write("start", trial=trial.id, attempt=number, token=token, usd_per_hour=self.budget.prices[trial.id],
                   worst_usd=self.budget.worst_of(trial.id), handle=self.runner.announce(job))  # fmt: skip
        return self.state.attempts[trial.id][-1]

    def _launch(self, trial: Trial, attempt: Attempt, *, adopted: bool = False) -> None:
        """Start a trial, watch it, and end it whatever happens. With ``adopted=True`` the trial already runs."""
        seen = Seen("lost", why="" if adopted else "stop")
        try:
            if not adopted:
                if self.stopping.is_set():
                    return
                try:
                    more = self.runner.start(self._job(trial, attempt.number, attempt.token), attempt.handle)
                except VmselectError as cannot:
                    seen = Seen("lost", why="start", error=str(cannot))
                    return
                attempt.handle = {**attempt.handle, **more}
                self.write("started", trial=trial.id, attempt=attempt.number, handle=more)
            seen = self._watch(attempt)
        finally:
            self._end(trial, attempt, seen)

    def _watch(self, attempt: Attempt) -> Seen:
        """Wait until a trial ends or exceeds its time limit, or until the sweep stops. Return the observed state."""
        cap = 60 * self.plan.minutes
        running_since = None if self.runner.queues else time.monotonic()
        while not self.stopping.is_set():
            seen = self.runner.watch(attempt.handle)
            if seen.state in ("ended", "lost", "gone"):
                return seen
            if seen.state == "running" and running_since is None:
                running_since = time.monotonic()
            if self.runner.rents:
                late = self.clock() - attempt.began > cap
            else:  # the supervisor ends the trial at its time limit, unless the supervisor was killed
                late = running_since is not None and time.monotonic() - running_since > cap + LATE_SECONDS
            if late:
                return Seen("lost", why="cap")
            self.stopping.wait(self.runner.poll_seconds)
        return Seen("lost", why="stop")

    def _end(self, trial: Trial | None, attempt: Attempt, seen: Seen, *, accepted: bool = False) -> str:
        """End an attempt, verify that none of its processes runs, and fetch its records.

        Return "", or the reason why its end could not be proved. In this case the attempt counts as running, unless the
        user ``accepted`` it as ended.
        """
        fetched = problem = ""
        if self.runner.rents and seen.state != "gone":  # a rented machine's records are lost with it
            fetched = self._fetch(attempt)
        if seen.state != "ended" or self.runner.rents:
            try:
                problem = self.runner.stop(attempt.handle)
            except VmselectError as cannot:
                problem = str(cannot)
        if problem and not accepted:
            self.write("unproved", trial=attempt.trial, attempt=attempt.number, why=problem)
            return problem
        if problem:  # at an unknown time
            seen = Seen("gone", why="accepted", error=problem)
        if not self.runner.rents:
            fetched = self._fetch(attempt)
        status = read_status(self._folder(attempt), count_supervisors(attempt.handle))
        self.write(
            "gone", trial=attempt.trial, attempt=attempt.number, seconds=self._seconds(attempt, status, seen),
            exit=seen.exit if seen.exit is not None else seen_from(status).exit, token=attempt.token,
            why=seen.why or str(status.get("why", "")), error=(seen.error or str(status.get("error", "")))[:500],
        )  # fmt: skip
        if trial is not None:
            self._take_in(trial, attempt, fetched)
        return problem

    def _seconds(self, attempt: Attempt, status: Json, seen: Seen) -> float:
        """Return the paid seconds of an attempt.

        On a rented machine, the attempt is paid from its start until now. On other machines, the seconds that the
        supervisor counted are used. Without such a count, the time since the start of the attempt is used, but at most
        the time limit.
        """
        elapsed = max(0.0, self.clock() - attempt.began)
        if seen.state == "gone":  # at an unknown time
            return min(elapsed, self.plan.paid_seconds)
        counted = status.get("seconds")
        if not self.runner.rents and isinstance(counted, (int, float)) and 0 <= counted <= elapsed + 1:
            return float(counted)
        return elapsed if self.runner.rents else min(elapsed, 60 * self.plan.minutes)

    def _fetch(self, attempt: Attempt) -> str:
        seconds = FETCH_SECONDS
        if self.runner.rents:  # half of the time for ending is left for taking the machine down
            until = attempt.began + 60 * self.plan.minutes + self.plan.ending_seconds / 2
            seconds = max(MIN_FETCH_SECONDS, until - self.clock())
        try:
            self.runner.fetch(attempt.handle, self._folder(attempt), seconds=seconds)
        except (VmselectError, OSError) as cannot:  # whatever it is, the trial must still be ended
            return str(cannot)
        return ""

    def _take_in(self, trial: Trial, attempt: Attempt, problem: str) -> None:
        if problem:
            self.write("unfetched", trial=trial.id, attempt=attempt.number, why=problem)
            return
        self.write("fetched", trial=trial.id, attempt=attempt.number)
        self._note_records(trial, attempt)

    def _note_records(self, trial: Trial, attempt: Attempt, *, quiet: bool = False) -> None:
        # All workers must have succeeded: a chief that lost a worker measured another training.
        if trial.nodes > 1 and (attempt.exit != 0 or attempt.why not in ("", "exit")):
            return
        files, faults = collect(trial, self._folder(attempt), self.folder)
        for file in files:
            self.write("record", trial=trial.id, attempt=attempt.number, file=file.name,
                       sha256=hashlib.sha256(file.read_bytes()).hexdigest())  # fmt: skip
            self._copy(trial.id, file.name)
        if not files and not quiet:
            self.write("empty", trial=trial.id, attempt=attempt.number, why="; ".join(faults)[:500])

    def copy_records(self) -> None:
        """Copy the records that have not been copied to the URL yet."""
        for trial, files in [*self.state.records.items()]:
            for file in files:
                if file not in self.state.copied:
                    self._copy(trial, file)

    def _copy(self, trial: str, file: str) -> None:
        """Copy a record to the URL, under a name that contains its ID. A failed copy is repeated at the end."""
        if self.url is None or self.stopping.is_set():  # a store that does not answer must not delay the end
            return
        try:
            save_record(load_record(self.folder / file), self.url)
        except VmselectError as cannot:
            self.write("uncopied", trial=trial, file=file, why=str(cannot)[:500])
        else:
            self.write("copied", trial=trial, file=file)

    def _folder(self, attempt: Attempt) -> Path:
        return self.folder / "trials" / attempt.trial / str(attempt.number)

    def _job(self, trial: Trial, number: int, token: str) -> Job:
        folder = self.folder / "trials" / trial.id / str(number)
        return Job(trial, token, folder, self.work, cap_seconds=60 * self.plan.minutes)
