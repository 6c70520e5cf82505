"""The remaining time of a running training."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmselect.watching.rest import Rest, find_change, forecast_rest

SECONDS = st.lists(st.floats(0.01, 1e5), min_size=1, max_size=40)


@given(SECONDS, st.floats(0, 1000))
def test_bounds_are_ordered_and_never_negative(epochs: list[float], left: float) -> None:
    value, low, high = forecast_rest(epochs, left).interval(0.9)
    assert 0 <= low <= value <= high


@given(SECONDS, st.floats(0.1, 100), st.floats(0.1, 100))
def test_more_work_takes_longer(epochs: list[float], left: float, more: float) -> None:
    assert forecast_rest(epochs, left + more).seconds > forecast_rest(epochs, left).seconds


@given(SECONDS, st.floats(1, 100), st.floats(0.1, 10))
def test_the_unit_of_time_does_not_matter(epochs: list[float], left: float, unit: float) -> None:
    scaled = forecast_rest([seconds * unit for seconds in epochs], left)
    assert scaled.seconds == pytest.approx(forecast_rest(epochs, left).seconds * unit)
    assert scaled.scale == pytest.approx(forecast_rest(epochs, left).scale * unit)


def test_the_first_epoch_is_left_out() -> None:
    assert forecast_rest([100.0, 10.0, 10.0], 5).seconds == pytest.approx(50.0)
    assert forecast_rest([100.0], 5).seconds == pytest.approx(500.0)


def test_intervals_of_steady_trainings_cover_and_narrow() -> None:
    noise = random.Random(1)
    covered, widths = 0, []
    for _ in range(300):
        epochs = [noise.gauss(10, 0.2) for _ in range(50)]
        for seen in (5, 25):
            interval = forecast_rest(epochs[:seen], 50 - seen).interval(0.9)
            covered += interval.contains(sum(epochs[seen:]))
            widths.append((interval.high - interval.low) / interval.value)
    assert covered / 600 >= 0.86
    assert sum(widths[1::2]) < sum(widths[::2])


def test_a_trend_widens_the_interval() -> None:
    steady, slower = [10.0] * 12, [10.0 + 0.2 * k for k in range(12)]
    assert forecast_rest(slower, 10).scale > 3 * forecast_rest(steady, 10).scale
    assert forecast_rest(slower, 4).interval(0.9).contains(4 * 12.2)


def test_a_change_of_the_speed_is_seen_and_both_speeds_stay_possible() -> None:
    windows = [(10, 1.0 + 0.01 * (k % 3)) for k in range(8)]
    assert find_change(windows) == 1.0
    ratio = find_change([*windows, (10, 2.0)])
    assert ratio == pytest.approx(2.0 / ((7.07 + 2.0) / 8), rel=0.01)
    rest = forecast_rest([10.0] * 5, 10).after_change(ratio)
    assert rest.seconds == pytest.approx(100 * ratio)
    assert rest.interval(0.9).contains(100)


@pytest.mark.parametrize("since", [1, 5, 15, 25, 30])
def test_a_change_is_seen_until_the_forecast_contains_it(since: int) -> None:
    noise = random.Random(since)
    windows = [(5, 5 * noise.gauss(0.1, 0.002)) for _ in range(30 - since)]
    windows += [(5, 5 * noise.gauss(0.3, 0.006)) for _ in range(since)]
    assert find_change(windows, reference=0.1) == pytest.approx(3, rel=0.05)
    assert find_change(windows, reference=0.3) == (1.0 if since > 1 else pytest.approx(1.0, abs=0.05))


def test_a_short_window_shows_no_change() -> None:
    assert find_change([(10, 1.0), (10, 1.0), (10, 1.0), (2, 9.0)]) == 1.0
    assert find_change([]) == 1.0


@pytest.mark.parametrize(("seconds", "chance"), [(100, 0.5), (1e6, 1.0), (-1e6, 0.0)])
def test_chance_of_ending_in_time(seconds: float, chance: float) -> None:
    assert Rest(seconds=100, scale=5, freedom=20).chance_within(seconds) == pytest.approx(chance, abs=1e-6)
    assert Rest(seconds=100, scale=0, freedom=20).chance_within(seconds) in (0.0, 1.0)
