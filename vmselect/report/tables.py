"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from vmselect.report.drawing import deciding_rows
from vmselect.units import format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.estimation import RuntimeEstimate
    from vmselect.profile import Finding
    from vmselect.ranking import Ranking, Row

MOST_ROWS = 20


def ranking_table(ranking: Ranking, *, most: int | None = MOST_ROWS) -> Table:
    """The candidates at the deciding epoch count, best first, each time and cost with its interval.

    >>> import vmselect as vs
    >>> profiles = [vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40, later_epoch_seconds=[30, 30])]
    >>> ranking_table(vs.rank(profiles, epochs=10)).row_count
    1
    """
    rows = deciding_rows(ranking, most=most)
    total = len(ranking.assessment.order[ranking.deciding_column])
    note = f"the best {len(rows)} of {total:,}" if len(rows) < total else None
    table = _table(title=_title(ranking), caption=note)
    for heading, justify in (("#", "right"), ("machine", "left"), ("GPU", "left"), ("time", "right"), ("cost", "right"),
                             ("USD/h", "right"), ("score", "right"), ("", "left")):  # fmt: skip
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for label, row in rows:
        style = "bold" if row.rank == 1 else None
        table.add_row(
            str(row.rank),
            clean(label),
            clean(gpu_words(row)),
            spread_words(row.seconds, row.seconds_low, row.seconds_high, format_seconds),
            spread_words(row.cost_usd, row.cost_low, row.cost_high, format_usd),
            f"{row.usd_per_hour:.4g}",
            f"{row.score:.2f}",
            remarks(row),
            style=style,
        )
    return table


def excluded_table(ranking: Ranking, *, most: int = MOST_ROWS) -> Table:
    """Candidates that were left out, and why."""
    total = len(ranking.excluded)
    table = _table(title="Left out", caption=f"the first {most} of {total:,}" if total > most else None)
    table.add_column("candidate")
    table.add_column("reason")
    for excluded in islice(ranking.excluded, most):
        table.add_row(clean(excluded.candidate), clean(excluded.reason))
    return table


def findings_table(findings: Iterable[Finding]) -> Table:
    """Doubts and notes, each with its remedy."""
    table = _table(title="Findings")
    for heading in ("", "what", "remedy"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        style = "yellow" if finding.severity == "doubt" else "dim"
        table.add_row(Text(finding.severity, style=style), clean(finding.message), clean(finding.remedy))
    return table


def estimate_table(estimates: Sequence[RuntimeEstimate]) -> Table:
    """Estimated times, with intervals and their terms."""
    table = _table(title="Estimated training time")
    for heading, justify in (("setup", "left"), ("epochs", "right"), ("time", "right"), ("where it goes", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for estimate in estimates:
        terms = ", ".join(f"{name.replace('_', ' ')} {format_seconds(s)}" for name, s in estimate.terms.items())
        time = spread_words(estimate.seconds, estimate.low, estimate.high, format_seconds)
        table.add_row(clean(estimate.title), f"{estimate.epochs:,}", time, terms)
    return table


def gpu_words(row: Row) -> str:
    """The machine's GPUs in words."""
    if not row.gpu_model:
        return "none"
    return row.gpu_model if not row.gpu_count or row.gpu_count == 1 else f"{row.gpu_count:g} x {row.gpu_model}"


def remarks(row: Row) -> str:
    """What to know about a row beside its numbers."""
    doubts = any(finding.severity == "doubt" for finding in row.findings)
    told = [("tied", row.tied_with_best and row.rank > 1), ("Pareto", row.pareto), ("doubts", doubts)]
    return ", ".join(word for word, applies in told if applies)


def spread_words(value: float, low: float, high: float, words: Callable[[float], str]) -> str:
    """A value with its interval, which is left out where it prints alike.

    >>> spread_words(95, 90, 101, format_seconds)
    '1 min 35 s (1 min 30 s - 1 min 41 s)'
    """
    ends = words(low), words(high)
    return words(value) if ends[0] == ends[1] else f"{words(value)} ({ends[0]} - {ends[1]})"


def clean(text: str) -> Text:
    """Text from outside: shown as it is, neither as markup nor as commands to the terminal."""
    return Text("".join(c if c.isprintable() or c in "\u200d\ufe0f" else "\ufffd" for c in text))


def _title(ranking: Ranking) -> str:
    count = ranking.settings.decide_at
    return f"Ranking at {count:,} epochs" if count else "Ranking of machines and batch sizes"


def _table(**options: Any) -> Table:
    return Table(title_justify="left", caption_justify="left", box=None, pad_edge=False, padding=(0, 2), **options)
