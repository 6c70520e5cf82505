"""The probe that is a callback of ``model.predict`` and ``model.evaluate``."""

from __future__ import annotations

import os
import sys
import time
from types import FrameType
from typing import Any, Literal, NamedTuple

from vmselect._checks import check_count, check_name, check_number, check_path, maybe
from vmselect.errors import ProbeError
from vmselect.probe.ending import EndWatch, classify
from vmselect.probe.facts.framework import attempt, count_parameters, name_model
from vmselect.probe.inference.answers import settle
from vmselect.probe.inference.batches import Batch, count_bytes
from vmselect.probe.inference.keeping import build_calls, keep_record, make_setup
from vmselect.probe.inference.load import Clock
from vmselect.probe.inference.tally import Tally
from vmselect.probe.keras.callback import Logs, PlainCallback
from vmselect.probe.keras.fit import find_call, positive
from vmselect.probe.observation import Observation, check_sample, watch_call
from vmselect.probe.options import Factors, check_factors, check_target, choose_path
from vmselect.probe.surroundings import MachineFacts, read_facts
from vmselect.records.inference import InferenceRecord

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
