"""``vmselect rank``: from a folder of profiles to what to rent."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect.cli.options import ranks
from vmselect.cli.output import Format, FormatOption, emit, say, tell
from vmselect.cli.wording import in_options

if TYPE_CHECKING:
    from vmselect.ranking import Ranking, Row

TABLE = ("rank", "instance_type", "provider", "region", "market", "batch", "epochs", "time", "cost", "score", "")
SPARE = ("provider", "region", "market", "batch", "epochs")
COLUMNS = (
    "rank", "instance_type", "provider", "service", "region", "market", "batch_size", "epochs",
    "seconds", "seconds_low", "seconds_high", "usd_per_hour", "price_date", "cost_usd", "cost_low", "cost_high",
    "score", "tied_with_best", "pareto", "gpu_model", "gpu_count", "vcpus", "memory_gib", "method",
)  # fmt: skip


@ranks
def rank(
    ranking: Ranking,
    against: Annotated[str | None, typer.Option(help="Compare price and speed with this instance type.")] = None,
    top: Annotated[int, typer.Option(help="Rows to show in the table.", min=1)] = 20,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Rank every machine that was measured: what to rent, how long it takes, what it costs, how sure that is.

    The table shows the number of epochs that decides; JSON holds everything, CSV every row. Remarks and doubts go to
    standard error. Exit code 1 when nothing is feasible.

    Examples:

      vmselect rank profiles/ --epochs 50

      vmselect rank profiles/ --epochs 5,10,20 --objective time --deadline-hours 4

      vmselect rank profiles/ -e 50 --market all --interruptions-per-hour 0.05 --checkpoint-minutes 30

      vmselect rank profiles/ -e 50 --against g4dn.xlarge

      vmselect rank profiles/ -e 50 --format json > ranking.json
    """
    compared = ranking.against(against) if against and ranking else None
    print_ranking(ranking, top=top, format=format)
    if compared is not None:
        for who, ratio in compared.head(top).iterrows():
            speed = f"{ratio.speed_up:.3g} times its speed, {ratio.cost_ratio:.3g} times its cost"
            say([f"{_name(who)}: {ratio.price_ratio:.3g} times the price of {against}, {speed}."])


def print_ranking(
    ranking: Ranking,
    *,
    top: int,
    format: Format,  # noqa: A002
    more: Callable[[Row], dict[str, Any]] = lambda _: {},
) -> None:
    """Rows to standard output, remarks to standard error; ``more`` adds columns after the epochs."""
    names = tuple(more(ranking.best)) if ranking else ()
    if format is Format.json:
        sys.stdout.write(json.dumps(ranking.payload(), indent=1, allow_nan=False) + "\n")
    elif format is Format.csv:
        emit([vars(row) | more(row) for row in ranking], (*COLUMNS, *names), format=format)
    else:
        tell(in_options(ranking.verdict))
    if format is Format.table and ranking:
        column = ranking.deciding_column
        rows = [ranking.row(int(i), column) for i in ranking.assessment.order[column][:top]]
        tie = sum(row.tied_with_best for row in rows) > 1
        at = TABLE.index("epochs") + 1
        shown = [_shown(row, tie=tie) | more(row) for row in rows]
        emit(shown, (*TABLE[:at], *names, *TABLE[at:]), format=format, spare=SPARE)
    say(_remarks(ranking, top) if format is Format.table else ranking.findings)
    if not ranking:
        raise typer.Exit(1)


def _name(who: object) -> str:
    return ", ".join(map(str, who)) if isinstance(who, tuple) else str(who)


def _shown(row: Row, *, tie: bool) -> dict[str, Any]:
    from vmselect.ranking.wording import marks

    return vars(row) | {
        "batch": row.batch_size,
        "epochs": round(row.epochs, 1),
        "time": row.time_text,
        "cost": row.cost_text,
        "score": f"{row.score:.2f}",
        "": marks(row, tie=tie),
    }


def _remarks(ranking: Ranking, top: int) -> list[str]:
    """What stands below the table: crossovers, what was left out, doubts."""
    lines: list[str] = []
    for name in ("cost", "time") if len(ranking.settings.epochs) > 1 and ranking else ():
        changes = ranking.crossovers(name)
        lines += [f"By {name}: {change}." for change in changes[:5]]
    lines += [f"Left out: {excluded}." for excluded in ranking.deciding_excluded[:top]]
    if len(ranking.deciding_excluded) > top:
        lines.append(f"Left out: {len(ranking.deciding_excluded) - top:,} more; --format json lists all.")
    lines += [f"{finding.severity.capitalize()}: {finding}" for finding in ranking.findings]
    return lines
