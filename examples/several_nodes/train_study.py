"""The training of study.yaml: CIFAR-10 without classes 8 and 9, by as many workers as the trial has.

The study does not print its network; this one is small and convolutional. ``--made-up`` trains on noise of the same
size: as long, without the download, and learning nothing.
"""

from __future__ import annotations

import argparse

from train_tensorflow import STRATEGY, Distributed  # first: the strategy must come before anything else of TensorFlow

# isort: split
import keras
import numpy as np

import vmselect as vs

SIZES = (40_000, 8_000)
CLASSES = 8


def load_data(made_up: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Images and labels, to train with and held out."""
    if made_up:
        chance = np.random.default_rng(0)
        shapes = [(size, 32, 32, 3) for size in SIZES]
        parts = [(chance.integers(0, 256, shape, "uint8"), chance.integers(0, CLASSES, shape[0])) for shape in shapes]
    else:
        parts = [(x, y.reshape(-1)) for x, y in keras.datasets.cifar10.load_data()]
    return [(x[y < CLASSES].astype("float32") / 255, y[y < CLASSES]) for x, y in parts]


def make_model(learning_rate: float) -> keras.Model:
    """A small convolutional network."""
    layers = keras.layers
    with STRATEGY.scope():
        model = Distributed(
            [
                keras.Input((32, 32, 3)),
                *(
                    layer
                    for filters in (32, 64, 128)
                    for layer in (layers.Conv2D(filters, 3, padding="same", activation="relu"), layers.MaxPooling2D())
                ),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dense(CLASSES),
            ],
            name="convolutions",
        )
        model.compile(
            keras.optimizers.Adam(learning_rate),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        model.optimizer.build(model.trainable_variables)
    return model


def main() -> None:
    """Train; a batch is that of all workers together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=0.001)
    parser.add_argument("--made-up", action="store_true")
    given = parser.parse_args()
    training, held_out = load_data(given.made_up)
    make_model(given.learning_rate).fit(
        *training, batch_size=given.batch, epochs=given.epochs, verbose=2, validation_data=held_out,
        callbacks=[vs.IterationProbe()],
    )  # fmt: skip


if __name__ == "__main__":
    main()
