"""Cost of selection: cost of probes and study, compared with the cost of training all candidates completely."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vmselect.errors import CatalogError
from vmselect.ranking.decision import OTHER_MARKET
from vmselect.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.ranking.estimates import MachineEstimate
    from vmselect.ranking.result import Ranking


@dataclass(frozen=True, kw_only=True)
class SelectionCost:
    """Cost of the probes, and exhaustive cost: the cost of the whole training on every measured machine."""

    probe_seconds: float
    probe_usd: float
    exhaustive_seconds: float
    exhaustive_usd: float
    without_times: tuple[str, ...] = ()
    """Titles of machines and runs that the sums do not include because their price or time is not known."""

    @property
    def total_usd(self) -> float:
        """Total cost of selection, in USD."""
        return self.probe_usd

    @property
    def fraction(self) -> float:
        """Total cost of selection divided by the exhaustive cost."""
        return self.total_usd / self.exhaustive_usd if self.exhaustive_usd else float("nan")


@dataclass(frozen=True, kw_only=True)
class MethodologyCost(SelectionCost):
    """Cost of the study's runs and of the probes, and exhaustive cost: the cost of training all pairs completely.

    A pair is an instance type with a batch size.
    """

    study_seconds: float
    study_usd: float

    @property
    def total_usd(self) -> float:
        """Total cost of study and probes, in USD."""
        return self.study_usd + self.probe_usd


Spent = tuple[str, float | None, float | None]
"""Title of a machine or run, its time in seconds and its price in USD per hour; None if not known."""


def selection_cost(ranking: Ranking) -> SelectionCost:
    """Return what the probes (and the study) of ``ranking`` cost, and what whole trainings on every machine would cost.

    Each machine counts at its lowest price in the ranking. A machine that was probed twice counts as two whole
    trainings. With a study, there are as many whole trainings of each pair of instance type and batch size as the study
    has runs at that batch size (at least one).
    """
    prices, studied = _cheapest(ranking), ranking.studied

    def spend(machine: MachineEstimate, seconds: float | None) -> Spent:
        return machine.title, seconds, prices.get(machine.machine_key)

    if studied is None:
        machine_estimates = ranking.candidates.machine_estimates
        probed = [spend(machine, machine.probe_seconds) for machine in machine_estimates]
        epochs = ranking.assessment.epochs[:, ranking.deciding_column]
        full = [
            spend(machine, machine.runtime.seconds(float(n)) * machine.repetitions)
            for machine, n in zip(machine_estimates, epochs, strict=True)
            if machine.probe_seconds is not None
        ]
        return SelectionCost(**_sum("probe", probed), **_sum("exhaustive", full), without_times=_name_unknown(probed))
    study, catalog = studied.study, studied.catalog
    for machine in studied.measured:
        if machine.machine_key not in prices and (usd := _offered(catalog, machine.instance_type)) is not None:
            prices[machine.machine_key] = usd * machine.nodes
    cheapest = min(
        (prices[machine.machine_key] for machine in studied.measured if machine.machine_key in prices), default=None
    )
    trained = [
        (f"study, batch {r.batch_size}", r.fit_seconds, _offered(catalog, r.instance_type) or cheapest)
        for r in study.runs
    ]
    probed = [spend(machine, machine.probe_seconds) for machine in studied.measured]
    repetitions = {size: len(study.runs_at(size)) for size in study.batch_sizes}
    full = [
        spend(machine, machine.runtime.seconds(machine.epochs.value) * repetitions.get(machine.batch_size or 0, 1))
        for machine in studied.pairs
        if machine.epochs
    ]
    return MethodologyCost(
        **_sum("study", trained),
        **_sum("probe", probed),
        **_sum("exhaustive", full),
        without_times=_name_unknown([*trained, *probed]),
    )


def _sum(name: str, spent: Iterable[Spent]) -> dict[str, Any]:
    priced = [(seconds, price) for _, seconds, price in spent if seconds is not None and price is not None]
    usd = math.fsum(seconds * price for seconds, price in priced) / SECONDS_PER_HOUR
    return {f"{name}_seconds": math.fsum(seconds for seconds, _ in priced), f"{name}_usd": usd}


def _name_unknown(spent: Iterable[Spent]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(title for title, *numbers in spent if None in numbers))


def _cheapest(ranking: Ranking) -> dict[Any, float]:
    """Lowest price in USD per hour of each machine (by machine key) in the chosen markets."""
    candidates = ranking.candidates
    cheapest = np.full(len(candidates.machine_estimates), np.inf)
    sold = ranking.assessment.limits[:, ranking.deciding_column] != OTHER_MARKET
    np.minimum.at(cheapest, candidates.machine_estimate[sold], candidates.usd_per_hour[sold])
    prices: dict[Any, float] = {}
    for machine, usd in zip(candidates.machine_estimates, cheapest.tolist(), strict=True):
        if math.isfinite(usd):
            prices[machine.machine_key] = min(prices.get(machine.machine_key, math.inf), usd)
    return prices


def _offered(catalog: Catalog | None, instance_type: str | None) -> float | None:
    """Lowest price in USD per hour of ``instance_type`` in the catalog; None if it has no price."""
    if catalog is None or instance_type is None:
        return None
    try:
        offers = catalog.offers(instance_type=instance_type)
    except CatalogError:  # the catalog does not know the instance type
        return None
    return float(offers["usd_per_hour"].min()) if len(offers) else None
