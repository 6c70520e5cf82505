"""Runs of a comparison: metrics, forms of input, and what makes runs comparable."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vmselect as vs
from vmselect.comparison.runs import guess_better
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.records import InferenceRecord, Usage
from vmselect.records.transfer import TransferRecord

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from comparisons import machines, profile


def codes(comparison: vs.Comparison) -> set[str]:
    return {finding.code for finding in comparison.findings}


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
    training = vs.Profile.from_times(
        instance_type="a", batch_size=64, steps_per_epoch=100, init_seconds=1.0, first_iteration_seconds=1.0,
        iteration_seconds=[0.1] * 3, validation_seconds=[0.4, 0.2], metrics={"f1": 0.5},
    )  # fmt: skip
    assert vs.compare(training, metric=metric).groups["mean"].tolist() == pytest.approx([expected])


def test_totals_and_costs_are_predicted() -> None:
    records = machines(levels={"g4dn.xlarge": 0.010, "g5.xlarge": 0.008}, runs=2)
    total = vs.compare(records, metric="total", epochs=10)
    expected = [vs.estimate(record, epochs=10).seconds for record in records[:2]]
    assert total.groups["mean"][0] == pytest.approx(np.mean(expected))
    catalog = vs.Catalog.embedded("2026-08-22")
    cost = vs.compare(records, metric="cost", epochs=10, catalog=catalog, region="us-east-1")
    price = catalog.price("g4dn.xlarge", region="us-east-1")
    assert cost.groups["mean"][0] == pytest.approx(np.mean(expected) / 3600 * price)
    parallel = [record.model_copy(update={"environment": record.environment.model_copy(update={"workers": 4})})
                for record in records]  # fmt: skip
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
    with pytest.raises(ComparisonError) as raised:
        vs.compare(records)  # the default metric is of trainings
    assert "call_seconds" in str(raised.value)


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


def test_every_total_of_a_record_is_a_run() -> None:
    records = [
        vs.Profile.from_times(instance_type=name, batch_size=8, total_seconds=seconds, epochs=3)
        for name, seconds in (("a", [10.0, 11.0, 12.0, 13.0]), ("b", [20.0, 21.0, 22.0, 23.0]))
    ]
    compared = vs.compare(records, metric="total_seconds")
    assert list(compared.values["b"]) == pytest.approx([20, 21, 22, 23])
    assert compared.groups["count"].tolist() == [4, 4]
    assert vs.compare(records, metric="total_seconds", epochs=3).groups["count"].tolist() == [1, 1]
