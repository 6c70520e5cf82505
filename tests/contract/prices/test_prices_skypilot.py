"""SkyPilot's published catalog as a source: one file per cloud, all regions, no account."""

from __future__ import annotations

import hashlib
import json
import shutil

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect._io import pricing_folder
from vmselect.catalog.age import today
from vmselect.catalog.refresh import refresh_prices
from vmselect.catalog.shipped import LATEST
from vmselect.catalog.snapshots import write_snapshot
from vmselect.catalog.sources.azure import AzurePrices
from vmselect.catalog.sources.http import JsonClient
from vmselect.catalog.sources.skypilot import SkyPilotPrices
from vmselect.cli import app
from vmselect.errors import ArgumentError, CatalogError, RefreshError

HEADER = (
    "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n"
)
FILES = {
    "/v8/aws/vms.csv": HEADER
    + "g4dn.xlarge,4,16,T4,1,,us-east-1,us-east-1a,0.5,0.2\n"
    + "g4dn.xlarge,4,16,T4,1,,us-east-1,us-east-1b,0.5,0.1\n"
    + "g4dn.xlarge,4,16,T4,1,,eu-west-1,eu-west-1a,0.6,\n"
    + "p5e.48xlarge,192,2048,H200,8,,eu-west-1,eu-west-1a,70,\n",
    "/v8/gcp/vms.csv": HEADER
    + "a2-highgpu-1g,12,85,,,,us-central1,us-central1-a,0.74,0.37\n"
    + ",,,A100,1,,us-central1,us-central1-a,2.93,1.5\n",
    "/v8/lambda/vms.csv": HEADER + "gpu_1x_a10,30,200,A10,1,,us-west-1,,0.75,\ngpu_8x_x,1,1,X,8,,us-east-9,,-4,\n"
    "gpu_1x_a10,30,200,A10,1,,us-east-9,,0.8,\n",
}


@pytest.fixture
def sources(cloud, answer, client):
    def reply(request):
        text = FILES.get(request.path)
        return answer(status=404) if text is None else answer(text.encode())

    cloud.reply = reply
    return {n: SkyPilotPrices(n, base_url=f"{cloud.url}/v8", client=client) for n in ("aws", "azure", "gcp", "lambda")}


def refresh(sources, *providers, **options):
    return refresh_prices(providers, sources={p: sources[p] for p in providers}, source="skypilot", **options)


def test_regions_of_a_cloud_come_from_one_file(cloud, sources) -> None:
    outcome = refresh(sources, "aws", regions=["us-east-1", "eu-west-1"])
    assert [request.path for request in cloud.asked] == ["/v8/aws/vms.csv"]
    assert {(p.region, p.state, p.rows) for p in outcome.parts} == {
        ("us-east-1", "fetched", 2),
        ("eu-west-1", "fetched", 2),
    }
    catalog = vs.Catalog.default()
    assert catalog.price("g4dn.xlarge", region="us-east-1", market="spot") == 0.1  # the cheapest zone
    assert catalog.price("g4dn.xlarge", region="eu-west-1") == 0.6
    assert catalog.price("p5e.48xlarge", region="eu-west-1") == 70
    offer = catalog.offer("g4dn.xlarge", region="eu-west-1")
    assert (offer.source, offer.date) == ("skypilot", today().isoformat())


def test_without_a_region_the_reference_region_is_meant(sources) -> None:
    outcome = refresh(sources, "aws", "gcp")
    assert [(p.provider, p.region) for p in sorted(outcome.parts, key=str)] == [
        ("aws", "us-east-1"),
        ("gcp", "us-central1"),
    ]
    assert vs.Catalog.default().price("a2-highgpu-1g") == pytest.approx(3.67)


def test_all_regions(sources) -> None:
    outcome = refresh(sources, "aws", regions="all")
    assert {p.region for p in outcome.parts} == {"us-east-1", "eu-west-1"}


def test_a_cloud_that_ships_no_prices(sources) -> None:
    outcome = refresh(sources, "lambda")
    assert {(p.region, p.rows) for p in outcome.parts} == {("us-west-1", 1), ("us-east-9", 1)}
    assert any("usd_per_hour -4 is" in str(finding) for finding in outcome.findings)
    assert vs.Catalog.default().price("gpu_1x_a10", region="us-west-1") == 0.75


def test_a_cloud_that_fails_costs_only_itself(sources) -> None:
    outcome = refresh(sources, "aws", "azure")
    assert {p.provider: p.state for p in outcome.parts} == {"aws": "fetched", "azure": "failed"}
    outcome = refresh(sources, "aws", "azure", regions=["all"], max_age_hours=0)
    assert {p.provider: p.state for p in outcome.parts} == {"aws": "fetched", "azure": "failed"}


