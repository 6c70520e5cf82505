"""MirroredStrategy over two devices: TensorFlow."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

EPOCHS = 6

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

rng = np.random.default_rng(16)
x, y = rng.random((13000, 20, 20, 3), "float32"), rng.integers(0, 10, 13000)
train = tf.data.Dataset.from_tensor_slices((x[:12000], y[:12000])).shuffle(12000).batch(64)
test = tf.data.Dataset.from_tensor_slices((x[12000:], y[12000:])).batch(64)

with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((20, 20, 3)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(train, epochs=EPOCHS, validation_data=test, verbose=2)
