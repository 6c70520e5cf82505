"""Convergence studies: measured, interpolated and extrapolated epochs, repetitions, metrics, and invalid studies."""

from __future__ import annotations

import math
import statistics
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, ProfileError
from vmselect.records.convergence import ConvergenceRun, StoppingRule

RULE = StoppingRule(monitor="val_accuracy", mode="max")


def make_run(batch_size: int = 32, epochs: int = 10, **fields: Any) -> ConvergenceRun:
    values = {"created": datetime(2026, 1, 1, tzinfo=UTC), "batch_size": batch_size, "rule": RULE, "epochs_run": epochs}
    return ConvergenceRun(**(values | {"stabilised_after": epochs} | fields))


def test_repetitions_are_merged_into_mean_and_spread() -> None:
    study = vs.ConvergenceStudy.from_epochs({64: [10, 12, 17], 128: 20})
    value, low, high = study.epochs(64)
    assert value == 13
    assert low < 10 < 17 < high
    row = study.to_frame().set_index("batch_size").loc[64]
    assert row["repetitions"] == 3
    assert row["epochs_deviation"] == pytest.approx(statistics.stdev([10, 12, 17]))


def test_more_repetitions_that_agree_narrow_the_interval() -> None:
    widths = []
    for count in (1, 3, 10):
        _, low, high = vs.ConvergenceStudy.from_epochs({64: [20] * count}).epochs(64)
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)


def test_the_rate_of_learning_is_interpolated() -> None:
    found = vs.ConvergenceStudy.from_epochs({64: 10, 256: 30}).epochs(128)
    assert found.source == "interpolated"
    assert found.value == pytest.approx(2 / (1 / 10 + 1 / 30))
    assert found.findings == ()


def test_extrapolation_beyond_the_largest_size() -> None:
    found = vs.ConvergenceStudy.from_epochs({64: 10, 256: 20}).epochs(512)
    assert (found.source, found.value) == ("extrapolated", 20)
    assert found.low < 20
    assert found.high > 40
    (finding,) = found.findings
    assert finding.code == "epochs-extrapolated"
    assert "20 to 40 epochs" in finding.message


def test_extrapolation_below_the_smallest_size_has_both_directions() -> None:
    found = vs.ConvergenceStudy.from_epochs({64: 10}).epochs(32)
    assert found.low < 5.1
    assert found.high > 20


@pytest.mark.parametrize("size", [31, 513, 100_000])
def test_far_from_all_sizes_the_epochs_are_unknown_and_no_number(size: int) -> None:
    found = vs.ConvergenceStudy.from_epochs({64: 10, 256: 20}).epochs(size)
    assert found.source == "unknown"
    assert all(math.isnan(number) for number in found)
    assert [finding.code for finding in found.findings] == ["epochs-unknown"]


def test_a_run_that_never_stabilized_counts_all_its_epochs_with_a_warning() -> None:
    study = vs.ConvergenceStudy.of([make_run(), make_run(epochs=50, stabilised_after=None)])
    assert study.epochs(32).value == 30
    assert [finding.code for finding in study.findings] == ["not-stabilised"]


def test_an_interrupted_run_is_excluded() -> None:
    cut = make_run(epochs=3, stabilised_after=None, ended=False)
    study = vs.ConvergenceStudy.of([make_run(), cut])
    assert study.epochs(32).value == 10
    assert [finding.code for finding in study.findings] == ["unfinished-runs"]


def test_a_study_of_unfinished_runs_has_no_epochs() -> None:
    study = vs.ConvergenceStudy.of([make_run(stabilised_after=None, ended=False)])
    assert study.batch_sizes == ()
    assert [finding.code for finding in study.findings] == ["unfinished-runs"]
    assert "<li>" in study._repr_html_()
    with pytest.raises(ProfileError):
        study.epochs(32)


def test_final_metrics_are_averaged_and_interpolated() -> None:
    runs = [make_run(32, metrics={"val_accuracy": 0.8}), make_run(32, metrics={"val_accuracy": 0.9})]
    study = vs.ConvergenceStudy.of([*runs, make_run(64, metrics={"val_accuracy": 0.65, "loss": "nan"})])
    assert study.metric(32) == pytest.approx(0.85)
    assert study.metric(48) == pytest.approx(0.75)
    assert study.metric(128) is None
    assert math.isnan(study.metric(64, "loss") or 0.0)
    with pytest.raises(ArgumentError, match="loss, val_accuracy"):
        study.metric(32, "f1")


def test_unfinished_runs_have_no_final_metric() -> None:
    unfinished = {"stabilised_after": None, "ended": False, "metrics": {"val_accuracy": 0.1}}
    runs = [make_run(32, metrics={"val_accuracy": 0.9}), make_run(32, **unfinished), make_run(64, **unfinished)]
    study = vs.ConvergenceStudy.of(runs)
    assert study.metric(32) == 0.9
    assert study.metric(64) is None


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"model": "b"}, "model"),
        ({"parameters": 7}, "parameters"),
        ({"rule": StoppingRule(monitor="val_accuracy", mode="max", patience=3)}, "rule.patience"),
    ],
)
def test_runs_of_different_trainings_are_rejected(other: dict[str, Any], named: str) -> None:
    with pytest.raises(ProfileError, match=named):
        vs.ConvergenceStudy.of([make_run(model="a", parameters=5), make_run(**({"model": "a"} | other))])


def test_the_order_of_runs_changes_nothing() -> None:
    runs = [make_run(64), make_run(32), make_run(32, epochs=20)]
    assert vs.ConvergenceStudy.of(runs).rows() == vs.ConvergenceStudy.of(runs[::-1]).rows()


@pytest.mark.parametrize("epochs", [{}, {0: 3}, {8: 0}, {8: -1}, {8: [3, math.nan]}, {"8": 3}])
def test_impossible_epochs_are_rejected(epochs: Any) -> None:
    with pytest.raises((ArgumentError, ProfileError)):
        vs.ConvergenceStudy.from_epochs(epochs)


def test_whole_numbers_of_any_kind_are_batch_sizes_and_epochs() -> None:
    plain = vs.ConvergenceStudy.from_epochs({64: [13, 14]}, metrics={64: 0.97})
    same = vs.ConvergenceStudy.from_epochs({64.0: np.array([13, 14])}, metrics={64.0: np.float32(0.97)})  # type: ignore[dict-item]
    assert [run.batch_size for run in same.runs] == [64, 64]
    assert same.epochs(np.int64(64)) == plain.epochs(64)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"64\.5"):
        vs.ConvergenceStudy.from_epochs({64.5: 3})  # type: ignore[dict-item]


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "8"])
def test_impossible_batch_sizes_are_rejected(size: Any) -> None:
    with pytest.raises(ArgumentError):
        vs.ConvergenceStudy.from_epochs({8: 3}).epochs(size)


def test_html_is_escaped() -> None:
    study = vs.ConvergenceStudy.from_epochs({8: 3}, model="<b>x</b>")
    assert "<b>" not in study._repr_html_()
