"""Whatever stands in a study file, reading it gives a study or one clear error."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vmselect as vs
from vmselect.errors import ProfileError

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from damage import replace_fields, write_anew

FROZEN = Path(__file__).parents[1] / "data" / "convergence" / "format-1.json"


def read(path: Path) -> None:
    try:
        study = vs.ConvergenceStudy.load(path)
    except ProfileError:  # any other error fails the test
        return
    assert str(study)
    for size in study.batch_sizes:
        value, low, high = study.epochs(size)
        assert 0 < low <= value <= high


def test_any_field_may_hold_anything(tmp_path: Path) -> None:
    file = tmp_path / "study.json"
    for content in replace_fields(json.loads(FROZEN.read_text())):
        write_anew(file, content)
        read(file)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2_000), st.binary(max_size=6))
def test_a_file_cut_or_spoilt_anywhere(tmp_path: Path, at: int, junk: bytes) -> None:
    whole = FROZEN.read_bytes()
    file = tmp_path / "study.json"
    write_anew(file, whole[:at] + junk)
    read(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProfileError):
        vs.ConvergenceStudy.load(tmp_path)
