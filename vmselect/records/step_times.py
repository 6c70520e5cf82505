"""Seconds per step: the one definition of the step time of a profile.

It is the mean of the steady steps, because the time of a training is a sum: a median would ignore slow steps that
recur, such as every tenth step that waits for a file. One extreme reading, however, can change the mean of twenty
readings by half, so a single stall is taken out of the mean:

    step_seconds = (sum of steady readings - lone stall) / number of steps that they cover

Of the means and medians in ``tests/benchmarks/accuracy_locations.py``, this one predicts whole trainings best. It
is the level on which :mod:`vmselect.estimation` bases its estimates. History, comparison, prediction and reports
print and compare the same number.

Which steps are steady is decided here too. The warm-up is detected from the readings (:func:`find_warmup`) whenever
:class:`~vmselect.records.training.Steps` are made: by a probe, from given times, or from a file. The labels ``warmup``
and ``steady`` in a file mean the same, so a better detection also applies to old files.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from operator import truediv
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmselect.records.training import Profile

MIN_READINGS = 4
"""Number of readings from which a stall, or warm-up, can be distinguished from ordinary readings."""

STALL_STEPS = 5.0
"""A reading is a stall if its excess over an ordinary step is longer than this many ordinary steps."""

UNCERTAIN_STEPS, UNCERTAIN_SHARE = 2.0, 0.5
"""A single reading whose excess over an ordinary step is longer than ``UNCERTAIN_STEPS`` ordinary steps may or may not
recur: the share ``UNCERTAIN_SHARE`` of the excess stays in the mean. Chosen on simulated trainings with outliers at
rates from 1 in 1,000 to 1 in 10 (``tests/benchmarks/outliers.py``)."""


def step_seconds(profile: Profile) -> float | None:
    """Mean seconds of a steady step of ``profile`` without a lone stall; None if unknown.

    Without steady steps, it is the mean time per step of the complete epochs after the first.
    """
    steps = profile.timeline.steps
    readings = [
        (seconds, covers)
        for seconds, covers, label in zip(steps.seconds, steps.covers, steps.label, strict=True)
        if label == "steady"
    ]
    if not readings:
        # The first epoch includes compilation.
        later = [epoch.seconds for epoch in profile.timeline.epochs[1:] if epoch.complete]
        if not later or not profile.steps_per_epoch:
            return None
        return math.fsum(later) / len(later) / profile.steps_per_epoch
    values, units = map(list, zip(*readings, strict=True))
    if len(values) >= MIN_READINGS:
        take_lone_stall(values, units)
    return math.fsum(values) / sum(units) or None


def typical_step_seconds(profiles: Iterable[Profile]) -> float | None:
    """Median of the step times of repetitions; None if none has a step time.

    The median resists a whole run that was disturbed; within a run, the mean is what a training takes.
    """
    times = [seconds for profile in profiles if (seconds := step_seconds(profile))]
    return statistics.median(times) if times else None


def take_lone_stall(
    values: list[float],
    units: list[int],
    stall_steps: float = STALL_STEPS,
    uncertain_steps: float = UNCERTAIN_STEPS,
) -> float:
    """Remove a single stall, or a part of an uncertain stall, from ``values`` in place; return the removed seconds.

    ``units`` is the number of steps that each of ``values`` covers; a removed reading is removed there too.
    """
    typical: float = statistics.median(map(truediv, values, units))
    excess = [value - typical * unit for value, unit in zip(values, units, strict=True)]
    for steps, share in ((stall_steps, 1.0), (uncertain_steps, 1.0 - UNCERTAIN_SHARE)):
        long = [index for index, extra in enumerate(excess) if extra > steps * typical]
        if len(long) > 1:
            return 0.0  # long readings recur
        for index in long:
            taken = share * excess[index]
            if share == 1.0:
                del values[index], units[index]
            else:
                values[index] -= taken
            return taken
    return 0.0


# -- warm-up -----------------------------------------------------------------------------------------------------------

WARMUP_READINGS = 1_000
"""Number of first step times in which warm-up is detected. A profile always contains these."""

NOISE_WIDTHS, MIN_SHIFT = 4.0, 0.2
"""Warm-up differs from steady steps by more than this many times their noise, and by more than this share of their
time. Fewer than one in ten runs of 20 steps with a spread of 15 % is taken for warm-up by chance."""


def detect_warmup(per_step_seconds: Sequence[float]) -> int:
    """Number of warm-up readings at the start of ``per_step_seconds``.

    ``per_step_seconds`` are step times in chronological order, without the very first step. The second half is taken as
    steady. In the first half, steps are warm-up until the first step time that differs from the median of the second
    half by at most four times the noise of the second half or a fifth of its median, whichever is larger. Warm-up may
    be slower (cold caches) or faster (prefetched input that runs out).
    """
    readings = list(per_step_seconds)
    if len(readings) < MIN_READINGS:
        return 0
    half = len(readings) // 2
    steady = readings[half:]
    level = statistics.median(steady)
    noise = 1.4826 * statistics.median(abs(value - level) for value in steady)
    margin = max(NOISE_WIDTHS * noise, MIN_SHIFT * level)
    for position, value in enumerate(readings[:half]):
        if abs(value - level) <= margin:
            return position
    return half


def find_warmup(
    epochs: Sequence[int], seconds: Sequence[float], covers: Sequence[int], labels: Sequence[str]
) -> set[int]:
    """Positions of the warm-up steps among step times, which are passed as columns of equal length.

    Steps labelled ``first``, ``opening`` or ``partial`` are not considered. Of the other steps, only those of the first
    epoch that has any can be warm-up.
    """
    head: list[int] = []
    for position, label in enumerate(labels):
        if label in ("steady", "warmup"):
            if head and (epochs[position] != epochs[head[0]] or len(head) == WARMUP_READINGS):
                break
            head.append(position)
    return set(head[: detect_warmup([seconds[position] / covers[position] for position in head])])
