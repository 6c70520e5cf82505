"""Autocorrelation of the readings inside a run, independent blocks of readings, and level shifts.

Steps of one run are autocorrelated: a slow step is followed by slow steps. A test that assumes independence finds
differences where there are none. Means of blocks several correlation times long are nearly independent.

A level shift is where the readings change from one level to another and stay there: a shared machine gets a neighbor, a
clock is lowered, burst credit is used up. The test is a cumulative sum of ranks (after Pettitt), so that single slow
steps do not dominate. It uses the spread of an autocorrelated series, so that drift does not count as a shift.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WINDOW = 5.0
"""Autocorrelation is summed over this many correlation times (Sokal's rule), because it is mostly noise beyond that."""

BLOCK_TIMES = 5.0
"""Length of a block in correlation times. On autoregressive series of 40 to 1,000 readings, 4 to 6 kept the rate of
false alarms at 5 %, and longer blocks left more series without a test; see tests/benchmarks/comparison.py."""

MIN_BLOCKS = 5
"""Minimum number of blocks, because the spread of fewer blocks cannot be estimated."""

MIN_PART = 8
"""Minimum number of readings on each side of a level shift."""

MIN_CHANGE = 0.02
"""Smallest relative change of the level that is reported."""

MAX_SHIFTS = 8

MARGIN = 1.0
"""Number of standard errors that are added to the estimated autocorrelation."""


def correlation_time(values: Sequence[float] | Floats) -> float:
    """Number of successive readings that contain as much information as one independent reading; at least 1."""
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
    # Subtracting the mean of a short series lowers its apparent correlation: correct for it.
    short = 1 + min(1.0, (2 * window + 1) / count)
    return max(1.0, float(sums[window]) * (short if sums[window] > 1 else 1.0))


def block_length(many: Sequence[Sequence[float]]) -> int:
    """Number of readings per block, chosen for the most autocorrelated of ``many`` series."""
    return math.ceil(BLOCK_TIMES * max((correlation_time(values) for values in many), default=1.0))


def block_means(values: Sequence[float], *, length: int) -> list[float]:
    """Means of blocks of ``length`` successive readings. Surplus readings at the start are dropped.

    >>> block_means([9.0, 1.0, 3.0, 5.0, 7.0], length=2)
    [2.0, 6.0]
    """
    blocks = len(values) // length
    tail: Any = values[len(values) - blocks * length :]
    return [math.fsum(tail[i * length : (i + 1) * length]) / length for i in range(blocks)]


@dataclass(frozen=True)
class Shift:
    """A level shift after reading number ``after``; the first reading has number 1."""

    after: int
    before: float
    then: float
    p_value: float

    @property
    def percent(self) -> float:
        """The difference between the new and the old level in percent."""
        return 100 * (self.then / self.before - 1) if self.before else math.nan


def find_shifts(values: Sequence[float], *, alpha: float = 0.01) -> tuple[Shift, ...]:
    """The level shifts in a chronological series of ``values``, with a false-alarm rate of about ``alpha``.

    The false-alarm rate is up to ten times as high if the correlation time is a tenth of the length of the series.
    """
    series = np.asarray(values, dtype=float)
    edges = [0, len(series)]
    found: dict[int, float] = {}
    waiting = [(0, len(series))]
    while waiting and len(found) < MAX_SHIFTS:
        start, end = waiting.pop()
        where, p_value = _best_split(series[start:end])
        if where and p_value < alpha:
            found[start + where] = p_value
            edges.append(start + where)
            waiting += [(start, start + where), (start + where, end)]
    edges = sorted(edges)
    levels = [float(np.median(series[a:b])) if b > a else math.nan for a, b in itertools.pairwise(edges)]
    shifts = [
        Shift(after=edge, before=levels[i], then=levels[i + 1], p_value=found[edge])
        for i, edge in enumerate(edges[1:-1])
    ]
    return tuple(s for s in shifts if abs(s.then - s.before) > MIN_CHANGE * abs(s.before))


def _best_split(series: Floats) -> tuple[int, float]:
    """The index at which the parts of the series before and after differ most, and the p value of the difference."""
    from scipy.special import kolmogorov
    from scipy.stats import rankdata

    count = len(series)
    if count < 2 * MIN_PART:
        return 0, 1.0
    ranks = rankdata(series) - (count + 1) / 2
    sums = np.cumsum(ranks)[:-1]
    inner = slice(MIN_PART - 1, count - MIN_PART)
    at = int(np.argmax(np.abs(sums[inner]))) + MIN_PART
    # The spread of each part about its own level: a shift is not part of the noise.
    rest = np.concatenate([ranks[:at] - ranks[:at].mean(), ranks[at:] - ranks[at:].mean()])
    spread = math.sqrt(float(rest @ rest) / (count - 2) * _cautious_correlation_time(ranks, rest))
    if spread == 0:
        return (at, 0.0) if sums[at - 1] else (0, 1.0)
    return at, float(kolmogorov(abs(sums[at - 1]) / (spread * math.sqrt(count))))


def _cautious_correlation_time(ranks: Floats, rest: Floats) -> float:
    """An upper estimate of the correlation time.

    The coefficient c of a first-order autoregressive process is estimated in two ways. The residuals from two levels
    underestimate it if the series drifts. The differences between successive readings have the lag-1 autocorrelation
    (c - 1) / 2. The larger estimate plus its standard error is used.
    """
    steps = np.diff(ranks)
    power = float(steps @ steps)
    by_steps = 1 + 2 * float(steps[1:] @ steps[:-1]) / power if power else 0.0
    power = float(rest @ rest)
    by_rest = float(rest[1:] @ rest[:-1]) / power if power else 0.0
    coefficient = min(0.98, max(by_steps, by_rest, 0.0) + MARGIN / math.sqrt(len(ranks)))
    return max(correlation_time(rest), (1 + coefficient) / (1 - coefficient))
