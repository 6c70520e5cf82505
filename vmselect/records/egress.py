"""Egress prices: what it costs to send data out of a cloud or a region."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

from vmselect._checks import check_name, maybe
from vmselect._io import pricing_folder
from vmselect.errors import ArgumentError, CatalogError


@dataclass(frozen=True)
class EgressPrice:
    """The price in USD of sending a gigabyte (1,000,000,000 bytes) from ``provider`` to the internet.

    ``date`` is the day on which the price was valid, ``scope`` the traffic to which it applies, and ``source`` where
    it was published. ``between_regions_usd_per_gb`` is the price to another region of the provider; None if unknown.
    """

    provider: str
    usd_per_gb: float
    date: str
    scope: str
    source: str
    between_regions_usd_per_gb: float | None = None
    between_regions_source: str = "unknown"

    def towards(self, provider: str, *, same_region: bool) -> float:
        """Price in USD of a gigabyte to a machine of ``provider``, in the region of the data or in another one.

        An unknown price between regions is taken to be that to the internet, which is higher.
        """
        if provider != self.provider:
            return self.usd_per_gb
        if same_region:
            return 0.0
        return self.usd_per_gb if self.between_regions_usd_per_gb is None else self.between_regions_usd_per_gb


def egress_price(provider: str, *, date: str | None = None) -> EgressPrice | None:
    """Return the newest egress price of ``provider`` up to ``date`` (YYYY-MM-DD); None if the provider is unknown.

    >>> egress_price("aws").usd_per_gb
    0.09
    >>> egress_price("nobody") is None
    True
    """
    name, day = check_name("provider", provider), maybe(check_name, "date", date)
    prices = [price for price in egress_prices() if price.provider == name and (day is None or price.date <= day)]
    if not prices and day is not None and egress_price(name) is not None:
        raise ArgumentError(f"No egress price of {name} is known up to {day}. Pass the price, or a later date.")
    return max(prices, key=lambda price: price.date, default=None)


@functools.cache
def egress_prices() -> tuple[EgressPrice, ...]:
    """Return all egress prices that ship with vmselect."""
    path = pricing_folder() / "egress.json"
    try:
        return tuple(EgressPrice(**row) for row in json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as broken:
        raise CatalogError(f"{path} is damaged ({broken}). Install vmselect again.") from None
