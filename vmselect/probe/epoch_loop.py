"""The numbers of epochs and steps that the loops of a script state, such as ``for epoch in range(args.epochs)``.

A training in a plain loop of torch has no argument with its number of epochs. The loops are read from the source of the
functions that are running; nothing of the script is called.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import linecache
import math
import operator
from collections.abc import Collection, Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

PASSED_ON = frozenset({"tqdm", "trange", "track", "enumerate", "range"})
"""Functions around ``range`` that yield as many items."""
RANGES = ("range", "trange")
OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
MAX_FRAMES = 100
Place: TypeAlias = tuple[str, int]
"""File and line of a loop."""


class Loop(NamedTuple):
    """A running loop. ``number`` is that of its iterations, None if its source does not state it."""

    place: Place
    over_epochs: bool
    number: int | None


class Length(NamedTuple):
    """Number of epochs of a training, and of batches in each; None if unknown."""

    epochs: int | None
    steps: int | None


def find_epochs(frame: FrameType | None, loader: object = None, outer: Collection[Place] = ()) -> int | None:
    """Number of iterations of the innermost running loop over epochs around ``frame``; None if no loop states it.

    Without a loop that counts epochs by its name, that is a loop over a ``range`` around the loop over ``loader``,
    unless it is at one of the places ``outer``, whose loops repeat the training.
    """
    callers = list(_walk_callers(frame))
    for loop in (loop for caller in callers for loop in _read_loops(caller)):
        if loop.over_epochs:
            return loop.number
    passes = (_count_passes(caller, loader, outer) for caller in callers if loader is not None)
    return next((number for number in passes if number is not None), None)


def _count_passes(frame: FrameType, loader: object, outer: Collection[Place]) -> int | None:
    """Number of passes over ``loader`` that a loop over a ``range`` in ``frame`` makes; None if there is none."""
    loops = list(_running_loops(frame, headers=True))
    for inner, around in itertools.pairwise(loops):
        if isinstance(inner, ast.For) and any(_value(part, frame) is loader for part in _parts(inner.iter)):
            counts = isinstance(around, ast.For) and any(_names_range(part) for part in ast.walk(around.iter))
            read = _read_loop(around, frame)
            return read.number if counts and read.place not in outer else None
    return None


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """The names and attributes in ``node``."""
    return (part for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute))


def _names_range(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and getattr(node, "id", getattr(node, "attr", "")) in RANGES


def find_loops(frame: FrameType | None) -> list[Loop]:
    """The running loops of the script around the call of a model in ``frame``, the innermost first.

    Loops inside a model, and inside what runs the script, are no loops of a training.
    """
    return [loop for caller in walk_script(frame) for loop in _read_loops(caller)]


def walk_script(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the script around the call of a model in ``frame``, the innermost first.

    Those inside a model, and of what runs the script, are left out.
    """
    callers: list[FrameType] = []
    for caller in _walk_callers(frame):
        module = str(caller.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if package == "runpy":
            break
        if module.startswith("torch.nn."):
            callers.clear()
        elif package not in ("torch", "vmselect"):
            callers.append(caller)
    yield from callers


def read_source(frame: FrameType) -> str:
    """The source of the file of ``frame``; empty if there is none."""
    name = frame.f_code.co_filename
    linecache.checkcache(name)
    return "".join(linecache.getlines(name, frame.f_globals))


def find_length(frame: FrameType | None, outer: Collection[Place] = ()) -> Length:
    """Number of epochs and of batches per epoch of a loop without a ``DataLoader``, around the call of its model.

    A loop that counts no epochs is one epoch. Loops at the places ``outer`` repeat the training.
    """
    loops = [loop for loop in find_loops(frame) if loop.place not in outer]
    number = next((number for number, loop in enumerate(loops) if loop.over_epochs), len(loops))
    counts = [loop.number for loop in loops[:number]]
    steps = math.prod(count for count in counts if count is not None) if counts and None not in counts else None
    return Length(loops[number].number if number < len(loops) else 1 if counts else None, steps)


def _walk_callers(frame: FrameType | None) -> Iterator[FrameType]:
    """``frame`` and the frames around it, the innermost first."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _read_loops(frame: FrameType) -> list[Loop]:
    return [_read_loop(loop, frame) for loop in _running_loops(frame)]


def _read_loop(loop: ast.For | ast.While, frame: FrameType) -> Loop:
    place = (frame.f_code.co_filename, loop.lineno)
    if isinstance(loop, ast.While):
        return Loop(place, over_epochs="epoch" in ast.unparse(loop.test).lower(), number=None)
    count = _count(loop.iter, frame)
    return Loop(place, "epoch" in ast.unparse(loop.target).lower(), count if count is not None and count > 0 else None)


def _running_loops(frame: FrameType, *, headers: bool = False) -> Iterator[ast.For | ast.While]:
    """The loops of the source of ``frame`` that contain its line, the innermost first.

    With ``headers``, a loop whose next item is being read contains its line, too.
    """
    first, line = frame.f_code.co_firstlineno, frame.f_lineno
    for loop in _parse_loops(read_source(frame)):
        if first <= loop.lineno < line + headers and line <= (loop.end_lineno or 0):
            yield loop


@functools.lru_cache(maxsize=100)
def _parse_loops(source: str) -> list[ast.For | ast.While]:
    """All loops of ``source``, the last first: of two nested ones, the inner one."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    return sorted(loops, key=lambda loop: -loop.lineno)


def _count(loop: ast.expr, frame: FrameType) -> int | None:
    """Number of items of ``range(...)`` or a list, also inside ``tqdm`` or ``enumerate``; None if it is another."""
    if not isinstance(loop, ast.Call):
        return _length(_value(loop, frame))
    function = loop.func.attr if isinstance(loop.func, ast.Attribute) else getattr(loop.func, "id", "")
    if function not in PASSED_ON or not loop.args:
        return None
    if function not in RANGES:
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
    """Value of a number, a name, an attribute, an item, or of a sum, product, quotient or length of these in ``frame``.

    None if it is something else.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return inspect.getattr_static(_value(node.value, frame), node.attr, None)
    if isinstance(node, ast.Subscript):
        table, key = _value(node.value, frame), _value(node.slice, frame)
        return table.get(key) if isinstance(table, Mapping) and isinstance(key, str) else None
    if isinstance(node, ast.BinOp):
        left, right, operate = _value(node.left, frame), _value(node.right, frame), OPERATORS.get(type(node.op))
        if isinstance(left, int) and isinstance(right, int) and operate is not None:
            return operate(left, right) if right or operate not in (operator.floordiv, operator.mod) else None
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "len" and len(node.args) == 1:
        return _length(_value(node.args[0], frame))
    return None


def _length(value: Any) -> int | None:
    """Length of a list, an array or a tensor; None for any other object, whose ``__len__`` may be the script's."""
    if type(value) in (list, tuple, dict):
        return len(value)
    is_array = (type(value).__module__, type(value).__name__) in (("torch", "Tensor"), ("numpy", "ndarray"))
    return int(value.shape[0]) if is_array and len(value.shape) else None
