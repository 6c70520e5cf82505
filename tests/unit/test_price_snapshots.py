"""What of a refresh goes into a new snapshot, and what SkyPilot's published file gives."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.catalog import refresh
from vmselect.catalog.snapshots import pricing_folder, snapshot_at, write_snapshot
from vmselect.errors import CatalogError

TODAY = dt.date.today().isoformat()
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


def test_a_snapshot_takes_what_ships_what_is_known_and_new_accelerators(folder) -> None:
    refreshed(
        "aws", "us-east-1",
        {"instance_type": "g4dn.xlarge", "vcpus": 99},  # what it is stays as it ships
        {"instance_type": "p5e.48xlarge"},  # known, without a price until now
        {"instance_type": "new.gpu", "gpu_model": "X1", "gpu_count": 0.5, "vcpus": 3},
        {"instance_type": "new.cpu", "gpu_count": 0, "vcpus": 3},
        {"instance_type": "g5.xlarge", "market": "reserved_1y"},
    )  # fmt: skip
    refreshed("aws", "eu-west-1", {"instance_type": "g5.xlarge"})
    refreshed("lab", "home", {"instance_type": "box", "gpu_model": "X1", "gpu_count": 1})
    assert write_snapshot(folder).name == f"{TODAY}.csv"
    after = vs.Catalog.load(folder / f"{TODAY}.csv")
    assert len(after) == len(BEFORE) + 2
    offer = after.offer("g4dn.xlarge")
    assert (offer.usd_per_hour, offer.vcpus, offer.date) == (7.0, BEFORE.offer("g4dn.xlarge").vcpus, TODAY)
    assert (after.offer("p5e.48xlarge").gpu_count, after.offer("p5e.48xlarge").vcpus) == (8, 192)
    assert after.offer("new.gpu").gpu_count == 0.5
    assert after.price("g5.xlarge") == BEFORE.price("g5.xlarge")
    keys = [tuple(row) for row in after.offers(market=None)[["provider", "service", "instance_type"]].to_numpy()]
    assert keys == sorted(keys)


def test_the_manifest_counts_the_rows_and_knows_every_file(folder) -> None:
    before = json.loads((folder / "manifest.json").read_text())
    unpriced = (folder / "unpriced.csv").read_text().splitlines()
    refreshed("aws", "us-east-1", {"instance_type": "p5e.48xlarge"})
    write_snapshot(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [entry["date"] for entry in manifest["snapshots"]] == [*(e["date"] for e in before["snapshots"]), TODAY]
    for entry in [*manifest["snapshots"], *manifest["tables"]]:
        content = (folder / entry["file"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
    assert manifest["snapshots"][-1]["rows"] == len(BEFORE) + 1
    left = (folder / "unpriced.csv").read_text().splitlines()
    assert left == [line for line in unpriced if ",p5e.48xlarge," not in line]
    assert len(left) == len(unpriced) - 1
    write_snapshot(folder)  # once more on the same day: the file is written anew, and listed once
    again = json.loads((folder / "manifest.json").read_text())
    assert len(again["snapshots"]) == len(manifest["snapshots"])


def test_a_snapshot_is_newer_than_the_last_one_or_none(folder, tmp_path) -> None:
    with pytest.raises(CatalogError, match="is no pricing folder"):
        write_snapshot(tmp_path)
    with pytest.raises(CatalogError, match="No prices of a reference region were refreshed"):
        write_snapshot(folder)
    refresh.write_part("aws", "us-east-1", BEFORE.offers(instance_type="g4dn.xlarge"))
    with pytest.raises(CatalogError, match=f"No refreshed price is newer than the snapshot of {snapshot_at().date}"):
        write_snapshot(folder)
