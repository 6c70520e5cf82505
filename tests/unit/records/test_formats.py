"""Files of every kind and format load, and other files are rejected with their name."""

from __future__ import annotations

from pathlib import Path

import pytest

import vmselect as vs
from vmselect.errors import ProfileError
from vmselect.records.formats import KINDS, parse_record

DATA = Path(__file__).parents[2] / "data"
FOLDERS = {"training": "profiles"}
"""Folders of kinds that are not named like the kind."""

FILES = [(kind, number) for kind, known in KINDS.items() for number in range(1, known.format + 1)]
"""One frozen file each. A new kind or format needs its file."""


@pytest.mark.parametrize(("kind", "number"), FILES)
def test_every_kind_and_format_stays_readable(kind: str, number: int) -> None:
    path = DATA / FOLDERS.get(kind, kind) / f"format-{number}.json"
    (record,) = vs.load_records(path)
    assert record.kind == kind
    assert record.format == KINDS[kind].format
    assert (record,) == tuple(vs.load_records(path))


@pytest.mark.parametrize("number", [1, 2])
def test_old_studies_keep_their_values(number: int) -> None:
    study = vs.ConvergenceStudy.load(DATA / "convergence" / f"format-{number}.json")
    assert study.batch_sizes == (32, 64)
    assert study.epochs(32).value == 7


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[1]", "format"),
        (b'{"format": true}', "format"),
        (b'{"format": 3, "kind": "other"}', "kind 'other'"),
        (b'{"format": 3, "kind": "' + b"k" * 70 + b'"}', f"kind '{'k' * 60}'"),
        (b'{"format": 4}', "format 4"),
        (b'{"format": 0}', "format 0"),
        (b'{"format": 3, "kind": "training"}', "field"),
        (b'{"format": 3, "kind": "training", "outcome": "given"}', "field timeline"),
        (b'{"kind": "training",', "line 1 column 20"),
    ],
)
def test_an_invalid_file_is_named_with_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(ProfileError, match=rf"^a\.json: .*{reason}"):
        parse_record(text, source="a.json")
