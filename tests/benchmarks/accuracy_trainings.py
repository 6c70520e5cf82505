"""Trainings of different kinds, small enough for a CPU, for the accuracy benchmark. Made-up data; time is the point."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Training:
    """A model, its data and the arguments of its ``fit``."""

    build: Callable[[Any], Any]
    shape: tuple[int, ...]
    classes: int = 10
    tokens: int | None = None
    examples: int = 2_048
    validation: int = 512
    batch: int = 64
    epochs: int = 4
    dataset: bool = False
    fit: dict[str, Any] = field(default_factory=dict)
    compile: dict[str, Any] = field(default_factory=dict)


def _cnn(keras: Any) -> list[Any]:
    layers = keras.layers
    return [
        layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(32, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
    ]


def _deep_cnn(keras: Any) -> list[Any]:
    layers = keras.layers
    stack = []
    for filters in (16, 16, 32, 32):
        stack += [layers.Conv2D(filters, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()]
    return [*stack[:6], layers.MaxPooling2D(), *stack[6:], layers.GlobalAveragePooling2D()]


def _separable(keras: Any) -> list[Any]:
    layers = keras.layers
    return [
        layers.SeparableConv2D(32, 3, activation="relu", padding="same"),
        layers.MaxPooling2D(),
        layers.SeparableConv2D(64, 3, activation="relu", padding="same"),
        layers.GlobalMaxPooling2D(),
    ]


def _lstm(keras: Any) -> list[Any]:
    return [keras.layers.LSTM(48), keras.layers.Dense(32, activation="relu")]


def _gru(keras: Any) -> list[Any]:
    return [keras.layers.Embedding(2_000, 32), keras.layers.GRU(48)]


def _attention(keras: Any) -> list[Any]:
    layers = keras.layers

    @keras.saving.register_keras_serializable("accuracy")
    class Block(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.attention = layers.MultiHeadAttention(4, 16)
            self.norm = layers.LayerNormalization()
            self.dense = keras.Sequential([layers.Dense(128, activation="gelu"), layers.Dense(64)])

        def call(self, x: Any) -> Any:
            x = self.norm(x + self.attention(x, x))
            return x + self.dense(x)

    return [layers.Dense(64), Block(), Block(), layers.GlobalAveragePooling1D()]


def _dense(keras: Any) -> list[Any]:
    layers = keras.layers
    return [layers.Dense(512, activation="relu"), layers.Dropout(0.2), layers.Dense(512, activation="relu")]


def _conv1d(keras: Any) -> list[Any]:
    layers = keras.layers
    return [
        layers.Conv1D(48, 5, activation="relu"),
        layers.Conv1D(48, 5, strides=2, activation="relu"),
        layers.GlobalAveragePooling1D(),
    ]


def _bag_of_words(keras: Any) -> list[Any]:
    layers = keras.layers
    return [layers.Embedding(5_000, 64), layers.GlobalAveragePooling1D(), layers.Dense(128, activation="relu")]


TRAININGS = {
    "cnn": Training(_cnn, (32, 32, 3), examples=15_000, validation=1_000),
    "cnn-tfdata": Training(_cnn, (28, 28, 1), examples=16_000, validation=640, dataset=True),
    "deep-cnn": Training(_deep_cnn, (24, 24, 3), examples=5_000, validation=200, batch=32),
    "separable-big-validation": Training(_separable, (24, 24, 3), examples=6_400, validation=6_400, batch=32),
    "lstm": Training(_lstm, (40, 16), examples=14_000, validation=300),
    "gru-text-tfdata": Training(_gru, (30,), tokens=2_000, examples=14_400, validation=1_024, dataset=True),
    "attention": Training(_attention, (32, 24), examples=6_400, validation=512, batch=32),
    "attention-big-validation": Training(_attention, (24, 24), examples=4_800, validation=9_600, batch=32),
    "dense": Training(_dense, (784,), examples=30_000, validation=2_000, batch=128),
    "conv1d-freq2": Training(_conv1d, (96, 8), examples=16_000, validation=4_000, fit={"validation_freq": 2}),
    "text-no-validation": Training(_bag_of_words, (64,), tokens=5_000, examples=32_000, validation=0),
}
"""Kinds of training by name."""


def run_training(name: str, callback: Any, *, epochs: int | None = None, seed: int = 0) -> Any:
    """Build the model and its data, fit with the probe ``callback``, and return its profile."""
    import keras

    training = TRAININGS[name]
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    model = keras.Sequential(
        [keras.Input(training.shape), *training.build(keras), keras.layers.Dense(training.classes)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"], **training.compile)

    def make(count: int) -> tuple[Any, Any]:
        if training.tokens:
            x: Any = rng.integers(0, training.tokens, (count, *training.shape)).astype("int32")
        else:
            x = rng.standard_normal((count, *training.shape)).astype("float32")
        return x, rng.integers(0, training.classes, count).astype("int32")

    data, validation = make(training.examples), make(training.validation) if training.validation else None
    ended: list[float] = []
    options: dict[str, Any] = {
        "epochs": epochs or training.epochs,
        "verbose": 0,
        "callbacks": [
            callback,
            keras.callbacks.LambdaCallback(on_train_end=lambda _: ended.append(time.perf_counter())),
        ],
        **training.fit,
    }
    if training.dataset:
        options["validation_data"] = _as_dataset(validation, training.batch)
        data = (_as_dataset(data, training.batch, shuffle=True),)
    else:
        options |= {"batch_size": training.batch, "validation_data": validation}
    model.fit(*data, **options)
    return _until_return(callback.profile, time.perf_counter() - ended[0])


def _until_return(profile: Any, after_seconds: float) -> Any:
    """The profile with the time that ``fit`` took after its last hook: its input is taken down there, and may wait."""
    timeline = profile.timeline
    if timeline.fit_seconds is None:
        return profile
    seconds = timeline.fit_seconds + after_seconds
    return profile.model_copy(update={"timeline": timeline.model_copy(update={"fit_seconds": seconds})})


def _as_dataset(arrays: Any, batch: int, *, shuffle: bool = False) -> Any:
    if arrays is None:
        return None
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    if shuffle:
        dataset = dataset.shuffle(1_024)
    return dataset.batch(batch).prefetch(tf.data.AUTOTUNE)
