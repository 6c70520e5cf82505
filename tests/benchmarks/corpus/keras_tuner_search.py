"""A random search over width and depth with keras-tuner: TensorFlow."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import keras_tuner
import numpy as np

EPOCHS = 3

rng = np.random.default_rng(5)
x = rng.normal(size=(32000, 64)).astype("float32")
y = (x**2).mean(axis=1)


def build(choices):
    model = keras.Sequential([keras.Input((64,))])
    for _ in range(choices.Int("depth", 2, 4)):
        model.add(keras.layers.Dense(choices.Choice("width", [128, 256, 384]), activation="relu"))
    model.add(keras.layers.Dense(1))
    model.compile(optimizer="adam", loss="mse")
    return model


tuner = keras_tuner.RandomSearch(
    build, objective="val_loss", max_trials=4, seed=7, directory="search", project_name="net"
)
tuner.search(x[:26000], y[:26000], batch_size=32, epochs=EPOCHS, validation_data=(x[26000:], y[26000:]), verbose=0)
print(tuner.get_best_hyperparameters()[0].values)
