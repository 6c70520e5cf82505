"""SkyPilot for tests: its API server and a stand-in for AWS on loopback, a separate home, our prices in its files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

import vmselect as vs
from vmselect.sweeps.runners.supervisor import free_ports

PYTHON = "VMSELECT_TEST_SKYPILOT_PYTHON"
"""Names the interpreter of an environment in which SkyPilot is installed: it does not fit into ours."""

CALLS = Path(__file__).with_name("skypilot_calls.py")
LOOPBACK_ONLY = """
import socket, traceback

def _checked(act):
    def connect(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            with open(%r, "a") as file:
                file.write(f"{address} {traceback.format_stack(limit=12)}\\n")
            raise ConnectionRefusedError(f"{address} is not loopback")
        return act(self, address)
    return connect

socket.socket.connect = _checked(socket.socket.connect)
socket.socket.connect_ex = _checked(socket.socket.connect_ex)
"""
START_SECONDS = 240


def missing_skypilot() -> str:
    """Why SkyPilot cannot be tried here; empty if it can."""
    named = os.environ.get(PYTHON)
    if not named:
        return f"{PYTHON} names no interpreter with SkyPilot (.ci/run makes an environment for it)"
    if not Path(named).exists():
        return f"{PYTHON} names {named}, which is not there"
    return "" if shutil.which("rsync") else "rsync is not installed, which SkyPilot needs"


@contextmanager
def skypilot(folder: Path) -> Iterator[dict[str, str]]:
    """An API server that can only contact loopback; yields the environment of its clients."""
    import boto3
    from moto.server import ThreadedMotoServer

    home = folder / "home"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = AKIATESTTESTTEST\naws_secret_access_key = not-a-secret\n"
    )
    (folder / "loopback-only").mkdir()
    (folder / "loopback-only" / "sitecustomize.py").write_text(LOOPBACK_ONLY % str(folder / "reached"))
    aws = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    aws.start()
    endpoint = "http://{}:{}".format(*aws.get_host_and_port())
    server: subprocess.Popen[bytes] | None = None
    try:
        session = boto3.Session("AKIATESTTESTTEST", "not-a-secret", region_name="us-east-1")
        images = session.client("ec2", endpoint_url=endpoint).describe_images()["Images"]
        image = next(one["ImageId"] for one in images if one.get("RootDeviceName"))
        caller = session.client("sts", endpoint_url=endpoint).get_caller_identity()["UserId"]
        write_catalogs(home / ".sky" / "catalogs" / "v8" / "aws", image, caller)
        (home / ".sky" / "version_cache.json").write_text(  # without it SkyPilot looks for a newer release
            json.dumps({"cached_at": time.time(), "release_version": "0.0.0"})
        )
        port = free_ports(1)[0]
        env = {
            "HOME": str(home), "PATH": f"{Path(os.environ[PYTHON]).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{folder / 'loopback-only'}:{Path(vs.__file__).parents[1]}",
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1", "DO_NOT_TRACK": "1", "SKYPILOT_API_SERVER_LOCAL_PORT": str(port),
            "AWS_ENDPOINT_URL": endpoint, "AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-east-1",
            # SkyPilot builds its package for a cluster from installed packages, without a package index.
            "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "IMAGE": image, "LANG": "C.UTF-8",
        }  # fmt: skip
        with (folder / "server.log").open("wb") as log:
            server = subprocess.Popen([os.environ[PYTHON], "-m", "sky.server.server", "--host", "127.0.0.1",
                                       "--port", str(port)], env=env, stdout=log, stderr=log, cwd=home,
                                      start_new_session=True)  # fmt: skip
        _wait_until_it_answers(f"http://127.0.0.1:{port}/api/health", server, folder / "server.log")
        yield env
    finally:
        if server is not None:
            _end(server)
        aws.stop()


def ask(what: str, env: dict[str, str], *words: str) -> Any:
    """Run one call of ``skypilot_calls.py`` with SkyPilot's interpreter, and return its result."""
    done = subprocess.run([os.environ[PYTHON], str(CALLS), what, *words], env=env, cwd=env["HOME"], text=True,
                          capture_output=True, timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])


COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "GpuInfo", "Price", "SpotPrice",
           "Region", "AvailabilityZone")  # fmt: skip
"""Columns of SkyPilot's ``vms.csv``, version 8."""


def write_prices(path: Path) -> None:
    """Write our prices of AWS in us-east-1 as SkyPilot's ``vms.csv``, which needs a row per zone."""
    offers = vs.Catalog.embedded("2026-08-22").offers("aws", region="us-east-1", market="all", retired=False)
    rows: dict[str, dict[str, Any]] = {}
    for offer in offers.to_dict("records"):
        row = rows.setdefault(str(offer["instance_type"]), {})
        row |= {"InstanceType": offer["instance_type"], "Region": "us-east-1"}
        row |= {"vCPUs": offer["vcpus"], "MemoryGiB": offer["memory_gib"]}
        if offer["gpu_model"]:
            row |= {"AcceleratorName": offer["gpu_model"], "AcceleratorCount": offer["gpu_count"]}
            row["GpuInfo"] = json.dumps({"Gpus": [{"Name": str(offer["gpu_model"]), "Count": offer["gpu_count"]}]})
        row["Price" if offer["market"] == "on_demand" else "SpotPrice"] = offer["usd_per_hour"]
    zoned = [{**row, "AvailabilityZone": f"use1-az{zone}"} for _, row in sorted(rows.items()) for zone in range(1, 7)]
    pd.DataFrame(zoned, columns=COLUMNS).to_csv(path, index=False, lineterminator="\n")


def write_catalogs(folder: Path, image: str, caller: str) -> None:
    """Write our prices to the files of SkyPilot's, which it never replaces if they have no checksum."""
    folder.mkdir(parents=True)
    write_prices(folder / "vms.csv")
    (folder / "images.csv").write_text(
        "Tag,Region,OS,OSVersion,ImageId,CreationDate,BaseImageId\n"
        + "".join(f"{tag},us-east-1,ubuntu,22.04,{image},20260101,{image}\n"
                  for tag in ("skypilot:gpu-ubuntu-2204", "skypilot:cpu-ubuntu-2204", "skypilot:custom-gpu-ubuntu-2204",
                              "skypilot:custom-cpu-ubuntu-2204", "skypilot:custom-gpu-ubuntu"))
    )  # fmt: skip
    # Without this file SkyPilot asks every region for the zones of the account, which takes half a minute.
    account = hashlib.md5(caller.encode(), usedforsecurity=False).hexdigest()[:8]
    (folder / f"az_mappings-{account}.csv").write_text(
        "AvailabilityZoneName,AvailabilityZone\n"
        + "".join(f"us-east-1{letter},use1-az{number}\n" for number, letter in enumerate("abcdef", 1))
    )
    (folder / "instance_quota_mapping.csv").write_text("InstanceType,QuotaCode,SpotQuotaCode\n")


def _wait_until_it_answers(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(1)
    raise RuntimeError(f"SkyPilot's API server did not come up: {log.read_text()[-2000:]}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server with the workers it started, which share its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
            server.wait(timeout=20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
