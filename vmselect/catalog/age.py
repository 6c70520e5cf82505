"""Age of prices: how uncertain a price has become since its date, and when it is stale.

The logarithm of a price is taken to move like a random walk, so its standard deviation grows with the square root of
the age. ``price-moves.csv`` has the mean monthly move of each provider's list and spot prices, and the age from which
a price is stale: rankings leave it out. Ages count from the day for which a ranking is made: by default from
:func:`today`. A price in the future of that day has the age 0. A price of a file without the column ``date`` has that
of the file; a price without any date counts as a year old, so that it does not look certain.

A catalog that nobody refreshes would lose its prices one by one, until the most patient rule decides what is ranked. So
a year after its newest price, no more of its prices become stale (:func:`judging_day`): their age widens the intervals
of costs, and a warning states it.
"""

from __future__ import annotations

import csv
import datetime as dt
import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmselect._io import pricing_folder
from vmselect.errors import ArgumentError
from vmselect.findings import Finding
from vmselect.units import format_count, list_some

DAYS_PER_MONTH = 365.25 / 12
UNDATED_DAYS = 365
"""Age of a price without any date: as old as a price may be in a ranking."""
NO_NEW_PRICE_DAYS = 365
"""Days after the newest price of a catalog from which on none of its prices becomes stale."""
ANY_PROVIDER = "*"
"""Provider of the rows of ``price-moves.csv`` for all providers that it does not name."""


def today() -> dt.date:
    """The current date, which is also that of prices fetched now; ``VMSELECT_TODAY`` sets another one."""
    text = os.environ.get("VMSELECT_TODAY", "").strip()
    if not text:
        return dt.datetime.now(dt.UTC).date()
    try:
        return dt.datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        message = f"VMSELECT_TODAY {text[:40]!r} is not a date. Set a date such as 2026-08-22, or unset it."
        raise ArgumentError(message) from None


def judging_day(day: dt.date, dates: Iterable[str]) -> dt.date:
    """The day that decides which prices of a catalog are stale: ``day``, but at most a year after the newest price.

    >>> judging_day(dt.date(2030, 3, 1), ["2024-11-14", "2026-08-22"])
    datetime.date(2027, 8, 22)
    """
    newest = dt.date.fromisoformat(max(filter(None, dates), default=day.isoformat()))
    without = (day - newest).days > NO_NEW_PRICE_DAYS
    return newest + dt.timedelta(days=NO_NEW_PRICE_DAYS) if without else day


class Aging(NamedTuple):
    """How the prices of a provider age in a market."""

    monthly_move: float
    """Mean move of a price within a month, as a fraction of the price."""
    stale_after_days: int
    marketplace: bool
    """Whether private hosts make the offers, which last for days: their prices are typical prices."""
    named: bool
    """Whether the file names the provider, or the values are those of all others."""


def aging_of(provider: str, market: str) -> Aging:
    """How the prices of ``provider`` in ``market`` age.

    >>> aging_of("aws", "spot").monthly_move, aging_of("aws", "on_demand").stale_after_days
    (0.18, 1095)
    """
    kind = "spot" if market == "spot" else "list"  # reserved prices are list prices, too
    table = _agings()
    return table.get((provider, kind)) or table[ANY_PROVIDER, kind]


@functools.cache
def _agings() -> dict[tuple[str, str], Aging]:
    with (pricing_folder() / "price-moves.csv").open(encoding="utf-8", newline="") as lines:
        return {
            (row["provider"], row["market"]): Aging(
                float(row["monthly_move"]), int(row["stale_after_days"]), row["marketplace"] == "yes",
                row["provider"] != ANY_PROVIDER,
            )
            for row in csv.DictReader(lines)
        }  # fmt: skip


@dataclass(frozen=True)
class PriceAges:
    """Arrays with a value per price: the effects of its age.

    ``deviation`` is the standard deviation of the logarithm of the price. Prices of one provider and market move
    together: they have the same number in ``group``.
    """

    days: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]
    stale: npt.NDArray[np.bool_]
    marketplace: npt.NDArray[np.bool_]
    group: npt.NDArray[np.intp]

    @classmethod
    def of(cls, prices: pd.DataFrame, as_of: dt.date | None = None, *, judged_on: dt.date | None = None) -> PriceAges:
        """Ages of the rows of a table of prices on the day ``as_of`` (default: the current date).

        The day ``judged_on`` decides which of them are stale (default: ``as_of``).
        """
        day = as_of or today()
        dates = prices["date"].cat
        days, judged_days = (
            np.array([_count_days(str(date), on) for date in dates.categories], dtype=float)[dates.codes]
            for on in (day, judged_on or day)
        )
        providers, markets = prices["provider"].cat, prices["market"].cat
        pairs = [(str(name), str(market)) for name in providers.categories for market in markets.categories]
        agings = [aging_of(*pair) for pair in pairs]
        pair = providers.codes.to_numpy(dtype=np.intp) * len(markets.categories) + markets.codes.to_numpy()
        move = np.array([aging.monthly_move for aging in agings])[pair]
        longest = np.array([aging.stale_after_days for aging in agings])[pair]
        hosts = np.array([aging.marketplace for aging in agings], dtype=bool)[pair]
        # Numbers of the pairs that occur, in alphabetical order: they do not depend on other prices.
        order = {number: at for at, number in enumerate(sorted(set(pair.tolist()), key=lambda number: pairs[number]))}
        group = np.array([order.get(number, 0) for number in range(len(pairs))], dtype=np.intp)[pair]
        return cls(days, move * np.sqrt(days / DAYS_PER_MONTH), judged_days > longest, hosts, group)


def _count_days(date: str, day: dt.date) -> int:
    """Age on ``day`` of a price of ``date``; of a price without a date, which a file may contain, a year."""
    return max(0, (day - dt.date.fromisoformat(date)).days) if date else UNDATED_DAYS


def describe_outdated(day: dt.date, dates: Iterable[str]) -> Finding | None:
    """Finding on ``day`` about a catalog whose prices, of ``dates``, are so old that no more of them become stale."""
    newest = max(dates, default="")
    if judging_day(day, [newest]) == day:
        return None
    message = (
        f"No price is newer than {newest}, {_count_days(newest, day):,} days before {day}: nobody knows what machines "
        "cost now. Rankings widen the intervals of costs by how prices usually move in that time."
    )
    return Finding("outdated-catalog", message, "Run `vmselect prices refresh`.")


def describe_stale(prices: pd.DataFrame, ages: PriceAges) -> list[Finding]:
    """Findings about the stale rows of ``prices``: which providers and markets, and since when."""
    findings = []
    for hosts, code, noun in (
        (False, "stale-prices", "stale"),
        (True, "typical-prices", "only typical: offers of this marketplace last for days"),
    ):
        rows = prices[ages.stale & (ages.marketplace == hosts)]
        if not len(rows):
            continue
        newest = (
            rows.astype({"provider": str, "market": str, "date": str}).groupby(["provider", "market"])["date"].max()
        )
        listed = list_some([f"{provider} {market} of {date}" for (provider, market), date in newest.items()], 6)
        providers = ",".join(sorted({str(provider) for provider, _ in newest.index}))
        message = f"{format_count(len(rows), 'price')} {'is' if len(rows) == 1 else 'are'} {noun} ({listed})."
        remedy = (
            f"Rankings leave them out. Run `vmselect prices refresh --provider {providers}`, or pass "
            "catalog.where(stale=True) (--stale) to use them."
        )
        findings.append(Finding(code, message, remedy, "info"))
    return findings
