"""Bills: the summed cost of storage, transfer, training, serving and other services, and their energy and CO2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pandas as pd

from vmselect._checks import check_mapping, check_name, check_number, is_number, maybe, show
from vmselect.errors import ArgumentError
from vmselect.intervals import Interval
from vmselect.units import format_amount, format_kg, format_kwh, format_usd, printable

HOURS_PER_MONTH = 730.5
"""Mean number of hours of a month."""


@dataclass(frozen=True)
class BillPart:
    """One line of a bill: a cost in USD with its lower and upper bound, and energy and CO2 if they are known."""

    name: str
    usd: float
    low: float
    high: float
    detail: str = ""
    energy_kwh: float | None = None
    co2_kg: float | None = None


@dataclass(frozen=True)
class Bill:
    """The costs of several services and their sum.

    >>> bill = Bill.of(storage=0.41, training=(1.0, 1.2, 1.5), serving=Bill.of(endpoint=0.526, front=0.0104))
    >>> round(bill.total, 4), [part.name for part in bill.parts]
    (2.1464, ['storage', 'training', 'serving: endpoint', 'serving: front'])
    >>> print(bill)
    $2.15 ($1.95 to $2.45): storage $0.41, training $1.20, serving: endpoint $0.53, serving: front $0.01
    >>> bill.energy_kwh is None  # no part states its energy
    True
    """

    parts: tuple[BillPart, ...]

    @classmethod
    def of(cls, parts: Mapping[str, Any] | None = None, **named: Any) -> Bill:
        """Make a bill from named parts.

        A part is a cost in USD, three costs (lower bound, estimate, upper bound), an interval, a row of a ranking (cost
        of the training), a row of a serving ranking (cost of one hour; ``row.cost_usd(items)`` for the cost of a number
        of items), a transfer record (its cost), or another bill.
        """
        bill_parts: list[BillPart] = []
        for title, value in {**(maybe(check_mapping, "parts", parts) or {}), **check_mapping("parts", named)}.items():
            if isinstance(value, Bill):
                bill_parts += [replace(part, name=f"{title}: {part.name}") for part in value.parts]
            else:
                bill_parts.append(BillPart(title, *_read(title, value), *_consumption(value)))
        return cls(tuple(bill_parts))

    @classmethod
    def rented(cls, hours: float, *, disk_gib: float = 0, usd_per_gib_month: float | None = None, metrics: float = 0,
               usd_per_metric_month: float | None = None) -> Bill:  # fmt: skip
        """A bill of what a machine needs besides its own price: its disk, and the metrics of its monitoring.

        Providers charge both by the month, of which ``hours`` are used. What is used needs a price, 0 if it is free.

        >>> print(Bill.rented(6.5, disk_gib=100, usd_per_gib_month=0.08, metrics=10, usd_per_metric_month=0.30))
        $0.098: disk $0.071, monitoring $0.027
        """
        share = check_number("hours", hours, least=0) / HOURS_PER_MONTH
        amounts = {
            "disk": ("disk_gib", disk_gib, "usd_per_gib_month", usd_per_gib_month, "GiB"),
            "monitoring": ("metrics", metrics, "usd_per_metric_month", usd_per_metric_month, "metrics"),
        }
        parts = []
        for title, (name, amount, price_name, price, unit) in amounts.items():
            count = check_number(name, amount, least=0)
            each = maybe(check_number, price_name, price, least=0)
            if count and each is None:
                raise ArgumentError(f"{name} is {count:g}, without a price. Pass {price_name}=, 0 if it is free.")
            if count:
                cost = share * count * (each or 0.0)
                parts.append(BillPart(title, cost, cost, cost, f"{count:g} {unit}"))
        return cls(tuple(parts))

    def text_in(self, currency: str, per_usd: float) -> str:
        """The bill as text in another currency, at the stated factor ``per_usd`` (units of it for a US dollar).

        >>> print(Bill.of(training=2.16).text_in("EUR", per_usd=0.92))
        1.99 EUR (at 0.92 EUR per USD): training 1.99
        """
        name, rate = check_name("currency", currency), check_number("per_usd", per_usd, above=0)
        total, low, high = (format_amount(usd * rate) for usd in (self.total, self.low, self.high))
        span = f" ({low} to {high})" if self.high > self.low else ""
        parts = ", ".join(f"{printable(part.name)} {format_amount(part.usd * rate)}" for part in self.parts)
        return printable(f"{total} {name}{span} (at {rate:g} {name} per USD): {parts}")

    @property
    def total(self) -> float:
        """Sum of the costs of all parts, in USD."""
        return sum(part.usd for part in self.parts)

    @property
    def low(self) -> float:
        """Sum of the lower bounds, in USD."""
        return sum(part.low for part in self.parts)

    @property
    def high(self) -> float:
        """Sum of the upper bounds, in USD."""
        return sum(part.high for part in self.parts)

    @property
    def energy_kwh(self) -> float | None:
        """Energy of the parts that state it, such as rows of a ranking; None if none does."""
        return _sum([part.energy_kwh for part in self.parts])

    @property
    def co2_kg(self) -> float | None:
        """CO2 of the parts that state it; None if none does."""
        return _sum([part.co2_kg for part in self.parts])

    def times(self, factor: float) -> Bill:
        """The bill with all costs multiplied by ``factor``, such as 24 for the hours of a day."""
        by = check_number("factor", factor, least=0)
        return Bill(tuple(_multiply(part, by) for part in self.parts))

    def to_frame(self) -> pd.DataFrame:
        """The parts as a DataFrame, a row per part; energy and CO2 are NaN where a part does not state them."""
        frame = pd.DataFrame([vars(part) for part in self.parts], columns=[field.name for field in fields(BillPart)])
        return frame.astype({"energy_kwh": float, "co2_kg": float})

    def __add__(self, other: Bill) -> Bill:
        return Bill((*self.parts, *other.parts))

    def __str__(self) -> str:
        span = f" ({format_usd(self.low)} to {format_usd(self.high)})" if self.high > self.low else ""
        parts = ", ".join(f"{printable(p.name)} {format_usd(p.usd)}" for p in self.parts)
        return f"{format_usd(self.total)}{span}: {parts}{self._consumption_text()}"

    def _consumption_text(self) -> str:
        """Energy and CO2 as text, with the names of the parts that do not state them; empty if none does."""
        used = [
            f"{write(value)} of {name}"
            for value, write, name in ((self.energy_kwh, format_kwh, "energy"), (self.co2_kg, format_kg, "CO2"))
            if value is not None
        ]
        silent = [printable(part.name) for part in self.parts if part.energy_kwh is None]
        without = f" (without {', '.join(silent)})" if silent else ""
        return f"; {' and '.join(used)}{without}" if used else ""


def _multiply(part: BillPart, by: float) -> BillPart:
    energy, co2 = (None if value is None else value * by for value in (part.energy_kwh, part.co2_kg))
    return BillPart(part.name, part.usd * by, part.low * by, part.high * by, part.detail, energy, co2)


def _sum(values: Sequence[float | None]) -> float | None:
    stated = [value for value in values if value is not None]
    return sum(stated) if stated else None


def _consumption(value: Any) -> tuple[float | None, float | None]:
    """Energy in kWh and CO2 in kg of a row of a ranking; None where they are not known."""
    measures = getattr(value, "measures", None) or {}
    energy, co2 = (measures.get(name) for name in ("energy", "co2"))
    return energy.value if energy else None, co2.value if co2 else None


def _read(name: str, value: Any) -> tuple[float, float, float, str]:
    if isinstance(value, Interval):
        value = (value.low, value.value, value.high)
    if is_number(value):
        usd = check_number(name, value, least=0)
        return usd, usd, usd, ""
    if isinstance(value, (tuple, list)) and len(value) == 3 and all(map(is_number, value)):
        low, usd, high = (check_number(name, part, least=0) for part in value)
        if not low <= usd <= high:
            raise ArgumentError(f"{name} is {show(value)}, not ascending. Pass (lower bound, estimate, upper bound).")
        return usd, low, high, ""
    # Rows of both rankings and transfer records are read by their fields, so that this module needs none of them. A row
    # for serving has an hourly cost and a method cost_usd, so the hourly cost is looked up first.
    for names in (
        ("hourly_usd", "hourly_low", "hourly_high"),
        ("cost_usd", "cost_low", "cost_high"),
        ("cost_usd",) * 3,
    ):
        numbers = [getattr(value, field, None) for field in names]
        if all(map(is_number, numbers)):
            usd, low, high = (float(number) for number in numbers)  # type: ignore[arg-type]
            return usd, low, high, str(getattr(value, "instance_type", "") or "")
    raise ArgumentError(
        f"{name} is {show(value)}, which is not a cost. "
        "Pass a cost in USD, (lower bound, estimate, upper bound), a row of a ranking, or a Bill."
    )
