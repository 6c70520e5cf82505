"""Azure Retail Prices: what its answers really hold, served on loopback."""

from __future__ import annotations

import math
from typing import Any

import pytest

from vmselect.catalog.sources.azure import AzurePrices
from vmselect.errors import RefreshError


def item(size: str, price: float | None, **changes: Any) -> dict[str, Any]:
    series = size.removeprefix("Standard_")
    usual = {
        "currencyCode": "USD",
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": "eastus",
        "serviceName": "Virtual Machines",
        "productName": f"Virtual Machines {series} Series",
        "skuName": series,
        "meterName": series,
        "armSkuName": size,
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "tierMinimumUnits": 0.0,
        "effectiveStartDate": "2024-01-01T00:00:00Z",
    }
    return {**usual, **changes}


def page(*items: dict[str, Any], link: str | None = None) -> dict[str, Any]:
    return {"BillingCurrency": "USD", "Items": list(items), "NextPageLink": link, "Count": len(items)}


@pytest.fixture
def prices(cloud, client) -> AzurePrices:
    return AzurePrices(base_url=f"{cloud.url}/api/retail/prices", client=client)


def fetch(prices: AzurePrices, region: str = "eastus") -> dict[tuple[str, str], Any]:
    frame, _ = prices.fetch(region, progress=lambda _: None)
    return {(r["instance_type"], r["market"]): r for r in frame.to_dict("records")}


def test_rows_that_are_not_linux_vms_are_left_out(cloud, answer, prices) -> None:
    t4 = "Standard_NC4as_T4_v3"
    cloud.reply = lambda _: answer(
        page(
            item(t4, 0.526),
            item(t4, 0.71, productName="Virtual Machines NCasT4_v3 Series Windows"),
            item(t4, 0.10, skuName="NC4as T4 v3 Low Priority", meterName="NC4as T4 v3 Low Priority"),
            item(t4, 0.71, productName="NCasT4 v3 Series Cloud Services"),
            item(t4, 0.71, productName="NCasT4v3 Series CloudServices"),
            item(t4, 9.0, productName="NCas Dedicated Host"),
            item(t4, 0.30, type="DevTestConsumption"),
            item("Standard_NC4as_T4_v3_Promo", 0.2),
            item("", 0.2),
            item(t4, 0.52, armRegionName="westus"),
            item(t4, 0.4, tierMinimumUnits=1000.0),
            item(t4, 0.4, effectiveStartDate="2999-01-01T00:00:00Z"),
        )
    )
    assert {k: r["usd_per_hour"] for k, r in fetch(prices).items()} == {(t4, "on_demand"): 0.526}


def test_spot_shows_only_in_the_names(cloud, answer, prices) -> None:
    spot = item("Standard_D8s_v3", 0.05, skuName="D8s v3 Spot", meterName="D8s v3 Spot")
    cloud.reply = lambda _: answer(page(item("Standard_D8s_v3", 0.384), spot))
    assert {k[1]: r["usd_per_hour"] for k, r in fetch(prices).items()} == {"on_demand": 0.384, "spot": 0.05}


def test_a_reservation_is_the_price_of_the_whole_term(cloud, answer, prices) -> None:
    reservation = item("Standard_D8s_v3", 2000.0, type="Reservation", reservationTerm="1 Year")
    three = item("Standard_D8s_v3", 3900.0, type="Reservation", reservationTerm="3 Years")
    five = item("Standard_D8s_v3", 5000.0, type="Reservation", reservationTerm="5 Years")
    cloud.reply = lambda _: answer(page(reservation, three, five))
    rows = fetch(prices)
    assert rows["Standard_D8s_v3", "reserved_1y"]["usd_per_hour"] == pytest.approx(2000 / 8760)
    assert rows["Standard_D8s_v3", "reserved_3y"]["usd_per_hour"] == pytest.approx(3900 / (3 * 8760))
    assert len(rows) == 2


