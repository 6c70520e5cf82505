"""Guards: prices that cannot be right, or say less than they seem to, are flagged with the reason.

Each guard is a pattern that was seen in published price lists. A price is *implausible* if it may look better than it
is: rankings leave it out, and a refresh refuses it. The user's own prices (source ``user``) are flagged too, but never
implausible: the user knows what is paid. :func:`flag_prices` compares a table with itself and with the prices known
before.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmselect.catalog.age import aging_of, today
from vmselect.catalog.gpu_names import name_gpu
from vmselect.catalog.gpus import fold_gpu
from vmselect.catalog.offer import KEY, concat_frames
from vmselect.findings import Finding
from vmselect.units import format_count, list_some

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FAR = 4.0
"""Ratio to the median per GPU-hour from which a price is flagged. In the prices of 2026-08-22 of 23 providers, 19 of
11,746 GPU prices are lower: V100 machines that nobody can rent, and spot prices of 2024."""
HALF = 0.55
"""Ratio to another price of the same machine below which a list price is flagged. For 18 months SkyPilot's prices of
H100 machines of Google were 0.49 to 0.52 of the true ones; the largest cut of a list price of AWS was to 0.56. In the
prices of 2026-08-22, no list price is below 0.76 of the next one of the same machine in another region."""
EQUAL = 1e-4
"""Relative difference up to which two prices are equal: price lists round to four digits."""
FEWEST_REGIONS = 3
"""Regions from which on equal prices in all regions are flagged."""
UNCHANGED_DAYS, UNCHANGED_PRICES, MOVING = 45, 5, 0.05
"""Prices that move by 5 % a month or more (spot markets, marketplaces) are flagged if at least five of them, and nearly
all of their provider and market, are the same as 45 days before."""
NEARLY_ALL = 0.9

SHOWN = 3
"""Number of examples in a finding about implausible prices."""
FLAG_COLUMNS = (*KEY, "usd_per_hour", "date", "source", "flag", "implausible", "reason")
USER = "user"
"""Source of the user's own prices."""


class Flag(NamedTuple):
    """A pattern of wrong or empty prices."""

    name: str
    implausible: bool
    text: str
    """The text about all flagged prices, after "... prices "; ``are`` is its verb."""
    reason: str
    """The text about one of them: ``price`` and its ``date``, the price ``other`` it was compared with, and their
    ``ratio``."""


PLACEHOLDER = Flag(
    "spot-placeholder", True, "of the spot market {are} equal to on demand, which is a placeholder",
    "every spot price of the provider equals the on-demand price, here {other:g}",
)  # fmt: skip
SPOT_ABOVE = Flag(
    "spot-above-on-demand", True, "of the spot market {are} not below on demand",
    "the spot price {price:g} is not below the on-demand price {other:g}",
)  # fmt: skip
OLD_CONTENT = Flag(
    "old-content", True, "{are} unchanged for long, and so older than dated",
    "the prices of this market, here {price:g}, have not changed since an earlier date",
)  # fmt: skip
HALF_PRICE = Flag(
    "half-price", True, "{are} about half of another price of the same machine, or less",
    "the price {price:g} is {ratio:.2g} times another price of the same machine, {other:g}",
)  # fmt: skip
FAR_BELOW = Flag(
    "far-below-median", True, f"{{are}} less than 1/{FAR:g} of the median per GPU-hour of the GPU model",
    "the price {price:g} is {ratio:.2g} times what its GPUs cost elsewhere, {other:g}",
)  # fmt: skip
FAR_ABOVE = Flag(
    "far-above-median",
    False,
    f"{{are}} more than {FAR:g} times the median per GPU-hour of the GPU model",
    FAR_BELOW.reason,
)
FUTURE = Flag(
    "future-date", False, "{are} dated in the future, so that nobody knows how old",
    "the price {price:g} is of {date}",
)  # fmt: skip
ONE_PRICE = Flag(
    "one-price-everywhere", False, "{are} the same in every region, which says nothing about availability",
    "the price {price:g} is the same in every region, so it is not known where the machine is available",
)  # fmt: skip
FLAGS = (PLACEHOLDER, SPOT_ABOVE, OLD_CONTENT, HALF_PRICE, FAR_BELOW, FAR_ABOVE, FUTURE, ONE_PRICE)
"""All flags. Of several flags of a price, the first one is reported."""
SUSPICIOUS = tuple(pattern.name for pattern in FLAGS if pattern.implausible)
"""Flags of prices that may look better than they are."""


