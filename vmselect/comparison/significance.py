"""Statistics of a comparison: summaries, ratios with intervals, tests of groups, and level shifts inside runs.

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
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from vmselect.comparison.runs import Levels, Run
from vmselect.intervals import Interval
from vmselect.units import list_all

if TYPE_CHECKING:
    from scipy.stats import PermutationMethod

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
    above, below = np.asarray(values, dtype=float), np.asarray(base, dtype=float)
    if min(above.min(), below.min()) < 0:
        return Interval.exact(math.nan)
    divisor = float(below.mean())
    if divisor == 0:
        return Interval(1.0 if float(above.mean()) == 0 else math.nan, math.nan, math.nan)
    value = float(above.mean()) / divisor
    fewest = min(len(above), len(below))
    if fewest < MIN_FOR_INTERVAL:
        return Interval(value, math.nan, math.nan)
    if np.ptp(above) == 0 and np.ptp(below) == 0:
        return Interval.exact(value)
    from scipy.stats import bootstrap

    result = bootstrap(
        (above, below),
        lambda a, b, axis=-1: a.mean(axis=axis) / b.mean(axis=axis),
        vectorized=True,
        n_resamples=resamples,
        confidence_level=_expanded(confidence, fewest),
        method="percentile",
        rng=np.random.default_rng(0),
    )
    bounds = result.confidence_interval
    return Interval(value, float(bounds.low), float(bounds.high))


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

    def __getitem__(self, name: str) -> object:
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

    result = kruskal(*samples)
    return GroupTest(name, float(result.statistic), float(result.pvalue), _exact(samples), unit, alpha)


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


def _pair_method(a: Sequence[float], b: Sequence[float]) -> Literal["exact", "asymptotic"] | PermutationMethod:
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

    result = mannwhitneyu(a, b, method=_pair_method(a, b))
    return float(result.statistic), float(result.pvalue)


def _exact(samples: Sequence[Floats]) -> float | None:
    """The exact p value by permutation, or None if the groups are large enough for the approximation."""
    sizes = [len(sample) for sample in samples]
    if len(samples) == 2:
        # Kruskal-Wallis of two groups is the two-sided Mann-Whitney test, whose exact distribution is known.
        first, second = (tuple(sample.tolist()) for sample in samples)
        return None if _pair_method(first, second) == "asymptotic" else _mann_whitney(first, second)[1]
    if min(sizes) >= ENOUGH_FOR_APPROXIMATION:
        return None
    from scipy.stats import permutation_test, rankdata

    ranks = rankdata(np.concatenate(samples))
    parts = np.split(ranks, np.cumsum(sizes)[:-1])

    def between(*groups: Floats, axis: int = -1) -> Floats:
        """The part of the Kruskal-Wallis statistic H that depends on the permutation."""
        return np.asarray(sum(group.sum(axis=axis) ** 2 / group.shape[axis] for group in groups))

    few = arrangements(sizes) <= MAX_ARRANGEMENTS
    result = permutation_test(
        parts,
        between,
        vectorized=True,
        n_resamples=MAX_ARRANGEMENTS if few else RANDOM_ARRANGEMENTS,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


# -- within scenarios --------------------------------------------------------------------------------------------------
#
# Scenarios (combinations of other factors, such as data set and batch size) usually differ much more than the groups
# that are compared. Differences between scenarios are removed: the test permutes runs between groups only within each
# scenario (aligned ranks after Hodges and Lehmann), and the ratio of two groups is the geometric mean of their ratios
# in all scenarios.

Groups = Mapping[str, Sequence[Run]]

TEST_WITHIN = "Aligned ranks within scenarios"
PERMUTATIONS = 9_999
MAX_LABELS = 2_000_000
"""Maximum number of group labels that are permuted at once, to limit memory."""


@dataclass(frozen=True)
class Cells:
    """Runs of several groups as arrays. Scenarios that contain runs of one group only are left out."""

    names: tuple[str, ...]
    values: Floats
    group: NDArray[np.intp]
    scenario: NDArray[np.intp]

    @classmethod
    def of(cls, groups: Groups) -> Cells:
        """Make arrays of all runs whose scenario also contains runs of another group."""
        names: dict[Levels, set[str]] = {}
        for name, runs in groups.items():
            for run in runs:
                names.setdefault(run.scenario, set()).add(name)
        # A scenario with a single group says nothing about a difference between groups.
        shared = [scenario for scenario, members in names.items() if len(members) > 1]
        order = {scenario: number for number, scenario in enumerate(shared)}
        rows = [
            (run.value, number, order[run.scenario])
            for number, runs in enumerate(groups.values())
            for run in runs
            if run.scenario in order
        ]
        values, group, scenario = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(tuple(groups), np.array(values, float), np.array(group, np.intp), np.array(scenario, np.intp))

    @property
    def scenarios(self) -> int:
        """Number of scenarios."""
        return len(np.unique(self.scenario))

    def aligned(self) -> Floats:
        """The values minus the mean of their scenario; their logarithms are used if all values are positive."""
        values = np.log(self.values) if len(self.values) and self.values.min() > 0 else self.values
        totals, counts = (np.bincount(self.scenario, weights) for weights in (values, None))
        result: Floats = values - (totals / np.maximum(counts, 1))[self.scenario]
        return result

    def too_few(self, *, alpha: float) -> str | None:
        """Text: why there are too few runs for a significant result; None if there are enough."""
        if not len(self.values):
            return "no scenario has runs of two groups"
        ways = math.prod(
            arrangements(np.unique(self.group[self.scenario == scenario], return_counts=True)[1].tolist())
            for scenario in range(self.scenarios)
        )
        # With two groups, the mirrored assignment is as extreme, so the smallest two-sided p value is twice as large.
        least = 2 / ways if len(self.names) == 2 else 1 / ways
        if least > alpha:
            chance = f"{100 * min(1.0, least):.0f} % of cases"
            return (
                f"with {len(self.values)} runs in {self.scenarios} scenarios, groups without overlap occur by chance "
                f"in {chance}"
            )
        return None


def test_within(groups: Groups, *, alpha: float) -> GroupTest:
    """Test whether groups differ, by permuting runs between groups within each scenario."""
    cells = Cells.of(groups)
    reason = cells.too_few(alpha=alpha)
    if reason:
        return GroupTest(TEST_WITHIN, None, None, None, "runs", alpha, reason)
    statistic, p_value = _permute(cells)
    return GroupTest(TEST_WITHIN, statistic, p_value, None, "runs", alpha)


def _permute(cells: Cells) -> tuple[float, float]:
    """Statistic (about chi-square with number of groups - 1 degrees of freedom) and p value of the permutation test."""
    from scipy.stats import rankdata

    # Rounding makes values tie that differ only by the rounding error of subtracting the mean.
    ranks = rankdata(cells.aligned().round(12))
    ranks -= ranks.mean()
    counts = np.bincount(cells.group, minlength=len(cells.names))
    present = np.flatnonzero(counts)

    def between(labels: NDArray[np.intp]) -> Floats:
        """Sum of squares between groups, for each row of ``labels``."""
        sums = [((labels == group) @ ranks) ** 2 / counts[group] for group in present]
        total: Floats = np.sum(sums, axis=0)
        return total

    observed = float(between(cells.group[None, :])[0])
    rng = np.random.default_rng(0)
    blocks = [np.flatnonzero(cells.scenario == scenario) for scenario in range(cells.scenarios)]
    step = max(1, MAX_LABELS // len(ranks))
    parts: list[Floats] = []
    for start in range(0, PERMUTATIONS, step):
        labels = np.tile(cells.group, (min(step, PERMUTATIONS - start), 1))
        for block in blocks:
            labels[:, block] = rng.permuted(labels[:, block], axis=1)
        parts.append(between(labels))
    shuffled = np.concatenate(parts)
    expected = float(shuffled.mean())
    if expected == 0:
        return 0.0, 1.0
    # The observed assignment counts as one of the permutations, so that the p value is never 0.
    extreme = int((shuffled >= observed * (1 - 1e-9)).sum())
    return observed / expected * (len(present) - 1), (extreme + 1) / (PERMUTATIONS + 1)


def pairs_within(groups: Groups, *, alpha: float, testable: bool) -> list[Pair]:
    """Test every pair of groups within scenarios, with Holm's correction."""
    rows: list[Pair] = []
    for first, second in itertools.combinations(groups, 2):
        cells = Cells.of({first: groups[first], second: groups[second]})
        statistic = p_value = None
        if testable and cells.too_few(alpha=alpha) is None:
            statistic, p_value = _permute(cells)
        aligned = cells.aligned()
        delta = cliffs_delta(aligned[cells.group == 0], aligned[cells.group == 1]) if len(aligned) else 0.0
        rows.append(Pair(first, second, statistic, p_value, None, delta))
    adjusted = iter(holm([row.p_value for row in rows if row.p_value is not None]))
    return [row if row.p_value is None else replace(row, p_adjusted=next(adjusted)) for row in rows]


