"""Probes of inference: a callback for Keras' ``predict`` and ``evaluate``, and a load generator for any function.

The load generator (:class:`Load`) calls a function from several client threads and measures the latency of the calls.
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
from types import FrameType, TracebackType
from typing import Any, Literal, NamedTuple

from vmselect._checks import (
    check_callable,
    check_count,
    check_name,
    check_number,
    check_seconds,
    list_items,
    maybe,
    show,
    suggest_fields,
)
from vmselect.errors import ArgumentError, ProbeError, ProfileError
from vmselect.probe.endings import EndWatch, classify
from vmselect.probe.environment import attempt, count_parameters, name_model
from vmselect.probe.keras import Logs, PlainCallback, find_call, positive
from vmselect.probe.options import CommonOptions, check_target, choose_path
from vmselect.probe.recording import MachineFacts, read_facts, warn_of
from vmselect.probe.sampling import Observation, watch_call
from vmselect.probe.timer import Reservoir
from vmselect.records.inference import (
    GROWTH,
    Calls,
    InferenceRecord,
    InferenceSetup,
    Label,
    bucket_of,
    bucket_seconds,
    count_buckets,
)
from vmselect.records.step_times import detect_warmup
from vmselect.records.training import Ending
from vmselect.units import format_count, format_seconds

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


MAX_CLIENTS = 1_000


def build_calls(tally: CallTally) -> Calls:
    """Return the measured calls for a record.

    Calls count as warm-up until the first one whose service time per item is close to that of later calls.
    """
    readings = tally.readings()
    # All of the first calls are kept. The random sample of later calls contains no information on the warm-up.
    sampled = (position for position, reading in enumerate(readings) if reading.number != position)
    first = readings[: next(sampled, len(readings))]
    # Warm-up is detected by service time per item, which excludes the time in the queue.
    warmup = detect_warmup([reading.service_ns / reading.items for reading in first])
    warm, steady = readings[:warmup], readings[warmup:]
    total = tally.calls - warmup
    left = tally.histogram - Counter(count_buckets([reading.latency_ns / 1e9 for reading in warm]))
    counts = dict(sorted(left.items()))
    longest = tally.longest_ns
    if warm and longest == max(reading.latency_ns for reading in warm):
        if len(steady) == total:
            longest = max(reading.latency_ns for reading in steady) if steady else 0
        else:
            longest = min(longest, round(bucket_seconds(max(counts)) * GROWTH**0.5 * 1e9))
    labels: list[Label] = ["warmup" if position < warmup else "steady" for position in range(len(readings))]
    return Calls(
        total=total,
        items=tally.items - sum(reading.items for reading in warm),
        latency_seconds=(tally.latency_ns - sum(reading.latency_ns for reading in warm)) / 1e9,
        service_seconds=(tally.service_ns - sum(reading.service_ns for reading in warm)) / 1e9,
        longest_seconds=longest / 1e9 if total else 0.0,
        seconds=max(0.0, tally.seconds() - steady[0].intended_ns / 1e9) if total else 0.0,
        number=tuple(reading.number for reading in readings),
        start=tuple(reading.intended_ns / 1e9 for reading in readings),
        latency=tuple(reading.latency_ns / 1e9 for reading in readings),
        service=tuple(reading.service_ns / 1e9 for reading in readings),
        batch=tuple(reading.items for reading in readings),
        label=tuple(labels),
        buckets=tuple(counts),
        counts=tuple(counts.values()),
    )


def describe(record: InferenceRecord) -> str:
    """Return one line of text with the number of calls, latency percentiles and throughput of ``record``."""
    calls, rate = record.calls, record.items_per_second
    shown = [f"p{percent} {format_seconds(value)}" for percent in (50, 99) if (value := calls.percentile(percent))]
    if rate is not None:
        shown.append(f"{rate:,.0f} items/s" if rate >= 100 else f"{rate:.3g} items/s")
    if record.failed:
        shown.append(f"{record.failed:,} failed")
    return f"{format_count(calls.total, 'call')}, {', '.join(shown)}" if shown else "no calls"


@dataclass(eq=False, repr=False, kw_only=True)
class _LoadProbe(CommonOptions):
    """Settings of both probes of inference, and methods that build and save a record."""

    bytes_per_item: float | None = None
    clock: Clock = time.perf_counter_ns

    def __post_init__(self) -> None:
        super().__post_init__()
        self.target = choose_path(self.path)
        self.bytes_per_item = maybe(check_number, "bytes_per_item", self.bytes_per_item, least=0)

    def _read_facts(self, model: Any = None) -> MachineFacts:
        check_target(self.target, "inference")
        return read_facts(instance_type=self.instance_type, region=self.region, model=model, factors=self.factors)

    def _build(self, tally: CallTally, setup: InferenceSetup, detail: str | None, **facts: Any) -> InferenceRecord:
        """Build the record of the calls in ``tally``. ``detail`` describes what interrupted them, if anything."""
        return InferenceRecord(
            outcome="whole" if detail is None else "interrupted",
            detail=detail,
            setup=setup,
            calls=build_calls(tally),
            errors=dict(tally.errors),
            **facts,
        )

    def _save(self, record: InferenceRecord, *, announce: bool) -> None:
        where = f"; record in {record.save(self.target)}" if self.target is not None else ""
        if announce:
            self.print_line(f"{describe(record)}{where}")


class _Caller(NamedTuple):
    """Arguments of the running ``predict`` or ``evaluate``, which Keras does not pass to callbacks; None if unknown."""

    batch_size: int | None = None
    partial_batch: int | None = None
    bytes_per_item: float | None = None
    threaded: bool = False
    callback_list: Any = None


@suggest_fields
@dataclass(eq=False, repr=False, kw_only=True)
class InferenceProbe(_LoadProbe, PlainCallback):
    """Callback that measures every batch of ``model.predict`` or ``model.evaluate`` and writes an inference record.

    The time of a batch begins at the end of the previous batch, so it includes fetching the data. The first batch,
    during which Keras traces and compiles the model, is recorded separately. The result of ``predict`` does not change,
    unless ``calls`` stops it early. Validations inside ``fit`` are ignored.

    Args:
        path: file for the record, or folder in which each call of ``predict`` or ``evaluate`` writes a record.
        calls: number of batches after which to stop; ``predict`` then returns the outputs of these batches only.
        batch_size: number of items in a batch; required only if it cannot be read from the data.
        bytes_per_item: size of an item in bytes; required only if the data is not an array.
        sample: seconds between two samples of machine usage; with None, usage is not sampled.

    >>> probe = InferenceProbe(path=False, instance_type="my-laptop")
    >>> # model.predict(x, callbacks=[probe]); probe.record.items_per_second
    """

    calls: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls = maybe(check_count, "calls", self.calls)
        self.params = {}
        self._record: InferenceRecord | None = None
        self._reset()

    def _reset(self) -> None:
        self._source: Literal["predict", "evaluate"] | None = None
        self._caller = _Caller()
        self._machine: MachineFacts | None = None
        self._watch: EndWatch | None = None
        self._observation = Observation(None)
        self._tally = CallTally()
        self._first_seconds: float | None = None
        self._mark = self._calls_seen = self._steps_seen = 0
        self._cut_short = False

    def __getstate__(self) -> dict[str, Any]:
        # A copy is a fresh probe with the same settings: a recording belongs to one call in one process.
        return {name: value for name, value in self.__dict__.items() if name[0] != "_" or name == "_record"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    @property
    def record(self) -> InferenceRecord:
        """The :class:`InferenceRecord` of the last ``predict`` or ``evaluate``."""
        if self._record is None:
            raise ProbeError("Nothing has been measured yet. Call model.predict(x, callbacks=[probe]) first.")
        return self._record

    def on_predict_begin(self, logs: Logs = None) -> None:
        """Start recording a ``predict``. Called by Keras."""
        self._begin("predict", sys._getframe(1))

    def on_test_begin(self, logs: Logs = None) -> None:
        """Start recording an ``evaluate``, unless it is a validation inside ``fit``. Called by Keras."""
        self._begin("evaluate", sys._getframe(1))

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Record the time of a batch. Called by Keras."""
        if self._source is None:
            return
        settle((logs or {}).get("outputs"))
        now = self.clock()
        # With steps_per_execution, Keras calls once for several steps.
        covers = max(1, batch + 1 - self._steps_seen)
        self._steps_seen = batch + 1
        if self._first_seconds is None:
            self._first_seconds = (now - self._mark) / 1e9
            self._tally = CallTally()
            self._tally.begin(now)
            self._observation.enter("calls")
        else:
            size = self.batch_size or self._caller.batch_size
            items = covers * (size or 1)
            if size and self._caller.partial_batch and self._steps_seen == self.params.get("steps"):
                items = max(1, items - size + self._caller.partial_batch)
            self._tally.add(self._calls_seen - 1, self._mark, self._mark, now, Batch(None, items, None))
        self._mark = now
        self._calls_seen += 1
        if self.calls is not None and self._calls_seen >= self.calls and not self._cut_short:
            self._cut_short = True
            setattr(self._model, "stop_predicting" if self._source == "predict" else "stop_evaluating", True)

    def on_predict_end(self, logs: Logs = None) -> None:
        """Build and save the record of a ``predict`` or ``evaluate``. Called by Keras."""
        if self._source is not None:
            self._end(None)

    on_test_batch_end, on_test_end = on_predict_batch_end, on_predict_end

    def _begin(self, source: Literal["predict", "evaluate"], frame: FrameType | None) -> None:
        if self._watch is not None:
            self._end("Keras did not report the end of the call")  # an earlier call that raised
        self._reset()
        if find_call(frame, "fit")[0] is not None:
            return  # a validation belongs to the training's record
        self._caller = caller = read_caller(frame, source)
        if caller.threaded:
            raise ProbeError(
                "Keras would call this probe from worker threads, where it cannot measure batch times. "
                "Pass the probe in a list: model.predict(..., callbacks=[probe])."
            )
        self._machine = self._read_facts(self._model)
        self._source = source
        anchor = self._model if caller.callback_list is None else caller.callback_list
        self._watch = EndWatch(self._end_unreported, anchor=anchor)
        self._watch.guard(self._model, "predict_function" if source == "predict" else "test_function")
        self._observation = Observation(self.sample)
        self._observation.start(None if frame is None else watch_call(frame, source))
        self._observation.enter("first_call")
        self._mark = self.clock()

    def _end_unreported(self, error: BaseException | None, ending: Ending | None) -> None:
        self._end(classify(error, ending).detail)

    def _end(self, detail: str | None) -> None:
        """Build and save the record. ``detail`` describes what interrupted the calls; None if nothing did."""
        source, machine, watch = self._source, self._machine, self._watch
        self._source, self._watch = None, None
        self._observation.end()
        if watch is not None:
            watch.stop()
        if source is None or machine is None or self._first_seconds is None:
            return
        setup = InferenceSetup(
            source=source,
            model=name_model(self._model),
            parameters=count_parameters(self._model),
            batch_size=self.batch_size or self._caller.batch_size,
            bytes_per_item=self.bytes_per_item or self._caller.bytes_per_item,
        )
        facts = {"first_seconds": self._first_seconds, "usage": self._observation.usage, **machine}
        self._record = self._build(self._tally, setup, detail, **facts)
        if machine["environment"].worker_index == 0:  # several workers would write one measurement several times
            try:
                self._save(self._record, announce=self._cut_short or self.path is None)
            except ProfileError as problem:  # the outputs of `predict` must not be lost
                warn_of(problem)


