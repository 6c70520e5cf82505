"""When an answer is there: frameworks hand out answers that they are still computing."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, NamedTuple

from vmselect.errors import ArgumentError
from vmselect.probe.threads import run_together
from vmselect.records.latency_histogram import bucket_of


def settle(answer: Any) -> None:
    """Wait until ``answer`` has been computed, whichever framework computes it."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    ready = getattr(jax, "block_until_ready", None)
    if ready is not None:
        ready(answer)
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()
    numpy = getattr(answer, "numpy", None)
    if numpy is not None and type(answer).__module__.startswith("tensorflow"):
        numpy()  # an eager tensor on a GPU is there once it can be copied


# What each call is given: inputs cut or taken one by one, each with its number of items and bytes.


class Batch(NamedTuple):
    """The input of one call."""

    value: Any
    items: int
    size_bytes: int | None


def cut_batches(inputs: Any, *, batch_size: int | None, calls: int | None = None) -> Iterator[Batch]:
    """The inputs of all calls, in order.

    An array (anything with a shape) is cut along its first axis into batches of ``batch_size``, 1 unless given. Of
    anything else, each element is the input of one call. With ``calls``, inputs that can be read again are repeated
    until there have been so many; a generator ends when it ends.

    >>> [batch.items for batch in cut_batches(["a", "b"], batch_size=32)]
    [32, 32]
    >>> import numpy as np
    >>> [batch.items for batch in cut_batches(np.zeros((70, 2)), batch_size=32)]
    [32, 32, 6]
    """
    if isinstance(inputs, (str, bytes, Mapping)) or not (isinstance(inputs, Iterable) or hasattr(inputs, "shape")):
        raise ArgumentError(
            f"inputs is a {type(inputs).__name__}, of which no call's input can be taken. "
            "Give an array of items, or a list with the input of each call."
        )
    if isinstance(inputs, Sized) and len(inputs) == 0:
        raise ArgumentError("inputs is empty, so there is nothing to call the function with. Give at least one input.")
    shape = getattr(inputs, "shape", None)
    if shape is not None and len(shape) == 0:
        raise ArgumentError("inputs is a single value without an axis of items. Give an array of items.")
    if shape is not None:
        passes: Iterable[Any] = _slices(inputs, int(shape[0]), batch_size or 1, forever=calls is not None)
    elif calls is not None and isinstance(inputs, Sequence):
        passes = itertools.cycle(inputs)
    else:
        passes = inputs
    found = (Batch(value, count_items(value, batch_size), count_bytes(value)) for value in passes)
    return itertools.islice(found, calls)


def count_items(value: Any, batch_size: int | None) -> int:
    """Items in the input of one call: as in its shape, where that is no more than ``batch_size``; else as given."""
    shape = getattr(value, "shape", None)
    seen = int(shape[0]) if shape else None
    if batch_size is None:
        return seen or 1
    return seen if seen is not None and 0 < seen < batch_size else batch_size


def count_bytes(value: Any) -> int | None:
    """Bytes of the input of one call, or None if unknown."""
    size = len(value) if isinstance(value, (bytes, bytearray)) else getattr(value, "nbytes", None)
    return int(size) if isinstance(size, int) and size >= 0 else None


def _slices(array: Any, length: int, size: int, *, forever: bool) -> Iterator[Any]:
    while True:
        for start in range(0, length, size):
            yield array[start : start + size]
        if not forever:
            return


# What is kept of a load's calls: a bounded sample, and exact counts, sums and a histogram of all of them.


CALLS_ALWAYS = 1_000
CALLS_SAMPLED = 1_000
ERROR_NAMES = 20
"""Errors beyond this many kinds are counted as "other"."""


class Reading(NamedTuple):
    """One answered call, in nanoseconds: ``latency`` from its intended start, ``service`` from its real one."""

    number: int
    intended_ns: int
    latency_ns: int
    service_ns: int
    items: int


