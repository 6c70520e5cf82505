"""The stopping rule and forecasts without Keras. tests/integration compares the rule with EarlyStopping."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from vmselect.errors import ArgumentError
from vmselect.records.convergence import HIGH_WAITS, ConvergenceRun, Curve, Patience, StoppingRule

RULE = StoppingRule(monitor="val_accuracy", mode="max", patience=5)


@pytest.mark.parametrize(
    ("values", "rule", "expected"),
    [
        ([1, 2, 3, 4, 5], {}, None),
        ([1, 2, 2, 2], {}, 4),  # a tie is no improvement
        ([1, 2, 2], {}, None),
        ([1, 1, 1], {"patience": 0}, 2),  # never at the first epoch
        ([0.9] * 6, {"patience": 5}, 6),
        ([1, 1.05, 1.1, 1.15], {"min_delta": 0.2}, 3),
        ([0.5, 0.75, 0.8], {"patience": 1, "min_delta": 0.25}, 2),  # not more than the minimum change
        ([0.5, 0.8, 0.9], {"patience": 1, "min_delta": 0.25}, 3),
        ([9, 1, 2, 2, 2], {"start_from_epoch": 1}, 5),
        ([math.nan, 1, 2, 3], {}, 3),  # no value is better than a first NaN
        ([1, math.nan, math.nan, 5], {}, 3),
        ([0.5, 0.5 + 1e-9, 0.5 + 2e-9], {}, 3),  # equal in single precision
        ([], {}, None),
    ],
)
def test_where_a_rule_stops(values: list[float], rule: dict[str, Any], expected: int | None) -> None:
    for mode, sign in (("max", 1), ("min", -1)):
        made = StoppingRule.model_validate({"monitor": "m", "mode": mode, "patience": 2} | rule)
        assert made.stop_after((epoch, sign * value) for epoch, value in enumerate(values, 1)) == expected


def test_epochs_without_a_value_are_skipped() -> None:
    rule = StoppingRule(monitor="val_loss", mode="min", patience=2)
    assert rule.stop_after([(2, 1.0), (4, 1.0), (6, 1.0)]) == 6


def test_a_first_epoch_is_never_the_last() -> None:
    rule = StoppingRule(monitor="loss", mode="min", patience=0)
    assert not Patience(best=0.5).after(rule, 1, 1.0).stopped
    assert Patience(best=0.5).after(rule, 2, 1.0).stopped


def test_the_best_value_ignores_nan() -> None:
    values = [math.nan, 2.0, 1.0, 3.0]
    assert StoppingRule(monitor="m", mode="max").best_of(values) == 3.0
    assert StoppingRule(monitor="m", mode="min").best_of(values) == 1.0
    assert StoppingRule(monitor="m", mode="min").best_of(values[:1]) is None


def make_run(values: list[float], *, stride: int = 1, rule: StoppingRule = RULE, **fields: Any) -> ConvergenceRun:
    points = {stride * (k + 1): value for k, value in enumerate(values)}
    given = {"rule": rule, "epochs_run": stride * max(1, len(values)), "ended": False, "curve": Curve.of(points)}
    return ConvergenceRun(**{"created": datetime(2026, 1, 1, tzinfo=UTC), "batch_size": 8, **given, **fields})


def rising(seed: int, count: int) -> list[float]:
    random = np.random.default_rng(seed)
    epochs = np.arange(1, count + 1)
    return list(0.9 - 0.5 * epochs**-1.0 + 0.01 * random.standard_normal(count))


def test_best_and_final_value_are_those_until_the_metric_stabilized() -> None:
    values = [0.1, 0.6, 0.5, 0.4, 0.9]
    run = make_run(values, stabilised_after=4, metrics={"val_accuracy": 0.4})
    assert (run.epochs_to_stabilise, run.best, run.final) == (4, 0.6, 0.4)
    assert (make_run(values).epochs_to_stabilise, make_run(values).best) == (5, 0.9)


def test_the_interval_holds_where_early_stopping_ends_at_half_of_the_run() -> None:
    held = []
    for seed in range(40):
        whole = rising(seed, 200)
        truth = RULE.stop_after(enumerate(whole, 1))
        assert truth is not None
        held.append(make_run(whole[: max(4, truth // 2)]).forecast().interval.contains(truth))
    assert sum(held) >= 34


def test_a_falling_metric_is_the_mirror_of_a_rising_one() -> None:
    values = rising(1, 10)
    falling = StoppingRule(monitor="val_loss", mode="min", patience=5)
    assert tuple(make_run(values).forecast()) == tuple(make_run([-v for v in values], rule=falling).forecast())


@pytest.mark.parametrize(("waited", "low"), [(0, 25), (1, 24), (4, 21)])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_longer_nothing_improves_the_nearer_is_the_forecast(waited: int, low: int, stride: int) -> None:
    # Better in every other epoch, and in the last one before the wait.
    values = [0.01 * ((k + waited + 1) // 2) for k in range(20 - waited)] + [0.0] * waited
    forecast = make_run(values, stride=stride).forecast()
    left = 5 - waited
    high = stride * (20 + 5 + HIGH_WAITS * left)
    assert tuple(forecast) == (stride * (20 + 2 * left), low * stride, pytest.approx(high))
    assert forecast.is_usable


@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("waited", [0, 4, 9])
def test_a_forecast_lies_in_its_interval(confidence: float, waited: int) -> None:
    rule = StoppingRule(monitor="val_accuracy", mode="max", patience=10)
    values = [0.01 * (k // 2) for k in range(41)] + [0.0] * waited
    value, low, high = make_run(values, rule=rule).forecast(confidence=confidence)
    assert low <= value <= high


def test_a_run_that_has_stabilized_is_certain() -> None:
    forecast = make_run(rising(4, 20), stabilised_after=12).forecast()
    assert tuple(forecast) == (12, 12, 12)
    assert forecast.is_usable


@pytest.mark.parametrize("values", [[], [0.1, 0.2, 0.3], [math.nan, 0.1, 0.2, 0.3, 0.4]])
def test_too_few_values_give_no_forecast(values: list[float]) -> None:
    forecast = make_run(values).forecast()
    assert not forecast.is_usable
    assert forecast.reason
    assert math.isinf(forecast.value)


def test_an_interval_wider_than_a_factor_of_four_is_too_uncertain() -> None:
    assert not make_run([0.5, 0.4, 0.3, 0.2]).forecast().is_usable


@pytest.mark.parametrize(("patience", "seen"), [(5, 4), (5, 5), (10, 10)])
def test_after_few_epochs_no_forecast_is_possible(patience: int, seen: int) -> None:
    rule = StoppingRule(monitor="val_accuracy", mode="max", patience=patience)
    forecast = make_run([0.1 * k for k in range(seen)], rule=rule).forecast()
    assert not forecast.is_usable
    assert (forecast.value, forecast.low, forecast.high) == (math.inf, seen + patience, math.inf)
    later = make_run([0.01 * (k // 2) for k in range(2 * patience)], rule=rule).forecast()
    assert later.is_usable


def test_while_the_metric_always_improves_no_forecast_is_possible() -> None:
    still = make_run([0.01 * k for k in range(30)]).forecast()
    assert (still.is_usable, still.low, still.high) == (False, 35, math.inf)
    assert "still improves, in 5 of the last 5 values" in still.reason
    assert make_run([0.01 * k for k in range(29)] + [0.0]).forecast().is_usable


def test_more_confidence_is_a_wider_interval_around_the_same_value() -> None:
    run = make_run(rising(3, 30))
    some, more = run.forecast(confidence=0.5), run.forecast(confidence=0.95)
    assert some.value == more.value
    assert more.high > some.high
    with pytest.raises(ArgumentError):
        run.forecast(confidence=1.0)
