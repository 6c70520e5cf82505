"""Fetches prices from the catalogs of gpuhunt, layout v3: a second opinion on the prices of nine clouds.

The file ``<cloud>/version`` has the name of the newest catalog, ``<cloud>/<version>/catalog.zip``, which contains
``<cloud>.csv``. A version begins with the day on which gpuhunt made the catalog.
"""

from __future__ import annotations

import datetime as dt
import io
import re
import zipfile
import zlib
from collections.abc import Callable

from vmselect.catalog.files import GPUHUNT_NAMES, MAX_BYTES
from vmselect.catalog.sources.http import JsonClient
from vmselect.catalog.sources.published import Download, PublishedPrices
from vmselect.errors import RefreshError

BASE_URL = "https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v3"


class GpuhuntPrices(PublishedPrices):
    """On-demand and spot prices of the cloud ``provider`` in all regions, from gpuhunt's catalog."""

    publisher = "gpuhunt"

    def __init__(self, provider: str, *, base_url: str = BASE_URL, client: JsonClient | None = None) -> None:
        super().__init__(provider, base_url=base_url, client=client)

    def _download(self, progress: Callable[[str], None]) -> Download:
        name = GPUHUNT_NAMES.get(self.provider, self.provider)
        folder = f"{self._base_url}/{name}"
        progress("version")
        version = self._client.get_bytes(f"{folder}/version").decode("ascii", "replace").strip()
        # The version becomes a part of a URL.
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}", version):
            raise RefreshError(f"gpuhunt's version of {self.provider} is not a valid name. Try again later.")
        progress("catalog.zip")
        content = _unpack(self._client.get_bytes(f"{folder}/{version}/catalog.zip"), f"{name}.csv")
        return Download(content, f"{name}.csv", _read_day(version))


def _read_day(version: str) -> dt.date | None:
    """Return the day on which a catalog was made: versions are called ``20260822-1234``. None if it is not stated."""
    try:
        return dt.datetime.strptime(version.partition("-")[0], "%Y%m%d").date()
    except ValueError:
        return None


def _unpack(content: bytes, name: str) -> bytes:
    """Return the file ``name`` of a zip archive. Raise a RefreshError if it is damaged, or larger than a price file."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open(name) as file:
            data = file.read(MAX_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, KeyError, OSError, RuntimeError, EOFError, ValueError):
        raise RefreshError(f"gpuhunt's archive is damaged or has no file {name}. Try again later.") from None
    if len(data) > MAX_BYTES:
        raise RefreshError(f"gpuhunt's file {name} is larger than {MAX_BYTES // 1024**2} MiB. Try again later.")
    return data
