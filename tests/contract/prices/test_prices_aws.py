"""AWS: real boto3 clients against a server on loopback."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest

from vmselect.catalog.refresh import Progress, refresh_prices
from vmselect.catalog.sources import PriceTable, build_table
from vmselect.catalog.sources.aws import AwsPrices, parse_sagemaker_product
from vmselect.errors import RefreshError

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed: AWS prices were not tested")
botocore_config = pytest.importorskip("botocore.config", reason="it comes with boto3")

LINUX = {
    "operatingSystem": "Linux", "tenancy": "Shared", "capacitystatus": "Used", "preInstalledSw": "NA",
    "marketoption": "OnDemand", "licenseModel": "No License required", "regionCode": "us-east-1", "gpuMemory": "NA",
}  # fmt: skip


def terms(price: str, unit: str = "Hrs") -> dict[str, Any]:
    return {"X7.JR": {"priceDimensions": {"X7.JR.6Y": {"unit": unit, "pricePerUnit": {"USD": price}}}}}


def product(name: str, price: str, reserved: dict[str, Any] | None = None, **changes: str) -> str:
    attributes = {**LINUX, "instanceType": name, **changes}
    listed = {"OnDemand": terms(price), **({"Reserved": reserved} if reserved else {})}
    return json.dumps({"product": {"productFamily": "Compute Instance", "attributes": attributes}, "terms": listed})


def training(name: str, price: str, **changes: str) -> str:
    attributes = {"instanceName": name, "component": "Training", "regionCode": "us-east-1", **changes}
    return json.dumps(
        {"product": {"productFamily": "ML Instance", "attributes": attributes}, "terms": {"OnDemand": terms(price)}}
    )


def gpu(**parts: Any) -> str:
    memory = parts.pop("sizeInMiB")
    inner = "".join(f"<{k}>{v}</{k}>" for k, v in parts.items())
    return f"<item>{inner}<memoryInfo><sizeInMiB>{memory}</sizeInMiB></memoryInfo></item>"


def machine(name: str, vcpus: int, mib: int, inside: str = "") -> str:
    return (
        f"<item><instanceType>{name}</instanceType><vCpuInfo><defaultVCpus>{vcpus}</defaultVCpus></vCpuInfo>"
        f"<memoryInfo><sizeInMiB>{mib}</sizeInMiB></memoryInfo>{inside}</item>"
    )


MACHINES = [
    machine("g4dn.xlarge", 4, 16384, f"<gpuInfo><gpus>{gpu(name='T4', count=1, sizeInMiB=16384)}</gpus></gpuInfo>"),
    machine("p4de.24xlarge", 96, 1179648,
            f"<gpuInfo><gpus>{gpu(name='A100', count=8, sizeInMiB=81920)}</gpus></gpuInfo>"),
    machine("g6f.large", 2, 8192, "<gpuInfo><gpus>" + gpu(
        name="L4", count=0, logicalGpuCount=1, gpuPartitionSize=0.125, sizeInMiB=2861) + "</gpus></gpuInfo>"),
    machine("trn1.2xlarge", 8, 32768, "<neuronInfo><neuronDevices>" + gpu(
        name="Trainium", count=1, sizeInMiB=32768) + "</neuronDevices></neuronInfo>"),
    machine("inf1.xlarge", 4, 8192, "<inferenceAcceleratorInfo><accelerators>" + gpu(
        name="Inferentia", count=1, sizeInMiB=8192) + "</accelerators></inferenceAcceleratorInfo>"),
    machine("c5.large", 2, 4096),
]  # fmt: skip


def xml(action: str, rows: str, items: str, token: str = "") -> bytes:
    return (
        f'<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>'
        f"<{rows}>{items}</{rows}><nextToken>{token}</nextToken></{action}Response>"
    ).encode()


def spot(name: str, zone: str, price: str, time: str) -> str:
    return (
        f"<item><instanceType>{name}</instanceType><productDescription>Linux/UNIX</productDescription>"
        f"<spotPrice>{price}</spotPrice><timestamp>{time}</timestamp><availabilityZone>{zone}</availabilityZone></item>"
    )


def fault(code: str, message: str) -> bytes:
    inside = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return f"<Response><Errors>{inside}</Errors></Response>".encode()


class Aws:
    """Answers the four calls; a test changes what they hold."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.ec2_pages = [[product("g4dn.xlarge", "0.5260000000")]]
        self.sagemaker = [training("ml.g4dn.xlarge", "0.7364")]
        self.spot_pages = [[spot("g4dn.xlarge", "us-east-1a", "0.2100", "2026-11-01T00:00:00Z")]]
        self.first: list[Any] = []

    def __call__(self, request: Any) -> Any:
        if self.first:
            return self.first.pop(0)
        target = request.headers.get("X-Amz-Target", "")
        if target.endswith("GetProducts"):
            asked = json.loads(request.body)
            if asked["ServiceCode"] == "AmazonSageMaker":
                return self.answer({"FormatVersion": "aws_v1", "PriceList": self.sagemaker})
            number = int(asked.get("NextToken", "0"))
            more = {"NextToken": str(number + 1)} if number + 1 < len(self.ec2_pages) else {}
            return self.answer({"FormatVersion": "aws_v1", "PriceList": self.ec2_pages[number], **more})
        body = request.body.decode()
        if "Action=DescribeInstanceTypes" in body:
            half = len(MACHINES) // 2
            later = "NextToken=" in body
            machines = MACHINES[half:] if later else MACHINES[:half]
            return self.answer(xml("DescribeInstanceTypes", "instanceTypeSet", "".join(machines), "" if later else "2"))
        number = int(body.split("NextToken=")[1].split("&")[0]) if "NextToken=" in body else 0
        token = str(number + 1) if number + 1 < len(self.spot_pages) else ""  # the last page says ""
        items = "".join(self.spot_pages[number])
        return self.answer(xml("DescribeSpotPriceHistory", "spotPriceHistorySet", items, token))


