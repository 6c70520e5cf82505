"""Trainings that end badly, in processes of their own: what was measured is saved, and the process ends as it would."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vmselect as vs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import processes

CASES = {
    ("tensorflow", "sigterm"): (-signal.SIGTERM, 21),
    ("tensorflow", "sigint"): (-signal.SIGINT, 21),
    ("jax", "sigterm"): (-signal.SIGTERM, 21),
    ("jax", "data"): (1, 21),  # steps that were submitted, but not waited for, are not part of the record
    ("torch", "sigterm"): (-signal.SIGTERM, 21),
    ("torch", "data"): (1, 25),
    ("torch", "exit"): (7, 21),
}
DETAIL: dict[str, str | None] = {
    "sigterm": "SIGTERM",
    "sigint": "KeyboardInterrupt: the user stopped it with Ctrl-C",
    "data": "RuntimeError: nobody catches this",
    "exit": None,  # nobody is told why an interpreter ends
}


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[tuple[str, str], tuple[subprocess.Popen[str], Path]]]:
    """All of them at once: most of their time is spent importing."""
    folder = tmp_path_factory.mktemp("ends")
    started = {
        (backend, kind): (processes.start("ending.py", kind, path, KERAS_BACKEND=backend), path)
        for (backend, kind), path in ((case, folder / f"{'-'.join(case)}.json") for case in CASES)
        if importlib.util.find_spec(backend) is not None
    }
    yield started
    for process, _ in started.values():  # those that no selected test has waited for
        if process.returncode is None:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(("backend", "kind"), CASES)
def test_what_was_measured_is_saved(backend: str, kind: str, running) -> None:
    if (backend, kind) not in running:
        pytest.skip(f"{backend} is not installed: its endings were left out")
    process, path = running[backend, kind]
    _, errors = process.communicate(timeout=200)
    code, steps = CASES[backend, kind]
    assert process.returncode == code, errors[-2000:]
    profile = vs.Profile.load(path)
    assert (profile.outcome, profile.detail) == ("interrupted", DETAIL[kind])
    assert profile.ending == ("terminated" if kind == "sigterm" else None)
    assert profile.timeline.steps.steps == steps
    assert profile.timeline.init_source == "process start"
    assert 0 < profile.timeline.init_seconds < 600
    assert "interrupted" in {finding.code for finding in profile.findings}


READS_AHEAD = """
import time
import keras, numpy, vmselect as vs

class Slow(keras.utils.PyDataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.05)
        return numpy.ones((32, 16)), numpy.ones((32, 1))

model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1)])
model.compile(loss="mse")
model.fit(Slow(), epochs=2, verbose=0, callbacks=[vs.IterationProbe("p.json", steps=5, sample=None, verbose=0)])
"""


def test_a_process_whose_data_are_still_being_read_ahead_comes_to_its_end(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("tensorflow is not installed: only its pipelines read ahead in threads of their own")
    # Without a collection before the end, TensorFlow's thread and the interpreter wait for each other for ever.
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "VMSELECT_INSTANCE_TYPE": "none"}
    command = [sys.executable, "-W", "ignore", "-c", READS_AHEAD]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-2000:]
    assert vs.Profile.load(tmp_path / "p.json").outcome == "stopped"
