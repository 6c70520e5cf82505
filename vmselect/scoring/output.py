# Models that are made from dataclasses are variables for mypy, not types.
# mypy: disable-error-code="valid-type,call-arg"
"""The JSON of scores of forecasts and of the accuracy of a ranking: models, made from the results."""

from __future__ import annotations

from dataclasses import fields

from vmselect._models import FindingOutput, Output, derive_model, plain
from vmselect.records.forecast import Basis
from vmselect.scoring.forecast import Unscored
from vmselect.scoring.score import BY, AccuracyRow, Score


class ScoreGroup(Output):
    """Errors and coverage of a group of forecasts."""

    group: str
    outcomes: int
    error_percent: float
    bias_percent: float
    coverage: float
    coverage_low: float
    coverage_high: float
    width_percent: float
    regret_percent: float | None


class CaseOutput(Output):
    """A forecast of a training and its outcome, the real time of the training."""

    title: str
    method: str
    basis: Basis
    family: str
    gpu: str
    backend: str
    model: str
    month: str
    batch_size: int | None
    epochs: float
    real_seconds: float
    seconds: float
    seconds_low: float
    seconds_high: float
    confidence: float
    error_percent: float
    inside: bool
    width_percent: float
    real_cost_usd: float | None
    cost_usd: float | None
    differences: str
    forecast: str
    outcome: str


class WorstCase(CaseOutput):
    """A forecast with a large error, and its findings."""

    findings: list[FindingOutput]


class Reliability(Output):
    """Share of outcomes inside their intervals, at one confidence level of the intervals."""

    confidence: float
    coverage: float
    low: float
    high: float


class Waiting(Output):
    """A forecast whose outcome is not known yet."""

    forecast: str
    title: str


UnscoredOutput = derive_model(Unscored)


class ScoreOutput(Output):
    """Comparison of forecasts with their outcomes."""

    verdict: str
    outcomes: int
    mean_error_percent: float | None
    bias_percent: float | None
    coverage: float | None
    confidence: float | None
    width_percent: float | None
    regret: dict[str, float | None]
    groups: dict[str, list[ScoreGroup]]
    reliability: list[Reliability]
    worst: list[WorstCase]
    cases: list[CaseOutput]
    unscored: list[UnscoredOutput]
    waiting: list[Waiting]
    findings: list[FindingOutput]


def describe_score(score: Score) -> ScoreOutput:
    """``score`` for output."""
    return ScoreOutput.of(
        score,
        outcomes=len(score),
        groups={name: score.group_rows(name) for name in BY},
        worst=[case.row() | {"findings": plain(case.findings)} for case in score.worst],
        cases=[case.row() for case in score.cases],
        waiting=[Waiting(forecast=forecast.id, title=forecast.title) for forecast in score.waiting],
    )


AccuracyRowOutput = derive_model(
    AccuracyRow, **{field.name: float | None for field in fields(AccuracyRow) if field.type == "float"}
)


class AccuracyOutput(Output):
    """Comparison of the estimates of a ranking with complete trainings."""

    rows: list[AccuracyRowOutput]
    mean_error_percent: float
    coverage: float
    confidence: float
    kendall_tau: dict[str, float | None]
    regret: dict[str, float | None]
    excluded: list[UnscoredOutput]
    verdict: str
