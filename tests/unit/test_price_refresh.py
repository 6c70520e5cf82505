"""Where a refresh draws its lines: what is fetched again, what is doubted, what is said to be missing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import vmselect as vs
from vmselect.catalog import refresh
from vmselect.catalog.refresh import refresh_prices
from vmselect.catalog.sources import PriceTable, build_table
from vmselect.errors import ArgumentError, RefreshError


class Cloud:
    """Answers with the rows it was given; a test may change them."""

    region_pattern = r"[a-z]+-\d+"

    def __init__(self, provider: str = "lab", rows: list[dict[str, Any]] | None = None) -> None:
        self.provider = provider
        self.rows = [{"instance_type": f"t{n}"} for n in range(4)] if rows is None else rows
        self.asked: list[str] = []

    def missing(self) -> str | None:
        return None

    def list_regions(self) -> list[str]:
        return ["home-1", "home-2"]

    def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
        self.asked.append(region)
        usual = {"provider": self.provider, "region": region, "market": "on_demand", "usd_per_hour": 0.5}
        return build_table([{**usual, **row} for row in self.rows], self.provider, region)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path))


def run(cloud: Cloud, **options: Any) -> refresh.RefreshOutcome:
    return refresh_prices(sources={cloud.provider: cloud}, **{"regions": "home-1", **options})


def age(region: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(refresh.part_path("lab", region), (then, then))


@pytest.mark.parametrize(("hours", "state"), [(5.9, "reused"), (6.1, "fetched")])
def test_prices_are_fetched_again_after_six_hours(hours, state) -> None:
    cloud = Cloud()
    run(cloud)
    age("home-1", hours * 3600)
    (part,) = run(cloud).parts
    assert (part.state, part.rows) == (state, 4)
    if state == "reused":
        assert part.detail == "fetched 5.9 h ago"


def test_how_old_a_part_is_counts_in_hours_and_never_below_none() -> None:
    assert refresh.age_hours("lab", "home-1") is None
    run(Cloud())
    age("home-1", 1800)
    assert refresh.age_hours("lab", "home-1") == pytest.approx(0.5, abs=0.01)
    age("home-1", -100)  # a clock was set back: nobody knows
    assert refresh.age_hours("lab", "home-1") is None


@pytest.mark.parametrize(("left", "lost"), [(5, False), (3, False), (2, True)])
def test_a_market_that_lost_more_than_half_is_a_warning(left, lost) -> None:
    cloud = Cloud(rows=[{"instance_type": f"t{n}"} for n in range(6)])
    run(cloud)
    cloud.rows = cloud.rows[:left]
    found = [finding.code for finding in run(cloud, max_age_hours=0).findings]
    assert found == (["prices-lost"] if lost else [])


def test_a_shorter_list_of_another_source_has_lost_nothing() -> None:
    cloud = Cloud(rows=[{"instance_type": f"t{n}", "source": "skypilot"} for n in range(6)])
    run(cloud, source="skypilot")
    cloud.rows = [{"instance_type": "t0", "source": "lab API"}]
    assert run(cloud, max_age_hours=0).findings == ()


def test_no_more_than_four_regions_of_a_cloud_are_asked_at_once() -> None:
    inside, most, lock = 0, 0, threading.Lock()

    class Slow(Cloud):
        def fetch(self, region: str, *, progress: Callable[[str], None]) -> PriceTable:
            nonlocal inside, most
            with lock:
                inside, most = inside + 1, max(most, inside + 1)
            time.sleep(0.02)
            with lock:
                inside -= 1
            return super().fetch(region, progress=progress)

    outcome = run(Slow(), regions=[f"home-{n}" for n in range(9)])
    assert [part.state for part in outcome.parts] == ["fetched"] * 9
    assert most == 4


def test_all_regions_are_those_that_a_source_lists() -> None:
    assert sorted(part.region for part in run(Cloud(), regions="all").parts) == ["home-1", "home-2"]
    assert sorted(part.region for part in run(Cloud(), regions=None).parts) == ["home-1", "home-2"]


def test_a_source_without_a_list_cannot_be_asked_for_all() -> None:
    cloud = Cloud()
    cloud.list_regions = None  # type: ignore[method-assign,assignment]
    with pytest.raises(ArgumentError, match="lab has no list of its regions"):
        run(cloud, regions="all")


def test_a_region_is_asked_for_once_and_by_its_name() -> None:
    cloud = Cloud()
    run(cloud, regions=["home-1", "home-1", "home-2"])
    assert sorted(cloud.asked) == ["home-1", "home-2"]
    with pytest.raises(ArgumentError, match="elsewhere does not look like a region of lab"):
        run(cloud, regions=["home-1", "elsewhere"])


def test_types_that_ship_with_a_price_and_got_none_are_named() -> None:
    shipped = vs.Catalog.embedded().offers("aws", retired=False, service="ec2")
    names = sorted(shipped["instance_type"].astype(str))
    some = [{"instance_type": name, "service": "ec2"} for name in names]

    def told(rows: list[dict[str, Any]]) -> list[str]:
        cloud = Cloud("aws", rows)
        cloud.region_pattern = "us-east-1"
        return [finding.message for finding in run(cloud, regions="us-east-1", max_age_hours=0).findings]

    assert told(some) == []
    two = (
        "aws us-east-1 gave no price on demand of 2 types that ship with one: "
        f"{names[0]}, {names[1]} (not in the answer)."
    )
    assert told(some[2:])[0] == two
    lost = told(some[7:])[0]
    assert all(name in lost for name in names[:6])
    assert f"{names[6]}" not in lost.replace("(not in the answer)", "")
    other = [{"instance_type": "something-else", "service": "ec2"}]
    all_of_them = f"gave no price on demand of {len(names)} types that ship with one"
    assert [message for message in told(other) if all_of_them in message]
    elsewhere = [{"instance_type": "something-else", "service": "other"}]
    assert not [message for message in told(elsewhere) if "types that ship" in message]  # it sells other things
    assert two in told([{**row, "market": "spot"} for row in some[:2]] + some[2:])


@pytest.mark.parametrize(
    ("kept", "source", "state"),
    [
        ("skypilot", "skypilot", "reused"),
        ("skypilot", "api", "fetched"),
        ("lab API", "api", "reused"),
        ("lab API", "skypilot", "fetched"),
        ("user", "api", "reused"),
    ],
)
def test_prices_are_used_again_only_for_the_source_they_are_from(kept, source, state) -> None:
    run(Cloud(rows=[{"instance_type": "t", "source": kept}]))
    (part,) = run(Cloud(), source=source).parts
    assert part.state == state


def test_a_price_that_stands_twice_is_one_and_two_prices_are_none() -> None:
    assert len(run(Cloud(rows=[{"instance_type": "t"}, {"instance_type": "t"}])).frame) == 1
    twice = Cloud(rows=[{"instance_type": "t"}, {"instance_type": "t", "usd_per_hour": 0.75}])
    assert "lab home-1 t on_demand: repeats the price" in str(run(twice, max_age_hours=0).findings[0])


@pytest.mark.parametrize(
    ("rows", "said"), [([], "contains no VM price"), ([{"instance_type": "t", "usd_per_hour": 0}], "is usable")]
)
def test_an_answer_without_a_price_is_an_error(rows, said) -> None:
    with pytest.raises(RefreshError, match=said):
        run(Cloud(rows=rows))


@pytest.mark.parametrize(("days", "old"), [(90, False), (91, True)])
def test_refreshed_prices_are_old_after_ninety_days(days, old) -> None:
    import datetime as dt

    date = (dt.date.today() - dt.timedelta(days=days)).isoformat()
    run(Cloud(rows=[{"instance_type": "t", "date": date}, {"instance_type": "u", "date": "2020-01-01"}]))
    found = [finding.message for finding in vs.Catalog.refreshed(alone=True).findings]
    assert found == ([f"Refreshed prices of lab home-1 are of {date}, {days} days old."] if old else [])


def test_no_name_of_a_region_leads_out_of_the_cache(tmp_path) -> None:
    assert refresh.part_path("lab", "../../../up").parent == tmp_path / "prices"
    alike = ["US, TX", "US TX", "US__TX", "\uc11c\uc6b8, KR", "\ubd80\uc0b0, KR", "x" * 150, "x" * 151]
    assert len({refresh.part_path("vast", region) for region in alike}) == len(alike)
    assert refresh.part_path("aws", "us-east-1").name == "aws_us-east-1.csv"
    cloud = Cloud(rows=[])
    cloud.region_pattern = ".+"
    with pytest.raises(RefreshError, match="no VM price"):
        run(cloud, regions="a\0b")
