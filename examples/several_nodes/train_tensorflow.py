"""A Keras training on TensorFlow, spread over the workers of a trial by MultiWorkerMirroredStrategy.

vmselect sweep run plan.yaml sweep/

Keras 3 cannot train a stock model under this strategy (https://github.com/keras-team/keras/issues/20585, open; tried
with Keras 3.15.1 and TensorFlow 2.21): it reads a batch that is spread over workers to find its shapes, and reduces
single numbers as if they were lists. :class:`Distributed` gets round both. It may go, and ``keras.Sequential`` take its
place, with the first Keras that closes that issue.
"""

from __future__ import annotations

import argparse
import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import tensorflow as tf

# The strategy must come before anything else of TensorFlow; without TF_CONFIG there is one worker, and no need of it.
STRATEGY = tf.distribute.MultiWorkerMirroredStrategy() if "TF_CONFIG" in os.environ else tf.distribute.get_strategy()

import keras  # noqa: E402
import numpy as np  # noqa: E402

import vmselect as vs  # noqa: E402

EXAMPLES, HELD_OUT, FEATURES, CLASSES = 4608, 576, 64, 10


class Distributed(keras.Sequential):
    """Trains as usual, is built before it sees data, and reports its numbers as lists of one."""

    def train_step(self, data):
        """One step of training."""
        return as_lists(super().train_step(data))

    def test_step(self, data):
        """One step of validation."""
        return as_lists(super().test_step(data))

    def _maybe_symbolic_build(self, **_):
        pass


def as_lists(numbers: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Numbers that Keras can gather from several workers."""
    if STRATEGY.num_replicas_in_sync == 1:
        return numbers
    return {name: tf.reshape(value, (1,)) for name, value in numbers.items()}


def make_model() -> keras.Model:
    """A small network."""
    layers = [keras.Input((FEATURES,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(CLASSES)]
    with STRATEGY.scope():
        model = Distributed(layers, name="dense")
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.optimizer.build(model.trainable_variables)
    return model


def main() -> None:
    """Train; a batch is that of all workers together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="steps of an epoch that the probe watches")
    given = parser.parse_args()
    chance = np.random.default_rng(0)
    x = chance.standard_normal((EXAMPLES, FEATURES), dtype="float32")
    y = chance.integers(0, CLASSES, EXAMPLES)
    # The strategy splits every batch, so all workers are given all the data.
    make_model().fit(
        x, y, batch_size=given.batch, epochs=given.epochs, verbose=0, validation_data=(x[:HELD_OUT], y[:HELD_OUT]),
        callbacks=[vs.IterationProbe(steps=given.steps)],
    )  # fmt: skip


if __name__ == "__main__":
    main()
