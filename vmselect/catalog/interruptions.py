"""How often spot machines are interrupted: classes by machine type and region, as AWS publishes them.

A class is the share of machines of a type that AWS took back within a month. It is turned into a rate as if each
machine had run for the whole month; most run for a shorter time, so the true rate is rather higher. A refresh stores
newer classes in the cache folder, which are used instead of the shipped ones.
"""

from __future__ import annotations

import csv
import datetime as dt
import functools
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmselect import _io
from vmselect._io import cache_folder, pricing_folder
from vmselect.catalog.offer import is_iso_date
from vmselect.errors import CatalogError

FILE = "spot-interruptions.csv"
COLUMNS = ("provider", "instance_type", "region", "interrupted", "date", "source")
HOURS_PER_MONTH = 365.25 * 24 / 12
SHARES = {"<5%": 0.025, "5-10%": 0.075, "10-15%": 0.125, "15-20%": 0.175, ">20%": 0.25}
"""Share of machines in the middle of each class; the highest class has no upper end, and 0.25 is assumed."""
MAX_BYTES = 16 * 1024**2
Key = tuple[str, str, str]  # provider, instance type, region


class InterruptionClass(NamedTuple):
    """The class of a machine type in a region, and the date on which it was published."""

    label: str
    date: str

    @property
    def per_hour(self) -> float:
        """Interruptions per hour.

        >>> round(InterruptionClass(">20%", "2025-06-28").per_hour, 5)
        0.00039
        """
        return -math.log1p(-SHARES[self.label]) / HOURS_PER_MONTH


def find_class(provider: str, instance_type: str, region: str) -> InterruptionClass | None:
    """Return the class of a machine type in a region; None if it is not known.

    >>> find_class("aws", "g4dn.xlarge", "mars") is None
    True
    """
    return _classes().get((provider, instance_type, region))


def class_rates(offers: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Interruptions per hour of each row of ``offers`` on the spot market; 0 if unknown and in other markets."""
    rates = np.zeros(len(offers))
    spot = np.flatnonzero(offers["market"] == "spot")
    names = (offers[name].astype(str).to_numpy()[spot] for name in ("provider", "instance_type", "region"))
    for row, key in zip(spot.tolist(), zip(*names, strict=True), strict=True):
        if key in _classes():
            rates[row] = _classes()[key].per_hour
    return rates


def write_classes(classes: Mapping[Key, str], *, date: dt.date, source: str) -> Path:
    """Store ``classes`` (labels by provider, instance type and region) in the cache folder. Return the file."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows((*key, label, date.isoformat(), source) for key, label in sorted(classes.items()))
    path = _io.write_text(cache_folder() / FILE, text.getvalue(), error=CatalogError)
    _classes.cache_clear()
    return path


@functools.cache
def _classes() -> dict[Key, InterruptionClass]:
    """The shipped classes, replaced by newer ones of the cache folder."""
    classes = _read(pricing_folder() / FILE)
    try:
        refreshed = _read(cache_folder() / FILE)
    except (CatalogError, OSError):  # there is none, or it is damaged: the shipped ones are used
        return classes
    newer = {key: entry for key, entry in refreshed.items() if entry.date >= classes.get(key, entry).date}
    return {**classes, **newer}


def _read(path: Path) -> dict[Key, InterruptionClass]:
    data = _io.read_bytes(path, noun="file of interruption classes", limit=MAX_BYTES, error=CatalogError)
    rows = csv.DictReader(io.StringIO(data.decode("utf-8", "replace")))
    return {
        (row["provider"], row["instance_type"], row["region"]): InterruptionClass(row["interrupted"], row["date"])
        for row in rows
        if None not in row.values() and row.get("interrupted") in SHARES and is_iso_date(row.get("date", ""))
    }
