"""The catalog: filters, single offers, own prices, and differences between two catalogs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import vmselect as vs
from tests.support.priced import OFFER
from vmselect.catalog import COLUMNS, compare_prices
from vmselect.catalog.age import today
from vmselect.catalog.shipped import unpriced
from vmselect.errors import ArgumentError, CatalogError

NEGOTIATED = {
    "provider": "aws", "instance_type": "g4dn.xlarge", "region": "us-east-1", "market": "on_demand",
    "usd_per_hour": 0.4,
}  # fmt: skip


@pytest.fixture(scope="module")
def catalog() -> vs.Catalog:
    return vs.Catalog.embedded("2026-08-22")


def test_offers_have_the_documented_columns(catalog) -> None:
    assert tuple(catalog.offers().columns) == (*COLUMNS, "stale")
    assert set(catalog.offers()["market"]) == {"on_demand"}


def test_filters_combine_and_take_several_names(catalog) -> None:
    rows = catalog.offers(["aws", "gcp"], gpu=["T4", "L4"], market="spot", retired=False)
    assert set(rows["provider"]) == {"aws", "gcp"}
    assert set(rows["gpu_model"]) == {"T4", "L4"}
    assert set(rows["market"]) == {"spot"}
    assert not rows["retired"].any()
    assert len(catalog.offers(instance_type="g4dn.xlarge", region="us-east-1", market=None)) == 2
    assert len(catalog.offers(service="sagemaker")) == 29
    assert len(catalog.offers(market=None)) == len(catalog)


@pytest.mark.parametrize("every", ["all", ["all"], None])
def test_all_regions_and_markets(catalog, every) -> None:
    assert catalog.offers(region=every, market=every).equals(catalog.offers(market=None))


def test_filters_without_a_match_give_no_rows(catalog) -> None:
    assert len(catalog.offers(provider="azure", gpu="L4")) == 0
    assert len(catalog.offers(provider="aws", market="reserved_1y")) == 0


def test_where_restricts_a_catalog_by_every_condition(catalog) -> None:
    narrow = catalog.where(
        provider=["aws", "azure"], region=["us-east-1", "eastus"], market="on_demand", gpu=["t4", "l4"],
        gpu_memory_gib=16, max_usd_per_hour=5,
    )  # fmt: skip
    rows = narrow.offers(market=None)
    assert set(rows["provider"]) == {"aws", "azure"}
    assert set(rows["gpu_model"]) == {"T4", "L4"}
    assert set(rows["market"]) == {"on_demand"}
    assert rows["usd_per_hour"].max() <= 5
    assert rows["gpu_memory_gib"].min() >= 16
    assert narrow.conditions[-1] == "max_usd_per_hour=5"
    assert narrow.unrestricted == catalog
    assert len(catalog.where(region="all", market="all", retired=True)) == len(catalog)


def test_where_leaves_retired_types_out_unless_asked(catalog) -> None:
    assert catalog.offers(market=None)["retired"].any()
    assert not catalog.where().offers(market=None)["retired"].any()
    kept = catalog.where(retired=True).where(provider="aws")
    assert kept.retired
    assert kept.offers(market=None)["retired"].any()


def test_where_keeps_services_and_billing_of_earlier_calls(catalog) -> None:
    assert (catalog.services, catalog.billing, catalog.retired) == ((), "exact", False)
    chosen = catalog.where(service="sagemaker", billing="provider").where(gpu="T4")
    assert (chosen.services, chosen.billing) == (("sagemaker",), "provider")
    assert catalog.where(service="all").services == ("ec2", "sagemaker")
    assert chosen.where(billing="exact").billing == "exact"


def test_own_prices_of_a_restricted_catalog_are_not_filtered(catalog) -> None:
    own = {"provider": "lab", "instance_type": "workstation", "region": "here", "usd_per_hour": 9}
    mine = catalog.where(gpu="T4", max_usd_per_hour=1).with_offers([own])
    assert mine.price("workstation") == 9
    assert len(mine.unrestricted) == len(catalog) + 1


@pytest.mark.parametrize(
    ("conditions", "error", "hint"),
    [
        ({"gpu": "A10O"}, CatalogError, "A100"),
        ({"provider": "asw"}, CatalogError, "aws"),
        ({"region": "us-est-1"}, CatalogError, "us-east-1"),
        ({"market": "spott"}, ArgumentError, "spot"),
        ({"service": "sagemaker2"}, ArgumentError, "sagemaker"),
        ({"billing": "hour"}, ArgumentError, "provider"),
        ({"max_usd_per_hour": 0}, ArgumentError, "max_usd_per_hour"),
        ({"gpu": "T4", "gpu_memory_gib": 80}, CatalogError, "gpu_memory_gib=80"),
        ({"gpu": []}, ArgumentError, "gpu"),
    ],
)
def test_where_refuses_unknown_names_and_empty_results(catalog, conditions, error, hint) -> None:
    with pytest.raises(error, match=hint):
        catalog.where(**conditions)


@pytest.mark.parametrize(
    ("ask", "hint"),
    [
        (lambda c: c.price("g4dn.xlage"), r"g4dn\.xlarge"),
        (lambda c: c.price("G4DN.XLARGE"), r"g4dn\.xlarge"),
        (lambda c: c.price("g4dn.xlarge", region="us-est-1"), r"us-east-1"),
        (lambda c: c.offers(gpu="T44"), r"T4\b"),
        (lambda c: c.offers("awss"), r"aws\b"),
        (lambda c: c.offers("qqqqqqq"), r"aws, azure, cudo"),
        (lambda c: c.price("g4dn.xlarge", region="eu-west-99"), r"refresh --source skypilot"),
        (lambda c: c.price("p2.xlarge", market="reserved_1y"), r"us-east-1 on_demand"),
        (lambda c: c.price("g4dn.xlarge", region="eastus"), r"eastus"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest(catalog, ask, hint) -> None:
    with pytest.raises(CatalogError, match=hint):
        ask(catalog)


def test_an_unknown_market_is_an_error(catalog) -> None:
    with pytest.raises(ArgumentError):
        catalog.offers(market="ondemand")


def test_the_default_region_is_the_reference_region(catalog) -> None:
    more = catalog.with_offers([{**NEGOTIATED, "region": "eu-west-1", "usd_per_hour": 0.587}])
    assert more.price("g4dn.xlarge") == 0.526
    assert more.price("g4dn.xlarge", region="eu-west-1") == 0.587
    rows = [{**NEGOTIATED, "instance_type": "own", "region": place} for place in ("here", "there")]
    with pytest.raises(CatalogError):
        catalog.with_offers(rows).price("own")


def test_negotiated_prices_replace_list_prices_and_keep_the_facts(catalog) -> None:
    mine = catalog.with_offers([NEGOTIATED])
    offer = mine.offer("g4dn.xlarge")
    assert (offer.usd_per_hour, offer.source, offer.service, offer.gpu_model) == (0.4, "user", "ec2", "T4")
    assert offer.date == today().isoformat()
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
    ("column", "value"),
    [("usd_per_hour", 0), ("usd_per_hour", "3,06 EUR"), ("usd_per_hour", float("nan")), ("usd_per_hour", True),
     ("market", "on-demand"), ("instance_type", "../../etc/passwd"), ("instance_type", "=cmd()"), ("region", ""),
     ("date", "yesterday"), ("gpu_count", -1), ("note", "a\nb"), ("colour", "red")],
)  # fmt: skip
def test_an_invalid_offer_is_an_error_with_its_column(catalog, column, value) -> None:
    with pytest.raises(CatalogError, match=column):
        catalog.with_offers([{**NEGOTIATED, column: value}])


def test_the_same_price_twice_is_an_error(catalog) -> None:
    with pytest.raises(CatalogError, match=r"offer 2: .* offer 1"):
        catalog.with_offers([NEGOTIATED, {**NEGOTIATED, "usd_per_hour": 0.3}])


def test_the_default_market_is_on_demand(catalog) -> None:
    plain = {k: v for k, v in NEGOTIATED.items() if k != "market"}
    mixed = catalog.with_offers([plain, {**plain, "market": "spot", "usd_per_hour": 0.1}])
    assert (mixed.price("g4dn.xlarge"), mixed.price("g4dn.xlarge", market="spot")) == (0.4, 0.1)


@pytest.mark.parametrize("offers", [NEGOTIATED, vs.Offer(**NEGOTIATED), "mine.csv", []])
def test_offers_must_be_a_list_with_an_offer(catalog, offers) -> None:
    with pytest.raises(ArgumentError):
        catalog.with_offers(offers)


def test_a_type_of_two_services_needs_the_service(catalog) -> None:
    two = catalog.with_offers([{**NEGOTIATED, "service": "batch", "usd_per_hour": 0.3}])
    with pytest.raises(CatalogError, match=r"ec2.*batch"):
        two.price("g4dn.xlarge")
    assert two.price("g4dn.xlarge", service="batch") == 0.3


def test_a_catalog_is_iterable_and_has_text_forms(catalog) -> None:
    first = next(iter(catalog))
    assert isinstance(first, vs.Offer)
    assert {f"{len(catalog):,}", *catalog.price_dates} <= set(repr(catalog).strip("<>,.").split())
    assert "<table" in catalog._repr_html_()


def test_missing_facts_are_those_of_the_same_type() -> None:
    basis = vs.Catalog.embedded("2026-08-22")
    own = {"provider": "aws", "instance_type": "g4dn.xlarge", "region": "us-east-1", "usd_per_hour": 0.1}
    offer = basis.with_offers([own]).offer("g4dn.xlarge")
    assert (offer.vcpus, offer.memory_gib, offer.gpu_model, offer.gpu_count) == (4, 16, "T4", 1)
    own_fact = basis.with_offers([{**own, "vcpus": 2}]).offer("g4dn.xlarge")
    assert (own_fact.vcpus, own_fact.memory_gib, own_fact.gpu_count) == (2, None, None)  # one given fact replaces all
    foreign = basis.with_offers([{**own, "provider": "lab"}]).offer("g4dn.xlarge", provider="lab")
    assert foreign.vcpus is None


def test_a_catalog_has_at_least_one_price_and_an_origin() -> None:
    frame = vs.Catalog.embedded("2021-02-28").offers()[list(COLUMNS)]
    assert len(vs.Catalog(frame.iloc[:1], origin="o" * 2000)) == 1
    with pytest.raises(ArgumentError):
        vs.Catalog(frame.iloc[:0], origin="o")
    with pytest.raises(ArgumentError):
        vs.Catalog(frame, origin="o" * 2001)


def test_changes_of_prices(tmp_path: Path) -> None:
    def load(name: str, *rows: str) -> vs.Catalog:
        (tmp_path / name).write_text("\n".join([",".join([*OFFER, "retired"]), *rows, ""]))
        return vs.Catalog.load(tmp_path / name)

    demand = "lab,{},here,on_demand,{},{}".format
    spot = "lab,a,here,spot,1,no"  # the new file has no spot prices, so this one is not gone
    old = load(
        "old.csv", demand("a", 4, "no"), demand("b", 4, "no"), demand("gone", 1, "no"), demand("r", 1, "yes"), spot
    )
    new = load("new.csv", demand("a", 5, "no"), demand("b", 1, "no"), demand("came", 1, "no"))
    changes = compare_prices(old, new)
    assert [*changes["instance_type"]] == ["b", "a", "came", "gone"]
    assert [*changes["change"]] == ["lower", "higher", "new", "gone"]
    assert changes["percent"].tolist()[:2] == [-75.0, 25.0]
    assert not len(compare_prices(old, old))


def test_a_known_type_without_a_price() -> None:
    catalog = vs.Catalog.embedded("2021-02-28")
    machine = next(unpriced().itertuples())
    name, gpu = str(machine.instance_type), str(machine.gpu_model)
    with pytest.raises(CatalogError, match=rf"{machine.gpu_count:g} x {gpu}.*refresh"):
        catalog.price(name)
    with pytest.raises(CatalogError, match="refresh"):
        catalog.offers(gpu=gpu.lower())
    mine = catalog.with_offers(
        [{**OFFER, "provider": str(machine.provider), "instance_type": name, "usd_per_hour": 60}]
    )
    assert (mine.offer(name).gpu_model, mine.price(name)) == (gpu, 60)


def test_names_of_gpus_match_in_any_spelling() -> None:
    catalog = vs.Catalog.embedded("2026-08-22")
    for written in ("TPU-v4", "tpu v4", "TPU_V4"):
        assert list(catalog.offers(gpu=written)["instance_type"].astype(str)) == ["tpu-v4-8"]
