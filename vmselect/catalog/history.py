"""Price history: the median and the lowest price per GPU-hour of a few providers, by month.

The history describes the past. It contains no forecast.
"""

from __future__ import annotations

import functools

import pandas as pd

from vmselect._checks import check_name, maybe
from vmselect._io import pricing_folder
from vmselect.catalog.gpu_names import find_gpus
from vmselect.units import format_usd

MONTHS = 12
"""Number of months of which a trend is described."""


@functools.cache
def _history() -> pd.DataFrame:
    return pd.read_csv(pricing_folder() / "price-history.csv")


def price_history(gpu: str, *, market: str | None = None, months: int | None = None) -> pd.DataFrame:
    """Return the monthly prices of a GPU model in USD per GPU-hour; empty if none are known.

    The columns are ``provider``, ``gpu_model``, ``market``, ``month`` (2026-08), ``median_usd`` and ``lowest_usd`` over
    the provider's regions, and their number, ``regions``. ``months`` restricts the table to the last months in it.

    >>> price_history("H100", market="on_demand", months=12)["provider"].unique().tolist()
    ['aws', 'gcp', 'lambda', 'runpod']
    """
    rows = _history()
    rows = rows[rows["gpu_model"].isin(find_gpus(check_name("gpu", gpu), rows["gpu_model"].unique()))]
    if maybe(check_name, "market", market) is not None:
        rows = rows[rows["market"] == market]
    if months is not None:
        rows = rows[rows["month"].isin(sorted(_history()["month"].unique())[-months:])]
    return rows.reset_index(drop=True)


def describe_trends(rows: pd.DataFrame) -> list[str]:
    """Return a sentence per provider and market with the change and the spread of its median price in ``rows``."""
    sentences = []
    for (provider, market), prices in rows.groupby(["provider", "market"], sort=True):
        prices = prices.sort_values("month")
        first, last = prices.iloc[0], prices.iloc[-1]
        change = 100 * (last["median_usd"] / first["median_usd"] - 1)
        moved = "unchanged" if abs(change) < 0.5 else f"{change:+.0f} %"
        low, high = format_usd(prices["median_usd"].min()), format_usd(prices["median_usd"].max())
        spread = f"between {low} and {high}" if low != high else f"at {low}"
        name = f"{provider} {str(market).replace('_', ' ')}"
        when = f"{moved} from {first['month']} to {last['month']}" if len(prices) > 1 else f"in {last['month']}"
        sentences.append(f"{name}: {when}, {spread} per GPU-hour.")
    return sentences
