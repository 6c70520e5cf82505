"""A typical value from few readings, and how far off it may be.

Total time is a sum, so it is the *mean* of the readings that matters: a median ignores recurring slow steps and comes
out low. A single extreme reading, on the other hand, can move the mean of twenty readings by half. The rule here keeps
every reading, except one: a lone reading that lasted longer than :data:`STALL_STEPS` ordinary ones beyond its own time,
the only one of its kind, counts once. Of a lone one between :data:`DOUBTFUL_STEPS` and that, half is taken to recur at
the rate at which it was seen, and half to come once. Two such readings recur, and stay in the mean.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import truediv

STALL_STEPS = 5.0
"""A reading this many ordinary steps longer than it should be is a stall."""

DOUBTFUL_STEPS, DOUBTFUL_SHARE = 2.0, 0.5
"""A lone reading this many ordinary steps too long may recur or not: this share of its excess stays in the mean. Chosen
on made-up trainings (``tests/benchmarks/outliers.py``): of what recurs at any rate from 1 in 1,000 to 1 in 10, one seen
in forty readings says no more than that, and half is nearer than all of it, and than none."""

PRIOR_SPREAD = 0.10
"""Relative spread of single readings that is assumed before any was seen..."""

PRIOR_READINGS = 3.0
"""...and how many readings that assumption counts for."""

ONCE_SPREAD = 0.12
"""Relative spread between runs of what each spends once, before a second run was seen: compiling took that much longer
or shorter in other processes of the same training (``tests/benchmarks/accuracy.py --parts cross-run``, 18 pairs)."""

BLOCK, BLOCKS = 5, 8
"""Neighbouring readings that are averaged before their spread is taken, at least, and how many such blocks are made of
many readings: neighbouring steps are correlated, and that lasts for seconds, however short the steps are."""

FEWEST_BLOCKS = 3

UNSEEN_RATE = 0.06
"""The largest share of slow steps that few readings can fail to show..."""

UNSEEN_STEPS = 2.0
"""...and how many ordinary steps each of them may last beyond its own time."""


@dataclass(frozen=True)
class Level:
    """A mean ``value`` per unit, the half-widths of its interval, and the ``noise`` of single readings."""

    value: float
    half_width_below: float
    half_width_above: float
    noise: float
    stall: float = 0.0
    """Seconds of a lone stall, beyond an ordinary reading, that the mean leaves out."""

    def times(self, often: float) -> Level:
        """So many of it, all as far off as each."""
        return Level(self.value * often, self.half_width_below * often, self.half_width_above * often, 0.0)


NOTHING = Level(0.0, 0.0, 0.0, 0.0)
"""What does not happen takes no time, for sure."""


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
    doubtful: float = DOUBTFUL_STEPS,
    fewest: int = 4,
    unseen: bool = True,
    confidence: float = 0.9,
) -> Level:
    """Mean seconds per unit of readings that cover ``units`` steps each, and how far off it may be.

    ``prior_spread`` is the relative spread of readings that is assumed beforehand; a lone reading that is ``stall``
    ordinary ones too long counts once, and one that is ``doubtful`` too long in part, where there are at least
    ``fewest``; ``unseen`` says whether slow readings too rare to have been seen are to be allowed for.

    >>> round(locate([1.0] * 39 + [11.0]).value, 6), round(locate([1.0] * 38 + [3.0] * 2).value, 6)
    (1.0, 1.1)
    """
    values = list(seconds)
    weights = [1] * len(values) if units is None else list(units)
    beyond = _take_lone_stall(values, weights, stall, doubtful, fewest)
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
    """A time that every run spends once: its mean over repetitions, and how far the next run's may be from it.

    >>> predict_once([]).value, predict_once([2.0, 4.0]).value
    (0.0, 3.0)
    """
    if not seconds:
        return NOTHING
    runs = len(seconds)
    mean = math.fsum(seconds) / runs
    freedom = PRIOR_READINGS + runs - 1
    squares = PRIOR_READINGS * (ONCE_SPREAD * mean) ** 2 + math.fsum((x - mean) ** 2 for x in seconds)
    width = quantile(confidence, freedom) * math.sqrt(squares / freedom * (1 + 1 / runs) / 2)
    return Level(mean, min(width, mean), width, 0.0)


def _take_lone_stall(values: list[float], weights: list[int], stall: float, doubtful: float, fewest: int) -> float:
    """Take a lone stall out of the readings, or a part of a doubtful one, and say how many seconds were taken."""
    if len(values) < fewest:
        return 0.0
    typical: float = statistics.median(map(truediv, values, weights))
    excess = [value - typical * weight for value, weight in zip(values, weights, strict=True)]
    for steps, share in ((stall, 1.0), (doubtful, 1.0 - DOUBTFUL_SHARE)):
        limit = steps * typical
        long = [index for index, extra in enumerate(excess) if extra > limit]
        if len(long) == 1:
            (index,) = long
            taken = share * excess[index]
            if share == 1.0:
                del values[index], weights[index]
            else:
                values[index] -= taken
            return taken
        if long:
            break  # they recur
    return 0.0


def find_drift(values: Sequence[float]) -> float:
    """Relative spread between the means of neighbouring readings, beyond what chance makes of the single ones.

    >>> find_drift([1.0, 1.1] * 20), round(find_drift([1.0] * 20 + [1.2] * 20), 2)
    (0.0, 0.1)
    """
    size, means = _block_means(values)
    if len(means) < FEWEST_BLOCKS:
        return 0.0
    single = statistics.fmean(
        statistics.variance(values[i * size : (i + 1) * size], mean) for i, mean in enumerate(means)
    )
    return math.sqrt(max(0.0, statistics.variance(means) - single / size)) / (statistics.fmean(means) or 1.0)


def _block_means(values: Sequence[float]) -> tuple[int, list[float]]:
    """How many neighbours make a block, and the mean of each block."""
    size = max(BLOCK, len(values) // BLOCKS)
    return size, [math.fsum(values[i : i + size]) / size for i in range(0, len(values) - size + 1, size)]


def _block_variance(values: Sequence[float], mean: float, prior: float) -> float:
    """Variance of the mean from means of neighbouring readings, which also sees slow drift."""
    _, means = _block_means(values)
    if len(means) < FEWEST_BLOCKS:
        return 0.0
    squares = prior / BLOCK + math.fsum((m - mean) ** 2 for m in means)
    return squares / (PRIOR_READINGS + len(means) - 1) / len(means)
