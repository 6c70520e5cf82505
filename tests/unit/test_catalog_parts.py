"""Prices of other tools and of clouds at the edge of a rule: what is left out, what is named, and how many."""

from __future__ import annotations

from pathlib import Path

import pytest

import vmselect as vs
from vmselect.catalog.sources.aws import _row
from vmselect.catalog.sources.gcp import GcpPrices

SKYPILOT = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,Region,AvailabilityZone,Price,SpotPrice"
GPUHUNT = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot"


def load(path: Path, *lines: str, provider: str | None = None) -> vs.Catalog:
    path.write_text("\n".join(lines) + "\n")
    return vs.Catalog.load(path, provider=provider)


def test_accelerators_apart_are_counted_and_left_out(tmp_path: Path) -> None:
    rows = ["x,4,16,,,r1,a,1,", ",,,T4,1,r1,a,1,1", ",,,T4,2,r1,a,1,1"]
    catalog = load(tmp_path / "vms.csv", SKYPILOT, *rows, provider="aws")
    (finding,) = catalog.findings
    assert finding.message.startswith("2 SkyPilot rows price an accelerator or its host apart")
    assert len(catalog) == 1


def test_eight_parts_that_make_no_machine_are_named(tmp_path: Path) -> None:
    rows = ["n1-standard-4,4,15,,,r1,a,1,", *(f",,,Z{n},1,r1,a,1,1" for n in range(10))]
    (finding,) = load(tmp_path / "vms.csv", SKYPILOT, *rows, provider="gcp").findings
    assert finding.severity == "info"
    assert [n for n in range(10) if f"1 x Z{n}" in finding.message] == list(range(8))


def test_a_host_without_gpus_keeps_its_name(tmp_path: Path) -> None:
    rows = ["n1-standard-4,r-b1-a,0.2,4,15,0,,,False", "n1-standard-4,r-b1-a,0.5,4,15,0.5,T4,16,True"]
    catalog = load(tmp_path / "gcp.csv", GPUHUNT, *rows)
    assert [(o.instance_type, o.market, o.region) for o in catalog] == [
        ("n1-standard-4", "on_demand", "r-b1"),
        ("n1-standard-4+0.5xT4", "spot", "r-b1"),
    ]


@pytest.mark.parametrize(
    ("name", "service", "vcpus"), [("x", "ec2", 4), ("ml.x", "sagemaker", 4), ("ml.y", "sagemaker", None)]
)
def test_a_sagemaker_machine_is_the_machine_of_its_name(name: str, service: str, vcpus: int | None) -> None:
    row = _row(name, "spot", "1", "r1", {"x": {"vcpus": 4, "retired": False}})
    assert (row["service"], row.get("vcpus"), row["retired"], row["market"]) == (service, vcpus, False, "spot")


@pytest.mark.parametrize(
    ("key", "said"), [("", "There is no API key"), ("a\u200bb", "a character that no key has"), ("a!~", None)]
)
def test_a_key_of_google(monkeypatch: pytest.MonkeyPatch, key: str, said: str | None) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    missing = GcpPrices(api_key=key).missing()
    assert (missing is None) if said is None else said in str(missing)
