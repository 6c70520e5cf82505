"""The dissertation's conclusions of methodology 1, from its own epochs and runtimes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "thesis.py"


@pytest.fixture(scope="module")
def output() -> str:
    code = f"import runpy; runpy.run_path({str(SCRIPT)!r})['methodology_1']()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "best by time: p3.8xlarge at batch 1024, 14 epochs, 32 s, 0.11 USD; the table's smallest: p3.8xlarge at",
        "best by cost: p2.xlarge at batch 512, 14 epochs, 122 s, 0.03 USD; the table's smallest: p2.xlarge at",
        "best by time: p3.8xlarge at batch 512, 5.6 epochs, 705 s, 2.40 USD; the table's smallest: p3.8xlarge at",
        "best by cost: p3.2xlarge at batch 1024, 10 epochs, 1024 s, 0.87 USD; the table's smallest: p3.2xlarge at",
        "exhaustive 35.84 USD, methodology 1 5.26",
        "exhaustive 19.21 USD, methodology 1 7.27, methodology 2 2.62",
    ],
)
def test_methodology_1_gives_the_dissertations_conclusions(output: str, line: str) -> None:
    assert line in output


def test_the_cost_of_choosing_is_that_of_its_table(output: str) -> None:
    # Table 4.4 prints 35.84 and 0.84, each summed from rounded parts.
    assert re.search(r"\b35\.95 USD.*\b0\.84\b", output)
