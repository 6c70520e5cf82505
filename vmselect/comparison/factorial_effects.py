"""The linear model behind a designed experiment: an average, an effect for each level, one for each pair of levels.

Levels are coded so that the effects of a factor sum to zero: an effect is the distance from the average over all
levels, whatever the others are set to. With missing or unequal cells it is estimated as if they were there and equal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_choice, check_number
from vmselect._hooks import hook
from vmselect.comparison.comparison import Answer, plain_rows
from vmselect.comparison.metrics import Metric, Terms
from vmselect.comparison.runs import Runs, collect_runs, order_of
from vmselect.comparison.significance import format_p, holm, summarise
from vmselect.errors import ArgumentError, ComparisonError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.units import list_all

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from vmselect.catalog import Catalog

    Floats = NDArray[np.float64]

Term = tuple[int, ...]
"""Positions of the factors that a term of the model is about: one for a main effect, two for an interaction."""


@dataclass(frozen=True)
class TermTest:
    """What a term explains: share of all variation, and the chance of so much without any effect."""

    share: float
    freedom: int
    statistic: float
    p_value: float


@dataclass(frozen=True)
class FactorialFit:
    """The fitted model; effects are asked of it by term and levels."""

    levels: tuple[tuple[Any, ...], ...]
    terms: tuple[Term, ...]
    unestimable: tuple[Term, ...]
    coefficients: Floats
    covariance: Floats
    """Of the coefficients, for an error of one."""
    places: dict[Term, slice]
    average: float
    error: float
    """Standard deviation of a single run; nan where nothing tells it."""
    error_freedom: int
    error_source: str
    confidence: float
    tests: dict[Term, TermTest] = field(default_factory=dict)

    def effect(self, term: Term, which: Sequence[int]) -> Interval[float]:
        """The effect of being at these levels (positions) of the term's factors."""
        return self._combine(term, self._weights(term, which))

    def difference(self, factor: int, one: int, other: int) -> Interval[float]:
        """From level ``other`` of a factor to level ``one``."""
        weights = self._weights((factor,), (one,)) - self._weights((factor,), (other,))
        return self._combine((factor,), weights)

    def cell_error(self, runs: int) -> float:
        """Half-width of the interval of a mean of so many runs."""
        return self._quantile() * self.error / math.sqrt(runs) if runs else math.nan

    def _weights(self, term: Term, which: Sequence[int]) -> Floats:
        import numpy as np

        weights: Floats = np.ones(1)
        for factor, level in zip(term, which, strict=True):
            weights = np.kron(weights, _contrast(len(self.levels[factor]))[level])
        return weights

    def _combine(self, term: Term, weights: Floats) -> Interval[float]:
        place = self.places[term]
        value = float(weights @ self.coefficients[place])
        spread = float(weights @ self.covariance[place, place] @ weights)
        width = self._quantile() * self.error * math.sqrt(max(0.0, spread))
        return Interval(value, value - width, value + width)

    def _quantile(self) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(self.error_freedom, 0.5 + self.confidence / 2)) if self.error_freedom else math.nan


def fit_factorial(
    rows: Sequence[tuple[int, ...]],
    values: Sequence[float],
    *,
    names: Sequence[str],
    levels: Sequence[Sequence[Any]],
    confidence: float = 0.95,
) -> FactorialFit:
    """Fit main effects and, as far as the cells allow, interactions of pairs.

    ``rows`` holds the position of each run's level of each factor, ``values`` what was measured.
    """
    import numpy as np

    outcome = np.asarray(values, dtype=float)
    positions = np.array(rows, dtype=int)
    coded = [_contrast(len(found))[positions[:, factor]] for factor, found in enumerate(levels)]
    singles: list[Term] = [(factor,) for factor in range(len(levels))]
    columns = {term: coded[term[0]] for term in singles}
    if _rank([np.ones((len(outcome), 1)), *columns.values()]) <= sum(c.shape[1] for c in columns.values()):
        raise ComparisonError(
            f"The effects of {list_all(names)} cannot be told apart: some of them only ever changed together. Measure "
            "more combinations, or ask for fewer factors."
        )
    terms, unestimable = list(singles), []
    for first, second in itertools.combinations(range(len(levels)), 2):
        both = np.einsum("ij,ik->ijk", coded[first], coded[second]).reshape(len(outcome), -1)
        trial = [np.ones((len(outcome), 1)), *columns.values(), both]
        if _rank(trial) == sum(part.shape[1] for part in trial):
            columns[first, second] = both
            terms.append((first, second))
        else:
            unestimable.append((first, second))
    return _solve(outcome, positions, columns, levels, terms, unestimable, confidence)


