"""A residual network that can go on where it was broken off, with its learning rate lowered on plateaus: JAX."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from keras import layers

EPOCHS = 4


def block(x, filters, stride):
    shortcut = layers.Conv2D(filters, 1, strides=stride, use_bias=False)(x)
    x = layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    return layers.ReLU()(layers.add([layers.BatchNormalization()(x), shortcut]))


inputs = keras.Input((24, 24, 3))
x = layers.Conv2D(12, 3, padding="same")(inputs)
for filters, stride in ((12, 1), (24, 2), (36, 2)):
    x = block(x, filters, stride)
outputs = layers.Dense(5)(layers.GlobalAveragePooling2D()(x))
model = keras.Model(inputs, outputs, name="little_resnet")
model.compile(
    optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)

rng = np.random.default_rng(2)
images, labels = rng.random((6400, 24, 24, 3), "float32"), rng.integers(0, 5, 6400)
model.fit(
    images,
    labels,
    batch_size=32,
    epochs=EPOCHS,
    validation_split=0.1,
    callbacks=[keras.callbacks.BackupAndRestore("backup"), keras.callbacks.ReduceLROnPlateau(patience=3)],
)
