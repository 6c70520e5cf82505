"""Candidates: every machine estimate joined with every price it can be rented at, in columns.

A candidate is a pair of positions: that of its machine estimate and that of its offer. Everything about a million of
them is then a few arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vmselect.catalog import Catalog, describe_unpriced, provider_terms
from vmselect.estimation.runtime import ClosedForm
from vmselect.intervals import Interval
from vmselect.ranking.estimates import MachineEstimate
from vmselect.ranking.rows import Bools, Excluded, Floats, Ints
from vmselect.ranking.settings import Settings
from vmselect.units import list_some

if TYPE_CHECKING:
    from vmselect.ranking.serving import Service

OFFER_FIELDS = ("provider", "service", "region", "market", "gpu_model", "gpu_count", "vcpus", "memory_gib")


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The join: for each candidate, its position in ``machine_estimates`` and in ``offers``."""

    machine_estimates: tuple[MachineEstimate, ...]
    offers: pd.DataFrame
    machine_estimate: Ints
    offer: Ints
    increment_seconds: Floats
    minimum_seconds: Floats

    def __len__(self) -> int:
        return len(self.machine_estimate)

    @cached_property
    def form(self) -> ClosedForm:
        """Seconds as a function of epochs, a row per machine estimate."""
        return ClosedForm.stack([one.runtime.form for one in self.machine_estimates])

    def work(self, epochs: Interval[Floats]) -> Interval[Floats]:
        """Uninterrupted time of each machine estimate; ``epochs`` has a row for each of them, or one row for all."""
        low, high = self.form.interval(epochs.low, epochs.high)
        return Interval(np.asarray(self.form.seconds(epochs.value)), np.asarray(low), np.asarray(high))

    def column(self, name: str) -> Any:
        """A column of the offers, a value per candidate."""
        return self.offers[name].to_numpy()[self.offer]

    @cached_property
    def usd_per_hour(self) -> Floats:
        """Price of each candidate: of all machines that its machine estimate needs at once."""
        nodes = np.array([one.nodes for one in self.machine_estimates], dtype=float)
        return np.asarray(self.column("usd_per_hour") * nodes[self.machine_estimate], dtype=float)

    @cached_property
    def moving_usd(self) -> Floats:
        """Dollars of each candidate that do not depend on time: those for moving its data."""
        return np.array([one.moving_usd for one in self.machine_estimates], dtype=float)[self.machine_estimate]

    @cached_property
    def is_spot(self) -> Bools:
        """Which candidates can be interrupted."""
        return np.asarray(self.column("market") == "spot", dtype=bool)

    def per_machine_estimate(self, value: Callable[[MachineEstimate], Any]) -> Any:
        """A value of each candidate's machine estimate."""
        values = np.empty(len(self.machine_estimates), dtype=object)
        values[:] = [value(one) for one in self.machine_estimates]
        return values[self.machine_estimate]

    def of(self, candidate: int) -> MachineEstimate:
        """The machine estimate of a candidate."""
        return self.machine_estimates[int(self.machine_estimate[candidate])]

    def identity(self, candidate: int) -> dict[str, Any]:
        """Who the candidate is, in plain values."""
        one, at = self.of(candidate), self.offer[candidate]
        offer = {name: plain(column[at]) for name, column in self._offer_columns.items()}
        return {"instance_type": one.instance_type, "batch_size": one.batch_size, "varied": one.varied, **offer}

    def title(self, candidate: int) -> str:
        """The candidate in words."""
        who = self.identity(candidate)
        return self.of(candidate).title_in(who["provider"], who["region"], who["market"])

    @cached_property
    def _offer_columns(self) -> dict[str, Any]:
        return {name: self.offers[name].to_numpy() for name in (*OFFER_FIELDS, "date")}


