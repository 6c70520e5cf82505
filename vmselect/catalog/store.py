"""The user's refreshed prices: one file per provider and region, in the platform's cache folder.

A part is replaced in one step, so a refresh that fails, is killed, or runs twice at once leaves every part whole.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

import pandas as pd

from vmselect._checks import show
from vmselect._files import safe_name
from vmselect.catalog import files
from vmselect.catalog.offer import STALE_AFTER_DAYS, age_days
from vmselect.errors import CatalogError
from vmselect.findings import Finding

_REMEDY = "Run `vmselect prices refresh`."


def cache_folder() -> Path:
    """The platform's cache folder of vmselect, or the folder in ``VMSELECT_CACHE_DIR``."""
    own = os.environ.get("VMSELECT_CACHE_DIR")
    try:
        return Path(own).expanduser() if own else _platform_folder() / "vmselect"
    except RuntimeError:  # no such user, or one without a home
        place = f"VMSELECT_CACHE_DIR is {show(own)}, whose home" if own else "The user's home"
        raise CatalogError(f"{place} folder is unknown. Set VMSELECT_CACHE_DIR to a folder for prices.") from None


def _platform_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def part_path(provider: str, region: str) -> Path:
    """The file of one provider's prices in one region, whatever a region is called."""
    full_name = f"{provider}_{region}"
    name = safe_name(full_name)
    if name != full_name:  # two regions may have the same safe name
        name += "-" + hashlib.sha256(full_name.encode()).hexdigest()[:12]
    return cache_folder() / "prices" / f"{name}.csv"


def age_hours(provider: str, region: str) -> float | None:
    """Hours since this part was fetched; None when it never was, or is dated in the future."""
    try:
        age = time.time() - part_path(provider, region).stat().st_mtime
    except OSError:
        return None
    return age / 3600 if age >= 0 else None


def write_part(provider: str, region: str, frame: pd.DataFrame) -> None:
    """Keep fresh prices of one provider in one region, in the place of the old ones."""
    files.write(frame, part_path(provider, region))


def read_part(provider: str, region: str) -> pd.DataFrame | None:
    """The stored prices of one provider in one region; None when there are none, or they are damaged."""
    try:
        return files.read(part_path(provider, region))[0]
    except CatalogError:
        return None


def read_parts() -> tuple[list[pd.DataFrame], list[Finding]]:
    """The refreshed prices of each provider and region, and what is old or unreadable."""
    frames: list[pd.DataFrame] = []
    findings: list[Finding] = []
    try:
        paths = sorted((cache_folder() / "prices").glob("[!.]*.csv"))
    except (CatalogError, OSError) as unknown:  # the shipped prices do without it
        return [], [Finding("refreshed-unreadable", f"No refreshed prices: {unknown}", "", "info")]
    for path in paths:
        name = path.stem.replace("_", " ")
        try:
            frame, excluded = files.read(path, skip_bad_rows=True)
        except CatalogError as broken:
            findings.append(
                Finding("refreshed-unreadable", f"Refreshed prices of {name} cannot be read: {broken}", _REMEDY)
            )
            continue
        frames.append(frame)
        findings += excluded
        newest = max(frame["date"].astype(str).unique())
        age = age_days(newest)
        if age > STALE_AFTER_DAYS:
            findings.append(
                Finding("old-prices", f"Refreshed prices of {name} are of {newest}, {age} days old.", _REMEDY)
            )
    return frames, findings
