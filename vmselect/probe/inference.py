"""From a tally to a record: warm-up found, sums corrected for it, facts about the machine added, the file written."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, NamedTuple

from vmselect._checks import check_count, check_name, check_number, check_path, check_seconds, list_items, maybe, show
from vmselect.errors import ArgumentError, ProbeError
from vmselect.probe.environment import attempt, count_parameters, name_model
from vmselect.probe.exit_hooks import EndWatch, classify
from vmselect.probe.keras_callbacks import Logs, PlainCallback
from vmselect.probe.keras_fit import find_call, positive
from vmselect.probe.load_generator import (
    Batch,
    Clock,
    Failures,
    Load,
    Reading,
    Sleep,
    Tally,
    count_bytes,
    cut_batches,
    settle,
)
from vmselect.probe.monitoring import Observation, check_sample, watch_call
from vmselect.probe.options import Factors, check_factors, check_target, choose_path
from vmselect.probe.recording import MachineFacts, read_facts
from vmselect.records.inference import Calls, InferenceRecord, InferenceSetup, Label, subtract_counts
from vmselect.records.warmup import detect_warmup
from vmselect.units import format_seconds


def build_calls(tally: Tally) -> Calls:
    """The calls of a load. Those at its start whose service times stand apart from the later ones are warm-up."""
    readings = tally.readings()
    labels = label_calls(readings)
    warm = [reading for reading, label in zip(readings, labels, strict=True) if label == "warmup"]
    total = tally.calls - len(warm)
    counts = subtract_counts(tally.histogram, [reading.latency_ns / 1e9 for reading in warm])
    steady_from = readings[len(warm)].intended_ns if total else 0
    longest = tally.longest_ns
    if warm and longest == max(reading.latency_ns for reading in warm):
        kept = [reading.latency_ns for reading in readings[len(warm) :]]
        longest = max(kept) if len(kept) == total else min(longest, round(_top_edge(counts) * 1e9))
    return Calls(
        total=total,
        items=tally.items - sum(reading.items for reading in warm),
        latency_seconds=(tally.latency_ns - sum(reading.latency_ns for reading in warm)) / 1e9,
        service_seconds=(tally.service_ns - sum(reading.service_ns for reading in warm)) / 1e9,
        longest_seconds=longest / 1e9 if total else 0.0,
        seconds=max(0.0, tally.seconds() - steady_from / 1e9) if total else 0.0,
        number=tuple(reading.number for reading in readings),
        start=tuple(reading.intended_ns / 1e9 for reading in readings),
        latency=tuple(reading.latency_ns / 1e9 for reading in readings),
        service=tuple(reading.service_ns / 1e9 for reading in readings),
        batch=tuple(reading.items for reading in readings),
        label=labels,
        buckets=tuple(counts),
        counts=tuple(counts.values()),
    )


def label_calls(readings: Sequence[Reading]) -> tuple[Label, ...]:
    """Warm-up or steady, by service time per item: waiting in a queue is no warming up."""
    # Only the first calls in a row are all kept; a sample of later ones has no information on the start.
    row = 0
    while row < len(readings) and readings[row].number == row:
        row += 1
    warm = detect_warmup([reading.service_ns / reading.items for reading in readings[:row]])
    return tuple("warmup" if position < warm else "steady" for position in range(len(readings)))


def keep_record(record: InferenceRecord, path: Path | None, *, announce: bool) -> None:
    """Write the record, if there is a path, and print one line about it if ``announce``."""
    where = f"; record in {record.save(path)}" if path is not None else ""
    if announce:
        sys.stdout.write(describe(record, where) + "\n")
        sys.stdout.flush()


def describe(record: InferenceRecord, where: str = "") -> str:
    """One line about a load."""
    calls = record.calls
    shown = [f"p{percent} {format_seconds(value)}" for percent in (50, 99) if (value := calls.percentile(percent))]
    rate = record.items_per_second
    if rate is not None:
        shown.append(f"{rate:,.0f} items/s" if rate >= 100 else f"{rate:.3g} items/s")
    if record.failed:
        shown.append(f"{record.failed:,} failed")
    return f"vmselect: {calls.total:,} calls, {', '.join(shown)}{where}" if shown else f"vmselect: no calls{where}"


def make_setup(tally: Tally, *, bytes_per_item: float | None, **facts: Any) -> InferenceSetup:
    """The setup of a load; the size of an item is as given, else as the inputs showed."""
    if bytes_per_item is None and tally.sized_items:
        bytes_per_item = tally.size_bytes / tally.sized_items
    return InferenceSetup(bytes_per_item=bytes_per_item, **facts)


def _top_edge(counts: Mapping[int, int]) -> float:
    from vmselect.records.latency_histogram import GROWTH, value_of

    return value_of(max(counts)) * GROWTH**0.5 if counts else 0.0


# The probe that is a callback of ``model.predict`` and ``model.evaluate``.


THREADED = (
    "Keras would call this probe from worker threads, where times mean nothing. "
    "Pass the probe in a list: model.predict(..., callbacks=[probe])."
)


class _Caller(NamedTuple):
    """What the running ``predict`` or ``evaluate`` knows and does not pass to callbacks; None is unknown."""

    batch_size: int | None = None
    partial_batch: int | None = None
    bytes_per_item: float | None = None
    threaded: bool = False
    callback_list: Any = None


class InferenceProbe(PlainCallback):
    """Times every batch of ``model.predict`` or ``model.evaluate`` and leaves an inference record.

    A batch is read from the end of the one before it, so that fetching its data is part of it. The first batch,
    which traces and compiles, is kept apart. Nothing of what ``predict`` returns is changed, unless ``calls`` says
    after how many batches it is to stop. The validations inside ``fit`` are passed over.

    Args:
        path: a file, or a folder in which each prediction leaves its record.
        calls: stop after this many batches; ``predict`` then returns their outputs only.
        batch_size: items in a batch, where the data does not have it.
        bytes_per_item: size of an item, where the data does not have it (arrays do).
        sample: seconds between two samples of machine usage; None takes no samples.

    >>> probe = InferenceProbe(instance_type="my-laptop")
    >>> # model.predict(x, callbacks=[probe]); probe.record.items_per_second
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        calls: int | None = None,
        batch_size: int | None = None,
        bytes_per_item: float | None = None,
        instance_type: str | None = None,
        region: str | None = None,
        factors: Factors | None = None,
        sample: float | None = 1.0,
        verbose: int = 1,
        clock: Clock = time.perf_counter_ns,
    ) -> None:
        self.path = choose_path(maybe(check_path, "path", path))
        self.calls = maybe(check_count, "calls", calls)
        self.batch_size = maybe(check_count, "batch_size", batch_size)
        self.bytes_per_item = maybe(check_number, "bytes_per_item", bytes_per_item, least=0)
        self.instance_type = maybe(check_name, "instance_type", instance_type)
        self.region = maybe(check_name, "region", region)
        self.factors = check_factors("factors", factors)
        self.sample, _ = check_sample(sample, None)
        self.verbose = check_count("verbose", verbose, least=0)
        self.clock = clock
        self.params = {}
        self._record: InferenceRecord | None = None
        self._reset()

    def _reset(self) -> None:
        self._source: Literal["predict", "evaluate"] | None = None
        self._caller = _Caller()
        self._machine: MachineFacts | None = None
        self._watch: EndWatch | None = None
        self._observation = Observation(None)
        self._tally = Tally()
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
        """The :class:`InferenceRecord` of the last prediction or evaluation."""
        if self._record is None:
            raise ProbeError("Nothing has been measured yet. Call model.predict(x, callbacks=[probe]) first.")
        return self._record

    # -- hooks -------------------------------------------------------------------------------------------------------

    def on_predict_begin(self, logs: Logs = None) -> None:
        """Start recording."""
        self._begin("predict", sys._getframe(1))

    def on_test_begin(self, logs: Logs = None) -> None:
        """Start recording, unless this is a validation inside a training."""
        self._begin("evaluate", sys._getframe(1))

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        """A batch has been answered."""
        if self._source == "predict":
            self._end_batch(batch, logs)

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """A batch has been evaluated."""
        if self._source == "evaluate":
            self._end_batch(batch, logs)

    def on_predict_end(self, logs: Logs = None) -> None:
        """Keep the record."""
        if self._source == "predict":
            self._end(None, None)

    def on_test_end(self, logs: Logs = None) -> None:
        """Keep the record."""
        if self._source == "evaluate":
            self._end(None, None)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _begin(self, source: Literal["predict", "evaluate"], frame: FrameType | None) -> None:
        if self._watch is not None:
            self._end(None, "its end was not reported")  # an earlier call that raised
        self._reset()
        caller = read_caller(frame, source)
        if caller is None:
            return
        if caller.threaded:
            raise ProbeError(THREADED)
        check_target(self.path, "inference")
        self._machine = read_facts(
            instance_type=self.instance_type, region=self.region, model=self._model, factors=self.factors
        )
        self._caller, self._source = caller, source
        listed = caller.callback_list
        self._watch = EndWatch(self._end, anchor=self._model if listed is None else listed)
        self._watch.guard(self._model, "predict_function" if source == "predict" else "test_function")
        self._observation = Observation(self.sample)
        self._observation.start(None if frame is None else watch_call(frame, source))
        self._observation.enter("first_call")
        self._mark = self.clock()
        self._tally.begin(self._mark)

    def _end_batch(self, batch: int, logs: Logs) -> None:
        settle((logs or {}).get("outputs"))
        now = self.clock()
        covers = max(1, batch + 1 - self._steps_seen)
        self._steps_seen = batch + 1
        if self._first_seconds is None:
            self._first_seconds = (now - self._mark) / 1e9
            self._tally = Tally()
            self._tally.begin(now)
            self._observation.enter("calls")
        else:
            self._tally.add(self._calls_seen - 1, self._mark, self._mark, now, self._items(covers))
        self._mark = now
        self._calls_seen += 1
        if self.calls is not None and self._calls_seen >= self.calls and not self._cut_short:
            self._cut_short = True
            setattr(self._model, "stop_predicting" if self._source == "predict" else "stop_evaluating", True)

    def _items(self, covers: int) -> Batch:
        size = self.batch_size or self._caller.batch_size
        if size is None:
            return Batch(None, covers, None)
        items = covers * size
        if self._caller.partial_batch and self._steps_seen == self.params.get("steps"):
            items -= size - self._caller.partial_batch
        return Batch(None, max(1, items), None)

    def _end(self, error: BaseException | None, detail: str | None) -> None:
        source, machine, watch = self._source, self._machine, self._watch
        self._source, self._watch = None, None
        self._observation.end()
        if watch is not None:
            watch.stop()
        if source is None or machine is None or self._first_seconds is None:
            return
        interrupted = error is not None or detail is not None
        self._record = record = InferenceRecord(
            outcome="interrupted" if interrupted else "whole",
            detail=classify(error, detail)[1] if interrupted else None,
            setup=make_setup(
                self._tally,
                source=source,
                model=name_model(self._model),
                parameters=count_parameters(self._model),
                batch_size=self.batch_size or self._caller.batch_size,
                bytes_per_item=self.bytes_per_item or self._caller.bytes_per_item,
            ),
            first_seconds=self._first_seconds,
            calls=build_calls(self._tally),
            usage=self._observation.usage,
            **machine,
        )
        if machine["environment"].worker_index == 0:
            keep_record(record, self.path, announce=bool(self.verbose and self._cut_short))