def test_what_is_fresh_is_not_fetched_again(cloud, sources, client) -> None:
    refresh(sources, "aws")
    again = {"aws": SkyPilotPrices("aws", base_url=f"{cloud.url}/v8", client=client)}
    assert refresh(again, "aws").parts[0].state == "reused"
    assert len(cloud.asked) == 1


def test_a_catalog_that_was_not_updated_does_not_make_its_prices_new(cloud, answer, client) -> None:
    """SkyPilot's files of some clouds stay as they are for years; fetching them again must not hide that."""
    shipped = vs.Catalog.embedded("2026-08-22").offers(["hyperbolic", "vast"], gpu="H100").iloc[:5]
    providers = sorted(set(shipped["provider"]))
    assert providers == ["hyperbolic", "vast"]

    def fetch(factor: float):
        def reply(request):
            name = request.path.split("/")[2]
            rows = [
                f'{row.instance_type},8,64,H100,{row.gpu_count:g},,"{row.region}",,{row.usd_per_hour * factor},\n'
                for row in shipped[shipped["provider"] == name].itertuples()
            ]
            return answer((HEADER + "".join(rows)).encode())

        cloud.reply = reply
        opened = {name: SkyPilotPrices(name, base_url=f"{cloud.url}/v8", client=client) for name in providers}
        outcome = refresh(opened, *providers, regions="all", max_age_hours=0)
        kept = sorted(finding.message for finding in outcome.findings if finding.code == "unchanged-prices")
        now = vs.Catalog.default().offers(providers).merge(shipped[["instance_type", "region"]])
        return kept, set(now["date"])

    kept, dates = fetch(1)
    assert ["hyperbolic" in message for message in kept] == [True, False]
    assert "2025-08-27" in kept[0]
    assert dates == {"2025-08-27", "2025-10-27"}
    kept, dates = fetch(1.01)  # the catalog was updated
    assert not kept
    assert dates == {today().isoformat()}


