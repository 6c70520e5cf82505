"""The join of machine estimates with offers, and findings about a measurement at a price."""

from __future__ import annotations

import datetime as dt
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile, make_profile
from tests.support.rankings import LAB, probe, rank, rank_epochs
from vmselect.records import Gpu
from vmselect.records.usage import Limits, Usage


def test_markets_and_regions_filter_offers() -> None:
    assert {row.market for row in rank()} == {"on_demand"}
    assert {row.market for row in rank(market=None)} == {"on_demand"}
    assert {row.market for row in rank(market="all")} == {"on_demand", "spot"}
    assert {row.market for row in rank(market=["spot"])} == {"spot"}
    # Without region= a machine is priced where it was measured; a region that is named decides instead.
    assert {row.region for row in rank()} == {"here"}
    assert {row.region for row in rank(region="there")} == {"there"}
    assert {row.region for row in rank(region="all")} == {"here", "there"}
    # Where it was measured is unknown: the cheapest region.
    assert {row.region for row in rank([probe(region=None)])} == {"there"}
    assert {row.region for row in rank([probe(region=None)], region="all")} == {"here", "there"}
    assert {row.region for row in rank([probe(region=None)], region=["here", "there"])} == {"here", "there"}
    assert [e.reason_code for e in rank(region="there").excluded] == ["no_price"]


WORLD = vs.Catalog.embedded("2026-08-22")


def test_the_cheapest_of_many_regions_represents_a_machine() -> None:
    ranking = vs.rank(make_profile("g4dn.xlarge"), epochs=5, market="all", catalog=WORLD)
    assert [row.market for row in ranking.deciding_rows] == ["spot", "on_demand"]
    for row in ranking:
        offers = WORLD.offers(instance_type="g4dn.xlarge", market=row.market)
        assert row.usd_per_hour == offers["usd_per_hour"].min()
        assert row.regions_compared == len(offers) > 15
        assert row.place == f"{row.region}, cheapest of {len(offers)} regions"
    on_demand = ranking.deciding_rows[1]
    assert on_demand.region == "us-east-1"  # of regions with this price, the reference region


def test_places_restrict_the_regions_that_are_compared() -> None:
    def regions(region: Any, **options: Any) -> dict[str, int]:
        ranking = vs.rank(make_profile("g4dn.xlarge"), epochs=5, region=region, catalog=WORLD, **options)
        return {row.region: row.regions_compared for row in ranking}

    assert regions("us-east-1") == {"us-east-1": 1}
    assert set(regions(["us-east-1", "eu-west-1"])) == {"us-east-1", "eu-west-1"}
    (europe,) = regions("eu").items()
    assert europe[0].startswith("eu-")
    assert europe[1] > 3
    assert regions("us")["us-east-1"] > 2
    assert regions("DE") == regions("de") == {"eu-central-1": 1}
    assert set(regions(["eu", "us"])) == {europe[0], "us-east-1"}
    assert len(regions("all")) > 15
    assert set(regions("all").values()) == {1}
    with pytest.raises(vs.errors.MissingNamesError):
        regions("atlantis")
    with pytest.raises(vs.errors.MissingNamesError):
        regions(["us", "vn"])  # a country without this machine


@pytest.mark.parametrize(
    ("profile", "options", "reason"),
    [
        (probe("unheard-of"), {}, "no price of unheard-of"),
        (probe("big", provider="aws"), {}, "no price of big from aws"),
        (probe("same", region="moon"), {}, "no price of same in moon, only in here; run `vmselect prices refresh"),
        (probe("same"), {"market": "spot"}, "no spot price of same, only on_demand"),
    ],
)
def test_a_machine_without_a_price_is_excluded(profile: vs.Profile, options: dict[str, Any], reason: str) -> None:
    (excluded,) = rank([profile], **options).excluded
    assert (excluded.candidate, excluded.reason_code) == (f"{profile.instance_type}, batch 64", "no_price")
    assert reason in excluded.reason


@pytest.mark.parametrize(
    ("options", "similar"),
    [
        ({"region": ["here", "theer"]}, "there"),
        ({"region": "moon"}, "moon"),
        ({"batch_size": [64, 128]}, "64"),
        ({"machines": ["smal"]}, "small"),
        ({"machines": ["big"]}, "big"),
        ({"provider": ["lab", "lbb"]}, "lab"),
    ],
)
def test_a_name_that_cannot_be_ranked_is_an_error(options: dict[str, Any], similar: str) -> None:
    with pytest.raises(vs.errors.MissingNamesError, match=similar) as caught:
        rank([probe("small")], **options)
    ((argument, names),) = options.items()
    assert caught.value.argument == argument
    assert caught.value.names == ((names if isinstance(names, str) else names[-1]),)


