"""Where warm-up ends."""

from __future__ import annotations

import random

import pytest

from vmselect.records.warmup import detect_warmup, find_warmup


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
