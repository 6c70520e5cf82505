"""Probes of inference: a callback for Keras' ``predict`` and ``evaluate``, and a load generator for any function."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
)
from vmselect.errors import ArgumentError, ProbeError, ProfileError
from vmselect.probe.environment import attempt, count_parameters, name_model
from vmselect.probe.exit_hooks import EndWatch, classify
from vmselect.probe.keras import Logs, PlainCallback, find_call, positive
from vmselect.probe.load_generator import Batch, CallTally, Clock, Load, Sleep, count_bytes, cut_batches, settle
from vmselect.probe.options import CommonOptions, check_target, choose_path, warn_of
from vmselect.probe.recording import MachineFacts, read_facts
from vmselect.probe.sampling import Observation, watch_call
from vmselect.records.inference import (
    GROWTH,
    Calls,
    InferenceRecord,
    InferenceSetup,
    Label,
    bucket_seconds,
    count_buckets,
)
from vmselect.records.step_times import detect_warmup
from vmselect.units import count_of, format_seconds

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
    return f"{count_of(calls.total, 'call')}, {', '.join(shown)}" if shown else "no calls"


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

    def _build(
        self, tally: CallTally, setup: InferenceSetup, end: tuple[BaseException | None, str | None], **facts: Any
    ) -> InferenceRecord:
        """Build the record of the calls in ``tally``.

        ``end`` contains the exception or the text that describes what interrupted them; (None, None) if nothing did.
        """
        interrupted = end != (None, None)
        return InferenceRecord(
            outcome="interrupted" if interrupted else "whole",
            detail=classify(*end)[1] if interrupted else None,
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
            self._end(None, None)

    on_test_batch_end, on_test_end = on_predict_batch_end, on_predict_end

    def _begin(self, source: Literal["predict", "evaluate"], frame: FrameType | None) -> None:
        if self._watch is not None:
            self._end(None, "Keras did not report the end of the call")  # an earlier call that raised
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
        self._watch = EndWatch(self._end, anchor=anchor)
        self._watch.guard(self._model, "predict_function" if source == "predict" else "test_function")
        self._observation = Observation(self.sample)
        self._observation.start(None if frame is None else watch_call(frame, source))
        self._observation.enter("first_call")
        self._mark = self.clock()

    def _end(self, error: BaseException | None, detail: str | None) -> None:
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
        self._record = self._build(self._tally, setup, (error, detail), **facts)
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
            run.end(error, None)
            raise
        return run.end(None, None)


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

    def _end_unreported(self, error: BaseException | None, detail: str | None) -> None:
        self.end(error, detail or "the end of the run was not reported")

    def end(self, error: BaseException | None, detail: str | None) -> InferenceRecord:
        """Build, save and return the record. ``error`` or ``detail`` describe what interrupted the run. Idempotent."""
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
            (error, detail),
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
