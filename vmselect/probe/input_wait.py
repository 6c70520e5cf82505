"""How long steps wait for their data, measured where each framework fetches it.

On JAX and torch, Keras' loop asks an iterator for every batch: the time it takes to answer is the wait, because the
step before has been waited for. On TensorFlow the fetch is inside the compiled step; see :mod:`.tensorflow_trace`.
Trainers of other libraries have functions that fetch, or that they call before and after.
None of these functions is public. Where one is missing the wait is unknown, and the training goes on unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from vmselect.probe.keras.fit import walk_up

if TYPE_CHECKING:
    from vmselect.records.training import InputWait

LEAST_STEPS = 3
"""With fewer steps than this the wait is not reported."""


class FetchClock:
    """Sums up how long fetching took, and the time from one fetch to the next, which is the time of a step.

    The first fetch after :meth:`pause` opens an epoch; its step is left out, since it starts the pipeline, and the
    very first one compiles.

    >>> ticks = iter([0, 1, 5, 6, 10, 13, 20, 21, 30, 31])
    >>> clock = FetchClock(clock=lambda: next(ticks))
    >>> list(clock.watch("abcd"))
    ['a', 'b', 'c', 'd']
    >>> clock.waited, clock.taken, clock.steps
    (5, 25, 3)
    """

    def __init__(self, *, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._began: int | None = None
        self._fetch = 0
        self._opening = True
        self.waited = self.taken = self.steps = 0

    def pause(self) -> None:
        """What comes until the next fetch is no part of a step."""
        self._began = None
        self._opening = True

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The same batches, fetched under the clock."""
        self.pause()
        return self._walk(iter(batches))

    def _walk(self, batches: Iterator[Any]) -> Iterator[Any]:
        with suppress(StopIteration):
            while True:
                yield self.fetch(batches)

    def begin(self) -> int:
        """The next batch is asked for; returns when."""
        now = self._clock()
        if self._began is not None:
            if self._opening:
                self._opening = False
            else:
                self.waited += self._fetch
                self.taken += now - self._began
                self.steps += 1
        self._began = now
        return now

    def end(self) -> None:
        """The batch is there."""
        if self._began is not None:
            self._fetch = self._clock() - self._began

    def fetch(self, batches: Iterator[Any]) -> Any:
        """The next batch."""
        began = self.begin()
        batch = next(batches)
        self._fetch = self._clock() - began
        return batch

    def result(self, method: str) -> InputWait | None:
        """What was seen, or None if that is too little."""
        from vmselect.records.training import InputWait

        if self.steps < LEAST_STEPS:
            return None
        return InputWait(
            seconds=max(0, self.waited) / 1e9, wall_seconds=max(0, self.taken) / 1e9, steps=self.steps, method=method
        )


def watch_iterator(clock: FetchClock, owner: Any) -> Callable[[], None] | None:
    """Have ``clock`` time what the epoch iterator ``owner`` of a running ``fit`` hands out, on JAX and torch.

    Returns a function that undoes it; None where Keras has no such function.
    """
    original = getattr(owner, "_get_iterator", None)
    if not callable(original):
        return None
    return _replace(owner, {"_get_iterator": lambda *args, **options: clock.watch(original(*args, **options))})


def time_fetches(clock: FetchClock, owner: Any, first: str, last: str) -> Callable[[], None] | None:
    """Have ``clock`` run from a call of ``first``, a function of ``owner``, to the end of ``last``, perhaps the same.

    Returns a function that undoes it; None where ``owner`` has no such functions.
    """
    functions = {name: getattr(owner, name, None) for name in (first, last)}
    if not all(map(callable, functions.values())):
        return None

    def watch(name: str, function: Any) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            if name == first:
                clock.begin()
            result = function(*arguments, **options)
            if name == last:
                clock.end()
            return result

        return watched

    return _replace(owner, {name: watch(name, function) for name, function in functions.items()})


def _replace(owner: Any, functions: Mapping[str, Callable[..., Any]]) -> Callable[[], None] | None:
    """Give the instance ``owner`` functions of its own; None where it cannot have them or has some already."""
    if not hasattr(owner, "__dict__") or not functions.keys().isdisjoint(vars(owner)):
        return None
    vars(owner).update(functions)

    def undo() -> None:
        for name, function in functions.items():
            if vars(owner).get(name) is function:
                delattr(owner, name)

    return undo


def find_epoch_iterator(frame: FrameType | None) -> Any:
    """The epoch iterator of the ``fit`` that runs above ``frame``, or None."""
    return next(
        (local["epoch_iterator"] for name, local in walk_up(frame) if name == "fit" and "epoch_iterator" in local), None
    )
