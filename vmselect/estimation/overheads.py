"""Overheads of an epoch besides steps and validation: boundaries, a smaller last batch, pauses and checkpoints."""

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
"""Prior relative spread of boundaries."""

LONE_BOUNDARY_STEPS = 128.0
"""A single boundary counts as at most this many steps: longer ones were mostly stalls."""

TRUNCATED_BOUNDARY = 0.3
"""How much longer, relatively, the boundary of a complete epoch may be than that of one cut short."""

STALL_RECURS = 0.3
"""Share of the part beyond that limit that the high end includes for every boundary."""

FULL_PAUSE = 2.0
"""A pause that is longer than this many times any other of its run was a collection of the whole heap."""

FULL_RECURS = 0.3
"""Share of the observed rate of collections of the whole heap that the high end includes. Assumed."""

SEEN_TWICE = 2
"""Checkpoints by batches that occur this often in a probe are part of its mean step."""

SELDOM, SELDOM_SHARE = 10.0, 0.5
"""A first epoch end this many times as long as later ones may be a checkpoint that recurs. The high end then includes
it for this share of epochs, because the second epoch had none."""


@dataclass(frozen=True)
class Boundaries:
    """Seconds of the parts of boundaries, and those that occur once.

    ``shortened`` is True where a single long boundary counts in part. ``waiting`` is added after every epoch, and
    ``last_waiting`` at the end of the training.
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
    """Seconds of the smaller last batch of every epoch, and of its compilation once."""

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
    """Boundaries from the recorded ones. Recorded waits for the autotuner are replaced by those of complete epochs.

    ``epoch_seconds`` are those of steps and validation, each with its share of epochs. They determine the waits.
    """
    # After a complete epoch of unknown length, a wait cannot be separated from the rest of the boundary.
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
        # All of it or none of it may be compilation.
        wrap_up = replace(wrap_up, half_width_above=max(readings.first_wrap_ups))
    ending = find(readings.later_endings)
    if readings.first_endings and not readings.later_endings:
        # A first save can take a hundred times as long as later ones, or the same time.
        half = max(readings.first_endings) / 2
        ending = Level(half, half, half, 0.0)
    if profile.setup.saving == "best":  # every epoch counts as the best so far, but perhaps none is
        ending = replace(ending, half_width_below=max(ending.half_width_below, ending.value))
    seen, beyond = [lost(one) for one in readings.openings], 0.0
    if len(seen) == 1 and readings.unit == "step" and not readings.first_openings:
        limit = LONE_BOUNDARY_STEPS * step.value
        beyond, seen = max(0.0, seen[0] - limit), [min(seen[0], limit)]
    opening = find(seen)
    final = statistics.median(readings.finals) if readings.finals else 0.0
    once = wrap_up.stall + ending.stall + opening.stall + beyond + final
    if readings.first_openings:
        # The sum stays positive, or a training of one epoch would gain time.
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
    """The smaller last batch from recorded ones, or from the ordinary step."""
    if readings.unit == "epoch" or not workload.partial_batch:
        return PartialBatch()
    if readings.later_partials:
        each = locate(readings.later_partials, prior_spread=BOUNDARY_SPREAD, unseen=False, confidence=confidence)
    else:
        # Step time is affine in the batch size with an unknown fixed part: the middle, and all of it as interval.
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


@dataclass(frozen=True)
class Pauses:
    """Seconds of pauses that ``each`` step has on average, and of those that occur ``once``."""

    each: Level = NOTHING
    once: float = 0.0


def time_pauses(readings: Readings) -> Pauses:
    """Pauses from those recorded in all repetitions.

    Python's garbage collector examines young objects often and the whole heap rarely, and only after the heap has grown
    by a quarter, as it does while a framework starts. So collections of the whole heap and those in the very first
    step, which compiles, count once, and others at their rate. In records that do not distinguish them, a pause far
    longer than all others is one of the whole heap.
    """
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
    # The relative error of a rate is one over the square root of the number of pauses.
    half = rate / math.sqrt(len(others)) if others else 0.0
    once = (first + math.fsum(full)) / len(readings.pauses)
    return Pauses(Level(rate, half, math.hypot(half, again), 0.0), once)


def _in_first_step(pause: Pause) -> bool:
    return pause.epoch == pause.batch == 0


@dataclass(frozen=True)
class Saves:
    """Checkpoints that only the high end includes: ``per_epoch`` by batches, and perhaps some after a few epochs.

    ``by_batches`` is True where there are checkpoints by batches, of a possibly unknown number. ``longest`` is the
    longest recorded checkpoint, or 0. ``now_and_then`` are mean seconds per epoch if the first epoch end recurs.
    """

    by_batches: bool = False
    per_epoch: float = 0.0
    longest: float = 0.0
    now_and_then: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds per epoch that the high end includes."""
        return self.per_epoch * self.longest + self.now_and_then


def find_unseen_saves(profile: Profile, readings: Readings, *, step: Level, steps_per_epoch: float) -> Saves:
    """Checkpoints that the recorded steps and boundaries do not contain."""
    if readings.unit == "epoch":  # whole epochs include them
        return Saves()
    setup = profile.setup
    first, later = max(readings.first_endings, default=0.0), max(readings.later_endings, default=0.0)
    # The first save of Keras' callbacks is slow once, so it does not count.
    seldom = bool(readings.later_endings) and setup.saving is None and first > SELDOM * later
    longest = max(first, later, step.stall)
    if setup.saving == "batches" and longest <= step.value:  # no checkpoint was recorded
        longest = 0.0
    saves = Saves(longest=longest, now_and_then=SELDOM_SHARE * first if seldom else 0.0)
    if setup.save_freq is None:
        return replace(saves, by_batches=setup.saving == "batches")
    if profile.timeline.steps.steps >= SEEN_TWICE * setup.save_freq:
        return saves
    return replace(saves, by_batches=True, per_epoch=steps_per_epoch / setup.save_freq)
