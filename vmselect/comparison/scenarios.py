"""Comparison within scenarios, and checks of the order in which runs were made.

Scenarios (combinations of other factors, such as data set and batch size) usually differ much more than the groups that
are compared. Differences between scenarios are removed: the test permutes runs between groups only within each scenario
(aligned ranks after Hodges and Lehmann), and the ratio of two groups is the geometric mean of their ratios in all
scenarios.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vmselect.comparison.runs import Levels, Run
from vmselect.comparison.significance import GroupTest, Pair, arrangements, cliffs_delta, holm
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.units import list_some

Floats = NDArray[np.float64]
Groups = Mapping[str, Sequence[Run]]

TEST = "Aligned ranks within scenarios"
PERMUTATIONS = 9_999
MAX_LABELS = 2_000_000
"""Maximum number of group labels that are permuted at once, to limit memory."""

MIN_RUNS_FOR_DRIFT = 8
DRIFT_ALPHA = 0.01
MAX_CHANCE_OF_ORDER = 0.2
"""Runs one group after the other are reported if a random order has that form with a lower probability. Two groups of
three runs are reported, two groups of two runs are not."""


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
        seen: dict[Levels, set[str]] = {}
        for name, runs in groups.items():
            for run in runs:
                seen.setdefault(run.scenario, set()).add(name)
        order = {scenario: number for number, scenario in enumerate(s for s, who in seen.items() if len(who) > 1)}
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
            arrangements(np.unique(self.group[self.scenario == one], return_counts=True)[1].tolist())
            for one in range(self.scenarios)
        )
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
        return GroupTest(TEST, None, None, None, "runs", alpha, reason)
    statistic, p_value = _permute(cells)
    return GroupTest(TEST, statistic, p_value, None, "runs", alpha)


def _permute(cells: Cells) -> tuple[float, float]:
    """Statistic (about chi-square with number of groups - 1 degrees of freedom) and p value of the permutation test."""
    from scipy.stats import rankdata

    ranks = rankdata(cells.aligned().round(12))
    ranks -= ranks.mean()
    counts = np.bincount(cells.group, minlength=len(cells.names))
    present = np.flatnonzero(counts)

    def between(labels: NDArray[np.intp]) -> Floats:
        """Sum of squares between groups, for each row of ``labels``."""
        sums = [((labels == one) @ ranks) ** 2 / counts[one] for one in present]
        total: Floats = np.sum(sums, axis=0)
        return total

    observed = float(between(cells.group[None, :])[0])
    rng = np.random.default_rng(0)
    blocks = [np.flatnonzero(cells.scenario == one) for one in range(cells.scenarios)]
    step = max(1, MAX_LABELS // len(ranks))
    found: list[Floats] = []
    for start in range(0, PERMUTATIONS, step):
        labels = np.tile(cells.group, (min(step, PERMUTATIONS - start), 1))
        for block in blocks:
            labels[:, block] = rng.permuted(labels[:, block], axis=1)
        found.append(between(labels))
    shuffled = np.concatenate(found)
    expected = float(shuffled.mean())
    if expected == 0:
        return 0.0, 1.0
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


def ratio_within(one: Sequence[Run], other: Sequence[Run], *, confidence: float) -> Interval[float]:
    """Geometric mean, over the common scenarios, of the ratio of two groups, with a Student t interval.

    The error is the spread of runs inside scenarios or, if each group has one run per scenario, the spread between
    scenarios. The ratio is nan if a value is not positive.
    """
    cells = Cells.of({"one": one, "other": other})
    unknown = Interval.exact(math.nan)
    if not len(cells.values) or cells.values.min() <= 0:
        return unknown
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


def find_incomplete(groups: Groups, name: str) -> list[Finding]:
    """A finding if some groups have no run in some scenarios; ``name`` describes the scenarios."""
    scenarios = {run.scenario for runs in groups.values() for run in runs}
    lacking = [group for group, runs in groups.items() if len({run.scenario for run in runs}) < len(scenarios)]
    if not lacking:
        return []
    message = (
        f"{list_some(lacking, 4)}: not every combination of {name} was measured, so only common combinations are "
        "compared."
    )
    return [Finding("incomplete-scenarios", message, "Measure all groups in all combinations.", "info")]


def find_order(groups: Groups, noun: str) -> list[Finding]:
    """Findings about runs that were made one group after the other, and about a trend over time."""
    dated = [(run.moment, name, run) for name, runs in groups.items() for run in runs if run.moment is not None]
    dated.sort(key=lambda one: one[0])
    if len({moment for moment, _, _ in dated}) < max(2, len(dated)):
        return []  # some times are unknown or equal
    names = [name for _, name, _ in dated]
    sizes = [names.count(name) for name in dict.fromkeys(names)]
    switches = sum(a != b for a, b in itertools.pairwise(names))
    found = []
    by_chance = math.factorial(len(sizes)) / arrangements(sizes)
    if len(sizes) > 1 and switches == len(sizes) - 1 and by_chance < MAX_CHANCE_OF_ORDER:
        message = (
            "All runs of a group were made before those of the next group, so a change of the conditions over time "
            "looks like a difference between the groups."
        )
        remedy = "Alternate the groups when you measure."
        found.append(Finding("not-interleaved", message, remedy, "info"))
    trend = _find_trend([run.value for *_, run in dated], [(name, run.scenario) for _, name, run in dated])
    if trend is not None:
        message = f"Within the groups, the {noun} changes by {trend:+.3g} % from the first run to the last."
        remedy = "Find out what changed on the machines, or interleave the runs of the groups."
        found.append(Finding("drift-over-time", message, remedy))
    return found


def _find_trend(values: Sequence[float], cells: Iterable[tuple[str, Levels]]) -> float | None:
    """Trend in percent from the first to the last run, from values relative to the mean of their cell.

    A cell is a group in a scenario. None if there is no significant trend.
    """
    from scipy.stats import kendalltau, theilslopes

    keys = list(cells)
    several = [n for n, key in enumerate(keys) if keys.count(key) > 1]
    if len(several) < MIN_RUNS_FOR_DRIFT or min(values) <= 0:
        return None
    logs = np.log(np.array(values))
    rest = [logs[n] - np.mean([logs[m] for m in several if keys[m] == keys[n]]) for n in several]
    if np.ptp(rest) == 0 or kendalltau(several, rest).pvalue >= DRIFT_ALPHA:
        return None
    slope = float(theilslopes(rest, several).slope)
    return 100 * math.expm1(slope * (len(values) - 1))
