"""Charts: the numbers first, then that each can be drawn and written."""

from __future__ import annotations

import struct
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, RankingError
from vmselect.estimation.runtime import TERMS
from vmselect.report import CHARTS, chart, save_chart
from vmselect.report.chart_style import labels
from vmselect.report.ranking_charts import (
    COLORS,
    batch_points,
    choose_sides,
    crossover_points,
    epochs_points,
    metric_points,
    terms_points,
    time_cost_points,
)
from vmselect.report.training_charts import step_points

pytest.importorskip("altair", reason="charts were not drawn: altair is not installed")

# Seconds of initialization and of a step: the slow machine starts faster, so that the leader changes with the epochs.
MACHINES = {"slow": (1.0, 0.4), "fast": (60.0, 0.1), "dear": (70.0, 0.11)}
PRICES = {"slow": 1.0, "fast": 2.0, "dear": 9.0}


def make_ranking(**settings: Any) -> vs.Ranking:
    profiles = [
        vs.Profile.from_times(
            instance_type=name, batch_size=64, steps_per_epoch=100, init_seconds=init, first_iteration_seconds=2.0,
            iteration_seconds=[step, step * 1.02, step * 0.98] * 5, validation_seconds=[1.0, 0.5],
        )
        for name, (init, step) in MACHINES.items()
    ]  # fmt: skip
    markets = {"on_demand": 1.0, "spot": 0.3}
    offers = [
        {"provider": "lab", "instance_type": name, "region": "here", "market": market, "usd_per_hour": usd * factor}
        for name, usd in PRICES.items()
        for market, factor in markets.items()
    ]
    catalog = vs.Catalog.embedded("2026-08-22").with_offers(offers)
    return vs.rank(profiles, **({"epochs": [5, 10], "catalog": catalog} | settings))


def test_time_cost_points_are_the_rows() -> None:
    ranking = make_ranking()
    points = time_cost_points(ranking)
    rows = [row for row in ranking.rows if row.epochs == 10]
    assert points["machine"].tolist() == [row.instance_type for row in rows]
    assert points["hours"].tolist() == pytest.approx([row.seconds / 3600 for row in rows])
    assert points["cost_high"].tolist() == [row.cost_high for row in rows]
    assert points["kind"].tolist()[0] == "best"
    assert set(points.loc[points["kind"] == "other", "machine"]) == {
        row.instance_type for row in rows if not row.pareto
    }
    assert len(time_cost_points(ranking, most=1)) == 1


@pytest.mark.parametrize("value", ["time", "cost"])
def test_epochs_points_are_estimates_at_each_count(value: Any) -> None:
    ranking = make_ranking()
    points = epochs_points(ranking, value)
    assert set(points["machine"]) == set(MACHINES)
    at_ten = points[points["epochs"] == 10].set_index("machine")
    for row in ranking.rows:
        if row.epochs == 10:
            expected = row.seconds / 3600 if value == "time" else row.cost_usd
            assert at_ten.loc[row.instance_type, "value"] == pytest.approx(expected)
    assert (points["low"] <= points["value"]).all()
    assert (points["value"] <= points["high"]).all()
    assert len(epochs_points(ranking, value, most=2)["machine"].unique()) == 2


def test_epochs_lines_ignore_limits_that_hold_at_one_count() -> None:
    assert len(epochs_points(make_ranking(deadline_hours=0.02), "time")) == len(epochs_points(make_ranking(), "time"))


def test_crossovers_are_marked_where_the_leader_changes() -> None:
    ranking = make_ranking()
    points = crossover_points(ranking, "time")
    assert points["epochs"].tolist() == [change.epochs for change in ranking.crossovers("time", up_to=20)]
    assert points["machine"].tolist() == ["fast"]
    assert points["value"].item() == pytest.approx(
        min(row.seconds for row in ranking.rerank(epochs=int(points["epochs"].item()))) / 3600
    )


def test_every_term_has_a_colour_in_the_chart_and_a_name_in_the_page() -> None:
    script = (files("vmselect.report") / "assets" / "report.js").read_text(encoding="utf-8")
    titles = script[script.index("TERM_TITLES = {") : script.index("};")]
    for term in TERMS:
        assert term in COLORS
        assert f"{term}: " in titles


def test_terms_sum_to_the_whole() -> None:
    ranking = make_ranking()
    points = terms_points(ranking)
    sums = points.groupby("machine")[["seconds", "cost_usd"]].sum()
    for row in ranking.rows:
        if row.epochs == 10:
            assert sums.loc[row.instance_type].tolist() == pytest.approx([row.seconds, row.cost_usd])


def test_steps_keep_the_warm_up_and_thin_the_rest() -> None:
    profile = vs.Profile.from_times(
        instance_type="m", first_iteration_seconds=9.0, iteration_seconds=[0.1] * 999, batch_size=1
    )
    whole, thin = step_points(profile), step_points(profile, most=100)
    assert whole["position"] == list(range(1, 1001))
    assert whole["steady_seconds"] == pytest.approx(0.1)
    assert len(thin["seconds"]) <= 100
    assert (thin["label"][0], thin["seconds"][0]) == ("first", 9.0)
    assert thin["readings"] == 1000


