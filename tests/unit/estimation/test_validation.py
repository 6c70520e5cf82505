"""Times of first and later validations."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.profiles import probed
from vmselect.errors import EstimateError
from vmselect.estimation.readings import (
    Readings,
)
from vmselect.estimation.statistics import (
    Level,
    locate,
)
from vmselect.estimation.validation import _assume, _later_from_first, _scale, _whole_seconds
from vmselect.estimation.workload import Workload
from vmselect.records import Validation

STEP = Level(0.1, 0.01, 0.02, 0.0)


def check(*batches: float, more: float = 0.0, truncated: bool = False, of: int | None = None, epoch: int = 0) -> Any:
    """A validation of so many seconds a batch, and ``more`` around them."""
    count = len(batches) if of is None else of
    seconds = math.fsum(batches) + more
    return Validation(epoch=epoch, seconds=seconds, batches=count, batch_seconds=batches, truncated=truncated)


def numbers(level: Level) -> list[float]:
    return [level.value, level.half_width_below, level.half_width_above, level.noise, level.stall]


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
    assert (finding.code, finding.severity) == ("one-validation", "info")
    later, finding = _later_from_first(profile, [[check(more=3.0)], [check(more=4.0), check(more=1.0)]], 10, 0.9)
    assert numbers(later) == pytest.approx([4.0, 2.8, 0.8, 0.0, 0.0])


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


@pytest.mark.parametrize(
    ("setup", "said", "scale"),
    [
        ({"validation_examples": 80}, {"validation_examples": 200}, 2.5),
        ({"validation_examples": 80}, {"validation_examples": 80}, 1.0),
        ({"validation_examples": 80}, {}, 1.0),
        ({"validation_steps": 4}, {"validation_steps": 10}, 2.5),
        ({"validation_steps": 4}, {"validation_steps": 4}, 1.0),
        ({"validation_examples": 80, "batch_size": 32}, {"validation_steps": 6}, 2.0),  # three batches
        ({"validation_steps": 4}, {"validation_examples": 65, "batch_size": 32}, 0.75),
    ],
)
def test_how_much_longer_another_validation_is(setup: Any, said: Any, scale: float) -> None:
    assert _scale(probed(**setup), Readings(), Workload(**said)) == scale


@pytest.mark.parametrize(
    ("given", "named"),
    [({"validation_steps": 6}, "Omit validation_steps"), ({"validation_examples": 9}, "Omit validation_examples")],
)
def test_validations_of_unknown_size_are_not_scaled(given: Any, named: str) -> None:
    with pytest.raises(EstimateError, match=named):
        _scale(probed(), Readings(), Workload(**given))
