"""Candidates: every machine estimate joined with every price it can be rented at, in columns.

A candidate is a pair of positions: that of its machine estimate and that of its offer. A million of them are a few
arrays. :func:`candidate_findings` checks a measurement against its price: hardware, nodes, unused GPUs, spot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vmselect.catalog import Catalog, describe_unpriced, provider_terms
from vmselect.estimation.runtime import ClosedForm
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.ranking.estimates import MachineEstimate
from vmselect.ranking.measures import Settings
from vmselect.ranking.rows import Bools, Excluded, Floats, Ints
from vmselect.records import Profile
from vmselect.units import list_some

if TYPE_CHECKING:
    from vmselect.ranking.serving import Service

OFFER_FIELDS = ("provider", "service", "region", "market", "gpu_model", "gpu_count", "vcpus", "memory_gib")
THIN_BATCH = 32
"""Examples per GPU below which a batch is called thin: the GPU then mostly waits between small pieces of work."""
MORE_CORES = 1.5
"""Times the priced vCPUs above which the recorded cores are those of another machine."""


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
        """Price of each candidate, for all of its nodes."""
        nodes = np.array([one.nodes for one in self.machine_estimates], dtype=float)
        return np.asarray(self.column("usd_per_hour") * nodes[self.machine_estimate], dtype=float)

    @cached_property
    def moving_usd(self) -> Floats:
        """Dollars of each candidate for moving its data, which do not depend on time."""
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
        """Machine and offer of the candidate, in plain values."""
        one, at = self.of(candidate), self.offer[candidate]
        offer = {name: _plain(column[at]) for name, column in self._offer_columns.items()}
        return {"instance_type": one.instance_type, "batch_size": one.batch_size, "varied": one.varied, **offer}

    def title(self, candidate: int) -> str:
        """Machine, provider, region, market and factors of the candidate."""
        who = self.identity(candidate)
        return self.of(candidate).title_in(who["provider"], who["region"], who["market"])

    @cached_property
    def _offer_columns(self) -> dict[str, Any]:
        return {name: self.offers[name].to_numpy() for name in (*OFFER_FIELDS, "date")}


def _plain(value: Any) -> Any:
    """A cell of a frame as a plain Python value; a missing one as None."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if pd.isna(value) else value


def match_offers(
    machines: Sequence[MachineEstimate] | Sequence[Service],
    catalog: Catalog,
    *,
    regions: Sequence[str] | None,
    include_retired: bool,
) -> tuple[pd.DataFrame, list[Ints], list[Excluded]]:
    """The offers in all markets, for each machine the positions of its offers, and the machines without any.

    ``regions`` is empty for all. Where it is None, the region in which a machine was measured counts, and every region
    where that is unknown.
    """
    offers = _offers_of({one.instance_type for one in machines}, catalog)
    names, retired = offers["instance_type"].to_numpy(dtype=str), offers["retired"].to_numpy(dtype=bool)
    providers, sold_in = offers["provider"].to_numpy(dtype=str), offers["region"].to_numpy(dtype=str)
    matched: list[Ints] = []
    excluded: list[Excluded] = []
    for one in machines:
        mine = np.arange(*(np.searchsorted(names, one.instance_type, side) for side in ("left", "right")))
        if one.provider:
            mine = mine[providers[mine] == one.provider]
        places = one.regions if regions is None else regions
        here = mine[np.isin(sold_in[mine], places)] if places else mine
        matched.append(here if include_retired else here[~retired[here]])
        if len(matched[-1]):
            continue
        name = one.instance_type
        if len(here):
            reason = f"{name} can no longer be rented; pass include_retired=True to rank it at its last price"
            excluded.append(Excluded(one.title, "retired", reason))
        else:
            reason = explain_no_price(name, provider=one.provider, places=places, sold_in=sold_in[mine])
            excluded.append(Excluded(one.title, "no_price", reason))
    return offers, matched, excluded


def join_offers(
    machine_estimates: Sequence[MachineEstimate], catalog: Catalog, settings: Settings
) -> tuple[Candidates, list[Excluded]]:
    """Every price of every machine estimate in all markets, and the machine estimates without any."""
    offers, matched, excluded = match_offers(
        machine_estimates, catalog, regions=settings.regions, include_retired=settings.include_retired
    )
    which = np.repeat(np.arange(len(matched), dtype=np.intp), [len(mine) for mine in matched])
    offer = np.concatenate([np.zeros(0, dtype=np.intp), *matched])
    increment, minimum = _billing(offers)
    candidates = Candidates(
        machine_estimates=tuple(machine_estimates), offers=offers, machine_estimate=which, offer=offer,
        increment_seconds=increment[offer], minimum_seconds=minimum[offer],
    )  # fmt: skip
    return candidates, excluded


def exclude_unsold(one: MachineEstimate | Service, markets: Sequence[str] | None, sold_in: Iterable[str]) -> Excluded:
    """A machine that is sold, but not in the chosen markets; the page's ``model.js`` writes the same."""
    others = ", ".join(sorted(set(sold_in)))
    reason = f"the catalog has no {', '.join(markets or ())} price of {one.instance_type}, only {others}"
    return Excluded(one.title, "no_price", reason)