def read_caller(frame: FrameType | None, name: str) -> _Caller:
    """Read the arguments of the running ``predict`` or ``evaluate`` (``name``) from the callers of ``frame``."""
    local, callback_list = find_call(frame, name)
    local = local or {}
    adapter: Any = getattr(local.get("epoch_iterator"), "data_adapter", None)
    data = local.get("x")
    total, shape = count_bytes(data), getattr(data, "shape", None)
    return _Caller(
        # Keras raises an error if a custom dataset does not have a batch size.
        batch_size=positive(attempt(lambda: adapter.batch_size)),
        partial_batch=positive(attempt(lambda: adapter.partial_batch_size)),
        bytes_per_item=total / int(shape[0]) if total is not None and shape and shape[0] else None,
        threaded=bool(getattr(callback_list, "_async_predict" if name == "predict" else "_async_test", False)),
        callback_list=callback_list,
    )


@suggest_fields
@dataclass(eq=False, repr=False, kw_only=True)
class CallProbe(_LoadProbe):
    """Context manager that calls a function under load and measures its latency; made by :func:`probe_inference`.

    Args:
        path: file for the record, or folder in which each :meth:`run` writes a record.
        batch_size: number of items in each call.
        clients: number of threads that make calls at the same time.
        rate: calls per second (an open loop); the latency of a call begins at its scheduled start. By default each
            client makes its next call when its previous call has returned (a closed loop).
        seconds: time after which to end the load; by default it ends when all inputs have been used.
        warmup: number of warm-up calls after the first call. The first call and these are recorded separately.
        model: name of the model for the record; by default the name of the function.
        bytes_per_item: size of an item in bytes; required only if the inputs are neither arrays nor bytes.
        sample: seconds between two samples of machine usage; with None, usage is not sampled.
        errors: exception classes that count as failed calls; any other exception ends the run.
        synchronize: function that waits until the result of a call has been computed; by default, results of
            TensorFlow, JAX and torch are waited for.

    >>> with CallProbe(path=False, batch_size=4, instance_type="my-laptop", verbose=0) as p:
    ...     record = p.run(sum, [[1, 2, 3, 4]] * 50)
    >>> record.calls.total <= 49, record.batch_size, record.setup.rate, record is p.record
    (True, 4, None, True)
    """

    clients: int = 1
    rate: float | None = None
    seconds: float | None = None
    warmup: int = 0
    model: str | None = None
    errors: type[BaseException] | Iterable[type[BaseException]] = OSError
    synchronize: Callable[[object], object] | None = None
    sleep: Sleep | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clients = check_count("clients", self.clients, most=MAX_CLIENTS)
        self.rate = maybe(check_number, "rate", self.rate, above=0, most=1e6)
        self.seconds = maybe(check_seconds, "seconds", self.seconds, above=0)
        self.warmup = check_count("warmup", self.warmup, least=0, most=100_000)
        self.model = maybe(check_name, "model", self.model)
        self._failures = (self.errors,) if isinstance(self.errors, (str, type)) else tuple(list_items(self.errors))
        for kind in self._failures:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise ArgumentError(f"errors must be exception classes, such as ConnectionError, not {show(kind)}.")
        self._synchronize = maybe(check_callable, "synchronize", self.synchronize) or settle
        self._machine: MachineFacts | None = None
        self.records: list[InferenceRecord] = []
        """Records of all runs, in chronological order."""

    @property
    def record(self) -> InferenceRecord:
        """Record of the last call of :meth:`run`."""
        if not self.records:
            raise ProbeError("Nothing has been measured yet. Call p.run(function, inputs) inside the with block first.")
        return self.records[-1]

    def __enter__(self) -> CallProbe:
        self._machine = self._read_facts()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._machine = None

    def run(self, function: Callable[[Any], Any], inputs: Any, *, calls: int | None = None) -> InferenceRecord:
        """Call ``function`` with each input, in order; write and return the record.

        An array is split into batches of ``batch_size``. Each element of a list or a generator is the input of a call.
        By default each input is used once. ``calls`` is the number of calls to make instead: an array or a list is
        repeated as often as necessary; a generator is read only once, so there may be fewer calls.
        """
        if self._machine is None:
            raise ProbeError("p.run was called outside the with block. Call it inside `with probe_inference() as p:`.")
        if not callable(function):
            raise ArgumentError(f"function must be callable, not {show(function)}.")
        batches = cut_batches(inputs, batch_size=self.batch_size, calls=maybe(check_count, "calls", calls))
        first = next(batches, None)
        if first is None:
            raise ArgumentError("inputs is empty. Pass at least one input.")
        run = _Run(self, function, first, self._machine)
        try:
            run.make_first_calls(batches)
            run.observation.enter("calls")
            Load(
                function, batches, run.tally, clients=self.clients, rate=self.rate, seconds=self.seconds,
                failures=self._failures, synchronize=self._synchronize, clock=self.clock, sleep=self.sleep,
            ).run()  # fmt: skip
        except BaseException as error:
            run.end(classify(error).detail)
            raise
        return run.end(None)


