"""What choosing VM type and batch size together cost, against training every pair to its end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmselect.ranking.candidates import Machine
from vmselect.ranking.comparison import SelectionCost, cheapest_usd_per_hour
from vmselect.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.ranking.selection import Selection


@dataclass(frozen=True, kw_only=True)
class MethodologyCost(SelectionCost):
    """What methodology 1 cost: the study's trainings, and the probes; against running every pair to its end.

    ``without_times`` also names the trainings of the study that are in no sum.
    """

    study_seconds: float
    study_usd: float

    @property
    def total_usd(self) -> float:
        """Study and probes together."""
        return self.study_usd + self.probe_usd

    @property
    def fraction(self) -> float:
        """Total cost as a share of the exhaustive cost."""
        return self.total_usd / self.exhaustive_usd if self.exhaustive_usd else float("nan")


@dataclass(frozen=True)
class Spent:
    """Time on a machine, and what a second of it costs; None where it is not known."""

    what: str
    seconds: float | None
    usd_per_second: float | None

    @property
    def usd(self) -> float | None:
        """Its cost, if both are known."""
        if self.seconds is None or self.usd_per_second is None:
            return None
        return self.seconds * self.usd_per_second


def methodology_cost(selection: Selection, *, measured: Sequence[Machine], pairs: Sequence[Machine]) -> MethodologyCost:
    """The study and every probe, against every one of ``pairs`` as often as the study trained at its batch size."""
    prices = _usd_per_second(selection, measured)
    study = selection.study
    cheapest = min((price for price in prices.values() if price is not None), default=None)
    trained = [
        Spent(f"study, batch {r.batch_size}", r.fit_seconds, _offered(selection.catalog, r.instance_type) or cheapest)
        for r in study.runs
    ]
    probed = [Spent(m.title, m.probe_seconds, prices[m.instance_type, m.provider]) for m in measured]
    repetitions = {size: len(study.runs_at(size)) for size in study.batch_sizes}
    full = [
        Spent(m.title, _seconds(m) * repetitions.get(m.batch_size or 0, 1), prices[m.instance_type, m.provider])
        for m in pairs
    ]
    return MethodologyCost(
        **_sum("study", trained),
        **_sum("probe", probed),
        **_sum("exhaustive", full),
        without_times=tuple(dict.fromkeys(spent.what for spent in [*trained, *probed] if spent.usd is None)),
    )


def _seconds(pair: Machine) -> float:
    """A whole training of a pair."""
    return math.fsum(pair.terms_at(pair.epochs[0]).values()) if pair.epochs else 0.0


def _sum(name: str, spent: Iterable[Spent]) -> dict[str, float]:
    known = [item for item in spent if item.usd is not None]
    seconds, usd = math.fsum(item.seconds or 0.0 for item in known), math.fsum(item.usd or 0.0 for item in known)
    return {f"{name}_seconds": seconds, f"{name}_usd": usd}


def _usd_per_second(selection: Selection, measured: Sequence[Machine]) -> dict[tuple[str, str | None], float | None]:
    """What each measured machine costs: its lowest price in the ranking, else in the catalog."""
    ranked: dict[tuple[str, str | None], float] = {}
    for machine, usd_per_hour in zip(selection.candidates.machines, cheapest_usd_per_hour(selection), strict=True):
        if math.isfinite(usd_per_hour):
            key = machine.instance_type, machine.provider
            ranked[key] = min(ranked.get(key, math.inf), float(usd_per_hour) / SECONDS_PER_HOUR)
    keys = {(machine.instance_type, machine.provider) for machine in measured}
    return {key: ranked[key] if key in ranked else _offered(selection.catalog, key[0]) for key in keys}


def _offered(catalog: Catalog, instance_type: str | None) -> float | None:
    """The lowest price of a second in the catalog."""
    offers = catalog.offers(instance_type=instance_type) if instance_type else ()
    return float(offers["usd_per_hour"].min()) / SECONDS_PER_HOUR if len(offers) else None  # type: ignore[call-overload]
