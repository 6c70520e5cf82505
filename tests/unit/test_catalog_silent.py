"""Price files that say something else than they seem to: refused, with the reason."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

import vmselect as vs
from vmselect.catalog.snapshots import unpriced
from vmselect.errors import CatalogError, VmselectError

ROW = {"provider": "aws", "instance_type": "x.large", "region": "r1", "market": "on_demand", "usd_per_hour": 3.06}
HEADER = ",".join(ROW) + "\n"


def load_json(tmp_path, content):
    path = tmp_path / "prices.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return vs.Catalog.load(path)


def load_csv(tmp_path, text, **options):
    path = tmp_path / "prices.csv"
    path.write_text(text)
    return vs.Catalog.load(path, **options)


def test_euros_are_not_dollars(tmp_path) -> None:
    with pytest.raises(CatalogError, match=r"currency is 'EUR'; convert"):
        load_json(tmp_path, {"currency": "EUR", "offers": [ROW]})
    with pytest.raises(CatalogError, match="line 1: is not in USD"):
        load_json(tmp_path, [{**ROW, "currency": "EUR"}])
    assert load_json(tmp_path, {"currency": "USD", "offers": [{**ROW, "currency": "USD"}]}).price("x.large") == 3.06


def test_what_stands_beside_the_offers_is_not_overlooked(tmp_path) -> None:
    with pytest.raises(CatalogError, match="unknown field 'unit' beside the offers"):
        load_json(tmp_path, {"unit": "cents", "offers": [ROW]})
    with pytest.raises(CatalogError, match="schema True"):
        load_json(tmp_path, {"schema": True, "offers": [ROW]})


@pytest.mark.parametrize("word", ["True", "true", "TRUE"])
def test_a_truth_value_is_no_price(tmp_path, word) -> None:
    with pytest.raises(CatalogError, match="is not a plain number"):
        load_csv(tmp_path, HEADER + f"aws,x.large,r1,on_demand,{word}\n")


def test_a_truth_value_of_numpy_is_no_price() -> None:
    with pytest.raises(CatalogError, match="usd_per_hour True is not a number"):
        vs.Offer(**{**ROW, "usd_per_hour": np.True_})


def test_ones_and_zeros_are_numbers(tmp_path) -> None:
    catalog = load_csv(tmp_path, HEADER + "aws,x.large,r1,on_demand,1\naws,y.large,r1,on_demand,1.0\n")
    assert catalog.price("y.large") == 1.0


def test_repeated_keys_take_no_longer_than_others(tmp_path) -> None:
    """The work is counted, not timed: comparing each key with each other would take 10^10 steps."""
    steps = 0

    def count(frame, event, _):
        nonlocal steps
        steps += 1
        return count

    pairs = ",".join(f'"k{i}":1' for i in range(20_000))
    before = sys.gettrace()
    sys.settrace(count)
    try:
        with pytest.raises(CatalogError, match="stands twice"):
            load_json(tmp_path, "[{" + pairs + ',"k19999":1}]')
    finally:
        sys.settrace(before)
    assert steps < 500_000


@pytest.mark.parametrize("name", ["~no-such-user-here/x", "/dev/null/x", "/proc/self/x"])
def test_a_cache_folder_that_cannot_be(monkeypatch, name) -> None:
    from vmselect.catalog import refresh

    monkeypatch.setenv("VMSELECT_CACHE_DIR", name)
    assert vs.Catalog.default() == vs.Catalog.embedded()
    with pytest.raises(CatalogError):
        vs.Catalog.refreshed()
    with pytest.raises(CatalogError):
        refresh.write_part("aws", "r1", vs.Catalog.embedded("2021-02-28").offers())


def test_a_user_without_a_home(monkeypatch) -> None:
    from pathlib import Path

    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    for name in ("VMSELECT_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    catalog = vs.Catalog.default()
    assert "home folder is unknown" in str(catalog.findings[0])
    assert catalog == vs.Catalog.embedded()


WRONG = (None, 5, -1.5, b"x", [], {}, object(), float("nan"), "\0", "x" * 300, ["a", 5], np.array([1, 2]))


@pytest.mark.parametrize("value", WRONG, ids=lambda v: repr(v)[:20])
def test_wrong_arguments_end_in_the_family(value, tmp_path) -> None:
    catalog = vs.Catalog.embedded("2021-02-28")
    from vmselect import catalog as package

    calls = [
        lambda: vs.Catalog(value, origin="x"),
        lambda: vs.Catalog(catalog.offers(), origin=value),
        lambda: vs.Catalog.embedded(value),
        lambda: vs.Catalog.load(value),
        lambda: vs.Catalog.load(catalog.save(tmp_path / "a.csv"), provider=value),
        lambda: vs.Catalog.load(tmp_path / "a.csv", skip_bad_rows=value),
        lambda: vs.Catalog.refreshed(alone=value),
        lambda: catalog.with_offers(value),
        lambda: catalog.with_offers([value]),
        lambda: catalog.with_offers([{**ROW, "usd_per_hour": value}]),
        lambda: catalog.with_offers([{**ROW, "gpu_model": value}]),
        lambda: catalog.save(value),
        lambda: catalog.offers(value),
        lambda: catalog.offers(region=value),
        lambda: catalog.offers(market=value),
        lambda: catalog.offers(retired=value),
        lambda: catalog.offer(value),
        lambda: catalog.price("p3.2xlarge", region=value),
        lambda: catalog.price("p3.2xlarge", market=value),
        lambda: catalog.price("p3.2xlarge", provider=value, service=value),
        lambda: catalog.is_stale(value),
        lambda: vs.Offer(**{**ROW, "usd_per_hour": value}),
        lambda: vs.Offer(**{**ROW, "provider": value}),
        lambda: vs.Offer(**{**ROW, "date": value}),
        lambda: package.describe_age(value),
        lambda: package.describe_age([value]),
        lambda: package.compare_prices(catalog, value),
        lambda: package.provider_terms(value),
        lambda: package.provider_terms("aws", service=value),
    ]
    for call in calls:
        try:
            call()
        except VmselectError:
            continue


def test_a_type_that_we_know_without_a_price() -> None:
    """Whichever has none in the newest prices has none in the oldest."""
    catalog = vs.Catalog.embedded("2021-02-28")
    machine = next(unpriced().itertuples())
    name, gpu = str(machine.instance_type), str(machine.gpu_model)
    with pytest.raises(
        CatalogError, match=rf"No price of {re.escape(name)} is known \({machine.gpu_count:g} x {gpu}.*refresh"
    ):
        catalog.price(name)
    with pytest.raises(CatalogError, match=rf"No price of a machine with {gpu.lower()} is known \(.*refresh"):
        catalog.offers(gpu=gpu.lower())
    mine = catalog.with_offers([{**ROW, "provider": str(machine.provider), "instance_type": name, "usd_per_hour": 60}])
    assert (mine.offer(name).gpu_model, mine.price(name)) == (gpu, 60)


def test_a_gpu_is_found_however_it_is_written() -> None:
    catalog = vs.Catalog.embedded("2026-08-22")
    for written in ("TPU-v4", "tpu v4", "TPU_V4"):
        assert list(catalog.offers(gpu=written)["instance_type"].astype(str)) == ["tpu-v4-8"]


def test_a_region_that_does_not_ship_says_where_to_get_it() -> None:
    with pytest.raises(CatalogError, match=r"refresh --source skypilot"):
        vs.Catalog.embedded().price("g4dn.xlarge", region="eu-west-1")
