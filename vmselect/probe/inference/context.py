"""The probe for anything that can be called: a model, a client of a service, a function."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from vmselect._checks import check_count, check_name, check_number, check_path, check_seconds, list_items, maybe, show
from vmselect.errors import ArgumentError, ProbeError
from vmselect.probe.ending import EndWatch, classify
from vmselect.probe.inference.answers import settle
from vmselect.probe.inference.batches import Batch, cut_batches
from vmselect.probe.inference.keeping import build_calls, keep_record, make_setup
from vmselect.probe.inference.load import Clock, Failures, Load, Sleep
from vmselect.probe.inference.tally import Tally
from vmselect.probe.observation import Observation, check_sample
from vmselect.probe.options import Factors, check_factors, check_target, choose_path
from vmselect.probe.surroundings import MachineFacts, read_facts
from vmselect.records.inference import InferenceRecord

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
