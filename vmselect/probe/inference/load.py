"""A load of calls: closed, where each client calls again when it has its answer, or open, at a rate of its own.

In a closed loop a slow answer keeps its client from calling, so that the calls which would have suffered from it are
never made and never seen: the "coordinated omission" of load testing. In an open loop every call has its intended
start, fixed beforehand by the rate. A call that finds all clients busy starts late, and its latency is counted from
when it should have started: waiting is part of the answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from vmselect.probe.inference.batches import Batch
from vmselect.probe.inference.tally import Tally
from vmselect.probe.threads import run_together

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
