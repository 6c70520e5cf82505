"""Where warming up ends and the steady state begins."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

MOST_READINGS = 1_000
"""Warm-up is detected among this many first readings, all of which a profile keeps."""

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


def find_warmup(
    epochs: Sequence[int], seconds: Sequence[float], covers: Sequence[int], labels: Sequence[str]
) -> set[int]:
    """Positions of the warm-up readings, from the columns of step readings. Labels tell ordinary steps from others.

    Only the first epoch that has ordinary steps can warm up. This is the only place that separates warm-up from steady
    steps: recorded, imported and old profiles are all treated alike.
    """
    ordinary = [position for position, label in enumerate(labels) if label in ("steady", "warmup")]
    head = [position for position in ordinary if epochs[position] == epochs[ordinary[0]]]
    return set(head[: detect_warmup([seconds[position] / covers[position] for position in head[:MOST_READINGS]])])
