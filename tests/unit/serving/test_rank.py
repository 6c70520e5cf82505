"""Choosing a machine to serve: capacity, latency under a load, instances and prices."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from tests.support.priced import OFFER, prices
from vmselect.errors import RankingError, VmselectError
from vmselect.records import InferenceRecord
from vmselect.records.inference import percentile_of
from vmselect.serving.rank import ServingRanking, simulate_latencies

CATALOG = prices(("a", 3.6), ("b", 3.6), ("small", 0.36), ("big", 3.6)).with_offers(
    [{**OFFER, "instance_type": "big", "market": "spot", "usd_per_hour": 1.8}]
)


def calls(name: str = "a", seconds: float | list[float] = 0.1, **more: Any) -> InferenceRecord:
    times = seconds if isinstance(seconds, list) else [seconds] * 200
    return InferenceRecord.from_times(instance_type=name, call_seconds=times, **({"batch_size": 10} | more))


def rank(*records: InferenceRecord, **options: Any) -> ServingRanking:
    return vs.serving.rank_inference(list(records or [calls()]), **({"catalog": CATALOG} | options))


PAIR = (calls("small", 0.1), calls("big", 0.02))  # 100 and 500 items per second


def test_the_cost_of_a_million_items_and_its_interval() -> None:
    row = rank().best
    million = 3.6 / 3600 / 100 * 1e6
    assert row.usd_per_million_items == pytest.approx(million)
    assert (row.items_per_second_low, row.items_per_second_high) == pytest.approx((99, 101))  # one percent at least
    assert (row.usd_per_million_low, row.usd_per_million_high) == pytest.approx((million / 1.01, million / 0.99))
    assert (row.items_per_usd, row.cost_usd(5e5).value) == pytest.approx((1e6 / million, million / 2))
    assert row.cost_usd(5e5).high == pytest.approx(row.usd_per_million_high / 2)


def test_an_unbounded_cost_is_null_in_json() -> None:
    ranking = rank(calls(seconds=0.1), calls(seconds=0.5))  # repetitions that differ too much for a bound
    assert math.isinf(ranking.best.usd_per_million_high)
    (row,) = json.loads(ranking.to_json())["rows"]
    assert row["usd_per_million_high"] is None
    assert row["usd_per_million_items"] == ranking.best.usd_per_million_items


@pytest.mark.parametrize(
    ("records", "rate", "half_width"),
    [
        ([calls(seconds=10 / 90), calls(seconds=10 / 110)], 100, 2 * math.sqrt(200) / math.sqrt(2)),  # 90 and 110
        ([calls(seconds=[0.05, 0.15] * 200)], 100, 100 * math.sqrt(400 / 399) / math.sqrt(400)),
        ([calls(seconds=[0.09, 0.11])], 100, 100 * 0.2),
        ([calls(seconds=[0.1])], 100, 1),
        ([calls(clients=3)], 300, 3),
        ([calls(clients=3, rate=2.0)], 300, 3),  # a load that was kept up with: by the service times
    ],
)
def test_capacity_and_its_interval(records: list[InferenceRecord], rate: float, half_width: float) -> None:
    row = rank(*records).best
    capacity = (row.items_per_second, row.items_per_second_low, row.items_per_second_high)
    assert capacity == pytest.approx((rate, rate - half_width, rate + half_width))


def test_repetitions_join_and_a_copy_counts_once() -> None:
    opened = calls(seconds=[0.1] * 50, rate=2.0)
    assert len(rank(calls(), opened)) == 1
    uneven = calls(seconds=[0.05, 0.15] * 10)
    assert rank(uneven, uneven).best == rank(uneven).best
    latencies = [calls(seconds=seconds) for seconds in (0.1, 0.11, 0.3)]
    assert rank(*latencies).best.latency_seconds == pytest.approx(0.11)  # the median


def test_batch_sizes_and_clients_are_separate_services() -> None:
    ranking = rank(calls(batch_size=10), calls(batch_size=20), calls(clients=2))
    capacities = {(row.batch_size, row.clients): row.items_per_second for row in ranking}
    assert capacities == pytest.approx({(10, 1): 100.0, (20, 1): 200.0, (10, 2): 200.0})
    assert [row.rank for row in ranking] == [1, 2, 3]


def test_the_objective_orders_the_machines() -> None:
    orders = {
        aim: [row.instance_type for row in rank(*PAIR, objective=aim)] for aim in ("cost", "latency", "throughput")
    }
    assert orders == {"cost": ["small", "big"], "latency": ["big", "small"], "throughput": ["big", "small"]}
    defaults = rank()
    assert (defaults.instances, defaults.percentile, defaults.objective) == ((1, 10), 99, "cost")


@pytest.mark.parametrize(("percent", "tied"), [(1.9, True), (2.2, False)])
def test_capacities_are_tied_while_their_intervals_touch(percent: float, tied: bool) -> None:
    ranking = rank(calls("a"), calls("b", 0.1 / (1 + percent / 100)), objective="throughput")
    best, other = ranking
    assert (best.instance_type, best.score, best.rank, other.rank) == ("b", 1.0, 1, 2)
    assert other.score == pytest.approx(1 + percent / 100)
    assert other.tied_with_best is tied


@pytest.mark.parametrize("options", [{"load": 10}, {"objective": "latency"}, {"objective": "latency", "load": 10}])
def test_equal_machines_are_tied_and_ordered_by_name(options: dict[str, Any]) -> None:
    ranking = rank(calls("b"), calls("a"), **options)
    assert [(row.instance_type, row.tied_with_best, row.score) for row in ranking] == [
        ("a", True, 1.0),
        ("b", True, 1.0),
    ]


@pytest.mark.parametrize(("load", "instances"), [(99.9, 1), (100, 2), (199, 2), (200, 3), (950, 10), (999, 10)])
def test_a_load_takes_the_fewest_instances_that_answer_it(load: float, instances: int) -> None:
    row = rank(load=load).best
    assert (row.instances, row.hourly_usd) == (instances, pytest.approx(3.6 * instances))


def test_several_loads_are_ranked_one_by_one_and_the_last_decides() -> None:
    ranking = rank(*PAIR, load=[50, 450])
    assert {(row.load, row.instance_type): row.instances for row in ranking} == {
        (450, "small"): 5, (450, "big"): 1, (50, "small"): 1, (50, "big"): 1,
    }  # fmt: skip
    assert ranking.best.load == 450
    assert [row.rank for row in ranking] == [1, 2, 1, 2]


def test_a_load_over_the_capacity_excludes_a_machine() -> None:
    over = rank(*PAIR, load=2000)
    assert [row.instance_type for row in over] == ["big"]
    assert [excluded.reason_code for excluded in over.excluded] == ["over_capacity"]
    assert [excluded.reason_code for excluded in rank(load=100, instances=1).excluded] == ["over_capacity"]
    (excluded,) = rank(load=1000).excluded
    assert "10 instances" in excluded.reason
    assert excluded.reason.count("1,000") == 2


def test_no_fewer_instances_than_requested() -> None:
    assert rank(load=10, instances=(3, 5)).best.instances == 3
    assert rank(load=10, instances=4).best.hourly_usd == pytest.approx(4 * 3.6)
    assert rank(instances=(2, 5)).best.instances == 2
    assert rank(instances=10_000).best.instances == 10_000


def test_a_latency_limit_takes_more_instances_or_another_machine() -> None:
    free, bound = (rank(load=90, latency_limit_seconds=limit).best for limit in (None, 0.2))
    assert (free.instances, free.latency_seconds > 0.2) == (1, True)  # nine tenths busy: calls wait
    assert bound.instances > 1
    assert bound.latency_seconds <= 0.2
    tight = rank(*PAIR, load=90, latency_limit_seconds=0.05)
    assert [row.instance_type for row in tight] == ["big"]
    assert tight.excluded[0].reason_code == "over_latency"


def test_a_latency_limit_may_be_reached_and_not_passed() -> None:
    assert rank(latency_limit_seconds=0.1).best.latency_seconds == pytest.approx(0.1)
    (excluded,) = rank(latency_limit_seconds=0.09).excluded
    assert excluded.reason_code == "over_latency"
    assert "100 ms" in excluded.reason
    alone = rank(load=1e-6, latency_limit_seconds=0.1 + 1e-12).best  # no call waits at such a load
    assert alone.latency_seconds == pytest.approx(0.1)
    (excluded,) = rank(load=999, latency_limit_seconds=0.2).excluded
    assert excluded.reason_code == "over_latency"


def test_the_cost_range_spans_the_fewest_and_the_most_instances() -> None:
    (row,) = rank(load=[10, 20], instances=(2, 5)).cost_range().to_dict("records")
    assert (row["fewest"], row["most"]) == (2, 5)
    assert (row["hourly_usd_low"], row["hourly_usd_high"]) == pytest.approx((7.2, 18.0))
    assert (row["items_per_second_low"], row["items_per_second_high"]) == pytest.approx((200, 500))


def test_the_verdict() -> None:
    for text in ("2 x a", "150 items/s", "$13.33", "$7.20", "p99"):
        assert text in rank(load=150).verdict
    assert all(text in rank().verdict for text in ("$3.60", "100 ms"))
    assert not rank(load=1e5)
    with pytest.raises(RankingError, match=r"x0.*; x1.*; x2.*") as raised:
        _ = rank(*(calls(f"x{number}") for number in range(5))).best
    assert "x3" not in str(raised.value)


def test_offers_are_matched_by_provider_region_market_and_retirement() -> None:
    others = [{"provider": "other", "usd_per_hour": 1.0}, {"region": "there", "usd_per_hour": 2.0}]
    several = CATALOG.with_offers([{**OFFER, "instance_type": "a", **other} for other in others])

    def prices_of(record: InferenceRecord, **options: Any) -> list[float]:
        return [row.usd_per_hour for row in rank(record, **({"catalog": several} | options))]

    assert prices_of(calls()) == [1.0, 2.0]  # the cheapest region of each provider
    assert prices_of(calls(), region="all") == [1.0, 2.0, 3.6]
    assert prices_of(calls(provider="lab"), region="all") == [2.0, 3.6]
    assert prices_of(calls(region="there")) == [2.0]
    assert prices_of(calls(region="there"), region="here") == [1.0, 3.6]
    assert prices_of(calls("big"), market="all") == [1.8, 3.6]
    retired = CATALOG.with_offers([{**OFFER, "instance_type": "a", "usd_per_hour": 1.0, "retired": True}])
    assert prices_of(calls(), catalog=retired) == []
    assert prices_of(calls(), catalog=retired.where(retired=True)) == [1.0]


def test_a_machine_that_served_without_its_gpu_is_excluded() -> None:
    gpu = CATALOG.with_offers([{**OFFER, "instance_type": "a", "usd_per_hour": 1.0, "gpu_model": "T4", "gpu_count": 1}])
    seen = calls().environment.model_copy(update={"framework_gpus": 0})
    on_cpu = calls().model_copy(update={"environment": seen, "outcome": "whole"})
    assert [exclusion.reason_code for exclusion in rank(on_cpu, catalog=gpu).excluded] == ["unused_gpu"]
    assert rank(calls(), catalog=gpu).best.instance_type == "a"  # given times: not known


def test_a_record_that_cannot_be_ranked_is_excluded() -> None:
    named = calls()
    unknown = named.model_copy(update={"placement": named.placement.model_copy(update={"instance_type": None})})
    ranking = rank(*PAIR, unknown, calls("none", clients=2), calls("a", region="mars"))
    codes = {excluded.candidate: excluded.reason_code for excluded in ranking.excluded}
    assert sorted(codes.values()) == ["no_price", "no_price", "unknown_instance_type"]
    assert codes["none, batch 10, 2 clients"] == codes["a, batch 10"] == "no_price"
    content = json.loads(ranking.to_json())
    assert (len(content["rows"]), len(ranking.to_frame()), len(content["excluded"])) == (2, 2, 3)
    assert [e.reason_code for e in rank(calls("small"), market="spot").excluded] == ["no_price"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"records": []}, "record"), ({"records": "records/"}, "record"), ({"records": [1]}, "record"),
        ({"records": [calls(model=f"m{number}") for number in range(6)]}, r"models \(m0, m1, m2, m3\)"),
        ({"load": 0}, "load"), ({"load": 1.1e12}, "load"), ({"percentile": 0}, "percentile"),
        ({"percentile": 100.1}, "percentile"), ({"latency_limit_seconds": 0}, "latency_limit_seconds"),
        ({"instances": (3, 2)}, "instances"), ({"instances": (1, 2, 3)}, "instances"), ({"instances": 0}, "instances"),
        ({"instances": 10_001}, "instances"), ({"objective": "beauty"}, "objective"), ({"catalog": "a.csv"}, "catalog"),
    ],
)  # fmt: skip
def test_an_invalid_argument_is_refused_by_name(options: dict[str, Any], match: str) -> None:
    with pytest.raises(VmselectError, match=match):
        vs.serving.rank_inference(**({"records": PAIR} | options))


# -- queues ------------------------------------------------------------------------------------------------------------

services = st.lists(st.floats(0.001, 2.0), min_size=1, max_size=30)


def test_calls_wait_for_their_turn() -> None:
    """Arrivals far apart wait for no other; with enough clients, neither do those that come together."""
    assert simulate_latencies([0.5], 1e-9) == [0.5] * 5_000
    assert simulate_latencies([0.5], 1e9, clients=5_000) == pytest.approx([0.5] * 5_000)
    crowd = simulate_latencies([0.5], 1e9)  # all at once: the last waits for all before it
    assert max(crowd) == pytest.approx(0.5 * 5_000, rel=1e-6)
    two = simulate_latencies([0.5], 1e9, clients=2)
    assert max(two) == pytest.approx(0.5 * 2_500, rel=1e-6)
    assert sorted(set(simulate_latencies([0.1, 0.2, 0.3], 1e-9))) == pytest.approx([0.1, 0.2, 0.3])


@settings(deadline=None, max_examples=50)
@given(services, st.floats(0.01, 50), st.floats(1, 10), st.integers(1, 4), st.floats(1, 100))
def test_a_higher_rate_never_lowers_a_percentile(
    seconds: list[float], rate: float, factor: float, clients: int, percent: float
) -> None:
    slow, fast = (simulate_latencies(seconds, r, clients=clients) for r in (rate, rate * factor))
    # Hours after the start, times are exact to a billionth of a second.
    assert percentile_of(fast, percent) >= percentile_of(slow, percent) - 1e-9 * (1 + max(slow))


@settings(deadline=None, max_examples=20)
@given(services, st.floats(0.01, 50), st.randoms(use_true_random=False))
def test_the_order_of_service_times_changes_nothing(seconds: list[float], rate: float, random: Any) -> None:
    shuffled = list(seconds)
    random.shuffle(shuffled)
    assert simulate_latencies(seconds, rate) == simulate_latencies(shuffled, rate)


@settings(deadline=None, max_examples=20)
@given(services, st.floats(0.01, 20), st.integers(1, 4))
def test_more_clients_never_lengthen_the_longest_wait(seconds: list[float], rate: float, clients: int) -> None:
    more = simulate_latencies(seconds, rate, clients=clients + 1)
    assert max(more) <= max(simulate_latencies(seconds, rate, clients=clients)) + 1e-9
    assert min(more) >= min(seconds) - 1e-9


@settings(deadline=None, max_examples=10)
@given(
    st.permutations(range(4)), st.lists(st.floats(1, 500), min_size=2, max_size=2), st.floats(0, 1e9), st.floats(1, 9)
)
def test_a_higher_load_never_costs_less_and_order_changes_nothing(
    order: list[int], loads: list[float], items: float, factor: float
) -> None:
    records = [*PAIR, calls("small", 0.12), calls("big", 0.03, clients=2)]
    lower, higher = (rank(*records, load=load, instances=(1, 100)) for load in sorted(loads))
    shuffled = rank(*(records[i] for i in order), load=min(loads), instances=(1, 100))
    assert shuffled.to_json() == lower.to_json()
    by = {(row.instance_type, row.clients): row.hourly_usd for row in lower}
    assert all(row.hourly_usd >= by[row.instance_type, row.clients] for row in higher)
    assert lower.best.cost_usd(items * factor) >= lower.best.cost_usd(items)


@settings(max_examples=25, deadline=None)
@given(load=st.floats(0.5, 900))
def test_the_cost_at_a_load_is_that_of_the_rented_instances(load: float) -> None:
    ranking = rank(load=load, instances=(1, 100))
    row = ranking.best
    assert row.usd_per_million_items == pytest.approx(row.instances * row.usd_per_hour / 3600 / load * 1e6)
    assert row.usd_per_million_items >= rank().best.usd_per_million_items * (1 - 1e-9)  # never cheaper than saturated
    assert row.usd_per_million_low <= row.usd_per_million_items <= row.usd_per_million_high
    assert row.hourly_low <= row.hourly_usd <= row.hourly_high


def test_an_uncertain_capacity_is_an_uncertain_bill() -> None:
    noisy = [calls(seconds=seconds) for seconds in (0.08, 0.1, 0.12)]
    row = rank(*noisy, load=95, instances=(1, 10)).best
    assert row.hourly_low < row.hourly_high
    assert "uncertain-instances" in [finding.code for finding in row.findings]
    (part,) = vs.serving.Bill.of(endpoint=row).parts
    assert (part.low, part.usd, part.high) == (row.hourly_low, row.hourly_usd, row.hourly_high)
    month = vs.serving.Bill.of(items=row.cost_usd(3e6))
    assert month.low < month.high
    tight = rank(*noisy, load=95, instances=(1, 1))
    codes = [finding.code for row in tight for finding in row.findings]
    assert "may-exceed-capacity" in codes or not len(tight)
