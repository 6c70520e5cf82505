"""House rules, checked by the tools that know them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "vmselect").rglob("*.py"))
HOOKS = ROOT / "vmselect" / "_imports.py"


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_point_down_only() -> None:
    run("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")


def test_style() -> None:
    run("-m", "ruff", "check", "--no-cache", ".")
    run("-m", "ruff", "format", "--check", "--no-cache", ".")


def test_the_top_level_holds_what_was_agreed_and_nothing_else() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: tracked files are unknown")
    top = {name.split("/")[0] for name in listed.stdout.splitlines()}
    agreed = {"pyproject.toml", "README.md", "LICENSE", "vmselect", "examples", "tests", "docs", "pricing"}
    assert {name for name in top if not name.startswith(".")} == agreed


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_finished_and_runs_no_text_as_code(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\b(TODO|FIXME|XXX|NotImplementedError)\b", text)
    assert not re.search(r"\b(pickle|eval|exec)\s*[.(]", re.sub(r"\.eval\(|_eval\(", "", text))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_are_nouns(path: Path) -> None:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    assert not names & {"one", "some", "found", "known", "given"}


# Imports by a string are invisible to import-linter.


def named_modules(source: str) -> Iterator[str]:
    """Modules of the package that a source names in strings, and f-strings that build such a name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            if re.fullmatch(r"vmselect(\.\w+)+", name) and find_module(name):
                yield name
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            first = node.args[0] if node.args else None
            if isinstance(first, (ast.JoinedStr, ast.BinOp)) and "vmselect" in ast.unparse(first):
                yield ast.unparse(first)


def find_module(name: str) -> Path | None:
    path = ROOT.joinpath(*name.split("."))
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.exists()), None)


def layer_of(name: str) -> int:
    """How deep a module lies in the layers of pyproject.toml; a larger number is a lower layer."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    part = name.split(".")[1]
    return next(depth for depth, layer in enumerate(layers) if part in re.split(r"\s*\|\s*", layer))


def upward_names(path: Path) -> list[str]:
    """Modules that a file names in strings: all but those of its own package, and lower ones in lazy-name tables."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    package = "vmselect" if parts[1] == "__init__" else ".".join(parts[:2])
    found = [name for name in named_modules(path.read_text()) if not f"{name}.".startswith(f"{package}.")]
    if parts[-1] not in ("__init__", "stats"):  # the modules with tables of lazy names
        return found
    return [name for name in found if layer_of(name) <= layer_of(package)]


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path != HOOKS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_module_imports_the_package_by_a_string(path: Path) -> None:
    """Use ``vmselect._imports`` for a call to a higher layer, and an import statement for all others."""
    assert upward_names(path) == []


@pytest.mark.parametrize(
    "source",
    [
        'import importlib\nimportlib.import_module("vmselect.report").chart()',
        '__import__("vmselect.report")',
        'name = "vmselect.report"',
        'HOOK = "vmselect.report:chart"',
        'from importlib import import_module\nimport_module(f"vmselect.{name}")',
        'from importlib import import_module\nimport_module("vmselect." + name)',
    ],
)
def test_every_way_to_import_by_a_string_is_found(source: str) -> None:
    assert list(named_modules(source))
