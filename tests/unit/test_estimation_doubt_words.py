"""What an estimate doubts, and in which words: both sides of every edge."""

from __future__ import annotations

from typing import Any

import pytest

from vmselect.errors import EstimateError
from vmselect.estimation.autotune_wait import Waiting
from vmselect.estimation.batch_sizes import _count_steps, _curvature, _nearest
from vmselect.estimation.overheads import Boundaries, Saves
from vmselect.estimation.readings import Block, Readings
from vmselect.estimation.statistics import Level
from vmselect.estimation.validation import _scale
from vmselect.estimation.warnings import find_warnings
from vmselect.estimation.workload import Workload
from vmselect.records import Profile, Setup, Timeline

STEP = Level(0.5, 0.0, 0.0, 0.0)


def doubts(
    seconds: list[float] | None = None,
    *,
    boundaries: Boundaries | None = None,
    saves: Saves | None = None,
    step: Level = STEP,
    unit: str = "step",
    endings: tuple[float, float] | None = None,
    **setup: Any,
) -> dict[str, str]:
    """Messages by code, for an epoch of ten seconds."""
    times = [1.0] * 5 if seconds is None else seconds
    readings = Readings(unit=unit, blocks=[Block(times, [1] * len(times))])
    if endings:
        readings.first_endings, readings.later_endings = [endings[0]], [endings[1]]
    profile = Profile(outcome="stopped", setup=Setup(**setup), timeline=Timeline())
    found = find_warnings(
        [profile],
        readings,
        step=step,
        boundaries=boundaries or Boundaries(),
        saves=saves or Saves(),
        epoch_seconds=10.0,
    )
    return {finding.code: finding.message for finding in found}


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "rests on no steady steps,"), (1, "rests on 1 steady step,"), (2, "rests on 2 steady steps,"), (3, "")],
)
def test_three_readings_are_not_few(count: int, said: str) -> None:
    found = doubts([1.0] * count)
    assert said in found["few-readings"] if said else not found


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        ([1.0] * 10 + [1.25] * 10, True),
        ([1.0] * 10 + [1.2] * 10, False),  # 0.2 of 1.1
        ([1.0] * 10 + [1.25] * 9, False),  # no second part
        ([1.0] * 12 + [2.0] * 12 + [1.0] * 72, True),  # eight parts of twelve
        ([4.0] * 10 + [5.0] * 10 + [5.0] * 10, False),  # a fifth is not more than a fifth
    ],
)
def test_a_speed_that_changed_by_more_than_a_fifth(seconds: list[float], told: bool) -> None:
    assert ("changing-speed" in doubts(seconds)) is told
    assert "changing-speed" not in doubts(seconds, unit="epoch")


def test_which_speeds_are_named() -> None:
    assert "steps took 1 s at one time and 3 s at another" in doubts([1.0] * 10 + [3.0] * 10)["changing-speed"]


def test_a_lone_stall_and_a_long_boundary_are_named() -> None:
    found = doubts(step=Level(0.5, 0.0, 0.0, 0.0, stall=3.0), boundaries=Boundaries(shortened=True))
    assert list(found) == ["lone-stall", "long-boundary"]
    assert "one step took longer than all others" in found["lone-stall"]
    assert "took over 128 steps" in found["long-boundary"]


@pytest.mark.parametrize(("longest", "told"), [(0.5, False), (0.51, True)])
def test_waits_are_named_from_a_twentieth_of_the_epoch_on(longest: float, told: bool) -> None:
    waiting = Waiting(Level(0.25, 0.0, 0.0, 0.0), 0.4, longest)
    assert ("waits-between-epochs" in doubts(boundaries=Boundaries(waiting=waiting))) is told


def test_what_is_said_of_waits() -> None:
    waiting = Waiting(Level(2.5, 0.0, 0.0, 0.0), 0.4, 6.0)
    said = doubts(boundaries=Boundaries(waiting=waiting))["waits-between-epochs"]
    assert "may idle up to 6 s after each epoch of 10 s" in said
    assert "after 40% of them: 2.5 s an epoch are counted, 20% of the time and of the bill" in said


