"""A ranking's rows, tables and JSON, and its views across epoch counts, against lines whose crossings are known."""

from __future__ import annotations

import json
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile, make_profile
from tests.support.rankings import LAB, probe, rank, rank_epochs
from vmselect.errors import ArgumentError, RankingError
from vmselect.ranking import result
from vmselect.ranking.measures import Measure
from vmselect.ranking.rows import Lazy
from vmselect.records import Epoch
from vmselect.scoring.score import kendall_tau


def test_cost_is_time_times_price_and_terms_sum_to_the_time() -> None:
    ranking = rank(epochs=[5, 10])
    assert [row.instance_type for row in ranking.rows[:2]] == ["small", "big"]
    for row in ranking:
        assert row.cost_usd == pytest.approx(row.seconds / 3600 * row.usd_per_hour)
        assert sum(row.terms.values()) == pytest.approx(row.seconds)
        measured = probe(row.instance_type, {"small": 0.1, "big": 0.05}[row.instance_type])
        estimate = vs.estimate(measured, epochs=int(row.epochs))
        assert row.measures["time"] == pytest.approx((estimate.seconds, estimate.low, estimate.high))


def test_validations_every_few_epochs_are_counted_whole() -> None:
    seldom = make_profile("a", validation_seconds=[5, 3], setup={"validation_freq": 4})
    for row in rank([seldom], catalog=prices(("a", 1.0)), epochs=[3, 4, 8, 9]):
        assert row.seconds == pytest.approx(vs.estimate(seldom, epochs=int(row.epochs)).seconds)
        assert sum(row.terms.values()) == pytest.approx(row.seconds)


def test_nothing_feasible_is_an_empty_ranking() -> None:
    ranking = rank(budget_usd=1e-6)
    assert not ranking
    assert (list(ranking), ranking.pareto) == ([], ())
    with pytest.raises(RankingError, match=r"2 .*budget"):
        _ = ranking.best
    assert json.loads(ranking.to_json())["rows"] == []
    assert len(ranking.to_frame()) == 0
    assert ranking.relative("cost").empty


def test_the_frame_and_the_json_hold_the_rows() -> None:
    ranking = rank(epochs=[5, 10], market="all")
    frame = ranking.to_frame(details=True)
    assert set(frame.columns) == set(vars(ranking.best))
    known = frame.astype(object).where(frame.notna(), None)
    assert known.to_dict("records") == [vars(row) for row in ranking]
    flat = ranking.to_frame()
    assert not {"terms", "findings", "factors", "measures", "limit_chances"}.intersection(flat.columns)
    assert all(pd.api.types.is_scalar(value) for value in flat.iloc[0])
    plain = json.loads(ranking.to_json())
    assert [row["cost_usd"] for row in plain["rows"]] == [row.cost_usd for row in ranking]
    assert plain["settings"]["epochs"] == [5, 10]
    assert "rows" not in json.loads(ranking.to_json(rows=False))


def test_rows_are_made_only_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    usual = result.Row.__init__
    monkeypatch.setattr(result.Row, "__init__", lambda row, **fields: made.append(fields) or usual(row, **fields))
    ranking = rank(epochs=range(1, 301), market="all")
    assert (len(ranking), len(ranking.pareto) > 0, len(ranking.to_frame())) == (1200, True, 1200)
    made.clear()
    assert ranking.best.rank == ranking.rows[-300 * 4].rank == 1
    assert len(made) == 2


def test_reasons_are_counted_without_writing_each(monkeypatch: pytest.MonkeyPatch) -> None:
    offers = [
        {"provider": "lab", "instance_type": "small", "region": f"r{i}", "market": "on_demand", "usd_per_hour": 1.0}
        for i in range(500)
    ]
    written: list[int] = []
    usual = Measure.explain_excess
    monkeypatch.setattr(Measure, "explain_excess", lambda *given: written.append(1) or usual(*given))
    catalog = LAB.with_offers(offers)
    ranking = rank([probe("small", region=None)], deadline_hours=1e-6, catalog=catalog, region="all")
    assert "502" in ranking.verdict
    assert len(written) == 1


def test_lazy_rows_are_a_sequence_like_any_other() -> None:
    rows = Lazy(4, lambda index: index * index)
    assert rows == (0, 1, 4, 9)
    assert rows == [0, 1, 4, 9]
    assert rows != (0, 1, 4)
    assert rows != 4
    assert (rows[-1], rows[-4], rows[1:3]) == (9, 0, (1, 4))
    for outside in (4, -5):
        with pytest.raises(IndexError):
            rows[outside]
    assert (repr(rows), repr(Lazy(3, str))) == ("[0, 1, 4, ...]", "['0', '1', '2']")