class Tally:
    """Takes calls from several threads at once."""

    def __init__(self, *, seed: int = 0) -> None:
        from vmselect.probe.timer import Reservoir

        self._lock = threading.Lock()
        self._sample: Reservoir[Reading] = Reservoir(always=CALLS_ALWAYS, size=CALLS_SAMPLED, seed=seed)
        self.histogram: Counter[int] = Counter()
        """How many latencies fell into each bucket."""
        self.errors: Counter[str] = Counter()
        self.calls = self.items = self.size_bytes = self.sized_items = 0
        self.latency_ns = self.service_ns = self.longest_ns = 0
        self.begin_ns = self.end_ns = 0

    def begin(self, now: int) -> None:
        """The load begins."""
        if not self.begin_ns and not self.calls:
            self.begin_ns = self.end_ns = now

    def add(self, number: int, intended: int, start: int, end: int, batch: Batch) -> None:
        """Call ``number`` was answered."""
        latency = end - intended
        reading = Reading(number, intended - self.begin_ns, latency, end - start, batch.items)
        bucket = bucket_of(latency / 1e9)
        with self._lock:
            self.calls += 1
            self.items += batch.items
            self.latency_ns += latency
            self.service_ns += end - start
            self.longest_ns = max(self.longest_ns, latency)
            self.end_ns = max(self.end_ns, end)
            self.histogram[bucket] += 1
            if batch.size_bytes is not None:
                self.size_bytes += batch.size_bytes
                self.sized_items += batch.items
            if self.calls >= self._sample.due:
                self._sample.offer(self.calls, reading)

    def fail(self, name: str, now: int) -> None:
        """A call failed."""
        with self._lock:
            known = name in self.errors or len(self.errors) < ERROR_NAMES
            self.errors[name if known else "other"] += 1
            self.end_ns = max(self.end_ns, now)

    def readings(self) -> list[Reading]:
        """The calls that were kept, in the order in which they were due."""
        return sorted(self._sample.items())

    def seconds(self) -> float:
        """From the beginning of the load to its last answer."""
        return (self.end_ns - self.begin_ns) / 1e9


# A load of calls: closed, where each client calls again when it has its answer, or open, at a rate of its own.
#
# In a closed loop a slow answer keeps its client from calling, so that the calls which would have suffered from it
# are
# never made and never seen: the "coordinated omission" of load testing. In an open loop every call has its intended
# start, fixed beforehand by the rate. A call that finds all clients busy starts late, and its latency is counted from
# when it should have started: waiting is part of the answer.


Clock = Callable[[], int]
Sleep = Callable[[float], Any]
Failures = tuple[type[BaseException], ...]


class Load:
    """Calls ``function`` with one batch after another; :meth:`run` returns when the load is over.

    ``failures`` are the errors that count as failed answers; any other ends the load and is raised.

    >>> now = [0]
    >>> def sleep(seconds): now[0] += round(seconds * 1e9)
    >>> tally = Tally()
    >>> Load(lambda value: sleep(0.1), iter([Batch(None, 1, None)] * 5), tally, rate=5.0,
    ...      clock=lambda: now[0], sleep=sleep).run()
    >>> [reading.latency_ns // 10**6 for reading in tally.readings()], tally.seconds()
    ([100, 100, 100, 100, 100], 0.9)
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        batches: Iterator[Batch],
        tally: Tally,
        *,
        clients: int = 1,
        rate: float | None = None,
        seconds: float | None = None,
        failures: Failures = (),
        synchronize: Callable[[Any], Any] = lambda answer: None,
        clock: Clock = time.perf_counter_ns,
        sleep: Sleep | None = None,
    ) -> None:
        self._function = function
        self._batches = batches
        self._tally = tally
        self._clients = clients
        self._gap_ns = None if rate is None else 1e9 / rate
        self._limit_ns = None if seconds is None else seconds * 1e9
        self._failures = failures
        self._synchronize = synchronize
        self._clock = clock
        self._stop = threading.Event()
        self._sleep = self._stop.wait if sleep is None else sleep
        self._lock = threading.Lock()
        self._number = 0
        self._begin = 0

    def run(self) -> None:
        """Make all calls and wait for their answers."""
        self._begin = self._clock()
        self._tally.begin(self._begin)
        if self._clients == 1:
            self._serve()
        else:
            run_together([self._serve] * self._clients, stop=self._stop, name="client")

    def _serve(self) -> None:
        """What one client does: take the next call, wait for its time, make it, note it."""
        while (taken := self._take()) is not None:
            number, batch = taken
            intended = None if self._gap_ns is None else self._begin + round(number * self._gap_ns)
            if intended is not None:
                self._wait_until(intended)
                if self._stop.is_set():
                    return
            start = self._clock()
            try:
                self._synchronize(self._function(batch.value))
            except self._failures as failure:
                self._tally.fail(type(failure).__name__, self._clock())
                continue
            end = self._clock()
            # A clock may be read a little before the intended time; no call starts before it.
            self._tally.add(number, start if intended is None else min(intended, start), start, end, batch)

    def _take(self) -> tuple[int, Batch] | None:
        with self._lock:
            if self._stop.is_set() or self._is_over():
                return None
            batch = next(self._batches, None)
            if batch is None:
                return None
            self._number += 1
            return self._number - 1, batch

    def _is_over(self) -> bool:
        if self._limit_ns is None:
            return False
        due = self._clock() - self._begin if self._gap_ns is None else self._number * self._gap_ns
        return due >= self._limit_ns

    def _wait_until(self, intended: int) -> None:
        while not self._stop.is_set() and (left := intended - self._clock()) > 0:
            self._sleep(left / 1e9)
