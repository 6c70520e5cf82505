"""A day of an autoscaled service: instances over time, start time, cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from tests.support.priced import prices
from vmselect.errors import ArgumentError
from vmselect.records import InferenceRecord
from vmselect.serving.autoscaling import Day, simulate_day

RECORD = InferenceRecord.from_times(instance_type="a", batch_size=1, call_seconds=[0.01] * 200)
ROW = vs.serving.rank_inference(RECORD, catalog=prices(("a", 2.0))).best  # 100 items per second


def at(day: Day, hour: float, column: str) -> float:
    return float(day.minutes[column][round(60 * hour)])


def test_a_constant_load_needs_a_constant_number_of_instances() -> None:
    day = simulate_day(ROW, [210], start_seconds=600)
    assert set(day.minutes["paid"]) == set(day.minutes["ready"]) == {3}  # 210 / (100 x 0.7)
    assert (day.instance_hours, day.usd, day.fixed_usd) == (72.0, pytest.approx(144.0), pytest.approx(144.0))
    assert day.late_share == 0.0


def test_a_new_instance_answers_after_its_start_time_and_is_paid_at_once() -> None:
    loads = [10.0] * 720 + [350.0] * 720  # a jump at noon
    slow, fast = (simulate_day(ROW, loads, start_seconds=seconds) for seconds in (1800, 0))
    assert at(slow, 12.1, "paid") == at(fast, 12.1, "paid") == 5
    assert at(slow, 12.1, "ready") == 1
    assert at(slow, 12.6, "ready") == 5
    assert at(slow, 12.1, "over_capacity") == pytest.approx(250)
    assert slow.late_share > fast.late_share == 0.0
    assert slow.usd == fast.usd


def test_an_instance_may_take_a_whole_day_to_start() -> None:
    day = simulate_day(ROW, [10, 350, 10], start_seconds=86_400)
    assert set(day.minutes["ready"]) == {1}


def test_an_instance_stays_for_the_waiting_time() -> None:
    loads = [350.0] * 720 + [10.0] * 720
    day = simulate_day(ROW, loads, start_seconds=0, wait_minutes=30)
    assert at(day, 12.4, "paid") == 5
    assert at(day, 12.6, "paid") == 1


def test_equal_loads_are_kept() -> None:
    day = simulate_day(ROW, [10.0, 10.0, 350.0, 10.0], start_seconds=0)
    assert at(day, 3, "load") == 10.0
    assert at(day, 12, "load") == 350.0


def test_it_is_drawn() -> None:
    drawn = simulate_day(ROW, [10.0, 350.0], start_seconds=60).chart().to_dict()
    counts = max(drawn["datasets"].values(), key=len)
    assert {row["kind"] for row in counts} == {"paid", "ready"}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("loads", {"loads": []}),
        ("loads", {"loads": [-1]}),
        ("instances", {"instances": (3, 2)}),
        ("instances", {"instances": 3}),
        ("target", {"target": 0}),
        ("start_seconds", {"start_seconds": -1}),
        ("start_seconds", {"start_seconds": 86_401}),
    ],
)
def test_wrong_arguments_are_errors(name: str, arguments: dict[str, object]) -> None:
    good: dict[str, object] = {"loads": [1.0], "start_seconds": 60}
    with pytest.raises(ArgumentError, match=name):
        simulate_day(ROW, **(good | arguments))  # type: ignore[arg-type]


@given(st.lists(st.floats(0, 2000), min_size=1, max_size=48), st.floats(0, 7200), st.floats(0, 240), st.integers(1, 20))
def test_ready_never_exceeds_paid_and_paid_never_falls_below_needed(
    loads: list[float], start: float, wait: float, most: int
) -> None:
    day = simulate_day(ROW, loads, start_seconds=start, wait_minutes=wait, instances=(1, most))
    minutes = day.minutes
    assert (minutes["needed"] <= minutes["paid"]).all()
    assert (minutes["ready"] <= minutes["paid"]).all()
    assert minutes["paid"].between(1, most).all()
    assert day.usd <= day.fixed_usd + 1e-9
    assert 0.0 <= day.late_share <= 1.0
