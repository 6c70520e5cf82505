"""Choosing a machine to serve: capacity, latency under a load, instances, prices, bills."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from vmselect.ranking.serving import simulate_latencies
from vmselect.records.latency_histogram import percentile


def offer(name: str, usd: float, **more: Any) -> dict[str, Any]:
    return {"provider": "aws", "instance_type": name, "region": "us-east-1", "market": "on_demand",
            "usd_per_hour": usd, **more}  # fmt: skip


CATALOG = vs.Catalog.embedded("2026-08-22").with_offers(
    [offer("small", 0.36), offer("big", 3.6), offer("big", 1.8, market="spot")]
)


def times(name: str, seconds: float, **more: Any) -> vs.InferenceRecord:
    return vs.InferenceRecord.from_times(instance_type=name, call_seconds=[seconds] * 200, batch_size=10, **more)


RECORDS = [times("small", 0.1), times("big", 0.02)]


def test_cost_per_million_items_and_items_per_dollar() -> None:
    ranking = vs.rank_inference(RECORDS, catalog=CATALOG)
    best = ranking.best
    assert (best.instance_type, best.items_per_second) == ("small", pytest.approx(100))
    assert best.usd_per_million_items == pytest.approx(1e6 / 100 / 3600 * 0.36)
    assert best.items_per_usd == pytest.approx(1e6)
    assert best.cost_usd(2e6) == pytest.approx(2 * best.usd_per_million_items)
    assert best.usd_per_million_low < best.usd_per_million_items < best.usd_per_million_high
    assert [row.instance_type for row in vs.rank_inference(RECORDS, catalog=CATALOG, objective="throughput")] == [
        "big", "small"]  # fmt: skip
    assert vs.rank_inference(RECORDS, catalog=CATALOG, objective="latency").best.instance_type == "big"
    assert len(vs.rank_inference(RECORDS, catalog=CATALOG, market="all")) == 3
    assert "per million items" in ranking.verdict


def test_a_load_takes_as_many_instances_as_answer_it() -> None:
    ranking = vs.rank_inference(RECORDS, load=[50, 450], catalog=CATALOG)
    at = {(row.load, row.instance_type): row for row in ranking}
    assert ranking.best.load == 450
    assert at[450.0, "small"].instances == 5
    assert at[450.0, "small"].hourly_usd == pytest.approx(1.8)
    assert at[450.0, "big"].instances == 1
    assert at[50.0, "small"].instances == 1
    over = vs.rank_inference(RECORDS, load=2000, catalog=CATALOG)
    assert [row.instance_type for row in over] == ["big"]
    (excluded,) = over.excluded
    assert excluded.reason_code == "over_capacity"
    with pytest.raises(vs.errors.RankingError, match="No machine can serve this"):
        _ = vs.rank_inference(RECORDS, load=1e6, catalog=CATALOG).best


def test_a_limit_on_latency_takes_more_instances_or_another_machine() -> None:
    free = vs.rank_inference(RECORDS[:1], load=90, catalog=CATALOG).best
    bound = vs.rank_inference(RECORDS[:1], load=90, catalog=CATALOG, latency_limit_seconds=0.2).best
    assert free.instances == 1
    assert free.latency_seconds > 0.2  # nine tenths busy: calls wait
    assert bound.instances > 1
    assert bound.latency_seconds <= 0.2
    tight = vs.rank_inference(RECORDS, load=90, catalog=CATALOG, latency_limit_seconds=0.05)
    assert [row.instance_type for row in tight] == ["big"]
    assert tight.excluded[0].reason_code == "over_latency"
    assert vs.rank_inference(RECORDS, catalog=CATALOG, latency_limit_seconds=0.05).best.instance_type == "big"


def test_a_range_of_instances_is_a_range_of_cost() -> None:
    frame = vs.rank_inference(RECORDS, catalog=CATALOG, instances=(1, 10)).cost_range().set_index("instance_type")
    assert frame.loc["small", "hourly_usd_low"] == pytest.approx(0.36)
    assert frame.loc["small", "hourly_usd_high"] == pytest.approx(3.6)
    assert frame.loc["small", "items_per_second_high"] == pytest.approx(1000)


def test_repetitions_join_and_open_loops_count_by_their_service() -> None:
    opened = vs.InferenceRecord.from_times(instance_type="small", call_seconds=[0.1] * 50, batch_size=10, rate=2.0)
    (row,) = vs.rank_inference([RECORDS[0], opened], catalog=CATALOG)
    assert row.items_per_second == pytest.approx(100)
    two = vs.rank_inference([times("small", 0.1), times("small", 0.11)], catalog=CATALOG).best
    assert two.items_per_second_low < 91 < 100 < two.items_per_second_high


def test_a_record_given_twice_counts_once() -> None:
    calls = {"instance_type": "small", "batch_size": 10}
    uneven = vs.InferenceRecord.from_times(call_seconds=[0.05, 0.15] * 10, **calls)
    once, twice = (vs.rank_inference(records, catalog=CATALOG).best for records in ([uneven], [uneven, uneven]))
    assert twice == once
    assert once.items_per_second_high - once.items_per_second_low > 0.1 * once.items_per_second


def test_what_cannot_be_ranked_is_left_out_with_its_reason() -> None:
    unknown = times("small", 0.1).model_copy(update={"placement": RECORDS[0].placement.model_copy(
        update={"instance_type": None})})  # fmt: skip
    ranking = vs.rank_inference([*RECORDS, unknown, times("my-pc", 0.1)], catalog=CATALOG)
    assert {left.reason_code for left in ranking.excluded} == {"unknown_instance_type", "no_price"}
    content = json.loads(ranking.to_json())
    assert len(content["rows"]) == len(ranking.to_frame()) == 2
    assert len(content["excluded"]) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: vs.rank_inference([]),
        lambda: vs.rank_inference("records/"),
        lambda: vs.rank_inference([1]),
        lambda: vs.rank_inference(RECORDS, load=0),
        lambda: vs.rank_inference(RECORDS, percentile=0),
        lambda: vs.rank_inference(RECORDS, instances=(5, 1)),
        lambda: vs.rank_inference(RECORDS, instances=(1, 2, 3)),
        lambda: vs.rank_inference(RECORDS, objective="beauty"),
        lambda: vs.rank_inference(RECORDS, catalog="prices.csv"),
        lambda: vs.rank_inference([times("a", 1, model="x"), times("a", 1, model="y")]),
        lambda: vs.Bill.of(x="much"),
        lambda: vs.Bill.of(x=-1),
        lambda: vs.Bill.of(x=(3, 2, 1)),
    ],
)
def test_what_cannot_be_used_is_said(call: Callable[[], Any]) -> None:
    with pytest.raises(vs.errors.VmselectError):
        call()


# -- laws --------------------------------------------------------------------------------------------------------------

services = st.lists(st.floats(0.001, 2.0), min_size=1, max_size=30)


@settings(deadline=None, max_examples=50)
@given(services, st.floats(0.01, 50), st.floats(1, 10), st.integers(1, 4), st.floats(1, 100))
def test_a_higher_rate_never_lowers_a_percentile(
    seconds: list[float], rate: float, factor: float, clients: int, percent: float
) -> None:
    slow, fast = (simulate_latencies(seconds, r, clients=clients) for r in (rate, rate * factor))
    # Moments hours after the start are told apart to a billionth of a second.
    assert percentile(fast, percent) >= percentile(slow, percent) - 1e-9 * (1 + max(slow))


@settings(deadline=None, max_examples=50)
@given(services, st.floats(0.01, 50), st.randoms(use_true_random=False))
def test_the_order_of_calls_changes_nothing(seconds: list[float], rate: float, rnd: Any) -> None:
    shuffled = list(seconds)
    rnd.shuffle(shuffled)
    assert simulate_latencies(seconds, rate) == simulate_latencies(shuffled, rate)


@settings(deadline=None, max_examples=20)
@given(services, st.floats(0.01, 20), st.integers(1, 4))
def test_one_queue_by_loop_and_by_formula(seconds: list[float], rate: float, clients: int) -> None:
    more = simulate_latencies(seconds, rate, clients=clients + 1)
    assert max(more) <= max(simulate_latencies(seconds, rate, clients=clients)) + 1e-9
    assert min(more) >= min(seconds) - 1e-9


@settings(deadline=None, max_examples=10)
@given(
    st.permutations(range(4)), st.lists(st.floats(1, 500), min_size=2, max_size=2), st.floats(0, 1e9), st.floats(1, 9)
)
def test_permutations_change_nothing_and_more_is_never_cheaper(
    order: list[int], loads: list[float], items: float, factor: float
) -> None:
    records = [*RECORDS, times("small", 0.12), times("big", 0.03, clients=2)]
    ranking = vs.rank_inference(records, load=min(loads), catalog=CATALOG, instances=(1, 100))
    assert vs.rank_inference([records[i] for i in order], load=min(loads), catalog=CATALOG,
                             instances=(1, 100)).to_json() == ranking.to_json()  # fmt: skip
    higher = vs.rank_inference(records, load=max(loads), catalog=CATALOG, instances=(1, 100))
    by = {(r.instance_type, r.clients): r.hourly_usd for r in ranking}
    assert all(r.hourly_usd >= by[r.instance_type, r.clients] for r in higher)
    assert ranking.best.cost_usd(items * factor) >= ranking.best.cost_usd(items)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=10), st.floats(0, 100))
def test_a_bill_is_the_sum_of_its_parts(amounts: list[float], factor: float) -> None:
    bill = vs.Bill.of({f"part {number}": usd for number, usd in enumerate(amounts)})
    assert bill.total == pytest.approx(sum(amounts))
    assert bill.times(factor).total == pytest.approx(sum(amounts) * factor)
    assert (bill + bill).total == pytest.approx(2 * bill.total)
    assert bill.to_frame()["usd"].sum() == pytest.approx(bill.total)
