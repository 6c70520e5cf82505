"""The data that ship: integrity, known prices, dates and provider terms."""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import json

import numpy as np
import pytest

import vmselect as vs
from tests.support.write_pricing import fill
from vmselect.catalog import KEY, gpu_specs, provider_terms, shipped
from vmselect.catalog.files import read
from vmselect.catalog.gpu_names import UNKNOWN
from vmselect.catalog.offer import concat_frames
from vmselect.catalog.shipped import LATEST, manifest, pricing_folder, read_snapshot
from vmselect.errors import ArgumentError, CatalogError

SNAPSHOTS = [snapshot.date for snapshot in manifest().snapshots]
PRICE_FILES = [entry for snapshot in manifest().snapshots for entry in snapshot.files]


@pytest.fixture(params=manifest().snapshots, ids=SNAPSHOTS)
def rows(request):
    return read_snapshot(request.param.date)


@pytest.mark.parametrize("entry", [*PRICE_FILES, *manifest().tables], ids=lambda e: e.file)
def test_the_manifest_matches_the_files(entry) -> None:
    content = (pricing_folder() / entry.file).read_bytes()
    assert hashlib.sha256(content).hexdigest() == entry.sha256
    if entry.file.endswith(".json"):
        count = len(json.loads(content))
    else:
        count = len(list(csv.reader(content.decode().splitlines()))) - 1
    assert count == entry.rows


def test_every_file_of_the_folder_is_in_the_manifest() -> None:
    named = {entry.file for entry in (*PRICE_FILES, *manifest().tables)}
    folder = pricing_folder()
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert present == {*named, "manifest.json", "README.md"}
    assert sorted(SNAPSHOTS) == SNAPSHOTS


def test_the_shipped_files_are_small_enough_to_review() -> None:
    assert sum(path.stat().st_size for path in pricing_folder().rglob("*") if path.is_file()) < 6e6


@pytest.mark.parametrize("entry", PRICE_FILES, ids=lambda e: e.file)
def test_each_price_file_passes_the_checks_of_a_users_file(entry) -> None:
    rows, findings = read(pricing_folder() / entry.file)
    assert not findings
    assert set(rows["provider"].astype(str)) == set(entry.providers)
    assert (min(rows["date"].astype(str)), max(rows["date"].astype(str))) == (entry.oldest, entry.newest)
    assert set(rows["source"].astype(str)) == set(entry.sources)
    if entry.file.startswith(LATEST):
        assert entry.file == f"{LATEST}/{entry.providers[0]}.csv"


def test_the_fast_reader_of_shipped_files_agrees_with_the_reader_of_users_files() -> None:
    for snapshot in manifest().snapshots:
        checked = concat_frames([read(pricing_folder() / entry.file)[0] for entry in snapshot.files])
        assert vs.Catalog(checked, origin="checked") == vs.Catalog(read_snapshot(snapshot.date), origin="trusted")


def test_a_changed_file_is_not_used(tmp_path, monkeypatch) -> None:
    entry = PRICE_FILES[0]
    (tmp_path / entry.file).write_bytes((pricing_folder() / entry.file).read_bytes() + b" ")
    monkeypatch.setattr(shipped, "pricing_folder", lambda: tmp_path)
    with pytest.raises(CatalogError, match=entry.file):
        shipped._read_checked(entry)
    with pytest.raises(CatalogError, match="latest/aws"):
        shipped._read_checked(next(e for e in PRICE_FILES if e.file == "latest/aws.csv"))


def test_keys_are_unique_and_prices_positive(rows) -> None:
    assert not rows.duplicated(list(KEY)).any()
    assert np.isfinite(rows["usd_per_hour"]).all()
    assert rows["usd_per_hour"].between(0.001, 500).all()


def test_no_price_is_dated_after_its_snapshot(rows) -> None:
    newest = max(rows["date"].astype(str))
    assert newest in SNAPSHOTS


def test_spot_is_not_above_on_demand_without_a_note(rows) -> None:
    wide = rows[rows["note"] == ""].pivot_table(
        index=["provider", "instance_type", "region"], columns="market", values="usd_per_hour", observed=True
    )
    if "spot" in wide:  # AWS lists spot prices with four digits after the point
        assert not (wide["spot"] > wide["on_demand"] + 1e-4).any()


def test_gpu_models_are_all_in_the_table_and_facts_agree(rows) -> None:
    specs = gpu_specs()
    with_gpu = rows[rows["gpu_count"] > 0]
    assert set(with_gpu["gpu_model"].astype(str)) <= set(specs.index) | UNKNOWN
    assert (rows.loc[rows["gpu_count"] == 0, "gpu_model"] == "").all()
    # A share of a GPU holds that share of its memory; the tables' gigabytes and gibibytes differ by up to 8 %.
    listed = with_gpu[~with_gpu["gpu_model"].isin(UNKNOWN) & with_gpu["gpu_memory_gib"].notna()]
    whole = listed["gpu_memory_gib"] / listed["gpu_count"].clip(upper=1)
    ratio = whole / specs.loc[listed["gpu_model"].astype(str), "memory_gb"].to_numpy()
    assert ratio.between(0.9, 1.1).all()


def test_prices_per_gpu_are_plausible(rows) -> None:
    per_gpu = (rows["usd_per_hour"] / rows["gpu_count"])[(rows["gpu_count"] >= 1) & (rows["market"] == "on_demand")]
    assert per_gpu.between(0.05, 60).all()


