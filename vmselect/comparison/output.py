# Models that are made from dataclasses are variables for mypy, not types.
# mypy: disable-error-code="valid-type,call-arg"
"""The JSON of comparisons, effects, speed-ups, scores and changes: models, made from the results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import singledispatch
from typing import Any, Literal, get_type_hints

from vmselect._models import FindingOutput, OpenOutput, Output, derive_model, make_model
from vmselect.comparison.changes import Change, Changes, ratio_percents
from vmselect.comparison.effects import INTERACTION_COLUMNS, MAIN_COLUMNS, TERM_COLUMNS, Effects
from vmselect.comparison.groups import (
    GROUP_COLUMNS,
    PAIR_COLUMNS,
    SCENARIO_COLUMNS,
    SHIFT_COLUMNS,
    TEST_FIELDS,
    Comparison,
)
from vmselect.comparison.requirements import Fact, Scores
from vmselect.comparison.speedup import Scaling, Speedup
from vmselect.records.base import Factor


class Metric(Output):
    """A metric that is compared, with its unit, and whether less or more of it is better."""

    name: str
    unit: str
    better: Literal["less", "more"] | None


def _table(name: str, text: str, columns: Iterable[str], /, **kinds: Any) -> type[Output]:
    """Model of a row of a table with these ``columns``: numbers, or null if unknown, except for those in ``kinds``."""
    return make_model(name, text, **{column: kinds.get(column, float | None) for column in columns})


Group = _table(
    "Group", "A group of runs, and its ratio to the baseline.", GROUP_COLUMNS, group=str, count=int, baseline=bool
)
Pair = _table(
    "Pair", "Two groups with the test of their difference.", PAIR_COLUMNS, first=str, second=str, significant=bool
)
Test = _table(
    "Test", "The test whether any group differs.", TEST_FIELDS,
    name=str, alpha=float, significant=bool, reason=str | None,
)  # fmt: skip
Scenario = _table(
    "Scenario", "A group at fixed levels of other factors.", SCENARIO_COLUMNS, scenario=str, group=str, count=int
)
Shift = _table("Shift", "A level shift inside a run.", SHIFT_COLUMNS, group=str, run=int, after=int)


class ComparisonOutput(Output):
    """Groups of runs, and the result of the test whether they differ in a metric."""

    metric: Metric
    by: list[str]
    within: list[str]
    unit: Literal["runs", "blocks"]
    baseline: str
    confidence: float
    groups: list[Group]
    pairs: list[Pair]
    test: Test
    winner: str | None
    verdict: str
    values: dict[str, list[float]]
    scenarios: list[Scenario]
    shifts: list[Shift]
    findings: list[FindingOutput]


class Cell(OpenOutput):
    """A combination of levels of the factors, with a field per factor."""

    count: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None


Main = _table("Main", "A level of a factor and its effect.", MAIN_COLUMNS, factor=str, level=Factor, count=int)
Interaction = _table(
    "Interaction", "A pair of levels, and its effect beyond the main effects.", INTERACTION_COLUMNS,
    factor_1=str, level_1=Factor, factor_2=str, level_2=Factor, count=int,
)  # fmt: skip
Term = _table(
    "Term", "A factor or a pair of factors, with its F test.", TERM_COLUMNS,
    factor=str, freedom=int, from_level=Factor | None, to_level=Factor | None,
)  # fmt: skip


class Error(Output):
    """How the error of the effects was estimated, and its degrees of freedom."""

    source: str
    freedom: int


class EffectsOutput(Output):
    """Effects of factors on a metric."""

    metric: Metric
    scale: Literal["linear", "log"]
    confidence: float
    average: float
    error: Error
    cells: list[Cell]
    main: list[Main]
    interactions: list[Interaction]
    factors: list[Term]
    verdict: str
    findings: list[FindingOutput]


SpeedupRow = derive_model(Speedup, **{field.name: float | None for field in fields(Speedup) if field.type == "float"})


class ScalingOutput(Output):
    """Speed-ups of several workers over one."""

    epochs: int
    confidence: float
    rows: list[SpeedupRow]
    findings: list[FindingOutput]


class ScoreRow(OpenOutput):
    """A candidate (a group of runs) with its score, and with its points for each requirement."""

    rank: int
    candidate: str
    score: float


ScorePart = make_model(
    "ScorePart", "The points of a candidate in one requirement.",
    candidate=str, need=str, condition=str, grade=float, weight=float, points=float,
    **{field.name: get_type_hints(Fact)[field.name] for field in fields(Fact)},
)  # fmt: skip


class ScoresOutput(Output):
    """Groups of runs, scored by requirements."""

    title: str
    best: str | None
    table: list[ScoreRow]
    parts: list[ScorePart]
    excluded: dict[str, str]
    verdict: str


ComparedOutput = ComparisonOutput | EffectsOutput | ScalingOutput | ScoresOutput


class ChangeOutput(Output):
    """Change of the time and cost of a training on one machine, from the old to the new profiles."""

    title: str
    model: str | None
    instance_type: str | None
    batch_size: int | None
    epochs_old: int
    epochs_new: int
    step_seconds_old: float | None
    step_seconds_new: float | None
    step_percent: float | None
    step_percent_low: float | None
    step_percent_high: float | None
    seconds_old: float
    seconds_new: float
    time_percent: float
    time_percent_low: float
    time_percent_high: float
    usd_per_hour: float | None
    usd_change: float | None
    usd_change_low: float | None
    usd_change_high: float | None
    exceeds: str


class ChangesOutput(Output):
    """The changes of all trainings, and whether one of them exceeds a limit."""

    changes: list[ChangeOutput]
    exceeds: bool
    findings: list[FindingOutput]


@singledispatch
def describe(result: object) -> Output:
    """``result`` of a comparison for output."""
    raise TypeError(f"no output of {type(result).__name__}")


@describe.register
def _(result: Comparison) -> ComparisonOutput:
    return ComparisonOutput.of(
        result, metric=Metric.of(result.metric), test={name: result.test[name] for name in TEST_FIELDS}
    )


@describe.register
def _(result: Effects) -> EffectsOutput:
    error = Error(source=result.fit.error_source, freedom=result.fit.error_freedom)
    return EffectsOutput.of(result, metric=Metric.of(result.metric), confidence=result.fit.confidence, error=error)


@describe.register
def _(result: Scaling) -> ScalingOutput:
    return ScalingOutput.of(result)


@describe.register
def _(result: Scores) -> ScoresOutput:
    return ScoresOutput.of(result)


@describe.register
def _(result: Changes) -> ChangesOutput:
    return ChangesOutput.of(result, changes=[describe_change(change) for change in result])


def describe_change(change: Change) -> ChangeOutput:
    """``change`` for output: intervals of ratios in percent."""
    step_old, step_new = change.step_seconds or (None, None)
    step, step_low, step_high = ratio_percents(change.step_ratio) if change.step_ratio else (None, None, None)
    time, time_low, time_high = ratio_percents(change.time_ratio)
    usd, usd_low, usd_high = change.usd or (None, None, None)
    return ChangeOutput.of(
        change,
        epochs_old=change.epochs[0],
        epochs_new=change.epochs[1],
        step_seconds_old=step_old,
        step_seconds_new=step_new,
        step_percent=step,
        step_percent_low=step_low,
        step_percent_high=step_high,
        seconds_old=change.seconds[0].value,
        seconds_new=change.seconds[1].value,
        time_percent=time,
        time_percent_low=time_low,
        time_percent_high=time_high,
        usd_change=usd,
        usd_change_low=usd_low,
        usd_change_high=usd_high,
        exceeds=", ".join(change.exceeds),
    )
