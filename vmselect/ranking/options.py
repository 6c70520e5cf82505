"""Options of a ranking, declared once (command line, MCP and JSON follow from it), and the checked settings.

:data:`OPTIONS` is the only list of options: :meth:`Settings.read` checks the arguments of :func:`vmselect.rank` by it,
and the command line, the tools for agents and the settings in JSON take names, types and texts from it. To add an
option, add a line here, a parameter to ``rank`` (or a field to the object that owns it), and use it where it acts.
This module imports nothing heavy, because every start of the command line reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from vmselect._checks import (
    check_choice,
    check_count,
    check_dataclass,
    check_name,
    check_number,
    is_number,
    maybe,
    several,
    show,
)
from vmselect.errors import ArgumentError

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.energy import Emissions
    from vmselect.ranking.measures import Interruptions

ALL = "all"
ENOUGH_REGRET, ENOUGH_REGRET_WITHOUT_HISTORY = 0.02, 0.05
"""No further probe is recommended if the best machine is expected to be better than the chosen one by less than this.

The difference is relative to the time or cost that is minimized. The second limit applies if no outcomes of earlier
forecasts are known.
"""
Objective: TypeAlias = Literal["cost", "time", "energy", "co2"] | Mapping[str, float]
Check: TypeAlias = Callable[[str, object], Any]
FIXED = ("region", "provider", "gpu", "batch_size", "method", "confidence")
"""Settings that determine the candidates, so that changing them requires a new ranking."""
OWNERS = {
    "workload": "workload=vmselect.Workload({name}=...)",
    "scale": "scale=vmselect.Scale({name}=...)",
    "interruptions": "interruptions=vmselect.Interruptions({name}=...)",
    "emissions": "emissions=vmselect.energy.Emissions({name}=...)",
    "catalog": "catalog=catalog.where({name}=...)",
}
"""How Python passes an option that belongs to an object instead of to :func:`vmselect.rank`."""


# -- checks ------------------------------------------------------------------------------------------------------------


def check_epochs(name: str, value: object) -> tuple[int, ...]:
    """Check one number of epochs or several; returns them in this order, and none for a convergence study."""
    from vmselect.convergence import ConvergenceStudy

    if isinstance(value, ConvergenceStudy):
        return ()
    if isinstance(value, Set):
        raise ArgumentError(
            f"{name} is {value!r}, a set, which has no order. Pass a list: its last value determines the best "
            "candidate."
        )
    return several(check_count, name, value)


def check_batch_sizes(name: str, value: object) -> tuple[int, ...] | None:
    """Check one batch size or several; returns None (all measured batch sizes) for None and ``"all"``."""
    return None if value is None or is_all(value) else several(check_count, name, value)


def check_objective(name: str, value: object) -> Mapping[str, float]:
    """Check an objective; returns the weights of the measures, which sum to 1."""
    from vmselect.ranking.measures import read_objective

    return read_objective(value)


def check_markets(name: str, value: object) -> tuple[str, ...] | None:
    """Check one market or several; returns None for ``"all"``, and the default market for None."""
    from vmselect.catalog import MARKETS

    markets = "on_demand" if value is None else value
    return None if is_all(value) else several(check_choice, name, markets, choices=MARKETS)


def check_regions(name: str, value: object) -> tuple[str, ...] | None:
    """Check one region or several; returns an empty tuple for ``"all"``, and None (as measured) for None."""
    return () if is_all(value) else maybe(partial(several, check_name), name, value)


def check_names(name: str, value: object) -> tuple[str, ...] | None:
    """Check one name or several; None stays None."""
    return maybe(partial(several, check_name), name, value)


def check_method(name: str, value: object) -> str:
    """Check the name of an estimation method."""
    from vmselect.estimation import METHODS

    return check_choice(name, value, tuple(METHODS))


def check_interruptions(name: str, value: object) -> Interruptions | None:
    """Check the interruptions of spot machines: a rate per hour, or an :class:`~vmselect.Interruptions`."""
    from vmselect.ranking.measures import Interruptions

    if is_number(value):
        return Interruptions(per_hour=value)
    return maybe(check_dataclass, name, value, kind=Interruptions)


def check_emissions(name: str, value: object) -> Emissions | None:
    """Check how CO2 is computed from energy."""
    from vmselect.energy import Emissions

    return maybe(check_dataclass, name, value, kind=Emissions)


def is_all(value: object) -> bool:
    """Whether ``value`` is the word for all regions, markets, batch sizes or machines."""
    return isinstance(value, str) and value == ALL


positive = partial(maybe, partial(check_number, above=0))


# -- the declaration ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a ranking: its name, type, default, check, text and unit."""

    name: str
    type: type
    """Type of one value."""
    help: str
    check: Check | None = None
    """Check of a setting; None for options that another object or function checks."""
    default: Any = None
    default_text: str = ""
    """What the default means, where the value itself does not say it."""
    several: bool = False
    """Whether a list is accepted. On the command line it is written with commas."""
    word: str = ""
    """A word that is accepted instead of values of ``type``."""
    unit: str = ""
    owner: str = "rank"
    """Object that has the option as an argument: ``rank``, or a key of :data:`OWNERS`."""
    field: str = ""
    """Name of the argument of ``owner``, if it is not ``name``."""
    panel: str = ""
    """Heading in the help of the command line."""
    short: str = ""
    """Short form on the command line."""

    @property
    def argument(self) -> str:
        """Name of the argument in Python."""
        return self.field or self.name

    @property
    def text(self) -> str:
        """Help text with the unit."""
        return f"{self.help[:-1]} ({self.unit})." if self.unit else self.help


