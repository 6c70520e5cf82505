"""Views across epochs and machines, against lines whose crossings are known."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, RankingError
from vmselect.records import Setup


def line(name: str, intercept: float, slope: float, **changes: Any) -> vs.Profile:
    return vs.Profile.from_times(
        instance_type=name, init_seconds=intercept, first_epoch_seconds=slope, later_epoch_seconds=[slope], **changes
    )


def prices(*, provider: str = "lab", **usd_per_hour: float) -> vs.Catalog:
    return vs.Catalog.embedded("2026-08-22").with_offers(
        [
            {
                "provider": provider,
                "instance_type": name,
                "region": "here",
                "market": "on_demand",
                "usd_per_hour": price,
            }
            for name, price in usd_per_hour.items()
        ]
    )


def rank(profiles: list[vs.Profile], catalog: vs.Catalog, **options: Any) -> vs.Ranking:
    return vs.rank(profiles, **({"epochs": [5, 10, 20], "catalog": catalog, "method": "malta-epoch"} | options))


LINES = [line("a", 0, 10), line("b", 45, 5), line("c", 150, 2)]
EQUAL = prices(a=1, b=1, c=1)


def test_relative_is_the_dissertations_table() -> None:
    table = rank(LINES, EQUAL).relative("time")
    assert list(table.columns) == [5, 10, 20]
    assert table.index.name == "instance_type"
    assert list(table.index) == ["b", "c", "a"]
    assert table.min().tolist() == [1.0, 1.0, 1.0]
    assert table.loc["a"].tolist() == pytest.approx([1.0, 100 / 95, 200 / 145])


def test_relative_leaves_out_what_breaks_a_limit_at_that_epoch_count() -> None:
    table = rank(LINES, EQUAL, deadline_hours=170 / 3600).relative("cost")
    assert np.isnan(table.loc["a", 20])
    assert table.loc["a", 10] == pytest.approx(100 / 95)


def test_relative_names_more_where_instance_types_repeat() -> None:
    two = [line("a", 0, 10, batch_size=32), line("a", 0, 9, batch_size=64)]
    assert rank(two, EQUAL, batch_size="all").relative("time").index.names == ["instance_type", "batch_size"]


def test_crossovers_are_where_the_lines_meet() -> None:
    changes = rank(LINES, EQUAL).crossovers("time")
    # a = b at 9 epochs, so b is better from 10 on; b = c at 35, so c from 36 on.
    assert [(c.epochs, c.previous[0], c.winner[0]) for c in changes] == [(10, "a", "b"), (36, "b", "c")]
    assert "from 10 epochs on b" in str(changes[0])
    assert rank(LINES, EQUAL).crossovers("time", up_to=20) == changes[:1]


def test_crossovers_of_cost_use_prices() -> None:
    changes = rank(LINES[:2], prices(a=1, b=1.5)).crossovers("cost")
    # 10 n = 1.5 (45 + 5 n) at 27 epochs.
    assert [c.epochs for c in changes] == [28]


def test_the_order_is_settled_after_the_last_crossing() -> None:
    assert rank(LINES, EQUAL).settled_from("time") == 36
    assert rank(LINES[:1], EQUAL).settled_from("time") == 1
    # The crossing that is not about the winner counts too.
    loser = line("c", 1000, 9.9)
    assert rank([*LINES[:2], loser], EQUAL).settled_from("time") == 10_001


def test_crossovers_match_counting_epoch_by_epoch() -> None:
    random = np.random.default_rng(5)
    for _ in range(20):
        names = [f"m{i}" for i in range(8)]
        lines = [line(n, float(random.uniform(0, 300)), float(random.uniform(1, 20))) for n in names]
        catalog = prices(**{n: float(random.uniform(0.5, 5)) for n in names})
        ranking = rank(lines, catalog)
        everywhere = rank(lines, catalog, epochs=range(1, 201)).relative("cost")
        winners = [column.idxmin() for _, column in everywhere.items()]
        expected = [(n + 1, b) for n, (a, b) in enumerate(pairwise(winners), start=1) if a != b]
        assert [(c.epochs, c.winner.split()[0]) for c in ranking.crossovers("cost", up_to=200)] == expected


@pytest.mark.parametrize(("validation_freq", "billing"), [(5, "exact"), (1, "provider")])
def test_leaders_that_change_to_and_fro_are_all_found(validation_freq: int, billing: str) -> None:
    random = np.random.default_rng(3)
    missed = 0
    for _ in range(15):
        names = [f"m{i}" for i in range(4)]
        profiles = [stepped(name, random, validation_freq) for name in names]
        catalog = prices(**{name: float(random.uniform(1, 20)) for name in names}, provider="aws")
        ranking = rank(profiles, catalog, method="robust", billing=billing)
        table = ranking.rerank(epochs=range(1, 201)).relative("cost")
        winners = [column.idxmin() for _, column in table.items()]
        expected = [(n + 1, b) for n, (a, b) in enumerate(pairwise(winners), start=1) if a != b]
        assert [(c.epochs, c.winner.split()[0]) for c in ranking.crossovers("cost", up_to=200)] == expected
        orders = [list(column.argsort()) for _, column in table.items()]
        settled = 200 - next((n for n, order in enumerate(reversed(orders)) if order != orders[-1]), 200) + 1
        assert ranking.settled_from("cost", up_to=200) == settled
        missed += len(expected) > len({winner for _, winner in expected} | {winners[0]}) - 1
    assert missed, "no leader came back, so nothing was tested"


def stepped(name: str, random: np.random.Generator, validation_freq: int) -> vs.Profile:
    """A runtime with a step at every validation."""
    profile = vs.Profile.from_times(
        instance_type=name, batch_size=8, steps_per_epoch=10, init_seconds=float(random.uniform(1, 100)),
        first_iteration_seconds=1, iteration_seconds=[float(random.uniform(0.05, 2))] * 5,
        validation_seconds=random.uniform(1, 30, 2).tolist(),
    )  # fmt: skip
    setup = profile.setup.model_copy(update={"validation_freq": validation_freq})
    return profile.model_copy(update={"setup": setup})


def test_against_a_baseline_compares_price_and_speed() -> None:
    table = rank([line("a", 0, 38), line("b", 0, 10)], prices(a=1, b=13.6), epochs=10).against("a")
    assert table.loc["b"].tolist() == pytest.approx([13.6, 3.8, 13.6 / 3.8])
    assert table.loc["a"].tolist() == [1.0, 1.0, 1.0]
    late = rank([line("a", 0, 38), line("b", 0, 10)], prices(a=1, b=13.6), epochs=10, deadline_hours=0.05)
    assert late.against("a").loc["b", "speed_up"] == pytest.approx(3.8)
    with pytest.raises(RankingError, match="choose one of: a, b, c"):
        rank(LINES, EQUAL).against("d")


def test_inadequate_strategies_are_shown_beside_the_estimate() -> None:
    def steps(name: str, first: float, second: float, other: float) -> vs.Profile:
        return vs.Profile.from_times(
            instance_type=name, batch_size=8, steps_per_epoch=100, init_seconds=0,
            first_iteration_seconds=first, iteration_seconds=[second, *[other] * 8],
        )  # fmt: skip

    table = rank([steps("a", 1, 4, 2), steps("b", 2, 1, 3)], prices(a=1, b=2), method="robust").strategies("time")
    assert list(table.columns) == ["first_iteration", "second_iteration", "mean_2_10", "estimate"]
    assert table.loc["b", "first_iteration"] == 2.0
    assert table.loc["a", "second_iteration"] == 4.0
    assert table.loc["b", "mean_2_10"] == pytest.approx((25 / 9) / (20 / 9))
    by_cost = rank([steps("a", 1, 4, 2), steps("b", 2, 1, 3)], prices(a=1, b=2), method="robust").strategies("cost")
    assert by_cost.loc["b", "first_iteration"] == 4.0


def test_selection_cost_weighs_probes_against_full_runs() -> None:
    probe = {"steps_per_epoch": 1000, "first_iteration_seconds": 1.0, "batch_size": 8, "validation_seconds": None}
    profiles = [
        vs.Profile.from_times(instance_type=name, init_seconds=5.0, iteration_seconds=[0.1] * 40, **probe)
        for name in ("a", "a", "b")
    ]
    spent = rank(profiles, prices(a=1, b=2), method="robust", epochs=10).selection_cost()
    assert spent.probe_seconds == pytest.approx(3 * (5 + 1 + 4))
    assert spent.probe_usd == pytest.approx((20 * 1 + 10 * 2) / 3600)
    full = 5 + 1 + 0.1 * 9999
    assert spent.exhaustive_seconds == pytest.approx(3 * full)
    assert spent.exhaustive_usd == pytest.approx((2 * full + full * 2) / 3600)
    assert spent.fraction == pytest.approx(10 / full)
    assert spent.without_times == ()


def test_views_of_something_else_are_refused() -> None:
    ranking = rank(LINES, EQUAL)
    with pytest.raises(ArgumentError, match="the measures are cost, time"):
        ranking.relative("price")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="the measures are cost, time"):
        ranking.crossovers("price")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="the measures are cost, time"):
        ranking.settled_from("price")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="up_to"):
        ranking.crossovers("cost", up_to=0)


def test_validation_every_few_epochs_counts_whole_validations() -> None:
    profile = vs.Profile.from_times(
        instance_type="a", batch_size=8, steps_per_epoch=100, init_seconds=0, first_iteration_seconds=0.1,
        iteration_seconds=[0.1] * 20, validation_seconds=[5, 3],
    )  # fmt: skip
    seldom = profile.model_copy(update={"setup": Setup(**{**profile.setup.model_dump(), "validation_freq": 4})})
    for row in rank([seldom], EQUAL, method="robust", epochs=[3, 4, 8, 9]):
        assert row.seconds == pytest.approx(vs.estimate(seldom, epochs=int(row.epochs)).seconds)
        assert sum(row.terms.values()) == pytest.approx(row.seconds)
