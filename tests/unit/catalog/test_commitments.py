"""Break-even hours of commitments."""

from __future__ import annotations

import pytest

import vmselect as vs
from vmselect.catalog.commitments import HOURS_PER_MONTH, find_commitments

PLACE = {"provider": "cloud", "instance_type": "x", "region": "here"}


def sell(**prices: float) -> vs.Catalog:
    rows = [PLACE | {"market": market, "usd_per_hour": usd} for market, usd in prices.items()]
    return vs.Catalog.embedded("2021-02-01").with_offers(rows).where(provider="cloud")


def test_a_commitment_pays_from_its_share_of_the_hours_of_a_month_on() -> None:
    table = sell(on_demand=1.0, reserved_1y=0.6, reserved_3y=0.4, spot=0.3).commitments()
    assert dict(zip(table["market"], table["hours_per_month"], strict=True)) == {
        "reserved_3y": pytest.approx(0.4 * HOURS_PER_MONTH), "reserved_1y": pytest.approx(0.6 * HOURS_PER_MONTH),
    }  # fmt: skip
    assert sell(on_demand=1.0, spot=0.3).commitments().empty
    assert sell(reserved_1y=0.6).commitments().empty


def test_a_commitment_at_the_price_on_demand_never_pays() -> None:
    (commitment, *_) = next(iter(find_commitments(sell(on_demand=1.0, reserved_1y=1.2).offers(market=None)).values()))
    assert not commitment.pays


def test_shipped_commitments_of_google_pay_from_a_third_of_a_month_on() -> None:
    table = vs.Catalog.embedded("2026-08-22").where(provider="gcp").commitments()
    assert len(table) > 5000
    year = table[table["market"] == "reserved_1y"]["hours_per_month"]
    assert 0.3 * HOURS_PER_MONTH < year.median() < HOURS_PER_MONTH