LIMITS, PRICES, ESTIMATE = "Limits", "Prices", "Estimate"
UNPROBED, SPOT, ENERGY = "Machines that were never probed", "Spot interruptions", "Energy and CO2"
OPTIONS: tuple[Option, ...] = (
    Option(
        name="epochs", type=int, several=True, short="-e", check=check_epochs, default_text="as probed",
        help="Epochs to train, as in 50 or 5,10,50; the last number determines the ranking.",
    ),
    Option(
        name="batch_size", type=int, several=True, word=ALL, short="-b", check=check_batch_sizes,
        help="Batch sizes to rank, as in 64,256, or all. Sizes that were not probed are interpolated.",
    ),
    Option(
        name="objective", type=str, default="cost", short="-o", check=check_objective,
        help="What to minimize: cost, time, energy, co2, or weights such as cost=0.7,time=0.3.",
    ),
    Option(
        name="deadline_hours", type=float, unit="hours", panel=LIMITS, check=positive,
        help="Exclude machines on which the training takes longer than this.",
    ),
    Option(
        name="budget_usd", type=float, unit="USD", panel=LIMITS, check=positive,
        help="Exclude machines on which the training costs more than this.",
    ),
    Option(
        name="co2_limit_kg", type=float, unit="kg", panel=LIMITS, check=positive,
        help="Exclude machines on which the training emits more CO2 than this.",
    ),
    Option(
        name="chance", type=float, panel=LIMITS, check=partial(maybe, partial(check_number, above=0, most=0.999)),
        help="Least probability of keeping each limit, such as 0.9. Default: the estimate has to keep it.",
    ),
    Option(
        name="machines", type=str, several=True, word=ALL, panel=UNPROBED,
        help="Also rank machines that were never probed: all, or names, as in g5.xlarge,g6.xlarge.",
    ),
    Option(
        name="history", type=Path, several=True, panel=UNPROBED,
        help="Folder or URL of records of other trainings, for better predictions; may be repeated.",
    ),
    Option(
        name="region", type=str, several=True, word=ALL, panel=PRICES, check=check_regions,
        default_text="as probed, or the cheapest",
        help="Regions, countries or groups, as in us-east-1,de,eu: the cheapest region of each. Or all regions.",
    ),
    Option(
        name="market", type=str, several=True, word=ALL, default="on_demand", panel=PRICES, check=check_markets,
        help="Markets: on_demand, spot, reserved_1y, reserved_3y, or all.",
    ),
    Option(
        name="provider", type=str, several=True, panel=PRICES, check=check_names,
        help="Only machines of these providers, as in aws,gcp.",
    ),
    Option(
        name="gpu", type=str, several=True, panel=PRICES, check=check_names,
        help="Only machines with these GPUs, as in T4,L4.",
    ),
    Option(
        name="gpu_memory_gib", type=float, unit="GiB", owner="catalog", panel=PRICES,
        help="Only machines whose GPU has at least this memory.",
    ),
    Option(
        name="max_usd_per_hour", type=float, unit="USD", owner="catalog", panel=PRICES,
        help="Only machines up to this price per hour.",
    ),
    Option(
        name="service", type=str, several=True, word=ALL, owner="catalog", panel=PRICES,
        help="Also rank the machines at the prices of this service: sagemaker, ec2, or all.",
    ),
    Option(
        name="retired", type=bool, default=False, owner="catalog", panel=PRICES,
        help="Also rank machines that can no longer be rented.",
    ),
    Option(
        name="stale", type=bool, default=False, owner="catalog", panel=PRICES,
        help="Also rank machines at prices that are too old to rely on.",
    ),
    Option(
        name="billing", type=str, owner="catalog", panel=PRICES, default_text="exact",
        help="Billed time: exact, or provider (rounded up as each provider does).",
    ),
    Option(
        name="gpus", type=int, several=True, owner="scale", panel=UNPROBED,
        help="Also rank machines with these numbers of GPUs of a probed type, as in 1,2,4,8.",
    ),
    Option(
        name="nodes", type=int, several=True, owner="scale", panel=UNPROBED,
        help="Also rank training on these numbers of machines together, as in 3,4. Needs a probe on two machines.",
    ),
    Option(
        name="constant_batch", type=str, owner="scale", panel=UNPROBED, default_text="per_gpu",
        help="Batch size that stays the same with more GPUs: per_gpu, or global.",
    ),
    Option(
        name="examples", type=int, owner="workload", panel=ESTIMATE, default_text="as probed",
        help="Training examples per epoch.",
    ),
    Option(
        name="validation_examples", type=int, owner="workload", panel=ESTIMATE, default_text="as probed",
        help="Examples per validation; 0 for none.",
    ),
    Option(
        name="validation_freq", type=int, owner="workload", panel=ESTIMATE, default_text="as probed",
        help="Number of epochs from one validation to the next.",
    ),
    Option(
        name="validation_from", type=int, owner="workload", panel=ESTIMATE, default_text="as probed",
        help="First epoch that a validation follows.",
    ),
    Option(
        name="steps_per_epoch", type=float, owner="workload", panel=ESTIMATE, default_text="as probed",
        help="Training steps per epoch.",
    ),
    Option(
        name="boot_seconds", type=float, unit="seconds", owner="workload", panel=ESTIMATE, default_text="0",
        help="Time that a machine takes to boot.",
    ),
    Option(
        name="interruptions", type=float, panel=SPOT, check=check_interruptions,
        default_text="published rates if --checkpoint-minutes is given",
        help="Expected interruptions of a spot machine per hour.",
    ),
    Option(
        name="checkpoint_minutes", type=float, unit="minutes", owner="interruptions", panel=SPOT,
        default_text="60", help="Time between two checkpoints.",
    ),
    Option(
        name="restart_minutes", type=float, unit="minutes", owner="interruptions", panel=SPOT,
        default_text="5", help="Time from an interruption to the restart.",
    ),
    Option(
        name="emissions", type=bool, panel=ENERGY, check=check_emissions, default=None,
        help="Show the energy and CO2 of each candidate.",
    ),
    Option(
        name="country", type=str, owner="emissions", panel=ENERGY,
        help="Country of machines outside the known clouds, such as DE, for CO2.",
    ),
    Option(
        name="grid_g_per_kwh", type=float, unit="g of CO2 per kWh", owner="emissions", panel=ENERGY,
        help="Carbon intensity of the electricity.",
    ),
    Option(
        name="grid_hourly", type=Path, owner="emissions", field="hourly", panel=ENERGY,
        help="CSV file with the carbon intensity of every hour (column g_per_kwh).",
    ),
    Option(
        name="start_hour", type=float, owner="emissions", panel=ENERGY, default_text="mean of all",
        help="Row of --grid-hourly (0 is the first hour) at which the training starts.",
    ),
    Option(
        name="pue", type=float, owner="emissions", panel=ENERGY,
        help="Energy of the data centre per energy of its machines, such as 1.2.",
    ),
    Option(
        name="emissions_basis", type=str, owner="emissions", field="basis", panel=ENERGY, default_text="location",
        help="Compute CO2 from the local grid (location), or subtract the carbon-free energy that the provider buys "
        "(market).",
    ),
    Option(
        name="method", type=str, default="robust", panel=ESTIMATE, check=check_method,
        help="Estimation method, such as robust or malta-epoch.",
    ),
    Option(
        name="confidence", type=float, default=0.9, panel=ESTIMATE,
        check=partial(check_number, least=0.5, most=0.999), help="Confidence level of the intervals.",
    ),
)  # fmt: skip
BY_NAME = {option.name: option for option in OPTIONS}
SETTINGS = tuple(option for option in OPTIONS if option.check is not None)
"""The options that are settings of a ranking; they have their names in JSON too."""


