"""The tests of ``tests/backends`` on every backend that is installed; a process for each, all at once."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "backends"
BACKENDS = ("tensorflow", "jax", "torch")
LIMIT_SECONDS = 1_500
"""Most of the time is spent waiting for the processor, which all backends and other tests share."""


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Most of their time goes into imports and compilation, so that they share the processor well."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VMSELECT_")}
    started = {
        backend: subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(TESTS)],
            env={**inherited, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
            cwd=TESTS.parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for backend in BACKENDS
        if importlib.util.find_spec(backend) is not None
    }
    yield started
    for process in started.values():
        if process.returncode is None:
            process.kill()
            process.communicate()


@pytest.mark.timeout(LIMIT_SECONDS + 60)
@pytest.mark.parametrize("backend", BACKENDS)
def test_everything_on(backend: str, running: dict[str, subprocess.Popen[str]]) -> None:
    if backend not in running:
        pytest.skip(f"{backend} is not installed: its trainings were left out")
    shown, _ = running[backend].communicate(timeout=LIMIT_SECONDS)
    assert running[backend].returncode == 0, shown[-8000:]
