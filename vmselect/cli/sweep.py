"""The commands ``vmselect sweep plan``, ``run``, ``resume``, ``status`` and ``clean``."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from vmselect._models import OpenOutput, Output, derive_model
from vmselect.cli.options import CatalogOption, DateOption, OwnPricesOption, open_catalog
from vmselect.cli.output import Format, FormatOption, emit, flag, frame_rows, is_quiet, print_err, print_out
from vmselect.errors import ArgumentError, SweepError, VmselectError
from vmselect.ranking.options import ENOUGH_REGRET, ENOUGH_REGRET_WITHOUT_HISTORY
from vmselect.sweeps.journal import STATUSES
from vmselect.sweeps.run import Cleaned
from vmselect.units import format_count, format_seconds, format_usd

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.catalog import Catalog
    from vmselect.records import Profile
    from vmselect.sweeps import Plan, Proposal, SweepResult
    from vmselect.sweeps.journal import Event, State

app = typer.Typer(help="Run probes on many machines, as a plan lists them, within a budget.", no_args_is_help=True)

EXAMPLE_EPOCHS = 50
"""Number of epochs in the commands that are suggested after a sweep."""
CRON_FOLDERS = ("/usr/bin", "/bin")
"""Folders that cron searches for programs."""

PlanArgument = Annotated[Path, typer.Argument(help="YAML file with the plan of the sweep.", show_default=False)]
FolderArgument = Annotated[
    str,
    typer.Argument(
        help="Folder for the records of the sweep, or a URL such as s3://team/records.",
        show_default=False,
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(help="Largest cost of the whole sweep in USD. A new sweep that may cost more is not started."),
]
ParallelOption = Annotated[int, typer.Option(help="Number of trials to run at the same time.")]
SureOption = Annotated[
    bool | None,
    flag(
        "--stop-when-sure/--run-all",
        help="--stop-when-sure runs the most useful trial next, skips trials that are not worth their cost, and "
        "repeats trials of the two best machines if it is uncertain which is better. --run-all runs all trials.",
        show_default=False,
    ),
]
EpochsOption = Annotated[
    int | None,
    typer.Option(
        help="Epochs of the complete training, by whose cost --stop-when-sure compares machines.",
        show_default="a long training",
    ),
]
HistoryOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Folder of records of other trainings, for better predictions by --stop-when-sure; may be repeated.",
        show_default=False,
    ),
]
RegretOption = Annotated[
    float | None,
    typer.Option(
        help="--stop-when-sure ends the sweep when the chosen machine is expected to cost at most this fraction more "
        "than the best one.",
        show_default=f"{ENOUGH_REGRET} with a history, {ENOUGH_REGRET_WITHOUT_HISTORY} without",
    ),
]
YesOption = Annotated[bool, flag("--yes", "-y", help="Do not ask for confirmation.")]


@app.command("plan")
def show_plan(
    plan: PlanArgument,
    budget_usd: BudgetOption = None,
    catalog: CatalogOption = None,
    own_prices: OwnPricesOption = None,
    date: DateOption = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Show the trials of a plan in order, with their machines and worst-case costs, without starting any trial."""
    from vmselect.sweeps import Plan
    from vmselect.sweeps.plan import check_scripts

    made = Plan.load(plan)
    check_scripts(made.trials, Path.cwd())
    prices = open_catalog(catalog, date=date, own_prices=own_prices)
    made.check_stand_ins(prices)
    frame = made.to_frame(prices)
    _emit_plan(frame, format)
    worst = float(frame["worst_usd"].sum())
    print_err([_total(len(frame), float(frame["estimated_usd"].sum()), worst, made)])
    if budget_usd is not None and worst > budget_usd:
        print_err([f"The worst case exceeds the budget of {budget_usd:g} USD, so the sweep would start no trial."])
        raise typer.Exit(1)


class PlannedTrial(OpenOutput):
    """A trial of a plan, with a field per factor."""

    trial: str
    repetition: int
    block: str
    instance_type: str | None
    nodes: int
    usd_per_hour: float
    estimated_usd: float
    worst_usd: float
    command: str


class TrialStatus(OpenOutput):
    """The state of a trial, with a field per factor."""

    trial: str
    status: str
    attempts: int
    seconds: float | None
    spent_usd: float
    records: int
    reason: str


class SweepEvent(OpenOutput):
    """An event of a running sweep; its further fields depend on the event."""

    event: str
    at: str


