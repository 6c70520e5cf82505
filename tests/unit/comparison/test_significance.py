"""Tests of groups, comparison within scenarios, level shifts, and findings about the order of runs."""

from __future__ import annotations

import math
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import vmselect as vs
from vmselect.comparison.groups import scenario_rows
from vmselect.comparison.significance import find_shifts
from vmselect.errors import ArgumentError

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from comparisons import autoregressive, profile

RNG = np.random.default_rng(7)
A, B, C = (list(RNG.normal(mean, 1, 12)) for mean in (10, 10.2, 14))


def table(
    ratio: float = 1.02, *, scenarios: int = 6, runs: int = 5, noise: float = 0.01, seed: int = 1
) -> pd.DataFrame:
    """Two clouds in scenarios that differ by 60 % each; the second cloud takes ``ratio`` times as long."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"cloud": cloud, "data": f"s{number}", "seconds": 100 * 1.6**number * level * np.exp(noise * rng.normal())}
        for number in range(scenarios)
        for cloud, level in (("A", 1.0), ("B", ratio))
        for _ in range(runs)
    )


def within(rows: Any, **options: Any) -> Any:
    return vs.compare(rows, by="cloud", metric="seconds", **({"within": "data"} | options))


def codes(comparison: Any) -> set[str]:
    return {finding.code for finding in comparison.findings}


def test_a_small_difference_shows_within_scenarios_only() -> None:
    pooled, blocked = vs.compare(table(), by="cloud", metric="seconds"), within(table())
    assert not pooled.test.significant
    assert blocked.test.significant
    assert blocked.winner == "A"
    second = blocked.groups.set_index("group").loc["B"]
    assert second["percent_low"] < 2 < second["percent_high"]
    assert second["percent_high"] - second["percent_low"] < 2
    assert (blocked.by, blocked.within) == (("cloud",), ("data",))


def test_every_scenario_has_its_own_percentage() -> None:
    shown = within(table(1.1)).scenarios
    others = shown[shown["group"] == "B"]
    assert others["scenario"].tolist() == [f"s{number}" for number in range(6)]
    assert others["percent"].tolist() == pytest.approx([10.0] * 6, abs=2.5)
    assert (others["percent_low"] < others["percent_high"]).all()
    assert vs.compare(table(), by="cloud", metric="seconds").scenarios.empty


def test_one_run_in_each_of_many_scenarios_is_enough() -> None:
    assert within(table(1.05, scenarios=8, runs=1)).test.significant
    few = within(table(2.0, scenarios=3, runs=1))
    assert (few.test.p_value, few.test.reason is not None) == (None, True)


def test_equal_groups_differ_no_more_often_than_by_chance() -> None:
    significant = [within(table(1.0, scenarios=3, runs=3, seed=seed)).test.significant for seed in range(40)]
    assert sum(significant) <= 6


@settings(max_examples=15, deadline=None)
@given(factor=st.floats(0.01, 100), ratio=st.floats(0.5, 2.0))
def test_the_scale_of_a_scenario_does_not_matter(factor: float, ratio: float) -> None:
    rows = table(ratio, scenarios=3, runs=3)
    scaled = rows.assign(seconds=rows["seconds"].where(rows["data"] != "s1", rows["seconds"] * factor))
    plain, changed = within(rows), within(scaled)
    assert plain.ratio("B", "A") == pytest.approx(changed.ratio("B", "A"))
    assert plain.test.p_value == pytest.approx(changed.test.p_value)


def test_scenarios_without_all_groups_are_reported() -> None:
    rows = table()
    partial = rows[(rows["cloud"] == "A") | (rows["data"] != "s0")]
    assert "incomplete-scenarios" in codes(within(partial))
    assert "incomplete-scenarios" not in codes(within(rows))


def test_numbers_without_factors_have_no_scenarios() -> None:
    with pytest.raises(ArgumentError, match="within"):
        vs.compare({"A": [1.0, 2.0], "B": [1.0, 2.0]}, within="data")
    with pytest.raises(ArgumentError, match="within"):
        within(table(), unit="blocks")


def records(order: str, *, drift: float = 0.0) -> list[vs.Profile]:
    """Runs of two machines in ``order``, an hour apart, each slower than the previous one by ``drift``."""
    rng, start = np.random.default_rng(5), datetime(2026, 1, 1, tzinfo=UTC)
    return [
        profile(rng, instance_type=name, level=0.01 * (1 + drift) ** number, between=0.003).model_copy(
            update={"created": start + timedelta(hours=number), "outcome": "stopped"}
        )
        for number, name in enumerate(order)
    ]


@pytest.mark.parametrize(
    ("order", "drift", "expected"),
    [
        ("aaaaabbbbb", 0.0, {"not-interleaved"}),
        ("ababababab", 0.0, set()),
        ("ababababab", 0.02, {"drift-over-time"}),
        ("aaabbb", 0.0, {"not-interleaved"}),
        ("aabb", 0.0, set()),
    ],
)
def test_the_order_of_runs_is_checked(order: str, drift: float, expected: set[str]) -> None:
    findings = codes(vs.compare(records(order, drift=drift)))
    assert findings & {"not-interleaved", "drift-over-time"} == expected


def test_times_from_elsewhere_have_no_order() -> None:
    given_times = [record.model_copy(update={"outcome": "given"}) for record in records("aaaaabbbbb")]
    assert "not-interleaved" not in codes(vs.compare(given_times))


def test_the_chart_has_bars_of_time_and_lines_of_cost() -> None:
    pytest.importorskip("altair")
    from vmselect.report.comparison_charts import scenario_points

    rows = table().assign(usd=lambda rows: rows["seconds"] / 1000)
    time, cost = within(rows), vs.compare(rows, by="cloud", metric="usd", within="data")
    points = scenario_points(time, cost)
    assert points["cost"].tolist() == pytest.approx((points["mean"] / 1000).tolist())
    assert len(time.chart("scenarios", cost=cost).to_dict()["layer"]) == 2
    assert time.chart("scenarios").to_dict()["mark"]
    with pytest.raises(vs.errors.ComparisonError):
        vs.compare(rows, by="cloud", metric="usd").chart("scenarios")


def test_tables_show_the_percentage_of_every_scenario() -> None:
    compared = within(table(1.1))
    shown = [row["difference"] for row in scenario_rows(compared)]
    assert shown[0::2] == ["base"] * 6
    assert all(text in compared._repr_html_() for text in shown)
    assert scenario_rows(vs.compare(table(), by="cloud", metric="seconds")) == []


def test_p_values_are_those_of_scipy() -> None:
    c = vs.compare({"a": A, "b": B, "c": C})
    expected = stats.kruskal(A, B, C)
    assert (c.test.name, c.test.statistic, c.test.p_value) == ("Kruskal-Wallis", expected.statistic, expected.pvalue)
    for row in c.pairs.to_dict("records"):
        first, second = ({"a": A, "b": B, "c": C}[row[name]] for name in ("first", "second"))
        pair = stats.mannwhitneyu(first, second, method="exact")
        assert (row["statistic"], row["p_value"]) == (pair.statistic, pair.pvalue)


def test_p_values_of_few_and_tied_values_count_arrangements() -> None:
    tied = vs.compare({"a": [1, 2, 3, 3, 2], "b": [4, 5, 6, 3, 3]})
    assert tied.test.p_value == stats.kruskal([1, 2, 3, 3, 2], [4, 5, 6, 3, 3]).pvalue
    assert tied.test.exact_p_value == pytest.approx(12 / 252)
    three = vs.compare({"a": [1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]})
    assert three.test.exact_p_value == pytest.approx(math.factorial(3) / (math.factorial(9) / math.factorial(3) ** 3))


@pytest.mark.parametrize(("sizes", "few"), [([3, 3], True), ([4, 4], False), ([2, 2, 2], True), ([3, 3, 3], False)])
def test_groups_that_cannot_be_significant_are_not_tested(sizes: list[int], few: bool) -> None:
    groups = {str(i): [float(i * 10 + j) for j in range(size)] for i, size in enumerate(sizes)}
    assert (vs.compare(groups).test.p_value is None) == few


def test_drift_is_not_a_level_shift() -> None:
    rng = np.random.default_rng(5)
    shifts = sum(bool(find_shifts(autoregressive(rng, count=200, coefficient=0.6))) for _ in range(100))
    assert shifts <= 5


def test_values_below_zero_have_no_ratio() -> None:
    c = vs.compare({"a": [-1.0, -2.0, -3.0, -4.0], "b": [1.0, 2.0, 3.0, 4.0]})
    assert "%" not in c.verdict
    assert c.pairs["percent"].isna().all()
    assert "nan" not in c._repr_html_()
