"""Whole trainings under a watch, on one Keras backend."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import vmselect as vs
from vmselect.probe import timer as timer_module

EXAMPLES, BATCH = 320, 32


def fit(*callbacks: Any, epochs: int = 6, initial_epoch: int = 0, name: str = "watched") -> list[float]:
    """Train a small network from a fixed seed; returns the losses."""
    keras.utils.set_random_seed(1)
    layers = [keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers, name=name)
    model.compile(loss="mse", optimizer="sgd")
    x = np.random.default_rng(1).random((EXAMPLES, 8), dtype=np.float32)
    y = x.sum(axis=1, keepdims=True)
    done = model.fit(
        x, y, batch_size=BATCH, epochs=epochs, initial_epoch=initial_epoch, shuffle=False, verbose=0,
        callbacks=list(callbacks),
    )  # fmt: skip
    return list(done.history["loss"])


def make_watch(**arguments: Any) -> vs.Watch:
    settings = {"path": False, "usd_per_hour": 3600.0, "every_seconds": 0.01, "verbose": 0, "instance_type": "box"}
    return vs.Watch(**(settings | arguments))


def test_a_watch_changes_no_bit() -> None:
    watch = make_watch(budget_usd=1e9, on_limit="stop")
    assert fit(watch) == fit()
    assert (watch.status.epoch, watch.status.steps) == (6, 6 * EXAMPLES // BATCH)
    assert watch.status.usd >= watch.profile.timeline.fit_seconds
    assert watch.profile.outcome == "watched"


def test_a_record_that_cannot_be_made_does_not_end_a_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(timer: Any, **options: Any) -> Any:
        if timer.steps:
            raise ValueError("too large")
        return timer_module.build_timeline(timer, **options)

    monkeypatch.setattr("vmselect.probe.recording.build_timeline", build)
    watch = make_watch(path=folder, budget_usd=1e9)
    assert fit(watch) == fit()
    assert capsys.readouterr().err.count("ValueError: too large") == 2, "once for the record, once for the account"


@pytest.mark.parametrize("make", [make_watch, lambda: vs.IterationProbe(False, sample=None)])
def test_a_training_without_an_end_is_watched_and_probed(make: Any) -> None:
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = self.model.stop_training or epoch == 2

    probe = make()
    assert fit(Stop(), probe, epochs=sys.maxsize)
    assert probe.profile.setup.epochs is None


def test_a_limit_ends_the_training_after_an_epoch() -> None:
    saved: list[int] = []

    class Slow(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            saved.append(epoch)

    watch = make_watch(budget_usd=1e-3, on_limit="stop")
    losses = fit(Slow(), watch, epochs=500)
    assert 1 <= len(losses) < 500
    assert watch.limit is not None
    assert saved == list(range(len(losses)))  # the user's own callbacks saved until the end


def test_a_resumed_training_continues_its_account(folder: Path) -> None:
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = epoch == 4

    first = make_watch(path=folder, budget_usd=1e9)
    fit(first, Stop(), epochs=9, name="resumed")
    before = first.status
    second = make_watch(path=folder)
    fit(second, epochs=9, initial_epoch=5, name="resumed")
    assert second.status.epoch == 9
    assert second.status.usd > before.usd
    assert second.status.seconds > before.seconds
    # Both parts together are the outcome of a forecast.
    parts = list(vs.load_profiles(folder))
    probe = make_watch()
    fit(probe, epochs=9, name="resumed")
    (case,) = vs.score([vs.estimate(probe.profile, epochs=9).forecast(), *parts]).cases
    seconds = [(part.timeline.init_seconds or 0.0) + part.timeline.wall_seconds for part in parts]
    assert len(parts) == 2
    assert case.real_seconds == pytest.approx(sum(seconds))
    # The account also contains the work of the watch itself, which is paid too.
    assert case.real_seconds <= second.status.seconds
    assert any(text.startswith("parts (2") for text in case.differences)


def test_an_unwritable_folder_does_not_end_the_training(folder: Path) -> None:
    watch = make_watch(path=folder / "records")
    gone = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: [file.unlink() for file in (folder / "records").glob("*")]
    )
    assert fit(gone, watch) == fit()
