"""The data that ship: integrity, known prices, dates and provider terms."""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import json

import numpy as np
import pytest

import vmselect as vs
from vmselect.catalog import KEY, gpu_specs, provider_terms
from vmselect.catalog.files import manifest, pricing_folder, read_snapshot
from vmselect.errors import ArgumentError, CatalogError

SNAPSHOTS = [entry.date for entry in manifest().snapshots]


@pytest.fixture(params=manifest().snapshots, ids=SNAPSHOTS)
def rows(request):
    return read_snapshot(request.param.file)


@pytest.mark.parametrize("entry", [*manifest().snapshots, *manifest().tables], ids=lambda e: e.file)
def test_the_manifest_matches_the_files(entry) -> None:
    content = (pricing_folder() / entry.file).read_bytes()
    assert hashlib.sha256(content).hexdigest() == entry.sha256
    if entry.file.endswith(".json"):
        count = len(json.loads(content))
    else:
        count = len(list(csv.reader(content.decode().splitlines()))) - 1
    assert count == entry.rows


def test_every_file_of_the_folder_is_in_the_manifest() -> None:
    named = {entry.file for entry in (*manifest().snapshots, *manifest().tables)}
    assert {p.name for p in pricing_folder().iterdir()} == {*named, "manifest.json", "README.md"}
    assert sorted(SNAPSHOTS) == SNAPSHOTS


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
    if "spot" in wide:
        assert not (wide["spot"] > wide["on_demand"]).any()


def test_gpu_models_are_all_in_the_table_and_facts_agree(rows) -> None:
    specs = gpu_specs()
    with_gpu = rows[rows["gpu_count"] > 0]
    assert set(with_gpu["gpu_model"].astype(str)) <= set(specs.index)
    assert (rows.loc[rows["gpu_count"] == 0, "gpu_model"] == "").all()
    # A share of a GPU holds that share of its memory; the tables' gigabytes and gibibytes differ by up to 8 %.
    whole = with_gpu["gpu_memory_gib"] / with_gpu["gpu_count"].clip(upper=1)
    ratio = whole / specs.loc[with_gpu["gpu_model"].astype(str), "memory_gb"].to_numpy()
    assert ratio.between(0.9, 1.1).all()


def test_prices_per_gpu_are_plausible(rows) -> None:
    per_gpu = (rows["usd_per_hour"] / rows["gpu_count"])[(rows["gpu_count"] >= 1) & (rows["market"] == "on_demand")]
    assert per_gpu.between(0.2, 40).all()


def test_facts_of_a_type_are_unique(rows) -> None:
    facts = rows.drop_duplicates(["provider", "instance_type", "vcpus", "memory_gib", "gpu_model", "gpu_count"])
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
        regions = newest.loc[newest["provider"] == provider, "region"].value_counts()
        assert regions.idxmax() == terms.reference_region  # a few types are sold elsewhere only, such as TPU v4


def test_a_caller_cannot_change_the_shipped_tables() -> None:
    rows, specs = vs.Catalog.embedded("2026-08-22").offers(market=None), gpu_specs()
    rows.loc[:, "usd_per_hour"] = 0.0
    specs.loc["T4", "fp32_tflops"] = 0.0
    assert vs.Catalog.embedded("2026-08-22").price("g4dn.xlarge") == 0.526
    assert gpu_specs().loc["T4", "fp32_tflops"] == 8.1


def test_types_without_a_price_have_a_basis() -> None:
    lines = list(csv.DictReader((pricing_folder() / "unpriced.csv").read_text().splitlines()))
    shipped = read_snapshot("2026-08-22.csv").astype({"instance_type": str}).drop_duplicates("instance_type")
    facts = shipped.set_index("instance_type")[["vcpus", "memory_gib", "gpu_count", "gpu_memory_gib"]]
    rest = {line["instance_type"]: line for line in lines}
    for name, line in rest.items():
        assert line["basis"], name
        if not line["basis"].startswith("assumed = EC2"):
            continue
        twin = name.removeprefix("ml.")
        same = facts.loc[twin] if twin in facts.index else rest[twin]
        assert all(float(line[column]) == float(same[column]) for column in facts.columns), name
