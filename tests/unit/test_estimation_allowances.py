"""Saves and waits that an estimate allows for, and what holds where nothing is said: exact numbers and edges."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.probed_profile import probed
from vmselect.errors import ArgumentError
from vmselect.estimation.autotune_wait import (
    WAITS,
    _wait_of_who_waits,
    count_pipelines,
    expect_share,
    price_waits,
    weigh_evidence,
)
from vmselect.estimation.overheads import Pauses, Saves, find_unseen_saves, time_pauses
from vmselect.estimation.readings import Readings
from vmselect.estimation.runtime import RuntimeModel, Spread
from vmselect.estimation.statistics import Level
from vmselect.estimation.workload import Workload
from vmselect.findings import Finding
from vmselect.records import Pause, Steps
from vmselect.records.training import Step
from vmselect.records.usage import Summary, Usage

STEP = Level(0.1, 0.01, 0.02, 0.0)


# Saves


@pytest.mark.parametrize(
    ("first", "saving", "now_and_then"),
    [(10.0, None, 0.0), (10.5, None, 5.25), (10.5, "best", 0.0)],
)
def test_a_first_end_ten_times_as_long_as_any_later_may_be_a_save(
    first: float, saving: str | None, now_and_then: float
) -> None:
    seen = Readings(first_endings=[first], later_endings=[1.0, 0.5])
    found = find_unseen_saves(probed(saving=saving), seen, step=STEP, steps_per_epoch=50.0)
    assert found == Saves(longest=first, now_and_then=now_and_then)
    alone = find_unseen_saves(probed(), Readings(first_endings=[first]), step=STEP, steps_per_epoch=50.0)
    assert alone == Saves(longest=first)


@pytest.mark.parametrize(("steps", "per_epoch"), [(39, 2.5), (40, 0.0), (41, 0.0)])
def test_saves_that_were_seen_twice_are_in_the_steps(steps: int, per_epoch: float) -> None:
    timeline = {"steps": Steps.of([Step(0, steps - 1, 1.0, steps, "steady")])}
    profile = probed(timeline=timeline, saving="batches", save_freq=20)
    stood_out = Level(0.1, 0.0, 0.0, 0.0, stall=0.7)
    found = find_unseen_saves(profile, Readings(), step=stood_out, steps_per_epoch=50.0)
    assert found == Saves(by_batches=per_epoch > 0, per_epoch=per_epoch, longest=0.7)
    assert find_unseen_saves(profile, Readings(unit="epoch"), step=stood_out, steps_per_epoch=50.0) == Saves()
    assert Saves(per_epoch=2.5, longest=4.0, now_and_then=1.0).seconds == 11.0


@pytest.mark.parametrize(
    ("ending", "saving", "longest"), [(0.1, "batches", 0.0), (0.11, "batches", 0.11), (0.1, "epochs", 0.1)]
)
def test_what_takes_no_longer_than_a_step_is_no_save_by_batches(ending: float, saving: str, longest: float) -> None:
    seen = Readings(first_endings=[ending], later_endings=[ending])
    found = find_unseen_saves(probed(saving=saving, save_freq=20), seen, step=STEP, steps_per_epoch=50.0)
    assert found == Saves(by_batches=True, per_epoch=2.5, longest=longest)


# Waits


@pytest.mark.parametrize(
    ("waited", "cut_short", "says"),
    [
        (None, False, (0.0, 0.0)),
        (None, True, (0.0, 0.0)),
        (True, True, (2.0, 0.0)),
        (False, True, (0.0, 0.0)),
        (True, False, (1.0, 0.0)),
        (False, False, (0.0, 1.0)),
    ],
)
def test_what_a_boundary_says_about_waits(waited: bool | None, cut_short: bool, says: tuple[float, float]) -> None:
    assert weigh_evidence(waited, cut_short=cut_short) == says


@pytest.mark.parametrize(("replicas", "pipelines"), [(1, 1), (2, 3), (3, 3), (8, 3)])
def test_pipelines_of_so_many_devices(replicas: int, pipelines: int) -> None:
    assert count_pipelines(probed(environment={"replicas": replicas})) == pipelines


def test_the_mean_of_waits_one_after_the_other() -> None:
    assert _wait_of_who_waits([0.0, 1.0, 3.0, 7.0]) == (3.0, 6.0, 7.0)
    assert _wait_of_who_waits([0.0, 2.0]) == (2.0, 0.0, 2.0)


@pytest.mark.parametrize(
    ("cpu", "wall", "cores", "sampled", "crowded"),
    [
        (5.0, 10.0, 1, None, 0.5),
        (10.0, 10.0, 2, None, 0.0),
        (15.0, 10.0, 2, None, 0.5),
        (20.0, 10.0, 2, None, 1.0),
        (90.0, 10.0, 2, None, 1.0),
        (4.0, 10.0, 4, None, 0.0),
        (None, 10.0, 4, None, 1.0),
        (4.0, 10.0, None, None, 1.0),
        (4.0, 10.0, None, 0.25, 0.25),
        (4.0, 10.0, 4, 0.35, 0.0),
        (4.0, 10.0, 4, 0.8125, 0.25),
        (4.0, 10.0, 4, 1.7, 1.0),
        (4.0, 10.0, 4, 0.0, 0.0),
    ],
)
def test_how_often_a_processor_without_a_free_core_waits(
    cpu: Any, wall: float, cores: Any, sampled: Any, crowded: float
) -> None:
    usage = None
    if sampled is not None:
        one = Summary(count=3, seconds=1.0, mean=sampled, maximum=2.0, p50=0.0, p95=0.0)
        usage = Usage(interval_seconds=1.0, phases={"steady_steps": {"usable_cpu_share": one}})
    timeline = {"cpu_seconds": cpu, "wall_seconds": wall}
    profile = probed(timeline=timeline, environment={"usable_cores": cores}, usage=usage)
    assert expect_share(profile) == pytest.approx(max(0.02, 0.9 * crowded**0.65))


def test_what_waits_take_in_all_and_cost() -> None:
    found = (Finding(WAITS, "It waits.", "Do."), Finding("other", "Other.", "Do."))
    assert price_waits(found, idle_seconds=0.0, epochs=100) == found
    waits, other = price_waits(found, idle_seconds=36.0, epochs=100, usd_per_hour=2.5)
    assert (waits.message, other) == ("It waits. Over 100 epochs that is 1 h, $2.50 of the bill.", found[1])
    assert price_waits(found, idle_seconds=36.0, epochs=100)[0].message == "It waits. Over 100 epochs that is 1 h."


# What is not said


def test_a_model_of_which_nothing_is_said() -> None:
    model = RuntimeModel(title="x", method="robust", confidence=0.9, terms={"a": (1.0, 2.0), "b": (10.0, 20.0)})
    assert (model.low, model.high, model.has_interval) == ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), False)
    assert (model.first_validation_seconds, model.validation_seconds, model.validation_freq) == (0.0, 0.0, 1)
    assert (model.idle_seconds, model.repetitions, model.findings) == (0.0, (), ())
    assert (model.fixed_seconds, model.epoch_seconds, model.seconds(3)) == (11.0, 22.0, 77.0)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("batch_size", 1),
        ("examples", 1),
        ("partial_batch", 0),
        ("validation_examples", 0),
        ("validation_steps", 1),
        ("validation_freq", 1),
    ],
)
def test_the_least_of_every_size(name: str, least: int) -> None:
    assert getattr(Workload(**{name: least}), name) == least  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=name):
        Workload(**{name: least - 1})  # type: ignore[arg-type]


# Pauses


def pause(seconds: float, *, epoch: int = 0, batch: int = 1, whole_heap: bool | None = None) -> Pause:
    return Pause(cause="garbage collection", epoch=epoch, batch=batch, seconds=seconds, whole_heap=whole_heap)


@pytest.mark.parametrize(
    ("runs", "each", "once"),
    [
        ([[pause(2.0)]], [0.0, 0.0, 0.03], 2.0),
        ([[pause(2.0), pause(1.0)]], [0.15, 0.15 / math.sqrt(2), 0.15 / math.sqrt(2)], 0.0),  # twice is not more
        ([[pause(2.5), pause(1.0)]], [0.05, 0.05, math.hypot(0.05, 0.0375)], 2.5),
        ([[pause(4.0, batch=0, whole_heap=False), pause(1.0, whole_heap=False)]], [0.05, 0.05, 0.05], 4.0),
        ([[pause(4.0, whole_heap=True), pause(1.0, whole_heap=False)], []], [0.05, 0.05, math.hypot(0.05, 0.06)], 2.0),
        ([[pause(1.0, epoch=1, batch=0, whole_heap=False)]], [0.05, 0.05, 0.05], 0.0),
    ],
)
def test_pauses_by_how_they_recur(runs: Any, each: list[float], once: float) -> None:
    found = time_pauses(Readings(pauses=runs, steps_seen=20))
    assert [found.each.value, found.each.half_width_below, found.each.half_width_above] == pytest.approx(each)
    assert found.once == pytest.approx(once)
    assert time_pauses(Readings(pauses=runs)) == Pauses()


def test_squares_of_half_widths_add() -> None:
    spread = Spread()
    spread.add_sides(3.0, 2.0, once=2.0, per_epoch=5.0)
    assert (spread.low, spread.high) == ((36.0, 180.0, 225.0), (16.0, 80.0, 100.0))
    spread.add_noise(2.0, per_epoch=3.0)
    assert (spread.low, spread.high) == ((36.0, 192.0, 225.0), (16.0, 92.0, 100.0))
    spread.add_level(Level(9.0, 1.0, 2.0, 0.0), per_epoch=1.0)
    assert (spread.low, spread.high) == ((36.0, 192.0, 226.0), (16.0, 92.0, 104.0))
