"""Load generator: calls a function from several client threads and measures the latency of the calls.

In a closed loop each client makes its next call when its previous call has returned. A slow call keeps its client from
calling, so calls that it would have delayed are never made and never measured: the "coordinated omission" of load
testing. In an open loop the rate determines the scheduled start of every call. If all clients are busy, a call starts
late; its latency is measured from its scheduled start.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from vmselect.errors import ArgumentError
from vmselect.probe.timer import Reservoir
from vmselect.records.inference import bucket_of

Clock = Callable[[], int]
Sleep = Callable[[float], object]
Failures = tuple[type[BaseException], ...]

CALLS_ALWAYS = 1_000
CALLS_SAMPLED = 1_000
"""The first calls are all kept, because they show the warm-up. Of the later ones a random sample of this size is kept:
the record stays small, and percentiles come from the histogram of all calls."""
MAX_ERROR_NAMES = 20
"""Largest number of exception classes that are counted separately. Further classes are counted as "other"."""


def settle(answer: object) -> None:
    """Wait until ``answer`` has been computed, because a framework may return a result before it is computed."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    ready = getattr(jax, "block_until_ready", None)
    if ready is not None:
        ready(answer)
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()
    numpy = getattr(answer, "numpy", None)
    if numpy is not None and type(answer).__module__.startswith("tensorflow"):
        numpy()  # an eager tensor on a GPU has been computed once it can be copied


class Batch(NamedTuple):
    """Input of one call, its number of items, and its size in bytes (None if unknown)."""

    value: object
    items: int
    size_bytes: int | None


def cut_batches(inputs: Any, *, batch_size: int | None, calls: int | None = None) -> Iterator[Batch]:
    """Return an iterator over the inputs of all calls.

    An array (any object with a shape) is split along its first axis into batches of ``batch_size``, by default 1. Each
    element of another iterable is the input of one call. ``calls`` is the number of calls: arrays and lists are
    repeated until it is reached. A generator is read once, so there may be fewer calls.
    """
    shape = getattr(inputs, "shape", None)
    if isinstance(inputs, (str, bytes, Mapping)) or not (isinstance(inputs, Iterable) or shape is not None):
        raise ArgumentError(
            f"inputs cannot be of type {type(inputs).__name__}. Pass an array, or a list with the input of each call."
        )
    if shape is not None and len(shape) == 0:
        raise ArgumentError("inputs is an array without axes. Pass an array whose first axis enumerates the items.")
    if isinstance(inputs, Sized) and len(inputs) == 0:
        raise ArgumentError("inputs is empty. Pass at least one input.")
    if shape is not None:
        size = batch_size or 1
        starts: Iterable[int] = range(0, int(shape[0]), size)
        values: Iterable[Any] = (inputs[start : start + size] for start in _repeat(starts, calls))
    else:
        values = _repeat(inputs, calls) if isinstance(inputs, Sequence) else inputs
    return itertools.islice((_make_batch(value, batch_size) for value in values), calls)


def _repeat(values: Iterable[Any], calls: int | None) -> Iterable[Any]:
    return values if calls is None else itertools.cycle(values)


def _make_batch(value: object, batch_size: int | None) -> Batch:
    """Return a batch with the input ``value``: ``batch_size`` items, or fewer if ``value`` is a shorter array."""
    shape = getattr(value, "shape", None)
    length = int(shape[0]) if shape else 0
    items = min(length or batch_size, batch_size) if batch_size else length or 1
    return Batch(value, items, count_bytes(value))


def count_bytes(value: object) -> int | None:
    """Return the size in bytes of ``value``, the input of one call, or None if unknown."""
    size = len(value) if isinstance(value, (bytes, bytearray)) else getattr(value, "nbytes", None)
    return int(size) if isinstance(size, int) and size >= 0 else None


class Reading(NamedTuple):
    """One successful call. ``latency_ns`` begins at its scheduled start, ``service_ns`` at its actual start."""

    number: int
    intended_ns: int
    latency_ns: int
    service_ns: int
    items: int


