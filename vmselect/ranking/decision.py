"""Assessment of candidates: measures, feasibility, scores, order, probability of being best, Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vmselect.intervals import Interval
from vmselect.ranking.candidates import Candidates
from vmselect.ranking.measures import LIMITED, MEASURES, OPTIONAL, score
from vmselect.ranking.options import Settings
from vmselect.ranking.probability import ErrorModel, estimate_chances, group_offers, limit_chance
from vmselect.ranking.rows import Bools, Floats, Ints

Codes = npt.NDArray[np.int8]
FEASIBLE, OTHER_MARKET, UNKNOWN, FIRST_LIMIT = range(4)
"""Codes in ``Assessment.limits``: feasible, not sold in the chosen markets, without a needed measure, or over a limit.

The code of an exceeded limit is ``FIRST_LIMIT`` plus the index of its measure in ``LIMITED``.
"""


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """Matrices with a row per candidate and a column per epoch count. Infeasible candidates have the ``rank`` 0."""

    epochs: Floats
    work: Interval[Floats]
    """Time in seconds without spot interruptions and early stops, with a row per machine estimate."""
    measures: Mapping[str, Interval[Floats]]
    """The measures that the settings ask for, by name."""
    limits: Codes
    limit_chances: Mapping[str, Floats]
    """Probability that a candidate stays within the deadline (``time``) or the budget (``cost``), by measure."""
    score: Floats
    rank: Ints
    chance: Floats
    """Probability of being the best candidate."""
    tied: Bools
    """Whether each candidate is recommended, or is in the smallest set of candidates that contains the best one with
    the probability ``settings.confidence``."""
    regret: tuple[Mapping[str, float], ...]
    """For each epoch count: expected amount by which the recommended candidate exceeds the best one in each measure
    that has a weight in the objective."""
    pareto: Bools
    order: tuple[Ints, ...]
    """Indices of the feasible candidates, best first, for each epoch count."""


def assess(candidates: Candidates, settings: Settings) -> Assessment:
    """Measure, score and order all candidates under ``settings``."""
    epochs = _count_epochs(candidates, settings)
    work = candidates.work(epochs)
    # A study has counted the epochs until the stop. Otherwise all machines stop at the same, unknown epoch: this widens
    # the intervals of times and costs, and does not change which machine is best.
    shown = candidates.work(epochs, early_stopping=True) if settings.epochs else work
    measures = measure(candidates, settings, shown, settings.measured)
    # Later assignments win: the first of LIMITED, then unknown measures, then other markets.
    limits = np.zeros(measures["time"].value.shape, dtype=np.int8)
    limit_chances = {}
    for position in reversed(range(len(LIMITED))):
        limited = LIMITED[position]
        most = limited.limit_of(settings)
        if most is not None:
            kept = limit_chances[limited.name] = limit_chance(measures[limited.name], most, settings.confidence)
            if limited.name == "time" and settings.interruptions:
                kept[candidates.is_spot] = _spot_chances(settings, work, most)[
                    candidates.machine_estimate[candidates.is_spot]
                ]
            broken = measures[limited.name].value > most if settings.chance is None else kept < settings.chance
            limits[broken] = FIRST_LIMIT + position
    for name in OPTIONAL:
        if settings.needs(name):
            limits[np.isnan(measures[name].value)] = UNKNOWN
    if settings.market is not None:
        limits[~candidates.is_sold_in(settings.market)] = OTHER_MARKET
    feasible = limits == FEASIBLE
    values = {name: spread.value for name, spread in measures.items()}
    best = {name: np.min(np.where(feasible, v, np.inf), axis=0, initial=np.inf) for name, v in values.items()}
    value = score(settings.objective, values, best)
    compared = [name for name in measures if not MEASURES[name].optional or settings.needs(name)]
    rank = np.zeros(value.shape, dtype=np.intp)
    tied, pareto = np.zeros(value.shape, dtype=bool), np.zeros(value.shape, dtype=bool)
    chance = np.zeros(value.shape)
    mean_epochs = _mean_epochs(candidates, epochs)
    errors = ErrorModel.of(candidates.machine_estimates, settings.confidence)
    groups = group_offers(candidates, settings)
    expected = Interval.exact(epochs.value)
    times = work if settings.epochs else candidates.work(expected)
    order, regret = [], []
    for column in range(value.shape[1]):
        rows = np.flatnonzero(feasible[:, column])
        here = {name: v[rows, column] for name, v in values.items()}
        lowest = {name: float(least[column]) for name, least in best.items()}
        ordered = rows[_sort(value[rows, column], {name: here[name] for name in compared}, lowest)]
        pareto[rows, column] = pareto_front(here["time"], here["cost"])
        rank[ordered, column] = np.arange(1, len(ordered) + 1)
        first = {name: float(v[ordered[0], column]) if len(ordered) else 0.0 for name, v in values.items()}
        chances = estimate_chances(
            candidates, settings, times.column(column), mean_epochs, errors, groups, ordered, lowest, first
        )
        chance[:, column], tied[:, column] = chances.chance, chances.likely
        # The recommendation is always in the set, even if another candidate is more probable.
        tied[ordered[:1], column] = True
        order.append(ordered)
        regret.append(chances.regret)
    return Assessment(
        epochs=np.broadcast_to(epochs.value, (len(candidates.machine_estimates), epochs.value.shape[1])), work=work,
        measures=measures, limits=limits, limit_chances=limit_chances, score=value, rank=rank, chance=chance, tied=tied,
        regret=tuple(regret), pareto=pareto, order=tuple(order),
    )  # fmt: skip


def _sort(scores: Floats, values: Mapping[str, Floats], best: Mapping[str, float]) -> Ints:
    """Positions of candidates in order of their ``scores``.

    Equal scores are ordered by the sum of the ratios of all ``values`` to the ``best`` ones, then by each of the
    ``values``, so that rounding puts no candidate before a better one, and last by position.
    """
    order = np.argsort(scores)
    ascending = scores[order]
    equal = ascending[1:] == ascending[:-1]
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    if len(tied):
        equal_rows = order[tied]
        keys = {name: each[equal_rows] for name, each in values.items()}
        whole = score(
            dict.fromkeys(keys, 1 / len(keys)), keys, {name: np.asarray(least) for name, least in best.items()}
        )
        # The candidates with one score stay within their places, as they are ordered by the score first.
        order[tied] = equal_rows[np.lexsort([equal_rows, *reversed(keys.values()), whole, ascending[tied]])]
    return order


def _spot_chances(settings: Settings, work: Interval[Floats], most: float) -> Floats:
    """Probability that each machine estimate ends within ``most`` seconds despite interruptions."""
    assert settings.interruptions is not None
    chances = np.empty_like(work.value)
    for at in np.ndindex(work.value.shape):
        alone = Interval(*(float(part[at]) for part in work))
        chances[at] = settings.interruptions.chance_within(alone, most, confidence=settings.confidence)
    return chances


def _mean_epochs(candidates: Candidates, epochs: Interval[Floats]) -> Interval[Floats]:
    """Mean number of epochs of each machine estimate. Its interval has a width only if a convergence study gives it."""
    count = np.broadcast_to(epochs.value[:, 0], (len(candidates.machine_estimates),))
    half = np.array(
        [machine.epochs.mean_half_width if machine.epochs else 0.0 for machine in candidates.machine_estimates]
    )
    return Interval(count, count * np.exp(-half), count * np.exp(half))


def _count_epochs(candidates: Candidates, settings: Settings) -> Interval[Floats]:
    """Matrix of epoch counts: one row with a column per requested count.

    With a convergence study, it has one column with a row per machine estimate.
    """
    if settings.epochs:
        counts = np.array([settings.epochs], dtype=float)
        return Interval.exact(counts)
    studied = [tuple(machine.epochs or (0, 0, 0)) for machine in candidates.machine_estimates]
    return Interval(*np.array(studied, dtype=float).reshape(-1, 3, 1).transpose(1, 0, 2))


def measure(
    candidates: Candidates, settings: Settings, work: Interval[Floats], names: Iterable[str] = tuple(MEASURES)
) -> dict[str, Interval[Floats]]:
    """The measures ``names`` of the candidates; ``work`` is the time of each machine estimate without interruptions."""
    time = work.take(candidates.machine_estimate)
    if settings.interruptions and candidates.is_spot.any():
        stretched = settings.interruptions.stretch(work, confidence=settings.confidence)
        time = stretched.take(candidates.machine_estimate).where(candidates.is_spot[:, None], time)
    return {name: MEASURES[name].of(candidates, settings, time) for name in names}


def pareto_front(seconds: Floats, cost: Floats) -> Bools:
    """Whether each point is on the Pareto front of time and cost. Identical points get the same result."""
    front = np.zeros(seconds.shape, dtype=bool)
    if not len(front):
        return front
    order = np.argsort(seconds)
    time, money = seconds[order], cost[order]
    is_new = np.append(True, time[1:] != time[:-1])  # whether a point is the first one with its time
    cheapest = np.minimum.reduceat(money, np.flatnonzero(is_new))  # the lowest cost at each time
    better = np.append(True, cheapest[1:] < np.minimum.accumulate(cheapest)[:-1])
    at = np.cumsum(is_new) - 1
    front[order] = better[at] & (money == cheapest[at])
    return front
