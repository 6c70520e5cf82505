"""Five folds of cross-validation, a new model for each: torch."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np

EPOCHS, FOLDS = 3, 5

rng = np.random.default_rng(10)
x = rng.normal(size=(20000, 40)).astype("float32")
y = rng.integers(0, 2, 20000)


def build():
    model = keras.Sequential(
        [
            keras.Input((40,)),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
    return model


scores = []
for held_out in np.array_split(rng.permutation(len(x)), FOLDS):
    kept = np.setdiff1d(np.arange(len(x)), held_out)
    model = build()
    model.fit(x[kept], y[kept], batch_size=32, epochs=EPOCHS, verbose=0)
    scores.append(model.evaluate(x[held_out], y[held_out], verbose=0)[1])
print(f"accuracy {np.mean(scores):.3f} +- {np.std(scores):.3f}")
