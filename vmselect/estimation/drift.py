"""How far the speed of a training may differ from the speed that its records show.

There are three reasons, and each has its own term:

- Another process on the same machine gets other memory, other cores, another temperature and other neighbours. How
  much that matters is learned from repetitions in the records, starting from a prior for the kind of machine.
- Within a run, the speed drifts. The prior is updated by the epochs and blocks of steps of the records.
- Times of epochs that rise or fall while they are recorded may go on doing so. This term widens one side only, and is
  zero for records without a trend.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from operator import truediv
from typing import Literal, NamedTuple

from vmselect.estimation.readings import Readings, find_drift, quantile
from vmselect.records import Profile
from vmselect.records.identity import distinct, training_key, work_key
from vmselect.records.step_times import step_seconds

Machine = Literal["cpu", "gpu", "published steps", "published epochs"]
"""Kind of machine on which a profile was recorded; times that were given are mostly published ones."""


class Sides(NamedTuple):
    """Relative standard deviations, or half-widths, towards a faster and a slower training."""

    faster: float
    slower: float


PRIOR_WEIGHT = 4.0
"""Number of further measurements (of runs, or of epochs) that each prior weighs as much as."""

BETWEEN: Mapping[Machine, Sides] = {
    "cpu": Sides(0.04, 0.08),
    "gpu": Sides(0.022, 0.022),
    "published steps": Sides(0.02, 0.02),
    "published epochs": Sides(0.0, 0.0),
}
"""Prior standard deviation of the relative difference between the step times of two processes.

- CPU: cores of virtual machines that other guests share. On such a machine, two identical trainings of 26 scripts
  differed by 12 % in the mean and 9 % in the median, and probes were 10 % off (docs/validation/accuracy.md); trainings
  were more often slower than probes.
