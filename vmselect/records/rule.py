"""When a training counts as stable: the rule of ``keras.callbacks.EarlyStopping``, without Keras."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from vmselect.records.base import Count, Name, Part

Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


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
    min_delta: Number = 0.0
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
