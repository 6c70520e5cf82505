"""What an epoch spends besides ordinary steps and validation: its boundary, and a smaller last batch."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

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

STALL_RECURS = 0.3
"""Share of what was cut off, or set aside as compilation, that the high end allows to recur at every boundary."""

COMPILING_BOUNDARY = 0.5
"""On JAX the first boundary compiles. What it took beyond the final one counts as that, up to this share of what the
first step took beyond an ordinary one..."""

COMPILING_SHARE = 0.09
"""...and where no final one was seen, or it took more, this share of it is set aside."""


@dataclass(frozen=True)
class Boundaries:
    """Seconds of every boundary, of the first one beyond that, and after the last epoch."""

    each: Level
    once: float = 0.0
    final: float = 0.0
    shortened: bool = False


@dataclass(frozen=True)
class PartialBatch:
    """Seconds of the smaller last batch of every epoch, and of compiling for it once."""

    each: Level = NOTHING
    once: Level = NOTHING


def time_boundaries(
    profile: Profile, readings: Readings, *, step: Level, first: Level, confidence: float
) -> Boundaries:
    """Boundaries from those that were seen: the first is kept apart, as the first step and validation are."""
    final = statistics.median(readings.finals) if readings.finals else 0.0

    def lost(opening: Opening) -> float:
        return max(0.0, opening.boundary_seconds + opening.step_seconds - step.value * opening.covers)

    firsts = [lost(opening) for opening in readings.openings if opening.first]
    laters = [lost(opening) for opening in readings.openings if not opening.first]
    if laters:
        each = locate(laters, prior_spread=BOUNDARY_SPREAD, unseen=False, confidence=confidence)
        # Never so far below that a training of one epoch would gain time.
        beyond = max(-final, statistics.fmean(firsts) - each.value) if firsts else 0.0
        return Boundaries(each, once=beyond + each.stall, final=final)
    if not firsts:
        return Boundaries(NOTHING, final=final)
    once = 0.0
    if profile.environment.backend == "jax":
        compiling = max(0.0, first.value - step.value * readings.first_units)
        extra = min(firsts) - final
        known = bool(readings.finals) and extra <= COMPILING_BOUNDARY * compiling
        once = max(0.0, min(extra if known else COMPILING_SHARE * compiling, *firsts))
        firsts = [seconds - once for seconds in firsts]
    beyond = 0.0
    if len(firsts) == 1 and readings.unit == "step":
        limit = LONE_BOUNDARY_STEPS * step.value
        beyond, firsts = max(0.0, firsts[0] - limit), [min(firsts[0], limit)]
    each = locate(firsts, prior_spread=BOUNDARY_SPREAD, unseen=False, confidence=confidence)
    longer = TRUNCATED_BOUNDARY * each.value if readings.truncated_boundaries else 0.0
    high = math.hypot(each.high, longer, STALL_RECURS * beyond, STALL_RECURS * once)
    return Boundaries(Level(each.value, each.low, high, each.noise), once + beyond, final, shortened=beyond > 0)


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
