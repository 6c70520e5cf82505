"""A table of numbers, a deep dense network, its history in a CSV file: torch."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np

EPOCHS = 14

rng = np.random.default_rng(3)
x = rng.normal(size=(30000, 60)).astype("float32")
y = (x[:, :5].sum(axis=1) + rng.normal(size=30000)).astype("float32")

model = keras.Sequential([keras.Input((60,))])
for width in (256, 256, 128):
    model.add(keras.layers.Dense(width, activation="gelu"))
    model.add(keras.layers.BatchNormalization())
model.add(keras.layers.Dense(1))
model.compile(optimizer=keras.optimizers.AdamW(1e-3), loss="huber", metrics=["mae"])
model.fit(
    x,
    y,
    batch_size=100,
    epochs=EPOCHS,
    validation_split=0.25,
    callbacks=[keras.callbacks.CSVLogger("history.csv"), keras.callbacks.TerminateOnNaN()],
    verbose=2,
)
