"""The downtime that an uptime allows, and its expected cost."""

from __future__ import annotations

import pytest

from vmselect.errors import ArgumentError
from vmselect.serving import Downtime


def test_99_95_percent_is_five_times_the_downtime_of_99_99_percent() -> None:
    less, more = Downtime.of(99.99, usd_per_hour=100), Downtime.of(99.95, usd_per_hour=100)
    assert more.hours == pytest.approx(5 * less.hours)
    assert more.usd == pytest.approx(100 * 0.0005 * 8766)


def test_a_month_and_no_cost() -> None:
    month = Downtime.of(99.9, period_hours=730)
    assert (month.hours, month.usd) == (pytest.approx(0.73), 0.0)
    assert "$" not in str(month)


@pytest.mark.parametrize("arguments", [(101,), (-1,), ("high",), (0.9995,)])
def test_an_uptime_is_a_percentage(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ArgumentError, match="uptime_percent"):
        Downtime.of(*arguments)  # type: ignore[arg-type]
