"""compare: tables, test, verdict and findings."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import vmselect as vs
from vmselect.errors import ArgumentError

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from comparisons import machines

RNG = np.random.default_rng(7)
A, B, C = (list(RNG.normal(mean, 1, 12)) for mean in (10, 10.2, 14))


def codes(comparison: vs.Comparison) -> set[str]:
    return {finding.code for finding in comparison.findings}


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


def test_a_level_shift_between_runs_is_found_in_order_of_time() -> None:
    values = [0.8 + 0.001 * (i % 7) for i in range(30)] + [0.4 + 0.001 * (i % 7) for i in range(86)]
    c = vs.compare({"a": values, "b": [0.6 + 0.001 * (i % 5) for i in range(116)]}, metric="seconds")
    assert c.run_shifts[["group", "after"]].to_numpy().tolist() == [["a", 30]]
    assert c.run_shifts["percent"][0] == pytest.approx(-50, abs=1)
    assert "level-shift" in codes(c)
    assert json.loads(c.to_json())["run_shifts"][0]["after"] == 30
    assert vs.compare({"a": values[::-1]}, metric="seconds").run_shifts["after"].tolist() == [86]


def test_a_level_shift_inside_a_run_is_found() -> None:
    rng = np.random.default_rng(1)
    steps = np.abs(rng.normal(0.010, 0.0004, 116))
    steps[70:] *= 1.3  # in the second half, so that the first part is no warm-up
    training = vs.Profile.from_times(instance_type="a", batch_size=64, iteration_seconds=[float(s) for s in steps])
    c = vs.compare(training)
    assert c.shifts[["group", "run"]].to_numpy().tolist() == [["a", 1]]
    assert abs(int(c.shifts["after"][0]) - 70) <= 2
    assert c.shifts["percent"][0] == pytest.approx(30, abs=4)
    assert "level-shift" in codes(c)


def test_json_contains_test_metric_and_groups() -> None:
    data = json.loads(vs.compare(machines(runs=1)).to_json())
    assert data["test"]["p_value"] is None
    assert data["test"]["reason"]
    assert data["metric"] == {"name": "step_seconds", "unit": "s", "better": "less"}
    assert [row["group"] for row in data["groups"]] == ["a", "b"]
