"""Metronome: a real ``fit`` of a tiny model whose steps, validations and epochs sleep known, realistic times."""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass
from typing import Any

BATCH = 16
STEP = 0.020
PROBE_STEPS = 20
"""Steady steps that a probe sees of each of two epochs."""

LATE = 0.25
"""Share of a step by which a beat that a probe sees may come late."""


@dataclass(frozen=True)
class Pattern:
    """Sleeps of a training; all but ``step`` and ``validation_batch`` beyond those."""

    steps: int = 50
    epochs: int = 7
    step: float = STEP
    first: float = 0.5
    ramp: tuple[float, ...] = ()
    hiccup_at: int | None = None
    validation_batches: int = 10
    validation_batch: float = 0.008
    first_validation: float = 0.3
    wrap_up: float = 0.0
    first_wrap_up: float = 0.0
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
    "wrap-up": Pattern(wrap_up=0.1, first_wrap_up=0.8),
    "partial-recompile": Pattern(steps=18, epochs=24, partial=8, recompile=0.8),
    "partial-unseen": Pattern(partial=8, recompile=0.5, recompile_on=("jax",)),
    "steps-per-execution": Pattern(per_execution=5, steps=120, epochs=6, step=0.012),
}
"""Patterns whose total a good estimator gets within one percent."""

OUTLIERS = Pattern(steps=50, epochs=6, step=0.006, first=0.1, validation_batches=2, outliers=0.05)
"""Random steps three times as long, in one of twenty: the mean matters, and no probe can know it."""


class Metronome:
    """A callback that sleeps until each step was as long as it should be, whatever the step and its data took.

    It stands before the probe in the list. Beats are due at times of their own, so that one that came late does not
    delay those after it. ``disturbed`` says that one of those that a probe sees came too late: the machine was busy
    with something else.
    """

    def __init__(self, pattern: Pattern, backend: str, *, seed: int) -> None:
        self.pattern = pattern
        self.recompiles = backend in pattern.recompile_on
        self.per_execution = 1 if backend == "torch" else pattern.per_execution
        self.rng = random.Random(seed)
        self.step = self.validations = 0
        self.beat = 0.0
        self.disturbed = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("on_", "set_")):
            return lambda *_, **__: None
        raise AttributeError(name)

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        if epoch:
            time.sleep(self.pattern.boundary)

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        # From beat to beat, but for the first, and for the second: a probe's own work after the first is no part of it.
        if batch == 0 or self.step == self.per_execution:
            self.beat = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        for _ in range(min(self.per_execution, self.pattern.steps - self.step % self.pattern.steps)):
            seconds, extra = self._next()
            self._wait(seconds, extra)

    def _wait(self, seconds: float, extra: float = 0.0) -> None:
        """Wait until ``seconds`` after the last beat; ``extra`` lies beyond, and whatever was compiled meanwhile."""
        due = self.beat + seconds
        if extra:
            due = max(due, time.perf_counter()) + extra
        time.sleep(max(0.0, due - time.perf_counter()))
        self.beat = due
        epoch, within = divmod(self.step - 1, self.pattern.steps)
        if epoch < 2 and (within <= PROBE_STEPS or within == self.pattern.steps - 1):
            self.disturbed |= time.perf_counter() - due > LATE * self.pattern.step

    def _next(self) -> tuple[float, float]:
        pattern, number = self.pattern, self.step
        self.step += 1
        epoch, within = divmod(number, pattern.steps)
        seconds, extra = pattern.step, 0.0
        if pattern.outliers and self.rng.random() < pattern.outliers:
            seconds *= 3
        if number == 0:
            extra = pattern.first
        elif number <= len(pattern.ramp):
            seconds += pattern.ramp[number - 1] * pattern.step
        elif number == pattern.hiccup_at:
            seconds += 10 * pattern.step
        if pattern.partial and within == pattern.steps - 1:
            seconds *= (1 + pattern.partial / BATCH) / 2
            if epoch == 0:
                extra = pattern.recompile if self.recompiles else 1e-3
        return seconds, extra

    def on_test_begin(self, logs: object = None) -> None:
        time.sleep(self.pattern.wrap_up if self.validations else max(self.pattern.wrap_up, self.pattern.first_wrap_up))
        self.validations += 1

    def on_test_batch_begin(self, batch: int, logs: object = None) -> None:
        if batch == 0:
            self.beat = time.perf_counter()

    def on_test_batch_end(self, batch: int, logs: object = None) -> None:
        opening = batch < self.per_execution and self.validations == 1
        self._wait(
            self.pattern.validation_batch * self.per_execution, self.pattern.first_validation if opening else 0.0
        )


def run_pattern(pattern: Pattern, probe: Any, *, seed: int = 0) -> tuple[Any, bool]:
    """Fit a tiny model that keeps the time of ``pattern``; the probe's profile, and whether it was disturbed."""
    import keras

    backend = keras.backend.backend()
    metronome = Metronome(pattern, backend, seed=seed)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(loss="mse", steps_per_execution=metronome.per_execution)
    examples = pattern.steps * BATCH - ((BATCH - pattern.partial) if pattern.partial else 0)
    gc.collect()
    gc.freeze()  # else one collection of all that the framework imported falls into some step: 0.2 s
    model.fit(
        **_data(backend, examples),
        epochs=pattern.epochs,
        validation_data=_data(backend, pattern.validation_batches * BATCH, validation=True),
        verbose=0,
        callbacks=[metronome, probe],
    )
    return probe.profile, metronome.disturbed


def _data(backend: str, examples: int, *, validation: bool = False) -> Any:
    import numpy as np

    arrays = np.zeros((examples, 4), "float32"), np.zeros(examples, "float32")
    if backend != "tensorflow":
        return arrays if validation else {"x": arrays[0], "y": arrays[1], "batch_size": BATCH}
    # Tearing down a self-tuning tf.data pipeline stalls at random between epochs: no metronome keeps time with that.
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH)
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    return dataset if validation else {"x": dataset}
