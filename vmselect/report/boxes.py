"""Groups beside each other: boxes with every point, differences against the base, series with their levels."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.errors import ComparisonError
from vmselect.report.drawing import ACCENT, PLAIN, altair, draw, themed

if TYPE_CHECKING:
    from vmselect.comparison import Comparison

MOST_READINGS = 4_000
ROW_HEIGHT = 44
SCALED = {"s": ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (180.0, 1.0, "s"), (10_800.0, 1 / 60, "min"))}
"""Units to draw in: up to this value, times this, called that. Beyond all, hours."""


def drawing_unit(largest: float, unit: str) -> tuple[float, str]:
    """What to multiply values by, and the unit they are then in.

    >>> drawing_unit(0.02, "s"), drawing_unit(7, "examples/s")
    ((1000.0, 'ms'), (1.0, 'examples/s'))
    """
    if unit != "s":
        return 1.0, unit
    for most, factor, name in SCALED["s"]:
        if largest < most:
            return factor, name
    return 1 / 3600, "h"


def axis_title(noun: str, unit: str) -> str:
    """A noun with a capital letter, and its unit as it is written.

    >>> axis_title("transfer rate", "MB/s")
    'Transfer rate, MB/s'
    """
    return f"{noun[:1].upper()}{noun[1:]}{f', {unit}' if unit else ''}"


def box_points(comparison: Comparison) -> pd.DataFrame:
    """Every run: group, value, and an offset that keeps points of one group from covering each other."""
    points = comparison.points
    place = points.groupby("group").cumcount()
    # A fixed pattern instead of chance: the same picture for the same data.
    points["offset"] = [((index * 7) % 11 - 5) / 11 for index in place]
    return points


def difference_points(comparison: Comparison) -> pd.DataFrame:
    """Each group against the base in percent, with its interval; the base itself is at 0."""
    return comparison.groups[["group", "percent", "percent_low", "percent_high", "baseline"]]


def series_points(comparison: Comparison, *, most: int = MOST_READINGS) -> pd.DataFrame:
    """Readings inside runs in order, with the level of the part of the run they belong to."""
    shifts = comparison.shifts
    rows = []
    every = [(name, number, run) for name, runs in comparison.members.items() for number, run in enumerate(runs, 1)]
    readings = sum(len(run.series) for _, _, run in every)
    stride = max(1, -(-readings // most))
    for name, number, run in every:
        here = shifts[(shifts["group"] == name) & (shifts["run"] == number)]
        edges = [0, *(int(edge) for edge in here["after"]), len(run.series)]
        for start, end in itertools.pairwise(edges):
            if end > start:
                level = float(pd.Series(run.series[start:end]).median())
                rows += [(name, number, i + 1, run.series[i], level) for i in range(start, end, stride)]
    return pd.DataFrame(rows, columns=["group", "run", "reading", "value", "level"])


def comparison_chart(
    comparison: Comparison, kind: str = "boxes", *, path: str | os.PathLike[str] | None = None, **options: Any
) -> Any:
    """The chart of that name; with ``path`` it is also written as PNG, SVG, JSON or HTML."""
    return draw(CHARTS, kind, comparison, path, options)


def _boxes(comparison: Comparison) -> Any:
    alt = altair()
    data = box_points(comparison)
    factor, unit = drawing_unit(float(data["value"].abs().max()), comparison.metric.unit)
    data["shown"] = data["value"] * factor
    order = list(comparison.members)
    title = axis_title(comparison.metric.noun, unit)
    x = alt.X("shown:Q", title=title, scale=alt.Scale(zero=False, padding=12))
    y = alt.Y("group:N", title=None, sort=order, axis=alt.Axis(labelLimit=240))
    base = alt.Chart(data)
    tooltip = ["group:N", "run:N", "shown:Q", "date:N"]
    points = base.mark_circle(size=46, opacity=0.75, color=ACCENT).encode(
        x=x, y=y, yOffset=alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1, 1])), tooltip=tooltip
    )
    layers = [points]
    if len(data) > len(order):
        box = base.mark_boxplot(
            extent="min-max", size=26, box={"fill": "#e8ecf1", "stroke": PLAIN}, median={"color": "#1b1f24"},
            rule={"stroke": PLAIN},
        )  # fmt: skip
        layers.insert(0, box.encode(x=x, y=y))
    return themed(alt.layer(*layers), title=_title(comparison), height=max(120, ROW_HEIGHT * len(order) + 20))


def _differences(comparison: Comparison) -> Any:
    alt = altair()
    data = difference_points(comparison)
    order = list(comparison.members)
    y = alt.Y("group:N", title=None, sort=order, axis=alt.Axis(labelLimit=240))
    title = f"Difference against {comparison.baseline}, percent"
    dots = alt.Chart(data).mark_circle(size=90, opacity=1, color=ACCENT)
    rules = alt.Chart(data.dropna()).mark_rule(color=ACCENT, strokeWidth=2)
    zero = alt.Chart(pd.DataFrame({"percent": [0.0]})).mark_rule(color=PLAIN, strokeDash=[3, 3]).encode(x="percent:Q")
    layers = [
        zero,
        rules.encode(x=alt.X("percent_low:Q", title=title), x2="percent_high:Q", y=y),
        dots.encode(x=alt.X("percent:Q", title=title), y=y, tooltip=["group:N", "percent:Q"]),
    ]
    return themed(alt.layer(*layers), title=_title(comparison), height=max(120, ROW_HEIGHT * len(order)))


def _series(comparison: Comparison) -> Any:
    alt = altair()
    data = series_points(comparison)
    if not len(data):
        raise ComparisonError("These runs hold no single readings, so there is no series to draw. Draw boxes instead.")
    factor, unit = drawing_unit(float(data["value"].quantile(0.98)), comparison.metric.unit)
    data["shown"], data["shown_level"] = data["value"] * factor, data["level"] * factor
    title = axis_title(comparison.metric.noun, unit)
    x = alt.X("reading:Q", title="Reading")
    base = alt.Chart().encode(detail="run:N")
    dots = base.mark_circle(size=14, opacity=0.45, color=PLAIN).encode(
        x=x, y=alt.Y("shown:Q", title=title, scale=alt.Scale(zero=False))
    )
    level = base.mark_line(color=ACCENT, strokeWidth=2, interpolate="step").encode(x=x, y="shown_level:Q")
    height = 110
    faceted = alt.layer(dots, level, data=data).properties(width=560, height=height)
    row = alt.Row(
        "group:N", title=None, sort=list(comparison.members), header=alt.Header(labelOrient="top", labelAnchor="start")
    )
    return faceted.facet(row=row).properties(title=_title(comparison)).configure_view(stroke=None)


def _title(comparison: Comparison) -> str:
    by = ", ".join(comparison.by).replace("_", " ")
    return axis_title(f"{comparison.metric.noun} by {by}", "")


CHARTS: Mapping[str, Callable[..., Any]] = {"boxes": _boxes, "differences": _differences, "series": _series}
"""Every chart that a comparison can draw."""
