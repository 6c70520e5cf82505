"""The files of the pricing folder: prices with their manifest, machine types without a price, terms of the providers.

The newest prices are one file per provider, so that a change can be reviewed. The manifest has the checksum of every
file. The tests check the rows of the files, so a file whose checksum agrees is read without checking each row again.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import io
import json
from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from vmselect._checks import check_name, maybe
from vmselect._io import pricing_folder
from vmselect.catalog.gpus import fold_gpu
from vmselect.catalog.offer import COLUMNS, FACTS, NUMBERS, SCHEMA_VERSION, check_day
from vmselect.errors import CatalogError

Fact = str | float | bool  # vCPUs, memory, GPU or another property of a machine type
LATEST = "latest"
"""Folder of the newest prices, in the pricing folder."""


class ManifestEntry(BaseModel):
    """A file of the pricing folder, its number of rows and its checksum."""

    file: str
    rows: int
    sha256: str


class PriceFile(ManifestEntry):
    """A file with prices: its providers, the oldest and the newest date of a price, and the sources of the prices."""

    providers: tuple[str, ...]
    oldest: str
    newest: str
    sources: tuple[str, ...]


class Snapshot(BaseModel):
    """Shipped prices up to a date, which is that of the newest price."""

    date: str
    description: str
    files: tuple[PriceFile, ...]


class Manifest(BaseModel):
    """The list of all files of the pricing folder; the oldest snapshot comes first."""

    schema_version: int
    snapshots: tuple[Snapshot, ...]
    tables: tuple[ManifestEntry, ...]


class ProviderTerms(BaseModel):
    """Billing rules and promised availability of a provider's service, each with its source; None means unknown.

    >>> provider_terms("aws").billing_minimum_seconds
    60
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: str
    service: str
    reference_region: str | None
    billing_increment_seconds: int | None
    billing_minimum_seconds: int | None
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


def snapshot_at(date: str | dt.date | None = None) -> Snapshot:
    """Return the newest snapshot, or the newest one up to ``date``."""
    snapshots = manifest().snapshots
    day = snapshots[-1].date if date is None else check_day("date", date).isoformat()
    earlier = [snapshot for snapshot in snapshots if snapshot.date <= day]
    if not earlier:
        raise CatalogError(f"No shipped prices are from {day} or earlier. Use {snapshots[0].date} or a later date.")
    return earlier[-1]


@functools.cache
def read_snapshot(date: str) -> pd.DataFrame:
    """Return the rows of the shipped snapshot of ``date``."""
    files = next(snapshot.files for snapshot in manifest().snapshots if snapshot.date == date)
    return parse_trusted([_read_checked(entry) for entry in files])


def _read_checked(entry: ManifestEntry) -> bytes:
    """Return the content of a shipped file. Raise an error if it differs from the one that the manifest describes."""
    path = pricing_folder() / entry.file
    try:
        content = path.read_bytes()
    except OSError as missing:
        raise CatalogError(f"{path} cannot be read ({missing.strerror}). Install vmselect again.") from missing
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise CatalogError(f"{path} was changed since vmselect was installed. Install vmselect again.")
    return content


def parse_trusted(contents: Sequence[bytes]) -> pd.DataFrame:
    """Return the rows of price files that were checked before and have all columns of the catalog."""
    # Parsing all rows at once is several times faster than a table per file and their union.
    header, _, first = contents[0].partition(b"\n")
    rest = (content.partition(b"\n")[2] for content in contents[1:])
    frame = pd.read_csv(
        io.BytesIO(b"".join((header, b"\n", first, *rest))),
        dtype={name: "float64" if name in NUMBERS else "category" for name in COLUMNS},
        keep_default_na=False,
        na_values={name: [""] for name in NUMBERS},
    )
    return frame.assign(retired=(frame["retired"] == "yes").to_numpy())


def newest_prices() -> pd.DataFrame:
    """Return the rows of the newest shipped snapshot."""
    return read_snapshot(snapshot_at().date)


def shipped_from(source: str, providers: Collection[str]) -> pd.DataFrame:
    """Return the newest shipped prices of ``providers`` that are from ``source``, such as ``skypilot``."""
    rows = newest_prices()
    return rows[(rows["source"] == source) & rows["provider"].isin(providers)].reset_index(drop=True)


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
        rows = read_snapshot(snapshot.date)
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

    Without ``service``, or with one that is not listed (price files may name services as they like), these are the
    terms of the provider's first service, its virtual machines.

    >>> provider_terms("azure").reference_region, provider_terms("my-cluster")
    ('eastus', None)
    """
    provider, service = check_name("provider", provider), maybe(check_name, "service", service)
    services = [terms for terms in _terms() if terms.provider == provider]
    return next((terms for terms in services if terms.service == service), services[0] if services else None)
