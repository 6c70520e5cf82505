"""Half-widths that add up: the square of an interval's half-width as a quadratic in the number of epochs."""

from __future__ import annotations

from vmselect.estimation.location import Level
from vmselect.estimation.runtime import Quadratic


class Spread:
    """Sums of squared half-widths, below and above the estimate, each ``a + b n + c n**2`` for ``n`` epochs.

    Parts are taken as independent, so their squares add.

    >>> spread = Spread()
    >>> spread.add_sides(3.0, 4.0, once=1.0)
    >>> spread.add_sides(2.0, 2.0, per_epoch=2.0)
    >>> spread.low, spread.high
    ((9.0, 0.0, 16.0), (16.0, 0.0, 16.0))
    """

    def __init__(self) -> None:
        self._low = [0.0, 0.0, 0.0]
        self._high = [0.0, 0.0, 0.0]

    def add_level(self, level: Level, *, once: float = 0.0, per_epoch: float = 0.0) -> None:
        """The half-widths of a level, in the same way."""
        self.add_sides(level.low, level.high, once=once, per_epoch=per_epoch)

    def add_sides(self, low: float, high: float, *, once: float = 0.0, per_epoch: float = 0.0) -> None:
        """Half-widths below and above that count ``once + per_epoch * n`` times."""
        for side, width in ((self._low, low), (self._high, high)):
            square = width * width
            side[0] += square * once * once
            side[1] += 2 * square * once * per_epoch
            side[2] += square * per_epoch * per_epoch

    def add_noise(self, width: float, *, per_epoch: float) -> None:
        """The half-width of one reading, of which ``per_epoch * n`` independent ones are yet to come."""
        for side in (self._low, self._high):
            side[1] += width * width * per_epoch

    @property
    def low(self) -> Quadratic:
        """Squared half-width below the estimate."""
        return self._low[0], self._low[1], self._low[2]

    @property
    def high(self) -> Quadratic:
        """Squared half-width above the estimate."""
        return self._high[0], self._high[1], self._high[2]
