"""Measures of a candidate (cost, time, energy, CO2), their limits, and the score of an objective.

A measure is a named quantity with an interval. To add a measure, add an entry to :data:`MEASURES` and one to
``model.js`` of the report page; objectives, scores, tables and JSON use all entries. ``time`` and ``cost`` must exist.
Optional measures take part in a ranking only if its settings ask for them, and may be unknown (NaN).

The time on a spot machine includes interruptions (:class:`Interruptions`). They are a Poisson process with one
interruption per mean uptime. Each loses the work since the last checkpoint (half a checkpoint interval on average) and
requires a restart. Both are paid. So::

    expected time = work / (1 - (checkpoint / 2 + restart) / mean uptime)

The time until a new machine is available is unknown, so neither time nor cost includes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.special import gammaln, ndtr, ndtri, pdtr, pdtrik, xlogy

from vmselect._checks import check_number, is_number, show, suggest_fields
from vmselect.catalog.interruptions import HOURS_PER_MONTH
from vmselect.energy.grids import DEFAULT
from vmselect.errors import ArgumentError
from vmselect.intervals import Interval
from vmselect.ranking.rows import Floats
from vmselect.units import (
    SECONDS_PER_HOUR,
    format_chance,
    format_epoch_count,
    format_kg,
    format_kwh,
    format_seconds,
    format_usd,
)

if TYPE_CHECKING:
    from vmselect.ranking.candidates import Candidates
    from vmselect.ranking.options import Settings


@dataclass(frozen=True, kw_only=True)
class Limit:
    """An upper limit of a measure: name of the setting with its value, unit, finding codes, and words for messages."""

    setting: str
    chance_column: str
    """Name of the column of tables with the probability of staying within the limit."""
    unit: float
    """Factor that converts the value of the setting to the unit of the measure."""
    verb: str
    noun: str
    reason_code: str
    warning_code: str
    better: str


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quantity of candidates: how it is computed from their time, names of its columns, and how it is printed."""

    name: str
    fields: tuple[str, str, str]
    """Names of value, low and high in rows and tables."""
    of: Callable[[Candidates, Settings, Interval[Floats]], Interval[Floats]]
    format: Callable[[float], str]
    aim: str
    limit: Limit | None = None
    optional: bool = False
    """Whether a ranking computes it only if its settings ask for it."""
    uses_power: bool = False
    """Whether it is proportional to the power of the machine, which has an error of its own."""
    title: str = ""
    """Name in sentences, if it is not ``name``."""
    verb: str = ""
    """Verb in sentences about a machine and an optional measure."""

    def limit_of(self, settings: Settings) -> float | None:
        """The limit in the unit of the measure; None if none is set."""
        limit = getattr(settings, self.limit.setting) if self.limit else None
        return None if limit is None or self.limit is None else limit * self.limit.unit

    def explain_excess(self, settings: Settings, value: float, chance: float, epochs: float) -> str:
        """Text: why a candidate over the limit is excluded. ``model.js`` of the report page writes the same text."""
        assert self.limit is not None
        s, most = "s" if epochs == 1 else "", self.format(self.limit_of(settings) or 0.0)
        run = f"{format_epoch_count(epochs)} {self.limit.verb}{s} {self.format(value)}"
        if settings.chance is None:
            return f"{run}, over the {self.limit.noun} of {most}"
        kept = f"the probability of keeping the {self.limit.noun} of {most} is {format_chance(chance)}"
        return f"{run}; {kept}, less than the required {settings.chance:.3g}"


def _cost_of(candidates: Candidates, settings: Settings, time: Interval[Floats]) -> Interval[Floats]:
    """Cost of the billed time and of moving the data, in USD.

    The errors of time and price are independent, so their relative half-widths add as squares in log scale.
    """
    price = candidates.usd_per_hour[:, None] / SECONDS_PER_HOUR
    once = candidates.moving_usd[:, None]
    bill = {"increment": candidates.increment_seconds[:, None], "minimum": candidates.minimum_seconds[:, None]}

    def charge(seconds: Floats) -> Floats:
        billed = seconds if settings.billing == "exact" else billed_seconds(seconds, **bill)
        return billed * price + once

    value = charge(time.value)
    if time.low is time.value and time.high is time.value:
        return Interval.exact(value)
    cost = Interval(value, charge(time.low), charge(time.high))
    if not candidates.price_deviation.any():
        return cost
    spread = float(ndtri(0.5 + settings.confidence / 2)) * candidates.price_deviation[:, None]
    rent = cost.map(lambda part: part - once)
    low, high = (np.exp(np.hypot(side, spread)) for side in rent.log_widths())
    return Interval(value, rent.value / low + once, rent.value * high + once)


