"""Learning curves of small trainings, made here: forecasts are chosen on them, and reported on other people's.

Each curve is a real training, stochastic gradient descent with momentum on a made-up task, in numpy: linear or with one
hidden layer, with and without noise in labels and inputs, constant, falling or stepped learning rate, scored by the
accuracy or the loss on data it does not see. The seed decides everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

EPOCHS = 120
Floats = NDArray[np.float64]


class Task(NamedTuple):
    """Inputs and classes to learn, and others to score by."""

    inputs: Floats
    classes: NDArray[np.int64]
    unseen: Floats
    unseen_classes: NDArray[np.int64]


def make_curves(count: int, *, seed: int = 0) -> Iterator[list[float]]:
    """``count`` curves, larger is better."""
    for number in range(count):
        random = np.random.default_rng([seed, number])
        yield train(make_task(random), random)


def make_task(random: np.random.Generator) -> Task:
    """Classes that a random network gives to random inputs, some of them wrongly."""
    width, classes = int(random.choice([10, 20, 40])), int(random.choice([2, 5, 10]))
    seen, unseen = int(random.choice([400, 1000, 2500])), int(random.choice([200, 1000, 4000]))
    inputs = random.standard_normal((seen + unseen, width))
    hidden = np.tanh(inputs @ random.standard_normal((width, 24)) * random.choice([0.5, 1.0]))
    truth = np.argmax(hidden @ random.standard_normal((24, classes)), axis=1)
    wrong = random.random(seen + unseen) < random.choice([0.0, 0.1, 0.25])
    truth = np.where(wrong, random.integers(0, classes, seen + unseen), truth)
    return Task(inputs[:seen], truth[:seen], inputs[seen:], truth[seen:])


def train(task: Task, random: np.random.Generator) -> list[float]:
    """The score after each epoch."""
    width, classes = task.inputs.shape[1], int(task.classes.max()) + 1
    hidden = int(random.choice([0, 16, 48, 96]))
    shapes = [(width + 1, hidden), (hidden + 1, classes)] if hidden else [(width + 1, classes)]
    layers = [random.standard_normal(shape) / np.sqrt(shape[0]) for shape in shapes]
    speeds = [np.zeros(shape) for shape in shapes]
    batch = int(random.choice([16, 32, 64, 128, 256]))
    rate, decay, blur = 10 ** random.uniform(-2.8, -0.7), random.choice([0.0, 1e-4, 1e-3]), random.choice([0.0, 0.2])
    schedule, by_loss = random.choice(["constant", "falling", "stepped"]), bool(random.random() < 0.3)
    one_hot = np.eye(classes)[task.classes]
    curve = []
    for epoch in range(EPOCHS):
        now = rate * {"constant": 1.0, "falling": 1 - epoch / EPOCHS, "stepped": 0.1 ** (epoch // 40)}[str(schedule)]
        order = random.permutation(len(task.inputs))
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            blurred = task.inputs[some] + (blur * random.standard_normal((len(some), width)) if blur else 0.0)
            for layer, speed, slope in zip(layers, speeds, _slopes(layers, blurred, one_hot[some]), strict=True):
                speed *= 0.9
                speed -= now * (slope + decay * layer)
                layer += speed
        chances = _run(layers, task.unseen)[-1]
        right = chances[np.arange(len(chances)), task.unseen_classes]
        hit = chances.argmax(axis=1) == task.unseen_classes
        curve.append(float(np.log(np.maximum(right, 1e-9)).mean() if by_loss else hit.mean()))
    return curve


def _with_one(values: Floats) -> Floats:
    return np.column_stack([values, np.ones(len(values))])


def _run(layers: list[Floats], inputs: Floats) -> list[Floats]:
    """What each layer is given, and the chances of the classes."""
    given = [_with_one(inputs)]
    for layer in layers[:-1]:
        given.append(_with_one(np.maximum(given[-1] @ layer, 0.0)))
    scores = given[-1] @ layers[-1]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return [*given, scores / scores.sum(axis=1, keepdims=True)]


def _slopes(layers: list[Floats], inputs: Floats, wanted: Floats) -> list[Floats]:
    *given, chances = _run(layers, inputs)
    error = (chances - wanted) / len(wanted)
    slopes = []
    for layer, before in zip(reversed(layers), reversed(given), strict=True):
        slopes.append(before.T @ error)
        error = (error @ layer.T)[:, :-1] * (before[:, :-1] > 0)
    return slopes[::-1]
