"""One training that was watched until it stabilised, or for as long as it ran."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from vmselect.convergence.rule import StoppingRule
from vmselect.profile.record import MAX_EPOCHS, Count, Number, PositiveCount, Record, Seconds, Text

if TYPE_CHECKING:
    from vmselect.convergence.forecast import EpochsForecast

Logged = Number | Literal["nan", "inf", "-inf"]
"""A logged value; JSON has no word for what is not a number, so it is spelt out."""


class Curve(Record):
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


class ConvergenceRun(Record):
    """One training at one batch size: the metric's curve and the epochs it took to stabilise.

    ``stabilised_after`` is the number of epochs after which early stopping would have ended the training, or None if
    it never would have; ``epochs_run`` is how many were run. ``ended`` is False for a run that was still going, or was
    interrupted, when the record was written. ``metrics`` are all logged metrics where the rule stops, else at the end.
    """

    created: datetime
    batch_size: PositiveCount
    rule: StoppingRule
    model: Text | None = None
    parameters: Count | None = None
    epochs_run: Annotated[float, Field(gt=0, le=1e9)]
    stabilised_after: Annotated[float, Field(gt=0, le=1e9)] | None = None
    ended: bool = True
    curve: Curve = Curve()
    metrics: Mapping[Text, Logged] = Field(default_factory=dict, max_length=200)
    fit_seconds: Seconds | None = None
    instance_type: Text | None = None
    initial_epoch: Count = 0

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
        """Epochs until the metric stabilises, foreseen from the curve so far; says when it cannot tell yet."""
        from vmselect.convergence.forecast import forecast_epochs

        return forecast_epochs(self, confidence=confidence)

    @property
    def title(self) -> str:
        """A short name for messages: model and batch size."""
        return f"{self.model or 'unnamed model'}, batch {self.batch_size}"


def as_logged(value: float) -> Logged:
    """``value`` as a record keeps it."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value
