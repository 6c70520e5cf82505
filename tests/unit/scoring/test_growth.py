"""Scores and corrections of many forecasts: the work grows with the records and not with their pairs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import vmselect as vs
from tests.support.forecasts import START, make_forecast
from vmselect.records import Record
from vmselect.records.identity import Assumed
from vmselect.scoring import forecast as matching
from vmselect.scoring.recalibration import Recalibration, _median_without

COUNT = 300


def make_records(vary: str) -> list[Record]:
    """``COUNT`` forecasts, each with a training on its day that differs in what ``vary`` names."""
    records: list[Record] = []
    for number in range(COUNT):
        fields: dict[str, Any] = {"factors": {"seed": number}} if vary == "factors" else {}
        fields |= {"conditions": {"model": f"net-{number}"}} if vary == "model" else {}
        records.append(make_forecast(day=number, **fields))
        real = vs.Profile.from_times(
            instance_type="g4dn.xlarge",
            batch_size=64,
            epochs=9 if vary == "epochs" else 10,
            total_seconds=120 + number / 10,
            model=f"net-{number}" if vary == "model" else "net",
            factors=fields.get("factors", {}),
        )
        records.append(real.model_copy(update={"created": START + timedelta(days=number, hours=1)}))
    return records


@pytest.mark.parametrize("vary", ["nothing", "factors", "model", "epochs"])
def test_comparisons_grow_with_the_records(vary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = cases = 0
    compare, make = matching.compare_assumed, matching._make_case

    def count_comparison(expected: Assumed, real: Assumed) -> Any:
        nonlocal calls
        calls += 1
        return compare(expected, real)

    def count_case(*arguments: Any) -> Any:
        nonlocal cases
        cases += 1
        return make(*arguments)

    monkeypatch.setattr(matching, "compare_assumed", count_comparison)
    monkeypatch.setattr(matching, "_make_case", count_case)
    records = make_records(vary)
    score = vs.score(records)
    assert (len(score), len(score.unscored)) == ((0, COUNT) if vary == "epochs" else (COUNT, 0))
    assert [case.outcome.created - case.forecast.created for case in score] == [timedelta(hours=1)] * len(score)
    assert max(calls, cases) <= matching.MOST_COMPARED * COUNT
    if vary != "epochs":
        assert max(calls, cases) <= 2 * COUNT


def test_the_means_of_a_forecast_leave_out_the_trainings_it_used() -> None:
    first, second = (
        vs.Profile.from_times(instance_type="g4dn.xlarge", batch_size=64, epochs=10, total_seconds=seconds, model="net")
        for seconds in (100.0, 120.0)
    )
    based, free = make_forecast(used=(first.id,)), make_forecast()
    matched = matching.match([first, second, based, free, free.outcome(seconds=140.0)])
    assert {real.forecast.id: real.seconds for real in matched.real} == {based.id: 120.0, free.id: pytest.approx(120.0)}


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, 2.0, 4.0], [1.0, 2.0, 2.0, 7.0], [1.0, 2.0, 4.0, 8.0, 9.0]])
def test_a_median_without_a_value(values: list[float]) -> None:
    for place, value in enumerate(values):
        others = sorted(values[:place] + values[place + 1 :])
        middle = len(others) // 2
        expected = others[middle] if len(others) % 2 else (others[middle - 1] + others[middle]) / 2
        assert _median_without(values, value) == expected


def test_corrections_sort_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = Recalibration.of(make_records("nothing"), method="robust", confidence=0.9)
    assert learned.biases["measured", "g4dn"].shift
    calls = []
    monkeypatch.setattr("statistics.median", lambda values: calls.append(values))
    assert len(learned._deviations["measured"]) == COUNT
    assert calls == []
