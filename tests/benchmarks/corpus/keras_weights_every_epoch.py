"""A small recurrent network on sequences whose weights are saved after every epoch: JAX."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

EPOCHS = 8

rng = np.random.default_rng(1)
x = rng.integers(0, 2000, (16000, 40))
y = rng.integers(0, 2, 16000)

model = keras.Sequential(
    [
        keras.Input((40,), dtype="int32"),
        keras.layers.Embedding(2000, 32),
        keras.layers.Bidirectional(keras.layers.LSTM(32)),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
saving = keras.callbacks.ModelCheckpoint("weights/{epoch:02d}.weights.h5", save_weights_only=True)
model.fit(x, y, batch_size=64, epochs=EPOCHS, validation_split=0.2, callbacks=[saving], verbose=2)
