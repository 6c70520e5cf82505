"""Trainings with a known cause of slowness, for ``diagnosis.py``. Each runs in a process of its own.

There are two sets. The rules of the diagnosis were made while looking at trainings of the first; the second has another
network, other data, other batches and other delays, and nobody looks at it before a rule is settled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ONE_CORE, ALL_CORES = "one", "all"


@dataclass(frozen=True)
class Case:
    """What is done to a training, on how many cores, and what a diagnosis has to say.

    ``also`` may be said as well: it follows from the cause, whether or not it is strong enough to be seen.
    ``slow`` trainings take long for each step, so that fewer steps do.
    """

    expected: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    cores: str = ALL_CORES
    slow: bool = False


def _codes(*names: str) -> frozenset[str]:
    return frozenset(names)


_WAITS = Case(_codes("input-bound"), slow=True)
CASES: dict[str, Case] = {
    "healthy": Case(),
    "healthy dataset": Case(),
    "healthy on one core": Case(_codes("cpu-limited"), cores=ONE_CORE),
    "sleeping tf.data": _WAITS,
    "sleeping PyDataset": _WAITS,
    "sleeping generator": _WAITS,
    "sleeping DataLoader": _WAITS,
    "heavy preparation": _WAITS,
    "heavy preparation on one core": Case(
        _codes("input-bound", "cpu-saturated"), _codes("cpu-limited"), cores=ONE_CORE, slow=True
    ),
    "heavy DataLoader workers": Case(_codes("input-bound"), _codes("cpu-saturated"), slow=True),
    "heavy tf.data map": Case(_codes("input-bound"), _codes("cpu-saturated"), slow=True),
    "spinning neighbours": Case(_codes("noisy-neighbour")),
    "spinning neighbour on one core": Case(_codes("noisy-neighbour"), _codes("cpu-limited"), cores=ONE_CORE),
    "neighbour on the other core": Case(also=_codes("cpu-limited"), cores=ONE_CORE),
    "memory held by another": Case(),
    # What of programs and libraries is kept in memory has to give way, and is read again.
    "memory filled by another": Case(_codes("memory-full"), _codes("disk-busy", "noisy-neighbour")),
    "disk written by another": Case(_codes("disk-busy"), _codes("noisy-neighbour")),
    "disk written in steps": Case(_codes("disk-busy"), slow=True),
    "sleep between epochs": Case(_codes("slow-boundaries")),
    # What grows is waited for late in the run only.
    "growing data": Case(_codes("slowing-down"), _codes("input-bound"), slow=True),
}


@dataclass(frozen=True)
class Setting:
    """What a set of trainings shares."""

    build: Callable[[Any], list[Any]]
    shape: tuple[int, ...]
    batch: int
    sleep_seconds: float
    """What slow data take: several times a step's time, or reading ahead would hide them."""
    steps: int
    slow_steps: int = 40


