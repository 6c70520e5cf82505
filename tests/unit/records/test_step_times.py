"""One definition of the seconds per step, and of the warm-up before them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.comparison.runs import METRICS, Terms
from vmselect.estimation.readings import locate
from vmselect.records import Profile, Step, Steps
from vmselect.records.step_times import detect_warmup, find_warmup, step_seconds, typical_step_seconds


def make(times: list[float], *, covers: int = 1, instance_type: str = "g4dn.xlarge") -> Profile:
    profile = Profile.from_times(
        instance_type=instance_type, batch_size=8, steps_per_epoch=100, iteration_seconds=[1.0], epochs=2
    )
    rows = [Step(0, number * covers, seconds, covers, "steady") for number, seconds in enumerate(times)]
    timeline = profile.timeline.model_copy(update={"steps": Steps.of(rows)})
    return profile.model_copy(update={"timeline": timeline})


def test_slow_steps_that_recur_count() -> None:
    assert step_seconds(make([0.1] * 18 + [0.5, 0.5])) == pytest.approx(0.14)


def test_a_lone_stall_does_not_count() -> None:
    assert step_seconds(make([0.1] * 19 + [5.0])) == pytest.approx(0.1)


def test_half_of_an_uncertain_stall_counts() -> None:
    assert step_seconds(make([0.1] * 19 + [0.5])) == pytest.approx(0.11)


def test_readings_of_several_steps_count_by_step() -> None:
    assert step_seconds(make([0.5] * 6, covers=5)) == pytest.approx(0.1)


def test_epochs_replace_steps_that_were_not_recorded() -> None:
    profile = Profile.from_times(
        batch_size=8, steps_per_epoch=100, first_epoch_seconds=60, later_epoch_seconds=[10, 20]
    )
    assert step_seconds(profile) == pytest.approx(0.15)


def test_nothing_measured_has_no_step_time() -> None:
    assert step_seconds(Profile.from_times(batch_size=8, total_seconds=[5.0], epochs=2)) is None
    assert typical_step_seconds([]) is None


def test_a_disturbed_repetition_does_not_change_the_typical_step() -> None:
    assert typical_step_seconds([make([0.1]), make([0.1]), make([9.0])]) == pytest.approx(0.1)


def test_everything_that_names_the_step_time_gives_the_same_number(tmp_path: Path) -> None:
    times = [0.1, 0.11, 0.1, 0.12, 0.1, 0.4, 0.1, 0.1, 0.4, 3.0]
    profile = make(times)
    expected = locate(times).value
    assert step_seconds(profile) == expected
    assert METRICS["step_seconds"].read(profile, Terms()) == expected
    profile.save(tmp_path)
    assert vs.history(tmp_path).to_frame(["step_seconds"]).step_seconds.tolist() == [expected]
    assert vs.predict(profile, machines=["g4dn.xlarge"]).step_seconds.tolist() == [expected]


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([], 0),
        ([1.0], 0),
        ([5.0, 1.0, 1.0], 0),  # too few to know what is steady
        ([9.0, 1.0, 1.0, 1.0], 1),
        ([9.0, 9.0, 1.0, 1.0], 2),
        ([9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 1.0], 3),
        ([1.0] * 20, 0),
        ([5.0, 3.0] + [1.0] * 20, 2),
        ([0.2, 0.2, 0.2] + [1.0] * 20, 3),  # prefetched input that runs out
        ([1.0, 9.0] + [1.0] * 20, 0),  # one slow step is no warm-up
        ([9.0, 1.0, 9.0] + [1.0] * 20, 1),
        ([2.0] * 10 + [1.0] * 10, 10),
        ([2.0] * 15 + [1.0] * 5, 0),  # more than half
        ([0.0] * 10, 0),
        ([1.19] + [1.0] * 5, 0),  # within a fifth of the level
        ([1.21] + [1.0] * 5, 1),
        ([0.81] + [1.0] * 5, 0),
        ([0.79] + [1.0] * 5, 1),
        # The second half deviates by 0.1 from its median, which is a noise of 0.14826.
        ([1.59, 1.0, 1.0, 1.0, 1.0, 0.9, 0.9, 1.0, 1.1, 1.1], 0),
        ([1.60, 1.0, 1.0, 1.0, 1.0, 0.9, 0.9, 1.0, 1.1, 1.1], 1),
    ],
)
def test_known_shapes(readings: list[float], expected: int) -> None:
    assert detect_warmup(readings) == expected
    count = len(readings)
    columns = [0] + [1] * count, [5.0, *(2 * one for one in readings)], [1] + [2] * count
    assert find_warmup(*columns, ["first"] + ["steady"] * count) == set(range(1, expected + 1))


def test_noise_is_not_warm_up() -> None:
    rng = random.Random(1)
    alarms = sum(bool(detect_warmup([rng.lognormvariate(0, 0.15) for _ in range(20)])) for _ in range(1_000))
    assert alarms < 100