def cost_of(candidates: Candidates, candidate: int, settings: Settings, seconds: float) -> float:
    """Cost of a candidate in USD, if its training takes ``seconds``."""
    time = Interval.exact(np.array([[seconds]]))
    return float(_cost_of(candidates.take(np.array([candidate])), settings, time).value[0, 0])


def billed_seconds(seconds: Floats, *, increment: Floats, minimum: Floats) -> Floats:
    """Billed seconds: at least ``minimum``, rounded up to a multiple of ``increment`` (not rounded if 0)."""
    charged = np.maximum(seconds, minimum)
    step = np.where(increment > 0, increment, 1.0)
    return np.where(increment > 0, np.ceil(charged / step) * step, charged)


def _energy_of(candidates: Candidates, settings: Settings, time: Interval[Floats]) -> Interval[Floats]:
    """Energy of the machines in kWh."""
    return candidates.power.energy_kwh(time, candidates.machine_estimate, settings.confidence)


def _co2_of(candidates: Candidates, settings: Settings, time: Interval[Floats]) -> Interval[Floats]:
    """CO2 of the energy in kg, with the emission factor of the place of each candidate, taken as exact."""
    emissions = settings.emissions or DEFAULT
    factor = candidates.kg_per_kwh(emissions)[:, None]
    energy = _energy_of(candidates, settings, time)
    if not emissions.hours:
        return energy.map(lambda part: part * factor)
    # Energy at the ends of the time interval is used at other hours than energy at its middle.
    return Interval(*(part * factor * emissions.hourly_ratio(end) for part, end in zip(energy, time, strict=True)))


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
                setting="budget_usd", chance_column="budget_chance", unit=1.0, verb="cost", noun="budget",
                reason_code="over_budget", warning_code="may-exceed-budget", better="cheaper",
            ),
        ),
        Measure(
            name="time",
            fields=("seconds", "seconds_low", "seconds_high"),
            of=lambda candidates, settings, time: time,
            format=format_seconds,
            aim="shortest time",
            limit=Limit(
                setting="deadline_hours", chance_column="deadline_chance", unit=SECONDS_PER_HOUR, verb="take",
                noun="deadline", reason_code="over_deadline", warning_code="may-miss-deadline", better="faster",
            ),
        ),
        Measure(
            name="energy",
            fields=("energy_kwh", "energy_low", "energy_high"),
            of=_energy_of,
            format=format_kwh,
            aim="lowest energy",
            optional=True,
            uses_power=True,
            verb="uses",
        ),
        Measure(
            name="co2",
            fields=("co2_kg", "co2_low", "co2_high"),
            of=_co2_of,
            format=format_kg,
            aim="lowest CO2",
            limit=Limit(
                setting="co2_limit_kg", chance_column="co2_chance", unit=1.0, verb="emit", noun="CO2 limit",
                reason_code="over_co2_limit", warning_code="may-exceed-co2-limit", better="cleaner",
            ),
            optional=True,
            uses_power=True,
            title="CO2",
            verb="emits",
        ),
    )
}  # fmt: skip
LIMITED = tuple(MEASURES[name] for name in ("time", "cost", "co2"))
"""Measures that can be limited. If a candidate exceeds several limits, the first is reported as the reason."""
OPTIONAL = tuple(name for name, measure in MEASURES.items() if measure.optional)


def read_measure(name: object) -> Measure:
    """The measure with this name; raise ArgumentError if there is none."""
    if not isinstance(name, str) or name not in MEASURES:
        raise ArgumentError(f"objective is {show(name)}. Choose one of: {', '.join(MEASURES)}.")
    return MEASURES[name]


