# Models that are made from dataclasses are variables for mypy, not types.
# mypy: disable-error-code="valid-type,call-arg"
"""How right predictions were: errors, bias, coverage and width of intervals, order of machines, and regret.

:func:`score` judges kept forecasts by their outcomes, and :class:`Accuracy` a ranking by real trainings.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vmselect._checks import check_choice, suggest_arguments
from vmselect._imports import hook
from vmselect._models import FindingOutput, Output, derive_model, plain
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.records import Forecast, Record
from vmselect.records.forecast import Basis
from vmselect.scoring.forecast import Case, Real, Unscored, match
from vmselect.units import format_count, format_seconds, printable, printable_lines

BY = ("method", "basis", "family", "gpu", "backend", "model", "month")
"""Names of the values by which forecasts can be grouped."""
MEASURED = ("time", "cost")
"""Measures of which the regret is computed."""
WORST = 5
LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""Confidence levels of the reliability chart."""
FEW = 10
"""Minimum number of outcomes for a finding that intervals are too narrow or too wide."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Score:
    """Comparison of forecasts with outcomes; made by :func:`vmselect.score`.

    ``cases`` are pairs of a forecast and its outcome, ``unscored`` the outcomes that could not be compared, with
    reasons, and ``waiting`` the forecasts without an outcome. ``regret`` maps ``time`` and ``cost`` to the mean regret
    of rankings; None if no ranking has two machines with outcomes. The regret of a ranking is the relative difference
    between the real time (or cost) of the candidate with the lowest prediction and the lowest real time (or cost).
    """

    cases: tuple[Case, ...]
    unscored: tuple[Unscored, ...]
    waiting: tuple[Forecast, ...]
    regrets: Mapping[str, Mapping[str, float]]
    """Regret in ``time`` and ``cost`` of each ranking, by its ID."""

    def __len__(self) -> int:
        return len(self.cases)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    @property
    def mean_error_percent(self) -> float | None:
        """Mean of the absolute errors, in percent of the real time; None if there are no cases."""
        return statistics.fmean(abs(case.error_percent) for case in self.cases) if self.cases else None

    @property
    def bias_percent(self) -> float | None:
        """Mean of the signed errors, in percent of the real time: above zero if predictions are too long."""
        return statistics.fmean(case.error_percent for case in self.cases) if self.cases else None

    @property
    def coverage(self) -> float | None:
        """Share of the real times inside the interval of their forecast; None if there are no cases."""
        return statistics.fmean(case.inside for case in self.cases) if self.cases else None

    @property
    def confidence(self) -> float | None:
        """Mean of the coverage that the forecasts promised (their confidence levels)."""
        return statistics.fmean(case.forecast.confidence for case in self.cases) if self.cases else None

    @property
    def width_percent(self) -> float | None:
        """Median width of the intervals, in percent of the prediction."""
        return statistics.median(case.width_percent for case in self.cases) if self.cases else None

    @property
    def regret(self) -> dict[str, float | None]:
        """Mean regret of rankings in ``time`` and ``cost``, as fractions; None if not known."""
        means: dict[str, float | None] = {}
        for name in MEASURED:
            values = [regrets[name] for regrets in self.regrets.values() if name in regrets]
            means[name] = statistics.fmean(values) if values else None
        return means

    @property
    def worst(self) -> tuple[Case, ...]:
        """The five cases with the largest errors, by the ratio of prediction and real time."""
        return tuple(sorted(self.cases, key=lambda case: (-_distance(case), case.title))[:WORST])

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about intervals that are too narrow or too wide, and about outcomes that differ from forecasts."""
        differing = [case for case in self.cases if case.differences]
        return (*_judge_coverage(self.cases), *dict.fromkeys(case.findings[0] for case in differing))

    @property
    def verdict(self) -> str:
        """Sentence with number of outcomes, mean error, bias, coverage, width of intervals, and regret."""
        if not self.cases:
            return f"No forecast has an outcome yet ({len(self.waiting)} waiting, {len(self.unscored)} unscored)."
        inside = sum(case.inside for case in self.cases)
        noun = "outcome" if len(self) == 1 else "outcomes"
        parts = [
            f"{len(self)} {noun}: mean error {self.mean_error_percent:.3g} %, bias {self.bias_percent:+.3g} %",
            f"{inside} of {len(self)} inside the {self.confidence:.0%} interval",
            f"median width {self.width_percent:.3g} %",
        ]
        parts += [f"regret by {name} {100 * value:.3g} %" for name, value in self.regret.items() if value is not None]
        return "; ".join(parts) + "."

    def __str__(self) -> str:
        lines = [self.verdict, *(f"Worst: {describe_case(case)}" for case in self.worst)]
        return printable_lines("\n".join([*lines, *(f"Not scored: {outcome}." for outcome in self.unscored)]))

    def __repr__(self) -> str:
        return f"<Score: {printable(self.verdict)}>"

    def to_frame(self) -> pd.DataFrame:
        """The cases as a DataFrame, with a row per outcome."""
        return pd.DataFrame([case.row() for case in self.cases])

    def by(self, name: str) -> pd.DataFrame:
        """Table of error, bias, coverage, width and regret, with a row per group of forecasts.

        ``name`` is ``method``, ``basis``, ``family`` (of the machine), ``gpu``, ``backend``, ``model`` or ``month``.
        """
        check_choice("name", name, BY)
        return pd.DataFrame(self.group_rows(name))

    @property
    def groups(self) -> pd.DataFrame:
        """The tables of :meth:`by` for all names, in one DataFrame."""
        return pd.DataFrame([{"by": name, **row} for name in BY for row in self.group_rows(name)])

    def group_rows(self, name: str) -> list[dict[str, Any]]:
        """Errors and coverage of the groups by ``name``, sorted by group."""
        groups: dict[str, list[Case]] = {}
        for case in self.cases:
            groups.setdefault(case.groups[name], []).append(case)
        return [
            {"group": group, **replace(self, cases=tuple(cases))._summarize()}
            for group, cases in sorted(groups.items())
        ]

    def _summarize(self) -> dict[str, Any]:
        covered = coverage_interval(sum(case.inside for case in self.cases), len(self))
        # A ranking counts in the group of its recommendation, because that choice has the regret.
        rankings = {case.forecast.ranking or "" for case in self.cases if case.forecast.rank == 1}
        costs = [self.regrets[ranking]["cost"] for ranking in rankings if "cost" in self.regrets.get(ranking, {})]
        return {
            "outcomes": len(self),
            "error_percent": self.mean_error_percent,
            "bias_percent": self.bias_percent,
            "coverage": covered.value,
            "coverage_low": covered.low,
            "coverage_high": covered.high,
            "width_percent": self.width_percent,
            "regret_percent": 100 * statistics.fmean(costs) if costs else None,
        }

    @property
    def reliability(self) -> pd.DataFrame:
        """Observed coverage at each confidence level, with its interval: the points of the reliability chart.

        For a level other than that of the forecast, the interval of the forecast is scaled as for a normal
        distribution.
        """
        rows = []
        deviations = [abs(deviation) for case in self.cases if (deviation := standardize(case)) is not None]
        for level in LEVELS if deviations else ():
            inside = sum(deviation <= normal_quantile(level) for deviation in deviations)
            observed = coverage_interval(inside, len(deviations))
            rows.append({"confidence": level, "coverage": observed.value, "low": observed.low, "high": observed.high})
        return pd.DataFrame(rows, columns=["confidence", "coverage", "low", "high"])

    def to_json(self, *, indent: int | None = None) -> str:
        """All results as JSON text."""
        return describe_score(self).to_json(indent=indent)

    def chart(self, kind: str = "reliability", **options: object) -> Any:
        """An Altair chart: ``reliability`` (observed and promised coverage) or ``errors`` (forecast and real times)."""
        return hook("score_chart")(self, kind, **options)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the score as a self-contained HTML page to ``path`` and return its path."""
        written: Path = hook("score_page")(self, path)
        return written

    def _repr_html_(self) -> str:
        html: str = hook("score_html")(self)
        return html


@suggest_arguments()
def score(records: Record | Iterable[Record]) -> Score:
    """Compare the forecasts among ``records`` with the outcomes among them.

    Outcomes are trainings that were measured to their end, profiles with total times, and records written by
    ``vmselect score add``. A training is compared with the newest forecast for the same machine, model, batch size,
    factors and number of epochs, for each method and basis. Differences in software are reported but do not prevent
    the comparison.

    >>> import vmselect as vs
    >>> profile = vs.Profile.from_times(instance_type="g4dn.xlarge", batch_size=64, first_epoch_seconds=31,
    ...                                 later_epoch_seconds=[30, 30.5])
    >>> forecast = vs.estimate(profile, epochs=10).forecast()
    >>> real = vs.Profile.from_times(instance_type="g4dn.xlarge", batch_size=64, epochs=10, total_seconds=310)
    >>> score = vs.score([profile, forecast, real])
    >>> score.coverage, round(score.mean_error_percent, 1)
    (1.0, 2.2)
    """
    matched = match(records)
    regrets = _find_regrets(matched.real)
    return Score(cases=matched.cases, unscored=matched.unscored, waiting=matched.waiting, regrets=regrets)


def standardize(case: Case, *, own: bool = False, shift: float = 0.0) -> float | None:
    """Deviation of the real time from the prediction in standard deviations; None if the interval has no width.

    With ``own``, the prediction is the one before recalibration. ``shift`` is the logarithm of a factor by which the
    real time is divided first.
    """
    value, low, high = case.forecast.own if own else case.estimate
    if low == high:
        return None  # an estimate without an interval promised nothing
    distance = case.real_seconds * math.exp(-shift) - value
    side = high - value if distance > 0 else value - low
    if not distance:
        return 0.0
    return distance / side * normal_quantile(case.forecast.confidence) if side else math.copysign(math.inf, distance)


def describe_case(case: Case) -> str:
    """Text with title, real time, prediction with interval, and error of a case."""
    value, low, high = map(format_seconds, case.estimate)
    codes = ", ".join(dict.fromkeys(finding.code for finding in case.findings))
    noted = f" (findings: {codes})" if codes else ""
    real = format_seconds(case.real_seconds)
    return f"{case.title}: real {real}, forecast {value} ({low} to {high}), {case.error_percent:+.1f} %{noted}"


def _distance(case: Case) -> float:
    value = case.estimate.value
    return abs(math.log(value / case.real_seconds)) if value > 0 and case.real_seconds > 0 else math.inf


def _find_regrets(outcomes: Iterable[Real]) -> dict[str, dict[str, float]]:
    """Regret in time and cost of each ranking for which at least two machines have outcomes, by ranking ID."""
    rankings: dict[str, list[Real]] = {}
    for outcome in outcomes:
        if outcome.forecast.ranking is not None:
            rankings.setdefault(outcome.forecast.ranking, []).append(outcome)
    regrets: dict[str, dict[str, float]] = {}
    for ranking, machines in rankings.items():
        if len(machines) < 2:
            continue
        times = [(machine.forecast.seconds.value, machine.seconds) for machine in machines]
        costs = [
            (machine.forecast.cost_usd.value, machine.cost_usd)
            for machine in machines
            if machine.forecast.cost_usd is not None and machine.cost_usd is not None
        ]
        regrets[ranking] = {"time": regret(times)} | ({"cost": regret(costs)} if len(costs) > 1 else {})
    return regrets


def _judge_coverage(cases: Sequence[Case]) -> list[Finding]:
    if len(cases) < FEW:
        return []
    promised = statistics.fmean(case.forecast.confidence for case in cases)
    observed: Interval[float] = coverage_interval(sum(case.inside for case in cases), len(cases))
    # A deviation that the Wilson interval of the coverage contains is chance.
    if observed.contains(promised):
        return []
    narrow = observed.high < promised
    message = f"{observed.value:.0%} of {len(cases)} real times were inside intervals that promised {promised:.0%}."
    remedy = (
        "Correct later predictions by these records: estimate.recalibrated(records), ranking.recalibrated(records) or "
        "--recalibrate FOLDER."
    )
    return [Finding("intervals-too-narrow" if narrow else "intervals-too-wide", message, remedy)]


@dataclass(frozen=True, kw_only=True)
class AccuracyRow:
    """Real and estimated time and cost of a training, in seconds and USD. ``real_seconds`` is the mean of ``runs``."""

    title: str
    instance_type: str
    batch_size: int | None
    epochs: float
    runs: int
    real_seconds: float
    seconds: float
    seconds_low: float
    seconds_high: float
    error_percent: float
    """(estimate - real) / real, in percent."""
    inside: bool
    """Whether the real time is inside the interval of the estimate."""
    real_cost_usd: float
    cost_usd: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Accuracy:
    """Estimates of a ranking compared with real times; made by :meth:`Ranking.against`.

    ``kendall_tau`` and ``regret`` map ``time`` and ``cost`` to a number, or to None if fewer than two machines can be
    compared. The regret is the relative difference between the real time (or cost) of the candidate with the lowest
    estimate and the lowest real time (or cost). ``excluded`` lists trainings that the ranking does not estimate.
    """

    rows: tuple[AccuracyRow, ...]
    kendall_tau: Mapping[str, float | None]
    regret: Mapping[str, float | None]
    excluded: tuple[Unscored, ...]
    confidence: float

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[AccuracyRow]:
        return iter(self.rows)

    @property
    def mean_error_percent(self) -> float:
        """Mean of the absolute errors, in percent of the real time."""
        return statistics.fmean(abs(row.error_percent) for row in self.rows)

    @property
    def coverage(self) -> float:
        """Share of the real times that are inside the interval of their estimate."""
        return statistics.fmean(row.inside for row in self.rows)

    @property
    def verdict(self) -> str:
        """Sentence with the mean error, the coverage of the intervals, Kendall's tau and the regret."""
        inside = f"{sum(row.inside for row in self.rows)} of {len(self)} inside the {self.confidence:.0%} interval"
        parts = [f"mean error {self.mean_error_percent:.3g} % of the real time", inside]
        for name in MEASURED:
            if (tau := self.kendall_tau[name]) is not None:
                parts.append(f"by {name}: Kendall's tau {tau:.2f}, regret {100 * (self.regret[name] or 0.0):.3g} %")
        return "; ".join(parts) + "."

    def __str__(self) -> str:
        lines = [
            printable(
                f"{row.title}: real {format_seconds(row.real_seconds)}, estimate {format_seconds(row.seconds)} "
                f"({format_seconds(row.seconds_low)} to {format_seconds(row.seconds_high)}), {row.error_percent:+.1f} %"
            )
            for row in self.rows
        ]
        return printable_lines("\n".join([*lines, self.verdict]))

    def __repr__(self) -> str:
        return f"<Accuracy of {format_count(len(self), 'training')}: {self.verdict}>"

    def to_frame(self) -> pd.DataFrame:
        """A DataFrame with a row per training."""
        return pd.DataFrame([asdict(row) for row in self.rows])

    def to_json(self, *, indent: int | None = None) -> str:
        """All results as JSON text."""
        return AccuracyOutput.of(self).to_json(indent=indent)

    def chart(self, kind: str = "real-estimate", **options: object) -> Any:
        """An Altair chart with a pair of bars (real, estimate) per training."""
        return hook("accuracy_chart")(self, kind, **options)