def test_a_notebook_shows_a_hundred_rows_escaped() -> None:
    named = rank([probe("small"), probe("<b>big</b>")])
    assert "<li><bdi>small (" in named.rows._repr_html_()  # type: ignore[attr-defined]
    assert "&lt;b&gt;big" in named.excluded._repr_html_()  # type: ignore[attr-defined]
    assert "<p>" not in Lazy(100, str)._repr_html_()
    more = Lazy(1_101, str)._repr_html_()
    assert (more.count("<li>"), "1,101" in more) == (100, True)


# -- views -----------------------------------------------------------------------------------------------------------


def line(name: str, intercept: float, slope: float, **changes: Any) -> vs.Profile:
    return make_epoch_profile(name, slope, init_seconds=intercept, **changes)


def rank_lines(profiles: Any, catalog: vs.Catalog, **options: Any) -> vs.Ranking:
    return rank_epochs(profiles, catalog, **({"epochs": [5, 10, 20]} | options))


LINES = [line("a", 0, 10), line("b", 45, 5), line("c", 150, 2)]
EQUAL = prices(("a", 1), ("b", 1), ("c", 1))


def test_relative_divides_each_epoch_count_by_its_best() -> None:
    table = rank_lines(LINES, EQUAL).relative("time")
    assert (list(table.columns), list(table.index), table.index.name) == ([5, 10, 20], ["b", "c", "a"], "instance_type")
    assert table.min().tolist() == [1.0, 1.0, 1.0]
    assert table.loc["a"].tolist() == pytest.approx([1.0, 100 / 95, 200 / 145])
    limited = rank_lines(LINES, EQUAL, deadline_hours=170 / 3600).relative("cost")
    assert np.isnan(limited.loc["a", 20])
    assert limited.loc["a", 10] == pytest.approx(100 / 95)
    sizes = [line("a", 0, 10, batch_size=32), line("a", 0, 9, batch_size=64)]
    assert rank_lines(sizes, EQUAL, batch_size="all").relative("time").index.names == ["instance_type", "batch_size"]


def test_crossovers_are_where_the_lines_meet() -> None:
    changes = rank_lines(LINES, EQUAL).crossovers("time")
    # a = b at 9 epochs, so b is better from 10 on; b = c at 35, so c from 36 on.
    assert [(c.epochs, c.previous[0], c.winner[0]) for c in changes] == [(10, "a", "b"), (36, "b", "c")]
    assert "10 epochs" in str(changes[0])
    assert rank_lines(LINES, EQUAL).crossovers("time", up_to=10) == changes[:1]
    assert rank_lines(LINES, EQUAL).crossovers("time", up_to=9) == ()
    # 10 n = 1.5 (45 + 5 n) at 27 epochs.
    by_cost = rank_lines(LINES[:2], prices(("a", 1), ("b", 1.5))).crossovers("cost")
    assert [c.epochs for c in by_cost] == [28]


def test_the_order_is_settled_after_the_last_crossing() -> None:
    assert rank_lines(LINES, EQUAL).tables.settled_from("time") == 36
    # The crossing that is not about the winner counts too.
    assert rank_lines([*LINES[:2], line("c", 1000, 9.9)], EQUAL).tables.settled_from("time") == 10_001


def stepped(name: str, random: np.random.Generator, validation_freq: int) -> vs.Profile:
    """A runtime with a step at every validation."""
    return make_profile(
        name, float(random.uniform(0.05, 2)), steps=5, steps_per_epoch=10, init_seconds=float(random.uniform(1, 100)),
        validation_seconds=random.uniform(1, 30, 2).tolist(), setup={"validation_freq": validation_freq},
    )  # fmt: skip


@pytest.mark.parametrize(("validation_freq", "billing"), [(1, "exact"), (5, "exact"), (1, "provider")])
def test_crossovers_match_counting_epoch_by_epoch(validation_freq: int, billing: str) -> None:
    random = np.random.default_rng(3)
    returned = 0
    for _ in range(15):
        names = [f"m{i}" for i in range(4)]
        catalog = prices(*((name, float(random.uniform(1, 20))) for name in names), provider="aws")
        profiles = [stepped(name, random, validation_freq) for name in names]
        ranking = rank(profiles, catalog=catalog.where(billing=billing))
        table = ranking.rerank(epochs=range(1, 201)).relative("cost")
        winners = [column.idxmin() for _, column in table.items()]
        expected = [(n + 1, b) for n, (a, b) in enumerate(pairwise(winners), start=1) if a != b]
        assert [(c.epochs, c.winner.split()[0]) for c in ranking.crossovers("cost", up_to=200)] == expected
        orders = [list(column.argsort()) for _, column in table.items()]
        settled = 200 - next((n for n, order in enumerate(reversed(orders)) if order != orders[-1]), 200) + 1
        assert ranking.tables.settled_from("cost", up_to=200) == settled
        returned += len(expected) > len({winner for _, winner in expected} | {winners[0]}) - 1
    assert (returned > 0) is (validation_freq > 1 or billing == "provider")  # lines cross once, steps again and again


