"""Small models, data and callbacks for trainings in tests. Import after ``KERAS_BACKEND`` has been decided."""

from __future__ import annotations

import math
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from seeds import set_seed

BACKEND = keras.backend.backend()
if BACKEND == "tensorflow":
    import tensorflow as tf

    if "TF_CONFIG" not in os.environ:
        # Two devices on one processor, for trainings spread over both; must be said before TensorFlow is first used.
        processor = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)

BATCH = 8


def make_model(**compile_options) -> keras.Model:
    """A small compiled model with the same weights every time."""
    set_seed(7)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="relu"), keras.layers.Dense(1)])
    model.compile(optimizer=compile_options.pop("optimizer", "sgd"), loss="mse", **compile_options)
    return model


def make_data(steps: int, *, partial: int = 0, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Examples for this many steps of 8, the last of them smaller if ``partial``."""
    count = steps * BATCH - (BATCH - partial if partial else 0)
    rng = np.random.default_rng(seed)
    return rng.random((count, 4), "float32"), rng.random((count, 1), "float32")


def check_conserved(profile) -> None:
    """The readings of a fit cover its wall time without gap or overlap."""
    timeline = profile.timeline
    parts = [
        timeline.fit_to_first_batch_seconds or 0.0,
        timeline.steps.total_seconds or sum(epoch.seconds for epoch in timeline.epochs),
        *(validation.seconds for validation in timeline.validations),
        *(boundary.seconds for boundary in timeline.boundaries),
        *(pause.seconds for pause in timeline.pauses),
    ]
    assert math.isclose(sum(parts), timeline.wall_seconds, rel_tol=1e-6, abs_tol=1e-6), (parts, timeline.wall_seconds)
    assert sum(epoch.steps or 0 for epoch in timeline.epochs) == timeline.steps.steps or not timeline.steps.steps


class Log(keras.callbacks.Callback):
    """Writes down what Keras did, and does something at a given moment."""

    def __init__(self, at=None, do=None):
        super().__init__()
        self.at, self.do = at, do
        self.events = []

    def _note(self, *event):
        self.events.append(event)
        if event == self.at:
            self.do()

    def on_train_batch_end(self, batch, logs=None):
        self._note("batch", batch)

    def on_test_end(self, logs=None):
        self._note("test")

    def on_epoch_end(self, epoch, logs=None):
        self._note("epoch", epoch)

    def on_train_end(self, logs=None):
        self._note("end")

    def count(self, kind):
        return sum(event[0] == kind for event in self.events)
