"""gpuhunt's catalogs as a source, and the choice of a source: served on loopback."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.catalog.refresh import refresh_prices
from vmselect.catalog.sources import open_source
from vmselect.catalog.sources.gpuhunt import GpuhuntPrices
from vmselect.catalog.sources.skypilot import SkyPilotPrices
from vmselect.cli import app
from vmselect.errors import RefreshError

COLUMNS = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,"
    "provider_data\n"
)
LAMBDA = COLUMNS + (
    "gpu_1x_a10,us-west-1,1.25,30,200,1,A10,24,False,1400,nvidia,[],x86,{}\n"
    "gpu_8x_h100_sxm5,us-west-1,31.9,208,1800,8,H100,80,False,22000,nvidia,[],x86,{}\n"
    "gpu_1x_a10,us-east-1,1.25,30,200,1,A10,24,False,1400,nvidia,[],x86,{}\n"
)
GOOGLE = COLUMNS + (
    'a3-highgpu-8g,us-central1-a,40.0,208,1872,8,H100,80,False,,nvidia,"[""gcp-dws-calendar-mode""]",x86,{}\n'
    "a3-highgpu-8g,us-central1-a,88.0,208,1872,8,H100,80,False,,nvidia,[],x86,{}\n"
)


def pack(name: str, text: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(name, text)
    return content.getvalue()


FILES: dict[str, Any] = {
    "/v3/lambdalabs/version": b"20261101-77\n",
    "/v3/lambdalabs/20261101-77/catalog.zip": pack("lambdalabs.csv", LAMBDA),
    "/v3/gcp/version": b"20261101-77",
    "/v3/gcp/20261101-77/catalog.zip": pack("gcp.csv", GOOGLE),
    "/v3/oci/version": b"../../secret",
    "/v3/nebius/version": b"1",
    "/v3/nebius/1/catalog.zip": b"no archive",
    "/v3/verda/version": b"1",
    "/v3/verda/1/catalog.zip": pack("other.csv", LAMBDA),
}


@pytest.fixture
def opened(cloud, answer, client):
    cloud.reply = lambda request: answer(FILES[request.path]) if request.path in FILES else answer(status=404)
    return lambda name: GpuhuntPrices(name, base_url=f"{cloud.url}/v3", client=client)


def test_the_newest_catalog_of_a_cloud_is_read_once_for_all_regions(cloud, opened) -> None:
    outcome = refresh_prices(["lambda"], sources={"lambda": opened("lambda")}, regions="all", source="gpuhunt")
    assert {(part.region, part.state, part.rows) for part in outcome.parts} == {
        ("us-west-1", "fetched", 2), ("us-east-1", "fetched", 1),
    }  # fmt: skip
    assert [request.path for request in cloud.asked] == [path for path in FILES if "lambdalabs" in path]
    offer = vs.Catalog.default().offer("gpu_8x_h100_sxm5", region="us-west-1")
    assert (offer.provider, offer.usd_per_hour, offer.source, offer.gpu_count) == ("lambda", 31.9, "gpuhunt", 8)


def test_a_catalog_of_gpuhunt_is_of_the_day_in_its_version_until_it_changes(cloud, answer, client, monkeypatch) -> None:
    monkeypatch.setenv("VMSELECT_TODAY", "2026-11-05")

    def fetch(version: str, text: str) -> set[str]:
        files = {"version": version.encode(), "catalog.zip": pack("lambdalabs.csv", text)}
        cloud.reply = lambda request: answer(files[request.path.rpartition("/")[2]])
        source = GpuhuntPrices("lambda", base_url=cloud.url, client=client)
        return set(source.fetch("us-west-1", progress=lambda _: None)[0]["date"])

    assert fetch("20261101-77", LAMBDA) == {"2026-11-01"}
    assert fetch("20261103-79", LAMBDA) == {"2026-11-01"}  # a new version of the same content confirms nothing
    assert fetch("20261104-80", LAMBDA.replace("31.9,", "32.5,")) == {"2026-11-04"}
    assert fetch("20991231-1", LAMBDA) == {"2026-11-05"}  # a day that has not come
    assert fetch("newest", LAMBDA.replace("31.9,", "33.5,")) == {"2026-11-05"}


def test_prices_of_machines_reserved_for_later_are_not_on_demand(opened) -> None:
    frame, _ = opened("gcp").fetch("us-central1", progress=lambda _: None)
    assert frame["usd_per_hour"].tolist() == [88.0]


@pytest.mark.parametrize("provider", ["oci", "nebius", "verda", "runpod"])
def test_an_invalid_version_or_archive_is_an_error(provider: str, opened) -> None:
    with pytest.raises(RefreshError):
        opened(provider).fetch("us", progress=lambda _: None)


def test_prices_stored_from_another_source_are_fetched_again(opened, cloud, client) -> None:
    sources = {"lambda": opened("lambda")}
    refresh_prices(["lambda"], sources=sources, source="gpuhunt")
    assert {part.state for part in refresh_prices(["lambda"], sources=sources, source="gpuhunt").parts} == {"reused"}
    assert {part.state for part in refresh_prices(["lambda"], sources=sources, source="skypilot").parts} == {"fetched"}


@pytest.mark.parametrize(
    ("provider", "via", "kind"),
    [("lambda", "auto", SkyPilotPrices), ("lambda", "gpuhunt", GpuhuntPrices), ("aws", "skypilot", SkyPilotPrices)],
)
def test_a_cloud_without_a_price_api_is_read_from_skypilot(provider: str, via: str, kind: type) -> None:
    assert isinstance(open_source(provider, via), kind)


HEADER = (
    "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n"
)


def test_the_command_refreshes_several_clouds_in_all_regions(cloud, answer, client, monkeypatch) -> None:
    texts = {
        "/lambda/vms.csv": HEADER
        + "".join(f"gpu_1x_a10,30,200,A10,1,,us-{side}-1,,1.29,\n" for side in ("west", "east")),
        "/runpod/vms.csv": HEADER + "1x_L4_SECURE,8,50,L4,1,,CA,,0.44,\n",
    }  # fmt: skip
    cloud.reply = lambda request: answer(texts[request.path].encode())
    monkeypatch.setattr(
        "vmselect.catalog.refresh.open_source",
        lambda name, via: SkyPilotPrices(name, base_url=cloud.url, client=client),
    )
    run = CliRunner().invoke(
        app, ["prices", "refresh", "--provider", "lambda,runpod", "--region", "all", "--format", "json"]
    )
    assert run.exit_code == 0, run.output
    parts = [(row["provider"], row["region"], row["state"]) for row in json.loads(run.stdout)]
    places = [("lambda", "us-east-1"), ("lambda", "us-west-1"), ("runpod", "CA")]
    assert parts == [(*place, "fetched") for place in places]


def test_implausible_prices_are_refused_with_a_list_and_their_earlier_prices_stay(cloud, answer, client) -> None:
    def run(*rows: str):
        cloud.reply = lambda _: answer((HEADER + "".join(f"{row}\n" for row in rows)).encode())
        source = {"aws": SkyPilotPrices("aws", base_url=cloud.url, client=client)}
        return refresh_prices(["aws"], sources=source, source="skypilot", max_age_hours=0)

    good = "g4dn.xlarge,4,16,T4,1,,us-east-1,a,0.526,0.2"
    first = run(good, "g5.xlarge,4,16,A10G,1,,us-east-1,a,1.1,0.5")
    assert [finding.code for finding in first.findings if finding.code == "prices-refused"] == []
    second = run(
        good,
        "g5.xlarge,4,16,A10G,1,,us-east-1,a,0.4,0.45",  # less than half of 1.1, and spot above it
        "p5.48xlarge,192,2048,H100,8,,us-east-1,a,27,20",  # less than half of the shipped 55.04
    )
    refused = next(finding for finding in second.findings if finding.code == "prices-refused")
    assert "g5.xlarge on_demand" in refused.message
    assert "g5.xlarge spot" in refused.message
    assert "p5.48xlarge on_demand" in refused.message
    catalog = vs.Catalog.default()
    assert catalog.price("g5.xlarge") == 1.1
    assert catalog.price("g5.xlarge", market="spot") == 0.5
    assert catalog.price("p5.48xlarge") == 55.04
    assert catalog.price("p5.48xlarge", region="us-east-1", market="spot") == 20
    with pytest.raises(RefreshError, match="refused"):
        run("p5.48xlarge,192,2048,H100,8,,us-east-1,a,27,")


def test_a_price_api_without_a_list_of_regions_is_asked_for_the_shipped_ones(cloud, answer, client) -> None:
    from vmselect.catalog.sources.azure import AzurePrices

    cloud.reply = lambda request: answer({"Items": [], "NextPageLink": None})
    with pytest.raises(RefreshError):
        refresh_prices(["azure"], sources={"azure": AzurePrices(base_url=cloud.url, client=client)}, regions="all")
    asked = {request.query["$filter"].rpartition("eq ")[2].strip("'") for request in cloud.asked}
    assert asked == set(vs.Catalog.embedded().offers("azure", market=None)["region"].astype(str))
