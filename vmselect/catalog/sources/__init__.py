"""Where fresh prices come from: one module per cloud. A new cloud is one line in ``REGISTRY``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol, cast

from vmselect._checks import show
from vmselect.errors import ArgumentError

Row = dict[str, Any]  # column of a price row: value


class Source(Protocol):
    """A cloud that can be asked for its prices."""

    provider: str
    region_pattern: str  # what the names of this cloud's regions look like, as a regular expression

    def missing(self) -> str | None:
        """What is missing to ask this cloud (a credential, a package) and where to get it, or None."""

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> list[Row]:
        """Every VM price of one region, as rows; raises RefreshError when the answer is not whole.

        A source may also have ``list_regions()``, for a refresh of all of them, and ``explain_missing(instance_type,
        region)``, which says why a machine that we know got no price, and ``findings`` about what it read.
        """


VIA = ("api", "skypilot")
"""Whom a refresh can ask: the clouds themselves, or SkyPilot's published catalog."""

REGISTRY = {
    "aws": "vmselect.catalog.sources.aws:AwsPrices",
    "azure": "vmselect.catalog.sources.azure:AzurePrices",
    "gcp": "vmselect.catalog.sources.gcp:GcpPrices",
}


def open_source(provider: str, via: str = "api") -> Source:
    """The source of ``provider``: its own API, which must be in ``REGISTRY``, or what SkyPilot publishes of it."""
    if via == "skypilot":
        from vmselect.catalog.sources.skypilot import SkyPilotPrices

        return SkyPilotPrices(provider)
    if provider not in REGISTRY:
        raise ArgumentError(f"No price source for {show(provider)}. Known: {', '.join(REGISTRY)}.")
    module, _, name = REGISTRY[provider].partition(":")
    return cast(Source, getattr(importlib.import_module(module), name)())
