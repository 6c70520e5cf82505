"""Detection of the end of the warm-up in measured step times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

MAX_READINGS = 1_000
"""Number of first step times in which warm-up is detected. A profile always contains these."""

MIN_READINGS = 4
NOISE_WIDTHS = 4.0
MIN_SHIFT = 0.2


def detect_warmup(per_step_seconds: Sequence[float]) -> int:
    """Number of warm-up readings at the start of ``per_step_seconds``.

    ``per_step_seconds`` are step times in chronological order, without the very first step. The second half is taken as
    steady. In the first half, steps are warm-up until the first step time that differs from the median of the second
    half by at most four times the noise of the second half or a fifth of its median, whichever is larger. Warm-up may
    be slower (cold caches) or faster (prefetched input that runs out).
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
    """Positions of the warm-up steps among step times, which are passed as columns of equal length.

    Steps labelled ``first``, ``opening`` or ``partial`` are not considered. Of the other steps, only those of the first
    epoch that has any can be warm-up. Recorded, imported and old profiles all use this function.
    """
    ordinary = [position for position, label in enumerate(labels) if label in ("steady", "warmup")]
    head = [position for position in ordinary if epochs[position] == epochs[ordinary[0]]]
    return set(head[: detect_warmup([seconds[position] / covers[position] for position in head[:MAX_READINGS]])])
