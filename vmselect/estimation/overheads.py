"""What an epoch spends besides ordinary steps and validation: its boundary, and a smaller last batch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vmselect.estimation.location import NOTHING, Level, locate, predict_once
from vmselect.estimation.readings import Opening, Readings
from vmselect.estimation.workload import Workload
from vmselect.profile import Profile

BOUNDARY_SPREAD = 0.25
"""Relative spread of the time between epochs, before any was seen."""

LONE_BOUNDARY_STEPS = 128.0
"""A boundary seen once counts for no more steps than this: longer ones were stalls more often than not."""

TRUNCATED_BOUNDARY = 0.3
"""How much longer, as a share of what was seen, the boundary of a whole epoch may be than that of one cut short."""

TENSORFLOW_STALL = 0.8
"""Seconds beyond that: TensorFlow takes the pipeline of a whole epoch down with random stalls, that of a short one
without. Nine in ten trainings of short epochs on CPUs lost less than this per boundary."""

STALL_RECURS = 0.3
"""Share of what was cut off that the high end allows to recur at every boundary."""


@dataclass(frozen=True)
class Boundaries:
    """Seconds that wrap up every epoch and open every later one; of the first wrap-up; and what comes once."""

    wrap_up: Level = NOTHING
    opening: Level = NOTHING
    first_wrap_up: Level = NOTHING
    once: float = 0.0
    shortened: bool = False


@dataclass(frozen=True)
class PartialBatch:
    """Seconds of the smaller last batch of every epoch, and of compiling for it once."""

    each: Level = NOTHING
    once: Level = NOTHING


def time_boundaries(profile: Profile, readings: Readings, *, step: Level, confidence: float) -> Boundaries:
    """Boundaries from those that were seen. The first wrap-up is kept apart, as the first step and validation are."""

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
    return Boundaries(
        wrap_up=wrap_up,
        opening=replace(opening, high=math.hypot(opening.high, *_unseen(profile, readings, opening, beyond))),
        first_wrap_up=predict_once(readings.first_wrap_ups, confidence=confidence),
        once=once,
        shortened=beyond > 0,
    )


def _unseen(profile: Profile, readings: Readings, opening: Level, beyond: float) -> Iterator[float]:
    """By how much the opening of an epoch may be longer than what was seen, for each reason to think so."""
    yield STALL_RECURS * beyond
    if readings.truncated_boundaries:
        yield TRUNCATED_BOUNDARY * opening.value
        yield TENSORFLOW_STALL if profile.environment.backend == "tensorflow" else 0.0


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
