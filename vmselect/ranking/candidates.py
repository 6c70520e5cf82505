"""Candidates: every machine estimate combined with each of its offers, as arrays.

A candidate is stored as the index of a machine estimate and the index of an offer, so that a million candidates fit
into a few arrays. :func:`candidate_findings` warns about a candidate: hardware that differs from the hardware of the
offer, several nodes, unused GPUs, spot interruptions.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vmselect.catalog import Catalog, describe_unpriced, find_nearest, last_sold, name_in_service, provider_terms
from vmselect.catalog.age import PriceAges, describe_stale
from vmselect.catalog.commitments import TERMS, Commitment, find_commitments
from vmselect.catalog.guards import SUSPICIOUS, describe_flags
from vmselect.catalog.interruptions import class_rates, find_class
from vmselect.catalog.offer import ACCELERATOR_SERVICE, KEY, OWN_PRICE
from vmselect.catalog.regions import find_cheapest_regions, select_regions
from vmselect.energy.grids import Emissions
from vmselect.energy.power import (
    NO_RAPL,
    Power,
    PowerTable,
    UnknownPower,
    measured_power,
    predict_fraction,
    predict_power,
    tdp_fraction,
)
from vmselect.estimation.runtime import ClosedForm
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.ranking.estimates import MachineEstimate, Moves, Transfer
from vmselect.ranking.options import Settings
from vmselect.ranking.renting import describe_commitment
from vmselect.ranking.rows import Bools, Excluded, Floats, Ints
from vmselect.records import Profile
from vmselect.records.forecast import NEVER_PROBED
from vmselect.units import SECONDS_PER_HOUR, format_usd, list_some

if TYPE_CHECKING:
    from vmselect.ranking.measures import Interruptions
    from vmselect.serving.rank import Service

OFFER_FIELDS = (
    "provider", "service", "region", "regions_compared", "market", "gpu_model", "gpu_count", "vcpus", "memory_gib",
)  # fmt: skip
ARM_HOSTS = frozenset({"T4G", "GH200", "GB200", "GB300"})
"""GPU models that are only sold with ARM processors: Graviton (AWS g5g) and Grace (NVIDIA)."""
THIN_BATCH = 32
"""Examples per GPU and batch below which a GPU mostly waits between small computations (code ``thin-batch``)."""
MORE_CORES = 1.5
"""Ratio of recorded CPU cores to priced vCPUs above which the record is of another machine type."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Arrays with a value per candidate, such as its index in ``machine_estimates`` and in ``offers``."""

    machine_estimates: tuple[MachineEstimate, ...]
    offers: pd.DataFrame
    machine_estimate: Ints
    offer: Ints
    increment_seconds: Floats
    minimum_seconds: Floats
    ages: PriceAges | None = None
    """Ages of the prices, with a value per offer; None if the prices have no error."""
    moves: Moves | None = None
    """What moving the training data costs, with a value per offer; None if it is not known where they are."""
    computed: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """Values of machine estimates and offers that :meth:`once` has computed."""

    def __len__(self) -> int:
        return len(self.machine_estimate)

    def take(self, rows: Ints) -> Candidates:
        """The candidates at the positions ``rows``."""
        names = ("machine_estimate", "offer", "increment_seconds", "minimum_seconds")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """The result of ``compute()``, which is kept for these candidates and for those that :meth:`take` returns."""
        if key not in self.computed:
            self.computed[key] = compute()
        return self.computed[key]

    @cached_property
    def form(self) -> ClosedForm:
        """Seconds as a function of the number of epochs, with a row per machine estimate."""
        return ClosedForm.stack([machine.runtime.form for machine in self.machine_estimates])

    def work(self, epochs: Interval[Floats], *, early_stopping: bool = False) -> Interval[Floats]:
        """Time of each machine estimate without interruptions; ``epochs`` has a row per estimate, or one for all.

        With ``early_stopping``, the lower bound is the time of the earliest stop by a callback.
        """
        low, high = self.form.interval(epochs.low, epochs.high, early_stopping=early_stopping)
        return Interval(np.asarray(self.form.seconds(epochs.value)), np.asarray(low), np.asarray(high))

    def column(self, name: str) -> Any:
        """Column ``name`` of the offers, with a value per candidate."""
        return self.offers[name].to_numpy()[self.offer]

    @cached_property
    def usd_per_hour(self) -> Floats:
        """Price in USD per hour of all nodes of each candidate together."""
        price = self.once("price", lambda: self.offers["usd_per_hour"].to_numpy(dtype=float))
        return np.asarray(price[self.offer] * self.nodes)

    @cached_property
    def nodes(self) -> Ints:
        """Number of machines of each candidate that train together."""
        nodes = self.once(
            "nodes", lambda: np.array([machine.nodes for machine in self.machine_estimates], dtype=np.intp)
        )
        return np.asarray(nodes[self.machine_estimate])

    @cached_property
    def price_deviation(self) -> Floats:
        """Standard deviation of the logarithm of the price of each candidate, which grows with the age of the price."""
        return np.zeros(len(self)) if self.ages is None else np.asarray(self.ages.deviation[self.offer])

    @cached_property
    def price_group(self) -> Ints:
        """Number of the provider and market of each candidate, whose prices move together."""
        return np.zeros(len(self), dtype=np.intp) if self.ages is None else np.asarray(self.ages.group[self.offer])

    @cached_property
    def moving_usd(self) -> Floats:
        """One-time cost in USD of moving the training data to the machine of each candidate."""
        moving = self.once(
            "moving", lambda: np.array([machine.moving_usd for machine in self.machine_estimates], dtype=float)
        )
        egress = 0.0 if self.moves is None else self.moves.usd[self.offer]
        return np.asarray(moving[self.machine_estimate] + egress)

    @property
    def power(self) -> PowerTable:
        """Power of each machine estimate."""
        table: PowerTable = self.once("power", lambda: _estimate_power(self.machine_estimates, self.offers))
        return table

    def kg_per_kwh(self, emissions: Emissions) -> Floats:
        """Kilograms of CO2 per kilowatt-hour at the machine of each candidate; NaN if unknown."""
        return np.asarray(self.once(emissions, lambda: emissions.of_offers(self.offers))[self.offer])

    @cached_property
    def gpus(self) -> Ints:
        """Number of GPUs of each candidate, over all its nodes.

        0 if it has none, if the training uses only some of them, or if it is unknown how many the training uses.
        """
        estimates = self.machine_estimates
        used = np.array(
            [math.nan if machine.gpus_used is None else machine.gpus_used for machine in estimates], dtype=float
        )
        which, model = self.machine_estimate, self.offers["gpu_model"]
        named = (model.notna() & (model != "")).to_numpy(dtype=bool)[self.offer]
        sold = np.nan_to_num(self.offers["gpu_count"].to_numpy(dtype=float))[self.offer]
        # A time that was predicted for one GPU of several does not describe the whole machine.
        predicted = np.array(
            [machine.prediction.gpus if machine.prediction else math.nan for machine in estimates], dtype=float
        )
        supposed = np.where(sold == 1, sold, predicted[which])
        trains = np.where(np.isnan(used[which]), supposed, used[which])
        all_used = named & (sold >= 1) & (sold % 1 == 0) & (trains == sold)
        return np.where(all_used, sold * self.nodes, 0.0).astype(np.intp)

    @cached_property
    def is_spot(self) -> Bools:
        """Whether each candidate is a spot offer, which can be interrupted."""
        return self.is_sold_in(("spot",))

    @property
    def interruptions_per_hour(self) -> Floats:
        """Published rate of interruptions of each spot candidate's type and region; 0 if unknown, and for others."""
        return np.asarray(self.once("interruptions", lambda: class_rates(self.offers))[self.offer])

    def commitments(self, candidate: int) -> tuple[Commitment, ...]:
        """Commitments of the offer of a candidate: its own if it is reserved, else those that could replace it."""
        by_offer: dict[int, tuple[Commitment, ...]] = self.once("commitments", lambda: find_commitments(self.offers))
        return by_offer.get(int(self.offer[candidate]), ())

    def list_interrupted(self, interruptions: Interruptions | None) -> list[tuple[Interruptions, Bools]]:
        """Spot candidates as masks, each with its ``interruptions``: for each number of nodes and published rate.

        Machines that train together all wait for the one that is interrupted.
        """
        if interruptions is None or not self.is_spot.any():
            return []
        parts = []
        for count in np.unique(self.nodes[self.is_spot]).tolist():
            together = self.is_spot & (self.nodes == count)
            if not interruptions.by_type:
                parts.append((interruptions.on_nodes(count), together))
                continue
            rates = self.interruptions_per_hour
            for rate in np.unique(rates[together]).tolist():
                parts.append((interruptions.at(rate).on_nodes(count), together & (rates == rate)))
        return parts

    def is_interrupted_too_often(self, interruptions: Interruptions | None) -> Bools:
        """Whether the ``interruptions`` of all nodes of each spot candidate leave no time for training."""
        if interruptions is None:
            return np.zeros(len(self), dtype=bool)
        each = 1 / interruptions.uptime_seconds
        per_second = self.interruptions_per_hour / SECONDS_PER_HOUR if interruptions.by_type else each
        return np.asarray(self.is_spot & (per_second * self.nodes * interruptions.lost_seconds >= 1))

    def is_sold_in(self, markets: Sequence[str]) -> Bools:
        """Whether the market of each candidate is one of ``markets``."""
        sold = self.once(("markets", *markets), lambda: self.offers["market"].isin(markets).to_numpy(dtype=bool))
        return np.asarray(sold[self.offer])

    @property
    def batch_size_number(self) -> Ints:
        """Index of the batch size of each candidate in the ascending batch sizes of all machine estimates."""

        def number() -> Any:
            sizes = np.array([machine.batch_size or 0 for machine in self.machine_estimates])
            return np.unique(sizes, return_inverse=True)[1].reshape(-1)

        return np.asarray(self.once("batch_size_number", number)[self.machine_estimate])

    def per_machine_estimate(self, value: Callable[[MachineEstimate], Any]) -> Any:
        """Array with the result of ``value(machine_estimate)`` for each candidate."""
        values = np.empty(len(self.machine_estimates), dtype=object)
        values[:] = [value(machine) for machine in self.machine_estimates]
        return values[self.machine_estimate]

    def of(self, candidate: int) -> MachineEstimate:
        """Machine estimate of the candidate with the index ``candidate``."""
        return self.machine_estimates[int(self.machine_estimate[candidate])]

    def identity(self, candidate: int) -> dict[str, Any]:
        """Instance type, factors and offer of the candidate, as plain Python values."""
        machine, at = self.of(candidate), self.offer[candidate]
        offer = {name: _plain(column[at]) for name, column in self._offer_columns.items()}
        return {
            "instance_type": machine.instance_type,
            "batch_size": machine.batch_size,
            "varied": machine.varied,
            **offer,
        }

    def title(self, candidate: int) -> str:
        """Text with instance type, provider, region, market and factors of the candidate."""
        offer = self.identity(candidate)
        return self.of(candidate).title_in(offer["provider"], offer["region"], offer["market"])

    @cached_property
    def _offer_columns(self) -> dict[str, Any]:
        return {name: self.offers[name].to_numpy() for name in (*OFFER_FIELDS, "date")}


