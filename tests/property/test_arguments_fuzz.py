"""No argument of a public function raises anything outside the family of errors.

``python tests/benchmarks/arguments.py`` makes 5,000 calls.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from argument_fuzz import attack


@pytest.mark.parametrize("seed", range(3))
def test_wrong_arguments_end_in_the_family(seed, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that overflow are part of the game
        assert list(attack(250, seed=seed, without=("rank", "select", "Ranking"))) == []
