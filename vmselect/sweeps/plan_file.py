"""Plans as YAML files; errors name the file and the line."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from vmselect._checks import check_path, show
from vmselect._files import has_file, read_text, write_text
from vmselect.errors import PlanError

if TYPE_CHECKING:
    from vmselect.sweeps.plan import Plan

LIMIT_BYTES = 1 << 20
_MOST_VALUES = 200_000
_MOST_LEVELS = 8
Where = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """Reads 1e-3 as a number and dates as texts; rejects keys that are not texts or occur twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"{show(key)} is not a text", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Quotes texts that :class:`_Loader` would read as numbers."""


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("+-.0123456789")
    )
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan; every error names the file and, if known, the line."""
    from vmselect.sweeps.plan import Plan

    path = check_path("path", path)
    text = read_text(path, noun="plan", limit=LIMIT_BYTES, error=PlanError)
    root: yaml.Node | None = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None or _count(root) > _MOST_VALUES:
            raise PlanError("the file is empty, or too large or too deeply nested for a plan. Give a command.")
        given = loader.construct_document(root)
        names = list(inspect.signature(Plan).parameters)
        if not isinstance(given, dict):
            raise PlanError("a plan must have keys, such as command and factors.")
        for name in given:
            if name not in names:
                near = get_close_matches(name, names, n=1)
                hint = f"Did you mean {near[0]}?" if near else f"The keys are {', '.join(names)}."
                raise PlanError(f"unknown key {show(name)}. {hint}", (name,))
        if "command" not in given:
            raise PlanError("the key command is missing. Give the command to run.")
        return Plan(**given)
    except (yaml.YAMLError, RecursionError, ValueError) as bad:
        mark = getattr(bad, "problem_mark", None)
        line = mark.line + 1 if mark else _line(root, getattr(bad, "where", ()))
        problem = bad if isinstance(bad, PlanError) else f"{getattr(bad, 'problem', None) or 'not YAML'}. Correct it."
        raise PlanError(f"{path}{f' line {line}' if line else ''}: {problem}", getattr(bad, "where", ())) from None


def write_plan(plan: Plan, path: str | os.PathLike[str]) -> Path:
    """Write a plan atomically; refuse to overwrite a file that is not a plan."""
    target = check_path("path", path)
    if has_file(target) and target.stat().st_size:
        try:
            read_plan(target)
        except PlanError:
            raise PlanError(
                f"{target}: this file is there already and is no plan, so it is not overwritten. Choose another path."
            ) from None
    return write_text(target, as_yaml(plan.to_dict()), error=PlanError)


def as_yaml(values: Mapping[str, Any]) -> str:
    """Plain values as YAML, in the order given."""
    return str(
        yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    )


def _count(node: yaml.Node, level: int = 0) -> int:
    """The number of values below ``node``; aliases count every time, and too deep a nesting as too many."""
    if level > _MOST_LEVELS:
        return _MOST_VALUES + 1
    count = 1
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        count += _count(child[1] if isinstance(child, tuple) else child, level + 1)
        if count > _MOST_VALUES:
            break
    return count


def _line(node: yaml.Node | None, where: Where) -> int | None:
    """The line of the key or item at ``where``, or of the innermost one that exists; None without a path."""
    line = None
    for step in where:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == str(step)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            pair = (node.value[step], node.value[step])
        else:
            pair = None
        if pair is None:
            break
        line, node = pair[0].start_mark.line + 1, pair[1]
    return line
