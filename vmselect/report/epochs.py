"""Simulated runtime and cost against the number of epochs, with the crossovers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from vmselect.report.drawing import SERIES, altair, labels, require_some, themed
from vmselect.units import hours

if TYPE_CHECKING:
    from vmselect.ranking import Ranking

Value = Literal["time", "cost"]
MOST_LINES = 7


def epochs_points(ranking: Ranking, value: Value, *, most: int = MOST_LINES) -> pd.DataFrame:
    """A row per line and epoch count: machine, epochs, value and its interval (hours for time, USD for cost).

    The lines are the leaders at some epoch count and then the best of the ranking, ``most`` in all.
    """
    counts = _counts(ranking)
    wider = ranking.rerank(epochs=counts, deadline_hours=None, budget_usd=None)
    spread = wider.assessment.time if value == "time" else wider.assessment.cost
    unit = hours if value == "time" else float
    lines = _lines(wider, value, most)
    named = labels(ranking.candidates, lines)
    frames = [
        pd.DataFrame(
            {
                "machine": named[i],
                "epochs": counts,
                "value": [unit(v) for v in spread.value[i]],
                "low": [unit(v) for v in spread.low[i]],
                "high": [unit(v) for v in spread.high[i]],
            }
        )
        for i in lines
    ]
    columns = ["machine", "epochs", "value", "low", "high"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def crossover_points(ranking: Ranking, value: Value) -> pd.DataFrame:
    """A row per change of the leader within the chart: epochs, the new leader, and its value there."""
    rows: list[tuple[int, str, float]] = []
    for change in ranking.crossovers(value, up_to=_counts(ranking)[-1]):
        wider = ranking.rerank(epochs=change.epochs, objective=value, deadline_hours=None, budget_usd=None)
        there = min(wider.rows[:2], key=lambda row: row.score)  # the leader, whichever of the tied is preferred
        rows.append((change.epochs, there.instance_type, hours(there.seconds) if value == "time" else there.cost_usd))
    return pd.DataFrame(rows, columns=["epochs", "machine", "value"])


def epochs_chart(ranking: Ranking, value: Value) -> Any:
    """Draw :func:`epochs_points`: a line per machine, the best one's interval, rings where the leader changes."""
    alt = altair()
    changes, data = crossover_points(ranking, value), epochs_points(ranking, value)
    require_some(ranking, data)
    title = "Hours of training" if value == "time" else "Cost in USD"
    names = list(dict.fromkeys(data["machine"]))
    color = alt.Color(
        "machine:N", title=None, scale=alt.Scale(domain=names, range=list(SERIES[: len(names)])), legend=None
    )
    x, y = alt.X("epochs:Q", title="Epochs"), alt.Y("value:Q", title=title)
    ends = data.groupby("machine", sort=False).tail(1)
    leader = ends.nsmallest(1, "value")["machine"]
    ends = ends.assign(value=_spread_apart(ends["value"].tolist(), share=0.042))
    lines = alt.Chart(data)
    layers: list[Any] = [
        alt.Chart(data[data["machine"].isin(leader)])
        .mark_area(opacity=0.15)
        .encode(x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=color),
        lines.mark_line().encode(
            x=x, y=y, color=color, tooltip=["machine:N", "epochs:Q", "value:Q", "low:Q", "high:Q"]
        ),
        alt.Chart(ends).mark_text(align="left", dx=6).encode(x=x, y=y, text="machine:N", color=color),
    ]
    if len(changes):
        rings = alt.Chart(changes)
        layers.append(
            rings.mark_point(size=90, opacity=1, color="#1b1f24", filled=False).encode(
                x=x, y=y, tooltip=["epochs:Q", "machine:N"]
            )
        )
        words = rings.mark_text(dy=-14, color="#1b1f24").encode(x=x, y=y, text=alt.Text("from:N"))
        layers.append(words.transform_calculate(**{"from": "'from ' + datum.epochs"}))
    what = "Training time" if value == "time" else "Cost"
    return themed(alt.layer(*layers), title=f"{what} against epochs; rings mark a new leader")


def _counts(ranking: Ranking) -> list[int]:
    """Epoch counts to draw: from 1 to twice the deciding one, at most sixty of them."""
    settings = ranking.settings
    most = max(10, 2 * (settings.decide_at or 1), *settings.epochs, 1)
    return sorted({int(n) for n in np.linspace(1, most, 60).round()})


def _spread_apart(values: list[float], *, share: float) -> list[float]:
    """Values moved up until no two are closer than ``share`` of the largest, so that names there can be read."""
    gap = share * max(values, default=0.0)
    placed, floor = list(values), -gap
    for i in sorted(range(len(values)), key=values.__getitem__):
        placed[i] = floor = max(values[i], floor + gap)
    return placed


def _lines(wider: Ranking, value: Value, most: int) -> list[int]:
    order = wider.assessment.order
    spread = (wider.assessment.time if value == "time" else wider.assessment.cost).value
    leaders = [int(rows[np.argmin(spread[rows, column])]) for column, rows in enumerate(order) if len(rows)]
    decided = [int(i) for i in order[len(order) // 2][: 4 * most]] if order else []
    return list(dict.fromkeys([*leaders, *decided]))[:most]
