"""A probe that ends a training leaves the files of the user's callbacks as they were."""

from __future__ import annotations

import contextlib
import importlib.util
import io

import keras
import pytest
from warm import fit

import vmselect as vs


class Mine(keras.callbacks.ModelCheckpoint):
    """A subclass writes too."""


def make_callbacks(folder):
    made = [
        keras.callbacks.ModelCheckpoint(str(folder / "best.keras"), save_best_only=True, monitor="val_loss"),
        Mine(str(folder / "each" / "{epoch:02d}.weights.h5"), save_weights_only=True),
        keras.callbacks.CSVLogger(str(folder / "log.csv")),
        keras.callbacks.CSVLogger(folder / "more.csv", append=True),
        keras.callbacks.BackupAndRestore(str(folder / "backup"), delete_checkpoint=True),
    ]
    if keras.backend.backend() == "tensorflow" and importlib.util.find_spec("tensorboard"):  # it wants both
        made.append(keras.callbacks.TensorBoard(str(folder / "logs")))
    return made


def read_tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("make", [vs.IterationProbe, vs.EpochProbe])
def test_nothing_of_the_users_is_touched(folder, first, make):
    for name in ("best.keras", "log.csv", "more.csv"):
        (folder / name).write_text("mine")
    before = read_tree(folder)
    callbacks = make_callbacks(folder)
    probe = make(verbose=1)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        profile = fit(probe, steps=30, callbacks=[probe, *callbacks] if first else [*callbacks, probe])
    assert read_tree(folder) == before
    assert said.getvalue().count("\n") == 1
    assert "ModelCheckpoint" in said.getvalue()
    assert "best.keras" in said.getvalue()
    assert all(boundary.epoch_end_seconds > 0 for boundary in profile.timeline.boundaries)
    assert profile.setup.saving == "best"
    assert callbacks[0].filepath == str(folder / "best.keras")
    assert callbacks[4]._weights_path.startswith(str(folder / "backup"))


def test_a_failed_training_touches_nothing_either(folder):
    def fail():
        raise ValueError("mine")

    probe = vs.IterationProbe(verbose=0)
    callbacks = make_callbacks(folder)
    end = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: fail())
    with pytest.raises(ValueError, match="mine") as caught:
        fit(probe, callbacks=[probe, *callbacks, end])
    caught.value.with_traceback(None)
    del caught
    assert read_tree(folder) == {}


@pytest.mark.parametrize("options", [{"stop": False}, {"protect_files": False}])
def test_if_the_training_goes_on_or_the_user_says_so_all_is_written(folder, options):
    probe = vs.IterationProbe(verbose=0, **options)
    fit(probe, steps=25, epochs=2, callbacks=[probe, *make_callbacks(folder)])
    assert {"best.keras", "log.csv", "more.csv"} <= set(read_tree(folder))


def test_an_epoch_probe_in_a_list_can_be_estimated(folder):
    probe = vs.EpochProbe(verbose=0)
    assert vs.estimate(fit(probe, steps=10), epochs=9).seconds > 0