def test_a_size_that_can_no_longer_be_rented_stays_retired(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer(page(item("Standard_NC6", 0.9), item("Standard_D8s_v3", 0.384)))
    rows = fetch(prices)
    assert rows["Standard_NC6", "on_demand"]["retired"] is True
    assert rows["Standard_D8s_v3", "on_demand"]["retired"] is False


def test_a_size_outside_its_primary_meter_region_is_kept(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer(page(item("Standard_D8s_v3", 0.384, isPrimaryMeterRegion=False)))
    assert ("Standard_D8s_v3", "on_demand") in fetch(prices)


def test_sizes_get_their_facts_from_the_table_or_their_name(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer(
        page(
            item("Standard_NV6ads_A10_v5   ", 0.454),  # the API leaves blanks behind some names
            item("Standard_E32-8s_v3", 2.0),
            item("Standard_Z7_new", 1.0),
        )
    )
    rows = {name: row for (name, _), row in fetch(prices).items()}
    assert rows["Standard_NV6ads_A10_v5"]["gpu_count"] == pytest.approx(1 / 6, abs=1e-4)
    assert rows["Standard_NV6ads_A10_v5"]["gpu_model"] == "A10"
    assert rows["Standard_E32-8s_v3"]["vcpus"] == 8
    assert math.isnan(rows["Standard_Z7_new"]["gpu_count"])


def test_the_newest_price_in_force_wins(cloud, answer, prices) -> None:
    old = item("Standard_D8s_v3", 0.4, effectiveStartDate="2020-01-01T00:00:00Z")
    new = item("Standard_D8s_v3", 0.384, effectiveStartDate="2024-01-01T00:00:00Z")
    cloud.reply = lambda _: answer(page(new, old))
    assert fetch(prices)["Standard_D8s_v3", "on_demand"]["usd_per_hour"] == 0.384


def test_pages_are_followed_to_the_last(cloud, answer, prices) -> None:
    def reply(request):
        if request.query.get("$skip") == "2":
            return answer(page(item("Standard_B", 2.0)))
        return answer(page(item("Standard_A", 1.0), link=f"{cloud.url}/api/retail/prices?$skip=2"))

    cloud.reply = reply
    assert {k[0] for k in fetch(prices)} == {"Standard_A", "Standard_B"}
    assert cloud.asked[0].query["$filter"] == "serviceName eq 'Virtual Machines' and armRegionName eq 'eastus'"
    assert cloud.asked[0].query["currencyCode"] == "USD"


@pytest.mark.parametrize(
    "shape",
    [
        "http://203.0.113.9\\@{host}/",
        "http://203.0.113.9\\\\@{host}/",
        "http://{host}@203.0.113.9/",
        "http://203.0.113.9#@{host}/",
        "http://203.0.113.9?@{host}/",
        "http:\\\\203.0.113.9\\@{host}/",
        "http://{host}\t@203.0.113.9/",
        "http://[::ffff:203.0.113.9]/",
        "file://{host}/etc/passwd",
        "http://{host}:99999999/",
        "//{host}/",
        "http://[{host}/",
    ],
)
def test_what_is_compared_is_what_would_be_connected_to(cloud, answer, prices, shape) -> None:
    link = shape.format(host=cloud.url.removeprefix("http://"))
    cloud.reply = lambda _: answer(page(item("Standard_A", 1.0), link=link))
    with pytest.raises(RefreshError):
        fetch(prices)
    assert len(cloud.asked) == 1


def test_a_link_to_another_host_is_not_followed(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer(page(item("Standard_A", 1.0), link="http://203.0.113.9/steal"))
    with pytest.raises(RefreshError, match=r"203\.0\.113\.9"):
        fetch(prices)


def test_pages_that_go_in_circles_end(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer(page(item("Standard_A", 1.0), link=f"{cloud.url}/api/retail/prices?$skip=2"))
    with pytest.raises(RefreshError):
        fetch(prices)


def test_another_currency_is_refused(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer(page(item("Standard_A", 1.0, currencyCode="EUR")))
    with pytest.raises(RefreshError, match="EUR"):
        fetch(prices)


def test_a_region_without_prices_is_an_error(cloud, answer, prices) -> None:
    cloud.reply = lambda _: answer(page())
    with pytest.raises(RefreshError, match="eastsu"):
        fetch(prices, "eastsu")


def test_savings_plans_are_prices_of_sizes_without_a_reservation(cloud, answer, prices) -> None:
    plans = [{"retailPrice": 0.40, "unitPrice": 0.40, "term": "1 Year"}, {"retailPrice": 0.25, "term": "3 Years"}]
    t4, d8 = "Standard_NC4as_T4_v3", "Standard_D8s_v3"
    cloud.reply = lambda _: answer(
        page(
            item(t4, 0.526, savingsPlan=plans),
            item(t4, 0.2, skuName="NC4as T4 v3 Spot", meterName="NC4as T4 v3 Spot", savingsPlan=plans),
            item(d8, 0.384, savingsPlan=[*plans, {"term": "9 Years", "retailPrice": 1}, "no plan"]),
            item(d8, 8760 * 0.3, type="Reservation", reservationTerm="1 Year"),
            item("Standard_D4s_v3", 0.192, savingsPlan=None),
        )
    )
    rows = fetch(prices)
    assert {market for _, market in rows} == {"on_demand", "spot", "reserved_1y", "reserved_3y"}
    assert (rows[t4, "reserved_1y"]["usd_per_hour"], rows[t4, "reserved_1y"]["note"]) == (0.40, "savings plan")
    assert rows[t4, "spot"]["usd_per_hour"] == 0.2
    assert (rows[d8, "reserved_1y"]["usd_per_hour"], rows[d8, "reserved_1y"]["note"]) == (pytest.approx(0.3), "")
    assert rows[d8, "reserved_3y"]["usd_per_hour"] == 0.25
