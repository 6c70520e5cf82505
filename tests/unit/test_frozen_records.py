"""One file of every kind and format ever written: each stays readable for ever, and none of them is edited."""

from __future__ import annotations

from pathlib import Path

import pytest

import vmselect as vs
from vmselect.records.registry import KINDS

DATA = Path(__file__).parents[1] / "data"
FOLDERS = {"training": "profiles"}
"""Where files of a kind lie that are not in a folder of its name."""

FILES = [
    (kind, number) for kind, known in KINDS.items() for number in range(1, known.format + 1)
]  # a new kind or format without its file fails here


@pytest.mark.parametrize(("kind", "number"), FILES)
def test_every_kind_and_format_stays_readable(kind: str, number: int) -> None:
    path = DATA / FOLDERS.get(kind, kind) / f"format-{number}.json"
    (record,) = vs.load_records(path)
    assert record.kind == kind
    assert record.format == KINDS[kind].format
    assert (record,) == tuple(vs.load_records(path))
