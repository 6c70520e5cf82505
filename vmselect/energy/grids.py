"""CO2 of electricity: carbon intensity of power grids and overhead of data centres (PUE) by cloud region.

The tables ``grids.csv`` and ``regions.csv`` ship with vmselect; every number has its year and source. A kilowatt-hour
at the machine causes ``PUE x grid intensity`` of CO2. Making the hardware (embodied carbon) is not included.
"""

from __future__ import annotations

import csv
import functools
import io
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from vmselect import _io
from vmselect._checks import check_choice, check_name, check_number, list_items, maybe, show, suggest_fields
from vmselect.errors import ArgumentError, CatalogError
from vmselect.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

MAX_HOURS = 100_000
"""Maximum number of rows of an hourly file, more than eleven years."""
MAX_FILE_BYTES = 16 * 2**20
OWN_PUE = 1.0
"""PUE of machines outside the known clouds if none is given: an office has no cooling plant of its own."""


class Grid(NamedTuple):
    """Carbon intensity of a power grid, the mean of a year."""

    grid: str
    name: str
    country: str
    g_per_kwh: float
    year: int
    source: str


class CloudRegion(NamedTuple):
    """Grid of a cloud region, its PUE and its share of carbon-free energy, where the provider publishes them."""

    provider: str
    region: str
    location: str
    grid: Grid
    pue: float | None
    pue_year: int | None
    pue_source: str
    carbon_free_share: float | None
    carbon_free_year: int | None


@dataclass(frozen=True)
class EmissionFactor:
    """CO2 of a kilowatt-hour at a machine: ``grid_g_per_kwh`` times ``pue``, with the source of both."""

    grid_g_per_kwh: float
    pue: float
    source: str

    @property
    def kg_per_kwh(self) -> float:
        """Kilograms of CO2 per kilowatt-hour that the machine uses."""
        return self.grid_g_per_kwh / 1000 * self.pue


