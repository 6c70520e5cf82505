"""A Keras model fed by torch's DataLoader: torch."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
from torch.utils.data import DataLoader, TensorDataset, random_split

EPOCHS = 6

torch.manual_seed(15)
data = TensorDataset(torch.randn(14000, 50, 8), torch.randint(0, 3, (14000,)))
train, test = random_split(data, [12000, 2000])
model = keras.Sequential(
    [
        keras.Input((50, 8)),
        keras.layers.Conv1D(64, 5, activation="relu"),
        keras.layers.Conv1D(64, 5, activation="relu"),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(3, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(
    DataLoader(train, batch_size=32, shuffle=True),
    epochs=EPOCHS,
    validation_data=DataLoader(test, batch_size=100),
    callbacks=[keras.callbacks.ModelCheckpoint("epoch-{epoch}.keras"), keras.callbacks.CSVLogger("log.csv")],
    verbose=2,
)