@dataclass(frozen=True)
class Flagged:
    """Flags of a table of prices, with a value per row."""

    flag: npt.NDArray[np.int8]
    """Number of a flag in :data:`FLAGS`; -1 for none."""
    implausible: Bools
    compared: Floats
    """The price with which a flagged price was compared; NaN if there is none."""

    def reason(self, row: int, price: float, date: str) -> str:
        """Return why the ``price`` of this ``date`` at the position ``row`` is flagged."""
        other = float(self.compared[row])
        return FLAGS[self.flag[row]].reason.format(price=price, other=other, ratio=price / other, date=date)


class _Table:
    """Columns of prices as numbers; ``of_reference`` marks the rows of the prices known before."""

    def __init__(self, prices: pd.DataFrame, reference: pd.DataFrame | None) -> None:
        rows = prices if reference is None or not len(reference) else concat_frames([prices, reference])
        self.size = len(prices)
        self.of_reference: Bools = np.arange(len(rows)) >= self.size
        self.price: Floats = rows["usd_per_hour"].to_numpy(dtype=float)
        self.gpus: Floats = rows["gpu_count"].to_numpy(dtype=float)
        self.codes = {
            name: rows[name].cat.codes.to_numpy(dtype=np.int64) for name in (*KEY, "gpu_model", "date", "source")
        }
        self.names = {name: rows[name].cat.categories for name in ("provider", "market", "gpu_model", "date", "source")}
        self.rented: Bools = ~rows["retired"].to_numpy(dtype=bool)

    def number(self, *names: str) -> Ints:
        """A number per row that differs where one of the columns ``names`` differs."""
        number = np.zeros(len(self.price), dtype=np.int64)
        for name in names:
            number = number * (int(self.codes[name].max(initial=0)) + 1) + self.codes[name]
        return np.asarray(np.unique(number, return_inverse=True)[1].reshape(-1), dtype=np.int64)

    def is_market(self, market: str) -> Bools:
        """Whether each row is of the market."""
        return np.asarray((np.asarray(self.names["market"], dtype=object) == market)[self.codes["market"]])

    @property
    def is_moving(self) -> Bools:
        """Whether each row is of a provider and market whose prices are known to move by :data:`MOVING` a month."""
        agings = [
            [aging_of(str(name), str(market)) for market in self.names["market"]] for name in self.names["provider"]
        ]
        moving = np.array(
            [[aging.named and aging.monthly_move >= MOVING for aging in row] for row in agings], dtype=bool
        )
        return np.asarray(moving[self.codes["provider"], self.codes["market"]])

    @property
    def days(self) -> Ints:
        """The date of each row as a number of days."""
        return np.asarray(np.array(self.names["date"], dtype="datetime64[D]").astype(np.int64)[self.codes["date"]])


def flag_prices(prices: pd.DataFrame, reference: pd.DataFrame | None = None) -> Flagged:
    """Return the flags of ``prices``, a table of validated prices. ``reference`` are prices that were known before."""
    table = _Table(prices, reference)
    flag = np.full(table.size, -1, dtype=np.int8)
    compared = np.full(table.size, np.nan)
    for name, rows, others in _find_all(table):
        number = FLAGS.index(name)
        rows = rows[: table.size]
        better = rows & ((flag < 0) | (flag > number))
        flag[better] = number
        compared[better] = others[: table.size][better]
    flag[~table.rented[: table.size]] = -1  # the last price of a type that cannot be rented
    implausible = np.array([*(pattern.implausible for pattern in FLAGS), False])[flag]
    own = (np.asarray(table.names["source"], dtype=object) == USER)[table.codes["source"]][: table.size]
    return Flagged(flag, implausible & ~own, compared)