def read_objective(objective: object) -> Mapping[str, float]:
    """Check an objective; returns the weights of the measures, scaled to sum to 1.

    Measures without a weight get the weight 0, except optional ones (energy, CO2), which are left out.
    """
    if isinstance(objective, str):
        objective = {objective: 1.0}
    if not isinstance(objective, Mapping):
        raise ArgumentError(
            f"objective is {show(objective)}. Pass one of {', '.join(MEASURES)}, or weights such as "
            '{"cost": 0.7, "time": 0.3}.'
        )
    for name in objective:
        read_measure(name)
    weights = {
        name: objective.get(name, 0.0)
        for name, measure in MEASURES.items()
        if name in objective or not measure.optional
    }
    usable = all(is_number(weight) and weight >= 0 for weight in weights.values())
    # Weights are scaled to sum to 1, so that a score of 1.00 is unbeatable whatever their size.
    total = sum(weights.values()) if usable else 0.0
    if not 0 < total < np.inf:
        raise ArgumentError(f"objective weights are {show(objective)}. Pass numbers of at least 0 that are not all 0.")
    kept = {name: weight for name, weight in weights.items() if weight or not MEASURES[name].optional}
    return MappingProxyType({name: float(weight / total) for name, weight in kept.items()})


def describe_objective(weights: Mapping[str, float]) -> str:
    """Text of an objective, such as "0.7 cost + 0.3 time"."""
    weighed = {name: weight for name, weight in weights.items() if weight}
    if len(weighed) == 1:
        return next(iter(weighed))
    return " + ".join(f"{weight:.3g} {name}" for name, weight in weighed.items())


def score(weights: Mapping[str, float], values: Mapping[str, Floats], best: Mapping[str, Floats]) -> Floats:
    """Score of each candidate: the sum of weight x value / best value over all measures. 1.00 is the best possible."""
    parts = []
    for name, weight in weights.items():
        if weight:
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = values[name] / best[name]
            if not np.all(best[name] > 0):
                # If the best cost is 0, free machines have the ratio 1, and all other machines are infinitely worse.
                ratio = np.where(best[name] > 0, ratio, np.where(values[name] > 0, np.inf, 1.0))
            parts.append(weight * ratio)
    return sum(parts[1:], start=parts[0])


