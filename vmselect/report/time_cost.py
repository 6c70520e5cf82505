"""Time against cost, with intervals and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.report.drawing import ACCENT, HEIGHT, PLAIN, WIDTH, altair, deciding_rows, require_some, themed
from vmselect.units import count_epochs, hours

if TYPE_CHECKING:
    from vmselect.ranking import Ranking

MOST_POINTS = 400
MOST_NAMES = 12
SIDES = (("left", 7, -10), ("left", 7, 11), ("left", 9, 0), ("right", -9, 0), ("right", -7, -10), ("right", -7, 11))
"""Where a name may stand beside its point: alignment and offset in pixels, best first."""


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
    require_some(ranking, data)
    kinds = alt.Scale(domain=["best", "Pareto front", "other"], range=[ACCENT, "#58a9e0", PLAIN])
    wide = max((_span(data[name]) for name in ("hours", "cost_usd")), default=1.0) > 12
    scale = alt.Scale(type="log", nice=False, padding=24) if wide else alt.Scale(zero=True)
    axis = alt.Axis(tickCount=6)
    x = alt.X("hours:Q", title="Hours of training", scale=scale, axis=axis)
    y = alt.Y("cost_usd:Q", title="Cost in USD", scale=scale, axis=axis)
    base = alt.Chart(data).encode(
        color=alt.Color("kind:N", scale=kinds, title=None, legend=alt.Legend(symbolOpacity=1))
    )
    front = alt.Chart(data[data["kind"] != "other"]).mark_line(strokeDash=[2, 4], color=ACCENT)
    tooltip = ["machine:N", "rank:Q", "hours:Q", "cost_usd:Q", "usd_per_hour:Q"]
    layers = [
        front.encode(x=x, y=y, order="hours:Q"),
        base.mark_rule(opacity=0.5).encode(x=alt.X("hours_low:Q", title="Hours of training"), x2="hours_high:Q", y=y),
        base.mark_rule(opacity=0.5).encode(x=x, y=alt.Y("cost_low:Q", title="Cost in USD"), y2="cost_high:Q"),
        base.mark_circle(size=80, opacity=1).encode(x=x, y=y, tooltip=tooltip),
    ]
    named = data.head(MOST_NAMES)
    most = (data["hours_high"].max(), data["cost_high"].max())
    sides = choose_sides(named["hours"], named["cost_usd"], named["machine"], most=most, log=wide)
    for align, dx, dy in SIDES:
        here = named[[side == (align, dx, dy) for side in sides]]
        text = alt.Chart(here).mark_text(align=align, dx=dx, dy=dy, color="#1b1f24")
        layers.append(text.encode(x=x, y=y, text="machine:N"))
    return themed(alt.layer(*layers), title=f"Time against cost, {_at(ranking)}")


def choose_sides(
    x: Iterable[float], y: Iterable[float], texts: Iterable[str], *, most: tuple[float, float], log: bool
) -> list[tuple[str, int, int] | None]:
    """For each point, the side on which its name covers no other name or point, or None where there is none.

    ``most`` is how far the axes reach. Names stay right of the vertical one.
    """
    across = _pixels(x, WIDTH, most=most[0], log=log)
    up = _pixels(y, HEIGHT, most=most[1], log=log)
    taken = [(a - 5, a + 5, b - 5, b + 5) for a, b in zip(across, up, strict=True)]
    chosen: list[tuple[str, int, int] | None] = []
    for a, b, text in zip(across, up, texts, strict=True):
        width = 6.2 * len(text)
        chosen.append(None)
        for align, dx, dy in SIDES:
            left = a + dx - (width if align == "right" else 0)
            area = (left, left + width, b - dy - 6, b - dy + 6)
            if left >= 0 and all(area[1] < t[0] or area[0] > t[1] or area[3] < t[2] or area[2] > t[3] for t in taken):
                taken.append(area)
                chosen[-1] = (align, dx, dy)
                break
    return chosen


def _pixels(values: Iterable[float], size: int, *, most: float, log: bool) -> list[float]:
    """Where values come to lie on an axis of ``size`` pixels, accurate enough to find names that collide."""
    *placed, high = [math.log(max(value, 1e-12)) if log else value for value in (*values, most)]
    low = min(placed, default=0.0) if log else 0.0
    return [size * (value - low) / ((high - low) or 1.0) for value in placed]


def _at(ranking: Ranking) -> str:
    count = ranking.settings.decide_at
    return count_epochs(count) if count else "epochs of the study"


def _span(values: pd.Series[float]) -> float:
    """How many times the smallest value the largest is."""
    return float(values.max() / values.min()) if len(values) and values.min() > 0 else 1.0
