"""Where an estimate changes its mind: doubts at their edge, sizes that scale, whole epochs of unknown length."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import vmselect as vs
from vmselect.errors import EstimateError
from vmselect.estimation import fit_runtime
from vmselect.estimation.autotune_wait import split_wait
from vmselect.records import Boundary, Environment, Epoch, Pause, Profile, Setup, Steps, Timeline
from vmselect.records.training import Step


def epochs_of(
    seconds: list[float], *, steps: list[int] | None = None, boundaries: tuple[Boundary, ...] = (), **setup: Any
) -> Profile:
    counts = steps or [None] * len(seconds)  # type: ignore[list-item]
    whole = tuple(
        Epoch(epoch=number, seconds=one, steps=count)
        for number, (one, count) in enumerate(zip(seconds, counts, strict=True))
    )
    return Profile(
        created=datetime(2026, 1, 1, tzinfo=UTC),
        outcome="watched",
        probe="epoch",
        setup=Setup(**setup),
        timeline=Timeline(init_seconds=0.0, init_source="given", epochs=whole, boundaries=boundaries),
    )


def codes(profile: Profile | list[Profile], **said: Any) -> set[str]:
    return {finding.code for finding in fit_runtime(profile, **said).findings}


def test_whole_epochs_scale_with_the_examples() -> None:
    profile = epochs_of([10.0, 10.0, 10.0], examples=1_000)
    assert vs.estimate(profile, epochs=5).seconds == pytest.approx(50.0)
    assert vs.estimate(profile, epochs=5, examples=1_500, batch_size=10).seconds == pytest.approx(75.0)
    by_steps = epochs_of([10.0, 10.0, 10.0], steps=[100] * 3, batch_size=10)
    assert vs.estimate(by_steps, epochs=5, steps_per_epoch=50).seconds == pytest.approx(25.0)
    with pytest.raises(EstimateError, match="whole epochs of unknown size"):
        vs.estimate(epochs_of([10.0, 10.0, 10.0]), epochs=5, examples=1_500, batch_size=10)


def test_the_equations_need_the_number_of_steps() -> None:
    given = vs.Profile.from_times(instance_type="x", first_iteration_seconds=1.0, iteration_seconds=[0.1] * 3)
    with pytest.raises(EstimateError, match="x, unknown batch size: the number of steps per epoch is not known"):
        vs.estimate(given, epochs=5, method="malta-iteration")


@pytest.mark.parametrize(
    ("said", "steps", "partial"),
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
def test_the_smaller_last_batch_of_a_workload(said: dict[str, Any], steps: int, partial: int) -> None:
    profile = epochs_of([1.0], steps_per_epoch=20, batch_size=64, partial_batch=7)
    workload = vs.Workload.of(profile, **said)
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
    workload = vs.Workload.of(epochs_of([1.0, 1.0], steps=[7, 8], **setup))
    assert (workload.steps_per_epoch, workload.partial_batch) == (steps, partial)


def test_an_input_that_drops_the_remainder_goes_on_doing_so() -> None:
    drops = epochs_of([1.0], examples=100, batch_size=32, steps_per_epoch=3, partial_batch=0)
    assert vs.Workload.of(drops, examples=1_000).steps_per_epoch == 31
    assert vs.Workload.of(drops, examples=10).steps_per_epoch == 1
    keeps = epochs_of([1.0], examples=100, batch_size=32, steps_per_epoch=4, partial_batch=4)
    assert vs.Workload.of(keeps, examples=1_000).steps_per_epoch == 32
    assert vs.Workload.of(epochs_of([1.0])).steps_per_epoch is None


@pytest.mark.parametrize(
    ("later", "changes"),
    [
        ([10.0, 10.0, 11.1, 11.1], True),
        ([10.0, 10.0, 10.9, 10.9], False),  # less than a tenth
        ([10.0, 10.0, 8.9, 8.9], True),
        ([10.0, 10.0, 12.0], False),  # too few to tell
        ([9.5, 10.5, 12.0, 11.0], False),  # four times the noise
        ([9.9, 10.1, 12.0, 12.2], True),
        ([10.0, 10.0, 10.0, 20.0, 11.4, 11.5, 12.2], True),  # the one in the middle belongs to neither half
    ],
)
def test_a_recipe_that_changes_beyond_the_noise_of_its_epochs(later: list[float], changes: bool) -> None:
    assert ("changing-epochs" in codes(epochs_of([20.0, *later]))) is changes


def test_epochs_of_different_length_are_compared_by_the_step() -> None:
    assert "changing-epochs" not in codes(epochs_of([9.0, 10.0, 10.0, 20.0, 20.0], steps=[10, 10, 10, 20, 20]))
    (finding,) = (
        finding
        for finding in fit_runtime(epochs_of([9.0, 10.0, 10.0, 15.0, 15.0])).findings
        if finding.code == "changing-epochs"
    )
    assert "later epochs take +50% against earlier ones" in finding.message


@pytest.mark.parametrize(
    ("count", "said"), [(1, "no steady epochs"), (2, "1 steady epoch,"), (3, "2 steady epochs"), (4, "")]
)
def test_how_little_an_estimate_rests_on(count: int, said: str) -> None:
    found = [f.message for f in fit_runtime(epochs_of([10.0] * count)).findings if f.code == "few-readings"]
    assert [said in message for message in found] == ([True] if said else [])


@pytest.mark.parametrize(("ending", "told"), [(0.49, False), (0.51, True)])
def test_saving_the_best_is_worth_a_word_from_a_twentieth_of_the_epoch(ending: float, told: bool) -> None:
    rows = [Step(0, 0, 0.1, 1, "first"), *(Step(0, n, 0.1, 1, "steady") for n in range(1, 30))]
    ends = tuple(
        Boundary(epoch=n, seconds=1.0, before_validation_seconds=0.0, epoch_end_seconds=ending) for n in range(3)
    )
    profile = epochs_of([10.0], saving="best", steps_per_epoch=100, batch_size=8)
    timeline = profile.timeline.model_copy(update={"steps": Steps.of(rows), "epochs": (), "boundaries": ends})
    assert ("saves-the-best" in codes(profile.model_copy(update={"timeline": timeline}))) is told


@pytest.mark.parametrize(
    ("lost", "wait", "waited"),
    [
        (0.0, 0.0, False),
        (0.13, 0.0, False),
        (0.14, 0.0, None),  # between half of the wait and nine tenths nobody can tell
        (0.24, 0.0, None),
        (0.26, 0.26, True),
        (0.50, 0.27, True),  # the rest is other work
    ],
)
def test_what_of_a_boundary_was_a_wait(lost: float, wait: float, waited: bool | None) -> None:
    # A pipeline that ran for a second is looked at next at 1.27 s.
    found, told = split_wait(lost, 1.0)
    assert (found, told) == (pytest.approx(wait), waited)


def test_where_the_wait_is_unknown_or_too_short_to_tell() -> None:
    assert split_wait(5.0, None) == (0.0, None)
    assert split_wait(0.05, 1.22) == (0.0, None)  # 0.05 s to the next wake-up
    assert split_wait(0.08, 1.19)[1] is True


def test_a_pipeline_may_just_have_missed_the_look_that_seems_next() -> None:
    assert split_wait(2.7, 2.3) == (2.7, True)  # until 5.11 s instead of 2.55 s
    assert split_wait(1.3, 2.3)[1] is True  # until 2.55 s, and a second of other work
    assert split_wait(2.0, 2.3) == (0.0, None)  # too long for the one, too short for the other
    assert split_wait(2.7, 1.6) == (pytest.approx(0.95), True)  # too far from 2.55 s to have missed it


def test_the_opening_of_an_epoch_counts_where_only_its_sum_was_kept() -> None:
    """Of a long epoch the first reading may not be among those kept; the epoch itself says how long it took."""
    rows = [Step(0, 0, 1.0, 1, "first"), *(Step(0, n, 0.1, 1, "steady") for n in range(1, 40))]
    epochs = (
        Epoch(epoch=0, seconds=4.9, steps=40),
        Epoch(epoch=1, seconds=4.6, steps=40, opening_seconds=0.7),
    )
    profile = Profile(
        created=datetime(2026, 1, 1, tzinfo=UTC),
        outcome="stopped",
        setup=Setup(steps_per_epoch=40, batch_size=8),
        timeline=Timeline(steps=Steps.of(rows), epochs=epochs, boundaries=(Boundary(epoch=0, seconds=2.0),)),
        environment=Environment(backend="torch"),
    )
    # 2 s between the epochs, and a first step that took 0.6 s longer than an ordinary one.
    assert vs.estimate(profile, epochs=2).terms["epoch_boundaries"] == pytest.approx(2.6)


# Phases


STEADY = vs.Profile.from_times(
    instance_type="x", batch_size=8, steps_per_epoch=100, init_seconds=4.0, first_iteration_seconds=2.0,
    iteration_seconds=[0.1] * 20, validation_seconds=[1.0, 0.5],
)  # fmt: skip


def test_a_phase_scales_its_epochs_and_nothing_that_comes_once() -> None:
    two = vs.estimate(STEADY, phases=[(2, 1.0), (3, 0.5)])
    assert two.terms == pytest.approx(
        {
            "initialization": 4.0,
            "first_iteration": 2.0,
            "steady_iterations": 199 * 0.1 + 300 * 0.05,
            "first_validation": 1.0,
            "later_validations": 0.5 + 3 * 0.25,
        }
    )
    assert (two.seconds, two.epochs) == (pytest.approx(sum(two.terms.values())), 5)
    slow = vs.estimate(STEADY, phases=[(1, 3.0)])
    assert slow.terms["first_validation"] == pytest.approx(0.5 + 3 * 0.5)  # it compiles no more slowly
    assert slow.terms["steady_iterations"] == pytest.approx(-0.1 + 100 * 0.3)


def test_half_widths_of_phases_add_in_full_and_never_shrink() -> None:
    def widths(*phases: tuple[int, float]) -> tuple[float, float]:
        found = vs.estimate(STEADY, phases=list(phases))
        return found.seconds - found.low, found.high - found.seconds

    alone = vs.estimate(STEADY, epochs=5)
    once = (alone.seconds - alone.low, alone.high - alone.seconds)
    assert widths((5, 1.0)) == pytest.approx(once)
    assert widths((5, 0.1)) == pytest.approx(once)
    assert widths((5, 2.0)) == pytest.approx([2 * width for width in once])
    assert widths((5, 1.0), (5, 2.0)) == pytest.approx([3 * width for width in once])


def test_a_phase_with_its_own_profile_starts_anew_but_for_the_program() -> None:
    other = STEADY.model_copy(update={"id": "0" * 32})
    both = vs.estimate(STEADY, phases=[(2, 1.0), (3, other)])
    first, second = vs.estimate(STEADY, epochs=2), vs.estimate(STEADY, epochs=3)
    assert both.seconds == pytest.approx(first.seconds + second.seconds - 4.0)  # the program starts once
    assert both.terms["first_iteration"] == pytest.approx(4.0)
    assert both.high - both.seconds == pytest.approx(first.high - first.seconds + second.high - second.seconds)


# The readings that the dissertation's equations take


def test_which_iterations_the_dissertation_takes() -> None:
    profile = vs.Profile.from_times(
        instance_type="x", batch_size=8, steps_per_epoch=10, init_seconds=0.0, first_iteration_seconds=100.0,
        iteration_seconds=[float(n) for n in range(1, 13)], validation_seconds=[7.0, 3.0, 99.0],
    )  # fmt: skip

    def seconds(method: str) -> float:
        return vs.estimate(profile, epochs=2, method=method).seconds

    assert seconds("malta-iteration:second") == pytest.approx(100 + 19 * 1 + 7 + 3)
    assert seconds("malta-iteration:mean-2-10") == pytest.approx(100 + 19 * 5 + 7 + 3)
    assert seconds("malta-iteration-no-validation:mean-2-10") == pytest.approx(100 + 19 * 5)
    assert seconds("malta-iteration") == seconds("malta-iteration:second")


def test_an_epoch_of_the_dissertation_holds_its_validation_and_the_way_to_it() -> None:
    from vmselect.records import Validation

    ends = (
        Boundary(epoch=0, seconds=0.5),
        Boundary(epoch=1, seconds=0.25),
        Boundary(epoch=2, seconds=9.0, final=True),
    )
    profile = epochs_of([10.0, 6.0, 8.0], boundaries=ends)
    checks = tuple(Validation(epoch=n, seconds=s) for n, s in enumerate((2.0, 1.0, 1.0)))
    timeline = profile.timeline.model_copy(
        update={"validations": checks, "init_seconds": 3.0, "fit_to_first_batch_seconds": 1.0}
    )
    found = vs.estimate(profile.model_copy(update={"timeline": timeline}), epochs=4, method="malta-epoch")
    later = ((6.0 + 1.0 + 0.5) + (8.0 + 1.0 + 0.25)) / 2
    assert found.seconds == pytest.approx(3.0 + 1.0 + 12.0 + 3 * later)
    test = Validation(epoch=2, seconds=30.0)  # when all is done: once, whichever method adds it up
    tested = profile.model_copy(update={"timeline": timeline.model_copy(update={"validations": (*checks, test)})})
    assert vs.estimate(tested, epochs=4, method="malta-epoch").seconds == pytest.approx(found.seconds + 30.0)
    given = vs.Profile.from_times(first_epoch_seconds=12.0, later_epoch_seconds=[7.0], validation_seconds=[2.0, 1.0])
    assert vs.estimate(given, epochs=4, method="malta-epoch").seconds == pytest.approx(12.0 + 3 * 7.0)


@pytest.mark.parametrize("method", ["robust", "malta-epoch"])
def test_pauses_that_were_taken_out_of_whole_epochs_are_part_of_them(method: str) -> None:
    """As in files of an EpochProbe that took them out; one that leaves them in lists none."""
    profile, whole = epochs_of([10.0, 6.0, 6.0]), epochs_of([13.0, 8.0, 8.0])
    lengths = ((0, 3.0), (1, 0.5), (1, 1.5), (2, 2.0))
    pauses = tuple(Pause(cause="garbage collection", epoch=e, batch=0, seconds=s) for e, s in lengths)
    taken_out = profile.model_copy(update={"timeline": profile.timeline.model_copy(update={"pauses": pauses})})
    found = vs.estimate(taken_out, epochs=9, method=method)
    assert found.seconds == pytest.approx(vs.estimate(whole, epochs=9, method=method).seconds)
