"""Pauses inside steps whose cause is known: counted by how they recur, apart from the steps they fell into.

Python's collector looks through young objects often and shortly, and through all objects seldom and long: again only
once their number has grown by a quarter. While a framework is being set up that happens; in a training that goes on,
the heap no longer grows. So pauses over the whole heap count once, and the others at their rate; so do those within the
very first step, where compiling makes many objects. Where a record does not tell them apart, the one pause that is far
longer than all others is taken for one over the whole heap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vmselect.estimation.location import NOTHING, Level
from vmselect.estimation.readings import Readings
from vmselect.records import Pause

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
