"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
from pathlib import Path

import pytest

import vmselect

MODULES = ["vmselect", *(found.name for found in pkgutil.walk_packages(vmselect.__path__, "vmselect."))]


def mark(name: str) -> object:
    """The module ``name``; marked as slow if its examples train a model."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    trains = ">>> import keras" in Path(spec.origin).read_text(encoding="utf-8")
    return pytest.param(name, marks=pytest.mark.slow) if trains else name


@pytest.mark.parametrize("name", [mark(name) for name in MODULES])
def test_examples_of(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if importlib.util.find_spec("jax"):
        monkeypatch.setenv("KERAS_BACKEND", "jax")  # imported in a tenth of TensorFlow's time
    module = importlib.import_module(name)
    if any("import keras" in test.docstring for test in doctest.DocTestFinder().find(module)):
        pytest.importorskip("keras", reason="its examples train a model and keras is not installed")
    outcome = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert outcome.failed == 0
