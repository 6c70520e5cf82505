"""Throughput of retrieving data and putting them through a model."""

from __future__ import annotations

import math

import pytest

import vmselect as vs
from vmselect.errors import ComparisonError
from vmselect.records import InferenceRecord, TransferRecord


def transfer(seconds: float, provider: str = "aws") -> TransferRecord:
    where = {"instance_type": "a", "provider": provider, "url": "s3://data"}
    return TransferRecord.from_times(**where, megabytes=100, download_seconds=seconds)


def calls(seconds: float, provider: str = "aws", size: float | None = 1e6) -> InferenceRecord:
    return InferenceRecord.from_times(
        instance_type="a", provider=provider, batch_size=10, call_seconds=[seconds] * 20, bytes_per_item=size
    )


def test_the_times_per_megabyte_add_up() -> None:
    moved = [transfer(78), transfer(49, "azure")]
    table = vs.serving.retrieve_and_infer(moved, [calls(6.3), calls(6.0, "azure"), calls(1.0, "gcp")]).set_index(
        "group"
    )
    assert table["mb_per_second"].to_dict() == pytest.approx({"aws": 1 / 1.41, "azure": 1 / 1.09})
    assert table["overlapped_mb_per_second"].to_dict() == pytest.approx({"aws": 1 / 0.78, "azure": 1 / 0.6})
    assert math.isnan(table.loc["aws", "mb_per_second_low"])


def test_repetitions_give_an_interval() -> None:
    moved, served = [transfer(s) for s in (70, 78, 86)], [calls(s) for s in (6.1, 6.3, 6.5)]
    (row,) = vs.serving.retrieve_and_infer(moved, served).to_dict("records")
    assert row["mb_per_second_low"] < 1 / 1.41 < row["mb_per_second_high"]
    narrow = vs.serving.retrieve_and_infer(moved, served, confidence=0.5)["mb_per_second_high"][0]
    assert narrow < row["mb_per_second_high"]
    (same,) = vs.serving.retrieve_and_infer([transfer(78), transfer(78)], [calls(6.3), calls(6.3)]).to_dict("records")
    assert same["mb_per_second_low"] == pytest.approx(same["mb_per_second_high"])


def test_groups_without_both_parts_are_refused() -> None:
    with pytest.raises(ComparisonError):
        vs.serving.retrieve_and_infer(transfer(78), calls(6.3, "azure"))
    with pytest.raises(ComparisonError):
        vs.serving.retrieve_and_infer(transfer(78), calls(6.3, size=None))


def test_calls_of_different_models_are_refused() -> None:
    other = calls(63.0).model_copy(update={"setup": calls(63.0).setup.model_copy(update={"model": "other"})})
    named = calls(6.3).model_copy(update={"setup": calls(6.3).setup.model_copy(update={"model": "net"})})
    assert len(vs.serving.retrieve_and_infer(transfer(78), [named, calls(6.3)])) == 1
    with pytest.raises(ComparisonError, match="net"):
        vs.serving.retrieve_and_infer(transfer(78), [named, other])
