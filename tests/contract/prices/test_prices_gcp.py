"""Google Cloud Billing Catalog: machines put together from their parts."""

from __future__ import annotations

from typing import Any

import pytest

from vmselect.catalog.refresh import refresh_prices
from vmselect.catalog.shipped import known_machines
from vmselect.catalog.sources.gcp import GcpPrices
from vmselect.errors import RefreshError


def sku(name: str, price: float, group: str, **changes: Any) -> dict[str, Any]:
    units, nanos = divmod(round(price * 1e9), 10**9)
    rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": str(units), "nanos": nanos}}
    usual = {
        "description": f"{name} running in Americas",
        "category": {"resourceFamily": "Compute", "resourceGroup": group, "usageType": "OnDemand"},
        "serviceRegions": ["us-central1", "us-east1"],
        "pricingInfo": [
            {"pricingExpression": {"usageUnit": "GiBy.h" if group == "RAM" else "h", "tieredRates": [rate]}}
        ],
    }
    usual["category"] |= changes.pop("category", {})
    return {**usual, **changes}


CORE = sku("N1 Predefined Instance Core", 0.031611, "N1Standard")
RAM = sku("N1 Predefined Instance Ram", 0.004237, "N1Standard")
T4 = sku("Nvidia Tesla T4 GPU", 0.35, "GPU")
SPOT = [
    sku("Spot Preemptible N1 Predefined Instance Core", 0.01, "N1Standard", category={"usageType": "Preemptible"}),
    # Filed as on demand: only the description tells.
    sku("Spot Preemptible N1 Predefined Instance Ram", 0.002, "N1Standard"),
    sku("x", 0.12, "GPU", description="Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas"),
]


@pytest.fixture
def prices(cloud, client) -> GcpPrices:
    return GcpPrices(base_url=cloud.url, api_key="hidden-key", client=client)


def fetch(prices: GcpPrices, region: str = "us-central1") -> dict[tuple[str, str], float]:
    frame, _ = prices.fetch(region, progress=lambda _: None)
    return {(r["instance_type"], r["market"]): r["usd_per_hour"] for r in frame.to_dict("records")}


def serve(cloud, answer, *skus: dict[str, Any]) -> None:
    cloud.reply = lambda _: answer({"skus": list(skus), "nextPageToken": ""})


def test_a_machine_is_cores_and_memory_and_gpus(cloud, answer, prices) -> None:
    serve(cloud, answer, CORE, RAM, T4)
    rows = fetch(prices)
    assert rows["n1-standard-4+1xT4", "on_demand"] == pytest.approx(4 * 0.031611 + 15 * 0.004237 + 0.35, abs=1e-6)
    assert rows["n1-standard-4", "on_demand"] == pytest.approx(4 * 0.031611 + 15 * 0.004237, abs=1e-6)
    assert not any("V100" in name or market == "spot" for name, market in rows)


def test_spot_by_usage_type_or_description(cloud, answer, prices) -> None:
    serve(cloud, answer, CORE, RAM, T4, *SPOT)
    rows = fetch(prices)
    assert rows["n1-standard-4+1xT4", "spot"] == pytest.approx(4 * 0.01 + 15 * 0.002 + 0.12)
    assert rows["n1-standard-4+1xT4", "on_demand"] == pytest.approx(0.54, abs=0.001)


@pytest.mark.parametrize(
    "word",
    [
        "Commitment v1: N1 Predefined Instance Core",
        "N1 Predefined Instance Core Custom",
        "N1 Predefined Instance Core Sole Tenancy",
        "Reserved N1 Predefined Instance Core",
        "DWS Defined Duration N1 Predefined Instance Core",
    ],
)
def test_parts_sold_otherwise_are_rejected(cloud, answer, prices, word) -> None:
    serve(cloud, answer, CORE, RAM, sku(word, 0.001, "N1Standard"))
    assert fetch(prices)["n1-standard-1", "on_demand"] == pytest.approx(0.031611 + 3.75 * 0.004237, abs=1e-6)


def test_the_last_tier_counts_since_free_ones_come_first(cloud, answer, prices) -> None:
    core = sku("N1 Predefined Instance Core", 0.031611, "N1Standard")
    free = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 0}}
    core["pricingInfo"][0]["pricingExpression"]["tieredRates"].insert(0, free)
    core["pricingInfo"][0]["pricingExpression"]["tieredRates"][1]["startUsageAmount"] = 720
    serve(cloud, answer, core, RAM)
    assert fetch(prices)["n1-standard-1", "on_demand"] == pytest.approx(0.031611 + 3.75 * 0.004237, abs=1e-6)


def test_units_are_a_string_and_may_be_above_zero(cloud, answer, prices) -> None:
    serve(cloud, answer, CORE, RAM, sku("Nvidia Tesla V100 GPU", 2.48, "GPU"))
    assert fetch(prices)["n1-highmem-4+1xV100", "on_demand"] == pytest.approx(
        4 * 0.031611 + 26 * 0.004237 + 2.48, abs=1e-6
    )


def test_a_part_with_two_prices_makes_no_machine(cloud, answer, prices) -> None:
    serve(cloud, answer, CORE, RAM, T4, sku("Nvidia Tesla T4 GPU", 0.36, "GPU"))
    rows = fetch(prices)
    assert ("n1-standard-4", "on_demand") in rows
    assert ("n1-standard-4+1xT4", "on_demand") not in rows


