"""Convergence records: trainings at several batch sizes, and the epoch at which early stopping would end each training.

The stopping rule is that of ``keras.callbacks.EarlyStopping``, but Keras is not required.
"""

from __future__ import annotations

import ctypes
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vmselect._checks import check_number
from vmselect.intervals import Interval
from vmselect.records.base import Count, Moment, Name, Number, Part, PositiveCount, Record, Seconds, Text
from vmselect.records.training import MAX_EPOCHS
from vmselect.records.usage import Usage
from vmselect.units import format_count

MonitoredValue = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StoppingRule(Part):
    """The early-stopping rule that decides when the monitored metric has converged.

    It is the rule of ``EarlyStopping(monitor, min_delta, patience, mode, start_from_epoch)`` in Keras: the training
    ends after ``patience`` epochs in a row without an improvement of the metric by more than ``min_delta``.
    """

    monitor: Name
    mode: Literal["min", "max"]
    patience: Count = 5
    min_delta: MonitoredValue = 0.0
    start_from_epoch: Count = 0

    def stop_after(self, curve: Iterable[tuple[int, float]]) -> int | None:
        """The epoch after which the rule stops the training, or None if the rule does not stop it within ``curve``.

        ``curve`` contains (epoch, value) pairs of the monitored metric, with epochs counted from 1.
        """
        state = Patience()
        for epoch, value in curve:
            state = state.after(self, epoch, value)
            if state.stopped:
                return epoch
        return None

    def is_improvement(self, value: float, best: float | None) -> bool:
        """Whether ``value`` is better than ``best`` by more than ``min_delta``, in single precision as in Keras."""
        if best is None:
            return True
        shifted = value - self.min_delta if self.mode == "max" else value + self.min_delta
        # Keras compares at this precision, so smaller differences are ties.
        left, right = ctypes.c_float(shifted).value, ctypes.c_float(best).value
        return left > right if self.mode == "max" else left < right

    def best_of(self, values: Iterable[float]) -> float | None:
        """The best of ``values``, ignoring NaN; None if no value remains."""
        numbers = [value for value in values if not math.isnan(value)]
        return (max if self.mode == "max" else min)(numbers, default=None)


@dataclass(frozen=True)
class Patience:
    """State of early stopping: the best value so far, and the number of epochs ``waited`` since then."""

    best: float | None = None
    waited: int = 0
    stopped: bool = False

    def after(self, rule: StoppingRule, epoch: int, value: float) -> Patience:
        """The state after the metric had ``value`` at the end of ``epoch`` (counted from 1)."""
        if epoch <= rule.start_from_epoch:
            return self
        if rule.is_improvement(value, self.best):
            return Patience(value)
        waited = self.waited + 1
        return Patience(self.best, waited, waited >= rule.patience and epoch > 1)


MAX_RUNS = 10_000

MAX_EPOCHS_RUN = 1e9

MIN_VALUES = 7
"""Minimum number of logged values of the monitored metric for a forecast. After 4 to 6, an interval that
was narrow enough held in only 80 % of Pollux' curves."""

HIGH_WAITS = 7.0
"""The upper bound of a forecast (confidence 0.9) is the last logged epoch, plus one patience, plus this many times the
epochs until the rule can stop the training. Chosen on Pollux' curves, where it holds in 94 %, and small trainings
(``tests/benchmarks/forecasts.py``); on those of DAWNBench and Zeus it held nearly always. The sources differ more than
slope, gain, noise and improvements tell."""

MAX_IMPROVING = 0.8
"""No forecast is made if the metric improved in more than this share of the epochs of the last patience. On small
trainings the upper bound held in 76 % of such cases, and in 92 to 99 % of others (``forecasts.py --choose``)."""

VALUE_WAITS = 2.0
"""The forecast itself is the last logged epoch plus this many times the epochs until the rule can stop the training. On
Pollux' curves, 2 to 3 are equally good (mean error of 24 to 25 %); small trainings end sooner."""

MAX_RATIO = 4.0
"""If the upper bound is more than this many times the lower bound, no forecast is made. Chosen by judgement."""

Logged = Number | Literal["nan", "inf", "-inf"]
"""A logged value of a metric. JSON has no NaN and no infinity, so they are stored as strings."""


