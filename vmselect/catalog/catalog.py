"""The catalog: prices of VM types, filters on the prices, and the differences between two catalogs."""

from __future__ import annotations

import copy
import datetime as dt
import functools
import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from operator import and_, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmselect._checks import (
    check_choice,
    check_flag,
    check_mapping,
    check_name,
    check_number,
    check_path,
    list_items,
    maybe,
    several,
    show,
)
from vmselect.catalog import files, refresh, shipped
from vmselect.catalog.age import PriceAges, describe_outdated, judging_day, today
from vmselect.catalog.commitments import TERMS, list_commitments
from vmselect.catalog.gpu_names import find_gpus
from vmselect.catalog.gpu_prices import order_by_gpu, summarize_gpus
from vmselect.catalog.guards import USER, list_flagged
from vmselect.catalog.offer import (
    COLUMNS,
    KEY,
    MARKETS,
    NUMBERS,
    OWN_PRICE,
    SERVICES,
    Offer,
    build_frame,
    check_day,
    concat_frames,
    describe_column,
    describe_nearest,
    inherit_facts,
    is_built,
    merge_frames,
)
from vmselect.catalog.regions import is_group, select_regions
from vmselect.errors import ArgumentError, CatalogError, MissingNamesError
from vmselect.findings import Finding
from vmselect.units import format_count, list_some

if TYPE_CHECKING:
    from vmselect.catalog.refresh import Progress

Names = str | Sequence[str] | None

NO_PRICE_REMEDY = f"Run `vmselect prices refresh`, or add your own price ({OWN_PRICE})."
NO_REGION_REMEDY = (
    "Give a region, a country such as de, or eu, europe or us. For more regions, run `vmselect prices refresh --source "
    "skypilot --region all`."
)
NO_GPU_REMEDY = "`vmselect prices show` and Catalog.gpus() list all."
CHANGE_COLUMNS = ("change", *KEY, "old_usd_per_hour", "new_usd_per_hour", "percent", "old_date", "new_date")
BILLING = ("exact", "provider")
_SCOPE = ("provider", "service", "region", "market")
_CELLS = (str, bool, np.bool_, Real, Decimal, dt.date)  # a datetime, NaT among them, is a date


