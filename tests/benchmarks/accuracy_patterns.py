"""Metronome: a real ``fit`` of a tiny model whose steps, validations and epochs sleep known, realistic times."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

BATCH = 16
STEP = 0.020


@dataclass(frozen=True)
class Pattern:
    """Sleeps of a training; all but ``step`` and ``validation_batch`` beyond those."""

    steps: int = 60
    epochs: int = 8
    step: float = STEP
    first: float = 0.5
    ramp: tuple[float, ...] = ()
    hiccup_at: int | None = None
    validation_batches: int = 10
    validation_batch: float = 0.008
    first_validation: float = 0.0
    boundary: float = 0.0
    partial: int = 0
    recompile: float = 0.0
    recompile_on: tuple[str, ...] = ("tensorflow", "jax", "torch")
    per_execution: int = 1
    outliers: float = 0.0


PATTERNS = {
    "slow-first": Pattern(first=2.0),
    "ramp": Pattern(ramp=(7.0, 5.0, 3.0, 2.0, 1.0, 0.5)),
    "hiccup": Pattern(hiccup_at=9),
    "slow-first-validation": Pattern(first_validation=1.5),
    "boundary": Pattern(boundary=0.3),
    "partial-recompile": Pattern(steps=18, epochs=24, partial=8, recompile=0.8),
    "partial-unseen": Pattern(partial=8, recompile=0.5, recompile_on=("jax",)),
    "steps-per-execution": Pattern(per_execution=5, steps=120, epochs=6, step=0.012),
}
"""Patterns whose total a good estimator gets within one percent."""

OUTLIERS = Pattern(steps=50, epochs=6, step=0.006, first=0.1, validation_batches=2, outliers=0.05)
"""Random steps three times as long, in one of twenty: the mean matters, and no probe can know it."""


class Sleeper:
    """A callback that sleeps; it stands after the probe in the list, so that its sleeps fall inside the steps."""

    def __init__(self, pattern: Pattern, backend: str, *, seed: int) -> None:
        self.pattern = pattern
        self.recompiles = backend in pattern.recompile_on
        self.per_execution = 1 if backend == "torch" else pattern.per_execution
        self.rng = random.Random(seed)
        self.step = self.validations = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("on_", "set_")):
            return lambda *_, **__: None
        raise AttributeError(name)

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        if epoch:
            time.sleep(self.pattern.boundary)

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        time.sleep(sum(self._next() for _ in range(self.per_execution)))

    def _next(self) -> float:
        pattern, number = self.pattern, self.step
        self.step += 1
        epoch, within = divmod(number, pattern.steps)
        seconds = pattern.step
        if pattern.outliers and self.rng.random() < pattern.outliers:
            seconds *= 3
        if number == 0:
            seconds += pattern.first
        elif number <= len(pattern.ramp):
            seconds += pattern.ramp[number - 1] * pattern.step
        elif number == pattern.hiccup_at:
            seconds += 10 * pattern.step
        if pattern.partial and within == pattern.steps - 1:
            seconds *= (1 + pattern.partial / BATCH) / 2
            if epoch == 0 and self.recompiles:
                seconds += pattern.recompile
        return seconds

    def on_test_begin(self, logs: object = None) -> None:
        if self.validations == 0:
            time.sleep(self.pattern.first_validation)
        self.validations += 1

    def on_test_batch_begin(self, batch: int, logs: object = None) -> None:
        time.sleep(self.pattern.validation_batch * self.per_execution)


def run_pattern(pattern: Pattern, probe: Any, *, seed: int = 0) -> Any:
    """Fit a tiny model that keeps the time of ``pattern``, under ``probe``, and return its profile."""
    import keras
    import numpy as np

    backend = keras.backend.backend()
    sleeper = Sleeper(pattern, backend, seed=seed)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(loss="mse", steps_per_execution=sleeper.per_execution)
    examples = pattern.steps * BATCH - ((BATCH - pattern.partial) if pattern.partial else 0)
    held = pattern.validation_batches * BATCH
    x, y = np.zeros((examples, 4), "float32"), np.zeros(examples, "float32")
    model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=pattern.epochs,
        validation_data=(x[:held], y[:held]) if held <= examples else (np.zeros((held, 4)), np.zeros(held)),
        verbose=0,
        callbacks=[probe, sleeper],
    )
    return probe.profile