def ratio_within(runs: Sequence[Run], base: Sequence[Run], *, confidence: float) -> Interval[float]:
    """Geometric mean, over the common scenarios, of the ratio of ``runs`` to ``base``, with a Student t interval.

    The error is the spread of runs inside scenarios or, if each group has one run per scenario, the spread between
    scenarios. The ratio is nan if a value is not positive.
    """
    cells = Cells.of({"runs": runs, "base": base})
    if not len(cells.values) or cells.values.min() <= 0:
        return Interval.exact(math.nan)
    logs = np.log(cells.values)
    parts = [
        [logs[(cells.scenario == at) & (cells.group == group)] for group in (0, 1)] for at in range(cells.scenarios)
    ]
    differences = np.array([a.mean() - b.mean() for a, b in parts])
    center, count = float(differences.mean()), len(parts)
    freedom = sum(len(part) - 1 for pair in parts for part in pair)
    if freedom:
        squares = math.fsum(float(((part - part.mean()) ** 2).sum()) for pair in parts for part in pair)
        variance = squares / freedom * math.fsum(1 / len(a) + 1 / len(b) for a, b in parts) / count**2
    elif count > 1:
        freedom, variance = count - 1, float(differences.var(ddof=1)) / count
    else:
        return Interval(math.exp(center), math.nan, math.nan)
    from scipy.special import stdtrit

    width = float(stdtrit(freedom, 0.5 + confidence / 2)) * math.sqrt(variance)
    return Interval(math.exp(center), math.exp(center - width), math.exp(center + width))


