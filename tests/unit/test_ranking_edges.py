"""Where a ranking draws its lines: limits at their edge, ties, doubts about GPUs, what moving data costs, words."""

from __future__ import annotations

import math
from typing import Any

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError
from vmselect.ranking import Interruptions
from vmselect.ranking.rows import Lazy
from vmselect.records import Environment, Gpu, Profile


def prices(*rows: tuple[str, float], **more: Any) -> vs.Catalog:
    usual = {"provider": "lab", "region": "here", "market": "on_demand", **more}
    offers = [{**usual, "instance_type": name, "usd_per_hour": usd} for name, usd in rows]
    return vs.Catalog.embedded("2026-08-22").with_offers(offers)


def line(name: str, epoch: float, **more: Any) -> Profile:
    return Profile.from_times(
        instance_type=name, batch_size=64, init_seconds=0.0, first_epoch_seconds=epoch, later_epoch_seconds=[epoch],
        **more,
    )  # fmt: skip


def rank(profiles: list[Profile], catalog: vs.Catalog, **options: Any) -> vs.Ranking:
    return vs.rank(profiles, **({"epochs": 10, "catalog": catalog, "method": "malta-epoch"} | options))


HOUR = [line("a", 360.0)]  # ten epochs are an hour
DOLLAR = prices(("a", 2.0))


@pytest.mark.parametrize(("limit", "kept", "broken"), [("deadline_hours", 1.0, 0.999), ("budget_usd", 2.0, 1.999)])
def test_a_limit_may_be_reached_and_not_passed(limit: str, kept: float, broken: float) -> None:
    assert rank(HOUR, DOLLAR, **{limit: kept}).best.seconds == pytest.approx(3600)
    assert not rank(HOUR, DOLLAR, **{limit: broken})


def test_what_a_broken_limit_is_called() -> None:
    both = rank(HOUR, DOLLAR, deadline_hours=0.5, budget_usd=0.5)
    (left_out,) = both.excluded
    assert left_out.reason_code == "over_deadline"  # of two, the deadline is named
    assert left_out.reason == "10 epochs take 1 h, over the deadline of 30 min"
    one = rank([line("a", 3600.0)], DOLLAR, epochs=1, budget_usd=0.5)
    assert one.excluded[0].reason == "1 epoch costs $2.00, over the budget of $0.50"
    assert both.count_reasons() == {"over_deadline": 1}


@pytest.mark.parametrize(
    ("given", "factor"),
    [
        ({"per_hour": 0.5, "checkpoint_minutes": 30, "restart_minutes": 9}, 1 / (1 - 24 / 120)),
        ({"mean_uptime_hours": 2, "checkpoint_minutes": 30, "restart_minutes": 9}, 1 / (1 - 24 / 120)),
        ({"per_hour": 0.5, "checkpoint_minutes": 38}, 1 / (1 - 24 / 120)),  # a restart takes five minutes
        ({"per_hour": 0, "checkpoint_minutes": 30}, 1.0),
    ],
)
def test_interruptions_stretch_by_what_they_lose(given: dict[str, float], factor: float) -> None:
    spot = prices(("a", 2.0), market="spot")
    row = rank(HOUR, spot, market="spot", interruptions=given).best
    assert row.seconds == pytest.approx(3600 * factor)
    assert row.cost_usd == pytest.approx(2.0 * factor)
    expected = f"{factor:.3g} times the uninterrupted run"
    assert any(expected in finding.message for finding in row.findings)


def test_interruptions_that_leave_no_time_are_refused_at_the_edge() -> None:
    Interruptions(mean_uptime_hours=0.5, checkpoint_minutes=50, restart_minutes=4.9)
    with pytest.raises(ArgumentError, match="every 30 minutes on average, each costing 30 minutes, leave no time"):
        Interruptions(mean_uptime_hours=0.5, checkpoint_minutes=50, restart_minutes=5)


@pytest.mark.parametrize("name", ["per_hour", "mean_uptime_hours", "checkpoint_minutes", "restart_minutes"])
def test_what_interruptions_may_be(name: str) -> None:
    usual = {"checkpoint_minutes": 1.0, "restart_minutes": 1.0}
    usual |= {} if name in ("per_hour", "mean_uptime_hours") else {"per_hour": 0.1}
    may_be_nothing = name in ("per_hour", "restart_minutes")
    if may_be_nothing:
        Interruptions(**{**usual, name: 0})
    for wrong in (-0.001, math.nan, math.inf, *([] if may_be_nothing else [0])):
        with pytest.raises(ArgumentError):
            Interruptions(**{**usual, name: wrong})


# Doubts about the use of GPUs


