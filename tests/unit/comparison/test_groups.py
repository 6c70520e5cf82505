"""compare: tables, test, verdict, findings, metrics and input forms."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vmselect as vs
from vmselect.comparison.runs import guess_better
from vmselect.comparison.significance import find_shifts
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.records import InferenceRecord, Usage
from vmselect.records.transfer import TransferRecord

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from comparisons import autoregressive, profile

RNG = np.random.default_rng(7)
A, B, C = (list(RNG.normal(mean, 1, 12)) for mean in (10, 10.2, 14))


def machines(*, runs: int = 5, levels: dict[str, float] | None = None, **more) -> list[vs.Profile]:
    rng = np.random.default_rng(3)
    levels = levels or {"a": 0.010, "b": 0.013}
    return [
        profile(rng, level=level, instance_type=name, **more) for name, level in levels.items() for _ in range(runs)
    ]


def codes(comparison: vs.Comparison) -> set[str]:
    return {finding.code for finding in comparison.findings}


def test_p_values_are_those_of_scipy() -> None:
    c = vs.compare({"a": A, "b": B, "c": C})
    known = stats.kruskal(A, B, C)
    assert (c.test.name, c.test.statistic, c.test.p_value) == ("Kruskal-Wallis", known.statistic, known.pvalue)
    for row in c.pairs.to_dict("records"):
        one, other = ({"a": A, "b": B, "c": C}[row[name]] for name in ("first", "second"))
        pair = stats.mannwhitneyu(one, other, method="exact")
        assert (row["statistic"], row["p_value"]) == (pair.statistic, pair.pvalue)


def test_p_values_of_few_and_tied_values_count_arrangements() -> None:
    tied = vs.compare({"a": [1, 2, 3, 3, 2], "b": [4, 5, 6, 3, 3]})
    assert tied.test.p_value == stats.kruskal([1, 2, 3, 3, 2], [4, 5, 6, 3, 3]).pvalue
    assert tied.test.exact_p_value == pytest.approx(12 / 252)
    three = vs.compare({"a": [1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]})
    assert three.test.exact_p_value == pytest.approx(math.factorial(3) / (math.factorial(9) / math.factorial(3) ** 3))


def test_groups_are_described() -> None:
    c = vs.compare({"a": A, "c": C}, baseline="c")
    row = c.groups.set_index("group").loc["a"]
    assert [row["count"], row["mean"], row["sd"]] == pytest.approx([12, np.mean(A), np.std(A, ddof=1)])
    quartiles = [row["quartile_1"], row["median"], row["quartile_3"]]
    assert quartiles == pytest.approx(list(np.quantile(A, [0.25, 0.5, 0.75])))
    assert row["percent"] == pytest.approx(100 * (np.mean(A) / np.mean(C) - 1))
    assert row["percent_low"] < row["percent"] < row["percent_high"] < 0
    assert c.groups.set_index("group").loc["c", "percent"] == 0


def test_steps_of_one_run_are_not_repetitions() -> None:
    c = vs.compare(machines(runs=1, steps=400))
    assert (c.unit, c.test.p_value) == ("runs", None)
    assert codes(c) == {"single-runs"}


def test_single_runs_are_compared_by_blocks_of_steps() -> None:
    c = vs.compare(machines(runs=1, steps=200), unit="blocks")
    assert c.unit.startswith("blocks of")
    assert c.test.p_value == stats.kruskal(*c.values.values()).pvalue
    assert vs.compare(machines(runs=1, steps=20), unit="blocks").test.p_value is None
    with pytest.raises(ArgumentError):
        vs.compare(machines(runs=2), unit="blocks")


def test_a_copy_of_a_record_is_not_a_repetition() -> None:
    records = machines(runs=2)
    c = vs.compare([*records, *records])
    assert c.groups["count"].tolist() == [2, 2]
    assert "copies" in codes(c)


@pytest.mark.parametrize(("sizes", "few"), [([3, 3], True), ([4, 4], False), ([2, 2, 2], True), ([3, 3, 3], False)])
def test_groups_that_cannot_be_significant_are_not_tested(sizes: list[int], few: bool) -> None:
    groups = {str(i): [float(i * 10 + j) for j in range(size)] for i, size in enumerate(sizes)}
    assert (vs.compare(groups).test.p_value is None) == few


def test_a_single_run_beside_repetitions_is_described_but_not_tested() -> None:
    c = vs.compare({"a": A, "b": C, "one": [5.0]})
    assert c.test.p_value == stats.kruskal(A, C).pvalue
    assert c.groups.set_index("group").loc["one", "count"] == 1


def test_the_verdict_contains_winner_lead_and_certainty() -> None:
    c = vs.compare(machines(), baseline="b")
    assert c.winner == "a"
    for part in ("a is best", "% below b", "95 % confidence", "5 and 5 runs"):
        assert part in c.verdict


def test_the_metric_determines_the_better_direction() -> None:
    assert vs.compare(machines(), metric="throughput").winner == "a"
    numbers = {"a": [0.9, 0.91, 0.92, 0.93], "b": [0.7, 0.71, 0.72, 0.73]}
    assert vs.compare(numbers, metric="val_accuracy").winner == "a"
    assert vs.compare(numbers, metric="val_loss").winner == "b"
    assert vs.compare(numbers).winner is None
    assert vs.compare(numbers, better="more").winner == "a"


def test_only_groups_that_differ_from_the_best_count_as_beaten() -> None:
    c = vs.compare({"a": [1, 2, 3, 4, 5], "b": [1.5, 2.5, 3.5, 4.5, 5.5], "c": [11, 12, 13, 14, 15]}, metric="seconds")
    assert (c.winner, c.differ("a", "b"), c.differ("a", "c")) == ("a", False, True)
    assert "76.9 %" in c.verdict


def test_equal_values_do_not_differ() -> None:
    c = vs.compare({"a": [1.0] * 5, "b": [1.0] * 5})
    assert (c.test.p_value, c.winner) == (1, None)
    assert c.groups["percent"].tolist() == [0, 0]
    assert vs.compare({"a": [0.0] * 5, "b": [0.0] * 5}).test.p_value == 1


def test_missing_values_are_excluded_with_a_finding() -> None:
    c = vs.compare({"a": [1, 2, math.nan, 4, 5], "b": np.array([3, 4, 5, 6.0]), "c": pd.Series([None, 2.0, 3.0])})
    assert c.groups["count"].tolist() == [4, 4, 2]
    assert "missing-values" in codes(c)
    with pytest.raises(ComparisonError):
        vs.compare({"a": [math.nan]})
    with pytest.raises(ComparisonError):
        vs.compare([vs.Profile.from_times(instance_type="a", iteration_seconds=[0.1])], metric="first_step_seconds")


@pytest.mark.parametrize(
    "wrong",
    [{}, [], 3, "records", None, {"a": 3}, {"a": "123"}, {"a": [True, False]}, {"a": ["1"]}, [1, 2], [{"x": 1}]],
)
def test_unusable_data_are_errors(wrong: object) -> None:
    with pytest.raises(vs.errors.VmselectError):
        vs.compare(wrong)


@pytest.mark.parametrize(
    "options",
    [
        {"by": "colour"}, {"by": ""}, {"by": []}, {"metric": "beauty"}, {"metric": 3}, {"baseline": "z"}, {"alpha": 0},
        {"alpha": "x"}, {"confidence": 2}, {"unit": "steps"}, {"better": "bigger"}, {"epochs": 0}, {"model": "other"},
        {"metric": "cost"}, {"by": "region"}, {"by": "provider"}, {"market": 3},
    ],
)  # fmt: skip
def test_wrong_arguments_are_errors(options: dict[str, object]) -> None:
    with pytest.raises(vs.errors.VmselectError):
        vs.compare(machines(runs=1), **options)


def test_different_models_cannot_be_compared() -> None:
    mixed = [*machines(runs=2), *machines(runs=2, model="other")]
    with pytest.raises(ComparisonError, match="model"):
        vs.compare(mixed)
    assert vs.compare(mixed, model="net").groups["count"].tolist() == [2, 2]
    assert vs.compare(mixed, by="model").groups["group"].tolist() == ["net", "other"]


def test_other_settings_that_differ_are_found() -> None:
    rng = np.random.default_rng(0)
    inside = [profile(rng, instance_type=m, batch_size=b) for m in "ab" for b in (64, 256)]
    assert "mixed-settings" in codes(vs.compare(inside))
    between = [profile(rng, instance_type=m, batch_size=b) for m, b in (("a", 64), ("b", 256)) for _ in range(2)]
    assert "confounded" in codes(vs.compare(between))
    both = vs.compare(inside, by=["instance_type", "batch_size"])
    assert both.groups["group"].tolist() == ["a · 64", "a · 256", "b · 64", "b · 256"]
    assert codes(both).isdisjoint({"mixed-settings", "confounded"})


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("first_step_seconds", 1.0), ("validation_seconds", 0.2), ("init_seconds", 1.0), ("step_seconds", 0.1),
     ("epoch_seconds", 10.0), ("throughput", 640.0), ("f1", 0.5)],
)  # fmt: skip
def test_metrics_of_a_training(metric: str, expected: float) -> None:
    one = vs.Profile.from_times(
        instance_type="a", batch_size=64, steps_per_epoch=100, init_seconds=1.0, first_iteration_seconds=1.0,
        iteration_seconds=[0.1] * 3, validation_seconds=[0.4, 0.2], metrics={"f1": 0.5},
    )  # fmt: skip
    assert vs.compare(one, metric=metric).groups["mean"].tolist() == pytest.approx([expected])


def test_totals_and_costs_are_predicted() -> None:
    records = machines(levels={"g4dn.xlarge": 0.010, "g5.xlarge": 0.008}, runs=2)
    total = vs.compare(records, metric="total", epochs=10)
    expected = [vs.estimate(one, epochs=10).seconds for one in records[:2]]
    assert total.groups["mean"][0] == pytest.approx(np.mean(expected))
    catalog = vs.Catalog.embedded("2026-08-22")
    cost = vs.compare(records, metric="cost", epochs=10, catalog=catalog, region="us-east-1")
    price = catalog.price("g4dn.xlarge", region="us-east-1")
    assert cost.groups["mean"][0] == pytest.approx(np.mean(expected) / 3600 * price)
    parallel = [one.model_copy(update={"environment": one.environment.model_copy(update={"workers": 4})})
                for one in records]  # fmt: skip
    several = vs.compare(parallel, metric="cost", epochs=10, catalog=catalog, region="us-east-1")
    assert several.groups["mean"].tolist() == pytest.approx((4 * cost.groups["mean"]).tolist())
    with pytest.raises(ArgumentError, match="epochs"):
        vs.compare(records, metric="total")


def test_metrics_of_inference() -> None:
    def load(name: str, seconds: float) -> InferenceRecord:
        return InferenceRecord.from_times(instance_type=name, batch_size=32, call_seconds=[seconds] * 10)

    records = [load("a", 0.02 + 0.001 * i) for i in range(4)] + [load("b", 0.03 + 0.001 * i) for i in range(4)]
    for metric in ("call_seconds", "p99_seconds", "throughput"):
        assert vs.compare(records, metric=metric).winner == "a"
    with pytest.raises(ComparisonError):
        vs.compare([*records, *machines(runs=1)], metric="throughput")


def test_metrics_of_transfers() -> None:
    def moved(name: str, seconds: float) -> TransferRecord:
        return TransferRecord.from_times(
            instance_type=name, url="s3://bucket", megabytes=10, upload_seconds=[seconds] * 4, download_seconds=[1.0]
        )

    records = [moved("a", 1 + i / 10) for i in range(4)] + [moved("b", 2 + i / 10) for i in range(4)]
    c = vs.compare(records, metric="upload_seconds_per_mb")
    assert c.winner == "a"
    assert c.groups["mean"].tolist() == pytest.approx([0.115, 0.215])
    assert vs.compare(records, metric="upload_mb_per_second").winner == "a"
    assert vs.compare(records, metric="download_mb_per_second").winner is None


def test_utilization_is_that_of_the_steady_steps() -> None:
    def used(**shares: float) -> vs.Profile:
        parts = {
            name: {"count": 3, "seconds": 3.0, "mean": share, "maximum": share, "p50": share, "p95": share}
            for name, share in shares.items()
        }
        usage = Usage.model_validate({"interval_seconds": 1.0, "phases": {"steady_steps": parts}})
        return machines(runs=1)[0].model_copy(update={"usage": usage})

    assert vs.compare(used(usable_cpu_share=0.5), metric="utilization").groups["mean"][0] == 50
    both = used(usable_cpu_share=0.5, gpu0_busy_share=0.8, gpu1_busy_share=0.9)
    assert vs.compare(both, metric="utilization").groups["mean"][0] == pytest.approx(85)
    assert vs.compare(both, metric="usage.gpu0_busy_share").groups["mean"][0] == 0.8
    with pytest.raises(ComparisonError):
        vs.compare(machines(runs=1), metric="utilization")


def test_a_level_shift_inside_a_run_is_found() -> None:
    rng = np.random.default_rng(1)
    steps = np.abs(rng.normal(0.010, 0.0004, 116))
    steps[70:] *= 1.3  # in the second half, so that the first part is no warm-up
    one = vs.Profile.from_times(instance_type="a", batch_size=64, iteration_seconds=[float(s) for s in steps])
    c = vs.compare(one)
    assert c.shifts[["group", "run"]].to_numpy().tolist() == [["a", 1]]
    assert abs(int(c.shifts["after"][0]) - 70) <= 2
    assert c.shifts["percent"][0] == pytest.approx(30, abs=4)
    assert "level-shift" in codes(c)


def test_drift_is_not_a_level_shift() -> None:
    rng = np.random.default_rng(5)
    found = sum(bool(find_shifts(autoregressive(rng, count=200, coefficient=0.6))) for _ in range(100))
    assert found <= 5


def test_json_contains_test_metric_and_groups() -> None:
    data = json.loads(vs.compare(machines(runs=1)).to_json())
    assert data["test"]["p_value"] is None
    assert data["test"]["reason"]
    assert data["metric"] == {"name": "step_seconds", "unit": "s", "better": "less"}
    assert [row["group"] for row in data["groups"]] == ["a", "b"]


def test_rows_of_a_table_can_be_compared() -> None:
    frame = pd.DataFrame({"cloud": ["x"] * 5 + ["y"] * 5, "seconds": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]})
    c = vs.compare(frame, by="cloud", metric="seconds")
    assert c.winner == "x"
    assert vs.compare(frame.to_dict("records"), by="cloud", metric="seconds").to_json() == c.to_json()
    with pytest.raises(ArgumentError):
        vs.compare(frame, by="colour", metric="seconds")


def test_records_can_be_passed_in_named_groups() -> None:
    records = machines(runs=4)
    assert vs.compare({"first": records[:4], "second": records[4:]}).winner == "first"
    with pytest.raises(ComparisonError):
        vs.compare({"first": records, "second": records})


@pytest.mark.parametrize(
    ("name", "better"),
    [("mape", "less"), ("val_mape", "less"), ("iou_loss", "less"), ("accuracy_loss", "less"), ("runtime", "less"),
     ("mAP", "more"), ("map50", "more"), ("f1", "more"), ("top_5_accuracy", "more"), ("tokens_per_second", "more"),
     ("timeliness", None), ("landmap", None)],
)  # fmt: skip
def test_whole_words_of_a_name_give_the_better_direction(name: str, better: str | None) -> None:
    assert guess_better(name) == better


def test_values_below_zero_have_no_ratio() -> None:
    c = vs.compare({"a": [-1.0, -2.0, -3.0, -4.0], "b": [1.0, 2.0, 3.0, 4.0]})
    assert "%" not in c.verdict
    assert c.pairs["percent"].isna().all()
    assert "nan" not in c._repr_html_()


def test_every_total_of_a_record_is_a_run() -> None:
    records = [
        vs.Profile.from_times(instance_type=name, batch_size=8, total_seconds=seconds, epochs=3)
        for name, seconds in (("a", [10.0, 11.0, 12.0, 13.0]), ("b", [20.0, 21.0, 22.0, 23.0]))
    ]
    found = vs.compare(records, metric="total_seconds")
    assert list(found.values["b"]) == pytest.approx([20, 21, 22, 23])
    assert found.groups["count"].tolist() == [4, 4]
    assert vs.compare(records, metric="total_seconds", epochs=3).groups["count"].tolist() == [1, 1]
