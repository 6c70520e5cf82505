"""Waits for the autotuner of a tf.data pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.profiles import probed
from vmselect.estimation.autotune_wait import (
    Waiting,
    count_pipelines,
    expect_share,
    expect_waiting,
    split_wait,
    weigh_evidence,
)
from vmselect.estimation.runtime import Waits
from vmselect.records.usage import Summary, Usage


@pytest.mark.parametrize(
    ("waited", "cut_short", "weights"),
    [
        (None, False, (0.0, 0.0, 0.0, 0.0)),
        (None, True, (0.0, 0.0, 0.0, 0.0)),
        (0, True, (0.0, 0.0, 0.0, 0.0)),
        (0, False, (0.0, 1.0, 0.0, 0.0)),
        (1, True, (2.0, 0.0, 0.0, 1.0)),
        (1, False, (1.0, 0.0, 0.0, 1.0)),
        (3, False, (1.0, 0.0, 2.0, 0.0)),
        (4, False, (1.0, 0.0, 2.0, 0.0)),  # one may just have missed a wake-up
    ],
)
def test_weights_of_a_boundary(waited: int | None, cut_short: bool, weights: tuple[float, ...]) -> None:
    assert weigh_evidence(waited, cut_short=cut_short, pipelines=3) == weights


def test_a_single_pipeline_gives_no_evidence_about_further_ones() -> None:
    assert weigh_evidence(1, cut_short=False) == (1.0, 0.0, 0.0, 0.0)


def test_pipelines_that_were_seen_to_wait_one_after_the_other_are_expected_to() -> None:
    mirrored = probed(
        environment={"replicas": 2, "usable_cores": 2}, timeline={"cpu_seconds": 2.0, "wall_seconds": 1.0}
    )

    def expect(*waited: int) -> Waiting:
        evidence = [weigh_evidence(number, cut_short=False, pipelines=3) for number in waited]
        return expect_waiting(mirrored, evidence, [(1.0, 1.0)], confidence=0.9)

    unknown, once, often = expect(), expect(1, 1), expect(3, 3)
    assert once.each.value < unknown.each.value < often.each.value
    # All three pipelines wait after an epoch of a second: until 5.11 s.
    assert unknown.each.value + unknown.each.half_width_above > 0.9 * 3.0
    assert often.each.value == pytest.approx(0.95 * 4.0, rel=0.3)


@pytest.mark.parametrize(("replicas", "pipelines"), [(1, 1), (2, 3), (3, 3), (8, 3)])
def test_pipelines_of_so_many_devices(replicas: int, pipelines: int) -> None:
    assert count_pipelines(probed(environment={"replicas": replicas})) == pipelines


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
    waits = Waits(mean_seconds=36.0, longest_seconds=60.0, often=0.6, epoch_seconds=300.0)
    whole = waits.describe("a", 100, 2.5)
    assert (whole.code, whole.severity) == ("waits-between-epochs", "warning")
    assert all(text in whole.message for text in ("100 epochs", "1 h", "$2.50"))
    assert "$" not in waits.describe("a", 100, None).message
    assert "epochs the waits" not in waits.describe("a", None, None).message
    assert waits.are_long
    assert waits.scaled(2.0) == Waits(72.0, 120.0, 0.6, 600.0)


@pytest.mark.parametrize(
    ("lost", "pipeline", "wait", "waited"),
    [
        (0.0, 1.0, 0.0, 0),
        (0.13, 1.0, 0.0, 0),
        (0.14, 1.0, 0.14, 1),  # the pipeline may have run for longer than a second
        (0.26, 1.0, 0.26, 1),
        (0.50, 1.0, 0.27, 1),  # the rest is other work
        (0.57, 1.39, 0.0, 0),
        (0.60, 1.39, 0.0, None),  # more than half of the wait, but too short for a pipeline of about 1.39 s
        (0.87, 1.39, 0.0, None),
        (0.89, 1.39, 0.89, 1),
        (1.01, 1.39, 1.01, 1),  # not a boundary and a wait
    ],
)
def test_what_of_a_boundary_was_a_wait(lost: float, pipeline: float, wait: float, waited: int | None) -> None:
    # Wake-ups are at 1.27 s and 2.55 s.
    assert split_wait(lost, pipeline) == (pytest.approx(wait), waited)


def test_where_the_wait_is_unknown_or_too_short_to_tell() -> None:
    assert split_wait(5.0, None) == (0.0, None)
    assert split_wait(0.05, 1.22) == (0.0, None)  # 0.05 s to the next wake-up
    assert split_wait(0.08, 1.19)[1] == 1


def test_a_pipeline_may_just_have_missed_a_wake_up() -> None:
    assert split_wait(2.7, 2.3) == (2.7, 2)  # until 5.11 s instead of 2.55 s
    assert split_wait(1.3, 2.3)[1] == 1  # until 2.55 s, and a second of other work
    assert split_wait(2.0, 2.3) == (0.0, None)  # too long for the one, too short for the other
    assert split_wait(2.7, 1.6) == (pytest.approx(0.95), 1)  # too far from 2.55 s to have missed it
