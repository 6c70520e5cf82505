"""A tf.data pipeline that prepares images as they are read: TensorFlow."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

EPOCHS = 6

rng = np.random.default_rng(17)
images, labels = rng.integers(0, 255, (13000, 40, 40, 3), "uint8"), rng.integers(0, 12, 13000)


def prepare(image, label):
    image = tf.image.random_flip_left_right(tf.cast(image, tf.float32) / 255.0)
    return tf.image.random_crop(image, (32, 32, 3)), label


data = tf.data.Dataset.from_tensor_slices((images, labels))
train = (
    data.take(11000)
    .shuffle(4000)
    .map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
    .batch(32)
    .prefetch(tf.data.AUTOTUNE)
)
test = data.skip(11000).map(prepare).batch(32).cache()

model = keras.Sequential(
    [
        keras.Input((32, 32, 3)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.SeparableConv2D(48, 3, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(12, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(
    train,
    epochs=EPOCHS,
    validation_data=test,
    callbacks=[keras.callbacks.ModelCheckpoint("best.weights.h5", save_weights_only=True)],
)
