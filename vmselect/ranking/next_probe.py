"""The next probe: the machine whose probe is expected to improve the choice most per dollar, if it is worth its price.

Probing a machine replaces its predicted time by a measured one, and moves the predictions of machines with similar
GPUs. The expected improvement of the lowest objective is the knowledge gradient, computed for all machines that were
never probed from the joint distribution of their log times.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vmselect.ranking.probability import ErrorModel, log_deviations
from vmselect.ranking.rows import Floats, Ints
from vmselect.units import SECONDS_PER_HOUR, format_chance, format_usd, printable

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking

START_SECONDS = 300.0
"""Paid time to start a machine and install the program before a probe. Chosen by judgement."""
PROBE_SECONDS = 120.0
"""Duration of a probe if none of the records contains its own."""
NODES = 21
"""Number of nodes of the Gauss-Hermite quadrature."""


@dataclass(frozen=True, kw_only=True)
class NextProbe:
    """The machine to probe next, the cost of the probe, and what it saves on average in this training."""

    instance_type: str
    provider: str
    region: str
    market: str
    probe_usd: float
    expected_saving_usd: float
    expected_saving: float
    """Expected improvement of the objective, relative to its value for the recommended machine."""
    chance: float
    """Probability that this machine is the best one, before the probe."""
    reason: str

    def __str__(self) -> str:
        return printable(f"Probe {self.instance_type} ({self.provider}, {self.region}, {self.market}): {self.reason}")


def find_next_probe(ranking: Ranking) -> NextProbe | None:
    """The probe with the largest expected improvement per dollar; None if none is worth its price."""
    column = ranking.deciding_column
    order = ranking.assessment.order[column]
    candidates = ranking.candidates
    _, first = np.unique(candidates.machine_estimate[order], return_index=True)
    offers: Ints = order[np.sort(first)]  # the best offer of each machine estimate, best first
    which = candidates.machine_estimate[offers]
    unprobed = [k for k, i in enumerate(which) if candidates.machine_estimates[i].basis == "predicted"]
    if not unprobed or len(offers) < 2 or relative_regret(ranking) < ranking.settings.enough_regret:
        return None
    gains = knowledge_gradients(ranking, offers)
    costs = probe_seconds(ranking) / SECONDS_PER_HOUR * candidates.usd_per_hour[offers]
    best_cost = float(ranking.assessment.measures["cost"].value[offers[0], column])
    savings = best_cost * -np.expm1(-gains)
    worth = [k for k in unprobed if savings[k] > costs[k]]
    if not worth:
        return None
    chosen = max(worth, key=lambda k: float(gains[k]) / max(float(costs[k]), 1e-9))
    candidate = int(offers[chosen])
    row = ranking.row(candidate, column)
    best = (
        "is the best by its predicted time"
        if chosen == 0
        else f"is the best with a probability of {format_chance(row.chance)}"
    )
    return NextProbe(
        instance_type=row.instance_type, provider=row.provider, region=row.region, market=row.market,
        probe_usd=float(costs[chosen]), expected_saving_usd=float(savings[chosen]),
        expected_saving=float(-np.expm1(-gains[chosen])), chance=row.chance,
        reason=f"it was never probed and {best}. A probe costs about {format_usd(float(costs[chosen]))} and saves "
        f"{format_usd(float(savings[chosen]))} of this training on average.",
    )  # fmt: skip


def relative_regret(ranking: Ranking) -> float:
    """Expected regret of the choice in terms of the objective, relative to its value."""
    regret, column = ranking.expected_regret, ranking.deciding_column
    best = ranking.assessment.order[column][0]
    parts = []
    for name, weight in ranking.settings.objective.items():
        value = float(ranking.assessment.measures[name].value[best, column])
        if weight and value:
            parts.append((weight, regret[name] / value))
    total = sum(weight for weight, _ in parts)
    return sum(weight * share for weight, share in parts) / total if total else 0.0


def knowledge_gradients(ranking: Ranking, offers: Ints) -> Floats:
    """Expected decrease of the lowest log objective if the machine of each offer is probed; 0 for measured ones."""
    column, settings = ranking.deciding_column, ranking.settings
    level = np.log(ranking.assessment.score[offers, column])
    machine_estimates = ranking.candidates.machine_estimates
    which = ranking.candidates.machine_estimate[offers]
    below, above = log_deviations(ranking.assessment.work.take(which).column(column), settings.confidence)
    deviation = (below + above) / 2
    correlation = ErrorModel.of(machine_estimates, settings.confidence).correlation()[np.ix_(which, which)]
    predicted = np.array([machine_estimates[i].basis == "predicted" for i in which])
    gains = np.zeros(len(offers))
    for j in np.flatnonzero(predicted):
        gains[j] = expected_decrease(level, np.where(predicted, deviation * correlation[:, j], 0.0))
    return gains


def expected_decrease(level: Floats, shift: Floats) -> float:
    """Expected decrease of the smallest of ``level`` if all change by ``shift`` times one standard normal number."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    lowest = np.min(level[:, None] + shift[:, None] * nodes[None, :], axis=0)
    return max(0.0, float(level.min() - lowest @ weights / weights.sum()))


def probe_seconds(ranking: Ranking) -> float:
    """Paid time of a probe: the start of a machine, and a probe as long as the previous ones."""
    measured = [one for one in ranking.candidates.machine_estimates if one.basis == "measured"]
    spent = [one.probe_seconds / one.repetitions for one in measured if one.probe_seconds and one.repetitions]
    return START_SECONDS + (statistics.median(spent) if spent else PROBE_SECONDS)


def to_dict(ranking: Ranking) -> dict[str, Any]:
    """Plain numbers from which the report page finds the same probe."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return {"seconds": probe_seconds(ranking), "nodes": nodes.tolist(), "weights": (weights / weights.sum()).tolist()}
