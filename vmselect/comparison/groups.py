# Models that are made from dataclasses are variables for mypy, not types.
# mypy: disable-error-code="valid-type,call-arg"
"""``compare``: test whether groups of runs differ, and estimate by how much, with intervals.

The models of the JSON (:class:`ComparisonOutput`) are at the end of this module.
"""

from __future__ import annotations

import itertools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from vmselect._checks import check_choice, check_name, check_number, is_number, list_items, several, suggest_arguments
from vmselect._imports import hook
from vmselect._models import FindingOutput, Output, make_model
from vmselect.catalog import Catalog
from vmselect.comparison.runs import Levels, Metric, Run, Runs, Terms, collect_runs, name_levels, sort_key
from vmselect.comparison.significance import (
    MIN_BLOCKS,
    MIN_FOR_INTERVAL,
    Groups,
    GroupTest,
    Pair,
    Summary,
    arrangements,
    block_length,
    block_means,
    compare_groups,
    compare_pairs,
    find_shifts,
    format_p,
    pairs_within,
    ratio_of_means,
    ratio_within,
    summarize,
    test_within,
)
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.units import format_seconds, format_usd, list_all, list_some, printable_lines

Row = dict[str, Any]
"""A row of a table: texts and numbers by column."""

UNITS = ("runs", "blocks")
MAX_GROUPS = 200
MAX_SHIFTS_SHOWN = 5
MIN_RUNS_FOR_DRIFT = 8
DRIFT_ALPHA = 0.01
MAX_CHANCE_OF_ORDER = 0.2
"""Runs one group after the other are reported if a random order has that form with a lower probability. Two groups of
three runs are reported, two groups of two runs are not."""
GROUP_COLUMNS = (
    "group", "count", "mean", "sd", "median", "quartile_1", "quartile_3", "minimum", "maximum",
    "ratio", "ratio_low", "ratio_high", "percent", "percent_low", "percent_high", "baseline",
)  # fmt: skip
PAIR_COLUMNS = (
    "first", "second", "difference", "ratio", "ratio_low", "ratio_high", "percent",
    "statistic", "p_value", "p_adjusted", "effect_size", "significant",
)  # fmt: skip
SCENARIO_COLUMNS = (
    "scenario", "group", "count", "mean", "ratio", "ratio_low", "ratio_high", "percent", "percent_low", "percent_high",
)  # fmt: skip
TEST_FIELDS = ("name", "statistic", "p_value", "exact_p_value", "alpha", "significant", "reason")
SHIFT_COLUMNS = ("group", "run", "after", "before", "then", "percent", "p_value")
RUN_SHIFT_COLUMNS = ("group", "after", "before", "then", "percent", "p_value")


