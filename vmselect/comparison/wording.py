"""The answer in words: the winner, by how much, how sure; or why that cannot be said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vmselect.comparison.significance import format_p
from vmselect.units import format_seconds, format_usd, list_all, list_some

if TYPE_CHECKING:
    from vmselect.comparison.result import Comparison


def format_value(value: float | None, unit: str) -> str:
    """A value with its unit, for people.

    >>> format_value(0.0132, "s"), format_value(2.5, "USD"), format_value(1234.56, "examples/s"), format_value(0.78, "")
    ('13.2 ms', '$2.50', '1,235 examples/s', '0.78')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if unit == "s":
        return format_seconds(value)
    if unit == "USD":
        return format_usd(value)
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{number} {unit}".rstrip()


def format_percent(row: Mapping[Any, Any]) -> str:
    """A difference in percent with its interval, where there is one: a row of any of our tables.

    >>> format_percent({"percent": 4.2, "percent_low": 1.0, "percent_high": 7.5})
    '+4.2 (+1 to +7.5) %'
    """
    if math.isnan(row["percent"]):
        return "unknown"
    low, high = row["percent_low"], row["percent_high"]
    sides = "" if math.isnan(low) or math.isnan(high) else f" ({low:+.3g} to {high:+.3g})"
    return f"{row['percent']:+.3g}{sides} %"


def group_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """A row per group for people: runs, mean, spread, and the difference against the base."""
    unit = comparison.metric.unit
    return [
        {
            "group": row["group"],
            "runs": row["count"],
            "mean": format_value(row["mean"], unit),
            "sd": format_value(row["sd"], unit) if row["count"] > 1 else "",
            "median": format_value(row["median"], unit),
            "quartiles": f"{format_value(row['quartile_1'], unit)} to {format_value(row['quartile_3'], unit)}",
            "difference": "base" if row["baseline"] else format_percent(row),
        }
        for row in comparison.groups.to_dict("records")
    ]


def verdict(comparison: Comparison) -> str:
    """One sentence or two."""
    noun = comparison.metric.noun
    names = list(comparison.members)
    if len(names) == 1:
        only = comparison.summaries[names[0]]
        return (
            f"{noun}: there is only one group, {names[0]} ({format_value(only.mean, comparison.metric.unit)}, "
            f"{_count(only.count, 'run')}); there is nothing to compare it with."
        )
    order = comparison.order
    best, next_best = order[0], order[1]
    test = comparison.test
    if test.p_value is None:
        return f"{noun}: {_lead(comparison, best, next_best, sure=False)}; too few to tell: {test.reason}."
    if not test.significant:
        return (
            f"{noun}: no difference is shown between {_list(order)} ({_chance(comparison)}, "
            f"{_counts(comparison)}){_seen(comparison, best, order[-1])}."
        )
    rivals = [name for name in order[1:] if not comparison.differ(best, name)]
    if len(rivals) == len(order) - 1:
        return (
            f"{noun}: the groups differ ({_chance(comparison)}, {_counts(comparison)}), but no single pair that "
            f"{best} is part of can be told apart."
        )
    words = _lead(comparison, best, _reference(comparison, best), sure=True)
    tied = f" It is not told apart from {_list(rivals)}." if rivals else ""
    alone = (
        "" if comparison.unit == "runs" else " This holds for these runs; other runs of the same machines may differ."
    )
    return f"{noun}: {words}.{tied}{alone}"


def _reference(comparison: Comparison, best: str) -> str:
    """Whom the winner is measured against: the base where it is told apart from it, else the next that is."""
    apart = [name for name in comparison.order[1:] if comparison.differ(best, name)]
    return comparison.baseline if comparison.baseline in apart else apart[0]


def _lead(comparison: Comparison, best: str, other: str, *, sure: bool) -> str:
    ratio = comparison.ratio(best, other)
    word = "best" if comparison.metric.better else "lowest"
    away = "below" if ratio.value < 1 else "above"
    gap = f"{abs(100 * (ratio.value - 1)):.3g} % {away} {other}" if math.isfinite(ratio.value) else f"ahead of {other}"
    if not sure:
        return f"{best} has the {word} mean, {gap} ({_counts(comparison)})"
    sides = [f"{abs(100 * (side - 1)):.3g}" for side in (ratio.low, ratio.high) if not math.isnan(side)]
    if ratio.contains(1):
        interval = f"{100 * (ratio.low - 1):+.3g} to {100 * (ratio.high - 1):+.3g} %"
    else:
        interval = " to ".join(sorted(sides, key=float)) + " %"
    level = f"{interval} with {100 * comparison.confidence:.3g} % confidence; " if sides else ""
    return f"{best} is {word}, {gap} ({level}{_chance(comparison)}, {_counts(comparison)})"


def _seen(comparison: Comparison, best: str, worst: str) -> str:
    ratio = comparison.ratio(best, worst)
    if math.isnan(ratio.low) or ratio.value == 1:
        return ""
    return f"; {best} against {worst}: {100 * (ratio.low - 1):+.3g} to {100 * (ratio.high - 1):+.3g} %"


def _chance(comparison: Comparison) -> str:
    test = comparison.test
    exact = test.exact_p_value
    return (
        f"exact {format_p(exact)}" if exact is not None else format_p(test.p_value if test.p_value is not None else 1.0)
    )


def _counts(comparison: Comparison) -> str:
    counts = [len(values) for values in comparison.values.values()]
    unit = comparison.unit
    if len(set(counts)) == 1 and len(counts) > 2:
        return f"{counts[0]} {unit} each"
    return f"{list_all(counts)} {unit}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _list(names: list[str], most: int = 5) -> str:
    return list_some(names, most) if len(names) > most else list_all(names)
