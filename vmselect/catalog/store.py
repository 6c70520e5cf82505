"""The user's refreshed prices: one file per provider and region, in the platform's cache folder.

A part is replaced in one step, so a refresh that fails, is killed, or runs twice at once leaves every part whole.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pandas as pd

from vmselect.catalog import files
from vmselect.catalog.offer import STALE_AFTER_DAYS, age_days
from vmselect.errors import CatalogError
from vmselect.findings import Finding

# A writer that was killed leaves its unfinished file behind; after an hour nobody is writing it any more.
_ABANDONED_AFTER_SECONDS = 3600.0
_REMEDY = "Run `vmselect prices refresh`."


def cache_folder() -> Path:
    """The platform's cache folder of vmselect, or what ``VMSELECT_CACHE_DIR`` says."""
    own = os.environ.get("VMSELECT_CACHE_DIR")
    if own:
        return Path(own).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "vmselect"


def part_path(provider: str, region: str) -> Path:
    """The file of one provider's prices in one region."""
    return cache_folder() / "prices" / f"{provider}_{region}.csv"


def age_hours(provider: str, region: str) -> float | None:
    """Hours since this part was fetched; None when it never was, or is dated in the future."""
    try:
        age = time.time() - part_path(provider, region).stat().st_mtime
    except OSError:
        return None
    return age / 3600 if age >= 0 else None


def write_part(provider: str, region: str, frame: pd.DataFrame) -> None:
    """Keep fresh prices of one provider in one region, in the place of the old ones."""
    path = part_path(provider, region)
    files.write(frame, path)
    for left in path.parent.glob(".*.part"):
        try:
            if time.time() - left.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
                left.unlink()
        except OSError:
            continue  # its writer finished just now, or it is another user's


def read_part(provider: str, region: str) -> pd.DataFrame:
    """The stored prices of one provider in one region."""
    return files.read(part_path(provider, region))[0]


def read_parts() -> tuple[list[pd.DataFrame], list[Finding]]:
    """The refreshed prices of each provider and region, and what is old or unreadable."""
    frames: list[pd.DataFrame] = []
    findings: list[Finding] = []
    for path in sorted((cache_folder() / "prices").glob("[!.]*.csv")):
        name = path.stem.replace("_", " ")
        try:
            frame, left_out = files.read(path, skip_bad_rows=True)
        except CatalogError as broken:
            findings.append(
                Finding("refreshed-unreadable", f"Refreshed prices of {name} cannot be read: {broken}", _REMEDY)
            )
            continue
        frames.append(frame)
        findings += left_out
        newest = max(frame["date"].astype(str).unique())
        age = age_days(newest)
        if age > STALE_AFTER_DAYS:
            findings.append(
                Finding("old-prices", f"Refreshed prices of {name} are of {newest}, {age} days old.", _REMEDY)
            )
    return frames, findings