def test_a_small_cloud_that_is_refreshed_becomes_stale_only_if_its_catalog_stays_as_it_is(
    cloud, answer, client, monkeypatch
) -> None:
    """Twenty-five months of refreshes: one cloud changes a price every ten months, the other one never."""
    rows = "small,8,64,L4,1,,east,,{:g},\nlarge,8,64,L4,2,,west,,0.95,\n"

    def reply(request):
        moved = request.path.split("/")[2] == "lium"
        return answer((HEADER + rows.format(0.4 + 0.05 * (month // 10) if moved else 0.4)).encode())

    cloud.reply = reply
    stale = {"lium": [], "simplepod": []}
    for month in range(25):
        monkeypatch.setenv("VMSELECT_TODAY", f"{2027 + month // 12}-{month % 12 + 1:02}-01")
        opened = {name: SkyPilotPrices(name, base_url=f"{cloud.url}/v8", client=client) for name in stale}
        refresh(opened, *stale, regions="all", max_age_hours=0)
        offers = vs.Catalog.refreshed(alone=True).offers()
        for name in stale:
            stale[name].append(bool(offers[offers["provider"] == name]["stale"].all()))
    assert not any(stale["lium"])
    assert [stale["simplepod"].index(True), stale["simplepod"].count(True)] == [13, 12]


def test_who_changes_between_sources_does_not_make_old_content_new(cloud, answer, client) -> None:
    """Azure's spot prices of 2024 stay those of 2024, also after its price API has stored other ones."""
    catalog = vs.Catalog.embedded("2026-08-22")
    shipped = catalog.offers("azure", region="eastus", market="spot", retired=False)
    shipped = shipped[~catalog.is_implausible(shipped)]
    names = shipped["instance_type"].astype(str).tolist()
    text = HEADER + "".join(
        f"{row.instance_type},1,1,,,,eastus,,{20 * row.usd_per_hour:.6f},{row.usd_per_hour}\n"
        for row in shipped.itertuples()
    )
    items = [
        {
            "currencyCode": "USD", "retailPrice": 1.1 * row.usd_per_hour, "armRegionName": "eastus",
            "productName": "x", "skuName": "x Spot", "meterName": "x Spot", "type": "Consumption",
            "serviceName": "Virtual Machines", "armSkuName": row.instance_type, "unitOfMeasure": "1 Hour",
        }
        for row in shipped.itertuples()
    ]  # fmt: skip

    def fetch(via: str) -> set[str]:
        cloud.reply = lambda _: answer(text.encode() if via == "skypilot" else {"Items": items, "NextPageLink": None})
        kind = SkyPilotPrices if via == "skypilot" else AzurePrices
        source = {
            "azure": kind(**({"provider": "azure"} if via == "skypilot" else {}), base_url=cloud.url, client=client)
        }
        refresh_prices(["azure"], sources=source, regions="eastus", source=via, max_age_hours=0)
        stored = vs.Catalog.refreshed(alone=True).offers(instance_type=names, market=None)
        return set(stored["date"])

    assert fetch("api") == {today().isoformat()}
    # The on-demand prices that came with them are not newer: nothing shows that the file was written again.
    assert fetch("skypilot") == {"2024-08-19"}
    assert fetch("api") == {today().isoformat()}  # the same answer as before, confirmed by Azure
    assert fetch("skypilot") == {"2024-08-19"}


def test_who_asks_a_cloud_itself_gets_none_of_the_prices_kept_from_skypilot(cloud, answer, client, sources) -> None:
    text = FILES["/v8/aws/vms.csv"].replace("g4dn.xlarge", "Standard_NC4as_T4_v3").replace("us-east-1", "eastus")
    item = {
        "currencyCode": "USD", "retailPrice": 0.7, "armRegionName": "eastus", "serviceName": "Virtual Machines",
        "productName": "NCasT4_v3", "skuName": "NC4as T4 v3", "meterName": "NC4as T4 v3", "type": "Consumption",
        "armSkuName": "Standard_NC4as_T4_v3", "unitOfMeasure": "1 Hour",
    }  # fmt: skip
    itself = {"azure": AzurePrices(base_url=cloud.url, client=client)}
    cloud.reply = lambda _: answer(text.encode())
    refresh(sources, "azure")
    cloud.reply = lambda _: answer({"Items": [item], "NextPageLink": None})
    for state in ("fetched", "reused"):
        assert [part.state for part in refresh_prices(["azure"], sources=itself).parts] == [state]
    assert vs.Catalog.default().price("Standard_NC4as_T4_v3") == 0.7


def test_a_region_that_is_not_there(sources) -> None:
    with pytest.raises(RefreshError, match="eu-west-1"):
        refresh(sources, "aws", regions=["eu-west-9"])


def test_half_a_file_or_none(cloud, answer, client) -> None:
    source = SkyPilotPrices("aws", base_url=cloud.url, client=client)
    for body in (b"", b"<html>not here</html>", b"\x00\xff", HEADER.encode()):
        cloud.reply = lambda _, body=body: answer(body)
        with pytest.raises(RefreshError):
            source.fetch("us-east-1", progress=lambda _: None)


def test_a_file_may_not_be_endless(cloud, answer, waits, monkeypatch) -> None:
    monkeypatch.setattr("vmselect.catalog.sources.http._MAX_ANSWER_BYTES", 1000)
    cloud.reply = lambda _: answer(b"x" * 5000)
    source = SkyPilotPrices("aws", base_url=cloud.url, client=JsonClient(sleep=waits.append))
    with pytest.raises(RefreshError):
        source.fetch("us-east-1", progress=lambda _: None)


def test_names_that_skypilot_or_we_do_not_know() -> None:
    with pytest.raises(ArgumentError, match="mars"):
        refresh_prices(["mars"], source="skypilot")
    with pytest.raises(ArgumentError):
        refresh_prices(["aws"], source="magic")
    with pytest.raises(ArgumentError, match="skypilot"):
        refresh_prices(["lambda"], source="api")


def test_one_command_makes_a_new_snapshot(sources, tmp_path) -> None:
    folder = tmp_path / "pricing"
    shutil.copytree(pricing_folder(), folder)
    with pytest.raises(CatalogError):
        write_snapshot(tmp_path)
    with pytest.raises(CatalogError):
        write_snapshot(folder)
    refresh(sources, "aws", "gcp", "lambda", regions="all")
    made = CliRunner().invoke(app, ["prices", "snapshot", str(folder)])
    assert made.exit_code == 0, made.output
    day = today().isoformat()
    assert vs.Catalog.load(folder / LATEST / "aws.csv").price("g4dn.xlarge") == 0.5
    assert vs.Catalog.load(folder / LATEST / "gcp.csv").price("a2-highgpu-1g") == pytest.approx(3.67)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["snapshots"][-1]["date"] == day
    for entry in [file for snapshot in manifest["snapshots"] for file in snapshot["files"]] + manifest["tables"]:
        assert hashlib.sha256((folder / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]


def test_error_quotes_nothing_of_the_response() -> None:
    client = JsonClient()
    client.get_bytes = lambda url: b"<html>\n<p>key AKIAEXAMPLE</p>\n"  # type: ignore[method-assign]
    with pytest.raises(RefreshError) as caught:
        SkyPilotPrices("aws", client=client).list_regions()
    assert "AKIAEXAMPLE" not in str(caught.value)
    assert "html" not in str(caught.value)
