"""Batches that a PyDataset prepares, images turned and shifted at random: torch."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np

EPOCHS = 8


class Turned(keras.utils.PyDataset):
    def __init__(self, x, y, batch_size, **options):
        super().__init__(**options)
        self.x, self.y, self.batch_size = x, y, batch_size
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return len(self.x) // self.batch_size

    def __getitem__(self, index):
        part = slice(index * self.batch_size, (index + 1) * self.batch_size)
        turned = [np.roll(np.rot90(image, self.rng.integers(4)), self.rng.integers(-3, 4), 0) for image in self.x[part]]
        return np.stack(turned), self.y[part]


rng = np.random.default_rng(13)
x = rng.random((6500, 24, 24, 3), "float32")
y = rng.integers(0, 8, 6500)
model = keras.Sequential(
    [
        keras.Input((24, 24, 3)),
        keras.layers.Conv2D(24, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(8),
    ]
)
model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(Turned(x[:2400], y[:2400], 24), epochs=EPOCHS, validation_data=(x[2400:], y[2400:]), verbose=2)