class Catalog:
    """Prices of VM types. A catalog is immutable: a method that adds prices returns a new catalog.

    >>> catalog = Catalog.embedded(date="2021-02-28")
    >>> catalog.price("p3.2xlarge", region="us-east-1")
    3.06
    >>> catalog.with_offers([{"provider": "aws", "instance_type": "p3.2xlarge", "region": "us-east-1",
    ...                       "market": "on_demand", "usd_per_hour": 2.5}]).price("p3.2xlarge")
    2.5
    """

    def __init__(self, frame: pd.DataFrame, *, origin: str, findings: Sequence[Finding] = ()) -> None:
        if not is_built(frame):
            raise ArgumentError(
                "Catalog() cannot be called directly. Use Catalog.embedded(), Catalog.load() or with_offers()."
            )
        self._frame = frame
        self._everything = frame
        self.conditions: tuple[str, ...] = ()
        """The restrictions of :meth:`where`, as text for messages: ``("gpu=H100",)``."""
        self.retired = False
        """Whether rankings use offers of instance types that can no longer be rented."""
        self.services: tuple[str, ...] = ()
        """Managed services at whose prices rankings list each machine too."""
        self.billing: Literal["exact", "provider"] = "exact"
        """Whether costs contain the provider's billing increment and minimum."""
        self.stale = False
        """Whether rankings use stale prices."""
        self._judged: dict[str, pd.DataFrame] = {}  # shared by the copies that `where` makes
        self.as_of: dt.date | None = None
        """The day for which rankings are made, from which the ages of prices count; None for the current date."""
        self.origin = check_name("origin", origin, longest=2000)
        self.findings: tuple[Finding, ...] = tuple(list_items(findings))
        if not all(isinstance(finding, Finding) for finding in self.findings):
            raise ArgumentError(f"findings must be a list of Finding objects, not {show(findings)}.")

    @classmethod
    def embedded(cls, date: str | dt.date | None = None) -> Catalog:
        """Return the prices that ship with vmselect: the newest snapshot, or the newest one up to ``date``.

        >>> Catalog.embedded(date="2021-02-28").price_dates
        ('2021-02-01', '2021-02-01')
        """
        entry = shipped.snapshot_at(date)
        catalog = cls(shipped.read_snapshot(entry.date), origin=f"embedded snapshot of {entry.date}")
        catalog.as_of = maybe(check_day, "date", date)
        return catalog

    @classmethod
    def load(cls, path: str | Path, *, provider: str | None = None, skip_bad_rows: bool = False) -> Catalog:
        """Read prices from a CSV or JSON file, such as SkyPilot's ``vms.csv`` or gpuhunt's CSV.

        An invalid row raises an error with its line number. With ``skip_bad_rows=True`` such rows are excluded and
        listed in ``findings``. ``provider`` is the provider of the prices, for files without a provider column.

        >>> import tempfile
        >>> path = Catalog.embedded(date="2021-02-28").save(Path(tempfile.mkdtemp()) / "prices.csv")
        >>> len(Catalog.load(path))
        19
        """
        frame, findings = files.read(
            check_path("path", path),
            provider=maybe(check_name, "provider", provider),
            skip_bad_rows=check_flag("skip_bad_rows", skip_bad_rows),
        )
        return cls(frame, origin=Path(path).name, findings=findings)

    @classmethod
    def refreshed(cls, *, alone: bool = False) -> Catalog:
        """Return the prices that a refresh stored on this computer, and embedded prices for all other offers.

        ``alone=True`` leaves the embedded prices out. ``findings`` lists refreshed prices older than 90 days.

        >>> catalog = Catalog.refreshed()  # doctest: +SKIP
        """
        parts, findings = refresh.read_parts()
        if not parts:
            nothing = "There are no refreshed prices on this machine. Run `vmselect prices refresh`."
            raise CatalogError(" ".join(map(str, findings)) or nothing)
        if check_flag("alone", alone):
            return cls(concat_frames(parts), origin="refreshed prices", findings=findings)
        return cls._over_embedded(parts, findings)

    @classmethod
    def default(cls) -> Catalog:
        """Return the catalog that rankings use by default: refreshed prices, and embedded prices for other offers.

        >>> Catalog.default().price("g4dn.xlarge") > 0
        True
        """
        return cls._over_embedded(*refresh.read_parts())

    def refresh(
        self,
        providers: Names = None,
        *,
        regions: Names = None,
        progress: Callable[[Progress], None] | None = None,
        max_age_hours: float = 6.0,
        source: str = "auto",
    ) -> Catalog:
        """Fetch prices now, store them for later use, and return this catalog with the fetched prices.

        ``source`` is "api" (the price APIs of AWS, Azure and Google Cloud), "skypilot" or "gpuhunt" (catalogs that they
        publish, which need no account), or "auto": the price API if there is one, else SkyPilot. ``providers=None``
        means all providers with a price API, except those whose required credentials are missing. ``regions=None``
        means the reference region of each provider, or all regions if it has none; a region may also be the code of a
        country, ``"eu"`` or ``"europe"``. Prices fetched less than ``max_age_hours`` ago are reused. ``findings`` lists
        providers and regions that could not be fetched, and prices that were refused because they are implausible;
        their older prices stay in use.

        >>> fresh = Catalog.embedded().refresh(providers=["azure"], regions=["eastus"])  # doctest: +SKIP
        """
        outcome = refresh.refresh_prices(
            providers=providers, regions=regions, progress=progress, max_age_hours=max_age_hours, source=source
        )
        return self._with_rows(outcome.frame, origin=f"{self.origin}, refreshed", findings=outcome.findings)

    def with_offers(self, offers: Catalog | pd.DataFrame | Iterable[Offer | Mapping[str, object]]) -> Catalog:
        """Return this catalog with more prices.

        A new price replaces the price of the same provider, service, instance type, region and market.

        ``offers`` is another catalog, a DataFrame, or a list of :class:`Offer` objects and dicts. Required columns or
        keys: ``provider``, ``instance_type``, ``region``, ``usd_per_hour``; ``market`` is ``on_demand`` by default.

        >>> mine = Catalog.embedded().with_offers([Offer(provider="lab", instance_type="workstation",
        ...     region="here", market="on_demand", usd_per_hour=0.12)])
        >>> mine.price("workstation")
        0.12
        """
        if isinstance(offers, Catalog):
            added, excluded = offers._frame, list(offers.findings)
        else:
            added, excluded = _build_offers(offers)
        added = inherit_facts(added, shipped.unpriced())
        return self._with_rows(added, origin=f"{self.origin} with own prices", findings=excluded)

    def save(self, path: str | Path) -> Path:
        """Write all prices as CSV, or as JSON if ``path`` ends in ``.json``.

        An existing price file is overwritten; any other existing file with content raises an error.

        >>> import tempfile
        >>> Catalog.embedded().save(Path(tempfile.mkdtemp()) / "prices.json").name
        'prices.json'
        """
        return files.write(self._frame, files.check_replaceable(path))

    def offers(
        self,
        provider: Names = None,
        *,
        region: Names = None,
        market: Names = "on_demand",
        gpu: Names = None,
        instance_type: Names = None,
        service: Names = None,
        retired: bool | None = None,
    ) -> pd.DataFrame:
        """Return the prices that match all filters, as a table with the columns :data:`vmselect.catalog.COLUMNS`.

        The column ``stale`` states which prices are too old for rankings.

        A filter is one name or a list of names; None means any, as does ``"all"`` for ``region`` and ``market``. A
        region may also be the code of a country, ``"eu"`` or ``"europe"``; a GPU may have the name that a driver or
        another price list gives it: ``"RTX4090"``. ``retired=False`` excludes instance types that can no longer be
        rented. With ``gpu``, the offer with the lowest price per GPU-hour comes first.

        >>> list(Catalog.embedded("2026-08-22").offers(gpu="T4", provider="aws", region="us")["instance_type"])[0]
        'g4dn.xlarge'
        """
        rows = self._select(
            provider=provider, region=region, market=market, gpu=gpu, instance_type=instance_type, service=service,
            retired=retired,
        )  # fmt: skip
        rows = rows if gpu is None else order_by_gpu(rows)
        return rows.assign(stale=self.ages_of(rows).stale)

    def gpus(
        self,
        provider: Names = None,
        *,
        region: Names = None,
        market: Names = ("on_demand", "spot"),
        gpu: Names = None,
        stale: bool = False,
    ) -> pd.DataFrame:
        """Return a row per GPU model with its cheapest price per GPU-hour, on demand and spot, and who offers it.

        The filters are those of :meth:`offers`; ``market`` has to contain one of the two. Retired types and implausible
        prices are left out, and stale prices unless ``stale=True``. The columns are
        :data:`vmselect.catalog.gpu_prices.COLUMNS`.

        >>> table = Catalog.embedded("2026-08-22").gpus(region="eu").set_index("gpu_model")
        >>> table.loc["B200", ["provider", "region"]].tolist()
        ['verda', 'FIN-03']
        """
        markets = ("all",) if market is None else several(check_name, "market", market)
        if set(markets) <= set(TERMS):
            raise ArgumentError(
                f"The table of GPUs has no {' or '.join(markets)} prices. List offers with such a price by "
                f"offers(gpu=..., market={markets[0]!r}), or with --gpu."
            )
        offers = self.offers(provider, region=region, market=market, gpu=gpu, retired=False)
        kept = ~self.is_implausible(offers) & (~offers["stale"].to_numpy() | check_flag("stale", stale))
        return summarize_gpus(offers[kept])

    def where(
        self,
        *,
        provider: Names = None,
        region: Names = None,
        market: Names = None,
        gpu: Names = None,
        gpu_memory_gib: float | None = None,
        max_usd_per_hour: float | None = None,
        service: Names = None,
        retired: bool = False,
        stale: bool = False,
        billing: Literal["exact", "provider"] | None = None,
    ) -> Catalog:
        """Return this catalog restricted to the offers that match all conditions, for a ranking.

        Args:
            provider: One provider or several.
            region: One region or several; ``"all"`` for all.
            market: One market or several; ``"all"`` for all.
            gpu: One GPU model or several, in any spelling: ``a100-80gb``, ``NVIDIA A100-SXM4-80GB``.
            gpu_memory_gib: Minimum memory of one GPU.
            max_usd_per_hour: Maximum price of a machine.
            service: Managed services (``"sagemaker"``, ``"all"``) at whose prices rankings list the machines too.
            retired: True includes instance types that can no longer be rented, at their last price.
            stale: True includes stale prices: older than a year, list prices of the large clouds than three years,
                offers of marketplaces than a week.
            billing: ``"provider"`` applies the provider's billing increment and minimum to costs.

        Calls combine: each one restricts the result of the previous one, and services, retired types, stale prices and
        billing that a previous call asked for stay in effect.

        >>> catalog = Catalog.embedded("2026-08-22").where(gpu="T4", provider="aws", max_usd_per_hour=0.6)
        >>> sorted(set(catalog.offers()["instance_type"]))
        ['g4dn.xlarge']
        """
        limits = {
            "gpu_memory_gib": maybe(check_number, "gpu_memory_gib", gpu_memory_gib, above=0),
            "max_usd_per_hour": maybe(check_number, "max_usd_per_hour", max_usd_per_hour, above=0),
        }
        filters = {"provider": provider, "region": region, "market": market, "gpu": gpu}
        names = {name: several(check_name, name, value) for name, value in filters.items() if value is not None}
        keep_retired = check_flag("retired", retired) or self.retired
        frame = self._select(**names, retired=None if keep_retired else False)
        # An unknown memory does not match: a machine that may be too small must not be recommended.
        if limits["gpu_memory_gib"] is not None:
            frame = frame[frame["gpu_memory_gib"].to_numpy() >= limits["gpu_memory_gib"]]
        if limits["max_usd_per_hour"] is not None:
            frame = frame[frame["usd_per_hour"].to_numpy() <= limits["max_usd_per_hour"]]
        conditions = [f"{name}={','.join(values)}" for name, values in names.items() if values != ("all",)]
        conditions += [f"{name}={value:g}" for name, value in limits.items() if value is not None]
        restricted = copy.copy(self)
        restricted._frame = frame.reset_index(drop=True)
        restricted.conditions = tuple(dict.fromkeys([*self.conditions, *conditions]))
        restricted.retired, restricted.stale = keep_retired, check_flag("stale", stale) or self.stale
        if not len(frame):
            raise CatalogError(
                f"The catalog ({self.origin}) has no offer that matches {', '.join(restricted.conditions)}. Remove one "
                "of these conditions, or run `vmselect prices refresh` for more prices."
            )
        if service is not None:
            chosen = SERVICES if service == "all" else several(check_choice, "service", service, choices=SERVICES)
            restricted.services = tuple(dict.fromkeys([*self.services, *chosen]))
        if billing is not None:
            restricted.billing = "provider" if check_choice("billing", billing, BILLING) == "provider" else "exact"
        return restricted

    @property
    def unrestricted(self) -> Catalog:
        """This catalog without the restrictions of :meth:`where`: what is known about machines outside of them."""
        catalog = copy.copy(self)
        catalog._frame, catalog.conditions = self._everything, ()
        return catalog

    def _select(self, *, retired: bool | None, **filters: Names) -> pd.DataFrame:
        """Return the rows that match all ``filters``, by the arguments of :meth:`offers`; None matches all rows."""
        matches = []
        for argument, value in filters.items():
            if value is None:
                continue
            column = "gpu_model" if argument == "gpu" else argument
            names = several(check_name, column, value)
            if names != ("all",) or column not in ("region", "market"):
                matches.append(self._matches(column, names))
        if retired is not None:
            matches.append(self._frame["retired"].to_numpy() == check_flag("retired", retired))
        if not matches:
            return self._frame.copy()
        return self._frame.take(np.flatnonzero(functools.reduce(and_, matches))).reset_index(drop=True)

    def offer(
        self,
        instance_type: str,
        *,
        region: str | None = None,
        market: str = "on_demand",
        provider: str | None = None,
        service: str | None = None,
    ) -> Offer:
        """Return the offer of ``instance_type`` that matches. Raise an error if none or several match.

        By default, ``region`` is the reference region of the provider, or its cheapest if it has no such region.

        >>> Catalog.embedded("2026-08-22").offer("g4dn.xlarge").date
        '2026-08-22'
        """
        instance_type, region = check_name("instance_type", instance_type), maybe(check_name, "region", region)
        rows = self.offers(instance_type=instance_type, market=None, provider=provider, service=service)
        self._check_known("market", market)
        if region is not None:
            self._check_known("region", region)
        here = rows[rows["market"] == market]
        if region is not None:
            here = here[here["region"] == region]
        elif len(here) > 1:
            terms = {name: shipped.provider_terms(str(name)) for name in here["provider"].unique()}
            regions = {name: rules.reference_region for name, rules in terms.items() if rules is not None}
            reference = here["provider"].map(regions).astype(str) == here["region"].astype(str)
            if reference.any():
                here = here[reference]
            elif here["provider"].nunique() == 1 and regions.get(str(here["provider"].iloc[0]), "") is None:
                here = here.sort_values("usd_per_hour", kind="stable").head(1)
        if len(here) == 1:
            return self._as_offer(int(here.index[0]), rows)
        if len(here) > 1:
            places = ", ".join(f"{row.provider} {row.service} {row.region}" for row in here.head(8).itertuples())
            raise CatalogError(
                f"Several offers of {instance_type} match ({places}). Select one by region=, provider= or service=."
            )
        sold = sorted({f"{row.region} {row.market}" for row in rows.itertuples()})
        raise CatalogError(
            f"The catalog has no {market} price of {instance_type}{f' in {region}' if region else ''} (regions and "
            f"markets with a price: {list_some(sold, 8) or 'none'}). {NO_PRICE_REMEDY}"
        )

    def price(
        self,
        instance_type: str,
        *,
        region: str | None = None,
        market: str = "on_demand",
        provider: str | None = None,
        service: str | None = None,
    ) -> float:
        """Return the price of ``instance_type`` in USD per hour.

        >>> Catalog.embedded("2026-08-22").price("g4dn.xlarge", region="us-east-1", market="on_demand")
        0.526
        """
        offer = self.offer(instance_type, region=region, market=market, provider=provider, service=service)
        return offer.usd_per_hour

    def check(self) -> pd.DataFrame:
        """Return the prices that are implausible or say less than they seem to, each with the reason.

        ``implausible`` prices may look better than they are: rankings leave them out, unless they are your own. Prices
        are compared with each other and with the shipped ones.

        >>> Catalog.embedded("2021-02-01").check().empty
        True
        """
        if "flags" not in self._judged:
            date = shipped.snapshot_at(self.as_of).date
            snapshot = shipped.read_snapshot(date)
            own = self._everything is not snapshot
            self._judged["flags"] = list_flagged(self._everything, snapshot) if own else _flag_snapshot(date)
        flags = self._judged["flags"]
        if self._frame is self._everything:
            return flags.copy()
        here = pd.MultiIndex.from_frame(self._frame[list(KEY)].astype(str))
        return flags[pd.MultiIndex.from_frame(flags[list(KEY)]).isin(here)].reset_index(drop=True)

    def is_implausible(self, rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Return whether each of ``rows``, a table of prices of this catalog, is implausible; see :meth:`check`."""
        flags = self.unrestricted.check()
        flags = flags[flags["implausible"]]
        implausible = np.zeros(len(rows), dtype=bool)
        at = np.flatnonzero(rows["instance_type"].isin(set(flags["instance_type"])))
        names = pd.MultiIndex.from_frame(rows.iloc[at][list(KEY)].astype(str))
        implausible[at] = names.isin(pd.MultiIndex.from_frame(flags[list(KEY)]))
        return implausible

    def commitments(self) -> pd.DataFrame:
        """Return the reserved prices with the hours of use a month from which on they are cheaper than on demand.

        >>> Catalog.embedded("2026-08-22").where(provider="gcp", region="us-central1").commitments().columns[-1]
        'hours_per_month'
        """
        return list_commitments(self._frame)

    def ages_of(self, rows: pd.DataFrame) -> PriceAges:
        """Return the ages of ``rows``, a table of prices of this catalog, on the day for which rankings are made."""
        day = self.as_of or today()
        return PriceAges.of(rows, day, judged_on=judging_day(day, self._public_dates))

    @property
    def outdated(self) -> Finding | None:
        """Finding about a catalog without a price of the last year, where no more prices become stale; else None."""
        return describe_outdated(self.as_of or today(), self._public_dates)

    @property
    def _public_dates(self) -> list[str]:
        """Dates of the prices, without the user's own if there are others: they say nothing about the others."""
        if "dates" not in self._judged:
            dates = self._everything[["date", "source"]].drop_duplicates().astype(str)
            public = dates[dates["source"] != USER]
            self._judged["dates"] = public if len(public) else dates
        return sorted(self._judged["dates"]["date"].unique())

    @property
    def price_dates(self) -> tuple[str, str]:
        """Dates of the oldest and of the newest price."""
        dates = sorted(self._frame["date"].unique())
        return dates[0], dates[-1]

    def is_stale(self, today: dt.date | None = None) -> bool:
        """Return whether all prices are stale, too old for rankings, on the day ``today``.

        By default, that is the day for which the catalog was opened, or the current date.

        >>> Catalog.embedded(date="2021-02-28").is_stale(), Catalog.embedded(date="2021-02-28").is_stale("2026-08-22")
        (False, True)
        """
        day = maybe(check_day, "today", today) or self.as_of
        return bool(PriceAges.of(self._frame, day).stale.all())

    def __len__(self) -> int:
        return len(self._frame)

    def __iter__(self) -> Iterator[Offer]:
        return (self._as_offer(row, self._frame) for row in range(len(self._frame)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and _as_plain(self._frame).equals(_as_plain(other._frame))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        oldest, newest = self.price_dates
        conditions = f", where {', '.join(self.conditions)}" if self.conditions else ""
        return f"<Catalog: {format_count(len(self), 'price')} of {oldest} to {newest}, {self.origin}{conditions}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>" + str(self._frame.head(20).to_html(index=False))

    def _with_rows(self, rows: pd.DataFrame, *, origin: str, findings: Sequence[Finding]) -> Catalog:
        """Return this catalog with ``rows``, which no restriction removes: the caller has just named them."""
        catalog = copy.copy(self)
        catalog._frame = merge_frames(self._frame, rows)
        catalog._everything = (
            catalog._frame if self._frame is self._everything else merge_frames(self._everything, rows)
        )
        catalog._judged = {}
        catalog.origin, catalog.findings = origin, (*self.findings, *findings)
        return catalog

    @classmethod
    def _over_embedded(cls, parts: Sequence[pd.DataFrame], findings: Sequence[Finding]) -> Catalog:
        newest = cls.embedded()
        if not parts:
            return cls(newest._frame, origin=newest.origin, findings=findings)
        origin = f"refreshed prices over the {newest.origin}"
        return cls(merge_frames(newest._frame, concat_frames(parts), newest=True), origin=origin, findings=findings)

    def _matches(self, column: str, names: Sequence[str]) -> np.ndarray:
        values = self._frame[column]
        if column == "region":
            for name in names:
                self._check_known(column, name)
            return np.asarray(functools.reduce(or_, [select_regions(self._frame, name) for name in names]))
        if column == "gpu_model":  # RTX-4090 may be written RTX4090 or GeForce RTX 4090
            models = [str(model) for model in values.cat.categories]
            names = [model for name in names for model in find_gpus(name, models) or [name]]
        for name in names:
            self._check_known(column, name)
        return np.asarray(values.isin(names))

    def _check_known(self, column: str, name: str) -> None:
        if column == "market":
            check_choice("market", name, MARKETS)
            return
        names = self._frame[column].cat.categories
        if name in names or (column == "region" and is_group(name)):
            return
        if column == "instance_type" and (machine := shipped.describe_unpriced(name)):
            message = f"The catalog has no price of {name} ({machine}). {NO_PRICE_REMEDY}"
            raise MissingNamesError(message, column, (name,))
        if column == "gpu_model" and (machines := shipped.unpriced_with(name)):
            listed = list_some(machines, 4)
            message = f"The catalog has no price of a machine with GPU {name} ({listed}). {NO_PRICE_REMEDY}"
            raise MissingNamesError(message, "gpu", (name,))
        noun = {"gpu_model": "GPU", "instance_type": "instance type"}.get(column, column)
        remedy = {"region": f" {NO_REGION_REMEDY}", "gpu_model": f" {NO_GPU_REMEDY}"}.get(column, "")
        hint = describe_nearest(name, names)
        if column == "instance_type" and (date := shipped.last_sold(name)):
            hint = f"The shipped prices of {date} contain it: use Catalog.embedded({date!r}), or --date {date}."
        message = f"The catalog ({self.origin}) has no {noun} {show(name)}. {hint}{remedy}"
        raise MissingNamesError(message, "gpu" if column == "gpu_model" else column, (name,))

    def _as_offer(self, label: int, frame: pd.DataFrame) -> Offer:
        values: dict[str, Any] = {str(name): value for name, value in frame.loc[label].items()}
        for name in NUMBERS:
            values[name] = None if np.isnan(values[name]) else float(values[name])
        return Offer.model_construct(**{**values, "retired": bool(values["retired"])})  # the table is validated


def explain_flaw(offer: Offer, catalog: Catalog, *, stale: bool) -> str:
    """Return why the price of an ``offer`` of ``catalog`` may be wrong: it is implausible; with ``stale``, or stale.

    The text is empty if it is neither.

    >>> catalog = Catalog.embedded("2026-08-22")
    >>> explain_flaw(catalog.offer("p5.48xlarge", region="ap-southeast-3", market="spot"), catalog, stale=True)
    'the spot price 75.9552 is not below the on-demand price 75.9552'
    """
    flags = catalog.unrestricted.check()
    flagged = flags["implausible"]
    for name in KEY:
        flagged = flagged & (flags[name] == getattr(offer, name))
    if flagged.any():
        return str(flags["reason"][flagged].iloc[0])
    if not stale:
        return ""
    rows = catalog.unrestricted._select(instance_type=offer.instance_type, region=offer.region, retired=None)
    same = (rows["provider"] == offer.provider) & (rows["service"] == offer.service) & (rows["market"] == offer.market)
    return f"the price is of {offer.date}, which is stale" if catalog.ages_of(rows[same]).stale.any() else ""


@functools.cache
def _flag_snapshot(date: str) -> pd.DataFrame:
    """Flagged prices of the shipped snapshot of ``date``, which many catalogs share."""
    return list_flagged(shipped.read_snapshot(date))


def _build_offers(offers: pd.DataFrame | Iterable[Offer | Mapping[str, object]]) -> tuple[pd.DataFrame, list[Finding]]:
    if isinstance(offers, pd.DataFrame):
        raw, noun = offers.reset_index(drop=True).drop(columns=list(files.DERIVED), errors="ignore"), "row"
    elif isinstance(offers, str | Path):
        raise ArgumentError(f"offers must be a list, not the text {str(offers)!r}. Read a file with Catalog.load.")
    elif isinstance(offers, Offer | Mapping) or not isinstance(offers, Iterable):
        raise ArgumentError(f"offers must be a list of Offer objects or dicts, not {show(offers)}. Pass a list.")
    else:
        rows = [offer.model_dump() if isinstance(offer, Offer) else _read_cells(offer) for offer in list_items(offers)]
        raw, noun = pd.DataFrame(rows, dtype=object), "offer"
    if not len(raw):
        raise ArgumentError("offers is empty. Pass at least one offer.")
    for column in raw.columns:
        _check_field(column)
    if not raw.columns.is_unique:
        twice = raw.columns[raw.columns.duplicated()][0]
        raise CatalogError(f"The table of prices has two columns named {show(twice)}. Remove one of them.")
    markets = raw["market"].astype(object) if "market" in raw.columns else pd.Series(pd.NA, raw.index, dtype=object)
    raw = raw.assign(market=markets.where(markets.notna(), "on_demand"))
    return build_frame(
        raw,
        name_row=lambda row: f"{noun} {row + 1}",
        default_date=today().isoformat(),
        default_source="user",
    )


def _read_cells(offer: object) -> dict[str, object]:
    """Return the fields of one offer. Raise an error if a value is a list or a mapping."""
    cells = check_mapping("an offer", offer)
    for name, value in cells.items():
        _check_field(name)
        if value is not None and value is not pd.NA and not isinstance(value, _CELLS):
            raise ArgumentError(f"{name} of an offer must be a text, a number or a date, not {show(value)}.")
    return cells


def _check_field(name: object) -> None:
    if name not in COLUMNS:
        raise CatalogError(f"{show(name)} is not a field of an offer. {describe_column(name)}")


def _as_plain(frame: pd.DataFrame) -> pd.DataFrame:
    plain = frame.astype({name: str for name in COLUMNS if isinstance(frame[name].dtype, pd.CategoricalDtype)})
    return plain.sort_values(list(COLUMNS[:5]), ignore_index=True)


def compare_prices(old: Catalog, new: Catalog) -> pd.DataFrame:
    """Return the differences between two catalogs: a row per price that is new, gone, higher or lower.

    The largest change comes first. The columns are :data:`CHANGE_COLUMNS`. A price counts as gone only if ``new`` has
    other prices of the same provider, service, region and market. Retired instance types do not count as gone.

    >>> then, now = Catalog.embedded("2021-02-28"), Catalog.embedded("2026-08-22")
    >>> changes = compare_prices(then, now)
    >>> changes.loc[changes["change"] == "higher", "instance_type"].tolist()
    ['ml.p3.2xlarge']
    """
    for name, catalog in (("old", old), ("new", new)):
        if not isinstance(catalog, Catalog):
            raise ArgumentError(f"{name} must be a Catalog, not {show(catalog)}. Read a price file with Catalog.load.")
    columns = [*KEY, "usd_per_hour", "date"]
    texts = dict.fromkeys((*KEY, "date"), str)
    before = old.offers(market=None)[[*columns, "retired"]].astype(texts)
    after = new.offers(market=None)[columns].astype(texts)
    scopes = pd.MultiIndex.from_frame(after[list(_SCOPE)])
    before = before[pd.MultiIndex.from_frame(before[list(_SCOPE)]).isin(scopes)]
    before = before.rename(columns={"usd_per_hour": "old_usd_per_hour", "date": "old_date"})
    after = after.rename(columns={"usd_per_hour": "new_usd_per_hour", "date": "new_date"})
    both = pd.merge(before, after, on=list(KEY), how="outer")
    was, now = both["old_usd_per_hour"], both["new_usd_per_hour"]
    both["change"] = np.select(
        [was.isna(), now.isna(), now > was, now < was], ["new", "gone", "higher", "lower"], "same"
    )
    both["percent"] = (now / was - 1) * 100
    gone_before = (both["change"] == "gone") & both["retired"].eq(True)
    both = both[(both["change"] != "same") & ~gone_before]
    both = both.assign(size=both["percent"].abs().fillna(-1))
    order = both.sort_values(["size", *KEY], ascending=[False, *[True] * len(KEY)])
    return order[list(CHANGE_COLUMNS)].reset_index(drop=True)
