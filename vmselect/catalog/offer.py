"""Offers: the columns of a table of prices, the rules for their values, and the class :class:`Offer`.

A row of the table is the price of a provider's VM type in a region and a market on a date. The same rules validate a
single offer and a file of a million rows.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from vmselect._checks import list_items, show
from vmselect.errors import ArgumentError, CatalogError
from vmselect.findings import Finding

SCHEMA_VERSION = 1

MARKETS = ("on_demand", "spot", "reserved_1y", "reserved_3y")

STALE_AFTER_DAYS = 90

# The order of the columns in files and in DataFrames.
COLUMNS = (
    "provider", "service", "instance_type", "region", "market", "usd_per_hour", "date", "vcpus", "memory_gib",
    "gpu_model", "gpu_count", "gpu_memory_gib", "retired", "source", "note",
)  # fmt: skip
KEY = ("provider", "service", "instance_type", "region", "market")
REQUIRED = ("provider", "instance_type", "region", "market", "usd_per_hour")
OWN_PRICE = f"Catalog.with_offers, or --own-prices with a CSV file that has the columns {', '.join(REQUIRED)}"
"""How to add a price, for messages."""
# Columns that describe the machine.
FACTS = ("vcpus", "memory_gib", "gpu_model", "gpu_count", "gpu_memory_gib")

# column: (lowest, highest) allowed, in the unit of the column's name.
NUMBER_LIMITS: dict[str, tuple[float, float]] = {
    "usd_per_hour": (1e-6, 100_000.0),
    "vcpus": (0.0, 100_000.0),
    "memory_gib": (0.0, 1_000_000.0),
    "gpu_count": (0.0, 100_000.0),
    "gpu_memory_gib": (0.0, 10_000.0),
}
TEXT_COLUMNS = tuple(c for c in COLUMNS if c not in NUMBER_LIMITS)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
# Oracle's types contain a dollar sign, and some marketplaces have regions such as "Texas, US".
_PLACE = re.compile(r"[^\W_][\w .,:$()+-]{0,127}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+:/()-]{0,127}")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_DEFAULT_SERVICE = {"aws": "ec2", "azure": "vm", "gcp": "gce"}


def default_service(provider: str, instance_type: str) -> str:
    """Return the service of ``provider`` that is assumed for ``instance_type`` in a row without a service."""
    if provider == "aws" and instance_type.startswith("ml."):
        return "sagemaker"
    return _DEFAULT_SERVICE.get(provider, "vm")


SERVICES = ("ec2", "sagemaker")
"""Services of AWS that rent out the same machines. In the second, their names have the prefix ``ml.``."""


def name_in_service(instance_type: str, service: str) -> str:
    """Return the name that the AWS machine ``instance_type`` has in ``service``, one of :data:`SERVICES`.

    >>> name_in_service("p3.2xlarge", "sagemaker"), name_in_service("ml.p3.2xlarge", "ec2")
    ('ml.p3.2xlarge', 'p3.2xlarge')
    """
    plain = instance_type.removeprefix("ml.")
    return f"ml.{plain}" if service == "sagemaker" else plain


def describe_bad_text(column: str, value: str) -> str | None:
    """Return the reason why ``value`` is invalid in the text column ``column``, or None if it is valid."""
    shown = repr(value if len(value) <= 40 else value[:37] + "...")
    if value.startswith(_FORMULA_STARTS):
        return f"{column} {shown} begins like a formula of a spreadsheet; it must begin with a letter"
    if column == "market":
        return None if value in MARKETS else f"market {shown} is not one of {', '.join(MARKETS)}"
    if column == "date":
        return None if is_iso_date(value) else f"date {shown} is not in the form 2026-08-22"
    if column == "retired":
        return None if value in ("yes", "no", "") else f"retired {shown} is neither yes nor no"
    if column == "note":
        fine = len(value) <= 300 and value.isprintable()
        return None if fine else f"note {shown} is longer than 300 characters or contains control characters"
    if value == "":
        return f"{column} is empty" if column in REQUIRED else None
    pattern, signs = _NAME, ". _ + -"
    if column in ("instance_type", "region"):
        pattern, signs = _PLACE, ". _ + - , : $ ( )"
    elif column in ("gpu_model", "source"):
        pattern, signs = _LABEL, ". _ + - : / ( )"
    if not pattern.fullmatch(value):
        return f"{column} {shown} may contain only letters, digits and {signs} and must start with a letter or digit"
    return None


def describe_bad_number(column: str, value: float) -> str | None:
    """Return the reason why ``value`` is invalid in the number column ``column``, or None. NaN means unknown."""
    lowest, highest = NUMBER_LIMITS[column]
    if math.isnan(value):
        return f"{column} is missing" if column in REQUIRED else None
    if not lowest <= value <= highest:
        return f"{column} {value:g} is not between {lowest:g} and {highest:g}"
    return None


PREFIXES = ("standard_", "basic_", "ml.")
"""Beginnings of instance type names that people often omit."""


def find_nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the ``known`` names most similar to ``name``, the most similar first: at most three, or none.

    >>> find_nearest("g4dn.xlage", ["g4dn.xlarge", "Standard_NC6"]), find_nearest("my-pc", ["g4dn.xlarge"])
    (['g4dn.xlarge'], [])
    """
    by_lower = {k.lower(): k for k in known if k}
    if meant := next((by_lower[p + name.lower()] for p in PREFIXES if p + name.lower() in by_lower), None):
        return [meant]
    return [by_lower[n] for n in get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.6)]


