"""Spot interruptions: the expected time of a training that is interrupted at random and resumed.

Interruptions are a Poisson process with one interruption per mean uptime. Each interruption loses the work since the
last checkpoint (half a checkpoint interval on average) and requires a restart. Both are paid. So::

    expected time = work / (1 - (checkpoint / 2 + restart) / mean uptime)

The time until a new machine is available is unknown, so neither time nor cost includes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, ndtr, ndtri, pdtr, pdtrik, xlogy

from vmselect._checks import check_number
from vmselect.errors import ArgumentError
from vmselect.intervals import Interval
from vmselect.ranking.rows import Floats
from vmselect.units import SECONDS_PER_HOUR


@dataclass(frozen=True, kw_only=True)
class Interruptions:
    """Rate of interruptions of spot machines, checkpoint interval, and duration of a restart.

    Pass the rate ``per_hour`` or its inverse ``mean_uptime_hours``, not both.
    """

    per_hour: float | None = None
    mean_uptime_hours: float | None = None
    checkpoint_minutes: float = 60.0
    restart_minutes: float = 5.0

    def __post_init__(self) -> None:
        if (self.per_hour is None) == (self.mean_uptime_hours is None):
            raise ArgumentError("interruptions need either per_hour or mean_uptime_hours. Pass exactly one of them.")
        rate = "per_hour" if self.per_hour is not None else "mean_uptime_hours"
        for name in (rate, "checkpoint_minutes", "restart_minutes"):
            bound = {"least": 0} if name in ("per_hour", "restart_minutes") else {"above": 0}
            object.__setattr__(self, name, check_number(f"interruptions: {name}", getattr(self, name), **bound))
        if self.lost_seconds >= self.uptime_seconds:
            raise ArgumentError(
                f"interruptions every {self.uptime_seconds / 60:.3g} minutes, each losing {self.lost_seconds / 60:.3g} "
                "minutes, leave no time for training. Lower checkpoint_minutes, or correct the rate."
            )

    @property
    def uptime_seconds(self) -> float:
        """Mean time between interruptions, in seconds."""
        if self.mean_uptime_hours is not None:
            return self.mean_uptime_hours * SECONDS_PER_HOUR
        return SECONDS_PER_HOUR / self.per_hour if self.per_hour else float("inf")

    @property
    def lost_seconds(self) -> float:
        """Mean paid seconds that an interruption costs: repeated work and the restart."""
        return 60.0 * (self.checkpoint_minutes / 2 + self.restart_minutes)

    @property
    def factor(self) -> float:
        """Expected time divided by the time without interruptions."""
        return 1.0 / (1.0 - self.lost_seconds / self.uptime_seconds)

    def stretch(self, work: Interval[Floats], *, confidence: float) -> Interval[Floats]:
        """Expected time with interruptions and its interval; ``work`` is the time without interruptions.

        The number of interruptions has a Poisson distribution. The interval follows from the bounds of this number at
        ``confidence`` and from the standard deviation of the time lost. Its lower bound is at least that of ``work``.
        """
        tail = (1 - confidence) / 2
        give_or_take = float(ndtri(0.5 + confidence / 2)) * self.loss_deviation_seconds
        fewest = _poisson_quantile(tail, work.low * self.factor / self.uptime_seconds)
        most = _poisson_quantile(1 - tail, work.high * self.factor / self.uptime_seconds)
        low = np.maximum(0.0, fewest * self.lost_seconds - give_or_take * np.sqrt(fewest))
        high = most * self.lost_seconds + give_or_take * np.sqrt(most)
        expected = work.value * self.factor
        return Interval(expected, np.minimum(work.low + low, expected), np.maximum(work.high + high, expected))

    def chance_within(self, work: Interval[float], limit: float, *, confidence: float) -> float:
        """Probability that a training with interruptions ends within ``limit`` seconds.

        ``work`` is the time without interruptions. Its distribution below its value and that above it are halves of two
        normal distributions, whose widths follow from ``work.low`` and ``work.high``. The number of interruptions has a
        Poisson distribution, and the time that a given number of interruptions costs has a normal one.
        """
        deviations = float(ndtri(0.5 + confidence / 2))
        mean = work.value * self.factor / self.uptime_seconds
        counts = np.arange(float(_poisson_quantile(1 - 1e-9, np.array(mean))) + 1)
        spare = limit - work.value - counts * self.lost_seconds
        side = np.where(spare < 0, work.value - work.low, work.high - work.value) / deviations
        spread = np.hypot(side, np.sqrt(counts) * self.loss_deviation_seconds)
        within = np.where(spread > 0, ndtr(spare / np.maximum(spread, 1e-300)), spare >= 0)
        chances = np.exp(xlogy(counts, mean) - mean - gammaln(counts + 1))
        return min(1.0, float(chances @ within))

    @property
    def loss_deviation_seconds(self) -> float:
        """Standard deviation of the work lost by an interruption, which is uniform from 0 to a checkpoint interval."""
        return 60.0 * self.checkpoint_minutes / math.sqrt(12)

    def to_dict(self, *, confidence: float) -> dict[str, float]:
        """Numbers for JSON, with which the report page computes the same times."""
        return {
            "interruptions_per_second": 1 / self.uptime_seconds,
            "lost_seconds": self.lost_seconds,
            "loss_deviation_seconds": self.loss_deviation_seconds,
            "factor": self.factor,
            "deviations": float(ndtri(0.5 + confidence / 2)),
        }


def _poisson_quantile(share: float, mean: Floats) -> Floats:
    """Quantile ``share`` of a Poisson distribution: the smallest count that is not exceeded with that probability."""
    continuous = np.where(mean > 0, pdtrik(share, np.maximum(mean, 1e-300)), 0.0)
    count = np.ceil(np.nan_to_num(continuous, nan=0.0))
    # The continuous inverse has rounding errors at whole numbers, so the exact count is searched next to it.
    count = np.where((count > 0) & (pdtr(count - 1, mean) >= share), count - 1, count)
    return np.asarray(np.where(pdtr(count, mean) < share, count + 1, count), dtype=float)
