"""A Keras training on JAX, spread over the workers of a trial; alone it trains as on one machine.

vmselect sweep run plan.yaml sweep/
"""

from __future__ import annotations

import argparse
import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

import vmselect as vs

EXAMPLES, HELD_OUT, FEATURES, CLASSES = 4608, 576, 64, 10


def join_workers() -> tuple[int, int]:
    """Become one of the workers that the environment names; returns this one's number and how many there are."""
    count = int(os.environ.get("JAX_NUM_PROCESSES", "1"))
    if count > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")  # processors only; GPUs bring their own
        jax.distributed.initialize(
            os.environ["JAX_COORDINATOR_ADDRESS"], num_processes=count, process_id=int(os.environ["JAX_PROCESS_ID"])
        )
        # Each worker brings its own part of every batch, so Keras need not split what it is given.
        keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    return jax.process_index(), count


def make_model() -> keras.Model:
    """A small network."""
    keras.utils.set_random_seed(0)  # all workers begin with the same weights
    model = keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(CLASSES)],
        name="dense",
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def main() -> None:
    """Train; a batch is that of all workers together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="steps of an epoch that the probe watches")
    given = parser.parse_args()
    worker, workers = join_workers()
    chance = np.random.default_rng(0)
    x = chance.standard_normal((EXAMPLES, FEATURES), dtype="float32")
    y = chance.integers(0, CLASSES, EXAMPLES)
    own = slice(worker, None, workers)  # every worker must see as many examples as the others
    make_model().fit(
        x[own], y[own], batch_size=given.batch // workers, epochs=given.epochs, verbose=0,
        validation_data=(x[own][:HELD_OUT // workers], y[own][:HELD_OUT // workers]),
        callbacks=[vs.IterationProbe(steps=given.steps)],
    )  # fmt: skip


if __name__ == "__main__":
    main()
