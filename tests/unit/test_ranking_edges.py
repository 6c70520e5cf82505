"""Where a ranking draws its lines: limits at their edge, ties, doubts about GPUs, what moving data costs, words."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

import vmselect as vs
from tests.support.priced import prices
from vmselect.errors import ArgumentError
from vmselect.ranking import Interruptions
from vmselect.ranking.rows import Lazy
from vmselect.records import Environment, Gpu, Profile
from vmselect.records.usage import Limits, Usage


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
    (excluded,) = both.excluded
    assert excluded.reason_code == "over_deadline"  # of two, the deadline is named
    assert excluded.reason == "10 epochs take 1 h, over the deadline of 30 min"
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
        (0, 1, 128, {"unused-gpus"}),
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


@pytest.mark.parametrize(
    ("cores", "allowed", "sold", "contradicts"),
    [
        ({"cpu_cores": 64, "usable_cores": 64}, None, 2, True),
        ({"cpu_cores": 4}, None, 2, True),
        ({"cpu_cores": 3, "usable_cores": 3}, None, 2, False),
        ({"cpu_cores": 2, "usable_cores": 2}, None, 64, False),  # a container may show fewer
        ({"cpu_cores": 64, "usable_cores": 2}, None, 2, False),  # held to two of them
        ({"cpu_cores": 64, "usable_cores": 64}, 2.0, 2, False),  # a container that may use two of them
        ({"cpu_cores": 64, "usable_cores": 64}, None, None, False),
        ({}, None, 2, False),
    ],
)
def test_cores_that_were_seen_are_no_more_than_are_sold(
    cores: dict[str, int], allowed: float | None, sold: int | None, contradicts: bool
) -> None:
    usage = Usage(interval_seconds=1.0, limits=Limits(container_cores=allowed))
    probed = HOUR[0].model_copy(update={"environment": Environment(**cores), "usage": usage})
    catalog = prices(("a", 1.0), **({} if sold is None else {"vcpus": sold}))
    told = [f.message for f in rank([probed], catalog).best.findings if f.code == "hardware-contradicts-price"]
    said = f"a is priced with 2 vCPUs, and the probe found {cores.get('cpu_cores')} cores."
    assert told == ([said] if contradicts else [])


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


@pytest.mark.parametrize("name", ["data_gb", "model_gb"])
def test_how_much_may_be_moved(name: str) -> None:
    assert getattr(vs.Transfer(**{name: 1e9}), name) == 1e9
    for wrong in (1.000001e9, -0.001):
        with pytest.raises(ArgumentError, match=f"{name} must be a number from 0 to 1e\\+09"):
            vs.Transfer(**{name: wrong})


def test_what_does_not_move_needs_no_record() -> None:
    row = rank(HOUR, DOLLAR, transfer={"data_gb": 0, "model_gb": 5, "upload_seconds_per_mb": 0.04}).best
    assert row.seconds == pytest.approx(3600 + 200)
    excluded = rank(HOUR, DOLLAR, transfer={"data_gb": 1, "model_gb": 1}).excluded[0]
    assert "the time of data in and model out on a" in excluded.reason


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
    assert {row.basis for row in rows.values()} == {"interpolated"}


@pytest.mark.parametrize(("workers", "title"), [(1, "a, batch 64"), (2, "2 x a, batch 64"), (3, "3 x a, batch 64")])
def test_several_machines_are_counted_in_the_title_and_the_price(workers: int, title: str) -> None:
    one = line("a", 360.0)
    several = one.model_copy(update={"environment": Environment(workers=workers)})
    ranking = rank([several], DOLLAR)
    assert ranking.candidates.machine_estimates[0].title == title
    assert ranking.best.usd_per_hour == 2.0 * workers
    told = [finding for finding in ranking.best.findings if finding.code == "several-machines"]
    assert len(told) == (workers > 1)


@pytest.mark.parametrize(("workers", "shared", "machines"), [(8, 8, 1), (16, 8, 2), (12, 8, 2), (8, 1, 8)])
def test_workers_that_share_a_machine_pay_for_it_once(workers: int, shared: int, machines: int) -> None:
    """As torchrun starts them: each uses one GPU, and all together those of the machine."""
    seen = Environment(workers=workers, workers_per_machine=shared, replicas=workers, framework_gpus=1)
    several = line("a", 360.0).model_copy(update={"environment": seen, "outcome": "stopped"})
    best = rank([several], prices(("a", 2.0), gpu_count=shared, gpu_model="T4")).best
    assert (best.usd_per_hour, best.factors.get("nodes", 1)) == (2.0 * machines, machines)
    codes = {finding.code for finding in best.findings}
    assert "unused-gpus" not in codes
    assert ("several-machines" in codes) is (machines > 1)


def test_workers_that_use_some_gpus_of_their_machine_leave_the_others_idle() -> None:
    seen = Environment(workers=2, workers_per_machine=2, replicas=2, framework_gpus=1)
    pair = line("a", 360.0).model_copy(update={"environment": seen, "outcome": "stopped"})
    best = rank([pair], prices(("a", 2.0), gpu_count=8, gpu_model="T4")).best
    assert "a, batch 64, workers 2 trained on 2 of its 8 GPUs." in [finding.message for finding in best.findings]


@pytest.mark.parametrize(("batch_size", "said"), [(512, []), (384, ["384 over 16 GPUs is 24 examples each."])])
def test_a_batch_is_spread_over_the_gpus_of_all_machines(batch_size: int, said: list[str]) -> None:
    seen = Environment(workers=16, workers_per_machine=8, replicas=16, framework_gpus=1)
    one = line("a", 360.0)
    setup = one.setup.model_copy(update={"batch_size": batch_size})
    several = one.model_copy(update={"environment": seen, "outcome": "stopped", "setup": setup})
    best = rank([several], prices(("a", 2.0), gpu_count=8, gpu_model="T4")).best
    assert [f.message.partition("a batch of ")[2] for f in best.findings if f.code == "thin-batch"] == said


def test_a_profile_of_one_step_has_no_second() -> None:
    short = Profile.from_times(
        instance_type="a", batch_size=64, steps_per_epoch=10, first_iteration_seconds=3.0, iteration_seconds=[1.0],
        first_epoch_seconds=10.0, later_epoch_seconds=[10.0],
    )  # fmt: skip
    steps = short.timeline.steps
    alone = type(steps).of(steps.rows[:1])
    lone = short.model_copy(update={"timeline": short.timeline.model_copy(update={"steps": alone})})
    assert rank([lone], DOLLAR).candidates.machine_estimates[0].iterations == {"first_iteration": 3.0}
    both = rank([short], DOLLAR).candidates.machine_estimates[0].iterations
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
    for wrong in ((1.0, 1.5), (1.0, 1.5, 2.0, 2.5)):
        with pytest.raises(ArgumentError, match=r"has no cost.*least, likely, most"):
            vs.Bill.of(disk=wrong)
    row = rank(HOUR, DOLLAR).best
    (part,) = vs.Bill.of(training=row).parts
    assert (part.usd, part.low, part.high, part.detail) == (2.0, row.cost_low, row.cost_high, "a")
    (hour,) = vs.Bill.of(endpoint=SimpleNamespace(hourly_usd=0.5, instance_type="b")).parts
    assert (hour.usd, hour.low, hour.high, hour.detail) == (0.5, 0.5, 0.5, "b")
    with pytest.raises(ArgumentError, match="not in order"):
        vs.Bill.of(disk=(1.0, 0.9, 2.0))
    with pytest.raises(ArgumentError, match="not in order"):
        vs.Bill.of(disk=(1.0, 2.1, 2.0))
    assert vs.Bill.of(disk=(1.0, 1.0, 1.0)).high == 1.0


def many(count: int, **options: Any) -> vs.Ranking:
    """Machines m00, m01, ..., each a little dearer than the one before."""
    names = [f"m{number:02}" for number in range(count)]
    catalog = prices(*((name, 1.0 + number) for number, name in enumerate(names)))
    return rank([line(name, 360.0) for name in names], catalog, **options)


def test_the_text_of_a_ranking_shows_ten_rows_and_counts_the_others() -> None:
    lines = str(many(12)).splitlines()
    assert sum(one.split()[:1] in ([str(n)] for n in range(1, 13)) for one in lines) == 10
    assert "... and 2 more" in lines
    assert "more" not in str(many(10))
    assert lines[0].startswith("Rent m00 (lab, here, on_demand), batch 64: 10 epochs in 1 h (1 h to 1 h) for $1.00")
    assert lines[0].endswith("the lowest cost of 12 candidates.")
    assert "the only candidate left." in many(1).verdict


def test_what_was_left_out_is_counted_and_three_are_named() -> None:
    text = str(many(12, budget_usd=5.0))
    assert "Excluded: 7 candidates over budget; see ranking.excluded." in text
    assert text.count("over the budget of $5.00") == 3
    one = str(many(6, budget_usd=5.0))
    assert "Excluded: 1 candidate over budget" in one
    nothing = many(3, budget_usd=0.5)
    assert nothing.verdict.startswith("Nothing is feasible: 3 candidates over budget. For one, m00")


def test_a_tie_names_three_rivals_and_counts_the_others() -> None:
    def equal(count: int) -> str:
        names = [f"m{number}" for number in range(count)]
        catalog = prices(*((name, 1.0) for name in names))
        return rank([line(name, 360.0) for name in names], catalog).verdict

    assert "Within the intervals it is a tie with m1 (lab, here, on_demand), batch 64 ($1.00 in 1 h)." in equal(2)
    assert "more" not in equal(4)
    assert equal(6).endswith(" and 2 more.")


@pytest.mark.parametrize(("dearer", "chosen"), [(1.499, "quick"), (1.501, "cheap")])
def test_a_tie_prefers_what_costs_no_more_than_half_as_much_again(dearer: float, chosen: str) -> None:
    """Two machines whose times cannot be told apart: the one with the better estimate, unless it costs much more."""

    def steps(name: str, seconds: float) -> Profile:
        return Profile.from_times(
            instance_type=name, batch_size=64, steps_per_epoch=1000, init_seconds=0.0, first_iteration_seconds=seconds,
            iteration_seconds=[seconds] * 5,
        )  # fmt: skip

    slower = 1.01
    catalog = prices(("quick", dearer * slower), ("cheap", 1.0))
    ranking = rank([steps("quick", 0.1), steps("cheap", 0.1 * slower)], catalog, method="robust", objective="time")
    assert all(row.tied_with_best for row in ranking)
    assert ranking.best.instance_type == chosen


def test_a_doubt_where_a_limit_lies_within_the_interval() -> None:
    records = [moved("a", 0.01)]  # 100 s, give or take 20
    transfer = vs.Transfer(data_gb=10, records=records)

    def found(**limit: float) -> set[str]:
        row = rank(HOUR, DOLLAR, transfer=transfer, **limit).best
        return {finding.code for finding in row.findings} & {"may-miss-deadline", "may-exceed-budget"}

    assert found(deadline_hours=3721 / 3600) == set()
    assert found(deadline_hours=3719 / 3600) == {"may-miss-deadline"}
    assert found(budget_usd=3721 / 1800) == set()
    assert found(budget_usd=3719 / 1800) == {"may-exceed-budget"}


@pytest.mark.parametrize(
    ("seconds", "increment", "minimum", "billed"),
    [(59, 1, 60, 60), (60.5, 1, 60, 61), (61, 60, 0, 120), (61.5, 0, 60, 61.5), (9, 0, 60, 60)],
)
def test_what_appears_on_the_bill(seconds: float, increment: float, minimum: float, billed: float) -> None:
    import numpy as np

    from vmselect.ranking.measures import billed_seconds

    found = billed_seconds(np.array([seconds]), increment=np.array([increment]), minimum=np.array([minimum]))
    assert found.tolist() == [billed]


def test_a_machine_for_nothing_is_the_reference_itself() -> None:
    import numpy as np

    from vmselect.ranking.measures import score

    values = {"cost": np.array([0.0, 3.0]), "time": np.array([20.0, 10.0])}
    best = {"cost": np.array(0.0), "time": np.array(10.0)}
    assert score({"cost": 1.0, "time": 0.0}, values, best).tolist() == [1.0, math.inf]
    assert score({"cost": 0.0, "time": 1.0}, values, best).tolist() == [2.0, 1.0]
    assert score({"cost": 0.25, "time": 0.75}, values, best).tolist() == [0.25 + 1.5, math.inf]
