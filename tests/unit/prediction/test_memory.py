"""Which GPUs have enough memory for a training."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from tests.support.profiles import make_gpu_profile
from vmselect.errors import ArgumentError, EstimateError
from vmselect.findings import Finding
from vmselect.prediction.hardware import Machine, MachineTypes, Refusal
from vmselect.prediction.memory import GIB, TIGHT_MEMORY, TOO_LITTLE_MEMORY, MemoryCheck
from vmselect.records import Profile

CATALOG = vs.Catalog.embedded("2026-08-22")
TYPES = MachineTypes(CATALOG)


def machine(gib: float, gpu: str = "Made-up") -> Machine:
    return Machine("x", "aws", gpu, 1, gib)


def code(profiles: list[Profile], gib: float, size: int) -> str | None:
    found = MemoryCheck(profiles, TYPES).check(machine(gib), size)
    return found.code if isinstance(found, (Refusal, Finding)) else None


def test_enough_tight_and_too_little() -> None:
    probes = [make_gpu_profile(32, 4.0), make_gpu_profile(64, 8.0)]  # 64 examples: 8.0 GiB, up to 8.4 GiB
    found = {gib: code(probes, gib, 64) for gib in (8, 9.5, 16)}
    assert found == {8: TOO_LITTLE_MEMORY, 9.5: TIGHT_MEMORY, 16: None}
    refusal = MemoryCheck(probes, TYPES).check(machine(8), 64)
    assert isinstance(refusal, Refusal)
    assert "largest batch size that fits one GPU is 52" in refusal.reason  # of 0.93 x 8 - 0.6 = 6.84 GiB


def test_a_gpu_on_which_the_batch_ran_is_not_refused() -> None:
    full = make_gpu_profile(64, 14.9)
    assert MemoryCheck([full], TYPES).check(machine(16, "T4"), 64) is None
    assert MemoryCheck([full], TYPES).check(machine(16, "T4"), 32) is None


def test_no_gpu_with_as_little_memory_as_one_that_ran_out() -> None:
    failed = make_gpu_profile(64, None, outcome="out_of_memory")
    assert code([make_gpu_profile(16, None), failed], 16, 64) == TOO_LITTLE_MEMORY
    assert code([make_gpu_profile(16, None), failed], 16, 32) is None
    assert code([make_gpu_profile(16, None), failed], 40, 64) is None
    host = failed.model_copy(update={"detail": "MemoryError: "})
    assert code([make_gpu_profile(16, None), host], 16, 64) is None


def test_memory_of_a_gpu() -> None:
    check = MemoryCheck([make_gpu_profile(32, 4.0)], TYPES)
    assert check.gpu_bytes("T4", 16) == 15 * GIB  # as recorded
    assert check.gpu_bytes("T4", 32) == pytest.approx(0.93 * 32 * GIB)  # not the recorded one
    assert check.gpu_bytes("A100", None) == pytest.approx(0.93 * 40 * GIB)
    assert check.gpu_bytes("Made-up", None) is None
    assert check.check(Machine("x", "aws", "Made-up", 1), 10**6) is None


@settings(max_examples=30, deadline=None)
@given(st.floats(0.5, 40), st.floats(0.5, 40), st.floats(2, 200), st.floats(2, 200), st.integers(1, 500))
def test_a_larger_gpu_is_never_worse(first: float, second: float, one: float, other: float, size: int) -> None:
    failed = make_gpu_profile(300, None, outcome="out_of_memory")
    check = MemoryCheck([make_gpu_profile(32, first), make_gpu_profile(64, second), failed], TYPES)
    order = {TOO_LITTLE_MEMORY: 0, TIGHT_MEMORY: 1, None: 2}
    small, large = (check.check(machine(gib), size) for gib in sorted((one, other)))
    assert order[small and small.code] <= order[large and large.code]
    fits = [check.largest(gib * GIB) for gib in sorted((one, other))]
    assert None in fits or fits[0] <= fits[1]  # type: ignore[operator]


def test_the_table() -> None:
    memory = vs.estimate_memory([make_gpu_profile(32, 4.0), make_gpu_profile(64, 8.0)], catalog=CATALOG)
    peaks = memory[memory["answer"] == "peak"]
    assert list(peaks["batch_size"]) == [32, 64]
    assert list(peaks["peak_gib"]) == [4.0, 8.0]
    largest = memory[memory["answer"] == "largest"].set_index("gpu_model")
    assert {"T4", "A10G", "H100"} <= set(largest.index)
    assert not any(name.startswith(("TPU", "MI")) for name in largest.index)
    assert largest["gpu_memory_gib"].is_monotonic_increasing
    assert (largest.sort_values("usable_gib")["batch_size"].diff().dropna() >= 0).all()
    assert (largest["high_gib"] <= largest["usable_gib"]).all()
    some = vs.estimate_memory(
        [make_gpu_profile(32, 4.0), make_gpu_profile(64, 8.0)], batch_size=[48, 128], gpu=["t4", "RTX-3090"]
    )
    assert list(some["basis"][:2]) == ["interpolated", "extrapolated"]
    assert list(some["gpu_model"][2:]) == ["T4", "RTX-3090"]


def test_unknown_growth_and_several_works() -> None:
    alone = vs.estimate_memory(make_gpu_profile(32, 4.0), gpu="T4", batch_size=64)
    assert alone["peak_gib"].isna().all()
    assert alone["batch_size"].isna().tolist() == [False, True]
    two = [make_gpu_profile(32, 4.0), make_gpu_profile(32, 6.0, factors={"optimizer": "adam"})]
    memory = vs.estimate_memory(two, gpu="T4")
    assert list(memory[memory["answer"] == "peak"]["peak_gib"]) == [4.0, 6.0]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"batch_size": 0}, ArgumentError),
        ({"gpu": "nothing"}, ArgumentError),
        ({"catalog": "file.csv"}, ArgumentError),
        ({"profiles": [make_gpu_profile(32, None)]}, EstimateError),
        ({"profiles": []}, EstimateError),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        vs.estimate_memory(arguments.pop("profiles", [make_gpu_profile(32, 4.0)]), **arguments)


def test_predicted_step_times_are_refused_too() -> None:
    times = vs.predict(
        make_gpu_profile(64, 12.0), machines=["g5.xlarge", "g3s.xlarge"], catalog=CATALOG
    )  # 24 and 8 GiB
    assert list(times["basis"]) == ["predicted", None]
    assert "GPU memory" in times["reason"][1]
