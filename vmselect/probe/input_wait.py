"""How long steps wait for their data, measured where each framework fetches it.

On JAX and torch, Keras' loop fetches every batch from an iterator: the time of a fetch is the wait, because the
previous step has finished. On TensorFlow the fetch is an operation inside the compiled step: a few steps run under
TensorFlow's profiler, and the events of that operation are summed up. Trainers of other libraries have functions that
fetch, or that they call before and after.
None of these functions is public. Where one is missing, or another program uses the profiler, the wait is unknown, and
the training goes on unchanged.
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
from vmselect.probe.timer import StepTimer

if TYPE_CHECKING:
    from vmselect.records.training import InputWait

MIN_FETCHED_STEPS = 3
"""With fewer steps the wait is not reported."""

TRACED_STEPS = 5
MIN_TRACED_STEPS = 2
SETTLED_STEPS = 3
"""Steps of an epoch after which a trace may begin."""

FETCH_EVENTS = ("IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute", "MultiDeviceIteratorGetNext")
"""How the names of fetching operations begin in a trace."""

MAX_TRACE_BYTES = 200 * 2**20


class FetchClock:
    """Sums up how long fetches took, and the time from one fetch to the next, which is the time of a step.

    The first step after :meth:`pause` opens an epoch. It is excluded, because it starts the pipeline, and the very
    first one compiles.
    """

    def __init__(self, *, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._began: int | None = None
        self._fetch = 0
        self._opening = True
        self.waited = self.taken = self.steps = 0

    def pause(self) -> None:
        """Exclude the time until the next fetch."""
        self._began = None
        self._opening = True

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The same batches; fetching them is timed."""
        self.pause()
        return self._walk(iter(batches))

    def _walk(self, batches: Iterator[Any]) -> Iterator[Any]:
        with suppress(StopIteration):
            while True:
                yield self.fetch(batches)

    def begin(self) -> int:
        """A fetch begins; returns when."""
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
        """A fetch ends."""
        if self._began is not None:
            self._fetch = self._clock() - self._began

    def fetch(self, batches: Iterator[Any]) -> Any:
        """Fetch the next batch."""
        began = self.begin()
        batch = next(batches)
        self._fetch = self._clock() - began
        return batch

    def result(self, method: str) -> InputWait | None:
        """The wait, or None after too few steps."""
        if self.steps < MIN_FETCHED_STEPS:
            return None
        from vmselect.records.training import InputWait

        return InputWait(
            seconds=max(0, self.waited) / 1e9, wall_seconds=max(0, self.taken) / 1e9, steps=self.steps, method=method
        )


def watch_iterator(clock: FetchClock, owner: Any) -> Callable[[], None] | None:
    """Time what the epoch iterator ``owner`` of a running ``fit`` returns, on JAX and torch.

    Returns a function that undoes it; None where Keras has no such function.
    """
    original = getattr(owner, "_get_iterator", None)
    if not callable(original):
        return None
    return _replace(owner, {"_get_iterator": lambda *args, **options: clock.watch(original(*args, **options))})


