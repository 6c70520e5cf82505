"""The description of a training step as a part of a record."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from vmselect import Profile
from vmselect.describing.tally import Tally
from vmselect.errors import ProfileError
from vmselect.records import Operation, Operations, Work

ROWS = [
    Operation("conv", 2e9, 1e7, 1000, 64, 576, 1, 1),
    Operation("elem", 1e6, 8e6, 0, 0, 0, 1, 3),
    Operation("conv", 2e9, 1e7, 1000, 64, 576, 1, 2),
]


def make_work(**changes: object) -> Work:
    fields = {"batch_size": 32, "operations": Operations.of(ROWS), "parameters": 10, "parameter_tensors": 2}
    return Work(**(fields | {"method": "given"} | changes))


def test_equal_operations_are_added_up() -> None:
    assert [row.count for row in make_work().operations.rows] == [3, 3]


def test_no_operations() -> None:
    assert Operations.of([]).rows == ()


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValidationError):
        Operations(kind=("mm",))


@pytest.mark.parametrize("flops", [-1.0, float("nan"), float("inf"), 1e30])
def test_impossible_amounts_are_refused(flops: float) -> None:
    with pytest.raises(ValidationError):
        Operations.of([ROWS[0]._replace(flops=flops)])


@pytest.mark.parametrize(("parameters", "tensors"), [(10, 11), (0, 1), (25_000_000, 10**15)])
def test_more_tensors_than_weights_are_refused(parameters: int, tensors: int) -> None:
    with pytest.raises(ValidationError, match=f"{tensors:,} tensors cannot hold {parameters:,} trained weights"):
        make_work(parameters=parameters, parameter_tensors=tensors)


def test_file_with_more_tensors_than_weights_is_refused(tmp_path) -> None:
    profile = Profile.from_times(batch_size=32, iteration_seconds=0.1).model_copy(update={"work": make_work()})
    path = profile.save(tmp_path)
    fields = json.loads(path.read_text())
    fields["work"]["parameter_tensors"] = 10**15
    path.write_text(json.dumps(fields))
    with pytest.raises(ProfileError, match=r"1,000,000,000,000,000 tensors cannot hold 10 trained weights"):
        Profile.load(path)


def test_empty_tensors_are_not_counted() -> None:
    tally = Tally()
    facts = {"batch_size": 1, "constants": 0, "optimizer": None, "method": "layers", "seconds": 0.0}
    assert tally.work(trained=[0, 5, 0], **facts).parameter_tensors == 1
    assert tally.work(trained=[0], **facts).parameter_tensors == 0


def test_description_is_kept_in_the_file(tmp_path) -> None:
    profile = Profile.from_times(batch_size=32, iteration_seconds=0.1).model_copy(update={"work": make_work()})
    assert Profile.load(profile.save(tmp_path)).work == make_work()


def test_records_without_description_do_not_mention_it() -> None:
    assert '"work"' not in Profile.from_times(batch_size=32, iteration_seconds=0.1).to_json()
