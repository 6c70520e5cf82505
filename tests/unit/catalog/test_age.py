"""The age of prices: their uncertainty, when they are stale, and the day from which ages count."""

from __future__ import annotations

import datetime as dt
import functools
import math
from collections.abc import Callable

import numpy as np
import pytest

import vmselect as vs
from vmselect.catalog.age import DAYS_PER_MONTH, PriceAges, aging_of, describe_stale, judging_day, today
from vmselect.errors import ArgumentError

DAY = dt.date(2026, 8, 22)
HOST = {"instance_type": "x", "region": "here", "usd_per_hour": 1.0}


def ages(*offers: dict[str, object], as_of: dt.date = DAY) -> PriceAges:
    catalog = vs.Catalog.embedded("2021-02-01").with_offers([HOST | offer for offer in offers])
    rows = catalog.offers(instance_type="x", market=None).sort_values(["provider", "market", "date"])
    return PriceAges.of(rows.reset_index(drop=True), as_of)


def test_the_uncertainty_grows_with_the_square_root_of_the_age() -> None:
    months = (0, 1, 4, 9)
    days = [DAY - dt.timedelta(days=round(month * DAYS_PER_MONTH)) for month in months]
    aged = ages(*({"provider": "aws", "market": "spot", "region": f"r{i}", "date": day} for i, day in enumerate(days)))
    assert sorted(aged.deviation) == pytest.approx([0.18 * math.sqrt(month) for month in months], rel=0.02, abs=1e-12)
    assert aged.deviation.min() == 0.0


def test_prices_of_a_provider_and_market_are_one_group() -> None:
    offers = [
        {"provider": provider, "market": market, "region": region}
        for provider in ("aws", "gcp")
        for market in ("on_demand", "spot")
        for region in ("a", "b")
    ]
    assert ages(*offers).group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("provider", "market", "years", "stale"),
    [
        ("aws", "on_demand", 2.9, False), ("aws", "on_demand", 3.1, True), ("oci", "on_demand", 2.9, False),
        ("aws", "reserved_1y", 2.9, False), ("azure", "spot", 0.9, False), ("azure", "spot", 1.1, True),
        ("hyperbolic", "on_demand", 1.1, True), ("my-cluster", "on_demand", 0.9, False),
        ("vast", "on_demand", 0.05, True),
    ],
)  # fmt: skip
def test_a_price_is_stale_after_a_year_and_a_list_price_of_a_large_cloud_after_three(
    provider: str, market: str, years: float, stale: bool
) -> None:
    day = DAY - dt.timedelta(days=round(365 * years))
    assert ages({"provider": provider, "market": market, "date": day}).stale.tolist() == [stale]


def test_a_price_after_the_day_of_the_ranking_has_the_age_zero() -> None:
    aged = ages({"provider": "aws", "market": "spot", "date": "2026-09-22"})
    assert (aged.days.tolist(), aged.deviation.tolist()) == ([0.0], [0.0])


def test_ages_count_from_the_day_of_an_embedded_catalog() -> None:
    then = vs.Catalog.embedded("2021-02-28")
    assert then.as_of == dt.date(2021, 2, 28)
    assert not PriceAges.of(then.offers(market=None), then.as_of).stale.any()
    assert PriceAges.of(then.offers(market=None), dt.date(2026, 8, 22)).stale.all()
    assert vs.Catalog.embedded().as_of is None


def test_every_row_of_the_table_of_moves_is_plausible() -> None:
    for provider in ("aws", "azure", "gcp", "vast", "nobody"):
        for market in ("on_demand", "spot", "reserved_3y"):
            aging = aging_of(provider, market)
            assert 0 < aging.monthly_move < 0.5
            assert 1 <= aging.stale_after_days <= 3 * 365
    assert [name for name in ("aws", "vast", "runpod") if aging_of(name, "on_demand").marketplace] == ["vast"]


def test_stale_and_typical_prices_are_named_with_their_newest_date() -> None:
    catalog = vs.Catalog.embedded("2021-02-01").with_offers(
        [
            HOST | {"provider": "azure", "market": "spot", "date": "2024-08-19"},
            HOST | {"provider": "vast", "date": "2026-08-01"},
            HOST | {"provider": "runpod", "date": "2026-08-01"},
        ]
    )
    rows = catalog.offers(instance_type="x", market=None)
    findings = describe_stale(rows, PriceAges.of(rows, DAY))
    assert [finding.code for finding in findings] == ["stale-prices", "typical-prices"]
    assert "azure spot of 2024-08-19" in findings[0].message
    assert "--provider vast" in findings[1].remedy
    fresh = rows[rows["provider"] == "runpod"].reset_index(drop=True)
    assert not describe_stale(fresh, PriceAges.of(fresh, DAY))
    assert np.isfinite(PriceAges.of(fresh, DAY).deviation).all()


@pytest.fixture
def set_day(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return functools.partial(monkeypatch.setenv, "VMSELECT_TODAY")


def test_the_day_is_the_current_date_unless_a_variable_sets_it(
    monkeypatch: pytest.MonkeyPatch, set_day: Callable[[str], None]
) -> None:
    set_day(" 2030-03-01 ")
    assert today() == dt.date(2030, 3, 1)
    assert vs.Offer(**HOST, provider="lab", market="on_demand").date == "2030-03-01"
    for wrong in ("tomorrow", "2030-02-30", "01.03.2030"):
        set_day(wrong)
        with pytest.raises(ArgumentError, match="VMSELECT_TODAY"):
            today()
    monkeypatch.delenv("VMSELECT_TODAY")
    assert abs((today() - dt.datetime.now(dt.UTC).date()).days) <= 1


def test_a_year_after_its_newest_price_no_more_of_a_catalog_becomes_stale(set_day: Callable[[str], None]) -> None:
    catalog = vs.Catalog.embedded("2026-08-22")
    catalog.as_of = None
    counts = []
    for day in ("2026-09-01", "2027-08-22", "2027-08-23", "2030-03-01", "2126-01-01"):
        set_day(day)
        counts.append(int(catalog.offers(market=None)["stale"].sum()))
        assert (catalog.outdated is None) == (day <= "2027-08-22")
    assert counts[0] < counts[1] == counts[2] == counts[3] == counts[4] < len(catalog)
    assert "2026-08-22" in str(catalog.outdated)
    # Their age still counts: nobody knows what machines cost in a hundred years.
    assert PriceAges.of(catalog.offers(), today()).deviation.min() > 0.1


def test_own_prices_do_not_make_the_others_stale(set_day: Callable[[str], None]) -> None:
    set_day("2030-03-01")
    catalog = vs.Catalog.embedded().with_offers([HOST | {"provider": "lab", "market": "on_demand"}])
    assert catalog.price_dates[1] == "2030-03-01"
    assert not catalog.offers(provider="aws", market="on_demand")["stale"].all()


def test_prices_without_dates_and_those_of_the_future_do_not_set_the_day() -> None:
    assert judging_day(DAY, []) == judging_day(DAY, [""]) == judging_day(DAY, ["9999-12-31"]) == DAY
