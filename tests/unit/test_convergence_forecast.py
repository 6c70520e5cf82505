"""Forecasts of epochs from the first part of a curve."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from vmselect.convergence import ConvergenceRun, Curve, StoppingRule
from vmselect.errors import ArgumentError
from vmselect.records.convergence import MOST_PATIENCES

RULE = StoppingRule(monitor="val_accuracy", mode="max", patience=5)


def part(values: list[float], *, stride: int = 1, rule: StoppingRule = RULE, **fields: Any) -> ConvergenceRun:
    points = {stride * (k + 1): value for k, value in enumerate(values)}
    return ConvergenceRun(
        created=datetime(2026, 1, 1, tzinfo=UTC), batch_size=8, rule=rule, epochs_run=stride * max(1, len(values)),
        ended=False, curve=Curve.of(points), **fields,
    )  # fmt: skip


def curves(seed: int, count: int) -> list[float]:
    random = np.random.default_rng(seed)
    epochs = np.arange(1, count + 1)
    return list(0.9 - 0.5 * epochs**-1.0 + 0.01 * random.standard_normal(count))


def test_the_interval_holds_where_early_stopping_ends_at_half_of_the_run() -> None:
    held = []
    for seed in range(40):
        whole = curves(seed, 200)
        truth = RULE.stop_after(enumerate(whole, 1))
        assert truth is not None
        held.append(part(whole[: max(4, truth // 2)]).forecast().interval.contains(truth))
    assert sum(held) >= 34


def test_a_falling_metric_is_the_mirror_of_a_rising_one() -> None:
    values = curves(1, 10)
    falling = StoppingRule(monitor="val_loss", mode="min", patience=5)
    assert tuple(part(values).forecast()) == tuple(part([-v for v in values], rule=falling).forecast())


@pytest.mark.parametrize(("waited", "low"), [(0, 25), (1, 24), (4, 21)])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_value_is_the_epochs_seen_and_the_patience(waited: int, low: int, stride: int) -> None:
    values = [0.01 * k for k in range(20 - waited)] + [0.0] * waited
    forecast = part(values, stride=stride).forecast()
    assert tuple(forecast) == (25 * stride, low * stride, pytest.approx(stride * (20 + 5 * MOST_PATIENCES)))
    assert forecast.can_tell


def test_a_run_that_has_stabilized_is_certain() -> None:
    run = part(curves(4, 20), stabilised_after=12)
    assert tuple(run.forecast()) == (12, 12, 12)
    assert run.forecast().can_tell


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([0.1, 0.2, 0.3], "3 values"),
        ([math.nan, 0.1, 0.2, 0.3, 0.4], "best value"),
        ([], "0 values"),
    ],
)
def test_too_few_values_give_no_forecast(values: list[float], reason: str) -> None:
    forecast = part(values).forecast()
    assert not forecast.can_tell
    assert reason in forecast.reason
    assert math.isinf(forecast.value)


def test_an_interval_wider_than_a_factor_of_four_cannot_tell() -> None:
    assert not part([0.5, 0.4, 0.3, 0.2]).forecast().can_tell


def test_more_confidence_is_a_wider_interval_around_the_same_value() -> None:
    run = part(curves(3, 12))
    some, more = run.forecast(confidence=0.5), run.forecast(confidence=0.95)
    assert some.value == more.value
    assert more.high > some.high


def test_confidence_must_be_a_share() -> None:
    with pytest.raises(ArgumentError):
        part(curves(1, 9)).forecast(confidence=1.0)
