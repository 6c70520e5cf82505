"""Parsing of the answers of price APIs, without a server."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from vmselect._imports import require
from vmselect.catalog.sources import http
from vmselect.catalog.sources.aws import describe_machine, describe_offer, parse_ec2_product
from vmselect.catalog.sources.gcp import GcpPrices, assemble, collect_parts, read_unit_price
from vmselect.catalog.sources.http import JsonClient
from vmselect.errors import MissingPackageError, RefreshError


class Pages:
    """A client with given pages."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self.pages = list(pages)

    def get(self, url: str, params: dict[str, str] | None = None) -> dict[str, Any]:
        return self.pages.pop(0)


def quiet(_: str) -> None:
    return


def tier(units: str | None, nanos: int | None, *, unit: str = "h", currency: str = "USD") -> dict[str, Any]:
    money = {"units": units, "nanos": nanos, "currencyCode": currency}
    return {"pricingInfo": [{"pricingExpression": {"usageUnit": unit, "tieredRates": [{"unitPrice": money}]}}]}


@pytest.mark.parametrize(
    ("sku", "usd"),
    [
        (tier("2", 480_000_000), 2.48),
        (tier("0", 31_611_000), 0.031611),
        (tier(None, 1), 1e-9),
        (tier("3", None), 3.0),
        (tier("0", 4_237_000, unit="GiBy.h"), 0.004237),
        (tier("0", 0), None),  # for nothing
        (tier("2", 0, unit="mo"), None),
        (tier("2", 0, currency="EUR"), None),
        (tier("two", 0), None),
        ({"pricingInfo": []}, None),
        ({}, None),
    ],
)
def test_a_google_price_is_units_and_billionths_for_an_hour(sku, usd) -> None:
    assert read_unit_price(sku) == (None if usd is None else pytest.approx(usd, rel=1e-12))


def part(description: str, units: str, group: str = "CPU", usage: str = "OnDemand", region: str = "r1") -> Any:
    category = {"resourceGroup": group, "usageType": usage}
    return {**tier(units, 0), "description": description, "category": category, "serviceRegions": [region]}


def test_google_parts_by_region_group_usage_and_description() -> None:
    skus = [
        part("G2 Instance Core running in Americas", "1"),
        part("Spot Preemptible G2 Instance Core running in Americas", "2", usage="Preemptible"),
        part("Spot Preemptible G2 Instance Ram running in Americas", "3", "RAM"),  # filed as on demand
        part("Nvidia L4 GPU attached to Spot Preemptible VMs", "4", "GPU"),
        part("Nvidia L4 GPU running in Americas", "5", "GPU"),
        part("G2 Instance Core running in Paris", "6", region="r2"),
        part("G2 Instance Core", "7", "Storage"),
        part("G2 Instance Core", "8", usage="Commit1Yr"),
        part("Commitment v1: G2 Instance Core", "9"),
    ]
    assert collect_parts(skus, "r1") == {
        ("g2 instance core", False): {1.0},
        ("g2 instance core", True): {2.0},
        ("g2 instance ram", True): {3.0},
        ("gpu:nvidia l4 gpu", True): {4.0},
        ("gpu:nvidia l4 gpu", False): {5.0},
    }


PARTS = {
    ("g2 instance core", False): {0.25},
    ("g2 instance ram", False): {0.0625},
    ("gpu:nvidia l4 gpu", False): {0.5},
    ("gpu:nvidia l4 gpu", True): {0.125},
}

L4 = {"vcpus": 8.0, "memory_gib": 32.0, "gpu_model": "L4", "gpu_count": 2.0}


def test_a_google_machine_is_the_sum_of_its_parts() -> None:
    assert assemble("g2-standard-8", L4, PARTS, spot=False) == 8 * 0.25 + 32 * 0.0625 + 2 * 0.5
    assert assemble("g2-standard-8", {**L4, "gpu_count": 0.0}, PARTS, spot=False) == 8 * 0.25 + 32 * 0.0625
    tiny = {**PARTS, ("g2 instance core", False): {1e-7}}
    assert assemble("g2-standard-8", L4, tiny, spot=False) == 3.000001  # to the millionth of a dollar


