"""What must hold of comparisons whatever the numbers: false alarms, power, symmetry. Seeded, so that chance repeats.

The full simulation, with 2,000 draws, is tests/benchmarks/comparison.py.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import vmselect as vs
from vmselect.comparison.significance import MIN_BLOCKS, block_length, block_means, compare_groups, correlation_time

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from comparisons import autoregressive

DRAWS = 400
MOST_ALARMS = 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS)
"""Three standard errors above 5 %."""

numbers = st.floats(min_value=0.001, max_value=1e6)
samples = st.lists(numbers, min_size=1, max_size=9)


def deal(values: tuple[float, ...], sizes: Sequence[int]) -> Iterator[list[tuple[float, ...]]]:
    """Every way to deal values out to groups of these sizes, but for the names of groups of one size."""
    if not sizes:
        yield []
        return
    size, *others = sizes
    fixed = 1 if all(other == size for other in others) else 0  # of equal groups, the first has the first value
    for rest in combinations(values[fixed:], size - fixed):
        mine = (*values[:fixed], *rest)
        left = tuple(value for value in values if value not in mine)
        yield from ([mine, *more] for more in deal(left, others))


@pytest.mark.parametrize("sizes", [(4, 4), (5, 5), (3, 2, 2), (2, 3, 3)])
def test_equal_groups_rarely_look_different(sizes: Sequence[int]) -> None:
    # Ranks are all that the test looks at, and equal groups make every arrangement of them equally likely.
    outcomes = [
        compare_groups(dict(zip("abc", groups, strict=False)), unit="runs", alpha=0.05).significant
        for groups in deal(tuple(map(float, range(1, sum(sizes) + 1))), sizes)
    ]
    assert any(outcomes)
    assert sum(outcomes) / len(outcomes) <= 0.05


def test_equal_groups_of_many_rarely_look_different() -> None:
    rng = np.random.default_rng(35)
    alarms = sum(
        compare_groups({name: list(rng.lognormal(0, 0.2, 5)) for name in "abc"}, unit="runs", alpha=0.05).significant
        for _ in range(DRAWS)
    )
    assert alarms / DRAWS <= MOST_ALARMS


def test_correlated_steps_fool_a_naive_test_but_not_blocks() -> None:
    rng = np.random.default_rng(1)
    naive = blocks = 0
    for _ in range(DRAWS):
        first, second = (list(autoregressive(rng, count=400, coefficient=0.7)) for _ in range(2))
        naive += stats.kruskal(first, second).pvalue < 0.05
        length = block_length([first, second])
        values = {"first": block_means(first, length=length), "second": block_means(second, length=length)}
        if min(map(len, values.values())) >= MIN_BLOCKS:
            blocks += compare_groups(values, unit="blocks", alpha=0.05).significant
    assert naive / DRAWS > 0.25
    assert blocks / DRAWS <= MOST_ALARMS


def test_real_differences_are_found() -> None:
    rng = np.random.default_rng(2)
    detected = sum(
        vs.compare({"a": rng.normal(1.0, 0.03, 5), "b": rng.normal(1.1, 0.03, 5)}).test.significant for _ in range(100)
    )
    assert detected >= 90


@pytest.mark.parametrize(("coefficient", "expected"), [(0.0, 1.0), (0.5, 3.0), (0.8, 9.0)])
def test_the_correlation_time_is_that_of_the_process(coefficient: float, expected: float) -> None:
    rng = np.random.default_rng(3)
    times = [correlation_time(autoregressive(rng, count=4_000, coefficient=coefficient)) for _ in range(10)]
    assert np.mean(times) == pytest.approx(expected, rel=0.25)


@settings(max_examples=40, deadline=None)
@given(first=samples, second=samples)
def test_any_two_groups_have_an_answer(first: list[float], second: list[float]) -> None:
    c = vs.compare({"a": first, "b": second}, metric="seconds")
    assert c.verdict
    assert c.to_json()
    swapped = vs.compare({"b": second, "a": first}, metric="seconds")
    assert swapped.test.p_value == c.test.p_value
    assert set(c.order) == {"a", "b"}
    ratio = c.groups["ratio"].iloc[1]
    assert ratio == pytest.approx(np.mean(second) / np.mean(first))
    low, high = c.groups["ratio_low"].iloc[1], c.groups["ratio_high"].iloc[1]
    assert math.isnan(low) or low <= ratio * (1 + 1e-9) <= high * (1 + 1e-8)


@settings(max_examples=30, deadline=None)
@given(values=st.lists(numbers, min_size=4, max_size=6), factor=st.floats(min_value=0.01, max_value=100))
def test_the_unit_does_not_matter(values: list[float], factor: float) -> None:
    other = [value * 1.5 + 1 for value in values]
    plain = vs.compare({"a": values, "b": other})
    scaled = vs.compare({"a": [v * factor for v in values], "b": [v * factor for v in other]})
    assert scaled.groups["percent"].iloc[1] == pytest.approx(plain.groups["percent"].iloc[1], rel=1e-6)
