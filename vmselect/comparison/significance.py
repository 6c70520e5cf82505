"""Statistics of groups of independent values: summaries, ratios with intervals, and tests.

The tests are those of scipy: Kruskal-Wallis for all groups together, Mann-Whitney for each pair of groups. Both test
whether the values of one group are larger than those of another more often than by chance. They assume no distribution,
so that a single slow run does not dominate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmselect.intervals import Interval
from vmselect.units import list_all

Floats = NDArray[np.float64]

RESAMPLES = 9_999
MIN_FOR_INTERVAL = 3
"""Minimum number of values per group for a bootstrap interval."""

MAX_ARRANGEMENTS = 20_000
"""Maximum number of ways to assign values to groups for which a permutation test tries all ways."""

RANDOM_ARRANGEMENTS = 9_999
EXACT_PAIR = 200
"""Maximum number of values in two groups together for which Mann-Whitney's exact distribution is used."""

ENOUGH_FOR_APPROXIMATION = 5
"""Number of values in each of three or more groups from which the chi-square approximation is conservative."""


@dataclass(frozen=True)
class Summary:
    """Count, mean, standard deviation (None for one value), median and quartiles of a group."""

    count: int
    mean: float
    sd: float | None
    minimum: float
    quartile_1: float
    median: float
    quartile_3: float
    maximum: float


def summarize(values: Sequence[float]) -> Summary:
    """Compute the :class:`Summary` of finite ``values``."""
    data = np.asarray(values, dtype=float)
    sd = float(data.std(ddof=1)) if len(data) > 1 else None
    return Summary(len(data), math.fsum(data) / len(data), sd, *np.quantile(data, [0, 0.25, 0.5, 0.75, 1]).tolist())