@pytest.mark.parametrize(
    ("name", "parts", "spot", "reason"),
    [
        ("z9-standard-8", PARTS, False, "family"),
        ("g2x-standard-8", PARTS, False, "family"),
        ("g2-standard-8", PARTS, True, "no price of G2 Instance Core"),
        ("g2-standard-8", {**PARTS, ("g2 instance ram", False): {1.0, 2.0}}, False, "2 prices of G2 Instance Ram"),
        ("g2-standard-8", {**PARTS, ("gpu:l4", False): {0.75}}, False, "2 prices of the GPU L4"),
        ("g2-standard-8", {}, False, "no price of the GPU L4"),
    ],
)
def test_why_a_google_machine_has_no_price(name, parts, spot, reason) -> None:
    assert reason in str(assemble(name, L4, parts, spot=spot))


def test_a_google_machine_with_a_disk_inside_is_priced_without_it() -> None:
    skus = [
        *(part(f"A3 Instance {unit}", "1", "CPU", region="us-central1") for unit in ("Core", "Ram")),
        *(part(f"G2 Instance {unit}", "1", "CPU", region="us-central1") for unit in ("Core", "Ram")),
        *(part(name, "1", "GPU", region="us-central1") for name in ("Nvidia H100 80GB GPU", "Nvidia L4 GPU")),
    ]
    prices = GcpPrices(base_url="http://127.0.0.1/v1", api_key="a-key")
    prices._client = Pages({"skus": skus})
    frame, _ = prices.fetch("us-central1", progress=quiet)
    notes = dict(zip(frame["instance_type"], frame["note"], strict=True))
    assert notes["a3-highgpu-8g"] == "without its local SSD"
    assert notes["g2-standard-4"] == ""


def device(**facts: Any) -> dict[str, Any]:
    return {"Name": "T4", "Count": 1, "MemoryInfo": {"SizeInMiB": 16384}, **facts}


def machine(name: str = "x.large", **accelerators: Any) -> dict[str, Any]:
    basis = {"InstanceType": name, "VCpuInfo": {"DefaultVCpus": 4}, "MemoryInfo": {"SizeInMiB": 15_872}}
    return {**basis, **accelerators}


@pytest.mark.parametrize(
    ("found", "model", "count", "memory_gib"),
    [
        ({}, "", 0, None),
        ({"GpuInfo": {"Gpus": []}}, "", 0, None),
        ({"GpuInfo": {"Gpus": [device()]}}, "T4", 1, 16),
        ({"GpuInfo": {"Gpus": [device(Count=8, Name="A100", MemoryInfo={"SizeInMiB": 81_920})]}}, "A100-80GB", 8, 80),
        ({"GpuInfo": {"Gpus": [device(Count=8, Name="A100", MemoryInfo={"SizeInMiB": 40_960})]}}, "A100", 8, 40),
        ({"GpuInfo": {"Gpus": [device(Name="V100", MemoryInfo={"SizeInMiB": 32_768})]}}, "V100-32GB", 1, 32),
        ({"GpuInfo": {"Gpus": [device(Name="Radeon Pro V520", MemoryInfo={})]}}, "Radeon-Pro-V520", 1, None),
        ({"GpuInfo": {"Gpus": [device(Name="Big New Chip", MemoryInfo={})]}}, "Big-New-Chip", 1, None),
        ({"GpuInfo": {"Gpus": [device(Count=0, LogicalGpuCount=2, GpuPartitionSize=0.25)]}}, "T4", 0.5, 16),
        ({"GpuInfo": {"Gpus": [device(Count=0)]}}, "", 0, None),
        ({"GpuInfo": {"Gpus": [device(Count=0, LogicalGpuCount=2)]}}, "", 0, None),
        ({"GpuInfo": {"Gpus": [device(Count=0, GpuPartitionSize=0.25)]}}, "", 0, None),
        ({"NeuronInfo": {"NeuronDevices": [device(Name="Trainium", Count=16)]}}, "Trainium", 16, 16),
        ({"InferenceAcceleratorInfo": {"Accelerators": [device(Name="Inferentia")]}}, "Inferentia", 1, 16),
    ],
)
def test_facts_of_aws_machines(found, model, count, memory_gib) -> None:
    facts = describe_machine(machine(**found))
    assert (facts["vcpus"], facts["memory_gib"], facts["retired"]) == (4, 15.5, False)
    assert (facts["gpu_model"], facts["gpu_count"], facts.get("gpu_memory_gib")) == (model, count, memory_gib)