def find_home(name: str) -> str | None:
    """How to pass the option ``name`` in Python, if it is not an argument of ``rank`` but of another object."""
    option = BY_NAME.get(name)
    form = OWNERS.get(option.owner) if option else None
    return form.format(name=option.argument) if option and form else None


# -- settings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Checked settings of a ranking: a field for each of :data:`SETTINGS`, and how costs are billed.

    ``market`` and ``batch_size`` are None for all. ``region`` is empty for all regions, and None to price each machine
    in the region in which it was measured. ``epochs`` is empty if the epoch counts come from a study.
    """

    epochs: tuple[int, ...]
    batch_size: tuple[int, ...] | None
    objective: Mapping[str, float]
    deadline_hours: float | None
    budget_usd: float | None
    co2_limit_kg: float | None
    chance: float | None
    region: tuple[str, ...] | None
    market: tuple[str, ...] | None
    provider: tuple[str, ...] | None
    gpu: tuple[str, ...] | None
    interruptions: Interruptions | None
    emissions: Emissions | None
    method: str
    confidence: float
    billing: str = "exact"
    """Billing of the catalog: ``exact``, or ``provider`` for the provider's billing increment and minimum."""

    @classmethod
    def read(cls, *, billing: str = "exact", **arguments: Any) -> Settings:
        """Check ``arguments``, which have the form of those of :func:`vmselect.rank`."""
        values = {
            option.name: option.check(option.name, arguments.get(option.name, option.default))
            for option in SETTINGS
            if option.check is not None
        }
        return cls(**values, billing=billing)

    def __post_init__(self) -> None:
        if self.chance is not None and self.deadline_hours is self.budget_usd is self.co2_limit_kg is None:
            raise ArgumentError("chance needs a limit. Pass deadline_hours=, budget_usd= or co2_limit_kg= too.")

    def changed(self, **changes: Any) -> Settings:
        """A copy of these settings with ``changes``, which have the form of arguments of :func:`vmselect.rank`."""
        wrong = [name for name in changes if name in FIXED or BY_NAME.get(name) not in SETTINGS]
        if wrong:
            raise ArgumentError(
                f"{', '.join(wrong)} cannot be changed in a finished ranking. Call vmselect.rank again."
            )
        if "epochs" in changes and not self.epochs:
            raise ArgumentError(
                "The epochs of this ranking come from a convergence study. Call vmselect.rank with numbers of epochs."
            )
        checks = {option.name: option.check for option in SETTINGS}
        return replace(self, **{name: checks[name](name, value) for name, value in changes.items()})  # type: ignore[misc]

    @property
    def decide_at(self) -> int | None:
        """The number of epochs that determines the best candidate: the last; None if a study gives the epochs."""
        return self.epochs[-1] if self.epochs else None

    def needs(self, name: str) -> bool:
        """Whether the measure ``name`` has a weight or a limit, so that candidates without it cannot be ranked."""
        from vmselect.ranking.measures import MEASURES

        return bool(self.objective.get(name)) or MEASURES[name].limit_of(self) is not None

    def asks_for(self, name: str) -> bool:
        """Whether the measure ``name`` is computed and shown.

        Time and cost always are. The optional measures, energy and CO2, are both computed and shown if either of them
        has a weight or a limit, or if ``emissions`` is set.
        """
        from vmselect.ranking.measures import MEASURES, OPTIONAL

        return not MEASURES[name].optional or self.emissions is not None or any(map(self.needs, OPTIONAL))

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of the measures that these settings ask for."""
        from vmselect.ranking.measures import MEASURES

        return tuple(name for name in MEASURES if self.asks_for(name))

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values for JSON, with the words of the arguments of :func:`vmselect.rank`."""
        from scipy.special import ndtri

        spot = self.interruptions.to_dict(confidence=self.confidence) if self.interruptions else None
        return vars(self) | {
            "objective": dict(self.objective),
            "market": ALL if self.market is None else self.market,
            "region": ALL if self.region == () else self.region,
            "interruptions": spot,
            "emissions": self.emissions.to_dict() if self.emissions else None,
            "quantile": float(ndtri(0.5 + self.confidence / 2)),
        }


NO_LIMITS: dict[str, None] = dict.fromkeys(option.name for option in OPTIONS if option.panel == LIMITS)
"""Settings without any limit, as changes of a ranking."""


def read_catalog(
    catalog: object, *, provider: str | Iterable[str] | None = None, gpu: str | Iterable[str] | None = None
) -> Catalog:
    """Check a catalog (None: the default one); returns it restricted to providers and GPUs, if these are given."""
    from vmselect.catalog import Catalog

    if not isinstance(catalog, Catalog | None):
        raise ArgumentError(f"catalog is {show(catalog)}. Pass a catalog, such as vmselect.Catalog.load(path).")
    prices: Catalog = Catalog.default() if catalog is None else catalog
    if provider is None and gpu is None:
        return prices
    return prices.where(provider=check_names("provider", provider), gpu=check_names("gpu", gpu))
