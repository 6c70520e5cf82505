"""Emission factors: the shipped tables, and factors of the user."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from vmselect.catalog import provider_terms
from vmselect.energy.grids import OWN_PUE, grids, regions
from vmselect.errors import ArgumentError


def test_every_number_has_a_year_and_a_source() -> None:
    years = range(2020, dt.datetime.now(dt.UTC).year + 1)
    for grid in grids().values():
        assert 0 < grid.g_per_kwh < 1500
        assert grid.year in years
        assert grid.source
        assert grid.grid.partition("-")[0] == grid.country
        assert grid.country in grids()
    for place in regions().values():
        assert place.grid.country
        assert (place.pue is None) == (place.pue_year is None) == (not place.pue_source)
        assert place.pue is None or 1 < place.pue < 2
        assert (place.carbon_free_share is None) == (place.carbon_free_year is None)
        assert place.carbon_free_share is None or 0 <= place.carbon_free_share <= 1


@pytest.mark.parametrize("provider", ["aws", "azure", "gcp"])
def test_the_reference_regions_have_a_factor(provider: str) -> None:
    terms = provider_terms(provider)
    assert terms is not None
    factor = vs.energy.Emissions().factor(provider, terms.reference_region)
    assert factor is not None
    assert factor.kg_per_kwh == pytest.approx(factor.grid_g_per_kwh / 1000 * factor.pue)


def test_regions_on_one_grid_have_its_newest_value() -> None:
    virginia = [
        vs.energy.Emissions().factor(*place)
        for place in (("aws", "us-east-1"), ("azure", "eastus"), ("gcp", "us-east4"))
    ]
    assert {factor.grid_g_per_kwh for factor in virginia if factor} == {grids()["US-PJM"].g_per_kwh}
    assert grids()["US-PJM"].year == 2024


def test_a_region_without_a_published_pue_has_the_mean_of_its_provider() -> None:
    published = [place.pue for place in regions().values() if place.provider == "aws" and place.pue]
    factor = vs.energy.Emissions().factor("aws", "eu-west-3")
    assert factor is not None
    assert factor.pue == pytest.approx(sum(published) / len(published))


def test_own_machines_use_their_country() -> None:
    assert vs.energy.Emissions().factor("office", "desk") is None
    for factor in (
        vs.energy.Emissions(country="fr").factor("office", "desk"),
        vs.energy.Emissions().factor("office", "FR"),
    ):
        assert factor is not None
        assert (factor.grid_g_per_kwh, factor.pue) == (grids()["FR"].g_per_kwh, OWN_PUE)
    cloud = vs.energy.Emissions(country="FR").factor("aws", "us-east-1")
    assert cloud is not None
    assert cloud.grid_g_per_kwh == grids()["US-PJM"].g_per_kwh


def test_a_given_factor_applies_everywhere() -> None:
    chosen = vs.energy.Emissions(grid_g_per_kwh=100, pue=1.5)
    for place in (("aws", "us-east-1"), ("office", "desk")):
        factor = chosen.factor(*place)
        assert factor is not None
        assert factor.kg_per_kwh == pytest.approx(0.15)


def test_market_based_factors_are_known_where_the_provider_publishes_a_share() -> None:
    local, bought = (vs.energy.Emissions(basis=basis).factor("gcp", "us-central1") for basis in ("location", "market"))
    assert local is not None
    assert bought is not None
    assert bought.grid_g_per_kwh == pytest.approx(local.grid_g_per_kwh * (1 - 0.87))
    assert vs.energy.Emissions(basis="market").factor("aws", "us-east-1") is None


def test_hours_are_averaged_over_the_training(tmp_path: Path) -> None:
    file = tmp_path / "hours.csv"
    file.write_text("time,g_per_kwh\n00:00,100\n01:00,300\n02:00,200\n", encoding="utf-8")
    mean = vs.energy.Emissions(hourly=file)
    factor = mean.factor("aws", "us-east-1")
    assert factor is not None
    assert factor.grid_g_per_kwh == 200
    assert mean.hourly_ratio(1.0) == 1.0
    from_one = vs.energy.Emissions(hourly=file, start_hour=1)
    assert from_one.hourly_ratio(3600.0) == pytest.approx(1.5)
    assert from_one.hourly_ratio(3 * 3600.0) == pytest.approx(1.0)  # all hours once, beginning again at the first
    seconds = np.linspace(0, 20_000, 50)
    used = seconds * from_one.hourly_ratio(seconds)
    assert (np.diff(used) > 0).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"grid_g_per_kwh": -1}, {"grid_g_per_kwh": "much"}, {"pue": 0.9}, {"country": "ZZ"}, {"country": 3},
        {"basis": "hope"}, {"hourly": []}, {"hourly": [1, -1]}, {"hourly": "no such file"}, {"start_hour": 1},
        {"hourly": [1], "grid_g_per_kwh": 1},
    ],
)  # fmt: skip
def test_wrong_arguments(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        vs.energy.Emissions(**wrong)


@pytest.mark.parametrize("text", ["", "g\n1\n", "g_per_kwh\nmany\n", "g_per_kwh\n\n", "g_per_kwh,x\n1,2\n,3\n"])
def test_files_without_hours(text: str, tmp_path: Path) -> None:
    file = tmp_path / "hours.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ArgumentError):
        vs.energy.Emissions(hourly=file)
