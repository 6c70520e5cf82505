"""A Keras layer that sleeps a known time inside every step, on any backend, and keeps what it really slept.

``time.sleep`` oversleeps on a busy machine, so a test compares a reading with what was slept, not with the wish.
Import this after ``KERAS_BACKEND`` has been decided.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import keras
import numpy as np

Schedule = Callable[[str, int], float]
"""Seconds to sleep in the training step or validation batch ("train" or "test") number so-and-so, from 0."""


@dataclass
class Metronome:
    """Sleeps by ``schedule`` while ``running``.

    ``slept`` holds the seconds of every beat, in order, and ``ended`` the time at which it ended: a second clock, whose
    intervals are steps from end to end as a probe should read them, whatever Keras does besides.
    """

    schedule: Schedule
    running: bool = False
    slept: dict[str, list[float]] = field(default_factory=lambda: {"train": [], "test": []})
    ended: dict[str, list[float]] = field(default_factory=lambda: {"train": [], "test": []})

    def start(self) -> None:
        """Begin to sleep, counting beats from 0."""
        self.running = True
        self.slept = {"train": [], "test": []}
        self.ended = {"train": [], "test": []}

    def beat(self, kind: str) -> None:
        """One step: sleep as long as the schedule says."""
        if not self.running:
            return
        began = time.perf_counter()
        time.sleep(self.schedule(kind, len(self.slept[kind])))
        now = time.perf_counter()
        self.slept[kind].append(now - began)
        self.ended[kind].append(now)


@keras.saving.register_keras_serializable("vmselect-tests")
class Sleep(keras.layers.Layer):
    """Passes its input on, one beat of the metronome later."""

    def __init__(self, metronome: Metronome) -> None:
        super().__init__()
        self.metronome = metronome

    def call(self, x, training=False):
        kind = "train" if training else "test"
        backend = keras.backend.backend()
        if backend == "torch":
            if x.device.type != "meta":  # shapes only: no step is being taken
                self.metronome.beat(kind)
            return x

        def wake(_):
            self.metronome.beat(kind)
            return np.zeros((), "float32")

        trigger = keras.ops.stop_gradient(keras.ops.sum(x))
        if backend == "tensorflow":
            import tensorflow as tf

            delay = tf.numpy_function(wake, [trigger], tf.float32)
            delay.set_shape(())
        else:
            import jax

            if isinstance(x, jax.ShapeDtypeStruct):
                return x
            delay = jax.experimental.io_callback(wake, jax.ShapeDtypeStruct((), "float32"), trigger)
        return x + keras.ops.stop_gradient(delay)

    def compute_output_shape(self, input_shape):
        return input_shape


def make_sleeping_model(metronome: Metronome, *, width: int = 4) -> keras.Model:
    """A model of almost no work besides its sleep, compiled."""
    model = keras.Sequential([keras.Input((width,)), Sleep(metronome), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", jit_compile=False if keras.backend.backend() != "jax" else "auto")
    return model
