"""Comparisons, effects and scores as HTML for a notebook or a page: a sentence and tables, without script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from vmselect.comparison.significance import format_p
from vmselect.comparison.wording import format_percent, format_value, group_rows

if TYPE_CHECKING:
    from vmselect.comparison import Comparison, Effects, Scores
    from vmselect.findings import Finding

MOST_ROWS = 60


def comparison_html(comparison: Comparison, *, pictures: str = "", verdict: bool = True) -> str:
    """The verdict, the groups, the pairs that were tested and level shifts; every name is escaped.

    ``pictures`` is markup that stands between the verdict and the tables; ``verdict=False`` leaves that out where it
    was said already.

    >>> import vmselect as vs
    >>> "&lt;b&gt;" in comparison_html(vs.compare({"<b>": [1.0, 2.0], "c": [2.0, 3.0]}))
    True
    """
    unit = comparison.metric.unit
    headings = {"sd": "SD", "difference": f"Against {comparison.baseline}"}
    groups = [
        {headings.get(name, name.capitalize()): value for name, value in row.items()} for row in group_rows(comparison)
    ]
    pairs = [
        {
            "Pair": f"{row['first']} : {row['second']}",
            "Difference": "unknown" if math.isnan(row["percent"]) else f"{row['percent']:+.3g} %",
            "p": format_p(row["p_value"]),
            "p, corrected": format_p(row["p_adjusted"]),
            "Cliff's delta": f"{row['effect_size']:+.2f}",
        }
        for row in comparison.pairs.to_dict("records")
        if not math.isnan(row["p_value"])
    ]
    shifts = [
        {
            "Group": row["group"],
            "Run": row["run"],
            "After reading": row["after"],
            "Before": format_value(row["before"], unit),
            "Then": format_value(row["then"], unit),
        }
        for row in comparison.shifts.to_dict("records")
    ]
    return "".join(
        [
            _sentence(comparison.verdict) if verdict else "",
            pictures,
            _table(groups, "Groups"),
            f'<p dir="auto">{escape(str(comparison.test))}</p>',
            _table(pairs if len(groups) > 2 else [], "Pairs"),
            _section("Level shifts inside runs", _table(shifts, "Level shifts")),
            _findings(comparison.findings),
        ]
    )


def effects_html(effects: Effects, *, pictures: str = "", verdict: bool = True) -> str:
    """The verdict, what each factor explains, the effect of each level and the averages of the cells."""
    unit = effects.metric.unit
    factors = [
        {
            "Factor": row["factor"],
            "Share of variation": f"{100 * row['share']:.1f} %",
            "Widest step": _step(row),
            "p": "" if math.isnan(row["p_value"]) else format_p(row["p_value"]),
        }
        for row in effects.factors.to_dict("records")
    ]
    main = [
        {
            "Factor": row["factor"],
            "Level": row["level"],
            "Mean": format_value(row["mean"], unit),
            "Effect": format_percent(row),
        }
        for row in effects.main.to_dict("records")
    ]
    cells = [
        {
            **{name: row[name] for name in effects.names},
            "Runs": row["count"],
            "Mean": format_value(row["mean"], unit) if row["count"] else "not measured",
            "SD": format_value(row["sd"], unit) if row["count"] > 1 else "",
        }
        for row in effects.cells.to_dict("records")
    ]
    said = _sentence(effects.verdict) if verdict else ""
    body = said + pictures + _table(factors, "Factors") + _table(main, "Levels")
    return body + _section("Cells", _table(cells, "Cells")) + _findings(effects.findings)


def scores_html(scores: Scores, *, verdict: bool = True) -> str:
    """The verdict, candidates by need, and where every number comes from."""
    table = [
        {name: f"{value:.1f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in scores.table.to_dict("records")
    ]
    parts = [
        {name: _plain(row[name]) for name in ("candidate", "need", "value", "unit", "points", "source", "date")}
        for row in scores.parts.to_dict("records")
    ]
    out = [{"Left out": name, "Why": reason} for name, reason in scores.excluded.items()]
    origins = _section("Where the numbers come from", _table(parts, "Where the numbers come from"))
    said = _sentence(scores.verdict) if verdict else ""
    return said + _table(table, "Scores") + origins + _table(out, "Left out")


def _step(row: Mapping[Any, Any]) -> str:
    start = row["from_level"]
    if start is None or start != start:
        return ""
    return f"{start} to {row['to_level']}: {format_percent(row)}"


def _plain(value: Any) -> Any:
    if value is None or value != value:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else value


def _sentence(text: str) -> str:
    return f'<p dir="auto"><strong>{escape(text)}</strong></p>'


def _section(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>" if body else ""


def _findings(findings: Iterable[Finding]) -> str:
    items = "".join(f'<li dir="auto">{escape(str(finding))}</li>' for finding in findings)
    return f"<details open><summary>Findings</summary><ul>{items}</ul></details>" if items else ""


def _table(rows: Sequence[Mapping[Any, Any]], title: str) -> str:
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f'<td dir="auto">{escape(str(value))}</td>' for value in row.values()) + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    more = f"<p>and {len(rows) - MOST_ROWS} more</p>" if len(rows) > MOST_ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    # A table that is wider than a page scrolls by itself, for who has a keyboard only as well.
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(title)}">{table}</div>{more}'
