"""No argument of a public function raises anything outside the family of errors.

``python tests/benchmarks/arguments.py`` makes 5,000 calls.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from argument_fuzz import attack, targets

from vmselect.errors import VmselectError


@pytest.mark.parametrize("seed", range(3))
def test_wrong_arguments_end_in_the_family(seed, tmp_path, monkeypatch) -> None:
    deep = tmp_path / "a" / "b" / "c"  # one of the values is the folder above the folder above
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that overflow are part of the game
        assert list(attack(300, seed=seed)) == []


def test_what_is_varied_is_taken_to_begin_with(tmp_path, monkeypatch) -> None:
    """Else the first check would refuse every call, and nothing behind it be reached."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    refused = set()
    for target in targets():
        try:
            target.call(**target.good)
        except VmselectError:
            refused.add(target.name)
    assert refused == {"Catalog.refreshed", "sweep", "sweep of"}  # nothing was refreshed; nobody confirms