@pytest.fixture
def aws(cloud, answer) -> Aws:
    cloud.reply = Aws(answer)
    return cloud.reply


@cache
def open_session() -> Any:
    """One for all tests: a session reads a description of EC2 of many megabytes and keeps it."""
    return boto3.session.Session(aws_access_key_id="hidden-id", aws_secret_access_key="hidden-key")


@pytest.fixture
def prices(cloud) -> AwsPrices:
    return AwsPrices(session=open_session(), endpoint_url=cloud.url)


@pytest.fixture
def impatient(monkeypatch) -> None:
    """Clients that wait a tenth of a second for an answer and ask twice."""
    config = botocore_config.Config
    quick = {"read_timeout": 0.1, "retries": {"mode": "standard", "total_max_attempts": 2}}
    monkeypatch.setattr(botocore_config, "Config", lambda **options: config(**{**options, **quick}))


def refresh_parts(prices: AwsPrices) -> list[Progress]:
    """How the parts of a refresh end that asks AWS and a cloud that always answers."""

    class Other:
        provider = "azure"
        region_pattern = "[a-z]+"

        def missing(self) -> None:
            return None

        def fetch(self, region: str, *, progress: Any) -> PriceTable:
            row = {"provider": "azure", "instance_type": "x", "market": "spot", "usd_per_hour": 1.0}
            return build_table([{**row, "region": region}], "azure", region)

    outcome = refresh_prices(sources={"aws": prices, "azure": Other()}, max_age_hours=0)
    return [part for part in outcome.parts if part.provider == "aws"]


def fetch(prices: AwsPrices) -> dict[tuple[str, str], dict[str, Any]]:
    frame, _ = prices.fetch("us-east-1", progress=lambda _: None)
    return {(r["instance_type"], r["market"]): r for r in frame.to_dict("records")}


def test_on_demand_spot_and_training_prices_with_facts(aws, prices, cloud) -> None:
    rows = fetch(prices)
    assert rows["g4dn.xlarge", "on_demand"]["usd_per_hour"] == 0.526
    assert rows["g4dn.xlarge", "on_demand"]["gpu_model"] == "T4"
    assert rows["g4dn.xlarge", "spot"]["usd_per_hour"] == 0.21
    assert rows["ml.g4dn.xlarge", "on_demand"]["service"] == "sagemaker"
    assert rows["ml.g4dn.xlarge", "on_demand"]["gpu_count"] == 1
    asked = next(json.loads(r.body) for r in cloud.asked if "X-Amz-Target" in r.headers)
    filters = {f["Field"]: f["Value"] for f in asked["Filters"]}
    assert filters["capacitystatus"] == "Used"
    assert filters["marketoption"] == "OnDemand"
    assert asked["MaxResults"] <= 100


@pytest.mark.parametrize(
    "changes",
    [
        {"marketoption": "CapacityBlock"},
        {"capacitystatus": "UnusedCapacityReservation"},
        {"operatingSystem": "Windows"},
        {"tenancy": "Dedicated"},
        {"preInstalledSw": "SQL Ent"},
        {"regionCode": "us-west-2"},
        {"licenseModel": "Bring your own license"},
    ],
)
def test_the_filters_are_applied_again_to_what_comes_back(aws, prices, changes) -> None:
    aws.ec2_pages = [[product("p4de.24xlarge", "0.0000000000", **changes), product("p4de.24xlarge", "27.44705")]]
    assert fetch(prices)["p4de.24xlarge", "on_demand"]["usd_per_hour"] == 27.44705


