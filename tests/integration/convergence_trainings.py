"""Run in a process of its own, under one Keras backend: ConvergenceProbe beside the real EarlyStopping."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vmselect as vs
from vmselect.convergence import ConvergenceStudy
from vmselect.probe.convergence import ConvergenceProbe
from vmselect.records.convergence import StoppingRule

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from seeds import set_seed

EPOCHS = 12
EXAMPLES, SEEDS = (50, (1,)) if "quick" in sys.argv else (200, (1, 2))
SIZES = (16,) if "quick" in sys.argv else (8, 32)


def data(noise: float) -> tuple[Any, Any, Any, Any]:
    random = np.random.default_rng(3)
    x = random.normal(size=(96, 4)).astype("float32")
    y = (x[:, 0] * x[:, 1] + noise * random.normal(size=96) > 0).astype("float32")[:, None]
    return x[:64], y[:64], x[64:], y[64:]


def small() -> Any:
    layers = [keras.layers.Input((4,)), keras.layers.Dense(1, activation="sigmoid")]
    return keras.Sequential(layers, name="small")


def deeper() -> Any:
    layers = [
        keras.layers.Input((4,)),
        keras.layers.Dense(6, activation="relu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
    return keras.Sequential(layers)


def train(
    build: Any,
    batch_size: int,
    seed: int,
    callbacks: list[Any],
    *,
    noise: float = 1.0,
    validate: bool = True,
    **fit: Any,
) -> dict[str, list[float]]:
    set_seed(seed)
    model = build()
    model.compile(keras.optimizers.SGD(0.5), loss="binary_crossentropy", metrics=["accuracy"])
    x, y, vx, vy = data(noise)
    options = {"epochs": EPOCHS, "verbose": 0} | ({"validation_data": (vx, vy)} if validate else {}) | fit
    if options.pop("as_dataset", False):
        pairs = [(x[i : i + batch_size], y[i : i + batch_size]) for i in range(0, len(x), batch_size)]
        history = model.fit(Pairs(pairs), callbacks=callbacks, **options)
    else:
        history = model.fit(x, y, batch_size=batch_size, callbacks=callbacks, **options)
    return {name: list(map(float, values)) for name, values in history.history.items()} | {"epoch": history.epoch}


class Pairs(keras.utils.PyDataset):
    def __init__(self, pairs: list[Any]) -> None:
        super().__init__()
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Any:
        return self.pairs[index]


MODELS = (small,) if "quick" in sys.argv else (small, deeper)
VARIANTS: list[dict[str, Any]] = [
    {"monitor": "val_accuracy", "patience": 5},
    {"monitor": "val_loss", "patience": 2, "mode": "min"},
    {"monitor": "val_loss", "patience": 1, "min_delta": 0.01, "start_from_epoch": 3},
]


def real_trainings() -> int:
    """Two models, two batch sizes, two seeds; the count and the training itself are those of EarlyStopping."""
    stopped = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (build, size, seed) in enumerate(itertools.product(MODELS, SIZES, SEEDS)):
            frequency = 2 if number % 4 == 3 else 1
            probes = [ConvergenceProbe(Path(folder) / build.__name__ / str(i), **r) for i, r in enumerate(VARIANTS)]
            watched = train(build, size, seed, probes, validation_freq=frequency)
            assert len(watched["epoch"]) == EPOCHS, "a probe altered the training"
            # The rule of the dissertation for every training, the others in turn.
            for rule, probe in [(VARIANTS[k], probes[k]) for k in {0, (number + seed) % len(VARIANTS)}]:
                real = train(build, size, seed, [keras.callbacks.EarlyStopping(**rule)], validation_freq=frequency)
                count = len(real["epoch"])
                assert probe.epochs_to_stabilise == count, (number, rule, probe.epochs_to_stabilise, count)
                assert watched["loss"][:count] == real["loss"], "a probe altered the training"
                run = probe.run
                assert run is not None
                assert run.batch_size == size
                assert run.epochs_to_stabilise == count
                assert run.final == real[rule["monitor"]][-1]
                if probe.stabilised:
                    assert run.rule.stop_after(run.curve.points) == count
                assert ConvergenceStudy.load(probe.saved_to or "").runs == (run,)
                stopped += count < EPOCHS
            if number % 4 == 0:
                halted = train(
                    build, size, seed, [ConvergenceProbe(path=False, **rule, stop=True)], validation_freq=frequency
                )
                assert halted == real, "stop=True is not EarlyStopping"
        if len(SEEDS) > 1:
            study = vs.ConvergenceStudy.load(Path(folder) / "deeper" / "0")
            assert study.batch_sizes == SIZES, study
            assert len(study.runs) == len(SIZES) * len(SEEDS)
            assert study.model == "sequential", study.model
    return stopped


def odd_trainings() -> None:
    rule: dict[str, Any]
    # Several fits, a copy and a pickle in between; weights put back as EarlyStopping does.
    probe = pickle.loads(pickle.dumps(copy.deepcopy(ConvergenceProbe(path=False, patience=1))))  # noqa: S301
    for seed in (1, 2):
        train(small, 16, seed, [probe])
        again = train(small, 16, seed, [keras.callbacks.EarlyStopping("val_accuracy", patience=1)])
        assert probe.epochs_to_stabilise == len(again["epoch"])
        assert pickle.loads(pickle.dumps(probe)).run == copy.deepcopy(probe).run == probe.run  # noqa: S301
    # The best weights are put back, if that is asked for.
    rule = {"monitor": "val_loss", "patience": 1, "restore_best_weights": True}
    kept = []
    for callback in (ConvergenceProbe(path=False, **rule, stop=True), keras.callbacks.EarlyStopping(**rule)):
        keep = Keep()
        train(deeper, 8, 3, [callback, keep])
        kept.append(keep.weights)
    assert all(np.array_equal(a, b) for a, b in zip(*kept, strict=True))
    # The batch size is learnt from data that do not tell it.
    train(small, 16, 1, [probe], as_dataset=True)
    assert probe.run.batch_size == 16, probe.run
    # A resumed training counts from its first epoch on, as Keras numbers them.
    rule = {"monitor": "val_accuracy", "patience": 2}
    probe = ConvergenceProbe(path=False, **rule)
    train(small, 16, 5, [probe], initial_epoch=4)
    real = train(small, 16, 5, [keras.callbacks.EarlyStopping(**rule)], initial_epoch=4)
    assert probe.epochs_to_stabilise == real["epoch"][-1] + 1
    # Losses that are not numbers.
    for where in ((), 3):
        counts = []
        for callback in (
            ConvergenceProbe(path=False, monitor="val_loss", patience=2),
            keras.callbacks.EarlyStopping(patience=2),
        ):
            spoil = Spoil(where)
            history = train(small, 16, 5, [spoil, callback])
            counts.append(getattr(callback, "epochs_to_stabilise", len(history["epoch"])))
        assert counts[0] == counts[1] <= 7, counts
    with tempfile.TemporaryDirectory() as folder:
        files(Path(folder))
    # A metric that is not there, or does not come before the training ends.
    with pytest.raises(vs.errors.ProbeError, match="validation_freq"):
        train(small, 16, 1, [ConvergenceProbe(path=False)], validation_freq=EPOCHS + 1)
    with pytest.raises(vs.errors.ProbeError, match="val_loss"):
        train(small, 16, 1, [ConvergenceProbe(path=False, monitor="val_f1")])
    with pytest.raises(vs.errors.ProbeError, match="accuracy"):
        train(small, 16, 1, [ConvergenceProbe(path=False, monitor="f1")])
    with pytest.raises(vs.errors.ProbeError, match="validation"):
        train(small, 16, 1, [ConvergenceProbe(path=False)], validate=False)


def files(folder: Path) -> None:
    """What is kept on disk when trainings share a path, or do not come to their end."""
    for path in (folder / "study.json", folder / "study"):
        probe = ConvergenceProbe(path)
        train(small, 16, 1, [probe], epochs=3)
        train(small, 32, 1, [probe], epochs=3)
        train(small, 16, 2, [ConvergenceProbe(path)], epochs=3)
        study = vs.ConvergenceStudy.load(path)
        assert [run.batch_size for run in study.runs] == [16, 16, 32], study
    with pytest.raises(vs.errors.ProfileError, match="patience"):
        train(small, 16, 1, [ConvergenceProbe(folder / "study.json", patience=3)])
    assert len(vs.ConvergenceStudy.load(folder / "study.json").runs) == 3
    profile = vs.Profile.from_times(instance_type="a", batch_size=8, steps_per_epoch=3, iteration_seconds=0.1)
    with pytest.raises(vs.errors.ProfileError):
        train(small, 16, 1, [ConvergenceProbe(profile.save(folder / "profile.json"))])
    # Who interrupts a training because it is stable has its count on disk; one that is not is known to be unfinished.
    for patience, after in ((1, True), (50, False)):
        probe = ConvergenceProbe(folder / f"cut-{patience}.json", monitor="val_loss", mode="max", patience=patience)
        with pytest.raises(KeyboardInterrupt):
            train(small, 16, 1, [Interrupt(5), probe])
        kept = vs.ConvergenceStudy.load(probe.saved_to or "").runs[0]
        assert probe.run is not None
        assert (probe.run.epochs_run, probe.run.ended, kept.ended) == (5, False, False)
        assert (kept.stabilised_after is not None) is after is probe.stabilised


class Interrupt(keras.callbacks.Callback):
    """The user loses patience as an epoch begins."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == self.epoch:
            raise KeyboardInterrupt


