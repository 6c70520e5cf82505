"""Measures the input wait: how long steps wait for their batches.

With JAX and torch, Keras fetches every batch from an iterator. The input wait is the time of this fetch, minus the time
for which the device still executes the previous step. With TensorFlow, the fetch is an operation inside the compiled
step: a few steps run under TensorFlow's profiler, and the times of this operation are added up. Trainers of other
libraries have methods that fetch a batch, or that are called before and after a fetch. These iterators and methods are
private. If one is missing, or the profiler is already in use, the input wait is unknown and the training continues
unchanged.
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

from vmselect.probe.environment import Batch, Framework, walk_up
from vmselect.probe.timer import StepTimer

if TYPE_CHECKING:
    from vmselect.records.training import InputWait

MIN_FETCHED_STEPS = 3
"""Least number of measured steps. With fewer steps, the input wait is reported as unknown."""

TRACED_STEPS = 5
"""Number of steps to trace. Five suffice to recognize pipelines that wait 69 % of the time; stopping the
profiler took 4 ms."""
MIN_TRACED_STEPS = 2
SETTLED_STEPS = 3
"""Number of steps at the start of an epoch that are never traced."""

FETCH_EVENTS = ("IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute", "MultiDeviceIteratorGetNext")
"""Beginnings of the names that operations which fetch data have in a trace of TensorFlow's profiler."""

MAX_TRACE_BYTES = 200 * 2**20


