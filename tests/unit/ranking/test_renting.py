"""Findings about renting the best machine: commitments and boot times."""

from __future__ import annotations

import vmselect as vs
from tests.support.profiles import make_profile

PLACE = {"provider": "gcp", "instance_type": "x", "region": "here", "gpu_model": "T4", "gpu_count": 1}


def rank(market: str = "on_demand", epochs: int = 10, **prices: float) -> vs.Ranking:
    rows = [PLACE | {"market": name, "usd_per_hour": usd} for name, usd in prices.items()]
    catalog = vs.Catalog.embedded("2021-02-01").with_offers(rows)
    return vs.rank(
        [make_profile("x", 0.1, provider="gcp", region="here")], epochs=epochs, catalog=catalog, market=market
    )


def codes(ranking: vs.Ranking) -> set[str]:
    return {finding.code for finding in ranking.findings}


def test_the_best_machine_on_demand_names_its_break_even_hours() -> None:
    ranking = rank(on_demand=1.0, reserved_1y=0.6, reserved_3y=1.1)
    finding = next(finding for finding in ranking.findings if finding.code == "break-even")
    assert "438 hours a month" in finding.message
    assert "three years" not in finding.message
    assert "break-even" not in codes(rank(on_demand=1.0))


def test_a_reserved_price_is_marked_as_a_commitment() -> None:
    ranking = rank(market="all", on_demand=1.0, reserved_1y=0.6)
    assert (ranking.best.market, "commitment" in {f.code for f in ranking.best.findings}) == ("reserved_1y", True)
    assert [f.severity for f in ranking.best.findings if f.code == "commitment"] == ["warning"]
    assert "commitment" not in codes(rank(on_demand=1.0, reserved_1y=0.6))


def test_a_boot_time_is_named_if_it_is_a_part_of_the_time_that_matters() -> None:
    assert "boot-excluded" in codes(rank(on_demand=1.0))
    assert "boot-excluded" not in codes(rank(on_demand=1.0, epochs=100_000))


def test_a_price_that_is_the_same_everywhere_says_nothing_about_availability() -> None:
    def rank_in(north: float) -> vs.Ranking:
        usd = {"east": 1.0, "west": 1.0, "north": north}
        rows = [PLACE | {"provider": "cloud", "region": place, "usd_per_hour": usd[place]} for place in usd]
        catalog = vs.Catalog.embedded("2021-02-01").with_offers(rows)
        return vs.rank([make_profile("x", 0.1, provider="cloud", region=None)], epochs=10, catalog=catalog)

    same = rank_in(1.0)
    finding = next(finding for finding in same.findings if finding.code == "one-price-everywhere")
    assert finding.message.startswith("1 price (cloud) is the same in every region")
    assert same.best.regions_compared == 3
    assert "one-price-everywhere" not in codes(rank_in(1.1))
