"""Data of the comparison charts as plain values, drawn by ``boxes.py``, ``effects.py`` and ``assets/plots.js``.

Each chart is a dictionary: ``kind`` (boxes, intervals, lines or series), ``title``, ``lede`` (the text below the
title), ``label`` (for screen readers), ``axis`` and its numbers in the unit that the axis names. ``text`` is the
tooltip of a mark.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect import _files
from vmselect._checks import list_items, show
from vmselect.comparison import Comparison, Effects, Scores
from vmselect.comparison.comparison import format_percent, format_value
from vmselect.comparison.significance import summarize
from vmselect.errors import ArgumentError
from vmselect.report.chart_style import axis_unit, capitalize
from vmselect.report.files import check_target
from vmselect.report.notebook import comparison_html, effects_html, scores_html
from vmselect.report.page import assemble

if TYPE_CHECKING:
    from vmselect.comparison.runs import Run

MOST_GROUPS = 60
MOST_POINTS = 2_000
MOST_ROWS = 60
MOST_PANELS = 6
MOST_LINES = 7
MOST_SERIES, MOST_READINGS = 6, 400

Plot = dict[str, Any]


def comparison_plots(comparison: Comparison) -> list[Plot]:
    """Boxes with every run, differences from the baseline, and the runs in which the level changed."""
    differences = [differences_plot(comparison)] if len(comparison.members) > 1 else []
    shifted = comparison.shifts[["group", "run"]].drop_duplicates().head(MOST_SERIES)
    series = [series_plot(comparison, group, run) for group, run in shifted.itertuples(index=False)]
    return [boxes_plot(comparison), *differences, *series]


def effects_plots(effects: Effects) -> list[Plot]:
    """Main effects, interactions as lines and with their intervals, and the cells with every run."""
    return [main_plot(effects), *interaction_plots(effects), *_combinations_plot(effects), _cells_plot(effects)]


def boxes_plot(comparison: Comparison) -> Plot:
    """Every run of each group, with minimum, quartiles, median and maximum."""
    noun, by = comparison.metric.noun, ", ".join(comparison.by).replace("_", " ")
    return _boxes(comparison.members, noun, comparison.metric.unit, label=f"{noun} by {by}, every run a point")


def _cells_plot(effects: Effects) -> Plot:
    cells: dict[str, list[Run]] = {}
    for position, run in zip(effects.positions, effects.runs.runs, strict=True):
        levels = [effects.fit.levels[i][at] for i, at in enumerate(position)]
        cells.setdefault(", ".join(f"{n} = {v}" for n, v in zip(effects.names, levels, strict=True)), []).append(run)
    noun = effects.metric.noun
    return _boxes(dict(sorted(cells.items())), noun, effects.metric.unit, label=f"{noun} of every combination")


def _boxes(members: Mapping[str, Sequence[Run]], noun: str, unit: str, *, label: str) -> Plot:
    shown = dict(itertools.islice(members.items(), MOST_GROUPS))
    runs = [run for some in shown.values() for run in some]
    factor, named = axis_unit(max(abs(run.value) for run in runs), unit)
    stride = -(-len(runs) // MOST_POINTS)
    rows = []
    for name, some in shown.items():
        summary = summarize([run.value for run in some])
        edges = (summary.minimum, summary.quartile_1, summary.median, summary.quartile_3, summary.maximum)
        points = [
            {
                "value": run.value * factor,
                # A fixed pattern instead of random jitter: the same picture for the same data.
                "offset": ((i * 7) % 11 - 5) / 11,
                "text": [name, format_value(run.value, unit), *(part for part in (run.title, run.date) if part)],
            }
            for i, run in enumerate(some[::stride])
        ]
        rows.append({"name": name, "edges": [edge * factor for edge in edges], "points": points})
    shown_part = [f"the first {MOST_GROUPS} of {len(members)} groups"] if len(members) > len(shown) else []
    shown_part += [f"every {stride}th of {len(runs):,} runs"] if stride > 1 else []
    return {
        "kind": "boxes",
        "title": "Every run",
        "lede": "The box is the middle half of the runs, its line the median; the thin line spans minimum to maximum."
        + (f" Shown: {', '.join(shown_part)}." if shown_part else ""),
        "label": label,
        "axis": capitalize(noun, named),
        "rows": rows,
    }


def differences_plot(comparison: Comparison) -> Plot:
    """The difference of each group from the baseline in percent, with its interval."""
    rows = comparison.groups.head(MOST_ROWS).to_dict("records")
    return {
        "kind": "intervals",
        "title": f"Against {comparison.baseline}",
        "lede": "Bars are intervals. Where a bar reaches 0, these runs show no difference.",
        "label": f"Difference of each group from {comparison.baseline} in percent",
        "axis": "Percent",
        "rows": [
            _interval(row["group"], row) | ({"text": [row["group"], "the baseline"]} if row["baseline"] else {})
            for row in rows
        ],
    }


def main_plot(effects: Effects) -> Plot:
    """The effect of each level in percent of the average, with its interval."""
    rows = effects.main.head(MOST_ROWS).to_dict("records")
    return {
        "kind": "intervals",
        "title": "Effect of each level",
        "lede": "Against the average over all settings of the other factors. Bars are intervals.",
        "label": f"Effect of each level on the {effects.metric.noun} in percent of the average",
        "axis": "Percent of the average",
        "rows": [
            _interval(f"{row['factor']} = {row['level']}", row, slot=effects.names.index(row["factor"])) for row in rows
        ],
    }


def _combinations_plot(effects: Effects) -> list[Plot]:
    rows = effects.interactions.head(MOST_ROWS).to_dict("records")
    if not rows:
        return []
    pairs = list(dict.fromkeys((row["factor_1"], row["factor_2"]) for row in rows))
    return [
        {
            "kind": "intervals",
            "title": "Interaction effects",
            "lede": "What a combination of two levels adds to their separate effects. A bar that reaches 0 shows no "
            "interaction.",
            "label": "Interaction effect of each combination of two levels, in percent of the average",
            "axis": "Percent of the average",
            "rows": [
                _interval(
                    f"{row['factor_1']} = {row['level_1']}, {row['factor_2']} = {row['level_2']}",
                    row,
                    slot=pairs.index((row["factor_1"], row["factor_2"])),
                )
                for row in rows
            ],
        }
    ]


def _interval(name: str, row: Mapping[Any, Any], *, slot: int = 0) -> Plot:
    value, low, high = (
        None if pd.isna(row[column]) else row[column] for column in ("percent", "percent_low", "percent_high")
    )
    return {
        "name": name, "slot": slot % MOST_LINES, "value": value, "low": low, "high": high,
        "text": [name, format_percent(row)],
    }  # fmt: skip


def interaction_plots(effects: Effects) -> list[Plot]:
    """For each pair of factors the average of each pair of levels. Lines that are not parallel show an interaction."""
    cells = effects.cells[effects.cells["count"] > 0]
    noun, unit = effects.metric.noun, effects.metric.unit
    plots = []
    for first, second in itertools.islice(itertools.combinations(effects.names, 2), MOST_PANELS):
        means = cells.groupby([first, second], sort=False)["mean"].mean()
        factor, named = axis_unit(float(means.abs().max()), unit)
        lines: dict[str, list[Plot]] = {}
        for (level, other), mean in zip(means.index, means, strict=True):
            name = f"{second} = {other}"
            point = {"level": str(level), "value": mean * factor, "text": [name, str(level), format_value(mean, unit)]}
            lines.setdefault(name, []).append(point)
        plots.append(
            {
                "kind": "lines",
                "narrow": True,
                "title": f"{first} x {second}",
                "lede": "",
                "label": f"Average {noun} by {first} x {second}",
                "axis": capitalize(noun, named),
                "factor": first,
                "levels": list(dict.fromkeys(str(level) for level, _ in means.index)),
                "lines": [
                    {"name": name, "slot": slot, "points": points}
                    for slot, (name, points) in enumerate(itertools.islice(lines.items(), MOST_LINES))
                ],
            }
        )
    return plots


def series_plot(comparison: Comparison, group: str, run: int) -> Plot:
    """The readings of one run in order, with the median of each part between two level shifts."""
    noun, unit = comparison.metric.noun, comparison.metric.unit
    series = pd.Series(comparison.members[group][run - 1].series)
    shifts = comparison.shifts
    after = shifts[(shifts["group"] == group) & (shifts["run"] == run)]["after"]
    part = pd.cut(series.index, [-1, *(int(edge) - 1 for edge in after), len(series)], labels=False)
    levels = series.groupby(part).transform("median")
    factor, named = axis_unit(float(series.quantile(0.98)), unit)
    return {
        "kind": "series",
        "narrow": True,
        "title": f"{group}, run {run}",
        "lede": "The level changed during this run. The line is the median of each part.",
        "label": f"{noun} of {group}, run {run}, reading by reading",
        "axis": capitalize(noun, named),
        "points": [
            {
                "position": i + 1,
                "value": value * factor,
                "level": level * factor,
                "text": [format_value(value, unit), f"reading {i + 1:,}"],
            }
            for i, value, level in list(zip(series.index, series, levels, strict=True))[
                :: -(-len(series) // MOST_READINGS)
            ]
        ],
    }


# The page of comparisons: sentences, tables and charts of groups, effects and scores in one self-contained file.
#
# Text and tables are in the file itself; the script only draws charts of numbers that are in the tables, too.


SCRIPTS = ("numbers", "elements", "axes", "plots", "tools", "comparisons")
Part = Comparison | Effects | Scores


def write_comparisons(parts: Sequence[Part], path: str | os.PathLike[str]) -> Path:
    """Write one page of comparisons, effects and scores to ``path``, in this order, and return the path."""
    target = check_target(path)
    return _files.write_text(target, render_comparisons(parts), error=ArgumentError)


def render_comparisons(parts: Sequence[Part]) -> str:
    """The page as HTML.

    >>> import vmselect as vs
    >>> "<h1" in render_comparisons([vs.compare({"a": [1.0, 2.0], "b": [2.0, 3.0]})])
    True
    """
    parts = list_items(parts)
    for part in parts:
        if not isinstance(part, Part):
            raise ArgumentError(f"A page holds comparisons, effects and scores, not {show(part)}.")
    if not parts:
        raise ArgumentError("There is nothing to show. Give a comparison, effects or scores.")
    plots: list[dict[str, Any]] = []
    sections = [_section(number, part, plots) for number, part in enumerate(parts, 1)]
    titles = [_title(part) for part in parts]
    content = {
        "page": {
            "title": f"vmselect comparison: {' · '.join(titles)}",
            "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "subject": _subject(parts),
        },
        "plots": plots,
        "parts": [part.payload() for part in parts],
    }
    main = "\n".join([_hero(parts, titles), *sections, _method(parts)])
    return assemble(content, main=main, scripts=SCRIPTS, first=("part1", "the comparison"))


def _title(part: Part) -> str:
    if isinstance(part, Scores):
        return part.title
    words = ", ".join(part.by if isinstance(part, Comparison) else part.names).replace("_", " ")
    how = "by" if isinstance(part, Comparison) else "and its factors:"
    return capitalize(f"{part.metric.noun} {how} {words}")


def _subject(parts: Iterable[Part]) -> list[str]:
    """How much there is on the page."""
    runs = max((len(part.runs.runs) for part in parts if not isinstance(part, Scores)), default=0)
    models = {
        str(model)
        for part in parts
        if not isinstance(part, Scores)
        for record in part.runs.records
        if (model := getattr(record, "model", None))
    }
    return [*sorted(models)[:1], *([f"{runs} run{'s' * (runs != 1)}"] if runs else [])]


def _hero(parts: Sequence[Part], titles: Sequence[str]) -> str:
    """The first answer large; where there are several, links to all."""
    links = "".join(
        f'<li><a href="#part{number}" dir="auto">{escape(title)}</a></li>' for number, title in enumerate(titles, 1)
    )
    contents = f'<ul class="contents">{links}</ul>' if len(parts) > 1 else ""
    verdict = escape(capitalize(parts[0].verdict))
    return f'<section class="hero"><h1 id="verdict" dir="auto">{verdict}</h1>{contents}</section>'


def _section(number: int, part: Part, plots: list[dict[str, Any]]) -> str:
    """One part as markup; its charts are added to ``plots`` and drawn where their numbers stand."""
    own = (
        comparison_plots(part)
        if isinstance(part, Comparison)
        else effects_plots(part)
        if isinstance(part, Effects)
        else []
    )
    hosts = "".join(_host(len(plots) + i, plot) for i, plot in enumerate(own))
    pictures = f'<div class="plots">{hosts}</div>' if hosts else ""
    plots += own
    verdict = number > 1  # the first stands at the top
    if isinstance(part, Comparison):
        body = comparison_html(part, pictures=pictures, verdict=verdict)
    elif isinstance(part, Effects):
        body = effects_html(part, pictures=pictures, verdict=verdict)
    else:
        body = scores_html(part, verdict=verdict)
    head = f'<h2 id="part{number}-title" dir="auto">{escape(_title(part))}</h2>'
    return (
        f'<section class="section tables" id="part{number}" aria-labelledby="part{number}-title">{head}{body}</section>'
    )


def _host(number: int, plot: dict[str, Any]) -> str:
    words = f'<p class="lede" dir="auto">{escape(plot["lede"])}</p>' if plot["lede"] else ""
    wide = "" if plot.get("narrow") else ' class="wide"'
    title = f'<h3 dir="auto">{escape(plot["title"])}</h3>'
    return f'<div{wide}>{title}{words}<div class="chart-host" data-plot="{number}"></div></div>'


def _method(parts: Iterable[Part]) -> str:
    facts: list[tuple[str, str]] = []
    for part in parts:
        if isinstance(part, Comparison):
            facts += [
                ("Repetition", "a run" if part.unit == "runs" else f"{part.unit} of a run, corrected for correlation"),
                ("Test", f"{part.test.name}; pairs by Mann-Whitney, Holm-corrected; alpha {part.test.alpha:g}"),
                ("Intervals", f"{part.confidence:.0%}, of the ratio of means by bootstrap"),
            ]
        elif isinstance(part, Effects):
            what = "percentages (log scale)" if part.scale == "log" else "differences (linear scale)"
            facts.append(("Effects", f"{what}, {part.fit.confidence:.0%} intervals"))
        else:
            facts.append(("Scores", "grade of each need × its weight, in points of 100"))
    rows = "".join(f'<dt>{escape(name)}</dt><dd dir="auto">{escape(fact)}</dd>' for name, fact in dict.fromkeys(facts))
    body = f'<h2 id="method-title">How this was computed</h2><dl class="facts">{rows}</dl>'
    return f'<section class="section" id="method" aria-labelledby="method-title">{body}</section>'
