"""effects: the linear model against known numbers, missing cells, confounded designs."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import vmselect as vs
from vmselect.errors import ArgumentError, ComparisonError

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from comparisons import profile


def rows(
    *, repetitions: int = 3, noise: float = 0.05, skip: tuple[tuple[int, int], ...] = ()
) -> list[dict[str, float]]:
    """seconds = 10 + 3 (machine) + 1 (batch) + 0.5 (both), each plus or minus."""
    rng = np.random.default_rng(0)
    return [
        {"machine": m, "batch": b, "seconds": 10 + 3 * m + b + 0.5 * m * b + noise * rng.standard_normal()}
        for m, b in itertools.product((-1, 1), (-1, 1))
        if (m, b) not in skip
        for _ in range(repetitions)
    ]


def effect(frame, **where) -> float:
    for name, value in where.items():
        frame = frame[frame[name] == value]
    return float(frame["effect"].iloc[0])


def test_known_effects_are_estimated() -> None:
    e = vs.stats.effects(rows(noise=0), factors=["machine", "batch"], metric="seconds")
    assert e.average == pytest.approx(10)
    assert effect(e.main, factor="machine", level=1) == pytest.approx(3)
    assert effect(e.main, factor="batch", level=-1) == pytest.approx(-1)
    assert effect(e.interactions, level_1=1, level_2=1) == pytest.approx(0.5)
    assert e.cells["mean"].tolist() == pytest.approx([6.5, 7.5, 11.5, 14.5])
    assert e.factors["factor"].tolist() == ["machine", "batch", "machine x batch"]


def test_one_factor_equals_an_analysis_of_variance() -> None:
    rng = np.random.default_rng(2)
    groups = {name: rng.normal(mean, 1, count) for name, mean, count in (("a", 1, 7), ("b", 2, 5), ("c", 1.5, 9))}
    table = [{"cloud": name, "score": value} for name, values in groups.items() for value in values]
    e = vs.stats.effects(table, factors="cloud", metric="score")
    expected = stats.f_oneway(*groups.values())
    assert e.factors["statistic"][0] == pytest.approx(expected.statistic)
    assert e.factors["p_value"][0] == pytest.approx(expected.pvalue)


def test_two_levels_equal_a_t_test() -> None:
    rng = np.random.default_rng(3)
    left, right = rng.normal(5, 1, 8), rng.normal(6, 1, 6)
    table = [{"side": s, "value": v} for s, values in (("l", left), ("r", right)) for v in values]
    e = vs.stats.effects(table, factors=["side"], metric="value", confidence=0.9)
    expected = stats.ttest_ind(left, right)
    assert e.main["p_value"][0] == pytest.approx(expected.pvalue)
    assert (2 * e.main.loc[0, ["low", "high"]]).tolist() == pytest.approx(list(expected.confidence_interval(0.9)))


def test_on_the_log_scale_an_effect_is_a_percentage() -> None:
    table = [{"cores": c, "batch": b, "seconds": 8 / c * b} for c in (1, 2) for b in (1, 4) for _ in range(2)]
    e = vs.stats.effects(table, factors=["cores", "batch"], metric="seconds", scale="log")
    by_factor = e.factors.set_index("factor")
    assert by_factor.loc["cores", "percent"] == pytest.approx(-50)
    assert by_factor.loc["batch", "percent"] == pytest.approx(-75)
    assert e.interactions["effect"].abs().max() < 1e-9


def test_a_missing_cell_is_listed_and_its_interaction_not_estimated() -> None:
    e = vs.stats.effects(rows(noise=0, skip=((1, 1),)), factors=["machine", "batch"], metric="seconds")
    assert e.missing.to_numpy().tolist() == [[1, 1]]
    assert e.cells["count"].tolist() == [3, 3, 3, 0]
    assert len(e.interactions) == 0
    assert "missing-cells" in {finding.code for finding in e.findings}
    # Without the interaction, the model fits the remaining three cells exactly.
    assert effect(e.main, factor="machine", level=1) == pytest.approx((11.5 - 6.5) / 2)


def test_unequal_cells_do_not_bias_effects() -> None:
    table = [
        {"m": m, "b": b, "v": 10 + 3 * m + b} for m, b, n in ((-1, -1, 5), (-1, 1, 2), (1, -1, 2), (1, 1, 5))
        for _ in range(n)
    ]  # fmt: skip
    e = vs.stats.effects(table, factors=["m", "b"], metric="v")
    assert effect(e.main, factor="m", level=1) == pytest.approx(3)
    assert effect(e.main, factor="b", level=1) == pytest.approx(1)


def test_without_repetitions_there_are_no_intervals() -> None:
    e = vs.stats.effects(rows(repetitions=1), factors=["machine", "batch"], metric="seconds")
    assert e.main[["low", "p_value"]].isna().all(axis=None)
    assert "no-repetitions" in {finding.code for finding in e.findings}
    assert json.loads(e.to_json())["main"][0]["low"] is None


def test_factors_that_only_change_together_are_an_error() -> None:
    table = [{"machine": x, "batch": x, "v": float(x)} for x in (1, 2, 3)]
    with pytest.raises(ComparisonError, match=r"machine.*batch"):
        vs.stats.effects(table, factors=["machine", "batch"], metric="v")


def test_a_factor_that_was_not_varied_is_found() -> None:
    table = [{**row, "cloud": "x"} for row in rows()]
    e = vs.stats.effects(table, factors=["machine", "cloud"], metric="seconds")
    assert e.names == ("machine",)
    assert "not-varied" in {finding.code for finding in e.findings}
    with pytest.raises(ComparisonError):
        vs.stats.effects(table, factors=["cloud"], metric="seconds")


def test_the_log_scale_needs_values_above_zero() -> None:
    with pytest.raises(ArgumentError):
        vs.stats.effects([{"a": 1, "v": 0.0}, {"a": 2, "v": 1.0}], factors="a", metric="v", scale="log")


def test_records_of_a_sweep() -> None:
    rng = np.random.default_rng(5)
    records = [
        profile(
            rng, level=0.01 * batch / 64 * (1.0 if cores == 2 else 1.8), instance_type=f"{cores} cores",
            batch_size=batch, factors={"cores": cores, "backend": backend},
        )
        for cores in (1, 2) for batch in (64, 256) for backend in ("jax", "torch") for _ in range(3)
    ]  # fmt: skip
    e = vs.stats.effects(records, factors=["cores", "batch_size", "backend"], metric="step_seconds", scale="log")
    table = e.factors.set_index("factor")
    assert table.loc["cores", "percent"] == pytest.approx(100 * (1 / 1.8 - 1), abs=2)
    assert table.loc["cores", "percent_high"] < -40
    assert table.loc["backend", "p_value"] > 0.01
    assert "batch_size" in e.verdict
    assert len(e.cells) == 8


@pytest.mark.parametrize("values", [{"a": [0.1] * 5, "b": [0.1] * 5}, {"a": [1.0, 2.0, 3.0], "b": [1.1, 2.1, 2.9]}])
def test_the_verdict_names_no_factor_without_a_significant_effect(values: dict[str, list[float]]) -> None:
    e = vs.stats.effects([{"m": m, "v": v} for m, numbers in values.items() for v in numbers], factors="m", metric="v")
    assert not e.factors["p_value"][0] < 0.05
    assert "most" not in e.verdict


def test_the_verdict_names_the_correction_next_to_p() -> None:
    shifts = {"a": 0.0, "b": 0.1}
    rows = [
        {"m": m, "n": n, "o": o, "v": 1 + shift + noise}
        for m, shift in shifts.items()
        for n in "cd"
        for o in "ef"
        for noise in (0.1, -0.1, 0.05)
    ]
    effects = vs.stats.effects(rows, factors=["m", "n", "o"], metric="v")
    top = effects.factors.iloc[0]
    assert top["p_value"] < 0.05 < top["p_adjusted"]
    assert "no factor has a significant effect" in effects.verdict
    assert "Holm" in effects.verdict


def test_a_level_that_is_lost_with_its_values_is_named() -> None:
    rows = [{"m": "a", "v": float("nan")}, {"m": "b", "v": 1.0}]
    with pytest.raises(ComparisonError):
        vs.stats.effects(rows, factors="m", metric="v")
