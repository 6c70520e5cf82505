"""Functions that run, resume and clean up a sweep, and the result of a sweep."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import secrets
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vmselect import __version__
from vmselect._checks import (
    check_count,
    check_flag,
    check_name,
    check_number,
    check_path,
    list_items,
    maybe,
    show,
    suggest_arguments,
)
from vmselect._io import Url, cache_folder, check_place, has_file, writing
from vmselect.errors import ArgumentError, SweepError
from vmselect.findings import Finding
from vmselect.records import Profile, Record, load_records
from vmselect.records.files import check_target
from vmselect.sweeps.engine import Budget, Engine, Listener
from vmselect.sweeps.journal import FORMAT, NAME, Event, Journal, State, read_journal, read_lines, trials_of
from vmselect.sweeps.plan import Plan, Trial, check_scripts
from vmselect.sweeps.runners import make_runner
from vmselect.sweeps.runners.runner import this_machine
from vmselect.units import format_count, format_usd, printable_lines

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.comparison.speedup import Scaling

PLAN = "plan.yaml"


@dataclass(frozen=True)
class Missing:
    """A trial without a record, and the reason why it has none."""

    trial: Trial
    reason: str
    sure: bool = False
    """Whether the trial was skipped because running it would not improve the choice (``stop_when_sure``)."""

    @property
    def id(self) -> str:
        """ID of the trial, such as ``001``."""
        return self.trial.id

    def __str__(self) -> str:
        factors = ", ".join(f"{name} {level}" for name, level in self.trial.factors.items())
        return printable_lines(f"trial {self.id}{f' ({factors})' if factors else ''}: {self.reason}")


@dataclass(frozen=True)
class SweepResult:
    """The records of a sweep, for ``rank``, ``compare`` and ``report``, and the trials without a record.

    ``unproved`` are trials that may still be running. ``spent_usd`` includes their worst-case cost; ``worst_usd`` is
    the worst-case cost of the whole sweep. Skipping trials saved about ``saved_usd``, at most ``saved_worst_usd``.
    ``added`` are repetitions of tied trials. ``not_started`` are trials of an interrupted sweep that ``resume`` starts.
    ``findings`` describe the skipped trials; pass them to ``Ranking.with_findings``. If records are copied to ``url``,
    ``uncopied`` maps the files that could not be copied yet to the reasons. With ``stand_ins``, this computer
    represented cloud instance types, so nothing was rented, and all costs are those that the types would have.
    """

    folder: Path
    records: list[Record]
    failed: tuple[Missing, ...]
    skipped: tuple[Missing, ...]
    unproved: tuple[Missing, ...]
    spent_usd: float
    worst_usd: float
    added: tuple[Trial, ...] = ()
    saved_usd: float = 0.0
    saved_worst_usd: float = 0.0
    findings: tuple[Finding, ...] = ()
    not_started: tuple[Missing, ...] = ()
    url: str | None = None
    uncopied: Mapping[str, str] = field(default_factory=dict)
    stand_ins: bool = False

    def scaling(self, *, epochs: int, confidence: float = 0.9, model: str | None = None) -> Scaling:
        """Return the speed-up by number of nodes: :func:`vmselect.stats.scaling` of the profiles among the records."""
        from vmselect.comparison.speedup import scaling

        trainings = [record for record in self.records if isinstance(record, Profile)]
        return scaling(trainings, epochs=epochs, confidence=confidence, model=model)

    def __str__(self) -> str:
        shown = shlex.quote(str(self.folder))
        parts = [
            f"{format_count(len(self.records), 'record')} in {self.folder}",
            f"copied to {self.url}" if self.url and not self.uncopied else "",
            f"{len(self.uncopied)} not copied to {self.url}: vmselect sweep resume {shown}" if self.uncopied else "",
            f"{format_count(len(self.failed), 'trial')} failed" if self.failed else "",
            f"{format_count(len(self.skipped), 'trial')} skipped" if self.skipped else "",
            f"{format_count(len(self.not_started), 'trial')} not started: vmselect sweep resume {shown}"
            if self.not_started
            else "",
            f"{format_count(len(self.added), 'repetition')} of tied trials added" if self.added else "",
            f"{format_count(len(self.unproved), 'trial')} may still run: vmselect sweep clean {shown}"
            if self.unproved
            else "",
            self._spent_text,
            f"skipped trials saved about {format_usd(self.saved_usd)}"
            if any(missing.sure for missing in self.skipped)
            else "",
        ]
        return printable_lines("; ".join(filter(None, parts)))

    @property
    def _spent_text(self) -> str:
        spent, worst = format_usd(self.spent_usd), format_usd(self.worst_usd)
        if self.stand_ins:
            return f"nothing was rented (at the prices of the instance types: {spent}, at most {worst})"
        return f"{spent} spent of at most {worst}"


def saving(state: State) -> str:
    """Return a text with the cost that skipping trials saved."""
    estimated = sum(skip.estimated_usd for skip in state.sure.values())
    worst = sum(skip.worst_usd for skip in state.sure.values())
    return f"skipping trials saved about {format_usd(estimated)}, at most {format_usd(worst)}"


def skipped_findings(state: State) -> tuple[Finding, ...]:
    """Return a finding for rankings that lists the trials which the sweep skipped as not worth running."""
    if not (sure := state.sure):
        return ()
    factors = dict(state.trials)
    whys = {", ".join(f"{k} {v}" for k, v in factors.get(trial, {}).items()): skip.why for trial, skip in sure.items()}
    shown = "; ".join(f"{setting}: {why}" for setting, why in list(whys.items())[:5])
    more = f"; and {len(whys) - 5} more" if len(whys) > 5 else ""
    trials = format_count(len(sure), "trial")
    message = f"The sweep skipped {trials} as not worth the cost ({shown}{more}); {saving(state)}."
    remedy = f"To run these trials too: vmselect sweep resume {shlex.quote(str(state.folder))} --run-all"
    return (Finding("not-probed", message, remedy, "info"),)


def make_result(plan: Plan, state: State, worst_usd: float) -> SweepResult:
    """Return the result of a sweep, from the state of its journal."""
    missing: dict[str, list[Missing]] = defaultdict(list)
    trials, sure = trials_of(plan, state), state.sure
    for trial in trials:
        missing[state.status_of(trial.id)].append(Missing(trial, state.reason_of(trial.id), trial.id in sure))
    skips = state.skipped.values()
    files = [state.folder / file for file in sorted(itertools.chain.from_iterable(state.records.values()))]
    return SweepResult(
        folder=state.folder, records=load_records(files) if files else [],
        failed=tuple(missing["failed"]), skipped=tuple(missing["skipped"]),
        unproved=(*missing["starting"], *missing["running"]), spent_usd=state.spent_usd,
        worst_usd=max(worst_usd, state.spent_usd), added=trials[len(plan.trials) :],
        saved_usd=sum(skip.estimated_usd for skip in skips), saved_worst_usd=sum(skip.worst_usd for skip in skips),
        findings=skipped_findings(state), not_started=tuple(missing["queued"]), url=state.url,
        uncopied={file.name: state.uncopied.get(file.name, "not copied yet") for file in files
                  if state.url and file.name not in state.copied},
        stand_ins=plan.stand_ins,
    )  # fmt: skip


def status_rows(state: State) -> list[dict[str, object]]:
    """Return a row per trial with its status, attempts, cost and records."""
    rows = []
    for trial, factors in state.trials:
        attempts = state.attempts.get(trial, [])
        status = state.status_of(trial)
        rows.append(
            {
                "trial": trial, **factors, "status": status, "attempts": len(attempts),
                "seconds": attempts[-1].seconds if attempts else None,
                "spent_usd": sum(attempt.spent_usd for attempt in attempts),
                "records": len(state.records.get(trial, ())),
                "reason": state.reason_of(trial) if status in ("failed", "skipped") else "",
            }
        )  # fmt: skip
    return rows


@dataclass(frozen=True)
class Proposal:
    """Trials to start and their cost, for the user to confirm."""

    plan: Plan
    folder: Path
    to_run: tuple[str, ...]
    trials: tuple[Trial, ...]
    prices: dict[str, float]
    estimated_usd: float
    worst_usd: float
    spent_usd: float
    budget_usd: float | None


@dataclass(frozen=True)
class Cleaned:
    """An attempt that ``clean`` tried to end.

    ``gone`` is True if it is proved or accepted that none of its processes is left; ``detail`` states the reason.
    """

    trial: str
    attempt: int
    gone: bool
    detail: str


@suggest_arguments()
def sweep(
    plan: Plan | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    budget_usd: float | None = None,
    parallel: int = 1,
    yes: bool = False,
    catalog: Catalog | None = None,
    stop_when_sure: bool | None = None,
    epochs: int | None = None,
    history: Iterable[Record] = (),
    enough_regret: float | None = None,
    confirm: Callable[[Proposal], bool] | None = None,
    listener: Listener = lambda state, event: None,
    ask_stop: Callable[[], bool] = lambda: True,
) -> SweepResult:
    """Run the trials of ``plan`` that have no record in ``folder`` yet, and store their records there.

    If ``folder`` is a URL, such as ``s3://team/records``, the records of each trial are copied there when the trial has
    ended. The journal and the trials are then in a folder of this machine (``SweepResult.folder``).

    Trials start after ``confirm`` has returned True for the cost, or at once with ``yes=True``. ``parallel`` trials run
    at the same time. The worst-case cost of the whole sweep stays within ``budget_usd``. At the end, or after an error,
    every started trial and machine is stopped.

    With ``stop_when_sure=True``, trials that improve the choice of a machine most per dollar start first, and tied
    trials are repeated. The sweep stops when no trial is expected to save more than it costs, or when the expected
    regret (the expected extra cost of the chosen machine over the best one) is below ``enough_regret``, a fraction of
    the cost of the chosen machine (default: 2 % with a ``history``, 5 % without). The remaining trials are then
    skipped, each with a reason. Machines are compared by the cost of a training of ``epochs`` epochs, by default of one
    epoch. ``history`` contains records of other trainings, each measured on several types of GPU, which improve
    predictions. A resumed sweep keeps ``stop_when_sure``, ``epochs`` and ``enough_regret`` unless they are given, but
    not the history.

    >>> plan = Plan("python train.py", factors={"batch_size": [64, 256]}, minutes=2)
    >>> result = sweep(plan, "sweep/", yes=True)  # doctest: +SKIP
    """
    plan = plan if isinstance(plan, Plan) else Plan.load(check_path("plan", plan))
    where, url = locate(folder, plan)
    limit = maybe(check_number, "budget_usd", budget_usd, least=0)
    parallel = check_count("parallel", parallel, most=256)
    agreed = check_flag("yes", yes)
    sure, count = maybe(check_flag, "stop_when_sure", stop_when_sure), maybe(check_count, "epochs", epochs)
    regret = maybe(check_number, "enough_regret", enough_regret, least=0)
    profiles = _read_history(history) if history else []
    if has_file(where):
        raise ArgumentError(f"{where} is a file. Pass a folder for the results of the sweep.")
    if url is not None:
        check_target(url, "training")
    with opened(plan, where, limit=limit, catalog=catalog, listener=listener, url=url) as engine:
        engine.ask_stop = ask_stop
        state, budget = engine.state, engine.budget
        sure = state.stop_when_sure if sure is None else sure
        count = state.epochs if count is None else count
        regret = state.enough_regret if regret is None else regret
        state.skipped = state.sure if sure else {}  # skipped for other reasons: queued again
        engine.reconcile(adopt=True)  # repeating what a crash interrupted belongs to the confirmed cost
        proposal = _propose(engine)
        if proposal.to_run and not agreed and not (confirm is not None and confirm(proposal)):
            raise SweepError("The cost was not confirmed, so no trial was started. Confirm the cost, or pass yes=True.")
        engine.write("session", budget_usd=budget.limit_usd, worst_usd=proposal.worst_usd, parallel=parallel,
                     stop_when_sure=sure, epochs=count, enough_regret=regret, pid=os.getpid(),
                     **this_machine())  # fmt: skip
        if sure:
            from vmselect.catalog import Catalog
            from vmselect.sweeps.sequential import Sequential

            engine.confirmed_usd = proposal.worst_usd if proposal.to_run or agreed else -math.inf
            engine.sequential = Sequential(
                catalog or Catalog.default(), budget.prices, where, count, history=profiles, enough_regret=regret
            )
        try:
            engine.run(parallel)
            engine.copy_records()
        except KeyboardInterrupt:
            engine.write("interrupted")
        return make_result(plan, state, proposal.worst_usd)


def _propose(engine: Engine) -> Proposal:
    """Return the trials to start and their cost. Raise an error if they need a budget or exceed it."""
    state, budget, plan = engine.state, engine.budget, engine.plan
    to_run = tuple(trial.id for trial in engine.unfinished)
    if engine.runner.rents and budget.limit_usd is None and to_run:
        raise SweepError("This plan rents machines, so it needs a budget. Set the largest cost with budget_usd=.")
    budget.check(state, to_run)
    worst_usd = budget.worst_usd(state, to_run)
    return Proposal(
        plan=plan, folder=engine.folder, to_run=to_run, trials=engine.trials, prices=dict(budget.prices),
        estimated_usd=sum(plan.estimated_usd(budget.prices[trial]) for trial in to_run),
        # After an interruption, trials that do not fit into the rest of the budget are skipped.
        worst_usd=worst_usd if budget.limit_usd is None else min(worst_usd, budget.limit_usd),
        spent_usd=state.spent_usd, budget_usd=budget.limit_usd,
    )  # fmt: skip


def _read_history(history: Iterable[Record]) -> list[Profile]:
    from vmselect.prediction.machines import read_profiles

    return read_profiles(history)


def locate(folder: str | os.PathLike[str], plan: Plan | None = None) -> tuple[Path, Url | None]:
    """Return the local folder of a sweep, and the URL of its records if ``folder`` is a URL.

    The journal of a sweep needs file locks, so it is always in a local folder. If ``folder`` is a URL, the local folder
    is in the cache folder of this machine, which has one folder for each combination of URL and plan. If ``plan`` is
    None, the only sweep with this URL on this machine is returned; an error is raised if there is none, or several.
    """
    place = check_place("folder", folder)
    if not isinstance(place, Url):
        return place.absolute(), None
    if place.is_record:
        raise ArgumentError(f"{place} is the URL of a file. Pass the URL of a folder for the records of the sweep.")
    base = cache_folder() / "sweeps" / hashlib.sha256(os.fspath(place).rstrip("/").encode()).hexdigest()[:32]
    if plan is not None:
        return base.absolute() / plan.fingerprint, place
    sweep_folders = sorted(file.parent for file in base.absolute().glob(f"*/{NAME}"))
    if not sweep_folders:
        raise SweepError(f"No sweep with records at {place} was started on this machine. Check the URL.")
    if len(sweep_folders) > 1:
        folders = ", ".join(shlex.quote(str(sweep_folder)) for sweep_folder in sweep_folders)
        raise SweepError(
            f"{len(sweep_folders)} sweeps have their records at {place}. Pass the folder of one sweep: {folders}"
        )
    return sweep_folders[0], place


def resume(folder: str | os.PathLike[str], **options: object) -> SweepResult:
    """Continue the sweep in ``folder`` with the plan that is stored there; see :func:`sweep` for ``options``."""
    where, url = locate(folder)
    read_journal(where)
    return sweep(Plan.load(where / PLAN), url or where, **options)  # type: ignore[arg-type]


def read_state(folder: str | os.PathLike[str]) -> State:
    """Read the state of the sweep in ``folder`` from its journal, without contacting any machine.

    Damaged lines of the journal are left out, and listed in ``damaged`` of the state.
    """
    where, _ = locate(folder)
    state = State(where)
    for number, event, problem in read_lines(where):
        if problem:
            state.damaged.append(f"{NAME} line {number} is damaged ({problem}) and was left out")
        else:
            state.apply(event)
    return state


def clean(
    folder: str | os.PathLike[str],
    *,
    accept: Iterable[str] = (),
    listener: Listener = lambda state, event: None,
) -> list[Cleaned]:
    """End all attempts of the sweep in ``folder`` that may still run. Return for each whether its end is proved.

    ``accept`` contains the IDs of trials that you have checked yourself: they are recorded as ended even if this cannot
    be proved, as in ``clean("sweep/", accept=["003"])``. A trial whose end is neither proved nor accepted counts as
    running: it is not repeated, and no other trial starts on its hosts (runner ``ssh``) or CPU cores (``local``).
    """
    where, _ = locate(folder)
    accepted = [check_name("accept", trial) for trial in ([accept] if isinstance(accept, str) else list_items(accept))]
    state = read_state(where)
    waiting = sorted({attempt.trial for attempt in state.open_attempts})
    for trial in accepted:
        if trial not in waiting:
            hint = f"Trials that may still run: {', '.join(waiting)}." if waiting else "All trials have ended."
            raise ArgumentError(f"Trial {show(trial)} has ended or was never started. {hint}")
    if not state.about and not state.attempts:
        return []  # killed before it could start anything
    plan = Plan.load(where / PLAN)
    with opened(plan, where, limit=None, catalog=None, listener=listener, changed=True) as engine:
        return [
            Cleaned(attempt.trial, attempt.number, not attempt.open,
                    "proved gone" if not problem else problem if attempt.open else f"accepted: {problem}")
            for attempt, problem in engine.reconcile(accept=accepted)
        ]  # fmt: skip


@contextmanager
def opened(
    plan: Plan,
    folder: Path,
    *,
    limit: float | None,
    catalog: Catalog | None,
    listener: Listener,
    changed: bool = False,
    url: Url | None = None,
) -> Iterator[Engine]:
    """Context manager that returns an engine, which holds the lock of the journal in ``folder``.

    The engine copies records to ``url``, or to the URL in the journal. Raise an error if the journal belongs to another
    plan, unless ``changed`` is True.
    """
    before = read_state(folder) if has_file(folder / NAME) else State(folder)
    if not changed:
        _check_readable(before, plan)
    fresh = not before.about and not before.attempts
    prices, locations = {}, {}
    if fresh or catalog is not None:
        prices, locations = plan.prices(catalog), plan.locations(catalog)
    if fresh:  # checked first: a bad plan leaves no folder behind
        plan.check_stand_ins(catalog)
        check_scripts(plan.trials, Path.cwd())
        make_runner(plan, "new", folder, locations).check(plan.trials)
        Budget(plan, prices, limit).check(State(folder), [trial.id for trial in plan.trials])
    journal = Journal(folder)
    with writing(folder, error=SweepError):  # the path may be too long
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    with journal.opened():
        state = read_state(folder)
        if not state.about and state.attempts:  # its line is damaged, and its trials can still be stopped
            state.about = {"id": state.id, "plan": plan.fingerprint, "work": str(Path.cwd()), "prices": {}}
        if not state.about:
            state.apply(_begin(journal, plan, limit=limit, prices=prices, locations=locations, url=url))
        elif state.about["plan"] != plan.fingerprint and not changed:
            raise SweepError(
                f"{folder} contains a sweep of another plan ({show(state.about['plan'])}). Choose another folder, or "
                f"resume that sweep: vmselect sweep resume {shlex.quote(str(folder))}"
            )
        if catalog is None:  # a catalog's prices hold in its locations
            prices, locations = dict(state.about["prices"]), state.about.get("places", {})
        if changed:  # trials are only ended, so their prices do not matter
            prices = dict.fromkeys((trial.id for trial in plan.trials), 0.0) | prices
        prices |= {name: prices.get(event["like"], 0.0) for name, event in state.added.items()}
        runner = make_runner(plan, state.id, folder, locations)
        work = Path(state.about["work"])
        if not fresh and not changed:
            check_scripts(plan.trials, work)
            runner.check(plan.trials)
        engine = Engine(
            plan=plan, folder=folder, work=work, journal=journal, state=state, runner=runner, listener=listener,
            budget=Budget(plan, prices, state.budget_usd if limit is None else limit),
            url=url or _read_url(state.url),
        )  # fmt: skip
        try:
            yield engine
        except BaseException:
            if fresh and not state.confirmed:  # nothing has started: leave no folder behind
                _discard(folder, missing)
            raise
        finally:
            runner.close()
        if engine.listener_error is not None and not isinstance(engine.listener_error, KeyboardInterrupt):
            raise engine.listener_error


def _begin(
    journal: Journal,
    plan: Plan,
    *,
    limit: float | None,
    prices: Mapping[str, float],
    locations: Mapping[str, str],
    url: Url | None,
) -> Event:
    """Store the plan of a new sweep, and write the first line of its journal."""
    plan.save(journal.path.parent / PLAN)
    return journal.write(
        "sweep", format=FORMAT, id=secrets.token_hex(4), plan=plan.fingerprint, runner=plan.runner,
        work=str(Path.cwd()), budget_usd=limit, minutes=plan.minutes, prices=dict(prices), places=dict(locations),
        trials=[[trial.id, dict(trial.factors)] for trial in plan.trials], writer=f"vmselect {__version__}",
        **({"url": str(url)} if url else {}),
    )  # fmt: skip


def _read_url(text: str | None) -> Url | None:
    """Return the URL ``text`` of a journal; None if the journal has none.

    Journals contain URLs without passwords. If a password is needed, the user passes the complete URL to ``resume``.
    """
    place = check_place("url", text) if text else None
    return place if isinstance(place, Url) else None


def _check_readable(state: State, plan: Plan) -> None:
    """Raise an error if the sweep cannot be continued, because its first line is damaged or of a newer version."""
    if state.about.get("format", FORMAT) > FORMAT:
        raise SweepError(
            f"{state.folder / NAME} was written by a newer version of vmselect. Upgrade: pip install --upgrade vmselect"
        )
    started = bool(state.attempts) or len(state.damaged) > 1  # one line may be what a killed process began to write
    planned = {trial.id for trial in plan.trials} if state.about.get("plan") == plan.fingerprint else set()
    if not planned <= set(state.about.get("prices", ())) if state.about else started:
        raise SweepError(
            f"The first line of {state.folder / NAME} is damaged, so the sweep cannot continue. Stop its trials with "
            f"`vmselect sweep clean {shlex.quote(str(state.folder))}`, and start the sweep again in another folder."
        )


def _discard(folder: Path, made: list[Path]) -> None:
    """Remove plan and journal of a sweep that started no trial, and the folders ``made`` for it, innermost first."""
    for file in (folder / PLAN, folder / NAME):
        file.unlink(missing_ok=True)
    with suppress(OSError):  # somebody put a file there
        for empty in made:
            empty.rmdir()
