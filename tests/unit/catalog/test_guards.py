"""Guards against implausible prices: each pattern is planted, flagged, and never recommended."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.catalog import COLUMNS, KEY
from vmselect.catalog.guards import describe_flags, flag_prices

DAY = "2026-08-22"
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def shipped() -> pd.DataFrame:
    return vs.Catalog.embedded(DAY).offers(market=None)[list(COLUMNS)]


def plant(tmp_path: Path, rows: Rows, *, source: str = "skypilot", date: str = DAY) -> vs.Catalog:
    """A price file with ``rows``, on the day of the shipped prices."""
    common = {"service": "", "market": "on_demand", "region": "us-east-1", "date": date, "source": source}
    path = tmp_path / "planted.csv"
    pd.DataFrame([common | row for row in rows]).to_csv(path, index=False)
    catalog = vs.Catalog.load(path)
    catalog.as_of = dt.date.fromisoformat(DAY)
    return catalog


def aws(name: str, usd: float, **columns: Any) -> dict[str, Any]:
    return {"provider": "aws", "instance_type": name, "usd_per_hour": usd, **columns}


def flags_of(catalog: vs.Catalog) -> dict[tuple[str, str], tuple[str, bool]]:
    table = catalog.check()
    return {
        (row.instance_type, row.market): (row.flag, row.implausible)
        for row in table.itertuples()
        if row.region != "other"
    }


SPOT_ABOVE = [aws("g4dn.xlarge", 0.526), aws("g4dn.xlarge", 0.55, market="spot"), aws("g5.xlarge", 0.5, market="spot")]
PLACEHOLDER = [
    {"provider": "cloud", "instance_type": name, "market": market, "usd_per_hour": usd}
    for name, usd in (("a", 1.0), ("b", 2.0))
    for market in ("on_demand", "spot")
]
T4 = {"gpu_model": "T4", "gpu_count": 1}
OUTLIER = [{"provider": "cloud", "instance_type": "cheap-t4", "usd_per_hour": 0.05, **T4}]
HALF = [aws("p5.48xlarge", 27.0), aws("g4dn.xlarge", 0.526)]


@pytest.mark.parametrize(
    ("rows", "flagged"),
    [
        (SPOT_ABOVE, {("g4dn.xlarge", "spot"): ("spot-above-on-demand", True)}),
        (PLACEHOLDER, {("a", "spot"): ("spot-placeholder", True), ("b", "spot"): ("spot-placeholder", True)}),
        (OUTLIER, {("cheap-t4", "on_demand"): ("far-below-median", True)}),
        ([OUTLIER[0] | {"usd_per_hour": 30.0}], {("cheap-t4", "on_demand"): ("far-above-median", False)}),
        (HALF, {("p5.48xlarge", "on_demand"): ("half-price", True)}),
    ],
    ids=["spot above", "placeholder", "far below", "far above", "half price"],
)
def test_a_planted_fault_is_flagged(
    tmp_path: Path, rows: Rows, flagged: dict[tuple[str, str], tuple[str, bool]]
) -> None:
    catalog = plant(tmp_path, rows)
    assert flags_of(catalog) == flagged
    assert [finding.code for finding in describe_flags(catalog.check())] == [next(iter(flagged.values()))[0]]


@pytest.mark.parametrize("model", ["H100", "h100", "NVIDIA H100", "H100-SXM"])
def test_a_price_is_compared_with_its_gpu_by_any_name(tmp_path: Path, model: str) -> None:
    row = {"provider": "cloud", "instance_type": "cheap", "usd_per_hour": 0.05, "gpu_model": model, "gpu_count": 1}
    assert flags_of(plant(tmp_path, [row])) == {("cheap", "on_demand"): ("far-below-median", True)}


def test_one_price_in_every_region_is_flagged_but_not_implausible(tmp_path: Path) -> None:
    rows = [
        {"provider": "cloud", "instance_type": name, "region": region, "usd_per_hour": usd}
        for region in ("east", "west", "north")
        for name, usd in (("same", 1.0), ("other", {"east": 1.0, "west": 1.1, "north": 1.2}[region]))
    ]
    assert flags_of(plant(tmp_path, rows)) == {("same", "on_demand"): ("one-price-everywhere", False)}
    assert not flags_of(plant(tmp_path, rows[:4]))  # two regions may have the same price


def test_half_of_the_price_of_the_cheapest_region_is_flagged_in_a_new_region(tmp_path: Path) -> None:
    cheapest = float(vs.Catalog.embedded(DAY).offers(instance_type="p5.48xlarge")["usd_per_hour"].min())
    new = aws("p5.48xlarge", 0.49 * cheapest, region="us-new-1", gpu_model="H100", gpu_count=8)
    assert flags_of(plant(tmp_path, [new])) == {("p5.48xlarge", "on_demand"): ("half-price", True)}
    assert not flags_of(plant(tmp_path, [new | {"usd_per_hour": 0.56 * cheapest}]))
    # The hosts of a marketplace differ by region.
    host = vs.Catalog.embedded(DAY).offers("vast", gpu="H100").iloc[0][["provider", "instance_type", "usd_per_hour"]]
    other = {"region": "new", "usd_per_hour": 0.45 * host["usd_per_hour"]}
    assert not flags_of(plant(tmp_path, [host.to_dict() | other]))


@pytest.mark.parametrize(
    ("ratio", "flagged"),
    [(0.49, True), (0.5, True), (0.524, True), (0.56, False), (0.7, False)],
    ids=["half", "exactly half", "Google's H100 of 2025-02 in SkyPilot's catalog", "AWS's cut of 2025-06", "a cut"],
)
def test_a_price_near_half_of_the_one_before_is_flagged(tmp_path: Path, ratio: float, flagged: bool) -> None:
    price = vs.Catalog.embedded(DAY).price("a3-highgpu-8g", region="us-central1")
    half = {"provider": "gcp", "instance_type": "a3-highgpu-8g", "region": "us-central1", "usd_per_hour": ratio * price}
    assert flags_of(plant(tmp_path, [half])) == (
        {("a3-highgpu-8g", "on_demand"): ("half-price", True)} if flagged else {}
    )


def test_no_shipped_list_price_is_near_half_of_another_region(shipped: pd.DataFrame) -> None:
    lists = shipped[(shipped["market"] == "on_demand") & ~shipped["retired"]]
    types = lists.groupby(["provider", "service", "instance_type"], observed=True)["usd_per_hour"]
    lowest, next_lowest = types.nsmallest(1).groupby(level=[0, 1, 2]).max(), types.nsmallest(2).groupby(level=[0, 1, 2])
    assert (lowest / next_lowest.max()).min() > 0.75


def test_a_spot_price_alone_is_compared_with_the_shipped_price_on_demand(tmp_path: Path) -> None:
    rows = [aws("g4dn.xlarge", usd, market="spot", region=region) for usd, region in ((0.6, "us-east-1"), (0.2, "x"))]
    assert flags_of(plant(tmp_path, rows[:1])) == {("g4dn.xlarge", "spot"): ("spot-above-on-demand", True)}
    assert not flags_of(plant(tmp_path, rows[1:]))
    # The price on demand beside it goes first.
    beside = aws("g4dn.xlarge", 0.7)
    assert not flags_of(plant(tmp_path, [rows[0], beside]))


def test_a_date_that_has_not_come_is_flagged_and_named_with_the_recommendation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VMSELECT_TODAY", "2026-09-01")
    rows = [aws("g4dn.xlarge", 0.5, date=date) for date in ("2026-09-01", "2026-09-02", "2026-09-03", "2062-08-22")]
    flags = [flags_of(plant(tmp_path, [row])) for row in rows]
    flagged = {("g4dn.xlarge", "on_demand"): ("future-date", False)}
    assert flags == [{}, {}, flagged, flagged]
    ranking = vs.rank([make_profile("g4dn.xlarge", 0.1)], epochs=1, catalog=plant(tmp_path, rows[3:]), region="all")
    (finding,) = [finding for finding in ranking.findings if finding.code == "future-date"]
    assert "2062-08-22" in finding.message
    # A computer whose clock is wrong still ranks by the shipped prices.
    monkeypatch.setenv("VMSELECT_TODAY", "2020-01-01")
    assert "future-date" not in set(vs.Catalog.embedded().check()["flag"])
    assert not flags_of(plant(tmp_path, [aws("g4dn.xlarge", 0.5, date=DAY)]))


def test_spot_prices_that_never_changed_are_older_than_dated(
    tmp_path: Path, shipped: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VMSELECT_TODAY", "2026-11-01")
    spot = shipped[(shipped["provider"] == "azure") & (shipped["market"] == "spot") & ~shipped["retired"]].head(8)
    rows = spot[[*KEY, "usd_per_hour"]].to_dict("records")
    catalog = plant(tmp_path, rows, date="2026-11-01")
    assert set(flags_of(catalog).values()) == {("old-content", True)}
    moved = [row | {"usd_per_hour": row["usd_per_hour"] * 1.01} for row in rows]
    assert not flags_of(plant(tmp_path, moved, date="2026-11-01"))


def test_offers_of_a_marketplace_that_never_changed_are_older_than_dated(
    tmp_path: Path, shipped: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VMSELECT_TODAY", "2026-11-01")
    hosts = shipped[(shipped["provider"] == "vast") & (shipped["gpu_model"] != "V100")]  # which are far below others
    rows = hosts.drop_duplicates("instance_type").head(6)[[*KEY, "usd_per_hour"]].to_dict("records")
    frozen = plant(tmp_path, rows, date="2026-11-01")
    assert set(flags_of(frozen).values()) == {("old-content", True)}
    profiles = [make_profile(row["instance_type"], 0.1, provider="vast", region=None) for row in rows]
    excluded = vs.rank(profiles, epochs=10, catalog=frozen, region="all").excluded
    assert {entry.reason_code for entry in excluded} == {"implausible_price"}
    moved = [row | {"usd_per_hour": row["usd_per_hour"] * 1.01} for row in rows]
    assert not flags_of(plant(tmp_path, moved, date="2026-11-01"))
    # A list price may stay as it is for long.
    lists = shipped[shipped["provider"] == "hyperstack"].drop_duplicates("instance_type")
    rows = lists.head(6)[[*KEY, "usd_per_hour"]].to_dict("records")
    assert not flags_of(plant(tmp_path, rows, date="2026-11-01"))


@pytest.mark.parametrize("rows", [OUTLIER, HALF], ids=["far below", "half price"])
def test_the_users_own_prices_are_flagged_but_not_implausible(tmp_path: Path, rows: Rows) -> None:
    catalog = plant(tmp_path, rows, source="user")
    assert [implausible for _, implausible in flags_of(catalog).values()] == [False]
    # They are used in rankings, so the finding is a warning.
    assert [finding.severity for finding in describe_flags(catalog.check())] == ["warning"]
    ranking = vs.rank([make_profile(rows[0]["instance_type"], 0.1)], epochs=1, catalog=catalog, region="all")
    assert {finding.code for finding in ranking.findings} & {"half-price", "far-below-median"}


def test_no_planted_fault_is_recommended(tmp_path: Path) -> None:
    honest = [aws("g4dn.xlarge", 0.526, **T4), aws("g5.xlarge", 1.006)]
    planted = [
        aws("g4dn.xlarge", 0.60, market="spot", **T4),
        aws("g4dn.2xlarge", 0.3, **T4),  # the shipped price is 0.752
        aws("g4dn.4xlarge", 0.3, region="us-new-1", **T4),  # 1.204 in the cheapest region that ships
        {"provider": "cloud", "instance_type": "cheap-t4", "usd_per_hour": 0.05, **T4},
        *(row | {"region": "us-east-1"} for row in PLACEHOLDER),
        {"provider": "hyperbolic", "instance_type": "frozen", "usd_per_hour": 0.01, "date": "2025-08-01"},
        {"provider": "vast", "instance_type": "gone", "usd_per_hour": 0.02, "date": "2026-08-01"},
    ]
    catalog = plant(tmp_path, honest + planted)
    names = ("g4dn.xlarge", "g4dn.2xlarge", "g4dn.4xlarge", "g5.xlarge", "cheap-t4", "frozen", "gone", "a")
    profiles = [make_profile(name, 0.1, provider=None, region=None) for name in names]
    ranking = vs.rank(profiles, epochs=10, catalog=catalog, market="all", region="all")
    ranked = {(row.instance_type, row.market) for row in ranking}
    assert ranked == {("g4dn.xlarge", "on_demand"), ("g5.xlarge", "on_demand"), ("a", "on_demand")}
    assert ranking.best.instance_type == "g4dn.xlarge"
    codes = {entry.candidate.split(",")[0]: entry.reason_code for entry in ranking.excluded}
    assert codes == {
        "g4dn.2xlarge": "implausible_price", "g4dn.4xlarge": "implausible_price", "cheap-t4": "implausible_price",
        "frozen": "stale_price", "gone": "stale_price",
    }  # fmt: skip
    assert {finding.code for finding in ranking.findings} >= {
        "stale-prices", "typical-prices", "half-price", "far-below-median", "spot-above-on-demand",
    }  # fmt: skip
    everything = vs.rank(profiles, epochs=10, catalog=catalog.where(stale=True), market="all", region="all")
    assert everything.best.instance_type == "frozen"


def test_flags_of_the_shipped_prices_do_not_depend_on_a_reference(shipped: pd.DataFrame) -> None:
    alone, beside = flag_prices(shipped), flag_prices(shipped, shipped)
    assert (alone.flag == beside.flag).all()
    # Less than 1 % of the shipped prices are implausible, and none of them is a list price of a large cloud.
    implausible = shipped[alone.implausible]
    assert len(implausible) < 0.01 * len(shipped)
    lists = implausible[implausible["provider"].isin(["aws", "azure", "gcp"]) & (implausible["market"] == "on_demand")]
    assert lists.empty
