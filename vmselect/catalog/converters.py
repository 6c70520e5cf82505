"""Converts price files of other tools, SkyPilot's ``vms.csv`` (v7, v8) and gpuhunt's CSV, to the catalog's columns.

SkyPilot's file has separate rows for the hosts and the accelerators of Google; :func:`assemble` adds their prices.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmselect.catalog.offer import OWN_PRICE, name_gpu
from vmselect.errors import CatalogError
from vmselect.findings import Finding
from vmselect.units import list_some

Origin = npt.NDArray[np.intp]
Converted = tuple[pd.DataFrame, Origin, list[Finding]]

# Names of SkyPilot's folders and gpuhunt's files. Other names do not identify a provider.
PROVIDERS = re.compile(
    r"""
    aws|azure|cloudrift|crusoe|cudo|datacrunch|daytona|digitalocean|do|fluidstack|gcp|hotaisle|hyperbolic|
    hyperstack|ibm|jarvislabs|lambda|lambdalabs|lium|mithril|nebius|oci|ovhcloud|paperspace|primeintellect|
    runpod|scaleway|scp|seeweb|shadeform|simplepod|spheron|tensordock|vast|vastai|verda|vsphere|vultr|yotta
    """,
    re.X,
)
# Families of Google Cloud whose hosts SkyPilot prices without their GPUs.
_GCP_HOST_ONLY = r"(?:a2|a3|a4|a4x|g2|g4)-"
# SkyPilot's name for the GPU of A3 Mega; our table uses the name of the chip.
_SKYPILOT_GPUS = {"a3-megagpu": "H100-MEGA"}
# Families whose GPU price includes cores and memory.
_WHOLE_SLICES = ("a4-",)
# SkyPilot's placeholder for an unknown price of a TPU v6e.
_NO_PRICE_OF_V6E = 700.0


def assemble(rows: pd.DataFrame, *, market: str, prices: pd.Series) -> pd.DataFrame:
    """Return prices of known Google machines in ``market``: the sum for a host and its accelerators in the same zone.

    ``prices`` are the USD per hour of ``rows``. Rows of accelerators have no instance type. In the result, the column
    ``row`` of a machine is the row of its accelerators.
    """
    from vmselect.catalog.snapshots import known_machines  # which reads a snapshot through this module

    priced = rows.assign(market=market, usd_per_hour=pd.to_numeric(prices, errors="coerce"))
    priced = priced[priced["usd_per_hour"] > 0]
    accelerators = priced[priced["instance_type"] == ""]
    by_gpu = dict(tuple(accelerators.groupby(["gpu_model", "gpu_count"])))
    by_host = dict(tuple(priced[priced["instance_type"] != ""].groupby("instance_type")[["zone", "usd_per_hour"]]))
    machines = []
    for name, facts in known_machines("gcp").items():
        if not facts.get("gpu_count"):
            continue
        if name.startswith("tpu"):
            tpus = by_gpu.get((name, 1.0))
            found = None if tpus is None else tpus[tpus["usd_per_hour"] != _NO_PRICE_OF_V6E]
        else:
            gpu = _SKYPILOT_GPUS.get(name.rpartition("-")[0], facts["gpu_model"])
            found = by_gpu.get((gpu, facts["gpu_count"]))
            if found is not None and not name.startswith(_WHOLE_SLICES):
                found = _add_host(found, by_host.get(name.partition("+")[0]))
        if found is not None and len(found):
            machines.append(found.assign(instance_type=name, **facts))
    return pd.concat(machines) if machines else priced.iloc[:0]


def _add_host(gpus: pd.DataFrame, hosts: pd.DataFrame | None) -> pd.DataFrame | None:
    if hosts is None:
        return None
    host_usd = gpus["zone"].map(hosts.drop_duplicates("zone").set_index("zone")["usd_per_hour"])
    return gpus.assign(usd_per_hour=(gpus["usd_per_hour"] + host_usd).round(6))[host_usd.notna()]


class Layout(NamedTuple):
    """The format of another tool's price files, which is recognized by its ``columns``.

    ``convert`` takes the table and the provider; it returns rows with the columns of the catalog, the original position
    of each row, and findings.
    """

    name: str
    columns: frozenset[str]
    convert: Callable[[pd.DataFrame, str], Converted]


def provider_of(path: Path) -> str:
    """Return the provider whose prices the file ``path`` contains, according to the name of the file or its folder."""
    # SkyPilot keeps <provider>/vms.csv, gpuhunt keeps <provider>.csv.
    resolved = path.resolve()
    name = resolved.parent.name if resolved.stem in ("vms", "instances") else resolved.stem
    if not PROVIDERS.fullmatch(name):
        raise CatalogError(f"The provider of the prices in {path.name} is unknown. Pass it, as in provider='aws'.")
    return name


def _convert_skypilot(raw: pd.DataFrame, provider: str) -> Converted:
    rows = pd.DataFrame(
        {
            "provider": provider,
            "instance_type": raw["InstanceType"].astype(str),
            "region": raw["Region"].astype(str).str.strip(" ,"),  # Vast writes ", US, NA" where it knows no city
            "vcpus": _floats(raw, "vCPUs"),
            "memory_gib": _floats(raw, "MemoryGiB"),
            "gpu_model": raw["AcceleratorName"].astype(str).replace("nan", "").map(name_gpu),
            "gpu_count": _floats(raw, "AcceleratorCount"),
            "zone": raw["AvailabilityZone"].astype(str) if "AvailabilityZone" in raw.columns else "",
            "row": np.arange(len(raw)),
        }
    )
    findings = []
    apart = rows["instance_type"] == ""
    if provider == "gcp":
        apart |= rows["instance_type"].str.match(_GCP_HOST_ONLY)
    if apart.any() and provider != "gcp":
        message = f"{int(apart.sum())} rows of SkyPilot that contain an accelerator without a host were excluded."
        remedy = f"To rank these machines, add your own prices ({OWN_PRICE})."
        findings.append(Finding("price-rows-excluded", message, remedy))
    rows.loc[rows["gpu_model"] == "", "gpu_count"] = rows["gpu_count"].fillna(0)
    markets = []
    for market, column in (("on_demand", "Price"), ("spot", "SpotPrice")):
        # A cell that is not a number stays unchanged, so that the check of the rows can name it.
        priced = rows.assign(market=market, usd_per_hour=raw[column].astype(str).to_numpy())
        absent = ["", "nan", "0", "0.0", "0.00"] if market == "spot" else ["", "nan"]  # no spot market may be 0, too
        markets.append(_keep_cheapest(priced[~apart & ~priced["usd_per_hour"].isin(absent)]))
        if provider == "gcp":
            markets.append(_keep_cheapest(assemble(rows, market=market, prices=priced["usd_per_hour"])))
    joined = pd.concat(markets).sort_values(["row", "market"], kind="stable", ignore_index=True)
    if provider == "gcp":
        findings += _describe_unused(rows[apart], joined)
    return joined.drop(columns=["row", "zone"]), joined["row"].to_numpy(dtype=np.intp), findings


def _describe_unused(apart: pd.DataFrame, joined: pd.DataFrame) -> list[Finding]:
    """Return a finding about the accelerators and hosts in ``apart`` that are part of no known machine."""
    gpus = apart[apart["instance_type"] == ""]
    counts = gpus["gpu_count"].map("{:g} x ".format) + gpus["gpu_model"]
    used = gpus["row"].isin(joined["row"])
    names = sorted(set(counts[~used]) - set(counts[used]))
    names += sorted(set(apart["instance_type"]) - {""} - set(joined["instance_type"]))
    if not names:
        return []
    message = f"Prices of accelerators or hosts that are part of no known machine were excluded: {list_some(names, 8)}."
    remedy = f"To rank such machines, add your own prices ({OWN_PRICE})."
    return [Finding("price-rows-excluded", message, remedy, "info")]


def _convert_gpuhunt(raw: pd.DataFrame, provider: str) -> Converted:
    memory = np.broadcast_to(_floats(raw, "gpu_memory"), len(raw))
    counts = _floats(raw, "gpu_count")
    spot = raw["spot"].astype(str).str.lower()
    rows = pd.DataFrame(
        {
            "provider": raw["provider"].astype(str) if "provider" in raw.columns else provider,
            "instance_type": raw["instance_name"].astype(str),
            "region": raw["location"].astype(str),
            "market": np.where(spot == "true", "spot", np.where(spot == "false", "on_demand", spot)),
            "usd_per_hour": raw["price"].astype(str),
            "vcpus": _floats(raw, "cpu"),
            "memory_gib": _floats(raw, "memory"),
            "gpu_model": list(map(name_gpu, raw["gpu_name"].astype(str).replace("nan", ""), memory)),
            "gpu_count": counts,
            "gpu_memory_gib": memory,
        }
    )
    google = rows["provider"] == "gcp"
    # gpuhunt gives an N1 host with added GPUs the name of the host.
    added = google & rows["instance_type"].str.startswith("n1-") & (rows["gpu_count"] > 0)
    gpus = rows["gpu_count"].map("+{:g}x".format) + rows["gpu_model"]
    rows["instance_type"] = rows["instance_type"].where(~added, rows["instance_type"] + gpus)
    rows["region"] = rows["region"].mask(google, rows["region"].str.replace(r"-[a-z]$", "", regex=True))
    kept = pd.concat([rows[~google], _keep_cheapest(rows[google])]).sort_index()
    return kept.reset_index(drop=True), kept.index.to_numpy(dtype=np.intp), []


def _keep_cheapest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the row of the cheapest zone for each region, instance type and market.

    If the price of a zone is not a number, the row of that zone is returned instead, so that validation reports it.
    """
    rank = pd.to_numeric(rows["usd_per_hour"], errors="coerce").fillna(-1)
    return rows.loc[rank.sort_values(kind="stable").index].drop_duplicates(["instance_type", "region", "market"])


def _floats(raw: pd.DataFrame, column: str) -> Any:
    if column not in raw.columns:
        return np.nan
    return pd.to_numeric(raw[column].astype(object), errors="coerce").astype(np.float64).to_numpy()


LAYOUTS = (
    Layout(
        "skypilot", frozenset({"InstanceType", "AcceleratorName", "Price", "SpotPrice", "Region"}), _convert_skypilot
    ),
    Layout("gpuhunt", frozenset({"instance_name", "location", "price", "gpu_name", "spot"}), _convert_gpuhunt),
)