def describe_nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the ``known`` names most similar to ``name``, or with some known names if none is similar.

    >>> describe_nearest("NC6", ["Standard_NC6", "Standard_NC6s_v3", "p3.2xlarge"])
    'Did you mean Standard_NC6?'
    """
    listed = [k for k in known if k]
    match find_nearest(name, listed):
        case []:
            return f"Known names: {', '.join(sorted(listed)[:12])}."
        case [only]:
            return f"Did you mean {only}?"
        case several:
            return f"Similar names: {', '.join(several)}."


_GPU_NAMES = {
    "gaudi hl-205": "Gaudi",
    "radeon mi25": "MI25",
    "radeon pro v520": "Radeon-Pro-V520",
    "rtx-pro-6000": "RTX-PRO-6000",
    "rtxpro6000": "RTX-PRO-6000",
    "t4g": "T4G",
    "v520": "Radeon-Pro-V520",
}
# The sizes of one model differ in their memory.
_GPU_SIZES_GIB: dict[tuple[str, float], str] = {("A100", 80): "A100-80GB", ("V100", 32): "V100-32GB"}


def name_gpu(name: str, memory_gib: float | None = None) -> str:
    """Return the catalog's name of the GPU or accelerator ``name``, or ``name`` with dashes for blanks if unknown."""
    known = _GPU_NAMES.get(name.lower(), name.replace(" ", "-"))
    return known if memory_gib is None else _GPU_SIZES_GIB.get((known, memory_gib), known)


MEANT = {
    **dict.fromkeys(("price", "usd", "cost", "price_per_hour", "hourly", "hourly_price", "price_usd"), "usd_per_hour"),
    **dict.fromkeys(("type", "machine", "machine_type", "vm", "vm_type", "name", "instance"), "instance_type"),
    **dict.fromkeys(("cloud", "vendor"), "provider"),
    **dict.fromkeys(("location", "zone"), "region"),
    **dict.fromkeys(("gpu", "accelerator"), "gpu_model"),
}
"""Maps other common names of columns, which are not spelled similarly, to the names of the columns."""


def describe_column(name: object) -> str:
    """Return a sentence with the column that ``name`` probably means, or with all columns if none is similar."""
    near = MEANT.get(str(name).strip().lower()) or next(iter(get_close_matches(str(name), COLUMNS, n=1)), None)
    return f"Did you mean {near!r}?" if near else f"The columns are {', '.join(COLUMNS)}."


def is_iso_date(text: str) -> bool:
    """Return whether ``text`` is a date in the form 2026-08-22."""
    try:
        return dt.date.fromisoformat(text).isoformat() == text  # a week, 2026-W34-6, is ISO too
    except ValueError:
        return False