def test_all_pages_are_read_once_for_all_regions_and_the_key_stays_out_of_addresses(cloud, answer, prices) -> None:
    def reply(request):
        if request.query.get("pageToken") == "two":
            return answer({"skus": [RAM], "nextPageToken": ""})
        return answer({"skus": [CORE], "nextPageToken": "two"})

    cloud.reply = reply
    assert fetch(prices) == fetch(prices, "us-east1")
    assert len(cloud.asked) == 2
    assert cloud.asked[0].headers["X-Goog-Api-Key"] == "hidden-key"
    assert "hidden-key" not in str([request.query for request in cloud.asked])


def test_pages_that_go_in_circles_end(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer({"skus": [CORE], "nextPageToken": "again"})
    with pytest.raises(RefreshError):
        fetch(prices)
    assert len(cloud.asked) == 2


def test_a_part_for_nothing_makes_no_machine(cloud, answer, prices) -> None:
    serve(cloud, answer, sku("N1 Predefined Instance Core", 0.0, "N1Standard"), RAM)
    with pytest.raises(RefreshError):
        fetch(prices)


def test_the_key_stays_with_google_when_a_client_is_shared(client) -> None:
    GcpPrices(api_key="hidden-key", client=client)
    assert client.headers == {}


def test_an_empty_answer_is_an_error_and_never_no_offers(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer({})
    with pytest.raises(RefreshError):
        fetch(prices)


def test_a_region_without_machines(cloud, answer, prices) -> None:
    serve(cloud, answer, CORE, RAM)
    with pytest.raises(RefreshError, match="us-central1"):
        fetch(prices, "us-centrall1")


def test_a_missing_key_names_the_variable() -> None:
    assert "GOOGLE_API_KEY" in str(GcpPrices().missing())
    assert "hidden-key" not in repr(GcpPrices(api_key="hidden-key").__dict__["_client"])


@pytest.mark.parametrize("end", ["\u200b", "\u2060", "\x07", "\ufeff"])
def test_a_key_with_an_invisible_character_is_named_but_not_shown(cloud, client, end) -> None:
    prices = GcpPrices(base_url=cloud.url, api_key="hidden-key" + end, client=client)
    assert prices.missing()
    with pytest.raises(RefreshError) as refused:
        refresh_prices(["gcp"], sources={"gcp": prices})
    assert "hidden-key" not in str(refused.value)
    assert cloud.asked == []


def test_blanks_around_a_key_are_no_part_of_it(cloud, answer, client) -> None:
    serve(cloud, answer, CORE, RAM)
    fetch(GcpPrices(base_url=cloud.url, api_key=" hidden-key\n", client=client))
    assert cloud.asked[0].headers["X-Goog-Api-Key"] == "hidden-key"


@pytest.mark.parametrize(
    ("machine", "gpu", "host"),
    [
        ("a3-ultragpu-8g", "H200 141GB GPU", "A3Ultra Instance"),
        ("a3-ultragpu-8g", "Nvidia H200 141GB GPU", "A3Ultra Instance"),
        ("a3-megagpu-8g", "Nvidia H100 Mega 80GB GPU", "A3Plus Instance"),
        ("a3-megagpu-8g", "Nvidia H100 80GB Plus GPU", "A3Plus Instance"),
        ("g4-standard-48", "RTX 6000 96GB", "G4 Instance"),
        ("a2-ultragpu-1g", "Nvidia Tesla A100 80GB GPU", "A2 Instance"),
    ],
)
def test_gpus_are_known_by_what_their_names_mean(cloud, answer, prices, machine, gpu, host) -> None:
    facts = known_machines("gcp")[machine]
    others = [sku(name, 99.0, "GPU") for name in ("Nvidia Tesla A100 GPU", "Nvidia H100 80GB GPU", "GB200 GPU")]
    serve(
        cloud, answer, sku(f"{host} Core", 0.01, "CPU"), sku(f"{host} Ram", 0.001, "RAM"), sku(gpu, 3.0, "GPU"), *others
    )
    whole = facts["vcpus"] * 0.01 + facts["memory_gib"] * 0.001 + facts["gpu_count"] * 3.0
    assert fetch(prices)[machine, "on_demand"] == pytest.approx(whole, abs=1e-5)


def test_a_slice_holds_its_cores_and_memory(cloud, answer, prices) -> None:
    name = "A4 Nvidia B200 (1 gpu slice)"
    serve(cloud, answer, sku(name, 16.11, "GPU"), sku(f"Spot Preemptible {name}", 4.95, "GPU"))
    rows = fetch(prices)
    assert rows == pytest.approx({("a4-highgpu-8g", "on_demand"): 128.88, ("a4-highgpu-8g", "spot"): 39.6})


def test_a_workstation_licence_is_no_gpu(cloud, answer, prices) -> None:
    serve(cloud, answer, CORE, RAM, T4, sku("Nvidia Tesla T4 Virtual Workstation GPU", 0.55, "GPU"))
    assert ("n1-standard-4+1xT4", "on_demand") in fetch(prices)


def test_a_refresh_names_what_got_no_price_and_why(cloud, answer, prices) -> None:
    serve(cloud, answer, CORE, RAM, T4, sku("Nvidia Tesla T4 GPU", 0.36, "GPU"))
    outcome = refresh_prices(["gcp"], sources={"gcp": prices})
    message = next(str(f) for f in outcome.findings if f.code == "types-without-price")
    assert all(name in message for name in ("A100", "T4"))
