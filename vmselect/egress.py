"""Prices of data sent from a cloud to the internet (egress): dated list prices that ship with vmselect."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

from vmselect._checks import check_name, maybe
from vmselect._files import pricing_folder
from vmselect.errors import ArgumentError, CatalogError


@dataclass(frozen=True)
class EgressPrice:
    """The price of sending a gigabyte (1,000,000,000 bytes) from a provider to the internet on ``date``."""

    provider: str
    usd_per_gb: float
    date: str
    scope: str
    source: str


def egress_price(provider: str, *, date: str | None = None) -> EgressPrice | None:
    """The newest egress price of ``provider``, or the newest not later than ``date``; None if the provider is unknown.

    >>> egress_price("aws").usd_per_gb
    0.09
    >>> egress_price("nobody") is None
    True
    """
    name, day = check_name("provider", provider), maybe(check_name, "date", date)
    found = [price for price in egress_prices() if price.provider == name and (day is None or price.date <= day)]
    if not found and day is not None and egress_price(name) is not None:
        raise ArgumentError(f"No egress price of {name} is known for {day}. Pass the price, or a later date.")
    return max(found, key=lambda price: price.date, default=None)


@functools.cache
def egress_prices() -> tuple[EgressPrice, ...]:
    """All egress prices that ship with vmselect."""
    path = pricing_folder() / "egress.json"
    try:
        return tuple(EgressPrice(**row) for row in json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as broken:
        raise CatalogError(f"{path} is damaged ({broken}). Install vmselect again.") from None
