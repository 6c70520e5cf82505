"""How long steps wait for their data, measured where each framework fetches it.

On JAX and torch, Keras' loop asks an iterator for every batch: the time it takes to answer is the wait, because the
step before has been waited for. On TensorFlow the fetch is inside the compiled step; see :mod:`.tensorflow_trace`.
Trainers of other libraries have functions that fetch, or that they call before and after.
None of these functions is public. Where one is missing the wait is unknown, and the training goes on unchanged.
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from vmselect.probe.keras_fit import walk_up

if TYPE_CHECKING:
    from vmselect.probe.timer import StepTimer
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


# How long TensorFlow's steps wait for their data: a few of them under TensorFlow's own profiler.
#
# The fetch is an operation inside the compiled step, so nothing outside sees it. The profiler traces what the host
# does
# (no device, no Python) for a few steps, and the events of the fetching operation are summed up. Without the
# profiler, or
# while another program uses it, the wait is unknown.


STEPS = 5
"""Steps that are traced."""

FETCHES = ("IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute", "MultiDeviceIteratorGetNext")
"""How the names of fetching operations begin in a trace."""

_PROTOBUFS = ("tensorflow.tsl.profiler.protobuf.xplane_pb2", "tensorflow.core.profiler.protobuf.xplane_pb2")

LARGEST_TRACE_BYTES = 200 * 2**20


class TensorFlowTrace:
    """One trace of a few steps: :meth:`begin`, the steps, :meth:`end`."""

    METHOD = "traced steps"

    def __init__(self) -> None:
        self._tensorflow: Any = sys.modules.get("tensorflow")
        self._folder: str | None = None
        self._began = 0.0
        self.result: InputWait | None = None

    def begin(self) -> bool:
        """Trace from now on; False where that is not possible."""
        if self._folder is not None or self.result is not None:
            return False
        try:
            profiler = self._tensorflow.profiler.experimental
            options = profiler.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=0)
            self._folder = tempfile.mkdtemp(prefix="vmselect-trace-")
            profiler.start(self._folder, options=options)
        except Exception:  # noqa: BLE001 - whatever the profiler raises, the training must not end with it
            self._forget()
            return False
        self._began = time.perf_counter()
        return True

    def end(self, steps: int) -> InputWait | None:
        """The trace ends after this many steps: what it shows, or None."""
        folder = self._folder
        if folder is None:
            return None
        wall = time.perf_counter() - self._began
        try:
            self._tensorflow.profiler.experimental.stop()
            self.result = self._read(Path(folder), wall, steps)
        except Exception:  # noqa: BLE001 - nor with what protobuf raises about a trace that it cannot read
            self.result = None
        finally:
            self._forget()
        return self.result

    def _read(self, folder: Path, wall: float, steps: int) -> InputWait | None:
        from vmselect.records.training import InputWait

        events = [event for file in folder.rglob("*.xplane.pb") for event in read_fetches(file)]
        if not events or steps < 1 or wall <= 0:
            return None
        return InputWait(seconds=min(wall, length_of_union(events)), wall_seconds=wall, steps=steps, method=self.METHOD)

    def _forget(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def read_fetches(file: Path) -> list[tuple[float, float]]:
    """Begin and end, in seconds, of every event of a trace in which data were fetched."""
    if file.stat().st_size > LARGEST_TRACE_BYTES:
        raise ValueError(f"{file.name} is too large")
    space = _load_protobuf().XSpace()
    space.ParseFromString(file.read_bytes())
    spans = []
    for plane in space.planes:
        fetching = {key for key, meta in plane.event_metadata.items() if meta.name.startswith(FETCHES)}
        for line in plane.lines if fetching else ():
            for event in line.events:
                if event.metadata_id in fetching:
                    begin = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
                    spans.append((begin, begin + event.duration_ps / 1e12))
    return spans


def _load_protobuf() -> Any:
    for name in _PROTOBUFS:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise ValueError("TensorFlow ships no description of its traces")


def length_of_union(spans: Iterable[tuple[float, float]]) -> float:
    """How long at least one of the spans lasted: replicas fetch at the same time.

    >>> length_of_union([(0, 2), (1, 3), (5, 6)])
    4.0
    """
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


# A trace of a few steps of a ``fit``: which steps, and what the stopwatch makes of them.


LEAST = 2
"""With room for fewer steps than this, none is traced."""

SETTLED = 3
"""Steps of an epoch after which it may be traced."""


class StepTrace:
    """Traces a few steps once: after those that are timed, off the clock, or in passing where all are timed."""

    def __init__(self, trace: TensorFlowTrace | None = None, *, steps_per_execution: int = 1) -> None:
        self._trace = trace
        self._covers = steps_per_execution
        self._left_out = ExitStack()
        self._first = self._seen = 0
        self.running = False
        self.until: float = math.inf

    def room(self, batch: float, last_batch: float) -> float:
        """How many steps after ``batch`` can be traced so that at least one is left after them; 0 for too few."""
        room = 0.0 if self._trace is None else min(STEPS * self._covers, last_batch - batch - 1)
        return room if room >= LEAST else 0

    def latest(self, last_batch: float) -> float:
        """The last batch after which there is still room for a whole trace, if there is one to be made."""
        return math.inf if self._trace is None else last_batch - 1 - STEPS * self._covers

    def plan_in_passing(self, wanted: int, last_batch: float) -> float:
        """The batch after which to trace in an epoch that is timed whole."""
        at = min(wanted, self.latest(last_batch))
        return at if at >= SETTLED and self.room(at, last_batch) else math.inf

    def begin(self, batch: int, last_batch: float, *, timer: StepTimer | None = None) -> bool:
        """Trace the steps after ``batch``; with ``timer``, off its clock. False where that is not possible."""
        room = self.room(batch, last_batch)
        if self._trace is None or not room:
            return False
        if timer is not None:
            self._left_out.enter_context(timer.leave_out())
        if not self._trace.begin():
            self._left_out.close()
            self._trace = None
            return False
        self._first = self._seen = batch
        self.until = batch + room
        self.running = True
        return True

    def see(self, batch: int) -> bool:
        """A traced step has ended; whether it was the last."""
        self._seen = batch
        return batch >= self.until

    def end(self) -> None:
        """The traced steps are over; later calls change nothing."""
        if self._trace is not None and self.running:
            self._trace.end(self._seen - self._first)
            self._left_out.close()
            self._trace, self.running = None, False