class Keep(keras.callbacks.Callback):
    """Keeps the weights that a training ends with."""

    def on_train_end(self, logs: Any = None) -> None:
        self.weights = self.model.get_weights()


class Spoil(keras.callbacks.Callback):
    """Makes the logged loss NaN, always or from an epoch on."""

    def __init__(self, where: Any) -> None:
        super().__init__()
        self.where = where

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.where == () or epoch >= self.where:
            logs["val_loss"] = math.nan


class Stage:
    """All of a model that the two callbacks look at."""

    def __init__(self) -> None:
        self.stop_training = False
        self.metrics: list[Any] = []


values = st.one_of(
    st.sampled_from([0.5, 0.5, 0.25, math.nan, math.inf, -math.inf, 1e-8, 0.5 + 1e-9, 0.1, 0.30000001]),
    st.floats(-2, 2, width=32),
    st.none(),
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(
    st.lists(values, min_size=1, max_size=30),
    st.integers(0, 4),
    st.sampled_from([0.0, 0.1, -0.1, 0.5]),
    st.sampled_from(["min", "max", "auto"]),
    st.integers(0, 5),
)
def scripted(curve: list[float | None], patience: int, min_delta: float, mode: str, start: int) -> None:
    """Any curve at all: the same logs to both; the rule without Keras says the same."""
    rule = {"monitor": "loss", "patience": patience, "min_delta": min_delta, "mode": mode, "start_from_epoch": start}
    real, stage = keras.callbacks.EarlyStopping(**rule), Stage()
    real.set_model(stage)
    real.on_train_begin()
    probe = ConvergenceProbe(path=False, **rule, batch_size=8)  # type: ignore[arg-type]
    probe.set_params({})
    other = Stage()
    probe.set_model(other)
    probe.on_train_begin()
    probe._watch.curve[0] = 0.0  # an absent metric is then no wrong name
    count = len(curve)
    for epoch, value in enumerate(curve):
        logs = {"accuracy": 0.1} if value is None else {"loss": value}
        if not stage.stop_training and value is not None:
            real.on_epoch_end(epoch, logs)
            count = epoch + 1 if stage.stop_training else count
        probe.on_epoch_end(epoch, logs)
    assert not other.stop_training
    assert probe.epochs_to_stabilise == count
    assert probe.stabilised == stage.stop_training
    known = [(epoch + 1, value) for epoch, value in enumerate(curve) if value is not None]
    rule_alone = StoppingRule(
        monitor="loss",
        mode="max" if mode == "max" else "min",
        patience=patience,
        min_delta=abs(min_delta),
        start_from_epoch=start,
    )
    assert rule_alone.stop_after(known) == (count if stage.stop_training else None)


if __name__ == "__main__":
    scripted()
    if "quick" not in sys.argv:
        odd_trainings()
    sys.stdout.write(f"{keras.backend.backend()}: {real_trainings()} trainings stopped early\n")
