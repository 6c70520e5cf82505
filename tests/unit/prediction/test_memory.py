"""GPU memory of a training from its description."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from tests.support.profiles import make_gpu_profile
from vmselect.findings import Finding
from vmselect.prediction.hardware import (
    GIB,
    TIGHT_MEMORY,
    TOO_LITTLE_MEMORY,
    Machine,
    MachineTypes,
    MemoryCheck,
    Refusal,
    fit_memory,
)
from vmselect.prediction.memory import describe_memory
from vmselect.records import Profile
from vmselect.records.base import Environment
from vmselect.records.training import Setup, Timeline
from vmselect.records.work import Operation, Operations, Work

TYPES = MachineTypes(vs.Catalog.embedded("2026-08-22"))
LARGEST = Operation("elem", 1.0, 1.0 * GIB, 0, 0, 0, 1, 1)
NORM = Operation("norm", 1.0, 1.5 * GIB, 0, 0, 0, 1, 1)
PRODUCT = Operation("mm", 1.0, 9.0 * GIB, 1, 1, 1, 1, 1)


def make_work(*, saved_gib: float | None = 3.0, optimizer: str | None = "adam") -> Work:
    saved = None if saved_gib is None else saved_gib * GIB
    return Work(
        batch_size=64, operations=Operations.of([LARGEST, NORM, PRODUCT]), parameters=GIB // 16, parameter_tensors=10,
        optimizer=optimizer, saved_bytes=saved, method="given",
    )  # fmt: skip


def make_described(*, precision: str = "float32", backend: str = "torch", **options: Any) -> Profile:
    return Profile(
        outcome="described", setup=Setup(model="m", batch_size=64, batch_size_source="given"), timeline=Timeline(),
        environment=Environment(precision=precision, backend=backend), work=make_work(**options),
    )  # fmt: skip


def peak_gib(profile: Profile, size: int) -> float:
    memory = describe_memory(profile)
    assert memory is not None
    return memory.peak(size).value / GIB


def test_weights_state_activations_and_the_largest_operation_add_up() -> None:
    # Adam: 16 bytes for each of GIB / 16 weights. The norm reads its input several times; a product reads weights.
    assert peak_gib(make_described(), 64) == pytest.approx(1.0 + 3.0 + 1.0)
    assert peak_gib(make_described(), 128) == pytest.approx(1.0 + 2 * 4.0)


@pytest.mark.parametrize(
    ("optimizer", "gib"), [("sgd", 0.5), ("momentum", 0.75), ("adam", 1.0), (None, 1.0), ("unheard-of", 1.0)]
)
def test_the_optimizer_keeps_numbers_for_each_weight(optimizer: str | None, gib: float) -> None:
    assert peak_gib(make_described(optimizer=optimizer), 64) == pytest.approx(gib + 4.0)


@pytest.mark.parametrize(("precision", "gib"), [("mixed_float16", 1.0 + 2.0), ("bfloat16", 0.5 + 2.0)])
def test_activations_take_half_in_half_precision(precision: str, gib: float) -> None:
    assert peak_gib(make_described(precision=precision), 64) == pytest.approx(gib)


def test_unknown_activations_are_no_description_of_memory() -> None:
    assert describe_memory(make_described(saved_gib=None)) is None
    with pytest.raises(vs.errors.EstimateError, match=r"vmselect\.describe"):
        vs.estimate_memory(make_described(saved_gib=None))


def test_a_described_training_has_a_peak_and_a_largest_batch_size() -> None:
    frame = vs.estimate_memory(make_described(), gpu=["T4", "A100"])
    peak, *largest = frame.to_dict("records")
    assert (peak["answer"], peak["batch_size"], peak["basis"]) == ("peak", 64, "described")
    assert peak["peak_gib"] == pytest.approx(5.0)
    assert peak["low_gib"] < 5.0 < peak["high_gib"]
    sizes = {row["gpu_model"]: row["batch_size"] for row in largest}
    assert 0 < sizes["T4"] < sizes["A100"]
    assert all(row["high_gib"] <= row["usable_gib"] for row in largest)


def test_only_what_the_whole_interval_excludes_is_excluded() -> None:
    check = MemoryCheck([make_described()], TYPES)
    problems = {gib: check.check(Machine("x", "aws", "Made-up", 1, gib), 64) for gib in (3, 6, 24)}
    assert isinstance(problems[3], Refusal)
    assert problems[3].code == TOO_LITTLE_MEMORY
    assert isinstance(problems[6], Finding)
    assert problems[6].code == TIGHT_MEMORY
    assert problems[24] is None


def test_a_measured_peak_overrides_the_description() -> None:
    model = fit_memory([make_described(), make_gpu_profile(64, 7.0)])
    assert model is not None
    assert model.peak(64).value == 7.0 * GIB
    assert model.basis(64) == "measured"


def read_by_driver(size: int, gib: float, **changes: Any) -> Profile:
    return make_gpu_profile(size, gib, environment={"gpu_memory": {"source": "nvml"}}, **changes)


def test_the_context_that_a_driver_counts_does_not_grow() -> None:
    # 1.2 GiB of constants and 25 MiB per example.
    profile = read_by_driver(8, 1.4, setup={"parameters": int(0.3 * GIB / 16)})
    model = fit_memory([profile])
    assert model is not None
    truth = 1.2 + 128 * 0.025
    assert model.peak(128).value / GIB == pytest.approx(truth, rel=0.5)  # 18 GiB if all but the weights grew
    assert model.peak(128).contains(truth * GIB)
    assert model.usable_bytes(16 * GIB) == 16 * GIB  # it is in the peak, so it is not subtracted again


def test_a_description_tells_the_growing_part_of_a_peak_of_the_driver() -> None:
    profile = read_by_driver(64, 7.0).model_copy(update={"work": make_work()})
    model = fit_memory([profile])
    assert model is not None
    # 4 GiB of 64 examples grow by the description.
    assert model.peak(128).value / GIB == pytest.approx(11.0)


def test_counters_of_the_framework_are_preferred_to_the_driver() -> None:
    model = fit_memory([read_by_driver(64, 8.0), make_gpu_profile(64, 7.0)])
    assert model is not None
    assert model.peak(64).value == 7.0 * GIB


@given(size=st.integers(1, 512), other=st.integers(1, 4096), gib=st.floats(0.2, 80), parameters=st.integers(0, 2**31))
def test_peaks_of_the_driver_are_ordered_and_grow(size: int, other: int, gib: float, parameters: int) -> None:
    model = fit_memory([read_by_driver(size, gib, setup={"parameters": parameters})])
    assert model is not None
    if model.fixed is None:
        return
    assert model.fixed.low <= model.fixed.value <= model.fixed.high <= gib * GIB * (1 + 1e-9)
    peak, more = model.peak(other), model.peak(other + 1)
    assert peak.low <= peak.value * (1 + 1e-9) <= peak.high * (1 + 1e-6)
    assert more.value >= peak.value * (1 - 1e-9) or size in (other, other + 1)
