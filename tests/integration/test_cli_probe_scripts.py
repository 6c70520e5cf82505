"""``vmselect probe`` on scripts as people write them: callbacks that write, several fits, threads, modules, tuners."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

import vmselect as vs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import processes

CLI = [sys.executable, "-c", "from vmselect.cli import main; main()"]

HEAD = """
import os
import keras, numpy

def make(width=1):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(width), keras.layers.Dense(1)], name="mine")
    model.compile(loss="mse")
    return model

def train(model, **options):
    model.fit(numpy.ones((480, 4)), numpy.ones(480), batch_size=8, epochs=40, verbose=0, **options)

"""


LOGGED = "train(make(), callbacks=keras.callbacks.CSVLogger('log.csv'))"
BEST = """
train(make(), callbacks=[keras.callbacks.ModelCheckpoint("best.keras", monitor="loss", save_best_only=True)])
keras.models.load_model("best.keras").save("last.keras")
"""
FAILED_AT_ONCE = """
try:
    make().fit(numpy.ones((8, 3)), numpy.ones(8), verbose=0)
except ValueError:
    pass
"""
FAILED_WITHIN = """
class Broken(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise ValueError("mine")

try:
    train(make(), callbacks=[Broken()])
except ValueError:
    pass
"""
IN_A_THREAD = """
import threading
threading.Thread(target=train, args=(make(),)).start()
"""
WRITING = """
train(make(), callbacks=[keras.callbacks.CSVLogger("log.csv")])
numpy.save("predictions.npy", numpy.ones(3))
"""
ALARMED = """
train(make())
import time
for _ in range(600):
    if os.path.exists("notice") and os.path.getsize("notice"):
        break
    time.sleep(0.1)
"""
NOTICE = "import os; open('notice', 'a').write(os.environ['VMSELECT_ALARM'])"
THREE_FITS = """
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
TUNER = """
import keras_tuner
def build(hp):
    return make(hp.Int("width", 1, 8))
tuner = keras_tuner.RandomSearch(build, objective="val_loss", max_trials=2, directory="tuning", project_name="p")
data = numpy.ones((480, 4)), numpy.ones(480)
tuner.search(*data, epochs=5, verbose=0, validation_data=data)
"""


@dataclass(frozen=True)
class Script:
    """What stands in ``train.py``, how it is probed, and what lies in the folder before.

    JAX is imported in half the time of torch, so that only what is about torch trains on it.
    """

    source: str
    options: tuple[str, ...] = ()
    target: tuple[str, ...] = ("train.py",)
    files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    backend: str = "jax"
    command: tuple[str, ...] = ("probe", "--steps", "3")


SCRIPTS = {
    "logged": Script(LOGGED, files={"log.csv": "mine"}),
    "logged, saves allowed": Script(LOGGED, ("--allow-saves",), files={"log.csv": "mine"}),
    "best, saves allowed": Script(BEST, ("--allow-saves",), files={"best.keras": "mine", "last.keras": "mine"}),
    "failed at once, then in a thread": Script(FAILED_AT_ONCE + IN_A_THREAD),
    "failed within": Script(FAILED_WITHIN + "train(make())"),
    "two fits of three": Script(THREE_FITS, ("--fits", "2", "--name", "frozen", "--name", "tuned")),
    "writing": Script(WRITING),
    "alarmed": Script(
        ALARMED, ("--alarm", shlex.join([sys.executable, "-c", NOTICE]), "--alarm-cpu", "0", "--alarm-seconds", "0",
                  "--sample", "0.1"),
        command=("watch",),
    ),
    "in a sweep": Script(THREE_FITS, ("--fit", "2", "--sample", "0"), environment={"VMSELECT_FOLDER": "records"}),
    "third fit": Script(THREE_FITS, ("--fit", "3", "--name", "last")),
    "module": Script(
        "", ("-m",), ("package.main", "--lr", "1"),
        {
            "package/__init__.py": "", "package/beside.py": "WORD = 'found'\n",
            "package/main.py":
                HEAD + "from . import beside\nimport sys\ntrain(make())\nprint(beside.WORD, sys.argv[1:])\n",
        },
    ),
    "own probe": Script("import vmselect\ntrain(make(), callbacks=[vmselect.IterationProbe('own.json', steps=2)])"),
    "tuner": Script(TUNER),
}  # fmt: skip


class Ran(NamedTuple):
    """A script that was run, and the folder in which it was."""

    folder: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ran]]:
    pytest.importorskip("jax", reason="the scripts of this test train on JAX, which is not installed")

    def run(script: Script) -> Ran:
        folder = tmp_path_factory.mktemp("script")
        for name, text in {**script.files, "train.py": HEAD + script.source}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        path = [] if "VMSELECT_FOLDER" in script.environment else ["--path", "out"]
        command = [*CLI, script.command[0], *path, *script.command[1:], *script.options, *script.target]
        environment = {**os.environ, "KERAS_BACKEND": script.backend, **script.environment}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
        return Ran(folder, done)

    with processes.run_ahead(run, SCRIPTS) as wait_for:
        yield wait_for


