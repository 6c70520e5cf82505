"""Probability of being best, of keeping limits, and the expected regret."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_profile
from tests.support.rankings import LAB, probe, rank
from vmselect.errors import ArgumentError
from vmselect.intervals import Interval
from vmselect.ranking import probability
from vmselect.ranking.decision import assess
from vmselect.ranking.probability import DRAWS, LARGEST_NORMAL, limit_chance, standard_normals


def pair(*seconds: float, noise: float = 0.05) -> list[vs.Profile]:
    """Noisy probes of the machines m0, m1, ..."""
    wave = [1 - noise, 1 + noise, 1.0, 1 - noise / 2, 1 + noise / 2]
    return [
        vs.Profile.from_times(
            instance_type=f"m{i}", batch_size=64, steps_per_epoch=1000, iteration_seconds=[one * w for w in wave]
        )
        for i, one in enumerate(seconds)
    ]


CATALOG = prices(("m0", 1.0), ("m1", 1.0), ("m2", 1.0))


def chances(ranking: vs.Ranking) -> dict[str, float]:
    return {row.instance_type: row.chance for row in ranking.deciding_rows}


def test_the_random_numbers_are_standard_normal_and_differ_between_streams() -> None:
    found = standard_normals(np.arange(50))
    assert found.shape == (50, DRAWS)
    assert abs(found.mean()) < 0.01
    assert found.std() == pytest.approx(1.0, abs=0.01)
    assert np.abs(found).max() < LARGEST_NORMAL
    assert np.abs(np.corrcoef(found) - np.eye(50)).max() < 0.1
    assert np.array_equal(found[7:9], standard_normals(np.array([7, 8])))


@pytest.mark.parametrize(("second", "low", "high"), [(0.1, 0.4, 0.6), (0.101, 0.5, 0.95), (0.2, 1.0, 1.0)])
def test_equal_estimates_have_equal_chances_and_distant_ones_none(second: float, low: float, high: float) -> None:
    found = chances(rank(pair(0.1, second), catalog=CATALOG))
    assert low <= found["m0"] <= high
    assert sum(found.values()) == pytest.approx(1.0)


def test_offers_of_one_machine_share_its_timing_error() -> None:
    ranking = rank([probe("small", 0.1), probe("big", 0.05)], market="all", objective="cost")
    by_market = {(row.instance_type, row.market): row.chance for row in ranking}
    assert by_market["small", "on_demand"] == by_market["big", "on_demand"] == 0.0
    assert sum(by_market.values()) == pytest.approx(1.0)


def test_equal_offers_share_the_probability() -> None:
    offers = [
        {"provider": "lab", "instance_type": "m0", "region": region, "usd_per_hour": 1.0}
        for region in ("here", "there")
    ]
    ranking = rank(pair(0.1), catalog=LAB.with_offers(offers), region="all")
    assert [row.chance for row in ranking] == [0.5, 0.5]


def test_an_offer_that_costs_more_to_reach_does_not_share_the_probability() -> None:
    offers = [
        {"provider": provider, "instance_type": "m0", "region": region, "usd_per_hour": 1.0}
        for provider, region in (("aws", "us-east-1"), ("aws", "us-west-2"))
    ]
    data = {"data_gb": 100, "download_seconds_per_mb": 0.001, "provider": "aws", "region": "us-east-1"}
    ranking = rank(pair(0.1), catalog=LAB.with_offers(offers), region="all", transfer=data)
    assert [(row.region, row.chance) for row in ranking] == [("us-east-1", 1.0), ("us-west-2", 0.0)]


def test_a_dear_hour_without_a_move_is_best_for_short_times_and_a_cheap_one_for_long_times() -> None:
    offers = [
        {"provider": "aws", "instance_type": "m0", "region": region, "usd_per_hour": usd}
        for region, usd in (("us-east-1", 3.0), ("us-west-2", 1.0))
    ]
    ranking = rank(
        pair(0.1, noise=0.3), catalog=LAB.with_offers(offers), region="all", epochs=36,
        transfer={"data_gb": 100, "download_seconds_per_mb": 0, "provider": "aws", "region": "us-east-1"},
    )  # fmt: skip
    assert all(0 < row.chance < 1 for row in ranking)
    assert sum(row.chance for row in ranking) == pytest.approx(1.0)


def test_the_likely_set_is_the_smallest_one_and_holds_the_recommendation() -> None:
    ranking = rank(pair(0.1, 0.1005, 0.3), catalog=CATALOG)
    assert {row.instance_type for row in ranking.likely_best} == {"m0", "m1"}
    assert [row.tied_with_best for row in ranking] == [True, True, False]
    assert sum(row.chance for row in ranking.likely_best) >= ranking.settings.confidence


def test_epochs_of_a_study_are_common_to_the_machines_of_a_batch_size() -> None:
    study = vs.ConvergenceStudy.from_epochs({64: [5, 30]})
    first, second = rank([probe("small", 0.1), probe("big", 0.05)], epochs=study, objective="time").rows
    assert second.seconds_low < first.seconds_high
    assert (first.chance, second.chance) == (1.0, 0.0)


def test_batch_sizes_whose_mean_epochs_may_be_alike_are_tied() -> None:
    study = vs.ConvergenceStudy.from_epochs({256: 10, 512: 11})
    sizes = [probe(step_seconds=0.001 * size, batch_size=size, steps_per_epoch=40_960 // size) for size in (256, 512)]
    ranking = rank(sizes, epochs=study)
    assert [row.tied_with_best for row in ranking] == [True, True]
    assert sum(row.chance for row in ranking) == pytest.approx(1.0)


def test_the_regret_is_the_expected_excess_over_the_best() -> None:
    sure = rank(pair(0.1, 0.3), catalog=CATALOG)
    assert sure.expected_regret == {"cost": 0.0}
    unsure = rank(pair(0.1, 0.1001), catalog=CATALOG, objective={"cost": 0.5, "time": 0.5})
    assert set(unsure.expected_regret) == {"cost", "time"}
    assert 0 < unsure.expected_regret["time"] < 0.1 * unsure.best.seconds
    nothing = rank(pair(0.1), catalog=CATALOG, budget_usd=1e-6)
    assert nothing.expected_regret == {}


@pytest.mark.parametrize(("most", "expected"), [(100.0, 0.5), (200.0, 0.95), (50.0, 0.05), (1e9, 1.0), (1e-9, 0.0)])
def test_a_limit_is_kept_with_the_probability_that_the_interval_implies(most: float, expected: float) -> None:
    found = limit_chance(Interval(np.array([100.0]), np.array([50.0]), np.array([200.0])), most, 0.9)
    assert found[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("most", "expected"), [(100.0, 1.0), (99.0, 0.0)])
def test_a_certain_value_keeps_a_limit_or_does_not(most: float, expected: float) -> None:
    certain = np.array([100.0])
    assert limit_chance(Interval(certain, certain, certain), most, 0.9)[0] == expected


def test_a_required_probability_excludes_what_may_exceed_the_limit() -> None:
    ranking = rank(pair(0.1), catalog=CATALOG)
    hours = ranking.best.seconds / 3600 * 1.001
    kept = ranking.rerank(deadline_hours=hours)
    assert kept.best.limit_chances["time"] == pytest.approx(0.5, abs=0.1)
    assert kept.to_frame()["deadline_chance"].tolist() == [kept.best.limit_chances["time"]]
    strict = ranking.rerank(deadline_hours=hours, chance=0.9)
    assert [one.reason_code for one in strict.excluded] == ["over_deadline"]
    assert ranking.rerank(deadline_hours=2 * hours, chance=0.9)


@pytest.mark.parametrize("wrong", [{"chance": 0.9}, {"deadline_hours": 1, "chance": 1.0}])
def test_a_required_probability_needs_a_limit_and_is_below_one(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        rank([make_profile("small")], **wrong)


@pytest.mark.parametrize("objective", [{"cost": 0.5, "time": 0.5}, {"cost": 0.4, "co2": 0.6}])
def test_candidates_that_are_not_drawn_cannot_win(objective: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = vs.Profile.from_times(
        instance_type="g4dn.xlarge", provider="aws", batch_size=64, steps_per_epoch=100, iteration_seconds=[0.1] * 9,
        gpu_watts=60,
    )  # fmt: skip
    ranking = vs.rank(
        one, epochs=[2, 20], machines="all", market="all", objective=objective,
        catalog=vs.Catalog.embedded("2026-08-22"),
    )  # fmt: skip
    some = ranking.assessment
    monkeypatch.setattr(probability, "BLOCK", 10**6)  # in one block, all are drawn
    every = assess(ranking.candidates, ranking.settings)
    assert np.count_nonzero(every.chance) > 4
    assert np.array_equal(every.chance, some.chance)
    assert np.array_equal(every.tied, some.tied)
    assert every.regret == some.regret


def test_an_offer_that_another_one_beats_in_price_and_co2_is_not_drawn() -> None:
    random = np.random.default_rng(1)
    group, price, factor = (random.integers(0, most, 300) for most in (20, 6, 6))
    kept = probability._not_dominated(group, price.astype(float), factor.astype(float))
    for i in range(1, len(group)):
        beaten = (group == group[i]) & (price <= price[i]) & (factor <= factor[i])
        strictly = beaten & ((price < price[i]) | (factor < factor[i]))
        assert not (kept[i] and strictly.any())
        assert (kept & beaten).any()


def _aged(*offers: tuple[str, str, float, int], day: dt.date = dt.date(2026, 8, 22)) -> vs.Catalog:
    """Prices of (machine, provider, USD per hour, age in days) on the spot market."""
    rows = [
        {"provider": provider, "instance_type": name, "region": "here", "market": "spot", "usd_per_hour": usd,
         "date": day - dt.timedelta(days=age)}
        for name, provider, usd, age in offers
    ]  # fmt: skip
    catalog = vs.Catalog.embedded("2021-02-01").with_offers(rows)
    catalog.as_of = day
    return catalog


def test_an_old_price_widens_the_cost_but_not_the_time() -> None:
    rows = [rank(pair(0.1), catalog=_aged(("m0", "aws", 1.0, age)), market="spot").best for age in (0, 30, 360)]
    assert len({(row.seconds, row.seconds_low, row.seconds_high) for row in rows}) == 1
    fresh, month, year = (Interval(row.cost_usd, row.cost_low, row.cost_high) for row in rows)
    assert fresh.value == month.value == year.value
    assert fresh.low > month.low > year.low
    assert fresh.high < month.high < year.high
    # 18 % a month: the half-width in log scale adds to that of the time as squares.
    width = math.hypot(math.log(fresh.high / fresh.value), 1.6449 * 0.18 * math.sqrt(30 / 30.4375))
    assert month.high == pytest.approx(month.value * math.exp(width), rel=1e-4)


def test_old_prices_of_another_provider_lower_the_probability_of_being_best() -> None:
    profiles = pair(0.1, 0.1)
    fresh = chances(rank(profiles, catalog=_aged(("m0", "aws", 0.8, 0), ("m1", "gcp", 1.0, 0)), market="spot"))
    old = chances(rank(profiles, catalog=_aged(("m0", "aws", 0.8, 300), ("m1", "gcp", 1.0, 300)), market="spot"))
    assert fresh["m0"] > 0.99
    assert 0.5 < old["m0"] < 0.8
    # Prices of one provider and market move together, so their ages do not matter.
    shared = chances(rank(profiles, catalog=_aged(("m0", "aws", 0.8, 300), ("m1", "aws", 1.0, 300)), market="spot"))
    assert shared["m0"] == pytest.approx(fresh["m0"], abs=0.01)


def test_the_age_of_prices_does_not_matter_for_the_shortest_time() -> None:
    catalog = _aged(("m0", "aws", 1.0, 300), ("m1", "gcp", 1.0, 5))
    with_age = chances(rank(pair(0.1, 0.101), catalog=catalog, market="spot", objective="time"))
    fresh = _aged(("m0", "aws", 1.0, 0), ("m1", "gcp", 1.0, 0))
    assert with_age == chances(rank(pair(0.1, 0.101), catalog=fresh, market="spot", objective="time"))
