"""The chart of the price history of the recommended GPU."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pandas as pd

from vmselect.catalog.history import MONTHS, describe_trends, price_history
from vmselect.errors import RankingError
from vmselect.report.charts import SERIES, Chart, altair, color_by, require_some, themed

if TYPE_CHECKING:
    from vmselect.ranking import Ranking


def price_points(ranking: Ranking) -> pd.DataFrame:
    """A row per provider, market and month: the prices per GPU-hour of the recommended GPU in the last 12 months.

    The markets are those of the ranking, on demand in any case. Empty if no history of this GPU is known.
    """
    gpu = ranking.best.gpu_model if ranking else None
    if not gpu:
        return price_history("none")
    rows = price_history(gpu, months=MONTHS)
    markets = {"on_demand", *(ranking.settings.market or ("on_demand", "spot"))}
    return rows[rows["market"].isin(markets)].reset_index(drop=True)


def price_section(ranking: Ranking) -> dict[str, Any] | None:
    """The price history as values for the page: months, a line per provider and market, and sentences about trends."""
    rows = price_points(ranking)
    if rows.empty:
        return None
    months = sorted(rows["month"].unique())
    lines = [
        {
            "name": f"{provider} {str(market).replace('_', ' ')}",
            "points": [
                [months.index(month), float(usd)]
                for month, usd in zip(prices["month"], prices["median_usd"], strict=True)
            ],
        }
        for (provider, market), prices in rows.groupby(["provider", "market"], sort=True)
    ]
    return {"gpu": str(rows["gpu_model"].iloc[0]), "months": months, "lines": lines, "trends": describe_trends(rows)}


def prices_chart(ranking: Ranking) -> Chart:
    """Draw the median price per GPU-hour of the recommended GPU by month, a line per provider and market.

    The band of a line reaches down to the lowest price of a region.
    """
    alt = altair()
    require_some(ranking, ranking.deciding_rows)
    data = price_points(ranking)
    if data.empty:
        raise RankingError(
            f"No price history of {ranking.best.gpu_model or 'a machine without a GPU'} is known. Draw another chart."
        )
    data = data.assign(offer=data["provider"] + " " + data["market"].str.replace("_", " "))
    names = dict(zip(dict.fromkeys(data["offer"]), itertools.cycle(SERIES), strict=False))
    color = color_by("offer", names, title=None, legend=alt.Legend(symbolOpacity=1))
    base = alt.Chart(data).encode(x=alt.X("month:O", title=None), color=color)
    lines = base.mark_line(point=True).encode(
        y=alt.Y("median_usd:Q", title="USD per GPU-hour"),
        tooltip=["offer:N", "month:O", "median_usd:Q", "lowest_usd:Q", "regions:Q"],
    )
    bands = base.mark_area(opacity=0.12).encode(y=alt.Y("median_usd:Q"), y2="lowest_usd:Q")
    bands = bands.transform_filter("isValid(datum.lowest_usd)")
    title = f"Prices of the {data['gpu_model'].iloc[0]}, {data['month'].min()} to {data['month'].max()}"
    return themed(alt.layer(bands, lines), title=title)
