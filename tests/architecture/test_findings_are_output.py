"""Findings are output: no module decides by the code of a finding or reads its message.

Rewording a sentence must never change an estimate or a ranking. Typed fields carry what code needs
to know: a ``Cause``, a ``Disturbance``, the basis of a runtime model. Only packages that show
findings may select them by code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "vmselect"
SHOWING = ("diagnosis", "report", "cli")
MODULES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).parts[0] not in SHOWING and path.name != "findings.py"
)


def list_uses(source: str) -> Iterator[str]:
    """Expressions that compare or look up a code of a finding, or read a message other than to format it."""
    tree = ast.parse(source)
    formatted = {id(part) for node in ast.walk(tree) if isinstance(node, ast.FormattedValue) for part in [node.value]}
    exits = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                if reads(side, "code") and ast.unparse(side.value) not in exits:  # type: ignore[attr-defined]
                    yield ast.unparse(node)
        elif isinstance(node, ast.Subscript) and reads(node.slice, "code"):
            yield ast.unparse(node)
        elif isinstance(node, ast.Dict | ast.DictComp):
            keys = node.keys if isinstance(node, ast.Dict) else [node.key]
            if any(reads(key, "code") for key in keys if key is not None):
                yield ast.unparse(node)
        elif isinstance(node, ast.Match) and reads(node.subject, "code"):
            yield f"match {ast.unparse(node.subject)}"
        elif reads(node, "message") and id(node) not in formatted:
            yield ast.unparse(node)


def reads(node: ast.AST, attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_decides_by_a_finding(path: Path) -> None:
    assert list(list_uses(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("source", "used"),
    [
        ("finding.code == 'disturbed'", True),
        ("finding.code in CODES", True),
        ("finding.code is not None", True),
        ("codes[finding.code]", True),
        ("{finding.code: finding for finding in found}", True),
        ("finding.message.removeprefix(title)", True),
        ("name in finding.message", True),
        ("finding.message + text", True),
        ("f'{finding.message} {finding.remedy}'", False),
        ("Excluded(name, refusal.code, refusal.reason)", False),
        ("try:\n    run()\nexcept SystemExit as ended:\n    failed = ended.code != 0", False),
    ],
)
def test_what_counts_as_reading_a_finding(source: str, used: bool) -> None:
    assert bool(list(list_uses(source))) is used
