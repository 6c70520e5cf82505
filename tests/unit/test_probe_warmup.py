"""Where warm-up ends."""

from __future__ import annotations

import random

import pytest

from vmselect.records.warmup import detect_warmup


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([], 0),
        ([1.0], 0),
        ([5.0, 1.0, 1.0], 0),  # too few to say what is steady
        ([1.0] * 20, 0),
        ([5.0, 3.0] + [1.0] * 20, 2),
        ([0.2, 0.2, 0.2] + [1.0] * 20, 3),  # prefetched input that runs out
        ([1.0, 9.0] + [1.0] * 20, 0),  # one slow step is no warm-up
        ([9.0, 1.0, 9.0] + [1.0] * 20, 1),
        ([2.0] * 10 + [1.0] * 10, 10),
        ([2.0] * 15 + [1.0] * 5, 0),  # more than half: no saying which is which
        ([0.0] * 10, 0),
    ],
)
def test_known_shapes(readings: list[float], expected: int) -> None:
    assert detect_warmup(readings) == expected


def test_noise_is_not_warm_up() -> None:
    rng = random.Random(1)
    alarms = sum(bool(detect_warmup([rng.lognormvariate(0, 0.15) for _ in range(20)])) for _ in range(1_000))
    assert alarms < 100


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (1.19, 0),  # within a fifth of the level
        (1.21, 1),
        (0.81, 0),
        (0.79, 1),  # prefetched input may make the first steps shorter, too
    ],
)
def test_steps_stand_apart_from_a_fifth_of_the_level_on(first: float, expected: int) -> None:
    assert detect_warmup([first, 1.0, 1.0, 1.0, 1.0, 1.0]) == expected


@pytest.mark.parametrize(("first", "expected"), [(1.59, 0), (1.60, 1)])
def test_steps_stand_apart_from_four_times_the_noise_on(first: float, expected: int) -> None:
    # The second half deviates by 0.1 from its median, which makes a noise of 0.14826 as of a normal distribution.
    assert detect_warmup([first, 1.0, 1.0, 1.0, 1.0, 0.9, 0.9, 1.0, 1.1, 1.1]) == expected


def test_three_readings_tell_nothing_and_four_do() -> None:
    assert detect_warmup([9.0, 1.0, 1.0]) == 0
    assert detect_warmup([9.0, 1.0, 1.0, 1.0]) == 1
    assert detect_warmup([9.0, 9.0, 1.0, 1.0]) == 2