class Result(ABC):
    """Base class of comparisons, effects and scores: output as text, JSON, notebook table and HTML page."""

    _table: ClassVar[str]
    """Name of the hook that makes the HTML table for notebooks."""

    @property
    @abstractmethod
    def verdict(self) -> str:
        """The result in one or two sentences."""

    @abstractmethod
    def to_output(self) -> Output:
        """The whole result as the model that is printed as JSON."""

    def to_json(self, *, indent: int | None = None) -> str:
        """The whole result as JSON text, with null for unknown values."""
        return self.to_output().to_json(indent=indent)

    def __str__(self) -> str:
        return printable_lines(self.verdict)

    def report(self, path: str | os.PathLike[str], *, also: Iterable[Result] = ()) -> Path:
        """Write a self-contained HTML page of this result and of the results in ``also``, and return its path."""
        written: Path = hook("comparison_page")([self, *list_items(also)], path)
        return written

    def _repr_html_(self) -> str:
        html: str = hook(self._table)(self)
        return html


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """Groups of runs and the differences between them; made by :func:`vmselect.compare`.

    ``groups`` and ``pairs`` are tables, ``test`` shows whether any group differs, ``verdict`` is the result as a
    sentence, ``shifts`` lists the level shifts inside runs, ``run_shifts`` those between runs, and ``findings`` the
    warnings.
    """

    _table = "comparison_html"

    runs: Runs
    members: Mapping[str, Sequence[Run]]
    values: Mapping[str, Sequence[float]]
    """The independent values of each group (one per run or block of steps) that the test used."""
    unit: str
    baseline: str
    test: GroupTest
    tested_pairs: tuple[Pair, ...]
    confidence: float
    run_findings: tuple[Finding, ...]
    """Findings about the runs; the property ``findings`` adds those about level shifts inside runs."""
    within: tuple[str, ...] = ()
    """Names of factors. Groups are compared separately within each combination of their levels (scenario)."""

    @property
    def metric(self) -> Metric:
        """The metric that is compared."""
        return self.runs.metric

    @property
    def by(self) -> tuple[str, ...]:
        """Names of the factors by which runs are grouped."""
        return self.runs.names

    @cached_property
    def summaries(self) -> dict[str, Summary]:
        """Count, mean, spread and quartiles of the runs of each group."""
        return {name: summarize([run.value for run in runs]) for name, runs in self.members.items()}

    @property
    def order(self) -> list[str]:
        """Names of the groups, best mean first, or lowest first if it is unknown whether less or more is better."""
        sign = -1 if self.metric.better == "more" else 1
        if self.within:
            level = {name: self.ratio(name, self.baseline).value for name in self.summaries}
            return sorted(level, key=lambda name: (math.isnan(level[name]), sign * level[name]))
        return sorted(self.summaries, key=lambda name: sign * self.summaries[name].mean)

    @property
    def winner(self) -> str | None:
        """The group with the best mean, if it differs significantly from at least one other group; else None."""
        if self.metric.better is None or not self.test.significant:
            return None
        best = self.order[0]
        return best if any(self.differ(best, other) for other in self.order[1:]) else None

    def ratio(self, group: str, other: str) -> Interval[float]:
        """Mean of ``group`` divided by the mean of the group ``other``, with its interval."""
        key = (self._check_group(group), self._check_group(other))
        if key not in self._ratios:
            if self.within:
                runs = [self.members[name] for name in key]
                self._ratios[key] = ratio_within(*runs, confidence=self.confidence)
            else:
                self._ratios[key] = ratio_of_means(*(self.values[name] for name in key), confidence=self.confidence)
        return self._ratios[key]

    def differ(self, group: str, other: str) -> bool:
        """Whether two groups differ significantly, after correction for the number of pairs tested."""
        return {self._check_group(group), self._check_group(other)} in self._significant_pairs

    def _check_group(self, name: str) -> str:
        return check_choice("a group", name, tuple(self.values))

    @cached_property
    def _ratios(self) -> dict[tuple[str, str], Interval[float]]:
        return {}

    @cached_property
    def _significant_pairs(self) -> list[set[str]]:
        return [
            {pair.first, pair.second}
            for pair in self.tested_pairs
            if pair.p_adjusted is not None and pair.p_adjusted < self.test.alpha
        ]

    @cached_property
    def groups(self) -> pd.DataFrame:
        """A row per group: number of runs, mean, spread, and the ratio to the baseline with its interval."""
        rows = []
        for name, summary in self.summaries.items():
            ratio = self.ratio(name, self.baseline) if name != self.baseline else Interval(1.0, math.nan, math.nan)
            rows.append({"group": name, **vars(summary), **_ratio_columns(ratio), "baseline": name == self.baseline})
        return to_frame(rows, GROUP_COLUMNS, other_types=("group", "count", "baseline"))

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """A row per pair of groups: Mann-Whitney test with Holm's correction, Cliff's delta, ratio of the means."""
        rows = [
            {
                **vars(pair),
                "difference": self.summaries[pair.first].mean - self.summaries[pair.second].mean,
                **_ratio_columns(self.ratio(pair.first, pair.second)),
                "significant": self.differ(pair.first, pair.second),
            }
            for pair in self.tested_pairs
        ]
        return to_frame(rows, PAIR_COLUMNS, other_types=("first", "second", "significant"))

    @cached_property
    def scenarios(self) -> pd.DataFrame:
        """A row per scenario and group: mean, and the ratio to the baseline in this scenario with its interval."""
        cells: dict[Levels, dict[str, list[float]]] = {}
        for name, runs in self.members.items():
            for run in runs:
                cells.setdefault(run.scenario, {}).setdefault(name, []).append(run.value)
        rows = []
        for scenario in sorted(cells, key=sort_key) if self.within else ():
            base = cells[scenario].get(self.baseline)
            for name, values in cells[scenario].items():
                ratio = Interval(1.0 if name == self.baseline else math.nan, math.nan, math.nan)
                if base and name != self.baseline:
                    ratio = ratio_of_means(values, base, confidence=self.confidence)
                about = {"scenario": name_levels(scenario), "group": name, "count": len(values)}
                rows.append(about | {"mean": summarize(values).mean} | _ratio_columns(ratio))
        return to_frame(rows, SCENARIO_COLUMNS, other_types=("scenario", "group", "count"))

    @cached_property
    def shifts(self) -> pd.DataFrame:
        """A row for each level shift inside a run: number of the last reading before the shift, levels and p value."""
        rows = [
            {"group": name, "run": number, **vars(shift), "percent": shift.percent}
            for name, runs in self.members.items()
            for number, run in enumerate(runs, start=1)
            for shift in find_shifts(run.series)
        ]
        return pd.DataFrame(rows, columns=list(SHIFT_COLUMNS))

    @cached_property
    def run_shifts(self) -> pd.DataFrame:
        """A row for each level shift between the runs of a group: number of the last run before it, levels, p value.

        Runs are in the order in which they were made, or in the given order if it is not known.
        """
        rows = [
            {"group": name, **vars(shift), "percent": shift.percent}
            for name, runs in self.members.items()
            if not self.within
            for shift in find_shifts([run.value for run in in_order(runs)])
        ]
        return pd.DataFrame(rows, columns=list(RUN_SHIFT_COLUMNS))

    @property
    def points(self) -> pd.DataFrame:
        """A row per run: its group, its value, its name and its date."""
        rows = [(name, run.value, run.title, run.date) for name, runs in self.members.items() for run in runs]
        return pd.DataFrame(rows, columns=["group", "value", "run", "date"])

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about the groups, and about level shifts inside runs."""
        shifts = [
            Finding(
                "level-shift",
                f"{row['group']}, run {row['run']}: after reading {row['after']}, the {self.metric.noun} changes by "
                f"{row['percent']:+.0f} % and stays at that level, so the mean describes neither level.",
                "Look at chart('series'), and check what else used the machine at that time.",
            )
            for row in self.shifts.head(MAX_SHIFTS_SHOWN).to_dict("records")
        ]
        if len(self.shifts) > MAX_SHIFTS_SHOWN:
            more = f"{len(self.shifts) - MAX_SHIFTS_SHOWN} more level shifts were found inside runs."
            shifts.append(Finding("level-shift", more, "The table 'shifts' contains all level shifts."))
        shifts += [
            Finding(
                "level-shift",
                f"{row['group']}: after run {row['after']}, the {self.metric.noun} changes by {row['percent']:+.0f} % "
                "and stays at that level, so the mean describes neither level.",
                "Look at chart('runs'), and find out what changed between these runs.",
            )
            for row in self.run_shifts.head(MAX_SHIFTS_SHOWN).to_dict("records")
        ]
        return (*self.run_findings, *shifts)

    @property
    def verdict(self) -> str:
        """The best group, its difference from the others and the p value; or why no group is best."""
        noun, order, test = self.metric.noun, self.order, self.test
        best = order[0]
        if len(order) == 1:
            mean, count = format_value(self.summaries[best].mean, self.metric.unit), self.summaries[best].count
            return f"{noun}: there is only one group to compare, {best} ({mean}, {count} run{'s' * (count != 1)})."
        if test.p_value is None:
            return (
                f"{noun}: {_describe_lead(self, best, order[1], sure=False)}; too few runs for a test: {test.reason}."
            )
        evidence = f"{_describe_p(test)}, {_describe_counts(self)}"
        if not test.significant:
            ratio = self.ratio(best, order[-1])
            bounded = not math.isnan(ratio.low) and ratio.value != 1
            interval = f"; {best} against {order[-1]}: {_format_range(ratio)}" if bounded else ""
            return f"{noun}: no significant difference between {_list_groups(order)} ({evidence}){interval}."
        tied = [name for name in order[1:] if not self.differ(best, name)]
        if len(tied) == len(order) - 1:
            return f"{noun}: the groups differ ({evidence}), but {best} differs significantly from no single group."
        beaten = [name for name in order[1:] if name not in tied]
        lead = _describe_lead(self, best, self.baseline if self.baseline in beaten else beaten[0], sure=True)
        same = f" Its difference from {_list_groups(tied)} is not significant." if tied else ""
        blocks = "" if self.unit == "runs" else " Other runs of the same machines may differ."
        return f"{noun}: {lead}.{same}{blocks}"

    def to_output(self) -> ComparisonOutput:
        """The comparison as the model that is printed as JSON."""
        test = {name: getattr(self.test, name) for name in TEST_FIELDS}
        return ComparisonOutput.of(self, metric=MetricOutput.of(self.metric), test=test)

    def __repr__(self) -> str:
        return f"<Comparison by {', '.join(self.by)}: {self}>"

    def to_frame(self) -> pd.DataFrame:
        """The table ``groups``."""
        return self.groups

    def chart(self, kind: str = "boxes", **options: object) -> Any:
        """An Altair chart: ``boxes`` (box plots), ``differences`` from the baseline, ``runs`` (every run in order, or
        every reading of single runs, with means), ``calendar`` (every run by its date), ``series`` of readings, or
        ``scenarios`` (a bar per scenario and group; a second comparison, passed as ``cost``, is drawn as lines).
        """
        return hook("comparison_chart")(self, kind, **options)


@suggest_arguments()
def compare(
    records: object,
    *,
    by: str | Sequence[str] = "instance_type",
    metric: str | None = None,
    baseline: str | None = None,
    within: str | Sequence[str] | None = None,
    unit: str = "runs",
    alpha: float = 0.05,
    confidence: float = 0.95,
    better: str | None = None,
    epochs: int | None = None,
    catalog: Catalog | None = None,
    market: str = "on_demand",
    region: str | None = None,
    model: str | None = None,
) -> Comparison:
    """Test whether groups of measurements differ, and estimate by how much.

    ``records`` are records, rows (a DataFrame, or mappings), or a mapping of group names to numbers or records. ``by``
    names one or more factors that define the groups. ``metric`` is ``step_seconds`` by default. ``baseline`` is the
    group with which the others are compared (default: the first). ``within`` names further factors: groups are compared
    separately in each combination of their levels (scenario), so that differences between scenarios do not hide a
    difference between groups. A run counts as one observation. With ``unit="blocks"``, for groups of a single run each,
    an observation is a block of consecutive steps that is long enough to be independent of other blocks.
    ``epochs`` and ``catalog`` are required for predicted total times and costs. ``better`` is ``less`` or ``more``, for
    a custom metric.

    >>> import vmselect as vs
    >>> c = vs.compare({"AWS": [0.63, 0.66, 0.61, 0.62, 0.65], "Azure": [0.59, 0.60, 0.58, 0.57, 0.60]},
    ...                metric="seconds", baseline="AWS")
    >>> c.test.name, round(c.test.p_value, 3)
    ('Kruskal-Wallis', 0.009)
    >>> print(c.verdict)
    seconds: Azure is best, 7.26 % below AWS (2.92 to 11.5 % with 95 % confidence; exact p = 0.0079, ...).
    """
    check_choice("unit", unit, UNITS)
    alpha = check_number("alpha", alpha, above=0, most=0.5)
    confidence = check_number("confidence", confidence, least=0.5, most=0.999)
    scenario = several(check_name, "within", within) if within is not None else ()
    if scenario and (unit != "runs" or isinstance(records, Mapping)):
        raise ArgumentError(
            "within= names factors of runs, so it requires records or rows and unit='runs'. Pass records or rows, and "
            "leave unit= out."
        )
    names = [*several(check_name, "by", by), *scenario]
    runs = collect_runs(
        records, names=names, metric=metric, direction=better, terms=Terms(epochs, catalog, market, region), model=model
    )
    runs = _split_levels(runs, scenario)
    groups = runs.by_group()
    if len(groups) > MAX_GROUPS:
        raise ComparisonError(
            f"Grouping by {', '.join(runs.names)} gives {len(groups)} groups, more than {MAX_GROUPS}. Choose factors "
            "with fewer levels."
        )
    # Levels such as a batch size are numbers, but groups are named by texts.
    base = str(baseline) if is_number(baseline) else baseline
    base = next(iter(groups)) if base is None else check_choice("baseline", base, list(groups))
    values, used = _independent_values(groups, unit)
    if scenario:
        test = test_within(groups, alpha=alpha)
        pairs = pairs_within(groups, alpha=alpha, testable=test.p_value is not None)
        few = find_incomplete(groups, ", ".join(scenario))
    else:
        # A group of a single run has no spread: the others can still be tested without it.
        repeated = {name: numbers for name, numbers in values.items() if len(numbers) > 1}
        test = compare_groups(repeated if len(repeated) > 1 else values, unit=used, alpha=alpha)
        pairs = compare_pairs(values, alpha=alpha, testable=test.p_value is not None, unit=used)
        few = _find_few_runs(groups, unit)
    return Comparison(
        runs=runs,
        members=groups,
        values=values,
        unit=used,
        baseline=base,
        test=test,
        tested_pairs=tuple(pairs),
        confidence=confidence,
        run_findings=tuple(dict.fromkeys([*runs.findings, *few, *find_order(groups, runs.metric.noun)])),
        within=scenario,
    )


def _split_levels(runs: Runs, scenario: tuple[str, ...]) -> Runs:
    """Move the levels of the last factors, named ``scenario``, from ``levels`` to ``scenario`` of each run."""
    if not scenario:
        return runs
    at = len(runs.names) - len(scenario)
    split = tuple(replace(run, levels=run.levels[:at], scenario=run.levels[at:]) for run in runs.runs)
    return replace(runs, names=runs.names[:at], runs=split)


def _independent_values(groups: Mapping[str, Sequence[Run]], unit: str) -> tuple[dict[str, list[float]], str]:
    """The independent values of each group, and text on what a value stands for: a run, or a block of readings."""
    by_run = {name: [run.value for run in runs] for name, runs in groups.items()}
    if unit == "runs":
        return by_run, "runs"
    for name, runs in groups.items():
        if len(runs) > 1:
            raise ArgumentError(
                f"unit='blocks' requires one run per group, but {name} has {len(runs)} runs. Leave unit= out, or pass "
                "one run of each group."
            )
        if not runs[0].series:
            raise ComparisonError(f"The run of {name} contains no step times to form blocks. Use unit='runs'.")
    # Blocks of equal length, so that the means of all groups have the same kind of error.
    length = block_length([runs[0].series for runs in groups.values()])
    values = {name: block_means(runs[0].series, length=length) for name, runs in groups.items()}
    enough = all(len(blocks) >= MIN_BLOCKS for blocks in values.values())
    return values if enough else by_run, f"blocks of {length} readings"


def _find_few_runs(groups: Mapping[str, Sequence[Run]], unit: str) -> list[Finding]:
    if unit != "runs" or len(groups) < 2:
        return []
    remedy = "Measure each group at least five times."
    single = [name for name, runs in groups.items() if len(runs) == 1]
    if single:
        message = f"{list_some(single, 4)}: there is only one run, so the spread of repetitions is unknown."
        return [Finding("single-runs", message, remedy)]
    fewest = min(len(runs) for runs in groups.values())
    if fewest <= MIN_FOR_INTERVAL:
        return [Finding("few-runs", f"The smallest group has only {fewest} runs.", remedy, "info")]
    return []


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


def in_order(runs: Sequence[Run]) -> list[Run]:
    """``runs`` in the order in which they were made, if that is known of all; else as they are."""
    moments = [run.moment for run in runs]
    return list(runs) if None in moments else sorted(runs, key=lambda run: run.moment or 0.0)


def find_order(groups: Groups, noun: str) -> list[Finding]:
    """Findings about runs that were made one group after the other, and about a trend over time."""
    dated = [(run.moment, name, run) for name, runs in groups.items() for run in runs if run.moment is not None]
    dated.sort(key=lambda row: row[0])
    if len({moment for moment, _, _ in dated}) < max(2, len(dated)):
        return []  # moments are unknown or equal, so the order is unknown
    names = [name for _, name, _ in dated]
    sizes = [names.count(name) for name in dict.fromkeys(names)]
    switches = sum(a != b for a, b in itertools.pairwise(names))
    findings = []
    by_chance = math.factorial(len(sizes)) / arrangements(sizes)
    if len(sizes) > 1 and switches == len(sizes) - 1 and by_chance < MAX_CHANCE_OF_ORDER:
        message = (
            "All runs of a group were made before those of the next group, so a change of the conditions over time "
            "looks like a difference between the groups."
        )
        remedy = "Alternate the groups when you measure."
        findings.append(Finding("not-interleaved", message, remedy, "info"))
    trend = _find_trend([run.value for *_, run in dated], [(name, run.scenario) for _, name, run in dated])
    if trend is not None:
        message = f"Within the groups, the {noun} changes by {trend:+.3g} % from the first run to the last."
        remedy = "Find out what changed on the machines, or interleave the runs of the groups."
        findings.append(Finding("drift-over-time", message, remedy))
    return findings


def _find_trend(values: Sequence[float], cells: Iterable[tuple[str, Levels]]) -> float | None:
    """Trend in percent from the first to the last run, from values relative to the mean of their cell.

    A cell is a group in a scenario. None if there is no significant trend.
    """
    from scipy.stats import kendalltau, theilslopes

    keys = list(cells)
    repeated = [place for place, key in enumerate(keys) if keys.count(key) > 1]
    if len(repeated) < MIN_RUNS_FOR_DRIFT or min(values) <= 0:
        return None
    logs = np.log(np.array(values))
    # Differences between cells are no trend, so each value is taken relative to the mean of its cell.
    rest = [logs[n] - np.mean([logs[m] for m in repeated if keys[m] == keys[n]]) for n in repeated]
    if np.ptp(rest) == 0 or kendalltau(repeated, rest).pvalue >= DRIFT_ALPHA:
        return None
    slope = float(theilslopes(rest, repeated).slope)
    return 100 * math.expm1(slope * (len(values) - 1))


# -- tables and text ---------------------------------------------------------------------------------------------------


def _ratio_columns(ratio: Interval[float]) -> dict[str, float]:
    """Columns for a table: a ratio with its interval, as a factor and as a difference in percent."""
    sides = ("", "_low", "_high")
    ratios = {f"ratio{side}": value for side, value in zip(sides, ratio, strict=True)}
    return ratios | {f"percent{side}": 100 * (value - 1) for side, value in zip(sides, ratio, strict=True)}


def to_frame(rows: Sequence[Row], columns: Sequence[str], *, other_types: Sequence[str]) -> pd.DataFrame:
    """``rows`` as a DataFrame. Columns not in ``other_types`` are floats, even if all their values are missing."""
    frame = pd.DataFrame(rows, columns=list(columns))
    return frame.astype({name: float for name in columns if name not in other_types})


def format_value(value: float | None, unit: str) -> str:
    """``value`` as text with its unit.

    >>> format_value(0.0132, "s"), format_value(2.5, "USD"), format_value(1234.56, "examples/s"), format_value(0.78, "")
    ('13.2 ms', '$2.50', '1,235 examples/s', '0.78')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if unit == "s":
        return format_seconds(value)
    if unit == "USD":
        return format_usd(value)
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{number} {unit}".rstrip()


