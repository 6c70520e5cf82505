"""Published interruption classes of spot machines: shipped ones, refreshed ones, and rates of offers."""

from __future__ import annotations

import datetime as dt
import math

import pytest

import vmselect as vs
from vmselect.catalog import interruptions
from vmselect.catalog.interruptions import FILE, HOURS_PER_MONTH, SHARES, class_rates, find_class, write_classes
from vmselect.catalog.shipped import manifest


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path))
    interruptions._classes.cache_clear()
    yield tmp_path
    interruptions._classes.cache_clear()


def test_every_shipped_class_is_known_and_dated() -> None:
    rows = next(entry.rows for entry in manifest().tables if entry.file == FILE)
    assert len(interruptions._classes()) == rows == 792
    assert {entry.date for entry in interruptions._classes().values()} == {"2025-06-28"}
    assert {entry.label for entry in interruptions._classes().values()} == set(SHARES)


@pytest.mark.parametrize(("label", "share"), SHARES.items())
def test_a_rate_interrupts_the_share_of_the_class_within_a_month(label: str, share: float) -> None:
    rate = interruptions.InterruptionClass(label, "2025-06-28").per_hour
    assert 1 - math.exp(-rate * HOURS_PER_MONTH) == pytest.approx(share)


def test_rates_of_offers_are_those_of_spot_machines_with_a_class() -> None:
    offers = vs.Catalog.embedded().offers("aws", instance_type="g4ad.2xlarge", market=["spot", "on_demand"])
    rates = class_rates(offers)
    assert (rates[(offers["market"] != "spot").to_numpy()] == 0).all()
    frankfurt = ((offers["region"] == "eu-central-1") & (offers["market"] == "spot")).to_numpy()
    assert rates[frankfurt].tolist() == [pytest.approx(-math.log(0.75) / HOURS_PER_MONTH)]
    assert find_class("gcp", "g4ad.2xlarge", "eu-central-1") is None


def test_refreshed_classes_replace_older_ones(cache) -> None:
    key = ("aws", "g4ad.2xlarge", "eu-central-1")
    write_classes({key: "<5%", ("aws", "new", "here"): "5-10%"}, date=dt.date(2026, 11, 1), source="test")
    assert find_class(*key) == ("<5%", "2026-11-01")
    assert find_class("aws", "new", "here") == ("5-10%", "2026-11-01")
    write_classes({key: "5-10%"}, date=dt.date(2024, 1, 1), source="test")
    assert find_class(*key) == (">20%", "2025-06-28")
    (cache / FILE).write_bytes(b"\xff\x00 no table")
    interruptions._classes.cache_clear()
    assert find_class(*key) == (">20%", "2025-06-28")