def _find_all(table: _Table) -> Iterator[tuple[Flag, Bools, Floats]]:
    """Yield each flag with the rows that it concerns, and the prices with which they were compared."""
    nothing = np.full(len(table.price), np.nan)
    yield from _find_spot(table)
    yield ONE_PRICE, _sold_at_one_price(table), nothing
    yield from _find_outliers(table)
    yield from _find_changes(table)


def _find_spot(table: _Table) -> Iterator[tuple[Flag, Bools, Floats]]:
    offer = table.number("provider", "service", "instance_type", "region")
    current = ~table.of_reference
    on_demand = np.full(offer.max(initial=-1) + 1, np.nan)
    # Without a price on demand beside it, a spot price is compared with the one known before.
    for rows in (table.of_reference, current):
        rows = rows & table.is_market("on_demand")
        on_demand[offer[rows]] = table.price[rows]
    beside = on_demand[offer]
    spot = table.is_market("spot") & current & ~np.isnan(beside)
    with np.errstate(invalid="ignore"):
        yield SPOT_ABOVE, spot & (table.price >= beside * (1 - EQUAL)), beside
        equal = spot & (np.abs(table.price / beside - 1) <= EQUAL)
    provider = table.codes["provider"]
    every, same = (np.bincount(provider[rows], minlength=provider.max(initial=0) + 1) for rows in (spot, equal))
    yield PLACEHOLDER, equal & ((every == same) & (same > 1))[provider], beside


def _sold_at_one_price(table: _Table) -> Bools:
    """Rows of machine types that cost the same in all regions of their provider."""
    current = ~table.of_reference
    place, market = table.number("provider", "region"), table.number("provider", "market")
    kind = table.number("provider", "service", "instance_type", "market")
    regions = np.bincount(
        np.unique(np.stack([market, place])[:, current], axis=1)[0], minlength=market.max(initial=0) + 1
    )
    sold = np.bincount(np.unique(np.stack([kind, place])[:, current], axis=1)[0], minlength=kind.max(initial=0) + 1)
    least, most = np.full(len(sold), np.inf), np.zeros(len(sold))
    np.minimum.at(least, kind[current], table.price[current])
    np.maximum.at(most, kind[current], table.price[current])
    everywhere = (sold[kind] == regions[market]) & (sold[kind] >= FEWEST_REGIONS)
    return np.asarray(current & everywhere & (least == most)[kind])


def _find_outliers(table: _Table) -> Iterator[tuple[Flag, Bools, Floats]]:
    names = [fold_gpu(name_gpu(str(name))) for name in table.names["gpu_model"]]  # a ranking knows an h100, too
    model = np.unique(np.array(names, dtype=str), return_inverse=True)[1].reshape(-1)[table.codes["gpu_model"]]
    has_gpu = (table.gpus > 0) & (np.array(names, dtype=object) != "")[table.codes["gpu_model"]]
    with np.errstate(divide="ignore", invalid="ignore"):
        each = table.price / table.gpus
    rows = np.flatnonzero(has_gpu & table.rented)
    group = model * (int(table.codes["market"].max(initial=0)) + 1) + table.codes["market"]
    frame = pd.DataFrame(
        {
            "group": group[rows],
            "provider": table.codes["provider"][rows],
            "type": table.codes["instance_type"][rows],
            "each": each[rows],
        }
    )
    # Regions, then types, then providers: a provider with many regions or sizes has no more weight than others.
    for by in (["group", "provider", "type"], ["group", "provider"], ["group"]):
        frame = frame.groupby(by, as_index=False).agg(each=("each", "median"))
    median = np.full(group.max(initial=-1) + 1, np.nan)
    median[frame["group"].to_numpy()] = frame["each"].to_numpy()
    other = median[group] * table.gpus
    with np.errstate(invalid="ignore"):
        yield FAR_BELOW, has_gpu & (table.price < other / FAR), other
        yield FAR_ABOVE, has_gpu & (table.price > other * FAR), other


