"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil

import pytest

import vmselect

MODULES = ["vmselect", *(found.name for found in pkgutil.walk_packages(vmselect.__path__, "vmselect."))]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if importlib.util.find_spec("jax"):
        monkeypatch.setenv("KERAS_BACKEND", "jax")  # imported in a tenth of TensorFlow's time
    module = importlib.import_module(name)
    if any("import keras" in test.docstring for test in doctest.DocTestFinder().find(module)):
        pytest.importorskip("keras", reason="its examples train a model and keras is not installed")
    outcome = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert outcome.failed == 0
