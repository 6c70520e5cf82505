"""The JSON form of a price file: a list of objects, each of which is named by the line on which it begins."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from vmselect._checks import show
from vmselect.catalog import table
from vmselect.catalog.schema import COLUMNS, SCHEMA_VERSION, describe_column
from vmselect.errors import CatalogError

_TOP = ("schema", "currency", "offers")


def read(path: Path) -> tuple[pd.DataFrame, table.RowNamer, list[table.Rule]]:
    """The rows of a JSON price file, not checked yet, what to call each of them, and faults found already."""
    known = (*COLUMNS, "currency")
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows, lines = _json_offers(text)
    except (OSError, ValueError, RecursionError) as failure:
        raise CatalogError(
            f'{path.name} is not a JSON price file ({str(failure)[:160]}). Write {{"offers": [{{...}}, ...]}}.'
        ) from failure
    for row, line in zip(rows, lines, strict=True):
        for name, value in row.items():
            if name not in known:
                hint = describe_column(name)
                raise CatalogError(f"{path.name} line {line} has an unknown field {name[:40]!r}. {hint}")
            if isinstance(value, list | dict):
                raise CatalogError(f"{path.name} line {line}: {name} must be one value, not a list or object.")
    raw = pd.DataFrame(rows, columns=[c for c in known if any(c in r for r in rows)], dtype=object)
    rules = table.other_currencies(raw)
    return raw, lambda positions: [f"{path.name} line {lines[p]}" for p in positions], rules


def _json_offers(text: str) -> tuple[list[dict[str, Any]], list[int]]:
    """The objects of the offers list and the line on which each begins."""
    decoder = json.JSONDecoder(parse_constant=lambda word: f"{word}", object_pairs_hook=_as_unique)
    whole = decoder.decode(text)
    if isinstance(whole, dict):
        for name in whole:
            if name not in _TOP:
                raise ValueError(f"unknown field {show(name)} beside the offers; known are {', '.join(_TOP)}")
        if whole.get("currency", "USD") != "USD":
            raise ValueError(f"its currency is {show(whole['currency'])}; convert the prices to US dollars")
        version = whole.get("schema", SCHEMA_VERSION)
        if version != SCHEMA_VERSION or isinstance(version, bool):
            raise ValueError(f"schema {show(version)}; this release reads {SCHEMA_VERSION}")
        rows = whole.get("offers")
        at = text.index("[", text.index('"offers"')) + 1 if isinstance(rows, list) else 0
    else:
        rows, at = whole, text.find("[") + 1
    if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
        raise ValueError("no list of offers")
    lines, line, counted = [], 1, 0
    for _ in rows:
        at = text.index("{", at)
        line, counted = line + text.count("\n", counted, at), at
        lines.append(line)
        _, at = decoder.raw_decode(text, at)
    return rows, lines


def _as_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{show(twice)} stands twice in one object")
    return names
