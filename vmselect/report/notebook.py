"""Rankings, comparisons, effects and scores as HTML without scripts, for a notebook or the comparison page."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

from vmselect.comparison.groups import format_percent, format_value, group_rows, scenario_rows
from vmselect.comparison.significance import format_p
from vmselect.findings import Finding, code_html
from vmselect.ranking.measures import MEASURES, describe_objective
from vmselect.ranking.views import BASIS_MARKS, NOT_MEASURED, SIMILAR, fold_similar, remarks
from vmselect.report.charts import labels
from vmselect.units import format_chance, format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.comparison.effects import Effects
    from vmselect.comparison.groups import Comparison
    from vmselect.comparison.requirements import Scores
    from vmselect.comparison.speedup import Scaling
    from vmselect.ranking import Ranking, Row
    from vmselect.ranking.views import Line
    from vmselect.scoring.score import Score

Cells: TypeAlias = dict[str, Any]
"""Cells of a row of a table, by column title."""

MAX_CANDIDATES, MAX_TABLE_ROWS = 10, 60
GROUPINGS = {"family": "machine family", "gpu": "GPU"}
"""Printed names of groupings of forecasts that differ from their names in Python."""


class Markup(str):
    """HTML that is made here, and contains no text from outside."""


def to_html(ranking: Ranking, *, most: int = MAX_CANDIDATES) -> str:
    """The ranking as HTML: headline, details, table of ``most`` lines with interval bars, and remarks."""
    total = len(ranking.assessment.order[ranking.deciding_column])
    if not total:
        return _sentence(ranking.verdict)
    every = list(ranking.deciding_rows)
    candidates = dict(zip(map(id, every), map(int, ranking.assessment.order[ranking.deciding_column]), strict=True))
    lines = fold_similar(every, most)
    rows = [line.row for line in lines]
    names = labels(ranking.candidates, [candidates[id(row)] for row in rows])
    bases = {row.basis for row in rows}
    cells = [
        _row(names[candidates[id(line.row)]], line, bar, ranking, several=len(bases) > 1)
        for line, bar in zip(lines, _bars(rows), strict=True)
    ]
    count = sum(1 + len(line.similar) for line in lines)
    notes = [
        *(NOT_MEASURED[basis] for basis in bases if len(bases) == 1 and basis in NOT_MEASURED),
        *([SIMILAR] if count > len(lines) else []),
        *([f"Shown: the best {count} of {total:,} candidates."] if total > count else []),
    ]
    table = _table(cells, "Ranking")
    shown = "".join(f"<p>{escape(note)}</p>" for note in notes)
    gpus = _section("Number of GPUs", _table(gpu_rows(ranking), "Number of GPUs")) if ranking.scaling_verdict else ""
    head = f'<h3 dir="auto">{code_html(ranking.headline)}</h3><p dir="auto">{code_html(ranking.details)}</p>'
    said = remarks(ranking, rows)
    first, rest = (said[:1], said[1:]) if ranking.next_probe else ([], said)
    next_step = "".join(f'<p dir="auto"><strong>{code_html(line)}</strong></p>' for line in first)
    return head + table + shown + gpus + next_step + _section("Findings and excluded candidates", _list(rest))


BAR = (120, 14)
"""Width and height in pixels of the bar that shows an interval."""


def _bars(rows: Sequence[Row]) -> list[Markup]:
    """A bar per row that shows the interval of its time, all on one logarithmic scale, with a mark of its basis."""
    bounds = [bound for row in rows for bound in (row.seconds_low, row.seconds_high) if bound > 0]
    if not bounds or min(bounds) == max(bounds):
        return [Markup()] * len(rows)
    (width, height), least, most = BAR, math.log(min(bounds)), math.log(max(bounds))

    def place(seconds: float) -> float:
        share = (math.log(max(seconds, min(bounds))) - least) / (most - least)
        return round(6 + share * (width - 12), 1)

    bars = []
    for row in rows:
        low, value, high = map(place, (row.seconds_low, row.seconds, row.seconds_high))
        fill = "none" if row.basis in BASIS_MARKS else "currentColor"
        dash = ' stroke-dasharray="2 1.5"' if row.basis == "described" else ""
        dot = f'<circle cx="{value}" cy="7" r="4" fill="{fill}" stroke="currentColor" stroke-width="1.5"{dash}/>'
        bars.append(Markup(
            f'<svg width="{width}" height="{height}" role="img" aria-label="interval of the time">'
            f'<line x1="{low}" x2="{high}" y1="7" y2="7" stroke="currentColor" stroke-opacity="0.45" stroke-width="2"/>'
            f'{"" if row.interval_only else dot}</svg>'
        ))  # fmt: skip
    return bars


def _row(label: str, line: Line, bar: Markup, ranking: Ranking, *, several: bool) -> Cells:
    """Cells of a line. A basis is a remark if the rows have ``several``; a score is shown if weights make one."""
    row, similar = line
    gpus = f"{row.gpu_count:g} x " if row.gpu_count and row.gpu_count != 1 else ""
    remarks = {
        BASIS_MARKS.get(row.basis, ""): several and row.basis in BASIS_MARKS,
        "may be best": row.tied_with_best and row.rank > 1,
        "Pareto": row.pareto,
        "warnings": any(finding.severity == "warning" for finding in row.findings),
        row.bound: bool(row.bound),
    }
    return {
        "#": row.rank,
        "Machine": f"{label} +{len(similar)}" if similar else label,
        "GPU": f"{gpus}{row.gpu_model}" if row.gpu_model else "none",
        "Where": f"{row.provider} {row.region}",
        "Time": row.time_text,
        "Interval": bar,
        "Cost": row.cost_text,
        "USD per hour": f"{row.usd_per_hour:.4g}",
        **({} if describe_objective(ranking.settings.objective) in MEASURES else {"Score": f"{row.score:.2f}"}),
        "Best": format_chance(row.chance + sum(other.chance for other in similar)),
        "": ", ".join(remark for remark, applies in remarks.items() if applies),
    }


def gpu_rows(ranking: Ranking) -> list[Cells]:
    """Table rows, one per GPU model and number of GPUs: the fastest and the cheapest, speed-up and efficiency."""
    groups: dict[tuple[str, int], list[dict[Hashable, Any]]] = {}
    for row in ranking.scaling.to_dict("records"):
        groups.setdefault((row["gpu_model"], row["gpus"]), []).append(row)
    rows = []
    for (gpu, gpus), candidates in groups.items():
        fastest, cheapest = (min(candidates, key=lambda row: row[name]) for name in ("seconds", "cost_usd"))
        has_base = not math.isnan(fastest["speed_up"])
        rows.append(
            {
                "GPU": gpu,
                "GPUs": gpus,
                "Shortest time": f"{format_seconds(fastest['seconds'])} ({fastest['instance_type']})",
                "Lowest cost": f"{format_usd(cheapest['cost_usd'])} ({cheapest['instance_type']})",
                "Speed-up": f"{fastest['speed_up']:.2f}" if has_base else "",
                "Efficiency": format_chance(min(1.0, fastest["efficiency"])) if has_base else "",
                "": BASIS_MARKS.get(fastest["basis"], ""),
            }
        )
    return rows


def effect_rows(effects: Effects) -> list[Cells]:
    """Rows for a table, one per level of a factor: mean, effect, and the share of variation the factor explains."""
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


def scaling_rows(scaling: Scaling) -> list[Cells]:
    """Rows for a table, one per number of workers: time, and speed-up, efficiency and cost relative to one worker."""
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
            **({row.metric: _beside(row.metric_value, row.metric_alone)} if row.metric else {}),
        }
        for row in scaling.rows
    ]


def _beside(value: float | None, alone: float | None) -> str:
    """A metric with several workers, and with one in parentheses."""
    texts = ["unknown" if number is None else f"{number:.4g}" for number in (value, alone)]
    return f"{texts[0]} ({texts[1]} with one)"


def comparison_html(comparison: Comparison, *, pictures: str = "", verdict: bool = True) -> str:
    """The comparison as HTML: verdict, tables of groups, scenarios, tested pairs and level shifts, and findings.

    ``pictures`` is HTML to insert between the verdict and the tables. ``verdict=False`` omits the verdict.
    """
    unit = comparison.metric.unit
    headings = {"sd": "SD", "difference": f"Difference from {comparison.baseline}"}
    groups, scenarios = (
        [{headings.get(name, name.capitalize()): value for name, value in row.items()} for row in rows]
        for rows in (group_rows(comparison), scenario_rows(comparison))
    )
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
            "After reading no.": row["after"],
            "Level before": format_value(row["before"], unit),
            "Level after": format_value(row["then"], unit),
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
            _table(scenarios, "Scenarios"),
            _section("Level shifts within runs", _table(shifts, "Level shifts")),
            _findings(comparison.findings),
        ]
    )


def effects_html(effects: Effects, *, pictures: str = "", verdict: bool = True) -> str:
    """The effects as HTML: verdict, tables of factors, levels and combinations of levels, and findings."""
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
    head = _sentence(effects.verdict) if verdict else ""
    body = head + pictures + _table(factors, "Factors") + _table(main, "Levels")
    return body + _section("Combinations of levels", _table(cells, "Combinations")) + _findings(effects.findings)


def scores_html(scores: Scores, *, verdict: bool = True) -> str:
    """The scores of candidates as HTML: verdict, points per requirement, source of every number, and exclusions."""
    table = [
        {str(name): f"{value:.1f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in scores.table.to_dict("records")
    ]
    parts = [
        {name: _plain(row[name]) for name in ("candidate", "need", "value", "unit", "points", "source", "date")}
        for row in scores.parts.to_dict("records")
    ]
    excluded = [{"Excluded": name, "Reason": reason} for name, reason in scores.excluded.items()]
    origins = _section("Sources of the numbers", _table(parts, "Sources of the numbers"))
    head = _sentence(scores.verdict) if verdict else ""
    return head + _table(table, "Scores") + origins + _table(excluded, "Excluded")


def score_html(score: Score, *, pictures: str = "", verdict: bool = True) -> str:
    """The score of forecasts as HTML: verdict, groups, reliability, worst cases with findings, unscored records."""
    groups = [
        {
            "Group": f"{GROUPINGS.get(row['by'], row['by'])}: {row['group']}",
            "Outcomes": row["outcomes"],
            "Error": f"{row['error_percent']:.3g} %",
            "Bias": f"{row['bias_percent']:+.3g} %",
            "Coverage": f"{row['coverage']:.0%} ({row['coverage_low']:.0%} to {row['coverage_high']:.0%})",
            "Width": f"{row['width_percent']:.3g} %",
            "Regret": "" if (regret := _plain(row["regret_percent"])) == "" else f"{regret} %",
        }
        for row in score.groups.to_dict("records")
    ]
    reliability = [
        {
            "Promised": f"{row['confidence']:.0%}",
            "Observed": f"{row['coverage']:.0%} ({row['low']:.0%} to {row['high']:.0%})",
        }
        for row in score.reliability.to_dict("records")
    ]
    worst = [
        {
            "Largest errors": case.title,
            "Real": format_seconds(case.real_seconds),
            "Forecast": "{} ({} to {})".format(*map(format_seconds, case.estimate)),
            "Error": f"{case.error_percent:+.1f} %",
            "Findings": ", ".join(dict.fromkeys(finding.code for finding in case.findings)),
        }
        for case in score.worst
    ]
    waiting = f"<p>Forecasts without an outcome: {len(score.waiting)}.</p>" if score and score.waiting else ""
    details = _list(dict.fromkeys(str(finding) for case in score.worst for finding in case.findings))
    unscored = [{"Not scored": outcome.title, "Reason": outcome.reason} for outcome in score.unscored]
    head = _sentence(score.verdict) if verdict else ""
    body = head + pictures + _table(_without_empty(groups), "Groups") + _table(_without_empty(worst), "Worst cases")
    body += _section("Findings of the worst cases", details)
    body += _section("Reliability as a table", _table(reliability, "Reliability"))
    return body + _table(unscored, "Not scored") + waiting + _findings(score.findings)


def _without_empty(rows: Sequence[Cells]) -> list[Cells]:
    """``rows`` without the columns that are empty in all rows."""
    used = {name for row in rows for name, value in row.items() if value != ""}
    return [{name: value for name, value in row.items() if name in used} for row in rows]


def _plain(value: object) -> object:
    if value is None or value != value:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else value


def _sentence(text: str) -> str:
    return f'<p dir="auto"><strong>{code_html(text)}</strong></p>'


def _section(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>" if body else ""


def _findings(findings: Iterable[Finding]) -> str:
    items = _list(map(str, findings))
    return f"<details open><summary>Findings</summary>{items}</details>" if items else ""


def _list(lines: Iterable[str]) -> str:
    items = "".join(f'<li dir="auto">{code_html(line)}</li>' for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _cell(value: object) -> str:
    return value if isinstance(value, Markup) else escape(str(value))


def _table(rows: Sequence[Cells], title: str) -> str:
    """``rows`` as an HTML table; an empty string if there are no rows. ``title`` is the name for screen readers."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f'<td dir="auto">{_cell(value)}</td>' for value in row.values()) + "</tr>"
        for row in rows[:MAX_TABLE_ROWS]
    )
    more = f"<p>and {len(rows) - MAX_TABLE_ROWS} more</p>" if len(rows) > MAX_TABLE_ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    # A table that is wider than the page scrolls, also with the keyboard.
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(title)}">{table}</div>{more}'
