"""Bills of several services."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from tests.support.rankings import rank
from vmselect.errors import ArgumentError
from vmselect.serving import Bill


def test_a_bill_shows_a_range_only_where_there_is_one() -> None:
    assert str(vs.serving.Bill.of(disk=1.5)) == "$1.50: disk $1.50"
    assert str(vs.serving.Bill.of(disk=(1.0, 1.5, 2.0))) == "$1.50 ($1.00 to $2.00): disk $1.50"
    assert vs.serving.Bill.of(disk=(1.0, 1.0, 1.0)).high == 1.0


def test_a_part_may_be_a_row_of_a_ranking() -> None:
    row = rank().best
    (part,) = vs.serving.Bill.of(training=row).parts
    assert (part.usd, part.low, part.high, part.detail) == (row.cost_usd, row.cost_low, row.cost_high, "small")
    serving = SimpleNamespace(hourly_usd=0.5, hourly_low=0.4, hourly_high=0.7, instance_type="b")
    (hour,) = vs.serving.Bill.of(endpoint=serving).parts
    assert (hour.usd, hour.low, hour.high, hour.detail) == (0.5, 0.4, 0.7, "b")


@pytest.mark.parametrize(
    "wrong", ["much", -1, (1.0, 1.5), (1.0, 1.5, 2.0, 2.5), (1.0, 0.9, 2.0), (1.0, 2.1, 2.0), (3, 2, 1)]
)
def test_a_part_without_a_cost_is_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="disk"):
        vs.serving.Bill.of(disk=wrong)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=10), st.floats(0, 100))
def test_a_bill_is_the_sum_of_its_parts(amounts: list[float], factor: float) -> None:
    bill = vs.serving.Bill.of({f"part {number}": usd for number, usd in enumerate(amounts)})
    assert bill.total == pytest.approx(sum(amounts))
    assert bill.times(factor).total == pytest.approx(sum(amounts) * factor)
    assert (bill + bill).total == pytest.approx(2 * bill.total)
    assert bill.to_frame()["usd"].sum() == pytest.approx(bill.total)


def test_disk_and_monitoring_are_charged_by_the_share_of_a_month() -> None:
    bill = Bill.rented(730.5, disk_gib=100, usd_per_gib_month=0.08, metrics=10, usd_per_metric_month=0.3)
    assert [(part.name, part.usd) for part in bill.parts] == [
        ("disk", pytest.approx(8.0)),
        ("monitoring", pytest.approx(3.0)),
    ]
    assert Bill.rented(73.05, disk_gib=100, usd_per_gib_month=0.08).total == pytest.approx(0.8)
    assert Bill.rented(1).parts == ()
    assert Bill.rented(1, metrics=10, usd_per_metric_month=0).total == 0


@pytest.mark.parametrize("used", ["disk_gib", "metrics"])
def test_what_is_used_needs_a_price(used: str) -> None:
    with pytest.raises(ArgumentError, match=used):
        Bill.rented(1, **{used: 100})


def test_another_currency_needs_a_stated_factor() -> None:
    text = Bill.of(training=(1.0, 2.0, 3.0)).text_in("EUR", per_usd=0.5)
    assert text == "1.00 EUR (0.50 to 1.50) (at 0.5 EUR per USD): training 1.00"
    assert Bill.of(disk=0.01).text_in("EUR", per_usd=0.92) == "0.0092 EUR (at 0.92 EUR per USD): disk 0.0092"
    with pytest.raises(ArgumentError, match="per_usd"):
        Bill.of(training=1.0).text_in("EUR", per_usd=0)
