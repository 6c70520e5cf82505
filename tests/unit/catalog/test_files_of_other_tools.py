"""Price files of other tools: SkyPilot and gpuhunt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.errors import CatalogError

SKYPILOT_7 = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
g9.xlarge,A100,1.0,4.0,16.0,"{'Gpus': [{'Name': 'A100'}]}",1.25,0.45,mars-1,mars-1a
g9.xlarge,A100,1.0,4.0,16.0,"{'Gpus': [{'Name': 'A100'}]}",1.25,0.40,mars-1,mars-1b
c9.large,,,2.0,4.0,,0.10,,mars-1,mars-1a
"""

SKYPILOT_8 = """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice,Arch
g9.xlarge,4.0,16.0,A100,1.0,,mars-1,mars-1a,1.25,0.45,x86_64
"""

SKYPILOT_GCP = """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice
n1-standard-4,4.0,15.0,,,,mars1,mars1-a,0.19,0.04
a2-highgpu-1g,12.0,85.0,,,,mars1,mars1-a,0.74,0.37
,,,A100,1.0,,mars1,mars1-a,2.93,1.5
"""

GPUHUNT = """\
instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor
big-a100,mars-1,2.5,12,96.0,1,A100,80.0,False,,nvidia
big-a100,mars-1,1.0,12,96.0,1,A100,80.0,True,,nvidia
plain,mars-1,0.1,2,4.0,0,,,False,,
"""


@pytest.mark.parametrize("text", [SKYPILOT_7, SKYPILOT_8], ids=["v7", "v8"])
def test_skypilot(tmp_path, text) -> None:
    folder = tmp_path / "catalogs" / "aws"
    folder.mkdir(parents=True)
    (folder / "vms.csv").write_text(text)
    catalog = vs.Catalog.load(folder / "vms.csv")
    offer = catalog.offer("g9.xlarge", market="spot")
    assert offer.usd_per_hour == (0.40 if text is SKYPILOT_7 else 0.45)  # the cheapest zone
    assert (offer.provider, offer.region, offer.gpu_model, offer.gpu_count) == ("aws", "mars-1", "A100", 1.0)
    assert offer.source == "skypilot"
    assert catalog.price("g9.xlarge") == 1.25


def test_google_gpus_are_added_to_their_hosts(tmp_path) -> None:
    path = tmp_path / "vms.csv"
    path.write_text(SKYPILOT_GCP)
    catalog = vs.Catalog.load(path, provider="gcp")
    assert catalog.price("n1-standard-4") == 0.19
    assert catalog.price("a2-highgpu-1g") == pytest.approx(0.74 + 2.93)
    assert catalog.price("a2-highgpu-1g", market="spot") == pytest.approx(0.37 + 1.5)
    assert (catalog.offer("a2-highgpu-1g").gpu_model, catalog.offer("a2-highgpu-1g").gpu_count) == ("A100", 1)
    assert catalog.findings == ()


def test_google_machines_are_assembled_by_zone(tmp_path) -> None:
    head, *_ = SKYPILOT_GCP.splitlines()
    rows = [
        "n1-standard-4,4.0,15.0,,,,mars1,mars1-a,0.19,0.04",
        "n1-standard-4,4.0,15.0,,,,mars1,mars1-b,0.15,0.04",
        ",,,T4,1.0,,mars1,mars1-a,0.35,",
        ",,,T4,1.0,,mars1,mars1-c,0.10,0.01",  # a zone without the host
        "a3-megagpu-8g,208,1872,,,,mars1,mars1-a,10.0,5.0",
        ",,,H100-MEGA,8.0,,mars1,mars1-a,80.0,20.0",
        ",,,H100,8.0,,mars1,mars1-a,70.0,10.0",  # whose host is not listed
        ",,,B200,8.0,,mars1,mars1-a,90.0,30.0",  # sold with its host
        ",,,tpu-v2-8,1.0,,mars1,mars1-a,4.5,1.35",
        ",,,tpu-v6e-8,1.0,,mars1,mars1-a,700.0,700.0",  # SkyPilot's placeholder for an unknown price
        "g2-standard-4,4,16,,,,mars1,mars1-a,0.35,0.1",
    ]
    path = tmp_path / "vms.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    catalog = vs.Catalog.load(path, provider="gcp")
    offers = catalog.offers(market=None)
    prices = {(r.instance_type, r.market): r.usd_per_hour for r in offers.itertuples()}
    assert prices == pytest.approx(
        {
            ("n1-standard-4", "on_demand"): 0.15,
            ("n1-standard-4", "spot"): 0.04,
            ("n1-standard-4+1xT4", "on_demand"): 0.54,
            ("a3-megagpu-8g", "on_demand"): 90.0,
            ("a3-megagpu-8g", "spot"): 25.0,
            ("a4-highgpu-8g", "on_demand"): 90.0,
            ("a4-highgpu-8g", "spot"): 30.0,
            ("tpu-v2-8", "on_demand"): 4.5,
            ("tpu-v2-8", "spot"): 1.35,
        }
    )
    assert "8 x H100" in catalog.findings[0].message
    assert "g2-standard-4" in catalog.findings[0].message


