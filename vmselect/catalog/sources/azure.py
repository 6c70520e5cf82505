"""Fetches Azure prices from the Retail Prices API, which needs no account."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from vmselect.catalog.age import today
from vmselect.catalog.shipped import known_machines
from vmselect.catalog.sources import Json, PriceTable, Row, build_table
from vmselect.catalog.sources.http import JsonClient, destination, follow_pages, read_items
from vmselect.errors import RefreshError

BASE_URL = "https://prices.azure.com/api/retail/prices"
_HOURS_PER_YEAR = 8760
_RESERVED = {"1 Year": ("reserved_1y", 1), "3 Years": ("reserved_3y", 3)}
# Cloud Services are sold at prices that include Windows; a dedicated host is not a VM.
_OTHER_PRODUCTS = ("windows", "cloud services", "cloudservices", "dedicated host")


class AzurePrices:
    """Azure prices of Linux VMs: on demand, spot, and reserved or, for other sizes, in a savings plan."""

    provider = "azure"
    region_pattern = r"[a-z]+[0-9]?"

    def __init__(self, *, base_url: str = BASE_URL, client: JsonClient | None = None) -> None:
        self._base_url = base_url
        self._client = client or JsonClient()

    def missing(self) -> str | None:
        """Return None, because the Retail Prices API needs no credentials."""
        return None

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        """Fetch all Linux VM prices of ``region``."""
        query = {
            "api-version": "2023-01-01-preview",
            "currencyCode": "USD",
            "$filter": f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}'",
        }
        newest: dict[tuple[str, str], tuple[str, Row]] = {}
        saving: dict[tuple[str, str], Row] = {}

        def read_page(link: str) -> Json:
            if not link:
                return self._client.get(self._base_url, query)
            if (other := destination(link)) != destination(self._base_url):
                raise RefreshError(
                    f"Azure's link to the next page of prices leads to another host, {other[1]}, and was not followed. "
                    "Try again later."
                )
            return self._client.get(link)

        for number, page in enumerate(follow_pages(read_page, link="NextPageLink"), 1):
            progress(f"page {number}")
            for item in read_items(page, "Items"):
                row = parse_item(item, region)
                if row is None:
                    continue
                # An announced price is listed with the old one; the later of both counts.
                key, start = (row["instance_type"], row["market"]), str(item.get("effectiveStartDate") or "")
                if key not in newest or start > newest[key][0]:
                    newest[key] = (start, row)
                    saving |= {(key[0], plan["market"]): plan for plan in parse_savings(item, row)}
        if not newest:
            raise RefreshError(f"Azure lists no VM price in {region!r}. Check the region's name, such as eastus.")
        # A reservation is for one size and cheaper than a savings plan, which is for all.
        plans = [row for key, row in saving.items() if key not in newest]
        return build_table([*(row for _, row in newest.values()), *plans], self.provider, region)


def parse_item(item: Json, region: str) -> Row | None:
    """Convert an item of the response to a price row; return None if it is not the price of a Linux VM.

    The field ``isPrimaryMeterRegion`` is ignored: it is false for one in seven VM sizes that can be rented.
    """
    size = str(item.get("armSkuName") or "").strip()
    product = str(item.get("productName") or "").lower()
    meter = f"{item.get('skuName') or ''} {item.get('meterName') or ''}".lower()
    if item.get("currencyCode") != "USD":
        raise RefreshError(f"Azure returned prices in {item.get('currencyCode')!r} instead of USD. Try again later.")
    if not size or size.endswith("_Promo") or item.get("armRegionName") != region:
        return None
    if item.get("serviceName") != "Virtual Machines" or any(word in product for word in _OTHER_PRODUCTS):
        return None
    if "low priority" in meter or float(item.get("tierMinimumUnits") or 0) > 0:
        return None
    if str(item.get("effectiveStartDate") or "")[:10] > today().isoformat():
        return None
    price = item.get("retailPrice")
    if item.get("type") == "Consumption" and item.get("unitOfMeasure") == "1 Hour":
        market = "spot" if "spot" in meter else "on_demand"
    elif item.get("type") == "Reservation" and item.get("reservationTerm") in _RESERVED:
        # The unit is "1 Hour" here, too, but the price is that of the whole term.
        market, years = _RESERVED[item["reservationTerm"]]
        price = float(price) / (_HOURS_PER_YEAR * years) if price is not None else None
    else:
        return None
    row = {"provider": "azure", "service": "vm", "instance_type": size, "region": region}
    return {**row, "market": market, "usd_per_hour": price, **_facts(size)}


def parse_savings(item: Json, row: Row) -> Iterator[Row]:
    """Yield the prices per hour of savings plans in an ``item``, whose on-demand price is ``row``."""
    plans = item.get("savingsPlan")
    if row["market"] != "on_demand" or not isinstance(plans, list):
        return
    for plan in plans:
        if isinstance(plan, dict) and plan.get("term") in _RESERVED:
            market, _ = _RESERVED[plan["term"]]  # unlike a reservation, the price is that of an hour
            yield {**row, "market": market, "usd_per_hour": plan.get("retailPrice"), "note": "savings plan"}


def _facts(size: str) -> Row:
    facts = known_machines("azure").get(size)
    if facts is not None:
        return dict(facts)
    # The API does not describe sizes. A name contains the vCPUs, with a lower count after a dash.
    match = re.match(r"(?:Standard|Basic)_[A-Z]+(\d+)(?:-(\d+))?", size)
    return {"vcpus": float(match[2] or match[1])} if match else {}
