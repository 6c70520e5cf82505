"""A Python generator without an end and steps_per_epoch: TensorFlow."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np

EPOCHS, STEPS = 6, 500


def waves(batch_size):
    rng = np.random.default_rng(14)
    time = np.linspace(0, 1, 100, dtype="float32")
    while True:
        frequency = rng.uniform(1, 20, (batch_size, 1)).astype("float32")
        noise = rng.normal(scale=0.3, size=(batch_size, 100)).astype("float32")
        yield (np.sin(2 * np.pi * frequency * time) + noise)[..., None], frequency


model = keras.Sequential(
    [
        keras.Input((100, 1)),
        keras.layers.Conv1D(32, 9, activation="relu"),
        keras.layers.Conv1D(32, 9, strides=4, activation="relu"),
        keras.layers.GRU(24),
        keras.layers.Dense(1),
    ]
)
model.compile(optimizer="adam", loss="mae")
model.fit(waves(32), steps_per_epoch=STEPS, epochs=EPOCHS, validation_data=waves(32), validation_steps=40, verbose=2)
