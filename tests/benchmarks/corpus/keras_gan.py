"""A generative adversarial network with a training step of its own: torch."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch

EPOCHS = 4


class Gan(keras.Model):
    def __init__(self, generator, discriminator, noise):
        super().__init__()
        self.generator, self.discriminator, self.noise = generator, discriminator, noise
        self.seed = keras.random.SeedGenerator(1)
        self.d_loss, self.g_loss = keras.metrics.Mean(name="d_loss"), keras.metrics.Mean(name="g_loss")
        self.built = True

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
        self.loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

    @property
    def metrics(self):
        return [self.d_loss, self.g_loss]

    def train_step(self, real):
        real = real[0] if isinstance(real, tuple) else real
        batch = len(real)
        fake = self.generator(keras.random.normal((batch, self.noise), seed=self.seed))
        both = torch.cat([fake.detach(), real])
        labels = torch.cat([torch.ones(batch, 1), torch.zeros(batch, 1)])
        self._descend(self.discriminator, self.d_optimizer, self.loss_of(labels, self.discriminator(both)), self.d_loss)
        misled = self.discriminator(self.generator(keras.random.normal((batch, self.noise), seed=self.seed)))
        self._descend(self.generator, self.g_optimizer, self.loss_of(torch.zeros(batch, 1), misled), self.g_loss)
        return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result()}

    def _descend(self, network, optimizer, loss, mean):
        self.zero_grad()
        loss.backward()
        weights = network.trainable_weights
        with torch.no_grad():
            optimizer.apply([weight.value.grad for weight in weights], weights)
        mean.update_state(loss.detach())


discriminator = keras.Sequential(
    [
        keras.Input((16, 16, 1)),
        keras.layers.Conv2D(16, 3, strides=2, padding="same"),
        keras.layers.LeakyReLU(negative_slope=0.2),
        keras.layers.Conv2D(32, 3, strides=2, padding="same"),
        keras.layers.LeakyReLU(negative_slope=0.2),
        keras.layers.Flatten(),
        keras.layers.Dense(1),
    ]
)
generator = keras.Sequential(
    [
        keras.Input((16,)),
        keras.layers.Dense(4 * 4 * 32),
        keras.layers.Reshape((4, 4, 32)),
        keras.layers.Conv2DTranspose(32, 4, strides=2, padding="same", activation="relu"),
        keras.layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="sigmoid"),
    ]
)
gan = Gan(generator, discriminator, noise=16)
gan.compile(keras.optimizers.Adam(3e-4), keras.optimizers.Adam(3e-4))
gan.fit(np.random.default_rng(6).random((10240, 16, 16, 1), "float32"), batch_size=32, epochs=EPOCHS, verbose=2)
generator.save("generator.keras")
