"""What a group of values looks like, and how it stands to another: means, spread, ratio with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmselect.intervals import Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RESAMPLES = 9_999
LEAST_FOR_INTERVAL = 3
"""With fewer values than this in a group a resample shows nothing that was not seen."""


@dataclass(frozen=True)
class Summary:
    """Count, mean, standard deviation (None for one value), median and quartiles."""

    count: int
    mean: float
    sd: float | None
    minimum: float
    quartile_1: float
    median: float
    quartile_3: float
    maximum: float


def summarise(values: Sequence[float]) -> Summary:
    """Describe finite values.

    >>> summarise([1.0, 2.0, 3.0, 4.0]).median
    2.5
    """
    import numpy as np

    data = np.asarray(values, dtype=float)
    low, first, middle, third, high = (float(q) for q in np.quantile(data, [0, 0.25, 0.5, 0.75, 1]))
    return Summary(
        count=len(data),
        mean=math.fsum(data) / len(data),
        sd=float(data.std(ddof=1)) if len(data) > 1 else None,
        minimum=low,
        quartile_1=first,
        median=middle,
        quartile_3=third,
        maximum=high,
    )


def ratio_of_means(
    values: Sequence[float], base: Sequence[float], *, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Interval[float]:
    """How many times the base's mean, with a bootstrap interval; its bounds are nan where there are too few values.

    It is the expanded percentile interval: a bootstrap of few values is too narrow by itself, because resamples vary
    less than samples do, so its level is raised to what Student's t asks for the smaller group (Hesterberg 2015). The
    random numbers are the same in every call, and so is the answer. Where a value is below zero there is no ratio to
    speak of: twice -1 is less, not more.

    >>> ratio = ratio_of_means([2.0, 2.1, 1.9, 2.0, 2.0], [1.0, 1.1, 0.9, 1.0, 1.0])
    >>> round(ratio.value, 3), ratio.low < 2 < ratio.high
    (2.0, True)
    """
    import numpy as np

    one, other = np.asarray(values, dtype=float), np.asarray(base, dtype=float)
    below = float(other.mean())
    if min(one.min(), other.min()) < 0:
        return Interval(math.nan, math.nan, math.nan)
    if below == 0:
        return Interval(1.0 if float(one.mean()) == 0 else math.nan, math.nan, math.nan)
    value = float(one.mean()) / below
    fewest = min(len(one), len(other))
    if fewest < LEAST_FOR_INTERVAL:
        return Interval(value, math.nan, math.nan)
    if np.ptp(one) == 0 and np.ptp(other) == 0:
        return Interval(value, value, value)
    from scipy.stats import bootstrap

    def ratio(a: Floats, b: Floats, axis: int = -1) -> Floats:
        found: Floats = a.mean(axis=axis) / b.mean(axis=axis)
        return found

    found = bootstrap(
        (one, other),
        ratio,
        vectorized=True,
        n_resamples=resamples,
        confidence_level=_expanded(confidence, fewest),
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return Interval(value, float(found.confidence_interval.low), float(found.confidence_interval.high))


def _expanded(confidence: float, count: int) -> float:
    """The level at which a percentile interval of ``count`` values is as wide as its nominal level promises."""
    from scipy.special import ndtr, stdtrit

    width = float(stdtrit(count - 1, 0.5 + confidence / 2)) * math.sqrt(count / (count - 1))
    # A level of exactly 1 is refused; the extremes of the resamples are reached long before.
    return min(1 - 1e-9, 2 * float(ndtr(width)) - 1)
