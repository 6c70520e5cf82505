"""What the charts of the page of comparisons draw, as plain values; ``assets/plots.js`` draws them.

A plot is ``kind`` (boxes, intervals, lines or series), ``title``, ``lede``, ``label`` (spoken), and its numbers. Values
are in the unit that the axis names; ``text`` is what a mark says.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.comparison.differences import summarise
from vmselect.comparison.wording import format_percent, format_value
from vmselect.report.boxes import axis_title, difference_points, drawing_unit, series_points
from vmselect.report.effects import interaction_points, main_points

if TYPE_CHECKING:
    from vmselect.comparison import Comparison, Effects
    from vmselect.comparison.runs import Run

MOST_GROUPS = 60
MOST_POINTS = 2_000
MOST_ROWS = 60
MOST_PANELS = 6
MOST_SERIES, MOST_READINGS = 6, 400

Plot = dict[str, Any]


def comparison_plots(comparison: Comparison) -> list[Plot]:
    """Boxes with every point, differences against the base, and the runs inside which the level changed."""
    noun = comparison.metric.noun
    by = ", ".join(comparison.by).replace("_", " ")
    plots = [_boxes(comparison.members, noun, comparison.metric.unit, label=f"{noun} by {by}, every run a point")]
    if len(comparison.members) > 1:
        plots.append(_differences(comparison))
    return [*plots, *_series(comparison)]


def effects_plots(effects: Effects) -> list[Plot]:
    """Main effects, interactions as lines and with their intervals, and the cells with every run."""
    cells: dict[str, list[Run]] = {}
    for position, run in zip(effects.positions, effects.runs.runs, strict=True):
        levels = [effects.fit.levels[i][at] for i, at in enumerate(position)]
        cells.setdefault(", ".join(f"{n} = {v}" for n, v in zip(effects.names, levels, strict=True)), []).append(run)
    noun, unit = effects.metric.noun, effects.metric.unit
    plots = [_main(effects), *_lines(effects)]
    together = _interactions(effects)
    return [*plots, *together, _boxes(dict(sorted(cells.items())), noun, unit, label=f"{noun} of every combination")]


# -- one each ----------------------------------------------------------------------------------------------------------


def _boxes(members: Mapping[str, Sequence[Run]], noun: str, unit: str, *, label: str) -> Plot:
    shown = dict(itertools.islice(members.items(), MOST_GROUPS))
    runs = [run for some in shown.values() for run in some]
    factor, named = drawing_unit(max(abs(run.value) for run in runs), unit)
    stride = -(-len(runs) // MOST_POINTS)
    rows = []
    for name, some in shown.items():
        summary = summarise([run.value for run in some])
        edges = (summary.minimum, summary.quartile_1, summary.median, summary.quartile_3, summary.maximum)
        points = [
            {
                "value": run.value * factor,
                # A fixed pattern instead of chance: the same picture for the same data.
                "offset": ((i * 7) % 11 - 5) / 11,
                "text": [name, format_value(run.value, unit), *(part for part in (run.title, run.date) if part)],
            }
            for i, run in enumerate(some[::stride])
        ]
        rows.append({"name": name, "edges": [edge * factor for edge in edges], "points": points})
    left = [f"the first {MOST_GROUPS} of {len(members)} groups"] if len(members) > len(shown) else []
    left += [f"every {stride}th of {len(runs):,} runs"] if stride > 1 else []
    return {
        "kind": "boxes",
        "title": "Every run",
        "lede": "The box is the middle half of the runs, its line the median; the thin line goes from least to most."
        + (f" Shown: {', '.join(left)}." if left else ""),
        "label": label,
        "axis": axis_title(noun, named),
        "rows": rows,
    }


def _differences(comparison: Comparison) -> Plot:
    rows = difference_points(comparison).head(MOST_ROWS).to_dict("records")
    return {
        "kind": "intervals",
        "title": f"Against {comparison.baseline}",
        "lede": "The bars are intervals: one that reaches 0 is no difference that these runs show.",
        "label": f"Difference of each group against {comparison.baseline} in percent",
        "axis": "Percent",
        "rows": [
            _interval(row["group"], row, slot=0) | ({"text": [row["group"], "the base"]} if row["baseline"] else {})
            for row in rows
        ],
    }


def _main(effects: Effects) -> Plot:
    rows = main_points(effects).head(MOST_ROWS).to_dict("records")
    slots = {name: i for i, name in enumerate(effects.names)}
    return {
        "kind": "intervals",
        "title": "What each level does",
        "lede": "Against the average over all settings of the other factors; the bars are intervals.",
        "label": f"Effect of each level on the {effects.metric.noun} in percent of the average",
        "axis": "Percent of the average",
        "rows": [_interval(row["label"], row, slot=slots[row["factor"]]) for row in rows],
    }


def _interactions(effects: Effects) -> list[Plot]:
    rows = effects.interactions.head(MOST_ROWS).to_dict("records")
    if not rows:
        return []
    pairs = list(dict.fromkeys((row["factor_1"], row["factor_2"]) for row in rows))
    return [
        {
            "kind": "intervals",
            "title": "What combinations do beyond that",
            "lede": "Beyond what each of the two levels does by itself; a bar that reaches 0 shows no interaction.",
            "label": "Effect of each combination of two levels beyond their own, in percent of the average",
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


def _interval(name: str, row: Mapping[Any, Any], *, slot: int) -> Plot:
    sides = {side: None if pd.isna(row[f"percent_{side}"]) else row[f"percent_{side}"] for side in ("low", "high")}
    known = not pd.isna(row["percent"])
    return {
        "name": name,
        "slot": slot % 7,
        "value": row["percent"] if known else None,
        **sides,
        "text": [name, format_percent(row) if known else "unknown"],
    }


def _lines(effects: Effects) -> list[Plot]:
    """For each pair of factors the averages of their levels: where lines are not parallel, factors interact."""
    data = interaction_points(effects)
    noun, unit = effects.metric.noun, effects.metric.unit
    if not len(data):
        return []
    factor, named = drawing_unit(float(data["mean"].abs().max()), unit)
    plots = []
    for pair, some in itertools.islice(data.groupby("pair", sort=False), MOST_PANELS):
        names = list(dict.fromkeys(some["line"]))[:7]
        plots.append(
            {
                "kind": "lines",
                "narrow": True,
                "title": str(pair),
                "lede": "",
                "label": f"Average {noun} by {pair}",
                "axis": axis_title(noun, named),
                "levels": list(dict.fromkeys(some["level"])),
                "lines": [
                    {
                        "name": name,
                        "slot": slot,
                        "points": [
                            {
                                "level": row["level"],
                                "value": row["mean"] * factor,
                                "text": [name, str(row["level"]), format_value(row["mean"], unit)],
                            }
                            for row in some[some["line"] == name].to_dict("records")
                        ],
                    }
                    for slot, name in enumerate(names)
                ],
            }
        )
    return plots


def _series(comparison: Comparison) -> list[Plot]:
    """Readings of the runs whose level changed on the way."""
    shifted = comparison.shifts[["group", "run"]].drop_duplicates().head(MOST_SERIES).to_dict("records")
    if not shifted:
        return []
    points = series_points(comparison, most=MOST_READINGS * sum(map(len, comparison.members.values())))
    noun, unit = comparison.metric.noun, comparison.metric.unit
    plots = []
    for where in shifted:
        some = points[(points["group"] == where["group"]) & (points["run"] == where["run"])]
        some = some.iloc[:: -(-len(some) // MOST_READINGS)]
        factor, named = drawing_unit(float(some["value"].quantile(0.98)), unit)
        plots.append(
            {
                "kind": "series",
                "narrow": True,
                "title": f"{where['group']}, run {where['run']}",
                "lede": "The level changed inside this run; the line is the median of each part.",
                "label": f"{noun} of {where['group']}, run {where['run']}, reading by reading",
                "axis": axis_title(noun, named),
                "points": [
                    {
                        "position": row["reading"],
                        "value": row["value"] * factor,
                        "level": row["level"] * factor,
                        "text": [format_value(row["value"], unit), f"reading {row['reading']:,}"],
                    }
                    for row in some.to_dict("records")
                ],
            }
        )
    return plots
