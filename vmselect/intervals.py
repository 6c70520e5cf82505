"""Values with the bounds of their intervals, as numbers or as arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Value = TypeVar("Value")
Mapped = TypeVar("Mapped")


class Interval(NamedTuple, Generic[Value]):
    """A value and the bounds of its interval: three numbers, or three arrays of the same shape.

    >>> value, low, high = Interval(3.0, 2.0, 5.0)
    >>> Interval(3.0, 2.0, 5.0).contains(4.5)
    True
    """

    value: Value
    low: Value
    high: Value

    @classmethod
    def exact(cls, value: Value) -> Interval[Value]:
        """``value`` without uncertainty: both bounds are the value itself."""
        return cls(value, value, value)

    @classmethod
    def within_factor(cls, value: float, factor: float) -> Interval[float]:
        """``value`` with bounds that differ from it by ``factor``, as for the quantile of a log-normal error."""
        return Interval(value, value / factor, value * factor)

    def contains(self, value: Any) -> Any:
        """Whether ``value`` lies within the bounds (element by element for arrays)."""
        return (self.low <= value) & (value <= self.high)

    def take(self, rows: npt.NDArray[np.intp]) -> Interval[Any]:
        """The intervals at the indices ``rows`` of the arrays."""
        return Interval(*(part[rows] for part in self))  # type: ignore[index]

    def column(self, column: int) -> Interval[Any]:
        """The intervals in the column with index ``column`` of the matrices."""
        return Interval(*(part[:, column] for part in self))  # type: ignore[index]

    def where(self, chosen: npt.NDArray[np.bool_], other: Interval[Any]) -> Interval[Any]:
        """The elements of this interval where ``chosen`` is True, and those of ``other`` where it is False."""
        import numpy as np

        own: Interval[Any] = self
        return Interval(*(np.where(chosen, mine, others) for mine, others in zip(own, other, strict=True)))

    def map(self, function: Callable[[Value], Mapped]) -> Interval[Mapped]:
        """The interval whose value and bounds are those of this one after an increasing ``function``."""
        return Interval(*map(function, self))

    def times(  # type: ignore[misc]
        self: Interval[float], other: Interval[float], *, per: float = 1.0
    ) -> Interval[float]:
        """Product of two independent estimates, divided by the number ``per``.

        Their log distances to the bounds are added in quadrature.

        >>> Interval(3.0, 2.0, 4.0).times(Interval.exact(2.0)).map(round)
        Interval(value=6, low=4, high=8)
        """
        down = math.hypot(_log_ratio(self.value, self.low), _log_ratio(other.value, other.low))
        up = math.hypot(_log_ratio(self.high, self.value), _log_ratio(other.high, other.value))
        return _spread(self.value * (other.value / per), down, up)

    def over(  # type: ignore[misc]
        self: Interval[float], other: Interval[float], *, most: float = math.inf
    ) -> Interval[float]:
        """Ratio of two independent estimates. Their log distances to the bounds are added in quadrature.

        A bound differs from the ratio by at most the factor ``most``.

        >>> Interval(3.0, 2.0, 4.0).over(Interval.exact(0.5)).map(round)
        Interval(value=6, low=4, high=8)
        """
        down = math.hypot(_log_ratio(self.value, self.low), _log_ratio(other.high, other.value))
        up = math.hypot(_log_ratio(self.high, self.value), _log_ratio(other.value, other.low))
        largest = math.log(most)
        return _spread(self.value / other.value, min(down, largest), min(up, largest))

    def minus(self: Interval[float], other: Interval[float]) -> Interval[float]:  # type: ignore[misc]
        """Difference of two independent estimates. Their distances to the bounds are added in quadrature.

        >>> Interval(9.0, 6.0, 13.0).minus(Interval(5.0, 2.0, 9.0))
        Interval(value=4.0, low=-1.0, high=9.0)
        """
        value = self.value - other.value
        low = math.hypot(self.value - self.low, other.high - other.value)
        high = math.hypot(self.high - self.value, other.value - other.low)
        return Interval(value, value - low, value + high)

    def log_widths(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Log distances of the lower and the upper bound of arrays to the value.

        A width is 0 if value and bound are both 0, and infinite if only the smaller of them is 0.
        """
        import numpy as np

        value, low, high = (np.asarray(part, dtype=float) for part in self)
        with np.errstate(divide="ignore", invalid="ignore"):
            below, above = np.log(value / low), np.log(high / value)
        return np.nan_to_num(below, nan=0.0, posinf=np.inf), np.nan_to_num(above, nan=0.0, posinf=np.inf)


def _log_ratio(larger: float, smaller: float) -> float:
    """Logarithm of a ratio; infinite if one of the numbers is 0, such as a lower bound."""
    return math.log(larger / smaller) if min(larger, smaller) > 0 else math.inf


def _spread(value: float, down: float, up: float) -> Interval[float]:
    return Interval(value, value * math.exp(-down), value * math.exp(up))
