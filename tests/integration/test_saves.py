"""A probed script never gets past its first save; ``tests/benchmarks/saves.py`` runs many more such scripts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import saves

NAMES = (
    "torch: save then os.replace",
    "torch: every 10 steps",
    "torch: before the first step",
    "torch: finally with os.replace",
    "torch: thread",
    "torch: process by spawn",
    "torch: a shell that goes on",
    "torch: opened by the script",
    "torch: at exit",
    "transformers: checkpoints, then save_pretrained",
    "lightning.pytorch: checkpoints, then save_checkpoint",
    "keras on jax: callbacks, then save_model",
    "keras on jax: own callback after each epoch",
)
CASES = {case.name: case for case in saves.CASES}


@pytest.mark.parametrize("name", NAMES)
def test_no_model_file_changes(tmp_path: Path, name: str) -> None:
    if missing := saves.missing_packages(CASES[name]):
        pytest.skip(f"{missing[0]} is not installed: this script was left out")
    assert saves.run_case(CASES[name], tmp_path) == []


def test_two_probes_in_one_folder(tmp_path: Path) -> None:
    case = CASES["torch: save then os.replace"]
    if saves.missing_packages(case):
        pytest.skip("torch is not installed: this script was left out")
    assert saves.run_case(case, tmp_path, probes=2) == []
