"""Plans as YAML files: read with line numbers, so that an error says where it is."""

from __future__ import annotations

import inspect
import os
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
_DEEPEST = 8
_MOST_VALUES = 200_000
Where = tuple[str | int, ...]


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan; every error names the file and, where it can, the line."""
    from vmselect.sweeps.plan import Plan

    path = check_path("path", path)
    text = read_text(path, noun="plan", limit=LIMIT_BYTES, error=PlanError)
    lines: dict[Where, int] = {}
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        said = _plain(root, (), lines)
        words = list(inspect.signature(Plan).parameters)
        if not isinstance(said, dict):
            raise PlanError("a plan must have keys, such as command and factors.")
        for word in said:
            if word not in words:
                near = get_close_matches(str(word), words, n=1)
                hint = f"Did you mean {near[0]}?" if near else f"The keys are {', '.join(words)}."
                raise PlanError(f"unknown key {show(word)}. {hint}", (word,))
        if "command" not in said:
            raise PlanError("the key command is missing: what is to be run.")
        return Plan(**said)
    except (yaml.YAMLError, RecursionError) as broken:
        mark = getattr(broken, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        problem = getattr(broken, "problem", None) or "this is not YAML"
        raise PlanError(f"{path}{line}: {problem}. Correct it.") from None
    except PlanError as bad:
        number = _line(bad.where, lines)
        raise PlanError(f"{path}{f' line {number}' if number else ''}: {bad}", bad.where) from None


def write_plan(plan: Plan, path: str | os.PathLike[str]) -> Path:
    """Write a plan whole or not at all; a file that is there already and is no plan is refused."""
    target = check_path("path", path)
    if has_file(target) and target.stat().st_size:
        try:
            read_plan(target)
        except PlanError:
            raise PlanError(
                f"{target}: this file is there already and is no plan, so it is not overwritten. Choose another path."
            ) from None
    return write_text(target, as_yaml(plan.to_dict()), error=PlanError)


def as_yaml(said: Mapping[str, Any]) -> str:
    """Plain values as YAML, in the order given."""
    return str(
        yaml.dump(dict(said), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    )


class _Dumper(yaml.SafeDumper):
    """Quotes texts that :func:`_scalar` would take for numbers."""


def _quote(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "'" if isinstance(_number_or_text(text), float) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _quote)


def _plain(node: yaml.Node | None, where: Where, lines: dict[Where, int]) -> Any:
    """The value of ``node``, noting the line on which each part of it stands."""
    if node is None:
        raise PlanError("the file is empty. A plan needs at least a command.")
    lines[where] = node.start_mark.line + 1
    if len(where) > _DEEPEST or len(lines) > _MOST_VALUES:  # aliases can make much of little
        raise PlanError("this is nested too deep, or too large, for a plan.", where)
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            inside = (*where, str(key))
            lines[inside] = key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise PlanError(f"{show(key)} cannot be a key; write it as a word.", inside)
            if key in values:
                raise PlanError(f"{key} is written twice.", inside)
            values[key] = _plain(value_node, inside, lines)
            lines[inside] = key_node.start_mark.line + 1
        return values
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*where, position), lines) for position, item in enumerate(node.value)]
    return _scalar(node)


def _scalar(node: yaml.Node) -> Any:
    if node.tag == "tag:yaml.org,2002:str" and getattr(node, "style", None) is None:
        return _number_or_text(node.value)
    if node.tag == "tag:yaml.org,2002:timestamp":
        return node.value
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError) as unknown:
        problem = getattr(unknown, "problem", None) or str(unknown)
        raise PlanError(f"line {node.start_mark.line + 1}: {problem}") from None


def _number_or_text(text: str) -> float | str:
    """1e-3 is a number to everybody but YAML 1.1.

    >>> [_number_or_text(text) for text in ("1e-3", "e5", "5 eggs")]
    [0.001, 'e5', '5 eggs']
    """
    try:
        return float(text) if "e" in text.lower() and text[:1] in "+-.0123456789" else text
    except ValueError:
        return text


def _line(where: Where, lines: Mapping[Where, int]) -> int | None:
    while where and where not in lines:
        where = where[:-1]
    return lines.get(where) if where else None
