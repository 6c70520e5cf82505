"""The numbers of the catalog: how much is shown, how much is read, how long is waited, and the words beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

import vmselect as vs
from tests.support.priced import OFFER
from vmselect.catalog import compare_prices, offer, table
from vmselect.errors import ArgumentError

HEADER = ",".join(OFFER)


@pytest.mark.parametrize(
    ("provider", "name", "service"),
    [
        ("aws", "ml.g5.xlarge", "sagemaker"),
        ("aws", "g5.xlarge", "ec2"),
        ("azure", "ml.x", "vm"),
        ("gcp", "ml.x", "gce"),
        ("lab", "ml.x", "vm"),
    ],
)
def test_the_service_that_a_row_leaves_out(provider: str, name: str, service: str) -> None:
    assert offer.default_service(provider, name) == service
    row = {**OFFER, "provider": provider, "instance_type": name}
    assert vs.Offer(**row).service == service
    assert vs.Catalog.embedded("2021-02-28").with_offers([row]).offer(name, provider=provider).service == service


@pytest.mark.parametrize(
    ("name", "memory_gib", "model"),
    [
        ("A100", 80, "A100-80GB"),
        ("A100", 40, "A100"),
        ("A100", None, "A100"),
        ("V100", 32, "V100-32GB"),
        ("V100", 16, "V100"),
        ("t4g", None, "T4G"),
        ("RTXPRO6000", 96, "RTX-PRO-6000"),
        ("Gaudi HL-205", None, "Gaudi"),
        ("Big New", 80, "Big-New"),
    ],
)
def test_what_a_gpu_is_called(name: str, memory_gib: float | None, model: str) -> None:
    assert offer.name_gpu(name, memory_gib) == model


def test_a_change_of_price_in_percent() -> None:
    def priced(usd: float) -> vs.Catalog:
        return vs.Catalog.embedded("2021-02-28").with_offers([{**OFFER, "usd_per_hour": usd, "date": "2026-01-01"}])

    (row,) = compare_prices(priced(4.0), priced(5.0)).itertuples()
    assert (row.change, row.percent, row.old_usd_per_hour, row.new_usd_per_hour) == ("higher", 25.0, 4.0, 5.0)
    (row,) = compare_prices(priced(4.0), priced(1.0)).itertuples()
    assert (row.change, row.percent, row.old_date) == ("lower", -75.0, "2026-01-01")
    assert not len(compare_prices(priced(4.0), priced(4.0)))


def test_a_catalog_holds_at_least_one_price_and_a_name_of_its_origin() -> None:
    frame = vs.Catalog.embedded("2021-02-28").offers()
    assert len(vs.Catalog(frame.iloc[:1], origin="o" * 2000)) == 1
    with pytest.raises(ArgumentError, match="A catalog is made by"):
        vs.Catalog(frame.iloc[:0], origin="o")
    with pytest.raises(ArgumentError):
        vs.Catalog(frame, origin="o" * 2001)


def test_a_currency_left_blank_is_dollars(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{HEADER},currency\nlab,x,here,on_demand,1,\nlab,y,here,on_demand,2,USD\n")
    assert len(vs.Catalog.load(path)) == 2


def test_keys_are_equal_only_where_all_their_parts_are() -> None:
    basis = vs.Catalog.embedded("2021-02-28")
    changes = [{}, {"region": "there"}, {"market": "spot"}, {"instance_type": "y"}, {"service": "s"}, {"provider": "p"}]
    frame = basis.with_offers([{**OFFER, **change} for change in changes]).offers(market=None)
    whole, part = table.key_codes([frame, frame.iloc[::-1].iloc[:3]])
    assert len(set(whole.tolist())) == len(frame)
    assert part.tolist() == whole[::-1][:3].tolist()


def test_changes_stand_by_size_and_what_came_or_went_last(tmp_path: Path) -> None:
    def load(name: str, **usd: float) -> vs.Catalog:
        rows = [f"lab,{kind},here,on_demand,{price}" for kind, price in usd.items()]
        (tmp_path / name).write_text("\n".join(["provider,instance_type,region,market,usd_per_hour", *rows, ""]))
        return vs.Catalog.load(tmp_path / name)

    old, new = load("old.csv", a=1.0, b=1.0, gone=1.0), load("new.csv", a=1.005, b=2.0, came=1.0)
    assert [*compare_prices(old, new)["instance_type"]] == ["b", "a", "came", "gone"]