def kendall_tau(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Kendall's tau-b rank correlation of ``pairs`` of (estimate, real value); None if all values of a side are equal.

    >>> kendall_tau([(1.0, 10.0), (2.0, 20.0), (3.0, 15.0)])
    0.3333333333333333
    """
    estimated, real = (np.sign(np.subtract.outer(column, column)) for column in np.array(pairs, dtype=float).T)
    norm = math.sqrt(float((estimated * estimated).sum()) * float((real * real).sum()))
    return float((estimated * real).sum()) / norm if norm else None


def regret(pairs: Sequence[tuple[float, float]]) -> float:
    """Relative excess of the real value of the pair with the lowest estimate over the lowest real value.

    ``pairs`` are (estimate, real value). If several pairs have the lowest estimate, the mean of their real values is
    used.

    >>> regret([(1.0, 12.0), (2.0, 10.0)])
    0.19999999999999996
    """
    estimate, least = (min(column) for column in zip(*pairs, strict=True))
    chosen = statistics.fmean(real for estimated, real in pairs if estimated == estimate)
    return chosen / least - 1 if least else 0.0


@cache
def normal_quantile(confidence: float) -> float:
    """Half-width of the central interval of a standard normal distribution with probability ``confidence``."""
    return statistics.NormalDist().inv_cdf(0.5 + confidence / 2)


def coverage_interval(inside: int, count: int, confidence: float = 0.9) -> Interval[float]:
    """Observed coverage (``inside`` of ``count`` values) with its Wilson interval.

    >>> [round(part, 2) for part in coverage_interval(18, 20)]
    [0.9, 0.74, 0.97]
    """
    z, share = normal_quantile(confidence), inside / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


# -- JSON output -------------------------------------------------------------------------------------------------------


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
