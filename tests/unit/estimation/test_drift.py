"""How far a training may run faster or slower than its records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.estimation.drift import TREND_CHANGE, find_machine, find_trend, learn_repetitions
from vmselect.estimation.readings import Block, Readings
from vmselect.records import Profile

STEADY = [0.1, 0.1001] * 10


def half_widths(estimate: vs.Estimate) -> tuple[float, float]:
    return 1 - estimate.low / estimate.seconds, estimate.high / estimate.seconds - 1


def of_epochs(*seconds: float) -> vs.Estimate:
    return vs.estimate(Profile.from_times(first_epoch_seconds=12.0, later_epoch_seconds=seconds), epochs=40)


def probe(seconds: Any = STEADY, day: int = 1, **changes: Any) -> Profile:
    created = datetime(2026, 1, day, tzinfo=UTC)
    return make_profile("a", seconds, outcome="stopped", created=created, **changes)


@pytest.mark.parametrize(
    ("times", "change"),
    [
        ([10.0, 9.8], -0.04),
        ([10.0, 9.9], 0.0),  # 2 % in all
        ([10.0, 10.2, 10.4, 10.6], 0.08),
        ([10.0, 9.0, 10.0, 9.0], 0.0),  # noise, not a trend
        ([10.0] * 20 + [9.5] * 20, -0.05),  # a level shift
        ([10.0] * 30 + [9.0] * 10, 0.0),  # most pairs are equal
        ([10.0], 0.0),
        ([0.0, 0.0], 0.0),
    ],
)
def test_the_trend_of_epochs(times: list[float], change: float) -> None:
    readings = Readings(unit="epoch", runs=[[Block(times, [1] * len(times))]])
    assert find_trend(readings) == pytest.approx(change, rel=0.35)


@given(st.lists(st.floats(1, 10), min_size=2, max_size=30))
def test_reversed_epochs_have_the_opposite_trend(times: list[float]) -> None:
    changes = [
        find_trend(Readings(unit="epoch", runs=[[Block(seconds, [1] * len(seconds))]]))
        for seconds in (times, times[::-1])
    ]
    assert changes[0] == pytest.approx(-changes[1])
    assert changes[0] == 0 or abs(changes[0]) >= TREND_CHANGE


def test_a_trend_widens_its_side_and_has_a_finding() -> None:
    for falling, rising in ((10.0, 9.7, 9.4, 9.1), (9.1, 9.4, 9.7, 10.0)), ((10.0, 9.7), (9.7, 10.0)):
        down, up = of_epochs(*falling), of_epochs(*rising)
        assert half_widths(down)[0] > 1.3 * half_widths(down)[1]
        assert half_widths(up)[1] > 1.3 * half_widths(up)[0]
        assert all("drifting-epochs" in {finding.code for finding in found.findings} for found in (down, up))


def test_epochs_without_a_trend_stay_as_wide_on_both_sides() -> None:
    calm = of_epochs(10.0, 9.97, 10.02, 10.0)
    assert half_widths(calm)[0] == pytest.approx(half_widths(calm)[1])
    assert "drifting-epochs" not in {finding.code for finding in calm.findings}


@pytest.mark.parametrize("count", [2, 20, 200])
@pytest.mark.parametrize("name", ["iteration_seconds", "later_epoch_seconds", "total_seconds"])
def test_a_repeated_number_is_one_measurement(name: str, count: int) -> None:
    rest = {"first_epoch_seconds": 60.0} if name == "later_epoch_seconds" else {"steps_per_epoch": 100, "epochs": 5}

    def estimate(*times: float) -> vs.Estimate:
        return vs.estimate(Profile.from_times(**{name: times}, **rest), epochs=5)

    once, often = estimate(50.0), estimate(*[50.0] * count)
    assert (often.low, often.seconds, often.high) == (once.low, once.seconds, once.high)
    assert half_widths(estimate(*[50.0, 50.01] * count)) < half_widths(once)


def test_equal_times_have_a_finding_unless_a_probe_measured_them() -> None:
    codes = {
        outcome: {finding.code for finding in vs.estimate(make_profile("a", 0.1, outcome=outcome), epochs=2).findings}
        for outcome in ("given", "stopped")
    }
    assert "equal-times" in codes["given"]
    assert "equal-times" not in codes["stopped"]


def test_a_given_step_time_covers_other_runs_on_a_cloud() -> None:
    """Repetitions on AWS differ by 2 %, and one in ten by 4.6 %."""
    given_time = Profile.from_times(iteration_seconds=0.2, steps_per_epoch=1000)
    assert all(0.046 < width < 1.5 * 0.046 for width in half_widths(vs.estimate(given_time, epochs=1)))


def test_kinds_of_machines() -> None:
    gpu = {"framework_gpus": 1}
    assert find_machine([probe()], "step") == "cpu"
    assert find_machine([probe(environment=gpu)], "step") == "gpu"
    assert find_machine([make_profile()], "step") == "published steps"
    assert find_machine([make_profile()], "epoch") == "published epochs"
    assert find_machine([make_profile(), probe()], "step") == "cpu"


def test_processes_differ_more_on_shared_cores_than_on_gpu_machines() -> None:
    cpu, gpu = (half_widths(vs.estimate(probe(environment=e), epochs=50)) for e in ({}, {"framework_gpus": 1}))
    assert min(cpu) > 1.3 * min(gpu)
    assert max(cpu) > 1.5 * max(gpu)


def test_repetitions_of_any_training_in_the_records_are_learned() -> None:
    equal, unequal = ([probe(model="other", seconds=0.1 * f, day=n) for n, f in enumerate(factors, 1)]
                      for factors in ([1.0] * 6, [1.0, 1.5, 0.7, 1.4, 0.8, 1.2]))  # fmt: skip
    assert learn_repetitions(equal)["cpu"] == pytest.approx((0.0, 5))
    assert learn_repetitions(unequal)["cpu"].squares > 0.5
    assert learn_repetitions([*unequal[:1], *unequal[:1], probe(batch_size=8)]) == {}
    widths = [
        half_widths(vs.estimate([probe(day=day) for day in days], epochs=50)) for days in ((1,), (1, 2), (1, 2, 3, 4))
    ]
    assert widths[0] > widths[1] > widths[2]


def test_a_ranking_learns_from_the_repetitions_of_its_history() -> None:
    catalog = vs.Catalog.embedded().with_offers(
        [{"provider": "lab", "instance_type": "a", "region": "here", "market": "on_demand", "usd_per_hour": 1.0}]
    )
    unequal = [probe(model="other", seconds=0.1 * f, day=n) for n, f in enumerate((1.0, 1.5, 0.7, 1.4, 0.8), 1)]
    rows = [vs.rank(probe(), epochs=10, catalog=catalog, history=history).best for history in ((), unequal)]
    assert rows[0].seconds == rows[1].seconds
    assert rows[1].seconds_high > 1.2 * rows[0].seconds_high - 0.2 * rows[0].seconds