def format_percent(row: Mapping[Any, Any]) -> str:
    """The columns ``percent``, ``percent_low`` and ``percent_high`` of a row as text.

    >>> format_percent({"percent": 4.2, "percent_low": 1.0, "percent_high": 7.5})
    '+4.2 (+1 to +7.5) %'
    """
    if math.isnan(row["percent"]):
        return "unknown"
    low, high = row["percent_low"], row["percent_high"]
    sides = "" if math.isnan(low) or math.isnan(high) else f" ({low:+.3g} to {high:+.3g})"
    return f"{row['percent']:+.3g}{sides} %"


def group_rows(comparison: Comparison) -> list[Row]:
    """The table of groups as texts: number of runs, mean, spread, and the difference from the baseline."""
    unit = comparison.metric.unit
    return [
        {
            "group": row["group"],
            "runs": row["count"],
            "mean": format_value(row["mean"], unit),
            "sd": format_value(row["sd"], unit) if row["count"] > 1 else "",
            "median": format_value(row["median"], unit),
            "quartiles": f"{format_value(row['quartile_1'], unit)} to {format_value(row['quartile_3'], unit)}",
            "difference": "base" if row["baseline"] else format_percent(row),
        }
        for row in comparison.groups.to_dict("records")
    ]


def scenario_rows(comparison: Comparison) -> list[Row]:
    """The table of scenarios as texts: runs, mean, and the difference from the baseline in the same scenario."""
    return [
        {
            "scenario": row["scenario"],
            "group": row["group"],
            "runs": row["count"],
            "mean": format_value(row["mean"], comparison.metric.unit),
            "difference": "base" if row["group"] == comparison.baseline else format_percent(row),
        }
        for row in comparison.scenarios.to_dict("records")
    ]


