"""The probes inside Keras on TensorFlow: the essential part of ``tests/backends``.

``tests/integration/test_backends.py`` runs all of it, on every backend that is installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="tensorflow is not installed: no training was probed"
)

TESTS = Path(__file__).parents[1] / "backends"
FILES = ("test_probe.py", "test_probe_files.py", "test_probe_rough.py")
LIMIT_SECONDS = 1_200
"""They take a minute, and twenty times as long where many programs share the processor."""


@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_probes_inside_keras_on_tensorflow() -> None:
    """In a process of its own, because a process has one backend and TensorFlow keeps threads and memory."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("VMSELECT_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *(TESTS / name for name in FILES)],
        env={**inherited, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd=TESTS.parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-8000:]
