"""Values with intervals, many at once: a row per candidate, a column per epoch count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Spread:
    """A value and its interval, element by element."""

    value: Floats
    low: Floats
    high: Floats

    @property
    def parts(self) -> tuple[Floats, Floats, Floats]:
        """Value, low and high."""
        return self.value, self.low, self.high

    def take(self, rows: Ints) -> Spread:
        """The same for the chosen rows."""
        return Spread(*(part[rows] for part in self.parts))

    def where(self, chosen: Bools, other: Spread) -> Spread:
        """These values where ``chosen``, those of ``other`` elsewhere."""
        return Spread(*(np.where(chosen, mine, its) for mine, its in zip(self.parts, other.parts, strict=True)))
