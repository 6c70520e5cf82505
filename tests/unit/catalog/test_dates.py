"""Dates of prices from published catalogs: only a change shows that their publisher asked the provider again."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.catalog.dates import describe_unchanged, keep_dates

TODAY, THEN, OLDER = "2026-11-01", "2025-08-27", "2025-01-01"
Row = tuple[str, str, str, float]  # instance type, region, market, price

CONTENT: list[Row] = [
    ("small", "east", "on_demand", 1.0), ("small", "west", "on_demand", 1.0), ("large", "east", "on_demand", 2.0),
    ("small", "east", "spot", 0.3),
]  # fmt: skip


def table(rows: list[Row], *dates: str) -> pd.DataFrame:
    names = ("instance_type", "region", "market", "usd_per_hour")
    listed = dates * len(rows) if len(dates) == 1 else dates
    offers = [
        {"provider": "lab", "date": date, **dict(zip(names, row, strict=True))}
        for row, date in zip(rows, listed, strict=True)
    ]
    return vs.Catalog.embedded().with_offers(offers).offers("lab", market=None).drop(columns="stale")


def dates_of(rows: list[Row], before: pd.DataFrame, *, complete: bool = True) -> dict[tuple[str, ...], str]:
    dated = keep_dates(table(rows, TODAY), before, complete=complete)
    keys = dated[["instance_type", "region", "market"]].astype(str).itertuples(index=False, name=None)
    return dict(zip(keys, dated["date"].astype(str), strict=True))


def test_a_catalog_that_repeats_its_content_confirms_nothing() -> None:
    before = table(CONTENT, THEN, OLDER, THEN, OLDER)
    assert sorted(dates_of(CONTENT, before).values()) == [OLDER, OLDER, THEN, THEN]
    rounded = [(name, region, market, usd * 1.00001) for name, region, market, usd in CONTENT]
    assert TODAY not in dates_of(rounded, before).values()


@pytest.mark.parametrize(
    "changed",
    [
        [("small", "east", "on_demand", 1.1), *CONTENT[1:]],
        [*CONTENT, ("huge", "west", "on_demand", 9.0)],
        [*CONTENT[:2], CONTENT[3]],
    ],
    ids=["moved", "added", "removed"],
)
def test_a_change_dates_all_prices_of_its_market_in_all_regions(changed: list[Row]) -> None:
    dates = dates_of(changed, table(CONTENT, THEN))
    assert {date for (*_, market), date in dates.items() if market == "on_demand"} == {TODAY}
    assert {date for (*_, market), date in dates.items() if market == "spot"} == {THEN}


def test_machines_that_were_perhaps_left_out_before_are_not_new() -> None:
    added = [*CONTENT, ("cpu", "west", "on_demand", 0.1), ("small", "east", "reserved_1y", 0.7)]
    before = table(CONTENT, THEN, OLDER, THEN, OLDER)
    dates = dates_of(added, before, complete=False)
    assert dates["cpu", "west", "on_demand"] == dates["small", "east", "reserved_1y"] == THEN
    # Nor is a market new because another one has changed, but it may be.
    moved = [("small", "east", "spot", 0.4), *added[:3], *added[4:]]
    assert dates_of(moved, before, complete=False)["small", "east", "reserved_1y"] == TODAY


def test_content_that_is_seen_for_the_first_time_has_the_day_of_the_catalog() -> None:
    assert set(dates_of(CONTENT, table(CONTENT, THEN).iloc[:0]).values()) == {TODAY}


def test_no_price_becomes_newer_than_its_catalog() -> None:
    later = keep_dates(table(CONTENT, THEN), table(CONTENT, TODAY), complete=True)
    assert set(later["date"]) == {THEN}


def test_unchanged_markets_are_named_with_their_newest_date() -> None:
    prices = table(CONTENT, THEN, OLDER, THEN, "2026-11-02")
    findings = list(describe_unchanged(prices[prices["market"] == "on_demand"], "SkyPilot"))
    assert [(finding.code, finding.severity) for finding in findings] == [("unchanged-prices", "info")]
    assert THEN in findings[0].message


def test_a_file_of_another_tool_does_not_make_shipped_prices_new(tmp_path: Path) -> None:
    """Downloaded today, SkyPilot's file of Hyperbolic still has the prices of August 2025."""
    shipped = vs.Catalog.embedded("2026-08-22").offers("hyperbolic")
    folder = tmp_path / "hyperbolic"
    folder.mkdir()
    header = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone"
    rows = [
        f"{row.instance_type},8,64,H100,{row.gpu_count:g},,{row.region},,{row.usd_per_hour},"
        for row in shipped.itertuples()
    ]
    path = folder / "vms.csv"
    path.write_text("\n".join([f"{header},Price,SpotPrice", *rows]) + "\n")
    catalog = vs.Catalog.load(path)
    assert set(catalog.offers()["date"]) == {THEN}
    profiles = [make_profile(str(name), 0.1, provider=None, region=None) for name in shipped["instance_type"]]
    ranking = vs.rank(profiles, epochs=1, catalog=vs.Catalog.default().with_offers(catalog), region="all")
    assert not len(ranking)
    assert {entry.reason_code for entry in ranking.excluded} == {"stale_price"}
