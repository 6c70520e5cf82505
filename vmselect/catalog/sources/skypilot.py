"""Fetches prices from the catalog that SkyPilot publishes: CSV files of many clouds, without any account."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from vmselect.catalog import files
from vmselect.catalog.offer import describe_nearest
from vmselect.catalog.sources import PriceTable, api_sources, open_source
from vmselect.catalog.sources.http import JsonClient
from vmselect.errors import ArgumentError, CatalogError, RefreshError
from vmselect.findings import Finding

BASE_URL = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8"


class SkyPilotPrices:
    """On-demand and spot prices of the cloud ``provider`` in all regions, from SkyPilot's file."""

    def __init__(self, provider: str, *, base_url: str = BASE_URL, client: JsonClient | None = None) -> None:
        if not files.PROVIDERS.fullmatch(provider):
            raise ArgumentError(
                f"SkyPilot has no provider {provider!r}. Use a cloud of SkyPilot's catalog, such as aws or lambda."
            )
        self.provider = provider
        # With the cloud's own pattern, `--region us-east-1` is requested from AWS only.
        self.region_pattern = open_source(provider).region_pattern if provider in api_sources() else r".+"
        self._url = f"{base_url}/{provider}/vms.csv"
        self._client = client or JsonClient()
        self._lock = threading.Lock()
        self._frame: pd.DataFrame | None = None
        self._findings: list[Finding] = []

    def missing(self) -> str | None:
        """Return None, because SkyPilot's files need no credentials."""
        return None

    def list_regions(self) -> list[str]:
        """Return the names of all regions in SkyPilot's file of this cloud."""
        return sorted(self._read(lambda _: None)["region"].astype(str).unique())

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        """Return all prices of ``region``. Findings about SkyPilot's file are returned only with the first region."""
        frame = self._read(progress)
        here = frame[frame["region"] == region]
        if not len(here):
            regions = frame["region"].cat.categories
            raise RefreshError(
                f"SkyPilot lists no {self.provider} price in {region!r}. {describe_nearest(region, regions)}"
            )
        texts = here.select_dtypes("category")
        here = here.assign(**{str(c): texts[c].cat.remove_unused_categories() for c in texts})
        with self._lock:
            findings, self._findings = self._findings, []
        return here.reset_index(drop=True), findings

    def _read(self, progress: Callable[[str], None]) -> pd.DataFrame:
        with self._lock:  # one file contains all regions: the first thread fetches it, the others share it
            if self._frame is None:
                progress("vms.csv")
                content = self._client.get_bytes(self._url)
                today = dt.datetime.now(dt.UTC).date()
                try:
                    self._frame, self._findings = files.parse(
                        content, Path("vms.csv"), date=today, provider=self.provider, skip_bad_rows=True
                    )
                except CatalogError:  # its message quotes the response
                    raise RefreshError(
                        f"SkyPilot's file of {self.provider} is not a valid price file. Try again later."
                    ) from None
            return self._frame
