"""A variational autoencoder, its second loss added by a layer: JAX."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from keras import layers, ops

EPOCHS = 6


class Sampling(layers.Layer):
    """Draws from the normal distribution that the encoder describes, and asks it to be near the standard one."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seed = keras.random.SeedGenerator(3)

    def call(self, inputs):
        mean, log_variance = inputs
        divergence = -0.5 * ops.mean(1 + log_variance - ops.square(mean) - ops.exp(log_variance))
        self.add_loss(1e-3 * divergence)
        return mean + ops.exp(0.5 * log_variance) * keras.random.normal(ops.shape(mean), seed=self.seed)


image = keras.Input((28, 28, 1))
x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(image)
x = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(x)
x = layers.Dense(32, activation="relu")(layers.Flatten()(x))
code = Sampling()([layers.Dense(4)(x), layers.Dense(4)(x)])
x = layers.Reshape((7, 7, 16))(layers.Dense(7 * 7 * 16, activation="relu")(code))
x = layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu")(x)
again = layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid")(x)
vae = keras.Model(image, again, name="vae")
vae.compile(optimizer="adam", loss="binary_crossentropy")

data = np.random.default_rng(8).random((8000, 28, 28, 1), "float32")
vae.fit(data, data, batch_size=128, epochs=EPOCHS, verbose=2)
vae.save_weights("vae.weights.h5")
