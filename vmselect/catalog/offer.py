"""One price of one VM type."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from vmselect._checks import list_items, show
from vmselect.catalog.schema import (
    KEY,
    NUMBER_LIMITS,
    TEXT_COLUMNS,
    default_service,
    describe_bad_number,
    describe_bad_text,
    is_iso_date,
)
from vmselect.errors import ArgumentError, CatalogError
from vmselect.findings import Finding

STALE_AFTER_DAYS = 90


class Offer(BaseModel):
    """A VM type of a provider, in a region and a market, at a price, on a day.

    >>> offer = Offer(provider="aws", instance_type="g4dn.xlarge", region="us-east-1", market="on_demand",
    ...               usd_per_hour=0.41, date="2026-08-22")
    >>> offer.service, offer.source, offer.age_days(dt.date(2026, 9, 1))
    ('ec2', 'user', 10)

    ``None`` means unknown. ``gpu_count`` may be a fraction, and ``gpu_memory_gib`` is what one such share holds.
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
            raise CatalogError(f"This offer cannot be used: {reasons}.") from bad

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

    @property
    def key(self) -> tuple[str, ...]:
        """What makes a price the same price: provider, service, instance type, region, market."""
        return tuple(getattr(self, column) for column in KEY)

    def age_days(self, today: dt.date | None = None) -> int:
        """Days since this price was seen."""
        return age_days(self.date, today)

    def is_stale(self, today: dt.date | None = None) -> bool:
        """Whether this price is older than 90 days."""
        return self.age_days(today) > STALE_AFTER_DAYS


def age_days(date: str, today: dt.date | None = None) -> int:
    """Days from ``date`` to ``today``.

    >>> age_days("2026-08-22", dt.date(2026, 9, 1))
    10
    """
    now = dt.date.today() if today is None else check_day("today", today)
    return (now - check_day("date", date)).days


def check_day(name: str, value: Any) -> dt.date:
    """A day, given as one, as a time on it, or written as 2026-08-22.

    >>> check_day("date", "2026-08-22")
    datetime.date(2026, 8, 22)
    """
    if isinstance(value, dt.datetime) and value == value:  # pandas' NaT is a time that is none
        return value.date()
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    if not isinstance(value, str) or not is_iso_date(value):
        raise ArgumentError(f"{name} {show(value)} is not a day written as 2026-08-22.")
    return dt.date.fromisoformat(value)


def describe_age(dates: Iterable[str], *, today: dt.date | None = None) -> Finding | None:
    """A finding when prices of these ``dates`` are older than 90 days or of several days, else None.

    >>> describe_age(["2026-08-22"], today=dt.date(2026, 9, 1)) is None
    True
    >>> print(describe_age(["2021-02-01", "2026-08-22"], today=dt.date(2026, 9, 1)))
    Prices are of several days, 2021-02-01 to 2026-08-22; the oldest is 2038 days old. Run `vmselect prices refresh`.
    """
    given = [dates] if isinstance(dates, str) else list_items(dates)
    days = sorted({check_day("a date", date).isoformat() for date in given})
    if not days:
        return None
    age = age_days(days[0], today)
    old = age > STALE_AFTER_DAYS
    if not old and len(days) == 1:
        return None
    several = f"several days, {days[0]} to {days[-1]}; the oldest is {age} days old."
    return Finding(
        "old-prices" if old else "mixed-price-dates",
        f"Prices are of {several if len(days) > 1 else f'{days[0]}, {age} days old.'}",
        "Run `vmselect prices refresh`." if old else "Look at the date of each price before comparing them.",
        "warning" if old else "info",
    )


def _reason(location: tuple[int | str, ...], message: str) -> str:
    text = message.removeprefix("Value error, ")
    return f"{'.'.join(map(str, location))}: {text}" if location else text
