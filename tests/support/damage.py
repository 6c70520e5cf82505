"""Files as they can be found: every field replaced by what does not belong there."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 2.5, 1e308, 10**400, float("nan"), "", "1", "\x00", "\ud800", "a" * 5000, [], [None, "x"], {},
    {"a": [{"b": 1}]},
)  # fmt: skip
"""Nothing, a flag, numbers and texts of every trouble, lists and mappings: empty, nested, of mixed kinds."""


def replace_fields(content: Any) -> Iterator[bytes]:
    """``content`` as JSON once for each of its fields and each odd value that the field may hold instead."""
    for place in places(content):
        for value in ODD:
            damaged = copy.deepcopy(content)
            put(damaged, place, value)
            yield json.dumps(damaged).encode("utf-8", "surrogatepass")


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every field, from the outside in."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from places(part, (*at, key))


def put(content: Any, place: tuple[Any, ...], value: Any) -> None:
    """``value`` at ``place`` of ``content``."""
    for key in place[:-1]:
        content = content[key]
    content[place[-1]] = value


def write_anew(path: Path, content: bytes) -> None:
    """``content`` as a new file at ``path``.

    A file written over is put to disk by the system before the next change, milliseconds each; one that is removed
    never gets there.
    """
    path.unlink(missing_ok=True)
    path.write_bytes(content)
