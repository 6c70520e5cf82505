"""The mean of few readings with an interval, robust against a single outlier.

Total time is a sum, so the *mean* of the readings matters: a median ignores recurring slow steps. A single extreme
reading, however, can move the mean of twenty readings by half. Therefore a lone outlier that lasted more than
:data:`STALL_STEPS` ordinary readings too long counts once. Of a lone one between :data:`UNCERTAIN_STEPS` and that, half
counts once and half recurs at the observed rate. Two such readings stay in the mean.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import truediv

STALL_STEPS = 5.0
"""A reading this many ordinary steps too long is a stall."""

UNCERTAIN_STEPS, UNCERTAIN_SHARE = 2.0, 0.5
"""A lone reading this many ordinary steps too long may recur or not: this share of its excess stays in the mean. Chosen
on simulated trainings with outliers at rates from 1 in 1,000 to 1 in 10 (``tests/benchmarks/outliers.py``)."""

PRIOR_SPREAD, PRIOR_READINGS = 0.10, 3.0
"""Prior relative spread of single readings, and the number of readings that it counts for."""

ONCE_SPREAD = 0.12
"""Prior relative spread between runs of times that occur once per run, such as compilation. Measured on 18 pairs
(``tests/benchmarks/accuracy.py --parts cross-run``)."""

BLOCK, BLOCKS, MIN_BLOCKS = 5, 8, 3
"""Minimum readings per block, number of blocks of many readings, and minimum number of blocks. Neighboring steps are
correlated for seconds, however short the steps are, so the spread between blocks counts too."""

UNSEEN_RATE, UNSEEN_STEPS = 0.06, 2.0
"""The largest share of slow steps that few readings can fail to show, and the steps by which each is longer."""


@dataclass(frozen=True)
class Level:
    """A mean ``value`` per unit, the half-widths of its interval, and the ``noise`` of single readings.

    ``stall`` is the excess of a lone outlier, in seconds, that the mean does not contain.
    """

    value: float
    half_width_below: float
    half_width_above: float
    noise: float
    stall: float = 0.0

    def times(self, count: float) -> Level:
        """The sum of ``count`` fully correlated values."""
        return Level(self.value * count, self.half_width_below * count, self.half_width_above * count, 0.0)


NOTHING = Level(0.0, 0.0, 0.0, 0.0)


@lru_cache(maxsize=256)
def quantile(confidence: float, freedom: float) -> float:
    """The Student t quantile of a two-sided interval."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def locate(
    seconds: Sequence[float],
    *,
    units: Sequence[int] | None = None,
    prior_spread: float = PRIOR_SPREAD,
    stall: float = STALL_STEPS,
    uncertain: float = UNCERTAIN_STEPS,
    min_readings: int = 4,
    unseen: bool = True,
    confidence: float = 0.9,
) -> Level:
    """Mean seconds per unit of readings that cover ``units`` steps each, with its interval.

    With at least ``min_readings``, a lone reading that is ``stall`` ordinary ones too long counts once, and one that is
    ``uncertain`` too long in part. ``unseen`` widens the interval for slow readings too rare to have been recorded.
    """
    values = list(seconds)
    weights = [1] * len(values) if units is None else list(units)
    beyond = _take_lone_stall(values, weights, stall, uncertain) if len(values) >= min_readings else 0.0
    per_unit = list(map(truediv, values, weights))
    covered = sum(weights)
    mean = math.fsum(values) / covered
    freedom = PRIOR_READINGS + len(values) - 1
    prior = PRIOR_READINGS * (prior_spread * mean) ** 2
    variance = (prior + math.fsum((x - mean) ** 2 for x in per_unit)) / freedom
    error = max(variance / len(values), _block_variance(per_unit, mean, prior))
    width = quantile(confidence, freedom) * math.sqrt(error)
    rate = min(UNSEEN_RATE, -math.log(1 - confidence) / covered) if unseen else 0.0
    return Level(
        value=mean,
        half_width_below=min(width, mean),
        half_width_above=math.hypot(width, rate * UNSEEN_STEPS * mean, beyond / (covered + 1)),
        noise=math.sqrt(variance * covered / len(values)),
        stall=beyond,
    )


def predict_once(seconds: Sequence[float], *, confidence: float = 0.9) -> Level:
    """A time that occurs once per run: its mean over repetitions, with the interval of the next run."""
    if not seconds:
        return NOTHING
    runs = len(seconds)
    mean = math.fsum(seconds) / runs
    freedom = PRIOR_READINGS + runs - 1
    squares = PRIOR_READINGS * (ONCE_SPREAD * mean) ** 2 + math.fsum((x - mean) ** 2 for x in seconds)
    width = quantile(confidence, freedom) * math.sqrt(squares / freedom * (1 + 1 / runs) / 2)
    return Level(mean, min(width, mean), width, 0.0)


def _take_lone_stall(values: list[float], weights: list[int], stall: float, uncertain: float) -> float:
    """Remove a lone stall from the readings, or a part of an uncertain one, and return the seconds removed."""
    typical: float = statistics.median(map(truediv, values, weights))
    excess = [value - typical * weight for value, weight in zip(values, weights, strict=True)]
    for steps, share in ((stall, 1.0), (uncertain, 1.0 - UNCERTAIN_SHARE)):
        long = [index for index, extra in enumerate(excess) if extra > steps * typical]
        if len(long) > 1:
            return 0.0  # they recur
        for index in long:
            taken = share * excess[index]
            if share == 1.0:
                del values[index], weights[index]
            else:
                values[index] -= taken
            return taken
    return 0.0


def find_drift(values: Sequence[float]) -> float:
    """Relative spread between means of neighboring readings, beyond that of independent readings."""
    size, means = _block_means(values)
    if len(means) < MIN_BLOCKS:
        return 0.0
    single = statistics.fmean(
        statistics.variance(values[i * size : (i + 1) * size], mean) for i, mean in enumerate(means)
    )
    return math.sqrt(max(0.0, statistics.variance(means) - single / size)) / (statistics.fmean(means) or 1.0)


def _block_means(values: Sequence[float]) -> tuple[int, list[float]]:
    """The readings per block, and the mean of each block."""
    size = max(BLOCK, len(values) // BLOCKS)
    return size, [math.fsum(values[i : i + size]) / size for i in range(0, len(values) - size + 1, size)]


def _block_variance(values: Sequence[float], mean: float, prior: float) -> float:
    """Variance of the mean from means of neighboring readings, which includes slow drift."""
    _, means = _block_means(values)
    if len(means) < MIN_BLOCKS:
        return 0.0
    squares = prior / BLOCK + math.fsum((m - mean) ** 2 for m in means)
    return squares / (PRIOR_READINGS + len(means) - 1) / len(means)
