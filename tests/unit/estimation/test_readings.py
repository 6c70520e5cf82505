"""Readings of profiles, sorted by what they measure."""

from __future__ import annotations

from typing import Any

import pytest

import vmselect as vs
from tests.support.profiles import probed
from vmselect.estimation.readings import (
    _epoch_aggregates,
    _pipeline_seconds,
    group_validations,
)
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
