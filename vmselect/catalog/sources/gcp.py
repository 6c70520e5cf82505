"""Fetches prices of CPU cores, memory and GPUs from Google's Billing Catalog; adds them up to prices of machines."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import replace

from vmselect.catalog.offer import describe_nearest
from vmselect.catalog.shipped import known_machines
from vmselect.catalog.sources import Json, PriceTable, Row, build_table
from vmselect.catalog.sources.http import JsonClient, follow_pages, read_items
from vmselect.errors import RefreshError

BASE_URL = "https://cloudbilling.googleapis.com/v1"
COMPUTE_ENGINE = "6F81-5844-456A"

# Machine family: first words of its core and memory SKUs. The longest matching family name counts.
_HOSTS = {
    "a2": "A2 Instance",
    "a3": "A3 Instance",
    "a3-megagpu": "A3Plus Instance",
    "a3-ultragpu": "A3Ultra Instance",
    "a4": "A4 Instance",
    "c2": "Compute optimized",
    "c3": "C3 Instance",
    "e2": "E2 Instance",
    "g2": "G2 Instance",
    "g4": "G4 Instance",
    "n1": "N1 Predefined Instance",
    "n2": "N2 Instance",
}
# Our name of a GPU model, or a family with its own GPU: a pattern for the description of its SKU.
_GPUS = {
    "a3-megagpu": r"h100\b.*\b(?:mega|plus)",
    "A100": r"a100(?!.*\b80 ?gb)",
    "A100-80GB": r"a100\b.*\b80 ?gb",
    "B200": r"b200",
    "GB200": r"gb200",
    "H100": r"h100(?!.*\b(?:mega|plus))",
    "H200": r"h200",
    "K80": r"k80",
    "L4": r"l4",
    "P100": r"p100",
    "P4": r"p4",
    "RTX-PRO-6000": r"rtx(?: pro)? 6000",
    "T4": r"t4",
    "V100": r"v100",
}
# Some GPUs are sold as slices of their machine, with cores and memory.
_SLICE = "gpu slice"
_REJECTED = re.compile(
    r"commitment|custom|sole tenancy|reserved|reservation|dws|defined duration|calendar|premium|suspended"
    r"|workstation|vws|vgpu",
    re.I,
)
_LOCAL_SSD_INSIDE = ("a2-ultragpu", "a3-", "a4-")
Parts = dict[tuple[str, bool], set[float]]  # (description, with "gpu:" before a GPU's; spot): USD per hour of one unit


class GcpPrices:
    """On-demand and spot prices of Google Cloud, without sustained-use discounts."""

    provider = "gcp"
    region_pattern = r"[a-z]+-[a-z]+[0-9]+"

    def __init__(
        self, *, base_url: str = BASE_URL, api_key: str | None = None, client: JsonClient | None = None
    ) -> None:
        self._base_url = base_url
        self._key = (api_key or os.environ.get("GOOGLE_API_KEY") or "").strip()
        # In a header the key stays out of addresses, and so out of logs and messages.
        self._client = replace(client or JsonClient(), headers={"X-Goog-Api-Key": self._key} if self._key else {})
        self._lock = threading.Lock()
        self._skus: list[Json] | None = None
        self._parts: dict[str, Parts] = {}

    def missing(self) -> str | None:
        """Return a text about the API key if it is missing or invalid, else None."""
        if not self._key:
            return "The Google API key is missing. Set the environment variable GOOGLE_API_KEY."
        if not re.fullmatch(r"[!-~]+", self._key):  # copied from a page with an invisible character
            return "GOOGLE_API_KEY contains an invalid (perhaps invisible) character. Enter the key again."
        return None

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        """Fetch the prices of ``region``. Return the prices of known machines whose parts all have a price."""
        with self._lock:  # the answer covers all regions: the first thread fetches it, the others share it
            if self._skus is None:
                self._skus = self._download(progress)
        parts = self._parts[region] = collect_parts(self._skus, region)
        rows = []
        for name, facts in known_machines("gcp").items():
            for market in ("on_demand", "spot"):
                price = assemble(name, facts, parts, spot=market == "spot")
                if not isinstance(price, str):
                    row = {"provider": "gcp", "service": "gce", "instance_type": name, "region": region}
                    note = "without its local SSD" if name.startswith(_LOCAL_SSD_INSIDE) else ""
                    rows.append({**row, "market": market, "usd_per_hour": price, **facts, "note": note})
        if not rows:
            regions = {str(place) for sku in self._skus for place in sku.get("serviceRegions") or ()}
            hint = "Update vmselect." if region in regions else describe_nearest(region, regions)
            raise RefreshError(f"Google Cloud lists no price of a known machine in {region!r}. {hint}")
        return build_table(rows, self.provider, region)

    def explain_missing(self, name: str, region: str) -> str:
        """Return the reason why the machine type ``name`` has no on-demand price in ``region``."""
        return str(assemble(name, known_machines("gcp")[name], self._parts[region], spot=False))

    def _download(self, progress: Callable[[str], None]) -> list[Json]:
        url = f"{self._base_url}/services/{COMPUTE_ENGINE}/skus"
        query = {"pageSize": "5000", "currencyCode": "USD"}

        def read_page(token: str) -> Json:
            return self._client.get(url, {**query, "pageToken": token} if token else query)

        skus: list[Json] = []
        for number, page in enumerate(follow_pages(read_page, link="nextPageToken"), 1):
            skus += read_items({"skus": []} | page, "skus")
            progress(f"page {number}")
        if not skus:
            # The API answers with an empty list for a service that does not exist.
            raise RefreshError("Google Cloud returned an empty price list. Check the project of the API key.")
        return skus


def collect_parts(skus: list[Json], region: str) -> Parts:
    """Return the prices in USD per hour of one CPU core, one GiB of memory and one GPU in ``region``."""
    parts: Parts = {}
    for sku in skus:
        description = str(sku.get("description") or "")
        category = sku.get("category") or {}
        if region not in (sku.get("serviceRegions") or ()) or _REJECTED.search(description):
            continue
        if category.get("usageType") not in ("OnDemand", "Preemptible"):
            continue
        if category.get("resourceGroup") not in ("CPU", "RAM", "GPU", "N1Standard"):
            continue
        # The usage type does not suffice: some spot SKUs are listed as on demand.
        spot = category["usageType"] == "Preemptible" or "preemptible" in description.lower()
        name = re.sub(r"^(?:Spot )?Preemptible ", "", description, flags=re.I)
        name = re.split(r" (?:running in|attached to)", name)[0].strip()
        price = read_unit_price(sku)
        if price is not None:
            kind = "gpu:" if category["resourceGroup"] == "GPU" else ""
            parts.setdefault((kind + name.lower(), spot), set()).add(price)
    return parts


def read_unit_price(sku: Json) -> float | None:
    """Return the USD per hour of one unit of ``sku``; None if there is no such price.

    It is the price of the last tier, because free tiers come first.
    """
    try:
        expression = sku["pricingInfo"][-1]["pricingExpression"]
        money = expression["tieredRates"][-1]["unitPrice"]
        if expression["usageUnit"] not in ("h", "GiBy.h") or money.get("currencyCode", "USD") != "USD":
            return None
        price = int(money.get("units") or 0) + int(money.get("nanos") or 0) / 1e9
        return price if price > 0 else None  # a free core would make the machine too cheap without being detected
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def assemble(name: str, facts: Row, parts: Parts, *, spot: bool) -> float | str:
    """Return the price of the machine ``name`` in USD per hour, or the reason why it is unknown."""
    family = max((host for host in _HOSTS if name == host or name.startswith(f"{host}-")), key=len, default=None)
    if family is None:
        return "the machine family is not supported"
    price, gpu = 0.0, None
    if facts.get("gpu_count"):
        gpu_pattern = _GPUS.get(family) or _GPUS.get(facts["gpu_model"])
        pattern = rf"\b(?:{gpu_pattern})\b" if gpu_pattern else None
        gpus = [part for part, is_spot in parts if is_spot == spot and part.startswith("gpu:")]
        gpus = [part for part in gpus if pattern and re.search(pattern, part)]
        gpu = _only(parts, gpus, spot)
        if isinstance(gpu, str):
            return f"{gpu} of the GPU {facts['gpu_model']} found"
        price += gpu * facts["gpu_count"]
        if all(_SLICE in part for part in gpus):
            return round(float(price), 6)
    for unit, column in (("Core", "vcpus"), ("Ram", "memory_gib")):
        part = _only(parts, [f"{_HOSTS[family]} {unit}".lower()], spot)
        if isinstance(part, str):
            return f"{part} of {_HOSTS[family]} {unit} found"
        price += part * facts[column]
    return round(float(price), 6)


def _only(parts: Parts, names: list[str], spot: bool) -> float | str:
    prices = set().union(*(parts.get((name, spot), set()) for name in names))
    if len(prices) == 1:
        return prices.pop()
    return f"{len(prices)} prices" if prices else "no price"
