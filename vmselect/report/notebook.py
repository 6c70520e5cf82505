"""A ranking as HTML for a notebook: the verdict and the best rows, without script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from vmselect.comparison.comparison import format_percent, format_value, group_rows
from vmselect.comparison.significance import format_p
from vmselect.ranking.text import remarks
from vmselect.report.chart_style import deciding_rows
from vmselect.units import format_seconds

if TYPE_CHECKING:
    from vmselect.comparison import Comparison, Effects, Scaling, Scores
    from vmselect.findings import Finding
    from vmselect.ranking import Ranking, Row

MOST_ROWS = 15


def to_html(ranking: Ranking, *, most: int = MOST_ROWS) -> str:
    """The verdict, a table of the best candidates, what was excluded, and warnings; every name is escaped.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40, later_epoch_seconds=30)
    >>> "g4dn.xlarge" in to_html(vs.rank(profile, epochs=10))
    True
    """
    total = len(ranking.assessment.order[ranking.deciding_column])
    if not total:
        return html_sentence(ranking.verdict)
    table = html_table([_row(label, row) for label, row in deciding_rows(ranking, most=most)], "Ranking")
    shown = f"<p>The best {most} of {total:,} candidates.</p>" if total > most else ""
    return html_sentence(ranking.verdict) + table + shown + html_list(remarks(ranking))


def _row(label: str, row: Row) -> dict[str, Any]:
    gpus = f"{row.gpu_count:g} x " if row.gpu_count and row.gpu_count != 1 else ""
    remarks = {
        "tied": row.tied_with_best and row.rank > 1,
        "Pareto": row.pareto,
        "warnings": any(finding.severity == "warning" for finding in row.findings),
        row.bound: bool(row.bound),
    }
    return {
        "#": row.rank,
        "Machine": label,
        "GPU": f"{gpus}{row.gpu_model}" if row.gpu_model else "none",
        "Time": row.time_text,
        "Cost": row.cost_text,
        "USD per hour": f"{row.usd_per_hour:.4g}",
        "Score": f"{row.score:.2f}",
        "": ", ".join(remark for remark, applies in remarks.items() if applies),
    }


# Comparisons, effects and scores as rows for the command line, and as HTML for a notebook or a page.


MAX_TABLE_ROWS = 60


def effect_rows(effects: Effects) -> list[dict[str, Any]]:
    """A row per level: its mean, its effect, and what its factor explains."""
    return [
        {
            "factor": row["factor"],
            "level": str(row["level"]),
            "runs": row["count"],
            "mean": format_value(row["mean"], effects.metric.unit),
            "effect": format_percent(row),
            "share": f"{100 * row['share']:.1f} %",
            "p": "" if math.isnan(row["p_value"]) else format_p(row["p_value"]),
        }
        for row in effects.main.to_dict("records")
    ]


def scaling_rows(scaling: Scaling) -> list[dict[str, Any]]:
    """A row per number of workers: time, speed-up, efficiency and cost against one worker."""
    return [
        {
            "setup": row.setup,
            "nodes": row.nodes,
            "unit": row.unit,
            "batch per worker": row.worker_batch_size,
            "runs": row.runs,
            "base": row.base,
            "time": format_seconds(row.seconds),
            "speed-up": f"{row.speedup:.2f} ({row.speedup_low:.2f} to {row.speedup_high:.2f})",
            "efficiency": f"{row.efficiency:.0%} ({row.efficiency_low:.0%} to {row.efficiency_high:.0%})",
            "cost": f"{row.cost_ratio:.2f} ({row.cost_ratio_low:.2f} to {row.cost_ratio_high:.2f}) times",
        }
        for row in scaling.rows
    ]


def comparison_html(comparison: Comparison, *, pictures: str = "", verdict: bool = True) -> str:
    """The verdict, the groups, the pairs that were tested and level shifts; every name is escaped.

    ``pictures`` is markup between the verdict and the tables; ``verdict=False`` omits the verdict.

    >>> import vmselect as vs
    >>> "&lt;b&gt;" in comparison_html(vs.compare({"<b>": [1.0, 2.0], "c": [2.0, 3.0]}))
    True
    """
    unit = comparison.metric.unit
    groups = _titled(group_rows(comparison), sd="SD", difference=f"Against {comparison.baseline}")
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
            html_sentence(comparison.verdict) if verdict else "",
            pictures,
            html_table(groups, "Groups"),
            f'<p dir="auto">{escape(str(comparison.test))}</p>',
            html_table(pairs if len(groups) > 2 else [], "Pairs"),
            _section("Level shifts inside runs", html_table(shifts, "Level shifts")),
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
            "Largest difference": ""
            if row["from_level"] is None or row["from_level"] != row["from_level"]
            else f"{row['from_level']} to {row['to_level']}: {format_percent(row)}",
            "p": "" if math.isnan(row["p_value"]) else format_p(row["p_value"]),
        }
        for row in effects.factors.to_dict("records")
    ]
    main = [
        {"Factor": row["factor"], "Level": row["level"], "Mean": row["mean"], "Effect": row["effect"]}
        for row in effect_rows(effects)
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
    head = html_sentence(effects.verdict) if verdict else ""
    body = head + pictures + html_table(factors, "Factors") + html_table(main, "Levels")
    return body + _section("Cells", html_table(cells, "Cells")) + _findings(effects.findings)


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
    excluded = [{"Excluded": name, "Reason": reason} for name, reason in scores.excluded.items()]
    origins = _section("Where the numbers come from", html_table(parts, "Where the numbers come from"))
    head = html_sentence(scores.verdict) if verdict else ""
    return head + html_table(table, "Scores") + origins + html_table(excluded, "Excluded")


def _titled(rows: Iterable[Mapping[str, Any]], **headings: str) -> list[dict[str, Any]]:
    return [{headings.get(name, name.capitalize()): value for name, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    if value is None or value != value:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else value


def html_sentence(text: str) -> str:
    """A sentence that stands out; every name is escaped."""
    return f'<p dir="auto"><strong>{escape(text)}</strong></p>'


def _section(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>" if body else ""


def _findings(findings: Iterable[Finding]) -> str:
    items = html_list(map(str, findings))
    return f"<details open><summary>Findings</summary>{items}</details>" if items else ""


def html_list(lines: Iterable[str]) -> str:
    """A list with a line per item, or nothing."""
    items = "".join(f'<li dir="auto">{escape(line)}</li>' for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def html_table(rows: Sequence[Mapping[Any, Any]], title: str) -> str:
    """Rows of text as a table, or nothing; ``title`` is its name for screen readers."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f'<td dir="auto">{escape(str(value))}</td>' for value in row.values()) + "</tr>"
        for row in rows[:MAX_TABLE_ROWS]
    )
    more = f"<p>and {len(rows) - MAX_TABLE_ROWS} more</p>" if len(rows) > MAX_TABLE_ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    # A table that is wider than the page scrolls by itself, also with the keyboard.
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(title)}">{table}</div>{more}'
