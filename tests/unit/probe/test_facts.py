"""The schedule of validations, from Keras' ``validation_freq``."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmselect.describing.validations import ValidationSize, add_sizes
from vmselect.probe.facts import FitFacts, Schedule, TrainingFacts, read_schedule


@pytest.mark.parametrize(
    ("frequency", "initial", "epochs", "found"),
    [
        (1, 0, 9, Schedule(1)),
        (5, 0, 9, Schedule(5)),
        (5, 7, 90, Schedule(5, 3)),
        ([10, 20, 30], 0, 100, Schedule(10, None, 30)),
        (range(1000, 4001, 20), 0, 4000, Schedule(20, 1000)),
        ({4, 1}, 0, 9, Schedule(3, 1, 4)),
        ([7], 0, 9, Schedule(7)),
        ([2], 0, 9, Schedule(2, None, 2)),
        ([3, 8], 5, 20, Schedule(3, None, 3)),
        ([50], 0, 20, None),
        ([], 0, 20, None),
    ],
)
def test_known_schedules(frequency: object, initial: int, epochs: int, found: Schedule | None) -> None:
    assert read_schedule(frequency, initial_epoch=initial, epochs=epochs) == found  # type: ignore[arg-type]


@given(st.sets(st.integers(1, 60)), st.integers(0, 30), st.integers(1, 60))
def test_a_list_keeps_its_number_of_validations(numbers: set[int], initial: int, more: int) -> None:
    epochs = initial + more
    found = read_schedule(numbers, initial_epoch=initial, epochs=epochs)
    wanted = sum(initial < number <= epochs for number in numbers)
    counted = 0
    if found is not None:
        counted = len(range(found.first or found.every, min(more, found.last or more) + 1, found.every))
    assert counted == wanted


@pytest.mark.parametrize(
    ("size", "workers", "share"), [(32, 3, 11), (32, 2, 16), (32, 1, 32), (2, 3, 1), (None, 3, None)]
)
def test_the_share_of_a_worker_is_that_of_the_one_with_most(size: int | None, workers: int, share: int | None) -> None:
    facts = TrainingFacts(stated_batch_size=size)
    assert facts.build(workers=workers).worker_batch_size == share


@pytest.mark.parametrize("epochs", [0, 10**9, sys.maxsize])
def test_a_fit_without_epochs_or_without_end_has_no_number_of_epochs(epochs: int) -> None:
    facts = TrainingFacts(epochs=epochs, early_stopping=epochs)
    assert facts.stated_epochs is None
    assert (facts.build(workers=1).epochs, facts.build(workers=1).early_stopping) == (None, None)


def test_the_stated_size_of_a_validation() -> None:
    whole = FitFacts(batch_size=8, has_validation=True).with_validation(ValidationSize(100, 4, 32))
    setup = TrainingFacts(fit=whole).build(workers=1)
    assert (setup.validation_examples, setup.validation_steps, setup.validation_batch_size) == (100, None, 32)
    equal = FitFacts(batch_size=8, has_validation=True).with_validation(ValidationSize(None, 13, 8))
    setup = TrainingFacts(fit=equal).build(workers=1)
    assert (setup.validation_examples, setup.validation_steps, setup.validation_batch_size) == (None, 13, None)
    # What was counted in a whole validation is better than what the data state.
    assert TrainingFacts(fit=whole, validation_examples=99).build(workers=1).validation_examples == 99
    # Each of several processes may validate on its part of the data.
    several = TrainingFacts(fit=whole.times(2)).build(workers=2)
    assert (several.validation_examples, several.validation_batch_size) == (None, 64)


def test_sizes_of_validations_on_several_data_sets_are_added() -> None:
    first, second = ValidationSize(100, 4, 32), ValidationSize(40, 2, 32)
    assert add_sizes([first]) == first
    assert add_sizes([first, second]) == ValidationSize(140, 6, 32)
    assert add_sizes([first, ValidationSize(None, 2, 20)]) == ValidationSize(None, 6, None)
    assert add_sizes([]) == ValidationSize()
    assert first.limited(2) == ValidationSize(64, 2, 32)
    assert first.limited(9) == first.limited(None) == first
    assert ValidationSize().limited(5) == ValidationSize(None, 5, None)