def time_fetches(clock: FetchClock, owner: Any, first: str, last: str) -> Callable[[], None] | None:
    """Time from a call of ``first``, a function of ``owner``, to the end of ``last``, which may be the same.

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
    """Set functions on the instance ``owner``; None where that is impossible or already done."""
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


class TensorFlowTrace:
    """One trace of a few steps by TensorFlow's profiler, of the host only: :meth:`begin`, the steps, :meth:`end`."""

    def __init__(self) -> None:
        self._tensorflow: Any = sys.modules.get("tensorflow")
        self._folder: str | None = None
        self._began = 0.0
        self.result: InputWait | None = None

    def begin(self) -> bool:
        """Start tracing; False where that is not possible."""
        if self._folder is not None or self.result is not None:
            return False
        try:
            profiler = self._tensorflow.profiler.experimental
            options = profiler.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=0)
            self._folder = tempfile.mkdtemp(prefix="vmselect-trace-")
            profiler.start(self._folder, options=options)
        except Exception:  # noqa: BLE001 - whatever the profiler raises, the training must not end with it
            self._remove_folder()
            return False
        self._began = time.perf_counter()
        return True

    def end(self, steps: int) -> InputWait | None:
        """End the trace after this many steps; returns the wait, or None if unknown."""
        if self._folder is None:
            return None
        wall = time.perf_counter() - self._began
        try:
            self._tensorflow.profiler.experimental.stop()
            events = [event for file in Path(self._folder).rglob("*.xplane.pb") for event in read_fetches(file)]
            if events and steps >= 1 and wall > 0:
                from vmselect.records.training import InputWait

                waited = min(wall, length_of_union(events))
                self.result = InputWait(seconds=waited, wall_seconds=wall, steps=steps, method="traced steps")
        except Exception:  # noqa: BLE001 - nor with what protobuf raises about a trace that it cannot read
            self.result = None
        finally:
            self._remove_folder()
        return self.result

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def read_fetches(file: Path) -> list[tuple[float, float]]:
    """Begin and end, in seconds, of every event of a trace in which data were fetched."""
    if file.stat().st_size > MAX_TRACE_BYTES:
        raise ValueError(f"{file.name} is too large")
    space = _load_protobuf().XSpace()
    space.ParseFromString(file.read_bytes())
    spans = []
    for plane in space.planes:
        fetching = {key for key, meta in plane.event_metadata.items() if meta.name.startswith(FETCH_EVENTS)}
        for line in plane.lines if fetching else ():
            for event in line.events:
                if event.metadata_id in fetching:
                    begin = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
                    spans.append((begin, begin + event.duration_ps / 1e12))
    return spans


def _load_protobuf() -> Any:
    """TensorFlow's description of its traces, which has moved between versions."""
    try:
        return import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    except ImportError:
        return import_module("tensorflow.core.profiler.protobuf.xplane_pb2")


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


class StepTrace:
    """Decides which steps of a ``fit`` to trace: once, after the timed steps, or among them where all are timed."""

    def __init__(self, trace: TensorFlowTrace | None = None, *, steps_per_execution: int = 1) -> None:
        self._trace = trace
        self._steps = TRACED_STEPS * steps_per_execution
        self._excluded = ExitStack()
        self._first = self._seen = 0
        self.running = False
        self.until: float = math.inf

    def room(self, batch: float, last_batch: float) -> float:
        """How many steps after ``batch`` can be traced so that at least one is left after them; 0 for too few."""
        room = 0.0 if self._trace is None else min(self._steps, last_batch - batch - 1)
        return room if room >= MIN_TRACED_STEPS else 0

    def latest(self, last_batch: float) -> float:
        """The last batch after which there is room for a whole trace; infinite without a trace to make."""
        return math.inf if self._trace is None else last_batch - 1 - self._steps

    def plan_in_passing(self, wanted: int, last_batch: float) -> float:
        """The batch after which to trace in an epoch whose steps are all timed."""
        at = min(wanted, self.latest(last_batch))
        return at if at >= SETTLED_STEPS and self.room(at, last_batch) else math.inf

    def begin(self, batch: int, last_batch: float, *, timer: StepTimer | None = None) -> bool:
        """Trace the steps after ``batch``, which ``timer`` excludes. Returns False where that is not possible."""
        room = self.room(batch, last_batch)
        if self._trace is None or not room:
            return False
        if timer is not None:
            self._excluded.enter_context(timer.leave_out())
        if not self._trace.begin():
            self._excluded.close()
            self._trace = None
            return False
        self._first = self._seen = batch
        self.until = batch + room
        self.running = True
        return True

    def see(self, batch: int) -> bool:
        """Note the end of a traced step; returns whether it was the last."""
        self._seen = batch
        return batch >= self.until

    def end(self) -> None:
        """End the trace; later calls change nothing."""
        if self._trace is not None and self.running:
            self._trace.end(self._seen - self._first)
            self._excluded.close()
            self._trace, self.running = None, False
