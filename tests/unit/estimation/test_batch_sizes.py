"""Times at batch sizes that were not probed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from tests.support.profiles import make_epoch_profile, make_profile
from vmselect.errors import ArgumentError, EstimateError
from vmselect.estimation import RuntimeModel, fit_runtime
from vmselect.estimation.batch_sizes import EXTRAPOLATION_WIDTH, count_steps, interpolate_time

EXAMPLES = 64_000


def profile(batch_size: int, seconds: float | None = None, **options: Any) -> vs.Profile:
    """A machine whose step takes 20 ms and 1 ms per example."""
    step = 0.02 + 0.001 * batch_size if seconds is None else seconds
    given = {
        "first_iteration_seconds": 3.0,
        "init_seconds": 2.0,
        "steps_per_epoch": -(-EXAMPLES // batch_size),
    } | options
    return make_profile("a", step, steps=12, batch_size=batch_size, **given)


def fit_at(profiles: list[vs.Profile], batch_size: int, **options: Any) -> RuntimeModel:
    return fit_runtime(profiles, batch_size=batch_size, **options)


def out_of_memory(batch_size: int) -> vs.Profile:
    return profile(batch_size, outcome="out_of_memory")


def test_interpolation_is_exact_for_an_affine_machine() -> None:
    model = fit_at([profile(32), profile(128)], 64)
    truth = fit_at([profile(64)], 64)
    for epochs in (1, 5, 50):
        assert model.seconds(epochs) == pytest.approx(truth.seconds(epochs), rel=1e-3)
    assert [f.code for f in model.findings if f.code.startswith("batch-size")] == ["batch-size-interpolated"]


def test_a_size_that_was_probed_is_taken_as_it_is() -> None:
    odd = [profile(32), profile(64, 0.5), profile(128)]
    assert fit_at(odd, 64) == fit_at([profile(64, 0.5)], 64)


def test_a_third_size_shows_the_curvature() -> None:
    straight = interpolate_time({16: 1.0, 64: 2.5, 128: 4.5}, 32)
    bent = interpolate_time({16: 1.0, 64: 2.5, 128: 9.0}, 32)  # 64 lies 39 % below the line through 16 and 128
    plain = interpolate_time({16: 1.0, 64: 2.5}, 32)
    assert straight.value == bent.value == plain.value
    assert straight.above == pytest.approx(plain.above * math.sqrt(2 / 3))  # the prior counts as two sizes
    per_doubling = (2.5 / (1.0 + 8.0 * 48 / 112) - 1) ** 2 / 3  # 16 to 128 are three doublings, 16 to 64 are two
    assert bent.above == pytest.approx(math.sqrt(plain.above**2 * 2 / 3 + per_doubling / 3 * 2))
    assert bent.below > plain.below > straight.below
    near, far = (
        fit_at([profile(32), profile(128), profile(256)], 64),
        fit_at([profile(32), profile(128), profile(256, 1.0)], 64),
    )
    assert far.high[2] > near.high[2]


def test_the_low_end_reaches_what_a_machine_that_is_full_or_not_would_take() -> None:
    """Constant up to a size, in proportion from there: 1 s up to 16 or more, 4 s at 64, so 2 s or less at 32."""
    found = interpolate_time({16: 1.0, 64: 4.0}, 32)
    assert (found.value, found.below) == (2.0, found.above)  # in proportion already: nothing to reach down to
    found = interpolate_time({16: 1.0, 64: 2.0}, 32)
    assert found.value == pytest.approx(4 / 3)
    assert found.below > 0.15 > found.above
    flat = interpolate_time({16: 1.0, 64: 1.0}, 32)  # constant already
    assert flat.below == flat.above


@pytest.mark.parametrize("wanted", [3, 4, 5, 100, 128])
def test_the_interval_of_an_extrapolation_grows_with_the_distance(wanted: int) -> None:
    times = {6: 1.0, 64: 4.0}
    found = interpolate_time(times, wanted)
    near = 6 if wanted < 6 else 64
    assert found.source == "extrapolated"
    assert found.below == found.above
    assert found.above == pytest.approx(EXTRAPOLATION_WIDTH * abs(math.log2(wanted / near)))
    bent = interpolate_time(times | {20: 3.0}, wanted)
    assert bent.above > found.above


def test_extrapolation_reaches_twice_the_largest_size() -> None:
    profiles = [profile(32), profile(128)]
    assert "batch-size-extrapolated" in {f.code for f in fit_at(profiles, 256).findings}
    assert "batch-size-extrapolated" in {f.code for f in fit_at(profiles, 16).findings}
    for size in (257, 15):
        with pytest.raises(EstimateError, match=str(size)):
            fit_at(profiles, size)


def test_one_size_is_not_enough() -> None:
    with pytest.raises(EstimateError, match="32"):
        fit_at([profile(32), profile(32)], 64)


def test_sizes_that_ran_out_of_memory_are_errors() -> None:
    profiles = [profile(32), profile(128), out_of_memory(200)]
    assert fit_at(profiles, 150).epoch_seconds > 0
    for size in (200, 256):
        with pytest.raises(EstimateError, match="200"):
            fit_at(profiles, size)


def test_a_step_that_grows_faster_than_its_batch_does_not_spoil_the_sizes_below() -> None:
    found = interpolate_time({16: 1.0, 256: 100.0}, 64)  # something happens before 256
    assert found.value == 4.0
    assert found.value * (1 + found.above) > 20


def test_whole_epochs_without_steps_do_as_well() -> None:
    def epochs(batch_size: int) -> vs.Profile:
        seconds = EXAMPLES / batch_size * (0.02 + 0.001 * batch_size)
        return make_epoch_profile("a", seconds + 5, *[seconds] * 3, batch_size=batch_size)

    model = fit_at([epochs(32), epochs(128)], 64)
    assert model.epoch_seconds == pytest.approx(EXAMPLES / 64 * 0.084)
    assert model.seconds(1) == pytest.approx(EXAMPLES / 64 * 0.084 + 5)


def test_validation_is_interpolated_by_batches() -> None:
    def validated(batch_size: int) -> vs.Profile:
        later = 6_400 / batch_size * (0.01 + 0.0005 * batch_size)
        return profile(batch_size, validation_seconds=[later + 1, later])

    model = fit_at([validated(32), validated(128)], 64)
    assert model.validation_seconds == pytest.approx(100 * 0.042)
    assert model.first_validation_seconds == pytest.approx(100 * 0.042 + 1)


@pytest.mark.parametrize("method", ["malta-iteration", "malta-iteration-no-validation:mean-2-10"])
def test_the_methods_of_the_dissertation_can_be_interpolated(method: str) -> None:
    model = fit_at([profile(32), profile(128)], 64, method=method)
    assert model.epoch_seconds == pytest.approx(1000 * 0.084)


@pytest.mark.parametrize(
    ("profiles", "size", "error"),
    [
        ([], 64, ArgumentError),
        (
            [profile(32), make_profile("b")],
            48,
            EstimateError,
        ),
        ([profile(32), profile(128)], 0, ArgumentError),
        ([profile(32), profile(128)], True, ArgumentError),
    ],
)
def test_profiles_that_form_no_line_are_rejected(profiles: list[vs.Profile], size: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        fit_at(profiles, size)


def test_validation_batches_of_a_size_that_was_not_probed_are_rejected() -> None:
    probed = [profile(size, validation_seconds=[1.0, 1.0]) for size in (32, 128)]
    with pytest.raises(EstimateError, match="validation_examples="):
        fit_at(probed, 64, workload=vs.Workload(validation_steps=9))


sizes = st.integers(1, 4096)


times = st.dictionaries(sizes, st.floats(1e-6, 1e3), min_size=2, max_size=6)


@given(times, sizes)
def test_an_interpolated_time_is_positive_and_between_its_neighbors(known: dict[int, float], size: int) -> None:
    if not min(known) / 2 <= size <= max(known) * 2:
        with pytest.raises(EstimateError):
            interpolate_time(known, size)
        return
    found = interpolate_time(known, size)
    assert found.value > 0
    assert found.below >= 0
    assert found.above >= 0
    if found.source == "interpolated":
        below, above = max(s for s in known if s < size), min(s for s in known if s > size)
        assert min(known[below], known[above]) * (1 - 1e-9) <= found.value
        assert found.value <= max(known[below], known[above]) * (1 + 1e-9)


@pytest.mark.parametrize(("size", "share"), [(32, 0.0), (80, 0.5), (104, 0.75), (20, 0.0), (200, 1.0)])
def test_other_terms_are_interpolated_linearly(size: int, share: float) -> None:
    """A start of 2 s at one size and of 6 s at the other; beyond both it is that of the nearer one."""
    model = fit_at([profile(32), profile(128, init_seconds=6.0, first_iteration_seconds=7.0)], size)
    assert model.terms["initialization"][0] == pytest.approx(2.0 + 4.0 * share)
    assert model.terms["first_iteration"][0] == pytest.approx(3.0 + 4.0 * share)


def test_a_term_of_one_size_is_interpolated_with_zero() -> None:
    model = fit_at([profile(32, init_seconds=None), profile(128, init_seconds=4.0)], 80)
    assert model.terms["initialization"] == (pytest.approx(2.0), 0.0)
    turned = fit_at([profile(32, init_seconds=4.0), profile(128, init_seconds=None)], 104)
    assert turned.terms["initialization"] == (pytest.approx(1.0), 0.0)


def test_a_size_that_was_probed_needs_no_line_through_others() -> None:
    """Missing validation at another size matters for interpolation only."""
    both = [make_profile(batch_size=32, validation_seconds=[2.0, 1.0]), make_profile(batch_size=128)]
    assert vs.estimate(both, epochs=5, batch_size=32).seconds == vs.estimate(both[0], epochs=5).seconds
    with pytest.raises(vs.errors.EstimateError, match="validation"):
        vs.estimate(both, epochs=5, batch_size=64)


@pytest.mark.parametrize(
    ("steps", "size", "examples", "wanted"),
    [
        ({16: 7, 64: 2}, 32, 100, 4),
        ({16: 6, 64: 1}, 32, 100, 3),  # inputs that drop the remainder
        ({16: 6, 64: 1}, 128, 100, 1),
        ({16: 7, 64: 2}, 32, None, 4),  # at most 112 examples, by the smaller product
        ({16: 7, 64: 1}, 32, None, 2),
        ({16: 6.25, 64: 1.5}, 32, None, 3.0),
        ({16: 7, 64: None}, 32, 100, 1 / 32),
    ],
)
def test_steps_at_a_size_that_was_not_probed(steps: Any, size: int, examples: int | None, wanted: float) -> None:
    at, found = count_steps(steps, size, examples, [])
    assert found == wanted
    assert at == (steps if None not in steps.values() else {16: 1 / 16, 64: 1 / 64})


def test_steps_that_take_no_time_take_none_at_another_size() -> None:
    model = fit_at([profile(32, 0.0), profile(128, 0.0)], 64)
    assert model.seconds(5) == pytest.approx(5.0)  # the start, and the first step


@given(times, sizes, st.randoms())
def test_the_order_of_probes_changes_nothing(known: dict[int, float], size: int, random: Any) -> None:
    if min(known) <= size <= max(known):
        items = list(known.items())
        random.shuffle(items)
        assert interpolate_time(dict(items), size) == interpolate_time(known, size)
