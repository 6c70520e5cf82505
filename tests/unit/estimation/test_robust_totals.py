"""Estimates from total times of whole trainings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from tests.support.profiles import make_profile


def runs(*seconds: float, epochs: int | None = 10, **options: Any) -> vs.Profile:
    return vs.Profile.from_times(instance_type="a", batch_size=8, total_seconds=seconds, epochs=epochs, **options)


def test_the_measured_number_of_epochs_takes_the_mean_of_the_runs() -> None:
    found = vs.estimate(runs(99.0, 101.0), epochs=10)
    assert found.seconds == pytest.approx(100.0)
    assert 90 < found.low < 99 < 101 < found.high < 110
    assert found.terms == {"steady_iterations": pytest.approx(100.0)}
    assert "only-totals" in [finding.code for finding in found.findings]


@given(st.integers(1, 40), st.floats(0, 1))
def test_the_interval_contains_every_share_of_time_that_occurs_once(epochs: int, once: float) -> None:
    found = vs.estimate(runs(100.0), epochs=epochs)
    true = 100 * (once + (1 - once) * epochs / 10)
    assert found.low <= true * (1 + 1e-9)
    assert true <= found.high * (1 + 1e-9)


def test_repetitions_and_other_data() -> None:
    assert vs.estimate([runs(90.0), runs(110.0)], epochs=10).seconds == pytest.approx(100.0)
    known = runs(100.0, examples=1000)
    assert vs.estimate(known, epochs=10, examples=500).seconds == pytest.approx(50, rel=0.02)  # whole steps
    with pytest.raises(vs.errors.EstimateError):
        vs.estimate([runs(90.0), runs(110.0, epochs=5)], epochs=10)
    with pytest.raises(vs.errors.EstimateError):
        vs.estimate(runs(90.0), epochs=10, method="malta-iteration")


def test_times_of_steps_are_preferred_to_totals() -> None:
    probe = make_profile(epochs=10, batch_size=8, model=None)
    alone = vs.estimate(probe, epochs=10)
    assert vs.estimate([probe, runs(5000.0)], epochs=10).seconds == alone.seconds