def test_the_price_of_an_accelerator_without_a_host_is_a_finding() -> None:
    catalog = vs.Catalog.embedded("2021-02-01")
    ranking = vs.rank([probe("accelerator-V100", region=None, provider="gcp")], epochs=5, catalog=catalog)
    assert "price-without-host" in {finding.code for finding in ranking.findings if finding.severity == "warning"}
    whole = vs.rank([probe("p3.2xlarge", region=None, provider="aws")], epochs=5, catalog=catalog)
    assert "price-without-host" not in {finding.code for finding in whole.findings}


def test_the_json_contains_the_findings_of_the_chosen_markets_only() -> None:
    for market, codes in (("on_demand", set()), ("all", {"spot-uninterrupted"})):
        printed = json.loads(rank(market=market).to_json())
        assert {finding["code"] for finding in printed["findings"]} & {"spot-uninterrupted"} == codes


def test_another_market_changes_which_machines_have_no_price() -> None:
    ranking = rank([probe("small"), probe("same")], market="spot")
    assert [(e.candidate, e.reason_code) for e in ranking.excluded] == [("same, batch 64", "no_price")]
    assert not ranking.rerank(market="on_demand").excluded
    assert not ranking.rerank(market="all").excluded
    nowhere = ranking.rerank(market="reserved_1y")
    assert [e.candidate for e in nowhere.excluded] == ["same, batch 64", "small, batch 64"]
    assert json.loads(ranking.to_json(rows=False))["excluded"] == []


def test_retired_types_are_excluded_unless_requested_or_dated() -> None:
    old, today = [probe("p3.2xlarge", region=None, provider=None)], vs.Catalog.embedded("2026-08-22")
    assert [e.reason_code for e in rank(old, catalog=today).excluded] == ["retired"]
    assert rank(old, catalog=today.where(retired=True)).best.usd_per_hour > 0
    assert rank(old, catalog=vs.Catalog.embedded("2021-02-28")).best.usd_per_hour == 3.06


def test_old_prices_of_the_ranked_markets_are_a_finding() -> None:
    offer = {"provider": "lab", "instance_type": "small", "region": "here", "market": "spot", "usd_per_hour": 0.3}
    catalog = LAB.with_offers([{**offer, "date": "2021-02-01"}])
    catalog.as_of = dt.date(2021, 7, 1)
    ranking = rank([probe("small")], catalog=catalog)
    for market, old in (("on_demand", False), ("spot", True), ("all", True), (None, False)):
        assert ("old-prices" in {f.code for f in ranking.rerank(market=market).findings}) == old


def test_the_default_catalog_is_used_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vs.Catalog, "default", classmethod(lambda cls: LAB))
    assert vs.rank(probe(created=datetime(2026, 1, 1, tzinfo=UTC)), epochs=10).best.provider == "lab"


# -- findings ----------------------------------------------------------------------------------------------------------


def on_gpus(used: int, *names: str, batch_size: int = 640, **environment: Any) -> vs.Profile:
    gpus = tuple(Gpu(name=name) for name in names)
    given = {"framework_gpus": used, "replicas": max(1, used), "gpus": gpus} | environment
    return make_profile("a", 0.1, batch_size=batch_size, environment=given, outcome="stopped")


def find(profile: vs.Profile, gpu_count: float, gpu_model: str = "T4") -> dict[str, str]:
    catalog = prices(("a", 1.0), gpu_count=gpu_count, gpu_model=gpu_model)
    ranking = rank([profile], catalog=catalog)
    return {finding.code: finding.message for finding in ranking.best.findings}


@pytest.mark.parametrize(
    ("used", "sold", "batch_size", "codes"),
    [
        (4, 4, 128, set()),  # 32 each
        (4, 4, 127, {"thin-batch"}),
        (1, 1, 8, set()),  # one GPU has all of it
        (3, 4, 128, {"unused-gpus"}),
        (1, 0.5, 8, set()),
    ],
)
def test_unused_gpus_and_thin_batches_are_findings(used: int, sold: float, batch_size: int, codes: set[str]) -> None:
    assert set(find(on_gpus(used, batch_size=batch_size), sold)) & {"thin-batch", "unused-gpus"} == codes


