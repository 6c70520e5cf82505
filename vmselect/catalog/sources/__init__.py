"""Sources of current prices, one module per cloud. To add a cloud, add its class to ``api_sources``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pandas as pd

from vmselect._checks import show
from vmselect.catalog import table
from vmselect.catalog.offer import KEY
from vmselect.errors import ArgumentError, RefreshError
from vmselect.findings import Finding

Row = dict[str, Any]  # column of a price row: value
PriceTable = tuple[pd.DataFrame, list[Finding]]  # validated rows, and findings about excluded rows


class Source(Protocol):
    """A source from which the prices of one cloud can be fetched."""

    provider: str
    region_pattern: str  # a regular expression that matches the names of this cloud's regions

    def missing(self) -> str | None:
        """A sentence about the missing credential or package and its remedy; None if prices can be fetched."""

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        """Fetch and validate all VM prices of ``region``. An incomplete response raises a RefreshError.

        A source may also have ``list_regions()``, for a refresh of all regions, and ``explain_missing(instance_type,
        region)``, the reason why a known machine has no price.
        """


VIA = ("api", "skypilot")
"""Values of ``source``: the clouds' own APIs, or the catalog that SkyPilot publishes."""


def api_sources() -> dict[str, Callable[[], Source]]:
    """The class that reads the price API of each provider, by the provider's name."""
    from vmselect.catalog.sources import aws, azure, gcp  # on use: they import requests

    return {"aws": aws.AwsPrices, "azure": azure.AzurePrices, "gcp": gcp.GcpPrices}


def open_source(provider: str, via: str = "api") -> Source:
    """The price source of ``provider``: its price API, or SkyPilot's file if ``via`` is ``skypilot``."""
    if via == "skypilot":
        from vmselect.catalog.sources.skypilot import SkyPilotPrices

        return SkyPilotPrices(provider)
    known = api_sources()
    if provider not in known:
        raise ArgumentError(f"Prices of provider {show(provider)} cannot be fetched. Choose from: {', '.join(known)}.")
    return known[provider]()


def build_table(rows: Sequence[Row], provider: str, region: str) -> PriceTable:
    """Validate the rows of a price API. A finding lists the rows that are excluded as invalid."""
    if not rows:
        raise RefreshError("The response contains no VM price. Try again later.")
    raw = pd.DataFrame(rows, dtype=object)
    raw = raw.drop_duplicates([c for c in (*KEY, "usd_per_hour") if c in raw.columns], ignore_index=True)
    names = (raw["instance_type"].astype(str) + " " + raw["market"].astype(str)).tolist()
    frame, excluded = table.build(
        raw,
        name_row=lambda positions: [f"{provider} {region} {names[p]}" for p in positions],
        default_date=dt.datetime.now(dt.UTC).date().isoformat(),
        default_source=f"{provider} API",
        skip_bad_rows=True,
    )
    if not len(frame):
        raise RefreshError(f"The response contains no valid price. {excluded[0]}")
    return frame, excluded
