"""What is minimised: cost, time, or a weighted mix of both, each divided by the best one."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from vmselect.errors import ArgumentError
from vmselect.ranking.evaluation import Bools, Floats

Objective: TypeAlias = Literal["cost", "time"] | Mapping[str, float]
NAMES = ("cost", "time")


def read_objective(objective: Objective) -> Mapping[str, float]:
    """Weights of cost and time that sum to 1.

    >>> dict(read_objective("cost")), dict(read_objective({"cost": 7, "time": 3}))
    ({'cost': 1.0, 'time': 0.0}, {'cost': 0.7, 'time': 0.3})
    """
    if objective in NAMES:
        return MappingProxyType({name: float(name == objective) for name in NAMES})
    if not isinstance(objective, Mapping):
        raise ArgumentError(
            f'objective is {objective!r}; use "cost", "time" or weights such as {{"cost": 0.7, "time": 0.3}}.'
        )
    unknown = set(objective) - set(NAMES)
    if unknown:
        raise ArgumentError(
            f"objective weighs {', '.join(sorted(map(str, unknown)))}; only cost and time can be weighed."
        )
    given = [objective.get(name, 0.0) for name in NAMES]
    usable = all(isinstance(weight, Real) and 0 <= weight < np.inf for weight in given)
    weights = {name: float(weight) for name, weight in zip(NAMES, given, strict=True)} if usable else {}
    total = sum(weights.values())
    if not 0 < total < np.inf:
        raise ArgumentError(
            f"objective weights are {dict(objective)!r}; give numbers of at least 0 that are not all 0."
        )
    return MappingProxyType({name: weight / total for name, weight in weights.items()})


def name_of(weights: Mapping[str, float]) -> str:
    """The objective in words.

    >>> name_of({"cost": 0.7, "time": 0.3})
    '0.7 cost + 0.3 time'
    """
    for name in NAMES:
        if weights[name] == 1.0:
            return name
    return f"{weights['cost']:.3g} cost + {weights['time']:.3g} time"


def score(weights: Mapping[str, float], *, cost: Floats, time: Floats, best_cost: Floats, best_time: Floats) -> Floats:
    """Sum of weight x value / best value: 1.00 is unbeatable."""
    total = np.zeros(np.broadcast_shapes(cost.shape, time.shape))
    for name, value, best in (("cost", cost, best_cost), ("time", time, best_time)):
        if weights[name]:
            total += weights[name] * _ratio(value, best)
    return total


def _ratio(value: Floats, best: Floats) -> Floats:
    # A free machine makes the best cost 0: it is then the reference itself, and everything paid is infinitely worse.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = value / best
    return np.where(best > 0, ratio, np.where(value > 0, np.inf, 1.0))


def best_values(values: Floats, feasible: Bools) -> Floats:
    """Smallest feasible value of each column (infinity where nothing is feasible)."""
    return np.asarray(np.min(np.where(feasible, values, np.inf), axis=0, initial=np.inf), dtype=float)
