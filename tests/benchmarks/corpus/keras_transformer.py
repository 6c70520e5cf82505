"""A small transformer for text, several steps in one call: JAX."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from keras import layers

EPOCHS = 6

rng = np.random.default_rng(18)
x, y = rng.integers(0, 4000, (12000, 32)), rng.integers(0, 4, 12000)

tokens = keras.Input((32,), dtype="int32")
h = layers.Embedding(4000, 64)(tokens)
h = layers.LayerNormalization()(layers.add([h, layers.MultiHeadAttention(4, 16)(h, h)]))
h = layers.LayerNormalization()(layers.add([h, layers.Dense(64)(layers.Dense(128, activation="gelu")(h))]))
model = keras.Model(tokens, layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling1D()(h)), name="encoder")
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", steps_per_execution=4)
model.fit(x[:10240], y[:10240], batch_size=32, epochs=EPOCHS, validation_data=(x[10240:], y[10240:]), verbose=2)
model.save("encoder.keras")
