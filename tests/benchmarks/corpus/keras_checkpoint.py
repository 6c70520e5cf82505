"""Images, a small convolutional network, the best model kept: TensorFlow."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np

EPOCHS = 6

rng = np.random.default_rng(0)
x = rng.random((24000, 28, 28, 1), "float32")
y = rng.integers(0, 10, 24000)

model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
best = keras.callbacks.ModelCheckpoint("models/best.keras", monitor="val_loss", save_best_only=True)
model.fit(x[:20000], y[:20000], batch_size=64, epochs=EPOCHS, validation_data=(x[20000:], y[20000:]), callbacks=[best])
model.save("models/last.keras")
