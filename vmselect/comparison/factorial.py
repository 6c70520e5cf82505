"""The linear model behind a designed experiment: an average, an effect for each level, one for each pair of levels.

Levels are coded so that the effects of a factor sum to zero: an effect is the distance from the average over all
levels, whatever the others are set to. With missing or unequal cells it is estimated as if they were there and equal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vmselect.errors import ComparisonError
from vmselect.intervals import Interval
from vmselect.units import list_all

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
