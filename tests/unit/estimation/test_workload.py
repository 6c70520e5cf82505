"""Workloads: steps per epoch and the smaller last batch."""

from __future__ import annotations

from typing import Any

import pytest

import vmselect as vs
from tests.support.profiles import probed
from vmselect.errors import ArgumentError
from vmselect.estimation.workload import Workload
from vmselect.records import Epoch


@pytest.mark.parametrize(
    ("given", "steps", "partial"),
    [
        ({"examples": 1_000}, 16, 40),
        ({"steps_per_epoch": 16, "examples": 1_000}, 16, 40),  # 15 whole batches of 64 and one of 40
        ({"steps_per_epoch": 15, "examples": 1_000}, 15, 0),
        ({"steps_per_epoch": 20}, 20, 7),  # as probed
        ({"steps_per_epoch": 21}, 21, 0),
        ({}, 20, 7),
        ({"partial_batch": 3}, 20, 3),
    ],
)
def test_the_smaller_last_batch_of_a_workload(given: dict[str, Any], steps: int, partial: int) -> None:
    profile = probed(steps_per_epoch=20, batch_size=64, partial_batch=7)
    workload = vs.Workload.of(profile, **given)
    assert (workload.steps_per_epoch, workload.partial_batch) == (steps, partial)


@pytest.mark.parametrize(
    ("setup", "steps", "partial"),
    [
        ({"examples": 100, "batch_size": 32}, 4, 4),
        ({"examples": 96, "batch_size": 32}, 3, 0),
        ({"examples": 100, "batch_size": 32, "steps_per_epoch": 3, "partial_batch": 0}, 3, 0),  # the rest is dropped
        ({"examples": 100, "batch_size": 32, "steps_per_epoch": 9, "partial_batch": 5}, 9, 5),
        ({"partial_batch": 5}, 8, 5),
    ],
)
def test_the_steps_of_an_epoch_as_the_probe_saw_them(setup: dict[str, int], steps: int, partial: int) -> None:
    epochs = tuple(Epoch(epoch=number, seconds=1.0, steps=count) for number, count in enumerate((7, 8)))
    workload = vs.Workload.of(probed(timeline={"epochs": epochs}, **setup))
    assert (workload.steps_per_epoch, workload.partial_batch) == (steps, partial)


def test_an_input_that_drops_the_remainder_goes_on_doing_so() -> None:
    drops = probed(examples=100, batch_size=32, steps_per_epoch=3, partial_batch=0)
    assert vs.Workload.of(drops, examples=1_000).steps_per_epoch == 31
    assert vs.Workload.of(drops, examples=10).steps_per_epoch == 1
    keeps = probed(examples=100, batch_size=32, steps_per_epoch=4, partial_batch=4)
    assert vs.Workload.of(keeps, examples=1_000).steps_per_epoch == 32
    assert vs.Workload.of(probed()).steps_per_epoch is None


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("batch_size", 1),
        ("examples", 1),
        ("partial_batch", 0),
        ("validation_examples", 0),
        ("validation_steps", 1),
        ("validation_freq", 1),
    ],
)
def test_the_least_of_every_size(name: str, least: int) -> None:
    assert getattr(Workload(**{name: least}), name) == least  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=name):
        Workload(**{name: least - 1})  # type: ignore[arg-type]
