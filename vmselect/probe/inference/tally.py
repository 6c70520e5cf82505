"""What is kept of a load's calls: a bounded sample, and exact counts, sums and a histogram of all of them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import NamedTuple

from vmselect.probe.inference.batches import Batch
from vmselect.records.histogram import bucket_of

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
        from vmselect.probe.recorder.reservoir import Reservoir

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
