"""Where am I: told, then the environment, then the firmware, then the cloud's metadata service, and never a guess."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vmselect.probe import environment as placement
from vmselect.probe.environment import AZURE_ASSET_TAG, locate

NITRO = {"sys_vendor": "Amazon EC2", "product_name": "g4dn.xlarge"}
XEN = {"sys_vendor": "Xen", "product_name": "HVM domU", "bios_version": "4.11.amazon"}
AZURE = {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine", "chassis_asset_tag": AZURE_ASSET_TAG}
GOOGLE = {"sys_vendor": "Google", "product_name": "Google Compute Engine"}
NOWHERE = "http://127.0.0.1:9"


class Service:
    """A metadata service on loopback: what it answers to which request, and what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], str | int] = {}
        self.needs: dict[str, tuple[str, str]] = {}
        self.asked: list[tuple[str, str]] = []
        self.delay = 0.0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                service.asked.append((self.command, self.path))
                time.sleep(service.delay)
                header = service.needs.get(self.path)
                answer = service.answers.get((self.command, self.path), 404)
                if header is not None and self.headers.get(header[0]) != header[1]:
                    answer = 401
                if isinstance(answer, int):
                    self.send_response(answer)
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                    self.end_headers()
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(answer.encode())

            do_GET = do_PUT = answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


@pytest.fixture
def on_aws(service: Service) -> Service:
    service.answers = {
        ("PUT", "/latest/api/token"): "secret",
        ("GET", "/latest/meta-data/instance-type"): "p3.2xlarge",
        ("GET", "/latest/meta-data/placement/region"): "eu-west-1",
    }
    service.needs = {
        "/latest/api/token": ("X-aws-ec2-metadata-token-ttl-seconds", "60"),
        "/latest/meta-data/instance-type": ("X-aws-ec2-metadata-token", "secret"),
        "/latest/meta-data/placement/region": ("X-aws-ec2-metadata-token", "secret"),
    }
    return service


@pytest.fixture
def firmware(tmp_path: Path):
    def write(facts: dict[str, str]) -> Path:
        for name, value in facts.items():
            (tmp_path / name).write_text(value + "\n")
        return tmp_path

    return write


def learnt(place) -> tuple:
    return tuple(
        (fact.value, fact.source) if fact else None for fact in (place.instance_type, place.region, place.provider)
    )


def test_what_the_caller_says_comes_first(on_aws: Service, firmware) -> None:
    environment = {"VMSELECT_INSTANCE_TYPE": "from-env", "VMSELECT_REGION": "env-region"}
    place = locate(instance_type="mine", region="here", environment=environment, dmi_folder=firmware(NITRO),
                   metadata_url=on_aws.url)  # fmt: skip
    assert learnt(place) == (("mine", "argument"), ("here", "argument"), ("aws", "dmi"))
    assert on_aws.asked == []


def test_then_the_environment(on_aws: Service, firmware) -> None:
    environment = {"VMSELECT_INSTANCE_TYPE": " from-env ", "VMSELECT_REGION": "env-region"}
    place = locate(environment=environment, dmi_folder=firmware(NITRO), metadata_url=on_aws.url)
    assert learnt(place) == (("from-env", "environment"), ("env-region", "environment"), ("aws", "dmi"))
    assert on_aws.asked == []


def test_then_the_firmware_and_only_what_is_missing_is_asked_for(on_aws: Service, firmware) -> None:
    place = locate(environment={}, dmi_folder=firmware(NITRO), metadata_url=on_aws.url)
    assert learnt(place) == (("g4dn.xlarge", "dmi"), ("eu-west-1", "metadata"), ("aws", "dmi"))
    place = locate(environment={"VMSELECT_REGION": "r"}, dmi_folder=firmware(NITRO), metadata_url=NOWHERE)
    assert learnt(place) == (("g4dn.xlarge", "dmi"), ("r", "environment"), ("aws", "dmi"))


def test_older_aws_machines_need_the_service(on_aws: Service, firmware) -> None:
    place = locate(environment={}, dmi_folder=firmware(XEN), metadata_url=on_aws.url)
    assert learnt(place) == (("p3.2xlarge", "metadata"), ("eu-west-1", "metadata"), ("aws", "dmi"))
    assert on_aws.asked[0] == ("PUT", "/latest/api/token")  # IMDSv2: first a token