class Curve(Part):
    """Values of the monitored metric, and the epochs (counted from 1) after which they were logged."""

    epoch: tuple[PositiveCount, ...] = Field(default=(), max_length=MAX_EPOCHS)
    value: tuple[Logged, ...] = Field(default=(), max_length=MAX_EPOCHS)

    @model_validator(mode="after")
    def _columns_agree(self) -> Curve:
        if len(self.epoch) != len(self.value):
            raise ValueError("the columns epoch and value differ in length")
        if any(later <= earlier for earlier, later in pairwise(self.epoch)):
            raise ValueError("epochs are not in ascending order")
        return self

    @classmethod
    def of(cls, points: Mapping[int, float]) -> Curve:
        """A curve from ``points``, which maps epochs to values."""
        return cls(epoch=tuple(points), value=tuple(as_logged(value) for value in points.values()))

    @property
    def points(self) -> list[tuple[int, float]]:
        """(epoch, value) pairs, with all values as floats."""
        return list(zip(self.epoch, (float(value) for value in self.value), strict=True))


@dataclass(frozen=True)
class EpochsForecast:
    """Number of epochs until the metric converges, forecast from the first part of a run.

    Can be unpacked as ``value, low, high``. ``is_usable`` is False if the forecast is too uncertain to use; ``reason``
    states why.
    """

    value: float
    low: float
    high: float
    is_usable: bool
    reason: str

    @property
    def interval(self) -> Interval[float]:
        """The forecast number of epochs with the bounds of its interval."""
        return Interval(self.value, self.low, self.high)

    def __iter__(self) -> Iterator[float]:
        return iter(self.interval)


