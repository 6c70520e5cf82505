"""Types are strict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_types_are_strict() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