def test_every_page_is_read(aws, prices) -> None:
    aws.ec2_pages = [[product("g4dn.xlarge", "0.526")], [product("c5.large", "0.085")]]
    aws.spot_pages = [
        [spot("g4dn.xlarge", "us-east-1a", "0.21", "2026-11-02T00:00:00Z")],
        [spot("c5.large", "us-east-1a", "0.03", "2026-11-02T00:00:00Z")],
    ]
    rows = fetch(prices)
    assert ("c5.large", "on_demand") in rows
    assert ("c5.large", "spot") in rows


def test_spot_is_the_newest_of_each_zone_then_the_cheapest_zone(aws, prices) -> None:
    aws.spot_pages = [
        [
            spot("g4dn.xlarge", "us-east-1a", "0.25", "2026-11-02T00:00:00Z"),
            spot("g4dn.xlarge", "us-east-1b", "0.22", "2026-11-02T00:00:00Z"),
            spot("g4dn.xlarge", "us-east-1a", "0.10", "2026-10-01T00:00:00Z"),
        ]
    ]
    assert fetch(prices)["g4dn.xlarge", "spot"]["usd_per_hour"] == 0.22


def test_reserved_prices_are_those_without_upfront_payment(aws, prices) -> None:
    def lease(length: str, option: str, offering: str, price: str) -> dict[str, Any]:
        about = {"LeaseContractLength": length, "PurchaseOption": option, "OfferingClass": offering}
        return {**terms(price)["X7.JR"], "termAttributes": about}

    reserved = {
        "a": lease("1yr", "No Upfront", "standard", "0.33"),
        "b": lease("1yr", "All Upfront", "standard", "0.00"),
        "c": lease("3yr", "No Upfront", "convertible", "0.27"),
        "d": lease("3yr", "No Upfront", "standard", "0.23"),
    }
    aws.ec2_pages = [[product("g4dn.xlarge", "0.526", reserved=reserved)]]
    rows = fetch(prices)
    assert rows["g4dn.xlarge", "reserved_1y"]["usd_per_hour"] == 0.33
    assert rows["g4dn.xlarge", "reserved_3y"]["usd_per_hour"] == 0.23


@pytest.mark.parametrize(
    ("name", "model", "count", "memory_gib"),
    [
        ("g6f.large", "L4", 0.125, 3),
        ("p4de.24xlarge", "A100-80GB", 8, 80),
        ("trn1.2xlarge", "Trainium", 1, 32),
        ("inf1.xlarge", "Inferentia", 1, 8),
    ],
)
def test_accelerators_of_every_kind(aws, prices, name, model, count, memory_gib) -> None:
    aws.ec2_pages = [[product(name, "1.0")]]
    row = fetch(prices)[name, "on_demand"]
    assert (row["gpu_model"], row["gpu_count"], row["gpu_memory_gib"]) == (model, count, memory_gib)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (training("ml.p3.2xlarge", "3.825"), [("ml.p3.2xlarge", "on_demand", "3.825")]),
        (training("", "3.8", instanceType="ml.p3.2xlarge-Training"), [("ml.p3.2xlarge", "on_demand", "3.8")]),
        (training("", "3.8", instanceType="ml.p3.2xlarge-Hosting"), []),
        (training("ml.p3.2xlarge", "3.8", component="Hosting"), []),
        (training("ml.p3.2xlarge", "3.8", component="", usagetype="USE1-Train:ml.p3.2xlarge"),
         [("ml.p3.2xlarge", "on_demand", "3.8")]),
        (training("whatever", "3.8"), []),
        (training("ml.p3.2xlarge", "3.8", regionCode="eu-west-1"), []),
        (json.dumps({"product": {"productFamily": "ML Storage", "attributes": {}}}), []),
    ],
)  # fmt: skip
def test_sagemaker_names_are_parsed_defensively(text, expected) -> None:
    assert list(parse_sagemaker_product(text, "us-east-1")) == expected


def test_throttling_is_waited_out(aws, prices, answer) -> None:
    throttled = (
        b"<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow</Message></Error></Errors></Response>"
    )
    aws.first = [answer(throttled, status=503)]
    assert ("g4dn.xlarge", "on_demand") in fetch(prices)