# -- readings inside a run ---------------------------------------------------------------------------------------------
#
# Steps of one run are autocorrelated: a slow step is followed by slow steps. A test that assumes independence finds
# differences where there are none. Means of blocks several correlation times long are nearly independent.
#
# A level shift is where the readings change from one level to another and stay there: a shared machine gets a
# neighbor, a clock is lowered, burst credit is used up. The test is a cumulative sum of ranks (after Pettitt), so that
# single slow steps do not dominate. It uses the spread of an autocorrelated series, so that drift does not count as a
# shift.

WINDOW = 5.0
"""Autocorrelation is summed over this many correlation times (Sokal's rule), because it is mostly noise beyond that."""

BLOCK_TIMES = 5.0
"""Length of a block in correlation times. On autoregressive series of 40 to 1,000 readings, 4 to 6 kept the rate of
false alarms at 5 %, and longer blocks left more series without a test; see tests/benchmarks/comparison.py."""

MIN_BLOCKS = 5
"""Minimum number of blocks, because the spread of fewer blocks cannot be estimated."""

MIN_PART = 8
"""Minimum number of readings on each side of a level shift."""

MIN_CHANGE = 0.02
"""Smallest relative change of the level that is reported."""

MAX_SHIFTS = 8

MARGIN = 1.0
"""Number of standard errors that are added to the estimated autocorrelation."""


def correlation_time(values: Sequence[float] | Floats) -> float:
    """Number of successive readings that contain as much information as one independent reading; at least 1."""
    series = np.asarray(values, dtype=float)
    count = len(series)
    if count < 3:
        return 1.0
    centred = series - series.mean()
    power = float(centred @ centred)
    if power <= 1e-24 * count * max(1e-300, float(np.abs(series).max())) ** 2:
        return 1.0
    spectrum = np.fft.rfft(centred, 2 * count)
    correlation = np.fft.irfft(spectrum * np.conj(spectrum))[:count] / power
    sums = np.concatenate([[1.0], 1 + 2 * np.cumsum(correlation[1:])])
    beyond = np.flatnonzero(np.arange(count) >= WINDOW * sums)
    window = int(beyond[0]) if len(beyond) else count - 1
    # Subtracting the mean of a short series lowers its apparent correlation: correct for it.
    short = 1 + min(1.0, (2 * window + 1) / count)
    return max(1.0, float(sums[window]) * (short if sums[window] > 1 else 1.0))


