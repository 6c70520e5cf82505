"""The order of candidates, the Pareto front, and what a deadline or a budget means: shortfalls, chances, remedies."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile, make_profile
from tests.support.rankings import LAB, probe, rank, rank_epochs
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.ranking import Interruptions
from vmselect.ranking.decision import _sort, pareto_front
from vmselect.records.usage import Summary, Usage


def test_one_candidate_is_the_best_one() -> None:
    ranking = rank(probe())
    assert (ranking.best.score, ranking.best.pareto, ranking.best.tied_with_best, len(ranking)) == (1.0, True, True, 1)
    assert ranking.crossovers("cost") == ()
    assert ranking.tables.settled_from("cost") == 1


def test_identical_candidates_are_tied_and_both_on_the_front() -> None:
    ranking = rank([probe("same"), probe("small")])
    assert [(row.score, row.tied_with_best, row.pareto) for row in ranking] == [(1.0, True, True)] * 2


def test_the_best_estimate_is_recommended_whatever_other_measures_are() -> None:
    catalog = prices(("quick", 100.0), ("cheap", 1.0))
    pair = [
        make_profile(name, seconds, steps=5, steps_per_epoch=1000, init_seconds=0.0, first_iteration_seconds=seconds)
        for name, seconds in (("quick", 0.1), ("cheap", 0.101))
    ]
    ranking = rank(pair, catalog=catalog, objective="time")
    assert all(row.tied_with_best for row in ranking)
    assert [row.instance_type for row in ranking] == ["quick", "cheap"]


def test_rounding_puts_no_winner_off_the_front() -> None:
    catalog = prices(("a", 0.010000000000000002), ("b", 0.01))
    ranking = rank([probe("a"), probe("b")], catalog=catalog, objective="time", epochs=range(1, 60))
    assert all(row.pareto for row in ranking if row.rank == 1)
    # With the prices as they are, some epoch counts distinguish the two and some do not.
    assert {row.instance_type for row in ranking if row.rank == 1} == {"a", "b"}


@pytest.mark.parametrize(
    ("seconds", "cost", "front"),
    [
        ([1.0, 1.0], [2.0, 2.0], [True, True]),
        ([1.0, 2.0], [2.0, 2.0], [True, False]),
        ([1.0, 1.0], [2.0, 3.0], [True, False]),
        ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [True, True, True]),
        ([1.0, 2.0, 2.0, 3.0], [3.0, 2.0, 2.0, 2.0], [True, True, True, False]),
        ([3.0, 1.0, 1.0, 2.0, 1.0, 5.0], [1.0, 4.0, 4.0, 4.0, 5.0, 1.0], [True, True, True, False, False, False]),
        ([], [], []),
    ],
)
def test_no_point_beats_the_front_in_both(seconds: list[float], cost: list[float], front: list[bool]) -> None:
    assert pareto_front(np.array(seconds), np.array(cost)).tolist() == front


def test_machines_share_the_epochs_of_a_batch_size_so_these_make_no_tie() -> None:
    study = vs.ConvergenceStudy.from_epochs({64: [5, 30]})
    first, second = rank([probe("small", 0.1), probe("big", 0.05)], epochs=study, objective="time").rows
    assert second.seconds_low < first.seconds_high
    assert not second.tied_with_best


def test_batch_sizes_whose_mean_epochs_may_be_alike_are_tied() -> None:
    study = vs.ConvergenceStudy.from_epochs({256: 10, 512: 11})
    sizes = [probe(step_seconds=0.001 * size, batch_size=size, steps_per_epoch=40_960 // size) for size in (256, 512)]
    assert [row.tied_with_best for row in rank(sizes, epochs=study)] == [True, True]


@pytest.mark.parametrize("levels", [2, 5, 10**6])
def test_equal_scores_are_ordered_by_the_measures_and_then_by_position(levels: int) -> None:
    random = np.random.default_rng(levels)
    scores, cost, time = (1.0 + random.integers(0, levels, 200) for _ in range(3))
    whole = 0.5 * (cost / 2.0) + 0.5 * (time / 3.0)
    expected = np.lexsort((time, cost, whole, scores))
    assert np.array_equal(_sort(scores, {"cost": cost, "time": time}, {"cost": 2.0, "time": 3.0}), expected)


HOURS = prices(("slow", 1.0), ("fast", 4.0))
EPOCHS = [make_epoch_profile("slow", 3600.0), make_epoch_profile("fast", 1800.0)]  # ten epochs: 10 h, $10; 5 h, $20


@pytest.mark.parametrize(
    ("limits", "nearest", "fit", "speed_up", "saving"),
    [
        ({"deadline_hours": 4}, "fast", 8, 1.25, None),
        ({"deadline_hours": 0.4}, "fast", 0, 12.5, None),
        ({"budget_usd": 8}, "slow", 8, None, 0.2),
        ({"budget_usd": 8, "deadline_hours": 9}, "slow", 8, 10 / 9, 0.2),
        ({"budget_usd": 12, "deadline_hours": 4}, "fast", 6, 1.25, 0.4),
        ({"budget_usd": 12, "deadline_hours": 9.9}, "slow", 9, 10 / 9.9, None),
    ],
)
def test_the_nearest_candidate_and_what_it_lacks(
    limits: dict[str, float], nearest: str, fit: int, speed_up: float | None, saving: float | None
) -> None:
    ranking = rank_epochs(EPOCHS, HOURS, **limits)
    short = ranking.shortfall
    assert short is not None
    assert short.candidate.startswith(f"{nearest} ")
    assert (short.epochs, short.epochs_that_fit) == (10, fit)
    assert short.speed_up == (speed_up and pytest.approx(speed_up))
    assert short.saving == (saving and pytest.approx(saving))
    assert str(short) in ranking.verdict
    assert json.loads(ranking.to_json())["shortfall"]["epochs_that_fit"] == fit
    if fit:
        assert ranking.rerank(epochs=fit).best.instance_type == nearest
        assert ranking.rerank(epochs=fit).shortfall is None


def test_a_shortfall_counts_no_epochs_of_a_study_and_needs_a_limit() -> None:
    studied = rank(probe(), epochs=vs.ConvergenceStudy.from_epochs({64: [18, 18, 19]}), deadline_hours=1e-5)
    assert studied.shortfall is not None
    assert (studied.shortfall.epochs_that_fit, studied.shortfall.saving) == (None, None)
    assert rank([probe("unheard-of")]).shortfall is None
    assert rank().shortfall is None


def simulate(work: float, spot: Interruptions, runs: int = 4000) -> Any:
    """Times of trainings that are interrupted at random while they run, also while they repeat lost work."""
    random, times = np.random.default_rng(5), []
    for _ in range(runs):
        left, spent = work, 0.0
        while (until := random.exponential(spot.uptime_seconds)) < left:
            loss = 60 * (random.uniform(0, spot.checkpoint_minutes) + spot.restart_minutes)
            left, spent = left - until + loss, spent + until
        times.append(spent + left)
    return np.array(times)


@pytest.mark.parametrize("work_hours", [0.5, 3, 20])
@pytest.mark.parametrize("per_hour", [0.05, 0.3])
def test_the_probability_is_that_of_simulated_trainings(work_hours: float, per_hour: float) -> None:
    spot, work = Interruptions(per_hour=per_hour, checkpoint_minutes=30, restart_minutes=5), work_hours * 3600
    times = simulate(work, spot)
    for limit in work * np.array([0.99, 1.01, 1.05, 1.1, 1.3, 2.0]):
        chance = spot.chance_within(Interval(work, work, work), float(limit), confidence=0.9)
        assert chance == pytest.approx((times <= limit).mean(), abs=0.08)


def test_without_interruptions_the_probability_is_that_of_the_interval() -> None:
    never = Interruptions(per_hour=0)
    found = [never.chance_within(Interval(100.0, 90.0, 120.0), limit, confidence=0.9) for limit in (90, 100, 120)]
    assert found == pytest.approx([0.05, 0.5, 0.95])


def judge_spot(**options: Any) -> Finding | None:
    """The finding about the deadline of a spot machine that takes 2.8 h, or 3.2 h with interruptions."""
    rows = rank(**{"market": "spot", "epochs": 1000} | options)
    (row,) = [row for row in rows if (row.instance_type, row.market) == ("small", "spot")]
    return next((finding for finding in row.findings if finding.code == "spot-deadline"), None)


def test_a_spot_machine_under_a_deadline_has_a_probability_and_a_safe_alternative() -> None:
    rate = {"per_hour": 0.5, "checkpoint_minutes": 20}
    tight, loose, unknown, unpublished, none = (
        judge_spot(**options)
        for options in (
            {"deadline_hours": 3.21, "interruptions": rate},
            {"deadline_hours": 9, "interruptions": rate},
            {"deadline_hours": 9},
            {"deadline_hours": 9, "interruptions": {"checkpoint_minutes": 20}},  # no rate of this machine is published
            {"deadline_hours": 3.3, "interruptions": rate, "budget_usd": 1.5},
        )
    )
    assert judge_spot(interruptions=rate) is None
    assert tight is not None
    assert loose is not None
    assert unknown is not None
    assert none is not None
    assert (tight.severity, "(lab, here, on_demand)" in tight.remedy) == ("warning", True)
    assert (loose.severity, "small (lab, here, on_demand)" in loose.remedy) == ("info", True)
    assert unknown.severity == "warning"  # no rate, no probability
    assert unpublished == unknown
    assert "on_demand" not in none.remedy


def test_a_commitment_of_years_is_no_alternative_to_a_spot_machine_unless_it_was_asked_for() -> None:
    reserved = {"provider": "lab", "instance_type": "small", "market": "reserved_3y", "region": "here"}
    catalog = LAB.with_offers([reserved | {"usd_per_hour": 0.5}])
    options: dict[str, Any] = {"deadline_hours": 9, "interruptions": 0.1, "catalog": catalog}
    alone, asked = (judge_spot(market=market, **options) for market in ("spot", ["spot", "reserved_3y"]))
    assert alone is not None
    assert asked is not None
    assert ["(lab, here, on_demand)" in alone.remedy, "(lab, here, reserved_3y)" in asked.remedy] == [True, True]


def test_a_machine_of_unknown_energy_is_no_safe_alternative_where_energy_decides() -> None:
    options: dict[str, Any] = {"deadline_hours": 9, "interruptions": 0.1, "objective": "energy"}
    measured = [probe("small", 0.1, gpu_watts=100.0), probe("big", 0.05)]
    ranking = rank(measured, market="all", epochs=1000, **options)
    spot = next(row for row in ranking if row.market == "spot")
    finding = next(finding for finding in spot.findings if finding.code == "spot-deadline")
    assert "small (lab, here, on_demand)" in finding.remedy


def test_spot_machines_that_are_interrupted_too_often_together_are_excluded() -> None:
    profiles = [probe("small", 0.1), probe("small", 0.1, factors={"nodes": 4})]
    # Each interruption loses 35 minutes, and four machines are interrupted every 30 minutes.
    on_demand, spot = (rank(profiles, market=market, interruptions=0.5) for market in ("on_demand", "spot"))
    assert {row.factors.get("nodes", 1) for row in on_demand} == {1, 4}
    assert not on_demand.excluded
    assert {row.factors.get("nodes", 1) for row in spot} == {1}
    assert [entry.reason_code for entry in spot.excluded][:1] == ["interrupted_too_often"]
    assert rank(profiles, market="all", interruptions=0.4).best.seconds > 0


def test_one_of_several_spot_machines_interrupts_all_that_train_together() -> None:
    profiles = [probe("small", 0.1), probe("small", 0.1, factors={"nodes": 4})]
    one, four = (
        {row.factors.get("nodes", 1): row for row in rank(profiles, market="spot", interruptions=rate, epochs=1000)}
        for rate in (0.1, 0.4)
    )
    assert one[4].seconds == pytest.approx(four[1].seconds)
    assert one[1].seconds < one[4].seconds < four[4].seconds
    assert one[4].seconds_high == pytest.approx(four[1].seconds_high)


def remedy(ranking: vs.Ranking, code: str = "may-miss-deadline") -> str:
    return next(finding.remedy for finding in ranking.best.findings if finding.code == code)


def test_the_remedy_is_that_of_the_widest_part_of_the_interval() -> None:
    def within(profiles: Any, **options: Any) -> vs.Ranking:
        """A ranking whose deadline is just above the estimated time."""
        return rank(profiles, **options, deadline_hours=1.001 * rank(profiles, **options).best.seconds / 3600)

    measured = {"iteration_seconds": [0.1, 0.1001] * 20}  # equal times would be one mean
    few = within([probe(iteration_seconds=[0.1, 0.1001])])
    (cause,) = [finding for finding in few.best.findings if finding.code == "few-readings"]
    assert cause.remedy in remedy(few)
    once, often = (
        [probe(**measured)],
        [probe(**measured, created=datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 2, 3)],
    )
    assert "repetitions narrow" in remedy(within(once))
    assert "repetitions narrow" not in remedy(within(often))
    between = within([probe(batch_size=size, **measured) for size in (32, 128)], batch_size=64)
    assert "batch size 64" in remedy(between)
    study = vs.ConvergenceStudy.from_epochs({64: [8, 20, 40]})
    assert "convergence study" in remedy(within([probe(**measured)], epochs=study))
    stolen = Summary(count=10, seconds=5.0, mean=0.2, maximum=0.2, p50=0.2, p95=0.2)
    disturbed = within(
        [probe(steps=40, usage=Usage(interval_seconds=1.0, phases={"steady_steps": {"steal_share": stolen}}))]
    )
    totals = within(
        [probe(init_seconds=None, first_iteration_seconds=None, iteration_seconds=None, total_seconds=50.0, epochs=5)]
    )
    unprobed = within([make_profile("g4dn.xlarge", 0.2)], catalog=None, machines=["g5.xlarge"], objective="time")
    for ranking, code in ((disturbed, "disturbed"), (totals, "only-totals"), (unprobed, "never-probed")):
        assert next(finding.remedy for finding in ranking.best.findings if finding.code == code) in remedy(ranking)


def test_the_cause_of_a_wide_cost_may_be_interruptions() -> None:
    rate = {"per_hour": 0.5, "checkpoint_minutes": 60}
    hours = make_profile("small", 10.0, region="here", provider="lab", steps=40)
    free = rank([hours], market="spot", interruptions=rate)
    capped = free.rerank(budget_usd=1.001 * free.best.cost_usd)
    assert "Interruptions" in remedy(capped, "may-exceed-budget")


def test_a_required_probability_may_be_the_only_limit_that_is_broken() -> None:
    hours = 1.001 * rank([probe(steps=2)]).best.seconds / 3600
    ranking = rank([probe(steps=2)], deadline_hours=hours, chance=0.95)
    short = ranking.shortfall
    assert short is not None
    assert (short.speed_up, short.saving) == (None, None)
    assert short.epochs_that_fit is not None
    assert 0 < short.epochs_that_fit < 10
    assert ranking.rerank(epochs=short.epochs_that_fit)
    assert not ranking.rerank(epochs=short.epochs_that_fit + 1)
    assert str(short) in ranking.verdict
