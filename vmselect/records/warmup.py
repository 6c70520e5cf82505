"""Detection of the end of the warm-up in step readings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

MAX_READINGS = 1_000
"""Warm-up is detected among this many first readings; a profile always contains them."""

MIN_READINGS = 4
NOISE_WIDTHS = 4.0
MIN_SHIFT = 0.2


def detect_warmup(per_step_seconds: Sequence[float]) -> int:
    """Number of warm-up readings at the start of ``per_step_seconds``.

    ``per_step_seconds`` are step times in chronological order, without the very first step. The second half counts as
    steady. Readings of the first half are warm-up until the first one that differs from the median of the second half
    by at most four times its noise or a fifth of the median, whichever is larger. Warm-up may be slower (cold caches)
    or faster (prefetched input that runs out).
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
    """Positions of the warm-up readings among step readings, which are passed as columns.

    Only ordinary steps of the first epoch with ordinary steps can be warm-up. Recorded, imported and old profiles all
    use this function.
    """
    ordinary = [position for position, label in enumerate(labels) if label in ("steady", "warmup")]
    head = [position for position in ordinary if epochs[position] == epochs[ordinary[0]]]
    return set(head[: detect_warmup([seconds[position] / covers[position] for position in head[:MAX_READINGS]])])
