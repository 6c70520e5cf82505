"""Where fresh prices come from: one module per cloud. A new cloud is one more opener in ``REGISTRY``."""

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
PriceTable = tuple[pd.DataFrame, list[Finding]]  # validated rows, and which rows of the answer were excluded


class Source(Protocol):
    """A price source of one cloud."""

    provider: str
    region_pattern: str  # a regular expression that matches the names of this cloud's regions

    def missing(self) -> str | None:
        """The credential or package that a request needs and that is missing, with the remedy; else None."""

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        """Every VM price of one region, validated; raises RefreshError when the answer is incomplete.

        A source may also have ``list_regions()``, for a refresh of all of them, and ``explain_missing(instance_type,
        region)``, the reason why a known machine got no price.
        """


def _open_aws() -> Source:
    from vmselect.catalog.sources.aws import AwsPrices

    return AwsPrices()


def _open_azure() -> Source:
    from vmselect.catalog.sources.azure import AzurePrices

    return AzurePrices()


def _open_gcp() -> Source:
    from vmselect.catalog.sources.gcp import GcpPrices

    return GcpPrices()


REGISTRY: dict[str, Callable[[], Source]] = {"aws": _open_aws, "azure": _open_azure, "gcp": _open_gcp}
VIA = ("api", "skypilot")
"""What a refresh can query: the clouds' own APIs, or SkyPilot's published catalog."""


def open_source(provider: str, via: str = "api") -> Source:
    """The source of ``provider``: its own API, which must be in ``REGISTRY``, or SkyPilot's file."""
    if via == "skypilot":
        from vmselect.catalog.sources.skypilot import SkyPilotPrices

        return SkyPilotPrices(provider)
    if provider not in REGISTRY:
        raise ArgumentError(f"No price source for {show(provider)}. Known: {', '.join(REGISTRY)}.")
    return REGISTRY[provider]()


def build_table(rows: Sequence[Row], provider: str, region: str) -> PriceTable:
    """Validate the rows of an API's answer; rows with an impossible price are excluded and named in a finding."""
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
