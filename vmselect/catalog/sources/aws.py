"""Fetches AWS prices with boto3: on-demand, spot and reserved EC2 instances, and SageMaker training instances."""

from __future__ import annotations

import datetime as dt
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from vmselect import _imports
from vmselect.catalog.gpu_names import name_gpu
from vmselect.catalog.offer import describe_nearest
from vmselect.catalog.shipped import known_machines
from vmselect.catalog.sources import Json, PriceTable, Row, build_table
from vmselect.catalog.sources.http import follow_pages
from vmselect.errors import MissingPackageError, RefreshError

_PRICING_REGION = "us-east-1"  # the Price List API runs in three regions and covers all
_EC2_FILTERS = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "capacitystatus": "Used",  # the others are reservations, listed at 0.00
    "preInstalledSw": "NA",
    "marketoption": "OnDemand",  # the others are Capacity Blocks, listed at 0.00
    "licenseModel": "No License required",
}
Boto = Any  # a session or client of boto3, which has no types
Price = tuple[str, str, str | None]  # instance type, market, USD per hour as the API writes it
_PAGE_ATTEMPTS = 3
_LEASES = {"1yr": "reserved_1y", "3yr": "reserved_3y"}
_SAGEMAKER_TYPE = re.compile(r"(ml\.[a-z0-9-]+\.[a-z0-9-]*?(?:xlarge|large|medium|metal))(?:-(.+))?")


class AwsPrices:
    """AWS prices of Linux instances. boto3 finds the credentials of the user."""

    provider = "aws"
    region_pattern = r"[a-z]{2}(-[a-z]+)+-[0-9]"

    def __init__(self, *, session: Boto = None, endpoint_url: str | None = None) -> None:
        self._session = session
        self._endpoint_url = endpoint_url
        self._lock = threading.Lock()

    def missing(self) -> str | None:
        """Return a text about boto3 or credentials if they are missing, else None."""
        try:
            botocore = _imports.require("botocore.exceptions", extra="aws", needed_by="AWS prices")
            credentials = self._open_session().get_credentials()
        except MissingPackageError as missing:
            return str(missing)
        except botocore.BotoCoreError as fault:  # an unknown profile, or half a key
            return f"The AWS credentials cannot be used ({type(fault).__name__}). Check AWS_PROFILE and the keys."
        return None if credentials else "There are no AWS credentials. Set AWS_PROFILE, or run `aws configure`."

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        """Fetch all EC2 and SageMaker training prices of ``region``."""
        botocore = _imports.require("botocore.exceptions", extra="aws", needed_by="AWS prices")
        try:
            pricing = self._client("pricing", _PRICING_REGION)
            ec2 = self._client("ec2", region)
            progress("instance types")
            described = _pages(ec2.describe_instance_types, "InstanceTypes", MaxResults=100)
            offered = {info["InstanceType"]: describe_machine(info) for info in described}
            if not offered:
                raise RefreshError(f"AWS lists no instance type in {region!r}. {self._hint(region)}")
            machines = {**known_machines("aws"), **offered}
            prices: list[Price] = []
            for number, product in enumerate(_products(pricing, "AmazonEC2", region, _EC2_FILTERS)):
                prices += parse_ec2_product(product, region)
                if number % 100 == 0:
                    progress(f"{number} EC2 products")
            if not prices:
                raise RefreshError(f"AWS lists no EC2 price in {region!r}. {self._hint(region)}")
            progress("spot prices")
            prices += [(name, "spot", price) for name, price in _spot_prices(ec2).items()]
            progress("SageMaker")
            for product in _products(pricing, "AmazonSageMaker", region, {}):
                prices += parse_sagemaker_product(product, region)
        except (botocore.BotoCoreError, botocore.ClientError) as fault:
            raise RefreshError(f"The AWS request failed: {_describe_fault(fault)}. {self._hint(region)}") from None
        rows = [describe_offer(name, market, price, region, machines) for name, market, price in prices]
        return build_table(rows, self.provider, region)

    def _open_session(self) -> Boto:
        if self._session is None:
            boto3 = _imports.require("boto3", extra="aws", needed_by="AWS prices")
            self._session = boto3.session.Session()
        return self._session

    def _hint(self, region: str) -> str:
        session = self._open_session()
        partitions = session.get_available_partitions()
        regions = {name for partition in partitions for name in session.get_available_regions("ec2", partition)}
        if region in regions:
            return "Check the network, the credentials and their permissions."
        return describe_nearest(region, regions)

    def _client(self, service: str, region: str) -> Boto:
        config = _imports.require("botocore.config", extra="aws", needed_by="AWS prices").Config(
            connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 6}
        )
        with self._lock:  # a session must not create clients in several threads at once
            return self._open_session().client(
                service, region_name=region, endpoint_url=self._endpoint_url, config=config
            )


def parse_ec2_product(text: str, region: str) -> Iterator[Price]:
    """Yield (instance type, market, USD per hour) of a product of the EC2 price list, if it is a Linux VM."""
    product = _load(text)
    attributes = product.get("product", {}).get("attributes", {})
    filters = {**_EC2_FILTERS, "regionCode": region}
    # The filters are checked again, because the API has returned other rows.
    if any(attributes.get(field) != value for field, value in filters.items() if field in attributes):
        return
    name = attributes.get("instanceType")
    if not name or attributes.get("capacitystatus") != "Used":
        return
    terms = product.get("terms", {})
    for price in _hourly(terms.get("OnDemand", {}).values()):
        yield name, "on_demand", price
    for term in terms.get("Reserved", {}).values():
        kind = term.get("termAttributes", {})
        if kind.get("PurchaseOption") == "No Upfront" and kind.get("OfferingClass") == "standard":
            market = _LEASES.get(str(kind.get("LeaseContractLength")))
            for price in _hourly([term]) if market else ():
                yield name, str(market), price


