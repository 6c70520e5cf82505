"""EarlyStopping that ends the training long before its last epoch: torch."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np

EPOCHS = 150

rng = np.random.default_rng(22)
x, y = rng.random((3_000, 24, 24, 1), "float32"), rng.integers(0, 5, 3_000)  # nothing to learn

model = keras.Sequential(
    [
        keras.Input((24, 24, 1)),
        keras.layers.Conv2D(12, 3, activation="relu"),
        keras.layers.Conv2D(12, 3, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(5, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=8, restore_best_weights=True)
history = model.fit(x, y, batch_size=50, epochs=EPOCHS, validation_split=0.2, callbacks=[stop], verbose=2)
print(f"stopped after {len(history.epoch)} epochs")
