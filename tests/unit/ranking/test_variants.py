"""Untested variants of a described training: speed-ups with intervals, and the advice on the cheapest."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vmselect as vs
from tests.support.descriptions import make_description, make_work
from tests.support.profiles import make_profile
from vmselect.catalog.gpus import figures_of
from vmselect.prediction.machines import read_training_precision
from vmselect.prediction.roofline import StepCost
from vmselect.ranking.variants import COLUMNS, COMPILED, MIXED, TF32, Described
from vmselect.records.base import Environment
from vmselect.records.work import Operation, Operations

CATALOG = vs.Catalog.embedded("2026-08-22")


def rank(profiles: Any = None, **options: Any) -> vs.Ranking:
    given = make_description() if profiles is None else profiles
    return vs.rank(given, **({"epochs": 50, "catalog": CATALOG, "provider": "aws", "machines": "all"} | options))


def speed_ups(gpu: str, precision: Any = "single", *, compiled: bool = False, size: int = 64) -> dict[str, Any]:
    figures = figures_of(gpu)
    assert figures is not None
    return dict(Described(StepCost.of(make_work(size)), figures, precision, compiled).speed_ups(0.9))


def test_tensor_cores_make_mixed_precision_faster() -> None:
    found = speed_ups("T4")
    assert set(found) == {MIXED, COMPILED}
    assert 1.4 < found[MIXED].value < 3
    assert found[MIXED].low < found[MIXED].value < found[MIXED].high


@pytest.mark.parametrize("gpu", ["K80", "M60", "P100", "P4"])
def test_mixed_precision_is_not_advised_without_tensor_cores(gpu: str) -> None:
    assert set(speed_ups(gpu)) == {COMPILED}
    assert set(speed_ups(gpu, "strict")) == {COMPILED}


def test_only_variants_that_are_not_used_yet_are_listed() -> None:
    assert set(speed_ups("A10G", "half")) == {COMPILED}
    assert set(speed_ups("A100", "strict")) == {MIXED, TF32, COMPILED}
    assert set(speed_ups("A10G", "single", compiled=True)) == {MIXED}


def multiply(
    tf32: bool | None, *, convolutions: float = 0.0, precision: str = "float32", cudnn: bool | None = None
) -> vs.Profile:
    """A described training of large matrix products, with ``convolutions`` times as many FLOPs in convolutions."""
    flops, moved = 2.0 * 8192**3, 12.0 * 8192**2
    rows = [Operation("mm", flops, moved, 8192, 8192, 8192, 1, 10)]
    if convolutions:
        rows.append(Operation("conv", flops * convolutions, moved, 8192, 8192, 8192, 1, 10))
    environment = Environment(backend="torch", precision=precision, tf32=tf32, convolution_tf32=cudnn)
    described = make_description(work=make_work(operations=Operations.of(rows)))
    return described.model_copy(update={"environment": environment})


def test_products_of_torch_use_tf32_only_if_it_is_switched_on() -> None:
    machines = {"machines": ["g4dn.xlarge", "p4d.24xlarge"]}
    off, on, unknown = (rank(multiply(tf32), **machines) for tf32 in (False, True, None))
    seconds = [{row.instance_type: row.seconds for row in ranking} for ranking in (off, on, unknown)]
    assert seconds[1] == seconds[2]
    assert seconds[0]["g4dn.xlarge"] == pytest.approx(seconds[1]["g4dn.xlarge"], rel=0.05)  # T4: Turing has no TF32
    assert seconds[0]["p4d.24xlarge"] > 2 * seconds[1]["p4d.24xlarge"]  # A100: 19.5 instead of 156 TFLOPS
    assert set(off.variants["variant"]) >= {TF32}
    assert TF32 not in set(on.variants["variant"])


@pytest.mark.parametrize(
    ("profile", "precision"),
    [
        (multiply(False), "strict"),
        (multiply(False, convolutions=2.0), "single"),
        (multiply(True, convolutions=2.0, cudnn=False), "strict"),
        (multiply(False, convolutions=2.0, cudnn=True), "single"),
        (multiply(True, convolutions=0.5, cudnn=False), "single"),
        (multiply(False, precision="bfloat16", cudnn=False), "half"),
        (multiply(False).model_copy(update={"work": None}), "single"),
    ],
)
def test_convolutions_use_tf32_by_default(profile: vs.Profile, precision: str) -> None:
    assert read_training_precision(profile) == precision


def test_a_compiled_step_is_never_slower_and_gains_most_where_kernels_are_small() -> None:
    large, small = (speed_ups("A10G", size=size)[COMPILED] for size in (64, 2))
    assert large.low == small.low == 1.0
    assert 1.0 < large.value < small.value < small.high


def test_the_table_states_time_and_cost_of_each_variant() -> None:
    ranking = rank()
    table = ranking.variants
    assert tuple(table.columns) == COLUMNS
    assert table["cost_usd"].is_monotonic_increasing
    assert table["gpu_model"].nunique() == 5
    rows = {row.rank: row for row in ranking}
    for line in table.itertuples():
        row = rows[line.rank]
        assert row.instance_type == line.instance_type
        assert row.seconds / line.speed_up < line.seconds < row.seconds
        assert line.cost_usd / row.cost_usd == pytest.approx(line.seconds / row.seconds)
    assert len(json.loads(ranking.to_json(top=1))["variants"]) == len(table)


def test_a_variant_is_interrupted_as_often_and_moves_its_data_once() -> None:
    spot = {"market": "spot", "region": "us-east-1"}
    plain, interrupted = (rank(**spot, **more).variants for more in ({}, {"interruptions": 0.5}))
    longer = interrupted.merge(plain, on=["instance_type", "variant"], suffixes=("", "_plain"))
    factor = vs.Interruptions(per_hour=0.5).factor
    assert len(longer)
    assert longer["seconds"].to_numpy() == pytest.approx(factor * longer["seconds_plain"].to_numpy())
    data = {"data_gb": 100, "download_seconds_per_mb": 0, "usd_per_gb": 1}
    moved = rank(**spot, transfer=data).variants.merge(plain, on=["instance_type", "variant"], suffixes=("", "_plain"))
    assert moved["cost_usd"].to_numpy() == pytest.approx(100 + moved["cost_usd_plain"].to_numpy())


def test_the_cheapest_variant_is_advised_as_untested() -> None:
    ranking = rank()
    (finding,) = [finding for finding in ranking.findings if finding.code == "untested-variant"]
    assert finding.severity == "info"
    best = ranking.variants.iloc[0]
    assert best.cost_usd < ranking.best.cost_usd
    assert best.instance_type in finding.message
    assert best.variant in finding.message


def test_without_a_description_there_is_no_advice() -> None:
    ranking = rank(make_profile("g4dn.xlarge", 0.2))
    assert ranking.variants.empty
    assert "untested-variant" not in {finding.code for finding in ranking.findings}


def test_a_measured_machine_with_a_description_has_variants() -> None:
    probe = make_profile("g4dn.xlarge", 0.2, work=make_work())
    assert set(rank(probe, machines=None).variants["variant"]) == {MIXED, COMPILED}
    half = probe.model_copy(update={"environment": probe.environment.model_copy(update={"precision": "mixed_float16"})})
    assert set(rank(half, machines=None).variants["variant"]) == {COMPILED}


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    script = Path(__file__).parents[2] / "benchmarks" / "described_factors.py"
    spec = importlib.util.spec_from_file_location("described_factors", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_scores_each_source_by_the_other(benchmark: ModuleType) -> None:
    rows = [
        {"source": source, "model": model, "gpu": "T4", "precision": precision, "exact": 1, "batch_size": 64,
         "seconds": 2.0 ** (number + (precision == "fp32")), "expected": np.log(4.0) * (precision == "fp32")}
        for source in ("lambda_pt", "lambda_tf")
        for number, model in enumerate("ab")
        for precision in ("fp32", "fp16")
    ]  # fmt: skip
    scores = benchmark.score_precision(pd.DataFrame(rows))
    assert scores["median_speed_up"] == 2.0
    assert scores["lambda_pt"] == {"deviation": 0.0, "coverage": 1.0, "share": 0.5, "rows": 2}


def test_the_script_finds_the_fraction_of_tdp(benchmark: ModuleType) -> None:
    share = np.linspace(0.02, 0.98, 60)
    task = np.where(np.arange(60) % 2, "a", "b")
    truth = np.array([0.2, 0.8, np.log(2.0)])
    rows = pd.DataFrame({"task": task, "share": share, "fraction": benchmark.predict(truth, share)})
    found = benchmark.predict(benchmark.fit_fraction(rows), share)
    assert found == pytest.approx(rows["fraction"].to_numpy(), abs=0.05)
