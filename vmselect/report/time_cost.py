"""Time against cost, with intervals and the Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.report.drawing import ACCENT, PLAIN, altair, deciding_rows, themed
from vmselect.units import hours

if TYPE_CHECKING:
    from vmselect.ranking import Ranking

MOST_POINTS = 400
MOST_NAMES = 12


def time_cost_points(ranking: Ranking, *, most: int = MOST_POINTS) -> pd.DataFrame:
    """A row per candidate at the deciding epoch count: hours and dollars with intervals, and what kind of point it is.

    ``kind`` is ``best``, ``Pareto front`` or ``other``. The best ``most`` candidates are given.
    """
    columns = [
        "machine", "rank", "hours", "hours_low", "hours_high",
        "cost_usd", "cost_low", "cost_high", "usd_per_hour", "kind",
    ]  # fmt: skip
    points = [
        (
            label, row.rank, hours(row.seconds), hours(row.seconds_low), hours(row.seconds_high),
            row.cost_usd, row.cost_low, row.cost_high, row.usd_per_hour,
            "best" if row.rank == 1 else "Pareto front" if row.pareto else "other",
        )
        for label, row in deciding_rows(ranking, most=most)
    ]  # fmt: skip
    return pd.DataFrame(points, columns=columns)


def time_cost_chart(ranking: Ranking) -> Any:
    """Draw :func:`time_cost_points`: down and to the left is better."""
    alt = altair()
    data = time_cost_points(ranking)
    kinds = alt.Scale(domain=["best", "Pareto front", "other"], range=[ACCENT, "#58a9e0", PLAIN])
    scales = {name: _scale(data[name]) for name in ("hours", "cost_usd")}
    base = alt.Chart(data).encode(color=alt.Color("kind:N", scale=kinds, title=None))
    x = alt.X("hours:Q", title="Hours of training", scale=alt.Scale(**scales["hours"]))
    y = alt.Y("cost_usd:Q", title="Cost in USD", scale=alt.Scale(**scales["cost_usd"]))
    front = (
        alt.Chart(data[data["kind"] != "other"])
        .mark_line(strokeDash=[2, 4], color=ACCENT)
        .encode(x=x, y=y, order="hours:Q")
    )
    tooltip = ["machine:N", "rank:Q", "hours:Q", "cost_usd:Q", "usd_per_hour:Q"]
    layers = [
        front,
        base.mark_rule(opacity=0.5).encode(x=alt.X("hours_low:Q", title="Hours of training"), x2="hours_high:Q", y=y),
        base.mark_rule(opacity=0.5).encode(x=x, y=alt.Y("cost_low:Q", title="Cost in USD"), y2="cost_high:Q"),
        base.mark_circle(size=80, opacity=1).encode(x=x, y=y, tooltip=tooltip),
        alt.Chart(data.head(MOST_NAMES))
        .mark_text(align="left", dx=8, dy=-7, color="#1b1f24")
        .encode(x=x, y=y, text="machine:N"),
    ]
    return themed(alt.layer(*layers), title=f"Time against cost, {_at(ranking)}")


def _at(ranking: Ranking) -> str:
    count = ranking.settings.decide_at
    return f"{count} epochs" if count else "epochs of the study"


def _scale(values: pd.Series[float]) -> dict[str, object]:
    """Logarithmic where the values span more than twenty times."""
    smallest = float(values.min()) if len(values) else 0.0
    return {"type": "log", "nice": True} if smallest > 0 and float(values.max()) / smallest > 20 else {"zero": True}
