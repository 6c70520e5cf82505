"""Steps that sleep known times inside a real ``fit``: every recorded term against what was slept.

First step 1 s, steady steps 20 ms, a partial batch of 50 ms, validation batches of 10 ms, those of the first
validation 50 ms. The model is compiled beforehand, so that the first step is a sleep and not a compilation.

Between two sleeps Keras works too, 1 to 3 ms on an idle machine and more on a busy one; that is part of the step and
must be in the reading. The metronome's own clock says how much it was, so that a reading is held to what was slept plus
that, within 3 ms and 2 % of the sleep. On a crowded machine a thread waits between the end of its sleep and the hook;
how long, the single steady steps show, and a term made of few readings is given that much more.
"""

from __future__ import annotations

import statistics

from fits import BATCH, check_conserved, make_data
from metronome import Metronome, make_sleeping_model

import vmselect as vs
from vmselect.probe.timer import BLOCK_STEPS

STEPS, VALIDATION_STEPS, EPOCHS, ATTEMPTS = 26, 6, 3, 6


def schedule(kind, number):
    if kind == "test":
        return 0.05 if number < VALIDATION_STEPS else 0.01
    if number == 0:
        return 1.0
    return 0.05 if number % STEPS == STEPS - 1 else 0.02


METRONOME = Metronome(schedule)
MODEL = make_sleeping_model(METRONOME)
X, Y = make_data(STEPS, partial=3)
VALIDATION = make_data(VALIDATION_STEPS)
MODEL.fit(X, Y, batch_size=BATCH, epochs=1, validation_data=VALIDATION, verbose=0)


def train(probe):
    METRONOME.start()
    MODEL.fit(X, Y, batch_size=BATCH, epochs=EPOCHS, validation_data=VALIDATION, verbose=0, callbacks=[probe])
    METRONOME.running = False
    check_conserved(probe.profile)
    return probe.profile.timeline


def compare(timeline):
    """Each term as (name, what the probe read, what the metronome says, seconds slept in it)."""
    slept, ended, steps = METRONOME.slept, METRONOME.ended, timeline.steps
    assert sum(steps.covers) == len(slept["train"])
    yield "first", steps.seconds[0], slept["train"][0], slept["train"][0]
    for label in ("steady", "partial"):
        seen = [i for i in range(1, len(steps)) if steps.label[i] == label and steps.label[i - 1] != "opening"]
        if seen:
            yield (
                label,
                statistics.median(steps.seconds[i] / steps.covers[i] for i in seen),
                statistics.median(time_by_metronome(steps, i) / steps.covers[i] for i in seen),
                statistics.median(slept["train"][last_beat(steps, i)] for i in seen),
            )
    batches = [validation.batches for validation in timeline.validations]
    assert batches == [VALIDATION_STEPS] * len(batches)
    for number, validation in enumerate(timeline.validations):
        run = slice(number * VALIDATION_STEPS, (number + 1) * VALIDATION_STEPS)
        yield (
            f"validation {number}",
            sum(validation.batch_seconds[1:]),
            ended["test"][run][-1] - ended["test"][run][0],
            sum(slept["test"][run][1:]),
        )
        assert validation.seconds >= sum(slept["test"][run])
    for number, opening in enumerate(i for i, label in enumerate(steps.label) if label == "opening"):
        # From the last step of an epoch to the first of the next: nothing is lost and nothing counted twice. If the
        # device was not synchronized after that step, to the end of the block that follows.
        until = opening + (steps.covers[opening + 1] > BLOCK_STEPS)
        first, last = last_beat(steps, opening), last_beat(steps, until)
        yield (
            f"turn {number}",
            timeline.validations[number].seconds
            + timeline.boundaries[number].seconds
            + sum(steps.seconds[opening : until + 1]),
            ended["train"][last] - ended["train"][first - 1],
            sum(slept["test"][number * VALIDATION_STEPS :][:VALIDATION_STEPS]) + sum(slept["train"][first : last + 1]),
        )


def last_beat(steps, i):
    """Number of the last beat that reading ``i`` covers."""
    return sum(steps.covers[: i + 1]) - 1


def time_by_metronome(steps, i):
    """What reading ``i`` should be."""
    ended, last = METRONOME.ended["train"], last_beat(steps, i)
    return ended[last] - ended[last - steps.covers[i]]


def measure_noise(timeline):
    """By how much single steady steps differ from the metronome's clock, nine times out of ten."""
    steps = timeline.steps
    gaps = [
        abs(steps.seconds[i] - time_by_metronome(steps, i))
        for i in range(1, len(steps))
        if steps.label[i] == "steady" and steps.label[i - 1] != "opening"
    ]
    return statistics.quantiles(gaps, n=10)[-1]


def attempt(make_probe, compare):
    """Train until every term agrees, a few times at most: a thread that wakes late spoils a reading now and then."""
    wrong = []
    for _ in range(ATTEMPTS):
        timeline = train(make_probe())
        noise = measure_noise(timeline)
        wrong = [
            f"{what}: read {1e3 * read:.2f} ms, expected {1e3 * expected:.2f} ms, slept {1e3 * slept:.2f} ms"
            for what, read, expected, slept in compare(timeline)
            if not abs(read - expected) <= 0.003 + 0.02 * slept + (0 if what == "steady" else noise)
        ]
        if not wrong:
            return timeline
    raise AssertionError("; ".join(wrong))


def test_a_watched_fit_reads_what_was_slept(folder):
    timeline = attempt(lambda: vs.IterationProbe(path=False, stop=False, verbose=0), compare)
    assert timeline.steps.label.count("partial") == EPOCHS
    assert timeline.steps.steps == STEPS * EPOCHS
    assert timeline.steps.label[0] == "first"


def test_a_short_probe_reads_what_was_slept(folder):
    timeline = attempt(lambda: vs.IterationProbe(path=False, sample=None, verbose=0), compare)
    assert timeline.steps.steps == 42


def test_whole_epochs_hold_what_was_slept(folder):
    timeline = train(vs.EpochProbe(path=False, verbose=0))
    ended, slept = METRONOME.ended["train"], METRONOME.slept["train"]
    assert [epoch.steps for epoch in timeline.epochs] == [STEPS] * 2
    for number, epoch in enumerate(timeline.epochs):
        first, last = number * STEPS, (number + 1) * STEPS - 1
        # Nothing of the steps may be missing; that nothing is counted twice, `train` has checked.
        assert epoch.seconds >= ended[last] - ended[first] + slept[first] - 0.001
        assert timeline.validations[number].seconds >= sum(
            METRONOME.slept["test"][number * VALIDATION_STEPS :][:VALIDATION_STEPS]
        )
