"""Instance type, region and cloud of this machine, each with its source; nothing is guessed.

Sources in this order, until known: the caller, the environment (``VMSELECT_INSTANCE_TYPE``, ``VMSELECT_REGION``), the
firmware's facts on disk (DMI), and the cloud's metadata service. The service is queried only when the firmware
identifies a cloud, so that no other machine ever sends a packet.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from vmselect.records.base import Fact, Placement

DMI_FOLDER = Path("/sys/class/dmi/id")
METADATA_URL = "http://169.254.169.254"
"""The same address on AWS, Azure and Google Cloud."""
TIMEOUT_SECONDS = 1.0
AZURE_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77"
"""Identifies an Azure VM among Hyper-V machines."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_EC2_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


def locate(
    *,
    instance_type: str | None = None,
    region: str | None = None,
    environment: Mapping[str, str] | None = None,
    dmi_folder: Path | None = None,
    metadata_url: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Placement:
    """Where this machine stands, as far as it can be known.

    >>> locate(instance_type="g4dn.xlarge", region="us-east-1", dmi_folder=Path("nowhere")).instance_type.source
    'argument'
    """
    variables = os.environ if environment is None else environment
    kind = _given(instance_type, "argument") or _given(variables.get("VMSELECT_INSTANCE_TYPE"), "environment")
    place = _given(region, "argument") or _given(variables.get("VMSELECT_REGION"), "environment")
    firmware = read_dmi(DMI_FOLDER if dmi_folder is None else dmi_folder)
    cloud = name_cloud(firmware)
    if kind is None and cloud == "aws" and _EC2_TYPE.fullmatch(firmware.get("product_name", "")):
        kind = Fact(value=firmware["product_name"], source="dmi")
    if cloud is not None and (kind is None or place is None):
        answers = ask_metadata(
            cloud, url=METADATA_URL if metadata_url is None else metadata_url, timeout_seconds=timeout_seconds
        )
        kind = kind or _learnt(answers.get("instance_type"))
        place = place or _learnt(answers.get("region"))
    return Placement(
        instance_type=kind, region=place, provider=Fact(value=cloud, source="dmi") if cloud is not None else None
    )


def read_dmi(folder: Path) -> dict[str, str]:
    """The firmware's facts that identify a cloud; empty where there are none."""
    facts: dict[str, str] = {}
    for name in ("sys_vendor", "bios_vendor", "bios_version", "product_name", "chassis_asset_tag"):
        try:
            with (folder / name).open(encoding="utf-8", errors="replace") as file:
                facts[name] = file.read(1_000).strip()
        except OSError:
            continue  # absent in containers and on other systems
    return facts


def name_cloud(firmware: Mapping[str, str]) -> str | None:
    """The cloud that the firmware's facts belong to: aws, azure, gcp, or None."""
    if firmware.get("sys_vendor") == "Amazon EC2" or "amazon" in firmware.get("bios_version", "").lower():
        return "aws"  # the second holds for the older Xen machines
    if firmware.get("chassis_asset_tag") == AZURE_ASSET_TAG:
        return "azure"
    if firmware.get("product_name") == "Google Compute Engine":
        return "gcp"
    return None


def ask_metadata(cloud: str, *, url: str, timeout_seconds: float) -> dict[str, str]:
    """This machine in the cloud's metadata service, queried for at most ``timeout_seconds`` altogether."""
    answers: dict[str, str] = {}

    def ask() -> None:
        try:
            _ASK[cloud](_Service(url, timeout_seconds), answers)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError):
            return  # no service, or not the expected answer: what was received so far is kept

    # A socket's timeout holds for each read; a thread holds for all of them together.
    asking = threading.Thread(target=ask, name="vmselect-metadata", daemon=True)
    asking.start()
    asking.join(timeout_seconds)
    return dict(answers)


class _Service:
    """One metadata service: plain requests to one host, no proxy, no redirect."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._host = urlsplit(url).netloc
        self._timeout_seconds = timeout_seconds

    def request(self, method: str, path: str, headers: Mapping[str, str]) -> str:
        connection = http.client.HTTPConnection(self._host, timeout=self._timeout_seconds)
        try:
            connection.request(method, path, headers=dict(headers))
            response = connection.getresponse()
            if response.status != 200:
                raise ValueError(f"status {response.status}")
            return response.read(100_000).decode("utf-8").strip()
        finally:
            connection.close()


def _ask_aws(service: _Service, answers: dict[str, str]) -> None:
    token = service.request("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    headers = {"X-aws-ec2-metadata-token": token}
    answers["instance_type"] = service.request("GET", "/latest/meta-data/instance-type", headers)
    answers["region"] = service.request("GET", "/latest/meta-data/placement/region", headers)


def _ask_azure(service: _Service, answers: dict[str, str]) -> None:
    path = "/metadata/instance/compute?api-version=2021-02-01"
    machine = json.loads(service.request("GET", path, {"Metadata": "true"}))
    answers["instance_type"] = machine["vmSize"]
    answers["region"] = machine["location"]


def _ask_gcp(service: _Service, answers: dict[str, str]) -> None:
    headers = {"Metadata-Flavor": "Google"}
    root = "/computeMetadata/v1/instance/"
    # The answers read "projects/1234/machineTypes/n1-standard-4" and "projects/1234/zones/us-central1-a".
    answers["instance_type"] = service.request("GET", root + "machine-type", headers).rpartition("/")[2]
    zone = service.request("GET", root + "zone", headers).rpartition("/")[2]
    answers["region"] = zone.rpartition("-")[0]


_ASK: Mapping[str, Callable[[_Service, dict[str, str]], None]] = {"aws": _ask_aws, "azure": _ask_azure, "gcp": _ask_gcp}


def _given(value: str | None, source: str) -> Fact | None:
    text = (value or "").strip()
    return Fact.model_validate({"value": text[:200], "source": source}) if text else None


def _learnt(value: object) -> Fact | None:
    # Whatever answers at that address is not trusted to be a name.
    if isinstance(value, str) and _NAME.fullmatch(value):
        return Fact(value=value, source="metadata")
    return None
