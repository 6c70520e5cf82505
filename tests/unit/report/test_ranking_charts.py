"""Charts of rankings: their numbers first, then that each can be drawn and written."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, RankingError
from vmselect.estimation.runtime import TERMS
from vmselect.records import InferenceRecord
from vmselect.report import CHARTS, chart, save_chart
from vmselect.report.charts import PLAIN, SERIES, STEP_COLORS, labels
from vmselect.report.page import read_asset
from vmselect.report.ranking_charts import (
    SERVING_CHARTS,
    SIDES,
    TERM_COLORS,
    batch_points,
    choose_sides,
    crossover_points,
    epochs_points,
    load_points,
    metric_points,
    terms_points,
    time_cost_points,
)
from vmselect.report.record_charts import CLASS_COLORS, VALIDATION_COLORS

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from contrast import LEAST, contrast_with_white
from priced import prices
from profiles import make_epoch_profile, make_profile

pytest.importorskip("altair", reason="charts were not drawn: altair is not installed")

# Seconds of initialization and of a step, and the price: the slow machine starts faster, so that the leader changes.
MACHINES = {"slow": (1.0, 0.4, 1.0), "fast": (60.0, 0.1, 2.0), "expensive": (70.0, 0.11, 9.0)}
DRAWN = [kind for kind in CHARTS if kind not in ("batch-metric", "usage", "disk", "gpus", "prices")]
"""Charts of a ranking without a study, without samples of utilization and without GPUs."""


def make_ranking(**settings: Any) -> vs.Ranking:
    profiles = [
        make_profile(name, [step, step * 1.02, step * 0.98] * 5, init_seconds=init, validation_seconds=[1.0, 0.5])
        for name, (init, step, _) in MACHINES.items()
    ]
    on_demand, spot = (
        prices(*((name, share * usd) for name, (_, _, usd) in MACHINES.items()), market=market)
        for market, share in (("on_demand", 1.0), ("spot", 0.3))
    )
    catalog = on_demand.with_offers(spot.offers("lab", market="spot"))
    return vs.rank(profiles, **({"epochs": [5, 10], "catalog": catalog} | settings))


def make_selection(**settings: Any) -> vs.Ranking:
    profiles = [
        make_profile(name, each * size, batch_size=size, steps_per_epoch=40_960 // size, steps=10)
        for name, each in (("g4dn.xlarge", 0.0008), ("g5.xlarge", 0.0003))
        for size in (256, 1024)
    ]
    study = vs.ConvergenceStudy.from_epochs(
        {256: [13, 14], 1024: [22, 20]}, metrics={256: 0.97, 1024: 0.95}, model="net"
    )
    required = settings.pop("required", None)
    return vs.rank(profiles, epochs=study.require(required) if required else study, **settings)


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


def test_machines_that_were_never_probed_are_hollow() -> None:
    steps = {"batch_size": 64, "steps_per_epoch": 100, "first_iteration_seconds": 2.0, "init_seconds": 20.0}
    probed = vs.Profile.from_times(instance_type="g4dn.xlarge", iteration_seconds=[0.2] * 9, **steps)
    ranking = vs.rank(probed, epochs=10, machines=["g5.xlarge"])
    assert time_cost_points(ranking).set_index("machine")["basis"].to_dict() == {
        "g4dn.xlarge": "probed",
        "g5.xlarge": "never probed",
    }
    for kind in ("time-cost", "batch-time", "cost-time"):
        fills = [layer["encoding"].get("fill") for layer in chart(ranking, kind).to_dict()["layer"]]
        (shown,) = [fill["scale"] for fill in fills if fill]
        assert dict(zip(shown["domain"], shown["range"], strict=True))["never probed"] == "white"
        measured = chart(vs.rank(probed, epochs=10), kind).to_dict()["layer"]
        assert not any("fill" in layer["encoding"] for layer in measured)


@pytest.mark.parametrize("value", ["time", "cost"])
def test_epochs_points_are_estimates_at_each_count(value: Any) -> None:
    ranking = make_ranking()
    points = epochs_points(ranking, value)
    at_ten = points[points["epochs"] == 10].set_index("machine")
    expected = {
        row.instance_type: row.seconds / 3600 if value == "time" else row.cost_usd
        for row in ranking.rows
        if row.epochs == 10
    }
    assert at_ten["value"].to_dict() == pytest.approx(expected)
    assert (points["low"] <= points["value"]).all()
    assert (points["value"] <= points["high"]).all()
    assert len(epochs_points(ranking, value, most=2)["machine"].unique()) == 2
    # Limits hold at the deciding count only.
    assert len(epochs_points(make_ranking(deadline_hours=0.02), value)) == len(points)


def test_crossovers_are_where_the_leader_changes() -> None:
    ranking = make_ranking()
    points = crossover_points(ranking, "time")
    assert points["epochs"].tolist() == [change.epochs for change in ranking.crossovers("time", up_to=20)]
    assert points["machine"].tolist() == ["fast"]
    there = ranking.rerank(epochs=int(points["epochs"].item()))
    assert points["value"].item() == pytest.approx(min(row.seconds for row in there) / 3600)


def test_every_term_has_a_color_in_the_chart_and_a_title_in_the_page() -> None:
    titles = read_asset("report.js").partition("TERM_TITLES = {")[2].partition("};")[0]
    assert set(TERMS) <= set(TERM_COLORS)
    assert [term for term in TERMS if f"{term}: " not in titles] == []


def test_names_in_the_color_of_a_line_and_marks_have_contrast() -> None:
    assert {color for color in SERIES if contrast_with_white(color) < LEAST["text"]} == set()
    marks = {*TERM_COLORS.values(), *STEP_COLORS.values(), *CLASS_COLORS.values(), *VALIDATION_COLORS.values(), PLAIN}
    assert {color for color in marks if contrast_with_white(color) < LEAST["mark"]} == set()


def test_charts_have_the_colors_of_the_page() -> None:
    light = read_asset("page.css").partition("}")[0]
    colors = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", light))
    assert [colors[f"c{i}"] for i in range(len(SERIES))] == list(SERIES)
    titles = read_asset("report.js").partition("TERM_TITLES = {")[2].partition("};")[0]
    slots = re.findall(r'(\w+): "', titles)
    assert {term: colors[f"t{slot}"] for slot, term in enumerate(slots)} == TERM_COLORS


def test_terms_sum_to_the_row() -> None:
    ranking = make_ranking()
    sums = terms_points(ranking).groupby("machine")[["seconds", "cost_usd"]].sum()
    for row in ranking.rows:
        if row.epochs == 10:
            assert sums.loc[row.instance_type].tolist() == pytest.approx([row.seconds, row.cost_usd])


def test_labels_name_the_fields_in_which_candidates_differ() -> None:
    every = make_ranking(market="all")
    where = labels(every.candidates, range(len(every.candidates)))
    assert set(where.values()) == {name + market for name in MACHINES for market in ("", " · spot")}
    assert set(labels(every.candidates, every.assessment.order[0][:1]).values()) <= set(MACHINES)


def test_labels_do_not_cover_one_another() -> None:
    apart = choose_sides([1, 1, 1], [1, 1.01, 1.02], ["a long name"] * 3, most=(1, 1.02), log=False)
    assert len(set(apart)) == 3
    assert choose_sides([], [], [], most=(1, 1), log=True) == []
    # A wide interval makes the axis long: a point near its start has no room for a label on the left.
    near = choose_sides([1, 1, 1], [1, 1.001, 1.002], ["a long name"] * 3, most=(9, 1.02), log=False)
    assert {side[0] for side in near if side} == {"left"}, "text that starts at the point"


def test_labels_do_not_cross_the_line_if_another_side_is_free() -> None:
    place = {"most": (10.0, 10.0), "log": False}
    (free,) = choose_sides([5.0], [5.0], ["name"], **place)
    (beside,) = choose_sides([5.0], [5.0], ["name"], line=[(5.0, 5.0), (10.0, 10.0)], **place)
    everywhere = [(0, 5), (10, 5), (10, 5.3), (0, 5.3), (0, 4.7), (10, 4.7)]
    (enclosed,) = choose_sides([5.0], [5.0], ["name"], line=everywhere, **place)
    assert free == SIDES[0]
    assert beside is not None
    assert beside != SIDES[0], "the line rises to the right of the point"
    assert enclosed in SIDES, "a label that crosses the line is better than none"


def test_batch_points_are_the_pairs_at_their_cheapest_price() -> None:
    selection = make_selection(market="all", region="us-east-1")
    points = batch_points(selection)
    assert points[["machine", "batch_size"]].to_numpy().tolist() == [
        [name, size] for name in ("g5.xlarge", "g4dn.xlarge") for size in (256, 1024)
    ]
    for _, point in points.iterrows():
        rows = [r for r in selection.rows if (r.instance_type, r.batch_size) == (point["machine"], point["batch_size"])]
        assert point["cost_usd"] == min(row.cost_usd for row in rows)
        assert point["hours"] == pytest.approx(rows[0].seconds / 3600)
    assert set(batch_points(selection, most=1)["machine"]) == {"g5.xlarge"}


def test_the_metric_is_that_of_the_study_even_where_it_was_too_low() -> None:
    points = metric_points(make_selection(required=0.96))
    assert points.to_numpy().tolist() == [[256, 0.97], [1024, 0.95]]


@pytest.mark.parametrize("kind", ["batch-time", "cost-time", "batch-metric", "time-cost", "terms"])
def test_charts_of_machine_and_batch_size(kind: str) -> None:
    assert make_selection(required=0.94).chart(kind).to_dict()["config"]


@pytest.mark.parametrize("kind", DRAWN)
def test_every_chart_is_drawn(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="charts were not written: vl-convert-python is not installed")
    ranking = make_ranking(objective="time")
    ranking.chart(kind, path=tmp_path / "chart.png")
    picture = (tmp_path / "chart.png").read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    assert picture[:4] == b"\x89PNG"
    assert width > 800
    assert height > 100
    svg = save_chart(chart(ranking, kind), tmp_path / "new" / "chart.svg").read_text(encoding="utf-8")
    assert svg.count("<path") > 3
    assert kind == "steps" or "fast" in svg


@pytest.mark.parametrize("kind", DRAWN)
def test_an_empty_ranking_has_no_chart(kind: str) -> None:
    with pytest.raises(RankingError):
        vs.rank(make_epoch_profile("never-sold"), epochs=5).chart(kind)
    if not kind.startswith("epochs"):  # which ignore limits
        with pytest.raises(RankingError):
            make_ranking(budget_usd=1e-9).chart(kind)


def test_invalid_charts_are_errors(tmp_path: Path) -> None:
    ranking = make_ranking()
    (tmp_path / "file").write_text("not a chart")
    with pytest.raises(ArgumentError):
        ranking.chart("pie")
    for path in ("chart.gif", "file/chart.json", "file"):
        with pytest.raises(ArgumentError):
            ranking.chart("terms", path=tmp_path / path)
    with pytest.raises(RankingError):
        ranking.chart("batch-metric")
    with pytest.raises(RankingError):
        vs.rank(make_epoch_profile("g4dn.xlarge"), epochs=5).chart("steps")


def test_cost_and_latency_against_load(tmp_path: Path) -> None:
    records = [
        InferenceRecord.from_times(instance_type=name, call_seconds=[seconds] * 99 + [3 * seconds], batch_size=10)
        for name, seconds in (("g4dn.xlarge", 0.1), ("g5.xlarge", 0.05))
    ]
    catalog = vs.Catalog.embedded("2026-08-22")
    ranking = vs.serving.rank_inference(records, load=[10, 90, 500], catalog=catalog, region="us-east-1")
    points = load_points(ranking)
    assert len(points) == 6
    for _, line in points.groupby("service"):
        assert line["hourly_usd"].is_monotonic_increasing
    for kind in SERVING_CHARTS:
        assert ranking.chart(kind, path=tmp_path / "chart.svg").to_dict()["title"]
        assert (tmp_path / "chart.svg").read_text().startswith("<svg")
    with pytest.raises(ArgumentError):
        ranking.chart("pie")
    with pytest.raises(RankingError):
        load_points(vs.serving.rank_inference(records, catalog=catalog))
