"""Machines that answer: what one instance can do, and what a load does to its latencies.

Latencies under a load follow from the service times that were measured, by queueing them: arrivals at random
(exponential gaps) at the given rate, one queue before the clients of each instance. Gaps and order of service times are
drawn once, whatever the rate; a higher rate only moves arrivals together, so that no call is ever answered sooner.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from vmselect.findings import Finding
from vmselect.ranking.rows import Excluded
from vmselect.records import histogram
from vmselect.records.inference import InferenceRecord, merge_steady

SIMULATED_CALLS = 5_000
"""Calls that are queued to see what a load does; the 99th percentile then rests on fifty."""

LEAST_SPREAD = 0.01
"""No measured capacity is taken to be surer than this share of it."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """One machine at one batch size and number of clients, from all records of it."""

    instance_type: str
    provider: str | None
    regions: tuple[str, ...]
    batch_size: int
    clients: int
    items_per_second: float
    low: float
    high: float
    service_seconds: tuple[float, ...]
    records: tuple[InferenceRecord, ...]

    @property
    def title(self) -> str:
        """The service in a few words."""
        clients = f", {self.clients} clients" if self.clients > 1 else ""
        return f"{self.instance_type}, batch {self.batch_size}{clients}"

    def latency(self, items_per_second: float, percentile: float) -> float:
        """The percentile of latency of one instance that is asked for so many items per second."""
        calls_per_second = items_per_second / self.batch_size
        latencies = simulate_latencies(self.service_seconds, calls_per_second, clients=self.clients)
        return histogram.percentile(latencies, percentile)


def gather_services(
    records: Sequence[InferenceRecord],
) -> tuple[list[Service], list[Excluded], list[Finding]]:
    """A service for each machine, batch size and number of clients; the records that make none; and their warnings."""
    groups: dict[tuple[str, str, str, int, int], list[InferenceRecord]] = defaultdict(list)
    excluded: list[Excluded] = []
    for record in records:
        if record.instance_type is None:
            reason = "the record does not say on which instance type it was made; pass instance_type="
            excluded.append(Excluded(record.title, "unknown_instance_type", reason))
        elif not record.calls.total or not record.calls.service_seconds:
            excluded.append(Excluded(record.title, "no_calls", "no call was answered beside the first and warm-up"))
        else:
            where = (record.instance_type, record.provider or "", record.region or "")
            groups[*where, record.batch_size or 1, record.setup.clients].append(record)
    # What saturates a machine is how its capacity is found, and no fault of the record.
    warnings = [f for record in records for f in record.findings if f.severity == "warning" and f.code != "saturated"]
    return [_sum_up(*key, group) for key, group in sorted(groups.items())], excluded, warnings


def _sum_up(
    name: str, provider: str, region: str, batch_size: int, clients: int, group: list[InferenceRecord]
) -> Service:
    rates = [_capacity(record) for record in sorted(group, key=lambda record: record.id)]
    mean = statistics.fmean(rates)
    width = mean * _relative_width(group, rates, mean)
    return Service(
        instance_type=name, provider=provider or None, regions=(region,) if region else (),
        batch_size=batch_size, clients=clients, items_per_second=mean, low=max(mean - width, 0.0), high=mean + width,
        service_seconds=tuple(merge_steady(group)), records=tuple(group),
    )  # fmt: skip


def _capacity(record: InferenceRecord) -> float:
    """Items that one instance can answer in a second: seen where it was kept busy, else by its service times."""
    busy = record.setup.rate is None or record.is_saturated
    seen = record.items_per_second if busy else None
    return seen or record.calls.items * record.setup.clients / record.calls.service_seconds


def _relative_width(group: Sequence[InferenceRecord], rates: Sequence[float], mean: float) -> float:
    """Half-width of the interval of the mean rate, as a share: by repetitions, or by the calls of a single one."""
    if len(rates) > 1:
        width = 2 * statistics.stdev(rates) / mean / math.sqrt(len(rates))
    else:
        calls = group[0].calls.steady_service
        typical = statistics.fmean(calls) if calls else 0.0
        width = 2 * statistics.stdev(calls) / typical / math.sqrt(len(calls)) if len(calls) > 1 and typical else 0.0
    return max(LEAST_SPREAD, width)


def simulate_latencies(service_seconds: Sequence[float], calls_per_second: float, *, clients: int = 1) -> list[float]:
    """Latencies of calls that arrive at random at this rate and are served in turn by ``clients`` at a time.

    >>> quiet, busy = (max(simulate_latencies([0.1], rate)) for rate in (0.1, 9.0))
    >>> quiet < busy
    True
    """
    gaps, order = _draws(len(service_seconds))
    services = np.asarray(sorted(service_seconds), dtype=float)[order]
    arrivals = np.cumsum(gaps) / calls_per_second
    if clients == 1:
        # A call waits for as long as arrivals are ahead of the service before them; one pass instead of a loop, and
        # a difference that is exactly nothing for calls that do not wait.
        ahead = arrivals - (np.cumsum(services) - services)
        return [float(value) for value in services + (np.maximum.accumulate(ahead) - ahead)]
    free = [0.0] * clients
    latencies = []
    for arrival, service in zip(arrivals.tolist(), services.tolist(), strict=True):
        wait = max(0.0, heapq.heappop(free) - arrival)
        heapq.heappush(free, arrival + wait + service)
        latencies.append(wait + service)
    return latencies


@lru_cache(maxsize=64)
def _draws(count: int) -> tuple[Any, Any]:
    """Gaps between calls, of mean 1, and which service time each call has; the same at every rate."""
    random = np.random.default_rng(0)
    gaps = random.exponential(size=SIMULATED_CALLS)
    order = np.arange(SIMULATED_CALLS) % count
    random.shuffle(order)
    return gaps, order