@suggest_fields
@dataclass(frozen=True, kw_only=True)
class Emissions:
    """How CO2 is computed from energy: by default with the grid of each cloud region, as shipped with vmselect.

    Args:
        grid_g_per_kwh: carbon intensity of the electricity in grams of CO2 per kWh, for all machines.
        hourly: carbon intensity of each hour, instead of ``grid_g_per_kwh``: a list of numbers, or a CSV file with a
            column ``g_per_kwh`` and a row per hour. After the last hour, the first one follows.
        start_hour: hours from the first hour of ``hourly`` to the start of the training. If None, the mean is used.
        pue: energy of the data centre per energy of its machines, for all machines.
        country: country of machines outside the known clouds, as a code of two letters such as ``DE``.
        basis: ``location`` for the mean of the local grid; ``market`` for this mean reduced by the share of carbon-free
            energy that the provider buys, which is known for Google Cloud and some regions of Azure.

    >>> factor = Emissions().factor("aws", "eu-north-1")
    >>> factor.grid_g_per_kwh, factor.pue
    (2.73, 1.1)
    >>> Emissions(country="DE").factor("my-office", "desk").kg_per_kwh
    0.27582
    >>> Emissions().factor("my-office", "desk") is None
    True
    """

    grid_g_per_kwh: float | None = None
    hourly: str | os.PathLike[str] | Sequence[float] | None = None
    start_hour: float | None = None
    pue: float | None = None
    country: str | None = None
    basis: Literal["location", "market"] = "location"

    def __post_init__(self) -> None:
        checked = {
            "grid_g_per_kwh": maybe(check_number, "grid_g_per_kwh", self.grid_g_per_kwh, least=0, most=10_000),
            "hourly": maybe(_check_hourly, "hourly", self.hourly),
            "start_hour": maybe(check_number, "start_hour", self.start_hour, least=0, most=MAX_HOURS),
            "pue": maybe(check_number, "pue", self.pue, least=1, most=10),
            "country": maybe(_check_country, "country", self.country),
            "basis": check_choice("basis", self.basis, ("location", "market")),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.hourly is not None and self.grid_g_per_kwh is not None:
            raise ArgumentError("grid_g_per_kwh and hourly both state the grid intensity. Pass only one of them.")
        if self.start_hour is not None and self.hourly is None:
            raise ArgumentError("start_hour needs the grid intensity of every hour. Pass hourly= (--grid-hourly) too.")

    @property
    def hours(self) -> tuple[float, ...]:
        """The values of ``hourly`` if ``start_hour`` is given; otherwise empty, because the mean is used."""
        return self.hourly if isinstance(self.hourly, tuple) and self.start_hour is not None else ()

    def factor(self, provider: str, region: str) -> EmissionFactor | None:
        """The emission factor of a machine in ``region`` of ``provider``; None if it is not known."""
        place = regions().get((provider, region))
        grid, source = self._grid(place, region)
        if grid is None:
            return None
        pue, origin = self._pue(place, provider)
        return EmissionFactor(grid, pue, f"{source}; PUE {pue:.3g} ({origin})")

    def of_offers(self, offers: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Kilograms of CO2 per kilowatt-hour at the machine of each offer; NaN if the grid is unknown."""
        import numpy as np

        providers, regions_sold = offers["provider"].cat, offers["region"].cat
        places = np.stack([providers.codes.to_numpy(dtype=np.intp), regions_sold.codes.to_numpy(dtype=np.intp)])
        # A catalog has many thousand offers in some hundred places.
        unique, place_of = np.unique(places, axis=1, return_inverse=True)
        factors = [
            self.factor(str(providers.categories[provider]), str(regions_sold.categories[region]))
            for provider, region in unique.T
        ]
        table = np.array([factor.kg_per_kwh if factor else np.nan for factor in factors], dtype=float)
        return np.asarray(table[place_of.reshape(-1)])

    def hourly_ratio(self, seconds: Any) -> Any:
        """Mean grid intensity during a training of ``seconds``, relative to the mean of all hours; 1 if they are equal.

        >>> Emissions(hourly=[100, 300], start_hour=0).hourly_ratio(1800.0)
        0.5
        """
        import numpy as np

        if not self.hours:
            return 1.0
        count, start = len(self.hours), self.start_hour or 0.0
        # The integral of the intensity over time, which is linear within an hour and repeats after the last one.
        summed = np.concatenate([[0.0], np.cumsum(self.hours)])

        def until(hour: Any) -> Any:
            whole, rest = np.divmod(hour, count)
            return whole * summed[-1] + np.interp(rest, np.arange(count + 1), summed)

        if not summed[-1]:
            return 1.0  # without any emissions, no hour is better than another
        hours = np.maximum(np.asarray(seconds) / SECONDS_PER_HOUR, 1e-9)
        mean = (until(start + hours) - until(start)) / hours
        ratio = mean / (summed[-1] / count)
        return ratio if np.ndim(seconds) else round(float(ratio), 9)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**vars(self), "hourly": list(self.hours) or None}

    def _grid(self, place: CloudRegion | None, region: str) -> tuple[float | None, str]:
        if self.grid_g_per_kwh is not None:
            return self.grid_g_per_kwh, "grid intensity as given"
        if isinstance(self.hourly, tuple):
            return statistics.fmean(self.hourly), "hourly grid intensity as given"
        # Outside the known clouds, the region may itself be the code of a country, such as DE.
        own = None if place else grids().get(region.upper()) or grids().get(self.country or "")
        grid = place.grid if place else own
        if grid is None:
            return None, ""
        source = f"grid {grid.name} {grid.year}: {grid.source}"
        if self.basis == "location":
            return grid.g_per_kwh, source
        if place is None or place.carbon_free_share is None:
            return None, ""  # what the provider buys is not published, and 0 % would be a guess
        share = f"{place.carbon_free_share:.0%} carbon-free energy in {place.carbon_free_year}"
        return grid.g_per_kwh * (1 - place.carbon_free_share), f"{source}; {share}"

    def _pue(self, place: CloudRegion | None, provider: str) -> tuple[float, str]:
        if self.pue is not None:
            return self.pue, "as given"
        if place is not None and place.pue is not None:
            return place.pue, f"{place.pue_year}, {place.pue_source}"
        published = [
            region.pue for region in regions().values() if region.provider == provider and region.pue is not None
        ]
        if place is not None and published:
            return statistics.fmean(published), f"mean of {len(published)} other regions of {provider}"
        return OWN_PUE, "without the overhead of a data centre"


@functools.cache
def grids() -> Mapping[str, Grid]:
    """All power grids by name; the name of a whole country's grid is its code of two letters."""
    rows = _read_table("grids.csv")
    return {
        row["grid"]: Grid(**(row | {"g_per_kwh": float(row["g_per_kwh"]), "year": int(row["year"])}))  # type: ignore[arg-type]
        for row in rows
    }


@functools.cache
def regions() -> Mapping[tuple[str, str], CloudRegion]:
    """All cloud regions with a known grid, by provider and region."""

    def number(text: str) -> float | None:
        return float(text) if text else None

    def year(text: str) -> int | None:
        return int(text) if text else None

    return {
        (row["provider"], row["region"]): CloudRegion(
            provider=row["provider"], region=row["region"], location=row["location"], grid=grids()[row["grid"]],
            pue=number(row["pue"]), pue_year=year(row["pue_year"]), pue_source=row["pue_source"],
            carbon_free_share=number(row["carbon_free_share"]), carbon_free_year=year(row["carbon_free_year"]),
        )
        for row in _read_table("regions.csv")
    }  # fmt: skip


def _read_table(file: str) -> list[dict[str, str]]:
    path = _io.pricing_folder() / file
    try:
        return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, csv.Error) as broken:
        raise CatalogError(f"{path} is damaged ({broken}). Install vmselect again.") from None


def _check_country(name: str, value: Any) -> str:
    code = check_name(name, value).upper()
    # A part of a country, such as US-PJM, is no country.
    countries = [grid for grid in grids() if "-" not in grid]
    if code not in countries:
        raise ArgumentError(
            f"{name} is {show(value)}, whose grid is not known. Pass grid_g_per_kwh, or one of: {', '.join(countries)}."
        )
    return code


def _check_hourly(name: str, value: Any) -> tuple[float, ...]:
    """The grid intensity of every hour, from numbers or from a CSV file."""
    if isinstance(value, str | os.PathLike):
        text = _io.read_text(value, noun="file of hourly grid intensities", limit=MAX_FILE_BYTES, error=ArgumentError)
        rows = csv.DictReader(io.StringIO(text, newline=""))
        try:
            hours: list[Any] = [float(row["g_per_kwh"]) for row in rows]
        except (KeyError, TypeError, ValueError, csv.Error):
            raise ArgumentError(
                f"{value} has no column g_per_kwh with a number in every row. Write a header and a row per hour."
            ) from None
    else:
        hours = list_items(value)
    if not 0 < len(hours) <= MAX_HOURS:
        raise ArgumentError(f"{name} has {len(hours)} values. Pass 1 to {MAX_HOURS:,} values, one per hour.")
    return tuple(check_number(f"an hour of {name}", intensity, least=0, most=10_000) for intensity in hours)


DEFAULT = Emissions()
"""Location-based CO2 with the shipped tables."""