def ratio_of_means(
    values: Sequence[float], base: Sequence[float], *, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Interval[float]:
    """The mean of ``values`` divided by the mean of ``base``, with a bootstrap interval (nan for too few values).

    A percentile interval of few values is too narrow, because resamples vary less than samples do. The expanded
    percentile interval (Hesterberg 2015) therefore uses a higher confidence level, which matches Student's t for the
    smaller group. The random seed is fixed. The ratio is nan if a value is negative.
    """
    one, other = np.asarray(values, dtype=float), np.asarray(base, dtype=float)
    below = float(other.mean())
    if min(one.min(), other.min()) < 0:
        return Interval.exact(math.nan)
    if below == 0:
        return Interval(1.0 if float(one.mean()) == 0 else math.nan, math.nan, math.nan)
    value = float(one.mean()) / below
    fewest = min(len(one), len(other))
    if fewest < MIN_FOR_INTERVAL:
        return Interval(value, math.nan, math.nan)
    if np.ptp(one) == 0 and np.ptp(other) == 0:
        return Interval.exact(value)
    from scipy.stats import bootstrap

    found = bootstrap(
        (one, other),
        lambda a, b, axis=-1: a.mean(axis=axis) / b.mean(axis=axis),
        vectorized=True,
        n_resamples=resamples,
        confidence_level=_expanded(confidence, fewest),
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return Interval(value, float(found.confidence_interval.low), float(found.confidence_interval.high))


def _expanded(confidence: float, count: int) -> float:
    """The confidence level at which a percentile interval of ``count`` values really covers ``confidence``."""
    from scipy.special import ndtr, stdtrit

    width = float(stdtrit(count - 1, 0.5 + confidence / 2)) * math.sqrt(count / (count - 1))
    # scipy does not accept a level of exactly 1.
    return min(1 - 1e-9, 2 * float(ndtr(width)) - 1)


@dataclass(frozen=True)
class GroupTest:
    """The result of a test whether any group differs from the others.

    ``p_value`` is the chi-square approximation of Kruskal-Wallis, which is too low for few values: for three and three
    values that do not overlap it is 0.0495 instead of 0.1. ``exact_p_value`` is computed by permutation if this is
    feasible, and is then used for the decision. If there are too few values for a significant result, both are None,
    and ``reason`` explains why.
    """

    name: str
    statistic: float | None
    p_value: float | None
    exact_p_value: float | None
    unit: str
    alpha: float
    reason: str | None = None

    @property
    def deciding_p_value(self) -> float | None:
        """The exact p value if it was computed, else the approximate p value."""
        return self.p_value if self.exact_p_value is None else self.exact_p_value

    @property
    def significant(self) -> bool:
        """Whether the groups differ at the significance level ``alpha``."""
        decided = self.deciding_p_value
        return decided is not None and decided < self.alpha

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __str__(self) -> str:
        if self.p_value is None:
            return f"no test: {self.reason}"
        exact = "" if self.exact_p_value is None else f", exact {format_p(self.exact_p_value)}"
        return f"{self.name} H = {self.statistic:.4g}, {format_p(self.p_value)}{exact} (unit: {self.unit})"


@dataclass(frozen=True)
class Pair:
    """The Mann-Whitney test of two groups: U of the first group, p value, Holm-adjusted p value, and effect size."""

    first: str
    second: str
    statistic: float | None
    p_value: float | None
    p_adjusted: float | None
    effect_size: float
    """Cliff's delta, from -1 to 1."""


def compare_groups(groups: Mapping[str, Sequence[float]], *, unit: str, alpha: float) -> GroupTest:
    """Test groups of independent finite values with Kruskal-Wallis."""
    name = "Kruskal-Wallis"
    reason = too_few(groups, unit=unit, alpha=alpha)
    if reason:
        return GroupTest(name, None, None, None, unit, alpha, reason)
    samples = [np.asarray(values, dtype=float) for values in groups.values()]
    if np.ptp(np.concatenate(samples)) == 0:
        return GroupTest(name, 0.0, 1.0, None, unit, alpha)
    from scipy.stats import kruskal

    found = kruskal(*samples)
    exact = _exact(samples)
    return GroupTest(name, float(found.statistic), float(found.pvalue), exact, unit, alpha)


def compare_pairs(
    groups: Mapping[str, Sequence[float]], *, unit: str, alpha: float, testable: bool = True
) -> list[Pair]:
    """Test every pair of groups, with Holm's correction for all pairs that could be tested."""
    rows: list[Pair] = []
    for first, second in itertools.combinations(groups, 2):
        a, b = groups[first], groups[second]
        statistic = p_value = None
        if testable and too_few({first: a, second: b}, unit=unit, alpha=alpha) is None:
            statistic, p_value = _mann_whitney(tuple(a), tuple(b))
        rows.append(Pair(first, second, statistic, p_value, None, cliffs_delta(a, b)))
    adjusted = iter(holm([row.p_value for row in rows if row.p_value is not None]))
    return [row if row.p_value is None else replace(row, p_adjusted=next(adjusted)) for row in rows]


def too_few(groups: Mapping[str, Sequence[float]], *, unit: str, alpha: float) -> str | None:
    """Text: why groups are too small to differ significantly even without overlap; None if they are large enough.

    >>> too_few({"a": [1, 2, 3.0], "b": [4, 5, 6.0]}, unit="runs", alpha=0.05)
    'with 3 and 3 runs, groups without overlap occur by chance in 10 % of cases'
    >>> too_few({"a": [1, 2, 3, 4.0], "b": [4, 5, 6, 7.0]}, unit="runs", alpha=0.05)
    """
    if len(groups) < 2:
        return "there is only one group"
    sizes = [len(values) for values in groups.values()]
    counts = f"{list_all(sizes)} {unit}"
    if min(sizes) < 2:
        return f"with {counts}, the spread of repetitions is unknown"
    least = math.factorial(len(sizes)) / arrangements(sizes)
    if least > alpha:
        return f"with {counts}, groups without overlap occur by chance in {100 * least:.0f} % of cases"
    return None


def arrangements(sizes: Sequence[int]) -> int:
    """Number of ways to assign values to groups of these ``sizes``."""
    return math.factorial(sum(sizes)) // math.prod(map(math.factorial, sizes))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values for the number of tests by Holm's method.

    >>> [round(p, 4) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def cliffs_delta(first: Sequence[float], second: Sequence[float]) -> float:
    """Share of pairs of values in which the value of ``first`` is larger, minus the share in which it is smaller.

    >>> cliffs_delta([1, 2], [3, 4]), cliffs_delta([1, 2], [1, 2])
    (-1.0, 0.0)
    """
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([np.asarray(first, dtype=float), np.asarray(second, dtype=float)]))
    above = ranks[: len(first)].sum() - len(first) * (len(first) + 1) / 2
    return float(2 * above / (len(first) * len(second)) - 1)


def format_p(p_value: float) -> str:
    """Format a p value.

    >>> format_p(0.03124), format_p(1e-9)
    ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def _pair_method(a: Sequence[float], b: Sequence[float]) -> Any:
    """Argument ``method`` for scipy: exact without ties, all permutations if few, else the normal approximation."""
    from scipy.stats import PermutationMethod

    together = [*a, *b]
    if len(set(together)) == len(together) and len(together) <= EXACT_PAIR:
        return "exact"
    if arrangements([len(a), len(b)]) <= MAX_ARRANGEMENTS:
        return PermutationMethod(n_resamples=MAX_ARRANGEMENTS)
    return "asymptotic"


@lru_cache(maxsize=64)
def _mann_whitney(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float]:
    """Mann-Whitney's U and its p value. Cached, because the test of all groups and the test of pairs both use it."""
    from scipy.stats import mannwhitneyu

    found = mannwhitneyu(a, b, method=_pair_method(a, b))
    return float(found.statistic), float(found.pvalue)


def _exact(samples: Sequence[Floats]) -> float | None:
    """The exact p value by permutation, or None if the groups are large enough for the approximation."""
    sizes = [len(sample) for sample in samples]
    if len(samples) == 2:
        one, other = (tuple(sample.tolist()) for sample in samples)
        return None if _pair_method(one, other) == "asymptotic" else _mann_whitney(one, other)[1]
    if min(sizes) >= ENOUGH_FOR_APPROXIMATION:
        return None
    from scipy.stats import permutation_test, rankdata

    ranks = rankdata(np.concatenate(samples))
    parts = np.split(ranks, np.cumsum(sizes)[:-1])

    def between(*groups: Floats, axis: int = -1) -> Floats:
        """The part of the Kruskal-Wallis statistic H that depends on the permutation."""
        return np.asarray(sum(group.sum(axis=axis) ** 2 / group.shape[axis] for group in groups))

    few = arrangements(sizes) <= MAX_ARRANGEMENTS
    found = permutation_test(
        parts,
        between,
        vectorized=True,
        n_resamples=MAX_ARRANGEMENTS if few else RANDOM_ARRANGEMENTS,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)