def _find_changes(table: _Table) -> Iterator[tuple[Flag, Bools, Floats]]:
    """Yield prices that were halved, moving ones that did not change since the prices known before, and future ones."""
    key = table.number(*KEY)
    before, then = np.full(key.max(initial=-1) + 1, np.nan), np.zeros(key.max(initial=-1) + 1, dtype=np.int64)
    before[key[table.of_reference]] = table.price[table.of_reference]
    then[key[table.of_reference]] = table.days[table.of_reference]
    common = ~table.of_reference & ~np.isnan(before[key])
    other = before[key]
    with np.errstate(invalid="ignore"):
        yield HALF_PRICE, *_find_halves(table, other)
        long_after = common & table.is_moving & (table.days - then[key] > UNCHANGED_DAYS)
        same = long_after & (np.abs(table.price / other - 1) <= EQUAL)
    market = table.number("provider", "market")
    compared, unchanged = (np.bincount(market[rows], minlength=len(market)) for rows in (long_after, same))
    frozen = (unchanged >= UNCHANGED_PRICES) & (unchanged >= NEARLY_ALL * compared)
    yield OLD_CONTENT, same & frozen[market], other
    if table.of_reference.any():
        # Nothing is after the prices known before: the clock of a computer may be wrong.
        latest = max((today() - dt.date(1970, 1, 1)).days, int(table.days[table.of_reference].max()))
        tomorrow = latest + 1  # today elsewhere on earth
        yield FUTURE, ~table.of_reference & (table.days > tomorrow), np.full(len(key), np.nan)


def _find_halves(table: _Table, before: Floats) -> tuple[Bools, Floats]:
    """Return the list prices that were halved since ``before``, and what they were compared with.

    The price in a new region is compared with that of the cheapest region before, except on a marketplace, where the
    regions have different hosts.
    """
    kind = table.number("provider", "service", "instance_type", "market")
    least = np.full(kind.max(initial=-1) + 1, np.inf)
    np.minimum.at(least, kind[table.of_reference], table.price[table.of_reference])
    hosts = [aging_of(str(name), "on_demand").marketplace for name in table.names["provider"]]
    new = np.isnan(before) & ~np.array(hosts, dtype=bool)[table.codes["provider"]]
    other = np.where(new & np.isfinite(least[kind]), least[kind], before)
    return ~table.of_reference & table.is_market("on_demand") & (table.price < HALF * other), other


def list_flagged(prices: pd.DataFrame, reference: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the flagged rows of ``prices`` as a table with the columns :data:`FLAG_COLUMNS`."""
    flagged = flag_prices(prices, reference)
    rows = np.flatnonzero(flagged.flag >= 0)
    table = prices.iloc[rows][[*KEY, "usd_per_hour", "date", "source"]].astype(
        dict.fromkeys((*KEY, "date", "source"), str)
    )
    offers = zip(rows.tolist(), table["usd_per_hour"], table["date"], strict=True)
    return table.assign(
        flag=[FLAGS[flagged.flag[row]].name for row in rows],
        implausible=flagged.implausible[rows],
        reason=[flagged.reason(*offer) for offer in offers],
    ).reset_index(drop=True)


def describe_flags(table: pd.DataFrame) -> list[Finding]:
    """Return a finding for each flag in a ``table`` of :func:`list_flagged`, with examples.

    It is a warning if prices are in use although they look better than they may be: the user's own.
    """
    findings = []
    for pattern in FLAGS:
        flagged = table[table["flag"] == pattern.name]
        for left_out, rows in flagged.groupby("implausible"):
            examples = [
                f"{row.provider} {row.instance_type} {row.region}: {row.reason}"
                for row in rows.head(SHOWN if pattern.implausible else 1).itertuples()
            ]
            providers = list_some(sorted(set(rows["provider"])), 6)
            text = pattern.text.format(are="is" if len(rows) == 1 else "are")
            message = f"{format_count(len(rows), 'price')} ({providers}) {text}: {'; '.join(examples)}."
            remedy = "Correct the date." if pattern is FUTURE else "Ask the provider before you rely on it."
            if left_out:
                remedy = "Rankings leave them out. Refresh them, or add your own prices if you know better."
            severity: Literal["warning", "info"] = "info" if left_out or not pattern.implausible else "warning"
            findings.append(Finding(pattern.name, message, remedy, severity))
    return findings
