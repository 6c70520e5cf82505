"""``vmselect probe``: the user's script runs as it would alone, and every fit in it is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import vmselect as vs

CLI = [sys.executable, "-c", "from vmselect.cli import main; main()"]

# Sets its own backend, imports from its own folder, trains twice (once with a callback of its own and positional
# arguments), and ends with a code of its own.
TRAINING = """
import os, sys
os.environ["KERAS_BACKEND"] = "jax"
import argparse, json
import beside
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
options = parser.parse_args()

import keras, numpy

class Mine(keras.callbacks.Callback):
    seen = 0
    def on_train_batch_end(self, batch, logs=None):
        Mine.seen += 1

def train(*args, **options):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)], name="mine")
    model.compile(loss="mse")
    model.fit(numpy.ones((960, 4)), numpy.ones(960), *args, epochs=40, verbose=0, **options)

if __name__ == "__main__":
    train(options.batch_size, callbacks=[Mine()])
    train(batch_size=16, validation_data=(numpy.ones((32, 4)), numpy.ones(32)))
    print(json.dumps({"argv": sys.argv, "seen": Mine.seen, "backend": keras.backend.backend(), "beside": beside.WORD}))
    sys.exit(7)
"""


def run(script: Path, *arguments: str, options: tuple[str, ...] = (), cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*CLI, "probe", *options, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_every_fit_of_an_unchanged_script_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="the script of this test trains on JAX, which is not installed")
    (tmp_path / "project").mkdir()
    script = tmp_path / "project" / "train.py"
    script.write_text(TRAINING, encoding="utf-8")
    (tmp_path / "project" / "beside.py").write_text("WORD = 'found'\n", encoding="utf-8")
    done = run(
        script, "--batch-size", "32", options=("--path", "out", "--steps", "8", "--instance-type", "box"), cwd=tmp_path
    )
    assert done.returncode == 7, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["argv"] == [str(script), "--batch-size", "32"]
    assert (told["backend"], told["beside"]) == ("jax", "found")
    assert 0 < told["seen"] < 40 * 30  # its own callback ran, and the training was cut short
    profiles = {profile.batch_size: profile for profile in vs.load_profiles(tmp_path / "out")}
    assert sorted(profiles) == [16, 32]
    for profile in profiles.values():
        assert (profile.instance_type, profile.model, profile.outcome) == ("box", "mine", "stopped")
        assert profile.environment.backend == "jax"
    assert len(profiles[16].timeline.validations) == 2
    # Initialization is the script's own, from its first line: the command line's own start does not count.
    assert profiles[32].timeline.init_source == "mark_start"


def test_options_that_make_no_probe_fail_before_the_script_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('ran')\n", encoding="utf-8")
    done = run(script, options=("--steps", "0"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "steps" in done.stderr


@pytest.mark.parametrize(
    ("source", "code", "shown"),
    [
        ("print('hello')", 1, "vmselect.probe_loop"),
        ("import sys; sys.exit(0)", 1, "vmselect.probe_loop"),
        ("import sys; sys.exit(3)", 3, ""),
        ("raise SystemExit('stopped for a reason')", 1, "stopped for a reason"),
        ("def f():\n    raise ValueError('mine')\nf()", 1, "ValueError: mine"),
        ("def broken(:", 1, "SyntaxError"),
        ("import os; os.kill(os.getpid(), 15)", -15, ""),
        ("import sys; sys.modules['jax'] = None; import jax", 1, "pip install jax"),
    ],
)
def test_exit_codes_errors_and_signals_are_the_scripts_own(tmp_path: Path, source: str, code: int, shown: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(source, encoding="utf-8")
    done = run(script, cwd=tmp_path)
    assert done.returncode == code
    assert shown in done.stderr
    assert "vmselect/cli" not in done.stderr.replace("\\\\", "/"), "the script's traceback shows only the script"


def test_a_script_sees_itself_as_the_main_program(tmp_path: Path) -> None:
    source = """
import sys, pickle
class C: pass
print(__name__, __file__)
print(type(pickle.loads(pickle.dumps(C()))) is C, sys.modules["__main__"].C is C)
"""
    script = tmp_path / "script.py"
    script.write_text(source, encoding="utf-8")
    done = run(script, cwd=tmp_path)
    assert done.stdout == f"__main__ {script}\nTrue True\n"
