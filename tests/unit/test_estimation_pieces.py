"""The pieces of an estimate one by one: exact numbers, and both sides of every edge."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.probed_profile import probed
from vmselect.estimation.overheads import time_boundaries, time_partial_batch
from vmselect.estimation.readings import Opening, Readings, _epoch_aggregates, _pipeline_seconds, group_validations
from vmselect.estimation.statistics import (
    Level,
    _block_means,
    _block_variance,
    find_drift,
    locate,
    predict_once,
    quantile,
)
from vmselect.estimation.validation import _assume, _later_from_first, _repeat, _whole_seconds
from vmselect.estimation.workload import Workload
from vmselect.records import Epoch, Steps, Validation
from vmselect.records.training import Step

STEP = Level(0.1, 0.01, 0.02, 0.0)


def check(*batches: float, more: float = 0.0, truncated: bool = False, of: int | None = None, epoch: int = 0) -> Any:
    """A validation of so many seconds a batch, and ``more`` around them."""
    count = len(batches) if of is None else of
    seconds = math.fsum(batches) + more
    return Validation(epoch=epoch, seconds=seconds, batches=count, batch_seconds=batches, truncated=truncated)


def numbers(level: Level) -> list[float]:
    return [level.value, level.half_width_below, level.half_width_above, level.noise, level.stall]


# A typical value


@pytest.mark.parametrize(
    ("seconds", "mean", "stall"),
    [
        ([1.0, 1.0, 9.0], 11 / 3, 0.0),  # too few to tell which one stands out
        ([1.0, 1.0, 1.0, 9.0], 1.0, 8.0),
        ([1.0, 1.0, 1.0, 3.0], 1.5, 0.0),  # two steps too long is not more than two
        ([1.0, 1.0, 1.0, 3.5], 1.3125, 1.25),
        ([1.0, 1.0, 1.0, 6.0], 1.625, 2.5),  # five too long is not more than five
        ([1.0, 1.0, 1.0, 6.5], 1.0, 5.5),
        ([1.0] * 4 + [7.0, 7.0], 3.0, 0.0),  # they recur
        ([1.0] * 6 + [4.0, 4.0], 1.75, 0.0),
        ([1.0] * 6 + [7.0, 4.0], 10 / 7, 6.0),
    ],
)
def test_what_counts_of_a_lone_long_reading(seconds: list[float], mean: float, stall: float) -> None:
    found = locate(seconds)
    assert (found.value, found.stall) == (pytest.approx(mean), pytest.approx(stall))


def test_the_widths_of_a_typical_value() -> None:
    found = locate([2.0, 2.0, 2.5, 1.5], units=[2, 2, 2, 2], confidence=0.9)
    variance = (3 * 0.1**2 + 2 * 0.25**2) / 6
    width = quantile(0.9, 6.0) * math.sqrt(variance / 4)
    assert quantile(0.9, 6.0) == pytest.approx(1.9431802805)
    assert numbers(found) == pytest.approx([1.0, width, math.hypot(width, 0.06 * 2), math.sqrt(2 * variance), 0.0])
    many = locate([1.0] * 100)
    assert many.half_width_above == pytest.approx(math.hypot(many.half_width_below, -math.log(0.1) / 100 * 2))
    assert locate([1.0] * 100, unseen=False).half_width_above == many.half_width_below
    assert locate([1.0, 1.0, 1.0, 9.0], unseen=False).half_width_above == pytest.approx(
        math.hypot(found_width(3), 8 / 4)
    )


def found_width(readings: int) -> float:
    """The half-width of so many readings of one second that all agree."""
    freedom = 3.0 + readings - 1
    return quantile(0.9, freedom) * math.sqrt(3 * 0.1**2 / freedom / readings)


def test_what_comes_once_in_every_run() -> None:
    width = quantile(0.9, 4.0) * math.sqrt((3 * (0.12 * 3) ** 2 + 2) / 4 * 1.5 / 2)
    assert numbers(predict_once([2.0, 4.0])) == pytest.approx([3.0, width, width, 0.0, 0.0])
    far = predict_once([0.1, 9.9])
    assert far.half_width_below == far.value == pytest.approx(5.0)
    assert far.half_width_above > 5.0


def test_so_many_of_a_level_are_as_far_off_as_each() -> None:
    assert numbers(Level(1.0, 0.25, 0.5, 0.75, 2.0).times(4.0)) == [4.0, 1.0, 2.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("values", "drift"),
    [
        ([1.0] * 5 + [1.2] * 5, 0.0),  # two blocks do not tell
        ([1.0] * 5 + [1.2] * 5 + [1.4] * 4, 0.0),
        ([1.0] * 5 + [1.2] * 5 + [1.4] * 5, 0.2 / 1.2),
        ([level + by for level in (1.0, 1.2, 1.4) for by in (-0.1, 0.0, 0.1, 0.0, 0.0)], math.sqrt(0.039) / 1.2),
        ([0.0] * 15, 0.0),
    ],
)
def test_drift_within_a_run(values: list[float], drift: float) -> None:
    assert find_drift(values) == pytest.approx(drift, abs=1e-9)


@pytest.mark.parametrize(("count", "size", "blocks"), [(4, 5, 0), (5, 5, 1), (14, 5, 2), (15, 5, 3), (48, 6, 8)])
def test_blocks_of_neighbours(count: int, size: int, blocks: int) -> None:
    assert _block_means([2.0] * count) == (size, [2.0] * blocks)


def test_the_variance_between_blocks() -> None:
    three = [1.0] * 5 + [1.2] * 5 + [1.4] * 5
    assert _block_variance(three, 1.2, 0.3) == pytest.approx((0.3 / 5 + 0.08) / 5 / 3)
    assert _block_variance(three[:14], 1.2, 0.3) == 0.0


# Validations


def test_several_validations_of_an_epoch_add_up() -> None:
    first, later = Level(10.0, 3.0, 6.0, 0.5), Level(4.0, 2.0, 0.5, 0.1)
    assert _repeat(first, later, 1.0) == (first, later)
    together, each = _repeat(first, later, 2.5)
    assert numbers(together) == pytest.approx([16.0, math.hypot(3, 3), math.hypot(6, 0.75), 0.0, 0.0])
    assert numbers(each) == [10.0, 5.0, 1.25, 0.0, 0.0]
    assert _repeat(Level(1.0, 0.0, 0.0, 0.0), later, 0.5)[0].value == 0.0


@pytest.mark.parametrize(
    ("validation", "batches", "covers", "seconds"),
    [
        (check(1.0, 0.1, 0.1, 0.1, 5.1, more=0.5), None, 1, 0.5 + 1.0 + 4 * 0.1),  # without its stall
        (check(1.0, 0.1, 0.1, 5.1, more=0.5), None, 1, 6.8),  # too few to tell
        (check(1.0, 0.1, 0.1, 0.1, 5.1, of=9), None, 2, 1.0 + 7 * 0.05),
        (check(1.0, 0.1, 0.1, 0.1, 5.1, of=10), None, 2, 1.0 + 8 * 0.05),
        (check(1.0, 0.1, 0.1, 0.1, 5.1, of=11), None, 2, 6.4),  # one reading was not kept
        (check(1.0, 0.2, more=0.5, truncated=True), 10, 1, 0.5 + 1.0 + 9 * 0.2),
        (check(0.5, more=0.25, truncated=True), 10, 1, 0.25 + 0.5 + 9 * 0.5),
        (check(1.0, 0.2, truncated=True), None, 1, 1.2),
        (check(1.0, truncated=True), 3, 4, 1.0),  # one reading covers more than there are
        (check(more=0.75, truncated=True), 10, 1, 0.75),
        (check(1.0, 0.2, more=-0.2, truncated=True), 4, 1, 1.0 + 3 * 0.2),
    ],
)
def test_a_validation_had_it_run_to_its_end(validation: Any, batches: Any, covers: int, seconds: float) -> None:
    assert _whole_seconds(validation, batches, covers) == pytest.approx(seconds)


def test_later_validations_from_the_first() -> None:
    profile = probed(steps_per_execution=2)
    later, finding = _later_from_first(profile, [[check(3.0, 0.5, 0.5)]], 10, 0.9)
    each = locate([0.5, 0.5])
    assert numbers(later) == pytest.approx([2.5, each.half_width_below * 5, each.half_width_above * 5, 0.0, 0.0])
    assert "only the first validation was seen; later ones are taken from its batches" in finding.message
    assert (finding.code, finding.severity) == ("one-validation", "info")
    later, finding = _later_from_first(profile, [[check(more=3.0)], [check(more=4.0), check(more=1.0)]], 10, 0.9)
    assert numbers(later) == pytest.approx([4.0, 2.8, 0.8, 0.0, 0.0])
    assert "taken to be as slow, and may be much faster" in finding.message


@pytest.mark.parametrize(
    ("said", "compiling", "first", "later", "code"),
    [
        ({"validation_steps": 20}, 3.0, [3.7, 0.42, 0.7], [0.7, 0.42, 0.7], "validation-assumed"),
        ({"validation_examples": 80, "batch_size": 32}, 0.0, [0.0875, 0.0525, 0.0875], None, "validation-assumed"),
        ({}, 3.0, [3.0, 0.0, 3.0], [0.0, 0.0, 0.0], "validation-unknown"),
        ({}, 0.0, [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], None),
        ({"validation_examples": 80}, 0.0, [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], None),
    ],
)
def test_a_validation_that_nobody_measured(said: Any, compiling: float, first: Any, later: Any, code: Any) -> None:
    seen = Readings(first_validations=[[check(compiling, truncated=True)]] if compiling else [])
    found = _assume(probed(), seen, Workload(**said), STEP)
    assert numbers(found.first)[:3] == pytest.approx(first)
    assert numbers(found.later)[:3] == pytest.approx(first if later is None else later)
    assert [finding.code for finding in found.findings] == ([code] if code else [])
    if code == "validation-assumed":
        assert "each is assumed to cost 0.35 of a training step per batch" in found.findings[0].message


@pytest.mark.parametrize(
    ("epochs", "often", "grouped"),
    [
        ([0, 1, 2, 2], None, [[0, 3], [1], [2]]),  # a test when all is done comes once
        ([0, 0, 1, 1, 1], None, [[0, 1, 4], [2, 3]]),
        ([0, 0, 1], None, [[0, 1], [2]]),
        ([0, 0, 0], None, [[0, 1, 2]]),
        ([0, 0, 1], 2.0, [[0], [1], [2]]),
        ([], None, []),
    ],
)
def test_validations_stand_together_by_epoch(epochs: list[int], often: float | None, grouped: Any) -> None:
    seen = tuple(Validation(epoch=epoch, seconds=float(number)) for number, epoch in enumerate(epochs))
    found = group_validations(probed(timeline={"validations": seen}, validations_per_epoch=often))
    assert [[one.seconds for one in epoch] for epoch in found] == grouped


@pytest.mark.parametrize(
    ("epochs", "grouped"),
    [
        ([0, 0, 1], [[0, 1]]),
        ([0, 0, 1, 1, 2], [[0, 1], [2, 3]]),
        ([0, 0, 1, 1], [[0, 1], [2, 3]]),
        ([0], [[0]]),
        ([0, 1, 1], [[0, 2], [1]]),
    ],
)
def test_an_epoch_that_was_interrupted_between_its_validations_tells_nothing(epochs: list[int], grouped: Any) -> None:
    seen = tuple(Validation(epoch=epoch, seconds=float(number)) for number, epoch in enumerate(epochs))
    found = group_validations(probed(timeline={"validations": seen}).model_copy(update={"outcome": "interrupted"}))
    assert [[one.seconds for one in epoch] for epoch in found] == grouped


# Readings


@pytest.mark.parametrize(
    ("backend", "first", "covers", "seconds"),
    [
        ("tensorflow", 4.0, 1, 10.0 - 3.78 + 2.0),  # less what compiling took
        ("tensorflow", 4.0, 4, 10.0 - 3.48 + 2.0),
        ("tensorflow", 0.2, 1, 12.0),
        ("tensorflow", 40.0, 1, 2.0),
        ("jax", 4.0, 1, 12.0),
    ],
)
def test_how_long_an_input_had_been_running(backend: str, first: float, covers: int, seconds: float) -> None:
    rows = [Step(0, 0, first, covers, "first"), *(Step(0, n, 0.1 * covers, covers, "steady") for n in (1, 2, 3))]
    timeline = {
        "steps": Steps.of(rows),
        "epochs": (Epoch(epoch=0, seconds=10.0), Epoch(epoch=1, seconds=5.0)),
        "validations": (Validation(epoch=0, seconds=2.0), Validation(epoch=7, seconds=2.0)),
    }
    profile = probed(timeline=timeline, environment={"backend": backend})
    assert _pipeline_seconds(profile) == pytest.approx({0: seconds, 1: 5.0})
    assert _pipeline_seconds(profile.model_copy(update={"outcome": "given"})) == {}


@pytest.mark.parametrize(
    ("steps", "partials", "row"),
    [
        (100, False, ([9.0], [96])),
        (100, True, ([8.5], [95])),
        (5, False, ([9.0], [1])),
        (5, True, ([], [])),
        (4, False, ([], [])),
        (3, False, ([], [])),
    ],
)
def test_a_whole_epoch_as_one_reading(steps: int, partials: bool, row: Any) -> None:
    epochs = tuple(
        Epoch(epoch=n, seconds=10.0, steps=steps, opening_seconds=1.0, closing_seconds=0.5, complete=n < 2)
        for n in range(3)
    )
    assert _epoch_aggregates(probed(timeline={"epochs": epochs}, steps_per_execution=4), partials=partials) == row


# Boundaries and smaller last batches


def boundaries(step: float = 0.125, setup: Any = None, **seen: Any) -> Any:
    level = Level(step, 0.0, 0.0, 0.0)
    return time_boundaries(
        probed(**(setup or {})), Readings(**seen), step=level, epoch_seconds=[(10.0, 1.0)], confidence=0.9
    )


@pytest.mark.parametrize(("seconds", "shortened", "value", "once"), [(16.0, False, 16.0, 0.0), (20.0, True, 16.0, 4.0)])
def test_a_boundary_seen_once_counts_for_128_steps_at_most(
    seconds: float, shortened: bool, value: float, once: float
) -> None:
    found = boundaries(openings=[Opening(seconds, cut_short=True)])
    assert (found.shortened, found.opening.value, found.once) == (shortened, value, once)
    plain = locate([16.0], prior_spread=0.25, unseen=False).half_width_above
    assert found.opening.half_width_above == pytest.approx(math.hypot(plain, 0.3 * once))
    longer = boundaries(openings=[Opening(seconds, cut_short=True)], truncated_boundaries=True).opening.half_width_above
    assert longer == pytest.approx(math.hypot(plain, 0.3 * 16.0, 0.3 * once))


def test_only_one_end_or_wrap_up_was_seen() -> None:
    found = boundaries(first_endings=[4.0, 3.0], first_wrap_ups=[3.0, 2.0])
    assert numbers(found.ending)[:3] == [2.0, 2.0, 2.0]
    assert (found.wrap_up.value, found.wrap_up.half_width_above) == (0.0, 3.0)
    assert (found.first_ending.value, found.first_wrap_up.value) == (3.5, 2.5)
    best = boundaries(setup={"saving": "best"}, first_endings=[4.0], later_endings=[1.0] * 9).ending
    assert (best.value, best.half_width_below) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("first", "finals", "once"),
    [(5.0, [], 3.0), (0.0, [], 0.0), (0.5, [1.0], 0.0), (1.5, [1.0, 2.0, 9.0], 1.5), (5.0, [1.0], 4.0)],
)
def test_what_boundaries_cost_once(first: float, finals: list[float], once: float) -> None:
    openings = [Opening(2.0, cut_short=True)] * 2
    found = boundaries(openings=openings, first_openings=[Opening(first, cut_short=True)], finals=finals)
    assert (found.opening.value, found.once) == (2.0, pytest.approx(once))


def test_the_first_step_of_an_epoch_counts_beyond_an_ordinary_one() -> None:
    assert boundaries(openings=[Opening(1.0, 0.5, 2, cut_short=True)]).opening.value == 1.25
    assert boundaries(openings=[Opening(0.0, 0.1, 2, cut_short=True)]).opening.value == 0.0


@pytest.mark.parametrize(
    ("machine", "seen", "each", "once"),
    [
        ({"backend": "tensorflow"}, {}, [0.0625, 0.0375, 0.0375], [0.0, 0.0, 0.0]),
        ({"backend": "jax"}, {}, [0.0625, 0.0375, 0.0375], [2.6, 1.3, 1.3]),
        ({"backend": "torch", "jit": True}, {}, [0.0625, 0.0375, 0.0375], [2.6, 1.3, 1.3]),
        ({"backend": "jax"}, {"first_partials": [1.0625]}, [0.0625, 0.0375, 0.0375], None),
    ],
)
def test_a_smaller_last_batch_that_was_not_seen_again(machine: Any, seen: Any, each: Any, once: Any) -> None:
    found = time_partial_batch(
        probed(environment=machine), Readings(first_units=4, **seen), Workload(batch_size=32, partial_batch=8),
        step=STEP, first=Level(3.0, 0.0, 0.0, 0.0), confidence=0.9,
    )  # fmt: skip
    assert numbers(found.each)[:3] == pytest.approx(each)
    assert numbers(found.once)[:3] == pytest.approx(once or numbers(predict_once([1.0]))[:3])


def test_a_smaller_last_batch_of_an_unknown_share_takes_a_whole_step() -> None:
    found = time_partial_batch(
        probed(), Readings(), Workload(partial_batch=8), step=STEP, first=STEP, confidence=0.9
    )  # fmt: skip
    assert numbers(found.each)[:3] == [0.1, 0.0, 0.0]
