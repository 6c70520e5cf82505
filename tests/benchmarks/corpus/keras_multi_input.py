"""Two inputs, words and numbers, and two outputs: JAX."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from keras import layers

EPOCHS = 12

rng = np.random.default_rng(12)
count = 45000
words = rng.integers(0, 3000, (count, 30))
facts = rng.normal(size=(count, 12)).astype("float32")
urgent, days = rng.integers(0, 2, (count, 1)).astype("float32"), rng.random((count, 1)).astype("float32")

text = keras.Input((30,), dtype="int32", name="words")
table = keras.Input((12,), name="facts")
x = layers.Embedding(3000, 48)(text)
x = layers.Conv1D(64, 3, activation="relu", padding="same")(x)
x = layers.concatenate([layers.GlobalMaxPooling1D()(x), layers.Dense(64, activation="relu")(table)])
x = layers.Dense(128, activation="relu")(x)
outputs = {
    "urgent": layers.Dense(1, activation="sigmoid", name="urgent")(x),
    "days": layers.Dense(1, name="days")(x),
}
model = keras.Model({"words": text, "facts": table}, outputs, name="tickets")
model.compile(
    optimizer="adam", loss={"urgent": "binary_crossentropy", "days": "mse"}, loss_weights={"urgent": 1.0, "days": 0.2}
)
model.fit(
    {"words": words, "facts": facts},
    {"urgent": urgent, "days": days},
    batch_size=32,
    epochs=EPOCHS,
    validation_split=0.1,
    callbacks=[keras.callbacks.ModelCheckpoint("tickets.keras", save_best_only=True)],
    verbose=2,
)
