"""Signs that a hand-written loop validates, found before its first step, when no validation has run yet."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

from vmselect.probe.environment import Loader
from vmselect.probe.epoch_loop import read_source, walk_script

MAX_PARTS = 100
"""Largest number of items of a variable that are looked at, such as those of a dict of data loaders."""


def seems_to_validate(frame: FrameType | None, loader: Loader, iterated: Collection[Loader]) -> bool:
    """Whether the script around ``frame``, which trains on ``loader``, has signs of a validation.

    These are another data loader that no loop has begun to read, unlike those in ``iterated``, and a model that is
    switched to evaluation and back. Nothing of the script is called.
    """
    frames = list(walk_script(frame))
    own = None if loader is None else _name_data(loader)
    others = (other for caller in frames for other in _find_loaders(caller))
    if any(other not in iterated and _name_data(other) != own for other in others):
        return True
    own_code = (caller for caller in frames if "site-packages" not in caller.f_code.co_filename)
    return any(_switches_mode(read_source(caller)) for caller in own_code)


def _find_loaders(frame: FrameType) -> Iterator[Loader]:
    """Data loaders in the variables of ``frame``, in the containers there, and in the object of a method."""
    torch = sys.modules.get("torch")
    kind = getattr(getattr(getattr(torch, "utils", None), "data", None), "DataLoader", None)
    if kind is None:
        return
    owner = getattr(frame.f_locals.get("self"), "__dict__", {})
    for value in [*frame.f_locals.values(), *frame.f_globals.values(), *owner.values()]:
        yield from (part for part in _parts(value) if isinstance(part, kind))


def _parts(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return list(value.values())[:MAX_PARTS]
    return value[:MAX_PARTS] if type(value) in (list, tuple) else (value,)


def _name_data(loader: Loader) -> tuple[object, ...]:
    """What distinguishes the data of loaders: the data set, and the sampler if it selects a part of them."""
    data = getattr(loader, "dataset", None)
    with suppress(Exception):  # a length may be code of the user
        if len(loader.sampler) < len(data):  # type: ignore[arg-type]
            return (id(data), id(loader.sampler))
    return (id(data),)


@functools.lru_cache(maxsize=100)
def _switches_mode(source: str) -> bool:
    """Whether ``source`` switches a model to evaluation and, also elsewhere, to training.

    >>> _switches_mode("model.train(); model.eval()"), _switches_mode("model.train(); teacher.eval()")
    (True, False)
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    names: Mapping[str, set[str]] = {"eval": set(), "train": set()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            off = [isinstance(argument, ast.Constant) and argument.value is False for argument in node.args]
            names["eval" if off == [True] else node.func.attr].add(ast.unparse(node.func.value))
    return not names["eval"].isdisjoint(names["train"])
