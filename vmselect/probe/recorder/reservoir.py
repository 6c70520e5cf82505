"""A fair sample of a stream of unknown length, in bounded memory."""

from __future__ import annotations

import math
import random
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Reservoir(Generic[Item]):
    """Keeps the first ``always`` items, and a uniform sample of ``size`` of those after them.

    Whether an item is kept is decided before it arrives (Li's algorithm L): ``due`` is the number of the next item
    worth offering, so that the caller pays one comparison for all others. The random numbers are its own: the global
    generator, which a training may depend on, is never touched.

    >>> sample = Reservoir(always=2, size=3)
    >>> for number in range(1, 101):
    ...     if number >= sample.due:
    ...         sample.offer(number, f"item {number}")
    >>> len(sample.items()), sample.items()[:2]
    (5, ['item 1', 'item 2'])
    """

    __slots__ = ("_always", "_first", "_random", "_sample", "_size", "_weight", "due")

    def __init__(self, *, always: int, size: int, seed: int = 0) -> None:
        self._always = always
        self._size = size
        self._first: list[Item] = []
        self._sample: list[Item] = []
        self._random = random.Random(seed)
        self._weight = 1.0
        self.due: float = 1

    def offer(self, number: int, item: Item) -> None:
        """Take item ``number`` (counted from 1, every due number offered exactly once)."""
        if number <= self._always:
            self._first.append(item)
        elif len(self._sample) < self._size:
            self._sample.append(item)
        elif self._size:
            self._sample[self._random.randrange(self._size)] = item
        if number < self._always + self._size:
            self.due = number + 1
        else:
            self._skip(number)

    def items(self) -> list[Item]:
        """What was kept: the first items in their order, then the sample in no particular order."""
        return self._first + self._sample

    def _skip(self, number: int) -> None:
        if not self._size:
            self.due = math.inf
            return
        # 1 - random() lies in (0, 1], so that its logarithm exists.
        self._weight *= math.exp(math.log(1.0 - self._random.random()) / self._size)
        chance = math.log1p(-self._weight) if self._weight < 1.0 else -math.inf
        gap = math.log(1.0 - self._random.random()) / chance if chance else math.inf
        self.due = number + math.floor(gap) + 1 if gap < 2**62 else math.inf