def test_azure(service: Service, firmware) -> None:
    path = "/metadata/instance/compute?api-version=2021-02-01"
    service.answers = {("GET", path): '{"vmSize": "Standard_NC6s_v3", "location": "westeurope", "other": [1]}'}
    service.needs = {path: ("Metadata", "true")}
    place = locate(environment={}, dmi_folder=firmware(AZURE), metadata_url=service.url)
    assert learnt(place) == (("Standard_NC6s_v3", "metadata"), ("westeurope", "metadata"), ("azure", "dmi"))


def test_google(service: Service, firmware) -> None:
    root = "/computeMetadata/v1/instance/"
    service.answers = {("GET", root + "machine-type"): "projects/123/machineTypes/n1-standard-8",
                       ("GET", root + "zone"): "projects/123/zones/us-central1-a"}  # fmt: skip
    service.needs = dict.fromkeys((root + "machine-type", root + "zone"), ("Metadata-Flavor", "Google"))
    place = locate(environment={}, dmi_folder=firmware(GOOGLE), metadata_url=service.url)
    assert learnt(place) == (("n1-standard-8", "metadata"), ("us-central1", "metadata"), ("gcp", "dmi"))


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"sys_vendor": "LENOVO", "product_name": "20XW"},
        {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine", "chassis_asset_tag": "1234"},
        {"sys_vendor": "QEMU", "product_name": "Standard PC"},
        {"sys_vendor": "Google", "product_name": "Chromebook"},
    ],
)
def test_no_other_machine_sends_a_packet(facts: dict[str, str], on_aws: Service, firmware) -> None:
    place = locate(environment={}, dmi_folder=firmware(facts), metadata_url=on_aws.url)
    assert learnt(place) == (None, None, None)
    assert on_aws.asked == []


@pytest.mark.parametrize("facts", [XEN, AZURE, GOOGLE])
def test_no_service_is_unknown_not_a_guess(facts: dict[str, str], firmware) -> None:
    place = locate(environment={}, dmi_folder=firmware(facts), metadata_url=NOWHERE)
    assert (place.instance_type, place.region) == (None, None)


@pytest.mark.parametrize("answer", ["", "<html>captive portal</html>", "x" * 300, "a b", "../../etc", 500, 301, 401])
def test_nonsense_is_unknown(answer: str | int, service: Service, firmware) -> None:
    service.answers = {("PUT", "/latest/api/token"): "t", ("GET", "/latest/meta-data/instance-type"): answer,
                       ("GET", "/latest/meta-data/placement/region"): answer}  # fmt: skip
    place = locate(environment={}, dmi_folder=firmware(XEN), metadata_url=service.url)
    assert (place.instance_type, place.region) == (None, None)
    assert all("elsewhere" not in path for _, path in service.asked)


@pytest.mark.parametrize("answer", ["", "[]", "null", "7", '{"vmSize": 7, "location": null}', "{"])
def test_nonsense_from_azure_is_unknown(answer: str, service: Service, firmware) -> None:
    service.answers = {("GET", "/metadata/instance/compute?api-version=2021-02-01"): answer}
    place = locate(environment={}, dmi_folder=firmware(AZURE), metadata_url=service.url)
    assert (place.instance_type, place.region) == (None, None)


def test_a_slow_service_is_given_up(on_aws: Service, firmware) -> None:
    on_aws.delay = 0.4  # each request is in time, all together are not
    began = time.monotonic()
    place = locate(environment={}, dmi_folder=firmware(XEN), metadata_url=on_aws.url, timeout_seconds=0.6)
    assert time.monotonic() - began < 3
    assert place.region is None


def test_no_proxy_is_used(on_aws: Service, firmware, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, NOWHERE)
    assert locate(environment={}, dmi_folder=firmware(XEN), metadata_url=on_aws.url).region is not None


@pytest.mark.parametrize("name", ["g4dn.xlarge\x00", "Not A Type", "", "m5d.metal-48xl"])
def test_the_firmwares_name_must_look_like_a_type(name: str, firmware) -> None:
    place = locate(environment={"VMSELECT_REGION": "r"}, dmi_folder=firmware({**NITRO, "product_name": name}),
                   metadata_url=NOWHERE)  # fmt: skip
    assert (place.instance_type is not None) == (name == "m5d.metal-48xl")


def test_this_machines_own_facts_are_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(placement, "DMI_FOLDER", tmp_path)
    monkeypatch.setenv("VMSELECT_INSTANCE_TYPE", "c5.large")
    assert locate().instance_type.value == "c5.large"
