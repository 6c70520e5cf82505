"""The small parts of a ranking, each against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

from vmselect.errors import ArgumentError
from vmselect.intervals import Interval
from vmselect.ranking.decision import pareto_front
from vmselect.ranking.measures import (
    Settings,
    billed_seconds,
    describe_objective,
    read_batch_sizes,
    read_epochs,
    read_markets,
    read_objective,
    read_regions,
)
from vmselect.ranking.spot import Interruptions, _poisson_quantile


def test_objectives_become_weights_that_sum_to_one() -> None:
    assert dict(read_objective("time")) == {"cost": 0.0, "time": 1.0}
    assert dict(read_objective({"cost": 3, "time": 1})) == {"cost": 0.75, "time": 0.25}
    assert dict(read_objective({"time": 2})) == {"cost": 0.0, "time": 1.0}
    assert describe_objective(read_objective({"cost": 3, "time": 1})) == "0.75 cost + 0.25 time"


@pytest.mark.parametrize(
    "wrong", ["price", {"cost": -1}, {"cost": 0}, {}, {"speed": 1}, {"cost": float("nan")}, {"cost": float("inf")}]
)
def test_objectives_that_mean_nothing_are_refused(wrong: object) -> None:
    with pytest.raises(ArgumentError, match="objective"):
        read_objective(wrong)  # type: ignore[arg-type]


def test_epochs_are_whole_numbers_each_once() -> None:
    assert read_epochs(7) == (7,)
    assert read_epochs([20, 5, 20]) == (20, 5)
    assert read_epochs(np.array([5, 10])) == (5, 10)
    for wrong in (0, -1, 2.5, "ten", [5, True]):
        with pytest.raises(ArgumentError, match="epochs"):
            read_epochs(wrong)  # type: ignore[arg-type]


def test_names_and_batch_sizes_take_one_or_several() -> None:
    assert read_markets("spot") == ("spot",)
    assert read_markets("all") is None
    assert read_markets(None) == ("on_demand",)
    assert read_regions("all") == ()
    assert read_regions(None) is None
    assert read_batch_sizes("all") is None
    assert read_batch_sizes([64, 32, 64]) == (64, 32)
    for wrong in (0, [], ["64"], [True], "64"):
        with pytest.raises(ArgumentError, match="batch_size"):
            read_batch_sizes(wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="region"):
        read_regions([])


@pytest.mark.parametrize(
    "wrong",
    [
        {"markets": "ondemand"},
        {"deadline_hours": 0},
        {"budget_usd": float("nan")},
        {"billing": "monthly"},
        {"decide_at": 7},
        {"interruptions": {"rate": 1}},
    ],
)
def test_settings_that_cannot_be_used_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        Settings.read(epochs=[5, 10], **wrong)


def test_billing_rounds_up_to_the_increment_and_the_minimum() -> None:
    seconds = np.array([1.0, 60.0, 61.0, 3601.0])
    increment, minimum = np.array([0.0, 1.0, 60.0, 3600.0]), np.array([0.0, 60.0, 60.0, 60.0])
    assert billed_seconds(seconds, increment=increment, minimum=minimum).tolist() == [1.0, 60.0, 120.0, 7200.0]
    assert billed_seconds(np.array([1.5]), increment=np.array([1.0]), minimum=np.array([60.0])).tolist() == [60.0]


def test_the_pareto_front_keeps_identical_points_and_drops_dominated_ones() -> None:
    seconds = np.array([3.0, 1.0, 1.0, 2.0, 1.0, 5.0])
    cost = np.array([1.0, 4.0, 4.0, 4.0, 5.0, 1.0])
    assert pareto_front(seconds, cost).tolist() == [True, True, True, False, False, False]
    assert pareto_front(np.zeros(0), np.zeros(0)).tolist() == []


def test_interruptions_follow_the_renewal_model() -> None:
    spot = Interruptions(mean_uptime_hours=10, checkpoint_minutes=60, restart_minutes=6)
    assert spot.factor == pytest.approx(1 / (1 - (0.5 + 0.1) / 10))
    assert Interruptions(per_hour=0.1, checkpoint_minutes=60, restart_minutes=6).factor == pytest.approx(spot.factor)
    assert Interruptions(per_hour=0, checkpoint_minutes=60).factor == 1.0


def test_interrupted_times_match_a_simulation() -> None:
    spot = Interruptions(mean_uptime_hours=4, checkpoint_minutes=30, restart_minutes=10)
    work = np.array([[36 * 3600.0]])
    times = spot.stretch(Interval(work, work, work), confidence=0.9)
    random = np.random.default_rng(1)

    def run() -> float:
        done, clock, up = 0.0, 0.0, random.exponential(spot.uptime_seconds)
        while True:
            ready = 600.0 if clock else 0.0  # every start but the first begins with a restart
            if ready + (work[0, 0] - done) <= up:
                return clock + ready + work[0, 0] - done
            clock += up
            done += max(0.0, up - ready) // 1800.0 * 1800.0
            up = random.exponential(spot.uptime_seconds)

    totals = np.array([run() for _ in range(4000)])
    # The model is first order (it lets every interruption lose half an interval): a few percent of the truth.
    assert times.value[0, 0] == pytest.approx(totals.mean(), rel=0.05)
    inside = ((totals >= times.low[0, 0]) & (totals <= times.high[0, 0])).mean()
    assert 0.85 <= inside <= 0.99


def test_a_run_too_short_to_be_interrupted_keeps_its_interval() -> None:
    spot = Interruptions(per_hour=0.05, checkpoint_minutes=30)
    times = spot.stretch(Interval(*(np.array([[x]]) for x in (60.0, 50.0, 70.0))), confidence=0.9)
    assert times.low[0, 0] == 50.0
    assert times.high[0, 0] == 70.0
    assert 60.0 < times.value[0, 0] < 62.0


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_poisson_counts_are_the_exact_ones(share: float) -> None:
    mean = np.array([0.0, 1e-6, 0.01, 0.0512932, 0.3, 1.0, 2.9957, 7.5, 100.0, 5000.0])
    assert _poisson_quantile(share, mean).tolist() == np.maximum(0, poisson.ppf(share, mean)).tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        {"checkpoint_minutes": 30},
        {"per_hour": 1, "mean_uptime_hours": 1, "checkpoint_minutes": 30},
        {"per_hour": -1, "checkpoint_minutes": 30},
        {"per_hour": 1, "checkpoint_minutes": 0},
        {"per_hour": 1, "checkpoint_minutes": float("nan")},
        {"per_hour": [1, 2], "checkpoint_minutes": 30},
        {"per_hour": True, "checkpoint_minutes": 30},
        {"per_hour": 1, "checkpoint_minutes": None},
        {"per_hour": 1, "checkpoint_minutes": 30, "restart_minutes": None},
        {"mean_uptime_hours": 0.5, "checkpoint_minutes": 60, "restart_minutes": 0},
    ],
)
def test_impossible_interruptions_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ArgumentError, match="interruptions"):
        Interruptions.read(wrong)
