"""Many short epochs over a small tf.data pipeline: TensorFlow."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

EPOCHS = 25

rng = np.random.default_rng(23)
x, y = rng.random((1_600, 30), "float32"), rng.random((1_600, 1), "float32")
data = tf.data.Dataset.from_tensor_slices((x, y))
train = data.take(1_280).shuffle(1_280).batch(32).prefetch(tf.data.AUTOTUNE)
test = data.skip(1_280).batch(32).prefetch(tf.data.AUTOTUNE)

model = keras.Sequential(
    [
        keras.Input((30,)),
        keras.layers.Dense(700, activation="relu"),
        keras.layers.Dense(700, activation="relu"),
        keras.layers.Dense(1),
    ]
)
model.compile(optimizer="adam", loss="mse")
model.fit(train, epochs=EPOCHS, validation_data=test, verbose=2)
