"""Where warming up ends and the steady state begins."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from operator import truediv

MOST_READINGS = 1_000
"""Warm-up is looked for among this many first readings, all of which a profile keeps."""

MIN_READINGS = 4
NOISE_WIDTHS = 4.0
LEAST_SHIFT = 0.2


def detect_warmup(per_step_seconds: Sequence[float]) -> int:
    """How many readings at the start do not belong to the steady state that the rest shows.

    ``per_step_seconds`` are readings in order, without the very first step. The second half is taken as steady; the
    readings before it are warm-up for as long as they stand apart from it, by more than four times its noise and
    more than a fifth of its level. Both directions count: caches warm up and get faster, prefetched input runs out
    and gets slower. At most half of the readings are called warm-up.

    >>> detect_warmup([0.90, 0.40, 0.11, 0.10, 0.10, 0.11, 0.10, 0.10])
    2
    >>> detect_warmup([0.10, 0.11, 0.10, 0.35, 0.10, 0.10])
    0
    """
    readings = list(per_step_seconds)
    if len(readings) < MIN_READINGS:
        return 0
    half = len(readings) // 2
    steady = readings[half:]
    level = statistics.median(steady)
    noise = 1.4826 * statistics.median(abs(value - level) for value in steady)
    margin = max(NOISE_WIDTHS * noise, LEAST_SHIFT * level)
    for position, value in enumerate(readings[:half]):
        if abs(value - level) <= margin:
            return position
    return half


def count_warmup(taken: Sequence[float], covers: Sequence[int]) -> int:
    """How many ordinary steps of the first epoch that has any, each reading with the steps it covers, are warm-up.

    The probe labels by it when it writes, and the estimate decides by it when it reads, so that old files, times that
    were given and the part of a longer run are all judged alike. No other epoch can warm up.
    """
    return detect_warmup(list(map(truediv, taken[:MOST_READINGS], covers[:MOST_READINGS])))