def _offers_of(names: set[str], catalog: Catalog) -> pd.DataFrame:
    """All offers of these instance types, sorted, so that the order of candidates does not depend on the catalog's."""
    everything = catalog.offers(market=None)
    mine = everything.iloc[np.flatnonzero(everything["instance_type"].isin(names))]
    columns = ("market", "region", "service", "provider", "instance_type")  # the last decides first
    # Sorting the few categories of a column is much faster than sorting a million texts.
    alphabetical = (mine[name].cat.reorder_categories(sorted(mine[name].cat.categories)) for name in columns)
    return mine.iloc[np.lexsort([texts.cat.codes for texts in alphabetical])].reset_index(drop=True)


def explain_no_price(
    name: str, *, provider: str | None = None, places: Sequence[str] = (), sold_in: Iterable[str] = ()
) -> str:
    """Why the machine ``name`` has no price in ``places``, and what to do; ``sold_in`` are regions where it has one."""
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


def candidate_findings(candidates: Candidates, candidate: int, settings: Settings) -> tuple[Finding, ...]:
    """Findings about one candidate: its measurement, its use of the machine, its market."""
    one, who = candidates.of(candidate), candidates.identity(candidate)
    found = [*one.findings, *_other_hardware(one, who), *_several_machines(one), *_use_of_gpus(one, who["gpu_count"])]
    if who["market"] == "spot":
        found.append(_spot(settings))
    return tuple(found)


def _other_hardware(one: MachineEstimate, offer: Mapping[str, Any]) -> Iterator[Finding]:
    """Recorded hardware that the price is not for. Less than is priced is no sign: a container may hide the rest."""
    contradictions = list(_other_gpus(one, offer))
    cores, vcpus = next(filter(None, map(_usable_cores, one.records)), 0), offer["vcpus"]
    if vcpus and cores > MORE_CORES * vcpus:
        contradictions.append((f"{vcpus:g} vCPUs", f"{cores:g} cores"))
    for priced, found in contradictions:
        yield Finding(
            "hardware-contradicts-price",
            f"{one.instance_type} is priced with {priced}, and the probe found {found}.",
            "Name the instance type that the probe ran on: instance_type= or VMSELECT_INSTANCE_TYPE.",
        )


def _other_gpus(one: MachineEstimate, offer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    seen = next((record.environment.gpus for record in one.records if record.environment.gpus), ())
    if not seen or offer["gpu_count"] is None:
        return
    sold = re.split(r"[-\s]", offer["gpu_model"] or "")[0].lower()
    others = [gpu.name for gpu in seen if sold not in re.split(r"[^a-z0-9]+", gpu.name.lower())]
    named = sold in ("rtx", "radeon", "tpu") or not others
    if len(seen) <= max(1, offer["gpu_count"]) and offer["gpu_count"] > 0 and named:
        return
    priced = f"{offer['gpu_count']:g} x {offer['gpu_model']}" if offer["gpu_model"] else "no GPU"
    yield priced, f"{len(seen)} x {(others or [seen[0].name])[0]}"


def _usable_cores(profile: Profile) -> float | None:
    """Cores that the training could use: on a larger machine, those that its container allows."""
    seen = profile.environment.usable_cores or profile.environment.cpu_cores
    allowed = profile.usage.limits.container_cores if profile.usage else None
    return min(filter(None, (seen, allowed)), default=None)


def _several_machines(one: MachineEstimate) -> Iterator[Finding]:
    if one.nodes > 1:
        yield Finding(
            "several-machines",
            f"{one.title}: its workers are assumed to run on {one.nodes} machines, at {one.nodes} times the price of "
            "one.",
            "If they ran on fewer, give the number of machines as the factor nodes (VMSELECT_FACTORS).",
            "info",
        )


def _use_of_gpus(one: MachineEstimate, gpu_count: float | None) -> Iterator[Finding]:
    if not gpu_count or gpu_count < 1:
        return
    used = one.gpus_used
    if used is not None and used < gpu_count:
        remedy = (
            "Use a distribution strategy, or rent a smaller machine of the same kind."
            if used
            else "Install the driver and the framework's build for GPUs and probe again, or rent one without them."
        )
        yield Finding("unused-gpus", f"{one.title} trained on {used} of its {gpu_count:g} GPUs.", remedy)
    spread_over = (used if used else gpu_count) * one.nodes
    if one.batch_size and spread_over > 1 and one.batch_size / spread_over < THIN_BATCH:
        yield Finding(
            "thin-batch",
            f"{one.title}: a batch of {one.batch_size} over {spread_over:g} GPUs is "
            f"{one.batch_size / spread_over:.3g} examples each.",
            "Use a larger batch on this machine, or one with fewer GPUs.",
            "info",
        )


def _spot(settings: Settings) -> Finding:
    if settings.interruptions is None:
        return Finding(
            "spot-uninterrupted",
            "Spot times and costs assume no interruptions.",
            "Pass interruptions= (--interruptions-per-hour and --checkpoint-minutes).",
        )
    return Finding(
        "spot-expected",
        f"Expected spot times and costs are {settings.interruptions.factor:.3g} times the uninterrupted run, without "
        "the wait for a new machine.",
        "Check the interruption rate of this machine type and region.",
        "info",
    )
