"""Writes refreshed prices to the pricing folder of vmselect's source code, for developers, and its manifest."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vmselect import _io
from vmselect._checks import check_path
from vmselect.catalog import files
from vmselect.catalog.offer import KEY, concat_frames, inherit_facts, merge_frames
from vmselect.catalog.refresh import read_parts
from vmselect.catalog.shipped import LATEST, newest_prices, snapshot_at, unpriced
from vmselect.errors import CatalogError

SNAPSHOT_MARKETS = ("on_demand", "spot")  # reserved prices differ by contract
LATEST_ABOUT = "prices of all providers and regions; each row has its own date"
_REMEDY = "Run `vmselect prices refresh`."


def write_snapshot(folder: str | os.PathLike[str] = "pricing") -> Path:
    """Update the files of the newest prices in ``folder``, one per provider, with refreshed prices.

    They contain the instance types of the newest snapshot, known types that had no price yet, and new types with an
    accelerator. CPU cores, memory and GPUs of types in the newest snapshot do not change. The manifest is updated.
    """
    place = check_path("folder", folder)
    if not _io.has_file(place / "manifest.json"):
        raise CatalogError(f"{place} has no manifest.json. Give the folder pricing/ in the source code of vmselect.")
    shipped, newest = newest_prices(), snapshot_at().date
    parts, _ = read_parts()
    fresh = [part for part in map(_select, parts) if len(part)]
    if not fresh:
        raise CatalogError(f"No refreshed prices belong in a snapshot. {_REMEDY}")
    above = inherit_facts(_with_shipped_facts(concat_frames(fresh), shipped), unpriced())
    rows = merge_frames(shipped, above, newest=True)
    if max(rows["date"].astype(str).unique()) <= newest:
        raise CatalogError(f"No refreshed price is newer than the snapshot of {newest}. {_REMEDY}")
    for provider in sorted(above["provider"].astype(str).unique()):
        here = rows[rows["provider"] == provider]
        order = here[list(KEY)].astype(str).sort_values(list(KEY)).index
        files.write(here.loc[order].reset_index(drop=True), place / LATEST / f"{provider}.csv")
    _drop_priced(place / "unpriced.csv", rows)
    update_manifest(place)
    return place / LATEST


def _select(part: pd.DataFrame) -> pd.DataFrame:
    """Return the refreshed prices in ``part`` that belong in a snapshot."""
    shipped = newest_prices()
    listed = {*shipped["instance_type"].astype(str), *unpriced()["instance_type"].astype(str)}
    # New types without an accelerator are left out: the clouds sell hundreds of them.
    useful = part["instance_type"].astype(str).isin(listed) | (part["gpu_count"] > 0)
    ships = part["provider"].astype(str).isin(set(shipped["provider"].cat.categories))
    return part[useful & ships & part["market"].isin(SNAPSHOT_MARKETS)].reset_index(drop=True)


def _with_shipped_facts(above: pd.DataFrame, shipped: pd.DataFrame) -> pd.DataFrame:
    # Shipped facts were checked by hand; those of an API may name another GPU.
    types = pd.MultiIndex.from_frame(shipped[["provider", "instance_type"]].astype(str))
    listed = pd.MultiIndex.from_frame(above[["provider", "instance_type"]].astype(str)).isin(types)
    above = above.copy()
    above.loc[listed, ["vcpus", "memory_gib", "gpu_count"]] = np.nan
    return inherit_facts(above, shipped)


def _drop_priced(path: Path, rows: pd.DataFrame) -> None:
    lines = pd.read_csv(path, dtype=str, keep_default_na=False)
    left = lines[~lines["instance_type"].isin(rows["instance_type"].astype(str))]
    _io.write_text(path, left.to_csv(index=False, lineterminator="\n"), error=CatalogError)


def update_manifest(folder: Path) -> None:
    """Write the manifest of ``folder`` anew: dates, sources, numbers of rows and checksums of the files in it.

    The older snapshots are those that the manifest lists; the newest one consists of all files of the newest prices.
    """
    path = folder / "manifest.json"
    old: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    latest = [_describe_prices(folder, file) for file in sorted((folder / LATEST).glob("*.csv"))]
    dated = [snapshot for snapshot in old["snapshots"] if not snapshot["files"][0]["file"].startswith(f"{LATEST}/")]
    for snapshot in dated:
        snapshot["files"] = [_describe_prices(folder, folder / entry["file"]) for entry in snapshot["files"]]
    date = max(entry["newest"] for entry in latest)
    tables = [_describe(folder, folder / entry["file"]) for entry in old["tables"]]
    manifest = {
        "schema_version": old["schema_version"],
        "snapshots": [*dated, {"date": date, "description": LATEST_ABOUT, "files": latest}],
        "tables": tables,
    }
    _io.write_text(path, json.dumps(manifest, indent=2) + "\n", error=CatalogError)


def _describe(folder: Path, file: Path) -> dict[str, Any]:
    content = file.read_bytes()
    is_csv = file.suffix == ".csv"
    rows = sum(1 for _ in csv.reader(content.decode().splitlines())) - 1 if is_csv else len(json.loads(content))
    return {
        "file": file.relative_to(folder).as_posix(),
        "rows": rows,
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _describe_prices(folder: Path, file: Path) -> dict[str, Any]:
    rows = pd.read_csv(file, usecols=["provider", "date", "source"], dtype=str, keep_default_na=False)
    return {
        **_describe(folder, file),
        "providers": sorted(rows["provider"].unique()),
        "oldest": rows["date"].min(),
        "newest": rows["date"].max(),
        "sources": sorted(rows["source"].unique()),
    }
