"""When a training counts as stable: the rule of ``keras.callbacks.EarlyStopping``, without Keras."""

from __future__ import annotations

import ctypes
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from vmselect._checks import check_number
from vmselect.intervals import Interval
from vmselect.records.record import Count, Moment, Name, Number, Part, PositiveCount, Record, Seconds, Text
from vmselect.records.training import MAX_EPOCHS
from vmselect.records.usage import Usage

MonitoredValue = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StoppingRule(Part):
    """The rule that decides when the monitored metric has stabilised.

    It stands for ``EarlyStopping(monitor, min_delta, patience, mode, start_from_epoch)``: training ends at the first
    epoch that is the ``patience``-th in a row without an improvement of more than ``min_delta``.

    >>> rule = StoppingRule(monitor="val_accuracy", mode="max", patience=2)
    >>> rule.stop_after([(1, 0.5), (2, 0.7), (3, 0.7), (4, 0.6), (5, 0.9)])
    4
    """

    monitor: Name
    mode: Literal["min", "max"]
    patience: Count = 5
    min_delta: MonitoredValue = 0.0
    start_from_epoch: Count = 0

    def stop_after(self, curve: Iterable[tuple[int, float]]) -> int | None:
        """How many epochs the rule lets the training run, or None if the curve ends before the rule stops it.

        ``curve`` holds (epoch counted from 1, value) wherever the metric was logged.
        """
        state = Patience()
        for epoch, value in curve:
            state = state.after(self, epoch, value)
            if state.stopped:
                return epoch
        return None

    def is_improvement(self, value: float, best: float | None) -> bool:
        """Whether ``value`` beats ``best`` by more than the minimum change, compared as Keras compares."""
        if best is None:
            return True
        shifted = value - self.min_delta if self.mode == "max" else value + self.min_delta
        left, right = as_float32(shifted), as_float32(best)
        return left > right if self.mode == "max" else left < right

    def best_of(self, values: Iterable[float]) -> float | None:
        """The best of ``values``, passing over those that are not numbers."""
        known = [value for value in values if not math.isnan(value)]
        if not known:
            return None
        return max(known) if self.mode == "max" else min(known)


@dataclass(frozen=True)
class Patience:
    """Where a training stands under a rule: the best value so far, and epochs waited since."""

    best: float | None = None
    waited: int = 0
    stopped: bool = False

    def after(self, rule: StoppingRule, epoch: int, value: float) -> Patience:
        """The state after ``value`` was logged at the end of ``epoch`` (counted from 1)."""
        if epoch <= rule.start_from_epoch:
            return self
        if rule.is_improvement(value, self.best):
            return Patience(value)
        waited = self.waited + 1
        return Patience(self.best, waited, waited >= rule.patience and epoch > 1)


def as_float32(value: float) -> float:
    """``value`` at the precision in which Keras compares: differences below it are ties."""
    return ctypes.c_float(value).value


# Trainings that were watched until they stabilised, or for as long as they ran; a study keeps several in a record.


FORMAT: Final = 2
"""Number of the file format that this version writes."""

MAX_RUNS = 10_000

MOST_EPOCHS = 1e9
"""That a run can have."""

FEWEST_VALUES = 4
"""A forecast needs this many values of the metric."""

MOST_PATIENCES = 5.5
"""The high end of a forecast (confidence 0.9) lies this many times the patience after the last value. Chosen on curves
of 100 small trainings and on one half of DAWNBench's and Pollux' curves (``tests/benchmarks/forecasts.py``)."""

WIDEST_RATIO = 4.0
"""A forecast whose high end is more than this many times its low end is marked as too wide to act on."""

Logged = Number | Literal["nan", "inf", "-inf"]
"""A logged value; JSON has no word for what is not a number, so it is spelt out."""


class Curve(Part):
    """The monitored metric: epoch (counted from 1) and value, wherever it was logged."""

    epoch: tuple[PositiveCount, ...] = Field(default=(), max_length=MAX_EPOCHS)
    value: tuple[Logged, ...] = Field(default=(), max_length=MAX_EPOCHS)

    @model_validator(mode="after")
    def _columns_agree(self) -> Curve:
        if len(self.epoch) != len(self.value):
            raise ValueError("the columns epoch and value differ in length")
        if any(later <= earlier for earlier, later in zip(self.epoch, self.epoch[1:], strict=False)):
            raise ValueError("epochs are not in ascending order")
        return self

    @classmethod
    def of(cls, points: Mapping[int, float]) -> Curve:
        """The curve of ``points``, epoch to value."""
        return cls(epoch=tuple(points), value=tuple(as_logged(value) for value in points.values()))

    @property
    def points(self) -> list[tuple[int, float]]:
        """(epoch, value) pairs, values as floats."""
        return list(zip(self.epoch, (float(value) for value in self.value), strict=True))


@dataclass(frozen=True)
class EpochsForecast:
    """Epochs until the metric stabilizes, forecast from the first part of a run. Unpacks as ``value, low, high``.

    ``can_tell`` is False, with the ``reason``, where the forecast is not worth acting on.
    """

    value: float
    low: float
    high: float
    can_tell: bool
    reason: str

    @property
    def interval(self) -> Interval[float]:
        """The value with its bounds."""
        return Interval(self.value, self.low, self.high)

    def __iter__(self) -> Iterator[float]:
        return iter(self.interval)


