"""Which GPUs have enough memory for a training."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from tests.benchmarks.gpu_memory import choose_margin, score
from tests.support.profiles import make_gpu_profile
from vmselect.errors import ArgumentError, EstimateError
from vmselect.findings import Finding
from vmselect.prediction.hardware import (
    GIB,
    GROWTH_EXPONENT_MARGIN,
    TIGHT_MEMORY,
    TOO_LITTLE_MEMORY,
    Machine,
    MachineTypes,
    MemoryCheck,
    MemoryModel,
    Refusal,
    examples_per_gpu,
    fit_memory,
)
from vmselect.records import Profile

CATALOG = vs.Catalog.embedded("2026-08-22")
TYPES = MachineTypes(CATALOG)


def machine(gib: float, gpu: str = "Made-up") -> Machine:
    return Machine("x", "aws", gpu, 1, gib)


def code(profiles: list[Profile], gib: float, size: int) -> str | None:
    problem = MemoryCheck(profiles, TYPES).check(machine(gib), size)
    return problem.code if isinstance(problem, (Refusal, Finding)) else None


def test_enough_tight_and_too_little() -> None:
    probes = [make_gpu_profile(32, 4.0), make_gpu_profile(64, 8.0)]  # 64 examples: 8.0 GiB, up to 8.4 GiB
    codes = {gib: code(probes, gib, 64) for gib in (8, 9.5, 16)}
    assert codes == {8: TOO_LITTLE_MEMORY, 9.5: TIGHT_MEMORY, 16: None}
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
def test_a_larger_gpu_is_never_worse(first: float, second: float, gib: float, more_gib: float, size: int) -> None:
    failed = make_gpu_profile(300, None, outcome="out_of_memory")
    check = MemoryCheck([make_gpu_profile(32, first), make_gpu_profile(64, second), failed], TYPES)
    order = {TOO_LITTLE_MEMORY: 0, TIGHT_MEMORY: 1, None: 2}
    memories = sorted((gib, more_gib))
    small, large = (check.check(machine(memory), size) for memory in memories)
    assert order[small and small.code] <= order[large and large.code]
    fits = [check.largest(memory * GIB) for memory in memories]
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
    chosen = vs.estimate_memory(
        [make_gpu_profile(32, 4.0), make_gpu_profile(64, 8.0)], batch_size=[48, 128], gpu=["t4", "RTX-3090"]
    )
    assert list(chosen["basis"][:2]) == ["interpolated", "extrapolated"]
    assert list(chosen["gpu_model"][2:]) == ["T4", "RTX-3090"]


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


def gib(model: MemoryModel | None, size: int) -> float:
    assert model is not None
    return model.peak(size).value / GIB


def test_two_sizes_give_a_line() -> None:
    model = fit_memory([make_gpu_profile(64, 3.0), make_gpu_profile(32, 2.0), make_gpu_profile(32, 1.9)])
    assert [gib(model, size) for size in (16, 32, 48, 64, 128)] == pytest.approx([1.5, 2.0, 2.5, 3.0, 5.0])
    assert model is not None
    assert [model.basis(size) for size in (16, 32, 48, 128)] == [
        "extrapolated", "measured", "interpolated", "extrapolated",
    ]  # fmt: skip
    assert model.usable_bytes(15 * GIB) == pytest.approx(14.4 * GIB)


def test_one_size_keeps_weights_gradients_and_optimizer() -> None:
    recorded = {"source": "jax", "weights_bytes": GIB // 4, "gradients_bytes": GIB // 4, "optimizer_bytes": GIB // 2}
    model = fit_memory([make_gpu_profile(32, 3.0, environment={"gpu_memory": recorded, "backend": "jax"})])
    assert gib(model, 64) == pytest.approx(5.0)
    assert gib(model, 16) == pytest.approx(2.0)
    assert model is not None
    # A quarter of the 2 GiB may be fixed, and the rest may grow less: a smaller batch then needs more, a larger less.
    slow = 2 ** (1 - GROWTH_EXPONENT_MARGIN)
    assert model.peak(16).high / GIB == pytest.approx(1.05 * (1.5 + 1.5 / slow))
    assert model.peak(64).low / GIB == pytest.approx(1.5 + 1.5 * slow)
    assert model.usable_bytes(16 * GIB) == 12 * GIB


def test_gradients_that_are_not_kept() -> None:
    recorded = {"source": "jax", "weights_bytes": GIB, "gradients_bytes": GIB, "optimizer_bytes": 2 * GIB}
    kept = fit_memory([make_gpu_profile(32, 5.0, environment={"gpu_memory": recorded})])
    assert gib(kept, 64) == pytest.approx(6.0)
    assert kept is not None
    assert kept.peak(64).high / GIB == pytest.approx(1.05 * (3 + 2 * 2 ** (1 + GROWTH_EXPONENT_MARGIN)))
    freed = fit_memory([make_gpu_profile(32, 3.5, environment={"gpu_memory": recorded})])
    assert gib(freed, 64) == pytest.approx(4.0)
    assert freed is not None
    assert freed.peak(64).low == 3.5 * GIB  # perhaps nothing grows
    assert fit_memory([make_gpu_profile(32, 2.5, environment={"gpu_memory": recorded})]).fixed is None  # type: ignore[union-attr]


def test_intervals_from_one_size_widen_with_the_distance() -> None:
    recorded = {"source": "jax", "weights_bytes": GIB // 4, "gradients_bytes": GIB // 4, "optimizer_bytes": GIB // 2}
    model = fit_memory([make_gpu_profile(32, 3.0, environment={"gpu_memory": recorded})])
    assert model is not None
    for sizes in ((32, 64, 128, 256, 512), (32, 16, 8, 4)):
        widths = [peak.high / peak.low for peak in map(model.peak, sizes)]
        assert widths == sorted(widths)
        assert widths[-1] > 1.5 * widths[0]


def test_an_unknown_optimizer_widens_the_interval() -> None:
    parameters = GIB // 16
    assumed = fit_memory([make_gpu_profile(32, 3.0, setup={"parameters": parameters})])
    assert gib(assumed, 64) == pytest.approx(5.0)  # Adam
    assert assumed is not None
    assert assumed.peak(64).high / GIB >= 0.5 + 2 * 2.5  # plain SGD
    unknown = fit_memory([make_gpu_profile(32, 3.0)])
    assert unknown is not None
    assert math.isnan(unknown.peak(64).value)
    assert unknown.peak(32).value == 3 * GIB
    assert unknown.largest(80 * GIB) is None


def test_peaks_that_do_not_grow_tell_nothing_of_larger_sizes() -> None:
    model = fit_memory([make_gpu_profile(32, 3.0), make_gpu_profile(64, 3.01)])
    assert model is not None
    assert math.isnan(model.peak(128).value)
    assert gib(model, 48) == pytest.approx(3.005)
    assert model.largest(10 * GIB) is None
    assert model.largest(1 * GIB) == 0


@pytest.mark.parametrize(
    "profile",
    [
        make_gpu_profile(32, None),
        make_gpu_profile(None, 3.0),
        make_gpu_profile(32, 3.0, outcome="out_of_memory"),
        make_gpu_profile(32, 11.0, environment={"backend": "tensorflow", "gpu_memory": {"source": "nvml"}}),
    ],
    ids=["no counter", "no batch size", "out of memory", "the driver sees the pool"],
)
def test_records_without_a_usable_peak(profile: Profile) -> None:
    assert fit_memory([profile]) is None


def test_what_frameworks_leave_free() -> None:
    def usable(backend: str, **details: Any) -> float:
        seen = {"backend": backend, "gpu_memory": {"source": backend, **details}}
        model = fit_memory([make_gpu_profile(32, 3.0, environment=seen)])
        assert model is not None
        return model.usable_bytes(15 * GIB) / GIB

    assert usable("jax") == pytest.approx(0.75 * 15)
    assert usable("jax", limit_bytes=int(13.5 * GIB)) == pytest.approx(13.5)
    assert usable("tensorflow") < usable("torch") < 15


def test_each_gpu_gets_its_share_of_the_batch() -> None:
    assert examples_per_gpu(make_gpu_profile(64, 1.0, environment={"replicas": 4})) == 16


sizes = st.integers(1, 10_000)
peaks = st.floats(0.1, 200.0)
probes = st.dictionaries(sizes, peaks, min_size=1, max_size=4)


@given(probes, st.none() | st.integers(10_000, 10**10), sizes, sizes)
def test_memory_never_falls_as_the_batch_grows(
    seen: dict[int, float], parameters: int | None, first: int, second: int
) -> None:
    model = fit_memory([make_gpu_profile(size, peak, setup={"parameters": parameters}) for size, peak in seen.items()])
    assert model is not None
    small, large = (model.peak(size) for size in sorted((first, second)))
    assert not small.value > large.value * (1 + 1e-9)  # False if one is unknown
    assert not small.high > large.high * (1 + 1e-9)
    for peak in (small, large):
        assert math.isnan(peak.value) or 0 <= peak.low <= peak.value <= peak.high


@given(probes, st.none() | st.integers(10_000, 10**10), peaks, peaks)
def test_a_larger_gpu_never_fits_less(
    seen: dict[int, float], parameters: int | None, first: float, second: float
) -> None:
    model = fit_memory([make_gpu_profile(size, peak, setup={"parameters": parameters}) for size, peak in seen.items()])
    assert model is not None
    small, large = (model.largest(memory * GIB) for memory in sorted((first, second)))
    if small is not None and large is not None:
        assert small <= large
    for size, memory in ((small, min(first, second)), (large, max(first, second))):
        if size:
            assert model.peak(size).high <= memory * GIB
            assert not model.grows or model.peak(size + 1).high > memory * GIB * (1 - 1e-9) or size >= 2**39


def test_the_benchmark_scores_sizes_that_were_not_probed() -> None:
    # Planned bytes of a convolutional network in MiB; weights, gradients and optimizer take 7.4.
    planned = {8: 22.6, 16: 37.9, 32: 68.4, 64: 129.4, 128: 251.4}
    for probed in ([8], [32], [8, 16]):
        rows = score((7.4, 5.9), planned, probed)
        assert [size for size, _, _ in rows] == [size for size in planned if size not in probed]
        assert all(abs(error) < 0.02 and inside for _, error, inside in rows)


def test_the_benchmark_chooses_the_smallest_sufficient_margin() -> None:
    linear = {8: 20.0, 32: 50.0, 128: 170.0}  # 10, and 1.25 per example
    slow = {8: 20.0, 32: 30.0, 128: 50.0}  # doubles with every quadrupled size
    assert choose_margin([((10.0, 8.0), linear)]) == 0.0
    assert 0.3 <= choose_margin([((10.0, 8.0), slow)]) <= 0.5
