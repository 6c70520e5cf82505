"""Whatever stands in a study file, reading it gives a study or one clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vmselect as vs
from vmselect.errors import ProfileError

FROZEN = Path(__file__).parents[1] / "data" / "convergence" / "format-1.json"
odd = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inside for place in places(part, (*path, key)))]


def read(path: Path) -> None:
    try:
        study = vs.ConvergenceStudy.load(path)
    except ProfileError:  # any other error fails the test
        return
    assert str(study)
    for size in study.batch_sizes:
        value, low, high = study.epochs(size)
        assert 0 < low <= value <= high


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_field_may_hold_anything(tmp_path: Path, data: Any) -> None:
    record = json.loads(FROZEN.read_text())
    path = data.draw(st.sampled_from(places(record)[1:]))
    part = record
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = data.draw(odd)
    file = tmp_path / "study.json"
    file.write_text(json.dumps(record))
    read(file)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2_000), st.binary(max_size=6))
def test_a_file_cut_or_spoilt_anywhere(tmp_path: Path, at: int, junk: bytes) -> None:
    whole = FROZEN.read_bytes()
    file = tmp_path / "study.json"
    file.write_bytes(whole[:at] + junk)
    read(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no convergence study"):
        vs.ConvergenceStudy.load(tmp_path)
