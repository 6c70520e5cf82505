"""The price history of the recommended GPU: numbers, page section and chart."""

from __future__ import annotations

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.errors import RankingError
from vmselect.report.page import page_data
from vmselect.report.price_charts import price_points, price_section

CATALOG = vs.Catalog.embedded("2026-08-22")


def rank(name: str = "g4dn.xlarge", **options) -> vs.Ranking:
    return vs.rank(make_profile(name), epochs=5, catalog=CATALOG, **options)


def test_the_history_is_that_of_the_recommended_gpu_and_its_market() -> None:
    points = price_points(rank())
    assert set(points["gpu_model"]) == {"T4"}
    assert set(points["market"]) == {"on_demand"}
    assert points["month"].nunique() <= 12
    assert set(price_points(rank(market="spot"))["market"]) == {"on_demand", "spot"}


def test_the_page_has_a_line_per_provider_and_market() -> None:
    section = page_data(rank(market="all"))["page"]["prices"]
    assert section["gpu"] == "T4"
    assert {line["name"] for line in section["lines"]} == {
        "aws on demand", "aws spot", "gcp on demand", "gcp spot",
    }  # fmt: skip
    assert len(section["trends"]) == len(section["lines"])
    for line in section["lines"]:
        assert all(0 <= month < len(section["months"]) and usd > 0 for month, usd in line["points"])


def test_a_machine_without_a_known_history_has_no_section() -> None:
    assert price_section(rank("c5.2xlarge")) is None
    assert page_data(rank("never-sold"))["page"]["prices"] is None
    pytest.importorskip("altair")
    with pytest.raises(RankingError, match="price history"):
        rank("c5.2xlarge").chart("prices")


def test_the_chart_draws_median_and_lowest_prices() -> None:
    pytest.importorskip("altair")
    chart = rank().chart("prices").to_dict()
    assert "T4" in chart["title"]
    assert [layer["mark"]["type"] for layer in chart["layer"]] == ["area", "line"]