@pytest.mark.parametrize(
    ("used", "seen", "sold", "excluded"),
    [
        ((0,), 0, 1, True),
        ((0,), 1, 0.25, True),
        ((0,), 1, None, True),  # the price does not state the GPUs that the probe found
        ((0,), 0, None, False),
        ((0,), 0, 0, False),
        ((1,), 1, 1, False),
        ((1,), 4, 4, False),  # some are used: a finding, and a time that is true
        ((1, 0), 1, 1, True),  # of two repetitions, one ran on the CPU
    ],
)
def test_a_machine_whose_gpus_were_not_used_is_excluded(
    used: tuple[int, ...], seen: int, sold: float | None, excluded: bool
) -> None:
    records = [on_gpus(count, *["Tesla T4"] * seen) for count in used]
    catalog = prices(("a", 1.0), gpu_count=sold, gpu_model="T4" if sold else None)
    assert [one.reason_code for one in rank(records, catalog=catalog).excluded] == ["unused_gpu"] * excluded


def test_times_that_were_given_do_not_say_which_gpus_were_used() -> None:
    catalog = prices(("a", 1.0), gpu_count=1, gpu_model="T4")
    assert rank([make_profile("a", 0.1)], catalog=catalog).best.instance_type == "a"


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ({"gpus": 8}, set()),
        ({"gpus": 2}, {"unused-gpus"}),
        ({"gpus": 16}, {"hardware-contradicts-price"}),
        ({"workers": 8}, {"workers-on-one-machine"}),
        ({"workers": 8, "factors": {"nodes": 8}}, {"several-machines"}),
    ],
)
def test_findings_about_given_gpus_and_workers(given: dict[str, Any], codes: set[str]) -> None:
    catalog = prices(("a", 1.0), gpu_count=8, gpu_model="K80")
    best = rank([make_profile("a", 0.1, batch_size=512, **given)], catalog=catalog).best
    about = {"unused-gpus", "hardware-contradicts-price", "workers-on-one-machine", "several-machines"}
    assert {finding.code for finding in best.findings} & about == codes


def test_given_gpus_count_in_the_table_of_gpu_counts() -> None:
    catalog = prices(("p2.xlarge", 0.9), gpu_count=1, gpu_model="K80").with_offers(
        prices(("p2.8xlarge", 7.2), gpu_count=8, gpu_model="K80").offers(market=None)
    )
    profiles = [
        vs.Profile.from_times(instance_type=name, batch_size=512, total_seconds=seconds, epochs=82, gpus=gpus)
        for name, gpus, seconds in [("p2.xlarge", 1, 3602.0), ("p2.8xlarge", 8, 1143.3)]
    ]
    table = vs.rank(profiles, catalog=catalog).scaling.set_index("gpus")
    assert (table["speed_up"][8], table["efficiency"][8]) == pytest.approx((3.15, 0.394), abs=0.001)


def test_workers_that_use_some_gpus_of_their_machine_leave_the_others_unused() -> None:
    found = find(on_gpus(1, workers=2, workers_per_machine=2, replicas=2), 8)
    assert re.search(r"\b2\b.*\b8 GPUs", found["unused-gpus"])


@pytest.mark.parametrize(("batch_size", "thin"), [(512, False), (384, True)])
def test_a_batch_is_spread_over_the_gpus_of_all_nodes(batch_size: int, thin: bool) -> None:
    found = find(on_gpus(1, batch_size=batch_size, workers=16, workers_per_machine=8, replicas=16), 8)
    assert ("thin-batch" in found) is thin
    assert not thin or ("16 GPUs" in found["thin-batch"] and " 24 examples" in found["thin-batch"])