def test_against_a_baseline_compares_price_and_speed() -> None:
    pair, catalog = [line("a", 0, 38), line("b", 0, 10)], prices(("a", 1), ("b", 13.6))
    table = rank_epochs(pair, catalog).tables.relative_to("a")
    assert table.loc["b"].to_dict() == pytest.approx({"price_ratio": 13.6, "speed_up": 3.8, "cost_ratio": 13.6 / 3.8})
    assert table.loc["a"].tolist() == [1.0, 1.0, 1.0]
    late = rank_epochs(pair, catalog, deadline_hours=0.05)  # the baseline breaks the deadline
    assert late.tables.relative_to("a").loc["b", "speed_up"] == pytest.approx(3.8)
    assert len(late.tables.relative_to("b")) == 1
    with pytest.raises(RankingError, match="a, b"):
        late.tables.relative_to("d")


def test_strategies_compare_single_iterations_with_the_estimate() -> None:
    def steps(name: str, first: float, second: float, other: float) -> vs.Profile:
        return make_profile(name, [second, *[other] * 8], init_seconds=0, first_iteration_seconds=first)

    ranking = rank([steps("a", 1, 4, 2), steps("b", 2, 1, 3)], catalog=prices(("a", 1), ("b", 2)))
    table = ranking.tables.strategies("time")
    assert list(table.columns) == ["first_iteration", "second_iteration", "mean_2_10", "estimate"]
    assert (table.loc["b", "first_iteration"], table.loc["a", "second_iteration"]) == (2.0, 4.0)
    assert table.loc["b", "mean_2_10"] == pytest.approx((25 / 9) / (20 / 9))
    assert ranking.tables.strategies("cost").loc["b", "first_iteration"] == 4.0


@pytest.mark.parametrize("view", ["relative", "tables.strategies", "crossovers", "tables.settled_from"])
def test_a_view_of_an_unknown_measure_is_refused(view: str) -> None:
    with pytest.raises(ArgumentError, match="objective"):
        attrgetter(view)(rank_lines(LINES, EQUAL))("price")


def test_epochs_cannot_be_varied_where_a_study_gives_them() -> None:
    with pytest.raises(ArgumentError, match="up_to"):
        rank_lines(LINES, EQUAL).crossovers("cost", up_to=0)
    with pytest.raises(RankingError, match="study"):
        rank([probe()], epochs=vs.ConvergenceStudy.from_epochs({64: 10})).crossovers("cost")


def test_a_training_that_may_stop_early_has_an_upper_bound_in_a_ranking_too() -> None:
    plan = {"early_stopping": 4, "epochs": 150}
    early = [probe("small", 0.1, setup=plan), probe("big", 0.05, setup=plan)]
    ranking, plain = rank(early, epochs=None), rank(epochs=150)
    assert [row.instance_type for row in ranking] == [row.instance_type for row in plain]
    for row, other in zip(ranking, plain, strict=True):
        one = early[row.instance_type == "big"]
        estimate = vs.estimate(one, epochs=150)
        assert row.measures["time"] == pytest.approx((estimate.seconds, estimate.low, estimate.high))
        assert row.measures["time"].value == other.measures["time"].value
        assert row.measures["time"].low == pytest.approx(vs.estimate(one, epochs=4).low)
        assert row.cost_low == pytest.approx(row.seconds_low / 3600 * row.usd_per_hour)
        # All machines stop at the same epoch.
        assert (row.chance, row.tied_with_best) == (other.chance, other.tied_with_best)
        assert [finding.code for finding in row.findings].count("early-stopping") == 1
    assert "early-stopping" in {finding.code for finding in ranking.findings}
    runtime = json.loads(ranking.to_json())["machines"][0]["runtime"]
    assert runtime["early_stopping"] == [4, 150]
    # A user who asks for fewer epochs, or has a study, knows how many the training takes.
    assert "early-stopping" not in {finding.code for finding in ranking.rerank(epochs=20).best.findings}
    study = vs.ConvergenceStudy.from_epochs({64: [13, 14]})
    assert rank(early, epochs=study).best.seconds_low > ranking.best.seconds_low


