"""Moving data in and the model out, as terms of a ranking's time and cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs

CATALOG = vs.Catalog.embedded("2026-08-22").with_offers([
    {"provider": "aws", "instance_type": name, "region": "us-east-1", "market": "on_demand", "usd_per_hour": usd}
    for name, usd in (("near", 3.6), ("far", 1.8))
])  # fmt: skip
PROFILES = [
    vs.Profile.from_times(
        instance_type=name, batch_size=64, init_seconds=0.0, first_epoch_seconds=100.0, later_epoch_seconds=[100.0],
        provider="aws",
    )
    for name in ("near", "far")
]  # fmt: skip


def moved(name: str, down: float, up: float = 0.05, **more: Any) -> vs.TransferRecord:
    return vs.TransferRecord.from_times(
        instance_type=name, url="sftp://host/data", megabytes=100, download_seconds=100 * down,
        upload_seconds=100 * up, **more,
    )  # fmt: skip


RECORDS = [moved("near", 0.01), moved("far", 0.5)]


def rank(**options: Any) -> vs.Ranking:
    return vs.rank(PROFILES, epochs=10, catalog=CATALOG, method="malta-epoch", **options)


def test_moving_is_a_term_of_time_and_changes_the_winner() -> None:
    assert rank().best.instance_type == "far"
    ranking = rank(transfer=vs.Transfer(data_gb=10, model_gb=1, records=RECORDS))
    near, far = sorted(ranking, key=lambda row: row.seconds)
    assert (near.instance_type, far.instance_type) == ("near", "far")
    assert near.terms["data_in"] == pytest.approx(100)
    assert near.terms["model_out"] == pytest.approx(50)
    assert far.terms["data_in"] == pytest.approx(5000)
    assert near.seconds == pytest.approx(sum(near.terms.values())) == pytest.approx(1150)
    assert near.cost_usd == pytest.approx(1.15)
    assert near.seconds_high >= 1150 + 20
    assert ranking.best.instance_type == "near"


def test_data_that_leave_a_store_cost_money() -> None:
    plain = rank(transfer={"data_gb": 10, "download_seconds_per_mb": 0.01})
    paid = rank(transfer={"data_gb": 10, "download_seconds_per_mb": 0.01, "usd_per_gb": 0.09})
    assert paid.best.cost_usd - plain.best.cost_usd == pytest.approx(0.9)
    assert paid.best.cost_low - plain.best.cost_low == pytest.approx(0.9)
    own = rank(transfer=vs.Transfer(data_gb=10, records=[moved("near", 0.01, egress_usd_per_gb=0.2)]))
    assert own.best.cost_usd == pytest.approx((1000 + 100) / 3600 * 3.6 + 2.0)
    candidates = paid.payload()["candidates"]
    assert all(candidate["moving_usd"] == pytest.approx(0.9) for candidate in candidates)


def test_a_machine_without_a_record_is_left_out_with_the_reason() -> None:
    ranking = rank(transfer=vs.Transfer(data_gb=10, records=RECORDS[:1]))
    assert [row.instance_type for row in ranking] == ["near"]
    (excluded,) = ranking.excluded
    assert excluded.reason_code == "no_transfer"
    assert "probe_transfer" in excluded.reason
    general = vs.Transfer(data_gb=10, records=RECORDS[:1], download_seconds_per_mb=0.02)
    assert len(rank(transfer=general)) == 2
    assert len(rank(transfer=vs.Transfer(records=RECORDS[:1]))) == 2  # nothing is moved


@pytest.mark.parametrize(
    "call",
    [
        lambda: rank(transfer="s3://bucket"),
        lambda: rank(transfer={"gigabytes": 3}),
        lambda: vs.Transfer(data_gb=-1),
        lambda: vs.Transfer(data_gb=1, records=PROFILES),
        lambda: vs.Transfer(data_gb=1, usd_per_gb=float("nan")),
    ],
)
def test_what_cannot_be_used_is_an_argument_error(call: Callable[[], Any]) -> None:
    with pytest.raises(vs.errors.ArgumentError):
        call()


@settings(deadline=None, max_examples=25)
@given(st.floats(0, 1000), st.floats(1, 10), st.permutations(range(4)))
def test_more_data_never_take_less_and_order_changes_nothing(size: float, factor: float, order: list[int]) -> None:
    records = [*RECORDS, moved("near", 0.02), moved("far", 0.6)]
    less, more, other = (
        {row.instance_type: row for row in rank(transfer=vs.Transfer(data_gb=gb, records=some, usd_per_gb=0.1))}
        for gb, some in ((size, records), (size * factor, records), (size, [records[i] for i in order]))
    )
    for name, row in less.items():
        assert more[name].seconds >= row.seconds
        assert more[name].cost_usd >= row.cost_usd
        assert other[name].seconds == pytest.approx(row.seconds)


def test_rank_refuses_inference_records() -> None:
    calls = vs.InferenceRecord.from_times(instance_type="near", call_seconds=[0.1] * 200, batch_size=10)
    for records in (calls, [calls], [*PROFILES, calls]):
        with pytest.raises(vs.errors.ArgumentError, match="rank_inference"):
            vs.rank(records, catalog=CATALOG)
