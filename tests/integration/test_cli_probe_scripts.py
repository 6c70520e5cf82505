"""``vmselect probe`` on scripts as people write them: callbacks that write, several fits, threads, modules, tuners."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import vmselect as vs

CLI = [sys.executable, "-c", "from vmselect.cli import main; main()"]

HEAD = """
import os
os.environ.setdefault("KERAS_BACKEND", "torch")
import keras, numpy

def make(width=1):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(width), keras.layers.Dense(1)], name="mine")
    model.compile(loss="mse")
    return model

def train(model, **options):
    model.fit(numpy.ones((480, 4)), numpy.ones(480), batch_size=8, epochs=40, verbose=0, **options)

"""


def run(folder: Path, source: str, *options: str, target: tuple[str, ...] = ("train.py",)):
    pytest.importorskip("torch", reason="the scripts of this test train on torch, which is not installed")
    (folder / "train.py").write_text(HEAD + source, encoding="utf-8")
    command = [*CLI, "probe", "--path", "out", "--steps", "3", *options, *target]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_a_bare_callback_and_files_that_stay_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("mine")
    done = run(tmp_path, "train(make(), callbacks=keras.callbacks.CSVLogger('log.csv'))")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log.csv").read_text() == "mine"
    assert "CSVLogger (log.csv)" in done.stdout
    assert len(vs.load_profiles(tmp_path / "out")) == 1
    done = run(tmp_path, "train(make(), callbacks=keras.callbacks.CSVLogger('log.csv'))", "--touch-files")
    assert (tmp_path / "log.csv").read_text().startswith("epoch,loss")


def test_what_the_script_saves_itself_replaces_nothing_and_can_be_loaded(tmp_path: Path) -> None:
    for name in ("best.keras", "last.keras", "mine.weights.h5", "mine.pt"):
        (tmp_path / name).write_text("mine")
    source = """
import pathlib, torch
model = make()
train(model, callbacks=[keras.callbacks.ModelCheckpoint("best.keras", monitor="loss", save_best_only=True)])
keras.models.load_model("best.keras")
model.save("last.keras")
keras.saving.load_model(pathlib.Path("last.keras"))
model.save_weights("mine.weights.h5")
model.load_weights("mine.weights.h5")
torch.save({"a": 1}, pathlib.Path("mine.pt"))
assert torch.load("mine.pt") == {"a": 1}
with open("own.pt", "wb") as file:
    torch.save([2], file)
"""
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stderr
    for name in ("best.keras", "last.keras", "mine.weights.h5", "mine.pt"):
        assert (tmp_path / name).read_text() == "mine", name
    assert "saved elsewhere and removed: last.keras, mine.weights.h5, mine.pt" in done.stderr
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        "best.keras", "last.keras", "mine.weights.h5", "mine.pt", "own.pt", "train.py",
    }  # fmt: skip
    done = run(tmp_path, "import torch\ntrain(make())\ntorch.save([3], 'mine.pt')", "--touch-files")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine.pt").read_bytes() != b"mine"


def test_a_fit_that_failed_before_and_one_in_a_thread_are_no_reason_to_say_nothing_was_measured(tmp_path: Path) -> None:
    source = """
try:
    make().fit(numpy.ones((8, 3)), numpy.ones(8), verbose=0)
except ValueError:
    pass
import threading
threading.Thread(target=train, args=(make(),)).start()
"""
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stderr
    (profile,) = vs.load_profiles(tmp_path / "out")
    assert profile.fit is not None
    assert profile.fit.number == 1  # the other never began


def test_fits_are_chosen_named_and_counted(tmp_path: Path) -> None:
    source = """
model = make()
model.layers[0].trainable = False
model.compile(loss="mse")
train(model)
model.layers[0].trainable = True
model.compile(loss="mse")
train(model)
train(make(3))
print("the script went on")
"""
    done = run(tmp_path, source, "--fits", "2", "--name", "frozen", "--name", "tuned")
    assert done.returncode == 0, done.stderr
    assert "went on" not in done.stdout
    first, second = sorted(vs.load_profiles(tmp_path / "out"), key=lambda one: one.fit.number)
    assert [(one.fit.number, one.fit.name) for one in (first, second)] == [(1, "frozen"), (2, "tuned")]
    assert first.fit.process == second.fit.process
    assert first.setup.structure != second.setup.structure
    done = run(tmp_path, source, "--path", "chosen", "--fit", "3", "--name", "last")
    assert done.returncode == 0, done.stderr
    (profile,) = vs.load_profiles(tmp_path / "chosen")
    assert (profile.fit.number, profile.fit.name) == (3, "last")


def test_a_module_of_a_package(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "beside.py").write_text("WORD = 'found'\n")
    (package / "main.py").write_text(
        HEAD + "from . import beside\nimport sys\ntrain(make())\nprint(beside.WORD, sys.argv[1:])\n"
    )
    done = run(tmp_path, "", "-m", target=("package.main", "--lr", "1"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "found ['--lr', '1']"
    assert len(vs.load_profiles(tmp_path / "out")) == 1


def test_a_probe_of_the_scripts_own_is_enough(tmp_path: Path) -> None:
    done = run(tmp_path, "import vmselect\ntrain(make(), callbacks=[vmselect.IterationProbe('own.json', steps=2)])")
    assert done.returncode == 0, done.stderr
    assert vs.Profile.load(tmp_path / "own.json").timeline.steps.steps == 6
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(("arguments", "word"), [
    (["--path", "train.py", "train.py"], "is no record, so it is not overwritten"),
    (["book.ipynb"], "is a notebook"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(tmp_path: Path, arguments: list[str], word: str) -> None:
    (tmp_path / "train.py").write_text("print('ran')\n")
    (tmp_path / "book.ipynb").write_text("{}")
    done = subprocess.run([*CLI, "probe", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert word in done.stderr.replace("\n", " ")
    assert (tmp_path / "train.py").read_text() == "print('ran')\n"


def test_a_tuner_keeps_its_project(tmp_path: Path) -> None:
    pytest.importorskip("keras_tuner", reason="keras-tuner is not installed: its project was left out")
    source = """
import keras_tuner
def build(hp):
    return make(hp.Int("width", 1, 8))
tuner = keras_tuner.RandomSearch(build, objective="val_loss", max_trials=2, directory="tuning", project_name="p")
data = numpy.ones((480, 4)), numpy.ones(480)
tuner.search(*data, epochs=5, verbose=0, validation_data=data)
"""
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stderr
    assert len(vs.load_profiles(tmp_path / "out")) == 2
    assert not (tmp_path / "tuning").exists()
