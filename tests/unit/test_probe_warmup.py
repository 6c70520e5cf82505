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
