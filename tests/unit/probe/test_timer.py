"""The stopwatch with a clock that the test turns by hand."""

from __future__ import annotations

import random

import pytest

import vmselect as vs
from vmselect.estimation.readings import group_validations
from vmselect.probe import timer as timer_module
from vmselect.probe.timer import StepTimer, build_timeline
from vmselect.records.training import Timeline


class Hand:
    """A clock in nanoseconds that moves only by pass_seconds."""

    def __init__(self) -> None:
        self.now = 10**15

    def __call__(self) -> int:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def timer(clock: Hand) -> StepTimer:
    made = StepTimer(clock=clock, cpu_clock=lambda: clock.now // 2)
    made.start()
    return made


def run_step(timer: StepTimer, clock: Hand, batch: int, seconds: float, covers: int = 1) -> None:
    if timer.opening:
        timer.open()
    clock.pass_seconds(seconds)
    timer.end_step(batch, covers)


def run_epoch(timer: StepTimer, clock: Hand, epoch: int, steps: list[float], *, gap: float = 0.5, fetch: float = 0.0,
              validation: float | None = None, complete: bool = True) -> None:  # fmt: skip
    timer.begin_epoch(epoch)
    clock.pass_seconds(gap)
    for batch, seconds in enumerate(steps):
        if batch:
            clock.pass_seconds(fetch)
        run_step(timer, clock, batch, seconds)
    if validation is not None:
        timer.begin_validation()
        for _ in range(2):
            clock.pass_seconds(validation / 2)
            timer.end_validation_batch()
        timer.end_validation()
    timer.end_epoch(complete=complete)


def test_every_second_belongs_to_exactly_one_reading(timer: StepTimer, clock: Hand) -> None:
    run_epoch(timer, clock, 0, [3.0, 0.2, 0.2], fetch=0.1, validation=4.0)
    run_epoch(timer, clock, 1, [0.4, 0.2], validation=1.0, complete=False)
    clock.pass_seconds(0.25)
    timer.finish()
    timeline = build_timeline(timer, watched=True)
    assert timeline.fit_to_first_batch_seconds == 0.5
    # End to end: the fetch between two steps belongs to the second of them.
    assert timeline.steps.seconds == pytest.approx((3.0, 0.3, 0.3, 0.4, 0.2))
    assert timeline.steps.label == ("first", "steady", "steady", "opening", "steady")
    assert [v.seconds for v in timeline.validations] == [4.0, 1.0]
    assert [v.batch_seconds for v in timeline.validations] == [(2.0, 2.0), (0.5, 0.5)]
    assert [(b.epoch, b.seconds, b.truncated, b.final) for b in timeline.boundaries] == [
        (0, 0.5, False, False), (1, 0.25, True, True)]  # fmt: skip
    assert [(e.steps, e.seconds, e.opening_seconds, e.closing_seconds, e.complete) for e in timeline.epochs] == [
        (3, pytest.approx(3.6), 3.0, pytest.approx(0.3), True), (2, pytest.approx(0.6), 0.4, 0.2, False)]  # fmt: skip
    assert timeline.wall_seconds == timeline.fit_seconds == pytest.approx(0.5 + 3.6 + 4 + 0.5 + 0.6 + 1 + 0.25)
    assert timeline.cpu_seconds == pytest.approx(timeline.wall_seconds / 2)


def test_a_boundary_records_the_time_before_the_validation(timer: StepTimer, clock: Hand) -> None:
    for epoch, validated in enumerate([True, False, True]):
        timer.begin_epoch(epoch)
        run_step(timer, clock, 0, 1.0)
        clock.pass_seconds(0.25)  # summing up the epoch
        with timer.leave_out():
            clock.pass_seconds(8.0)
        if validated:
            timer.begin_validation()
            clock.pass_seconds(2.0)
            timer.end_validation()
            clock.pass_seconds(0.5)  # saving a checkpoint
        timer.leave_steps()
        timer.end_epoch(complete=True)
        clock.pass_seconds(0.125)  # opening the next epoch
    timer.finish()
    assert [(b.before_validation_seconds, b.seconds) for b in build_timeline(timer).boundaries] == [
        (0.25, 0.875), (0.25, 0.375), (0.25, 0.875)]  # fmt: skip


def test_the_time_before_a_validation_in_mid_epoch_is_unknown(timer: StepTimer, clock: Hand) -> None:
    for epoch, validated_after in enumerate([0, None]):
        timer.begin_epoch(epoch)
        for batch in range(3):
            run_step(timer, clock, batch, 1.0)
            if batch == validated_after:
                clock.pass_seconds(0.25)
                timer.begin_validation()
                clock.pass_seconds(2.0)
                timer.end_validation()
        clock.pass_seconds(0.5)
        timer.end_epoch(complete=True)
    timer.finish()
    assert [(b.before_validation_seconds, b.seconds) for b in build_timeline(timer).boundaries] == [
        (None, 0.5), (None, 0.5)]  # fmt: skip


def test_steps_after_a_validation_in_mid_epoch_are_steady_again(timer: StepTimer, clock: Hand) -> None:
    phases: list[str] = []
    timer.enter = phases.append
    for epoch in range(2):
        timer.begin_epoch(epoch)
        for batch in range(4):
            run_step(timer, clock, batch, 3.0 if batch == 0 else 1.0)
            if batch in (1, 3):  # the second one ends the epoch
                timer.begin_validation()
                timer.end_validation()
        timer.end_epoch(complete=True)
    steps = ["steady_steps", "validation", "boundary", "steady_steps", "validation", "boundary", "boundary"]
    assert phases == ["first_step", *steps, "steady_steps", *steps]
    timeline = build_timeline(timer)
    assert [epoch.opening_seconds for epoch in timeline.epochs] == [3.0, 3.0]
    assert timeline.steps.label.count("opening") == 1


def test_the_probes_own_work_is_left_out(timer: StepTimer, clock: Hand) -> None:
    with timer.leave_out():
        clock.pass_seconds(100)
    run_epoch(timer, clock, 0, [1.0, 1.0])
    timer.begin_epoch(1)
    with timer.leave_out():
        clock.pass_seconds(100)
    clock.pass_seconds(0.5)
    if timer.opening:
        timer.open()
    with timer.leave_out():
        clock.pass_seconds(100)
    clock.pass_seconds(2.0)
    timer.end_step(0)
    timer.begin_validation()
    with timer.leave_out():
        clock.pass_seconds(100)
    clock.pass_seconds(1.0)
    timer.end_validation_batch()
    timer.end_validation()
    timer.end_epoch(complete=True)
    timer.finish()
    timeline = build_timeline(timer)
    assert timeline.wall_seconds == pytest.approx(0.5 + 2 + 0.5 + 2 + 1)
    assert timeline.steps.seconds == (1.0, 1.0, 2.0)
    assert timeline.validations[0].seconds == 1.0
    assert timeline.validations[0].batch_seconds == (1.0,)
    assert timeline.boundaries[0].seconds == 0.5
    assert timeline.cpu_seconds == pytest.approx(3.0)


def test_a_training_that_began_before_its_record_and_ended_before_anybody_knew(timer: StepTimer, clock: Hand) -> None:
    timer.start_earlier(2 * 10**9)
    timer.begin_epoch(0)
    timer.open(at=clock.now - 10**9)
    clock.pass_seconds(0.5)
    timer.end_step(0)
    timer.end_epoch(complete=True)
    clock.pass_seconds(4.0)
    timer.finish(at=clock.now - 3 * 10**9)
    timeline = build_timeline(timer, watched=True)
    assert (timeline.fit_to_first_batch_seconds, timeline.steps.seconds) == (1.0, (1.5,))
    assert [boundary.seconds for boundary in timeline.boundaries] == [1.0]
    assert timeline.fit_seconds == 3.5


def test_an_end_in_mid_epoch_keeps_what_was_seen(timer: StepTimer, clock: Hand) -> None:
    run_epoch(timer, clock, 0, [1.0, 1.0])
    timer.begin_epoch(1)
    clock.pass_seconds(0.5)
    run_step(timer, clock, 0, 1.0)
    clock.pass_seconds(7.0)  # a step that never ended
    timer.finish()
    timer.finish()
    timeline = build_timeline(timer)
    assert [(e.epoch, e.steps, e.complete) for e in timeline.epochs] == [(0, 2, True), (1, 1, False)]
    assert [(b.epoch, b.final) for b in timeline.boundaries] == [(0, False)]
    assert timeline.wall_seconds == pytest.approx(11.0)
    assert timeline.fit_seconds is None


@pytest.mark.parametrize("stage", range(6))
def test_an_end_at_any_moment_gives_a_timeline(timer: StepTimer, clock: Hand, stage: int) -> None:
    actions = [lambda: timer.begin_epoch(0), timer.open, lambda: timer.end_step(0), timer.begin_validation,
               timer.end_validation_batch]  # fmt: skip
    for action in actions[:stage]:
        action()
        clock.pass_seconds(1)
    timer.finish()
    timeline = build_timeline(timer)
    assert timeline.wall_seconds == stage
    assert timeline.steps.steps == (1 if stage > 2 else 0)


def test_ends_without_a_begin_are_ignored(timer: StepTimer) -> None:
    timer.end_epoch(complete=True)
    timer.end_validation()
    timer.finish()
    assert build_timeline(timer).epochs == ()


def test_several_steps_in_one_reading(timer: StepTimer, clock: Hand) -> None:
    timer.begin_epoch(0)
    for end, covers in ((3, 4), (7, 4), (9, 2)):
        run_step(timer, clock, end, covers, covers)
    timer.end_epoch(complete=True)
    timer.finish()
    steps = build_timeline(timer, partial_batch=3).steps
    assert (steps.covers, steps.batch, steps.steps, steps.readings) == ((4, 4, 2), (3, 7, 9), 10, 3)
    assert steps.label == ("first", "steady", "partial")


@pytest.mark.parametrize(("partial", "label"), [(None, "steady"), (0, "steady"), (5, "partial")])
def test_the_last_step_is_partial_only_if_that_is_known(timer: StepTimer, clock: Hand, partial, label: str) -> None:
    run_epoch(timer, clock, 0, [1.0] * 8)
    run_epoch(timer, clock, 1, [1.0] * 8, complete=False)
    timer.finish()
    labels = build_timeline(timer, partial_batch=partial).steps.label
    assert labels[7] == label
    assert labels[15] == "steady"  # cut short, so its last step was an ordinary one


def test_warm_up_is_labelled_and_a_clock_that_goes_backwards_gives_no_negative_time(
    timer: StepTimer, clock: Hand
) -> None:
    run_epoch(timer, clock, 0, [9.0, 3.0, 2.0, 1.0, 1.01, 0.99, 1.0, -5.0, 1.0, 1.0])
    timer.finish()
    steps = build_timeline(timer).steps
    assert steps.label[:4] == ("first", "warmup", "warmup", "steady")
    assert min(steps.seconds) == steps.seconds[7] == 0.0


def test_a_million_steps_stay_small(timer: StepTimer, clock: Hand) -> None:
    epochs, steps = 200, 5_000
    before = random.getstate()
    for epoch in range(epochs):
        timer.begin_epoch(epoch)
        for batch in range(steps):
            if timer.opening:
                timer.open()
            clock.now += 1_000_000 + batch
            timer.end_step(batch)
        timer.end_epoch(complete=True)
    timer.finish()
    timeline = build_timeline(timer, partial_batch=1)
    assert timeline.steps.steps == timeline.steps.readings == 1_000_000
    assert len(timeline.steps) <= timer_module.STEPS_ALWAYS + timer_module.STEPS_SAMPLED + 2 * timer_module.EDGE_EPOCHS
    assert timeline.steps.total_seconds == pytest.approx(sum(1e-3 + b * 1e-9 for b in range(steps)) * epochs)
    assert [epoch.steps for epoch in timeline.epochs] == [steps] * epochs
    assert timeline.steps.label.count("opening") == epochs - 1
    assert timeline.steps.label.count("partial") == epochs
    assert len(timeline.model_dump_json()) < 300_000
    # The sample is a fair one: its middle lies near the middle of all batch numbers.
    sampled = timeline.steps.batch[timer_module.STEPS_ALWAYS :]
    assert 0.45 < sum(sampled) / len(sampled) / steps < 0.55
    assert random.getstate() == before, "the global generator is not used"


def test_twenty_thousand_epochs_stay_small(timer: StepTimer, clock: Hand) -> None:
    for epoch in range(20_000):
        run_epoch(timer, clock, epoch, [0.001], gap=0.0001, validation=0.002)
    timer.finish()
    timeline = build_timeline(timer)
    assert len(timeline.epochs) <= timer_module.EPOCHS_ALWAYS + timer_module.EPOCHS_SAMPLED + 1
    assert timeline.epochs[-1].epoch == 19_999
    assert timeline.boundaries[-1].final
    assert timeline.steps.total_seconds == pytest.approx(20.0)
    assert sum(len(v.batch_seconds) for v in timeline.validations) <= timer_module.MAX_VALIDATION_BATCHES
    assert all(v.batches == 2 for v in timeline.validations)


def test_what_is_due_runs_after_a_step_and_outside_the_measured_time(timer: StepTimer, clock: Hand) -> None:
    called = []

    def write() -> None:
        with timer.leave_out():
            called.append(clock.now)
            clock.pass_seconds(7)
        timer.due = clock.now + 3 * 10**9

    timer.due, timer.on_due = clock.now + 4 * 10**9, write
    timer.begin_epoch(0)
    timer.open()
    began = clock.now
    for batch in range(8):
        run_step(timer, clock, batch, 1.0)
    assert [(at - began) / 1e9 for at in called] == [4.0, 14.0]
    assert [reading[2] for reading in timer.step_readings()] == [10**9] * 8


def test_countless_validations_of_an_epoch_are_added_up(timer: StepTimer, clock: Hand) -> None:
    count = 25_000
    timer.begin_epoch(0)
    for step in range(count):
        run_step(timer, clock, step, 1.0)
        timer.begin_validation()
        clock.pass_seconds(0.5)
        timer.end_validation(batches=3)
    timer.end_epoch(complete=True)
    timer.finish()
    timeline = build_timeline(timer, init=None, partial_batch=None)
    assert len(timeline.validations) == timer_module.MAX_VALIDATIONS
    assert sum(validation.seconds for validation in timeline.validations) == pytest.approx(0.5 * count)
    assert sum(validation.batches or 0 for validation in timeline.validations) == 3 * count
    assert timeline.steps.total_seconds == count
    profile = vs.Profile.from_times(batch_size=8, iteration_seconds=[1.0], validation_seconds=[1.0])
    setup = profile.setup.model_copy(update={"validations_per_epoch": float(count)})
    profile = profile.model_copy(update={"timeline": timeline, "setup": setup, "outcome": "watched"})
    groups = group_validations(vs.Profile.model_validate_json(profile.to_json()))
    assert {(len(group), group[0].seconds, group[0].batches) for group in groups} == {(1, 0.5, 3)}
    assert len(groups) == len(timeline.whole_validations) == count
    endless = timeline.validations[-1].model_copy(update={"covers": 2**60})
    with pytest.raises(ValueError, match="2,000,000 validations"):
        Timeline.model_validate(timeline.model_copy(update={"validations": (endless,)}).model_dump())