class SweepSummary(Output):
    """Summary of a sweep, which is printed as its last line."""

    event: Literal["summary"]
    folder: str
    records: int
    failed: list[str]
    skipped: list[str]
    unproved: list[str]
    spent_usd: float
    worst_usd: float
    sure: list[str]
    added: list[str]
    saved_usd: float
    saved_worst_usd: float
    not_started: list[str]
    url: str | None
    uncopied: dict[str, str]


CleanedOutput = derive_model(Cleaned)


@app.command()
def run(
    plan: PlanArgument,
    folder: FolderArgument,
    budget_usd: BudgetOption = None,
    parallel: ParallelOption = 1,
    stop_when_sure: SureOption = None,
    epochs: EpochsOption = None,
    history: HistoryOption = None,
    enough_regret: RegretOption = None,
    yes: YesOption = False,
    cron: Annotated[
        Literal["hourly", "daily", "weekly", "monthly"] | None,
        typer.Option(help="Start nothing, but print the line for crontab that repeats this sweep so often."),
    ] = None,
    catalog: CatalogOption = None,
    own_prices: OwnPricesOption = None,
    date: DateOption = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Run a plan: show its cost, ask for confirmation, run its trials and fetch their records to FOLDER.

    If FOLDER is a URL, the records of each trial are copied there when the trial has ended. The journal is then in a
    folder of this machine, whose path is printed. The commands resume, status and clean accept the URL or that folder.

    All machines and processes that the sweep starts are stopped at the end. Exit code 1 if a trial left no usable
    record, did not start or may still run, or if a record could not be copied to the URL; 2 if the sweep was not
    confirmed or could exceed the budget.

    Examples:

      vmselect sweep run plan.yaml sweep/ --budget-usd 5

      vmselect sweep run plan.yaml sweep/ --budget-usd 5 --yes --json

      vmselect sweep run plan.yaml sweep/ --budget-usd 5 --stop-when-sure --epochs 50 --history team/

      vmselect sweep run plan.yaml s3://team/records --budget-usd 5

      vmselect sweep run plan.yaml history/ --budget-usd 5 --cron weekly
    """
    from vmselect.sweeps import Plan
    from vmselect.sweeps.runners import make_runner

    prices = open_catalog(catalog, date=date, own_prices=own_prices) if catalog or date or own_prices else None
    if cron is not None:
        # A plan that cannot be read would fail every night, and so would one that rents without a budget.
        read = Plan.load(plan)
        runner = make_runner(read, "new", Path(folder), {})
        if runner.rents and budget_usd is None:
            raise ArgumentError(
                "This plan rents machines, so it needs a budget. Add --budget-usd with the largest cost."
            )
        sure = {True: ["--stop-when-sure"], False: ["--run-all"], None: []}[stop_when_sure]
        options = sure + _list_options(
            budget_usd=budget_usd, parallel=parallel, epochs=epochs, history=history, enough_regret=enough_regret,
            catalog=catalog, own_prices=own_prices, date=date,
        )  # fmt: skip
        programs = runner.programs(read.trials)
        print_out(make_cron_line(cron, plan, folder, options, now=time.localtime(), programs=programs))
        return
    _run(
        Plan.load(plan), folder, format, budget_usd=budget_usd, parallel=parallel, yes=yes, catalog=prices,
        stop_when_sure=stop_when_sure, epochs=epochs, history=history, enough_regret=enough_regret,
        price_options=_list_options(catalog=catalog, date=date, own_prices=own_prices),
    )  # fmt: skip


@app.command()
def resume(
    folder: FolderArgument,
    budget_usd: BudgetOption = None,
    parallel: ParallelOption = 1,
    stop_when_sure: SureOption = None,
    epochs: EpochsOption = None,
    history: HistoryOption = None,
    enough_regret: RegretOption = None,
    yes: YesOption = False,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Resume an interrupted sweep: fetch records, stop trials that still run, and run all trials without a record."""
    from vmselect.sweeps import Plan, read_state
    from vmselect.sweeps.run import PLAN, locate

    print_err(read_state(folder).damaged)
    _run(
        Plan.load(locate(folder)[0] / PLAN), folder, format, budget_usd=budget_usd, parallel=parallel, yes=yes,
        stop_when_sure=stop_when_sure, epochs=epochs, history=history, enough_regret=enough_regret,
    )  # fmt: skip


@app.command()
def status(
    folder: FolderArgument,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Show the recorded state of each trial of a sweep, without starting, stopping or contacting anything."""
    from vmselect.sweeps import read_state
    from vmselect.sweeps.run import saving, status_rows

    state = read_state(folder)
    rows = status_rows(state)
    names = dict.fromkeys(name for row in rows for name in row)
    emit(rows, TrialStatus, columns=tuple(names), format=format)
    print_err(state.damaged)
    counts = ", ".join(f"{count} {status}" for status, count in state.count_statuses().items() if count)
    spent = f"{format_usd(state.spent_usd)} spent (including the worst case of trials that may still run)"
    print_err([f"{counts}; {spent}{f'; {saving(state)}' if state.sure else ''}."])
    command = f"vmselect sweep clean {shlex.quote(str(state.folder))}"
    for attempt in state.open_attempts:
        print_err([f"Trial {attempt.trial} may still run. To stop it: {command}"])
    if state.url and (waiting := sum(map(len, state.records.values())) - len(state.copied)):
        print_err([f"{waiting} records have not been copied to {state.url} yet."])


@app.command()
def clean(
    folder: FolderArgument,
    accept: Annotated[
        list[str] | None,
        typer.Option(help="Trial to accept as ended without proof, if you have checked its machine; may be repeated."),
    ] = None,
    yes: YesOption = False,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Stop all trials that may still run, and show for which of them the end was proved.

    The end of a trial cannot be proved if its machine does not answer, or if both of its supervisors were killed on a
    machine without control groups. Exit code 1 if a trial may still run.

    Examples:

      vmselect sweep clean sweep/

      vmselect sweep clean sweep/ --accept 003
    """
    from vmselect.sweeps import clean as clean_up
    from vmselect.sweeps import read_state

    state = read_state(folder)
    print_err(state.damaged)
    running = format_count(len(state.open_attempts), "trial")
    if not yes and state.open_attempts and not _ask(f"Stop {running} that may still run?"):
        raise typer.Exit(2)
    done = clean_up(folder, accept=accept or ())
    emit([vars(attempt) for attempt in done], CleanedOutput, format=format)
    proved = sum(attempt.gone for attempt in done)
    ended = (
        f"{format_count(proved, 'trial')} {'has' if proved == 1 else 'have'} ended, {len(done) - proved} may still run."
    )
    print_err([ended if done else "No trial was running."])
    if proved < len(done):
        left = sorted({attempt.trial for attempt in done if not attempt.gone})
        accepted = (f"--accept={trial}" for trial in left)
        command = shlex.join(["vmselect", "sweep", "clean", str(state.folder), *accepted])
        print_err([f"If you have checked that no process or machine of these trials is left, run: {command}"])
        raise typer.Exit(1)


def _run(
    plan: Plan,
    folder: str,
    format: Format,  # noqa: A002
    *,
    history: list[str] | None,
    price_options: Sequence[str] = (),
    **options: Any,
) -> None:
    from vmselect.records import load_profiles
    from vmselect.sweeps import sweep
    from vmselect.sweeps.run import locate

    where, url = locate(folder, plan)
    if url is not None:
        print_err([f"Records will be copied to {url}. The journal and other files of the sweep are in {where}"])
    if options["yes"]:  # otherwise the question states it
        print_err([f"The trials run {plan.location}."])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop the trials as on Ctrl-C
    with contextlib.closing(View(plan, as_json=format is Format.json)) as view:
        result = sweep(
            plan, folder, confirm=lambda proposal: _confirm(proposal, format), listener=view, ask_stop=view.ask_stop,
            history=load_profiles(history) if history else (), **options,
        )  # fmt: skip
    _finish(result, format, options.get("catalog"), price_options)


def make_cron_line(
    often: str,
    plan: object,
    folder: str,
    options: Sequence[str],
    *,
    now: time.struct_time,
    programs: Iterable[str] = (),
) -> str:
    """Return a line for crontab that runs ``plan`` from the current folder, each time into a new folder in ``folder``.

    cron searches only :data:`CRON_FOLDERS`, so that the folders of vmselect and of ``programs`` are added, except those
    of programs whose path is given: nobody searches for them, and their folder may contain other programs.
    The sweep begins at the minute, hour, weekday and day of ``now``. Names with a line break or a percent sign, which
    crontab would read as a line break, are errors.
    """
    hour, day, weekday = f"{now.tm_hour}", f"{min(now.tm_mday, 28)}", f"{(now.tm_wday + 1) % 7}"
    when = {
        "hourly": "* * * *",
        "daily": f"{hour} * * *",
        "weekly": f"{hour} * * {weekday}",
        "monthly": f"{hour} {day} * *",
    }[often]
    # The folder of a virtual environment that is not activated is searched by neither the shell nor cron.
    own = shutil.which("vmselect") or shutil.which("vmselect", path=str(Path(sys.executable).parent))
    program = own or sys.executable
    searched = (name for name in programs if os.sep not in name)
    places = filter(None, (program, *map(shutil.which, searched)))
    folders = dict.fromkeys(str(Path(place).absolute().parent) for place in places)
    added = [shlex.quote(name) for name in folders if name not in CRON_FOLDERS]
    search = f'PATH={":".join(added)}:"$PATH" ' if added else ""
    call = shlex.quote(program) if own else f"{shlex.quote(program)} -m vmselect"
    command = f"cd {shlex.quote(str(Path.cwd()))} && {search}{call} sweep run {shlex.quote(str(plan))}"
    texts = " ".join([command, folder, *options])
    if not texts.isprintable() or "%" in texts:
        raise ArgumentError(f"{texts!r} has a line break or a percent sign, which crontab cannot hold. Rename it.")
    target = f'{shlex.quote(folder.rstrip("/"))}/"$(date +\\%Y-\\%m-\\%dT\\%H\\%M)"'
    return " ".join([str(now.tm_min), when, command, target, *options, "--yes", "--quiet"])


def _list_options(**options: object) -> list[str]:
    """Return the options of the command line, as text, whose values are not None; a list is an option per value."""
    return [
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
        for name, values in options.items()
        for value in (values if isinstance(values, list) else [values])
        if value is not None
    ]


def _finish(
    result: SweepResult,
    format: Format,  # noqa: A002
    catalog: Catalog | None,
    price_options: Sequence[str],
) -> None:
    if format is Format.json:
        summary = SweepSummary(
            event="summary",
            folder=str(result.folder),
            records=len(result.records),
            failed=[trial.id for trial in result.failed],
            skipped=[trial.id for trial in result.skipped],
            unproved=[trial.id for trial in result.unproved],
            spent_usd=result.spent_usd,
            worst_usd=result.worst_usd,
            sure=[trial.id for trial in result.skipped if trial.sure],
            added=[trial.id for trial in result.added],
            saved_usd=result.saved_usd,
            saved_worst_usd=result.saved_worst_usd,
            not_started=[trial.id for trial in result.not_started],
            url=result.url,
            uncopied=dict(result.uncopied),
        )
        print_out(summary.to_json(), raw=True)
    else:
        print_out(result)
    print_err([*result.failed, *result.skipped, *result.unproved])
    print_err(f"{file} could not be copied: {why}" for file, why in result.uncopied.items())
    if format is not Format.json:
        print_err(_next_commands(result, catalog, price_options))
    incomplete = result.failed or result.unproved or result.not_started or result.uncopied
    if incomplete or not all(trial.sure for trial in result.skipped):
        raise typer.Exit(1)


def _next_commands(result: SweepResult, catalog: Catalog | None, price_options: Sequence[str]) -> list[str]:
    """Return lines of text with commands that the user can run on the records of a sweep.

    The first command is one that gives a result for these records: rank, or estimate if no machine can be ranked, or
    check if no time can be estimated. ``price_options`` are the options by which the user selected ``catalog``.
    """
    from vmselect.records import Profile

    trainings = [record for record in result.records if isinstance(record, Profile)]
    if not trainings:
        return []
    folder = shlex.quote(str(result.folder))
    command = _choose_command(trainings, folder, catalog, price_options)
    lines = [f"Next: vmselect {command}"]
    if len({record.factors.get("nodes", 1) for record in trainings}) > 1:
        lines.append(
            f"To compare several nodes with one: vmselect compare {folder} --scaling --epochs {EXAMPLE_EPOCHS}"
        )
    return lines


def _choose_command(
    trainings: Sequence[Profile],
    folder: str,
    catalog: Catalog | None,
    price_options: Sequence[str],
) -> str:
    """Return the words after "vmselect" of the first command of :func:`_next_commands`."""
    from vmselect.estimation import fit_runtime
    from vmselect.ranking import rank

    several = len({record.batch_size for record in trainings}) > 1
    options = [f"--epochs {EXAMPLE_EPOCHS}", *price_options, *(["--batch-size all"] if several else [])]
    with contextlib.suppress(VmselectError):
        if rank(trainings, epochs=EXAMPLE_EPOCHS, catalog=catalog, batch_size="all" if several else None):
            return " ".join(["rank", folder, *options])
    for record in trainings:
        with contextlib.suppress(VmselectError):
            fit_runtime(record)
            return f"estimate {folder} --epochs {EXAMPLE_EPOCHS}"
    return f"check {folder}"


def _confirm(proposal: Proposal, format: Format) -> bool:  # noqa: A002
    frame = proposal.plan.tabulate(proposal.trials, proposal.prices)
    if format is not Format.json:
        _emit_plan(frame[frame["trial"].isin(proposal.to_run)], format)
    print_err([_total(len(proposal.to_run), proposal.estimated_usd, proposal.worst_usd, proposal.plan)])
    if not _ask("Start?"):
        raise SweepError("The cost was not confirmed, so no trial was started. Confirm the cost, or add --yes.")
    return True


def _emit_plan(frame: pd.DataFrame, format: Format) -> None:  # noqa: A002
    spare = ("repetition", "block", "nodes", "instance_type")
    emit(frame_rows(frame), PlannedTrial, columns=tuple(map(str, frame.columns)), format=format, spare=spare)


def _total(trials: int, estimated: float, worst: float, plan: Plan) -> str:
    ending = f" and {plan.ending_seconds / 60:g} minutes to stop the machine" if plan.ending_seconds else ""
    return (
        f"{trials} trials {plan.location}, of at most {plan.minutes:g} minutes{ending}: about {format_usd(estimated)}, "
        f"{format_usd(worst)} in the worst case."
    )


def _ask(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ArgumentError("Without a terminal, vmselect cannot ask for confirmation. Add --yes.")
    return typer.confirm(question, default=False, err=True)


EVENTS = {
    "start": "starting",
    "started": "running",
    "skip": "skipped",
    "add": "added",
    "unproved": "may still run",
    "uncopied": "has a record that is not copied",
}
PRIVATE_FIELDS = ("handle", "token", "trials", "prices")
"""Fields of an event that are left out when events are printed as JSON."""


class View:
    """Prints the events of a sweep: as a table on a terminal, otherwise as lines of text, or as JSON lines."""

    def __init__(self, plan: Plan, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._factors = {t.id: " ".join(f"{k}={v}" for k, v in t.factors.items()) for t in plan.trials}
        self._state: State | None = None
        self._began = time.monotonic()
        self._live: Live | None = None

    def __call__(self, state: State, event: Event) -> None:
        """Print ``event``, after which the sweep is in ``state``."""
        self._state = state
        if event["event"] == "add":
            self._factors[event["trial"]] = f"{self._factors.get(event['like'], '')} (added)"
        if self._as_json:
            public = {name: value for name, value in event.items() if name not in PRIVATE_FIELDS}
            print_out(SweepEvent(**public).to_json(), raw=True)
        elif sys.stderr.isatty():
            if self._live is None and event["event"] == "start" and not is_quiet():
                # Once a second, so that showing the table uses no noticeable CPU time.
                self._live = Live(get_renderable=self._draw, console=Console(stderr=True), refresh_per_second=1.0)
                self._live.start()
        elif "trial" in event and (line := self._line(state, event)):
            print_err([line])

    def ask_stop(self) -> bool:
        """Ask whether to stop the running trials, after Ctrl-C. Return True if there is no terminal to ask."""
        running = len(self._state.open_attempts) if self._state else 0
        self.close()
        if not sys.stdin.isatty() or not running:
            return True
        try:
            trials = format_count(running, "running trial")
            return typer.confirm(f"Stop {trials}? Records are kept.", default=True, err=True)
        except (typer.Abort, KeyboardInterrupt):
            return True

    def close(self) -> None:
        """Stop showing the table of the sweep on the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _line(self, state: State, event: Event) -> str:
        kind, trial = event["event"], event["trial"]
        if kind == "record":
            text = f"done, {event['file']}"
        elif kind == "empty":
            text = f"failed, {state.reason_of(trial)}"
        elif kind in EVENTS:
            text = EVENTS[kind] + (f": {event['why']}" if event.get("why") else "")
        else:
            return ""
        return f"trial {trial} {self._factors.get(trial, '')} {text}"

    def _draw(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for column in (*STATUSES, "spent", "worst case", "elapsed"):
            table.add_column(column, justify="right")
        if (state := self._state) is None:
            return table
        spent = sum(a.spent_usd for a in state.all_attempts if not a.open)
        table.add_row(
            *map(str, state.count_statuses().values()), format_usd(spent), format_usd(state.spent_usd),
            format_seconds(time.monotonic() - self._began),
        )  # fmt: skip
        for attempt in state.open_attempts[:10]:
            table.add_row(f"{attempt.trial} {self._factors.get(attempt.trial, '')}")
        return table
