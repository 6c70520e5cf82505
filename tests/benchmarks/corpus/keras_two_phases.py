"""A new head on a frozen body, then all of it at a low rate: TensorFlow."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np

HEAD_EPOCHS, EPOCHS = 6, 4

rng = np.random.default_rng(9)
x = rng.random((4000, 48, 48, 3), "float32")
y = rng.integers(0, 4, 4000)
train, test = (x[:3400], y[:3400]), (x[3400:], y[3400:])

body = keras.Sequential([keras.Input((48, 48, 3))], name="body")
for filters, stride in ((24, 2), (32, 2), (48, 1)):
    body.add(keras.layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False))
    body.add(keras.layers.BatchNormalization())
    body.add(keras.layers.ReLU())
body.trainable = False
inputs = keras.Input((48, 48, 3))
features = keras.layers.GlobalAveragePooling2D()(body(inputs, training=False))
model = keras.Model(inputs, keras.layers.Dense(4, activation="softmax")(features), name="flowers")
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(*train, batch_size=32, epochs=HEAD_EPOCHS, validation_data=test)

body.trainable = True
model.compile(optimizer=keras.optimizers.Adam(1e-5), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(*train, batch_size=32, epochs=EPOCHS, validation_data=test)
model.save("flowers.keras")
