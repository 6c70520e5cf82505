"""Serving at the edge: a load that is just answered, a limit that is just kept, intervals that just touch."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, RankingError
from vmselect.ranking import ServingRanking
from vmselect.ranking.serving import simulate_latencies


def offer(name: str, usd: float, **more: Any) -> dict[str, Any]:
    usual = {"provider": "lab", "region": "here", "market": "on_demand", "usd_per_hour": usd, "instance_type": name}
    return {**usual, **more}


CATALOG = vs.Catalog.embedded("2026-08-22").with_offers([offer("a", 3.6), offer("b", 3.6)])


def calls(name: str = "a", seconds: float | list[float] = 0.1, **more: Any) -> vs.InferenceRecord:
    times = seconds if isinstance(seconds, list) else [seconds] * 200
    return vs.InferenceRecord.from_times(instance_type=name, call_seconds=times, **({"batch_size": 10} | more))


def rank(*records: vs.InferenceRecord, **options: Any) -> ServingRanking:
    return vs.rank_inference(list(records or [calls()]), **({"catalog": CATALOG} | options))


def test_a_load_as_large_as_the_capacity_is_never_worked_off() -> None:
    assert rank(load=99.9, instances=1).best.instances == 1
    (excluded,) = rank(load=100, instances=1).excluded
    assert excluded.reason == "with 1 instance, the most allowed, it answers 100 of 100 items/s"
    (excluded,) = rank(load=1000).excluded
    assert excluded.reason == "with 10 instances, the most allowed, it answers 1,000 of 1,000 items/s"
    assert rank(load=999).best.instances == 10


@pytest.mark.parametrize(("load", "instances"), [(99, 1), (100, 2), (199, 2), (200, 3), (950, 10)])
def test_a_load_takes_the_fewest_instances_that_answer_it(load: float, instances: int) -> None:
    row = rank(load=load).best
    assert (row.instances, row.hourly_usd) == (instances, pytest.approx(3.6 * instances))


def test_no_fewer_instances_than_asked_for() -> None:
    assert rank(load=10, instances=(3, 5)).best.instances == 3
    assert rank(load=10, instances=4).best.hourly_usd == pytest.approx(4 * 3.6)
    assert rank(instances=(2, 5)).best.instances == 2


@pytest.mark.parametrize(
    ("instances", "fits"), [(10_000, True), (10_001, False), (1, True), (0, False), ((2, 2), True)]
)
def test_how_many_instances_there_may_be(instances: Any, fits: bool) -> None:
    if fits:
        assert rank(instances=instances)
    else:
        with pytest.raises(ArgumentError):
            rank(instances=instances)


def test_a_limit_on_latency_may_be_reached_and_not_passed() -> None:
    assert rank(latency_limit_seconds=0.1).best.latency_seconds == pytest.approx(0.1)
    (excluded,) = rank(latency_limit_seconds=0.09).excluded
    assert excluded.reason == "its 99th percentile of latency is 100 ms, over the limit of 90 ms"
    alone = rank(load=1e-6, latency_limit_seconds=0.1 + 1e-12).best  # nobody waits at such a load
    assert alone.latency_seconds == pytest.approx(0.1)
    (excluded,) = rank(load=999, latency_limit_seconds=0.2).excluded
    assert excluded.reason_code == "over_latency"
    assert "with 10 instances, the most allowed, its 99th percentile of latency is" in excluded.reason


def test_what_a_million_items_cost_and_how_sure_that_is() -> None:
    row = rank().best
    million = 3.6 / 3600 / 100 * 1e6  # 100 items a second
    assert row.usd_per_million_items == pytest.approx(million)
    assert (row.items_per_second_low, row.items_per_second_high) == pytest.approx((99, 101))  # one percent at least
    assert (row.usd_per_million_low, row.usd_per_million_high) == pytest.approx((million / 1.01, million / 0.99))
    assert row.items_per_usd == pytest.approx(1e6 / million)
    assert row.cost_usd(5e5) == pytest.approx(million / 2)


def test_repetitions_tell_how_sure_a_capacity_is() -> None:
    row = rank(calls(seconds=10 / 90), calls(seconds=10 / 110)).best  # 90 and 110 items a second
    width = 2 * math.sqrt(200) / math.sqrt(2)  # two standard errors of their mean
    assert row.items_per_second == pytest.approx(100)
    assert (row.items_per_second_low, row.items_per_second_high) == pytest.approx((100 - width, 100 + width))


def test_a_single_record_tells_it_by_its_calls() -> None:
    row = rank(calls(seconds=[0.05, 0.15] * 200)).best
    deviation = 0.05 * math.sqrt(400 / 399)
    width = 100 * 2 * deviation / 0.1 / math.sqrt(400)
    assert (row.items_per_second_low, row.items_per_second_high) == pytest.approx((100 - width, 100 + width))
    lone = rank(calls(seconds=[0.1])).best
    assert (lone.items_per_second_low, lone.items_per_second_high) == pytest.approx((99, 101))


def test_the_capacity_of_several_clients_under_a_load_that_was_kept_up_with() -> None:
    row = rank(calls(clients=3, rate=2.0)).best
    assert row.items_per_second == pytest.approx(300)  # three at a time, a tenth of a second for ten
    assert rank(calls(clients=3)).best.items_per_second == pytest.approx(300)


@pytest.mark.parametrize(("percent", "tied"), [(1.9, True), (2.2, False)])
def test_capacities_are_tied_while_their_intervals_touch(percent: float, tied: bool) -> None:
    ranking = rank(calls("a"), calls("b", 0.1 / (1 + percent / 100)), objective="throughput")
    best, other = ranking
    assert (best.instance_type, best.score, best.rank, other.rank) == ("b", 1.0, 1, 2)
    assert other.score == pytest.approx(1 + percent / 100)
    assert other.tied_with_best is tied
    assert ("; 1 more within its interval" in ranking.verdict) is tied


def test_equal_machines_stand_by_name() -> None:
    assert [row.instance_type for row in rank(calls("b"), calls("a"), load=10)] == ["a", "b"]
    assert [row.rank for row in rank(calls("b"), calls("a"), load=[10, 20])] == [1, 2, 1, 2]


def test_the_verdict_in_words() -> None:
    assert rank(load=150).verdict == (
        "2 x a at batch 10 for 150 items/s: $10.00 per million items, $7.20 per hour, p99 "
        + rank(load=150).verdict.rpartition("p99 ")[2]
    )
    assert rank().verdict == "a at batch 10: $10.00 per million items, $3.60 per hour, p99 100 ms"
    assert str(rank(load=1e5)) == "No machine can serve this."
    with pytest.raises(RankingError, match=r"No machine can serve this: a, batch 10: with 10 instances"):
        _ = rank(load=1e5).best


def test_where_and_at_whose_price_a_machine_is_rented() -> None:
    several = CATALOG.with_offers([offer("a", 1.0, provider="other"), offer("a", 2.0, region="there")])
    assert [row.usd_per_hour for row in rank(catalog=several)] == [1.0, 2.0, 3.6]
    assert [row.usd_per_hour for row in rank(calls(provider="lab"), catalog=several)] == [2.0, 3.6]
    assert [row.usd_per_hour for row in rank(calls(region="there"), catalog=several)] == [2.0]
    assert [row.usd_per_hour for row in rank(calls(region="there"), catalog=several, region="here")] == [1.0, 3.6]
    retired = CATALOG.with_offers([offer("a", 1.0, retired=True)])
    assert not len(rank(catalog=retired))
    assert rank(catalog=retired, include_retired=True).best.usd_per_hour == 1.0
    (excluded,) = rank(calls(region="mars")).excluded
    assert excluded.reason.startswith(
        "the catalog has no price of a in mars, only in here; run `vmselect prices refresh"
    )


def test_records_of_several_models_name_four_of_them() -> None:
    records = [calls(model=f"m{number}") for number in range(6)]
    with pytest.raises(RankingError, match=r"different models \(m0, m1, m2, m3\)"):
        rank(*records)


def test_calls_that_wait_for_their_turn() -> None:
    """Arrivals far apart wait for nobody; with clients enough, neither do those that come together."""
    assert simulate_latencies([0.5], 1e-9) == [0.5] * 5_000
    assert simulate_latencies([0.5], 1e9, clients=5_000) == pytest.approx([0.5] * 5_000)
    crowd = simulate_latencies([0.5], 1e9)  # all at once: the last waits for all before it
    assert max(crowd) == pytest.approx(0.5 * 5_000, rel=1e-6)
    two = simulate_latencies([0.5], 1e9, clients=2)
    assert max(two) == pytest.approx(0.5 * 2_500, rel=1e-6)
    assert sorted(set(simulate_latencies([0.1, 0.2, 0.3], 1e-9))) == pytest.approx([0.1, 0.2, 0.3])


def test_a_service_by_its_name() -> None:
    (excluded,) = rank(calls("none", clients=2)).excluded
    assert excluded.candidate == "none, batch 10, 2 clients"
    (excluded,) = rank(calls("none")).excluded
    assert excluded.candidate == "none, batch 10"


def test_a_cost_without_an_upper_end_is_null_in_json() -> None:
    ranking = rank(calls(seconds=0.1), calls(seconds=0.5))  # repetitions that tell next to nothing
    assert math.isinf(ranking.best.usd_per_million_high)
    (row,) = json.loads(ranking.to_json())["rows"]
    assert row["usd_per_million_high"] is None
    assert row["usd_per_million_items"] == ranking.best.usd_per_million_items


def test_two_calls_are_enough_to_tell_how_sure_a_capacity_is() -> None:
    row = rank(calls(seconds=[0.09, 0.11])).best
    width = 100 * 2 * 0.01 * math.sqrt(2) / 0.1 / math.sqrt(2)
    assert (row.items_per_second_low, row.items_per_second_high) == pytest.approx((100 - width, 100 + width))


@pytest.mark.parametrize("options", [{"load": 10}, {"objective": "latency"}, {"objective": "latency", "load": 10}])
def test_equal_machines_are_tied_where_the_objective_has_no_interval(options: dict[str, Any]) -> None:
    ranking = rank(calls("a"), calls("b"), **options)
    assert [(row.tied_with_best, row.score) for row in ranking] == [(True, 1.0), (True, 1.0)]
    assert ranking.verdict.endswith("; 1 more within its interval")


def test_what_the_fewest_and_the_most_instances_cost() -> None:
    (row,) = rank(load=[10, 20], instances=(2, 5)).cost_range().to_dict("records")
    assert (row["fewest"], row["most"]) == (2, 5)
    assert (row["hourly_usd_low"], row["hourly_usd_high"]) == pytest.approx((7.2, 18.0))
    assert (row["items_per_second_low"], row["items_per_second_high"]) == pytest.approx((200, 500))


@pytest.mark.parametrize(
    ("option", "edge", "wrong"),
    [("load", 1e-9, 0), ("load", 1e3, 1.1e12), ("percentile", 100, 100.1), ("percentile", 0.1, 0),
     ("latency_limit_seconds", 0.2, 0)],
)  # fmt: skip
def test_what_may_be_asked_of_a_service(option: str, edge: float, wrong: float) -> None:
    rank(**{option: edge})
    with pytest.raises(ArgumentError, match=option):
        rank(**{option: wrong})


def test_a_service_is_asked_for_ten_instances_at_most_and_its_99th_percentile() -> None:
    ranking = rank()
    assert (ranking.instances, ranking.percentile, ranking.objective) == ((1, 10), 99, "cost")
    with pytest.raises(ArgumentError, match="instances go from 3 to 2, which is backwards"):
        rank(instances=(3, 2))
    with pytest.raises(ArgumentError, match="instances must be a whole number"):
        rank(instances=(1, 2, 3))


def test_where_nothing_can_serve_three_machines_are_named() -> None:
    names = [f"x{number}" for number in range(5)]
    with pytest.raises(RankingError, match=r"No machine can serve this: x0.*; x1.*; x2.*") as said:
        _ = rank(*(calls(name) for name in names)).best
    assert "x3" not in str(said.value)


def test_without_a_load_the_latency_is_the_median_of_the_records() -> None:
    records = [calls(seconds=seconds) for seconds in (0.1, 0.11, 0.3)]
    assert rank(*records).best.latency_seconds == pytest.approx(0.11)


def test_batch_sizes_and_clients_are_services_of_their_own() -> None:
    ranking = rank(calls(batch_size=10), calls(batch_size=20), calls(clients=2))
    found = {(row.batch_size, row.clients): row.items_per_second for row in ranking}
    assert found == pytest.approx({(10, 1): 100.0, (20, 1): 200.0, (10, 2): 200.0})
    assert [row.rank for row in ranking] == [1, 2, 3]
