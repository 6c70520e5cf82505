"""Asking a catalog: filters, the one offer, nearest names, ages, own prices."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import pytest

import vmselect as vs
from vmselect.catalog import COLUMNS
from vmselect.catalog.offer import KEY
from vmselect.catalog.table import key_codes
from vmselect.errors import ArgumentError, CatalogError

NEGOTIATED = {
    "provider": "aws", "instance_type": "g4dn.xlarge", "region": "us-east-1", "market": "on_demand",
    "usd_per_hour": 0.4,
}  # fmt: skip


@pytest.fixture(scope="module")
def catalog() -> vs.Catalog:
    return vs.Catalog.embedded("2026-08-22")


def test_offers_have_the_documented_columns(catalog) -> None:
    assert tuple(catalog.offers().columns) == COLUMNS
    assert set(catalog.offers()["market"]) == {"on_demand"}


def test_filters_combine_and_take_several_names(catalog) -> None:
    rows = catalog.offers(["aws", "gcp"], gpu=["T4", "L4"], market="spot", retired=False)
    assert set(rows["provider"]) == {"aws", "gcp"}
    assert set(rows["gpu_model"]) == {"T4", "L4"}
    assert set(rows["market"]) == {"spot"}
    assert not rows["retired"].any()
    assert len(catalog.offers(instance_type="g4dn.xlarge", market=None)) == 2
    assert len(catalog.offers(service="sagemaker")) == 29
    assert len(catalog.offers(market=None)) == len(catalog)


def test_a_known_name_without_a_match_gives_no_rows(catalog) -> None:
    assert len(catalog.offers(provider="azure", gpu="L4")) == 0
    assert len(catalog.offers(market="reserved_1y")) == 0


@pytest.mark.parametrize(
    ("ask", "hint"),
    [
        (lambda c: c.price("g4dn.xlage"), r"Nearest: g4dn\.xlarge"),
        (lambda c: c.price("G4DN.XLARGE"), r"Nearest: g4dn\.xlarge"),
        (lambda c: c.price("g4dn.xlarge", region="us-est-1"), r"Nearest: us-east-1"),
        (lambda c: c.offers(gpu="T44"), r"Nearest: T4"),
        (lambda c: c.offers("awss"), r"Nearest: aws"),
        (lambda c: c.offers("qqqqqqq"), r"Known: aws, azure, gcp"),
        (lambda c: c.price("g4dn.xlarge", market="reserved_1y"), r"known: us-east-1 on_demand, us-east-1 spot"),
        (lambda c: c.price("g4dn.xlarge", region="eastus"), r"No on_demand price of g4dn\.xlarge in eastus"),
    ],
)
def test_an_unknown_name_gets_the_nearest(catalog, ask, hint) -> None:
    with pytest.raises(CatalogError, match=hint):
        ask(catalog)


def test_an_unknown_market(catalog) -> None:
    with pytest.raises(ArgumentError, match="not one of on_demand"):
        catalog.offers(market="ondemand")


def test_without_a_region_the_reference_region_answers(catalog) -> None:
    more = catalog.with_offers([{**NEGOTIATED, "region": "eu-west-1", "usd_per_hour": 0.587}])
    assert more.price("g4dn.xlarge") == 0.526
    assert more.price("g4dn.xlarge", region="eu-west-1") == 0.587


def test_without_a_region_two_places_are_a_question(catalog) -> None:
    rows = [{**NEGOTIATED, "instance_type": "own", "region": place} for place in ("here", "there")]
    with pytest.raises(CatalogError, match="several places"):
        catalog.with_offers(rows).price("own")


def test_negotiated_prices_replace_list_prices_and_keep_the_facts(catalog) -> None:
    mine = catalog.with_offers([NEGOTIATED])
    offer = mine.offer("g4dn.xlarge")
    assert (offer.usd_per_hour, offer.source, offer.service, offer.gpu_model) == (0.4, "user", "ec2", "T4")
    assert offer.date == dt.date.today().isoformat()
    assert len(mine) == len(catalog)
    assert catalog.price("g4dn.xlarge") == 0.526


def test_offers_dicts_frames_and_catalogs_are_all_taken(catalog) -> None:
    several = [
        catalog.with_offers([vs.Offer(**NEGOTIATED)]),
        catalog.with_offers([NEGOTIATED]),
        catalog.with_offers(pd.DataFrame([NEGOTIATED])),
        catalog.with_offers(vs.Catalog.embedded("2021-02-28").with_offers([NEGOTIATED])),
    ]
    assert [c.price("g4dn.xlarge") for c in several] == [0.4] * 4


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"usd_per_hour": 0}, "usd_per_hour 0 is outside"),
        ({"usd_per_hour": -1.0}, "usd_per_hour -1 is outside"),
        ({"usd_per_hour": "3,06 EUR"}, "'3,06 EUR' is not a plain number in US dollars"),
        ({"usd_per_hour": float("nan")}, "usd_per_hour"),
        ({"usd_per_hour": True}, "'True' is not a plain number"),
        ({"market": "on-demand"}, "market 'on-demand' is not one of"),
        ({"instance_type": "../../etc/passwd"}, "instance_type '../../etc/passwd' may hold only"),
        ({"instance_type": "=cmd()"}, "starts like a spreadsheet formula"),
        ({"region": ""}, "region is empty"),
        ({"date": "yesterday"}, "date 'yesterday' is not a day"),
        ({"gpu_count": -1}, "gpu_count -1 is outside"),
        ({"note": "a\nb"}, "control characters"),
        ({"colour": "red"}, "An offer has no 'colour'"),
    ],
)
def test_an_offer_that_cannot_be_used(catalog, change, fact) -> None:
    with pytest.raises(CatalogError, match=fact.replace("(", r"\(").replace(")", r"\)")):
        catalog.with_offers([{**NEGOTIATED, **change}])


def test_the_same_price_twice_is_a_question(catalog) -> None:
    with pytest.raises(CatalogError, match=r"offer 2: repeats the price of aws ec2 g4dn\.xlarge .* given by offer 1"):
        catalog.with_offers([NEGOTIATED, {**NEGOTIATED, "usd_per_hour": 0.3}])


def test_the_market_is_on_demand_wherever_it_is_left_out(catalog) -> None:
    plain = {k: v for k, v in NEGOTIATED.items() if k != "market"}
    mixed = catalog.with_offers([plain, {**plain, "market": "spot", "usd_per_hour": 0.1}])
    assert (mixed.price("g4dn.xlarge"), mixed.price("g4dn.xlarge", market="spot")) == (0.4, 0.1)


@pytest.mark.parametrize(
    ("slip", "remedy"),
    [(NEGOTIATED, "Put it in a list"), (vs.Offer(**NEGOTIATED), "Put it in a list"), ("mine.csv", "Catalog.load")],
)
def test_what_is_no_list_of_offers_gets_a_remedy(catalog, slip, remedy) -> None:
    with pytest.raises(ArgumentError, match=remedy):
        catalog.with_offers(slip)


def test_a_type_that_two_services_sell_can_be_asked_for_by_service(catalog) -> None:
    two = catalog.with_offers([{**NEGOTIATED, "service": "batch", "usd_per_hour": 0.3}])
    with pytest.raises(CatalogError, match=r"aws ec2 us-east-1, aws batch us-east-1\)\. Pass .*service="):
        two.price("g4dn.xlarge")
    assert two.price("g4dn.xlarge", service="batch") == 0.3


def test_names_may_come_from_anything_that_gives_them(catalog) -> None:
    assert len(catalog.offers(instance_type=(name for name in ["g4dn.xlarge"]))) == 1
    with pytest.raises(ArgumentError, match="instance_type must be a name"):
        catalog.price(5)


def test_no_offers(catalog) -> None:
    with pytest.raises(ArgumentError, match="at least one"):
        catalog.with_offers([])


def test_a_catalog_can_be_walked_and_shown(catalog) -> None:
    first = next(iter(catalog))
    assert isinstance(first, vs.Offer)
    assert f"{len(catalog):,} prices of {' to '.join(catalog.price_dates)}" in repr(catalog)
    assert "<table" in catalog._repr_html_()


def test_keys_are_told_apart_however_many_names_there_are() -> None:
    # With 2**16 - 1 names in four columns and one market, numbering every combination in 64 bits would give these two
    # rows, whose providers stand 2**15 apart, one number.
    names = pd.Index([f"n{i}" for i in range(2**16 - 1)])
    columns = {column: pd.Categorical.from_codes([0, 0], names) for column in KEY}
    columns["provider"] = pd.Categorical.from_codes([0, 2**15], names)
    columns["market"] = pd.Categorical(["spot", "spot"])
    rows = pd.DataFrame(columns)
    (one, other), again = key_codes([rows, rows[::-1]])
    assert one != other
    assert again.tolist() == [other, one]