TIMES = {"small": 10.0, "big": 6.0, "same": 8.0}


def probes(**changes: Any) -> list[vs.Profile]:
    return [make_epoch_profile(name, seconds, **({"provider": "lab"} | changes)) for name, seconds in TIMES.items()]


def real(name: str, *seconds: float, **changes: Any) -> vs.Profile:
    fields = {"batch_size": 64, "epochs": 10, "provider": "lab"} | changes
    return vs.Profile.from_times(instance_type=name, total_seconds=seconds, **fields)


def test_estimates_are_compared_with_the_mean_of_the_runs() -> None:
    accuracy = rank(probes(region="here")).against([real("small", 95.0, 105.0), real("big", 50.0), real("same", 160.0)])
    rows = {row.instance_type: row for row in accuracy}
    assert [(rows[name].runs, rows[name].inside) for name in TIMES] == [(2, True), (1, False), (1, False)]
    assert [rows[name].error_percent for name in TIMES] == pytest.approx([0, 20, -50])
    assert (accuracy.mean_error_percent, accuracy.coverage) == (pytest.approx(70 / 3), pytest.approx(1 / 3))
    assert (rows["big"].real_cost_usd, rows["big"].cost_usd) == pytest.approx((50 / 1200, 60 / 1200))
    # Estimated order by time: big, same, small. Real order: big, small, same.
    assert accuracy.kendall_tau["time"] == pytest.approx(1 / 3)
    assert accuracy.regret == {"time": 0.0, "cost": pytest.approx(0.6)}
    plain = json.loads(accuracy.to_json())
    assert plain["rows"][0]["real_seconds"] == 50.0
    assert list(accuracy.to_frame()["epochs"]) == [10, 10, 10]


def test_every_number_of_epochs_has_its_own_estimate() -> None:
    accuracy = rank(probes()).against([real("small", 50.0, epochs=5), real("small", 300.0, epochs=30)])
    assert [row.seconds for row in accuracy] == pytest.approx([50, 300])
    assert accuracy.kendall_tau == accuracy.regret == {"time": None, "cost": None}


def test_trainings_without_an_estimate_are_named() -> None:
    accuracy = rank(probes()).against([real("small", 100.0), real("other", 1.0), real("big", 1.0, factors={"x": 1})])
    assert ([row.instance_type for row in accuracy], len(accuracy.excluded)) == (["small"], 2)
    with pytest.raises(RankingError):
        rank(probes()).against(real("other", 1.0))
    with pytest.raises(RankingError):
        rank(probes()).against([])


def test_only_other_whole_trainings_test_an_estimate() -> None:
    with pytest.raises(ArgumentError, match="total"):
        rank(probes()).against(make_epoch_profile("small", 10.0))
    timeline = {"fit_seconds": 99.0, "epochs": tuple(Epoch(epoch=n, seconds=9.9) for n in range(10))}
    watched = make_epoch_profile("small", 9.9, outcome="watched", timeline=timeline, provider="lab")
    assert rank(probes()).against(watched).rows[0].real_seconds == 99.0
    with pytest.raises(ArgumentError, match="does not test"):
        rank([*probes()[1:], watched]).against(watched)


def test_a_study_predicts_the_number_of_epochs_too() -> None:
    study = vs.ConvergenceStudy.from_epochs({64: [20, 20]})
    accuracy = vs.rank(probes(), epochs=study, catalog=LAB).against(
        [real("small", 160.0, epochs=16), real("big", 120.0)]
    )
    assert [row.seconds for row in accuracy] == pytest.approx([120, 200])
    assert accuracy.kendall_tau["time"] == 1.0


@pytest.mark.parametrize("pairs", [[(1, 2), (2, 1), (3, 3)], [(1, 1), (1, 2), (3, 3), (4, 0)]])
def test_tau_is_that_of_scipy(pairs: list[tuple[float, float]]) -> None:
    assert kendall_tau(pairs) == pytest.approx(stats.kendalltau(*zip(*pairs, strict=True)).statistic)
    assert kendall_tau([(1, 1), (1, 2)]) is None


def test_the_chart_has_a_pair_of_bars_per_training() -> None:
    pytest.importorskip("altair")
    from vmselect.report.ranking_charts import accuracy_points

    accuracy = rank(probes()).against([real("small", 100.0), real("small", 55.0, epochs=5)])
    points = accuracy_points(accuracy)
    assert points["kind"].tolist() == ["real", "estimate"] * 2
    assert points["training"].nunique() == 2
    assert accuracy.chart().to_dict()["layer"]
