"""Fetches prices from the catalog that SkyPilot publishes: CSV files of many clouds, on demand and spot."""

from __future__ import annotations

from collections.abc import Callable

from vmselect.catalog.sources.http import JsonClient
from vmselect.catalog.sources.published import Download, PublishedPrices

BASE_URL = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8"


class SkyPilotPrices(PublishedPrices):
    """On-demand and spot prices of the cloud ``provider`` in all regions, from SkyPilot's file."""

    publisher = "SkyPilot"

    def __init__(self, provider: str, *, base_url: str = BASE_URL, client: JsonClient | None = None) -> None:
        super().__init__(provider, base_url=base_url, client=client)

    def _download(self, progress: Callable[[str], None]) -> Download:
        progress("vms.csv")
        return Download(self._client.get_bytes(f"{self._base_url}/{self.provider}/vms.csv"), "vms.csv")
