"""Faults that can be planted in a source file: where, what, and the file with one of them in it."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Raise, ast.Assert, ast.Delete)


class Place(NamedTuple):
    """Where a mutant differs: the file, the number of the place among those of the file, and what was done there.

    ``first`` to ``last`` are the lines that run when the place does; ``on_import`` says that they run only then.
    """

    path: Path
    number: int
    line: int
    what: str
    first: int
    last: int
    on_import: bool


def change(node: ast.AST) -> str | None:
    """Plant a fault in ``node`` and say which, or leave it alone."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        before = node.ops[0]
        node.ops[0] = COMPARISONS[type(before)]()
        return f"{type(before).__name__} becomes {type(node.ops[0]).__name__}"
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _joins_text(node):
        before_op = node.op
        node.op = OPERATORS[type(before_op)]()
        return f"{type(before_op).__name__} becomes {type(node.op).__name__}"
    if isinstance(node, ast.BoolOp):
        before_bool = type(node.op).__name__
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return f"{before_bool} becomes {type(node.op).__name__}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.op = ast.UAdd()
        node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        return "not is dropped"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node.op = ast.UAdd()
        return "a sign is dropped"
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        before_value = node.value
        node.value = node.value * 1.5 if isinstance(node.value, float) and node.value else node.value + 1
        return f"{before_value} becomes {node.value}"
    return None


def _joins_text(node: ast.BinOp) -> bool:
    def is_text(side: ast.expr) -> bool:
        return isinstance(side, (ast.JoinedStr, ast.List, ast.Tuple)) or (
            isinstance(side, ast.Constant) and isinstance(side.value, str)
        )

    return is_text(node.left) or is_text(node.right)


def list_places(path: Path) -> Iterator[Place]:
    """Every place of a file in which a fault can be planted."""
    tree = ast.parse(path.read_text())
    lines = _find_lines(tree)
    for number, (node, _) in enumerate(_walk(tree)):
        what = change(copy.deepcopy(node))
        if what:
            yield Place(path, number, node.lineno, what, *lines[id(node)])


def plant(place: Place) -> bytes:
    """The file of ``place`` with its fault; all other lines stay as they are."""
    source = place.path.read_text()
    tree = ast.parse(source)
    node, in_text = next(found for number, found in enumerate(_walk(tree)) if number == place.number)
    change(node)
    if in_text:  # the places of nodes within f-strings are not known exactly
        return ast.unparse(ast.fix_missing_locations(tree)).encode()
    rows = [row.encode() for row in source.splitlines(keepends=True)]
    start = sum(map(len, rows[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, rows[: (node.end_lineno or 0) - 1])) + (node.end_col_offset or 0)
    whole = b"".join(rows)
    planted = f"({ast.unparse(ast.fix_missing_locations(node))})".encode()
    return whole[:start] + planted + whole[end:]


def _walk(tree: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Expressions that compute something, and whether they stand in an f-string; no annotations."""
    hidden: set[int] = set()
    in_text: set[int] = set()
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            if part is not None:
                hidden |= {id(inner) for inner in ast.walk(part)}
        if isinstance(node, ast.JoinedStr):
            in_text |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in hidden:
            yield node, id(node) in in_text


def _find_lines(tree: ast.Module) -> dict[int, tuple[int, int, bool]]:
    """By expression: the lines of the statement it belongs to, and whether that runs on import only."""
    lines: dict[int, tuple[int, int, bool]] = {}

    def visit(node: ast.AST, span: tuple[int, int], on_import: bool) -> None:
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) else (node.end_lineno or node.lineno)
            span = node.lineno, max(node.lineno, last)
        if isinstance(node, ast.expr):
            lines[id(node)] = (*span, on_import)
        inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child, span, on_import and not (inside and name == "body"))

    visit(tree, (1, 1), True)
    return lines
