"""The posterior of log step times: exact values, invariants and draws."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmselect.catalog.gpus import figures_of, identify_gpu, read_precision
from vmselect.prediction.posterior import Point, Posterior, Target, predict_log_times

GPUS = ("K80", "P100", "V100", "T4", "A10G", "A100", "L4", "H100")


def target(gpu: str, precision: str = "single", machine: str | None = None) -> Target:
    figures = figures_of(gpu)
    assert figures is not None
    return Target(figures, precision, machine)


def point(gpu: str, seconds: float, *, model="mine", work="w", sd=0.0, machine=None) -> Point:
    return Point(model, work, target(gpu, machine=machine), math.log(seconds), sd)


def make_history(models: int = 4, spread: float = 0.1) -> list[Point]:
    random = Random(0)
    return [
        point(gpu, math.exp(random.gauss(0, spread)) / figures_of(gpu).fp32_tflops, model=f"m{m}", work=f"m{m}")
        for m in range(models)
        for gpu in GPUS[:6]
    ]


def test_a_probed_machine_keeps_its_time_and_others_follow_the_figures() -> None:
    result = predict_log_times([point("T4", 0.2, machine="a")], [target("T4", machine="a"), target("A100")])
    assert result.mean[0] == pytest.approx(math.log(0.2), abs=1e-6)
    assert result.mean[1] < result.mean[0]
    assert result.sd[0] < 0.001 < result.sd[1]


def test_another_machine_with_the_same_gpu_is_less_certain_than_the_probed_one() -> None:
    same, other = target("T4", machine="a"), target("T4", machine="b")
    result = predict_log_times([point("T4", 0.2, machine="a")], [same, other, target("L4")])
    assert result.sd[0] < result.sd[1] < result.sd[2]


def test_history_and_probes_narrow_the_interval() -> None:
    alone = predict_log_times([point("T4", 0.2)], [target("V100")])
    informed = predict_log_times([point("T4", 0.2)], [target("V100")], history=make_history())
    twice = predict_log_times([point("T4", 0.2), point("P100", 0.2)], [target("V100")], history=make_history())
    assert alone.sd[0] > informed.sd[0] > twice.sd[0]


def test_a_history_that_fits_badly_widens_the_interval() -> None:
    good, bad = make_history(spread=0.05), make_history(spread=1.5)
    widths = [predict_log_times([point("T4", 0.2)], [target("V100")], history=history).sd[0] for history in (good, bad)]
    assert widths[1] > 1.5 * widths[0]


def test_short_steps_depend_less_on_the_gpu_and_are_less_certain() -> None:
    short, long = (predict_log_times([point("T4", t)], [target("A100")]) for t in (0.005, 0.5))
    assert short.mean[0] - math.log(0.005) > long.mean[0] - math.log(0.5)
    assert short.sd[0] > long.sd[0]


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 50.0), st.floats(1.0, 1000.0), st.permutations(range(24)))
def test_results_do_not_depend_on_the_unit_or_the_order(seconds, unit, order) -> None:
    history, targets = make_history(), [target(gpu) for gpu in ("V100", "A100", "H100")]
    probes = [point("T4", seconds), point("L4", 0.7 * seconds)]
    first = predict_log_times(probes, targets, history=history)
    scaled = [p._replace(log_seconds=p.log_seconds + math.log(unit)) for p in reversed(probes)]
    shifted = [history[at]._replace(log_seconds=history[at].log_seconds + math.log(1000)) for at in order]
    usual = [p._replace(log_seconds=p.log_seconds + math.log(1000)) for p in history]
    again = predict_log_times(scaled, targets[::-1], history=shifted)
    assert again.mean[::-1] - math.log(unit) == pytest.approx(
        predict_log_times(probes, targets, history=usual).mean, abs=1e-9
    )
    assert again.freedom == first.freedom


@pytest.mark.parametrize("machines", [3, 40])
def test_draws_have_the_covariance_and_are_repeatable(machines) -> None:
    targets = [target(GPUS[n % len(GPUS)], machine=f"m{n}") for n in range(machines)]
    result = predict_log_times([point("T4", 0.2)], targets, history=make_history())
    draws = result.draws(40_000, seed=3)
    assert draws.shape == (40_000, machines)
    assert np.array_equal(draws, result.draws(40_000, seed=3))
    # The median of |t| does not need a finite variance.
    inside = np.abs(draws) <= result.interval(0.9)[1] - result.mean
    assert inside.mean(axis=0) == pytest.approx(0.9, abs=0.01)
    if machines > len(GPUS):  # machines with the same GPU share its error
        correlation = np.corrcoef(draws[:, 7], draws[:, 15])[0, 1]
        assert correlation > 0.8


def test_a_fixed_posterior_without_variance_draws_zeros() -> None:
    fixed = Posterior(
        shared_mean=np.zeros(1), shared_covariance=np.zeros((1, 1)), group=np.array([0, 0]), own_variance=np.zeros(2),
        scale=1.0, freedom=4.0,
    )  # fmt: skip
    assert not fixed.draws(5).any()


@pytest.mark.parametrize(
    ("gpu", "precision", "rate"),
    [("V100", "half", 125), ("V100", "single", 15.7), ("A100", "single", 156), ("A100", "strict", 19.5),
     ("P100", "half", 9.3), ("T4", "half", 65)],
)  # fmt: skip
def test_the_rate_of_matrix_products_depends_on_precision_and_architecture(gpu, precision, rate) -> None:
    assert figures_of(gpu).features(precision)[1] == pytest.approx(math.log(rate / 65))


def test_gpus_without_figures_have_none() -> None:
    assert figures_of("Gaudi") is None
    assert figures_of("RTX-PRO-4500") is None
    assert figures_of("no such GPU") is None
    assert figures_of("a100").model == "A100"
    assert read_precision("mixed_float16") == "half"
    assert read_precision("float32") == "single"


@pytest.mark.parametrize(
    ("name", "model"),
    [("Tesla T4", "T4"), ("NVIDIA A10G", "A10G"), ("Tesla V100-SXM2-16GB", "V100"),
     ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
     ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"), ("NVIDIA GeForce RTX 2080 Ti", "RTX-2080Ti"), ("NVIDIA L4", "L4"),
     ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"), ("NVIDIA RTX A6000", "A6000"), ("llvmpipe", None),
     ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"), ("NVIDIA H100 80GB HBM3", "H100")],
)  # fmt: skip
def test_names_of_drivers_are_recognized(name, model) -> None:
    assert identify_gpu(name) == model
