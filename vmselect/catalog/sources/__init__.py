"""Sources of current prices, one module per cloud. To add a cloud, add its class to ``api_sources``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pandas as pd

from vmselect._checks import show
from vmselect.catalog.age import today
from vmselect.catalog.offer import KEY, build_frame
from vmselect.errors import ArgumentError, RefreshError
from vmselect.findings import Finding

Json = dict[str, Any]  # an object of a response
Row = dict[str, Any]  # column of a price row: value
PriceTable = tuple[pd.DataFrame, list[Finding]]  # validated rows, and findings about excluded rows


class Source(Protocol):
    """A source from which the prices of one cloud can be fetched."""

    provider: str
    region_pattern: str  # a regular expression that matches the names of this cloud's regions

    def missing(self) -> str | None:
        """Return a text about a missing credential or package and the remedy; None if prices can be fetched."""

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        """Fetch and validate all VM prices of ``region``. Raise a RefreshError if a response is incomplete.

        ``progress`` is called with a short text about the present request. A source may also have ``list_regions()``,
        for a refresh of all regions, and ``explain_missing(instance_type, region)``, which returns the reason why a
        known machine has no price.
        """


VIA = ("auto", "api", "skypilot", "gpuhunt")
"""Sources from which prices can be fetched: the price APIs of the clouds, or catalogs that SkyPilot and gpuhunt
publish. ``auto`` is the price API of a cloud that has one here, else SkyPilot."""


def api_sources() -> dict[str, Callable[[], Source]]:
    """Map the name of each provider to the class that reads its price API."""
    from vmselect.catalog.sources import aws, azure, gcp  # on use: they import requests

    return {"aws": aws.AwsPrices, "azure": azure.AzurePrices, "gcp": gcp.GcpPrices}


def choose_via(provider: str, via: str) -> str:
    """Return the source that ``via``, one of :data:`VIA`, means for ``provider``.

    >>> choose_via("azure", "auto"), choose_via("lambda", "auto"), choose_via("azure", "gpuhunt")
    ('api', 'skypilot', 'gpuhunt')
    """
    if via != "auto":
        return via
    return "api" if provider in api_sources() else "skypilot"


def open_source(provider: str, via: str = "auto") -> Source:
    """Return the source of prices of ``provider``; ``via`` is one of :data:`VIA`."""
    via = choose_via(provider, via)
    if via == "skypilot":
        from vmselect.catalog.sources.skypilot import SkyPilotPrices

        return SkyPilotPrices(provider)
    if via == "gpuhunt":
        from vmselect.catalog.sources.gpuhunt import GpuhuntPrices

        return GpuhuntPrices(provider)
    sources = api_sources()
    if provider not in sources:
        raise ArgumentError(
            f"{show(provider)} has no price API here. Choose from: {', '.join(sources)}, or use source='skypilot'."
        )
    return sources[provider]()


def build_table(rows: Sequence[Row], provider: str, region: str) -> PriceTable:
    """Validate rows that were read from a price API. Return the valid rows, and a finding about invalid rows."""
    if not rows:
        raise RefreshError("The response of the price API contains no VM price. Try again later.")
    raw = pd.DataFrame(rows, dtype=object)
    raw = raw.drop_duplicates([name for name in (*KEY, "usd_per_hour") if name in raw.columns], ignore_index=True)
    names = (raw["instance_type"].astype(str) + " " + raw["market"].astype(str)).tolist()
    frame, excluded = build_frame(
        raw,
        name_row=lambda row: f"{provider} {region} {names[row]}",
        default_date=today().isoformat(),
        default_source=f"{provider} API",
        skip_bad_rows=True,
    )
    if not len(frame):
        raise RefreshError(f"The response of the price API contains no valid price. {excluded[0]}")
    return frame, excluded