def _plain(value: Any) -> Any:
    """Convert a cell of a DataFrame to a plain Python value; a missing value becomes None."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if pd.isna(value) else value


def _estimate_power(estimates: Sequence[MachineEstimate], offers: pd.DataFrame) -> PowerTable:
    """Power of all machine estimates: measured, predicted from those that were measured, or assumed.

    ``offers`` is sorted by instance type and states the GPUs of machines whose records do not.
    """
    first = np.flatnonzero(np.diff(offers["instance_type"].cat.codes.to_numpy(), prepend=-1))
    rows = offers.iloc[first][["instance_type", "gpu_model", "gpu_count"]].itertuples(index=False)
    sold = {str(name): (str(model), float(count)) for name, model, count in rows if count > 0}
    gpus = [sold.get(estimate.instance_type, (None, 0.0)) for estimate in estimates]
    fractions = [
        fraction
        for estimate, (gpu, _) in zip(estimates, gpus, strict=True)
        for record in estimate.records
        if (fraction := tdp_fraction(record, gpu=gpu)) is not None
    ]
    powers = [_power_of(estimate, fractions, *gpu) for estimate, gpu in zip(estimates, gpus, strict=True)]
    return PowerTable.of(powers, [estimate.nodes for estimate in estimates])


def _power_of(
    estimate: MachineEstimate, fractions: Sequence[float], gpu: str | None, count: float
) -> Power | UnknownPower:
    """Power of one machine estimate; ``fractions`` of TDP were measured in this training on any GPU."""
    measured = measured_power(estimate.records, name=estimate.title, other_batch=estimate.basis != "measured")
    if measured is not None:
        return measured
    used = min(estimate.gpus_used or count, count)
    if estimate.prediction is not None:
        gpu, count = estimate.prediction.machine.gpu_model, estimate.prediction.machine.gpu_count
        used = float(estimate.prediction.gpus)
    if not gpu or not count:
        return NO_RAPL
    fraction = predict_fraction(fractions, launch_share=estimate.launch_share)
    return predict_power(fraction, gpu, used=used, count=count)


class _Shelf:
    """The offers of some instance types in all markets, sorted by instance type, to look up those of a machine."""

    def __init__(self, names: set[str], catalog: Catalog) -> None:
        self.offers = _offers_of(names, catalog)
        self._names = self.offers["instance_type"].to_numpy(dtype=str)
        self._providers = self.offers["provider"].to_numpy(dtype=str)
        self.regions = self.offers["region"].to_numpy(dtype=str)
        # A catalog without restrictions contains retired types, which are ranked only if it was asked for them.
        self.retired: Bools = self.offers["retired"].to_numpy(dtype=bool)
        # The last price of a retired type is not stale: nobody has to pay it.
        self.stale: Bools = self.offers["stale"].to_numpy(dtype=bool) & ~self.retired
        self.implausible: Bools = catalog.is_implausible(self.offers)
        self._rented: Bools = (~self.retired | catalog.retired) & (~self.stale | catalog.stale) & ~self.implausible
        self._inside: dict[tuple[str, ...], Bools] = {}

    def rows(self, machine: MachineEstimate | Service) -> Ints:
        """Row numbers of the offers of a machine in all regions."""
        sides = (np.searchsorted(self._names, machine.instance_type, side) for side in ("left", "right"))
        rows: Ints = np.arange(*sides, dtype=np.intp)
        return np.asarray(rows[self._providers[rows] == machine.provider]) if machine.provider else rows

    def rented(self, rows: Ints) -> Ints:
        """Those of the ``rows`` that can be rented, at prices that are neither stale nor implausible."""
        return rows[self._rented[rows]]

    def within(self, rows: Ints, regions: Sequence[str]) -> Ints:
        """Those of the ``rows`` in one of ``regions``, which may be countries or groups; all if there are none."""
        if not regions:
            return rows
        key = tuple(regions)
        if key not in self._inside:
            self._inside[key] = np.logical_or.reduce([select_regions(self.offers, place) for place in key])
        return rows[self._inside[key][rows]]

    def choose(self, places: Sequence[str] | None, home: tuple[str, str] | None) -> tuple[Bools, Ints]:
        """Whether each row is the cheapest region of one of the ``places``, and of how many regions; 1 for others.

        A row in ``places`` of the provider and region ``home`` is chosen, too.
        """
        chosen, compared = np.zeros(len(self.offers), dtype=bool), np.ones(len(self.offers), dtype=np.intp)
        for place in [None] if places is None else places:
            here = np.flatnonzero(self._rented & select_regions(self.offers, place))
            cheapest, counts = find_cheapest_regions(self.offers.iloc[here])
            chosen[here[cheapest]], compared[here[cheapest]] = True, counts
            if home is not None:
                chosen[here[(self._providers[here] == home[0]) & (self.regions[here] == home[1])]] = True
        return chosen, compared


def match_offers(
    machines: Sequence[MachineEstimate] | Sequence[Service],
    catalog: Catalog,
    *,
    regions: Sequence[str] | None,
    home: tuple[str, str] | None = None,
) -> tuple[pd.DataFrame, list[Ints], list[Excluded]]:
    """Table of the offers in all markets, row numbers of the offers of each machine, and machines without an offer.

    If ``regions`` is empty, offers of all regions are used. Otherwise, of each of the ``regions`` (a region, a country
    or a group of them), the cheapest offer in each market is used. If it is None, offers of the region in which the
    machine was measured are used, or the cheapest of all regions if that region is unknown. The column
    ``regions_compared`` of the table has the number of regions of which an offer is the cheapest. Wherever regions are
    compared, an offer of the provider and region ``home``, where the data are, is used besides the cheapest one, which
    may cost more with the traffic.
    """
    shelf = _Shelf({machine.instance_type for machine in machines}, catalog)
    cheapest, compared = shelf.choose(regions, home)
    shelf.offers["regions_compared"] = compared
    matched: list[Ints] = []
    unmatched: list[MachineEstimate | Service] = []
    for machine in machines:
        rows = shelf.rows(machine)
        if regions is None and machine.regions:
            rows = shelf.within(rows, machine.regions)
        elif regions != ():
            rows = rows[cheapest[rows]]
        matched.append(shelf.rented(rows))
        if not len(matched[-1]):
            unmatched.append(machine)
    excluded: list[Excluded] = []
    if unmatched:
        # The reason is sought in all prices: a machine that the filters leave out does have a price.
        everything = _Shelf({machine.instance_type for machine in unmatched}, catalog.unrestricted)
        for machine in unmatched:
            places = machine.regions if regions is None else regions
            excluded.append(_explain_no_offer(machine, places, everything, catalog))
    matched, unused = _drop_unused_gpus(machines, shelf.offers, matched)
    return shelf.offers, matched, [*excluded, *unused]


def _explain_no_offer(
    machine: MachineEstimate | Service, places: Sequence[str], everything: _Shelf, catalog: Catalog
) -> Excluded:
    """Exclusion of a machine without an offer in the regions ``places``, with the reason."""
    name, rows = machine.instance_type, everything.rows(machine)
    here = everything.within(rows, places)
    if len(everything.rented(here)):
        reason = f"its offers do not match {', '.join(catalog.conditions)}; change these filters"
        return Excluded(machine.title, "filtered", reason)
    if not len(here):
        reason = _explain_no_price(name, machine.provider, places, everything.regions[rows], catalog.unrestricted)
        return Excluded(machine.title, "no_price", reason)
    sold = here[~everything.retired[here]]
    if len(sold):
        return _explain_left_out(machine, sold, everything, catalog)
    remedy = "pass catalog.where(retired=True) (--retired) to rank it at its last price"
    reason = f"{name} can no longer be rented; {remedy}"
    if date := last_sold(name):
        reason += f", or use the prices of {date} (Catalog.embedded({date!r}), --date {date})"
    return Excluded(machine.title, "retired", reason)


def _explain_left_out(machine: MachineEstimate | Service, rows: Ints, everything: _Shelf, catalog: Catalog) -> Excluded:
    """Exclusion of a machine all of whose prices, the ``rows``, are stale or implausible."""
    offers = everything.offers.iloc[rows]
    if everything.stale[rows].all():
        newest = offers.iloc[int(np.argmax(offers["date"].astype(str)))]
        remedy = "refresh it, or pass catalog.where(stale=True) (--stale)"
        reason = f"the newest price of {machine.instance_type} ({newest['provider']}) is of {newest['date']}; {remedy}"
        return Excluded(machine.title, "stale_price", reason)
    flags = catalog.unrestricted.check()
    reasons = flags[flags["implausible"] & flags["instance_type"].isin([machine.instance_type])]["reason"]
    remedy = f"refresh it, or add your own price with {OWN_PRICE}"
    reason = f"{next(iter(reasons), 'its price is implausible')}; {remedy}"
    return Excluded(machine.title, "implausible_price", reason)


def describe_suspicious(names: set[str], catalog: Catalog, settings: Settings) -> list[Finding]:
    """Findings about suspicious prices of the instance types ``names``: stale and implausible ones, which are left out,
    and the user's own, which are used.
    """
    offers = catalog.offers(market=settings.market, region=settings.region or None, retired=False)
    offers = offers[offers["instance_type"].isin(names).to_numpy()].reset_index(drop=True)
    findings = [] if catalog.stale else describe_stale(offers, catalog.ages_of(offers))
    flags = catalog.check()
    flags = flags[flags["flag"].isin(SUSPICIOUS) & flags["instance_type"].isin(names)]
    rows = offers[offers["instance_type"].isin(flags["instance_type"]) & (~offers["stale"] | catalog.stale)]
    here = pd.MultiIndex.from_frame(rows[list(KEY)].astype(str))
    return [*findings, *describe_flags(flags[pd.MultiIndex.from_frame(flags[list(KEY)]).isin(here)])]


def join_offers(
    machine_estimates: Sequence[MachineEstimate],
    catalog: Catalog,
    settings: Settings,
    transfer: Transfer | None = None,
) -> tuple[Candidates, list[Excluded]]:
    """Candidates: each machine estimate with its offers in all markets; and the machine estimates without an offer."""
    # Offers of all markets are joined, so that the page can change the market without a new ranking.
    home = transfer.home if transfer else None
    offers, matched, excluded = match_offers(machine_estimates, catalog, regions=settings.region, home=home)
    which = np.repeat(np.arange(len(matched), dtype=np.intp), [len(rows) for rows in matched])
    offer = np.concatenate([np.zeros(0, dtype=np.intp), *matched])
    # The billing increment and minimum are 0 if the provider's terms are not known.
    sellers = list(zip(offers["provider"].astype(str), offers["service"].astype(str), strict=True))
    terms = {pair: provider_terms(pair[0], service=pair[1]) for pair in set(sellers)}
    billing = {
        pair: (t.billing_increment_seconds or 0, t.billing_minimum_seconds or 0) if t else (0, 0)
        for pair, t in terms.items()
    }
    increment, minimum = np.array([billing[pair] for pair in sellers], dtype=float).reshape(-1, 2).T
    candidates = Candidates(
        machine_estimates=tuple(machine_estimates), offers=offers, machine_estimate=which, offer=offer,
        increment_seconds=increment[offer], minimum_seconds=minimum[offer], ages=catalog.ages_of(offers),
        moves=transfer.price_offers(offers) if transfer else None,
    )  # fmt: skip
    often = candidates.is_interrupted_too_often(settings.interruptions)
    if settings.market is None or "spot" in settings.market:
        machines = np.unique(candidates.machine_estimate[often]).tolist()
        excluded += [_explain_too_often(machine_estimates[number]) for number in machines]
    return candidates.take(np.flatnonzero(~often)), excluded


def _explain_too_often(machine: MachineEstimate) -> Excluded:
    reason = (
        f"interruptions of its {machine.nodes} spot machines leave no time for training; save checkpoints more often "
        "(checkpoint_minutes), or rent on demand"
    )
    return Excluded(f"{machine.title} (spot)", "interrupted_too_often", reason)


def _drop_unused_gpus(
    machines: Sequence[MachineEstimate | Service], offers: pd.DataFrame, matched: Sequence[Ints]
) -> tuple[list[Ints], list[Excluded]]:
    """Return the ``matched`` offers without those of unused GPUs, and exclusions of machines left without offers.

    If the program used no GPU when it was measured on a machine, offers of this machine with GPUs are dropped. If an
    offer does not state its number of GPUs, it is taken to have as many as the probe found.
    """
    gpus = offers["gpu_count"].to_numpy(dtype=float)
    kept: list[Ints] = []
    excluded: list[Excluded] = []
    for machine, rows in zip(machines, matched, strict=True):
        probed_gpus = max((len(record.environment.gpus) for record in machine.records), default=0)
        idle = (np.where(np.isnan(gpus[rows]), probed_gpus, gpus[rows]) > 0) & (machine.gpus_used == 0)
        kept.append(rows[~idle])
        if len(rows) and idle.all():
            reason = (
                "the measured program used none of the machine's GPUs, so its time is not typical of this machine; "
                "install the GPU driver and the framework's GPU build and probe again"
            )
            excluded.append(Excluded(machine.title, "unused_gpu", reason))
    return kept, excluded


def add_services(
    machine_estimates: Sequence[MachineEstimate], services: Sequence[str], catalog: Catalog
) -> list[MachineEstimate]:
    """Add copies of machine estimates under the names that managed ``services`` give to the same hardware.

    SageMaker, for example, rents ``p3.2xlarge`` as ``ml.p3.2xlarge``.
    """
    sellers = catalog.unrestricted.offers(market=None)[["provider", "instance_type"]].drop_duplicates()
    of_aws = set(sellers.loc[sellers["provider"] == "aws", "instance_type"].astype(str))
    estimates = list(machine_estimates)
    for machine, service in itertools.product(machine_estimates, services):
        name = name_in_service(machine.instance_type, service)
        if (
            name == machine.instance_type
            or machine.provider not in ("aws", None)
            or machine.instance_type not in of_aws
        ):
            continue
        message = f"{name} was not measured: its time is that of {machine.instance_type}, which has the same hardware."
        remedy = f"Probe {name} too if the service adds work, such as starting containers."
        finding = Finding("same-hardware", message, remedy, "info")
        twin = replace(
            machine, instance_type=name, measured_as=machine.instance_type, findings=(*machine.findings, finding)
        )
        estimates.append(twin)
    measured = {(machine.instance_type, str(machine.factors)) for machine in machine_estimates}
    return [
        machine
        for machine in estimates
        if not machine.measured_as or (machine.instance_type, str(machine.factors)) not in measured
    ]


def exclude_unsold(
    machine: MachineEstimate | Service, markets: Sequence[str] | None, sold_in: Iterable[str]
) -> Excluded:
    """Exclude a machine that is only sold in markets (``sold_in``) other than the chosen ``markets``.

    ``model.js`` of the report page writes the same text.
    """
    others = ", ".join(sorted(set(sold_in)))
    reason = f"the catalog has no {', '.join(markets or ())} price of {machine.instance_type}, only {others}"
    return Excluded(machine.title, "no_price", reason)


def _offers_of(names: set[str], catalog: Catalog) -> pd.DataFrame:
    """All offers of the instance types ``names``, sorted independently of their order in the catalog."""
    everything = catalog.offers(market=None)
    matching = everything.iloc[np.flatnonzero(everything["instance_type"].isin(names))]
    columns = ("market", "region", "service", "provider", "instance_type")  # sorted by the last column first
    # Sorting the few categories of a column is much faster than sorting a million strings.
    alphabetical = (matching[name].cat.reorder_categories(sorted(matching[name].cat.categories)) for name in columns)
    return matching.iloc[np.lexsort([texts.cat.codes for texts in alphabetical])].reset_index(drop=True)


def _explain_no_price(
    name: str, provider: str | None, places: Sequence[str], sold_in: Iterable[str], catalog: Catalog
) -> str:
    """Text: why the instance type ``name`` has no price in the regions ``places``, and what to do.

    ``sold_in`` are the regions in which it has a price.
    """
    others = sorted(set(map(str, sold_in)))
    if others:
        return (
            f"the catalog has no price of {name} in {list_some(list(places), 4)}, only in {list_some(others, 5)}; run "
            f"`vmselect prices refresh --source skypilot --region {places[0]}`, or choose another region with region="
        )
    if machine := describe_unpriced(name):
        remedy = f"run `vmselect prices refresh`, or add a price with {OWN_PRICE}"
        return f"no price of {name} is known ({machine}); {remedy}"
    owner = f" from {provider}" if provider else ""
    if date := last_sold(name):
        return f"the catalog has no price of {name}{owner}; the snapshot of {date} has it (--date {date})"
    types = {str(instance_type) for instance_type in catalog.offers(market=None)["instance_type"].cat.categories} - {
        name
    }
    if near := find_nearest(name, sorted(types)):
        correct = f"correct the name with `vmselect history label --replace` (similar names: {', '.join(near)})"
        return f"the catalog has no price of {name}{owner}; {correct}, or add a price with {OWN_PRICE}"
    return f"the catalog has no price of {name}{owner}; add one with {OWN_PRICE}"


def candidate_findings(candidates: Candidates, candidate: int, settings: Settings) -> tuple[Finding, ...]:
    """Findings about a candidate: its measurement, hardware, nodes, use of GPUs and market."""
    machine, offer = candidates.of(candidate), candidates.identity(candidate)
    findings = [*machine.findings, *_other_hardware(machine, offer)]
    if offer["service"] == ACCELERATOR_SERVICE:
        message = f"The price of {machine.instance_type} is that of the accelerator alone, without its host machine."
        remedy = "Add the price of the host, as an own price (--own-prices) of the whole machine."
        findings.append(Finding("price-without-host", message, remedy))
    if machine.basis in NEVER_PROBED and offer["gpu_model"] in ARM_HOSTS:
        message = (
            f"{machine.instance_type} has a processor with the architecture ARM, for which some packages are missing."
        )
        remedy = "Check that your framework has a GPU build for ARM, or choose other GPUs with gpu= (--gpu)."
        findings.append(Finding("arm-host", message, remedy))
    if machine.nodes > 1:
        message = f"{machine.title}: the cost assumes that its workers run on {machine.nodes} machines."
        remedy = "If they ran on fewer machines, set the factor 'nodes' (environment variable VMSELECT_FACTORS)."
        findings.append(Finding("several-machines", message, remedy, "info"))
    elif any(record.outcome == "given" and record.environment.workers > 1 for record in machine.records):
        message = f"{machine.title}: the cost assumes that all its workers ran on one machine."
        remedy = "If they ran on several machines, pass their number to Profile.from_times: factors={'nodes': 2}."
        findings.append(Finding("workers-on-one-machine", message, remedy, "info"))
    findings += _use_of_gpus(machine, offer["gpu_count"])
    findings += _data_elsewhere(candidates, candidate)
    if offer["market"] in TERMS:
        findings += map(describe_commitment, candidates.commitments(candidate))
    if offer["market"] == "spot" and settings.interruptions is None:
        message = "Times and costs of spot machines are estimated without interruptions, so they may be too low."
        remedy = (
            "Pass interruptions= (--interruptions), or only checkpoint_minutes (--checkpoint-minutes) for the "
            "published rate of its type and region."
        )
        findings.append(Finding("spot-uninterrupted", message, remedy))
    elif offer["market"] == "spot" and settings.interruptions:
        findings.append(_describe_interruptions(settings.interruptions, machine, offer))
    return tuple(findings)


def _describe_interruptions(
    interruptions: Interruptions, machine: MachineEstimate, offer: Mapping[str, Any]
) -> Finding:
    """Finding about the interruptions of a spot machine that its time includes, or that none are known."""
    published = ""
    if interruptions.by_type:
        entry = find_class(offer["provider"], machine.instance_type, offer["region"])
        if entry is None:
            place = f"{machine.instance_type} in {offer['region']}"
            message = f"No interruption rate of {place} is known, so its time and cost may be too low."
            return Finding("spot-uninterrupted", message, "Pass a rate as interruptions= (--interruptions).")
        interruptions = interruptions.at(entry.per_hour)
        published = f" {entry.label} of such machines were interrupted within a month ({entry.date})."
    interruptions = interruptions.on_nodes(machine.nodes)
    factor = f"{interruptions.factor:.3g}"
    times = f"{factor if factor != '1' else 'less than 1.005'} times those without interruptions"
    message = f"Expected spot times and costs are {times}, not including waits for a new machine.{published}"
    remedy = "Check the interruption rate of this instance type and region."
    return Finding("spot-expected", message, remedy, "info")


def _data_elsewhere(candidates: Candidates, candidate: int) -> Iterator[Finding]:
    """A warning if the training data are in another region or cloud than the machine of the candidate."""
    moves, offer = candidates.moves, candidates.identity(candidate)
    if moves is None or not moves.elsewhere[candidates.offer[candidate]]:
        return
    store_missing = bool(moves.data_gb) and not moves.store_known
    machine_missing = bool(moves.model_gb) and not moves.machine_known[candidates.offer[candidate]]
    usd = float(candidates.moving_usd[candidate])
    cost = format_usd(usd)
    if store_missing or machine_missing:
        cost = f"at least {cost}" if usd else "an unknown amount"
    ways = ((moves.data_gb, "there"), (moves.model_gb, "back"))
    moved = " and ".join(f"{size:g} GB {way}" for size, way in ways if size)
    where = f"{offer['provider']} {offer['region']}"
    message = f"The data are in {moves.place}, the machine in {where}: moving {moved} costs {cost}."
    remedy = "The cost contains it once. Pass region= (--region) to rank where the data are, or copy them there first."
    if machine_missing:
        remedy = f"No egress price of {offer['provider']} is known: ask what {moves.model_gb:g} GB cost that leave it."
    if store_missing:
        remedy = f"Pass usd_per_gb=: no egress price of {moves.place.split()[0]} is known."
    yield Finding("data-elsewhere", message, remedy)


def _other_hardware(machine: MachineEstimate, offer: Mapping[str, Any]) -> Iterator[Finding]:
    """Warnings if the probe found hardware that the offer does not include: other GPUs, or more GPUs or CPU cores.

    Less hardware than the offer states causes no warning, because a container may see only a part of the machine.
    """
    contradictions = []
    seen = next((record.environment.gpus for record in machine.records if record.environment.gpus), ())
    if seen and offer["gpu_count"] is not None:
        sold = re.split(r"[-\s]", offer["gpu_model"] or "")[0].lower()
        others = [gpu.name for gpu in seen if sold not in re.split(r"[^a-z0-9]+", gpu.name.lower())]
        named = sold in ("rtx", "radeon", "tpu") or not others
        if len(seen) > max(1, offer["gpu_count"]) or offer["gpu_count"] <= 0 or not named:
            priced = f"{offer['gpu_count']:g} x {offer['gpu_model']}" if offer["gpu_model"] else "no GPU"
            contradictions.append((priced, f"{len(seen)} x {(others or [seen[0].name])[0]}"))
    elif not seen and offer["gpu_count"] is not None and (machine.gpus_used or 0) > max(1, offer["gpu_count"]):
        contradictions.append((f"{offer['gpu_count']:g} GPUs", f"a training on {machine.gpus_used} GPUs"))
    cores, vcpus = next(filter(None, map(_usable_cores, machine.records)), 0), offer["vcpus"]
    if vcpus and cores > MORE_CORES * vcpus:
        contradictions.append((f"{vcpus:g} vCPUs", f"{cores:g} CPU cores"))
    for priced, probed in contradictions:
        yield Finding(
            "hardware-contradicts-price",
            f"The price of {machine.instance_type} is for a machine with {priced}, but the record has {probed}.",
            "Probe again with the actual instance type, set by instance_type= or the environment variable "
            "VMSELECT_INSTANCE_TYPE.",
        )


def _usable_cores(profile: Profile) -> float | None:
    seen = profile.environment.usable_cores or profile.environment.cpu_cores
    allowed = profile.usage.limits.container_cores if profile.usage else None
    return min(filter(None, (seen, allowed)), default=None)


def _use_of_gpus(machine: MachineEstimate, gpu_count: float | None) -> Iterator[Finding]:
    if not gpu_count or gpu_count < 1:
        return
    # Machines whose training used none of their GPUs were excluded: their time is not typical of them.
    used = machine.gpus_used
    if used is not None and used < gpu_count:
        remedy = "Train on all GPUs with a distribution strategy, or rent a machine with fewer GPUs."
        yield Finding("unused-gpus", f"{machine.title} trained on {used} of its {gpu_count:g} GPUs.", remedy)
    spread_over = (used if used else gpu_count) * machine.nodes
    if machine.batch_size and spread_over > 1 and machine.batch_size / spread_over < THIN_BATCH:
        share = f"{machine.batch_size / spread_over:.3g} examples of a batch"
        yield Finding(
            "thin-batch",
            f"{machine.title}: each of {spread_over:g} GPUs gets {share}.",
            "Use a larger batch size, or a machine with fewer GPUs: small batches leave a GPU partly idle.",
            "info",
        )
