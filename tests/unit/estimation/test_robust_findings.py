"""Findings about an estimate, on both sides of their thresholds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import vmselect as vs
from tests.support.profiles import make_epoch_profile, make_truncated_profile, probed
from vmselect.estimation.overheads import Boundaries, Saves, Waiting
from vmselect.estimation.readings import Block, Level, Readings, find_changing_speed
from vmselect.estimation.robust import _find_disturbed_steps
from vmselect.estimation.runtime import Waits
from vmselect.findings import Finding
from vmselect.records import Validation

EPOCH_SECONDS = 10.0


def codes(findings: Iterable[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def readings_of(seconds: list[float], unit: str = "step") -> Readings:
    return Readings(unit=unit, runs=[[Block(seconds, [1] * len(seconds))]])


def boundary_codes(boundaries: Boundaries, **setup: Any) -> list[str]:
    return codes(boundaries.findings(probed(**setup), EPOCH_SECONDS))


def save_codes(saves: Saves, **setup: Any) -> list[str]:
    return codes(saves.findings(probed(**setup), EPOCH_SECONDS))


@pytest.mark.parametrize(("count", "expected"), [(0, ["few-readings"]), (2, ["few-readings"]), (3, [])])
def test_three_readings_are_not_few(count: int, expected: list[str]) -> None:
    level = Level(0.5, 0.0, 0.0, 0.0)
    assert codes(_find_disturbed_steps("a", readings_of([1.0] * count), level)) == expected


def test_a_lone_stall_and_a_long_boundary() -> None:
    stalled = Level(0.5, 0.0, 0.0, 0.0, stall=3.0)
    assert codes(_find_disturbed_steps("a", readings_of([1.0] * 5), stalled)) == ["lone-stall"]
    assert boundary_codes(Boundaries(shortened=True)) == ["long-boundary"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([1.0] * 10 + [1.25] * 10, True),
        ([1.0] * 10 + [1.2] * 10, False),  # 0.2 of 1.1
        ([1.0] * 10 + [1.25] * 9, False),  # no second part
        ([1.0] * 12 + [2.0] * 12 + [1.0] * 72, True),  # eight parts of twelve
        ([4.0] * 10 + [5.0] * 10 + [5.0] * 10, False),  # a fifth is not more than a fifth
    ],
)
def test_a_speed_that_changed_by_more_than_a_fifth(seconds: list[float], expected: bool) -> None:
    speeds = find_changing_speed(readings_of(seconds))
    assert (speeds == (min(seconds), max(seconds))) is expected
    assert find_changing_speed(readings_of(seconds, unit="epoch")) is None


@pytest.mark.parametrize(("longest", "expected"), [(0.5, False), (0.51, True)])
def test_waits_are_named_from_a_twentieth_of_the_epoch_on(longest: float, expected: bool) -> None:
    assert Waits(0.25, longest, 0.4, epoch_seconds=10.0).are_long is expected


@pytest.mark.parametrize(
    ("longest", "epochs", "expected"), [(0.5, None, False), (0.51, None, True), (2.0, 4, False), (2.1, 4, True)]
)
def test_a_wait_at_the_end_is_named_from_a_twentieth_of_the_training_on(
    longest: float, epochs: int | None, expected: bool
) -> None:
    last = Waiting(Level(0.3, 0.0, 0.0, 0.0), 0.4, longest)
    assert ("waits-at-the-end" in boundary_codes(Boundaries(last_waiting=last), epochs=epochs)) is expected


@pytest.mark.parametrize(("ending", "expected"), [(0.5, False), (0.51, True)])
def test_saves_of_the_best_are_named_from_a_twentieth_of_the_epoch_on(ending: float, expected: bool) -> None:
    ends = Boundaries(ending=Level(ending, 0.0, 0.0, 0.0))
    assert ("saves-the-best" in boundary_codes(ends, saving="best")) is expected
    assert not boundary_codes(ends)


@pytest.mark.parametrize(
    "saves", [Saves(by_batches=True, per_epoch=2.5, longest=3.0), Saves(by_batches=True, longest=3.0)]
)
@pytest.mark.parametrize("save_freq", [20, None])
def test_checkpoints_by_batches(saves: Saves, save_freq: int | None) -> None:
    assert save_codes(saves, saving="batches", save_freq=save_freq) == ["saves-by-batches"]


@pytest.mark.parametrize(("now_and_then", "expected"), [(0.5, False), (0.51, True)])
def test_saves_now_and_then_are_named_from_a_twentieth_of_the_epoch_on(now_and_then: float, expected: bool) -> None:
    saves = Saves(now_and_then=now_and_then, first_ending=7.0, later_ending=0.25)
    assert ("saves-now-and-then" in save_codes(saves)) is expected


@pytest.mark.parametrize(
    ("later", "changes"),
    [
        ([10.0, 10.0, 11.1, 11.1], True),
        ([10.0, 10.0, 10.9, 10.9], False),  # less than a tenth
        ([10.0, 10.0, 8.9, 8.9], True),
        ([10.0, 10.0, 12.0], False),  # too few
        ([9.5, 10.5, 12.0, 11.0], False),  # four times the noise
        ([9.9, 10.1, 12.0, 12.2], True),
        ([10.0, 10.0, 10.0, 20.0, 11.4, 11.5, 12.2], True),  # the one in the middle belongs to neither half
    ],
)
def test_a_recipe_that_changes_beyond_the_noise_of_its_epochs(later: list[float], changes: bool) -> None:
    findings = vs.estimate(make_epoch_profile("a", 20.0, *later), epochs=5).findings
    assert ("changing-epochs" in [finding.code for finding in findings]) is changes


@pytest.mark.parametrize(("validated", "scheduled"), [((0, 1, 2), False), ((0,), False), ((2,), True), ((0, 2), True)])
def test_validation_on_a_schedule_is_reported(validated: tuple[int, ...], scheduled: bool) -> None:
    passes = tuple(Validation(epoch=epoch, seconds=1.0) for epoch in validated)
    profile = make_truncated_profile([[0.1] * 20] * 3, complete=True, timeline={"validations": passes})
    assert ("validation-schedule" in [f.code for f in vs.estimate(profile, epochs=9).findings]) is scheduled


@pytest.mark.parametrize(
    ("setup", "given", "unseen"),
    [
        ({"validates": True, "validation_freq": 5}, {}, True),
        ({"validates": True}, {}, True),
        ({}, {"validation_from": 1000, "validation_freq": 20}, True),
        ({}, {}, False),
        ({"validates": False, "validation_freq": 5}, {}, False),
        ({"validates": True}, {"validation_examples": 0}, False),
        ({"validates": True, "batch_size": 10}, {"validation_examples": 100}, False),  # assumed
    ],
)
def test_validations_that_the_probe_did_not_see_are_reported(
    setup: dict[str, Any], given: dict[str, int], unseen: bool
) -> None:
    profile = make_truncated_profile([[0.1] * 20] * 2, setup=setup)
    estimate = vs.estimate(profile, epochs=2000, workload=vs.Workload(**given))
    assert ("validation-unseen" in {finding.code for finding in estimate.findings}) is unseen


def test_an_assumed_validation_follows_its_schedule() -> None:
    profile = make_truncated_profile([[0.1] * 20] * 2, setup={"batch_size": 10})
    late = vs.Workload(validation_from=1000, validation_freq=20, validation_examples=100)
    before, after = (vs.estimate(profile, epochs=epochs, workload=late) for epochs in (999, 1040))
    assert not {"first_validation", "later_validations"} & before.terms.keys()
    assert after.terms["later_validations"] == pytest.approx(2 * after.terms["first_validation"])


def test_an_assumed_validation_takes_its_batches_and_its_schedule_from_the_setup() -> None:
    def assume(**setup: Any) -> float:
        profile = make_truncated_profile([[0.1] * 20] * 2, setup={"batch_size": 10, "validates": True, **setup})
        estimate = vs.estimate(profile, epochs=2)
        assert "validation-assumed" in {finding.code for finding in estimate.findings}
        return estimate.terms["later_validations"]

    steps = assume(validation_steps=5)
    assert steps == assume(validation_examples=50)
    assert assume(validation_steps=5, validation_batch_size=20) == pytest.approx(2 * steps)
    assert assume(validation_examples=50, validation_batch_size=20) == pytest.approx(steps)
    assert assume(validation_examples=50, validations_per_epoch=3.0) == pytest.approx(3 * steps)
