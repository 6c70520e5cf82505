"""Regions: their countries, groups of countries, and the cheapest of several."""

from __future__ import annotations

import numpy as np
import pytest

import vmselect as vs
from vmselect.catalog.regions import GROUPS, countries, country_of, find_cheapest_regions, is_group, select_regions
from vmselect.catalog.shipped import newest_prices
from vmselect.energy.grids import regions as grid_regions

CATALOG = vs.Catalog.embedded("2026-08-22")
WITHOUT_COUNTRY = {("hyperbolic", "default"), ("yotta", "ap-east-2")}


def test_every_shipped_region_has_a_country() -> None:
    pairs = newest_prices()[["provider", "region"]].drop_duplicates().astype(str)
    unknown = {pair for pair in pairs.itertuples(index=False, name=None) if pair not in countries()}
    assert unknown == WITHOUT_COUNTRY


def test_countries_agree_with_those_of_the_power_grids() -> None:
    for place in grid_regions().values():
        assert country_of(place.provider, place.region) == place.grid.country, place


def test_countries_are_codes_and_groups_contain_codes() -> None:
    codes = set(countries().values()) | set().union(*GROUPS.values())
    assert all(len(code) == 2 and code.isupper() for code in codes)
    assert len(GROUPS["eu"]) == 27
    assert GROUPS["eu"] < GROUPS["europe"]


@pytest.mark.parametrize(
    ("place", "inside", "outside"),
    [
        ("eu", "eu-central-1", "eu-west-2"),  # London
        ("EU", "eu-west-1", "us-east-1"),
        ("europe", "eu-west-2", "me-central-1"),
        ("uk", "eu-west-2", "eu-west-1"),
        ("us", "eastus", "canadacentral"),
        ("de", "europe-west3", "europe-west4"),
        ("US", "US", "CA"),  # RunPod's regions are countries
        ("us-east-1", "us-east-1", "us-east-2"),
    ],
)
def test_a_place_selects_regions(place: str, inside: str, outside: str) -> None:
    regions = set(CATALOG.offers(region=place)["region"].astype(str))
    assert inside in regions
    assert outside not in regions


def test_places_combine_and_restrict_a_catalog() -> None:
    both = set(CATALOG.offers(region=["de", "fr"])["region"].astype(str))
    parts = [set(CATALOG.offers(region=place)["region"].astype(str)) for place in ("de", "fr")]
    assert both == parts[0] | parts[1]
    europe = CATALOG.where(region="eu", gpu="H100")
    assert europe.conditions == ("region=eu", "gpu=H100")
    assert set(europe.offers(market=None)["region"].astype(str)) <= set(
        CATALOG.offers(region="eu", market=None)["region"]
    )


def test_names_are_groups_or_not() -> None:
    assert is_group("eu")
    assert is_group("Us")
    assert not is_group("us-east-1")
    assert not is_group("zz")
    with pytest.raises(vs.errors.MissingNamesError, match="eu"):
        CATALOG.offers(region="zz")


def test_the_cheapest_region_of_each_type_and_market() -> None:
    offers = CATALOG.offers("aws", market=None)
    rows, counts = find_cheapest_regions(offers)
    groups = offers.groupby(["service", "instance_type", "market"], observed=True)
    assert len(rows) == groups.ngroups
    assert counts.sum() == len(offers)
    assert np.allclose(
        offers.iloc[rows].set_index(["service", "instance_type", "market"])["usd_per_hour"].sort_index(),
        groups["usd_per_hour"].min().sort_index(),
    )
    assert len(find_cheapest_regions(offers.iloc[:0])[0]) == 0


def test_everything_is_everywhere() -> None:
    offers = CATALOG.offers(market=None)
    assert select_regions(offers, None).all()