def _solve(
    outcome: Floats,
    positions: NDArray[np.int_],
    columns: dict[Term, Floats],
    levels: Sequence[Sequence[Any]],
    terms: Sequence[Term],
    unestimable: Sequence[Term],
    confidence: float,
) -> FactorialFit:
    import numpy as np
    from scipy.stats import f as f_distribution

    design = np.hstack([np.ones((len(outcome), 1)), *columns.values()])
    coefficients, left = _least_squares(design, outcome)
    places, at = {}, 1
    for term, part in columns.items():
        places[term] = slice(at, at + part.shape[1])
        at += part.shape[1]
    squares, freedom, source = _error(outcome, positions, left, len(outcome) - design.shape[1])
    noise = squares / freedom if freedom else math.nan
    total = float(((outcome - outcome.mean()) ** 2).sum())
    tests = {}
    for term in terms:
        without = np.hstack([np.ones((len(outcome), 1)), *(part for name, part in columns.items() if name != term)])
        explained = max(0.0, _least_squares(without, outcome)[1] - left)
        degrees = columns[term].shape[1]
        if not freedom:
            statistic = chance = math.nan
        elif noise <= 1e-20 * max(total, 1e-300):
            statistic, chance = (math.inf, 0.0) if explained > 1e-12 * total else (0.0, 1.0)
        else:
            statistic = explained / degrees / noise
            chance = float(f_distribution.sf(statistic, degrees, freedom))
        tests[term] = TermTest(explained / total if total else 0.0, degrees, statistic, chance)
    return FactorialFit(
        levels=tuple(tuple(found) for found in levels),
        terms=tuple(terms),
        unestimable=tuple(unestimable),
        coefficients=coefficients,
        covariance=np.linalg.inv(design.T @ design),
        places=places,
        average=float(coefficients[0]),
        error=math.sqrt(noise) if freedom else math.nan,
        error_freedom=freedom,
        error_source=source,
        confidence=confidence,
        tests=tests,
    )


