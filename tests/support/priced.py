"""Catalogs of a few made-up machines: built once, with other prices for every example.

Checking and merging offers is what a catalog's own tests are about; here it would be most of the time of a ranking's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import vmselect as vs
from vmselect.catalog import COLUMNS

OFFER = {"provider": "lab", "instance_type": "x", "region": "here", "market": "on_demand", "usd_per_hour": 1.0}

MACHINES = tuple(f"m{number}" for number in range(8))
MARKETS = ("on_demand", "spot")

_TABLE = vs.Catalog.embedded(date="2021-02-28").with_offers(
    [
        {"provider": "lab", "instance_type": name, "region": "here", "market": market, "usd_per_hour": 1.0}
        for name in MACHINES
        for market in MARKETS
    ]
).offers("lab", market=None)[list(COLUMNS)].reset_index(drop=True)  # fmt: skip
_ROWS = {pair: row for row, pair in enumerate(zip(_TABLE["instance_type"], _TABLE["market"], strict=True))}


def sell(**markets: Sequence[float | None]) -> vs.Catalog:
    """Prices by market, in the order of :data:`MACHINES`; None is not sold there.

    >>> sell(on_demand=[2.5, 3.0]).price("m1")
    3.0
    """
    price_of = {
        _ROWS[name, market]: price
        for market, prices in markets.items()
        for name, price in zip(MACHINES, prices, strict=False)
        if price is not None
    }
    rows = _TABLE.loc[list(price_of)].reset_index(drop=True)
    return vs.Catalog(rows.assign(usd_per_hour=[float(price) for price in price_of.values()]), origin="made-up prices")


def prices(*rows: tuple[str, float], **columns: Any) -> vs.Catalog:
    """The prices of 2026-08-22 with one more offer per (instance type, USD per hour).

    >>> prices(("x", 2.5), region="there").price("x", region="there")
    2.5
    """
    offers = [{**OFFER, **columns, "instance_type": name, "usd_per_hour": usd} for name, usd in rows]
    return vs.Catalog.embedded("2026-08-22").with_offers(offers)