def test_facts_of_a_type_are_unique(rows) -> None:
    # Hyperstack sells one type with 960 or 1800 GiB of host memory, by region.
    facts = rows.drop_duplicates(["provider", "instance_type", "vcpus", "gpu_model", "gpu_count", "gpu_memory_gib"])
    assert not facts.duplicated(["provider", "instance_type"]).any()


@pytest.mark.parametrize(
    ("name", "price", "retired"),
    [("g4dn.xlarge", 0.526, False), ("p3.2xlarge", 3.06, True), ("p2.xlarge", 0.90, True),
     ("Standard_NC4as_T4_v3", 0.526, False), ("n1-standard-4+1xT4", 0.54, False)],
)  # fmt: skip
def test_known_prices(name, price, retired) -> None:
    offer = vs.Catalog.embedded("2026-08-22").offer(name)
    assert (offer.usd_per_hour, offer.retired) == (price, retired)


@pytest.mark.parametrize(
    ("name", "price"),
    [("p2.xlarge", 0.90), ("p2.8xlarge", 7.20), ("p2.16xlarge", 14.40), ("p3.2xlarge", 3.06), ("p3.8xlarge", 12.24),
     ("p3.16xlarge", 24.48), ("ml.p3.2xlarge", 3.8), ("Standard_NC6", 0.90)],
)  # fmt: skip
def test_prices_of_the_dissertation(name, price) -> None:
    assert vs.Catalog.embedded(date="2021-02-28").price(name) == price


def test_the_snapshot_of_a_date() -> None:
    assert vs.Catalog.embedded("2021-02-01") == vs.Catalog.embedded("2024-06-30")
    assert vs.Catalog.embedded("2999-01-01") == vs.Catalog.embedded()
    assert vs.Catalog.embedded("2021-02-28").price_dates == ("2021-02-01", "2021-02-01")
    assert vs.Catalog.embedded(dt.date(2021, 2, 28)) == vs.Catalog.embedded("2021-02-28")
    with pytest.raises(CatalogError, match="2021-02-01"):
        vs.Catalog.embedded("2021-01-31")
    with pytest.raises(ArgumentError):
        vs.Catalog.embedded("February 2021")
    with pytest.raises(ArgumentError):
        vs.Catalog.embedded("2021-W08-7")


def test_accelerators_without_a_host_are_not_vms() -> None:
    bare = vs.Catalog.embedded("2021-02-28").offers(provider="gcp")
    assert set(bare["service"].astype(str)) == {"gce-accelerator"}
    assert bare["note"].astype(str).str.contains("host VM is priced separately").all()


def test_provider_terms_state_their_sources() -> None:
    for provider, sla in (("aws", 99.99), ("azure", 99.95), ("gcp", 99.99)):
        terms = provider_terms(provider)
        assert terms is not None
        assert terms.sla_percent == sla
        assert terms.sla_source
        assert terms.billing_source
        assert terms.billing_increment_seconds == 1
    sagemaker = provider_terms("aws", service="sagemaker")
    assert sagemaker is not None
    assert sagemaker.sla_percent is None
    assert provider_terms("my-lab") is None


def test_reference_regions_are_the_ones_with_prices() -> None:
    newest = vs.Catalog.embedded().offers(market=None)
    for provider in ("aws", "azure", "gcp"):
        terms = provider_terms(provider)
        assert terms is not None
        here = newest[newest["provider"] == provider]
        types = here.drop_duplicates(["instance_type", "region"]).groupby("region", observed=True).size()
        assert types[terms.reference_region] > 0.9 * types.max()


def test_a_caller_cannot_change_the_shipped_tables() -> None:
    rows, specs = vs.Catalog.embedded("2026-08-22").offers(market=None), gpu_specs()
    rows.loc[:, "usd_per_hour"] = 0.0
    specs.loc["T4", "fp32_tflops"] = 0.0
    assert vs.Catalog.embedded("2026-08-22").price("g4dn.xlarge") == 0.526
    assert gpu_specs().loc["T4", "fp32_tflops"] == 8.1


def test_types_without_a_price_have_a_basis() -> None:
    lines = list(csv.DictReader((pricing_folder() / "unpriced.csv").read_text().splitlines()))
    newest = read_snapshot("2026-08-22").astype({"instance_type": str}).drop_duplicates("instance_type")
    facts = newest.set_index("instance_type")[["vcpus", "memory_gib", "gpu_count", "gpu_memory_gib"]]
    rest = {line["instance_type"]: line for line in lines}
    for name, line in rest.items():
        assert line["basis"], name
        if not line["basis"].startswith("assumed = EC2"):
            continue
        twin = name.removeprefix("ml.")
        same = facts.loc[twin] if twin in facts.index else rest[twin]
        assert all(float(line[column]) == float(same[column]) for column in facts.columns), name


def test_the_tables_of_the_readme_are_those_of_the_files() -> None:
    text = (pricing_folder() / "README.md").read_text(encoding="utf-8")
    assert fill(text, pricing_folder()) == text, "run python -m tests.support.write_pricing"


def test_unknown_billing_rules_say_unknown() -> None:
    newest = vs.Catalog.embedded().offers(market=None)
    for provider in newest["provider"].astype(str).unique():
        terms = provider_terms(provider)
        assert terms is not None
        known = terms.billing_increment_seconds is not None
        assert (terms.billing_source == "unknown") is not known
        assert (terms.billing_minimum_seconds is not None) is known
