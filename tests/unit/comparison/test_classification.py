"""Accuracy, precision, recall and F1 from a confusion matrix."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from vmselect.errors import ArgumentError
from vmselect.stats import classification_metrics

MATRIX = {"cat": {"cat": 8, "dog": 2}, "dog": {"cat": 4, "dog": 16}}


def test_metrics_of_a_small_matrix() -> None:
    metrics = classification_metrics(MATRIX)
    assert metrics["accuracy"] == pytest.approx(24 / 30)
    assert (metrics["precision_cat"], metrics["recall_cat"]) == (pytest.approx(8 / 12), pytest.approx(0.8))
    assert metrics["f1_cat"] == pytest.approx(2 * 8 / (12 + 10))
    assert metrics["precision_weighted"] == pytest.approx((10 * 8 / 12 + 20 * 16 / 18) / 30)
    assert metrics["confusion/dog/cat"] == 4


def test_they_are_metrics_of_a_record() -> None:
    profile = vs.Profile.from_times(iteration_seconds=0.1, metrics=classification_metrics(MATRIX))
    assert profile.metrics["recall_dog"] == pytest.approx(0.8)
    assert vs.compare([profile], by="kind", metric="f1_weighted").metric.better == "more"


def test_what_is_not_defined_is_left_out() -> None:
    metrics = classification_metrics({"cat": {"cat": 3}, "dog": {"cat": 1}})
    assert "precision_dog" not in metrics
    assert metrics["recall_dog"] == 0.0
    assert "precision_weighted" not in metrics  # that of the dogs would be missing
    assert metrics["recall_weighted"] == metrics["accuracy"] == 0.75


@pytest.mark.parametrize(
    "confusion",
    [
        {},
        {"cat": {"cat": 3}},
        {"cat": {"cat": 0, "dog": 0}},
        {"cat": {"cat": -1, "dog": 2}},
        {"a/b": {"a/b": 1, "c": 1}},
        {"weighted": {"weighted": 1, "c": 1}},
        {"cat": 3},
        {str(i): {str(i): 1} for i in range(31)},
    ],
)
def test_wrong_matrices_are_errors(confusion: object) -> None:
    with pytest.raises(ArgumentError):
        classification_metrics(confusion)  # type: ignore[arg-type]


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=3, max_size=3))
def test_weighted_recall_is_the_accuracy_and_all_shares_are_shares(rows: list[list[int]]) -> None:
    confusion = {f"c{i}": {f"c{j}": count for j, count in enumerate(row)} for i, row in enumerate(rows)}
    if not any(map(any, rows)):
        return
    metrics = classification_metrics(confusion)
    assert metrics["recall_weighted"] == pytest.approx(metrics["accuracy"])
    assert all(0 <= value <= 1 for name, value in metrics.items() if not name.startswith("confusion/"))
