"""A cold first run is reported and predicted."""

from __future__ import annotations

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.estimation.overheads import is_cold


@pytest.mark.parametrize(
    ("seconds", "cold"),
    [
        ([38.0, 2.0, 2.0], True),
        ([2.0, 2.0, 38.0], False),  # not the first
        ([2.9, 2.0], False),  # as much as repeated trainings differ
        ([3.2, 2.0], True),
        ([3.2, 2.0, 2.6], False),  # within the spread of later runs
        ([2.0], False),
    ],
)
def test_only_a_first_run_beyond_the_spread_of_later_ones_is_cold(seconds: list[float], cold: bool) -> None:
    assert is_cold(seconds) is cold


@pytest.mark.parametrize("method", ["robust", "malta-iteration"])
def test_the_first_run_is_predicted_and_the_low_end_is_a_later_run(method: str) -> None:
    runs = [make_profile(init_seconds=seconds) for seconds in (380.0, 20.0, 20.0)]
    found, alone, warm = (vs.estimate(some, epochs=5, method=method) for some in (runs, runs[0], runs[1:]))
    assert "cold-first-run" in [finding.code for finding in found.findings]
    if method == "robust":
        assert found.seconds == pytest.approx(alone.seconds)
        assert found.low <= warm.seconds
        assert found.high >= alone.high
    else:  # the dissertation's equations keep the mean
        assert found.seconds == pytest.approx((alone.seconds + 2 * warm.seconds) / 3)


def test_the_order_of_runs_is_that_of_their_dates() -> None:
    runs = [make_profile(init_seconds=seconds) for seconds in (20.0, 20.0, 380.0)]
    runs[2] = runs[2].model_copy(update={"created": runs[0].created.replace(year=2020)})
    assert "cold-first-run" in [finding.code for finding in vs.estimate(runs, epochs=5).findings]


@pytest.mark.parametrize(("runs", "cold"), [(2, False), (3, True)])
def test_slower_steps_are_cold_only_if_two_later_runs_agree(runs: int, cold: bool) -> None:
    profiles = [make_profile(step_seconds=seconds) for seconds in (1.0, 0.1, 0.1)[:runs]]
    codes = [finding.code for finding in vs.estimate(profiles, epochs=5).findings]
    assert ("cold-first-run" in codes) is cold
    assert "repetitions-disagree" in codes


def test_total_times_of_a_cold_first_run() -> None:
    found = vs.estimate(vs.Profile.from_times(total_seconds=[38.0, 2.0, 2.0], epochs=5), epochs=5)
    assert found.seconds == pytest.approx(38.0)
    assert 0 < found.low <= 2.0
    assert "cold-first-run" in [finding.code for finding in found.findings]


def test_machines_are_ranked_by_their_first_run() -> None:
    runs = [make_profile("g4dn.xlarge", init_seconds=seconds) for seconds in (380.0, 20.0, 20.0)]
    best = vs.rank(runs, epochs=5, region="us-east-1").best
    assert best.seconds == pytest.approx(vs.estimate(runs[0], epochs=5).seconds)
    assert "cold-first-run" in [finding.code for finding in best.findings]
