"""Refreshes: reuse, findings, regions, the cache folder, and new snapshots."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.catalog import refresh
from vmselect.catalog.age import today
from vmselect.catalog.refresh import refresh_prices
from vmselect.catalog.shipped import LATEST, pricing_folder, snapshot_at
from vmselect.catalog.snapshots import write_snapshot
from vmselect.catalog.sources import PriceTable, build_table
from vmselect.errors import ArgumentError, CatalogError, RefreshError


class Cloud:
    """Answers with the rows it was given; a test may change them."""

    region_pattern = r"[a-z]+-\d+"

    def __init__(self, provider: str = "lab", rows: list[dict[str, Any]] | None = None) -> None:
        self.provider = provider
        self.rows = [{"instance_type": f"t{n}"} for n in range(4)] if rows is None else rows
        self.asked: list[str] = []

    def missing(self) -> str | None:
        return None

    def list_regions(self) -> list[str]:
        return ["home-1", "home-2"]

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        self.asked.append(region)
        usual = {"provider": self.provider, "region": region, "market": "on_demand", "usd_per_hour": 0.5}
        return build_table([{**usual, **row} for row in self.rows], self.provider, region)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path))


def run(cloud: Cloud, **options: Any) -> refresh.RefreshOutcome:
    return refresh_prices(sources={cloud.provider: cloud}, **{"regions": "home-1", **options})


def age(region: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(refresh.part_path("lab", region), (then, then))


@pytest.mark.parametrize(("hours", "state"), [(5.9, "reused"), (6.1, "fetched")])
def test_prices_are_fetched_again_after_six_hours(hours, state) -> None:
    cloud = Cloud()
    run(cloud)
    age("home-1", hours * 3600)
    (part,) = run(cloud).parts
    assert (part.state, part.rows) == (state, 4)


@pytest.mark.parametrize(("left", "lost"), [(5, False), (3, False), (2, True)])
def test_a_market_that_lost_more_than_half_is_a_warning(left, lost) -> None:
    cloud = Cloud(rows=[{"instance_type": f"t{n}"} for n in range(6)])
    run(cloud)
    cloud.rows = cloud.rows[:left]
    codes = [finding.code for finding in run(cloud, max_age_hours=0).findings]
    assert codes == (["prices-lost"] if lost else [])


def test_a_shorter_list_of_another_source_has_lost_nothing() -> None:
    cloud = Cloud(rows=[{"instance_type": f"t{n}", "source": "skypilot"} for n in range(6)])
    run(cloud, source="skypilot")
    cloud.rows = [{"instance_type": "t0", "source": "lab API"}]
    assert run(cloud, max_age_hours=0).findings == ()


def test_at_most_four_regions_of_a_cloud_are_fetched_at_once() -> None:
    inside, most, lock = 0, 0, threading.Lock()

    class Slow(Cloud):
        def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
            nonlocal inside, most
            with lock:
                inside, most = inside + 1, max(most, inside + 1)
            time.sleep(0.02)
            with lock:
                inside -= 1
            return super().fetch(region, progress=progress)

    outcome = run(Slow(), regions=[f"home-{n}" for n in range(9)])
    assert [part.state for part in outcome.parts] == ["fetched"] * 9
    assert most == 4


def test_all_regions_are_those_that_a_source_lists() -> None:
    assert sorted(part.region for part in run(Cloud(), regions="all").parts) == ["home-1", "home-2"]
    assert sorted(part.region for part in run(Cloud(), regions=None).parts) == ["home-1", "home-2"]


def test_a_region_is_asked_for_once_and_by_its_name() -> None:
    cloud = Cloud()
    run(cloud, regions=["home-1", "home-1", "home-2"])
    assert sorted(cloud.asked) == ["home-1", "home-2"]
    with pytest.raises(ArgumentError, match="elsewhere"):
        run(cloud, regions=["home-1", "elsewhere"])


class Verda(Cloud):
    """A cloud whose regions have known countries, and that may be unable to list them."""

    region_pattern = r".+"
    lists = True

    def __init__(self) -> None:
        super().__init__("verda")

    def list_regions(self) -> list[str]:
        if not self.lists:
            raise RefreshError("The list of regions is damaged.")
        return ["FIN-01", "FIN-02", "XY-9"]


@pytest.mark.parametrize(
    ("regions", "asked"),
    [
        ("eu", ["FIN-01", "FIN-02"]),
        ("FI", ["FIN-01", "FIN-02"]),
        (["fi", "FIN-02", "XY-9"], ["FIN-01", "FIN-02", "XY-9"]),
        (["all", "FIN-01"], ["FIN-01", "FIN-02", "XY-9"]),
    ],
)
def test_regions_are_asked_for_by_country_and_group(regions, asked) -> None:
    cloud = Verda()
    run(cloud, regions=regions)
    assert sorted(cloud.asked) == asked


def test_a_group_without_a_region_of_the_cloud_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="us is not"):
        run(Verda(), regions=["eu", "us"])


def test_stored_and_shipped_prices_stay_if_the_regions_cannot_be_listed() -> None:
    cloud, other = Verda(), Cloud()
    cloud.lists = False
    cloud.fetch = fail  # type: ignore[method-assign]
    sources = {"verda": cloud, "lab": other}
    outcome = refresh_prices(sources=sources, regions="all")
    (finding,) = [finding for finding in outcome.findings if finding.code == "not-refreshed"]
    assert "ship with vmselect" in str(finding)
    refresh.write_part("verda", "FIN-01", Verda().fetch("FIN-01", progress=str)[0])
    refresh.write_part("verda", "FIN-02", Verda().fetch("FIN-02", progress=str)[0])
    outcome = refresh_prices(sources=sources, regions="all")
    stored = outcome.frame[outcome.frame["provider"] == "verda"]
    assert set(stored["region"]) == {"FIN-01", "FIN-02"}
    (finding,) = [finding for finding in outcome.findings if finding.code == "not-refreshed"]
    assert today().isoformat() in str(finding)


def fail(region: str, *, progress: Callable[[str], None]) -> PriceTable:
    raise RefreshError(f"{region} is damaged.")


def test_shipped_types_without_a_fetched_price_are_listed() -> None:
    shipped = vs.Catalog.embedded().offers("aws", region="us-east-1", retired=False, service="ec2")
    names = sorted(shipped["instance_type"].astype(str))
    rows = [{"instance_type": name, "service": "ec2"} for name in names]

    def listed(rows: list[dict[str, Any]]) -> list[str]:
        cloud = Cloud("aws", rows)
        cloud.region_pattern = "us-east-1"
        findings = run(cloud, regions="us-east-1", max_age_hours=0).findings
        return [finding.message for finding in findings if finding.code == "types-without-price"]

    assert listed(rows) == []
    assert listed([{"instance_type": "other", "service": "other"}]) == []  # another service
    for fewer in (rows[2:], [{**row, "market": "spot"} for row in rows[:2]] + rows[2:]):
        (two,) = listed(fewer)
        assert f"{names[0]}, {names[1]} (" in two
    (seven,) = listed(rows[7:])
    assert all(name in seven for name in names[:6])
    assert f"{names[6]} " not in seven


@pytest.mark.parametrize(
    ("kept", "source", "state"),
    [
        ("skypilot", "skypilot", "reused"),
        ("skypilot", "api", "fetched"),
        ("lab API", "api", "reused"),
        ("lab API", "skypilot", "fetched"),
        ("user", "api", "reused"),
    ],
)
def test_prices_are_used_again_only_for_the_source_they_are_from(kept, source, state) -> None:
    run(Cloud(rows=[{"instance_type": "t", "source": kept}]))
    (part,) = run(Cloud(), source=source).parts
    assert part.state == state


def test_repeated_prices_count_once_and_contradictory_ones_are_excluded() -> None:
    assert len(run(Cloud(rows=[{"instance_type": "t"}, {"instance_type": "t"}])).frame) == 1
    twice = Cloud(rows=[{"instance_type": "t"}, {"instance_type": "t", "usd_per_hour": 0.75}])
    assert "home-1 t" in run(twice, max_age_hours=0).findings[0].message


@pytest.mark.parametrize(("days", "old"), [(90, False), (91, True)])
def test_refreshed_prices_are_old_after_ninety_days(days, old) -> None:
    date = (today() - dt.timedelta(days=days)).isoformat()
    run(Cloud(rows=[{"instance_type": "t", "date": date}, {"instance_type": "u", "date": "2020-01-01"}]))
    codes = [finding.code for finding in vs.Catalog.refreshed(alone=True).findings]
    assert codes == (["old-prices"] if old else [])


def test_no_name_of_a_region_leads_out_of_the_cache(tmp_path) -> None:
    assert refresh.part_path("lab", "../../../up").parent == tmp_path / "prices"
    alike = ["US, TX", "US TX", "US__TX", "\uc11c\uc6b8, KR", "\ubd80\uc0b0, KR", "x" * 150, "x" * 151]
    assert len({refresh.part_path("vast", region) for region in alike}) == len(alike)
    assert refresh.part_path("aws", "us-east-1").name == "aws_us-east-1.csv"
    cloud = Cloud(rows=[])
    cloud.region_pattern = ".+"
    with pytest.raises(RefreshError):
        run(cloud, regions="a\0b")


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x/cache"}, "/x/cache/vmselect"),
        ("linux", {"XDG_CACHE_HOME": ""}, "/x/me/.cache/vmselect"),
        ("darwin", {}, "/x/me/Library/Caches/vmselect"),
        ("win32", {"LOCALAPPDATA": "/x/Local"}, "/x/Local/vmselect"),
        ("win32", {"LOCALAPPDATA": ""}, "/x/me/AppData/Local/vmselect"),
        ("linux", {"VMSELECT_CACHE_DIR": "~/own"}, "/x/me/own"),
    ],
)
def test_where_refreshed_prices_are_kept(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], folder: str
) -> None:
    monkeypatch.delenv("VMSELECT_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/x/me")
    monkeypatch.setattr("sys.platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert refresh.cache_folder().as_posix() == folder


@pytest.mark.parametrize("name", ["~no-such-user-here/x", "/dev/null/x", "/proc/self/x"])
def test_an_impossible_cache_folder(monkeypatch, name) -> None:
    monkeypatch.setenv("VMSELECT_CACHE_DIR", name)
    assert vs.Catalog.default() == vs.Catalog.embedded()
    with pytest.raises(CatalogError):
        vs.Catalog.refreshed()
    with pytest.raises(CatalogError):
        refresh.write_part("aws", "r1", vs.Catalog.embedded("2021-02-28").offers())


def test_a_user_without_a_home(monkeypatch) -> None:
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    for name in ("VMSELECT_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    catalog = vs.Catalog.default()
    assert [finding.code for finding in catalog.findings] == ["refreshed-unreadable"]
    assert catalog == vs.Catalog.embedded()


TODAY = today().isoformat()

BEFORE = vs.Catalog.embedded()


@pytest.fixture
def folder(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    return Path(shutil.copytree(pricing_folder(), tmp_path / "pricing"))


def refreshed(provider: str, region: str, *rows: dict[str, Any]) -> None:
    """Prices as if they had been fetched today."""
    usual = {"provider": provider, "region": region, "market": "on_demand", "usd_per_hour": 7.0, "date": TODAY}
    catalog = BEFORE.with_offers([{**usual, **row} for row in rows])
    names = [row["instance_type"] for row in rows]
    frame = catalog.offers(instance_type=names, market=None, region=region)
    refresh.write_part(provider, region, frame[frame["date"].astype(str) == TODAY].reset_index(drop=True))


def test_a_snapshot_has_shipped_and_known_types_and_new_accelerators(folder) -> None:
    refreshed(
        "aws", "us-east-1",
        {"instance_type": "g4dn.xlarge", "vcpus": 99},  # what it is stays as it ships
        {"instance_type": "trn2.3xlarge"},  # known, without a price until now
        {"instance_type": "new.gpu", "gpu_model": "X1", "gpu_count": 0.5, "vcpus": 3},
        {"instance_type": "new.cpu", "gpu_count": 0, "vcpus": 3},
        {"instance_type": "g5.xlarge", "market": "reserved_1y"},
    )  # fmt: skip
    refreshed("aws", "eu-west-1", {"instance_type": "g5.xlarge"})
    refreshed("lambda", "moon-1", {"instance_type": "gpu_1x_a10"})
    refreshed("lab", "home", {"instance_type": "box", "gpu_model": "X1", "gpu_count": 1})
    assert write_snapshot(folder) == folder / LATEST
    assert not (folder / LATEST / "lab.csv").exists()
    assert vs.Catalog.load(folder / LATEST / "lambda.csv").price("gpu_1x_a10", region="moon-1") == 7.0
    after = vs.Catalog.load(folder / LATEST / "aws.csv")
    assert len(after) == len(BEFORE.offers("aws", market=None)) + 2
    offer = after.offer("g4dn.xlarge")
    assert (offer.usd_per_hour, offer.vcpus, offer.date) == (7.0, BEFORE.offer("g4dn.xlarge").vcpus, TODAY)
    assert (after.offer("trn2.3xlarge").gpu_count, after.offer("trn2.3xlarge").vcpus) == (1, 12)
    assert after.offer("new.gpu").gpu_count == 0.5
    assert after.price("g5.xlarge") == BEFORE.price("g5.xlarge")
    assert after.price("g5.xlarge", region="eu-west-1") == 7.0
    keys = [tuple(row) for row in after.offers(market=None)[["provider", "service", "instance_type"]].to_numpy()]
    assert keys == sorted(keys)


def test_the_manifest_counts_the_rows_and_knows_every_file(folder) -> None:
    before = json.loads((folder / "manifest.json").read_text())
    unpriced = (folder / "unpriced.csv").read_text().splitlines()
    refreshed("aws", "us-east-1", {"instance_type": "trn2.3xlarge"})
    write_snapshot(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    dates = [entry["date"] for entry in before["snapshots"]]
    assert [entry["date"] for entry in manifest["snapshots"]] == [*dates[:-1], TODAY]
    prices = [entry for snapshot in manifest["snapshots"] for entry in snapshot["files"]]
    for entry in [*prices, *manifest["tables"]]:
        content = (folder / entry["file"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
    assert sum(entry["rows"] for entry in manifest["snapshots"][-1]["files"]) == len(BEFORE) + 1
    left = (folder / "unpriced.csv").read_text().splitlines()
    assert left == [line for line in unpriced if ",trn2.3xlarge," not in line]
    assert len(left) == len(unpriced) - 1
    write_snapshot(folder)  # once more on the same day: the file is written anew, and listed once
    again = json.loads((folder / "manifest.json").read_text())
    assert len(again["snapshots"]) == len(manifest["snapshots"])


def test_a_snapshot_needs_newer_prices(folder, tmp_path) -> None:
    with pytest.raises(CatalogError, match="manifest"):
        write_snapshot(tmp_path)
    with pytest.raises(CatalogError):
        write_snapshot(folder)
    refresh.write_part("aws", "us-east-1", BEFORE.offers(instance_type="g4dn.xlarge"))
    with pytest.raises(CatalogError, match=snapshot_at().date):
        write_snapshot(folder)
