"""Epochs foreseen from a part of a curve."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from vmselect.convergence import ConvergenceRun, Curve, StoppingRule
from vmselect.convergence.forecast import Standing, summarise
from vmselect.errors import ArgumentError

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


def test_the_interval_holds_the_truth_of_curves_of_the_assumed_kind() -> None:
    held = []
    for seed in range(40):
        whole = curves(seed, 200)
        truth = RULE.stop_after(enumerate(whole, 1))
        assert truth is not None
        _, low, high = part(whole[: max(4, truth // 2)]).forecast()
        held.append(low <= truth <= high)
    assert sum(held) >= 34


def test_a_falling_metric_is_the_mirror_of_a_rising_one() -> None:
    values = curves(1, 10)
    falling = StoppingRule(monitor="val_loss", mode="min", patience=5)
    rising, mirrored = part(values).forecast(), part([-v for v in values], rule=falling).forecast()
    assert tuple(rising) == tuple(mirrored)


def test_validation_every_second_epoch_doubles_the_epochs() -> None:
    values = curves(2, 10)
    every, second = part(values).forecast(), part(values, stride=2).forecast()
    assert second.value > 1.5 * every.value
    assert second.value % 2 == 0


def test_the_forecast_is_the_same_each_time() -> None:
    assert part(curves(3, 9)).forecast() == part(curves(3, 9)).forecast()


def test_a_run_that_has_stabilised_is_certain() -> None:
    run = part(curves(4, 20), stabilised_after=12)
    assert tuple(run.forecast()) == (12, 12, 12)
    assert run.forecast().can_tell


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.1, 0.2, 0.3], "only 3 values"),
        ([math.nan, 0.1, 0.2, 0.3, 0.4], "best value"),
        ([], "only 0 values"),
        ([1e200, 2e200, 3e200, 3.5e200, 3.6e200], "beyond 1e+100"),
    ],
)
def test_too_little_is_said_to_be_too_little(values: list[float], words: str) -> None:
    forecast = part(values).forecast()
    assert not forecast.can_tell
    assert words in forecast.reason
    assert math.isinf(forecast.value)


def test_a_line_that_rises_without_bend_cannot_tell() -> None:
    forecast = part([0.01 * k for k in range(12)]).forecast()
    assert not forecast.can_tell
    assert "has not bent yet" in forecast.reason
    assert math.isinf(forecast.high)


def test_a_flat_curve_stops_when_patience_ends() -> None:
    values = [0.2, 0.5, 0.8, 0.9, 0.95, 0.95, 0.95, 0.95]
    assert part(values).forecast().low == 10


@pytest.mark.parametrize("seen", [6, 9, 14, 20, 30])
def test_no_end_is_foreseen_before_the_rule_can_stop(seen: int) -> None:
    for seed in range(8):
        values = curves(seed, seen)
        if RULE.stop_after(enumerate(values, 1)) is not None:
            continue
        waited = seen - 1 - max(range(seen), key=values.__getitem__)
        value, low, high = part(values).forecast()
        assert seen + 5 - waited <= low <= value <= high


def test_late_in_a_run_the_value_is_nearer_than_the_middle_of_the_draws() -> None:
    """Who has seen three quarters is nearly through, and a curve does not say so: its middle lies far beyond."""
    errors, middles = [], []
    for seed in range(30):
        whole = curves(seed, 300)
        end = RULE.stop_after(enumerate(whole, 1))
        assert end is not None
        seen = 3 * end // 4
        if seen >= 8:
            found = part(whole[:seen]).forecast()
            errors.append(abs(found.value / end - 1))
            middles.append(abs(float(np.median(found.draws)) / end - 1))
    assert len(errors) > 15
    assert sum(errors) < 0.7 * sum(middles)


def test_the_value_stays_with_the_patience_unless_nearly_all_draws_go_on() -> None:
    fresh = Standing(seen=20, stride=1, waited=0, patience=5)
    for soon, late, value in ((60, 35, 25), (20, 35, 35), (20, 200, 40)):  # never beyond as much again as was seen
        draws = np.array([25.0] * soon + [float(late)] * (400 - soon))
        assert summarise(draws, fresh, confidence=0.9)[1] == value


@pytest.mark.parametrize(("waited", "low", "value"), [(0, 25, 25), (1, 24, 25), (2, 23, 24), (4, 21, 23)])
def test_half_of_what_was_waited_counts(waited: int, low: int, value: int) -> None:
    """The wait may come to its end or begin anew; runs end with a value, so halves are rounded up."""
    draws = np.full(400, float(low))
    for stride in (1, 2):
        standing = Standing(seen=20 * stride, stride=stride, waited=waited, patience=5)
        found = summarise(draws * stride, standing, confidence=0.9)
        assert found[:2] == (low * stride, value * stride)


def test_the_high_end_comes_nearer_with_the_root_of_what_was_seen() -> None:
    highs = []
    for seen in (16, 64, 144, 400):
        draws = np.full(400, seen + 30.0)
        highs.append(summarise(draws, Standing(seen, 1, 0, 5), confidence=0.9)[2] - seen)
    assert highs[0] == 2 * highs[1]
    assert highs[2] == highs[3] == 30  # but never before the middle of the draws


def test_more_confidence_is_a_wider_interval_around_the_same_value() -> None:
    run = part(curves(3, 12))
    some, more = run.forecast(confidence=0.5), run.forecast(confidence=0.95)
    assert some.value == more.value
    assert more.low <= some.low
    assert more.high > some.high


def test_confidence_must_be_a_share() -> None:
    with pytest.raises(ArgumentError):
        part(curves(1, 9)).forecast(confidence=1.0)
