"""The page of the founding studies: every command on it shows what the page says."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "validation" / "studies.md"
NOT = "not reproducible"
KINDS = ("complete", "consistent", "put in", "contradicts", NOT)
SCRIPTS = {"thesis": "thesis.py", "clouds": "cloud_studies.py", "two clouds": "two_clouds.py"}


def read_rows(text: str = PAGE.read_text(encoding="utf-8")) -> list[tuple[str, str, str, str]]:
    """Item, status, run and shown text of every row of the page, or of a part of it."""
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line[:2] == "| "]
    cells = [[cell.strip() for cell in row] for row in rows if len(row) == 4]
    return [(item, status, run.strip("`"), shows.strip("`")) for item, status, run, shows in cells if run != "run"]


@cache
def run_script(name: str) -> str:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / SCRIPTS[name]], capture_output=True, text=True, check=True
    )
    return done.stdout


def list_tests(path: Path) -> set[str]:
    """Names of the test functions in a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def kind_of(status: str) -> str:
    """The column of the table of counts to which an item with ``status`` belongs."""
    return NOT if NOT in status else next(kind for kind in KINDS if status.startswith(kind))


@pytest.mark.parametrize("row", read_rows(), ids=lambda row: row[0])
def test_a_command_shows_what_the_page_says(row: tuple[str, str, str, str]) -> None:
    _, status, run, shows = row
    assert shows in (run_script(run) if run in SCRIPTS else list_tests(ROOT / run))
    assert status.startswith(KINDS)


def test_the_page_counts_its_items_and_repeats_none() -> None:
    rows = read_rows()
    items = [row[0] for row in rows]
    assert f"{len(items)} items" in PAGE.read_text(encoding="utf-8")
    # "The same" refers to the row above it.
    assert len({item for item in items if "same" not in item}) == len([item for item in items if "same" not in item])


def test_the_page_counts_the_items_of_every_study_by_kind() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for part in page.split("\n## ")[1:]:
        title = part.splitlines()[0]
        kinds = Counter(kind_of(status) for _, status, _, _ in read_rows(part))
        counts = " | ".join(str(kinds[kind]) for kind in KINDS)
        assert f"| {title} | {kinds.total()} | {counts} |" in page


def test_what_is_put_in_or_contradicts_has_a_reason() -> None:
    for item, status, _, _ in read_rows():
        if status.startswith(("put in", "contradicts")):
            assert len(status.partition(": ")[2]) > 10, item


def test_what_is_not_reproducible_has_a_reason() -> None:
    for item, status, _, _ in read_rows():
        if "not reproducible" in status:
            assert len(status.partition("not reproducible: ")[2]) > 10, item
