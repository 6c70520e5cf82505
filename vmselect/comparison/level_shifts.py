"""Readings in the order they were taken: how far neighbours resemble each other, and blocks that no longer do.

Steps of one run are autocorrelated: a slow one is followed by slow ones. A test that takes them for independent
finds differences where there are none. Means of blocks that are several times as long as the resemblance lasts are
nearly independent, and can be tested.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
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


# Level shifts: where a series of readings goes from one level to another and stays there.
#
# A shared machine that gets a neighbour, a clock that is lowered, a tier whose credit is used up: the mean of the
# whole
# series then describes neither part. The test is a cumulative sum of ranks (after Pettitt), so that single slow steps
# do
# not count for more than any other reading, against the spread of a correlated series, so that slow drift to and fro
# is
# not taken for a shift.


LEAST_PART = 8
"""Readings on each side of a shift, at least."""

LEAST_CHANGE = 0.02
"""A smaller step than this share of the level is not worth a word."""

MOST_SHIFTS = 8

MARGIN = 1.0
"""Standard errors by which the correlation is taken to be larger than it looks."""


@dataclass(frozen=True)
class Shift:
    """The level differs after reading number ``after``; the first reading is number 1."""

    after: int
    before: float
    then: float
    p_value: float

    @property
    def percent(self) -> float:
        """By how much the level changed."""
        return 100 * (self.then / self.before - 1) if self.before else math.nan

    def __str__(self) -> str:
        return f"after reading {self.after} the level changes by {self.percent:+.0f} %"


def find_shifts(values: Sequence[float], *, alpha: float = 0.01) -> tuple[Shift, ...]:
    """Shifts in order; a series without one gives none in all but about ``alpha`` of cases.

    Where neighbours resemble each other for as long as a tenth of the series, it is up to ten times as often: so few
    independent readings look like two levels by chance.

    >>> [shift.after for shift in find_shifts([1.0, 1.02, 0.98] * 10 + [1.5, 1.52, 1.48] * 20)]
    [30]
    """
    import numpy as np

    series = np.asarray(values, dtype=float)
    edges = [0, len(series)]
    found: dict[int, float] = {}
    waiting = [(0, len(series))]
    while waiting and len(found) < MOST_SHIFTS:
        start, end = waiting.pop()
        where, chance = _best_split(series[start:end])
        if where and chance < alpha:
            found[start + where] = chance
            edges.append(start + where)
            waiting += [(start, start + where), (start + where, end)]
    edges = sorted(edges)
    levels = [float(np.median(series[a:b])) if b > a else math.nan for a, b in itertools.pairwise(edges)]
    shifts = [
        Shift(after=edge, before=levels[i], then=levels[i + 1], p_value=found[edge])
        for i, edge in enumerate(edges[1:-1])
    ]
    return tuple(s for s in shifts if abs(s.then - s.before) > LEAST_CHANGE * abs(s.before))


def _best_split(series: Floats) -> tuple[int, float]:
    """Where the two parts differ most, and how likely so large a difference is without any shift."""
    import numpy as np
    from scipy.special import kolmogorov
    from scipy.stats import rankdata

    count = len(series)
    if count < 2 * LEAST_PART:
        return 0, 1.0
    ranks = rankdata(series) - (count + 1) / 2
    sums = np.cumsum(ranks)[:-1]
    inner = slice(LEAST_PART - 1, count - LEAST_PART)
    at = int(np.argmax(np.abs(sums[inner]))) + LEAST_PART
    # The spread is that of the two parts about their own levels: a shift is no part of the noise it stands out of.
    rest = np.concatenate([ranks[:at] - ranks[:at].mean(), ranks[at:] - ranks[at:].mean()])
    spread = math.sqrt(float(rest @ rest) / (count - 2) * _cautious_correlation_time(ranks, rest))
    if spread == 0:
        return (at, 0.0) if sums[at - 1] else (0, 1.0)
    return at, float(kolmogorov(abs(sums[at - 1]) / (spread * math.sqrt(count))))


def _cautious_correlation_time(ranks: Floats, rest: Floats) -> float:
    """How long neighbours resemble each other, rather too long than too short.

    Taking two levels away, at the place where they fit best, makes a drifting series look less correlated than it is.
    Differences of neighbours do not suffer from that: for a first-order process with coefficient c their own first
    correlation is (c - 1) / 2. The larger answer counts, plus its standard error.
    """
    import numpy as np

    steps = np.diff(ranks)
    power = float(steps @ steps)
    by_steps = 1 + 2 * float(steps[1:] @ steps[:-1]) / power if power else 0.0
    power = float(rest @ rest)
    by_rest = float(rest[1:] @ rest[:-1]) / power if power else 0.0
    coefficient = min(0.98, max(by_steps, by_rest, 0.0) + MARGIN / math.sqrt(len(ranks)))
    return max(correlation_time(rest), (1 + coefficient) / (1 - coefficient))
