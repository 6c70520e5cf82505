"""Everything that settings make of candidates: times, costs, who is feasible, scores, order, ties, Pareto front."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vmselect.ranking.candidates import Candidates
from vmselect.ranking.constraints import FEASIBLE, Codes, check_limits
from vmselect.ranking.evaluation import Bools, Floats, Ints, Spread, cost_of
from vmselect.ranking.objectives import best_values, score
from vmselect.ranking.pareto import pareto_front
from vmselect.ranking.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """Matrices with a row per candidate and a column per epoch count; ``rank`` is 0 where not feasible."""

    epochs: Floats
    work: Spread
    """Time without interruptions, a row per machine."""
    time: Spread
    cost: Spread
    limits: Codes
    score: Floats
    rank: Ints
    tied: Bools
    pareto: Bools
    order: tuple[Ints, ...]
    """For each column, the feasible candidates, best first."""


def assess(candidates: Candidates, settings: Settings) -> Assessment:
    """Evaluate all candidates under ``settings``."""
    epochs = epoch_counts(candidates, settings)
    work = candidates.coefficients.at(epochs.value, low=epochs.low, high=epochs.high)
    time, cost = time_and_cost(candidates, settings, work)
    limits = check_limits(settings, time=time, cost=cost, wanted=_in_markets(candidates, settings))
    feasible = limits == FEASIBLE
    best_cost, best_time = best_values(cost.value, feasible), best_values(time.value, feasible)

    def scored(money: Floats, seconds: Floats) -> Floats:
        return score(settings.objective, cost=money, time=seconds, best_cost=best_cost, best_time=best_time)

    value, lowest, highest = (
        scored(cost.value, time.value),
        scored(cost.low, time.low),
        scored(cost.high, time.high),
    )
    # Equal scores are ordered by the sum of both ratios, then by the fixed order of the candidates.
    both = score({"cost": 0.5, "time": 0.5}, cost=cost.value, time=time.value, best_cost=best_cost, best_time=best_time)
    rank = np.zeros(value.shape, dtype=np.intp)
    tied, pareto = np.zeros(value.shape, dtype=bool), np.zeros(value.shape, dtype=bool)
    order = []
    for column in range(value.shape[1]):
        rows = np.flatnonzero(feasible[:, column])
        ordered = rows[np.lexsort((both[rows, column], value[rows, column]))]
        order.append(ordered)
        if not len(ordered):
            continue
        rank[ordered, column] = np.arange(1, len(ordered) + 1)
        tied[rows, column] = lowest[rows, column] <= highest[ordered[0], column]
        pareto[rows, column] = pareto_front(time.value[rows, column], cost.value[rows, column])
    return Assessment(
        epochs=np.broadcast_to(epochs.value, (len(candidates.machines), epochs.value.shape[1])),
        work=work, time=time, cost=cost, limits=limits, score=value, rank=rank, tied=tied, pareto=pareto,
        order=tuple(order),
    )  # fmt: skip


def epoch_counts(candidates: Candidates, settings: Settings) -> Spread:
    """Epoch counts: one row for all machines, or, where a study gave them, a row per machine and a single column."""
    if settings.epochs:
        counts = np.array([settings.epochs], dtype=float)
        return Spread(counts, counts, counts)
    studied = np.array([machine.epochs for machine in candidates.machines], dtype=float).reshape(-1, 3)
    return Spread(studied[:, [0]], studied[:, [1]], studied[:, [2]])


def time_and_cost(candidates: Candidates, settings: Settings, work: Spread) -> tuple[Spread, Spread]:
    """Expected time and cost of each candidate, given what each machine takes when nothing interrupts it."""
    time = work.take(candidates.machine)
    if settings.interruptions and candidates.is_spot.any():
        stretched = settings.interruptions.stretch(work, confidence=settings.confidence).take(candidates.machine)
        time = stretched.where(candidates.is_spot[:, None], time)
    exact = settings.billing == "exact"
    none = np.zeros(len(candidates))
    cost = cost_of(
        time,
        usd_per_hour=candidates.usd_per_hour,
        increment=none if exact else candidates.increment_seconds,
        minimum=none if exact else candidates.minimum_seconds,
    )
    return time, cost


def _in_markets(candidates: Candidates, settings: Settings) -> Bools:
    if settings.markets is None:
        return np.ones(len(candidates), dtype=bool)
    return np.asarray(np.isin(candidates.offers["market"].to_numpy(dtype=str), settings.markets)[candidates.offer])