def plain(value: Any) -> Any:
    """A cell of a frame as a plain Python value; a missing one as None."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value.isoformat() if hasattr(value, "isoformat") else value


def match_offers(
    machines: Sequence[MachineEstimate] | Sequence[Service],
    catalog: Catalog,
    *,
    regions: Sequence[str] | None,
    include_retired: bool,
) -> tuple[pd.DataFrame, list[Ints], list[Excluded]]:
    """The offers in all markets, for each machine the positions of its offers, and the machines without any.

    ``regions`` are those that the caller names, empty for all. Where it is None, the region in which a machine was
    measured counts, and every region where that is unknown.
    """
    offers = _offers_of({one.instance_type for one in machines}, catalog)
    names, retired = offers["instance_type"].to_numpy(dtype=str), offers["retired"].to_numpy(dtype=bool)
    starts = {name: int(at) for name, at in zip(*np.unique(names, return_index=True), strict=True)}
    ends = {name: int(at) for name, at in zip(names, range(1, len(names) + 1), strict=True)}
    providers, sold_in = offers["provider"].to_numpy(dtype=str), offers["region"].to_numpy(dtype=str)
    matched: list[Ints] = []
    excluded: list[Excluded] = []
    for one in machines:
        mine = np.arange(starts.get(one.instance_type, 0), ends.get(one.instance_type, 0))
        if one.provider:
            mine = mine[providers[mine] == one.provider]
        places = one.regions if regions is None else regions
        here = mine[np.isin(sold_in[mine], places)] if places else mine
        matched.append(here if include_retired else here[~retired[here]])
        if len(matched[-1]):
            continue
        if len(here):
            reason = (
                f"{one.instance_type} can no longer be rented; pass include_retired=True to rank it at its last price"
            )
            excluded.append(Excluded(one.title, "retired", reason))
        else:
            reason = explain_no_price(one.instance_type, provider=one.provider, places=places, sold_in=sold_in[mine])
            excluded.append(Excluded(one.title, "no_price", reason))
    return offers, matched, excluded


def join_offers(
    machine_estimates: Sequence[MachineEstimate], catalog: Catalog, settings: Settings
) -> tuple[Candidates, list[Excluded]]:
    """Every price of every machine estimate, in all markets, and the machine estimates that have none in any."""
    offers, matched, excluded = match_offers(
        machine_estimates, catalog, regions=settings.regions, include_retired=settings.include_retired
    )
    which = np.repeat(np.arange(len(matched), dtype=np.intp), [len(mine) for mine in matched])
    offer = np.concatenate([np.zeros(0, dtype=np.intp), *matched])
    increment, minimum = _billing(offers)
    return (
        Candidates(
            machine_estimates=tuple(machine_estimates), offers=offers, machine_estimate=which, offer=offer,
            increment_seconds=increment[offer], minimum_seconds=minimum[offer],
        ),
        excluded,
    )  # fmt: skip


def name_unsold(candidates: Candidates, settings: Settings, *, wanted: Bools) -> tuple[Excluded, ...]:
    """Machine estimates that are sold, but in none of the markets asked for."""
    missing = np.setdiff1d(candidates.machine_estimate, candidates.machine_estimate[wanted])
    sold_in = candidates.column("market")
    return tuple(
        exclude_unsold(
            candidates.machine_estimates[position], settings.markets, sold_in[candidates.machine_estimate == position]
        )
        for position in missing
    )


def exclude_unsold(one: MachineEstimate | Service, markets: Sequence[str] | None, sold_in: Iterable[str]) -> Excluded:
    """A machine that is sold, but in none of the markets asked for."""
    others = ", ".join(sorted(set(sold_in)))
    reason = f"the catalog has no {', '.join(markets or ())} price of {one.instance_type}, only {others}"
    return Excluded(one.title, "no_price", reason)


def _offers_of(names: set[str], catalog: Catalog) -> pd.DataFrame:
    """All offers of these instance types, sorted, so that the order of candidates does not depend on the catalog's."""
    everything = catalog.offers(market=None)
    mine = everything.iloc[np.flatnonzero(everything["instance_type"].isin(names))]
    columns = ("market", "region", "service", "provider", "instance_type")  # the last decides first
    return mine.iloc[np.lexsort([_places(mine[column]) for column in columns])].reset_index(drop=True)


def _places(texts: pd.Series) -> Ints:
    """The place of each text among the column's categories, which are few, in the order of the alphabet."""
    categories = np.array(texts.cat.categories.tolist(), dtype=object)
    places = np.empty(len(categories), dtype=np.intp)
    places[np.argsort(categories, kind="stable")] = np.arange(len(categories))
    return places[texts.cat.codes.to_numpy()]


def explain_no_price(
    name: str, *, provider: str | None = None, places: Sequence[str] = (), sold_in: Iterable[str] = ()
) -> str:
    """Why the machine ``name`` has no price in ``places``, and what to do; ``sold_in`` are regions where it has one.

    >>> explain_no_price("g4dn.xlarge", places=["eu-west-1"], sold_in=["us-east-1"])[:60]
    'the catalog has no price of g4dn.xlarge in eu-west-1, only i'
    """
    others = sorted(set(map(str, sold_in)))
    if others:
        return (
            f"the catalog has no price of {name} in {list_some(list(places), 4)}, only in {list_some(others, 5)}; run "
            f"`vmselect prices refresh --source skypilot --region {places[0]}`, or price it elsewhere with region="
        )
    if machine := describe_unpriced(name):
        remedy = "run `vmselect prices refresh`, or add one with with_offers (--own-prices)"
        return f"no price of {name} is known ({machine}); {remedy}"
    owner = f" from {provider}" if provider else ""
    return f"the catalog has no price of {name}{owner}; add one with with_offers (--own-prices)"


def _billing(offers: pd.DataFrame) -> tuple[Floats, Floats]:
    """Billing increment and minimum of each offer, in seconds; 0 where the provider's terms are not known."""
    seller = list(zip(offers["provider"].astype(str), offers["service"].astype(str), strict=True))
    terms = {pair: provider_terms(pair[0], service=pair[1]) for pair in set(seller)}
    increments = {pair: float(t.billing_increment_seconds) if t else 0.0 for pair, t in terms.items()}
    minimums = {pair: float(t.billing_minimum_seconds) if t else 0.0 for pair, t in terms.items()}
    return np.array([increments[pair] for pair in seller]), np.array([minimums[pair] for pair in seller])