def read_caller(frame: FrameType | None, name: str) -> _Caller | None:
    """The facts of the ``predict`` or ``evaluate`` that is running above ``frame``; None for one inside ``fit``."""
    if find_call(frame, "fit")[0] is not None:
        return None
    local, callback_list = find_call(frame, name)
    flag = "_async_predict" if name == "predict" else "_async_test"
    found = _Caller() if local is None else _read_locals(local)
    return found._replace(threaded=bool(getattr(callback_list, flag, False)), callback_list=callback_list)


def _read_locals(local: dict[str, Any]) -> _Caller:
    adapter: Any = getattr(local.get("epoch_iterator"), "data_adapter", None)
    # A data set of the user's own does not know, and Keras then raises.
    size, partial = positive(attempt(lambda: adapter.batch_size)), positive(attempt(lambda: adapter.partial_batch_size))
    data = local.get("x")
    total, length = count_bytes(data), getattr(data, "shape", None)
    return _Caller(size, partial, total / int(length[0]) if total is not None and length and length[0] else None)


# The probe for anything that can be called: a model, a client of a service, a function.


MOST_CLIENTS = 1_000


class CallProbe:
    """A context in which a function is called and timed; call it :func:`vmselect.probe_inference`.

    Args:
        path: a file, or a folder in which every run leaves its record.
        batch_size: items in each call.
        clients: threads that call at the same time.
        rate: calls per second in an open loop, in which latency counts from the moment at which a call was due;
            without it each client calls again as soon as it has its answer (a closed loop).
        seconds: ends the load after this time.
        warmup: calls to make before the load, beside the very first one, which is always made alone and kept apart.
        model: name of what is called.
        bytes_per_item: size of an item, where the inputs do not have it (arrays and bytes do).
        sample: seconds between two samples of machine usage; None takes no samples.
        errors: exceptions that count as failed calls; any other ends the run.
        synchronize: given an answer, waits until it is there; without it, JAX and torch are waited for.

    >>> with CallProbe(batch_size=4, instance_type="my-laptop", verbose=0) as p:
    ...     record = p.run(sum, [[1, 2, 3, 4]] * 50)
    >>> record.calls.total <= 49, record.batch_size, record.setup.rate, record is p.record
    (True, 4, None, True)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        batch_size: int | None = None,
        clients: int = 1,
        rate: float | None = None,
        seconds: float | None = None,
        warmup: int = 0,
        model: str | None = None,
        bytes_per_item: float | None = None,
        instance_type: str | None = None,
        region: str | None = None,
        factors: Factors | None = None,
        sample: float | None = 1.0,
        errors: type[BaseException] | Iterable[type[BaseException]] = OSError,
        synchronize: Callable[[Any], Any] | None = None,
        verbose: int = 1,
        clock: Clock = time.perf_counter_ns,
        sleep: Sleep | None = None,
    ) -> None:
        self._path = choose_path(maybe(check_path, "path", path))
        self._batch_size = maybe(check_count, "batch_size", batch_size)
        self._clients = check_count("clients", clients, most=MOST_CLIENTS)
        self._rate = maybe(check_number, "rate", rate, above=0, most=1e6)
        self._seconds = maybe(check_seconds, "seconds", seconds, above=0)
        self._warmup = check_count("warmup", warmup, least=0, most=100_000)
        self._model = maybe(check_name, "model", model)
        self._bytes_per_item = maybe(check_number, "bytes_per_item", bytes_per_item, least=0)
        self._instance_type = maybe(check_name, "instance_type", instance_type)
        self._region = maybe(check_name, "region", region)
        self._factors = check_factors("factors", factors)
        self._sample, _ = check_sample(sample, None)
        self._errors = check_errors(errors)
        if synchronize is not None and not callable(synchronize):
            raise ArgumentError(f"synchronize must be a function of the answer, not {show(synchronize)}.")
        self._synchronize = synchronize or settle
        self._verbose = check_count("verbose", verbose, least=0)
        self._clock, self._sleep = clock, sleep
        self._machine: MachineFacts | None = None
        self._inside = False
        self.records: list[InferenceRecord] = []
        """The record of every run, in order."""

    @property
    def record(self) -> InferenceRecord:
        """The record of the last run."""
        if not self.records:
            raise ProbeError("Nothing has been measured yet. Call p.run(function, inputs) inside the block.")
        return self.records[-1]

    def __enter__(self) -> CallProbe:
        check_target(self._path, "inference")
        self._machine = read_facts(instance_type=self._instance_type, region=self._region, factors=self._factors)
        self._inside = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inside = False

    def run(self, function: Callable[[Any], Any], inputs: Any, *, calls: int | None = None) -> InferenceRecord:
        """Call ``function`` with each input, in order, and return the record, which has been written by then.

        An array is cut into batches of ``batch_size``; of a list or a generator, each element is the input of a call.
        ``calls`` repeats inputs until there have been so many calls.
        """
        if not self._inside:
            raise ProbeError("This probe is not running. Use it inside `with vmselect.probe_inference() as p:`.")
        if not callable(function):
            raise ArgumentError(f"function must be something that can be called, not {show(function)}.")
        limit = maybe(check_count, "calls", calls)
        batches = cut_batches(inputs, batch_size=self._batch_size, calls=limit)
        run = _Run(self, function, next(batches, None))
        try:
            run.prepare(batches)
            run.load(batches)
        except BaseException as error:
            run.end(error)
            raise
        return run.end(None)


class _Run:
    """One run: its first call, its preparing calls, its load, and how it ended."""

    def __init__(self, probe: CallProbe, function: Callable[[Any], Any], first: Batch | None) -> None:
        if first is None:
            raise ArgumentError("inputs gave nothing to call the function with. Give at least one input.")
        self._probe, self._function, self._first = probe, function, first
        self._tally = Tally()
        self._seconds: list[float] = []
        self._ended = False
        self._observation = Observation(probe._sample)
        self._watch = EndWatch(self._end_early, anchor=self)
        self._observation.start()

    def prepare(self, batches: Any) -> None:
        """The first call and the warm-up calls, one after the other, on their own."""
        probe = self._probe
        self._observation.enter("first_call")
        batch: Batch | None = self._first
        for _ in range(1 + probe._warmup):
            if batch is None:
                break
            start = probe._clock()
            probe._synchronize(self._function(batch.value))
            self._seconds.append((probe._clock() - start) / 1e9)
            batch = next(batches, None) if len(self._seconds) <= probe._warmup else None

    def load(self, batches: Any) -> None:
        """The load itself."""
        probe = self._probe
        self._observation.enter("calls")
        Load(
            self._function, batches, self._tally, clients=probe._clients, rate=probe._rate, seconds=probe._seconds,
            failures=probe._errors, synchronize=probe._synchronize, clock=probe._clock, sleep=probe._sleep,
        ).run()  # fmt: skip

    def _end_early(self, error: BaseException | None, detail: str | None) -> None:
        self.end(error, detail or "its end was not reported")

    def end(self, error: BaseException | None, detail: str | None = None) -> InferenceRecord:
        """Keep the record, once, however the run ended."""
        probe = self._probe
        if self._ended:
            return probe.record
        self._ended = True
        self._observation.end()
        self._watch.stop()
        interrupted = error is not None or detail is not None
        text = classify(error, detail)[1] if interrupted else None
        sizes = self._tally if self._tally.calls else _tally_of(self._first)
        machine = probe._machine
        assert machine is not None
        record = InferenceRecord(
            outcome="interrupted" if interrupted else "whole",
            detail=text,
            setup=make_setup(
                sizes, source="callable", model=probe._model or _name_of(self._function),
                batch_size=probe._batch_size or self._first.items, clients=probe._clients, rate=probe._rate,
                bytes_per_item=probe._bytes_per_item,
            ),
            first_seconds=self._seconds[0] if self._seconds else None,
            preparing=tuple(self._seconds[1:]),
            calls=build_calls(self._tally),
            errors=dict(self._tally.errors),
            usage=self._observation.usage,
            **machine,
        )  # fmt: skip
        probe.records.append(record)
        if self._seconds or not interrupted:
            keep_record(record, probe._path, announce=bool(probe._verbose and not interrupted))
        return record


def check_errors(errors: Any) -> Failures:
    """The exceptions that count as failed calls."""
    several = (errors,) if isinstance(errors, (str, type)) else tuple(list_items(errors))
    for kind in several:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ArgumentError(f"errors must name kinds of exceptions, such as ConnectionError, not {show(kind)}.")
    return several


def _tally_of(batch: Batch) -> Tally:
    tally = Tally()
    tally.add(0, 0, 0, 0, batch)
    return tally


def _name_of(function: Any) -> str | None:
    name = getattr(function, "__name__", None) or type(function).__name__
    return name if isinstance(name, str) and name.isidentifier() and name != "<lambda>" else None


probe_inference = CallProbe
