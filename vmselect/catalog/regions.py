"""Regions: the country of each provider's region, groups of countries, and the cheapest of several regions.

A *place* is the name of a region (``us-east-1``), the code of a country (``de``, ISO 3166) or one of :data:`GROUPS`.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmselect._io import pricing_folder
from vmselect.catalog.shipped import provider_terms

_EU = (
    "AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU", "IE", "IT", "LT", "LU", "LV",
    "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK",
)  # fmt: skip
GROUPS: dict[str, frozenset[str]] = {
    "eu": frozenset(_EU),
    "europe": frozenset((*_EU, "AL", "BA", "CH", "GB", "IS", "LI", "MD", "ME", "MK", "NO", "RS", "UA")),
    "uk": frozenset({"GB"}),
}
"""Groups of countries: the European Union, Europe (without Russia), and the usual name of the country ``gb``."""


@functools.cache
def countries() -> dict[tuple[str, str], str]:
    """Map each known (provider, region) to the code of its country."""
    rows = pd.read_csv(pricing_folder() / "region-countries.csv", dtype=str, keep_default_na=False)
    return dict(zip(zip(rows["provider"], rows["region"], strict=True), rows["country"], strict=True))


def country_of(provider: str, region: str) -> str | None:
    """Return the code of the country of a provider's region, such as ``US``; None if it is not known.

    >>> country_of("aws", "eu-central-1")
    'DE'
    """
    return countries().get((provider, region))


def is_within(provider: str, region: str, place: str) -> bool:
    """Return whether a provider's region is ``place``, or in the country or group of that name.

    >>> is_within("aws", "eu-central-1", "eu"), is_within("aws", "eu-central-1", "fr")
    (True, False)
    """
    return region == place or country_of(provider, region) in _members(place)


def _members(place: str) -> frozenset[str]:
    """Codes of the countries in ``place``, a group of countries or the code of one."""
    return GROUPS.get(place.lower(), frozenset({place.upper()}))


def select_regions(offers: pd.DataFrame, place: str | None) -> npt.NDArray[np.bool_]:
    """Return whether the region of each of the ``offers`` is in ``place``; None is everywhere."""
    if place is None:
        return np.ones(len(offers), dtype=bool)
    named = (offers["region"] == place).to_numpy()
    members = _members(place)
    if not members & known_countries():
        return named
    providers, regions = offers["provider"].cat, offers["region"].cat
    inside = np.zeros((len(providers.categories), len(regions.categories)), dtype=bool)
    rows = {str(name): number for number, name in enumerate(providers.categories)}
    columns = {str(name): number for number, name in enumerate(regions.categories)}
    for (provider, region), country in countries().items():
        if country in members and provider in rows and region in columns:
            inside[rows[provider], columns[region]] = True
    return np.asarray(named | inside[providers.codes.to_numpy(), regions.codes.to_numpy()])


@functools.cache
def known_countries() -> frozenset[str]:
    """Codes of the countries in which a known region is."""
    return frozenset(countries().values())


def is_group(place: str) -> bool:
    """Return whether ``place`` is the code of a country with a known region, or a group of countries."""
    return place.lower() in GROUPS or place.upper() in known_countries()


def find_cheapest_regions(offers: pd.DataFrame) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows with the cheapest region of each machine type and market, and the numbers of regions compared.

    Of regions with the same price, the reference region of the provider comes first, then the alphabetical order.
    """
    keys = ["provider", "service", "instance_type", "market"]
    if not len(offers):
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
    group = np.zeros(len(offers), dtype=np.int64)
    for name in keys:
        group = group * len(offers[name].cat.categories) + offers[name].cat.codes.to_numpy()
    terms = {str(name): provider_terms(str(name)) for name in offers["provider"].cat.categories}
    references = {name: rules.reference_region for name, rules in terms.items() if rules is not None}
    providers, regions = offers["provider"].cat, offers["region"].cat
    number = {str(name): code for code, name in enumerate(regions.categories)}
    # The code of the reference region of each provider; -1, which no row has, if there is none.
    reference = np.array([number.get(references.get(str(name)) or "", -1) for name in providers.categories])
    elsewhere = regions.codes.to_numpy() != reference[providers.codes.to_numpy()]
    alphabetical = np.argsort(np.argsort(np.asarray(regions.categories, dtype=str)))[regions.codes.to_numpy()]
    order = np.lexsort([alphabetical, elsewhere, offers["usd_per_hour"].to_numpy(), group])
    firsts = np.flatnonzero(np.diff(group[order], prepend=-1))
    counts = np.diff(firsts, append=len(order))
    return order[firsts], counts
