"""The benchmark of probed against unprobed fits runs and prints a row per model and backend."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "dispatch.py"


def test_one_model_on_one_core() -> None:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("keras") is None:
        pytest.skip("Keras with torch is not installed: the benchmark was left out")
    options = ["--backends", "torch", "--cores", "1", "--workloads", "small MLP", "--seconds", "0.1"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=True, timeout=300
    )
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [row[:2] for row in rows] == [["torch", "1"], ["torch", "all"]]
    assert float(rows[0][4 + 2].strip("()")) > 0
