"""Measures of a run (cost, time), and the settings that weigh and limit them.

A measure is a named column with an interval. To add one, add an entry to :data:`MEASURES` and one to the page's
``model.js``; objectives, scores, tables and JSON follow from it. ``time`` and ``cost`` span the Pareto front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

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
from vmselect.errors import ArgumentError
from vmselect.estimation import METHODS
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.ranking.rows import Floats
from vmselect.ranking.spot import Interruptions
from vmselect.units import SECONDS_PER_HOUR, count_epochs, format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.ranking.candidates import Candidates

Objective: TypeAlias = Literal["cost", "time"] | Mapping[str, float]
ALL = "all"
FIXED = ("regions", "batch_sizes", "method", "confidence", "include_retired")
"""Settings that decide which candidates there are: changing one of them needs a new ranking."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """An upper bound of a measure: the setting that holds it, its unit, and parts of its messages."""

    setting: str
    unit: float
    """How much of the measure's unit one unit of the setting is."""
    verb: str
    noun: str
    reason_code: str
    warning_code: str
    better: str


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One column: how it follows from the time of a run, the names of its fields, and its format."""

    name: str
    fields: tuple[str, str, str]
    """Names of value, low and high in rows and tables."""
    of: Callable[[Candidates, Settings, Interval[Floats]], Interval[Floats]]
    format: Callable[[float], str]
    aim: str
    limit: Limit | None = None

    def limit_of(self, settings: Settings) -> float | None:
        """The limit in the measure's own unit, or None."""
        given = getattr(settings, self.limit.setting) if self.limit else None
        return None if given is None or self.limit is None else given * self.limit.unit

    def explain_excess(self, settings: Settings, value: float, epochs: float) -> str:
        """Why a candidate with this value is excluded; the page's ``model.js`` writes the same."""
        assert self.limit is not None
        s, most = "s" if epochs == 1 else "", self.format(self.limit_of(settings) or 0.0)
        run = f"{count_epochs(epochs)} {self.limit.verb}{s} {self.format(value)}"
        return f"{run}, over the {self.limit.noun} of {most}"

    def warn_of_excess(self, high: float) -> Finding:
        """The warning about a candidate whose value keeps the limit while its interval does not."""
        assert self.limit is not None
        return Finding(
            self.limit.warning_code,
            f"The run may {self.limit.verb} {self.format(high)}, which is over the {self.limit.noun}.",
            f"Probe for more steps to narrow the interval, or take a {self.limit.better} machine.",
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Epoch counts, objective and constraints of a ranking, checked.

    ``markets`` and ``batch_sizes`` are None for all. ``regions`` is None where each machine is priced where it was
    measured, and empty for all regions. ``epochs`` is empty where a study gives each candidate its own count.
    """

    epochs: tuple[int, ...]
    decide_at: int | None = None
    objective: Mapping[str, float]
    markets: tuple[str, ...] | None = (_defaults.MARKET,)
    regions: tuple[str, ...] | None = None
    batch_sizes: tuple[int, ...] | None = None
    deadline_hours: float | None = None
    budget_usd: float | None = None
    method: str = _defaults.METHOD
    confidence: float = _defaults.CONFIDENCE
    billing: Literal["exact", "provider"] = "exact"
    interruptions: Interruptions | None = None
    include_retired: bool = False

    @classmethod
    def read(cls, *, studied: bool = False, **arguments: Any) -> Settings:
        """Check values as :func:`vmselect.rank` takes them."""
        given: dict[str, Any] = {field.name: field.default for field in fields(cls)}
        given |= {"markets": None} | arguments
        given["epochs"] = () if studied else read_epochs(given["epochs"])
        given["decide_at"] = _read_decide_at(given["decide_at"], given["epochs"])
        given["objective"] = read_objective(given["objective"])
        given["markets"] = read_markets(given["markets"])
        given["regions"] = read_regions(given["regions"])
        given["interruptions"] = maybe(check_dataclass, "interruptions", given["interruptions"], kind=Interruptions)
        for name in ("deadline_hours", "budget_usd"):
            given[name] = maybe(check_number, name, given[name], above=0)
        check_choice("billing", given["billing"], ("exact", "provider"))
        check_choice("method", given["method"], tuple(METHODS))
        given["confidence"] = check_number("confidence", given["confidence"], least=0.5, most=0.999)
        given["include_retired"] = check_flag("include_retired", given["include_retired"])
        return cls(**given)

    def changed(self, **changes: Any) -> Settings:
        """These settings with ``changes``, which are checked in the same way."""
        given = vars(self) | {"markets": self.markets or ALL, "regions": ALL if self.regions == () else self.regions}
        if "market" in changes:
            changes["markets"] = changes.pop("market")
        wrong = [name for name in changes if name in FIXED or name not in given]
        if wrong:
            raise ArgumentError(
                f"{', '.join(wrong)} cannot be changed on a finished ranking; call vmselect.rank again."
            )
        if changes.get("epochs") is not None and not self.epochs:
            raise ArgumentError("epochs come from the study here; use vmselect.rank to give them yourself.")
        if "epochs" in changes:
            given["decide_at"] = None
        return Settings.read(**(given | changes), studied=not self.epochs)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        spot = self.interruptions.to_dict(confidence=self.confidence) if self.interruptions else None
        return vars(self) | {"objective": dict(self.objective), "interruptions": spot}


def _cost_of(candidates: Candidates, settings: Settings, time: Interval[Floats]) -> Interval[Floats]:
    """Dollars for the billed time, and for moving the data."""
    price = candidates.usd_per_hour[:, None] / SECONDS_PER_HOUR
    once = candidates.moving_usd[:, None]
    if settings.billing == "exact":
        return Interval(*(part * price + once for part in time))
    bill = {"increment": candidates.increment_seconds[:, None], "minimum": candidates.minimum_seconds[:, None]}
    return Interval(*(billed_seconds(part, **bill) * price + once for part in time))


def billed_seconds(seconds: Floats, *, increment: Floats, minimum: Floats) -> Floats:
    """Seconds on the bill: at least ``minimum``, rounded up to ``increment`` (0 bills exactly)."""
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
    """Weights of the measures that sum to 1."""
    if isinstance(objective, str):
        objective = {objective: 1.0}
    if not isinstance(objective, Mapping):
        raise ArgumentError(
            f"objective is {show(objective)}; use one of {', '.join(MEASURES)}, or weights such as "
            '{"cost": 0.7, "time": 0.3}.'
        )
    for name in objective:
        read_measure(name)
    weights = {name: objective.get(name, 0.0) for name in MEASURES}
    usable = all(is_number(weight) and weight >= 0 for weight in weights.values())
    total = sum(weights.values()) if usable else 0.0
    if not 0 < total < np.inf:
        raise ArgumentError(f"objective weights are {show(objective)}; give numbers of at least 0 that are not all 0.")
    return MappingProxyType({name: float(weight / total) for name, weight in weights.items()})


def read_epochs(epochs: int | Iterable[int]) -> tuple[int, ...]:
    """One epoch count or several, each once, in the order given."""
    if isinstance(epochs, Set):
        raise ArgumentError(f"epochs is {epochs!r}, which has no last one to decide; give a list.")
    return several(check_count, "epochs", epochs)


def read_markets(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """One market or several. ``"all"`` gives None, and None the default market."""
    if isinstance(given, str) and given == ALL:
        return None
    return several(check_choice, "market", _defaults.MARKET if given is None else given, choices=MARKETS)


def read_regions(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """One region or several. ``"all"`` gives an empty tuple, and None stays None."""
    if given is None or (isinstance(given, str) and given == ALL):
        return None if given is None else ()
    return several(check_name, "region", given)


def read_catalog(catalog: Any) -> Catalog:
    """The catalog given, or the default one."""
    if not isinstance(catalog, Catalog | None):
        raise ArgumentError(f"catalog is {show(catalog)}. Load a price file first, with vmselect.Catalog.load(...).")
    return Catalog.default() if catalog is None else catalog


def read_batch_sizes(given: int | Iterable[int] | Literal["all"] | None) -> tuple[int, ...] | None:
    """One batch size or several; None and ``"all"`` mean every one that was measured."""
    if given is None or (isinstance(given, str) and given == ALL):
        return None
    return several(check_count, "batch_size", given)


def _read_decide_at(given: Any, epochs: tuple[int, ...]) -> int | None:
    if given is None:
        return epochs[-1] if epochs else None
    count = check_count("decide_at", given)
    if count not in epochs:
        known = ", ".join(map(str, epochs)) or "those of the study"
        raise ArgumentError(f"decide_at is {count}, which is not among the epoch counts {known}; add it to epochs.")
    return count


def describe_objective(weights: Mapping[str, float]) -> str:
    """The objective as text, such as "0.7 cost + 0.3 time"."""
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
