"""``vmselect rank``: from a folder of profiles to what to rent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect.cli import options
from vmselect.cli.output import Format, FormatOption, emit, print_err, print_out

if TYPE_CHECKING:
    from vmselect.ranking import Ranking, Row

TABLE = ("rank", "instance_type", "provider", "region", "market", "batch", "epochs", "time", "cost", "score", "")
SPARE = ("provider", "region", "market", "batch", "epochs")
COLUMNS = (
    "rank", "instance_type", "provider", "service", "region", "market", "batch_size", "epochs",
    "seconds", "seconds_low", "seconds_high", "usd_per_hour", "price_date", "cost_usd", "cost_low", "cost_high",
    "score", "tied_with_best", "pareto", "gpu_model", "gpu_count", "vcpus", "memory_gib", "method",
)  # fmt: skip


def rank(
    profiles: options.ProfilesArgument,
    epochs: options.EpochsOption = None,
    decide_at: options.DecideAtOption = None,
    objective: options.ObjectiveOption = None,
    batch_size: options.BatchSizeOption = None,
    model: options.ModelOption = None,
    fit: options.FitOption = None,
    deadline_hours: options.DeadlineOption = None,
    budget_usd: options.BudgetOption = None,
    region: options.RegionOption = None,
    market: options.MarketOption = None,
    catalog: options.CatalogOption = None,
    own_prices: options.OwnPricesOption = None,
    date: options.DateOption = None,
    billing: options.BillingOption = None,
    include_retired: options.RetiredOption = False,
    method: options.MethodOption = None,
    confidence: options.ConfidenceOption = None,
    examples: options.ExamplesOption = None,
    validation_examples: options.ValidationExamplesOption = None,
    steps_per_epoch: options.StepsPerEpochOption = None,
    boot_seconds: options.BootOption = None,
    interruptions_per_hour: options.InterruptionsOption = None,
    checkpoint_minutes: options.CheckpointOption = None,
    restart_minutes: options.RestartOption = None,
    against: Annotated[str | None, typer.Option(help="Compare price and speed with this instance type.")] = None,
    top: Annotated[int, typer.Option(help="Rows to show in the table.", min=1)] = 20,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Rank every machine that was measured: what to rent, how long it takes, what it costs, with intervals.

    The table shows the number of epochs that decides. JSON holds everything, CSV every row. Findings go to standard
    error. Exit code 1 when nothing is feasible.

    Examples:

      vmselect rank profiles/ --epochs 50

      vmselect rank profiles/ --epochs 5,10,20 --objective time --deadline-hours 4

      vmselect rank profiles/ -e 50 --market all --interruptions-per-hour 0.05 --checkpoint-minutes 30

      vmselect rank profiles/ -e 50 --against g4dn.xlarge

      vmselect rank profiles/ -e 50 --format json > ranking.json
    """
    ranking = options.make_ranking(locals())
    compared = ranking.against(against) if against and ranking else None
    print_ranking(ranking, top=top, format=format)
    if compared is not None:
        for who, ratio in compared.head(top).iterrows():
            speed = f"{ratio.speed_up:.3g} times its speed, {ratio.cost_ratio:.3g} times its cost"
            print_err([f"{_name(who)}: {ratio.price_ratio:.3g} times the price of {against}, {speed}."])


def print_ranking(
    ranking: Ranking,
    *,
    top: int,
    format: Format,  # noqa: A002
    more: Callable[[Row], dict[str, Any]] = lambda _: {},
) -> None:
    """Rows to standard output, findings to standard error; ``more`` adds columns after the epochs."""
    names = tuple(more(ranking.best)) if ranking else ()
    if format is Format.json:
        print_out(json.dumps(ranking.payload(), indent=1, allow_nan=False), raw=True)
    elif format is Format.csv:
        emit([vars(row) | more(row) for row in ranking], (*COLUMNS, *names), format=format)
    else:
        print_out(ranking.verdict)
    if format is Format.table and ranking:
        rows = ranking.deciding_rows[:top]
        tie = sum(row.tied_with_best for row in rows) > 1
        at = TABLE.index("epochs") + 1
        shown = [_shown(row, tie=tie) | more(row) for row in rows]
        emit(shown, (*TABLE[:at], *names, *TABLE[at:]), format=format, spare=SPARE)
    print_err(_remarks(ranking, top) if format is Format.table else ranking.findings)
    if not ranking:
        raise typer.Exit(1)


def _name(who: object) -> str:
    return ", ".join(map(str, who)) if isinstance(who, tuple) else str(who)


def _shown(row: Row, *, tie: bool) -> dict[str, Any]:
    from vmselect.ranking.text import marks

    return vars(row) | {
        "batch": row.batch_size,
        "epochs": round(row.epochs, 1),
        "time": row.time_text,
        "cost": row.cost_text,
        "score": f"{row.score:.2f}",
        "": marks(row, tie=tie),
    }


def _remarks(ranking: Ranking, top: int) -> list[str]:
    """The lines below the table: crossovers, excluded candidates, findings."""
    lines: list[str] = []
    for name in ("cost", "time") if len(ranking.settings.epochs) > 1 and ranking else ():
        changes = ranking.crossovers(name)
        lines += [f"By {name}: {change}." for change in changes[:5]]
    lines += [f"Excluded: {excluded}." for excluded in ranking.deciding_excluded[:top]]
    if len(ranking.deciding_excluded) > top:
        lines.append(f"Excluded: {len(ranking.deciding_excluded) - top:,} more; --format json lists all.")
    lines += [f"{finding.severity.capitalize()}: {finding}" for finding in ranking.findings]
    return lines
