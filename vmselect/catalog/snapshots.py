"""The prices that ship with vmselect: dated snapshots, GPU figures and what each provider promises."""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from vmselect import _files
from vmselect._checks import check_name, check_path, maybe, show
from vmselect._files import pricing_folder
from vmselect.catalog import files, refresh, table
from vmselect.catalog.offer import KEY, SCHEMA_VERSION, is_iso_date
from vmselect.errors import ArgumentError, CatalogError


class ManifestEntry(BaseModel):
    """A file of the pricing folder; only snapshots of prices have a date and a description."""

    file: str
    rows: int
    sha256: str
    date: str = ""
    description: str = ""


class Manifest(BaseModel):
    """The files of the pricing folder, oldest snapshot first."""

    schema_version: int
    snapshots: tuple[ManifestEntry, ...]
    tables: tuple[ManifestEntry, ...]


class ProviderTerms(BaseModel):
    """How a provider bills a service and what availability it promises, each with its source.

    >>> provider_terms("aws").billing_minimum_seconds
    60
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: str
    service: str
    reference_region: str
    billing_increment_seconds: int
    billing_minimum_seconds: int
    billing_source: str
    sla_percent: float | None
    sla_scope: str
    sla_source: str


@functools.cache
def manifest() -> Manifest:
    """What lies in the pricing folder."""
    path = pricing_folder() / "manifest.json"
    try:
        found = Manifest.model_validate_json(path.read_bytes())
    except ValidationError as broken:
        raise CatalogError(f"{path} is damaged ({broken.error_count()} faults). Install vmselect again.") from broken
    if found.schema_version != SCHEMA_VERSION:
        raise CatalogError(f"{path} has schema {found.schema_version}, this release reads {SCHEMA_VERSION}.")
    return found


def snapshot_at(date: str | None = None) -> ManifestEntry:
    """The newest snapshot, or the newest one not later than ``date``.

    >>> snapshot_at("2021-02-28").date
    '2021-02-01'
    """
    snapshots = manifest().snapshots
    if date is None:
        return snapshots[-1]
    if not is_iso_date(date):
        raise ArgumentError(f"date {show(date)} is not a day written as 2026-08-22.")
    in_force = [s for s in snapshots if s.date <= date]
    if not in_force:
        raise CatalogError(f"No prices of {date} or before; the earliest snapshot is of {snapshots[0].date}.")
    return in_force[-1]


@functools.cache
def read_snapshot(file: str) -> pd.DataFrame:
    """The checked rows of one shipped snapshot."""
    return files.read(pricing_folder() / file)[0]


def newest_prices() -> pd.DataFrame:
    """The checked rows of the newest shipped snapshot."""
    return read_snapshot(snapshot_at().file)


@functools.cache
def _gpu_specs() -> pd.DataFrame:
    return pd.read_csv(pricing_folder() / "gpu-specs.csv", index_col="model", keep_default_na=False, na_values=[""])


def gpu_specs() -> pd.DataFrame:
    """Peak rates per GPU or accelerator model; ``basis`` states which numbers were derived or assumed.

    >>> float(gpu_specs().loc["T4", "fp32_tflops"])
    8.1
    """
    return _gpu_specs().copy()


@functools.cache
def unpriced() -> pd.DataFrame:
    """Machine types of which we know what they are, and no price."""
    texts = ("provider", "service", "instance_type", "gpu_model")
    frame = pd.read_csv(pricing_folder() / "unpriced.csv", dtype=dict.fromkeys(texts, str), keep_default_na=False)
    frame = frame.drop(columns="basis")  # for readers of the file: the source of each row
    return frame.astype({column: "category" if column in texts else "float64" for column in frame.columns})


def describe_unpriced(instance_type: str) -> str | None:
    """What a type is of which we know no price; None for any other.

    >>> describe_unpriced("g4dn.xlarge") is None
    True
    """
    for row in unpriced()[unpriced()["instance_type"] == instance_type].itertuples():
        return f"{row.gpu_count:g} x {row.gpu_model}, {row.vcpus:g} vCPUs, {row.memory_gib:g} GiB"
    return None


def unpriced_with(gpu: str) -> list[str]:
    """The types with this GPU of which we know no price.

    >>> unpriced_with("T4")
    []
    """
    models = [fold_gpu(str(model)) for model in unpriced()["gpu_model"]]
    names = unpriced()["instance_type"].astype(str)
    return [name for name, model in zip(names, models, strict=True) if model == fold_gpu(gpu)]


def fold_gpu(model: str) -> str:
    """A GPU's name as it is compared: however its letters and the gaps between its parts are written."""
    return re.sub(r"[\s_-]+", "-", model).casefold()


@functools.cache
def _terms() -> tuple[ProviderTerms, ...]:
    rows = json.loads((pricing_folder() / "providers.json").read_text(encoding="utf-8"))
    return TypeAdapter(tuple[ProviderTerms, ...]).validate_python(rows)


def provider_terms(provider: str, *, service: str | None = None) -> ProviderTerms | None:
    """Billing and availability terms of a provider's service; None for a provider that we know nothing of.

    >>> provider_terms("azure").reference_region, provider_terms("my-cluster")
    ('eastus', None)
    """
    provider, service = check_name("provider", provider), maybe(check_name, "service", service)
    mine = [t for t in _terms() if t.provider == provider]
    return next((t for t in mine if t.service == service), mine[0] if mine else None)


# A new snapshot for the pricing folder: the newest one with refreshed prices over it.


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
    parts, _ = refresh.read_parts()
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
