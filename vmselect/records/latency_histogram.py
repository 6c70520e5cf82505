"""Counts of times in buckets that grow by one percent: any percentile of any number of calls, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

GROWTH = 1.01
LEAST_SECONDS = 1e-9
MOST_SECONDS = 1e10

_LOG_GROWTH = math.log(GROWTH)


def bucket_of(seconds: float) -> int:
    """The bucket that a time falls into; what is below a nanosecond counts as one.

    >>> abs(value_of(bucket_of(0.25)) / 0.25 - 1) < 0.005
    True
    """
    return math.floor(math.log(min(max(seconds, LEAST_SECONDS), MOST_SECONDS)) / _LOG_GROWTH)


def value_of(bucket: int) -> float:
    """The time that stands for a bucket: its middle, at most half a percent from any time inside."""
    return math.exp((bucket + 0.5) * _LOG_GROWTH)


def count_buckets(seconds: Iterable[float]) -> dict[int, int]:
    """How many of the times fall into each bucket."""
    counts: dict[int, int] = {}
    for value in seconds:
        bucket = bucket_of(value)
        counts[bucket] = counts.get(bucket, 0) + 1
    return dict(sorted(counts.items()))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of ``values`` that at least ``percent`` of them do not exceed.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 50), percentile([4.0, 1.0, 3.0, 2.0], 99)
    (2.0, 4.0)
    """
    return sorted(values)[_rank(len(values), percent) - 1]


def percentile_of_buckets(counts: Mapping[int, int], percent: float) -> float:
    """The same of times that were counted in buckets, within half a percent."""
    left = _rank(sum(counts.values()), percent)
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0:
            return value_of(bucket)
    raise ValueError("there are no counts")


def _rank(count: int, percent: float) -> int:
    # The product is rounded where binary fractions would carry 99 % of 100 calls past the 99th.
    return max(1, math.ceil(round(percent / 100 * count, 9)))
