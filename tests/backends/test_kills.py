"""A few kills at random moments of a training; ``tests/benchmarks/kills.py`` makes hundreds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).parents[1] / "benchmarks" / "kills.py"


@pytest.mark.skipif(
    os.environ["KERAS_BACKEND"] != "jax", reason="one backend suffices: records are written the same way"
)
def test_what_was_measured_survives_a_kill():
    # Its children are made by fork, which wants a process in which the framework has not yet computed anything.
    command = [sys.executable, "-W", "ignore", str(KILLS), "--here", "--runs", "4", "--seed", "11"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    counts = json.loads(done.stdout.splitlines()[-1])
    assert (counts["lost"], counts["broken"], counts["failed"]) == (0, 0, 0)
    assert sum(counts.values()) == 4
