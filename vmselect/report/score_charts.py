"""Charts of a score of forecasts: observed against promised coverage of intervals, and forecasts against real times."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.errors import ArgumentError
from vmselect.report.chart_style import ACCENT, PLAIN, altair, color_by, draw, themed

if TYPE_CHECKING:
    from vmselect.report.comparison_charts import Plot
    from vmselect.scoring.score import Score

MAX_POINTS = 2_000
SHOWN_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""Confidence levels in the chart of the HTML page."""


def reliability_plot(score: Score) -> Plot:
    """The data of the reliability chart (observed against promised coverage) for the HTML page."""
    data = score.reliability
    shown = data[data["confidence"].isin(SHOWN_LEVELS)]
    names = [f"{level:.0%}" for level in shown["confidence"]]

    observed = [
        {"level": level, "value": 100 * row["coverage"], "low": 100 * row["low"], "high": 100 * row["high"],
         "text": ["observed", level, f"{row['coverage']:.0%} ({row['low']:.0%} to {row['high']:.0%})"]}
        for level, row in zip(names, shown.to_dict("records"), strict=True)
    ]  # fmt: skip
    promised = [
        {"level": level, "value": 100 * value, "text": ["promised", level]}
        for level, value in zip(names, shown["confidence"], strict=True)
    ]

    return {
        "kind": "lines",
        "title": "Reliability",
        "lede": "Share of the real times inside the intervals, by the confidence level that was promised. "
        "Intervals are too narrow where the observed line is below the promised one. Vertical lines are 90% intervals.",
        "label": "Observed and promised coverage by confidence level",
        "axis": "Coverage (%)",
        "factor": "confidence",
        "levels": names,
        "lines": [
            {"name": "observed", "slot": 0, "points": observed},
            {"name": "promised", "slot": 6, "points": promised},
        ],
    }


def reliability_chart(score: Score) -> Any:
    """Draw the observed coverage, with its interval, against the promised coverage; the diagonal is perfect."""
    alt = altair()
    data = score.reliability
    _require(score)
    percent = alt.Axis(format="%")
    x = alt.X("confidence:Q", title="Promised coverage", axis=percent, scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("coverage:Q", title="Observed coverage", axis=percent, scale=alt.Scale(domain=[0, 1]))
    ends = pd.DataFrame({"confidence": [0.0, 1.0], "coverage": [0.0, 1.0]})
    diagonal = alt.Chart(ends).mark_line(color=PLAIN, strokeDash=[4, 4]).encode(x=x, y=y)
    band = alt.Chart(data).mark_area(color=ACCENT, opacity=0.15).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    tooltip = ["confidence:Q", "coverage:Q", "low:Q", "high:Q"]
    observed = alt.Chart(data).mark_line(color=ACCENT, point=True).encode(x=x, y=y, tooltip=tooltip)
    return themed(alt.layer(band, diagonal, observed), title=f"Reliability of {len(score)} forecasts")


def error_points(score: Score) -> pd.DataFrame:
    """A row per forecast: title, real hours, predicted hours with interval, and whether the real time is inside."""
    rows = [
        (case.title, case.real_seconds / 3600, *(part / 3600 for part in case.estimate), case.inside)
        for case in score.cases[-MAX_POINTS:]
    ]
    data = pd.DataFrame(rows, columns=["training", "real", "forecast", "low", "high", "inside"])
    return data.assign(interval=data["inside"].map({True: "inside", False: "outside"}))


def error_chart(score: Score) -> Any:
    """Draw the forecasts with their intervals against the real times, both in hours on a log scale."""
    alt = altair()
    _require(score)
    data = error_points(score)
    data = data[(data["real"] > 0) & (data["forecast"] > 0)]
    data = data.assign(low=data["low"].clip(lower=data["forecast"] / 100))
    log = alt.Scale(type="log", nice=False, padding=12)
    x = alt.X("real:Q", title="Real hours", scale=log)
    color = color_by("interval", {"inside": ACCENT, "outside": "#d55e00"}, title="Real time")
    tooltip = ["training:N", "real:Q", "forecast:Q", "low:Q", "high:Q"]
    base = alt.Chart(data)
    rules = base.mark_rule().encode(x=x, y=alt.Y("low:Q", title="Forecast hours", scale=log), y2="high:Q", color=color)
    points = base.mark_circle(size=50).encode(x=x, y=alt.Y("forecast:Q", scale=log), color=color, tooltip=tooltip)
    least, most = (float(data[["real", "forecast"]].agg(end).agg(end)) for end in ("min", "max"))
    ends = pd.DataFrame({"real": [least, most], "forecast": [least, most]})
    diagonal = alt.Chart(ends).mark_line(color=PLAIN, strokeDash=[4, 4]).encode(x=x, y=alt.Y("forecast:Q", scale=log))
    return themed(alt.layer(diagonal, rules, points), title=f"Forecasts of {len(score)} trainings")


def _require(score: Score) -> None:
    if not score:
        raise ArgumentError(f"There is nothing to draw. {score.verdict}")


score_chart = partial(draw, {"reliability": reliability_chart, "errors": error_chart})
"""Draw a score as chart ``kind``: ``reliability`` or ``errors``."""
