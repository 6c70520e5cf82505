"""A probe that ends a training leaves the files of the user's callbacks as they were."""

from __future__ import annotations

import contextlib
import gc
import io
from pathlib import Path
from unittest.mock import MagicMock

import keras
import pytest
from fits import BATCH, make_data
from warm import MODEL, fit

import vmselect as vs
from vmselect.probe.checkpoints import describe_saving


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


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the callback imports TensorFlow")
def test_logs_of_tensorboard_get_no_short_run(folder):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed, without which its callback writes nothing")
    (folder / "logs" / "train").mkdir(parents=True)
    (folder / "logs" / "train" / "events").write_text("mine")
    before = read_tree(folder)
    callback = keras.callbacks.TensorBoard(str(folder / "logs"), histogram_freq=1)
    probe = vs.IterationProbe(steps=3, verbose=0)
    fit(probe, steps=5, callbacks=[probe, callback])
    assert read_tree(folder) == before
    assert callback.log_dir == str(folder / "logs")
    x, y = make_data(5)
    MODEL.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[callback])
    assert read_tree(folder).keys() > before.keys(), "a training without a probe writes again"


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the callback imports TensorFlow")
def test_a_probe_after_tensorboard_leaves_no_metrics(folder):
    """Keras lets the callback write the graph of the model before it calls the probe."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed, without which its callback writes nothing")
    callback = keras.callbacks.TensorBoard(str(folder / "logs"), update_freq="batch")
    probe = vs.IterationProbe(steps=3, verbose=0)
    fit(probe, steps=5, callbacks=[callback, probe])
    written = b"".join(filter(None, read_tree(folder / "logs").values()))
    assert b"epoch_loss" not in written
    assert b"batch_loss" not in written
    x, y = make_data(5)
    MODEL.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[callback])
    assert b"epoch_loss" in b"".join(filter(None, read_tree(folder / "logs").values())), (
        "a training without a probe writes again"
    )


@pytest.mark.parametrize("save_freq", ["epoch", 1000])
@pytest.mark.parametrize("give", [Path, str, "{}/".format])
def test_the_backup_of_an_interrupted_training_stays_however_its_folder_is_given(folder, give, save_freq):
    backup = folder / "backup"
    backup.mkdir()
    (backup / "latest.weights.h5").write_text("mine")
    before = read_tree(folder)
    callback = keras.callbacks.BackupAndRestore(give(backup), save_freq=save_freq)
    paths = [callback.backup_dir, callback._weights_path]
    probe = vs.IterationProbe(steps=2, verbose=0)
    fit(probe, steps=5, callbacks=[probe, callback])
    assert read_tree(folder) == before
    assert [callback.backup_dir, callback._weights_path] == paths


@pytest.mark.parametrize("make", [vs.IterationProbe, vs.EpochProbe])
def test_a_training_that_ended_by_itself_prints_what_was_not_written(folder, make):
    probe = make(verbose=1)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        profile = fit(probe, steps=5, epochs=2, callbacks=[probe, *make_callbacks(folder)])
    assert (profile.outcome, read_tree(folder)) == ("watched", {})
    assert "exit_program" not in said.getvalue()  # which would have ended nothing
    assert f"ModelCheckpoint ({folder / 'best.keras'}), " in said.getvalue()


def test_a_checkpoint_of_orbax_stays(folder, monkeypatch):
    saved = []

    class Checkpointer:
        """As that of Orbax: bound to its folder, in which it keeps the last checkpoint."""

        closed = False

        def __init__(self, directory, **_):
            self.directory = Path(directory)

        def save_checkpointables(self, step, _):
            for old in self.directory.glob("*"):
                old.rmdir()
            (self.directory / str(step)).mkdir(parents=True)
            saved.append(self.directory)

        def close(self):
            self.closed = True

    orbax = MagicMock()
    orbax.training.Checkpointer = Checkpointer
    orbax.multihost.is_jax_distributed_client_initialized.return_value = False
    monkeypatch.setattr("keras.src.callbacks.orbax_checkpoint.ocp", orbax)
    own = folder / "kept"
    (own / "7").mkdir(parents=True)
    before = read_tree(folder)
    callback = keras.callbacks.OrbaxCheckpoint(str(own), save_best_only=True, save_on_background=False)
    checkpointer, probe = callback.checkpointer, vs.IterationProbe(steps=2)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        profile = fit(probe, steps=5, callbacks=[probe, callback])
    assert read_tree(folder) == before
    assert f"OrbaxCheckpoint ({own})" in said.getvalue()
    assert saved
    assert own not in saved
    assert profile.setup.saving == "best"
    assert (callback.checkpointer, checkpointer.closed, callback.directory) == (checkpointer, False, str(own))


@pytest.mark.parametrize("moment", [None, "on_train_begin", "on_train_batch_end", "on_epoch_end", "on_train_end"])
def test_after_a_training_that_failed_the_next_writes_to_its_own_paths(folder, moment):
    def interrupt(*_, **__):
        raise KeyboardInterrupt("mine")

    def give_out():
        for _ in range(99 if moment else 7):
            yield make_data(1)
        raise RuntimeError("mine")

    callbacks, probe = make_callbacks(folder), vs.IterationProbe(steps=4, verbose=0)
    paths = [one.filename for one in callbacks[2:4]]
    failing = keras.callbacks.LambdaCallback(**{moment: interrupt} if moment else {})
    with pytest.raises(BaseException, match="mine") as kept:  # with all that fit held, as in a notebook
        MODEL.fit(give_out(), steps_per_epoch=30, epochs=3, verbose=0, callbacks=[*callbacks, probe, failing])
    assert read_tree(folder) == {}
    assert [one.filename for one in callbacks[2:4]] == paths
    MODEL.fit(*make_data(5), batch_size=BATCH, validation_data=make_data(2), verbose=0, callbacks=callbacks)
    del kept
    gc.collect()
    assert {"log.csv", "more.csv", "each/01.weights.h5"} <= set(read_tree(folder))
    assert len((folder / "log.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize("options", [{"stop": False}, {"protect_files": False}])
def test_without_stop_or_protection_all_files_are_written(folder, options):
    probe = vs.IterationProbe(verbose=0, **options)
    fit(probe, steps=25, epochs=2, callbacks=[probe, *make_callbacks(folder)])
    assert {"best.keras", "log.csv", "more.csv"} <= set(read_tree(folder))


def test_an_epoch_probe_in_a_list_can_be_estimated(folder):
    probe = vs.EpochProbe(verbose=0)
    assert vs.estimate(fit(probe, steps=10), epochs=9).seconds > 0


def test_when_callbacks_save_is_recorded(folder):
    probe = vs.IterationProbe(verbose=0)
    callbacks = [Mine(str(folder / "each.keras")), keras.callbacks.BackupAndRestore(str(folder / "b"), save_freq=500)]
    profile = fit(probe, steps=30, callbacks=[probe, *callbacks])
    assert (profile.setup.saving, profile.setup.save_freq) == ("batches", 500)
    (told,) = [one for one in vs.estimate(profile, epochs=100).findings if one.code == "saves-by-batches"]
    assert "500" in told.message


def test_how_the_model_is_saved(folder):
    def describe(*options):
        return describe_saving(keras.callbacks.ModelCheckpoint(str(folder / "a.keras"), **one) for one in options)

    by_batches = {"save_freq": 7, "save_best_only": True}
    assert describe() == (None, None)
    assert describe({}) == ("epochs", None)
    assert describe(by_batches, {"save_freq": 5}) == ("batches", 5)
    assert describe(by_batches, {}) == ("epochs", 7)
    assert describe(by_batches, {"save_best_only": True}) == ("best", 7)
    assert describe_saving([Mine(str(folder / "a.keras"))]) == (None, None)
    assert describe_saving([keras.callbacks.BackupAndRestore(str(folder), save_freq=False)]) == (None, None)


@pytest.mark.parametrize("make", [vs.IterationProbe, vs.EpochProbe])
def test_the_program_can_end_when_the_probe_has_ended_the_training(folder, make):
    ended = []
    log = keras.callbacks.LambdaCallback(on_train_end=lambda logs: ended.append("log"))
    probe = make(folder / "p.json", exit_program=True, verbose=0)
    with pytest.raises(SystemExit) as exit_:
        fit(probe, steps=30, callbacks=[probe, log, *make_callbacks(folder)])
    assert (exit_.value.code, ended) == (0, ["log"])
    assert vs.Profile.load(folder / "p.json").outcome == "stopped"
    fit(probe, steps=5, epochs=1, callbacks=[probe])  # ends by itself: the program continues
    with pytest.raises(vs.errors.ArgumentError, match="exit_program"):
        make(exit_program=True, stop=False)


def test_the_printed_line_mentions_that_the_program_continues(folder):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        fit(vs.IterationProbe(steps=2), steps=9)
    assert "exit_program=True" in said.getvalue()
