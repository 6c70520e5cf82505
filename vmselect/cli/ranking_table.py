"""A ranking in the terminal: headline, table with interval bars, next step, and the number of findings."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len

from vmselect.cli.output import (
    GAP,
    Format,
    can_print,
    flag,
    frame_rows,
    print_csv,
    print_err,
    print_headline,
    print_json,
    print_table,
)
from vmselect.findings import RecordsNotUsed, name_code
from vmselect.units import format_brief_seconds, format_brief_usd, format_chance, format_count, format_usd, printable

if TYPE_CHECKING:
    from vmselect.ranking import Ranking, Row
    from vmselect.ranking.rows import Excluded
    from vmselect.ranking.views import Line

VerboseOption = Annotated[
    bool, flag("--verbose", "-v", help="Also print findings, and excluded candidates with their reasons.")
]

MAX_EXCLUDED = 3
"""Number of excluded candidates that are printed with their reasons. More are counted, unless --verbose is given."""
MAX_NAMED = 8
"""Number of further names on the line of candidates with the same kind of reason; --json has all of them."""
BAR_WIDTH = 10
WIDTH_WITH_BARS = 96
"""A narrower terminal gets no bars: the interval of the cost says the same, relative to the cost."""
COLUMNS = (
    "rank", "instance_type", "provider", "service", "region", "regions_compared", "market", "batch_size", "epochs",
    "seconds", "seconds_low", "seconds_high", "usd_per_hour", "price_date", "cost_usd", "cost_low", "cost_high",
    "score", "chance", "tied_with_best", "pareto", "gpu_model", "gpu_count", "vcpus", "memory_gib", "basis", "method",
)  # fmt: skip
"""Columns of CSV output."""


def print_ranking(
    ranking: Ranking,
    *,
    top: int,
    format: Format,  # noqa: A002
    verbose: bool = False,
    next_steps: Sequence[str] | None = None,
    remarks: bool = True,
) -> None:
    """Print ``ranking`` to standard output, and the next step, exclusions and findings to standard error.

    A table has at most ``top`` rows. With a study, its final metric is a column after the epochs. ``next_steps`` are
    the last lines, by default one with the command of the next probe. Without ``remarks``, a table is not followed by
    exclusions and findings, except that all prices are old.
    """
    from vmselect.ranking.output import ranking_output
    from vmselect.ranking.views import SIMILAR, fold_similar

    if format is Format.json:
        print_json(ranking_output(ranking))
    elif format is Format.csv:
        _print_csv(ranking)
    else:
        folded = fold_similar(ranking.deciding_rows, top)
        print_headline(ranking.headline, ranking.details)
        if ranking:
            _print_table(ranking, folded)
        steps = [probe_line(ranking)] if next_steps is None else next_steps
        lines = _remarks(ranking, folded, verbose=verbose) if remarks else []
        if any(line.similar for line in folded):
            lines.insert(0, SIMILAR)
        outdated = [str(ranking.outdated)] if ranking.outdated and not verbose else []
        print_err([*outdated, *lines, *(step for step in steps if step)], wrap=True)
    if format is not Format.table:
        print_err(ranking.findings)
    if not ranking:
        raise typer.Exit(1)


def probe_line(ranking: Ranking, program: str = "") -> str:
    """A line with the command of the next probe, which can be copied; an empty text if there is nothing to probe."""
    from vmselect.ranking.next_probe import UNKNOWN_SCRIPT

    probe = ranking.next_probe if ranking else None
    if probe is None:
        return ""
    command = f"vmselect probe --instance-type {shlex.quote(probe.instance_type)} {program or UNKNOWN_SCRIPT}"
    worth = f"about {format_usd(probe.probe_usd)}, saves {format_usd(probe.expected_saving_usd)} on average"
    return f"Next:  {command}  # on that machine: {worth}"


def _print_csv(ranking: Ranking) -> None:
    from vmselect.ranking.measures import MEASURES

    measured = [MEASURES[name] for name in ranking.settings.measured]
    others = [name for measure in measured for name in measure.fields if name not in COLUMNS]
    frame = ranking.to_frame()  # also has the columns of all measures
    rows = [line | _metric(ranking, row) for line, row in zip(frame_rows(frame), ranking, strict=True)]
    metric = (ranking.study.monitor,) if ranking.study else ()
    print_csv(rows, (*COLUMNS, *others, *metric))


def _metric(ranking: Ranking, row: Row) -> dict[str, Any]:
    """The final metric of a row, if the epochs are those of a study."""
    return {ranking.study.monitor: ranking.studied.metric(row.batch_size)} if ranking.study and ranking.studied else {}


def _print_table(ranking: Ranking, folded: Sequence[Line]) -> None:
    from vmselect.ranking.views import measure_text

    others = [name for name in ranking.settings.measured if name not in ("time", "cost")]
    rows = [line.row for line in folded]
    lines, brief_costs = [], []
    bars = _bars(rows)
    unsure = all(row.interval_only for row in rows)
    for (row, similar), bar in zip(folded, bars, strict=True):
        where = f"{row.provider} {row.region}"
        gpus = f"{row.gpu_count:g} x " if row.gpu_count and row.gpu_count != 1 else ""
        only = _brief_interval(row) if unsure or sys.stdout.isatty() else ""  # otherwise next to it
        line: dict[str, Any] = {
            "#": row.rank,
            "machine": f"{row.instance_type} +{len(similar)}" if similar else row.instance_type,
            "GPU": f"{gpus}{row.gpu_model}" if row.gpu_model else "none",
            "where": where,
            "market": row.market,
            "batch": row.batch_size,
            "epochs": round(row.epochs, 1),
            **_metric(ranking, row),
            "basis": row.basis,
            "time": only if row.interval_only else format_brief_seconds(row.seconds),
            "interval": bar or _interval(row),
            "cost": _cost(row) if sys.stdout.isatty() else row.cost_text,
            **{name: measure_text(row, name) for name in others},
            "best": format_chance(row.chance + sum(other.chance for other in similar)),
            "": row.bound,
        }
        lines.append(line)
        brief_costs.append(_cost_interval(row))  # some rows may have nothing else, and the others are as uncertain
    # The headline states what all rows have in common.
    common = {name for name in ("market", "batch", "epochs", "basis", "") if len({line[name] for line in lines}) == 1}
    common -= {""} if any(row.bound for row in rows) else set()
    wide = sys.stdout.isatty() and shutil.get_terminal_size().columns
    if unsure or (wide and (wide < WIDTH_WITH_BARS or _width(lines, common) > wide)):
        common.add("interval")
    if wide and _width(lines, common) > wide:
        lines = [line | {"cost": cost} for line, cost in zip(lines, brief_costs, strict=True)]
    shown = [name for name in lines[0] if name not in common]
    # Names are folded only where nothing else helps: parts of numbers would be wrong numbers.
    folds = ("machine", "GPU") if wide and _width(lines, common) > wide else ()
    print_table(lines, shown, best=ranking.best.rank - 1, wrapped=("where", "", *folds))


def _width(lines: Sequence[Mapping[str, Any]], left_out: Collection[str]) -> int:
    """The least number of columns of a terminal that shows ``lines`` without folding a word."""
    widths = []
    for name in lines[0].keys() - left_out:
        cells = [name, *(str(line[name]) for line in lines)]
        parts = [word for cell in cells for word in cell.split()] if name in ("where", "") else cells
        widths.append(max(map(cell_len, parts), default=0))
    return sum(widths) + GAP * (len(widths) - 1)


def _cost(row: Row) -> str:
    """The cost in few characters, for a terminal."""
    interval = _cost_interval(row)
    return interval if row.interval_only else f"{format_usd(row.cost_usd)} ({interval.removeprefix('$')})"


def _cost_interval(row: Row) -> str:
    return f"{format_brief_usd(row.cost_low)}-{format_brief_usd(row.cost_high).removeprefix('$')}"


def _interval(row: Row) -> str:
    return f"{format_brief_seconds(row.seconds_low)} to {format_brief_seconds(row.seconds_high)}"


def _brief_interval(row: Row) -> str:
    low, high = format_brief_seconds(row.seconds_low), format_brief_seconds(row.seconds_high)
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low}-{high}"


def _bars(rows: Sequence[Row]) -> list[str]:
    """A bar per row that shows the interval of its time, all on one logarithmic scale; empty texts without a terminal.

    A file or another program gets the bounds as numbers instead.
    """
    bounds = [bound for row in rows for bound in (row.seconds_low, row.seconds_high) if bound > 0]
    if not sys.stdout.isatty() or not can_print("─●") or not bounds or min(bounds) == max(bounds):
        return [""] * len(rows)
    first, last = math.log(min(bounds)), math.log(max(bounds))

    def place(seconds: float) -> int:
        share = (math.log(max(seconds, min(bounds))) - first) / (last - first)
        return min(BAR_WIDTH - 1, int(share * BAR_WIDTH))

    bars = []
    for row in rows:
        low, value, high = map(place, (row.seconds_low, row.seconds, row.seconds_high))
        cells = ["─" if low <= i <= high else " " for i in range(BAR_WIDTH)]
        if not row.interval_only:
            cells[min(max(value, low), high)] = "●"
        bars.append("".join(cells))
    return bars


def _remarks(ranking: Ranking, table: Sequence[Line], *, verbose: bool) -> list[str]:
    """Lines to print below the ``table``: basis of the times, crossovers, excluded candidates, findings."""
    from vmselect.ranking.views import NOT_MEASURED, describe_findings

    rows = [line.row for line in table]
    bases = {row.basis for row in rows}
    lines = [NOT_MEASURED[basis] for basis in bases if len(bases) == 1 and basis in NOT_MEASURED]
    if not verbose:
        lines += [f"Warning: {finding}" for finding in ranking.findings if isinstance(finding, RecordsNotUsed)]
    for name in ranking.settings.measured if len(ranking.settings.epochs) > 1 and ranking else ():
        lines += [f"By {name}: {change}." for change in ranking.crossovers(name)[:5]]
    excluded = ranking.deciding_excluded
    if verbose:
        return [*lines, *describe_findings(ranking, rows), *_exclusions(excluded)]
    lines += _exclusions(excluded) if len(excluded) <= MAX_EXCLUDED else []
    # The headline of an empty ranking counts what is excluded.
    folded = len(excluded) if ranking and len(excluded) > MAX_EXCLUDED else 0
    return lines + _count_findings(ranking, rows, excluded=folded)


def _exclusions(excluded: Iterable[Excluded]) -> list[str]:
    """A line per excluded candidate; of many with the same kind of reason, one line with an example and some names."""
    from vmselect.ranking.views import describe_reason

    by_reason: dict[str, list[Excluded]] = {}
    for entry in excluded:
        by_reason.setdefault(entry.reason_code, []).append(entry)
    lines = []
    for code, entries in by_reason.items():
        if len(entries) <= MAX_EXCLUDED:
            lines += [f"Excluded: {entry}." for entry in entries]
            continue
        names = "; ".join(entry.candidate for entry in entries[1 : MAX_NAMED + 1])
        more = f"; and {len(entries) - MAX_NAMED - 1} more" if len(entries) > MAX_NAMED + 1 else ""
        lines.append(f"Excluded: {describe_reason(code, len(entries))}. {entries[0]}. Also {printable(names)}{more}.")
    return lines


def _count_findings(ranking: Ranking, rows: Sequence[Row], *, excluded: int) -> list[str]:
    """A line with the names of the warnings, and the numbers of other findings and of excluded candidates."""
    findings = {*ranking.findings, *(finding for row in rows for finding in row.findings)}
    warnings = sorted({finding.code for finding in findings if finding.severity == "warning"})
    notes = {finding.code for finding in findings if finding.severity == "info"}.difference(warnings)
    parts = [f"{format_count(len(warnings), 'warning')} ({', '.join(map(name_code, warnings))})"] if warnings else []
    parts += [format_count(len(notes), "note")] if notes else []
    parts += [format_count(excluded, "excluded candidate")] if excluded else []
    *first, last = parts or [""]
    return [f"{' and '.join(filter(None, (', '.join(first), last)))}: --verbose shows them."] if parts else []
