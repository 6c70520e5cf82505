"""Prices per GPU-hour: their order, and the cheapest offers of each GPU model."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import vmselect as vs
from vmselect._io import pricing_folder
from vmselect.catalog.gpu_prices import COLUMNS, order_by_gpu, per_gpu_hour, summarize_gpus
from vmselect.catalog.shipped import manifest
from vmselect.errors import ArgumentError

CATALOG = vs.Catalog.embedded("2026-08-22")
SHARED = {"provider": "lab", "region": "here", "market": "on_demand", "gpu_model": "H100", "gpu_memory_gib": 80}


def lab(*machines: tuple[str, float, float]) -> vs.Catalog:
    """A catalog of machines with H100 GPUs: name, number of GPUs, price."""
    rows = [{**SHARED, "instance_type": name, "gpu_count": count, "usd_per_hour": usd} for name, count, usd in machines]
    return vs.Catalog(CATALOG.with_offers(rows).where(provider="lab")._frame, origin="lab")


def test_offers_of_a_gpu_are_ordered_by_its_price() -> None:
    catalog = lab(("eight", 8, 16.0), ("half", 0.5, 1.5), ("three", 3, 9.87), ("one", 1, 3.29), ("two", 2, 4.0))
    offers = catalog.offers(gpu="H100")
    assert offers["instance_type"].tolist() == ["two", "eight", "half", "one", "three"]
    assert per_gpu_hour(offers).tolist() == pytest.approx([2.0, 2.0, 3.0, 3.29, 3.29])
    assert catalog.gpus().iloc[0][["usd_per_gpu_hour", "instance_type", "providers"]].tolist() == [2.0, "two", 1]


def test_many_providers_offer_an_h100() -> None:
    offers = vs.Catalog.default().offers(gpu="H100", market="on_demand")
    assert offers["provider"].nunique() >= 12
    assert "stale" in offers.columns
    assert (np.diff(per_gpu_hour(offers).round(9)) >= 0).all()


@pytest.mark.parametrize("gpu", ["A100-80GB", "H100", "B200", "L4"])
def test_the_cheapest_price_is_that_of_the_files(gpu: str) -> None:
    prices = []
    for entry in manifest().snapshots[-1].files:
        with (pricing_folder() / entry.file).open(newline="", encoding="utf-8") as lines:
            prices += [
                float(row["usd_per_hour"]) / float(row["gpu_count"])
                for row in csv.DictReader(lines)
                if (row["gpu_model"], row["market"], row["retired"]) == (gpu, "on_demand", "no")
                and row["date"] > "2026-01-01"
            ]
    table = vs.Catalog.embedded("2026-11-18").gpus().set_index("gpu_model")
    assert table.loc[gpu, "usd_per_gpu_hour"] == pytest.approx(min(prices))


def test_a_summary_has_a_row_per_gpu_with_the_cheapest_offer_of_each_market() -> None:
    table = CATALOG.gpus()
    assert tuple(table.columns) == COLUMNS
    assert table["gpu_model"].is_unique
    assert table["gpu_model"].str.casefold().is_monotonic_increasing
    row = table.set_index("gpu_model").loc["T4"]
    for market, prefix in (("on_demand", ""), ("spot", "spot_")):
        offers = CATALOG.offers(gpu="T4", market=market, retired=False)
        offers = offers[~offers["stale"]]
        assert row[f"{prefix}usd_per_gpu_hour"] == per_gpu_hour(offers)[0]
        assert row[f"{prefix}instance_type"] == offers["instance_type"].iloc[0]
    assert row["providers"] == 3
    assert row["gpu_memory_gib"] == 16


def test_filters_of_a_summary() -> None:
    europe = CATALOG.gpus(region="eu")
    assert set(europe["region"].dropna()) <= set(CATALOG.offers(region="eu", market=None)["region"].astype(str))
    assert set(CATALOG.gpus("lambda")["provider"]) == {"lambda"}
    assert CATALOG.gpus(gpu="l4")["gpu_model"].tolist() == ["L4"]
    assert CATALOG.gpus(market="spot")["usd_per_gpu_hour"].isna().all()
    assert CATALOG.gpus(market=None).equals(CATALOG.gpus())
    with pytest.raises(ArgumentError, match="reserved_1y"):
        CATALOG.gpus(market=["reserved_1y", "reserved_3y"])
    assert CATALOG.gpus(market="all")["gpu_model"].tolist() == CATALOG.gpus()["gpu_model"].tolist()
    assert summarize_gpus(CATALOG.offers(gpu="T4").iloc[:0]).empty


def test_stale_and_implausible_prices_are_left_out_of_a_summary() -> None:
    old = {**SHARED, "instance_type": "old", "gpu_count": 1, "usd_per_hour": 0.9, "date": "2020-01-01"}
    catalog = vs.Catalog.embedded("2026-11-18").with_offers([old])
    fresh, every = (catalog.gpus(gpu="H100", stale=stale).iloc[0] for stale in (False, True))
    assert fresh["provider"] != "lab"
    assert every["provider"] == "lab"
    assert "p3.2xlarge" not in CATALOG.gpus()["instance_type"].tolist()  # retired


def test_the_order_does_not_depend_on_that_of_the_catalog() -> None:
    offers = CATALOG.offers(gpu="H100")
    shuffled = offers.sample(frac=1, random_state=1).reset_index(drop=True)
    assert order_by_gpu(shuffled).astype(str).equals(offers.astype(str))


def test_an_accelerator_without_its_host_is_no_machine() -> None:
    table = vs.Catalog.embedded("2021-02-28").gpus().set_index("gpu_model")
    assert table.loc["K80", ["provider", "usd_per_gpu_hour", "providers"]].tolist() == ["aws", 0.9, 2]
    assert not any(model.startswith("TPU") for model in table.index)
