"""Readings of profiles, sorted by what they measure, and means of few readings with intervals."""

from __future__ import annotations

import math
from typing import Any

import pytest

import vmselect as vs
from tests.support.profiles import probed
from vmselect.estimation.readings import (
    Level,
    _epoch_aggregates,
    _pipeline_seconds,
    find_drift,
    group_validations,
    locate,
    predict_once,
    quantile,
)
from vmselect.estimation.runtime import HalfWidths
from vmselect.records import Boundary, Epoch, Step, Steps, Validation


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


def test_the_opening_of_an_epoch_counts_where_only_its_sum_was_kept() -> None:
    rows = [Step(0, 0, 1.0, 1, "first"), *(Step(0, n, 0.1, 1, "steady") for n in range(1, 40))]
    epochs = (
        Epoch(epoch=0, seconds=4.9, steps=40),
        Epoch(epoch=1, seconds=4.6, steps=40, opening_seconds=0.7),
    )
    timeline = {"steps": Steps.of(rows), "epochs": epochs, "boundaries": (Boundary(epoch=0, seconds=2.0),)}
    profile = probed(timeline=timeline, environment={"backend": "torch"}, steps_per_epoch=40, batch_size=8)
    # 2 s between the epochs, and a first step that took 0.6 s longer than an ordinary one.
    assert vs.estimate(profile, epochs=2).terms["epoch_boundaries"] == pytest.approx(2.6)


def numbers(level: Level) -> list[float]:
    return [level.value, level.half_width_below, level.half_width_above, level.noise, level.stall]


@pytest.mark.parametrize(
    ("seconds", "mean", "stall"),
    [
        ([1.0, 1.0, 9.0], 11 / 3, 0.0),  # too few
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
def test_a_lone_outlier(seconds: list[float], mean: float, stall: float) -> None:
    found = locate(seconds)
    assert (found.value, found.stall) == (pytest.approx(mean), pytest.approx(stall))


def found_width(readings: int) -> float:
    """The half-width of so many readings of one second that all agree."""
    freedom = 3.0 + readings - 1
    return quantile(0.9, freedom) * math.sqrt(3 * 0.1**2 / freedom / readings)


def test_half_widths_of_a_mean() -> None:
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


def test_half_widths_of_what_occurs_once() -> None:
    width = quantile(0.9, 4.0) * math.sqrt((3 * (0.12 * 3) ** 2 + 2) / 4 * 1.5 / 2)
    assert numbers(predict_once([2.0, 4.0])) == pytest.approx([3.0, width, width, 0.0, 0.0])
    far = predict_once([0.1, 9.9])
    assert far.half_width_below == far.value == pytest.approx(5.0)
    assert far.half_width_above > 5.0


def test_a_multiple_of_a_level() -> None:
    assert numbers(Level(1.0, 0.25, 0.5, 0.75, 2.0).times(4.0)) == [4.0, 1.0, 2.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("values", "drift"),
    [
        ([1.0] * 5 + [1.2] * 5, 0.0),  # two blocks are too few
        ([1.0] * 5 + [1.2] * 5 + [1.4] * 4, 0.0),
        ([1.0] * 5 + [1.2] * 5 + [1.4] * 5, 0.2 / 1.2),
        ([level + by for level in (1.0, 1.2, 1.4) for by in (-0.1, 0.0, 0.1, 0.0, 0.0)], math.sqrt(0.039) / 1.2),
        ([0.0] * 15, 0.0),
    ],
)
def test_drift_within_a_run(values: list[float], drift: float) -> None:
    assert find_drift(values) == pytest.approx(drift, abs=1e-9)


@pytest.mark.parametrize("covers", [1, 4])
def test_an_uncertain_outlier_counts_half_at_its_rate_and_half_once(covers: int) -> None:
    units = [covers] * 40
    for excess, recurring in ((1.9, 1.0), (2.1, 0.5), (4.9, 0.5), (5.1, 0.0)):
        level = locate([1.0 * covers] * 39 + [covers + excess], units=units)
        assert level.value == pytest.approx(1 + recurring * excess / sum(units))
        assert level.stall == pytest.approx((1 - recurring) * excess)
        # Whether all of it recurs, or none: both are within the interval.
        assert (
            level.value - level.half_width_below
            <= 1.0
            < 1 + excess / sum(units)
            <= level.value + level.half_width_above
        )
    assert locate([1.0] * 38 + [4.0] * 2).value == pytest.approx(1.15), "two of them recur"
    assert locate([1.0] * 2 + [4.0]).value == pytest.approx(2.0), "three readings are too few"


def test_squares_of_half_widths_add() -> None:
    widths = HalfWidths()
    widths.add_sides(3.0, 2.0, once=2.0, per_epoch=5.0)
    assert (widths.low, widths.high) == ((36.0, 180.0, 225.0), (16.0, 80.0, 100.0))
    widths.add_noise(2.0, per_epoch=3.0)
    assert (widths.low, widths.high) == ((36.0, 192.0, 225.0), (16.0, 92.0, 100.0))
    widths.add_level(Level(9.0, 1.0, 2.0, 0.0), per_epoch=1.0)
    assert (widths.low, widths.high) == ((36.0, 192.0, 226.0), (16.0, 92.0, 104.0))
