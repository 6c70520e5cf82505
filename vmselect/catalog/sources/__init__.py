"""Sources of fresh prices, one module per cloud. A new cloud is one more line in ``api_sources``."""

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
    """A price source of one cloud."""

    provider: str
    region_pattern: str  # a regular expression that matches the names of this cloud's regions

    def missing(self) -> str | None:
        """The missing credential or package, with the remedy; None if a request is possible."""

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        """Every VM price of one region, validated; RefreshError for an incomplete answer.

        A source may also have ``list_regions()``, for a refresh of all regions, and ``explain_missing(instance_type,
        region)``, the reason why a known machine has no price.
        """


VIA = ("api", "skypilot")
"""Values of ``source``: the clouds' own APIs, or the catalog that SkyPilot publishes."""


def api_sources() -> dict[str, Callable[[], Source]]:
    """The class of each provider's own API."""
    from vmselect.catalog.sources import aws, azure, gcp  # on use: they import requests

    return {"aws": aws.AwsPrices, "azure": azure.AzurePrices, "gcp": gcp.GcpPrices}


def open_source(provider: str, via: str = "api") -> Source:
    """The source of ``provider``: its own API, or SkyPilot's file."""
    if via == "skypilot":
        from vmselect.catalog.sources.skypilot import SkyPilotPrices

        return SkyPilotPrices(provider)
    known = api_sources()
    if provider not in known:
        raise ArgumentError(f"No price source for {show(provider)}. Known: {', '.join(known)}.")
    return known[provider]()


def build_table(rows: Sequence[Row], provider: str, region: str) -> PriceTable:
    """Validate the rows of an API's answer. A finding lists the rows excluded for an impossible price."""
    if not rows:
        raise RefreshError("The answer contains no VM price.")
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
        raise RefreshError(f"No price of the answer is usable. {excluded[0]}")
    return frame, excluded