def test_names_say_what_tells_candidates_apart() -> None:
    every = make_ranking(market="all")
    where = labels(every.candidates, range(len(every.candidates)))
    assert set(where.values()) == {name + market for name in MACHINES for market in ("", " · spot")}
    assert set(labels(every.candidates, every.assessment.order[0][:1]).values()) <= set(MACHINES)


def test_names_do_not_cover_one_another() -> None:
    apart = choose_sides([1, 1, 1], [1, 1.01, 1.02], ["a long name"] * 3, most=(1, 1.02), log=False)
    assert len(set(apart)) == 3
    assert choose_sides([], [], [], most=(1, 1), log=True) == []
    # An interval that reaches far makes the axis long: what lies near its start has no room for a name on the left.
    near = choose_sides([1, 1, 1], [1, 1.001, 1.002], ["a long name"] * 3, most=(9, 1.02), log=False)
    assert {side[0] for side in near if side} == {"left"}, "text that starts at the point"


def make_selection(**settings: Any) -> vs.Ranking:
    profiles = [
        vs.Profile.from_times(
            instance_type=name, batch_size=size, steps_per_epoch=40_960 // size, iteration_seconds=[each * size] * 10
        )
        for name, each in (("g4dn.xlarge", 0.0008), ("g5.xlarge", 0.0003))
        for size in (256, 1024)
    ]
    study = vs.ConvergenceStudy.from_epochs({256: [13, 14], 1024: [22, 20]}, metrics={256: 0.97, 1024: 0.95})
    return vs.select(profiles, study, **settings)


def test_batch_points_are_the_pairs_at_their_cheapest_price() -> None:
    selection = make_selection(market="all")
    points = batch_points(selection)
    assert points[["machine", "batch_size"]].to_numpy().tolist() == [
        [name, size] for name in ("g5.xlarge", "g4dn.xlarge") for size in (256, 1024)
    ]
    for _, point in points.iterrows():
        rows = [r for r in selection.rows if (r.instance_type, r.batch_size) == (point["machine"], point["batch_size"])]
        assert point["cost_usd"] == min(row.cost_usd for row in rows)
        assert point["hours"] == pytest.approx(rows[0].seconds / 3600)
    assert set(batch_points(selection, most=1)["machine"]) == {"g5.xlarge"}


def test_the_metric_is_the_studys_even_where_it_was_too_low() -> None:
    points = metric_points(make_selection(minimum_metric=0.96))
    assert points.to_numpy().tolist() == [[256, 0.97], [1024, 0.95]]
    with pytest.raises(RankingError):
        metric_points(make_ranking())


@pytest.mark.parametrize("kind", ["batch-time", "cost-time", "batch-metric", "time-cost", "terms"])
def test_charts_of_machine_and_batch_size(kind: str) -> None:
    assert make_selection(minimum_metric=0.94).chart(kind).to_dict()["config"]


@pytest.mark.parametrize("kind", [kind for kind in CHARTS if kind not in ("batch-metric", "usage")])
@pytest.mark.parametrize("objective", ["cost", "time"])
def test_every_chart_is_drawn(kind: str, objective: str, tmp_path: Path) -> None:
    pytest.importorskip(
        "vl_convert", reason="charts were not written as PNG and SVG: vl-convert-python is not installed"
    )
    ranking = make_ranking(objective=objective)
    ranking.chart(kind, path=tmp_path / "chart.png")
    picture = (tmp_path / "chart.png").read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    assert picture[:4] == b"\x89PNG"
    assert width > 800
    assert height > 100
    svg = save_chart(chart(ranking, kind), tmp_path / "new" / "chart.svg").read_text(encoding="utf-8")
    assert "<svg" in svg
    assert svg.count("<path") > 3
    if kind != "steps":
        assert "fast" in svg


@pytest.mark.parametrize("kind", [kind for kind in CHARTS if kind not in ("batch-metric", "usage")])
def test_of_nothing_there_is_no_chart_but_the_reason(kind: str) -> None:
    unsold = vs.rank(vs.Profile.from_times(instance_type="never-sold", first_epoch_seconds=9, later_epoch_seconds=[9]))
    with pytest.raises(RankingError):
        unsold.chart(kind)
    if not kind.startswith("epochs"):  # which leave limits aside
        with pytest.raises(RankingError):
            make_ranking(budget_usd=1e-9).chart(kind)


def test_what_cannot_be_drawn_says_so(tmp_path: Path) -> None:
    ranking = make_ranking()
    with pytest.raises(ArgumentError):
        ranking.chart("pie")
    with pytest.raises(ArgumentError):
        ranking.chart("terms", path=tmp_path / "chart.gif")
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError):
        ranking.chart("terms", path=tmp_path / "file" / "chart.json")
    profile = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40, later_epoch_seconds=30)
    with pytest.raises(RankingError):
        vs.rank(profile, epochs=5).chart("steps")
    assert isinstance(time_cost_points(ranking), pd.DataFrame)
