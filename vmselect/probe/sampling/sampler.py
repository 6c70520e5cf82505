"""The thread that samples: started and ended by a probe, which reports every change of phase.

It reads once an interval, and at the first changes to and from each phase, so that short phases have samples of their
own. All reading is done in the thread; reporting a phase costs one reading of the clock. Before the process is
forked the thread ends, and afterwards it is started again in the parent: a child must not inherit half a thread.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from vmselect.probe.sampling.tally import Tally

if TYPE_CHECKING:
    from vmselect.probe.sampling.alarm import Alarm
    from vmselect.records.usage import Limits, Phase, Usage

SHORTEST_SECONDS = 0.1
"""Systems count processor time in hundredths of a second: shorter samples would be mostly noise."""

MOST_EARLY = 6
"""Changes to and from a phase at which a sample is taken before the interval is over: three stays in it. With epochs
shorter than the interval there would be ten a second, for as long as the training goes on."""

MOST_CHANGES = 10_000
PATIENCE_SECONDS = 2.0
"""How long the end of the thread is waited for: a driver that does not answer must not hold up a training."""


class Reader(Protocol):
    """Something that can be read again and again."""

    def read(self, seconds: float) -> dict[str, float]:
        """Its quantities now; ``seconds`` have passed since the reading before."""
        ...


class Sampler:
    """Samples the machine from :meth:`start` to :meth:`stop`, which gives what was seen.

    >>> sampler = Sampler(0.1)
    >>> sampler.start()
    >>> sampler.enter("steady_steps")
    >>> _ = sum(range(8_000_000))
    >>> usage = sampler.stop()
    >>> usage.interval_seconds
    0.1
    """

    def __init__(
        self,
        interval: float = 1.0,
        *,
        readers: Sequence[Reader] | None = None,
        alarm: Alarm | None = None,
        alive: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval = interval
        self.alive = alive
        """Whether what is watched goes on: when it returns False, sampling ends by itself."""
        self._given = readers
        self._readers: Sequence[Reader] = ()
        self._alarm = alarm
        self._clock = clock
        self._tally = Tally()
        self._limits: Limits | None = None
        self._seen: Usage | None = None
        """What was seen, once that is all."""
        self._phase: Phase = "initialization"
        self._changes: deque[tuple[float, Phase]] = deque(maxlen=MOST_CHANGES)
        self._early: dict[Phase, int] = {}
        self._due = False
        """Whether a sample is to be taken before the interval is over."""
        self._began = self._read_at = 0.0
        self._wake = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        self._process = 0

    def start(self) -> None:
        """Begin to sample."""
        from vmselect.records.usage import Limits

        self._process = os.getpid()
        self._limits = Limits()
        self._seen = None
        if self._given is None:
            self._open_readers()
        else:
            self._readers = self._given
        if self._alarm is not None:
            self._alarm.reset()
        self._began = self._read_at = self._clock()
        self._start_thread()
        _RUNNING.add(self)

    def enter(self, phase: Phase) -> None:
        """The training is in ``phase`` from now on."""
        if phase == self._phase:
            return
        now = self._clock()
        self._changes.append((now, phase))
        both = (self._phase, phase)
        self._phase = phase
        if self._due or now - self._read_at < SHORTEST_SECONDS:
            return
        if any(self._early.get(one, 0) < MOST_EARLY for one in both):
            for one in both:
                self._early[one] = self._early.get(one, 0) + 1
            self._due = True
            self._wake.set()

    def usage(self) -> Usage:
        """What has been seen until now."""
        from vmselect.records.usage import Limits

        return self._seen or self._tally.build(self.interval, self._limits or Limits())

    def stop(self) -> Usage | None:
        """Take a last sample, end, and give what was seen; None if that was nothing. Later calls change nothing."""
        if self._process == os.getpid():
            _RUNNING.discard(self)
            self._end_thread()
            self._close()
        self._seen = self.usage()
        return self._seen if self._seen.phases else None

    # -- inside ------------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        for reader in self._readers:
            close = getattr(reader, "close", None)
            if close is not None:
                close()
        self._readers = ()

    def _open_readers(self) -> None:
        from vmselect.probe.facts.hardware import usable_cores
        from vmselect.probe.sampling.container import ContainerReader
        from vmselect.probe.sampling.gpus import GpuReader
        from vmselect.probe.sampling.machine import MachineReader
        from vmselect.records.usage import Limits

        container = ContainerReader()
        self._limits = Limits(
            cores=len(usable_cores()),
            container_cores=container.cores,
            container_memory_bytes=container.memory_bytes,
        )
        self._readers = (MachineReader(), container, GpuReader())

    def _start_thread(self) -> None:
        self._ending = False
        self._wake.clear()
        # The thread holds no reference to its sampler while it waits: a sampler that is forgotten ends.
        self._thread = threading.Thread(
            target=_run, args=(weakref.ref(self), self._wake), name="vmselect-sampler", daemon=True
        )
        self._thread.start()

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        self._ending = True
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE_SECONDS)

    def _tick(self) -> float | None:
        """Read if it is time to; returns the seconds until the next look, None at the end."""
        if self.alive is not None and not self.alive():
            _RUNNING.discard(self)
            self._close()
            return None
        now = self._clock()
        since = now - self._read_at
        if since >= self.interval or (since >= SHORTEST_SECONDS and (self._due or self._ending)):
            self._due = False
            self._read(now, since)
            since = 0.0
        if self._ending:
            return None
        # A change that came while the last sample was taken has one of its own, when that is long enough.
        return max(0.01, (SHORTEST_SECONDS if self._due else self.interval) - since)

    def _read(self, now: float, since: float) -> None:
        phase = self._longest_phase(now)
        values: dict[str, float] = {}
        for reader in self._readers:
            values |= reader.read(since)
        self._read_at = now
        self._tally.add(phase, now - self._began, since, values)
        if self._alarm is not None:
            self._alarm.see(now - self._began, values, self._limits)

    def _longest_phase(self, now: float) -> Phase:
        """The phase that took most of the time since the last reading; the changes until now are used up."""
        taken: dict[Phase, float] = {}
        current, since = self._phase_read, self._read_at
        while self._changes and self._changes[0][0] <= now:
            at, phase = self._changes.popleft()
            taken[current] = taken.get(current, 0.0) + at - since
            current, since = phase, at
        taken[current] = taken.get(current, 0.0) + now - since
        self._phase_read = current
        return max(taken, key=lambda phase: taken[phase])

    _phase_read: Phase = "initialization"
    """The phase at the last reading."""


def _run(reference: weakref.ref[Sampler], wake: threading.Event) -> None:
    while True:
        sampler = reference()
        if sampler is None:
            return
        pause = sampler._tick()
        del sampler
        if pause is None:
            return
        wake.wait(pause)
        wake.clear()


_RUNNING: weakref.WeakSet[Sampler] = weakref.WeakSet()


def _before_fork() -> None:
    for sampler in list(_RUNNING):
        sampler._end_thread()


def _after_fork_in_parent() -> None:
    for sampler in list(_RUNNING):
        sampler._start_thread()


def _after_fork_in_child() -> None:
    _RUNNING.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
