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


def start(backend: str, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-X", "faulthandler", str(SCRIPT), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def trainings() -> dict[str, subprocess.Popen[str]]:
    """A process for each backend, side by side.

    Tiny models train fastest where nothing is compiled, so the whole programme runs on the first backend.
    """
    return {backend: start(backend, *(["quick"] if i else [])) for i, backend in enumerate(BACKENDS)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_trainings_and_curves_are_judged_as_early_stopping_judges_them(
    trainings: dict[str, subprocess.Popen[str]], backend: str
) -> None:
    printed, errors = trainings[backend].communicate()
    assert trainings[backend].returncode == 0, errors[-3_000:]
    assert "trainings stopped early" in printed
