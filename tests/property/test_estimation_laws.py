"""Laws that every estimate obeys, whatever was measured."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from vmselect.estimation import METHODS, ClosedForm, fit_runtime

seconds = st.floats(1e-4, 1e3)
readings = st.lists(seconds, min_size=1, max_size=30)


@st.composite
def given_times(draw: st.DrawFn) -> dict[str, object]:
    """Arguments of ``Profile.from_times`` for a profile of single steps."""
    return {
        "batch_size": 64,
        "steps_per_epoch": draw(st.integers(2, 2_000)),
        "init_seconds": draw(seconds),
        "first_iteration_seconds": draw(seconds),
        "iteration_seconds": draw(readings),
        "validation_seconds": draw(st.lists(seconds, max_size=3)),
    }


@st.composite
def epoch_times(draw: st.DrawFn) -> dict[str, object]:
    """Arguments of ``Profile.from_times`` for a profile of whole epochs."""
    return {
        "init_seconds": draw(seconds),
        "first_epoch_seconds": draw(seconds),
        "later_epoch_seconds": draw(readings),
    }


any_times = st.one_of(given_times(), epoch_times())
epochs = st.integers(1, 500)


def profile_of(times: dict[str, object], scale: float = 1.0) -> vs.Profile:
    scaled = {}
    for name, value in times.items():
        if not name.endswith("_seconds"):
            scaled[name] = value
        elif isinstance(value, list):
            scaled[name] = [scale * one for one in value]
        else:
            scaled[name] = scale * value  # type: ignore[operator]
    return vs.Profile.from_times(**scaled)  # type: ignore[arg-type]


@settings(deadline=None)  # the first example imports scipy
@given(any_times, epochs)
def test_terms_sum_to_the_seconds_and_the_interval_holds_them(times: dict[str, object], n: int) -> None:
    profile = profile_of(times)
    for method in METHODS:
        if (method == "malta-epoch") != ("first_epoch_seconds" in times) and method != "robust":
            continue
        estimate = vs.estimate(profile, epochs=n, method=method)
        assert math.fsum(estimate.terms.values()) == pytest.approx(estimate.seconds, rel=1e-9)
        assert 0 <= estimate.low <= estimate.seconds <= estimate.high
        assert min(estimate.terms.values()) >= 0


@given(any_times, epochs)
def test_the_low_end_is_above_zero_and_not_below_the_certain_part(times: dict[str, object], n: int) -> None:
    model = fit_runtime(profile_of(times))
    low, _ = model.interval(n)
    once, per_epoch = model.certain
    assert low > 0
    assert low >= min(model.seconds(n), once + per_epoch * n) * (1 - 1e-12)
    # Without its allowances, the certain part is what occurs once and the fastest reading for each step or epoch.
    fastest = min(times.get("iteration_seconds") or times["later_epoch_seconds"])  # type: ignore[type-var]
    units = n * times.get("steps_per_epoch", 1) - 1  # type: ignore[operator]
    assert low >= fastest * units / 2  # type: ignore[operator]


@given(given_times(), st.lists(st.tuples(st.integers(1, 50), st.floats(0.01, 10)), min_size=1, max_size=3))
def test_the_low_end_of_phases_is_not_below_their_certain_part(
    times: dict[str, object], phases: list[tuple[int, float]]
) -> None:
    estimate = vs.estimate(profile_of(times), phases=phases)
    epochs_at_measured_speed = sum(count * factor for count, factor in phases)
    # The first step is not certain to take as long as others.
    steps = times["steps_per_epoch"] * epochs_at_measured_speed - phases[0][1]  # type: ignore[operator]
    assert 0 < estimate.low <= estimate.seconds <= estimate.high
    assert min(estimate.terms.values()) >= 0
    assert estimate.low >= min(times["iteration_seconds"]) * steps / 2  # type: ignore[type-var, operator]


@given(any_times, epochs, st.floats(0.01, 10))
def test_phases_are_between_the_measured_training_and_its_scaled_one(
    times: dict[str, object], n: int, factor: float
) -> None:
    """Only epochs are scaled, and at the measured speed a phase is no different from the training."""
    whole = vs.estimate(profile_of(times), epochs=n)
    for name in ("seconds", "low", "high"):
        measured = getattr(vs.estimate(profile_of(times), phases=[(n, 1.0)]), name)
        assert measured == pytest.approx(getattr(whole, name), rel=1e-9)
    scaled = vs.estimate(profile_of(times), phases=[(n, factor)])
    low, high = sorted((1.0, factor))
    assert whole.seconds * low * (1 - 1e-9) <= scaled.seconds <= whole.seconds * high * (1 + 1e-9)
    assert min(scaled.terms.values()) >= 0


def test_a_first_step_shorter_than_others_is_scaled_like_them() -> None:
    """It takes the place of a step that is subtracted, which would otherwise take longer than the whole phase."""
    profile = vs.Profile.from_times(
        steps_per_epoch=2, init_seconds=1, first_iteration_seconds=0.5, iteration_seconds=[3.0]
    )
    estimate = vs.estimate(profile, phases=[(1, 0.25)])
    assert estimate.terms == {"initialization": 1.0, "first_iteration": 0.125, "steady_iterations": 0.75}
    assert 0 < estimate.low < estimate.seconds == 1.875


@given(any_times, st.floats(0.001, 1), epochs)
def test_no_term_is_negative_in_shorter_epochs(times: dict[str, object], share: float, n: int) -> None:
    """Also if an epoch is shorter than the first epoch or execution that was measured, or a single partial batch."""
    profile = profile_of({"steps_per_epoch": 1_000, "batch_size": 64, **times})
    estimate = vs.estimate(profile, epochs=n, examples=math.ceil(64_000 * share))
    assert min(estimate.terms.values()) >= 0
    assert 0 < estimate.low <= estimate.seconds <= estimate.high


@given(given_times(), given_times(), st.integers(32, 256), st.sampled_from([None, 1, 2, 7]), epochs)
def test_no_term_is_negative_at_other_batch_sizes(
    small: dict[str, object], large: dict[str, object], batch_size: int, steps: int | None, n: int
) -> None:
    validations = large["validation_seconds"] if small["validation_seconds"] else []
    small = {**small, "validation_seconds": small["validation_seconds"] if validations else []}
    large = {**large, "validation_seconds": validations}
    profiles = [profile_of({**small, "batch_size": 64}), profile_of({**large, "batch_size": 128})]
    estimate = vs.estimate(profiles, epochs=n, batch_size=batch_size, steps_per_epoch=steps)
    assert min(estimate.terms.values()) >= 0
    assert 0 <= estimate.low <= estimate.seconds <= estimate.high


@given(st.integers(1, 300), st.integers(1, 30), st.integers(1, 50), st.none() | st.integers(1, 300))
def test_validations_follow_the_schedule(n: int, start: int, every: int, end: int | None) -> None:
    profile = vs.Profile.from_times(steps_per_epoch=10, iteration_seconds=[0.1] * 5, validation_seconds=[1.0, 1.0])
    schedule = vs.Workload(validation_from=start, validation_freq=every, validation_until=end)
    terms = vs.estimate(profile, epochs=n, workload=schedule).terms
    counted = terms.get("first_validation", 0.0) + terms.get("later_validations", 0.0)
    assert counted == pytest.approx(len(range(start, min(n, end or n) + 1, every)))


@given(any_times, epochs, epochs)
def test_seconds_grow_with_epochs(times: dict[str, object], n: int, more: int) -> None:
    model = fit_runtime(profile_of(times))
    assert model.seconds(n + more) > model.seconds(n)


@given(given_times(), epochs, st.integers(1, 500))
def test_seconds_grow_with_steps(times: dict[str, object], n: int, more: int) -> None:
    longer = {**times, "steps_per_epoch": int(times["steps_per_epoch"]) + more}  # type: ignore[call-overload]
    assert vs.estimate(profile_of(longer), epochs=n).seconds > vs.estimate(profile_of(times), epochs=n).seconds


@given(given_times(), epochs, st.floats(1.01, 10))
def test_seconds_grow_with_step_time(times: dict[str, object], n: int, factor: float) -> None:
    slower = {**times, "iteration_seconds": [factor * s for s in times["iteration_seconds"]]}  # type: ignore[attr-defined]
    assert vs.estimate(profile_of(slower), epochs=n).seconds > vs.estimate(profile_of(times), epochs=n).seconds


@given(any_times, epochs, st.floats(0.01, 100))
def test_scaling_every_time_scales_the_estimate(times: dict[str, object], n: int, factor: float) -> None:
    one, scaled = (vs.estimate(profile_of(times, scale), epochs=n) for scale in (1.0, factor))
    for before, after in ((one.seconds, scaled.seconds), (one.low, scaled.low), (one.high, scaled.high)):
        assert after == pytest.approx(factor * before, rel=1e-6, abs=1e-9)


@given(given_times(), st.floats(0.2, 5), epochs)
def test_merging_never_widens_in_silence(times: dict[str, object], factor: float, n: int) -> None:
    other = {**times, "iteration_seconds": [factor * s for s in times["iteration_seconds"]]}  # type: ignore[attr-defined]
    profiles = [profile_of(times), profile_of(other)]
    alone = [vs.estimate(profile, epochs=n) for profile in profiles]
    merged = vs.estimate(profiles, epochs=n)
    if merged.high - merged.low > max(one.high - one.low for one in alone) * (1 + 1e-9):
        assert "repetitions-disagree" in {finding.code for finding in merged.findings}


@given(any_times, epochs)
def test_the_plain_coefficients_give_the_same_numbers(times: dict[str, object], n: int) -> None:
    """What the page computes in the browser is what Python computes."""
    model = fit_runtime(profile_of(times))
    plain = model.coefficients()
    validations = (n - plain["validation_from"]) // plain["validation_freq"] + 1
    total = plain["fixed_seconds"] + plain["epoch_seconds"] * n
    total += (plain["first_validation_seconds"] if validations else 0) + plain["validation_seconds"] * max(
        0, validations - 1
    )
    estimate = model.at(n)
    assert total == pytest.approx(estimate.seconds, rel=1e-9)
    a, b, c = plain["high"]
    assert total + math.sqrt(max(0.0, a + b * n + c * n * n)) == pytest.approx(estimate.high, rel=1e-9)


@given(st.lists(any_times, min_size=1, max_size=4), st.lists(epochs, min_size=1, max_size=4))
def test_many_machines_at_once_are_each_of_them(times: list[dict[str, object]], counts: list[int]) -> None:
    models = [fit_runtime(profile_of(one)) for one in times]
    form = ClosedForm.stack([model.form for model in models])
    grid = np.array([counts], dtype=float)
    low, high = form.interval(grid)
    for row, model in enumerate(models):
        for column, count in enumerate(counts):
            assert form.seconds(grid)[row, column] == model.seconds(count)
            assert (low[row, column], high[row, column]) == model.interval(count)


def test_agreeing_repetitions_narrow_the_interval() -> None:
    times = {"steps_per_epoch": 100, "first_iteration_seconds": 2.0, "iteration_seconds": [0.1, 0.11, 0.1, 0.09] * 5}
    alone = vs.estimate(profile_of(times), epochs=20)
    merged = vs.estimate([profile_of(times) for _ in range(3)], epochs=20)
    assert merged.seconds == pytest.approx(alone.seconds)
    assert merged.high - merged.low < alone.high - alone.low


def test_time_grows_in_proportion_to_the_number_of_profiles() -> None:
    """A thousand profiles take seconds at most because each takes the same; see the speed benchmark for the time."""
    profiles = [
        profile_of({"steps_per_epoch": 100, "first_iteration_seconds": 2.0, "iteration_seconds": [0.1] * 40})
        for _ in range(400)
    ]

    def measure(count: int) -> float:
        begin = time.process_time()
        for profile in profiles[:count]:
            vs.estimate(profile, epochs=50)
        return time.process_time() - begin

    measure(10)
    few, many = min(measure(50) for _ in range(3)), measure(400)
    assert many < 8 * few * 5