class _Run:
    """One run of a :class:`CallProbe`: first call, warm-up calls, load, and record."""

    def __init__(self, probe: CallProbe, function: Callable[[Any], Any], first: Batch, machine: MachineFacts) -> None:
        self._probe, self._function, self._first, self._machine = probe, function, first, machine
        self.tally = CallTally()
        self._seconds: list[float] = []
        self._ended = False
        self.observation = Observation(probe.sample)
        self._watch = EndWatch(self._end_unreported, anchor=self)
        self.observation.start()

    def make_first_calls(self, batches: Any) -> None:
        """Make the first call and the warm-up calls, and measure their times."""
        clock, synchronize = self._probe.clock, self._probe._synchronize
        self.observation.enter("first_call")
        batch: Batch | None = self._first
        while batch is not None:
            start = clock()
            synchronize(self._function(batch.value))
            self._seconds.append((clock() - start) / 1e9)
            batch = next(batches, None) if len(self._seconds) <= self._probe.warmup else None

    def _end_unreported(self, error: BaseException | None, ending: Ending | None) -> None:
        self.end(classify(error, ending).detail or "the end of the run was not reported")

    def end(self, detail: str | None) -> InferenceRecord:
        """Build, save and return the record. ``detail`` describes what interrupted the run, if anything. Idempotent."""
        probe = self._probe
        if self._ended:
            return probe.record
        self._ended = True
        self.observation.end()
        self._watch.stop()
        name = getattr(self._function, "__name__", None) or type(self._function).__name__
        setup = InferenceSetup(
            source="callable",
            model=probe.model or (name if isinstance(name, str) and name.isidentifier() else None),
            batch_size=probe.batch_size or self._first.items,
            clients=probe.clients,
            rate=probe.rate,
            bytes_per_item=self._bytes_per_item() if probe.bytes_per_item is None else probe.bytes_per_item,
        )
        record = probe._build(
            self.tally,
            setup,
            detail,
            first_seconds=self._seconds[0] if self._seconds else None,
            preparing=tuple(self._seconds[1:]),
            usage=self.observation.usage,
            **self._machine,
        )
        probe.records.append(record)
        if self._seconds or record.outcome == "whole":
            probe._save(record, announce=record.outcome == "whole")
        return record

    def _bytes_per_item(self) -> float | None:
        if self.tally.calls:
            return self.tally.size_bytes / self.tally.sized_items if self.tally.sized_items else None
        return None if self._first.size_bytes is None else self._first.size_bytes / self._first.items


probe_inference = CallProbe
