"""Data of the comparison charts as plain values, drawn by ``boxes.py``, ``effects.py`` and ``assets/plots.js``.

Each chart is a dictionary: ``kind`` (boxes, intervals, lines or series), ``title``, ``lede`` (the text below the
title), ``label`` (for screen readers), ``axis`` and its numbers in the unit that the axis names. ``text`` is the
tooltip of a mark.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.comparison.differences import summarise
from vmselect.comparison.wording import format_percent, format_value
from vmselect.report.drawing import axis_unit, capitalize

if TYPE_CHECKING:
    from vmselect.comparison import Comparison, Effects
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
        summary = summarise([run.value for run in some])
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
