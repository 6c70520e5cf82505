"""Fetches the interruption classes of AWS spot machines from the Spot Instance Advisor, which needs no account."""

from __future__ import annotations

from vmselect.catalog.interruptions import SHARES, Key
from vmselect.catalog.offer import SCHEMA
from vmselect.catalog.sources import Json
from vmselect.catalog.sources.http import JsonClient, read_items
from vmselect.errors import RefreshError

URL = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
NAME = "AWS Spot Instance Advisor"


def fetch_classes(*, url: str | None = None, client: JsonClient | None = None) -> dict[Key, str]:
    """Return the class of each Linux machine type in each region, as a label of :data:`SHARES`."""
    page = (client or JsonClient()).get(url or URL)
    ranges = {number: item for item in read_items(page, "ranges") if isinstance(number := item.get("index"), int)}
    labels = {number: str(item.get("label")) for number, item in ranges.items()}
    regions = page.get("spot_advisor")
    if not isinstance(regions, dict):
        raise RefreshError("The response of the Spot Instance Advisor has an unknown format. Update vmselect.")
    classes = {
        ("aws", name, region): label
        for region, systems in regions.items()
        for name, entry in _machines(systems).items()
        if isinstance(number := entry.get("r"), int)
        and (label := labels.get(number, "")) in SHARES
        and _is_name(region, name)
    }
    if not classes:
        raise RefreshError("The response of the Spot Instance Advisor contains no machine. Try again later.")
    return classes


def _machines(systems: object) -> dict[str, Json]:
    """The entries of Linux machine types in a region, without those of another form."""
    machines = systems.get("Linux") if isinstance(systems, dict) else None
    if not isinstance(machines, dict):
        return {}
    return {name: entry for name, entry in machines.items() if isinstance(entry, dict)}


def _is_name(region: str, instance_type: str) -> bool:
    """Whether both may be written to a file of prices."""
    texts = {"region": region, "instance_type": instance_type}
    return not any(SCHEMA[column].find_problem(column, text) for column, text in texts.items())
