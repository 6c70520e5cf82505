"""A refresh: what fails costs only itself, what is killed leaves a whole catalog, two at once do no harm."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

import vmselect as vs
from vmselect.catalog import refresh
from vmselect.catalog.refresh import RefreshOutcome, refresh_prices
from vmselect.catalog.sources import PriceTable, api_sources, build_table, open_source
from vmselect.catalog.sources.azure import AzurePrices
from vmselect.errors import ArgumentError, CatalogError, RefreshError, VmselectError


class FakeCloud:
    """A source with given answers."""

    def __init__(self, provider: str, pattern: str, price: float | None = 0.5, lacks: str | None = None) -> None:
        self.provider = provider
        self.region_pattern = pattern
        self.price = price
        self.lacks = lacks
        self.asked: list[str] = []
        self.fault: Exception | None = None

    def missing(self) -> str | None:
        return self.lacks

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        self.asked.append(region)
        progress("page 1")
        if self.fault:
            raise self.fault
        row = {"provider": self.provider, "region": region, "market": "on_demand", "usd_per_hour": self.price}
        rows = [{**row, "instance_type": "small"}, {**row, "instance_type": "large", "usd_per_hour": 2.0}]
        return build_table(rows, self.provider, region)


def messages(outcome: RefreshOutcome, code: str) -> list[str]:
    return [str(finding) for finding in outcome.findings if finding.code == code]


@pytest.fixture
def aws() -> FakeCloud:
    return FakeCloud("aws", r"[a-z]{2}-[a-z]+-\d")


@pytest.fixture
def azure() -> FakeCloud:
    return FakeCloud("azure", r"[a-z]+\d?")


def test_fresh_prices_lie_over_the_embedded_ones(aws) -> None:
    aws_price = vs.Catalog.embedded().price("g4dn.xlarge")
    outcome = refresh_prices(sources={"aws": aws})
    assert [(p.state, p.rows) for p in outcome.parts] == [("fetched", 2)]
    catalog = vs.Catalog.default()
    assert catalog.price("small", region="us-east-1") == 0.5
    assert catalog.price("g4dn.xlarge") == aws_price
    assert catalog.offer("small").source == "aws API"
    assert len(vs.Catalog.refreshed(alone=True)) == 2


def test_nothing_refreshed_yet() -> None:
    assert vs.Catalog.default() == vs.Catalog.embedded()
    with pytest.raises(CatalogError):
        vs.Catalog.refreshed()


def test_one_cloud_that_fails_keeps_its_earlier_prices(aws, azure) -> None:
    refresh_prices(sources={"aws": aws, "azure": azure})
    aws.fault, azure.price = RefreshError("AWS is down."), 0.7
    outcome = refresh_prices(sources={"aws": aws, "azure": azure}, max_age_hours=0)
    assert {(p.provider, p.state) for p in outcome.parts} == {("aws", "failed"), ("azure", "fetched")}
    (failure,) = messages(outcome, "not-refreshed")
    assert "aws us-east-1" in failure
    catalog = vs.Catalog.refreshed()
    assert catalog.price("small", provider="aws") == 0.5
    assert catalog.price("small", provider="azure") == 0.7


def test_everything_failing_is_an_error_that_keeps_what_there_was(aws) -> None:
    refresh_prices(sources={"aws": aws})
    aws.fault = RefreshError("AWS is down.")
    with pytest.raises(RefreshError, match=r"AWS is down\."):
        refresh_prices(sources={"aws": aws}, max_age_hours=0)
    assert vs.Catalog.refreshed().price("small") == 0.5


def test_what_was_fetched_lately_is_used_again(aws) -> None:
    refresh_prices(sources={"aws": aws})
    outcome = refresh_prices(sources={"aws": aws})
    assert [p.state for p in outcome.parts] == ["reused"]
    assert aws.asked == ["us-east-1"]
    seven_hours_ago = time.time() - 7 * 3600
    os.utime(refresh.part_path("aws", "us-east-1"), (seven_hours_ago, seven_hours_ago))
    assert [p.state for p in refresh_prices(sources={"aws": aws}).parts] == ["fetched"]


def test_a_failed_part_gives_what_was_fetched_before(aws, azure) -> None:
    refresh_prices(sources={"aws": aws, "azure": azure})
    aws.fault = RefreshError("AWS is down.")
    outcome = refresh_prices(sources={"aws": aws, "azure": azure}, max_age_hours=0)
    assert outcome.frame["provider"].value_counts().to_dict() == {"aws": 2, "azure": 2}


def test_an_answer_that_lost_most_of_a_market_has_a_warning(aws) -> None:
    refresh_prices(sources={"aws": aws})
    assert messages(refresh_prices(sources={"aws": aws}, max_age_hours=0), "prices-lost") == []
    spot = {"provider": "aws", "region": "us-east-1", "market": "spot", "usd_per_hour": 0.1, "instance_type": "small"}
    aws.fetch = lambda region, *, progress: build_table([spot], "aws", region)
    assert len(messages(refresh_prices(sources={"aws": aws}, max_age_hours=0), "prices-lost")) == 1


def test_each_failed_region_has_a_finding(aws, azure) -> None:
    aws.fault = RefreshError("AWS is down.")
    outcome = refresh_prices(regions=["eu-west-1", "us-east-1", "eastus"], sources={"aws": aws, "azure": azure})
    first, second = sorted(messages(outcome, "not-refreshed"))
    assert "eu-west-1" in first
    assert "us-east-1" in second


def test_with_nothing_readable_in_the_cache_the_embedded_prices_serve(aws) -> None:
    refresh_prices(sources={"aws": aws})
    refresh.part_path("aws", "us-east-1").write_bytes(b"\x00garbage")
    catalog = vs.Catalog.default()
    assert catalog == vs.Catalog.embedded()
    assert catalog.findings[0].code == "refreshed-unreadable"
    with pytest.raises(CatalogError):
        vs.Catalog.refreshed()


def test_an_embedded_price_newer_than_the_refreshed_one_stays() -> None:
    row = {"provider": "aws", "instance_type": "g4dn.xlarge", "region": "us-east-1", "date": "2020-01-01"}
    old = vs.Catalog.embedded().with_offers(
        [{**row, "usd_per_hour": 9.0}, {**row, "market": "reserved_1y", "usd_per_hour": 3.0}]
    )
    refresh.write_part("aws", "us-east-1", old.offers(instance_type="g4dn.xlarge", market=["on_demand", "reserved_1y"]))
    catalog = vs.Catalog.default()
    assert catalog.price("g4dn.xlarge") == vs.Catalog.embedded().price("g4dn.xlarge") != 9.0
    assert catalog.price("g4dn.xlarge", market="reserved_1y") == 3.0


@pytest.mark.parametrize("fault", [RecursionError("deep"), RuntimeError("odd"), MemoryError()])
def test_whatever_goes_wrong_in_one_cloud_costs_it_alone(aws, azure, fault) -> None:
    aws.fault = fault
    outcome = refresh_prices(sources={"aws": aws, "azure": azure})
    assert {(p.provider, p.state) for p in outcome.parts} == {("aws", "failed"), ("azure", "fetched")}


def test_a_damaged_part_is_named_and_fetched_again(aws, azure) -> None:
    refresh_prices(sources={"aws": aws, "azure": azure})
    refresh.part_path("aws", "us-east-1").write_bytes(b"\x00\x01garbage")
    catalog = vs.Catalog.refreshed()
    assert catalog.findings[0].code == "refreshed-unreadable"
    assert catalog.price("small", provider="azure") == 0.5
    assert "fetched" in [p.state for p in refresh_prices(sources={"aws": aws}).parts]


@pytest.mark.parametrize("price", [0.0, -1.0, None, float("nan"), float("inf"), 1e9, "free"])
def test_an_absurd_price_is_left_out_by_name(aws, price) -> None:
    aws.price = price
    outcome = refresh_prices(sources={"aws": aws})
    assert "aws us-east-1 small on_demand" in str(outcome.findings[0])
    assert outcome.frame["instance_type"].tolist() == ["large"]


def test_a_cloud_without_credentials_is_skipped_unless_asked_for_by_name(aws, azure) -> None:
    azure.lacks = "There is no key. Put one there."
    outcome = refresh_prices(sources={"aws": aws, "azure": azure})
    assert (outcome.findings[0].code, outcome.findings[0].remedy) == ("provider-excluded", azure.lacks)
    with pytest.raises(RefreshError, match="There is no key"):
        refresh_prices(["azure"], sources={"aws": aws, "azure": azure})


def test_regions_go_to_the_cloud_whose_names_they_look_like(aws, azure) -> None:
    refresh_prices(regions=["eu-west-1", "westeurope", "us-east-2"], sources={"aws": aws, "azure": azure})
    assert sorted(aws.asked) == ["eu-west-1", "us-east-2"]
    assert azure.asked == ["westeurope"]
    with pytest.raises(ArgumentError, match="NOWHERE"):
        refresh_prices(regions=["NOWHERE"], sources={"aws": aws})


def test_a_region_of_a_cloud_without_credentials_is_an_error(aws, azure) -> None:
    aws.lacks = "There is no key. Put one there."
    with pytest.raises(RefreshError, match="There is no key"):
        refresh_prices(regions=["us-east-1"], sources={"aws": aws, "azure": azure})
    outcome = refresh_prices(regions=["us-east-1", "eastus"], sources={"aws": aws, "azure": azure})
    assert [(p.provider, p.state) for p in outcome.parts] == [("aws", "skipped"), ("azure", "fetched")]


def test_one_provider_and_one_region_need_no_list(aws, azure) -> None:
    refresh_prices("azure", regions="westeurope", sources={"aws": aws, "azure": azure})
    assert (aws.asked, azure.asked) == ([], ["westeurope"])


@pytest.mark.parametrize(
    ("provider", "mine"), [("aws", "ap-southeast-2"), ("azure", "westus2"), ("gcp", "europe-west4")]
)
def test_the_real_clouds_regions_cannot_be_confused(provider, mine) -> None:
    assert [p for p in api_sources() if re.fullmatch(open_source(p).region_pattern, mine)] == [provider]


def test_an_unknown_provider() -> None:
    with pytest.raises(ArgumentError, match="ovh"):
        vs.Catalog.embedded().refresh(["ovh"])


def test_regions_are_fetched_at_the_same_time(aws) -> None:
    together = threading.Barrier(4, timeout=60)  # broken, and so a failure, unless four ask at once
    fetch = aws.fetch

    def wait_for_the_others(region: str, *, progress: Callable[[str], None]) -> PriceTable:
        together.wait()
        return fetch(region, progress=progress)

    aws.fetch = wait_for_the_others
    refresh_prices(regions=[f"us-east-{i}" for i in range(4)], sources={"aws": aws})
    assert len(vs.Catalog.refreshed(alone=True)) == 8


def test_catalog_refresh_through_http(cloud, answer, client, monkeypatch) -> None:
    item = {
        "currencyCode": "USD", "retailPrice": 0.5, "armRegionName": "eastus", "serviceName": "Virtual Machines",
        "productName": "NCasT4_v3", "skuName": "NC4as T4 v3", "meterName": "NC4as T4 v3", "type": "Consumption",
        "armSkuName": "Standard_NC4as_T4_v3", "unitOfMeasure": "1 Hour",
    }  # fmt: skip
    cloud.reply = lambda _: answer({"Items": [item], "NextPageLink": None})
    source = AzurePrices(base_url=cloud.url, client=client)
    monkeypatch.setattr("vmselect.catalog.refresh.open_source", lambda *_: source)
    fresh = vs.Catalog.embedded().refresh(["azure"], regions=["eastus"])
    assert fresh.price("Standard_NC4as_T4_v3") == 0.5
    changes = vs.catalog.compare_prices(vs.Catalog.embedded(), vs.Catalog.refreshed(alone=True))
    before = vs.Catalog.embedded().price("Standard_NC4as_T4_v3")
    cheaper = changes[changes["change"] == "lower"]
    assert cheaper["instance_type"].tolist() == ["Standard_NC4as_T4_v3"]
    assert cheaper["percent"].iloc[0] == pytest.approx(-100 * (1 - 0.5 / before))
    shipped = vs.Catalog.embedded().offers("azure", region="eastus", retired=False)
    assert (changes["change"] == "gone").sum() == len(shipped) - 1  # the other sizes of that region, none retired


def test_an_unexpected_answer_fails_only_its_part(aws, cloud, answer, client) -> None:
    cloud.reply = lambda _: answer({"Items": [1, "x"], "NextPageLink": None})
    azure = AzurePrices(base_url=cloud.url, client=client)
    outcome = refresh_prices(sources={"aws": aws, "azure": azure})
    assert {(p.provider, p.state) for p in outcome.parts} == {("aws", "fetched"), ("azure", "failed")}
    (failure,) = messages(outcome, "not-refreshed")
    assert "Items" in failure


def test_a_region_that_throttles_does_not_hold_up_the_others(cloud, answer, client) -> None:
    item = {
        "currencyCode": "USD", "retailPrice": 0.5, "serviceName": "Virtual Machines", "productName": "D",
        "skuName": "D", "meterName": "D", "type": "Consumption", "armSkuName": "Standard_D8s_v3",
        "unitOfMeasure": "1 Hour",
    }  # fmt: skip

    def reply(request):
        region = request.query["$filter"].split("'")[-2]
        if region == "westus":
            return answer(status=429)
        return answer({"Items": [{**item, "armRegionName": region}], "NextPageLink": None})

    cloud.reply = reply
    azure = AzurePrices(base_url=cloud.url, client=client)
    outcome = refresh_prices(regions=["eastus", "westus", "northeurope"], sources={"azure": azure})
    states = {p.region: p.state for p in outcome.parts}
    assert states == {"eastus": "fetched", "westus": "failed", "northeurope": "fetched"}
    assert any("429" in str(finding) for finding in outcome.findings)


def test_progress_is_reported(aws) -> None:
    reported = []
    refresh_prices(sources={"aws": aws}, progress=reported.append)
    assert [p.state for p in reported] == ["waiting", "fetching", "fetching", "fetched"]


WRITER = """
import sys, itertools
import vmselect as vs
from vmselect.catalog.refresh import write_part
frame = vs.Catalog.embedded().offers(market=None)
print("ready", flush=True)
for _ in itertools.count():
    write_part("aws", "us-east-1", frame)
