"""Availability: the downtime that a promised uptime allows, and what it costs on average."""

from __future__ import annotations

from dataclasses import dataclass

from vmselect._checks import check_number
from vmselect.errors import ArgumentError
from vmselect.units import format_seconds, format_usd

HOURS_PER_YEAR = 8766.0
"""Mean number of hours of a year."""


@dataclass(frozen=True)
class Downtime:
    """The downtime that an uptime allows in a period of ``period_hours``, and its expected cost.

    >>> aws, azure = Downtime.of(99.99, usd_per_hour=500), Downtime.of(99.95, usd_per_hour=500)
    >>> round(azure.hours / aws.hours, 6), round(azure.usd, 2)
    (5.0, 2191.5)
    >>> print(aws)
    52 min 36 s in 1 year at most, for $438.30
    """

    uptime_percent: float
    period_hours: float
    hours: float
    usd: float

    @classmethod
    def of(cls, uptime_percent: float, *, usd_per_hour: float = 0.0, period_hours: float = HOURS_PER_YEAR) -> Downtime:
        """The longest downtime that ``uptime_percent``, as 99.95, allows in ``period_hours`` (default: a year).

        ``usd_per_hour`` is what an hour of downtime costs you, such as lost sales. A provider refunds a part of its own
        price at most.
        """
        uptime = check_number("uptime_percent", uptime_percent, least=0, most=100)
        if 0 < uptime <= 1:
            raise ArgumentError(f"uptime_percent is {uptime:g}, a share. Pass a percentage, such as 99.95.")
        period = check_number("period_hours", period_hours, above=0)
        hours = (1 - uptime / 100) * period
        return cls(uptime, period, hours, hours * check_number("usd_per_hour", usd_per_hour, least=0))

    def __str__(self) -> str:
        period = "1 year" if self.period_hours == HOURS_PER_YEAR else f"{self.period_hours:g} h"
        cost = f", for {format_usd(self.usd)}" if self.usd else ""
        return f"{format_seconds(3600 * self.hours)} in {period} at most{cost}"
