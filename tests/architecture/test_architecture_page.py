"""The architecture page names what exists, and its paths are short and never return to a module."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.trace_paths import PRICE_TITLE, STEP_TITLE, describe

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
PATHS = (STEP_TITLE, PRICE_TITLE)


def hops(title: str) -> list[tuple[str, str]]:
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| \d+ \| `([\w/.]+)` \| `(\w+)` \|", section, flags=re.MULTILINE)


def top_level_names(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(target.id for target in targets if isinstance(target, ast.Name))
    return found


@pytest.mark.parametrize("title", PATHS)
def test_a_path_names_existing_code_and_never_turns_back(title: str) -> None:
    path = hops(title)
    assert 5 <= len(path) <= 15
    for module, name in path:
        assert name in top_level_names(ROOT / "vmselect" / module), f"{module} has no {name}"
    visited = [module for module, _ in groupby(module for module, _ in path)]
    assert len(visited) == len(set(visited))


def test_the_measured_paths_are_those_of_the_page_and_short() -> None:
    """After a change of modules, run ``python -m tests.support.trace_paths``.

    In a process of its own, as that command, because what is loaded already changes the order of first visits.
    """
    code = "import json; from tests.support.trace_paths import trace_paths; print(json.dumps(trace_paths()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    for title, modules in json.loads(done.stdout).items():
        section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
        assert describe(modules) in section.splitlines()
        assert len(modules) <= 20


def test_the_tree_lists_every_module() -> None:
    tree = TEXT.partition("```\nvmselect/\n")[2].partition("pricing/")[0]
    listed: set[str] = set()
    for line in tree.splitlines():
        name, words = re.match(r" *([\w/.]+) +(.*)", line).groups()  # type: ignore[union-attr]
        if name.endswith("/"):
            listed |= {f"{name}{word}.py" for word in re.findall(r"\w+(?=[,:;]|$|\))", words.partition("|")[2])}
        else:
            listed.add(name)
    package = ROOT / "vmselect"
    modules = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    unlisted = ("__init__.py", "__main__.py", "_version.py")
    assert listed == {name for name in modules if not name.endswith(unlisted)}