def _describe_lead(comparison: Comparison, best: str, other: str, *, sure: bool) -> str:
    ratio = comparison.ratio(best, other)
    word = "best" if comparison.metric.better else "lowest"
    gap = f"ahead of {other}"
    if math.isfinite(ratio.value):
        gap = f"{abs(100 * (ratio.value - 1)):.3g} % {'below' if ratio.value < 1 else 'above'} {other}"
    if not sure:
        return f"{best} has the {word} mean, {gap} ({_describe_counts(comparison)})"
    interval = ""
    if not math.isnan(ratio.low):
        distances = sorted(abs(100 * (side - 1)) for side in (ratio.low, ratio.high))
        sides = _format_range(ratio) if ratio.contains(1) else f"{distances[0]:.3g} to {distances[1]:.3g} %"
        interval = f"{sides} with {100 * comparison.confidence:.3g} % confidence; "
    return f"{best} is {word}, {gap} ({interval}{_describe_p(comparison.test)}, {_describe_counts(comparison)})"


def _format_range(ratio: Interval[float]) -> str:
    return f"{100 * (ratio.low - 1):+.3g} to {100 * (ratio.high - 1):+.3g} %"


def _describe_p(test: GroupTest) -> str:
    exact = "" if test.exact_p_value is None else "exact "
    return f"{exact}{format_p(test.deciding_p_value or 0.0)}"


