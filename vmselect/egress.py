"""Prices of sending data from a cloud to the internet (egress): dated list prices that ship with vmselect."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

from vmselect._checks import check_name, maybe
from vmselect._files import pricing_folder
from vmselect.errors import ArgumentError, CatalogError


@dataclass(frozen=True)
class EgressPrice:
    """The price in USD of sending a gigabyte (1,000,000,000 bytes) from ``provider`` to the internet.

    ``date`` is the day on which the price was valid, ``scope`` the traffic to which it applies, and ``source`` where
    it was published.
    """

    provider: str
    usd_per_gb: float
    date: str
    scope: str
    source: str


def egress_price(provider: str, *, date: str | None = None) -> EgressPrice | None:
    """Return the newest egress price of ``provider`` up to ``date`` (YYYY-MM-DD); None if the provider is unknown.

    >>> egress_price("aws").usd_per_gb
    0.09
    >>> egress_price("nobody") is None
    True
    """
    name, day = check_name("provider", provider), maybe(check_name, "date", date)
    found = [price for price in egress_prices() if price.provider == name and (day is None or price.date <= day)]
    if not found and day is not None and egress_price(name) is not None:
        raise ArgumentError(f"No egress price of {name} is known up to {day}. Pass the price, or a later date.")
    return max(found, key=lambda price: price.date, default=None)


@functools.cache
def egress_prices() -> tuple[EgressPrice, ...]:
    """Return all egress prices that ship with vmselect."""
    path = pricing_folder() / "egress.json"
    try:
        return tuple(EgressPrice(**row) for row in json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as broken:
        raise CatalogError(f"{path} is damaged ({broken}). Install vmselect again.") from None
