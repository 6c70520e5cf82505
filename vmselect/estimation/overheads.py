"""What an epoch spends besides ordinary steps and validation: its boundary, and a smaller last batch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmselect.estimation.autotune_wait import (
    NO_WAITING,
    UNKNOWN_SECONDS,
    Waiting,
    count_pipelines,
    expect_waiting,
    split_wait,
    weigh_evidence,
)
from vmselect.estimation.readings import Opening, Readings
from vmselect.estimation.statistics import NOTHING, Level, locate, predict_once
from vmselect.estimation.workload import Workload
from vmselect.records import Pause, Profile

BOUNDARY_SPREAD = 0.25
"""Relative spread of the time between epochs, before any was seen."""

LONE_BOUNDARY_STEPS = 128.0
"""A boundary seen once counts for no more steps than this: longer ones were stalls more often than not."""

TRUNCATED_BOUNDARY = 0.3
"""How much longer, as a share of what was seen, the boundary of a whole epoch may be than that of one cut short."""

STALL_RECURS = 0.3
"""Share of what was cut off that the high end allows to recur at every boundary."""


@dataclass(frozen=True)
class Boundaries:
    """Seconds that wrap up every epoch, end it, and open every later one; of the first of these; and what comes once.

    ``shortened`` says that what was seen is not believed to recur in full; ``waiting`` comes on top, after every epoch,
    or ``last_waiting`` when the training ends.
    """

    wrap_up: Level = NOTHING
    opening: Level = NOTHING
    first_wrap_up: Level = NOTHING
    ending: Level = NOTHING
    first_ending: Level = NOTHING
    once: float = 0.0
    shortened: bool = False
    waiting: Waiting = NO_WAITING
    last_waiting: Waiting = NO_WAITING


@dataclass(frozen=True)
class PartialBatch:
    """Seconds of the smaller last batch of every epoch, and of compiling for it once."""

    each: Level = NOTHING
    once: Level = NOTHING


def time_boundaries(
    profile: Profile,
    readings: Readings,
    *,
    step: Level,
    epoch_seconds: Sequence[tuple[float, float]],
    confidence: float,
) -> Boundaries:
    """Boundaries from those that were seen. The first wrap-up is kept apart, as the first step and validation are.

    ``epoch_seconds`` are those of steps and validation, each with the share of epochs that take so long: on them it
    depends how long a self-tuning input waits. What was seen of such waits is replaced by those of whole epochs.
    """
    # After a whole epoch of unknown length a wait cannot be told from the rest, and stands in what was seen.
    mixed = any(not o.cut_short and o.pipeline_seconds is None for o in readings.openings + readings.first_openings)
    tunes = bool(profile.setup.self_tuning_input) and not mixed
    goes_on = bool(profile.setup.continuous_input)
    pipelines = count_pipelines(profile)
    evidence: list[tuple[float, float]] = []

    def lost(opening: Opening) -> float:
        seconds = max(0.0, opening.before_seconds + opening.step_seconds - step.value * opening.covers)
        if not tunes or goes_on:
            return seconds
        wait, waited = split_wait(seconds, opening.pipeline_seconds, pipelines)
        evidence.append(weigh_evidence(waited, cut_short=opening.cut_short))
        return seconds - wait

    def find(seconds: Sequence[float]) -> Level:
        if not seconds:
            return NOTHING
        return locate(seconds, prior_spread=BOUNDARY_SPREAD, unseen=False, confidence=confidence)

    wrap_up = find(readings.later_wrap_ups)
    if readings.first_wrap_ups and not readings.later_wrap_ups:
        # All of it may be what frameworks compile to sum up an epoch, or none of it.
        wrap_up = replace(wrap_up, half_width_above=max(readings.first_wrap_ups))
    ending = find(readings.later_endings)
    if readings.first_endings and not readings.later_endings:
        # A first save can take a hundred times as long as later ones, or just as long.
        half = max(readings.first_endings) / 2
        ending = Level(half, half, half, 0.0)
    if profile.setup.saving == "best":  # every epoch counts as a best one, and perhaps none is after the first
        ending = replace(ending, half_width_below=max(ending.half_width_below, ending.value))
    seen, beyond = [lost(one) for one in readings.openings], 0.0
    if len(seen) == 1 and readings.unit == "step" and not readings.first_openings:
        limit = LONE_BOUNDARY_STEPS * step.value
        beyond, seen = max(0.0, seen[0] - limit), [min(seen[0], limit)]
    opening = find(seen)
    once = (
        wrap_up.stall
        + ending.stall
        + opening.stall
        + beyond
        + (statistics.median(readings.finals) if readings.finals else 0.0)
    )
    if readings.first_openings:
        # Never so far below that a training of one epoch would gain time.
        once += max(-once, statistics.fmean(lost(one) for one in readings.first_openings) - opening.value)
    longer = TRUNCATED_BOUNDARY * opening.value if readings.truncated_boundaries else 0.0
    waiting = last_waiting = NO_WAITING
    lengths = [(seconds + wrap_up.value + ending.value, often) for seconds, often in epoch_seconds]
    if tunes and goes_on:
        epochs, epoch = profile.setup.epochs, math.fsum(seconds * often for seconds, often in lengths)
        lasts = epochs * epoch if epochs else UNKNOWN_SECONDS
        last_waiting = expect_waiting(profile, (), [(lasts, 1.0)], confidence=confidence)
    elif tunes:
        waiting = expect_waiting(profile, evidence, lengths, confidence=confidence)
    return Boundaries(
        wrap_up=wrap_up,
        ending=ending,
        first_ending=predict_once(readings.first_endings, confidence=confidence),
        opening=replace(opening, half_width_above=math.hypot(opening.half_width_above, longer, STALL_RECURS * beyond)),
        first_wrap_up=predict_once(readings.first_wrap_ups, confidence=confidence),
        once=once,
        shortened=beyond > 0,
        waiting=waiting,
        last_waiting=last_waiting,
    )


def time_partial_batch(
    profile: Profile, readings: Readings, workload: Workload, *, step: Level, first: Level, confidence: float
) -> PartialBatch:
    """The smaller last batch from those that were seen, or from the ordinary step."""
    if readings.unit == "epoch" or not workload.partial_batch:
        return PartialBatch()
    if readings.later_partials:
        each = locate(readings.later_partials, prior_spread=BOUNDARY_SPREAD, unseen=False, confidence=confidence)
    else:
        # Step time is affine in the batch size. Its fixed part is unknown: take the middle, and all of it as interval.
        share = workload.partial_batch / workload.batch_size if workload.batch_size else 1.0
        half = step.value * (1 - share) / 2
        each = Level(step.value * (1 + share) / 2, half, half, 0.0)
    if readings.first_partials:
        extra = [max(0.0, seconds - each.value) for seconds in readings.first_partials]
        return PartialBatch(each, predict_once(extra, confidence=confidence))
    if profile.environment.backend == "jax" or profile.environment.jit:
        again = max(0.0, first.value - step.value * readings.first_units)
        return PartialBatch(each, Level(again, again / 2, again / 2, 0.0))
    return PartialBatch(each)


# Pauses inside steps whose cause is known: counted by how they recur, apart from the steps they fell into.
#
# Python's collector looks through young objects often and shortly, and through all objects seldom and long: again
# only
# once their number has grown by a quarter. While a framework is being set up that happens; in a training that goes
# on,
# the heap no longer grows. So pauses over the whole heap count once, and the others at their rate; so do those within
# the
# very first step, where compiling makes many objects. Where a record does not tell them apart, the one pause that is
# far
# longer than all others is taken for one over the whole heap.


FULL_PAUSE = 2.0
"""A pause is taken for one over the whole heap when it is longer than this many times any other of its run."""

FULL_RECURS = 0.3
"""Share of the rate at which a probe saw pauses over the whole heap that the high end allows to go on: assumed."""


@dataclass(frozen=True)
class Pauses:
    """Seconds of pauses that ``each`` step takes on average, and of those that come ``once``."""

    each: Level = NOTHING
    once: float = 0.0


def time_pauses(readings: Readings) -> Pauses:
    """What pauses add, from those that were seen among the steps of all repetitions."""
    full, others = [], []
    first = 0.0
    for run in readings.pauses:
        if any(pause.whole_heap is not None for pause in run):
            first += math.fsum(pause.seconds for pause in run if _in_first_step(pause))
            later = [pause for pause in run if not _in_first_step(pause)]
            full += [pause.seconds for pause in later if pause.whole_heap]
            others += [pause.seconds for pause in later if not pause.whole_heap]
            continue
        ordered = sorted((pause.seconds for pause in run), reverse=True)
        lone = bool(ordered) and (len(ordered) == 1 or ordered[0] > FULL_PAUSE * ordered[1])
        full += ordered[:1] if lone else []
        others += ordered[1:] if lone else ordered
    if not readings.steps_seen:
        return Pauses()
    rate = math.fsum(others) / readings.steps_seen
    again = FULL_RECURS * math.fsum(full) / readings.steps_seen
    # Few pauses tell their rate badly: by the square root of their number.
    half = rate / math.sqrt(len(others)) if others else 0.0
    once = (first + math.fsum(full)) / len(readings.pauses)
    return Pauses(Level(rate, half, math.hypot(half, again), 0.0), once)


def _in_first_step(pause: Pause) -> bool:
    return pause.epoch == pause.batch == 0


# Saves of the model that a short probe does not see: no part of the estimate, but the interval allows for them.


SEEN_TWICE = 2
"""Saves by batches that fit so often into what was probed are in the mean of its steps."""

SELDOM = 10.0
"""How many times as long as any later one the first end of an epoch must be to be taken for a save that comes only now
and then..."""

SELDOM_SHARE = 0.5
"""...and the share of epochs for which the high end then allows one: the second epoch had none."""


@dataclass(frozen=True)
class Saves:
    """Saves that are not counted: ``per_epoch`` by batches, and perhaps some after a few of the epochs.

    ``by_batches`` says that there are such saves, even where their number is not known. ``longest`` is the longest that
    callbacks worked at the end of an epoch, or that a step stood out by; 0 where no save was seen. ``now_and_then`` is
    what an epoch takes on average if what came after the first one comes again.
    """

    by_batches: bool = False
    per_epoch: float = 0.0
    longest: float = 0.0
    now_and_then: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds an epoch that the high end allows for."""
        return self.per_epoch * self.longest + self.now_and_then


def find_unseen_saves(profile: Profile, readings: Readings, *, step: Level, steps_per_epoch: float) -> Saves:
    """What of the saves that callbacks announce, or that the first epoch showed, steps and boundaries do not hold."""
    if readings.unit == "epoch":  # saves are part of whole epochs
        return Saves()
    setup = profile.setup
    first, later = max(readings.first_endings, default=0.0), max(readings.later_endings, default=0.0)
    # The first save of Keras' own callbacks is slow once, so it says nothing about later ones.
    seldom = bool(readings.later_endings) and setup.saving is None and first > SELDOM * later
    longest = max(first, later, step.stall)
    if setup.saving == "batches" and longest <= step.value:  # nothing that was seen can have been a save
        longest = 0.0
    saves = Saves(longest=longest, now_and_then=SELDOM_SHARE * first if seldom else 0.0)
    if setup.save_freq is None:
        return replace(saves, by_batches=setup.saving == "batches")
    if profile.timeline.steps.steps >= SEEN_TWICE * setup.save_freq:
        return saves
    return replace(saves, by_batches=True, per_epoch=steps_per_epoch / setup.save_freq)
