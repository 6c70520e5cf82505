"""Values with the bounds of their intervals, as numbers or as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Value = TypeVar("Value")


class Interval(NamedTuple, Generic[Value]):
    """A value and the bounds of its interval: three numbers, or three arrays of the same shape.

    >>> value, low, high = Interval(3.0, 2.0, 5.0)
    >>> Interval(3.0, 2.0, 5.0).contains(4.5)
    True
    """

    value: Value
    low: Value
    high: Value

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

        mine: Interval[Any] = self
        return Interval(*(np.where(chosen, one, another) for one, another in zip(mine, other, strict=True)))