def seen(used: int, batch_size: int, found: int | None = None, name: str = "Tesla T4") -> Profile:
    gpus = tuple(Gpu(name=name) for _ in range(used if found is None else found))
    environment = Environment(framework_gpus=used, replicas=max(1, used), gpus=gpus)
    steps = Profile.from_times(
        instance_type="a", batch_size=batch_size, steps_per_epoch=100, iteration_seconds=[0.1] * 20
    )
    return steps.model_copy(update={"environment": environment, "outcome": "stopped"})


def codes(profile: Profile, gpu_count: float, gpu_model: str = "T4") -> set[str]:
    catalog = prices(("a", 1.0), gpu_count=gpu_count, gpu_model=gpu_model)
    found = {finding.code for finding in rank([profile], catalog, method="robust").best.findings}
    return found & {"thin-batch", "unused-gpus", "hardware-contradicts-price"}


@pytest.mark.parametrize(
    ("used", "sold", "batch_size", "found"),
    [
        (4, 4, 128, set()),  # 32 each
        (4, 4, 127, {"thin-batch"}),
        (1, 1, 8, set()),  # one GPU has all of it
        (3, 4, 128, {"unused-gpus"}),
        (0, 4, 128, {"unused-gpus"}),
        (0, 8, 128, {"unused-gpus", "thin-batch"}),  # where none is used, all that are paid for count
        (1, 0.5, 8, set()),
    ],
)
def test_gpus_that_are_paid_for_should_be_used(used: int, sold: float, batch_size: int, found: set[str]) -> None:
    assert codes(seen(used, batch_size), sold) - {"hardware-contradicts-price"} == found


@pytest.mark.parametrize(
    ("found", "name", "sold", "model", "contradicts"),
    [
        (1, "Tesla T4", 1, "T4", False),
        (1, "Tesla T4", 4, "T4", False),  # a container may show fewer
        (1, "Tesla T4", 0.5, "T4", False),
        (2, "Tesla T4", 1, "T4", True),
        (1, "Tesla T4", 1, "A100-80GB", True),
        (1, "NVIDIA A100-SXM4-80GB", 1, "A100-80GB", False),
        (1, "Tesla T4", 0, "", True),
        (1, "NVIDIA GeForce 9", 1, "RTX-PRO-6000", False),  # such names say too little
    ],
)
def test_gpus_that_were_seen_are_those_that_are_sold(
    found: int, name: str, sold: float, model: str, contradicts: bool
) -> None:
    assert ("hardware-contradicts-price" in codes(seen(found, 640, name=name), sold, model)) is contradicts


# Moving data


def moved(name: str, *down: float, **more: Any) -> vs.TransferRecord:
    """A record of downloads at these seconds per megabyte."""
    return vs.TransferRecord.from_times(
        instance_type=name, url="s3://b", megabytes=10, download_seconds=[10 * seconds for seconds in down], **more
    )


def stored(record: vs.TransferRecord, store: str | None) -> vs.TransferRecord:
    return record.model_copy(update={"setup": record.setup.model_copy(update={"store": store})})


@pytest.mark.parametrize(("store", "usd"), [("lab", 0.0), ("elsewhere", 3.0), (None, 3.0)])
def test_data_are_free_within_one_cloud(store: str | None, usd: float) -> None:
    record = stored(moved("a", 0.01, egress_usd_per_gb=0.3), store)
    row = rank([line("a", 360.0, provider="lab")], DOLLAR, transfer=vs.Transfer(data_gb=10, records=[record])).best
    assert row.cost_usd == pytest.approx((3600 + 100) / 3600 * 2.0 + usd)


def test_of_several_prices_the_highest_is_paid() -> None:
    records = [stored(moved("a", 0.01, egress_usd_per_gb=usd), "elsewhere") for usd in (0.1, 0.3, 0.2)]
    row = rank(HOUR, DOLLAR, transfer=vs.Transfer(data_gb=10, records=records)).best
    assert row.cost_usd == pytest.approx((3600 + 100) / 3600 * 2.0 + 3.0)


@pytest.mark.parametrize(
    ("rates", "seconds", "width"),
    [
        ((0.01,), 100.0, 20.0),  # a fifth of it, before a second record shows more
        ((0.009, 0.011), 100.0, 20.0),
        ((0.005, 0.015), 100.0, 50.0),  # half of what lies between them
    ],
)
def test_how_sure_the_time_of_moving_is(rates: tuple[float, ...], seconds: float, width: float) -> None:
    records = [moved("a", rate) for rate in rates]
    row = rank(HOUR, DOLLAR, transfer=vs.Transfer(data_gb=10, records=records)).best
    assert row.terms["data_in"] == pytest.approx(seconds)
    assert (row.seconds - row.seconds_low, row.seconds_high - row.seconds) == pytest.approx((width, width))


