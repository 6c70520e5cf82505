"""The Pareto front: candidates that no other beats in both time and cost."""

from __future__ import annotations

import numpy as np

from vmselect.ranking.evaluation import Bools, Floats


def pareto_front(seconds: Floats, cost: Floats) -> Bools:
    """Which points are on the front; identical points are on it together.

    >>> pareto_front(np.array([1.0, 2.0, 3.0]), np.array([9.0, 4.0, 5.0])).tolist()
    [True, True, False]
    """
    front = np.zeros(seconds.shape, dtype=bool)
    if not seconds.size:
        return front
    order = np.lexsort((cost, seconds))
    time, money = seconds[order], cost[order]
    cheapest_before = np.concatenate([[np.inf], np.minimum.accumulate(money)[:-1]])
    better = money < cheapest_before
    # A point equal to the latest front point in both is on the front with it.
    latest = np.maximum.accumulate(np.where(better, np.arange(len(order)), 0))
    front[order] = better | ((time == time[latest]) & (money == money[latest]))
    return front