def _convolutions(keras: Any) -> list[Any]:
    layers = keras.layers
    return [
        layers.Conv2D(16, 3, activation="relu"),
        layers.Conv2D(16, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
    ]


def _recurrent(keras: Any) -> list[Any]:
    layers = keras.layers
    return [layers.Dense(64), layers.GRU(96), layers.Dense(256, activation="relu")]


SETS = {
    "first": Setting(_convolutions, (32, 32, 3), batch=32, sleep_seconds=0.12, steps=120),
    "second": Setting(_recurrent, (24, 32), batch=48, sleep_seconds=0.15, steps=120, slow_steps=30),
}
GROWING_STEPS, GROWING_EPOCHS = 12, 6
FITTED_EPOCHS = 3


def train(name: str, which: str, folder: Path) -> dict[str, Any]:
    """One training of the case ``name`` on the backend of this process, probed and diagnosed."""
    import keras

    import vmselect as vs

    case, setting = CASES[name], SETS[which]
    steps = setting.slow_steps if case.slow else setting.steps
    rng = np.random.default_rng(0)
    x = rng.random((setting.batch * (steps + 20), *setting.shape), "float32")
    y = rng.integers(0, 10, len(x))
    model = keras.Sequential(
        [keras.Input(setting.shape), *setting.build(keras), keras.layers.Dense(10, activation="softmax")]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    growing = name == "growing data"
    probe = (
        vs.IterationProbe(stop=False, verbose=0, sample=0.5)
        if growing
        else vs.IterationProbe(steps=steps, validations=2, verbose=0, sample=0.5)
    )
    data, labels = make_data(name, setting, x, y)
    fit: dict[str, Any] = {} if labels is None else {"batch_size": setting.batch}
    if name == "sleeping generator":
        fit["steps_per_epoch"] = steps + 20
    began = time.perf_counter()
    epochs = GROWING_EPOCHS if growing else FITTED_EPOCHS
    model.fit(data, labels, epochs=epochs, verbose=0, callbacks=[*make_callbacks(name, folder), probe], **fit)
    profile = probe.profile
    wait, usage, found = profile.timeline.input_wait, profile.usage, vs.diagnose(profile)
    quantities = ("usable_cpu_share", "process_cores", "other_cores", "steal_share", "io_pressure_share")
    return {
        "codes": sorted({one.code for one in found}),
        "messages": [f"{one.code}: {one.message}" for one in found],
        "input_wait_share": None if wait is None else round(wait.share, 3),
        "seconds": round(time.perf_counter() - began, 2),
        "step_seconds": profile.timeline.steps.labelled("steady")[-1].each,
        "means": {} if usage is None else {name: usage.mean(name) for name in quantities},
        "cores": len(os.sched_getaffinity(0)),
        "machine_cores": os.cpu_count() or 1,
    }


def make_data(name: str, setting: Setting, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """What ``fit`` is given: data and labels, or one object and None."""
    import keras

    batch, delay = setting.batch, setting.sleep_seconds
    batches = len(x) // batch

    def take(index: int) -> tuple[np.ndarray, np.ndarray]:
        return x[index * batch : (index + 1) * batch], y[index * batch : (index + 1) * batch]

    class Data(keras.utils.PyDataset):
        def __init__(self, work: Callable[[int], object]) -> None:
            super().__init__()
            self.work, self.epoch = work, 0

        def __len__(self) -> int:
            return GROWING_STEPS if name == "growing data" else batches

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            self.work(self.epoch)
            return take(index)

        def on_epoch_end(self) -> None:
            self.epoch += 1

    def generate() -> Any:
        while True:
            for index in range(batches):
                time.sleep(delay)
                yield take(index)

    if name == "healthy dataset":
        return Data(lambda _: None), None
    if name == "sleeping PyDataset":
        return Data(lambda _: time.sleep(delay)), None
    if name == "growing data":
        return Data(lambda epoch: time.sleep(epoch * delay / 4)), None
    if name.startswith("heavy preparation"):
        return Data(lambda _: work_for(delay, x[0])), None
    if name == "sleeping generator":
        return generate(), None
    if name == "sleeping tf.data":
        return _tf_data(setting, x, y, sleep=True), None
    if name == "heavy tf.data map":
        return _tf_data(setting, x, y, sleep=False), None
    if name == "sleeping DataLoader":
        return _loader(setting, x, y, time.sleep), None
    if name == "heavy DataLoader workers":
        return _loader(setting, x, y, lambda seconds: work_for(4 * seconds, x[0]), workers=2), None
    return x, y


def work_for(seconds: float, some: np.ndarray) -> None:
    """Keep one core busy for that much of its time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        np.sort(np.tile(some.ravel(), 8))


def _tf_data(setting: Setting, x: np.ndarray, y: np.ndarray, *, sleep: bool) -> Any:
    import tensorflow as tf

    def wait(a: Any, b: Any) -> Any:
        time.sleep(setting.sleep_seconds)
        return a, b

    rounds = 0 if sleep else _rounds(tf, 2 * setting.sleep_seconds)

    def slow(a: Any, b: Any) -> Any:
        if sleep:
            a, b = tf.py_function(wait, (a, b), (tf.float32, tf.int64))
            return tf.ensure_shape(a, (None, *setting.shape)), tf.ensure_shape(b, (None,))
        seed = tf.random.uniform((256, 256))
        mixed = tf.while_loop(lambda i, _: i < rounds, lambda i, m: (i + 1, tf.tanh(m @ m)), (0, seed))[1]
        return a + 1e-9 * tf.reduce_mean(mixed), b

    pairs = tf.data.Dataset.from_tensor_slices((x, y)).batch(setting.batch, drop_remainder=True)
    mapped = pairs.map(slow, num_parallel_calls=None if sleep else len(os.sched_getaffinity(0)))
    return mapped.apply(tf.data.experimental.assert_cardinality(len(x) // setting.batch))


def _rounds(tf: Any, seconds: float) -> int:
    """How many products of two matrices take about that long here."""
    some = tf.random.uniform((256, 256))

    @tf.function
    def multiply(times: Any) -> Any:
        return tf.while_loop(lambda i, _: i < times, lambda i, m: (i + 1, tf.tanh(m @ m)), (0, some))[1]

    multiply(tf.constant(5))
    began = time.perf_counter()
    multiply(tf.constant(50)).numpy()
    return max(1, int(50 * seconds / (time.perf_counter() - began)))


def _loader(
    setting: Setting, x: np.ndarray, y: np.ndarray, work: Callable[[float], object], *, workers: int = 0
) -> Any:
    import torch

    class Slow(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, index: int) -> Any:
            work(setting.sleep_seconds / setting.batch)
            return x[index], y[index]

    return torch.utils.data.DataLoader(Slow(), batch_size=setting.batch, num_workers=workers)


def make_callbacks(name: str, folder: Path) -> list[Any]:
    """What else happens in the training."""
    import keras

    class Writing(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            with (folder / "own.bin").open("wb", buffering=0) as target:
                target.write(_BLOCK)
                os.fsync(target.fileno())

    class Sleeping(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            time.sleep(1.5)

    if name == "disk written in steps":
        return [Writing()]
    return [Sleeping()] if name == "sleep between epochs" else []


_BLOCK = os.urandom(2**20) * 48
