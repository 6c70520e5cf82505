"""ConvergenceProbe counts what keras.callbacks.EarlyStopping would have done, exactly, and alters nothing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("convergence_trainings.py")
BACKENDS = [name for name in ("torch", "jax", "tensorflow") if importlib.util.find_spec(name)]


def run(backend: str, *arguments: str) -> str:
    environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


def test_real_trainings_and_scripted_curves_are_judged_as_early_stopping_judges_them() -> None:
    # Tiny models train fastest where nothing is compiled, so the whole programme runs on the first backend.
    assert "trainings stopped early" in run(BACKENDS[0])


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_the_other_backends_judge_the_same(backend: str) -> None:
    assert "trainings stopped early" in run(backend, "quick")