def _describe_counts(comparison: Comparison) -> str:
    counts = [len(values) for values in comparison.values.values()]
    if comparison.within:
        scenarios = len({run.scenario for runs in comparison.members.values() for run in runs})
        return f"{list_all(counts)} runs in {scenarios} scenarios"
    if len(set(counts)) == 1 and len(counts) > 2:
        return f"{counts[0]} {comparison.unit} each"
    return f"{list_all(counts)} {comparison.unit}"


def _list_groups(names: list[str], most: int = 5) -> str:
    return list_some(names, most) if len(names) > most else list_all(names)


# -- JSON output -------------------------------------------------------------------------------------------------------


MetricOutput = make_model(
    "Metric", "A metric that is compared, with its unit, and whether less or more of it is better.",
    name=str, unit=str, better=Literal["less", "more"] | None,
)  # fmt: skip


def table_model(name: str, text: str, columns: Iterable[str], /, **kinds: Any) -> type[Output]:
    """Model of a row of a table with these ``columns``: numbers, or null if unknown, except for those in ``kinds``."""
    return make_model(name, text, **{column: kinds.get(column, float | None) for column in columns})


Group = table_model(
    "Group", "A group of runs, and its ratio to the baseline.", GROUP_COLUMNS, group=str, count=int, baseline=bool
)
PairOutput = table_model(
    "Pair", "Two groups with the test of their difference.", PAIR_COLUMNS, first=str, second=str, significant=bool
)
Test = table_model(
    "Test", "The test whether any group differs.", TEST_FIELDS,
    name=str, alpha=float, significant=bool, reason=str | None,
)  # fmt: skip
Scenario = table_model(
    "Scenario", "A group at fixed levels of other factors.", SCENARIO_COLUMNS, scenario=str, group=str, count=int
)
Shift = table_model("Shift", "A level shift inside a run.", SHIFT_COLUMNS, group=str, run=int, after=int)


RunShift = table_model(
    "RunShift", "A level shift between the runs of a group.", RUN_SHIFT_COLUMNS, group=str, after=int
)


class ComparisonOutput(Output):
    """Groups of runs, and the result of the test whether they differ in a metric."""

    metric: MetricOutput
    by: list[str]
    within: list[str]
    unit: Literal["runs", "blocks"]
    baseline: str
    confidence: float
    groups: list[Group]
    pairs: list[PairOutput]
    test: Test
    winner: str | None
    verdict: str
    values: dict[str, list[float]]
    scenarios: list[Scenario]
    shifts: list[Shift]
    run_shifts: list[RunShift]
    findings: list[FindingOutput]
