"""Trainings on one Keras backend: ``KERAS_BACKEND=jax pytest -n 0 tests/backends``.

Without that variable nothing is collected here: a process has one backend, and test_backends.py of the integration
tests starts one process for each that is installed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

collect_ignore_glob = [] if "KERAS_BACKEND" in os.environ else ["test_*.py"]

_status = 0


def pytest_configure(config: pytest.Config) -> None:
    # Keras warns about the data of some tests; ours must not.
    for rule in ("ignore", "error:::vmselect"):
        config.addinivalue_line("filterwarnings", rule)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    global _status
    _status = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if "KERAS_BACKEND" in os.environ:
        # All has been said, and TensorFlow can take minutes to tear down the input of epochs that were cut short.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_status)