class ConvergenceRun(Part):
    """One training at one batch size: the curve of the monitored metric, and the epochs until it converged.

    ``stabilised_after`` is the epoch after which early stopping would have ended the training; None if early stopping
    would not have ended it. ``ended`` is False for a run that was interrupted or is still running. ``metrics`` contains
    all metrics at the epoch where the rule stops the training, otherwise at the last epoch.
    """

    created: Moment
    batch_size: PositiveCount
    rule: StoppingRule
    model: Text | None = None
    parameters: Count | None = None
    epochs_run: Annotated[float, Field(gt=0, le=MAX_EPOCHS_RUN)]
    stabilised_after: Annotated[float, Field(gt=0, le=MAX_EPOCHS_RUN)] | None = None
    ended: bool = True
    curve: Curve = Curve()
    metrics: Mapping[Text, Logged] = Field(default_factory=dict, max_length=200)
    fit_seconds: Seconds | None = None
    instance_type: Text | None = None
    initial_epoch: Count = 0
    usage: Usage | None = None

    @model_validator(mode="after")
    def _stops_within_the_run(self) -> ConvergenceRun:
        if self.stabilised_after is not None and self.stabilised_after > self.epochs_run:
            raise ValueError("stabilised_after is larger than epochs_run")
        return self

    @property
    def epochs_to_stabilise(self) -> float:
        """Number of epochs until the rule stops the training; the number of epochs run if the rule does not stop it."""
        return self.epochs_run if self.stabilised_after is None else self.stabilised_after

    @property
    def best(self) -> float | None:
        """Best value of the monitored metric until the rule stops the training; of all epochs if it does not."""
        return self.rule.best_of(v for e, v in self.curve.points if e <= self.epochs_to_stabilise)

    @property
    def final(self) -> float | None:
        """Value of the monitored metric at the epoch where the rule stops the training, otherwise its last value."""
        value = self.metrics.get(self.rule.monitor)
        return None if value is None else float(value)

    def forecast(self, *, confidence: float = 0.9) -> EpochsForecast:
        """Forecast the number of epochs until the metric converges: twice as far away as the earliest end.

        The lower bound is that earliest end, the first epoch at which the rule can stop the training. The upper bound
        holds for most trainings (docs/validation/accuracy.md). If the two are too far apart, as after few epochs, or
        the metric still improves nearly always, no forecast is possible yet: ``value`` and ``high`` are infinite, and
        ``reason`` states why.
        """
        confidence = check_number("confidence", confidence, above=0, most=0.9999)
        rule = self.rule
        if (end := self.stabilised_after) is not None:
            return EpochsForecast(end, end, end, True, "the run has converged")
        points = [(epoch, value) for epoch, value in self.curve.points if epoch > rule.start_from_epoch]
        epochs = [epoch for epoch, value in points if math.isfinite(value)]
        state, improved = Patience(), []
        for epoch, value in points:
            state = state.after(rule, epoch, value)
            improved.append(state.waited == 0)
        recent = improved[1:][-max(1, rule.patience) :]
        values = format_count(len(epochs), "value")
        few = f"the run has {values} of {rule.monitor}, and a forecast requires {MIN_VALUES}"
        problem = ""
        if len(epochs) < 2:
            problem = few
        elif state.best is None or not math.isfinite(state.best):
            problem = f"the best value of {rule.monitor} so far is {state.best}"
        if problem:
            return EpochsForecast(math.inf, float(self.epochs_run), math.inf, False, problem)
        last, stride = epochs[-1], statistics.median(later - earlier for earlier, later in pairwise(epochs))
        patience = stride * max(1, rule.patience)
        low = stride * max(1, rule.patience - state.waited)
        # The high end is calibrated at confidence 0.9. Other confidences move it on a logarithmic scale.
        quantile = statistics.NormalDist().inv_cdf
        power = quantile(0.5 + confidence / 2) / quantile(0.95)
        high = low * (HIGH_WAITS + patience / low) ** power
        value, low, high = (last + more for more in (VALUE_WAITS * low, low, max(high, VALUE_WAITS * low)))
        if len(epochs) < MIN_VALUES:
            return EpochsForecast(math.inf, low, math.inf, False, few)
        if math.fsum(recent) > MAX_IMPROVING * len(recent):
            reason = (
                f"no forecast is possible yet: {rule.monitor} still improves, in {sum(recent)} of the last "
                f"{len(recent)} values; the training may end after {low:.0f} epochs or much later"
            )
            return EpochsForecast(math.inf, low, math.inf, False, reason)
        if high > MAX_RATIO * low:
            # Right after an improvement, the interval is widest.
            widest = patience * (HIGH_WAITS + 1) ** power
            enough = max((widest - MAX_RATIO * patience) / (MAX_RATIO - 1), last + stride)
            reason = (
                f"no forecast is possible yet: after {last:.0f} epochs, the training may end after {low:.0f} to "
                f"{high:.0f}; forecast again after {math.ceil(enough)} epochs"
            )
            return EpochsForecast(math.inf, low, math.inf, False, reason)
        return EpochsForecast(value, low, high, True, f"the run has {len(epochs)} values of {rule.monitor}")

    @property
    def title(self) -> str:
        """A short name for messages: model and batch size."""
        return f"{self.model or 'unnamed model'}, batch {self.batch_size}"


class ConvergenceRecord(Record):
    """Runs of one model at one or more batch sizes, all with the same stopping rule."""

    kind: Literal["convergence"] = "convergence"
    format: Literal[2] = 2
    runs: tuple[ConvergenceRun, ...] = Field(min_length=1, max_length=MAX_RUNS)

    @model_validator(mode="after")
    def _runs_are_of_one_training(self) -> ConvergenceRecord:
        check_same(self.runs)
        return self

    @property
    def model(self) -> str | None:
        """Name of the model that was trained, or None."""
        return next((run.model for run in self.runs if run.model), None)

    @property
    def file_stem(self) -> str:
        """Start of the file name: model, smallest and largest batch size."""
        tried = [run.batch_size for run in self.runs]
        return "-".join([self.model or "unnamed", *(str(size) for size in dict.fromkeys((min(tried), max(tried))))])


def as_logged(value: float) -> Logged:
    """``value`` as a record stores it: a string if it is NaN or infinite."""
    return value if math.isfinite(value) else str(float(value))  # type: ignore[return-value]


def check_same(runs: Sequence[ConvergenceRun]) -> None:
    """Raise ValueError unless all runs have the same model and the same stopping rule."""
    for field in ("model", "parameters", *(f"rule.{name}" for name in StoppingRule.model_fields)):
        values = {attrgetter(field)(run) for run in runs} - {None, ""}
        if len(values) > 1:
            shown = ", ".join(sorted(map(str, values)))
            raise ValueError(
                f"the runs differ in {field} ({shown}). Load only runs of the same model and stopping rule."
            )