def parse_sagemaker_product(text: str, region: str) -> Iterator[Price]:
    """Yield (instance type, market, USD per hour) of a product of SageMaker, if it is a training instance."""
    product = _load(text)
    about = product.get("product", {})
    attributes = about.get("attributes", {})
    if about.get("productFamily") != "ML Instance" or attributes.get("regionCode") != region:
        return
    match, part = None, str(attributes.get("component") or "")
    for field in ("instanceName", "instanceType"):
        typed = _SAGEMAKER_TYPE.fullmatch(str(attributes.get(field) or ""))
        if typed:
            match, part = match or typed, typed[2] or part
    training = part.lower().startswith("train") or "-Train:" in str(attributes.get("usagetype") or "")
    if match and training and "spot" not in part.lower():
        for price in _hourly(product.get("terms", {}).get("OnDemand", {}).values()):
            yield match[1], "on_demand", price


def describe_machine(info: Json) -> Row:
    """Return vCPUs, memory and accelerators from an entry of the EC2 API's ``describe_instance_types``."""
    facts: Row = {
        "vcpus": info["VCpuInfo"]["DefaultVCpus"],
        "memory_gib": info["MemoryInfo"]["SizeInMiB"] / 1024,
        "gpu_model": "",
        "gpu_count": 0,
        "retired": False,  # EC2 describes only types that can be launched
    }
    devices = (
        info.get("GpuInfo", {}).get("Gpus")
        or info.get("NeuronInfo", {}).get("NeuronDevices")
        or info.get("InferenceAcceleratorInfo", {}).get("Accelerators")
        or [{}]
    )
    device = devices[0]
    # A share of a GPU has the count 0 and its size.
    share = float(device.get("LogicalGpuCount") or 0) * float(device.get("GpuPartitionSize") or 0)
    count = float(device.get("Count") or 0) or share
    if not count:
        return facts
    facts["gpu_count"] = count
    size_mib = device.get("MemoryInfo", {}).get("SizeInMiB")
    if size_mib:
        facts["gpu_memory_gib"] = round(size_mib / 1024)
    facts["gpu_model"] = name_gpu(str(device.get("Name") or "").strip(), facts.get("gpu_memory_gib"))
    return facts


def _spot_prices(ec2: Boto) -> Json:
    """Return the current spot price of each instance type, in the cheapest zone of the client's region."""
    newest: dict[tuple[str, str], Any] = {}
    history = _pages(
        ec2.describe_spot_price_history, "SpotPriceHistory",
        StartTime=dt.datetime.now(dt.UTC), ProductDescriptions=["Linux/UNIX"], MaxResults=1000,
    )  # fmt: skip
    for entry in history:  # newest first
        newest.setdefault((entry["InstanceType"], entry["AvailabilityZone"]), entry["SpotPrice"])
    cheapest: Json = {}
    for (name, _), price in newest.items():
        if name not in cheapest or float(price) < float(cheapest[name]):
            cheapest[name] = price
    return cheapest


def _products(pricing: Boto, service: str, region: str, filters: dict[str, str]) -> Iterator[str]:
    fields = {"regionCode": region, **filters}
    matches = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    return _pages(
        pricing.get_products, "PriceList",
        ServiceCode=service, Filters=matches, FormatVersion="aws_v1", MaxResults=100,
    )  # fmt: skip


def _pages(call: Callable[..., Json], key: str, **arguments: Any) -> Iterator[Any]:
    parsers = _imports.require("botocore.parsers", extra="aws", needed_by="AWS prices")

    def read_page(token: str) -> Json:
        # boto3 repeats failed requests, but accepts an incomplete page, which then has no list.
        for _ in range(_PAGE_ATTEMPTS):
            try:
                page = call(**arguments, **({"NextToken": token} if token else {}))
            except parsers.ResponseParserError:
                continue
            if key in page:
                return page
        raise RefreshError(f"A page of the AWS response was incomplete {_PAGE_ATTEMPTS} times. Try again later.")

    for page in follow_pages(read_page, link="NextToken"):
        yield from page[key]


def _hourly(terms: Iterable[Json]) -> Iterator[Any]:
    """Yield the prices in USD per hour in the ``terms`` of a product of the price list."""
    for term in terms:
        for dimension in term.get("priceDimensions", {}).values():
            if str(dimension.get("unit", "")).lower() in ("hrs", "hours", "hour"):
                yield dimension.get("pricePerUnit", {}).get("USD")


def _load(text: str) -> Json:
    try:
        product = json.loads(text)
    except ValueError:
        raise RefreshError("A product of the AWS price list is not JSON. Try again later.") from None
    if not isinstance(product, dict):
        raise RefreshError("A product of the AWS price list has an unknown format. Update vmselect.")
    return product


def describe_offer(name: str, market: str, price: str | None, region: str, machines: dict[str, Row]) -> Row:
    """Return the price row of one offer. A SageMaker type ``ml.x`` has the hardware of the EC2 type ``x``."""
    service = "sagemaker" if name.startswith("ml.") else "ec2"
    facts = machines.get(name) or {**machines.get(name.removeprefix("ml."), {}), "retired": False}
    row = {"provider": "aws", "service": service, "instance_type": name, "region": region}
    return {**row, "market": market, "usd_per_hour": price, **facts}


def _describe_fault(fault: Boto) -> str:
    response = getattr(fault, "response", None)
    if response:  # a ClientError; its code and operation contain no credential
        code = re.sub(r"[^A-Za-z0-9.]", "", str(response.get("Error", {}).get("Code", "error")))[:60]
        return f"{code} on {fault.operation_name}"
    return type(fault).__name__