@pytest.mark.parametrize(
    ("longest", "epochs", "told"), [(0.5, None, False), (0.51, None, True), (2.0, 4, False), (2.1, 4, True)]
)
def test_a_wait_at_the_end_is_named_from_a_twentieth_of_the_training_on(
    longest: float, epochs: int | None, told: bool
) -> None:
    last = Waiting(Level(0.3, 0.0, 0.0, 0.0), 0.4, longest)
    found = doubts(boundaries=Boundaries(last_waiting=last), epochs=epochs)
    assert ("waits-at-the-end" in found) is told
    if told:
        assert "300 ms are counted for that, once" in found["waits-at-the-end"]


@pytest.mark.parametrize(("ending", "told"), [(0.5, False), (0.51, True)])
def test_saves_of_the_best_are_named_from_a_twentieth_of_the_epoch_on(ending: float, told: bool) -> None:
    ends = Boundaries(ending=Level(ending, 0.0, 0.0, 0.0))
    assert ("saves-the-best" in doubts(boundaries=ends, saving="best")) is told
    assert not doubts(boundaries=ends)


@pytest.mark.parametrize(
    ("saves", "saving", "said"),
    [
        (Saves(by_batches=True, per_epoch=2.5, longest=3.0), "batches", "allows for 2.5 of them an epoch, 3 s each"),
        (Saves(by_batches=True, per_epoch=2.5), "batches", "No save was seen"),
        (Saves(by_batches=True, per_epoch=2.5, longest=0.25), None, "of them an epoch, 250 ms each"),
        (Saves(by_batches=True, longest=3.0), "batches", "No save was seen"),
    ],
)
def test_what_is_allowed_for_saves_by_batches(saves: Saves, saving: str | None, said: str) -> None:
    found = doubts(saves=saves, saving=saving, save_freq=20)["saves-by-batches"]
    assert "a checkpoint is saved every 20 batches" in found
    assert said in found
    assert "every so many batches" in doubts(saves=saves, saving=saving)["saves-by-batches"]


@pytest.mark.parametrize(("now_and_then", "told"), [(0.5, False), (0.51, True)])
def test_saves_now_and_then_are_named_from_a_twentieth_of_the_epoch_on(now_and_then: float, told: bool) -> None:
    found = doubts(saves=Saves(now_and_then=now_and_then), endings=(7.0, 0.25))
    assert ("saves-now-and-then" in found) is told
    if told:
        assert "worked for 7 s after the first epoch, and for 250 ms at most" in found["saves-now-and-then"]


# Other batch sizes


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
    at, found = _count_steps(steps, size, examples, [])
    assert found == wanted
    assert at == (steps if None not in steps.values() else {16: 1 / 16, 64: 1 / 64})


def test_the_third_size_is_the_one_next_by_doublings() -> None:
    assert _nearest([8, 16, 64, 160], 32) == [16, 64, 8]
    assert _nearest([4, 16, 64, 160], 32) == [16, 64, 160]
    assert _nearest([16, 64], 100) == [16, 64]


def test_how_far_a_third_size_lies_from_the_line() -> None:
    assert _curvature({16: 1.0, 64: 4.0}, 16, 64) == 0.0
    assert _curvature({16: 1.0, 32: 3.0, 64: 4.0}, 16, 64) == pytest.approx(0.5)  # the line is at 2
    assert _curvature({16: 1.0, 32: 1.0, 64: 4.0}, 32, 64) == pytest.approx(0.5)


# Validations of another size


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
    profile = Profile(outcome="stopped", setup=Setup(**setup), timeline=Timeline())
    assert _scale(profile, Readings(), Workload(**said)) == scale


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"validation_steps": 6}, "how many steps its validations had .* scaled to 6. Leave validation_steps out"),
        ({"validation_examples": 9}, "how many examples its validations had .* to 9. Leave validation_examples out"),
    ],
)
def test_validations_of_unknown_size_are_not_scaled(said: Any, words: str) -> None:
    profile = Profile(outcome="stopped", setup=Setup(), timeline=Timeline())
    with pytest.raises(EstimateError, match=words):
        _scale(profile, Readings(), Workload(**said))
