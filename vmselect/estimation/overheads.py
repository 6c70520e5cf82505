"""What an epoch spends besides ordinary steps and validation: its boundary, and a smaller last batch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmselect.estimation.location import NOTHING, Level, locate, predict_once
from vmselect.estimation.readings import Opening, Readings
from vmselect.estimation.workload import Workload
from vmselect.records import Profile

BOUNDARY_SPREAD = 0.25
"""Relative spread of the time between epochs, before any was seen."""

LONE_BOUNDARY_STEPS = 128.0
"""A boundary seen once counts for no more steps than this: longer ones were stalls more often than not."""

TRUNCATED_BOUNDARY = 0.3
"""How much longer, as a share of what was seen, the boundary of a whole epoch may be than that of one cut short."""

TUNING_FIRST, TUNING_LONGEST = 0.01, 60.0
"""Seconds between two looks of tf.data's tuning thread, which double from the first to the longest. When an epoch ends,
TensorFlow wakes the thread; on a busy processor it fails to, and waits for the next look before it opens another..."""

TUNING_MARGIN = 1.25
"""...and an epoch longer than predicted by up to this factor may just miss one, and wait for the one after it."""

STALL_RECURS = 0.3
"""Share of what was cut off that the high end allows to recur at every boundary."""


@dataclass(frozen=True)
class Boundaries:
    """Seconds that wrap up every epoch and open every later one; of the first wrap-up; and what comes once.

    ``shortened`` says that what was seen is not believed to recur in full, ``waits`` how long each may take beyond it.
    """

    wrap_up: Level = NOTHING
    opening: Level = NOTHING
    first_wrap_up: Level = NOTHING
    once: float = 0.0
    shortened: bool = False
    waits: float = 0.0


@dataclass(frozen=True)
class PartialBatch:
    """Seconds of the smaller last batch of every epoch, and of compiling for it once."""

    each: Level = NOTHING
    once: Level = NOTHING


def time_boundaries(
    profile: Profile, readings: Readings, *, step: Level, epoch_seconds: float, confidence: float
) -> Boundaries:
    """Boundaries from those that were seen. The first wrap-up is kept apart, as the first step and validation are.

    ``epoch_seconds`` are those of steps and validation, on which it depends how long a self-tuning input may wait.
    """

    def lost(opening: Opening) -> float:
        return max(0.0, opening.before_seconds + opening.step_seconds - step.value * opening.covers)

    def find(seconds: Sequence[float]) -> Level:
        if not seconds:
            return NOTHING
        return locate(seconds, prior_spread=BOUNDARY_SPREAD, unseen=False, confidence=confidence)

    wrap_up = find(readings.later_wrap_ups)
    if readings.first_wrap_ups and not readings.later_wrap_ups:
        # All of it may be what frameworks compile to sum up an epoch, or none of it.
        wrap_up = replace(wrap_up, high=max(readings.first_wrap_ups))
    seen, beyond = [lost(one) for one in readings.openings], 0.0
    if len(seen) == 1 and readings.unit == "step" and not readings.first_openings:
        limit = LONE_BOUNDARY_STEPS * step.value
        beyond, seen = max(0.0, seen[0] - limit), [min(seen[0], limit)]
    opening = find(seen)
    once = wrap_up.stall + opening.stall + beyond + (statistics.median(readings.finals) if readings.finals else 0.0)
    if readings.first_openings:
        # Never so far below that a training of one epoch would gain time.
        once += max(-once, statistics.fmean(lost(one) for one in readings.first_openings) - opening.value)
    longer = waits = 0.0
    if readings.truncated_boundaries:
        longer = TRUNCATED_BOUNDARY * opening.value
        waits = _busy_share(profile) * longest_wait(epoch_seconds) if profile.setup.self_tuning_input else 0.0
    return Boundaries(
        wrap_up=wrap_up,
        opening=replace(opening, high=math.hypot(opening.high, longer, waits, STALL_RECURS * beyond)),
        first_wrap_up=predict_once(readings.first_wrap_ups, confidence=confidence),
        once=once,
        shortened=beyond > 0,
        waits=waits,
    )


def longest_wait(epoch_seconds: float) -> float:
    """Seconds that a self-tuning tf.data pipeline may idle after an epoch of about ``epoch_seconds``.

    >>> [round(longest_wait(seconds), 2) for seconds in (0.2, 2.0, 12.6, 3600.0)]
    [0.11, 0.55, 7.87, 60.0]
    """
    look = _next_look(epoch_seconds)
    just_missed = look < TUNING_MARGIN * epoch_seconds
    return max(look - epoch_seconds, _next_look(look + TUNING_FIRST / 2) - look if just_missed else 0.0)


def _busy_share(profile: Profile) -> float:
    """How busy the training kept the processor: tf.data forgets to wake its thread the more often, the busier it is."""
    timeline, cores = profile.timeline, profile.environment.usable_cores
    if not timeline.cpu_seconds or not timeline.wall_seconds or not cores:
        return 1.0
    return min(1.0, timeline.cpu_seconds / timeline.wall_seconds / cores)


def _next_look(seconds: float) -> float:
    doublings = math.ceil(math.log2(TUNING_LONGEST / TUNING_FIRST))
    if seconds <= TUNING_FIRST * (2.0**doublings - 1):
        return TUNING_FIRST * (2.0 ** max(1, math.ceil(math.log2(seconds / TUNING_FIRST + 1))) - 1)
    rest = seconds - TUNING_FIRST * (2.0**doublings - 1)
    return seconds - rest + TUNING_LONGEST * math.ceil(rest / TUNING_LONGEST)


def time_partial_batch(
    profile: Profile, readings: Readings, workload: Workload, *, step: Level, first: Level, confidence: float
) -> PartialBatch:
    """The smaller last batch from those that were seen, or from the ordinary step."""
    if readings.unit == "epoch" or not workload.partial_batch:
        return PartialBatch()
    if readings.later_partials:
        each = locate(readings.later_partials, prior_spread=BOUNDARY_SPREAD, unseen=False, confidence=confidence)
    else:
        # Step time is affine in the batch size, with a fixed part that is not known: halfway, and all of it in doubt.
        share = workload.partial_batch / workload.batch_size if workload.batch_size else 1.0
        doubt = step.value * (1 - share) / 2
        each = Level(step.value * (1 + share) / 2, doubt, doubt, 0.0)
    if readings.first_partials:
        extra = [max(0.0, seconds - each.value) for seconds in readings.first_partials]
        return PartialBatch(each, predict_once(extra, confidence=confidence))
    if profile.environment.backend == "jax" or profile.environment.jit:
        again = max(0.0, first.value - step.value * readings.first_units)
        return PartialBatch(each, Level(again, again / 2, again / 2, 0.0))
    return PartialBatch(each)
