"""Charts of a comparison: boxes with every run, differences from the baseline, readings inside runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.errors import ComparisonError
from vmselect.report.chart_style import ACCENT, PLAIN, SERIES, altair, capitalize, draw, themed
from vmselect.report.comparison_page import (
    Plot,
    boxes_plot,
    differences_plot,
    interaction_plots,
    main_plot,
    series_plot,
)

if TYPE_CHECKING:
    from vmselect.comparison import Comparison, Effects

ROW_HEIGHT = 44
MOST_SERIES_CHARTS = 12


def comparison_chart(
    comparison: Comparison, kind: str = "boxes", *, path: str | os.PathLike[str] | None = None, **options: Any
) -> Any:
    """The chart of that name; with ``path`` it is also written as PNG, SVG, JSON or HTML."""
    return draw(COMPARISON_CHARTS, kind, comparison, path, options)


def intervals_chart(plot: Plot, *, title: str, axis: str) -> Any:
    """A dot and an interval per row, around a line at zero."""
    alt = altair()
    data = pd.DataFrame(plot["rows"])
    y = alt.Y("name:N", title=None, sort=list(data["name"]), axis=alt.Axis(labelLimit=260))
    color = alt.Color("slot:N", legend=None, scale=alt.Scale(domain=list(range(len(SERIES))), range=list(SERIES)))
    zero = alt.Chart(pd.DataFrame({"value": [0.0]})).mark_rule(color=PLAIN, strokeDash=[3, 3]).encode(x="value:Q")
    dots = alt.Chart(data).mark_circle(size=90, opacity=1)
    rules = alt.Chart(data.dropna(subset=["low", "high"])).mark_rule(strokeWidth=2)
    layers = [
        zero,
        rules.encode(x=alt.X("low:Q", title=axis), x2="high:Q", y=y, color=color),
        dots.encode(x=alt.X("value:Q", title=axis), y=y, color=color, tooltip=["name:N", "value:Q"]),
    ]
    return themed(alt.layer(*layers), title=title, height=max(120, ROW_HEIGHT * len(data)))


def _boxes(comparison: Comparison) -> Any:
    alt = altair()
    plot = boxes_plot(comparison)
    names = [row["name"] for row in plot["rows"]]
    points = pd.DataFrame(
        [
            {"group": row["name"], "value": point["value"], "offset": point["offset"], "run": point["text"][-1]}
            for row in plot["rows"]
            for point in row["points"]
        ]
    )
    x = alt.X("value:Q", title=plot["axis"], scale=alt.Scale(zero=False, padding=12))
    y = alt.Y("group:N", title=None, sort=names, axis=alt.Axis(labelLimit=240))
    dots = alt.Chart(points).mark_circle(size=46, opacity=0.75, color=ACCENT)
    offset = alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1, 1]))
    layers = [dots.encode(x=x, y=y, yOffset=offset, tooltip=["group:N", "run:N", "value:Q"])]
    if len(points) > len(names):
        columns = ["low", "quartile_1", "value", "quartile_3", "high"]
        boxes = alt.Chart(pd.DataFrame([row["edges"] for row in plot["rows"]], columns=columns).assign(group=names))
        layers = [
            boxes.mark_rule(color=PLAIN).encode(x=alt.X("low:Q", title=plot["axis"]), x2="high:Q", y=y),
            boxes.mark_bar(size=26, fill="#e8ecf1", stroke=PLAIN).encode(x="quartile_1:Q", x2="quartile_3:Q", y=y),
            boxes.mark_tick(size=26, thickness=2, color="#1b1f24").encode(x=x, y=y),
            *layers,
        ]
    return themed(alt.layer(*layers), title=_title(comparison), height=max(120, ROW_HEIGHT * len(names) + 20))


def _differences(comparison: Comparison) -> Any:
    axis = f"Difference from {comparison.baseline}, percent"
    return intervals_chart(differences_plot(comparison), title=_title(comparison), axis=axis)


def _series(comparison: Comparison) -> Any:
    alt = altair()
    runs = [
        (group, number)
        for group, members in comparison.members.items()
        for number, run in enumerate(members, 1)
        if run.series
    ]
    if not runs:
        raise ComparisonError("These runs hold no single readings, so there is no series to draw. Draw boxes instead.")
    charts = []
    for group, number in runs[:MOST_SERIES_CHARTS]:
        plot = series_plot(comparison, group, number)
        base = alt.Chart(pd.DataFrame(plot["points"])).encode(x=alt.X("position:Q", title="Reading"))
        y = alt.Y("value:Q", title=plot["axis"], scale=alt.Scale(zero=False))
        dots = base.mark_circle(size=14, opacity=0.45, color=PLAIN).encode(y=y)
        level = base.mark_line(color=ACCENT, strokeWidth=2, interpolate="step").encode(y="level:Q")
        charts.append(alt.layer(dots, level).properties(width=560, height=110, title=plot["title"]))
    return alt.vconcat(*charts, title=_title(comparison)).configure_view(stroke=None)


def _title(comparison: Comparison) -> str:
    return capitalize(f"{comparison.metric.noun} by {', '.join(comparison.by).replace('_', ' ')}")


COMPARISON_CHARTS: Mapping[str, Callable[..., Any]] = {"boxes": _boxes, "differences": _differences, "series": _series}
"""Every chart of a comparison."""


# Charts of a designed experiment: main effects with intervals, interactions as lines through cell averages.


def effects_chart(
    effects: Effects, kind: str = "main", *, path: str | os.PathLike[str] | None = None, **options: Any
) -> Any:
    """The chart of that name; with ``path`` it is also written as PNG, SVG, JSON or HTML."""
    return draw(EFFECT_CHARTS, kind, effects, path, options)


def _main(effects: Effects) -> Any:
    plot = main_plot(effects)
    return intervals_chart(plot, title=plot["label"], axis=plot["axis"])


def _interactions(effects: Effects) -> Any:
    alt = altair()
    plots = interaction_plots(effects)
    if not plots:
        raise ComparisonError("One factor has no interactions to draw. Draw its main effect instead.")
    charts = []
    for plot in plots:
        points = [point | {"line": line["name"]} for line in plot["lines"] for point in line["points"]]
        base = alt.Chart(pd.DataFrame(points)).encode(
            x=alt.X("level:N", title=plot["factor"], sort=None, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("value:Q", title=plot["axis"]),
            color=alt.Color("line:N", title=None, sort=None, scale=alt.Scale(range=list(SERIES))),
        )
        lines = alt.layer(base.mark_line(strokeWidth=2), base.mark_circle(size=60, opacity=1))
        charts.append(lines.properties(width=200, height=180, title=plot["title"]))
    joined = alt.concat(*charts, columns=3).resolve_scale(color="independent", x="independent")
    return joined.configure_view(stroke=None).configure_title(anchor="start", color=ACCENT)


EFFECT_CHARTS: Mapping[str, Callable[..., Any]] = {"main": _main, "interactions": _interactions}
"""Every chart of effects."""
