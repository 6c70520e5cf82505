# Models that are made from dataclasses are variables for mypy, not types.
# mypy: disable-error-code="valid-type,call-arg"
"""``effects``: estimate main effects and interactions of the factors of a designed experiment with a linear model.

Levels are coded so that the effects of a factor sum to zero: an effect is the difference from the average over all
levels, averaged over the levels of the other factors. Every cell (combination of levels) has the same weight, even if
the cells have different numbers of runs or some have none.

The models of the JSON (:class:`EffectsOutput`) are at the end of this module.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vmselect._checks import check_choice, check_number, suggest_arguments
from vmselect._imports import hook
from vmselect._models import FindingOutput, OpenOutput, Output
from vmselect.catalog import Catalog
from vmselect.comparison.groups import MetricOutput, Result, Row, table_model
from vmselect.comparison.runs import Levels, Metric, Runs, Terms, collect_runs, sort_key
from vmselect.comparison.significance import format_p, holm, summarize
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.records.base import Factor
from vmselect.records.identity import Value
from vmselect.units import list_all

Floats = NDArray[np.float64]
Term = tuple[int, ...]
"""Indices of the factors of a term of the model: one for a main effect, two for an interaction."""

SCALES = ("linear", "log")
MAX_CELLS = 10_000
UNEVEN = 5.0
"""Ratio of the largest to the smallest standard deviation of cells above which a finding reports uneven spread."""

EFFECT = ("effect", "low", "high", "percent", "percent_low", "percent_high", "p_value", "share")
MAIN_COLUMNS = ("factor", "level", "count", "mean", *EFFECT)
INTERACTION_COLUMNS = ("factor_1", "level_1", "factor_2", "level_2", "count", *EFFECT)
TERM_COLUMNS = (
    "factor", "share", "freedom", "statistic", "p_value", "p_adjusted", "from_level", "to_level", "difference",
    "percent", "percent_low", "percent_high",
)  # fmt: skip


@dataclass(frozen=True)
class TermTest:
    """The share of all variation that a term (a factor or an interaction) explains, with its F test."""

    share: float
    freedom: int
    statistic: float
    p_value: float


@dataclass(frozen=True)
class FactorialFit:
    """A fitted linear model of main effects and two-factor interactions."""

    levels: tuple[Levels, ...]
    terms: tuple[Term, ...]
    unestimable: tuple[Term, ...]
    coefficients: Floats
    covariance: Floats
    """Covariance matrix of the coefficients, for an ``error`` of 1."""
    places: dict[Term, slice]
    average: float
    error: float
    """Standard deviation of a single run; nan if it is unknown."""
    error_freedom: int
    error_source: str
    confidence: float
    tests: dict[Term, TermTest] = field(default_factory=dict)

    def effect(self, term: Term, which: Sequence[int]) -> Interval[float]:
        """The effect, with its interval, of a combination of levels of the factors in ``term``.

        ``which`` contains the index of the level of each factor.
        """
        return self._combine(term, self._weights(term, which))

    def difference(self, factor: int, level: int, other: int) -> Interval[float]:
        """The effect of a ``level`` minus the effect of the level ``other`` of a factor, with its interval."""
        weights = self._weights((factor,), (level,)) - self._weights((factor,), (other,))
        return self._combine((factor,), weights)

    def _weights(self, term: Term, which: Sequence[int]) -> Floats:
        weights: Floats = np.ones(1)
        for factor, level in zip(term, which, strict=True):
            weights = np.kron(weights, _contrast(len(self.levels[factor]))[level])
        return weights

    def _combine(self, term: Term, weights: Floats) -> Interval[float]:
        place = self.places[term]
        value = float(weights @ self.coefficients[place])
        spread = float(weights @ self.covariance[place, place] @ weights)
        width = self.quantile * self.error * math.sqrt(max(0.0, spread))
        return Interval(value, value - width, value + width)

    @property
    def quantile(self) -> float:
        """Half-width of an interval in standard errors; nan if the error is unknown."""
        from scipy.special import stdtrit

        return float(stdtrit(self.error_freedom, 0.5 + self.confidence / 2)) if self.error_freedom else math.nan


def fit_factorial(
    rows: Sequence[tuple[int, ...]],
    values: Sequence[float],
    *,
    names: Sequence[str],
    levels: Sequence[Sequence[Value]],
    confidence: float = 0.95,
) -> FactorialFit:
    """Fit a linear model of all main effects, and of all two-factor interactions for which enough cells were measured.

    ``rows`` contains the indices of the levels of each run, ``values`` the measured value of each run.
    """
    from scipy.stats import f as f_distribution

    outcome = np.asarray(values, dtype=float)
    positions = np.array(rows, dtype=int)
    coded = [_contrast(len(values))[positions[:, factor]] for factor, values in enumerate(levels)]
    columns: dict[Term, Floats] = {(factor,): part for factor, part in enumerate(coded)}
    if not _has_full_rank(_design(columns)):
        raise ComparisonError(
            f"The effects of {list_all(names)} cannot be separated, because some factors were only changed together. "
            "Measure more combinations, or name fewer factors."
        )
    # Interactions are added as long as enough cells were measured. Three-factor interactions are left in the error.
    unestimable: list[Term] = []
    for pair in itertools.combinations(range(len(levels)), 2):
        both = np.einsum("ij,ik->ijk", coded[pair[0]], coded[pair[1]]).reshape(len(outcome), -1)
        if _has_full_rank(_design({**columns, pair: both})):
            columns[pair] = both
        else:
            unestimable.append(pair)
    design = _design(columns)
    coefficients, left = _least_squares(design, outcome)
    ends = np.cumsum([1, *(part.shape[1] for part in columns.values())])
    squares, freedom, source = _error(outcome, positions, left, len(outcome) - design.shape[1])
    noise = squares / freedom if freedom else math.nan
    total = float(((outcome - outcome.mean()) ** 2).sum())

    def test(term: Term) -> TermTest:
        # Type III: what the term explains beyond all other terms, so that the order of the factors does not matter.
        without = _design({name: part for name, part in columns.items() if name != term}, len(outcome))
        explained = max(0.0, _least_squares(without, outcome)[1] - left)
        degrees = columns[term].shape[1]
        if not freedom:
            statistic = p_value = math.nan
        elif noise <= 1e-20 * max(total, 1e-300):  # repetitions are equal but for rounding errors
            statistic, p_value = (math.inf, 0.0) if explained > 1e-12 * total else (0.0, 1.0)
        else:
            statistic = explained / degrees / noise
            p_value = float(f_distribution.sf(statistic, degrees, freedom))
        return TermTest(explained / total if total else 0.0, degrees, statistic, p_value)

    return FactorialFit(
        levels=tuple(map(tuple, levels)),
        terms=tuple(columns),
        unestimable=tuple(unestimable),
        coefficients=coefficients,
        covariance=np.linalg.inv(design.T @ design).astype(np.float64),
        places={term: slice(*edges) for term, edges in zip(columns, itertools.pairwise(ends), strict=True)},
        average=float(coefficients[0]),
        error=math.sqrt(noise) if freedom else math.nan,
        error_freedom=freedom,
        error_source=source,
        confidence=confidence,
        tests={term: test(term) for term in columns},
    )


def _error(outcome: Floats, positions: NDArray[np.int_], left: float, spare: int) -> tuple[float, int, str]:
    """Sum of squares, degrees of freedom and source of the error: repetitions if there are any, else residuals."""
    _, cell = np.unique(positions, axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    means = np.bincount(cell, outcome) / np.bincount(cell)
    freedom = len(outcome) - len(means)
    if freedom:
        # Repetitions measure the noise alone. Residuals also contain what the model does not describe.
        return float(((outcome - means[cell]) ** 2).sum()), freedom, "repetitions"
    if spare > 0:
        return left, spare, "higher interactions"
    return math.nan, 0, "none"


def _contrast(levels: int) -> Floats:
    """The sum-to-zero coding of a factor: a matrix with a row per level, whose columns sum to zero."""
    return np.vstack([np.eye(levels - 1), -np.ones((1, levels - 1))])


def _design(columns: Mapping[Term, Floats], runs: int | None = None) -> Floats:
    """The design matrix: a column of ones, and the columns of all terms."""
    parts = list(columns.values())
    return np.hstack([np.ones((runs or len(parts[0]), 1)), *parts])


def _has_full_rank(design: Floats) -> bool:
    return bool(np.linalg.matrix_rank(design) == design.shape[1])


def _least_squares(design: Floats, outcome: Floats) -> tuple[Floats, float]:
    coefficients: Floats = np.linalg.lstsq(design, outcome, rcond=None)[0].astype(np.float64)
    rest = outcome - design @ coefficients
    return coefficients, float(rest @ rest)


@suggest_arguments()
def effects(
    records: object,
    *,
    factors: str | Sequence[str],
    metric: str | None = None,
    scale: str = "linear",
    confidence: float = 0.95,
    epochs: int | None = None,
    catalog: Catalog | None = None,
    market: str = "on_demand",
    region: str | None = None,
    model: str | None = None,
) -> Effects:
    """Estimate the main effects and interactions of ``factors`` on ``metric``, with intervals.

    ``records`` are records, or rows (a DataFrame, or mappings). On the ``linear`` scale an effect is a difference. On
    the ``log`` scale an effect is a percentage, which suits times that differ by large factors. Findings report the
    number of combinations without a run, and interactions that therefore cannot be estimated.

    >>> import vmselect as vs
    >>> rows = [{"cores": c, "batch": b, "seconds": 8 / c + b / 64 + noise}
    ...         for c in (1, 2) for b in (64, 128) for noise in (-0.01, 0.0, 0.01)]
    >>> e = vs.stats.effects(rows, factors=["cores", "batch"], metric="seconds")
    >>> e.main[["factor", "level", "effect"]].round(2).values.tolist()
    [['cores', 1, 2.0], ['cores', 2, -2.0], ['batch', 64, -0.5], ['batch', 128, 0.5]]
    >>> e.factors["factor"].tolist()
    ['cores', 'batch', 'cores x batch']
    """
    check_choice("scale", scale, SCALES)
    confidence = check_number("confidence", confidence, least=0.5, most=0.999)
    terms = Terms(epochs, catalog, market, region)
    runs = collect_runs(records, names=factors, metric=metric, terms=terms, model=model, argument="factors")
    if scale == "log" and min(run.value for run in runs.runs) <= 0:
        raise ArgumentError(f"scale='log' requires that each {runs.metric.noun} is above 0. Use scale='linear'.")
    levels = [
        sorted({run.levels[factor] for run in runs.runs}, key=lambda level: sort_key([level]))
        for factor in range(len(runs.names))
    ]
    varied = [factor for factor, values in enumerate(levels) if len(values) > 1]
    fixed = [runs.names[factor] for factor in range(len(levels)) if factor not in varied]
    if not varied:
        lost = map(str, runs.missing)
        raise ComparisonError(
            " ".join([f"All runs have the same {', '.join(runs.names)}. Measure runs with other levels.", *lost])
        )
    names = [runs.names[factor] for factor in varied]
    kept = [levels[factor] for factor in varied]
    rows = [tuple(kept[j].index(run.levels[i]) for j, i in enumerate(varied)) for run in runs.runs]
    outcomes = [math.log(run.value) if scale == "log" else run.value for run in runs.runs]
    fit = fit_factorial(rows, outcomes, names=names, levels=kept, confidence=confidence)
    # Settings that differ besides the factors are left out: most of them are factors here.
    findings = [*runs.remarks, *runs.missing]
    if fixed:
        message = f"All runs have the same {', '.join(fixed)}, so the effect of this factor is unknown."
        findings.append(Finding("not-varied", message, "Measure other levels to estimate the effect.", "info"))
    study = Effects(runs, fit, tuple(names), tuple(rows), scale, tuple(findings))
    return replace(study, findings=(*findings, *_find_warnings(study)))


@dataclass(frozen=True, eq=False)
class Effects(Result):
    """The effects of factors on a metric; made by :func:`vmselect.stats.effects`.

    Tables: ``cells`` (mean of every combination of levels), ``main`` (effect of each level), ``interactions`` (effect
    of each pair of levels in addition to their main effects), ``factors`` (share of all variation that each factor
    explains).
    """

    _table = "effects_html"

    runs: Runs
    fit: FactorialFit
    names: tuple[str, ...]
    positions: tuple[tuple[int, ...], ...]
    scale: str
    findings: tuple[Finding, ...]

    @property
    def metric(self) -> Metric:
        """The metric on which the effects are estimated."""
        return self.runs.metric

    @property
    def average(self) -> float:
        """The average of the metric over all cells (the geometric mean if ``scale`` is ``log``)."""
        return self._back(self.fit.average)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """A row per combination of levels: number of runs, mean, standard deviation and the interval of the mean."""
        measured: dict[tuple[int, ...], list[float]] = {}
        for position, run in zip(self.positions, self.runs.runs, strict=True):
            measured.setdefault(position, []).append(run.value)
        sizes = [len(levels) for levels in self.fit.levels]
        # Of a huge design, only the measured cells are listed.
        every = itertools.product(*map(range, sizes)) if math.prod(sizes) <= MAX_CELLS else measured
        rows = []
        for position in every:
            values = measured.get(position, [])
            row: Row = {name: self.fit.levels[i][position[i]] for i, name in enumerate(self.names)}
            row["count"] = len(values)
            if values:
                summary = summarize(values)
                row |= {"mean": summary.mean, "sd": summary.sd}
                center = math.fsum(map(math.log, values)) / len(values) if self.scale == "log" else summary.mean
                # The error of the whole design, because the spread of two or three runs of a cell is too uncertain.
                width = self.fit.quantile * self.fit.error / math.sqrt(len(values))
                row |= {"low": self._back(center - width), "high": self._back(center + width)}
            rows.append(row)
        frame = pd.DataFrame(rows, columns=[*self.names, "count", "mean", "sd", "low", "high"])
        return frame.astype(dict.fromkeys(("mean", "sd", "low", "high"), float))

    @cached_property
    def main(self) -> pd.DataFrame:
        """A row per level of each factor: number of runs, mean over the levels of other factors, and effect."""
        rows = [
            {
                "factor": self.names[i],
                "level": self.fit.levels[i][j],
                "mean": self._back(self.fit.average + self.fit.effect((i,), (j,)).value),
                **self._effect_columns((i,), (j,)),
            }
            for i in range(len(self.names))
            for j in range(len(self.fit.levels[i]))
        ]
        return pd.DataFrame(rows, columns=list(MAIN_COLUMNS))

    @cached_property
    def interactions(self) -> pd.DataFrame:
        """A row per pair of levels of two factors: the effect of the combination beyond the main effects."""
        rows = [
            {
                "factor_1": self.names[i],
                "level_1": self.fit.levels[i][j],
                "factor_2": self.names[k],
                "level_2": self.fit.levels[k][m],
                **self._effect_columns((i, k), (j, m)),
            }
            for i, k in (term for term in self.fit.terms if len(term) == 2)
            for j, m in itertools.product(range(len(self.fit.levels[i])), range(len(self.fit.levels[k])))
        ]
        return pd.DataFrame(rows, columns=list(INTERACTION_COLUMNS))

    @cached_property
    def factors(self) -> pd.DataFrame:
        """A row per factor and per pair of factors: share of the variation, F test and largest difference.

        The largest share is first. ``p_adjusted`` is corrected for the number of terms (Holm). ``from_level`` and
        ``to_level`` are the levels of a factor with the largest difference, which is in percent with its interval.
        """
        rows = []
        for term in self.fit.terms:
            difference = self._largest_difference(term[0]) if len(term) == 1 else {}
            rows.append({"factor": " x ".join(self.names[i] for i in term), **vars(self.fit.tests[term]), **difference})
        tested = [row for row in rows if not math.isnan(row["p_value"])]
        for row, adjusted in zip(tested, holm([row["p_value"] for row in tested]), strict=True):
            row["p_adjusted"] = adjusted
        frame = pd.DataFrame(rows, columns=list(TERM_COLUMNS))
        return frame.sort_values("share", ascending=False, kind="stable", ignore_index=True)

    @property
    def missing(self) -> pd.DataFrame:
        """Combinations of levels without a run."""
        return self.cells[self.cells["count"] == 0][list(self.names)]

    def _largest_difference(self, factor: int) -> Row:
        levels = self.fit.levels[factor]
        means = [self.fit.effect((factor,), (j,)).value for j in range(len(levels))]
        high, low = max(range(len(levels)), key=means.__getitem__), min(range(len(levels)), key=means.__getitem__)
        base = self.fit.average + means[high]
        step = self.fit.difference(factor, low, high)
        percents = dict(zip(("percent", "percent_low", "percent_high"), self._percent(step, base), strict=True))
        difference = self._back(base + step.value) - self._back(base)
        return {"from_level": levels[high], "to_level": levels[low], "difference": difference, **percents}

    def _effect_columns(self, term: Term, which: tuple[int, ...]) -> dict[str, float]:
        """Columns of a row: number of runs at a combination of levels, and its effect with the interval."""
        effect, test = self.fit.effect(term, which), self.fit.tests[term]
        # On the log scale an effect multiplies the average; the column shows the difference from the average.
        sides = [self.average * math.expm1(side) for side in effect] if self.scale == "log" else effect
        numbers = [*sides, *self._percent(effect, self.fit.average), test.p_value, test.share]
        count = sum(all(position[i] == j for i, j in zip(term, which, strict=True)) for position in self.positions)
        return {"count": count, **dict(zip(EFFECT, numbers, strict=True))}

    def _percent(self, effect: Interval[float], base: float) -> Interval[float]:
        if self.scale == "log":
            return effect.map(lambda side: 100 * math.expm1(side))
        unit = 100 / abs(base) if base else math.nan
        return effect.map(lambda side: side * unit)

    def _back(self, value: float) -> float:
        return math.exp(value) if self.scale == "log" else value

    @property
    def verdict(self) -> str:
        """The factor that explains most of the variation, and the largest difference between its levels."""
        noun = self.metric.noun
        values = [run.value for run in self.runs.runs]
        if min(values) == max(values):
            return f"{noun}: all runs have the same value, so no factor changes it."
        table = self.factors.to_dict("records")
        singles = [row for row in table if row["factor"] in self.names]
        top = singles[0]
        tested = top["p_value"] == top["p_value"]
        significant = [row for row in table if tested and row["p_adjusted"] < 1 - self.fit.confidence]
        interval = f" ({top['percent_low']:+.3g} to {top['percent_high']:+.3g} %)" if tested else ""
        evidence = format_p(top["p_value"]) if tested else "not tested for lack of repetitions"
        if tested and top["p_adjusted"] > top["p_value"]:
            # Significance is decided by the adjusted value, which may be far above the one of the single test.
            tests = sum(row["p_value"] == row["p_value"] for row in table)
            evidence += f", {format_p(top['p_adjusted'])} with Holm's correction for {tests} tests"
        difference = f"from {top['from_level']} to {top['to_level']} {top['percent']:+.3g} %{interval}, {evidence}"
        together = [row["factor"] for row in significant if row not in singles]
        interact = f" Interactions: {', '.join(together)}." if together else ""
        if tested and not any(row in significant for row in singles):
            return (
                f"{noun}: no factor has a significant effect. The largest difference is that of {top['factor']}: "
                f"{difference}.{interact}"
            )
        weak = [row["factor"] for row in singles if tested and row not in significant]
        rest = f" Not significant: {', '.join(weak)}." if weak else ""
        return (
            f"{noun}: {top['factor']} matters most, {100 * top['share']:.0f} % of the variation: "
            f"{difference}.{interact}{rest}"
        )

    def __repr__(self) -> str:
        return f"<Effects of {', '.join(self.names)}: {self}>"

    def to_output(self) -> EffectsOutput:
        """The effects as the model that is printed as JSON."""
        error = Error(source=self.fit.error_source, freedom=self.fit.error_freedom)
        metric = MetricOutput.of(self.metric)
        return EffectsOutput.of(self, metric=metric, confidence=self.fit.confidence, error=error)

    def chart(self, kind: str = "main", **options: object) -> Any:
        """An Altair chart: ``main`` effects with intervals, or ``interactions`` as lines through cell means."""
        return hook("effects_chart")(self, kind, **options)


def _find_warnings(study: Effects) -> list[Finding]:
    findings = []
    empty = len(study.missing)
    lost = ", ".join(" x ".join(study.names[i] for i in term) for term in study.fit.unestimable)
    if empty:
        message = f"{empty} of {len(study.cells)} combinations of levels were not measured."
        if lost:
            message += f" These interactions cannot be estimated and are assumed to be zero: {lost}."
        findings.append(Finding("missing-cells", message, "Measure the missing combinations."))
    elif lost:
        findings.append(
            Finding("unestimable", f"There are too few runs to estimate the interactions {lost}.", "Measure more runs.")
        )
    if study.fit.error_source == "none":
        message = "No combination was measured twice, so the intervals of the effects are unknown."
        findings.append(Finding("no-repetitions", message, "Measure each combination at least twice."))
    elif study.fit.error_source != "repetitions":
        message = "No combination was measured twice, so the error is estimated from the residuals of the model."
        findings.append(Finding("no-repetitions", message, "Measure each combination at least twice.", "info"))
    # One error for all cells is wrong if the spread grows with the value, as that of times usually does.
    spreads = [sd for sd in study.cells["sd"] if not math.isnan(sd) and sd > 0]
    if study.scale == "linear" and spreads and max(spreads) > UNEVEN * min(spreads) and min(study.cells["count"]) > 2:
        message = f"The spread of repetitions differs between cells by a factor of {max(spreads) / min(spreads):.0f}."
        findings.append(Finding("uneven-spread", message, "Use scale='log', where an effect is a percentage.", "info"))
    return findings


# -- JSON output -------------------------------------------------------------------------------------------------------


class Cell(OpenOutput):
    """A combination of levels of the factors, with a field per factor."""

    count: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None


Main = table_model("Main", "A level of a factor and its effect.", MAIN_COLUMNS, factor=str, level=Factor, count=int)
Interaction = table_model(
    "Interaction", "A pair of levels, and its effect beyond the main effects.", INTERACTION_COLUMNS,
    factor_1=str, level_1=Factor, factor_2=str, level_2=Factor, count=int,
)  # fmt: skip
TermOutput = table_model(
    "Term", "A factor or a pair of factors, with its F test.", TERM_COLUMNS,
    factor=str, freedom=int, from_level=Factor | None, to_level=Factor | None,
)  # fmt: skip


class Error(Output):
    """How the error of the effects was estimated, and its degrees of freedom."""

    source: str
    freedom: int


class EffectsOutput(Output):
    """Effects of factors on a metric."""

    metric: MetricOutput
    scale: Literal["linear", "log"]
    confidence: float
    average: float
    error: Error
    cells: list[Cell]
    main: list[Main]
    interactions: list[Interaction]
    factors: list[TermOutput]
    verdict: str
    findings: list[FindingOutput]
