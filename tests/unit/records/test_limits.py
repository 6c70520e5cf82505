"""Limits of records: the last value that is accepted and the first that is rejected.

The limits keep a hostile file from filling memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from vmselect.errors import ProfileError
from vmselect.records import Boundary, Environment, Epoch, Pause, Profile, Setup, Steps, Timeline, Validation
from vmselect.records.base import Fact, Gpu
from vmselect.records.convergence import ConvergenceRecord, ConvergenceRun, Curve, StoppingRule, as_logged
from vmselect.records.files import RecordFile
from vmselect.records.inference import (
    Calls,
    InferenceRecord,
    InferenceSetup,
    bucket_of,
    bucket_seconds,
    count_buckets,
    percentile_of,
    percentile_of_buckets,
)
from vmselect.records.training import Fit
from vmselect.records.transfer import Direction, TransferRecord, TransferSetup
from vmselect.records.usage import Limits, Summary, Usage

Make = Callable[[Any], Any]


def rejects(make: Make, value: Any) -> bool:
    try:
        make(value)
    except ValidationError:
        return True
    return False


def steps(count: int) -> Steps:
    columns = {"epoch": 0, "batch": 0, "seconds": 0.0, "covers": 1, "label": "steady"}
    return Steps(**{name: (one,) * count for name, one in columns.items()}, readings=count, steps=count)  # type: ignore[arg-type]


def calls(count: int) -> Calls:
    columns = {"number": 0, "start": 0.0, "latency": 0.0, "service": 0.0, "batch": 1, "label": "steady"}
    every = {name: (one,) * count for name, one in columns.items()}
    return Calls(total=count, items=count, buckets=(0,), counts=(count,), **every)  # type: ignore[arg-type]


def histogram(count: int) -> Calls:
    return Calls(total=count, items=count, buckets=tuple(range(count)), counts=(1,) * count)


def direction(count: int) -> Direction:
    times = (0.0,) * count
    return Direction(seconds=1.0, start=times, taken=times, bytes=(1,) * count, label=("steady",) * count)


def profile(**parts: Any) -> Profile:
    return Profile(**{"outcome": "given", "timeline": Timeline(), **parts})


def answers(**parts: Any) -> InferenceRecord:
    return InferenceRecord(**{"setup": InferenceSetup(source="given"), **parts})


RULE = StoppingRule(monitor="m", mode="max")


def run(**parts: Any) -> ConvergenceRun:
    usual = {"created": datetime(2026, 1, 1, tzinfo=UTC), "batch_size": 8, "rule": RULE, "epochs_run": 1e9}
    return ConvergenceRun(**{**usual, **parts})


def moved(**parts: Any) -> TransferRecord:
    setup = TransferSetup(url="memory://x", protocol="memory", files=1, bytes_per_file=1)
    return TransferRecord(**{"setup": setup, **parts})


def names(count: int, value: Any = 1) -> dict[str, Any]:
    return {f"n{number}": value for number in range(count)}


SUMMARY = Summary(count=1, seconds=1.0, mean=0.0, maximum=0.0, p50=0.0, p95=0.0)


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (steps, 20_000),
        (lambda count: Timeline(epochs=(Epoch(epoch=0, seconds=0.0),) * count), 20_000),
        (lambda count: Timeline(validations=(Validation(epoch=0, seconds=0.0),) * count), 20_000),
        (lambda count: Timeline(boundaries=(Boundary(epoch=0, seconds=0.0),) * count), 20_000),
        (
            lambda count: Timeline(pauses=(Pause(cause="garbage collection", epoch=0, batch=0, seconds=0.0),) * count),
            20_000,
        ),
        (lambda count: Validation(epoch=0, seconds=0.0, batch_seconds=(0.0,) * count), 4_000),
        (lambda count: profile(metrics=names(count, 1.0)), 1_000),
        (lambda count: profile(factors=names(count)), 100),
        (lambda count: Environment(versions=names(count, "1")), 50),
        (lambda count: Environment(gpus=(Gpu(name="T4"),) * count), 1_000),
        (calls, 100_000),
        (histogram, 10_000),
        (lambda count: answers(preparing=(0.0,) * count), 100_000),
        (lambda count: answers(errors=names(count)), 50),
        (lambda count: answers(metrics=names(count, 1.0)), 200),
        (direction, 100_000),
        (lambda count: Curve(epoch=tuple(range(1, count + 1)), value=(0.0,) * count), 20_000),
        (lambda count: run(metrics=names(count, 1.0)), 200),
        (lambda count: ConvergenceRecord(runs=(run(),) * count), 10_000),
        (lambda count: Usage(interval_seconds=1.0, seconds=(0.0,) * count, phase=("calls",) * count), 4_000),
        (lambda count: Usage(interval_seconds=1.0, series=names(count, ())), 2_000),
        (lambda count: Usage(interval_seconds=1.0, phases={"calls": names(count, SUMMARY)}), 2_000),
        (lambda count: Gpu(name="x" * count), 1_000),
        (lambda count: Fact(value="x" * count, source="given"), 200),
        (lambda count: StoppingRule(monitor="x" * count, mode="max"), 200),
    ],
)
def test_maximum_lengths(make: Make, most: int) -> None:
    make(most)
    assert rejects(make, most + 1)


@pytest.mark.parametrize(
    ("make", "least", "most"),
    [
        (lambda value: Epoch(epoch=0, seconds=value), 0.0, 1e10),
        (lambda value: Epoch(epoch=value, seconds=0.0), 0, 2**62),
        (lambda value: Setup(batch_size=value), 1, 2**62),
        (lambda value: Setup(partial_batch=value), 0, None),
        (lambda value: Fit(number=value, process="p"), 1, 2**62),
        (lambda value: Gpu(name="T4", power_limit_watts=value), 0.0, None),
        (lambda value: InferenceSetup(source="given", bytes_per_item=value), 0.0, 1e15),
        (lambda value: InferenceSetup(source="given", rate=value), None, 1e9),
        (lambda value: moved(cost_usd=value), 0.0, 1e9),
        (lambda value: moved(egress_usd_per_gb=value), 0.0, 1e9),
        (lambda value: run(epochs_run=value), None, 1e9),
        (lambda value: run(stabilised_after=value), None, 1e9),
        (lambda value: run(epochs_run=5.0, stabilised_after=value), None, 5.0),  # within its epochs
        (lambda value: StoppingRule(monitor="m", mode="max", min_delta=value), 0.0, None),
    ],
)
def test_bounds_of_values(make: Make, least: float | None, most: float | None) -> None:
    for edge, beyond in ((least, -1), (most, 1)):
        if edge is not None:
            make(edge)
            assert rejects(make, edge + beyond if isinstance(edge, int) else edge + beyond * max(1e-9, 1e-6 * edge))


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda value: Epoch(epoch=0, seconds=value), math.nan),
        (lambda value: Epoch(epoch=0, seconds=value), math.inf),
        (lambda value: profile(metrics={"m": value}), math.nan),
        (lambda value: InferenceSetup(source="given", rate=value), 0.0),
        (lambda value: run(epochs_run=value), 0.0),
        (lambda value: Setup(validations_per_epoch=value), 0.0),
        (lambda value: Limits(container_cores=value), 0.0),
        (lambda value: Fact(value=value, source="given"), ""),
        (lambda value: profile(id=value), "a" * 31),
        (lambda value: profile(id=value), "a" * 33),
        (lambda value: ConvergenceRecord(runs=value), ()),
    ],
)
def test_impossible_values(make: Make, value: Any) -> None:
    assert rejects(make, value)


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"readings": 1}, False),
        ({"steps": 3}, False),
        ({"readings": 9, "steps": 99}, True),  # what was not kept counts too
        ({"label": ("steady",)}, False),
    ],
)
def test_sums_of_steps_include_the_readings(changes: dict[str, Any], fits: bool) -> None:
    columns = {"epoch": (0, 0), "batch": (0, 1), "seconds": (1.0, 1.0), "covers": (2, 2), "label": ("first", "steady")}
    assert rejects(lambda more: Steps(**{**columns, "readings": 2, "steps": 4, **more}), changes) is not fits


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"items": 2}, True),
        ({"items": 1}, False),
        ({"counts": (1, 2)}, False),
        ({"buckets": (5, 5)}, False),
        ({"buckets": (5,)}, False),
        ({"label": ("steady", "steady", "steady")}, False),
        ({"label": ("steady", "steady", "warmup")}, True),
        ({"latency": (1.0, 1.0)}, False),
    ],
)
def test_sums_of_calls_agree_with_their_readings(changes: dict[str, Any], fits: bool) -> None:
    three = (1.0, 1.0, 1.0)
    usual = {
        "total": 2, "items": 8, "buckets": (5, 6), "counts": (1, 1), "number": (0, 1, 2), "start": three,
        "latency": three, "service": three, "batch": (4, 4, 4), "label": ("warmup", "steady", "steady"),
    }  # fmt: skip
    assert rejects(lambda more: Calls(**{**usual, **more}), changes) is not fits


@pytest.mark.parametrize(
    ("epochs", "fits"), [((1, 2, 3), True), ((1, 3), True), ((1, 1), False), ((2, 1), False), ((0, 1), False)]
)
def test_epochs_of_a_curve_ascend(epochs: tuple[int, ...], fits: bool) -> None:
    assert rejects(lambda value: Curve(epoch=value, value=(0.0,) * len(value)), epochs) is not fits
    assert rejects(lambda value: Curve(epoch=value, value=()), epochs)


# Files and folders


def padded(path: Path, text: str, size: int) -> Path:
    path.write_text(text + " " * (size - len(text.encode())))
    return path


def test_a_record_of_32_mib_is_read_and_none_larger(tmp_path: Path) -> None:
    text = Profile.from_times(instance_type="x", iteration_seconds=0.1).to_json()
    size = 32 * 1024 * 1024
    assert Profile.load(padded(tmp_path / "a.json", text, size)).instance_type == "x"
    with pytest.raises(ProfileError, match="MiB"):
        Profile.load(padded(tmp_path / "a.json", text, size + 1))


def test_records_of_one_second_get_a_number_each(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for _ in range(3):
        made = Profile.from_times(instance_type="x", batch_size=8, iteration_seconds=0.1)
        record = made.model_copy(update={"created": moment})
        RecordFile(tmp_path).finish(record)
    stem = "x-8-20260102T030405"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([f"{stem}.json", f"{stem}-2.json", f"{stem}-3.json"])


def test_readings_of_many_calls_are_bounded() -> None:
    many = InferenceRecord.from_times(instance_type="x", call_seconds=[0.5] * 100_000 + [1.0], batch_size=2)
    assert (len(many.calls.latency), many.calls.total, many.calls.items) == (100_000, 100_001, 200_002)
    assert many.calls.longest_seconds == 1.0
    assert many.percentile(100) == pytest.approx(1.0, rel=0.005)  # from the histogram of all
    assert many.percentile(50) == pytest.approx(0.5, rel=0.005)


def test_buckets_grow_by_a_percent() -> None:
    assert bucket_seconds(0) == pytest.approx(1.01**0.5)
    assert bucket_seconds(10) == pytest.approx(1.01**10.5)
    assert (bucket_of(1.0), bucket_of(1.0099), bucket_of(1.0101)) == (0, 0, 1)
    assert bucket_of(0.0) == bucket_of(1e-9) < bucket_of(1.02e-9)
    assert bucket_of(1e12) == bucket_of(1e10) > bucket_of(0.98e10)
    assert count_buckets([1.0, 1.0101, 1.005]) == {0: 2, 1: 1}
    assert percentile_of_buckets({0: 2, 1: 1}, 66) == bucket_seconds(0)
    assert percentile_of_buckets({0: 2, 1: 1}, 67) == bucket_seconds(1)
    with pytest.raises(ValueError, match="empty"):
        percentile_of_buckets({}, 50)


@pytest.mark.parametrize(("rank", "found"), [(1, 1.0), (25, 1.0), (25.1, 2.0), (50, 2.0), (75.1, 4.0), (100, 4.0)])
def test_percentiles(rank: float, found: float) -> None:
    assert percentile_of([4.0, 2.0, 1.0, 3.0], rank) == found


def test_values_that_are_not_finite_are_texts() -> None:
    logged = [as_logged(value) for value in (math.nan, math.inf, -math.inf, 0.5, 1e-300)]
    assert logged == ["nan", "inf", "-inf", 0.5, 1e-300]