class CallTally:
    """Statistics of all calls of a load: exact counts and sums, a latency histogram, and a random sample of calls.

    Several threads may use it at the same time. All times are clock times in nanoseconds.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._sample: Reservoir[Reading] = Reservoir(always=CALLS_ALWAYS, size=CALLS_SAMPLED, seed=seed)
        self.histogram: Counter[int] = Counter()
        """Maps the number of each bucket of the latency histogram to its number of calls."""
        self.errors: Counter[str] = Counter()
        self.calls = self.items = self.size_bytes = self.sized_items = 0
        self.latency_ns = self.service_ns = self.longest_ns = 0
        self.begin_ns = self.end_ns = 0

    def begin(self, now: int) -> None:
        """Record that the load starts at the time ``now``."""
        if not self.begin_ns and not self.calls:
            self.begin_ns = self.end_ns = now

    def add(self, number: int, intended: int, start: int, end: int, batch: Batch) -> None:
        """Add the successful call ``number``. ``intended`` is its scheduled and ``start`` its actual start."""
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
        """Add a call that failed at the time ``now`` with an exception of the class ``name``."""
        with self._lock:
            has_place = name in self.errors or len(self.errors) < MAX_ERROR_NAMES
            self.errors[name if has_place else "other"] += 1
            self.end_ns = max(self.end_ns, now)

    def readings(self) -> list[Reading]:
        """Return the measured calls (a random sample if there were many), in the order of their numbers."""
        return sorted(self._sample.items())

    def seconds(self) -> float:
        """Return the seconds from the start of the load to the end of its last call."""
        return (self.end_ns - self.begin_ns) / 1e9


@dataclass
class Load:
    """Calls ``function`` with one batch after another, from ``clients`` threads, and adds the calls to ``tally``.

    ``rate`` is the number of calls per second; without it, each client calls again when its previous call has returned.
    ``failures`` are the exception classes that count as failed calls. Any other exception ends the load and is raised.
    """

    function: Callable[[Any], object]
    batches: Iterator[Batch]
    tally: CallTally
    _: KW_ONLY
    clients: int = 1
    rate: float | None = None
    seconds: float | None = None
    failures: Failures = ()
    synchronize: Callable[[object], object] = lambda answer: None
    clock: Clock = time.perf_counter_ns
    sleep: Sleep | None = None

    def __post_init__(self) -> None:
        self._gap_ns = None if self.rate is None else 1e9 / self.rate
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._sleep = self.sleep or self._stop.wait
        self._number = self._begin = 0

    def run(self) -> None:
        """Make all calls of the load, and return when they have ended."""
        self._begin = self.clock()
        self.tally.begin(self._begin)
        if self.clients == 1:
            self._serve()
        else:
            run_together([self._serve] * self.clients, stop=self._stop, name="client")

    def _serve(self) -> None:
        """Run one client: take the next batch, wait for its scheduled start, call the function and record the times."""
        while (taken := self._take()) is not None:
            number, batch = taken
            # The schedule counts from the start of the load: a late call does not delay the schedule of later ones.
            intended = None if self._gap_ns is None else self._begin + round(number * self._gap_ns)
            while intended is not None and not self._stop.is_set() and (left := intended - self.clock()) > 0:
                self._sleep(left / 1e9)
            if intended is not None and self._stop.is_set():
                return
            start = self.clock()
            try:
                self.synchronize(self.function(batch.value))
            except self.failures as failure:
                self.tally.fail(type(failure).__name__, self.clock())
                continue
            end = self.clock()
            # The sleep may end slightly early. No call counts as started before its scheduled start.
            self.tally.add(number, start if intended is None else min(intended, start), start, end, batch)

    def _take(self) -> tuple[int, Batch] | None:
        # Clients share one iterator, so each input is used once whatever the number of clients.
        with self._lock:
            if self._stop.is_set():
                return None
            if self.seconds is not None:
                due = self.clock() - self._begin if self._gap_ns is None else self._number * self._gap_ns
                if due >= self.seconds * 1e9:
                    return None
            batch = next(self.batches, None)
            if batch is None:
                return None
            self._number += 1
            return self._number - 1, batch


def run_together(
    tasks: Sequence[Callable[[], None]], *, stop: threading.Event, name: str, patience: float | None = None
) -> None:
    """Run each task in its own thread, wait for all of them, and raise the first error.

    An error in a task or in the calling thread sets ``stop``, which the tasks check regularly. ``patience`` is the
    largest number of seconds to wait for each thread after the calling thread was interrupted.
    """
    errors: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            errors.append(error)
            stop.set()

    threads = [
        threading.Thread(target=run, args=(task,), name=f"vmselect-{name}-{number}", daemon=True)
        for number, task in enumerate(tasks)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        # Ctrl-C reaches the main thread only. The other threads end after their current piece of work.
        stop.set()
        for thread in threads:
            if thread.is_alive():
                thread.join(patience)
        raise
    if errors:
        raise errors[0]