def test_gpuhunt(tmp_path) -> None:
    path = tmp_path / "lambdalabs.csv"
    path.write_text(GPUHUNT)
    catalog = vs.Catalog.load(path)
    offer = catalog.offer("big-a100", market="spot")
    assert (offer.provider, offer.usd_per_hour, offer.gpu_model) == ("lambda", 1.0, "A100-80GB")
    assert offer.source == "gpuhunt"
    assert catalog.offer("plain").gpu_count == 0


@pytest.mark.parametrize(("alias", "name"), [("lambdalabs", "lambda"), ("datacrunch", "verda"), ("aws", "aws")])
def test_a_provider_has_one_name_in_every_file(tmp_path: Path, alias: str, name: str) -> None:
    (tmp_path / "gpuhunt.csv").write_text(GPUHUNT)
    (tmp_path / "own.csv").write_text(f"provider,instance_type,region,market,usd_per_hour\n{alias},x,r,on_demand,1\n")
    (tmp_path / "alone.csv").write_text("instance_type,region,market,usd_per_hour\nx,r,on_demand,1\n")
    (tmp_path / "own.json").write_text(
        json.dumps([{"provider": alias, "instance_type": "x", "region": "r", "market": "on_demand", "usd_per_hour": 1}])
    )
    for file in ("gpuhunt.csv", "own.csv", "alone.csv", "own.json"):
        offers = vs.Catalog.load(tmp_path / file, provider=alias).offers(market=None)
        assert set(offers["provider"]) == {name}, file


def test_a_machine_that_can_no_longer_be_rented_stays_retired(tmp_path) -> None:
    folder = tmp_path / "azure"
    folder.mkdir()
    head, *_ = SKYPILOT_8.splitlines()
    sizes = ("Standard_NC6s_v3,6,112,V100", "Standard_NC4as_T4_v3,4,28,T4")
    rows = [f"{size},1,,eastus,,{usd},0.1,x86_64" for size, usd in zip(sizes, (3.06, 0.526), strict=True)]
    (folder / "vms.csv").write_text("\n".join([head, *rows]) + "\n")
    head, *_ = GPUHUNT.splitlines()
    rows = ["Standard_NC6s_v3,eastus,3.1,6,112,1,V100,16,False,,nvidia", "Standard_New,eastus,1,6,112,0,,,False,,"]
    (tmp_path / "azure.csv").write_text("\n".join([head, *rows]) + "\n")
    for path, retired in ((folder / "vms.csv", 2), (tmp_path / "azure.csv", 1)):
        offers = vs.Catalog.load(path).offers(market=None)
        assert set(offers.loc[offers["retired"], "instance_type"]) == {"Standard_NC6s_v3"}
        assert offers["retired"].sum() == retired
    merged = vs.Catalog.embedded("2026-08-22").with_offers(vs.Catalog.load(folder / "vms.csv"))
    assert merged.offers(instance_type="Standard_NC6s_v3", market=None)["retired"].all()


