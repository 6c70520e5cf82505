"""Dates of fetched prices: the last day on which their source shows that a provider asked for them.

The price API of a provider shows that on the day of the request. A catalog that others publish shows it only by a
change: some catalogs repeat for years what was fetched once, so that reading them again confirms nothing. A market of
such a catalog in which a price moved, or a machine was added or removed, was fetched again by its publisher, so that
all its prices are of that day. Without a change its prices keep their dates.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from vmselect.catalog.age import today
from vmselect.catalog.guards import EQUAL
from vmselect.catalog.offer import KEY, OWN_PRICE
from vmselect.findings import Finding


def keep_dates(prices: pd.DataFrame, earlier: pd.DataFrame, *, complete: bool) -> pd.DataFrame:
    """Return ``prices``, the content of a published catalog, with ``earlier`` dates in the markets without a change.

    ``earlier`` is what the same catalog contained before. If that is not ``complete``, a machine that is not in it may
    have been in the catalog.
    """
    names, names_before = (pd.MultiIndex.from_frame(table[list(KEY)].astype(str)) for table in (prices, earlier))
    place = names_before.get_indexer(names)
    matched = place >= 0
    if not matched.any():
        return prices
    with np.errstate(invalid="ignore"):
        ratio = prices["usd_per_hour"].to_numpy(dtype=float) / earlier["usd_per_hour"].to_numpy(dtype=float)[place]
    moved = matched & (np.abs(ratio - 1) > EQUAL)
    markets, before = (
        (table["provider"].astype(str) + " " + table["market"].astype(str)).to_numpy() for table in (prices, earlier)
    )
    changed = set(markets[moved])
    if complete:
        changed |= {*markets[~matched], *before[~names_before.isin(names)]}
    dates, dates_before = (table["date"].astype(str).to_numpy() for table in (prices, earlier))
    for market in set(markets) - changed:
        here = markets == market
        dated = dates_before[place[here & matched]]
        # A market of which nothing was known is as new as the rest of the catalog.
        if len(dated) or not changed:
            newest = max(dated if len(dated) else dates_before)
            kept = np.where(matched[here], dates_before[place[here]], newest)
            dates[here] = np.minimum(dates[here], kept)
    return prices.assign(date=pd.Categorical(dates))


def describe_unchanged(prices: pd.DataFrame, publisher: str) -> Iterator[Finding]:
    """Yield a finding for each provider and market whose prices in a published catalog are all of an earlier day."""
    texts = prices[["provider", "market", "date"]].drop_duplicates().astype(str)
    for (provider, market), dates in texts.groupby(["provider", "market"])["date"]:
        if dates.max() < today().isoformat():
            message = (
                f"The {market} prices of {provider} in {publisher}'s catalog have not changed since {dates.max()}, so "
                "they keep that date: their catalog may not have been updated since."
            )
            yield Finding(
                "unchanged-prices", message, f"If they are right, add them as your own ({OWN_PRICE}).", "info"
            )
