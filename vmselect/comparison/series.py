"""Readings in the order they were taken: how far neighbours resemble each other, and blocks that no longer do.

Steps of one run are autocorrelated: a slow one is followed by slow ones. A test that takes them for independent
finds differences where there are none. Means of blocks that are several times as long as the resemblance lasts are
nearly independent, and can be tested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WINDOW = 5.0
"""Autocorrelation is summed over this many correlation times (Sokal's rule): beyond that it is noise."""

BLOCK_TIMES = 5.0
"""Length of a block in correlation times: between 4 and 6, which on autoregressive series of 40 to 1,000 readings kept
false alarms at 5 %, where longer blocks only left more series without a test; see tests/benchmarks/comparison.py."""

LEAST_BLOCKS = 5
"""Fewer blocks than this say too little about their own spread."""


def correlation_time(values: Sequence[float] | Floats) -> float:
    """How many readings in a row count as one: 1 where they are independent.

    >>> correlation_time([1.0, 2.0] * 50)
    1.0
    >>> correlation_time([1.0] * 50 + [2.0] * 50) > 20
    True
    """
    import numpy as np

    series = np.asarray(values, dtype=float)
    count = len(series)
    if count < 3:
        return 1.0
    centred = series - series.mean()
    power = float(centred @ centred)
    if power <= 1e-24 * count * max(1e-300, float(np.abs(series).max())) ** 2:
        return 1.0
    spectrum = np.fft.rfft(centred, 2 * count)
    correlation = np.fft.irfft(spectrum * np.conj(spectrum))[:count] / power
    sums = np.concatenate([[1.0], 1 + 2 * np.cumsum(correlation[1:])])
    beyond = np.flatnonzero(np.arange(count) >= WINDOW * sums)
    window = int(beyond[0]) if len(beyond) else count - 1
    # Taking the mean of a short series away makes it look less correlated than it is: give that back.
    short = 1 + min(1.0, (2 * window + 1) / count)
    return max(1.0, float(sums[window]) * (short if sums[window] > 1 else 1.0))


def block_length(many: Sequence[Sequence[float]]) -> int:
    """Readings in a block, the same for all of these series: as long as the most correlated of them needs."""
    return math.ceil(BLOCK_TIMES * max((correlation_time(values) for values in many), default=1.0))


def block_means(values: Sequence[float], *, length: int) -> list[float]:
    """Means of whole blocks of neighbours; what does not fill a block is left off at the start, where warm-up is.

    >>> block_means([9.0, 1.0, 3.0, 5.0, 7.0], length=2)
    [2.0, 6.0]
    """
    blocks = len(values) // length
    tail: Any = values[len(values) - blocks * length :]
    return [math.fsum(tail[i * length : (i + 1) * length]) / length for i in range(blocks)]
