"""What can be measured of a run, minimised and limited: one definition each, and the only one in Python.

A measure is a named column with an interval. Another one is another entry in :data:`MEASURES`, and one in the page's
``model.js``; objectives, scores, tables and JSON follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from vmselect._checks import is_number, show
from vmselect.errors import ArgumentError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.ranking.rows import Floats
from vmselect.units import SECONDS_PER_HOUR, count_epochs, format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.ranking.candidates import Candidates
    from vmselect.ranking.settings import Settings

Objective: TypeAlias = Literal["cost", "time"] | Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A bound that a run must keep: which setting names it, in which unit, and the text for breaking it."""

    setting: str
    unit: float
    verb: str
    noun: str
    reason_code: str
    warning_code: str
    better: str


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One column: how it follows from the time of a run, what its fields are called, and how it is formatted."""

    name: str
    fields: tuple[str, str, str]
    """Names of value, low and high in rows and tables."""
    of: Callable[[Candidates, Settings, Interval[Floats]], Interval[Floats]]
    format: Callable[[float], str]
    aim: str
    limit: Limit | None = None

    def limit_of(self, settings: Settings) -> float | None:
        """The limit in the measure's own unit, where there is one."""
        given = getattr(settings, self.limit.setting) if self.limit else None
        return None if given is None or self.limit is None else given * self.limit.unit

    def why_over(self, settings: Settings, value: float, epochs: float) -> str:
        """The sentence for a candidate that breaks the limit."""
        assert self.limit is not None
        s, most = "s" if epochs == 1 else "", self.format(self.limit_of(settings) or 0.0)
        run = f"{count_epochs(epochs)} {self.limit.verb}{s} {self.format(value)}"
        return f"{run}, over the {self.limit.noun} of {most}"

    def warn_over(self, high: float) -> Finding:
        """The warning about a candidate whose value keeps the limit and whose interval does not."""
        assert self.limit is not None
        return Finding(
            self.limit.warning_code,
            f"The run may {self.limit.verb} {self.format(high)}, which is over the {self.limit.noun}.",
            f"Probe for more steps to narrow the interval, or take a {self.limit.better} machine.",
        )


def _cost_of(candidates: Candidates, settings: Settings, time: Interval[Floats]) -> Interval[Floats]:
    """Dollars for the billed time, and for moving the data."""
    price = candidates.usd_per_hour[:, None] / SECONDS_PER_HOUR
    once = candidates.moving_usd[:, None]
    if settings.billing == "exact":
        return Interval(*(part * price + once for part in time))
    bill = {"increment": candidates.increment_seconds[:, None], "minimum": candidates.minimum_seconds[:, None]}
    return Interval(*(billed_seconds(part, **bill) * price + once for part in time))


def billed_seconds(seconds: Floats, *, increment: Floats, minimum: Floats) -> Floats:
    """Seconds that appear on the bill: at least ``minimum``, rounded up to ``increment`` (0 bills exactly)."""
    charged = np.maximum(seconds, minimum)
    step = np.where(increment > 0, increment, 1.0)
    return np.where(increment > 0, np.ceil(charged / step) * step, charged)


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure(
            name="cost",
            fields=("cost_usd", "cost_low", "cost_high"),
            of=_cost_of,
            format=format_usd,
            aim="lowest cost",
            limit=Limit(
                setting="budget_usd", unit=1.0, verb="cost", noun="budget", reason_code="over_budget",
                warning_code="may-exceed-budget", better="cheaper",
            ),
        ),
        Measure(
            name="time",
            fields=("seconds", "seconds_low", "seconds_high"),
            of=lambda candidates, settings, time: time,
            format=format_seconds,
            aim="shortest time",
            limit=Limit(
                setting="deadline_hours", unit=SECONDS_PER_HOUR, verb="take", noun="deadline",
                reason_code="over_deadline", warning_code="may-miss-deadline", better="faster",
            ),
        ),
    )
}  # fmt: skip
LIMITED = tuple(measure for measure in reversed(MEASURES.values()) if measure.limit)
"""Measures with a limit; of a run that breaks several, the first here is the reason."""


def read_measure(name: Any) -> Measure:
    """The measure of that name, or an error that lists them."""
    if not isinstance(name, str) or name not in MEASURES:
        raise ArgumentError(f"objective is {show(name)}; the measures are {', '.join(MEASURES)}.")
    return MEASURES[name]


def read_objective(objective: Objective) -> Mapping[str, float]:
    """Weights of the measures that sum to 1.

    >>> dict(read_objective("cost")), dict(read_objective({"cost": 7, "time": 3}))
    ({'cost': 1.0, 'time': 0.0}, {'cost': 0.7, 'time': 0.3})
    """
    if isinstance(objective, str):
        objective = {read_measure(objective).name: 1.0}
    if not isinstance(objective, Mapping):
        raise ArgumentError(
            f"objective is {show(objective)}; use one of {', '.join(MEASURES)}, or weights such as "
            '{"cost": 0.7, "time": 0.3}.'
        )
    unknown = [name for name in objective if name not in MEASURES]
    if unknown:
        raise ArgumentError(f"objective weighs {show(unknown[0])}; the measures are {', '.join(MEASURES)}.")
    weights = {name: objective.get(name, 0.0) for name in MEASURES}
    usable = all(is_number(weight) and weight >= 0 for weight in weights.values())
    total = sum(weights.values()) if usable else 0.0
    if not 0 < total < np.inf:
        raise ArgumentError(f"objective weights are {show(objective)}; give numbers of at least 0 that are not all 0.")
    return MappingProxyType({name: float(weight / total) for name, weight in weights.items()})


def name_of(weights: Mapping[str, float]) -> str:
    """The objective in words.

    >>> name_of({"cost": 0.7, "time": 0.3})
    '0.7 cost + 0.3 time'
    """
    weighed = {name: weight for name, weight in weights.items() if weight}
    if len(weighed) == 1:
        return next(iter(weighed))
    return " + ".join(f"{weight:.3g} {name}" for name, weight in weighed.items())


def score(weights: Mapping[str, float], values: Mapping[str, Floats], best: Mapping[str, Floats]) -> Floats:
    """Sum of weight x value / best value: 1.00 is unbeatable."""
    parts = [weight * _ratio(values[name], best[name]) for name, weight in weights.items() if weight]
    return sum(parts[1:], start=parts[0])


def _ratio(value: Floats, best: Floats) -> Floats:
    # A free machine makes the best cost 0: it is then the reference itself, and everything paid is infinitely worse.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = value / best
    return np.where(best > 0, ratio, np.where(value > 0, np.inf, 1.0))
