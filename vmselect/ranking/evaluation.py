"""Times and costs of all candidates at once, as arrays: a row per candidate, a column per epoch count.

The report page repeats these few formulas in the browser; docs/reference/ranking.md writes them down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vmselect.units import SECONDS_PER_HOUR

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Spread:
    """A value and its interval, element by element."""

    value: Floats
    low: Floats
    high: Floats

    def take(self, rows: Ints) -> Spread:
        """The same for the chosen rows."""
        return Spread(self.value[rows], self.low[rows], self.high[rows])

    def where(self, chosen: Bools, other: Spread) -> Spread:
        """These values where ``chosen``, those of ``other`` elsewhere."""
        return Spread(
            np.where(chosen, self.value, other.value),
            np.where(chosen, self.low, other.low),
            np.where(chosen, self.high, other.high),
        )


@dataclass(frozen=True)
class Coefficients:
    """The runtime of each machine in closed form (see ``RuntimeModel.coefficients``), a column per number."""

    fixed: Floats
    epoch: Floats
    first_validation: Floats
    validation: Floats
    validation_freq: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, models: Sequence[Mapping[str, Any]]) -> Coefficients:
        """Stack the coefficients of several machines."""

        def column(name: str) -> Floats:
            return np.array([model[name] for model in models], dtype=float).reshape(-1, 1)

        return cls(
            fixed=column("fixed_seconds"),
            epoch=column("epoch_seconds"),
            first_validation=column("first_validation_seconds"),
            validation=column("validation_seconds"),
            validation_freq=column("validation_freq"),
            low=np.array([model["low"] for model in models], dtype=float).reshape(-1, 3),
            high=np.array([model["high"] for model in models], dtype=float).reshape(-1, 3),
        )

    def seconds(self, epochs: Floats) -> Floats:
        """Seconds at ``epochs``, which is a matrix with a row per machine, or one row for all."""
        passes = np.floor(epochs / self.validation_freq)
        validations = self.first_validation * (passes >= 1) + self.validation * np.maximum(0.0, passes - 1)
        return np.asarray(self.fixed + self.epoch * epochs + validations, dtype=float)

    def at(self, epochs: Floats, *, low: Floats | None = None, high: Floats | None = None) -> Spread:
        """Seconds and interval at ``epochs``; ``low`` and ``high`` bound the epoch count where it is uncertain."""
        low = epochs if low is None else low
        high = epochs if high is None else high
        below = np.maximum(0.0, self.seconds(low) - _half_width(self.low, low))
        return Spread(self.seconds(epochs), below, self.seconds(high) + _half_width(self.high, high))


def _half_width(polynomial: Floats, epochs: Floats) -> Floats:
    a, b, c = (polynomial[:, [k]] for k in range(3))
    return np.asarray(np.sqrt(np.maximum(0.0, a + b * epochs + c * epochs**2)), dtype=float)


def billed_seconds(seconds: Floats, *, increment: Floats, minimum: Floats) -> Floats:
    """Seconds that appear on the bill: at least ``minimum``, rounded up to ``increment`` (0 bills exactly)."""
    charged = np.maximum(seconds, minimum)
    step = np.where(increment > 0, increment, 1.0)
    return np.where(increment > 0, np.ceil(charged / step) * step, charged)


def cost_of(time: Spread, *, usd_per_hour: Floats, increment: Floats, minimum: Floats) -> Spread:
    """Dollars for each time."""
    price = usd_per_hour[:, None] / SECONDS_PER_HOUR
    bill = {"increment": increment[:, None], "minimum": minimum[:, None]}
    return Spread(*(billed_seconds(part, **bill) * price for part in (time.value, time.low, time.high)))
