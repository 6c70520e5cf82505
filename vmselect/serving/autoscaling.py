"""Autoscaling: the instances that a service runs while its load changes over a day, and what they cost.

The autoscaler is simulated minute by minute. It asks for as many instances as the load needs at a target utilization. A
new instance is paid for at once, but answers only after its start time. An instance that is not needed any more is
given back after a waiting time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vmselect._checks import check_count, check_number, list_items, suggest_arguments
from vmselect._imports import hook
from vmselect.errors import ArgumentError
from vmselect.units import cost_usd, format_usd

if TYPE_CHECKING:
    from vmselect.serving.rank import ServingRow

MINUTES_PER_DAY = 1440
MAX_LOADS = MINUTES_PER_DAY
MAX_INSTANCES = 10_000
COLUMNS = ("hour", "load", "needed", "paid", "ready", "over_capacity")


@dataclass(frozen=True, eq=False)
class Day:
    """A day of an autoscaled service; made by :func:`simulate_day`.

    ``minutes`` has a row per minute: ``hour``, ``load`` (items per second), ``needed``, ``paid`` and ``ready``
    instances, and ``over_capacity`` (items per second that the ready instances cannot answer).
    """

    instance_type: str
    usd_per_hour: float
    minutes: pd.DataFrame

    @property
    def instance_hours(self) -> float:
        """Paid hours of all instances together."""
        return float(self.minutes["paid"].sum()) / 60

    @property
    def usd(self) -> float:
        """Cost of the day in USD."""
        return cost_usd(3600 * self.instance_hours, self.usd_per_hour)

    @property
    def most(self) -> int:
        """Largest number of paid instances."""
        return int(self.minutes["paid"].max())

    @property
    def fixed_usd(self) -> float:
        """Cost in USD of that number of instances for the whole day, without autoscaling."""
        return cost_usd(24 * 3600, self.usd_per_hour) * self.most

    @cached_property
    def late_share(self) -> float:
        """Share of the day's items that arrive while the ready instances cannot answer them all at once."""
        items = float(self.minutes["load"].sum())
        return float(self.minutes["over_capacity"].sum()) / items if items else 0.0

    @property
    def verdict(self) -> str:
        """Text with instances, cost and the share of items that have to wait."""
        fewest = int(self.minutes["paid"].min())
        return (
            f"{self.instance_type}: {fewest} to {self.most} instances, {self.instance_hours:.1f} instance-hours for "
            f"{format_usd(self.usd)} a day instead of {format_usd(self.fixed_usd)} for {self.most} all day; "
            f"{self.late_share:.2%} of the items exceed the capacity of the instances that are ready"
        )

    def __str__(self) -> str:
        return self.verdict

    def chart(self, kind: str = "day", **options: Any) -> Any:
        """An Altair chart of the instances and of the load over the day (``day``)."""
        return hook("day_chart")(self, kind, **options)


@suggest_arguments()
def simulate_day(
    row: ServingRow,
    loads: Iterable[float],
    *,
    start_seconds: float,
    instances: tuple[int, int] = (1, 10),
    target: float = 0.7,
    wait_minutes: float = 5,
) -> Day:
    """Simulate a day of an autoscaled service on the machine of ``row``, a row of :func:`rank_inference`.

    Args:
        row: machine, with its capacity (``items_per_second``) and price.
        loads: items per second at equal distances over the day, such as 24 numbers; they are joined by straight lines.
        start_seconds: time until a new instance answers: booting, loading the model, first call.
        instances: smallest and largest number of instances.
        target: utilization at which the autoscaler keeps the instances.
        wait_minutes: minutes for which an instance stays after it was needed last.

    >>> from vmselect.records import InferenceRecord
    >>> from vmselect.serving import rank_inference
    >>> record = InferenceRecord.from_times(instance_type="g4dn.xlarge", batch_size=1, call_seconds=[0.01] * 200)
    >>> day = simulate_day(rank_inference(record).best, [20] * 8 + [200] * 8 + [20] * 8, start_seconds=120)
    >>> day.most, day.usd < day.fixed_usd, day.late_share < 0.01
    (3, True, True)
    """
    rates = [check_number("loads", load, least=0, most=1e12) for load in list_items(loads)]
    if not 1 <= len(rates) <= MAX_LOADS:
        raise ArgumentError(f"loads has {len(rates)} numbers. Pass between 1 and {MAX_LOADS}, such as one per hour.")
    start = check_number("start_seconds", start_seconds, least=0, most=60 * MINUTES_PER_DAY) / 60
    share = check_number("target", target, above=0, most=1)
    wait = check_number("wait_minutes", wait_minutes, least=0, most=MINUTES_PER_DAY)
    if not isinstance(instances, (tuple, list)) or len(instances) != 2:
        raise ArgumentError("instances must be two numbers, the smallest and the largest, as in instances=(1, 10).")
    fewest, most = (check_count("instances", count, most=MAX_INSTANCES) for count in instances)
    if fewest > most:
        raise ArgumentError(f"instances is ({fewest}, {most}), a minimum above the maximum. Pass the minimum first.")
    # The day repeats: the last load leads back to the first one.
    places = np.linspace(0, MINUTES_PER_DAY, len(rates) + 1)
    load = np.interp(np.arange(MINUTES_PER_DAY), places, [*rates, rates[0]])
    needed = np.clip(np.ceil(load / (row.items_per_second * share) - 1e-9), fewest, most).astype(int)
    paid = _keep(needed, math.ceil(wait))
    ready = _start(paid, math.ceil(start))
    over = np.maximum(0.0, load - ready * row.items_per_second)
    hours = np.arange(MINUTES_PER_DAY) / 60
    minutes = pd.DataFrame(dict(zip(COLUMNS, (hours, load, needed, paid, ready, over), strict=True)))
    return Day(row.instance_type, row.usd_per_hour, minutes)


def _keep(needed: np.ndarray[Any, Any], minutes: int) -> np.ndarray[Any, Any]:
    """Instances that are paid for: the largest number needed now or in the last ``minutes``, also before midnight."""
    before = np.concatenate([needed[len(needed) - minutes :], needed]) if minutes else needed
    windows = np.lib.stride_tricks.sliding_window_view(before, minutes + 1)
    return np.asarray(windows.max(axis=1))


def _start(paid: np.ndarray[Any, Any], minutes: int) -> np.ndarray[Any, Any]:
    """Instances that answer: those that have been paid for during the last ``minutes``, also before midnight."""
    before = np.concatenate([paid[len(paid) - minutes :], paid]) if minutes else paid
    windows = np.lib.stride_tricks.sliding_window_view(before, minutes + 1)
    return np.asarray(windows.min(axis=1))
