"""Smaller hosts: the need of a training, and the cheapest machine that has as much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.cli import app
from vmselect.ranking.hosts import HostNeed, find_smaller_host, list_hosts
from vmselect.records.usage import Limits, Summary, Usage

CATALOG = vs.Catalog.embedded("2026-08-22")


def summary(p95: float, maximum: float | None = None) -> Summary:
    return Summary(count=20, seconds=20.0, mean=p95, maximum=p95 if maximum is None else maximum, p50=p95, p95=p95)


def use(cores: float, gib: float, *, of: int = 32, **phases: dict[str, Summary]) -> Usage:
    steady = {"process_cores": summary(cores), "memory_used_bytes": summary(gib * 2**30)}
    return Usage(interval_seconds=1.0, limits=Limits(cores=of), phases={"steady_steps": steady, **phases})


def probed(usage: Usage | None, name: str = "g5.8xlarge", **more: Any) -> vs.Profile:
    profile = make_profile(name, steps_per_epoch=100)
    facts = profile.environment.model_copy(update={"framework_gpus": 1, **more})
    return profile.model_copy(update={"usage": usage, "environment": facts})


def test_the_need_is_the_highest_use_with_a_reserve() -> None:
    need = HostNeed.of([probed(use(3.0, 8.0)), probed(use(2.0, 10.0))])
    assert need == HostNeed(used_cores=3.0, used_gib=10.0, vcpus=4, memory_gib=12.5)


def test_the_peak_of_the_process_counts_if_samples_missed_it() -> None:
    need = HostNeed.of([probed(use(3.0, 8.0), peak_memory_bytes=16 * 2**30)])
    assert need is not None
    assert need.memory_gib == 20.0


def test_starting_does_not_count_as_cores_but_as_memory() -> None:
    first = {"process_cores": summary(30.0), "memory_used_bytes": summary(20 * 2**30)}
    need = HostNeed.of([probed(use(3.0, 8.0, first_step=first))])
    assert need == HostNeed(used_cores=3.0, used_gib=20.0, vcpus=4, memory_gib=25.0)


def test_a_training_that_uses_nearly_all_cores_needs_all_of_them() -> None:
    need = HostNeed.of([probed(use(24.0, 8.0))])
    assert need is not None
    assert need.vcpus == 32


def test_cores_that_other_programs_took_are_not_known_to_be_superfluous() -> None:
    disturbed = use(3.0, 8.0)
    steady = {**disturbed.phases["steady_steps"], "other_cores": summary(28.0)}
    need = HostNeed.of([probed(disturbed.model_copy(update={"phases": {"steady_steps": steady}}))])
    assert need is not None
    assert need.vcpus == 32


@pytest.mark.parametrize(
    "profiles",
    [
        [probed(None)],
        [probed(use(3.0, 8.0)), probed(None)],
        [probed(use(3.0, 8.0), workers=2)],
        [probed(Usage(interval_seconds=1.0, limits=Limits(cores=4)))],
        [],
    ],
)
def test_without_samples_of_every_repetition_the_need_is_unknown(profiles: list[vs.Profile]) -> None:
    assert HostNeed.of(profiles) is None


def test_the_cheapest_machine_with_the_same_gpu_that_suffices_is_named() -> None:
    need = HostNeed(used_cores=3.0, used_gib=20.0, vcpus=4, memory_gib=25.0)
    rented = dict(CATALOG.offer("g5.8xlarge"))
    hosts = list_hosts(need, CATALOG.offers("aws"), CATALOG, gpu_model="A10G", gpu_count=1)
    finding = find_smaller_host(need, rented, hosts)
    assert finding is not None
    assert (finding.code, finding.severity) == ("oversized-host", "info")
    assert "is g5.2xlarge (8 vCPUs, 32 GiB) for $1.21 instead of $2.45" in finding.message
    small = dict(CATALOG.offer("g5.2xlarge"))
    assert find_smaller_host(need, small, hosts) is None


def test_a_machine_without_the_gpus_of_the_training_is_not_named() -> None:
    attached = vs.rank([probed(use(3.0, 8.0), "n1-standard-32")], epochs=5, catalog=CATALOG)
    assert "oversized-host" not in {finding.code for finding in attached.findings}
    without = vs.rank([probed(use(3.0, 8.0), "n1-standard-32", framework_gpus=0)], epochs=5, catalog=CATALOG)
    assert "oversized-host" in {finding.code for finding in without.findings}
    sold = vs.rank([probed(use(3.0, 8.0), "n1-standard-32+1xT4")], epochs=5, catalog=CATALOG)
    (finding,) = [finding for finding in sold.findings if finding.code == "oversized-host"]
    assert "is n1-standard-4+1xT4" in finding.message


def test_every_named_machine_suffices_and_is_cheaper() -> None:
    need = HostNeed(used_cores=1.0, used_gib=4.0, vcpus=2, memory_gib=5.0)
    for model, count in (("T4", 1.0), ("A10G", 1.0), ("V100", 1.0), ("", 0.0)):
        hosts = list_hosts(need, CATALOG.offers(market=None), CATALOG, gpu_model=model, gpu_count=count)
        assert (hosts["vcpus"] >= 2).all()
        assert (hosts["memory_gib"] >= 5.0).all()
        assert (hosts["gpu_count"].fillna(0) == count).all()
        assert not hosts["retired"].any()
        assert not hosts["instance_type"].str.startswith(("t3.", "Standard_B")).any()


def test_machines_whose_speed_does_not_last_are_not_named(tmp_path: Path) -> None:
    lasting = ("e2-standard-2", "e2-highcpu-4", "m5.large", "Standard_D2s_v5", "g1-standard-2")
    burstable = ("e2-micro", "e2-small", "e2-medium", "f1-micro", "g1-small", "t3.large", "Standard_B2s")
    rows = [f"gcp,{name},r,on_demand,0.1,2,8" for name in (*lasting, *burstable)]
    (tmp_path / "prices.csv").write_text(
        "\n".join(["provider,instance_type,region,market,usd_per_hour,vcpus,memory_gib", *rows]) + "\n"
    )
    catalog = vs.Catalog.load(tmp_path / "prices.csv")
    need = HostNeed(used_cores=1.0, used_gib=1.0, vcpus=1, memory_gib=1.25)
    hosts = list_hosts(need, catalog.offers(), catalog, gpu_model="", gpu_count=0.0)
    assert set(hosts["instance_type"]) == set(lasting)


def test_a_machine_at_a_stale_or_implausible_price_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    need = HostNeed(used_cores=3.0, used_gib=10.0, vcpus=4, memory_gib=12.5)
    offers = CATALOG.offers("aws", region="us-east-1")

    def named(offers: pd.DataFrame) -> set[str]:
        return set(list_hosts(need, offers, CATALOG, gpu_model="A10G", gpu_count=1)["instance_type"])

    names = offers["instance_type"]
    assert {"g5.xlarge", "g5.2xlarge", "g5.4xlarge"} <= named(offers)
    assert "g5.xlarge" not in named(offers.assign(stale=names == "g5.xlarge"))
    monkeypatch.setattr(
        vs.Catalog, "is_implausible", lambda _, rows: (rows["instance_type"] == "g5.2xlarge").to_numpy()
    )
    assert "g5.2xlarge" not in named(offers)


def test_a_ranking_names_it_for_its_candidates() -> None:
    ranking = vs.rank([probed(use(3.0, 8.0))], epochs=5, catalog=CATALOG)
    (finding,) = [finding for finding in ranking.findings if finding.code == "oversized-host"]
    assert "g5.xlarge" in finding.message
    payload = json.loads(ranking.to_json())
    numbers = payload["candidates"][payload["rows"][0]["candidate"]]["findings"]
    assert "oversized-host" in {payload["findings"][number]["code"] for number in numbers}
    busy = vs.rank([probed(use(30.0, 100.0))], epochs=5, catalog=CATALOG)
    assert "oversized-host" not in {finding.code for finding in busy.findings}


def test_filters_of_a_ranking_restrict_the_machines_to_choose_from() -> None:
    prices = CATALOG.where(market="spot", region="us-east-1")
    spot = vs.rank([probed(use(3.0, 8.0))], epochs=5, catalog=prices, market="spot")
    (finding,) = [finding for finding in spot.findings if finding.code == "oversized-host"]
    cheapest = CATALOG.price("g5.xlarge", market="spot")
    assert f"${cheapest:.2f} instead of" in finding.message


def test_check_names_it(tmp_path: Path) -> None:
    probed(use(3.0, 8.0)).save(tmp_path)
    done = CliRunner().invoke(app, ["check", str(tmp_path), "--json"])
    assert "oversized-host" in {row["code"] for row in json.loads(done.stdout)}
