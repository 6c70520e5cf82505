"""The number of epochs that the loop of a script states, such as ``for epoch in range(args.epochs)``.

A training in a plain loop of torch has no argument with its number of epochs. The loop is read from the source of the
functions that are running; nothing of the script is called.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

PASSED_ON = frozenset({"tqdm", "trange", "track", "enumerate", "range"})
"""Functions around ``range`` that yield as many items."""
MAX_FRAMES = 100


def find_epochs(frame: FrameType | None) -> int | None:
    """Number of iterations of the innermost running loop over epochs around ``frame``; None if no loop states it."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return None
        for loop in _running_loops(frame):
            if "epoch" in ast.unparse(loop.target).lower():
                count = _count(loop.iter, frame)
                return count if count is not None and count > 0 else None
        frame = frame.f_back
    return None


def _running_loops(frame: FrameType) -> Iterator[ast.For]:
    """The ``for`` loops of the source of ``frame`` that contain its line, the innermost first."""
    name = frame.f_code.co_filename
    linecache.checkcache(name)
    try:
        tree = ast.parse("".join(linecache.getlines(name, frame.f_globals)))
    except (SyntaxError, ValueError):
        return
    first, line = frame.f_code.co_firstlineno, frame.f_lineno
    loops = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.For) and node.lineno >= first and node.lineno < line <= (node.end_lineno or 0)
    ]  # fmt: skip
    yield from sorted(loops, key=lambda loop: -loop.lineno)


def _count(loop: ast.expr, frame: FrameType) -> int | None:
    """Number of items of ``range(...)``, also inside ``tqdm`` or ``enumerate``; None if it is something else."""
    if not isinstance(loop, ast.Call):
        return None
    function = loop.func.attr if isinstance(loop.func, ast.Attribute) else getattr(loop.func, "id", "")
    if function not in PASSED_ON or not loop.args:
        return None
    if function not in ("range", "trange"):
        return _count(loop.args[0], frame)
    bounds = [_value(argument, frame) for argument in loop.args]
    numbers = [bound for bound in bounds if isinstance(bound, int) and not isinstance(bound, bool)]
    if len(numbers) < len(bounds) or len(numbers) > 3 or (len(numbers) == 3 and not numbers[2]):
        return None
    try:
        return len(range(*numbers))
    except OverflowError:  # a loop without end
        return None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Value of a number, a name, an attribute, an item or a sum of these in ``frame``; None if it is something else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return inspect.getattr_static(_value(node.value, frame), node.attr, None)
    if isinstance(node, ast.Subscript):
        table, key = _value(node.value, frame), _value(node.slice, frame)
        return table.get(key) if isinstance(table, Mapping) and isinstance(key, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = _value(node.left, frame), _value(node.right, frame)
        if isinstance(left, int) and isinstance(right, int):
            return left + right if isinstance(node.op, ast.Add) else left - right
    return None
