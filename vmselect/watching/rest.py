"""The remaining time of a running training, from the epochs and steps that it has completed.

The constants were chosen on the epochs of 620 MLPerf Training runs (v0.7 and v1.1) by the interval score, and checked
on 36 DAWNBench runs; ``tests/benchmarks/watching.py`` computes both tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist, fmean, pstdev

from vmselect.intervals import Interval

HALF_LIFE = 20.0
"""Number of epochs after which the weight of an epoch time is halved: speeds drift slowly."""
PRIOR_SPREAD, PRIOR_FREEDOM = 0.015, 2.0
"""Relative deviation between epochs that is assumed before any was seen, and the number of epochs that it counts."""
EARLY = 0.02
"""Relative deviation of the level after one epoch, divided by the number of epochs: first epochs are often slower."""
DRIFT = 0.006
"""Relative deviation between the epochs seen and those to come, however many were seen."""
FIRST_ONLY = 0.05
"""Relative deviation of later epochs from the first, if only the first was seen."""
LEAST_WINDOW = 5
"""Number of steps in a window of the recent speed, below which it is too noisy to show a change."""
LEAST_WINDOWS = 4
"""Number of windows below which their noise is not known well enough to tell a change from it."""
CHANGE, CHANGE_SIGMAS = 1.15, 4.0
"""A change of the speed: the recent steps differ from the earlier ones by this factor, and by this number of
deviations between the windows. By judgement: smaller changes are within the drift of long runs."""
BOTH_SPEEDS = 1.6
"""Quantile by which the difference of both speeds is divided, so that a 90 % interval contains both."""


@dataclass(frozen=True, kw_only=True)
class Rest:
    """Remaining seconds of a training: a Student t distribution, cut off at 0."""

    seconds: float
    scale: float
    freedom: float
    change: float = 1.0
    """Ratio of the recent step time to the earlier one; 1 if the speed has not changed."""

    def interval(self, confidence: float = 0.9) -> Interval[float]:
        """Expected value and bounds of the remaining seconds."""
        from scipy.special import stdtrit

        half = float(stdtrit(self.freedom, (1 + confidence) / 2)) * self.scale
        return Interval(self.seconds, max(0.0, self.seconds - half), self.seconds + half)

    def chance_within(self, seconds: float) -> float:
        """Probability that the training ends within ``seconds``.

        >>> Rest(seconds=100, scale=10, freedom=30).chance_within(100)
        0.5
        """
        from scipy.special import stdtr

        if self.scale <= 0:
            return float(self.seconds <= seconds)
        return float(stdtr(self.freedom, (seconds - self.seconds) / self.scale))

    def after_change(self, ratio: float) -> Rest:
        """The rest if the recent speed lasts. The interval also contains the rest at the earlier speed."""
        seconds = self.seconds * ratio
        scale = math.hypot(self.scale * ratio, abs(seconds - self.seconds) / BOTH_SPEEDS)
        return replace(self, seconds=seconds, scale=scale, change=ratio)

    def stop_early(self, epochs: float, deviation: float, left: float) -> Rest:
        """The rest if of ``left`` epochs only ``epochs``, with this standard ``deviation``, are expected to run."""
        each, share = self.seconds / left, epochs / left
        return replace(self, seconds=each * epochs, scale=math.hypot(self.scale * share, each * deviation))


def expect_rest(stop: Interval[float], done: float, epochs: float) -> tuple[float, float]:
    """Mean and standard deviation of the epochs that remain, if the training stops at epoch ``stop`` (90 % interval).

    The epoch of the stop has a log-normal distribution; it is later than ``done`` and at most ``epochs``.

    >>> mean, deviation = expect_rest(Interval(20.0, 15.0, 25.0), 5, 100)
    >>> round(mean), round(deviation)
    (15, 3)
    >>> expect_rest(Interval(20.0, 15.0, 25.0), 5, 8)[0]
    3.0
    """
    normal = NormalDist()
    spread = max(1e-9, math.log(stop.high / stop.low) / (2 * normal.inv_cdf(0.95)))
    middle = math.log(stop.value)
    over = normal.cdf((math.log(done) - middle) / spread) if done > 0 else 0.0
    count = 200
    shares = (over + (1 - over) * (position + 0.5) / count for position in range(count))
    ends = [math.exp(middle + spread * normal.inv_cdf(min(1 - 1e-9, max(1e-9, share)))) for share in shares]
    lefts = [min(epochs, max(done, end)) - done for end in ends]
    return fmean(lefts), pstdev(lefts)


def forecast_rest(epoch_seconds: Sequence[float], left: float) -> Rest:
    """Remaining seconds of a training with ``left`` more epochs, from the seconds of the completed ones, in order.

    The first epoch is only used if there is no other, because it includes tracing, compilation and cold caches.

    >>> rest = forecast_rest([12.0, 10.0, 10.1, 9.9], left=6)
    >>> round(rest.seconds), rest.interval(0.9).contains(61)
    (60, True)
    """
    later = list(epoch_seconds[1:] or epoch_seconds)
    count = len(later)
    weights = weigh_epochs(count)
    total = math.fsum(weights)
    level = math.fsum(w * seconds for w, seconds in zip(weights, later, strict=True)) / total
    effective = total**2 / math.fsum(w * w for w in weights)
    squares = math.fsum(w * (seconds - level) ** 2 for w, seconds in zip(weights, later, strict=True))
    freedom = PRIOR_FREEDOM + effective - 1
    variance = (squares / total * effective + PRIOR_FREEDOM * (PRIOR_SPREAD * level) ** 2) / freedom
    if len(epoch_seconds) == 1:
        variance += (FIRST_ONLY * level) ** 2
    square = left**2 * variance / effective + left * variance
    square += (left * level) ** 2 * (DRIFT**2 + (EARLY / count) ** 2)
    if count >= 4:  # a trend: the two halves differ
        half = count // 2
        trend = math.fsum(later[half:]) / (count - half) - math.fsum(later[:half]) / half
        square += (left * trend / 2) ** 2
    return Rest(seconds=left * level, scale=math.sqrt(square), freedom=freedom)


def find_change(windows: Sequence[tuple[int, float]], reference: float | None = None) -> float:
    """Ratio of the present step time to ``reference``, or 1 if it is within the noise of the windows.

    A window is a number of steps and their seconds. Windows that are too short are ignored. The present speed is that
    of the latest windows that are alike. ``reference`` is the step time on which a forecast is based, by default the
    mean of all windows but the first, which includes compilation. So a change lasts as long as the forecast does not
    contain it, however many windows have passed since.

    >>> find_change([(10, 9.0), (10, 1.01), (10, 0.99), (10, 1.0), (10, 2.0)])
    1.6
    >>> find_change([(10, 1.0), (10, 1.3), (10, 0.9), (10, 1.2)])
    1.0
    >>> find_change([(10, 2.0), (10, 2.01), (10, 1.99), (10, 2.0)], reference=0.1)
    2.0
    """
    usable = [window for window in windows if window[0] >= LEAST_WINDOW and window[1] > 0]
    if len(usable) < LEAST_WINDOWS:
        return 1.0
    rates = [math.log(seconds / steps) for steps, seconds in usable]
    # Differences of neighbours: unlike deviations from the middle, a single change of the level leaves them small.
    differences = sorted(abs(after - before) for before, after in pairwise(rates))
    noise = differences[(len(differences) - 1) // 2] * 1.4826 / math.sqrt(2)
    limit = max(math.log(CHANGE), CHANGE_SIGMAS * noise)
    alike = next((k for k, rate in enumerate(reversed(rates)) if abs(rate - rates[-1]) >= limit), len(rates))
    change = mean_step(usable[-alike:]) / (reference or mean_step(usable[1:]))
    return round(change, 6) if abs(math.log(change)) >= limit else 1.0


def mean_step(windows: Sequence[tuple[int, float]], weights: Sequence[float] | None = None) -> float:
    """Seconds per step in ``windows``, which may have ``weights``.

    >>> mean_step([(10, 1.0), (30, 1.0)])
    0.05
    """
    weights = weights or [1.0] * len(windows)
    steps = math.fsum(weight * window[0] for weight, window in zip(weights, windows, strict=True))
    return math.fsum(weight * window[1] for weight, window in zip(weights, windows, strict=True)) / steps


def weigh_epochs(count: int) -> list[float]:
    """Weight of each of ``count`` epochs in the level of their times: the latest has 1.

    >>> weigh_epochs(1)
    [1.0]
    """
    return [0.5 ** ((count - 1 - position) / HALF_LIFE) for position in range(count)]