class FetchClock:
    """Adds up the time of fetches (the input wait), and the time from one fetch to the next (the step time).

    The first step after :meth:`pause` is the first step of an epoch. It is excluded, because it starts the input
    pipeline and, in the first epoch, compiles the model.
    """

    def __init__(self, *, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._began: int | None = None
        self._fetch = 0
        self._opening = True
        self.waited = self.taken = self.steps = 0
        self._waited_before = self._steps_before = 0

    def pause(self) -> None:
        """Exclude the time from now to the next fetch."""
        self._began = None
        self._opening = True

    def watch(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield ``batches``, and measure the time to fetch each of them."""
        self.pause()
        return self._walk(iter(batches))

    def _walk(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        with suppress(StopIteration):
            while True:
                yield self.fetch(batches)

    def begin(self) -> int:
        """Record that the fetch of a batch begins; return the current clock time in nanoseconds."""
        now = self._clock()
        if self._began is not None:
            # A step is complete only when the next fetch begins, so each call ends the step before.
            if self._opening:
                self._opening = False
            else:
                self.waited += self._fetch
                self.taken += now - self._began
                self.steps += 1
        self._began = now
        return now

    def end(self) -> None:
        """Record that the fetch of a batch has ended."""
        if self._began is not None:
            self._fetch = self._clock() - self._began

    def fetch(self, batches: Iterator[Batch]) -> Batch:
        """Fetch and return the next batch, and measure the time for this."""
        began = self.begin()
        batch = next(batches)
        self._fetch = self._clock() - began
        return batch

    def subtract(self, execution: int) -> None:
        """Subtract the time during which the device executed earlier steps from the fetches since the previous call.

        ``execution`` is the time in nanoseconds for which the device continues after the submission of a step. Nothing
        is subtracted from the first of these fetches, because the device was idle then.
        """
        fetched, steps = self.waited - self._waited_before, self.steps - self._steps_before
        self.waited -= min(fetched, max(0, steps - 1) * execution)
        self._waited_before, self._steps_before = self.waited, self.steps

    def result(self, method: str) -> InputWait | None:
        """Return the input wait, with ``method`` as the name of its measurement; None after too few steps."""
        if self.steps < MIN_FETCHED_STEPS:
            return None
        from vmselect.records.training import InputWait

        return InputWait(
            seconds=max(0, self.waited) / 1e9, wall_seconds=max(0, self.taken) / 1e9, steps=self.steps, method=method
        )


def watch_iterator(clock: FetchClock, owner: object) -> Callable[[], None] | None:
    """Measure each fetch from ``owner``, the epoch iterator of a running Keras ``fit`` with JAX or torch.

    Return a function that undoes the changes of ``owner``, or None if this version of Keras is not supported.
    """
    original = getattr(owner, "_get_iterator", None)
    if not callable(original):
        return None
    return _replace(owner, {"_get_iterator": lambda *args, **options: clock.watch(original(*args, **options))})


def time_fetches(clock: FetchClock, owner: object, first: str, last: str) -> Callable[[], None] | None:
    """Measure each fetch of a batch, from the call of ``owner``'s method ``first`` to the end of its method ``last``.

    Both may be the same method. Return a function that undoes the changes of ``owner``, or None if a method is missing.
    """
    functions = {name: getattr(owner, name, None) for name in (first, last)}
    if not all(map(callable, functions.values())):
        return None

    def watch(name: str, function: Any) -> Callable[..., Any]:
        def watched(*arguments: object, **options: object) -> Any:
            if name == first:
                clock.begin()
            result = function(*arguments, **options)
            if name == last:
                clock.end()
            return result

        return watched

    return _replace(owner, {name: watch(name, function) for name, function in functions.items()})


def _replace(owner: object, functions: Mapping[str, Callable[..., Any]]) -> Callable[[], None] | None:
    """Replace methods of the object ``owner``. Return a function that restores them, or None if this is impossible."""
    # A method that the object itself already overrides belongs to somebody else, who would not expect to lose it.
    if not hasattr(owner, "__dict__") or not functions.keys().isdisjoint(vars(owner)):
        return None
    vars(owner).update(functions)

    def undo() -> None:
        for name, function in functions.items():
            if vars(owner).get(name) is function:
                delattr(owner, name)

    return undo


def find_epoch_iterator(frame: FrameType | None) -> Any:
    """Return the epoch iterator of the Keras ``fit`` call among the callers of ``frame``; None if there is none."""
    return next(
        (local["epoch_iterator"] for name, local in walk_up(frame) if name == "fit" and "epoch_iterator" in local), None
    )


class TensorFlowTrace:
    """Traces a few steps with TensorFlow's profiler, without device events, from :meth:`begin` to :meth:`end`."""

    def __init__(self) -> None:
        self._tensorflow: Framework = sys.modules.get("tensorflow")
        self._folder: str | None = None
        self._began = 0.0
        self.result: InputWait | None = None

    def begin(self) -> bool:
        """Start tracing. Return whether the profiler could be started."""
        if self._folder is not None or self.result is not None:
            return False
        try:
            profiler = self._tensorflow.profiler.experimental
            # Level 2 of the host tracer contains the operations that fetch. Python and device events are not needed.
            options = profiler.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=0)
            self._folder = tempfile.mkdtemp(prefix="vmselect-trace-")
            profiler.start(self._folder, options=options)
        except Exception:  # noqa: BLE001 - an error of the profiler must not end the training
            self._remove_folder()
            return False
        self._began = time.perf_counter()
        return True

    def end(self, steps: int) -> InputWait | None:
        """Stop tracing after ``steps`` steps. Return the input wait, or None if it is unknown."""
        if self._folder is None:
            return None
        wall = time.perf_counter() - self._began
        try:
            self._tensorflow.profiler.experimental.stop()
            events = [event for file in Path(self._folder).rglob("*.xplane.pb") for event in read_fetches(file)]
            if events and steps >= 1 and wall > 0:
                from vmselect.records.training import InputWait

                # Several operations may fetch at once, for example one per device: overlapping waits count once.
                waited = min(wall, length_of_union(events))
                self.result = InputWait(seconds=waited, wall_seconds=wall, steps=steps, method="traced steps")
        except Exception:  # noqa: BLE001 - nor an error of protobuf about an unreadable trace
            self.result = None
        finally:
            self._remove_folder()
        return self.result

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def read_fetches(file: Path) -> list[tuple[float, float]]:
    """Return begin and end in seconds of every fetch in the trace ``file`` of TensorFlow's profiler."""
    if file.stat().st_size > MAX_TRACE_BYTES:
        raise ValueError(f"The trace {file.name} is larger than {MAX_TRACE_BYTES} bytes.")
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
    """Import TensorFlow's protobuf module for traces, whose name depends on the version."""
    try:
        return import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    except ImportError:
        return import_module("tensorflow.core.profiler.protobuf.xplane_pb2")


def length_of_union(spans: Iterable[tuple[float, float]]) -> float:
    """Return the time covered by at least one of the ``spans`` (begin, end), which may overlap.

    >>> length_of_union([(0, 2), (1, 3), (5, 6)])
    4.0
    """
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


class StepTrace:
    """Chooses a few steps of a Keras ``fit`` and traces them with TensorFlow's profiler, at most once per training.

    If the probe ends epochs early, the traced steps follow the measured steps. If it does not, or if too few steps
    follow, some of the measured steps are traced.
    """

    def __init__(self, trace: TensorFlowTrace | None = None, *, steps_per_execution: int = 1) -> None:
        self._trace = trace
        self._steps = TRACED_STEPS * steps_per_execution
        self._excluded = ExitStack()
        self._first = self._seen = 0
        self.running = False
        self.until: float = math.inf

    def room(self, batch: float, last_batch: float) -> float:
        """Return the number of steps to trace after ``batch``, ending before ``last_batch``; 0 if there are too few."""
        # The last batch of an epoch may be smaller and compile anew, so it is not traced.
        room = 0.0 if self._trace is None else min(self._steps, last_batch - batch - 1)
        return room if room >= MIN_TRACED_STEPS else 0

    def latest(self, last_batch: float) -> float:
        """Return the last batch after which a complete trace fits before ``last_batch``; infinite if tracing is off."""
        return math.inf if self._trace is None else last_batch - 1 - self._steps

    def plan_in_passing(self, earliest: int, last_batch: float) -> float:
        """Return the batch after which to trace in an epoch that is not ended early; infinite if no trace fits.

        This is the batch ``earliest``, or an earlier one if a trace would not fit before ``last_batch``.
        """
        at = min(earliest, self.latest(last_batch))
        return at if at >= SETTLED_STEPS and self.room(at, last_batch) else math.inf

    def begin(self, batch: int, last_batch: float, *, timer: StepTimer | None = None) -> bool:
        """Start tracing the steps after ``batch``, and make ``timer`` exclude them. Return whether tracing started."""
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
        """Record the end of the traced step ``batch``. Return whether it was the last step to trace."""
        self._seen = batch
        return batch >= self.until

    def end(self) -> None:
        """Stop tracing, if steps are being traced. Idempotent."""
        if self._trace is not None and self.running:
            self._trace.end(self._seen - self._first)
            self._excluded.close()
            self._trace, self.running = None, False
