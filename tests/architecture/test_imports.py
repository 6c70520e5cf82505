"""Calls from a lower layer to a higher one: only those of the table in ``vmselect/_imports.py``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmselect._imports import HOOKS, hook

PACKAGE = Path(__file__).parents[2] / "vmselect"
MODULE_NAME = re.compile(r"vmselect(\.\w+)+(:\w+)?")


def named_modules(path: Path) -> Iterator[str]:
    """Names of modules of other packages of vmselect that the file holds as strings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE_NAME.fullmatch(node.value):
            file = PACKAGE.parent.joinpath(*node.value.partition(":")[0].split("."))
            if path.parent not in (file, file.parent) and (file.is_dir() or file.with_suffix(".py").exists()):
                yield node.value


def test_no_other_module_imports_vmselect_by_a_string() -> None:
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name not in ("_imports.py", "__init__.py", "stats.py") and (names := list(named_modules(path)))
    }
    assert found == {}


@pytest.mark.parametrize("name", HOOKS)
def test_each_hook_is_a_function(name: str) -> None:
    assert callable(hook(name))
