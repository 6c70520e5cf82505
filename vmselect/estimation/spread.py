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
        self.low: Quadratic = (0.0, 0.0, 0.0)
        self.high: Quadratic = (0.0, 0.0, 0.0)

    def add_level(self, level: Level, *, once: float = 0.0, per_epoch: float = 0.0) -> None:
        """The half-widths of a level, in the same way."""
        self.add_sides(level.half_width_below, level.half_width_above, once=once, per_epoch=per_epoch)

    def add_sides(self, low: float, high: float, *, once: float = 0.0, per_epoch: float = 0.0) -> None:
        """Half-widths below and above that count ``once + per_epoch * n`` times."""
        self.low, self.high = _add(self.low, low, once, per_epoch), _add(self.high, high, once, per_epoch)

    def add_noise(self, width: float, *, per_epoch: float) -> None:
        """The half-width of one reading, of which ``per_epoch * n`` independent ones are yet to come."""
        square = width * width
        self.low, self.high = ((a, b + square * per_epoch, c) for a, b, c in (self.low, self.high))


def _add(side: Quadratic, width: float, once: float, per_epoch: float) -> Quadratic:
    square = width * width
    a, b, c = side
    return a + square * once * once, b + 2 * square * once * per_epoch, c + square * per_epoch * per_epoch
