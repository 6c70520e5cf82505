"""The rules of the house, checked by the tools that know them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "vmselect").rglob("*.py"))


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_point_down_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_style() -> None:
    run("ruff", "check", "--no-cache", ".")
    run("ruff", "format", "--check", "--no-cache", ".")


def test_the_top_level_holds_what_was_agreed_and_nothing_else() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: what is tracked cannot be told from what lies about")
    top = {name.split("/")[0] for name in listed.stdout.splitlines()}
    agreed = {"pyproject.toml", "README.md", "LICENSE", "vmselect", "examples", "tests", "docs", "pricing"}
    assert {name for name in top if not name.startswith(".")} == agreed


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_can_be_read_in_one_sitting(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    assert not re.search(r"\b(TODO|FIXME|XXX|NotImplementedError)\b", text)
    assert not re.search(r"\b(pickle|eval|exec)\s*[.(]", re.sub(r"\.eval\(|_eval\(", "", text))
