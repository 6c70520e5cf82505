"""Prices from catalogs that others publish: one CSV file per cloud with all its regions, without any account."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from vmselect._io import cache_folder
from vmselect.catalog import files
from vmselect.catalog.age import today
from vmselect.catalog.dates import describe_unchanged, keep_dates
from vmselect.catalog.offer import describe_nearest
from vmselect.catalog.sources import PriceTable, api_sources, open_source
from vmselect.catalog.sources.http import JsonClient
from vmselect.errors import ArgumentError, CatalogError, RefreshError
from vmselect.findings import Finding


class Download(NamedTuple):
    """The CSV file of a cloud: its content, its name, and the day on which it was made, if the publisher states it."""

    content: bytes
    name: str
    made: dt.date | None = None


class PublishedPrices(ABC):
    """Prices of the cloud ``provider`` in all regions, from a file that is fetched once.

    The cache folder keeps what the file contained last, so that prices keep their dates until the file changes.
    """

    publisher: str
    """Name of the publisher in messages."""

    def __init__(self, provider: str, *, base_url: str, client: JsonClient | None = None) -> None:
        if not files.PROVIDERS.fullmatch(provider):
            raise ArgumentError(
                f"{self.publisher} has no provider {provider!r}. Use a cloud of its catalog, such as aws or lambda."
            )
        self.provider = provider
        # With the cloud's own pattern, `--region us-east-1` is requested from AWS only.
        self.region_pattern = open_source(provider, "api").region_pattern if provider in api_sources() else r".+"
        self._base_url = base_url
        self._client = client or JsonClient()
        self._lock = threading.Lock()
        self._frame: pd.DataFrame | None = None
        self._findings: list[Finding] = []

    @abstractmethod
    def _download(self, progress: Callable[[str], None]) -> Download:
        """Fetch the CSV file of the cloud."""

    def missing(self) -> str | None:
        """Return None, because the files need no credentials."""
        return None

    def list_regions(self) -> list[str]:
        """Return the names of all regions in the file of this cloud."""
        return sorted(self._read(lambda _: None)["region"].astype(str).unique())

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        """Return all prices of ``region``. Findings about the file are returned only with the first region."""
        frame = self._read(progress)
        here = frame[frame["region"] == region]
        if not len(here):
            regions = frame["region"].cat.categories
            raise RefreshError(
                f"{self.publisher} lists no {self.provider} price in {region!r}. {describe_nearest(region, regions)}"
            )
        texts = here.select_dtypes("category")
        here = here.assign(**{str(c): texts[c].cat.remove_unused_categories() for c in texts})
        with self._lock:
            findings, self._findings = self._findings, []
        return here.reset_index(drop=True), findings

    def _read(self, progress: Callable[[str], None]) -> pd.DataFrame:
        with self._lock:  # one file contains all regions: the first thread fetches it, the others share it
            if self._frame is None:
                content, name, made = self._download(progress)
                try:
                    frame, findings = files.parse(
                        content, Path(name), date=min(made or today(), today()), provider=self.provider,
                        skip_bad_rows=True,
                    )  # fmt: skip
                except CatalogError:  # its message quotes the response
                    raise RefreshError(
                        f"{self.publisher}'s file of {self.provider} is not a valid price file. Try again later."
                    ) from None
                self._frame = self._keep(frame)
                self._findings = [*findings, *describe_unchanged(self._frame, self.publisher)]
            return self._frame

    def _keep(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Store the content of the file. Return it with the dates of before where it has not changed."""
        path = cache_folder() / "catalogs" / f"{self.publisher.lower()}_{self.provider}.csv"
        with contextlib.suppress(CatalogError):  # the file was never fetched, or its copy is damaged
            frame = keep_dates(frame, files.read(path)[0], complete=True)
        files.write(frame, path)
        return frame
