"""Views across epoch counts and machine estimates: relative tables, crossovers, baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vmselect._checks import check_count, check_name
from vmselect.errors import RankingError
from vmselect.intervals import Interval
from vmselect.ranking.decision import FEASIBLE, OTHER_MARKET, measure
from vmselect.ranking.measures import read_measure
from vmselect.ranking.rows import Floats, Ints
from vmselect.units import printable

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.ranking.result import Ranking

HORIZON = 1_000_000
"""Epochs up to which crossovers are looked for: beyond every training."""

LOOKED_AT = 200_000
"""Values to compute one by one where runtimes are no straight lines."""

INADEQUATE = ("first_iteration", "second_iteration", "mean_2_10")


@dataclass(frozen=True)
class Crossover:
    """The winner changes: from ``epochs`` on, ``winner`` is best, up to then ``previous`` was."""

    epochs: int
    previous: str
    winner: str

    def __str__(self) -> str:
        return printable(f"from {self.epochs:,} epochs on {self.winner}, before that {self.previous}")


def relative(ranking: Ranking, objective: str) -> pd.DataFrame:
    """Each epoch count's values divided by the smallest; rows in the order of the deciding epoch count."""
    import pandas as pd

    result = ranking.assessment
    values = np.where(result.limits == FEASIBLE, _values(ranking, objective), np.nan)
    shown = _by_value(values, ranking.deciding_column)
    labels: list[Any] = list(ranking.settings.epochs) or ["study"]
    table = pd.DataFrame(values[shown], index=_index(ranking, shown), columns=pd.Index(labels, name="epochs"))
    return table / table.min()


def strategies(ranking: Ranking, objective: str) -> pd.DataFrame:
    """Relative table by first iteration only, second only, mean of 2..10, and by the estimate."""
    import pandas as pd

    wanted = np.flatnonzero(ranking.assessment.limits[:, ranking.deciding_column] == FEASIBLE)
    by_cost = read_measure(objective).name == "cost"
    prices = ranking.candidates.usd_per_hour[wanted] if by_cost else np.ones(len(wanted))
    columns: dict[str, Any] = {}
    for name in INADEQUATE:
        seconds = [one.iterations.get(name, np.nan) for one in ranking.candidates.machine_estimates]
        columns[name] = np.array(seconds, dtype=float)[ranking.candidates.machine_estimate[wanted]] * prices
    columns["estimate"] = _values(ranking, objective)[wanted, ranking.deciding_column]
    table = pd.DataFrame(columns, index=_index(ranking, wanted)).sort_values("estimate", kind="stable")
    return table / table.min()


def crossovers(ranking: Ranking, objective: str, *, up_to: int) -> tuple[Crossover, ...]:
    """Changes of the winner on 1..up_to.

    Where runtimes are lines in the number of epochs, the winner's value is a concave envelope: a candidate
    that wins at two epoch counts wins at all between them. Halving the intervals whose ends differ finds every change.
    """
    wanted = _wanted(ranking, up_to)
    if not len(wanted):
        return ()

    def winners(counts: Ints) -> Ints:
        best: Ints = np.argmin(_values_at(ranking, objective, counts)[wanted], axis=0)
        return wanted[best]

    def winner(epochs: int) -> int:
        return int(winners(np.array([epochs]))[0])

    early = _looked_at(ranking, wanted, up_to)
    leaders = winners(early)
    changes = [
        Crossover(int(early[i]), ranking.candidates.title(leaders[i - 1]), ranking.candidates.title(leaders[i]))
        for i in np.flatnonzero(np.diff(leaders)) + 1
    ]
    pending = [(int(early[-1]), int(leaders[-1]), up_to, winner(up_to))]
    while pending:
        low, first, high, last = pending.pop()
        if first == last:
            continue
        if high - low == 1:
            changes.append(Crossover(high, ranking.candidates.title(first), ranking.candidates.title(last)))
            continue
        middle = (low + high) // 2
        between = winner(middle)
        pending += [(middle, between, high, last), (low, first, middle, between)]
    return tuple(changes)


