"""How long steps wait for their data, measured where each framework fetches it.

On JAX and torch, Keras' loop asks an iterator for every batch: the time it takes to answer is the wait, because the
step before has been waited for. On TensorFlow the fetch is inside the compiled step; see :mod:`.tensorflow_trace`.
Trainers of other libraries have functions that fetch, or that they call before and after.
These seams are not public. Where one is missing the wait is unknown, and the training goes on as without us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from vmselect.probe.keras.fit import walk_up

if TYPE_CHECKING:
    from vmselect.records.training import InputWait

LEAST_STEPS = 3
"""Fewer steps than this tell nothing about the others."""


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


class IteratorWatch:
    """Times what the epoch iterator of a running ``fit`` hands out, on JAX and torch."""

    METHOD = "epoch iterator"

    def __init__(self, epoch_iterator: Any) -> None:
        self._owner = epoch_iterator
        self._clock = FetchClock()
        self._wrapped: Any = None

    def attach(self) -> bool:
        """Begin; False where the seam is not there."""
        original = getattr(self._owner, "_get_iterator", None)
        if not callable(original) or not hasattr(self._owner, "__dict__") or "_get_iterator" in vars(self._owner):
            return False
        clock = self._clock

        def get_iterator(*arguments: Any, **options: Any) -> Any:
            return clock.watch(original(*arguments, **options))

        self._wrapped = get_iterator
        self._owner._get_iterator = get_iterator
        return True

    def enter(self, phase: str) -> None:
        """The training is in ``phase`` from now on; time outside of steps is none of theirs."""
        if phase not in ("first_step", "steady_steps"):
            self._clock.pause()

    def detach(self) -> InputWait | None:
        """End; what was seen, or None if that is too little."""
        owner, wrapped = self._owner, self._wrapped
        self._owner = self._wrapped = None
        if wrapped is not None and vars(owner).get("_get_iterator") is wrapped:
            del owner._get_iterator
        return self._clock.result(self.METHOD)


def time_fetches(clock: FetchClock, owner: Any, first: str, last: str) -> Callable[[], None] | None:
    """Have ``clock`` run from a call of ``first``, a function of ``owner``, to the end of ``last``, perhaps the same.

    Returns what undoes it; None where the seam is not there.
    """
    functions = {name: getattr(owner, name, None) for name in (first, last)}
    if not all(callable(function) and name not in vars(owner) for name, function in functions.items()):
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

    put = {name: watch(name, function) for name, function in functions.items()}
    for name, watched in put.items():
        setattr(owner, name, watched)

    def undo() -> None:
        for name, watched in put.items():
            if vars(owner).get(name) is watched:
                delattr(owner, name)

    return undo


def find_epoch_iterator(frame: FrameType | None) -> Any:
    """The epoch iterator of the ``fit`` that runs above ``frame``, or None."""
    return next(
        (local["epoch_iterator"] for name, local in walk_up(frame) if name == "fit" and "epoch_iterator" in local), None
    )
