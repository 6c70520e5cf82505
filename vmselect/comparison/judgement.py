"""``compare``: from groups of runs to an answer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_choice, check_number, is_number, show
from vmselect.comparison.differences import LEAST_FOR_INTERVAL
from vmselect.comparison.metrics import Terms
from vmselect.comparison.result import Comparison
from vmselect.comparison.runs import Run, collect_runs
from vmselect.comparison.series import LEAST_BLOCKS, block_length, block_means
from vmselect.comparison.significance import GroupTest, compare_groups, compare_pairs
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.findings import Finding
from vmselect.units import list_some

if TYPE_CHECKING:
    from vmselect.catalog import Catalog

UNITS = ("runs", "blocks")
MOST_GROUPS = 200


def compare(
    records: Any,
    *,
    by: str | Sequence[str] = "instance_type",
    metric: str | None = None,
    baseline: str | None = None,
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
    """Whether groups of measurements really differ, by how much, and how sure that is.

    ``records`` are records, rows (a DataFrame, or mappings), or a mapping of names to numbers or records. ``by`` names
    one factor or several. ``metric`` is ``step_seconds`` unless told. ``baseline`` is the group that the others are
    compared with: the first, if not given. A repetition is a run; ``unit="blocks"`` asks instead whether these single
    runs differ, from blocks of their steps that are long enough to be independent. ``epochs`` and ``catalog`` serve
    predicted totals and costs; ``better`` says which way a metric of your own is better.

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
    terms = Terms(epochs, catalog, market, region)
    found = collect_runs(records, names=by, metric=metric, better=better, terms=terms, model=model)
    groups = found.by_group()
    if len(groups) > MOST_GROUPS:
        raise ComparisonError(
            f"There are {len(groups)} groups by {', '.join(found.names)}; more than {MOST_GROUPS} tell nothing. Group "
            "by something with fewer values."
        )
    base = _choose_baseline(baseline, list(groups))
    findings = [*found.findings, *_few(groups, unit)]
    values, used = _values(groups, unit)
    test = _test(values, used, alpha)
    pairs = compare_pairs(values, alpha=alpha, testable=test.p_value is not None, unit=used)
    return Comparison(
        runs=found,
        members=groups,
        values=values,
        unit=used,
        baseline=base,
        test=test,
        tested_pairs=tuple(pairs),
        confidence=confidence,
        run_findings=tuple(dict.fromkeys(findings)),
    )


def _choose_baseline(baseline: Any, names: Sequence[str]) -> str:
    if baseline is None:
        return names[0]
    wanted = str(baseline) if isinstance(baseline, str) or is_number(baseline) else ""
    if wanted not in names:
        raise ArgumentError(f"baseline {show(baseline)} is none of the groups. Choose one of: {', '.join(names)}.")
    return wanted


def _values(groups: Mapping[str, Sequence[Run]], unit: str) -> tuple[dict[str, list[float]], str]:
    """The independent values of each group, and what they are."""
    if unit == "runs":
        return {name: [run.value for run in runs] for name, runs in groups.items()}, "runs"
    for name, runs in groups.items():
        if len(runs) > 1:
            raise ArgumentError(
                f"unit='blocks' compares single runs, and {name} has {len(runs)}. Repetitions say more than blocks: "
                "leave unit= out, or pass one run of each group."
            )
        if not runs[0].series:
            raise ComparisonError(f"{name}: its run holds no single readings, so there are no blocks. Use unit='runs'.")
    every = [run.series for run in itertools.chain.from_iterable(groups.values())]
    length = block_length(every)
    values = {name: block_means(runs[0].series, length=length) for name, runs in groups.items()}
    short = [name for name, blocks in values.items() if len(blocks) < LEAST_BLOCKS]
    if short:
        # The means of the runs remain; there are just no blocks to test.
        return {name: [run.value for run in runs] for name, runs in groups.items()}, f"blocks of {length} readings"
    return values, f"blocks of {length} readings"


def _test(values: Mapping[str, Sequence[float]], unit: str, alpha: float) -> GroupTest:
    """The test over all groups that have repetitions."""
    repeated = {name: some for name, some in values.items() if len(some) > 1}
    if len(values) > 1 and len(repeated) < 2:
        repeated = dict(values)
    return compare_groups(repeated, unit=unit, alpha=alpha)


def _few(groups: Mapping[str, Sequence[Run]], unit: str) -> list[Finding]:
    if unit != "runs" or len(groups) < 2:
        return []
    single = [name for name, runs in groups.items() if len(runs) == 1]
    if single:
        return [
            Finding(
                "single-runs",
                f"There is only one run of {list_some(single, 4)}: how far repetitions differ is not known there.",
                "Measure each group at least five times.",
            )
        ]
    fewest = min(len(runs) for runs in groups.values())
    if fewest < LEAST_FOR_INTERVAL + 1:
        return [
            Finding("few-runs", f"A group has only {fewest} runs.", "Measure each group at least five times.", "info")
        ]
    return []