def test_a_page_that_breaks_in_the_middle_is_asked_for_again(aws, prices, answer) -> None:
    whole = xml("DescribeInstanceTypes", "instanceTypeSet", MACHINES[0])
    aws.first = [answer(whole, cut_after=len(whole) // 2)]
    assert fetch(prices)["g4dn.xlarge", "on_demand"]["gpu_model"] == "T4"


def test_half_a_page_of_prices_is_not_taken_for_the_last_one(cloud, answer, prices, aws) -> None:
    aws.ec2_pages = [[product("g4dn.xlarge", "0.526")], [product("c5.large", "0.085")]]
    broken = 1

    def reply(request: Any) -> Any:
        nonlocal broken
        page = aws(request)
        if broken and b'"NextToken": "1"' in request.body:
            broken -= 1
            return answer(page.body, cut_after=len(page.encoded()) // 2)
        return page

    cloud.reply = reply
    assert ("c5.large", "on_demand") in fetch(prices)
    broken = 9
    with pytest.raises(RefreshError, match="3 times"):
        fetch(prices)


def test_a_server_that_hangs_is_given_up(cloud, answer, prices, impatient) -> None:
    cloud.reply = lambda _: answer(b"", hang_seconds=1.0)
    with pytest.raises(RefreshError, match="ReadTimeoutError"):
        fetch(prices)
    assert len(cloud.asked) == 2


def test_a_refusal_names_the_call_and_no_credential(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer(fault("UnauthorizedOperation", "hidden-id"), status=403)
    with pytest.raises(RefreshError, match=r"UnauthorizedOperation.*DescribeInstanceTypes") as refused:
        fetch(prices)
    assert "hidden" not in str(refused.value)


def test_an_empty_answer_is_an_error(aws, prices) -> None:
    aws.ec2_pages = [[]]
    with pytest.raises(RefreshError):
        fetch(prices)


def test_no_instance_type_at_all_is_an_error(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer(xml("DescribeInstanceTypes", "instanceTypeSet", ""))
    with pytest.raises(RefreshError, match="us-east-1"):
        prices.fetch("us-est-1", progress=lambda _: None)


@pytest.mark.parametrize("body", [b"", b"\x00noise", b"{}", b"<DescribeInstanceTypesResponse><instanceTypeSet><item>"])
def test_an_answer_that_is_no_xml_costs_aws_alone(cloud, answer, prices, body) -> None:
    cloud.reply = lambda _: answer(body)
    (part,) = refresh_parts(prices)
    assert part.state == "failed"
    assert "3 times" in part.detail


def test_what_ec2_no_longer_describes_stays_retired(aws, prices) -> None:
    aws.ec2_pages = [[product("p3.2xlarge", "3.06"), product("g4dn.xlarge", "0.526")]]
    rows = fetch(prices)
    assert rows["p3.2xlarge", "on_demand"]["retired"] is True
    assert rows["g4dn.xlarge", "on_demand"]["retired"] is False


def test_pages_that_go_in_circles_end(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer(xml("DescribeInstanceTypes", "instanceTypeSet", MACHINES[0], "again"))
    with pytest.raises(RefreshError):
        fetch(prices)


def test_clients_are_made_one_at_a_time(monkeypatch) -> None:
    inside = threading.Semaphore(1)

    class Session:
        def client(self, *_: Any, **__: Any) -> None:
            assert inside.acquire(blocking=False), "two threads at once"
            time.sleep(0.01)
            inside.release()

    prices = AwsPrices(session=Session())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: prices._client("ec2", "us-east-1"), range(8)))


def test_a_broken_product_is_an_error(aws, prices) -> None:
    aws.ec2_pages = [['{"product": ']]
    with pytest.raises(RefreshError):
        fetch(prices)


def test_missing_credentials_are_reported() -> None:
    assert AwsPrices().missing()


@pytest.mark.parametrize(("name", "value"), [("AWS_PROFILE", "typo"), ("AWS_ACCESS_KEY_ID", "half-a-key")])
def test_credentials_that_cannot_be_used_are_missing_ones(monkeypatch, name, value) -> None:
    monkeypatch.setenv(name, value)
    missing = AwsPrices().missing()
    assert missing
    assert value not in str(missing)


def test_without_boto3_it_names_the_extra(monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "boto3", None)
    assert "vmselect[aws]" in str(AwsPrices().missing())


@pytest.mark.parametrize("end", ["\u200b", "\n", "\x00", "\udcff"])
def test_a_credential_with_an_odd_character_is_never_shown(cloud, answer, impatient, end) -> None:
    cloud.reply = lambda _: answer(status=403)
    session = boto3.session.Session(
        aws_access_key_id="HIDDENID" + end, aws_secret_access_key="hiddensecret" + end, region_name="us-east-1"
    )
    source = AwsPrices(session=session, endpoint_url=cloud.url)
    with pytest.raises(RefreshError) as refused:
        refresh_prices(["aws"], regions=["us-east-1"], sources={"aws": source})
    assert "hidden" not in str(refused.value).lower()
