"""The posterior of log step times: exact values, invariants and draws."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmselect.catalog.gpus import figures_of, identify_gpu, read_precision
from vmselect.prediction.posterior import CONSTANTS, Computation, Point, Posterior, Target, predict_log_times
from vmselect.prediction.roofline import StepCost
from vmselect.records.work import Operation, Operations, Work

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
    result = predict_log_times([point("T4", 2.0)], targets, history=make_history())
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


def make_consistent(models: int, factor: float) -> list[Point]:
    """A history in which every model runs ``factor`` times as long on a V100 as its float32 rate says."""
    random = Random(1)
    return [
        point(
            gpu, math.exp(random.gauss(0, 0.03)) * (factor if gpu == "V100" else 1.0) / figures_of(gpu).fp32_tflops,
            model=f"m{m}", work=f"m{m}",
        )
        for m in range(models)
        for gpu in ("K80", "P100", "V100", "T4")
    ]  # fmt: skip


def test_history_that_predicted_the_probes_badly_counts_less() -> None:
    """The history says that a V100 is slow. The more the probes contradict it, the less it says about a K80."""
    history, usual = make_consistent(6, 2.0), replace(CONSTANTS, misleading=1e-9)
    shares = []
    for seconds in (0.9, 0.3, 0.1):
        probes = [point("T4", 1.0), point("V100", seconds), point("P100", seconds)]
        trusting, cautious = (
            predict_log_times(probes, [target("K80")], history=history, constants=c).mean[0] for c in (usual, CONSTANTS)
        )
        alone = predict_log_times(probes, [target("K80")]).mean[0]
        shares.append((cautious - alone) / (trusting - alone))
    assert shares[0] > 0.9
    assert shares == sorted(shares, reverse=True)
    assert shares[2] < 0.7


def test_consistent_history_counts_as_if_it_could_not_mislead() -> None:
    history, targets = make_consistent(6, 0.6), [target("V100"), target("P100")]
    usual = replace(CONSTANTS, misleading=1e-9)
    trusting, cautious = (
        predict_log_times([point("T4", 1.0)], targets, history=history, constants=c) for c in (usual, CONSTANTS)
    )
    assert cautious.mean == pytest.approx(trusting.mean, abs=0.03)
    assert cautious.sd == pytest.approx(trusting.sd, rel=0.15)


def test_models_that_contradict_each_other_count_less() -> None:
    random = Random(3)
    history = [
        point(gpu, math.exp(random.gauss(0, 1.0)) / figures_of(gpu).fp32_tflops, model=f"m{m}", work=f"m{m}")
        for m in range(6)
        for gpu in GPUS[:5]
    ]
    alone = predict_log_times([point("T4", 1.0)], [target("V100")])
    usual = replace(CONSTANTS, misleading=1e-9)
    trusting, cautious = (
        predict_log_times([point("T4", 1.0)], [target("V100")], history=history, constants=c)
        for c in (usual, CONSTANTS)
    )
    assert abs(cautious.mean[0] - alone.mean[0]) < abs(trusting.mean[0] - alone.mean[0])


# -- described works ---------------------------------------------------------------------------------------------------


def make_cost(size: int = 2048, count: int = 100, **facts) -> StepCost:
    row = Operation("mm", 2.0 * size**3, 12.0 * size**2, size, size, size, 1, count)
    known = {"batch_size": 8, "parameters": 10**7, "parameter_tensors": 50, "optimizer": "adam", "method": "given"}
    return StepCost.of(Work(operations=Operations.of([row]), **{**known, **facts}))


def described_point(gpu: str, seconds: float, cost: StepCost, *, model="mine", work="w") -> Point:
    return point(gpu, seconds, model=model, work=work)._replace(cost=cost)


COST = make_cost()
MINE = Computation("mine", "w", COST)


def test_a_described_work_needs_no_probe() -> None:
    targets = [target(gpu) for gpu in ("T4", "A100", "H100")]
    result = predict_log_times([], targets, computation=MINE)
    expected = [COST.prior(t.figures, t.precision).log_seconds for t in targets]
    assert result.mean == pytest.approx(expected)
    assert result.freedom == CONSTANTS.described.freedom
    assert result.scale == 1
    d, share = CONSTANTS.described, COST.prior(targets[0].figures, "single").launch_share
    features = (1 - share) * np.array(targets[0].figures.features("single"))
    shared = d.level**2 + d.model_level**2 + d.work_level**2 + d.gpu**2 + d.architecture**2 + d.model_gpu**2
    shared += d.work_gpu**2 + (d.shared_slopes**2 + d.model_slopes**2) * features @ features
    shared += share**2 * (d.launch**2 + d.gpu_launch**2 + d.model_launch**2) + CONSTANTS.host**2
    assert result.covariance[0, 0] == pytest.approx(shared)


def test_without_probe_and_description_nothing_is_predicted() -> None:
    with pytest.raises(ValueError, match="description"):
        predict_log_times([], [target("T4")], computation=Computation("mine", "w"))


def test_a_probe_moves_and_narrows_the_prediction_of_a_description() -> None:
    none = predict_log_times([], [target("A100")], computation=MINE)
    slow = math.exp(COST.prior(figures_of("T4"), "single").log_seconds + 0.5)
    one = predict_log_times([described_point("T4", slow, COST)], [target("A100")])
    two = predict_log_times([described_point(gpu, slow, COST) for gpu in ("T4", "V100")], [target("A100")])
    assert one.mean[0] > none.mean[0] + 0.2
    assert none.interval(0.9)[1][0] - none.mean[0] > one.interval(0.9)[1][0] - one.mean[0]
    assert (none.freedom, one.freedom, two.freedom) == (5, 6, 7)


def test_caveats_widen_the_interval_without_a_probe() -> None:
    sure, implausible = (
        predict_log_times([], [target("A100")], computation=Computation("mine", "w", make_cost(caveats=caveats)))
        for caveats in ((), ("custom_step",))
    )
    assert implausible.sd[0] > 1.2 * sure.sd[0]
    assert implausible.mean[0] == sure.mean[0]


def test_a_slow_host_is_more_certain_for_other_works_of_its_model() -> None:
    """Steps of 4 ms on an A100, nearly all of them launch overhead; the history has the same times on V100 and A100."""
    tiny, larger = make_cost(64, 300), make_cost(96, 300)
    normal = [math.exp(tiny.prior(figures_of(gpu), "single").log_seconds) for gpu in ("V100", "A100")]

    def predict(model: str) -> float:
        history = [
            described_point(gpu, seconds * factor, tiny, model=model, work="other")
            for (gpu, factor), seconds in zip((("V100", 1.0), ("A100", 2.0)), normal, strict=True)
        ]
        mine = Computation("mine", "w", larger)
        return float(predict_log_times([], [target("A100")], history=history, computation=mine).mean[0])

    unknown = larger.prior(figures_of("A100"), "single").log_seconds
    assert predict("mine") > predict("another") + 0.05 > unknown + 0.05


def test_described_history_shows_the_level_of_a_user() -> None:
    """A single point of another described model is used, because its level is known."""
    other = make_cost(1024, 300)
    slow = math.exp(other.prior(figures_of("T4"), "single").log_seconds + 0.6)
    alone = predict_log_times([], [target("T4")], computation=MINE)
    informed = predict_log_times(
        [], [target("T4")], history=[described_point("T4", slow, other, model="o", work="o")], computation=MINE
    )
    assert informed.mean[0] > alone.mean[0] + 0.05


def test_history_without_descriptions_informs_about_gpus_of_described_works() -> None:
    history = [
        point(gpu, (0.5 if gpu == "V100" else 1.0) / figures_of(gpu).fp32_tflops, model=f"m{m}", work=f"m{m}")
        for m in range(4)
        for gpu in GPUS[:6]
    ]
    ratios = []
    for known in ([], history):
        result = predict_log_times([], [target("V100"), target("T4")], history=known, computation=MINE)
        ratios.append(result.mean[0] - result.mean[1])
    assert ratios[1] < ratios[0] - 0.05


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(18)), st.floats(0.01, 10.0))
def test_predictions_of_descriptions_do_not_depend_on_the_order(order, seconds) -> None:
    costs = {f"m{m}": make_cost(512 * (m + 1)) for m in range(3)}
    history = [
        described_point(gpu, seconds, costs[model], model=model, work=model) if model != "m2"
        else point(gpu, seconds, model=model, work=model)
        for model in costs
        for gpu in GPUS[:6]
    ]  # fmt: skip
    targets = [target("V100"), target("H100")]
    first = predict_log_times([], targets, history=history, computation=MINE)
    again = predict_log_times([], targets[::-1], history=[history[at] for at in order], computation=MINE)
    assert again.mean[::-1] == pytest.approx(first.mean, abs=1e-9)
    assert np.linalg.eigvalsh(first.covariance).min() > 0
