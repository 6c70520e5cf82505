"""Measures of a candidate (cost, time, energy, CO2), and the settings of a ranking with their weights and limits.

A measure is a named quantity with an interval. To add a measure, add an entry to :data:`MEASURES` and one to
``model.js`` of the report page; objectives, scores, tables and JSON use all entries. ``time`` and ``cost`` must exist.
Optional measures take part in a ranking only if its settings ask for them, and may be unknown (NaN).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from scipy.special import ndtri

from vmselect import _defaults
from vmselect._checks import (
    check_choice,
    check_count,
    check_dataclass,
    check_flag,
    check_name,
    check_number,
    is_number,
    maybe,
    several,
    show,
)
from vmselect.catalog import MARKETS, Catalog
from vmselect.energy.grids import Emissions
from vmselect.errors import ArgumentError
from vmselect.estimation import METHODS
from vmselect.intervals import Interval
from vmselect.ranking.energy import co2_of, energy_of
from vmselect.ranking.rows import Floats
from vmselect.ranking.spot import Interruptions
from vmselect.units import (
    SECONDS_PER_HOUR,
    count_epochs,
    format_chance,
    format_kg,
    format_kwh,
    format_seconds,
    format_usd,
)

if TYPE_CHECKING:
    from vmselect.ranking.candidates import Candidates

Objective: TypeAlias = Literal["cost", "time", "energy", "co2"] | Mapping[str, float]
ALL = "all"
FIXED = ("regions", "batch_sizes", "method", "confidence", "include_retired", "include_unused_gpus")
"""Settings that determine the candidates, so that changing them requires a new ranking."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """An upper limit of a measure: name of the setting with its value, unit, finding codes, and words for messages."""

    setting: str
    chance_setting: str
    """Name of the setting with the required probability of staying within the limit; tables use the same name."""
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
        given = getattr(settings, self.limit.setting) if self.limit else None
        return None if given is None or self.limit is None else given * self.limit.unit

    def chance_of(self, settings: Settings) -> float | None:
        """The required probability of staying within the limit; None if only the estimate has to be within it."""
        required: float | None = getattr(settings, self.limit.chance_setting) if self.limit else None
        return required

    def explain_excess(self, settings: Settings, value: float, chance: float, epochs: float) -> str:
        """Text: why a candidate over the limit is excluded. ``model.js`` of the report page writes the same text."""
        assert self.limit is not None
        s, most = "s" if epochs == 1 else "", self.format(self.limit_of(settings) or 0.0)
        run = f"{count_epochs(epochs)} {self.limit.verb}{s} {self.format(value)}"
        required = self.chance_of(settings)
        if required is None:
            return f"{run}, over the {self.limit.noun} of {most}"
        kept = f"the probability of keeping the {self.limit.noun} of {most} is {format_chance(chance)}"
        return f"{run}; {kept}, less than the required {required:.3g}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Checked settings of a ranking: epoch counts, objective and constraints.

    ``markets`` and ``batch_sizes`` are None for all. ``regions`` is empty for all regions, and None to price each
    machine in the region in which it was measured. ``epochs`` is empty if the epoch counts come from a study.
    """

    epochs: tuple[int, ...]
    decide_at: int | None = None
    objective: Mapping[str, float]
    markets: tuple[str, ...] | None = (_defaults.MARKET,)
    regions: tuple[str, ...] | None = None
    batch_sizes: tuple[int, ...] | None = None
    deadline_hours: float | None = None
    budget_usd: float | None = None
    deadline_chance: float | None = None
    budget_chance: float | None = None
    method: str = _defaults.METHOD
    confidence: float = _defaults.CONFIDENCE
    billing: Literal["exact", "provider"] = "exact"
    interruptions: Interruptions | None = None
    include_retired: bool = False
    enough_regret: float = _defaults.ENOUGH_REGRET
    include_unused_gpus: bool = False
    co2_limit_kg: float | None = None
    co2_chance: float | None = None
    emissions: Emissions | None = None

    @classmethod
    def read(cls, *, studied: bool = False, **arguments: Any) -> Settings:
        """Check ``arguments``, which have the form of those of :func:`vmselect.rank`."""
        given: dict[str, Any] = {field.name: field.default for field in fields(cls)}
        given |= {"markets": None} | arguments
        if isinstance(given["epochs"], Set):
            raise ArgumentError(
                f"epochs is {given['epochs']!r}, a set, which has no order. Pass a list: its last value determines the "
                "best candidate."
            )
        counts = given["epochs"] = () if studied else several(check_count, "epochs", given["epochs"])
        last = counts[-1] if counts else None
        count = given["decide_at"] = maybe(check_count, "decide_at", given["decide_at"]) or last
        if count is not None and count not in counts:
            known = ", ".join(map(str, counts)) or "of the study"
            raise ArgumentError(f"decide_at is {count}, which is not among the epoch counts {known}. Add it to epochs.")
        given["objective"] = read_objective(given["objective"])
        given["markets"] = read_markets(given["markets"])
        given["regions"] = read_regions(given["regions"])
        given["interruptions"] = maybe(check_dataclass, "interruptions", given["interruptions"], kind=Interruptions)
        given["emissions"] = maybe(check_dataclass, "emissions", given["emissions"], kind=Emissions)
        for name in ("deadline_hours", "budget_usd", "co2_limit_kg"):
            given[name] = maybe(check_number, name, given[name], above=0)
        for limited in LIMITED:
            assert limited.limit is not None
            name = limited.limit.chance_setting
            given[name] = maybe(check_number, name, given[name], above=0, most=0.999)
            if given[name] is not None and given[limited.limit.setting] is None:
                raise ArgumentError(f"{name} needs a limit. Pass {limited.limit.setting} too.")
        given["enough_regret"] = check_number("enough_regret", given["enough_regret"], least=0)
        check_choice("billing", given["billing"], ("exact", "provider"))
        check_choice("method", given["method"], tuple(METHODS))
        given["confidence"] = check_number("confidence", given["confidence"], least=0.5, most=0.999)
        for name in ("include_retired", "include_unused_gpus"):
            given[name] = check_flag(name, given[name])
        return cls(**given)

    def changed(self, **changes: Any) -> Settings:
        """A copy of these settings with ``changes``, which have the form of arguments of :func:`vmselect.rank`."""
        given = vars(self) | {"markets": self.markets or ALL, "regions": ALL if self.regions == () else self.regions}
        if "market" in changes:
            changes["markets"] = changes.pop("market")
        wrong = [name for name in changes if name in FIXED or name not in given]
        if wrong:
            raise ArgumentError(
                f"{', '.join(wrong)} cannot be changed in a finished ranking. Call vmselect.rank again."
            )
        if changes.get("epochs") is not None and not self.epochs:
            raise ArgumentError(
                "The epochs of this ranking come from a convergence study. Call vmselect.rank with numbers of epochs."
            )
        if "epochs" in changes:
            given["decide_at"] = None
        return Settings.read(**(given | changes), studied=not self.epochs)

    def needs(self, name: str) -> bool:
        """Whether the measure ``name`` has a weight or a limit, so that candidates without it cannot be ranked."""
        return bool(self.objective.get(name)) or MEASURES[name].limit_of(self) is not None

    def asks_for(self, name: str) -> bool:
        """Whether the measure ``name`` is computed and shown.

        Time and cost always are. The optional measures, energy and CO2, are both computed and shown if either of them
        has a weight or a limit, or if ``emissions`` is set.
        """
        one = MEASURES[name]
        return not one.optional or self.emissions is not None or any(map(self.needs, OPTIONAL))

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of the measures that these settings ask for."""
        return tuple(name for name in MEASURES if self.asks_for(name))

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values for JSON."""
        spot = self.interruptions.to_dict(confidence=self.confidence) if self.interruptions else None
        quantile = float(ndtri(0.5 + self.confidence / 2))
        plain = {"objective": dict(self.objective), "interruptions": spot, "quantile": quantile}
        return vars(self) | plain | {"emissions": self.emissions.to_dict() if self.emissions else None}


