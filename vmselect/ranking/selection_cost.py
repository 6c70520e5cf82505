"""What choosing cost: the probes, and the study where there was one, against running everything to its end."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vmselect.ranking.decision import OTHER_MARKET
from vmselect.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.ranking.estimates import MachineEstimate
    from vmselect.ranking.result import Ranking


@dataclass(frozen=True, kw_only=True)
class SelectionCost:
    """What the probes cost, against running every measured machine estimate to the deciding epoch count."""

    probe_seconds: float
    probe_usd: float
    exhaustive_seconds: float
    exhaustive_usd: float
    without_times: tuple[str, ...] = ()
    """What is in no sum: it has no price here, or how long it took is not known."""

    @property
    def total_usd(self) -> float:
        """All that choosing cost."""
        return self.probe_usd

    @property
    def fraction(self) -> float:
        """That as a share of the exhaustive cost."""
        return self.total_usd / self.exhaustive_usd if self.exhaustive_usd else float("nan")


@dataclass(frozen=True, kw_only=True)
class MethodologyCost(SelectionCost):
    """What methodology 1 cost: the study's trainings, and the probes; against running every pair to its end."""

    study_seconds: float
    study_usd: float

    @property
    def total_usd(self) -> float:
        """Study and probes together."""
        return self.study_usd + self.probe_usd


@dataclass(frozen=True)
class _Spent:
    """Time on machines, and what an hour of it costs; None where it is not known."""

    what: str
    seconds: float | None
    usd_per_hour: float | None

    @property
    def known(self) -> bool:
        return self.seconds is not None and self.usd_per_hour is not None


def selection_cost(ranking: Ranking) -> SelectionCost:
    """Each machine estimate once, at the lowest price at which it is ranked, as often as it was measured.

    With a study: the study and every probe, against every pair as often as the study trained at its batch size.
    """
    prices = _cheapest(ranking)
    if ranking.studied is None:
        column, machine_estimates = ranking.deciding_column, ranking.candidates.machine_estimates
        epochs = ranking.assessment.epochs[:, column]
        full = [
            _Spent(one.title, one.runtime.seconds(float(n)) * one.repetitions, prices.get(one.machine_key))
            for one, n in zip(machine_estimates, epochs, strict=True)
        ]
        probed = [_Spent(one.title, one.probe_seconds, prices.get(one.machine_key)) for one in machine_estimates]
        both = [pair for pair in zip(probed, full, strict=True) if all(spent.known for spent in pair)]
        without = tuple(spent.what for spent in probed if not spent.known)
        sums = _sum("probe", [one for one, _ in both]) | _sum("exhaustive", [one for _, one in both])
        return SelectionCost(**sums, without_times=without)
    studied = ranking.studied
    study, catalog = studied.study, studied.catalog
    for one in studied.measured:
        if one.machine_key not in prices and (usd := _offered(catalog, one.instance_type)) is not None:
            prices[one.machine_key] = usd * one.nodes
    cheapest = min((prices[one.machine_key] for one in studied.measured if one.machine_key in prices), default=None)
    trained = [
        _Spent(f"study, batch {r.batch_size}", r.fit_seconds, _offered(catalog, r.instance_type) or cheapest)
        for r in study.runs
    ]
    probed = [_Spent(one.title, one.probe_seconds, prices.get(one.machine_key)) for one in studied.measured]
    repetitions = {size: len(study.runs_at(size)) for size in study.batch_sizes}
    full = [
        _Spent(one.title, _whole(one) * repetitions.get(one.batch_size or 0, 1), prices.get(one.machine_key))
        for one in studied.pairs
    ]
    return MethodologyCost(
        **_sum("study", trained),
        **_sum("probe", probed),
        **_sum("exhaustive", full),
        without_times=tuple(dict.fromkeys(spent.what for spent in [*trained, *probed] if not spent.known)),
    )


def _whole(pair: MachineEstimate) -> float:
    """Seconds of a whole training."""
    return pair.runtime.seconds(pair.epochs.value) if pair.epochs else 0.0


def _sum(name: str, spent: Iterable[_Spent]) -> dict[str, Any]:
    known = [(one.seconds or 0.0, one.usd_per_hour or 0.0) for one in spent if one.known]
    usd = math.fsum(seconds * price for seconds, price in known) / SECONDS_PER_HOUR
    return {f"{name}_seconds": math.fsum(seconds for seconds, _ in known), f"{name}_usd": usd}


def _cheapest(ranking: Ranking) -> dict[Any, float]:
    """For each machine the lowest of its prices in the chosen markets."""
    candidates = ranking.candidates
    cheapest = np.full(len(candidates.machine_estimates), np.inf)
    sold = ranking.assessment.limits[:, ranking.deciding_column] != OTHER_MARKET
    np.minimum.at(cheapest, candidates.machine_estimate[sold], candidates.usd_per_hour[sold])
    found: dict[Any, float] = {}
    for one, usd in zip(candidates.machine_estimates, cheapest.tolist(), strict=True):
        if math.isfinite(usd):
            found[one.machine_key] = min(found.get(one.machine_key, math.inf), usd)
    return found


def _offered(catalog: Catalog | None, instance_type: str | None) -> float | None:
    """The lowest price of an hour in the catalog."""
    offers = catalog.offers(instance_type=instance_type) if catalog is not None and instance_type else ()
    return float(offers["usd_per_hour"].min()) if len(offers) else None  # type: ignore[call-overload]