def settled_from(ranking: Ranking, objective: str, *, up_to: int) -> int:
    """Smallest epoch count from which the whole order is the one at ``up_to``.

    Two lines cross once at most, so an order that has become the final one stays it: halving finds the point.
    """
    wanted = _wanted(ranking, up_to)

    def orders(counts: Ints) -> Ints:
        ordered: Ints = np.argsort(_values_at(ranking, objective, counts)[wanted], axis=0, kind="stable")
        return ordered

    final = orders(np.array([up_to]))

    def unlike_final(counts: Ints) -> Ints:
        found: Ints = counts[(orders(counts) != final).any(axis=0)]
        return found

    early = _looked_at(ranking, wanted, up_to)
    low, high = int(early[-1]), up_to
    if not len(unlike_final(early[-1:])):
        return int(unlike_final(early).max(initial=0)) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(unlike_final(np.array([middle]))) else (low, middle)
    return high


def against(ranking: Ranking, instance_type: str) -> pd.DataFrame:
    """Ratios to a baseline at the deciding epoch count: its cheapest offer where it has several."""
    import pandas as pd

    instance_type = check_name("instance_type", instance_type)
    column, result = ranking.deciding_column, ranking.assessment
    sold = np.flatnonzero(result.limits[:, column] != OTHER_MARKET)
    names = ranking.candidates.per_machine_estimate(lambda one: one.instance_type)[sold]
    same = sold[names == instance_type]
    if not len(same):
        known = ", ".join(sorted(set(names)))
        raise RankingError(f"{instance_type} is not among the candidates; choose one of: {known}.")
    base = same[np.argmin(result.cost.value[same, column])]
    # A baseline may break the limits: it is what the others are compared with, not what is to be rented.
    order = result.order[column]
    order = order if base in order else np.append(order, base)
    seconds, cost, price = (
        result.time.value[:, column],
        result.cost.value[:, column],
        ranking.candidates.usd_per_hour,
    )
    return pd.DataFrame(
        {
            "price_ratio": price[order] / price[base],
            "speed_up": seconds[base] / seconds[order],
            "cost_ratio": cost[order] / cost[base],
        },
        index=_index(ranking, order),
    )


def _values(ranking: Ranking, objective: str) -> Floats:
    return ranking.assessment.measures[read_measure(objective).name].value


def _values_at(ranking: Ranking, objective: str, counts: Ints) -> Floats:
    """A row per candidate, a column per epoch count."""
    name, epochs = read_measure(objective).name, counts[None, :].astype(float)
    work = ranking.candidates.work(Interval(epochs, epochs, epochs))
    return measure(ranking.candidates, ranking.settings, work)[name].value


def _looked_at(ranking: Ranking, wanted: Ints, up_to: int) -> Ints:
    """Epoch counts to look at one by one: the first alone where all runtimes and bills are lines, else many.

    Validating every few epochs and rounding up a bill make steps, so that leaders may change to and fro.
    """
    every = ranking.candidates.form.validation_freq[ranking.candidates.machine_estimate[wanted]]
    if ranking.settings.billing == "exact" and (every == 1).all():
        return np.array([1])
    return np.arange(1, min(up_to, max(1, LOOKED_AT // max(1, len(wanted)))) + 1)


def _wanted(ranking: Ranking, up_to: int) -> Ints:
    """Candidates in the chosen markets, whether or not they keep the limits, which hold at single epoch counts."""
    if not ranking.settings.epochs:
        raise RankingError("each candidate's epoch count comes from the study: there is nothing to vary here.")
    check_count("up_to", up_to)
    return np.flatnonzero(ranking.assessment.limits[:, 0] != OTHER_MARKET)


def _by_value(values: Floats, column: int) -> Ints:
    """Positions of candidates that have any value, smallest first in ``column``."""
    order = np.lexsort((np.arange(len(values)), values[:, column]))
    return order[np.isfinite(values[order]).any(axis=1)]


def _index(ranking: Ranking, which: Ints) -> pd.Index:
    """Instance types where they tell the candidates apart, otherwise with whatever else is needed."""
    import pandas as pd

    candidates = ranking.candidates
    levels: dict[str, Any] = {
        "instance_type": candidates.per_machine_estimate(lambda one: one.instance_type)[which],
        "batch_size": candidates.per_machine_estimate(lambda one: one.batch_size)[which],
    }
    levels |= {name: candidates.column(name)[which] for name in ("provider", "service", "region", "market")}
    kept = {name: values for name, values in levels.items() if name == "instance_type" or len(set(values)) > 1}
    instance_types: pd.Index = pd.Index(kept["instance_type"], name="instance_type")
    if instance_types.is_unique or len(kept) == 1:
        return instance_types
    return pd.MultiIndex.from_arrays(list(kept.values()), names=list(kept))
