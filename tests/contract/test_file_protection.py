"""Some of the scripts of tests/benchmarks/file_protection.py: after each, every existing file is as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "file_protection.py"

SMALL = ["0", "4", "7", "9", "11", "26"]
"""Scripts with every way to end, and one that trains to its end."""


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["system-calls", "python-calls"])
def test_generated_scripts_change_no_existing_file(tmp_path: Path, mechanism: str) -> None:
    for name in ("torch", "h5py", "safetensors"):
        pytest.importorskip(name, reason=f"the scripts use {name}, which is not installed")
    counts = tmp_path / "counts.json"
    command = [sys.executable, str(BENCHMARK), "--only", *SMALL, "--mechanisms", mechanism, "--json", str(counts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(counts.read_text())
    assert found["scripts"] == len(SMALL)
    assert [one for one in found["not held"] if one["limit"] is None] == []
