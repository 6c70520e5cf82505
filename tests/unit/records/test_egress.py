"""Egress prices: their sources, and the price towards another cloud or region."""

from __future__ import annotations

import pytest

from vmselect.errors import ArgumentError
from vmselect.records.egress import EgressPrice, egress_price, egress_prices


def test_egress_prices_are_dated_and_sourced() -> None:
    free = {price.provider for price in egress_prices() if price.usd_per_gb == 0}
    assert free == {"hyperstack", "lambda", "runpod"}
    assert {"aws", "azure", "gcp", "nebius"} <= {price.provider for price in egress_prices()} - free
    for price in egress_prices():
        assert price.source
        assert price.scope
        assert 0 <= price.usd_per_gb < 1
        known = price.between_regions_usd_per_gb is not None
        assert (price.between_regions_source == "unknown") is not known
        if price.between_regions_usd_per_gb is not None:
            assert 0 <= price.between_regions_usd_per_gb <= price.usd_per_gb
    assert egress_price("aws", date="2026-06-01") == egress_price("aws")
    assert egress_price("nobody") is None
    with pytest.raises(ArgumentError, match="2001"):
        egress_price("aws", date="2001-01-01")


@pytest.mark.parametrize(
    ("between", "provider", "same_region", "usd"),
    [(0.02, "b", False, 0.1), (0.02, "a", False, 0.02), (0.02, "a", True, 0.0), (None, "a", False, 0.1)],
)
def test_the_price_depends_on_the_destination(between, provider, same_region, usd) -> None:
    price = EgressPrice("a", 0.1, "2026-01-01", "all", "list", between_regions_usd_per_gb=between)
    assert price.towards(provider, same_region=same_region) == usd
