"""One worker of a multi-worker training; run as a program with TF_CONFIG set: ``worker.py PROFILE``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # must come before anything else of TensorFlow

import keras  # noqa: E402
from fits import BATCH, make_data  # noqa: E402

import vmselect as vs  # noqa: E402


class Distributed(keras.Sequential):
    """Trains as usual, and reports its numbers as lists of one.

    Keras 3 gathers only such lists from several workers, and cannot look at a batch that is spread over them
    (keras-team/keras issue 20585); this model is built beforehand and need not look.
    """

    def train_step(self, data):
        return {name: tf.reshape(value, (1,)) for name, value in super().train_step(data).items()}

    def test_step(self, data):
        return {name: tf.reshape(value, (1,)) for name, value in super().test_step(data).items()}

    def _maybe_symbolic_build(self, **_):
        pass


def main(path: str) -> None:
    with strategy.scope():
        model = Distributed([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        model.optimizer.build(model.trainable_variables)
    data, validation = make_data(20), make_data(2)
    train = partial(model.fit, *data, batch_size=BATCH, epochs=3, verbose=0, validation_data=validation)
    refused = vs.IterationProbe(path, steps=5, seconds=9)
    try:
        train(callbacks=[refused])
    except vs.errors.ProbeError:
        print("refused seconds")
    probe = vs.IterationProbe(path, steps=5)
    train(callbacks=[probe])
    profile = probe.profile
    print("seen", profile.environment.worker_index, profile.environment.workers, profile.environment.replicas,
          profile.setup.batch_size, profile.timeline.steps.steps, len(profile.timeline.validations))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