ATTRIBUTES = {
    "operatingSystem": "Linux", "tenancy": "Shared", "capacitystatus": "Used", "preInstalledSw": "NA",
    "marketoption": "OnDemand", "licenseModel": "No License required", "regionCode": "us-east-1",
    "instanceType": "x.large",
}  # fmt: skip


def term(usd: str, unit: str = "Hrs", **kind: str) -> dict[str, Any]:
    return {"priceDimensions": {"any": {"unit": unit, "pricePerUnit": {"USD": usd}}}, "termAttributes": kind}


def aws_product(*, reserved: list[dict[str, Any]] | None = None, unit: str = "Hrs", **changes: str | None) -> str:
    attributes = {name: value for name, value in {**ATTRIBUTES, **changes}.items() if value is not None}
    leases = {str(n): lease for n, lease in enumerate(reserved or [])}
    return json.dumps(
        {"product": {"attributes": attributes}, "terms": {"OnDemand": {"a": term("0.5", unit)}, "Reserved": leases}}
    )


def test_missing_attributes_of_aws_products() -> None:
    assert list(parse_ec2_product(aws_product(tenancy=None), "us-east-1")) == [("x.large", "on_demand", "0.5")]
    assert list(parse_ec2_product(aws_product(capacitystatus=None), "us-east-1")) == []
    assert list(parse_ec2_product(aws_product(instanceType=None), "us-east-1")) == []


@pytest.mark.parametrize(("unit", "count"), [("Hrs", 1), ("hours", 1), ("Hour", 1), ("Quantity", 0), ("GB-Mo", 0)])
def test_only_hourly_prices_of_aws_count(unit, count) -> None:
    assert len(list(parse_ec2_product(aws_product(unit=unit), "us-east-1"))) == count


@pytest.mark.parametrize(
    ("name", "service", "vcpus"), [("x", "ec2", 4), ("ml.x", "sagemaker", 4), ("ml.y", "sagemaker", None)]
)
def test_a_sagemaker_machine_is_the_machine_of_its_name(name: str, service: str, vcpus: int | None) -> None:
    row = describe_offer(name, "spot", "1", "r1", {"x": {"vcpus": 4, "retired": False}})
    assert (row["service"], row.get("vcpus"), row["retired"], row["market"]) == (service, vcpus, False, "spot")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host:443/path?key=secret", "https://host:443/path"),
        ("https://user:secret@host/path?key=secret", "https://host/path"),
        ("https://user:p@secret@host/path", "https://host/path"),
        ("https://host?key=secret", "https://host"),
        ("https://user:sec/ret@host/path", "https://***"),
        ("https://user:sec?ret@host/path?key=secret", "https://***"),
    ],
)
def test_messages_show_no_secret_of_a_url(url: str, shown: str) -> None:
    assert http._hide_secrets(url) == shown


def test_without_a_network_a_source_gives_up_within_seconds() -> None:
    """A refused connection and an unknown host: the waits between requests end, which the test counts, not sleeps."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    waits: list[float] = []
    client = JsonClient(attempts=9, sleep=waits.append)
    with pytest.raises(RefreshError, match="could not be reached"):
        client.get(f"http://127.0.0.1:{port}/prices")
    assert 0 < sum(waits) <= client.unreachable_seconds


def test_a_missing_package_is_named_as_pip_knows_it() -> None:
    with pytest.raises(MissingPackageError, match="package 'no_such_package'"):
        require("no_such_package.exceptions", extra="aws", needed_by="AWS prices")
