"""Machines joined with offers by instance type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from vmselect.catalog import Catalog, provider_terms
from vmselect.ranking.candidates import Candidates, Machine
from vmselect.ranking.evaluation import Floats, Ints
from vmselect.ranking.rows import Excluded
from vmselect.ranking.settings import Settings


def join_offers(machines: Sequence[Machine], catalog: Catalog, settings: Settings) -> tuple[Candidates, list[Excluded]]:
    """Every price of every machine, in all markets, and the machines that have none in any.

    A region that the caller names decides; otherwise the region in which the machine was measured does; where neither
    is known, every region counts.
    """
    offers = _offers_of({machine.instance_type for machine in machines}, catalog)
    names, retired = offers["instance_type"].to_numpy(dtype=str), offers["retired"].to_numpy(dtype=bool)
    starts = {name: int(at) for name, at in zip(*np.unique(names, return_index=True), strict=True)}
    ends = {name: int(at) for name, at in zip(names, range(1, len(names) + 1), strict=True)}
    providers, regions = offers["provider"].to_numpy(dtype=str), offers["region"].to_numpy(dtype=str)
    left_out: list[Excluded] = []
    pairs: list[tuple[int, Ints]] = []
    for position, machine in enumerate(machines):
        mine = np.arange(starts.get(machine.instance_type, 0), ends.get(machine.instance_type, 0))
        if machine.provider:
            mine = mine[providers[mine] == machine.provider]
        places = settings.regions or machine.regions
        here = mine[np.isin(regions[mine], places)] if places else mine
        usable = here if settings.include_retired else here[~retired[here]]
        if len(usable):
            pairs.append((position, usable))
        else:
            reason = _why_no_price(machine, places, regions[mine], retired=len(here) > 0)
            left_out.append(Excluded(machine.title, *reason))
    counts = [len(found) for _, found in pairs]
    which = np.repeat(np.array([position for position, _ in pairs], dtype=np.intp), counts)
    offer = np.concatenate([np.zeros(0, dtype=np.intp), *(found for _, found in pairs)])
    increment, minimum = _billing(offers)
    return (
        Candidates(
            machines=tuple(machines), offers=offers, machine=which, offer=offer,
            increment_seconds=increment[offer], minimum_seconds=minimum[offer],
        ),
        left_out,
    )  # fmt: skip


def _offers_of(names: set[str], catalog: Catalog) -> pd.DataFrame:
    """All offers of these instance types, sorted, so that the order of candidates does not depend on the catalog's."""
    everything = catalog.offers(market=None)
    mine = everything[everything["instance_type"].isin(names)]
    columns = ["instance_type", "provider", "service", "region", "market"]
    text = mine[columns].astype(str)
    return mine.loc[text.sort_values(columns, kind="stable").index].reset_index(drop=True)


def _why_no_price(machine: Machine, places: Sequence[str], sold_in: np.ndarray, *, retired: bool) -> tuple[str, str]:
    name = machine.instance_type
    if not len(sold_in):
        owner = f" from {machine.provider}" if machine.provider else ""
        return "no_price", f"the catalog has no price of {name}{owner}; add one with catalog.with_offers"
    if retired:
        return (
            "retired",
            f"{name} can no longer be rented; pass include_retired=True to rank it at its last price",
        )
    others = ", ".join(sorted(set(sold_in))[:5])
    return (
        "no_price",
        f"the catalog has no price of {name} in {', '.join(places)}, only in {others}; pass region=",
    )


def _billing(offers: pd.DataFrame) -> tuple[Floats, Floats]:
    """Billing increment and minimum of each offer, in seconds; 0 where the provider's terms are not known."""
    seller = list(zip(offers["provider"].astype(str), offers["service"].astype(str), strict=True))
    terms = {pair: provider_terms(pair[0], service=pair[1]) for pair in set(seller)}
    increments = {pair: float(t.billing_increment_seconds) if t else 0.0 for pair, t in terms.items()}
    minimums = {pair: float(t.billing_minimum_seconds) if t else 0.0 for pair, t in terms.items()}
    return np.array([increments[pair] for pair in seller]), np.array([minimums[pair] for pair in seller])
