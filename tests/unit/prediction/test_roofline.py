"""The roofline of a step: values computed by hand, and how it depends on GPU, precision and operations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmselect.catalog.gpus import figures_of
from vmselect.prediction.roofline import ROOFLINE as c
from vmselect.prediction.roofline import StepCost, matrix_peak, roofline
from vmselect.records.work import Operation, Operations, Work


def described(*rows: Operation, **facts) -> Work:
    known = {"batch_size": 32, "parameters": 0, "parameter_tensors": 0, "optimizer": "none", "method": "given"}
    return Work(operations=Operations.of(rows), **{**known, **facts})


def product(kind="mm", m=1000, n=1000, k=1000, b=1, count=1, **facts) -> Operation:
    size = {"flops": 2.0 * m * n * k * b, "bytes": 4.0 * b * (m * k + k * n + m * n), **facts}
    return Operation(kind, size["flops"], size["bytes"], m, n, k, b, count)


T4, A100, K80, V100 = (figures_of(name) for name in ("T4", "A100", "K80", "V100"))


def test_a_product_takes_the_time_of_its_arithmetic_at_the_rate_of_its_size() -> None:
    result = roofline(T4, "single", described(product(count=50)))
    rate = 8.1e12 * c.float32 * (1000 / (1000 + c.half_size)) ** 2
    launch = c.launch_seconds * 50 + c.step_seconds
    assert result.seconds == pytest.approx(50 * 2e9 / rate + launch)
    assert result.launch_share == pytest.approx(launch / result.seconds)


def test_an_elementwise_operation_takes_the_time_of_its_memory_traffic() -> None:
    work = described(Operation("elem", 1e6, 1e9, 0, 0, 0, 1, 2))
    full, half = (roofline(T4, precision, work).seconds for precision in ("single", "half"))
    launch = 2 * c.launch_seconds + c.step_seconds
    assert full == pytest.approx(2 * 1e9 / (c.bandwidth * 320e9) + launch)
    assert half == pytest.approx(1e9 / (c.bandwidth * 320e9) + launch)


@pytest.mark.parametrize(("optimizer", "each"), [("sgd", 12), ("momentum", 20), ("adam", 28), ("lamb", 40), (None, 28)])
def test_an_optimizer_moves_bytes_and_launches_kernels(optimizer, each) -> None:
    facts = {"parameters": 10**8, "parameter_tensors": 100, "optimizer": optimizer}
    seconds = roofline(T4, "half", described(**facts)).seconds
    assert seconds == pytest.approx(each * 1e8 / (c.bandwidth * 320e9) + c.launch_seconds * (1 + 400) + c.step_seconds)


@pytest.mark.parametrize(
    ("kind", "stride_one", "faster"), [("conv", True, c.winograd), ("conv", False, 1.0), ("mm", True, 1.0)]
)
def test_convolutions_of_3_x_3_are_faster_with_stride_1(kind, stride_one, faster) -> None:
    pixels, channels = 100_000, 256
    size = pixels * channels * (1 if stride_one else 4) + pixels * channels + 9 * channels**2
    row = product(kind, pixels, channels, 9 * channels, bytes=4.0 * size)
    rate = 8.1e12 * c.float32 * 256 / (256 + c.half_size) * 2304 / (2304 + c.half_size) * faster
    assert roofline(T4, "single", described(row)).seconds == pytest.approx(
        row.flops / rate + c.launch_seconds + c.step_seconds
    )


def test_the_units_of_products_depend_on_precision_and_architecture() -> None:
    assert matrix_peak(A100, "single") == ("tf32", 156.0)
    assert matrix_peak(A100, "strict") == ("float32", 19.5)
    assert matrix_peak(A100, "half") == ("float16", 312.0)
    assert matrix_peak(K80, "half") == ("float32", 4.37)
    assert matrix_peak(V100, "single") == ("float32", 15.7)


def test_depthwise_convolutions_use_float32_units_in_any_precision() -> None:
    work = described(product("dwconv", 100_000, 1, 9, b=64, bytes=0.0, count=1000))
    assert roofline(A100, "half", work) == roofline(A100, "strict", work)


def test_kepler_is_slower_than_its_figures() -> None:
    work = described(product(count=10_000))
    like_others = K80._replace(architecture="Maxwell")
    slow, fast = roofline(K80, "single", work), roofline(like_others, "single", work)
    assert slow.seconds * (1 - slow.launch_share) == pytest.approx(fast.seconds * (1 - fast.launch_share) / c.kepler)


def test_the_correction_shrinks_ratios_to_a_t4() -> None:
    cost = StepCost.of(described(product(count=10_000)))
    here, there = (cost.roofline(gpu, "single").log_seconds for gpu in (V100, T4))
    figures = zip(c.figures, V100.features("single"), T4.features("single"), strict=True)
    expected = there + c.ratio * (here - there) + sum(slope * (a - b) for slope, a, b in figures) + c.level
    assert cost.prior(V100, "single").log_seconds == pytest.approx(expected + c.deviation("Volta"))
    assert cost.prior(T4, "single").log_seconds == pytest.approx(there + c.level + c.deviation("Turing"))


def test_architectures_deviate_as_the_sources_agree() -> None:
    cost = StepCost.of(described(product(count=10_000)))
    without = replace(c, architectures=())
    ratio = cost.prior(V100, "single").log_seconds - cost.prior(V100, "single", without).log_seconds
    assert ratio == pytest.approx(dict(c.architectures)["Volta"])
    assert ratio < 0
    assert c.deviation("an architecture of the future") == 0


def test_caveats_of_a_description_are_kept() -> None:
    assert StepCost.of(described()).caveat_level == 0
    assert StepCost.of(described(caveats=("compiled",))).caveat_level == 0.35
    assert StepCost.of(described(unknown_layers=("Mine",), caveats=("compiled",))).caveat_level == 0.5


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["conv", "mm", "bmm", "rnn", "elem", "norm"]), st.integers(1, 3000)), max_size=9)
)
def test_more_operations_never_take_less_time(parts) -> None:
    rows = [product(kind, size, size, size, b=2) for kind, size in parts]
    for gpu in (T4, A100, K80):
        times = [roofline(gpu, "half", described(*rows[:many])).log_seconds for many in range(len(rows) + 1)]
        assert times == sorted(times)
        assert all(math.isfinite(time) for time in times)