"""


def start_writers(count: int) -> list[subprocess.Popen[str]]:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    return writers


def test_killed_at_any_moment_and_two_at_once_the_catalog_stays_whole() -> None:
    whole = len(vs.Catalog.embedded())
    for pause in (0.0, 0.013, 0.029, 0.047):
        writers = start_writers(2)
        try:
            while not refresh.part_path("aws", "us-east-1").exists():
                time.sleep(0.005)
            for _ in range(5):
                assert len(vs.Catalog.refreshed(alone=True)) == whole
            time.sleep(pause)
        finally:
            for writer in writers:
                writer.kill()
                writer.communicate()
        assert len(vs.Catalog.refreshed(alone=True)) == whole


INTERRUPTED = """
import sys
from vmselect.catalog.refresh import refresh_prices
from vmselect.catalog.sources.azure import AzurePrices
from vmselect.catalog.sources.http import JsonClient
patient = AzurePrices(base_url=sys.argv[1], client=JsonClient(timeout_seconds=600))
refresh_prices(sources={"azure": patient}, progress=lambda part: print(part.state, flush=True))
"""


def test_ctrl_c_does_not_wait_for_a_server_that_hangs(cloud, answer) -> None:
    hung = threading.Event()
    cloud.reply = lambda _: hung.wait(120) and answer({})
    asking = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, cloud.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        while not cloud.asked:
            time.sleep(0.01)
            assert asking.poll() is None
        asking.send_signal(signal.SIGINT)
        _, said = asking.communicate(timeout=60)  # the server would keep it for ten minutes
    finally:
        asking.kill()
        hung.set()
    assert "KeyboardInterrupt" in said


def test_what_a_killed_writer_left_is_cleared_later(aws) -> None:
    left = refresh.part_path("aws", "us-east-1").parent / f".vmselect-{'a' * 16}.part"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    os.utime(left, (time.time() - 7200, time.time() - 7200))
    refresh_prices(sources={"aws": aws}, max_age_hours=0)
    assert not left.exists()


@pytest.mark.parametrize("value", [5, b"x", [], {}, float("nan"), "\0", "x" * 300, ["a", 5], [None], object()])
def test_wrong_arguments_are_errors(aws, value) -> None:
    for arguments in ({"providers": value}, {"regions": value}, {"progress": value}, {"max_age_hours": value}):
        if arguments != {"max_age_hours": 5}:
            with pytest.raises(VmselectError):
                refresh_prices(**arguments, sources={"aws": aws})


def test_a_fault_of_the_reader_does_not_repeat_what_was_sent(aws) -> None:
    class Broken(FakeCloud):
        def fetch(self, region, *, progress):
            raise UnicodeEncodeError("latin-1", "hidden-key\u200b", 10, 11, "ordinal not in range(256)")

    with pytest.raises(RefreshError, match="UnicodeEncodeError") as refused:
        refresh_prices(sources={"aws": Broken("aws", r"[a-z0-9-]+")})
    assert "hidden" not in str(refused.value)


def test_a_refresh_ends_whatever_the_servers_do(aws) -> None:
    released = threading.Event()

    class Endless(FakeCloud):
        def fetch(self, region, *, progress):
            released.wait(60)
            return []

    outcome = refresh_prices(sources={"aws": aws, "azure": Endless("azure", r"[a-z]+")}, max_seconds=0.5)
    released.set()
    assert {part.provider: part.state for part in outcome.parts} == {"aws": "fetched", "azure": "failed"}


def test_no_credential_is_stored(aws, tmp_path) -> None:
    refresh_prices(sources={"aws": aws})
    stored = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert [p.name for p in stored] == ["aws_us-east-1.csv"]
