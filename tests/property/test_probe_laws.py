"""What holds for every training: no second is lost or counted twice, and the sample is fair."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from vmselect.probe.timer import Reservoir, StepTimer, build_timeline
from vmselect.records.step_times import detect_warmup

nanoseconds = st.integers(0, 10**10)
epochs = st.lists(
    st.tuples(
        st.lists(nanoseconds, max_size=6),  # steps
        st.one_of(st.none(), st.lists(nanoseconds, max_size=3)),  # validation batches
        nanoseconds,  # what lies between
        nanoseconds,  # the probe's own work
        st.booleans(),
    ),
    max_size=5,
)


@given(epochs, st.booleans())
def test_the_parts_are_the_whole(training, ends_well: bool) -> None:
    now = 0
    own = 0

    def wait(taken: int) -> None:
        nonlocal now
        now += taken

    timer = StepTimer(clock=lambda: now, cpu_clock=lambda: now)
    timer.start()
    for number, (steps, validation, between, work, complete) in enumerate(training):
        timer.begin_epoch(number)
        wait(between)
        for batch, taken in enumerate(steps):
            if timer.opening:
                timer.open()
            wait(taken)
            timer.end_step(batch)
            with timer.leave_out():
                wait(work)
                own += work
        if validation is not None:
            timer.begin_validation()
            for taken in validation:
                wait(taken)
                timer.end_validation_batch()
            timer.end_validation()
        timer.end_epoch(complete=complete)
    if not ends_well:
        timer.begin_epoch(len(training))
        if timer.opening:
            timer.open()
        wait(5)
        timer.end_step(0)
    timer.finish()
    timeline = build_timeline(timer, watched=True)
    parts = math.fsum(
        [
            timeline.fit_to_first_batch_seconds or 0.0,
            timeline.steps.total_seconds,
            *(validation.seconds for validation in timeline.validations),
            *(boundary.seconds for boundary in timeline.boundaries),
        ]
    )
    assert all((boundary.before_validation_seconds or 0.0) <= boundary.seconds for boundary in timeline.boundaries)
    assert timeline.wall_seconds == (now - own) / 1e9
    if timeline.steps.steps:
        assert math.isclose(parts, timeline.wall_seconds, rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(math.fsum(e.seconds for e in timeline.epochs), timeline.steps.total_seconds, abs_tol=1e-6)
    assert timeline.steps.label[:1] in ((), ("first",))
    assert "first" not in timeline.steps.label[1:]


@given(st.integers(0, 30), st.integers(1, 30), st.integers(0, 400), st.integers(0, 5))
def test_a_sample_is_bounded_and_begins_with_the_beginning(always: int, size: int, length: int, seed: int) -> None:
    sample: Reservoir[int] = Reservoir(always=always, size=size, seed=seed)
    for number in range(1, length + 1):
        if number >= sample.due:
            sample.offer(number, number)
    items = sample.items()
    assert len(items) == len(set(items)) == min(length, always + size)
    assert items[:always] == list(range(1, min(length, always) + 1))


def test_every_item_has_the_same_chance() -> None:
    counts: Counter[int] = Counter()
    runs, size, length = 3_000, 5, 50
    for seed in range(runs):
        sample: Reservoir[int] = Reservoir(always=0, size=size, seed=seed)
        for number in range(1, length + 1):
            if number >= sample.due:
                sample.offer(number, number)
        counts.update(sample.items())
    expected = runs * size / length
    spread = math.sqrt(expected * (1 - size / length))
    assert all(abs(counts[number] - expected) < 5 * spread for number in range(1, length + 1))


@given(st.lists(st.floats(0, 1e6), max_size=60), st.floats(1e-3, 1e3))
def test_warm_up_is_at_most_half_and_knows_no_unit(readings: list[float], factor: float) -> None:
    found = detect_warmup(readings)
    assert 0 <= found <= len(readings) // 2
    if factor in (0.5, 2.0, 4.0):  # exact in floating point
        assert detect_warmup([reading * factor for reading in readings]) == found
