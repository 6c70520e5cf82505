"""Latency histograms with buckets that grow by one percent, for percentiles of many calls in limited memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

GROWTH = 1.01
MIN_SECONDS = 1e-9
MAX_SECONDS = 1e10

_LOG_GROWTH = math.log(GROWTH)


def bucket_of(seconds: float) -> int:
    """Index of the bucket that contains a latency of ``seconds``."""
    return math.floor(math.log(min(max(seconds, MIN_SECONDS), MAX_SECONDS)) / _LOG_GROWTH)


def value_of(bucket: int) -> float:
    """Geometric middle of a bucket in seconds, at most half a percent away from any latency in the bucket."""
    return math.exp((bucket + 0.5) * _LOG_GROWTH)


def count_buckets(seconds: Iterable[float]) -> dict[int, int]:
    """Number of latencies in each bucket, by bucket index."""
    return dict(sorted(Counter(map(bucket_of, seconds)).items()))


def percentile(values: Sequence[float], percentile: float) -> float:
    """The smallest of ``values`` that at least ``percentile`` percent of the values do not exceed."""
    return sorted(values)[_rank(len(values), percentile) - 1]


def percentile_of_buckets(counts: Mapping[int, int], percentile: float) -> float:
    """The percentile of the latencies in a histogram, accurate to half a percent."""
    left = _rank(sum(counts.values()), percentile)
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0:
            return value_of(bucket)
    raise ValueError("the histogram is empty")


def _rank(count: int, percentile: float) -> int:
    # Rounding keeps binary fractions from carrying 99 % of 100 calls past the 99th.
    return max(1, math.ceil(round(percentile / 100 * count, 9)))
