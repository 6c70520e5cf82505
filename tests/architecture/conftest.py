"""The check of types takes longer than all other tests of this folder together, so it runs beside them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WAITING = "test_types_are_strict"


@pytest.fixture(scope="session", autouse=True)
def mypy(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str] | None]:
    """mypy on the package, started with the first test of this folder; None where nobody will wait for it."""
    if not any(item.name == WAITING for item in request.session.items):
        yield None
        return
    command = [sys.executable, "-m", "mypy"]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    yield running
    if running.returncode is None:
        running.kill()
        running.communicate()