class Offer(BaseModel):
    """The price of a provider's VM type in a region and a market, with its date.

    >>> offer = Offer(provider="aws", instance_type="g4dn.xlarge", region="us-east-1", market="on_demand",
    ...               usd_per_hour=0.41, date="2026-08-22")
    >>> offer.service, offer.source, offer.age_days(dt.date(2026, 9, 1))
    ('ec2', 'user', 10)

    ``None`` means unknown. ``gpu_count`` may be a fraction of a GPU. ``gpu_memory_gib`` is the memory of one GPU or of
    that fraction.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    provider: str
    instance_type: str
    region: str
    market: str = "on_demand"
    usd_per_hour: float
    service: str = ""
    date: str = ""
    vcpus: float | None = None
    memory_gib: float | None = None
    gpu_model: str = ""
    gpu_count: float | None = None
    gpu_memory_gib: float | None = None
    retired: bool = False
    source: str = "user"
    note: str = ""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as bad:
            reasons = "; ".join(_reason(e["loc"], e["msg"]) for e in bad.errors())
            raise CatalogError(f"The offer is invalid: {reasons}.") from bad

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        if isinstance(values, dict):
            values = dict(values)
            provider, instance_type = values.get("provider"), values.get("instance_type")
            if values.get("service") in (None, "") and isinstance(provider, str) and isinstance(instance_type, str):
                values["service"] = default_service(provider, instance_type)
            date = values.get("date")
            if date is None or isinstance(date, dt.date) or date == "":
                values["date"] = (check_day("date", date) if date else dt.date.today()).isoformat()
            for column in NUMBER_LIMITS:
                if isinstance(values.get(column), bool | np.bool_):
                    raise ValueError(f"{column} {values[column]} is not a number")
        return values

    @model_validator(mode="after")
    def _check(self) -> Offer:
        for column in TEXT_COLUMNS:
            value = getattr(self, column)
            if isinstance(value, str) and (reason := describe_bad_text(column, value)):
                raise ValueError(reason)
        for column in NUMBER_LIMITS:
            number = getattr(self, column)
            if number is not None and (reason := describe_bad_number(column, number)):
                raise ValueError(reason)
        return self

    def age_days(self, today: dt.date | None = None) -> int:
        """Return the days from the date of this price to ``today`` (default: the current date)."""
        return age_days(self.date, today)

    def is_stale(self, today: dt.date | None = None) -> bool:
        """Return whether this price is more than 90 days old on the day ``today`` (default: the current date)."""
        return self.age_days(today) > STALE_AFTER_DAYS


def age_days(date: str, today: dt.date | None = None) -> int:
    """Return the days from ``date`` to ``today`` (default: the current date)."""
    now = dt.date.today() if today is None else check_day("today", today)
    return (now - check_day("date", date)).days


def check_day(name: str, value: Any) -> dt.date:
    """Convert a date, a datetime, or a text such as 2026-08-22 to a date. ``name`` is its name in error messages."""
    if isinstance(value, dt.datetime) and value == value:  # pandas' NaT is a datetime, but not equal to itself
        return value.date()
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    if not isinstance(value, str) or not is_iso_date(value):
        raise ArgumentError(f"{name} {show(value)} is not a date. Give a date such as 2026-08-22.")
    return dt.date.fromisoformat(value)


def describe_age(dates: Iterable[str], *, today: dt.date | None = None) -> Finding | None:
    """Return a finding if prices of these ``dates`` are older than 90 days or have different dates, else None.

    >>> describe_age(["2026-08-22"], today=dt.date(2026, 9, 1)) is None
    True
    >>> print(describe_age(["2021-02-01", "2026-08-22"], today=dt.date(2026, 9, 1)))
    Prices have different dates, 2021-02-01 to 2026-08-22; the oldest is 2038 days old. Run `vmselect prices refresh`.
    """
    given = [dates] if isinstance(dates, str) else list_items(dates)
    days = sorted({check_day("a date", date).isoformat() for date in given})
    if not days:
        return None
    age = age_days(days[0], today)
    old = age > STALE_AFTER_DAYS
    if not old and len(days) == 1:
        return None
    message = f"Prices are from {days[0]}, {age} days ago."
    if len(days) > 1:
        message = f"Prices have different dates, {days[0]} to {days[-1]}; the oldest is {age} days old."
    if old:
        return Finding("old-prices", message, "Run `vmselect prices refresh`.")
    return Finding("mixed-price-dates", message, "Check the dates before comparing these prices.", "info")


def _reason(location: tuple[int | str, ...], message: str) -> str:
    text = message.removeprefix("Value error, ")
    return f"{'.'.join(map(str, location))}: {text}" if location else text