- GPU: repetitions on four AWS machines with one GPU (PROFET) differ by 1.7 to 2.3 % (standard deviation).
- Times of steps that were given: the same repetitions, of which the user has one number.
- Times of epochs that were given: other runs of MLPerf are covered without this term.
"""

WITHIN: Mapping[Machine, Sides] = {
    "cpu": Sides(0.02, 0.04),
    "gpu": Sides(0.01, 0.02),
    "published steps": Sides(0.005, 0.005),
    "published epochs": Sides(0.005, 0.005),
}
"""Prior standard deviation of a machine's speed during a run. Machines slow down (heat, other tenants) more easily than
they speed up. Published times, and whole epochs, are means over so many steps that they drift less."""

TREND_CHANGE, TREND_SHARE, TREND_DEVIATIONS = 0.03, 0.6, 2.5
"""Epochs have a trend if they change by at least ``TREND_CHANGE`` in all, and if rising pairs outnumber falling pairs
(or the reverse) by ``TREND_SHARE`` of all pairs, or by ``TREND_DEVIATIONS`` standard deviations of their difference in
epochs without a trend."""

TREND_CONTINUES, TREND_MOST = 1.25, 0.12
"""The rest of the training may differ from the recorded epochs by ``TREND_CONTINUES`` times their change, of which at
most ``TREND_MOST`` counts: larger changes are those of a few epochs. Chosen on MLPerf v1.1, where coverage of the whole
run from three epochs rises from 90 to 93 % and the interval score falls by 30 %; on MLPerf v0.7 and DAWNBench, the
score stays within 2 and 14 % (``tests/benchmarks/calibration.py``)."""


class Repetitions(NamedTuple):
    """Squared relative differences between repetitions, and their degrees of freedom."""

    squares: float = 0.0
    freedom: float = 0.0


Learned = Mapping[Machine, Repetitions]
"""What the records show about differences between processes, by kind of machine."""


def find_machine(profiles: Sequence[Profile], unit: str) -> Machine:
    """Kind of machine on which ``profiles`` were recorded; ``unit`` is "step" or "epoch": what a reading measures."""
    if all(profile.outcome == "given" for profile in profiles):
        return "published epochs" if unit == "epoch" else "published steps"
    return "gpu" if any(profile.environment.framework_gpus for profile in profiles) else "cpu"


def learn_repetitions(profiles: Iterable[Profile]) -> dict[Machine, Repetitions]:
    """Squared differences between the step times of repetitions among ``profiles``."""
    groups: dict[tuple[Machine, Hashable, Hashable], list[float]] = {}
    for profile in distinct(profiles):
        if seconds := step_seconds(profile):
            machine = find_machine([profile], "step" if len(profile.timeline.steps) else "epoch")
            key = (machine, training_key(profile), work_key(profile, profile.batch_size))
            groups.setdefault(key, []).append(seconds)
    learned: dict[Machine, Repetitions] = {}
    for (machine, *_), times in groups.items():
        if len(times) < 2:
            continue
        mean = statistics.fmean(times)
        # Two runs differ by twice the variance of one.
        squares = 2 * math.fsum((seconds / mean - 1) ** 2 for seconds in times)
        before = learned.get(machine, Repetitions())
        learned[machine] = Repetitions(before.squares + squares, before.freedom + len(times) - 1)
    return learned


def bound_speed(profiles: Sequence[Profile], readings: Readings, learned: Learned, confidence: float) -> Sides:
    """Relative half-widths for a training that runs faster, and slower, than ``profiles`` show."""
    machine = find_machine(profiles, readings.unit)
    if machine == "published epochs" and len(readings.steady.seconds) < 2:
        machine = "published steps"  # a single number, of which nothing is known but that it was published
    within = WITHIN["published epochs" if readings.unit == "epoch" else machine]
    repeated = learned.get(machine, Repetitions())
    blocks = _relative_rates(readings)
    change = find_trend(readings)
    continued = TREND_CONTINUES * min(TREND_MOST, abs(change))
    trends = Sides(continued if change < 0 else 0.0, continued if change > 0 else 0.0)
    # Drift within the steps of a run, too, may differ as much between runs.
    steps = find_drift([*map(truediv, *readings.steady)]) if readings.unit == "step" else 0.0
    runs = max(1, len(readings.first))
    sides = []
    for prior_between, prior_within, trend in zip(BETWEEN[machine], within, trends, strict=True):
        between = Repetitions(PRIOR_WEIGHT * prior_between**2 + repeated.squares, PRIOR_WEIGHT + repeated.freedom)
        drift = Repetitions(PRIOR_WEIGHT * prior_within**2 + blocks.squares, PRIOR_WEIGHT + blocks.freedom)
        # The difference between a training and the mean of n recorded runs has 1 + 1/n times the variance of one run.
        # Priors describe the difference from a single run, so the factor is relative to n = 1, where it is 1 + 1.
        half = _half_width(between, drift, steps, (1 + 1 / runs) / 2, confidence)
        sides.append(math.hypot(half, trend))
    return Sides(*sides)


def _half_width(between: Repetitions, drift: Repetitions, steps: float, factor: float, confidence: float) -> float:
    """Half-width of the sum of two differences, whose degrees of freedom are combined by the rule of Welch."""
    first, second = between.squares / between.freedom, drift.squares / drift.freedom + steps**2
    freedom = drift.freedom
    if first:
        freedom = (first + second) ** 2 / (first**2 / between.freedom + second**2 / drift.freedom)
    return quantile(confidence, round(freedom, 6)) * math.sqrt((first + second) * factor)


def _relative_rates(readings: Readings) -> Repetitions:
    """Squared differences of the times per step of blocks (epochs) from the median of their run."""
    squares = freedom = 0.0
    for blocks in readings.runs:
        rates = [math.fsum(block.seconds) / sum(block.covers) for block in blocks if len(block.seconds) > 2]
        if len(rates) > 1 and (center := statistics.median(rates)) > 0:
            squares += math.fsum((rate / center - 1) ** 2 for rate in rates)
            freedom += len(rates) - 1
    return Repetitions(squares, freedom)


def find_trend(readings: Readings) -> float:
    """Relative change of the times of epochs during a run, above 0 if they rise; 0.0 without a trend.

    It is the mean over the runs of (median slope of all pairs of epochs) x (number of epochs).
    """
    if readings.unit != "epoch" or not readings.runs:
        return 0.0
    return statistics.fmean(
        _change([seconds for block in blocks for seconds in block.seconds]) for blocks in readings.runs
    )


def _change(values: Sequence[float]) -> float:
    count = len(values)
    if count < 2 or (level := statistics.median(values)) <= 0:
        return 0.0
    chosen = values if count <= MAX_COMPARED else [values[i * count // MAX_COMPARED] for i in range(MAX_COMPARED)]
    pairs = [(later - earlier) / (j - i) for (i, earlier), (j, later) in combinations(enumerate(chosen), 2)]
    excess = abs(sum(slope > 0 for slope in pairs) - sum(slope < 0 for slope in pairs))
    size = len(chosen)
    deviation = math.sqrt(size * (size - 1) * (2 * size + 5) / 18)  # of Kendall's statistic without a trend
    change = statistics.median(pairs) * size / level
    is_trend = excess >= min(TREND_SHARE * len(pairs), TREND_DEVIATIONS * deviation)
    return change if is_trend and abs(change) >= TREND_CHANGE else 0.0


MAX_COMPARED = 100
"""Number of epochs of a long training that are compared with each other."""