def _error(outcome: Floats, positions: NDArray[np.int_], left: float, spare: int) -> tuple[float, int, str]:
    """Sum of squares and freedom of what no factor explains: between repetitions, or what the model leaves over."""
    import numpy as np

    _, cell = np.unique(positions, axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    means = np.bincount(cell, outcome) / np.bincount(cell)
    freedom = len(outcome) - len(means)
    if freedom:
        return float(((outcome - means[cell]) ** 2).sum()), freedom, "repetitions"
    if spare > 0:
        return left, spare, "higher interactions"
    return math.nan, 0, "none"


def _contrast(levels: int) -> Floats:
    """A row per level; columns that sum to zero over the levels."""
    import numpy as np

    return np.vstack([np.eye(levels - 1), -np.ones((1, levels - 1))])


def _rank(parts: Sequence[Floats]) -> int:
    import numpy as np

    return int(np.linalg.matrix_rank(np.hstack(parts)))


def _least_squares(design: Floats, outcome: Floats) -> tuple[Floats, float]:
    import numpy as np

    coefficients: Floats = np.linalg.lstsq(design, outcome, rcond=None)[0].astype(np.float64)
    rest = outcome - design @ coefficients
    return coefficients, float(rest @ rest)


# ``effects``: which of the factors that were varied matters, and by how much.


SCALES = ("linear", "log")
MOST_CELLS = 10_000
UNEVEN = 5.0
"""Spreads of cells that differ by more than this factor are not one error."""

EFFECT = ("effect", "low", "high", "percent", "percent_low", "percent_high", "p_value", "share")


def effects(
    records: Any,
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
    """Averages per cell, main effects and interactions of ``factors`` on ``metric``, with intervals.

    ``records`` are records, or rows (a DataFrame, or mappings). On the ``linear`` scale an effect is a difference; on
    the ``log`` scale it is a percentage that holds whatever the others are set to, which suits times that differ
    severalfold. Missing cells are listed, and what cannot be told without them is left out with a finding.

    >>> import vmselect as vs
    >>> rows = [{"cores": c, "batch": b, "seconds": 8 / c + b / 64 + noise}
    ...         for c in (1, 2) for b in (64, 128) for noise in (-0.01, 0.0, 0.01)]
    >>> e = vs.effects(rows, factors=["cores", "batch"], metric="seconds")
    >>> e.main[["factor", "level", "effect"]].round(2).values.tolist()
    [['cores', 1, 2.0], ['cores', 2, -2.0], ['batch', 64, -0.5], ['batch', 128, 0.5]]
    >>> e.factors["factor"].tolist()
    ['cores', 'batch', 'cores x batch']
    """
    check_choice("scale", scale, SCALES)
    confidence = check_number("confidence", confidence, least=0.5, most=0.999)
    terms = Terms(epochs, catalog, market, region)
    found = collect_runs(records, names=factors, metric=metric, terms=terms, model=model, what="factors")
    if scale == "log" and min(run.value for run in found.runs) <= 0:
        raise ArgumentError(f"scale='log' needs values above 0, and {found.metric.noun} has others. Use 'linear'.")
    return _study(found, scale=scale, confidence=confidence)


def _study(found: Runs, *, scale: str, confidence: float) -> Effects:
    levels = [
        sorted({run.levels[i] for run in found.runs}, key=lambda v: order_of([v])) for i in range(len(found.names))
    ]
    varied = [i for i, some in enumerate(levels) if len(some) > 1]
    fixed = [found.names[i] for i in range(len(levels)) if i not in varied]
    if not varied:
        lost = " ".join(finding.message for finding in found.findings if finding.code == "missing-values")
        raise ComparisonError(
            f"None of {', '.join(found.names)} was varied: every run has the same. Vary something, or name what was. "
            f"{lost}".rstrip()
        )
    names = [found.names[i] for i in varied]
    kept = [levels[i] for i in varied]
    rows = [tuple(kept[j].index(run.levels[i]) for j, i in enumerate(varied)) for run in found.runs]
    values = [math.log(run.value) if scale == "log" else run.value for run in found.runs]
    fit = fit_factorial(rows, values, names=names, levels=kept, confidence=confidence)
    findings = [*(finding for finding in found.findings if finding.code not in ("mixed-settings", "confounded"))]
    if fixed:
        findings.append(
            Finding("not-varied", f"{', '.join(fixed)}: the same in every run.", "Vary it to learn its effect.", "info")
        )
    study = Effects(found, fit, tuple(names), tuple(rows), scale, tuple(findings))
    return replace(study, findings=(*findings, *_find_warnings(study)))


@dataclass(frozen=True, eq=False)
class Effects(Answer):
    """A designed experiment read off; made by :func:`vmselect.effects`.

    ``cells`` holds the average of every combination, ``main`` the effect of each level, ``interactions`` that of each
    pair of levels beyond their own, ``factors`` a row per factor: how much of all variation it explains.
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
        """What the effects are on."""
        return self.runs.metric

    @property
    def average(self) -> float:
        """The average over all cells (geometric on the log scale)."""
        return self._back(self.fit.average)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """A row per combination of levels: count, mean, sd and the interval of the mean; count 0 where none ran."""
        import pandas as pd

        found: dict[tuple[int, ...], list[float]] = {}
        for position, run in zip(self.positions, self.runs.runs, strict=True):
            found.setdefault(position, []).append(run.value)
        total = math.prod(len(some) for some in self.fit.levels)
        every = itertools.product(*(range(len(some)) for some in self.fit.levels)) if total <= MOST_CELLS else found
        rows = []
        for position in every:
            values = found.get(position, [])
            row: dict[str, Any] = {name: self.fit.levels[i][position[i]] for i, name in enumerate(self.names)}
            row["count"] = len(values)
            if values:
                summary = summarise(values)
                row |= {"mean": summary.mean, "sd": summary.sd}
                centre = math.fsum(map(math.log, values)) / len(values) if self.scale == "log" else summary.mean
                width = self.fit.cell_error(len(values))
                row |= {"low": self._back(centre - width), "high": self._back(centre + width)}
            rows.append(row)
        frame = pd.DataFrame(rows, columns=[*self.names, "count", "mean", "sd", "low", "high"])
        return frame.astype(dict.fromkeys(("mean", "sd", "low", "high"), float))

    @cached_property
    def main(self) -> pd.DataFrame:
        """A row per level of each factor: runs, mean over all settings of the others, effect against the average."""
        import pandas as pd

        rows = []
        for i, name in enumerate(self.names):
            for j, level in enumerate(self.fit.levels[i]):
                effect = self.fit.effect((i,), (j,))
                count = sum(position[i] == j for position in self.positions)
                mean = self._back(self.fit.average + effect.value)
                rows.append({"factor": name, "level": level, "count": count, "mean": mean, **self._row((i,), effect)})
        return pd.DataFrame(rows, columns=["factor", "level", "count", "mean", *EFFECT])

    @cached_property
    def interactions(self) -> pd.DataFrame:
        """A row per pair of levels of two factors: what their combination does beyond what each does by itself."""
        import pandas as pd

        rows = []
        for term in self.fit.terms:
            if len(term) != 2:
                continue
            first, second = term
            for j, k in itertools.product(range(len(self.fit.levels[first])), range(len(self.fit.levels[second]))):
                rows.append(
                    {
                        "factor_1": self.names[first],
                        "level_1": self.fit.levels[first][j],
                        "factor_2": self.names[second],
                        "level_2": self.fit.levels[second][k],
                        "count": sum(p[first] == j and p[second] == k for p in self.positions),
                        **self._row(term, self.fit.effect(term, (j, k))),
                    }
                )
        return pd.DataFrame(rows, columns=["factor_1", "level_1", "factor_2", "level_2", "count", *EFFECT])

    @cached_property
    def factors(self) -> pd.DataFrame:
        """A row per factor and pair of factors, the weightiest first: share of variation, F test, widest difference.

        ``p_adjusted`` allows for the number of terms (Holm). ``from_level`` to ``to_level`` is the largest step between
        two levels of a factor, in percent with its interval.
        """
        import pandas as pd

        rows = []
        for term in self.fit.terms:
            test = self.fit.tests[term]
            row: dict[str, Any] = {
                "factor": " x ".join(self.names[i] for i in term),
                "share": test.share,
                "freedom": test.freedom,
                "statistic": test.statistic,
                "p_value": test.p_value,
            }
            if len(term) == 1:
                row |= self._widest(term[0])
            rows.append(row)
        tested = [row for row in rows if row["p_value"] == row["p_value"]]
        for row, adjusted in zip(tested, holm([row["p_value"] for row in tested]), strict=True):
            row["p_adjusted"] = adjusted
        columns = ["factor", "share", "freedom", "statistic", "p_value", "p_adjusted", "from_level", "to_level"]
        frame = pd.DataFrame(rows, columns=[*columns, "difference", "percent", "percent_low", "percent_high"])
        return frame.sort_values("share", ascending=False, kind="stable", ignore_index=True)

    @property
    def missing(self) -> pd.DataFrame:
        """Combinations that nobody measured."""
        return self.cells[self.cells["count"] == 0][list(self.names)]

    def _widest(self, factor: int) -> dict[str, Any]:
        levels = self.fit.levels[factor]
        means = [self.fit.effect((factor,), (j,)).value for j in range(len(levels))]
        high, low = max(range(len(levels)), key=means.__getitem__), min(range(len(levels)), key=means.__getitem__)
        base = self.fit.average + means[high]
        step = self.fit.difference(factor, low, high)
        percents = dict(zip(("percent", "percent_low", "percent_high"), self._percent(step, base), strict=True))
        difference = self._back(base + step.value) - self._back(base)
        return {"from_level": levels[high], "to_level": levels[low], "difference": difference, **percents}

    def _row(self, term: tuple[int, ...], effect: Interval[float]) -> dict[str, float]:
        percent = self._percent(effect, self.fit.average)
        sides = [self.average * math.expm1(side) for side in effect] if self.scale == "log" else effect
        test = self.fit.tests[term]
        numbers = [*sides, *percent, test.p_value, test.share]
        return dict(zip(EFFECT, numbers, strict=True))

    def _percent(self, effect: Interval[float], base: float) -> Interval[float]:
        if self.scale == "log":
            return Interval(*(100 * math.expm1(side) for side in effect))
        unit = 100 / abs(base) if base else math.nan
        return Interval(*(side * unit for side in effect))

    def _back(self, value: float) -> float:
        return math.exp(value) if self.scale == "log" else value

    # -- words and files -------------------------------------------------------------------------------------------

    @property
    def verdict(self) -> str:
        """Which factor matters most, and by how much."""
        values = [run.value for run in self.runs.runs]
        if min(values) == max(values):
            return f"{self.metric.noun}: every run has the same, so no factor changes it."
        table = self.factors.to_dict("records")
        singles = [row for row in table if row["from_level"] == row["from_level"] and row["from_level"] is not None]
        top = singles[0]
        sure = top["p_value"] == top["p_value"]
        interval = f" ({top['percent_low']:+.3g} to {top['percent_high']:+.3g} %)" if sure else ""
        chance = f", {format_p(top['p_value'])}" if sure else ", no repetitions to test it by"
        shown = [row for row in table if sure and row["p_adjusted"] < 1 - self.fit.confidence]
        strong = [row["factor"] for row in shown if row not in singles]
        both = f" The factors do not act apart: {', '.join(strong)}." if strong else ""
        if sure and not any(row in shown for row in singles):
            return (
                f"{self.metric.noun}: no factor is shown to matter. The widest step is that of {top['factor']}: from "
                f"{top['from_level']} to {top['to_level']} {top['percent']:+.3g} %{interval}{chance}.{both}"
            )
        weak = [row["factor"] for row in singles if sure and row not in shown]
        rest = f" No effect is shown of {', '.join(weak)}." if weak else ""
        return (
            f"{self.metric.noun}: {top['factor']} matters most, {100 * top['share']:.0f} % of the variation: from "
            f"{top['from_level']} to {top['to_level']} {top['percent']:+.3g} %{interval}{chance}.{both}{rest}"
        )

    def payload(self) -> dict[str, Any]:
        """Everything as plain values; what is unknown is None."""
        return {
            "metric": {"name": self.metric.name, "unit": self.metric.unit, "better": self.metric.better},
            "scale": self.scale,
            "confidence": self.fit.confidence,
            "average": self.average,
            "error": {"source": self.fit.error_source, "freedom": self.fit.error_freedom},
            "cells": plain_rows(self.cells),
            "main": plain_rows(self.main),
            "interactions": plain_rows(self.interactions),
            "factors": plain_rows(self.factors),
            "verdict": self.verdict,
            "findings": [vars(finding) for finding in self.findings],
        }

    def __repr__(self) -> str:
        return f"<Effects of {', '.join(self.names)}: {self}>"

    def chart(self, kind: str = "main", **options: Any) -> Any:
        """An Altair chart: ``main`` effects with intervals, or ``interactions`` as lines through cell averages."""
        return hook("effects_chart")(self, kind, **options)


def _find_warnings(study: Effects) -> list[Finding]:
    found = []
    empty = len(study.missing)
    if empty:
        lost = [" x ".join(study.names[i] for i in term) for term in study.fit.unestimable]
        without = f" What {', '.join(lost)} do together cannot be told, and is taken to be nothing." if lost else ""
        found.append(
            Finding(
                "missing-cells",
                f"{empty} of {len(study.cells)} combinations were not measured.{without}",
                "Measure them, or read the effects as those of the combinations that were.",
            )
        )
    elif study.fit.unestimable:
        lost = [" x ".join(study.names[i] for i in term) for term in study.fit.unestimable]
        found.append(Finding("unestimable", f"Too few runs for {', '.join(lost)}.", "Measure more combinations."))
    if study.fit.error_source == "none":
        found.append(
            Finding(
                "no-repetitions", "No combination was repeated: nothing says how sure an effect is.", "Repeat them."
            )
        )
    elif study.fit.error_source != "repetitions":
        found.append(
            Finding(
                "no-repetitions",
                "No combination was repeated: what three and more factors do together is taken for the error.",
                "Repeat them to know how far runs differ.",
                "info",
            )
        )
    spreads = [sd for sd in study.cells["sd"] if sd == sd and sd > 0]
    if study.scale == "linear" and spreads and max(spreads) > UNEVEN * min(spreads) and min(study.cells["count"]) > 2:
        found.append(
            Finding(
                "uneven-spread",
                f"Repetitions differ {max(spreads) / min(spreads):.0f} times as much in some cells as in others.",
                "Use scale='log', where an effect is a percentage.",
                "info",
            )
        )
    return found