def test_a_bare_callback_and_files_that_stay_as_they_were(ran: Callable[[str], Ran]) -> None:
    folder, done = ran("logged")
    assert done.returncode == 0, done.stderr
    assert (folder / "log.csv").read_text() == "mine"
    assert "log.csv" in done.stdout
    assert len(vs.load_profiles(folder / "out")) == 1
    folder, done = ran("logged, saves allowed")
    assert done.returncode == 0, done.stderr
    assert (folder / "log.csv").read_text().startswith("epoch,loss")


def test_saves_happen_if_they_are_allowed(ran: Callable[[str], Ran]) -> None:
    folder, done = ran("best, saves allowed")
    assert done.returncode == 0, done.stderr
    for name in ("best.keras", "last.keras"):
        assert (folder / name).read_bytes().startswith(b"PK"), name
    assert len(vs.load_profiles(folder / "out")) == 1


def test_what_the_script_writes_in_other_ways_is_written(ran: Callable[[str], Ran]) -> None:
    folder, done = ran("writing")
    assert done.returncode == 0, done.stderr
    assert (folder / "predictions.npy").exists()
    assert not (folder / "log.csv").exists()


def test_an_alarm_of_the_command_line_is_given(ran: Callable[[str], Ran]) -> None:
    folder, _ = ran("alarmed")
    assert "0%" in (folder / "notice").read_text()


def test_profiles_go_to_the_folder_of_a_sweep_and_unwanted_fits_leave_none(ran: Callable[[str], Ran]) -> None:
    folder, done = ran("in a sweep")
    assert done.returncode == 0, done.stderr
    (profile,) = vs.load_profiles(folder / "records")
    assert profile.fit is not None
    assert (profile.fit.number, profile.usage) == (2, None)
    assert sorted(path.name for path in folder.iterdir()) == ["records", "train.py"]


@pytest.mark.parametrize(
    ("script", "number"),
    [("failed at once, then in a thread", 1), ("failed within", 2)],  # what fails at once never began
)
def test_a_fit_that_failed_before_and_one_in_a_thread_are_no_reason_to_say_nothing_was_measured(
    script: str, number: int, ran: Callable[[str], Ran]
) -> None:
    folder, done = ran(script)
    assert done.returncode == 0, done.stderr
    whole = [profile for profile in vs.load_profiles(folder / "out") if profile.outcome == "stopped"]
    assert [profile.fit and profile.fit.number for profile in whole] == [number]


def test_fits_are_chosen_named_and_counted(ran: Callable[[str], Ran]) -> None:
    folder, done = ran("two fits of three")
    assert done.returncode == 0, done.stderr
    assert "went on" not in done.stdout
    first, second = sorted(vs.load_profiles(folder / "out"), key=lambda one: one.fit.number)
    assert [(one.fit.number, one.fit.name) for one in (first, second)] == [(1, "frozen"), (2, "tuned")]
    assert first.fit.process == second.fit.process
    assert first.setup.structure != second.setup.structure
    folder, done = ran("third fit")
    assert done.returncode == 0, done.stderr
    (profile,) = vs.load_profiles(folder / "out")
    assert (profile.fit.number, profile.fit.name) == (3, "last")


def test_a_module_of_a_package(ran: Callable[[str], Ran]) -> None:
    folder, done = ran("module")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "found ['--lr', '1']"
    assert len(vs.load_profiles(folder / "out")) == 1


def test_a_probe_of_the_scripts_own_is_enough(ran: Callable[[str], Ran]) -> None:
    folder, done = ran("own probe")
    assert done.returncode == 0, done.stderr
    assert vs.Profile.load(folder / "own.json").timeline.steps.steps == 6
    assert not (folder / "out").exists() or not list((folder / "out").iterdir())


@pytest.mark.parametrize(("arguments", "word"), [
    (["--path", "train.py", "train.py"], "train.py"),
    (["book.ipynb"], "book.ipynb"),
    (["--instance_type", "foo", "train.py"], "--instance_type"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(tmp_path: Path, arguments: list[str], word: str) -> None:
    (tmp_path / "train.py").write_text("print('ran')\n")
    (tmp_path / "book.ipynb").write_text("{}")
    done = subprocess.run([*CLI, "probe", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert word in done.stderr.replace("\n", " ")
    assert (tmp_path / "train.py").read_text() == "print('ran')\n"


def test_a_search_keeps_no_result_of_a_few_steps(ran: Callable[[str], Ran]) -> None:
    pytest.importorskip("keras_tuner", reason="keras-tuner is not installed: its project was left out")
    folder, done = ran("tuner")
    assert done.returncode == 0, done.stderr
    assert len(vs.load_profiles(folder / "out")) == 1
    (trial,) = folder.glob("tuning/p/trial_*/trial.json")
    assert json.loads(trial.read_text())["status"] == "RUNNING"


@pytest.mark.parametrize(("imported", "ended"), [("", True), ("import vmselect", False), ("import torch", False)])
def test_a_loop_without_a_framework_is_ended_at_the_time_limit(tmp_path: Path, imported: str, ended: bool) -> None:
    if "torch" in imported:  # an import of the framework is slower than the limit
        (tmp_path / "torch.py").write_text("")
    script = tmp_path / "train.py"
    script.write_text(f"""{imported}
import time
for _ in range(1_000 if {ended} else 45):
    time.sleep(0.1)
print("the end")
""")
    command = [*CLI, "probe", "--seconds", "3", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert ("the end" in done.stdout) != ended
    assert ("was ended in train.py, line" in done.stderr) == ended
    assert "probe_loop" in done.stderr