class ConvergenceRun(Part):
    """One training at one batch size: the metric's curve and the epochs it took to stabilise.

    ``stabilised_after`` is the number of epochs after which early stopping would have ended the training, or None if
    it never would have; ``epochs_run`` is how many were run. ``ended`` is False for a run that was still going, or was
    interrupted, when the record was written. ``metrics`` are all logged metrics where the rule stops, else at the end.
    """

    created: Moment
    batch_size: PositiveCount
    rule: StoppingRule
    model: Text | None = None
    parameters: Count | None = None
    epochs_run: Annotated[float, Field(gt=0, le=MOST_EPOCHS)]
    stabilised_after: Annotated[float, Field(gt=0, le=MOST_EPOCHS)] | None = None
    ended: bool = True
    curve: Curve = Curve()
    metrics: Mapping[Text, Logged] = Field(default_factory=dict, max_length=200)
    fit_seconds: Seconds | None = None
    instance_type: Text | None = None
    initial_epoch: Count = 0
    usage: Usage | None = None
    """What the machine did, summed up by phase."""

    @model_validator(mode="after")
    def _stops_within_the_run(self) -> ConvergenceRun:
        if self.stabilised_after is not None and self.stabilised_after > self.epochs_run:
            raise ValueError("stabilised_after is larger than epochs_run")
        return self

    @property
    def epochs_to_stabilise(self) -> float:
        """Epochs that the training takes under early stopping: until it stops it, else all that were run."""
        return self.epochs_run if self.stabilised_after is None else self.stabilised_after

    @property
    def best(self) -> float | None:
        """The best value of the monitored metric until it stabilised."""
        return self.rule.best_of(v for e, v in self.curve.points if e <= self.epochs_to_stabilise)

    @property
    def final(self) -> float | None:
        """The monitored metric where the rule stops the training, else its last value."""
        value = self.metrics.get(self.rule.monitor)
        return None if value is None else float(value)

    def forecast(self, *, confidence: float = 0.9) -> EpochsForecast:
        """Epochs until the metric stabilizes: those seen so far plus the patience.

        The low end is the earliest epoch at which the rule can stop. At confidence 0.9 the high end held in 80 % of
        trainings that were a quarter done and in 97 % of those that were half done.
        """
        confidence = check_number("confidence", confidence, above=0, most=0.9999)
        rule = self.rule
        if (end := self.stabilised_after) is not None:
            return EpochsForecast(end, end, end, True, "the run has stabilized")
        points = [(epoch, value) for epoch, value in self.curve.points if epoch > rule.start_from_epoch]
        known = [epoch for epoch, value in points if math.isfinite(value)]
        state = Patience()
        for epoch, value in points:
            state = state.after(rule, epoch, value)
        problem = ""
        if len(known) < FEWEST_VALUES:
            problem = f"the run has {len(known)} values of {rule.monitor}, and a forecast needs {FEWEST_VALUES}"
        elif state.best is None or not math.isfinite(state.best):
            problem = f"the best value of {rule.monitor} so far is {state.best}"
        if problem:
            return EpochsForecast(math.inf, float(self.epochs_run), math.inf, False, problem)
        seen, stride = known[-1], statistics.median(later - earlier for earlier, later in pairwise(known))
        patience = stride * max(1, rule.patience)
        low = stride * max(1, rule.patience - state.waited)
        # The high end is calibrated at confidence 0.9. Other confidences move it on a logarithmic scale.
        quantile = statistics.NormalDist().inv_cdf
        high = patience * MOST_PATIENCES ** (quantile(0.5 + confidence / 2) / quantile(0.95))
        value, low, high = (seen + more for more in (patience, low, high))
        can_tell, reason = True, f"the run has {len(known)} values of {rule.monitor}"
        if high > WIDEST_RATIO * low:
            can_tell, reason = False, f"the interval {low:.0f} to {high:.0f} is too wide to act on"
        return EpochsForecast(value, low, high, can_tell, reason)

    @property
    def title(self) -> str:
        """A short name for messages: model and batch size."""
        return f"{self.model or 'unnamed model'}, batch {self.batch_size}"


class ConvergenceRecord(Record):
    """Runs of one model, judged by one rule, at one batch size or several."""

    kind: Literal["convergence"] = "convergence"
    format: Literal[2] = FORMAT
    runs: tuple[ConvergenceRun, ...] = Field(min_length=1, max_length=MAX_RUNS)

    @model_validator(mode="after")
    def _runs_are_of_one_training(self) -> ConvergenceRecord:
        check_same(self.runs)
        return self

    @property
    def model(self) -> str | None:
        """Name of the model that was trained, if the runs tell."""
        return next((run.model for run in self.runs if run.model), None)

    @property
    def file_stem(self) -> str:
        """Model, smallest and largest batch size."""
        tried = [run.batch_size for run in self.runs]
        return "-".join([self.model or "unnamed", *(str(size) for size in dict.fromkeys((min(tried), max(tried))))])


def as_logged(value: float) -> Logged:
    """``value`` as a record keeps it."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def check_same(runs: Sequence[ConvergenceRun]) -> None:
    """Raise ValueError unless all runs are of one model, judged by one rule."""
    models = sorted({run.model for run in runs if run.model})
    if len(models) > 1:
        raise ValueError(f"they are of different models ({', '.join(models)}). Load the runs of one model.")
    parameters = sorted({run.parameters for run in runs if run.parameters is not None})
    if len(parameters) > 1:
        counts = ", ".join(f"{count:,}" for count in parameters)
        raise ValueError(f"their models differ in size ({counts} parameters). Load the runs of one model.")
    rules = {run.rule.model_dump_json(): run.rule for run in runs}
    if len(rules) > 1:
        first, second, *_ = rules.values()
        differing = [
            f"{name} {getattr(first, name)!r} and {getattr(second, name)!r}"
            for name in StoppingRule.model_fields
            if getattr(first, name) != getattr(second, name)
        ]
        raise ValueError(f"they were judged by different rules ({'; '.join(differing)}). Load the runs of one rule.")
