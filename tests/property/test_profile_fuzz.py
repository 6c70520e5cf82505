"""Whatever stands in a file, reading it gives a profile or a ProfileError and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vmselect.errors import ProfileError
from vmselect.records import Profile

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from damage import places, put, replace_fields, write_anew

VALID = json.loads(
    Profile.from_times(
        instance_type="m",
        batch_size=8,
        steps_per_epoch=10,
        init_seconds=1.0,
        first_iteration_seconds=1.0,
        iteration_seconds=[0.1, 0.1],
        validation_seconds=[1.0],
        metrics={"a": 1.0},
    ).model_dump_json()
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "profile.json"


def read(path: Path, content: bytes) -> None:
    write_anew(path, content)
    try:
        profile = Profile.load(path)
    except ProfileError as refused:
        message = str(refused)
    else:
        message = str(path)
        assert Profile.model_validate_json(profile.model_dump_json()) == profile
    assert str(path) in message, content[:300]


def test_every_field_replaced_by_every_odd_value(path: Path) -> None:
    for content in replace_fields(VALID):
        read(path, content)


FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(place=st.sampled_from(list(places(VALID))), value=ANYTHING)
def test_one_field_replaced_by_anything(path: Path, place: tuple[Any, ...], value: Any) -> None:
    data = json.loads(json.dumps(VALID))
    put(data, place, value)
    read(path, json.dumps(data).encode("utf-8", "surrogatepass"))


@FUZZ
@given(content=st.binary(max_size=300) | ANYTHING.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass")))
def test_any_bytes_and_any_json(path: Path, content: bytes) -> None:
    read(path, content)


def test_a_valid_file_with_bytes_cut_and_pasted(path: Path) -> None:
    whole, random = json.dumps(VALID).encode(), Random(5)
    for _ in range(1500):
        start, length, filling = (
            random.randrange(len(whole)),
            random.randrange(51),
            random.randbytes(random.randrange(9)),
        )
        read(path, whole[:start] + filling + whole[start + length :])