def test_gpus_added_to_google_hosts_become_part_of_the_name(tmp_path) -> None:
    header = GPUHUNT.splitlines()[0]
    rows = [
        "n1-standard-4,us-central1-a,0.19,4,15.0,0,,,False,,",
        "n1-standard-4,us-central1-a,0.54,4,15.0,1,T4,16.0,False,,nvidia",
        "n1-standard-4,us-central1-b,0.54,4,15.0,1,T4,16.0,False,,nvidia",
        "n1-standard-4,us-central1-a,0.89,4,15.0,2,T4,16.0,False,,nvidia",
        "n1-standard-4,us-central1-a,2.67,4,15.0,1,V100,16.0,False,,nvidia",
        "a2-highgpu-1g,us-central1-a,3.67,12,85.0,1,A100,40.0,False,,nvidia",
        "a2-highgpu-1g,us-central1-b,3.60,12,85.0,1,A100,40.0,False,,nvidia",
    ]
    path = tmp_path / "gcp.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    offers = vs.Catalog.load(path).offers()
    assert dict(zip(offers["instance_type"], offers["usd_per_hour"], strict=True)) == {
        "n1-standard-4": 0.19,
        "n1-standard-4+1xT4": 0.54,
        "n1-standard-4+2xT4": 0.89,
        "n1-standard-4+1xV100": 2.67,
        "a2-highgpu-1g": 3.60,  # the cheapest zone
    }


def test_skypilot_types_and_regions_named_in_other_ways(tmp_path) -> None:
    folder = tmp_path / "vast"
    folder.mkdir()
    header = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region"
    rows = [
        '1x-H200-32-65536,H200,1,32,64.0,"{\'Gpus\': []}",2.65,0.00,"France, FR, EU"',
        'VM.Standard.E4.Flex$_2_8,,,2,8,,0.037,0.0185,", US, NA"',
    ]
    (folder / "vms.csv").write_text("\n".join([header, *rows]) + "\n")
    catalog = vs.Catalog.load(folder / "vms.csv")
    assert catalog.price("1x-H200-32-65536", region="France, FR, EU") == 2.65
    assert catalog.price("VM.Standard.E4.Flex$_2_8", region="US, NA", market="spot") == 0.0185
    assert len(catalog) == 3  # 0.00 means no spot market


@pytest.mark.parametrize("place", ["data/vms.csv", "prices.csv", "downloads/instances.csv"])
def test_a_folder_or_file_of_any_name_is_not_a_provider(tmp_path, place) -> None:
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text(SKYPILOT_8)
    with pytest.raises(CatalogError, match="provider"):
        vs.Catalog.load(path)


def test_a_file_that_does_not_name_its_provider(tmp_path) -> None:
    path = tmp_path / "My Prices (2).csv"
    path.write_text(GPUHUNT)
    with pytest.raises(CatalogError, match="provider="):
        vs.Catalog.load(path)
    assert vs.Catalog.load(path, provider="lab").price("plain") == 0.1


def test_bad_rows_are_errors_with_their_line(tmp_path) -> None:
    path = tmp_path / "aws.csv"
    path.write_text(GPUHUNT.replace("1.0,12", "free,12"))
    with pytest.raises(CatalogError, match=r"aws\.csv.*3.*usd_per_hour.*free"):
        vs.Catalog.load(path)
    path.write_text(SKYPILOT_8.replace("1.25", "-1.25"))
    with pytest.raises(CatalogError, match=r"aws\.csv.*2.*usd_per_hour.*-1\.25"):
        vs.Catalog.load(path)


def load_skypilot(folder: Path, *rows: str, provider: str) -> vs.Catalog:
    header = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,Region,AvailabilityZone,Price,SpotPrice"
    (folder / "vms.csv").write_text("\n".join([header, *rows]) + "\n")
    return vs.Catalog.load(folder / "vms.csv", provider=provider)


def test_accelerators_without_a_host_are_excluded(tmp_path: Path) -> None:
    rows = ["x,4,16,,,r1,a,1,", ",,,T4,1,r1,a,1,1", ",,,T4,2,r1,a,1,1"]
    catalog = load_skypilot(tmp_path, *rows, provider="aws")
    assert [finding.code for finding in catalog.findings] == ["price-rows-excluded"]
    assert len(catalog) == 1


def test_eight_parts_without_a_machine_are_listed(tmp_path: Path) -> None:
    rows = ["n1-standard-4,4,15,,,r1,a,1,", *(f",,,Z{n},1,r1,a,1,1" for n in range(10))]
    (finding,) = load_skypilot(tmp_path, *rows, provider="gcp").findings
    assert finding.severity == "info"
    assert [n for n in range(10) if f"1 x Z{n}" in finding.message] == list(range(8))
