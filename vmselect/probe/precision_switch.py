"""Finds mixed precision that a script switches on only where it sees a GPU, while the script is described without one.

Scripts write ``torch.autocast(device, enabled=device == "cuda")``, or ``bf16=torch.cuda.is_available()`` as an argument
of transformers. Without a GPU the switch is off. Then the expression of the switch is read in the source of the script
and evaluated for a computer with a GPU, without running anything: names have the values that they have now, except that
the CPU counts as a GPU, and that False counts as what the script assigns to the name.
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeAlias

from vmselect.describing.precisions import MIXED_PRECISIONS

Arguments: TypeAlias = Any
Switch: TypeAlias = bool | None
"""Whether a switch that is off would be on where a GPU is present; None if that is not known."""

CUDA = "cuda"
QUESTIONS = ("cuda.is_available", "cuda.is_bf16_supported", "cuda.device_count", "accelerator.is_available")
"""Functions of torch that are true where there is a GPU."""
FORMATS = {name: MIXED_PRECISIONS[name] for name in ("bf16", "fp16")}
"""Arguments of transformers that switch mixed precision on."""
MOST_DEPTH = 5
"""Largest number of assignments that are followed from a switch."""
MOST_FRAMES = 8
"""Number of calls above a switch that are searched for it."""
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.eq, ast.IsNot: operator.ne,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


class _Unknown(Exception):  # noqa: N818 - no error of anyone
    """The value of an expression on a computer with a GPU is unknown."""


class PrecisionSwitches:
    """The switches of mixed precision that are off because this computer has no GPU."""

    def __init__(self) -> None:
        self.applied: str | None = None
        """The mixed precision of the described training where a GPU is present, if a switch states it."""
        self.is_unclear = False
        """Whether a switch was off, and it is not known whether it would be on where a GPU is present."""
        self._entered: list[str | Switch] = []
        self._arguments: list[tuple[Arguments, str]] = []
        self._undo: list[Callable[[], object]] = []

    def watch_torch(self, torch: ModuleType) -> None:
        """Note from now on which contexts and scalers are made with a switch that is off."""
        if torch.cuda.is_available():
            return
        autocast, old = torch.amp.autocast_mode.autocast, torch.cuda.amp.autocast_mode.autocast
        scaler = torch.amp.GradScaler
        initialize, enter, leave, scale = autocast.__init__, autocast.__enter__, autocast.__exit__, scaler.__init__
        names = list(inspect.signature(initialize).parameters)[1:]

        @functools.wraps(initialize)
        def made(context: Any, *args: Any, **named: Any) -> None:
            stated = dict(zip(names, args, strict=False)) | named
            initialize(context, *args, **named)
            context._vmselect_switch = False
            if not stated.get("enabled", True):
                position = 0 if isinstance(context, old) else names.index("enabled")
                dtype = stated.get("dtype") or torch.get_autocast_dtype(CUDA)
                context._vmselect_switch = _read_switch(sys._getframe(1), "enabled", position)
                if context._vmselect_switch is True:
                    context._vmselect_switch = "mixed_" + str(dtype).removeprefix("torch.")

        @functools.wraps(enter)
        def entered(context: Any) -> Any:
            self._entered.append(getattr(context, "_vmselect_switch", False))
            return enter(context)

        @functools.wraps(leave)
        def left(context: Any, *args: Any) -> Any:
            if self._entered:
                self._entered.pop()
            return leave(context, *args)

        @functools.wraps(scale)
        def made_scaler(this: Any, *args: Any, **named: Any) -> None:
            scale(this, *args, **named)
            if not named.get("enabled", True):
                self.is_unclear |= _read_switch(sys._getframe(1), "enabled") is not False

        for owner, name, value in (
            (autocast, "__init__", made), (autocast, "__enter__", entered), (autocast, "__exit__", left),
            (scaler, "__init__", made_scaler),
        ):  # fmt: skip
            self._undo.append(functools.partial(setattr, owner, name, getattr(owner, name)))
            setattr(owner, name, value)

    def watch_arguments(self, module: ModuleType) -> None:
        """Note from now on which arguments of transformers are made with a switch that is off."""
        import torch

        if torch.cuda.is_available():
            return
        kind = module.TrainingArguments
        check = kind.__post_init__

        @functools.wraps(check)
        def made(arguments: Any) -> None:
            check(arguments)
            is_on = {name for name in FORMATS if getattr(arguments, name, False)}
            for name, format_name in FORMATS.items():
                if name in is_on:
                    return
                switch = _read_switch(sys._getframe(1), name, absent=False)
                if switch is True:
                    self._arguments.append((arguments, format_name))
                    return
                self.is_unclear |= switch is None and not is_on

        kind.__post_init__ = made
        self._undo.append(functools.partial(setattr, kind, "__post_init__", check))

    def precision_of(self, arguments: Arguments) -> str | None:
        """Mixed precision of a training with these ``arguments`` of transformers where a GPU is present."""
        precision = next((name for those, name in self._arguments if those is arguments), None)
        self.applied = precision or self.applied
        return precision

    def read_context(self) -> str | None:
        """Mixed precision of a call that happens now where a GPU is present; None if no context says so."""
        for switch in reversed(self._entered):
            if isinstance(switch, str):
                self.applied = switch
                return switch
            self.is_unclear |= switch is None
        return None

    def close(self) -> None:
        """Restore everything."""
        while self._undo:
            self._undo.pop()()


def _read_switch(frame: FrameType | None, keyword: str, position: int | None = None, absent: Switch = None) -> Switch:
    """Whether the argument ``keyword`` of the call that is made in ``frame``, or above it, is true with a GPU.

    It may also be at ``position`` in a call of ``autocast``. The result is ``absent`` if there is no such call.
    """
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        tree = None if package in ("torch", "vmselect") else _parse(frame.f_code.co_filename)
        node = None if tree is None else _find_argument(tree, frame.f_lineno, keyword, position)
        if tree is not None and node is not None:
            switch = None
            with suppress(Exception):  # operations on objects of the script may raise anything, which must not end it
                switch = bool(_Expressions(tree, frame).evaluate(node))
            return switch
        frame = frame.f_back
    return absent


@functools.lru_cache(maxsize=50)
def _parse(name: str) -> ast.Module | None:
    """The source file ``name`` as a tree; None if there is none that can be read."""
    try:
        return ast.parse(Path(name).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _find_argument(tree: ast.Module, line: int, keyword: str, position: int | None) -> ast.expr | None:
    """The argument of the smallest call at ``line`` that has it."""
    candidates: list[tuple[int, ast.expr]] = []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and call.lineno <= line <= (call.end_lineno or call.lineno):
            size = (call.end_lineno or call.lineno) - call.lineno
            candidates += [(size, argument.value) for argument in call.keywords if argument.arg == keyword]
            if position is not None and ast.unparse(call.func).endswith("autocast") and len(call.args) > position:
                candidates.append((size, call.args[position]))
    return min(candidates, key=lambda pair: pair[0], default=(0, None))[1]


class _Expressions:
    """Values of expressions in a source file, as they would be on a computer with a GPU."""

    def __init__(self, tree: ast.Module, frame: FrameType) -> None:
        self._tree, self._values = tree, {**frame.f_globals, **frame.f_locals}

    def evaluate(self, node: ast.expr, depth: int = 0) -> Any:
        """Value of ``node``; raises ``_Unknown`` if it is not known. Nothing of the script is called."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Attribute(attr="type") if self.evaluate(node.value, depth) == CUDA:
                return CUDA
            case ast.Name() | ast.Attribute():
                return self._read(node, depth)
            case ast.UnaryOp(op=ast.Not()):
                return not self.evaluate(node.operand, depth)
            case ast.BoolOp():
                return self._combine(node, depth)
            case ast.IfExp():
                return self.evaluate(node.body if self.evaluate(node.test, depth) else node.orelse, depth)
            case ast.Compare(ops=[operation]) if type(operation) in COMPARISONS:
                sides = (self.evaluate(side, depth) for side in (node.left, *node.comparators))
                return COMPARISONS[type(operation)](*sides)
            case ast.Tuple() | ast.List() | ast.Set():
                return [self.evaluate(part, depth) for part in node.elts]
            case ast.Call():
                return self._call(node, depth)
        raise _Unknown

    def _combine(self, node: ast.BoolOp, depth: int) -> Any:
        """Value of parts joined by ``and`` or ``or``: one part may decide although others are unknown."""
        decides = isinstance(node.op, ast.Or)
        is_unknown, value = False, None
        for part in node.values:
            try:
                value = self.evaluate(part, depth)
            except _Unknown:
                is_unknown = True
                continue
            if bool(value) is decides:
                return value
        if is_unknown:
            raise _Unknown
        return value

    def _call(self, node: ast.Call, depth: int) -> Any:
        name = ast.unparse(node.func)
        if name.endswith(QUESTIONS):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr == "startswith" and len(node.args) == 1:
            return str(self.evaluate(node.func.value, depth)).startswith(str(self.evaluate(node.args[0], depth)))
        if name.rpartition(".")[2] in ("device", "bool", "str") and len(node.args) == 1:
            value = self.evaluate(node.args[0], depth)
            return bool(value) if name == "bool" else str(value)
        raise _Unknown

    def _read(self, node: ast.Name | ast.Attribute, depth: int) -> Any:
        """Value of a variable or an attribute: what is assigned to it in the file, else its value now."""
        try:
            value = self._now(node)
        except (KeyError, AttributeError):
            raise _Unknown from None
        if type(value).__name__ in ("str", "device") and str(value).partition(":")[0] == "cpu":
            return CUDA
        if assigned := list(self._assigned(node)):
            if depth >= MOST_DEPTH:
                raise _Unknown
            values = [self.evaluate(expression, depth + 1) for expression in assigned]
            if any(other != values[0] for other in values):
                raise _Unknown
            return values[0]
        # What is off now may be an option of the script, or a result of a test for GPUs.
        if value in (False, None) or not isinstance(value, str | int | float):
            raise _Unknown
        return value

    def _now(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return self._values[node.id]
        if isinstance(node, ast.Attribute):
            return inspect.getattr_static(self._now(node.value), node.attr)
        raise _Unknown

    def _assigned(self, node: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
        """Expressions that the file assigns to the variable or attribute."""
        for statement in ast.walk(self._tree):
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if isinstance(statement, ast.AnnAssign | ast.NamedExpr):
                targets = [statement.target]
            value = getattr(statement, "value", None)
            if value is not None and any(ast.unparse(target) == ast.unparse(node) for target in targets):
                yield value