@pytest.mark.parametrize(
    ("names", "sold", "model", "contradiction"),
    [
        (["Tesla T4"], 1, "T4", None),
        (["Tesla T4"], 4, "T4", None),  # a container may show fewer
        (["Tesla T4"], 0.5, "T4", None),
        (["NVIDIA A10G"], 1, "A10G", None),
        (["NVIDIA A100-SXM4-80GB"], 1, "A100-80GB", None),
        (["NVIDIA GeForce 9"], 1, "RTX-PRO-6000", None),  # such names are too short to compare
        (["Tesla T4"] * 2, 1, "T4", ("1 x T4", "2 x Tesla T4")),
        (["Tesla T4"], 1, "A100-80GB", ("1 x A100-80GB", "1 x Tesla T4")),
        (["Tesla T4", "Tesla V100"], 2, "T4", ("2 x T4", "2 x Tesla V100")),
        (["Tesla T4"], 0, "", ("no GPU", "1 x Tesla T4")),
    ],
)
def test_other_gpus_than_the_priced_ones_are_a_finding(
    names: list[str], sold: float, model: str, contradiction: tuple[str, str] | None
) -> None:
    found = find(on_gpus(len(names), *names), sold, model).get("hardware-contradicts-price")
    assert (found is None) is (contradiction is None)
    assert all(part in str(found) for part in contradiction or ())


@pytest.mark.parametrize(
    ("cores", "allowed", "sold", "contradicts"),
    [
        ({"cpu_cores": 64, "usable_cores": 64}, None, 2, True),
        ({"cpu_cores": 4}, None, 2, True),
        ({"cpu_cores": 3, "usable_cores": 3}, None, 2, False),
        ({"cpu_cores": 2, "usable_cores": 2}, None, 64, False),  # a container may show fewer
        ({"cpu_cores": 64, "usable_cores": 2}, None, 2, False),  # held to two of them
        ({"cpu_cores": 64, "usable_cores": 64}, 2.0, 2, False),  # a container that may use two of them
        ({"cpu_cores": 64, "usable_cores": 64}, None, None, False),
        ({}, None, 2, False),
    ],
)
def test_more_cores_than_the_priced_ones_are_a_finding(
    cores: dict[str, int], allowed: float | None, sold: int | None, contradicts: bool
) -> None:
    usage = Usage(interval_seconds=1.0, limits=Limits(container_cores=allowed))
    profile = make_epoch_profile("a", 360.0, environment=cores, usage=usage)
    catalog = prices(("a", 1.0), **({} if sold is None else {"vcpus": sold}))
    codes = [finding.code for finding in rank_epochs([profile], catalog).best.findings]
    assert ("hardware-contradicts-price" in codes) is contradicts


def test_machines_are_priced_as_the_service_with_the_same_hardware() -> None:
    old = vs.Catalog.embedded("2021-02-28")
    pair = [make_profile("p3.2xlarge", epochs=9), make_profile("ml.p2.xlarge", epochs=9)]
    alone = vs.rank(pair, catalog=old)
    ranking = vs.rank(pair, catalog=old.where(service=["ec2", "sagemaker"]))
    rows = {row.instance_type: row for row in ranking}
    assert set(rows) == {"p3.2xlarge", "ml.p3.2xlarge", "p2.xlarge", "ml.p2.xlarge"}
    assert (rows["ml.p3.2xlarge"].service, rows["ml.p3.2xlarge"].usd_per_hour) == ("sagemaker", 3.8)
    assert rows["ml.p3.2xlarge"].seconds == rows["p3.2xlarge"].seconds
    twins = {name for name, row in rows.items() if "same-hardware" in [finding.code for finding in row.findings]}
    assert twins == {"ml.p3.2xlarge", "p2.xlarge"}
    assert ranking.selection_cost() == alone.selection_cost()
    assert {row.instance_type for row in vs.rank(pair, catalog=old.where(service="all"))} == set(rows)
    both = [*pair, make_profile("ml.p3.2xlarge", 0.2, epochs=9)]
    measured = {row.instance_type: row for row in vs.rank(both, catalog=old.where(service="sagemaker"))}
    assert measured["ml.p3.2xlarge"].seconds > measured["p3.2xlarge"].seconds
    with pytest.raises(vs.errors.ArgumentError, match="service"):
        old.where(service="vertex")
    elsewhere = make_profile("Standard_NC6", epochs=9)
    assert len(vs.rank(elsewhere, catalog=old.where(service="all"))) == 1


@pytest.mark.parametrize(("name", "named"), [("NC6", "Standard_NC6"), ("p2.xlarge", "2021-02-01")])
def test_an_unpriced_type_is_explained(name: str, named: str) -> None:
    (excluded,) = vs.rank(make_profile(name, epochs=9), catalog=vs.Catalog.embedded()).excluded
    assert named in excluded.reason
