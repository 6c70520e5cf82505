"""Charts of a designed experiment: main effects with intervals, interactions as lines through cell averages."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.errors import ComparisonError
from vmselect.report.boxes import intervals_chart
from vmselect.report.drawing import ACCENT, SERIES, altair, draw
from vmselect.report.plots import interaction_plots, main_plot

if TYPE_CHECKING:
    from vmselect.comparison import Effects


def effects_chart(
    effects: Effects, kind: str = "main", *, path: str | os.PathLike[str] | None = None, **options: Any
) -> Any:
    """The chart of that name; with ``path`` it is also written as PNG, SVG, JSON or HTML."""
    return draw(CHARTS, kind, effects, path, options)


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


CHARTS: Mapping[str, Callable[..., Any]] = {"main": _main, "interactions": _interactions}
"""Every chart of effects."""