@suggest_fields
@dataclass(frozen=True, kw_only=True)
class Interruptions:
    """Rate of interruptions of spot machines, checkpoint interval, and duration of a restart.

    Pass the rate ``per_hour`` of one machine or its inverse ``mean_uptime_hours``, not both. Without either, each
    machine has the published rate of its type and region (:mod:`vmselect.catalog.interruptions`), or none if it is not
    known.
    """

    per_hour: float | None = None
    mean_uptime_hours: float | None = None
    checkpoint_minutes: float = 60.0
    restart_minutes: float = 5.0

    def __post_init__(self) -> None:
        if self.per_hour is not None and self.mean_uptime_hours is not None:
            raise ArgumentError("interruptions need either per_hour or mean_uptime_hours. Pass only one of them.")
        rates = [name for name in ("per_hour", "mean_uptime_hours") if getattr(self, name) is not None]
        for name in (*rates, "checkpoint_minutes", "restart_minutes"):
            bound = {"least": 0} if name in ("per_hour", "restart_minutes") else {"above": 0}
            object.__setattr__(self, name, check_number(f"interruptions: {name}", getattr(self, name), **bound))
        if self.lost_seconds >= self.uptime_seconds:
            raise ArgumentError(
                f"interruptions every {self.uptime_seconds / 60:.3g} minutes, each losing {self.lost_seconds / 60:.3g} "
                "minutes, leave no time for training. Lower checkpoint_minutes, or correct the rate."
            )

    @property
    def by_type(self) -> bool:
        """Whether each machine has the rate of its type and region."""
        return self.per_hour is None and self.mean_uptime_hours is None

    @classmethod
    def observed(cls, count: int, hours: float, *, published_per_hour: float | None = None, **fields: float) -> Self:
        """Interruptions with the rate after ``count`` of them were observed in ``hours`` of training.

        The published rate of the machine counts like one interruption in the time that it expects for one; by default
        it is once in a month.

        >>> round(Interruptions.observed(3, 20.0, published_per_hour=0.01).per_hour, 3)
        0.033
        """
        prior = published_per_hour or 1 / HOURS_PER_MONTH
        return cls(per_hour=(1 + count) / (1 / prior + hours), **fields)

    def at(self, per_hour: float) -> Interruptions:
        """These interruptions with the rate ``per_hour``."""
        return replace(self, per_hour=per_hour, mean_uptime_hours=None)

    def on_nodes(self, count: int) -> Interruptions:
        """The interruptions of ``count`` machines that train together, each of which interrupts all."""
        return self if count == 1 else self.at(count * SECONDS_PER_HOUR / self.uptime_seconds)

    @property
    def uptime_seconds(self) -> float:
        """Mean time between interruptions, in seconds; infinite if each machine has its own."""
        if self.mean_uptime_hours is not None:
            return self.mean_uptime_hours * SECONDS_PER_HOUR
        return SECONDS_PER_HOUR / self.per_hour if self.per_hour else float("inf")

    @property
    def lost_seconds(self) -> float:
        """Mean paid seconds that an interruption costs: repeated work and the restart."""
        return 60.0 * (self.checkpoint_minutes / 2 + self.restart_minutes)

    @property
    def factor(self) -> float:
        """Expected time divided by the time without interruptions."""
        return 1.0 / (1.0 - self.lost_seconds / self.uptime_seconds)

    def stretch(self, work: Interval[Floats], *, confidence: float) -> Interval[Floats]:
        """Expected time with interruptions and its interval; ``work`` is the time without interruptions.

        The number of interruptions has a Poisson distribution. The interval follows from the bounds of this number at
        ``confidence`` and from the standard deviation of the time lost. Its lower bound is at least that of ``work``.
        """
        tail = (1 - confidence) / 2
        give_or_take = float(ndtri(0.5 + confidence / 2)) * self.loss_deviation_seconds
        fewest = _poisson_quantile(tail, work.low * self.factor / self.uptime_seconds)
        most = _poisson_quantile(1 - tail, work.high * self.factor / self.uptime_seconds)
        low = np.maximum(0.0, fewest * self.lost_seconds - give_or_take * np.sqrt(fewest))
        high = most * self.lost_seconds + give_or_take * np.sqrt(most)
        expected = work.value * self.factor
        return Interval(expected, np.minimum(work.low + low, expected), np.maximum(work.high + high, expected))

    def chance_within(self, work: Interval[float], limit: float, *, confidence: float) -> float:
        """Probability that a training with interruptions ends within ``limit`` seconds.

        ``work`` is the time without interruptions. Its distribution below its value and that above it are halves of two
        normal distributions, whose widths follow from ``work.low`` and ``work.high``. The number of interruptions has a
        Poisson distribution, and the time that a given number of interruptions costs has a normal one.
        """
        deviations = float(ndtri(0.5 + confidence / 2))
        mean = work.value * self.factor / self.uptime_seconds
        counts = np.arange(float(_poisson_quantile(1 - 1e-9, np.array(mean))) + 1)
        spare = limit - work.value - counts * self.lost_seconds
        side = np.where(spare < 0, work.value - work.low, work.high - work.value) / deviations
        spread = np.hypot(side, np.sqrt(counts) * self.loss_deviation_seconds)
        within = np.where(spread > 0, ndtr(spare / np.maximum(spread, 1e-300)), spare >= 0)
        chances = np.exp(xlogy(counts, mean) - mean - gammaln(counts + 1))
        return min(1.0, float(chances @ within))

    @property
    def loss_deviation_seconds(self) -> float:
        """Standard deviation of the work lost by an interruption, which is uniform from 0 to a checkpoint interval."""
        return 60.0 * self.checkpoint_minutes / math.sqrt(12)

    def to_dict(self, *, confidence: float) -> dict[str, float]:
        """Numbers for JSON, with which the report page computes the same times."""
        return {
            "interruptions_per_second": 1 / self.uptime_seconds,
            "lost_seconds": self.lost_seconds,
            "loss_deviation_seconds": self.loss_deviation_seconds,
            "factor": self.factor,
            "deviations": float(ndtri(0.5 + confidence / 2)),
            **({"by_type": 1.0} if self.by_type else {}),
        }


def _poisson_quantile(share: float, mean: Floats) -> Floats:
    """Quantile ``share`` of a Poisson distribution: the smallest count that is not exceeded with that probability."""
    continuous = np.where(mean > 0, pdtrik(share, np.maximum(mean, 1e-300)), 0.0)
    count = np.ceil(np.nan_to_num(continuous, nan=0.0))
    # The continuous inverse has rounding errors at whole numbers, so the exact count is searched next to it.
    count = np.where((count > 0) & (pdtr(count - 1, mean) >= share), count - 1, count)
    return np.asarray(np.where(pdtr(count, mean) < share, count + 1, count), dtype=float)
