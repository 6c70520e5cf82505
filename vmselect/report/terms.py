"""The best candidates as bars, split by what the time goes into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.report.drawing import altair, deciding_rows, require_some, themed
from vmselect.units import hours

if TYPE_CHECKING:
    from vmselect.ranking import Ranking

COLORS = {
    "boot": "#8b939d",
    "data_in": "#2a9d8f",
    "initialization": "#b6bcc3",
    "first_iteration": "#d55e00",
    "steady_iterations": "#0072b2",
    "partial_batch": "#56a4d8",
    "first_validation": "#b04e8a",
    "later_validations": "#d9a3c3",
    "epoch_boundaries": "#c9a227",
    "model_out": "#8fcfc6",
    "interruptions": "#5b6470",
}


def terms_points(ranking: Ranking, *, most: int = 12) -> pd.DataFrame:
    """A row per candidate and term at the deciding epoch count: machine, rank, term, seconds, hours, cost_usd.

    The cost of a term is its share of the candidate's cost.
    """
    points = [
        (label, row.rank, term, seconds, hours(seconds), row.cost_usd * seconds / row.seconds if row.seconds else 0.0)
        for label, row in deciding_rows(ranking, most=most)
        for term, seconds in row.terms.items()
    ]
    return pd.DataFrame(points, columns=["machine", "rank", "term", "seconds", "hours", "cost_usd"])


def terms_chart(ranking: Ranking) -> Any:
    """Draw :func:`terms_points`: cost where cost weighs more in the objective, otherwise time."""
    alt = altair()
    data = terms_points(ranking)
    require_some(ranking, data)
    by_time = ranking.settings.objective["time"] > ranking.settings.objective["cost"]
    field, title = ("hours", "Hours of training") if by_time else ("cost_usd", "Cost in USD")
    shown = [term for term in COLORS if term in set(data["term"])]
    bars = (
        alt.Chart(data)
        .mark_bar()
        .encode(
            y=alt.Y("machine:N", title=None, sort=alt.SortField("rank")),
            x=alt.X(f"{field}:Q", title=title, stack=True),
            color=alt.Color(
                "term:N", title=None, scale=alt.Scale(domain=shown, range=[COLORS[term] for term in shown])
            ),
            order=alt.Order("place:Q"),
            tooltip=["machine:N", "term:N", "seconds:Q", "hours:Q", "cost_usd:Q"],
        )
        .transform_calculate(place=f"indexof({shown!r}, datum.term)")
    )
    rows = max(1, data["machine"].nunique())
    return themed(bars, title="Where it goes: the best candidates by term", height=28 * rows)
