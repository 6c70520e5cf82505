"""Charts and tables of comparisons: the numbers that are drawn, and that drawing works."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.records import InferenceRecord, TransferRecord
from vmselect.report import comparison_charts
from vmselect.report.comparison_charts import comparison_plots, effects_plots

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from comparisons import factorial

RECORDS = factorial("a", "b")


@pytest.fixture(scope="module")
def effects() -> vs.Effects:
    return vs.stats.effects(RECORDS, factors=["machine", "batch_size"], metric="step_seconds")


def test_boxes_hold_every_run_and_its_summary() -> None:
    c = vs.compare(RECORDS, by=["instance_type", "batch_size"])
    boxes, differences = comparison_plots(c)
    assert [len(row["points"]) for row in boxes["rows"]] == [3, 3, 3, 3]
    assert boxes["axis"] == "Step time, ms"
    for row, summary in zip(boxes["rows"], c.groups.to_dict("records"), strict=True):
        names = ("minimum", "quartile_1", "median", "quartile_3", "maximum")
        assert row["edges"] == pytest.approx([1e3 * summary[name] for name in names])
    assert [row["value"] for row in differences["rows"]] == pytest.approx(c.groups["percent"].tolist())
    assert [row["low"] for row in differences["rows"]][1:] == pytest.approx(c.groups["percent_low"].tolist()[1:])
    assert differences["rows"][0]["text"][0] == c.baseline


def test_effects_have_intervals_and_lines(effects: vs.Effects) -> None:
    main, lines, interactions, cells = effects_plots(effects)
    assert [row["low"] for row in main["rows"]] == pytest.approx(effects.main["percent_low"].tolist())
    assert [row["slot"] for row in main["rows"]] == [0, 0, 1, 1]
    assert [len(line["points"]) for line in lines["lines"]] == [2, 2]
    high = effects.interactions["percent_high"].tolist()
    assert [row["high"] for row in interactions["rows"]] == pytest.approx(high)
    assert sum(len(row["points"]) for row in cells["rows"]) == 12


def test_a_level_shift_is_drawn() -> None:
    steps = [0.010, 0.0101, 0.0099] * 20 + [0.020, 0.0201, 0.0199] * 10
    plots = comparison_plots(vs.compare(vs.Profile.from_times(instance_type="a", iteration_seconds=steps)))
    assert [plot["kind"] for plot in plots] == ["boxes", "series"]
    assert {point["level"] for point in plots[1]["points"]} == {10.0, 20.0}
    assert sum(point["level"] == 20.0 for point in plots[1]["points"]) == 30


BATCHES = {
    "AWS": [0.78 + 0.001 * (i % 7) for i in range(116)],
    "Azure": [0.8] * 30 + [0.4 + 0.001 * (i % 5) for i in range(86)],
}


def rows_of(chart: object) -> list[list[dict[str, object]]]:
    return list(chart.to_dict()["datasets"].values())  # type: ignore[attr-defined]


def test_every_run_of_all_groups_is_drawn_in_order_with_means() -> None:
    c = vs.compare(BATCHES, metric="seconds_per_mb", by="platform")
    points, means = sorted(rows_of(c.chart("runs")), key=len, reverse=True)
    assert len(points) == 232
    azure = [point["value"] for point in points if str(point["group"]).startswith("Azure")]
    assert azure == BATCHES["Azure"]
    assert {str(mean["group"]).split(",")[0]: mean["value"] for mean in means} == {
        name: pytest.approx(np.mean(values)) for name, values in BATCHES.items()
    }
    with pytest.raises(ComparisonError, match="date"):
        c.chart("calendar")


def test_separate_records_and_one_record_of_readings_give_the_same_chart() -> None:
    records = [
        TransferRecord.from_times(
            instance_type="client", provider=name.lower(), url="s3://coco", megabytes=1.0, download_seconds=seconds,
            factors={"platform": name},
        )
        for name, values in BATCHES.items()
        for seconds in values
    ]  # fmt: skip
    c = vs.compare(records, by="platform", metric="download_seconds_per_mb")
    assert comparison_charts.reading_points(c)["value"].tolist() == [*BATCHES["AWS"], *BATCHES["Azure"]]
    calls = [
        InferenceRecord.from_times(instance_type=name, batch_size=8, call_seconds=values)
        for name, values in BATCHES.items()
    ]
    readings = comparison_charts.reading_points(vs.compare(calls, metric="call_seconds"))
    assert readings["value"].tolist() == [*BATCHES["AWS"], *BATCHES["Azure"]]


def test_runs_are_drawn_by_date() -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    records = [
        vs.Profile.from_times(instance_type="a", batch_size=8, iteration_seconds=[0.1] * 5).model_copy(
            update={"created": start + timedelta(days=7 * week)}
        )
        for week in range(4)
    ]
    points = max(rows_of(vs.compare(records).chart("calendar")), key=len)
    assert [point["moment"] for point in points] == [f"2026-03-{day:02}T00:00:00Z" for day in (1, 8, 15, 22)]


def test_a_shift_between_runs_is_drawn_on_the_page() -> None:
    plots = comparison_plots(vs.compare(BATCHES, metric="seconds_per_mb"))
    shifted = plots[-1]
    assert (shifted["kind"], shifted["title"]) == ("series", "Azure, run by run")
    assert [point["level"] for point in shifted["points"]][29:31] == pytest.approx([0.8, 0.402])


def test_many_runs_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison_charts, "MAX_GROUPS", 6)
    monkeypatch.setattr(comparison_charts, "MAX_POINTS", 200)
    rng = np.random.default_rng(1)
    boxes = comparison_plots(vs.compare({f"g{i}": rng.random(100).tolist() for i in range(11)}))[0]
    assert len(boxes["rows"]) == 6
    assert 100 < sum(len(row["points"]) for row in boxes["rows"]) <= 200 + 6
    assert "6 of 11" in boxes["lede"]


@pytest.mark.parametrize("kind", ["boxes", "differences", "series", "main", "interactions"])
def test_every_chart_is_drawn(kind: str, effects: vs.Effects, tmp_path: Path) -> None:
    target = tmp_path / f"{kind}.svg"
    drawn = effects if kind in ("main", "interactions") else vs.compare(RECORDS, by="instance_type")
    drawn.chart(kind, path=target)
    assert "<svg" in target.read_text()


def test_charts_that_cannot_be_drawn_are_errors() -> None:
    c = vs.compare({"a": [1.0, 2.0], "b": [2.0, 3.0]})
    e = vs.stats.effects([{"a": 1, "v": 1.0}, {"a": 2, "v": 2.0}], factors="a", metric="v")
    for one in (c, e):
        with pytest.raises(ArgumentError):
            one.chart("pie")
    with pytest.raises(ComparisonError):
        c.chart("series")
    with pytest.raises(ComparisonError):
        e.chart("interactions")


def test_notebooks_show_tables_with_escaped_names(effects: vs.Effects) -> None:
    c = vs.compare({"<script>": [1.0, 2.0, 3.0, 4.0], "b": [5.0, 6.0, 7.0, 8.0], "c": [5.0, 6.0, 7.0, 9.0]})
    assert "<script>" not in c._repr_html_()
    assert "Cliff" in c._repr_html_()
    assert "batch_size" in effects._repr_html_()
    assert "<i>" not in vs.stats.Requirements({"cost": 1}).score({"<i>": {"cost": 1.0}})._repr_html_()
