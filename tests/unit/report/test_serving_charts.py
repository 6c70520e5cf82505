"""Charts of serving and transfers: their points, and that they can be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.report import serving_charts

CATALOG = vs.Catalog.embedded("2026-08-22")
RECORDS = [
    vs.InferenceRecord.from_times(
        instance_type=name, call_seconds=[seconds] * 99 + [3 * seconds], batch_size=10, bytes_per_item=1e5
    )
    for name, seconds in (("g4dn.xlarge", 0.1), ("g5.xlarge", 0.05))
]


def test_cost_and_latency_against_load(tmp_path: Path) -> None:
    ranking = vs.rank_inference(RECORDS, load=[10, 90, 500], catalog=CATALOG, region="us-east-1")
    points = serving_charts.load_points(ranking)
    assert len(points) == 6
    for _, line in points.groupby("service"):
        assert line["hourly_usd"].is_monotonic_increasing
        assert line["instances"].is_monotonic_increasing
    with pytest.raises(vs.errors.RankingError):
        serving_charts.load_points(vs.rank_inference(RECORDS, catalog=CATALOG))
    pytest.importorskip("altair", reason="drawing needs altair, which is not installed")
    for kind in serving_charts.CHARTS:
        assert ranking.chart(kind, path=tmp_path / "chart.svg").to_dict()["title"]
        assert (tmp_path / "chart.svg").read_text().startswith("<svg")
    with pytest.raises(vs.errors.ArgumentError):
        ranking.chart("pie")


def test_percentiles_and_time_per_megabyte() -> None:
    points = serving_charts.percentile_points(RECORDS)
    assert len(points) == 2 * len(serving_charts.PERCENTILES)
    assert points[points["percentile"] == 50]["latency_ms"].tolist() == pytest.approx([100, 50])
    assert points[points["percentile"] == 100]["latency_ms"].tolist() == pytest.approx([300, 150])
    by_batch = serving_charts.mb_points(RECORDS)
    assert by_batch["seconds_per_mb"].iloc[0] == pytest.approx(0.1)
    moved = vs.TransferRecord.from_times(instance_type="a", url="s3://b", megabytes=2, upload_seconds=[1.0, 3.0])
    assert serving_charts.mb_points([moved], "upload")["seconds_per_mb"].tolist() == [0.5, 1.5]
    pytest.importorskip("altair", reason="drawing needs altair, which is not installed")
    assert serving_charts.percentile_chart(RECORDS).to_dict()["title"] == "Latency percentiles"
    assert serving_charts.mb_chart(RECORDS).to_dict()["title"] == "Time per megabyte"


@pytest.mark.parametrize("records", [[], [vs.InferenceRecord.from_times(instance_type="a", call_seconds=[1.0])]])
def test_nothing_to_draw_is_said(records: Any) -> None:
    with pytest.raises(vs.errors.ArgumentError):
        serving_charts.mb_points(records)
    with pytest.raises(vs.errors.ArgumentError):
        serving_charts.percentile_points([])