def _cost_of(candidates: Candidates, settings: Settings, time: Interval[Floats]) -> Interval[Floats]:
    """Cost of the billed time and of moving the data, in USD."""
    price = candidates.usd_per_hour[:, None] / SECONDS_PER_HOUR
    once = candidates.moving_usd[:, None]
    bill = {"increment": candidates.increment_seconds[:, None], "minimum": candidates.minimum_seconds[:, None]}

    def charge(seconds: Floats) -> Floats:
        billed = seconds if settings.billing == "exact" else billed_seconds(seconds, **bill)
        return billed * price + once

    value = charge(time.value)
    if time.low is time.value and time.high is time.value:
        return Interval.exact(value)
    return Interval(value, charge(time.low), charge(time.high))


def billed_seconds(seconds: Floats, *, increment: Floats, minimum: Floats) -> Floats:
    """Billed seconds: at least ``minimum``, rounded up to a multiple of ``increment`` (not rounded if 0)."""
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
                setting="budget_usd", chance_setting="budget_chance", unit=1.0, verb="cost", noun="budget",
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
                setting="deadline_hours", chance_setting="deadline_chance", unit=SECONDS_PER_HOUR, verb="take",
                noun="deadline", reason_code="over_deadline", warning_code="may-miss-deadline", better="faster",
            ),
        ),
        Measure(
            name="energy",
            fields=("energy_kwh", "energy_low", "energy_high"),
            of=energy_of,
            format=format_kwh,
            aim="lowest energy",
            optional=True,
            uses_power=True,
            verb="uses",
        ),
        Measure(
            name="co2",
            fields=("co2_kg", "co2_low", "co2_high"),
            of=co2_of,
            format=format_kg,
            aim="lowest CO2",
            limit=Limit(
                setting="co2_limit_kg", chance_setting="co2_chance", unit=1.0, verb="emit", noun="CO2 limit",
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
NO_LIMITS: dict[str, None] = dict.fromkeys(
    name for one in LIMITED if one.limit for name in (one.limit.setting, one.limit.chance_setting)
)
"""Settings without any limit, as changes of a ranking."""
OPTIONAL = tuple(name for name, measure in MEASURES.items() if measure.optional)


def read_measure(name: Any) -> Measure:
    """The measure with this name; raise ArgumentError if there is none."""
    if not isinstance(name, str) or name not in MEASURES:
        raise ArgumentError(f"objective is {show(name)}. Choose one of: {', '.join(MEASURES)}.")
    return MEASURES[name]


def read_objective(objective: Objective) -> Mapping[str, float]:
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
        name: objective.get(name, 0.0) for name, one in MEASURES.items() if name in objective or not one.optional
    }
    usable = all(is_number(weight) and weight >= 0 for weight in weights.values())
    total = sum(weights.values()) if usable else 0.0
    if not 0 < total < np.inf:
        raise ArgumentError(f"objective weights are {show(objective)}. Pass numbers of at least 0 that are not all 0.")
    kept = {name: weight for name, weight in weights.items() if weight or not MEASURES[name].optional}
    return MappingProxyType({name: float(weight / total) for name, weight in kept.items()})


def read_markets(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Check one market or several; returns None for ``"all"``, and the default market for None."""
    if isinstance(given, str) and given == ALL:
        return None
    return several(check_choice, "market", _defaults.MARKET if given is None else given, choices=MARKETS)


def read_regions(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Check one region or several; returns an empty tuple for ``"all"``, and None for None."""
    if given is None or (isinstance(given, str) and given == ALL):
        return None if given is None else ()
    return several(check_name, "region", given)


def read_catalog(catalog: Any) -> Catalog:
    """Check a catalog; returns the default catalog for None."""
    if not isinstance(catalog, Catalog | None):
        raise ArgumentError(f"catalog is {show(catalog)}. Pass a catalog, such as vmselect.Catalog.load(path).")
    return Catalog.default() if catalog is None else catalog


def read_batch_sizes(given: int | Iterable[int] | Literal["all"] | None) -> tuple[int, ...] | None:
    """Check one batch size or several; returns None (all measured batch sizes) for None and ``"all"``."""
    if given is None or (isinstance(given, str) and given == ALL):
        return None
    return several(check_count, "batch_size", given)


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
