"""Reads the data that ship with vmselect: price snapshots, machines without a price, provider terms."""

from __future__ import annotations

import datetime as dt
import functools
import json

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from vmselect._checks import check_name, maybe
from vmselect._io import pricing_folder
from vmselect.catalog import files
from vmselect.catalog.gpus import fold_gpu
from vmselect.catalog.offer import FACTS, NUMBERS, SCHEMA_VERSION, check_day
from vmselect.errors import CatalogError

Fact = str | float | bool  # vCPUs, memory, GPU or another property of a machine type


class ManifestEntry(BaseModel):
    """A file of the pricing folder, as the manifest describes it. Only snapshots have a date and a description."""

    file: str
    rows: int
    sha256: str
    date: str = ""
    description: str = ""


class Manifest(BaseModel):
    """The list of all files of the pricing folder with their checksums; the oldest snapshot comes first."""

    schema_version: int
    snapshots: tuple[ManifestEntry, ...]
    tables: tuple[ManifestEntry, ...]


class ProviderTerms(BaseModel):
    """Billing rules and promised availability of a provider's service, each with its source.

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
    """Read and validate the manifest of the pricing folder."""
    path = pricing_folder() / "manifest.json"
    try:
        content = Manifest.model_validate_json(path.read_bytes())
    except ValidationError as broken:
        raise CatalogError(f"{path} is damaged ({broken.error_count()} errors). Install vmselect again.") from broken
    if content.schema_version != SCHEMA_VERSION:
        raise CatalogError(f"{path} has schema {content.schema_version}, not {SCHEMA_VERSION}. Install vmselect again.")
    return content


def snapshot_at(date: str | dt.date | None = None) -> ManifestEntry:
    """Return the newest snapshot, or the newest one up to ``date``."""
    snapshots = manifest().snapshots
    day = snapshots[-1].date if date is None else check_day("date", date).isoformat()
    earlier = [snapshot for snapshot in snapshots if snapshot.date <= day]
    if not earlier:
        raise CatalogError(f"No shipped prices are from {day} or earlier. Use {snapshots[0].date} or a later date.")
    return earlier[-1]


@functools.cache
def read_snapshot(file: str) -> pd.DataFrame:
    """Return the validated rows of a shipped snapshot."""
    return files.read(pricing_folder() / file)[0]


def newest_prices() -> pd.DataFrame:
    """Return the validated rows of the newest shipped snapshot."""
    return read_snapshot(snapshot_at().file)


@functools.cache
def unpriced() -> pd.DataFrame:
    """Return the machine types whose vCPUs, memory and GPU are known, but whose price is not."""
    texts = ("provider", "service", "instance_type", "gpu_model")
    frame = pd.read_csv(pricing_folder() / "unpriced.csv", dtype=dict.fromkeys(texts, str), keep_default_na=False)
    frame = frame.drop(columns="basis")  # the source of each row, for readers of the file
    return frame.astype({column: "category" if column in texts else "float64" for column in frame.columns})


def describe_unpriced(instance_type: str) -> str | None:
    """Return GPU, vCPUs and memory of a known machine type without a price as text; None for other machine types."""
    for row in unpriced()[unpriced()["instance_type"] == instance_type].itertuples():
        return f"{row.gpu_count:g} x {row.gpu_model}, {row.vcpus:g} vCPUs, {row.memory_gib:g} GiB"
    return None


def last_sold(instance_type: str) -> str | None:
    """Return the date of the newest snapshot in which ``instance_type`` could be rented; None if there is none.

    >>> last_sold("p2.xlarge")
    '2021-02-01'
    """
    for snapshot in reversed(manifest().snapshots):
        rows = read_snapshot(snapshot.file)
        if ((rows["instance_type"] == instance_type) & ~rows["retired"].astype(bool)).any():
            return snapshot.date
    return None


def unpriced_with(gpu: str) -> list[str]:
    """Return the names of the known machine types with this GPU and without a price."""
    models = [fold_gpu(str(model)) for model in unpriced()["gpu_model"]]
    names = unpriced()["instance_type"].astype(str)
    return [name for name, model in zip(names, models, strict=True) if model == fold_gpu(gpu)]


@functools.cache
def known_machines(provider: str) -> dict[str, dict[str, Fact]]:
    """Map each known machine type of ``provider`` to its vCPUs, memory, GPU and whether it is retired.

    Price APIs do not contain these.
    """
    rows = pd.concat([newest_prices(), unpriced().assign(retired=False)])
    rows = rows[rows["provider"] == provider].drop_duplicates("instance_type")
    machines = {}
    for row in rows.to_dict("records"):
        facts = {name: row[name] for name in FACTS if name not in NUMBERS or not np.isnan(row[name])}
        # Price lists still contain types that can no longer be rented.
        machines[str(row["instance_type"])] = {**facts, "retired": bool(row["retired"])}
    return machines


@functools.cache
def _terms() -> tuple[ProviderTerms, ...]:
    rows = json.loads((pricing_folder() / "providers.json").read_text(encoding="utf-8"))
    return TypeAdapter(tuple[ProviderTerms, ...]).validate_python(rows)


def provider_terms(provider: str, *, service: str | None = None) -> ProviderTerms | None:
    """Return the terms of billing and availability of a provider's service; None for an unknown provider.

    >>> provider_terms("azure").reference_region, provider_terms("my-cluster")
    ('eastus', None)
    """
    provider, service = check_name("provider", provider), maybe(check_name, "service", service)
    services = [terms for terms in _terms() if terms.provider == provider]
    return next((terms for terms in services if terms.service == service), services[0] if services else None)