def test_widths_of_both_ways_add_as_squares() -> None:
    way = {"download_seconds_per_mb": 0.03, "upload_seconds_per_mb": 0.04}
    row = rank(HOUR, DOLLAR, transfer={"data_gb": 5, "model_gb": 5, **way}).best
    assert row.terms["data_in"] == pytest.approx(150)
    assert row.terms["model_out"] == pytest.approx(200)
    assert row.seconds_high - row.seconds == pytest.approx(0.2 * math.hypot(150, 200))


def test_what_does_not_move_needs_no_record() -> None:
    row = rank(HOUR, DOLLAR, transfer={"data_gb": 0, "model_gb": 5, "upload_seconds_per_mb": 0.04}).best
    assert row.seconds == pytest.approx(3600 + 200)
    left_out = rank(HOUR, DOLLAR, transfer={"data_gb": 1, "model_gb": 1}).excluded[0]
    assert "how long data in and model out takes on a" in left_out.reason


# Machines of one name


def test_one_name_at_two_clouds_is_two_machines() -> None:
    def steps(provider: str, batch_size: int, seconds: float) -> Profile:
        return Profile.from_times(
            instance_type="a", provider=provider, batch_size=batch_size, examples=6400,
            first_iteration_seconds=seconds, iteration_seconds=[seconds] * 20,
        )  # fmt: skip

    catalog = vs.Catalog.embedded("2026-08-22").with_offers(
        [
            {"provider": provider, "instance_type": "a", "region": "here", "market": "on_demand", "usd_per_hour": 1.0}
            for provider in ("one", "two")
        ]
    )
    profiles = [steps("one", 32, 0.1), steps("one", 128, 0.4), steps("two", 32, 1.0), steps("two", 128, 4.0)]
    rows = {row.provider: row for row in rank(profiles, catalog, method="robust", batch_size=64)}
    assert rows["two"].seconds == pytest.approx(10 * rows["one"].seconds)
    assert {row.basis for row in rows.values()} == {"between"}


def test_a_profile_of_one_step_has_no_second() -> None:
    short = Profile.from_times(
        instance_type="a", batch_size=64, steps_per_epoch=10, first_iteration_seconds=3.0, iteration_seconds=[1.0],
        first_epoch_seconds=10.0, later_epoch_seconds=[10.0],
    )  # fmt: skip
    steps = short.timeline.steps
    alone = type(steps).of(steps.rows[:1])
    lone = short.model_copy(update={"timeline": short.timeline.model_copy(update={"steps": alone})})
    assert rank([lone], DOLLAR).candidates.contenders[0].iterations == {"first_iteration": 3.0}
    both = rank([short], DOLLAR).candidates.contenders[0].iterations
    assert both == {"first_iteration": 3.0, "second_iteration": 1.0, "mean_2_10": 1.0}


def test_what_a_probe_took_is_its_fit_and_what_came_before() -> None:
    watched = line("a", 360.0, total_seconds=900.0)
    started = watched.model_copy(
        update={"timeline": watched.timeline.model_copy(update={"init_seconds": 50.0, "fit_seconds": 850.0})}
    )
    spent = rank([started], DOLLAR).selection_cost()
    assert spent.probe_seconds == pytest.approx(900.0)
    assert spent.probe_usd == pytest.approx(900 / 3600 * 2.0)


# Words and sequences


def test_rows_that_are_made_when_looked_at_are_a_sequence_like_any_other() -> None:
    rows = Lazy(4, lambda index: index * index)
    assert rows == (0, 1, 4, 9)
    assert rows == [0, 1, 4, 9]
    assert rows != (0, 1, 4)
    assert rows != 4
    assert (rows[-1], rows[-4], rows[1:3]) == (9, 0, (1, 4))
    for outside in (4, -5):
        with pytest.raises(IndexError, match=f"there are 4 items and none at {outside}"):
            rows[outside]
    assert (repr(rows), repr(Lazy(3, str))) == ("[0, 1, 4, ...]", "['0', '1', '2']")


def test_a_bill_shows_a_range_only_where_there_is_one() -> None:
    assert str(vs.Bill.of(disk=1.5)) == "$1.50: disk $1.50"
    assert str(vs.Bill.of(disk=(1.0, 1.5, 2.0))) == "$1.50 ($1.00 to $2.00): disk $1.50"
    row = rank(HOUR, DOLLAR).best
    (part,) = vs.Bill.of(training=row).parts
    assert (part.usd, part.low, part.high, part.detail) == (2.0, row.cost_low, row.cost_high, "a")
    with pytest.raises(ArgumentError, match="not in order"):
        vs.Bill.of(disk=(1.0, 0.9, 2.0))
    with pytest.raises(ArgumentError, match="not in order"):
        vs.Bill.of(disk=(1.0, 2.1, 2.0))
    assert vs.Bill.of(disk=(1.0, 1.0, 1.0)).high == 1.0
