"""Mean of few readings with an interval, robust against a single outlier.

A reading is a measured duration. Total time is a sum, so the *mean* of the readings matters: a median ignores recurring
slow steps. A single extreme reading, however, can change the mean of twenty readings by half. Therefore a lone stall
(see :mod:`vmselect.records.step_times`) counts once per training. If it is uncertain whether it recurs, half of its
excess counts once and half is assumed to recur at the observed rate. Two or more such readings stay in the mean.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import truediv

from vmselect.records.step_times import MIN_READINGS, STALL_STEPS, UNCERTAIN_STEPS, take_lone_stall

PRIOR_SPREAD, PRIOR_READINGS = 0.10, 3.0
"""Prior relative spread of single readings, and the number of readings that this prior weighs as much as."""

ONCE_SPREAD = 0.12
"""Prior relative spread between runs of times that occur once per run, such as compilation. Measured on 18 pairs of
runs (``tests/benchmarks/accuracy.py --parts cross-run``)."""

BLOCK, BLOCKS, MIN_BLOCKS = 5, 8, 3
"""Minimum number of readings per block, number of blocks into which many readings are divided, and minimum number of
blocks. Step times are correlated over seconds, even if steps are short, so the spread between blocks is used too."""

UNSEEN_RATE, UNSEEN_STEPS = 0.06, 2.0
"""The largest assumed share of slow steps that a few readings can miss, and the assumed excess of a slow step over an
ordinary step, relative to the ordinary step."""


@dataclass(frozen=True)
class Level:
    """Mean seconds per step or epoch (``value``) and the half-widths of its interval.

    ``noise`` is the standard deviation of single readings. ``stall`` is the excess in seconds of a single outlier,
    which ``value`` does not include.
    """

    value: float
    half_width_below: float
    half_width_above: float
    noise: float
    stall: float = 0.0

    def times(self, count: float) -> Level:
        """The sum of ``count`` such durations whose errors are fully correlated."""
        return Level(self.value * count, self.half_width_below * count, self.half_width_above * count, 0.0)


NOTHING = Level(0.0, 0.0, 0.0, 0.0)


@lru_cache(maxsize=256)
def quantile(confidence: float, freedom: float) -> float:
    """Student t quantile of a two-sided interval at ``confidence``, with ``freedom`` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def locate(
    seconds: Sequence[float],
    *,
    units: Sequence[int] | None = None,
    prior_spread: float = PRIOR_SPREAD,
    stall: float = STALL_STEPS,
    uncertain: float = UNCERTAIN_STEPS,
    min_readings: int = MIN_READINGS,
    unseen: bool = True,
    prior_readings: float = PRIOR_READINGS,
    lasting: float = 0.0,
    confidence: float = 0.9,
) -> Level:
    """Mean seconds per step with its interval. ``units`` is the number of steps that each of ``seconds`` covers.

    With at least ``min_readings`` readings, a single reading whose excess over an ordinary step is longer than
    ``stall`` ordinary steps is excluded from the mean, and one longer than ``uncertain`` ordinary steps in part.
    ``unseen`` widens the interval for slow steps that are too rare to have been recorded. The prior spread weighs as
    much as ``prior_readings`` readings. ``lasting`` is the variance of the difference between the readings and the rest
    of the training, relative to the variance of single readings.
    """
    values = list(seconds)
    weights = [1] * len(values) if units is None else list(units)
    beyond = take_lone_stall(values, weights, stall, uncertain) if len(values) >= min_readings else 0.0
    per_unit = list(map(truediv, values, weights))
    covered = sum(weights)
    mean = math.fsum(values) / covered
    # The prior acts as further readings, so that two equal readings do not give an interval of zero width.
    freedom = prior_readings + len(values) - 1
    prior = prior_readings * (prior_spread * mean) ** 2
    variance = (prior + math.fsum((x - mean) ** 2 for x in per_unit)) / freedom
    # Readings close in time resemble each other: their spread alone would make the interval too narrow.
    error = max(variance / len(values), _block_variance(per_unit, mean, prior, prior_readings)) + lasting * variance
    width = quantile(confidence, freedom) * math.sqrt(error)
    # If a share of the steps is slow, that many readings miss all of them with the probability 1 - confidence.
    rate = min(UNSEEN_RATE, -math.log(1 - confidence) / covered) if unseen else 0.0
    return Level(
        value=mean,
        half_width_below=min(width, mean),
        half_width_above=math.hypot(width, rate * UNSEEN_STEPS * mean, beyond / (covered + 1)),
        noise=math.sqrt(variance * covered / len(values)),
        stall=beyond,
    )


def predict_once(seconds: Sequence[float], *, spread: float = ONCE_SPREAD, confidence: float = 0.9) -> Level:
    """Mean of a duration that occurs once per run, such as initialization, with a prediction interval for a new run.

    ``spread`` is the relative standard deviation between runs that is assumed before any measurement.
    """
    if not seconds:
        return NOTHING
    runs = len(seconds)
    # A single run is all that most users have: the prior then gives the whole width.
    mean = math.fsum(seconds) / runs
    freedom = PRIOR_READINGS + runs - 1
    squares = PRIOR_READINGS * (spread * mean) ** 2 + math.fsum((x - mean) ** 2 for x in seconds)
    width = quantile(confidence, freedom) * math.sqrt(squares / freedom * (1 + 1 / runs) / 2)
    return Level(mean, min(width, mean), width, 0.0)


def find_drift(values: Sequence[float]) -> float:
    """Drift: relative spread between the means of blocks of readings, beyond the spread of independent readings."""
    size, means = _block_means(values)
    if len(means) < MIN_BLOCKS:
        return 0.0
    # Independent readings make the means of blocks differ too; only what exceeds that is drift.
    single = statistics.fmean(
        statistics.variance(values[i * size : (i + 1) * size], mean) for i, mean in enumerate(means)
    )
    return math.sqrt(max(0.0, statistics.variance(means) - single / size)) / (statistics.fmean(means) or 1.0)


def _block_means(values: Sequence[float]) -> tuple[int, list[float]]:
    """Number of readings per block, and the mean of each block."""
    size = max(BLOCK, len(values) // BLOCKS)
    return size, [math.fsum(values[i : i + size]) / size for i in range(0, len(values) - size + 1, size)]


def _block_variance(values: Sequence[float], mean: float, prior: float, prior_readings: float) -> float:
    """Variance of the mean, computed from the means of blocks of readings, so that it includes slow drift."""
    _, means = _block_means(values)
    if len(means) < MIN_BLOCKS:
        return 0.0
    squares = prior / BLOCK + math.fsum((m - mean) ** 2 for m in means)
    return squares / (prior_readings + len(means) - 1) / len(means)


def fastest_rate(values: Sequence[float], units: Sequence[int]) -> float:
    """Seconds per step of the fastest block of readings. Blocks of 0 s are ignored; the result is 0 if all are."""
    size = max(BLOCK, len(values) // BLOCKS)
    starts = range(0, max(1, len(values) - size + 1), size)
    # Blocks instead of single readings, whose minimum depends on how many there are.
    rates = [math.fsum(values[i : i + size]) / sum(units[i : i + size]) for i in starts]
    return min((rate for rate in rates if rate > 0), default=0.0)
