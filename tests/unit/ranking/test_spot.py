"""Interruptions of spot machines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import poisson

from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile
from tests.support.rankings import rank, rank_epochs
from vmselect.errors import ArgumentError
from vmselect.intervals import Interval
from vmselect.ranking import Interruptions

USUAL = Interruptions(per_hour=0.5, checkpoint_minutes=30, restart_minutes=9)


def stretch(interruptions: Interruptions, *work: float, confidence: float = 0.9) -> Interval[Any]:
    value, low, high = work if len(work) == 3 else work * 3
    return interruptions.stretch(Interval(*(np.array([[x]]) for x in (value, low, high))), confidence=confidence)


@pytest.mark.parametrize(
    ("given", "factor"),
    [
        ({"per_hour": 0.5, "checkpoint_minutes": 30, "restart_minutes": 9}, 1 / (1 - 24 / 120)),
        ({"mean_uptime_hours": 2, "checkpoint_minutes": 30, "restart_minutes": 9}, 1 / (1 - 24 / 120)),
        ({"per_hour": 0.5, "checkpoint_minutes": 38}, 1 / (1 - 24 / 120)),  # a restart takes five minutes
        ({"per_hour": 0, "checkpoint_minutes": 30}, 1.0),
    ],
)
def test_the_expected_time_grows_by_the_lost_share(given: dict[str, float], factor: float) -> None:
    hour, spot = [make_epoch_profile("a", 360.0)], prices(("a", 2.0), market="spot")
    row = rank_epochs(hour, spot, market="spot", interruptions=given).best
    assert (row.seconds, row.cost_usd) == pytest.approx((3600 * factor, 2.0 * factor))
    assert "spot-expected" in {finding.code for finding in row.findings}


def test_interruptions_lengthen_spot_runs_only() -> None:
    plain = rank(market="all")
    spot = rank(market="all", interruptions={"per_hour": 0.5, "checkpoint_minutes": 20, "restart_minutes": 5})
    for before, after in zip(sorted(plain, key=str), sorted(spot, key=str), strict=True):
        assert (before.instance_type, before.market) == (after.instance_type, after.market)
        if after.market == "spot":
            assert after.seconds == pytest.approx(before.seconds / (1 - 0.5 * 15 / 60))
            assert after.terms["interruptions"] == pytest.approx(after.seconds - before.seconds)
            assert [f.code for f in after.findings if f.code.startswith("spot")] == ["spot-expected"]
            assert [f.code for f in before.findings if f.code.startswith("spot")] == ["spot-uninterrupted"]
        else:
            assert (after.measures, after.terms) == (before.measures, before.terms)


def test_plain_numbers_for_json() -> None:
    assert USUAL.to_dict(confidence=0.9) == pytest.approx(
        {"interruptions_per_second": 1 / 7200, "lost_seconds": 1440, "factor": 1.25, "deviations": 1.6448536269514722,
         "loss_deviation_seconds": 1800 / math.sqrt(12)}
    )  # fmt: skip
    assert Interruptions(per_hour=0, checkpoint_minutes=30).uptime_seconds == math.inf


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("mean", [0.01, 0.3, 1.0, 2.9957, 10.0, 100.0, 5000.0])
def test_the_interval_spans_the_poisson_counts_of_the_confidence(mean: float, confidence: float) -> None:
    work = mean * USUAL.uptime_seconds / USUAL.factor
    found = stretch(USUAL, work, confidence=confidence)
    fewest, most = (max(0.0, poisson.ppf(share, mean)) for share in ((1 - confidence) / 2, (1 + confidence) / 2))
    deviation = USUAL.to_dict(confidence=confidence)["deviations"] * USUAL.loss_deviation_seconds
    low = work + max(0.0, fewest * USUAL.lost_seconds - deviation * math.sqrt(fewest))
    high = work + most * USUAL.lost_seconds + deviation * math.sqrt(most)
    expected = work * USUAL.factor
    assert [part[0, 0] for part in found] == pytest.approx([expected, min(low, expected), max(high, expected)])


def test_a_run_too_short_to_be_interrupted_keeps_its_interval() -> None:
    seldom = Interruptions(per_hour=0.05, checkpoint_minutes=30)
    found = stretch(seldom, 60.0, 50.0, 70.0)
    assert (found.low[0, 0], found.high[0, 0]) == (50.0, 70.0)
    assert 60.0 < found.value[0, 0] < 62.0
    assert [part[0, 0] for part in stretch(seldom, 0.0)] == [0.0, 0.0, 0.0]


def test_interrupted_times_match_a_simulation() -> None:
    spot = Interruptions(mean_uptime_hours=4, checkpoint_minutes=30, restart_minutes=10)
    work = 36 * 3600.0
    times = stretch(spot, work)
    random = np.random.default_rng(1)

    def run() -> float:
        done, clock, up = 0.0, 0.0, random.exponential(spot.uptime_seconds)
        while True:
            ready = 600.0 if clock else 0.0  # every start but the first begins with a restart
            if ready + (work - done) <= up:
                return clock + ready + work - done
            clock += up
            done += max(0.0, up - ready) // 1800.0 * 1800.0
            up = random.exponential(spot.uptime_seconds)

    totals = np.array([run() for _ in range(4000)])
    # The model is first order (it lets every interruption lose half an interval): a few percent of the truth.
    assert times.value[0, 0] == pytest.approx(totals.mean(), rel=0.05)
    assert 0.85 <= times.contains(totals).mean() <= 0.99


@pytest.mark.parametrize(
    "wrong",
    [
        {"checkpoint_minutes": 30},
        {"per_hour": 1, "mean_uptime_hours": 1},
        {"per_hour": -0.001},
        {"per_hour": [1, 2]},
        {"per_hour": True},
        {"mean_uptime_hours": 0},
        {"per_hour": 0.1, "checkpoint_minutes": 0},
        {"per_hour": 0.1, "checkpoint_minutes": math.nan},
        {"per_hour": 0.1, "checkpoint_minutes": None},
        {"per_hour": 0.1, "restart_minutes": None},
        {"per_hour": 0.1, "restart_minutes": -0.001},
        {"mean_uptime_hours": 0.5, "checkpoint_minutes": 50, "restart_minutes": 5},  # no time is left for work
        {"rate": 1},
    ],
)
def test_impossible_interruptions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="interruptions"):
        rank(interruptions=wrong)


def test_the_bounds_of_interruptions_are_allowed() -> None:
    Interruptions(per_hour=0, restart_minutes=0)
    Interruptions(mean_uptime_hours=0.5, checkpoint_minutes=50, restart_minutes=4.9)
