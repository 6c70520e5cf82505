"""A network for signals with curves and histograms for TensorBoard: TensorFlow."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np

EPOCHS = 6

rng = np.random.default_rng(4)
x = rng.normal(size=(25000, 128, 4)).astype("float32")
y = keras.utils.to_categorical(rng.integers(0, 6, 25000), 6)

model = keras.Sequential(
    [
        keras.Input((128, 4)),
        keras.layers.Conv1D(32, 7, activation="relu"),
        keras.layers.Conv1D(64, 5, strides=2, activation="relu"),
        keras.layers.GlobalMaxPooling1D(),
        keras.layers.Dense(6, activation="softmax"),
    ]
)
model.compile(optimizer="rmsprop", loss="categorical_crossentropy", metrics=["accuracy"])
model.fit(
    x[:20000],
    y[:20000],
    batch_size=40,
    epochs=EPOCHS,
    validation_data=(x[20000:], y[20000:]),
    callbacks=[keras.callbacks.TensorBoard("logs", histogram_freq=1), keras.callbacks.CSVLogger("logs.csv")],
)
