"""Effects of a designed experiment: main effects with intervals, interactions as lines through cell averages."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.errors import ComparisonError
from vmselect.report.boxes import axis_title, drawing_unit
from vmselect.report.drawing import ACCENT, PLAIN, SERIES, altair, draw, themed

if TYPE_CHECKING:
    from vmselect.comparison import Effects


def main_points(effects: Effects) -> pd.DataFrame:
    """A row per level: its effect in percent of the average, with its interval."""
    table = effects.main[["factor", "level", "mean", "percent", "percent_low", "percent_high"]].copy()
    table["level"] = [str(level) for level in table["level"]]
    table["label"] = [f"{factor} = {level}" for factor, level in zip(table["factor"], table["level"], strict=True)]
    return table


def interaction_points(effects: Effects) -> pd.DataFrame:
    """For each pair of factors the average of each pair of levels; where lines are not parallel, factors interact."""
    rows = []
    cells = effects.cells[effects.cells["count"] > 0]
    for first, second in itertools.combinations(effects.names, 2):
        for (one, other), some in cells.groupby([first, second], sort=False):
            rows.append((f"{first} x {second}", str(one), f"{second} = {other}", float(some["mean"].mean())))
    return pd.DataFrame(rows, columns=["pair", "level", "line", "mean"])


def effects_chart(
    effects: Effects, kind: str = "main", *, path: str | os.PathLike[str] | None = None, **options: Any
) -> Any:
    """The chart of that name; with ``path`` it is also written as PNG, SVG, JSON or HTML."""
    return draw(CHARTS, kind, effects, path, options)


def _main(effects: Effects) -> Any:
    alt = altair()
    data = main_points(effects)
    title = "Percent of the average"
    y = alt.Y("label:N", title=None, sort=list(data["label"]), axis=alt.Axis(labelLimit=260))
    colour = alt.Color("factor:N", legend=None, scale=alt.Scale(domain=list(effects.names), range=list(SERIES)))
    zero = alt.Chart(pd.DataFrame({"percent": [0.0]})).mark_rule(color=PLAIN, strokeDash=[3, 3])
    bars = (
        alt.Chart(data).mark_bar(height=14, opacity=0.45).encode(x=alt.X("percent:Q", title=title), y=y, color=colour)
    )
    rules = alt.Chart(data.dropna(subset=["percent_low"])).mark_rule(strokeWidth=2.5, color="#1b1f24")
    layers = [
        bars,
        rules.encode(x=alt.X("percent_low:Q", title=title), x2="percent_high:Q", y=y),
        zero.encode(x="percent:Q"),
    ]
    words = f"What each level does to the {effects.metric.noun}"
    return themed(alt.layer(*layers), title=words, height=max(120, 30 * len(data) + 20))


def _interactions(effects: Effects) -> Any:
    alt = altair()
    data = interaction_points(effects)
    if not len(data):
        raise ComparisonError("One factor has no interactions to draw. Draw its main effect instead.")
    factor, unit = drawing_unit(float(data["mean"].abs().max()), effects.metric.unit)
    data["shown"] = data["mean"] * factor
    title = axis_title(effects.metric.noun, unit)
    charts = []
    for pair, some in data.groupby("pair", sort=False):
        base = alt.Chart(some).encode(
            x=alt.X("level:N", title=str(pair).split(" x ")[0], sort=None, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("shown:Q", title=title),
            color=alt.Color("line:N", title=None, sort=None, scale=alt.Scale(range=list(SERIES))),
        )
        lines = alt.layer(base.mark_line(strokeWidth=2), base.mark_circle(size=60, opacity=1))
        charts.append(lines.properties(width=200, height=180, title=str(pair)))
    joined = alt.concat(*charts, columns=3).resolve_scale(color="independent", x="independent")
    return joined.configure_view(stroke=None).configure_title(anchor="start", color=ACCENT)


CHARTS: Mapping[str, Callable[..., Any]] = {"main": _main, "interactions": _interactions}
"""Every chart that effects can be drawn as."""
