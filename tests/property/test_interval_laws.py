"""Laws of every kind of interval: estimates, batch sizes, unprobed machines, several GPUs and GPU memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.catalog.gpus import figures_of
from vmselect.estimation.batch_sizes import interpolate_time
from vmselect.estimation.drift import find_trend
from vmselect.estimation.readings import collect
from vmselect.intervals import Interval
from vmselect.prediction.hardware import MemoryModel
from vmselect.prediction.posterior import Point, Target, predict_log_times
from vmselect.prediction.scaling import Scaling, Work, more_nodes
from vmselect.records import Profile
from vmselect.records.base import Parallelism

seconds = st.floats(1e-3, 1e2)
several = st.lists(seconds, min_size=2, max_size=20)
confidences = st.tuples(st.floats(0.5, 0.99), st.floats(0.5, 0.99)).map(sorted)
ways = st.sampled_from([None, "all_reduce", "mirrored", "data_parallel"])


def relative(interval: Interval[float]) -> tuple[float, float]:
    """Half-widths below and above the value, relative to it."""
    return 1 - interval.low / interval.value, interval.high / interval.value - 1


def of_estimate(estimate: vs.Estimate) -> Interval[float]:
    return Interval(estimate.seconds, estimate.low, estimate.high)


def of_steps(times: list[float], scale: float = 1.0, **arguments: Any) -> Interval[float]:
    profile = Profile.from_times(iteration_seconds=[scale * time for time in times], steps_per_epoch=100)
    return of_estimate(vs.estimate(profile, epochs=20, **arguments))


def of_epochs(times: list[float], scale: float = 1.0, **arguments: Any) -> Interval[float]:
    later = [scale * time for time in times[1:]]
    profile = Profile.from_times(first_epoch_seconds=scale * times[0], later_epoch_seconds=later)
    return of_estimate(vs.estimate(profile, epochs=20, **arguments))


def of_machines(times: list[float], scale: float = 1.0, confidence: float = 0.9) -> Interval[float]:
    """Prediction of a V100 from steps on a T4 that are too long to depend on the host."""
    probe, wanted = (Target(_figures(gpu), "single") for gpu in ("T4", "V100"))
    posterior = predict_log_times([Point("net", "work", probe, math.log(scale * times[0] + 1))], [wanted])
    low, high = posterior.interval(confidence)
    return Interval(*(math.exp(float(part[0])) for part in (posterior.mean, low, high)))


def _figures(gpu: str) -> Any:
    figures = figures_of(gpu)
    assert figures is not None
    return figures


def of_gpus(times: list[float], scale: float = 1.0, confidence: float = 0.9) -> Interval[float]:
    first, second = sorted(times[:2])
    ratio = Scaling().predict(Work("T4", "net", {1: scale * first, 2: scale * second}), 8, confidence=confidence)
    return ratio.map(lambda part: part * scale * first)


def of_nodes(times: list[float], scale: float = 1.0, confidence: float = 0.9) -> Interval[float]:
    return more_nodes(scale * times[0], confidence=confidence)


KINDS: dict[str, Callable[..., Interval[float]]] = {
    "steps": of_steps, "epochs": of_epochs, "gpus": of_gpus, "nodes": of_nodes,
}  # fmt: skip


@pytest.mark.parametrize("kind", [*KINDS, "machines"])
@settings(deadline=None)  # the first example imports scipy
@given(times=several, levels=confidences)
def test_a_higher_confidence_is_never_narrower(kind: str, times: list[float], levels: list[float]) -> None:
    predict = KINDS.get(kind, of_machines)
    narrow, wide = (predict(times, confidence=level) for level in levels)
    assert wide.value == pytest.approx(narrow.value)
    assert wide.low <= narrow.low * (1 + 1e-9)
    assert wide.high >= narrow.high * (1 - 1e-9)
    assert all(0 <= found.low <= found.value <= found.high < math.inf for found in (narrow, wide))


@pytest.mark.parametrize("kind", KINDS)
@given(times=several)
def test_milliseconds_have_the_intervals_of_seconds(kind: str, times: list[float]) -> None:
    assert KINDS[kind](times, scale=1000.0) == pytest.approx([1000 * part for part in KINDS[kind](times)], rel=1e-6)


@given(st.floats(0.1, 10), st.floats(0, 1))
def test_step_times_between_sizes_are_invariant_and_wider_between_distant_sizes(first: float, growth: float) -> None:
    def at(size: int, probed: tuple[int, ...], scale: float = 1.0) -> Any:
        return interpolate_time({n: scale * first * (n / 16) ** growth for n in probed}, size)

    near, far, beyond, farther = at(32, (16, 64)), at(32, (16, 256)), at(72, (16, 64)), at(128, (16, 64))
    assert at(32, (16, 64), 1000.0).value == pytest.approx(1000 * near.value)
    assert (at(32, (16, 64), 1000.0).below, at(32, (16, 64), 1000.0).above) == pytest.approx((near.below, near.above))
    # Below, the step time may be constant up to some size: how far that is depends on the times, not only on sizes.
    assert near.above < far.above
    assert beyond.below < farther.below
    assert beyond.above < farther.above
    assert all(0 <= step.below < 1 for step in (near, far, beyond, farther))


@given(st.floats(0.01, 10), st.floats(1, 1.9), ways)
def test_more_gpus_are_less_certain(one: float, ratio: float, way: Parallelism | None) -> None:
    known: tuple[dict[int, float], ...] = ({1: one}, {1: one, 2: one * ratio})
    for times in known:
        four, eight = (Scaling().predict(Work("T4", "net", times, way), gpus) for gpus in (4, 8))
        assert eight.high / eight.low >= four.high / four.low * (1 - 1e-9)


@given(st.floats(2e9, 2e10), st.floats(0, 0.9))
def test_memory_is_less_certain_far_from_the_probed_size(peak: float, share: float) -> None:
    fixed = Interval(share * peak, 0.8 * share * peak, share * peak + 0.25 * (1 - share) * peak)
    model = MemoryModel(peaks=((64, peak),), fixed=fixed)
    up, down = ([relative(model.peak(size)) for size in sizes] for sizes in ((64, 128, 256), (64, 32, 16)))
    for widths in (up, down):
        assert all(before[0] + before[1] <= after[0] + after[1] for before, after in pairwise(widths))
    assert all(0 <= found.low <= found.value <= found.high for found in map(model.peak, (1, 8, 64, 512)))


@given(seconds, st.integers(2, 30))
def test_a_repeated_number_does_not_narrow(time: float, count: int) -> None:
    for predict, times in ((of_steps, [time]), (of_epochs, [2 * time, time])):
        once, often = predict(times), predict([*times, *[time] * count])
        assert often == pytest.approx(once)


def probe(seconds: list[float], day: int) -> Profile:
    created = datetime(2026, 1, day, tzinfo=UTC)
    return make_profile("a", seconds, outcome="stopped", created=created)


@given(st.floats(0.01, 1), st.floats(0, 0.03))
def test_each_further_repetition_that_agrees_narrows(step: float, noise: float) -> None:
    times = [step, step * (1 + noise)] * 10
    widths = [
        sum(relative(of_estimate(vs.estimate([probe(times, day) for day in range(1, count + 1)], epochs=50))))
        for count in range(1, 6)
    ]
    assert all(after < before for before, after in pairwise(widths))


@given(st.lists(st.floats(9.0, 11.0), min_size=2, max_size=12))
def test_the_interval_reacts_to_a_drift_if_and_only_if_a_finding_says_so(times: list[float]) -> None:
    """Reversed epochs have the same mean and noise, so that only a trend makes their intervals differ."""
    profiles = [
        Profile.from_times(first_epoch_seconds=12.0, later_epoch_seconds=later) for later in (times, times[::-1])
    ]
    forward, backward = (vs.estimate(profile, epochs=40) for profile in profiles)
    told = [
        {finding.code for finding in estimate.findings} & {"drifting-epochs", "changing-epochs"}
        for estimate in (forward, backward)
    ]
    change = find_trend(collect(profiles[:1]))
    assert bool(change) <= bool(told[0])
    if "drifting-epochs" in told[0]:
        wider = (forward.high, backward.high) if change > 0 else (backward.low, forward.low)
        assert wider[0] > wider[1]
    if not any(told):
        assert (forward.low, forward.high) == pytest.approx((backward.low, backward.high), rel=1e-6)