def block_length(many: Sequence[Sequence[float]]) -> int:
    """Number of readings per block, chosen for the most autocorrelated of ``many`` series."""
    return math.ceil(BLOCK_TIMES * max((correlation_time(values) for values in many), default=1.0))


def block_means(values: Sequence[float], *, length: int) -> list[float]:
    """Means of blocks of ``length`` successive readings. Surplus readings at the start are dropped.

    >>> block_means([9.0, 1.0, 3.0, 5.0, 7.0], length=2)
    [2.0, 6.0]
    """
    blocks = len(values) // length
    # The start of a run is the part that is most likely not yet at its level.
    start = len(values) - blocks * length
    return [math.fsum(values[start + i * length : start + (i + 1) * length]) / length for i in range(blocks)]


@dataclass(frozen=True)
class Shift:
    """A level shift after reading number ``after``; the first reading has number 1."""

    after: int
    before: float
    then: float
    p_value: float

    @property
    def percent(self) -> float:
        """The difference between the new and the old level in percent."""
        return 100 * (self.then / self.before - 1) if self.before else math.nan


def find_shifts(values: Sequence[float], *, alpha: float = 0.01) -> tuple[Shift, ...]:
    """The level shifts in a chronological series of ``values``, with a false-alarm rate of about ``alpha``.

    The false-alarm rate is up to ten times as high if the correlation time is a tenth of the length of the series.
    """
    series = np.asarray(values, dtype=float)
    edges = [0, len(series)]
    p_values: dict[int, float] = {}
    waiting = [(0, len(series))]
    while waiting and len(p_values) < MAX_SHIFTS:
        start, end = waiting.pop()
        where, p_value = _best_split(series[start:end])
        if where and p_value < alpha:
            p_values[start + where] = p_value
            edges.append(start + where)
            waiting += [(start, start + where), (start + where, end)]
    edges = sorted(edges)
    levels = [float(np.median(series[a:b])) if b > a else math.nan for a, b in itertools.pairwise(edges)]
    shifts = [
        Shift(after=edge, before=levels[i], then=levels[i + 1], p_value=p_values[edge])
        for i, edge in enumerate(edges[1:-1])
    ]
    return tuple(shift for shift in shifts if abs(shift.then - shift.before) > MIN_CHANGE * abs(shift.before))


def _best_split(series: Floats) -> tuple[int, float]:
    """The index at which the parts of the series before and after differ most, and the p value of the difference."""
    from scipy.special import kolmogorov
    from scipy.stats import rankdata

    count = len(series)
    if count < 2 * MIN_PART:
        return 0, 1.0
    ranks = rankdata(series) - (count + 1) / 2
    sums = np.cumsum(ranks)[:-1]
    inner = slice(MIN_PART - 1, count - MIN_PART)
    at = int(np.argmax(np.abs(sums[inner]))) + MIN_PART
    # The spread of each part about its own level: a shift is not part of the noise.
    rest = np.concatenate([ranks[:at] - ranks[:at].mean(), ranks[at:] - ranks[at:].mean()])
    spread = math.sqrt(float(rest @ rest) / (count - 2) * _cautious_correlation_time(ranks, rest))
    if spread == 0:
        return (at, 0.0) if sums[at - 1] else (0, 1.0)
    return at, float(kolmogorov(abs(sums[at - 1]) / (spread * math.sqrt(count))))


def _cautious_correlation_time(ranks: Floats, rest: Floats) -> float:
    """An upper estimate of the correlation time.

    The coefficient c of a first-order autoregressive process is estimated in two ways. The residuals from two levels
    underestimate it if the series drifts. The differences between successive readings have the lag-1 autocorrelation
    (c - 1) / 2. The larger estimate plus its standard error is used.
    """
    steps = np.diff(ranks)
    power = float(steps @ steps)
    by_steps = 1 + 2 * float(steps[1:] @ steps[:-1]) / power if power else 0.0
    power = float(rest @ rest)
    by_rest = float(rest[1:] @ rest[:-1]) / power if power else 0.0
    coefficient = min(0.98, max(by_steps, by_rest, 0.0) + MARGIN / math.sqrt(len(ranks)))
    return max(correlation_time(rest), (1 + coefficient) / (1 - coefficient))
