"""Assessment of candidates under the settings: measures, feasibility, scores, order, ties, Pareto front."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vmselect.intervals import Interval
from vmselect.ranking.candidates import Candidates
from vmselect.ranking.measures import LIMITED, MEASURES, Settings, score
from vmselect.ranking.rows import Bools, Floats, Ints

Codes = npt.NDArray[np.int8]
FEASIBLE, OTHER_MARKET, FIRST_LIMIT = range(3)
"""Codes of feasibility. The code of a broken limit is ``FIRST_LIMIT`` plus its position in ``LIMITED``."""

MUCH_WORSE = 1.5
"""Ratio above which a candidate is much worse than another in a measure. Chosen by judgement: 50 % more time or cost
matters more than a difference within the intervals."""


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """Matrices with a row per candidate and a column per epoch count; the ``rank`` of infeasible candidates is 0."""

    epochs: Floats
    work: Interval[Floats]
    """Time without interruptions, with a row per machine estimate."""
    measures: Mapping[str, Interval[Floats]]
    limits: Codes
    score: Floats
    rank: Ints
    tied: Bools
    pareto: Bools
    order: tuple[Ints, ...]
    """Positions of the feasible candidates, best first, for each epoch count."""


def assess(candidates: Candidates, settings: Settings) -> Assessment:
    """Measure, score and order all candidates under ``settings``."""
    epochs = _count_epochs(candidates, settings)
    work = candidates.work(epochs)
    measures = measure(candidates, settings, work)
    limits = np.zeros(measures["time"].value.shape, dtype=np.int8)
    for position in reversed(range(len(LIMITED))):
        most = LIMITED[position].limit_of(settings)
        if most is not None:
            limits[measures[LIMITED[position].name].value > most] = FIRST_LIMIT + position
    if settings.markets is not None:
        limits[~np.isin(candidates.column("market").astype(str), settings.markets)] = OTHER_MARKET
    feasible = limits == FEASIBLE
    values = {name: spread.value for name, spread in measures.items()}
    best = {name: np.min(np.where(feasible, v, np.inf), axis=0, initial=np.inf) for name, v in values.items()}
    value = score(settings.objective, values, best)
    # Equal scores are ordered by the sum of all ratios, then by the measures, so that rounding puts no candidate before
    # a better one, and last by the position of the candidates.
    whole = score(dict.fromkeys(MEASURES, 1 / len(MEASURES)), values, best)
    near = _find_ties(candidates, settings, epochs, measures, best, value)
    rank = np.zeros(value.shape, dtype=np.intp)
    tied, pareto = np.zeros(value.shape, dtype=bool), np.zeros(value.shape, dtype=bool)
    order = []
    for column in range(value.shape[1]):
        rows = np.flatnonzero(feasible[:, column])
        keys = [*(values[name][rows, column] for name in reversed(MEASURES)), whole[rows, column], value[rows, column]]
        ordered = rows[np.lexsort(keys)]
        if len(ordered):
            tied[rows, column] = near(int(ordered[0]), rows, column)
            pareto[rows, column] = pareto_front(values["time"][rows, column], values["cost"][rows, column])
            equal = ordered[tied[ordered, column] & pareto[ordered, column]]
            others = [values[name][equal, column] for name, weight in settings.objective.items() if not weight]
            choice = ordered[0]
            # Of the tied candidates, choose the first that is not much worse than another in a measure of weight 0.
            if len(equal) and others:
                choice = equal[np.argmax(np.all([one <= MUCH_WORSE * one.min() for one in others], axis=0))]
            ordered = np.concatenate([[choice], ordered[ordered != choice]])
            rank[ordered, column] = np.arange(1, len(ordered) + 1)
        order.append(ordered)
    return Assessment(
        epochs=np.broadcast_to(epochs.value, (len(candidates.machine_estimates), epochs.value.shape[1])), work=work,
        measures=measures, limits=limits, score=value, rank=rank, tied=tied, pareto=pareto, order=tuple(order),
    )  # fmt: skip


def _count_epochs(candidates: Candidates, settings: Settings) -> Interval[Floats]:
    """Epoch counts: one row for all machine estimates; with a study, a row per machine estimate and one column."""
    if settings.epochs:
        counts = np.array([settings.epochs], dtype=float)
        return Interval(counts, counts, counts)
    studied = [tuple(one.epochs or (0, 0, 0)) for one in candidates.machine_estimates]
    return Interval(*np.array(studied, dtype=float).reshape(-1, 3, 1).transpose(1, 0, 2))


def measure(candidates: Candidates, settings: Settings, work: Interval[Floats]) -> dict[str, Interval[Floats]]:
    """All measures of the candidates; ``work`` is the time of each machine estimate without interruptions."""
    time = work.take(candidates.machine_estimate)
    if settings.interruptions and candidates.is_spot.any():
        stretched = settings.interruptions.stretch(work, confidence=settings.confidence)
        time = stretched.take(candidates.machine_estimate).where(candidates.is_spot[:, None], time)
    return {name: one.of(candidates, settings, time) for name, one in MEASURES.items()}


def pareto_front(seconds: Floats, cost: Floats) -> Bools:
    """Whether each point is on the Pareto front of time and cost; identical points are on it together."""
    front = np.zeros(seconds.shape, dtype=bool)
    order = np.lexsort((cost, seconds))
    time, money = seconds[order], cost[order]
    better = money < np.minimum.accumulate(np.concatenate([[np.inf], money]))[:-1]
    # A point that equals the previous point of the front in time and cost is on the front too.
    latest = np.maximum.accumulate(np.where(better, np.arange(len(order)), 0))
    front[order] = better | ((time == time[latest]) & (money == money[latest]))
    return front


def _find_ties(
    candidates: Candidates,
    settings: Settings,
    epochs: Interval[Floats],
    measures: Mapping[str, Interval[Floats]],
    best: Mapping[str, Floats],
    value: Floats,
) -> Callable[[int, Ints, int], Bools]:
    """A function ``near(winner, rows, column)``: which of the candidates ``rows`` are tied with the winner.

    Without a study, these are candidates whose lower bounds score no worse than the upper bounds of the winner. With a
    study, epochs do not depend on the machine, so at equal batch sizes only the uncertainty of times counts. Between
    batch sizes the uncertainty of the mean number of epochs counts too, not that of a single run.
    """

    def scored(spreads: Mapping[str, Interval[Floats]]) -> tuple[Floats, Floats]:
        low = score(settings.objective, {name: s.low for name, s in spreads.items()}, best)
        return low, score(settings.objective, {name: s.high for name, s in spreads.items()}, best)

    if settings.epochs:
        low, high = scored(measures)
        return lambda winner, rows, column: np.asarray(low[rows, column] <= high[winner, column])
    mean = Interval(epochs.value, epochs.value, epochs.value)
    low, high = scored(measure(candidates, settings, candidates.work(mean)))
    sizes = candidates.per_machine_estimate(lambda one: one.batch_size)
    widths = candidates.per_machine_estimate(lambda one: one.epochs.mean_half_width if one.epochs else 0.0)
    widths = widths.astype(float)

    def near(winner: int, rows: Ints, column: int) -> Bools:
        at = value[rows, column]
        of_epochs = np.where(sizes[rows] == sizes[winner], 0.0, np.hypot(widths[rows], widths[winner]))
        above = high[winner, column] / value[winner, column] - 1
        apart = np.hypot(np.hypot(1 - low[rows, column] / at, above), of_epochs)
        return np.asarray(np.log(at / value[winner, column]) <= apart)

    return near
