"""A new snapshot for the pricing folder: the newest one with refreshed prices over it."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vmselect import _files
from vmselect._checks import check_path
from vmselect.catalog import files, store, table
from vmselect.catalog.schema import KEY
from vmselect.catalog.snapshot import newest_prices, provider_terms, snapshot_at, unpriced
from vmselect.errors import CatalogError

MARKETS = ("on_demand", "spot")  # what ships; reserved prices differ by contract


def write_snapshot(folder: str | os.PathLike[str] = "pricing") -> Path:
    """Put the refreshed prices of the reference regions over the newest snapshot, as a new file of ``folder``.

    Types that ship, types that we know without a price, and new ones with an accelerator are taken; the facts of a
    type that ships stay as they are. The manifest follows.
    """
    place = check_path("folder", folder)
    if not _files.has_file(place / "manifest.json"):
        raise CatalogError(
            f"{place} is no pricing folder: it has no manifest.json. Run this in a checkout of vmselect."
        )
    shipped, newest = newest_prices(), snapshot_at().date
    parts, _ = store.read_parts()
    fresh = [part for part in map(_select, parts) if len(part)]
    if not fresh:
        raise CatalogError("No prices of a reference region were refreshed here. Run `vmselect prices refresh`.")
    above = _with_shipped_facts(table.drop_older(table.concat(fresh), than=shipped), shipped)
    above = table.inherit_facts(above, unpriced())
    rows = table.merge(shipped, above)
    order = rows[list(KEY)].astype(str).sort_values(list(KEY)).index
    rows = rows.loc[order].reset_index(drop=True)
    date = max(rows["date"].astype(str).unique())
    if date <= newest:
        raise CatalogError(f"No refreshed price is newer than the snapshot of {newest}. Run `vmselect prices refresh`.")
    path = files.write(rows, place / f"{date}.csv")
    _drop_priced(place / "unpriced.csv", rows)
    _update_manifest(place, date)
    return path


def _select(part: pd.DataFrame) -> pd.DataFrame:
    """The rows of a refresh that belong into a snapshot."""
    provider = str(part["provider"].iloc[0])
    terms = provider_terms(provider)
    if terms is None:
        return part.iloc[:0]
    shipped = newest_prices()
    known = {*shipped["instance_type"].astype(str), *unpriced()["instance_type"].astype(str)}
    wanted = part["instance_type"].astype(str).isin(known) | (part["gpu_count"] > 0)
    here = (part["region"] == terms.reference_region) & part["market"].isin(MARKETS)
    return part[wanted & here].reset_index(drop=True)


def _with_shipped_facts(above: pd.DataFrame, shipped: pd.DataFrame) -> pd.DataFrame:
    known = pd.MultiIndex.from_frame(shipped[["provider", "instance_type"]].astype(str))
    ours = pd.MultiIndex.from_frame(above[["provider", "instance_type"]].astype(str)).isin(known)
    above = above.copy()
    above.loc[ours, ["vcpus", "memory_gib", "gpu_count"]] = np.nan
    return table.inherit_facts(above, shipped)


def _drop_priced(path: Path, rows: pd.DataFrame) -> None:
    lines = pd.read_csv(path, dtype=str, keep_default_na=False)
    left = lines[~lines["instance_type"].isin(rows["instance_type"].astype(str))]
    _files.write_text(path, left.to_csv(index=False, lineterminator="\n"), error=CatalogError)


def _update_manifest(place: Path, date: str) -> None:
    path = place / "manifest.json"
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if all(entry["date"] != date for entry in manifest["snapshots"]):
        about = "list and spot prices of one reference region per cloud; each row carries its own date"
        manifest["snapshots"].append(
            {"date": date, "file": f"{date}.csv", "rows": 0, "sha256": "", "description": about}
        )
    for entry in [*manifest["snapshots"], *manifest["tables"]]:
        content = (place / entry["file"]).read_bytes()
        entry["sha256"] = hashlib.sha256(content).hexdigest()
        if entry["file"].endswith(".csv"):
            entry["rows"] = len(list(csv.reader(content.decode().splitlines()))) - 1
    _files.write_text(path, json.dumps(manifest, indent=2) + "\n", error=CatalogError)
