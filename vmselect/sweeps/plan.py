"""The machines of a plan: their properties and options for each runner."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vmselect._checks import (
    check_choice,
    check_count,
    check_flag,
    check_mapping,
    check_name,
    check_number,
    is_number,
    list_items,
    several,
    show,
)
from vmselect.errors import ArgumentError, CatalogError, PlanError
from vmselect.sweeps.command import as_text, check_text, fill, placeholders, split_command
from vmselect.units import cost_usd

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.catalog import Catalog

MOST_NODES = 1024
MOST_USD_PER_HOUR = 100_000.0
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]*")


@dataclass(frozen=True)
class Machine:
    """One machine of a plan, or one kind of machine.

    ``options`` exist for one runner only, such as a Slurm partition.
    """

    name: str
    cores: int | None = None
    threads: int | None = None
    hosts: tuple[str, ...] = ()
    python: str = "python3"
    instance_type: str | None = None
    region: str | None = None
    market: str | None = None
    usd_per_hour: float | None = None
    options: Mapping[str, str | bool] = field(default_factory=dict)


def _text(name: str, value: Any) -> str:
    return check_text(name, check_name(name, value))


def _host(name: str, value: Any) -> str:
    text = check_name(name, value)
    if not _HOST.fullmatch(text):  # ssh would take a leading dash for an option
        raise PlanError(f"{name} {show(value)} is not a valid ssh host. Write it as name, user@name or an alias.")
    return text


def _option(name: str, value: Any) -> str:
    return _text(name, value if isinstance(value, str) else str(value))


_OWN: dict[str, Callable[[str, Any], Any]] = {
    "cores": lambda name, value: check_count(name, value, most=4096),
    "threads": lambda name, value: check_count(name, value, most=65536),
    "instance_type": _text,
    "region": _text,
    "market": _text,
    "usd_per_hour": lambda name, value: check_number(name, value, least=0, most=MOST_USD_PER_HOUR),
}
_SSH: dict[str, Callable[[str, Any], Any]] = {
    "hosts": lambda name, value: several(_host, name, value),
    "host": lambda name, value: (_host(name, value),),
    "python": _text,
}
_OPTIONS: dict[str, tuple[str, ...]] = {
    "slurm": ("partition", "account", "qos", "constraint", "gres", "gpus", "mem", "nodelist", "exclusive"),
    "skypilot": ("cloud", "image_id", "disk_size", "accelerators"),
}
RUNNERS = ("local", "ssh", "slurm", "skypilot")
ENDING_SECONDS = {"skypilot": 300.0}
"""Paid time after the time cap of a rented machine: its records are fetched, then it is terminated."""


def read_machine(name: str, facts: Any, *, runner: str) -> Machine:
    """Check the properties of the machine ``name`` for ``runner``.

    >>> read_machine("small", {"cores": 1}, runner="local").cores
    1
    """
    where = ("machines", name)
    if facts is not None and not isinstance(facts, Mapping):
        raise PlanError(f"machines: {name} must map properties to values, not {show(facts)}.", where)
    checks = _OWN | (_SSH if runner == "ssh" else {"python": _text} if runner == "slurm" else {})
    checks |= {option: check_flag if option == "exclusive" else _option for option in _OPTIONS.get(runner, ())}
    given: dict[str, Any] = {}
    try:
        check_text("machine", name)
        for key, value in (facts or {}).items():
            if key not in checks:
                near = get_close_matches(str(key), list(checks), n=1)
                hint = f"Did you mean {near[0]}?" if near else f"With runner {runner}: {', '.join(checks)}."
                raise PlanError(f"machines: {name} has no property {show(key)}. {hint}", (*where, str(key)))
            given["hosts" if key == "host" else key] = checks[key](f"machines: {name}: {key}", value)
    except ArgumentError as bad:
        raise PlanError(str(bad), getattr(bad, "where", ()) or where) from None
    options = {key: given.pop(key) for key in list(given) if key in _OPTIONS.get(runner, ())}
    return Machine(name=name, options=options, **given)


# The design of experiments: combinations of levels, exclusions, repetitions, and random order by blocks.


Level = str | int | float | bool
Factors = dict[str, Level]

MOST_TRIALS = 100_000
REPETITION = "repetition"
_NAME = re.compile(r"[A-Za-z_]\w{0,63}")


def read_factors(given: Any) -> dict[str, tuple[Level, ...]]:
    """Factor names to their levels."""
    if not isinstance(given, Mapping):
        raise PlanError(f"factors must map names to lists of levels, not {show(given)}.", ("factors",))
    factors: dict[str, tuple[Level, ...]] = {}
    for name, levels in given.items():
        where = ("factors", str(name))
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == REPETITION:
            raise PlanError(f"{show(name)} cannot name a factor. Use letters, digits and _, such as batch_size.", where)
        levels = [levels] if isinstance(levels, (str, bytes, Mapping)) else list_items(levels)
        read = tuple(read_level(f"factor {name}: level", level, where) for level in levels)
        if not read:
            raise PlanError(f"Factor {name} has no levels, so there is nothing to run. Give at least one.", where)
        twice = {str(level) for level in read if [str(other) for other in read].count(str(level)) > 1}
        if twice:
            raise PlanError(
                f"Factor {name} names {', '.join(sorted(twice))} twice, which makes duplicate trials.", where
            )
        factors[name] = read
    return factors


def read_level(what: str, level: Any, where: tuple[str | int, ...]) -> Level:
    """A level in its plain form: a text, a number or a truth value."""
    if hasattr(level, "item") and not isinstance(level, str):
        level = level.item()
    if isinstance(level, str) and level.strip():
        try:
            return check_text(what, level)
        except PlanError as bad:
            raise PlanError(str(bad), where) from None
    if isinstance(level, bool) or (isinstance(level, (int, float)) and is_number(level)):
        return level
    raise PlanError(f"{what} must be a text or a number, not {show(level)}.", where)


def read_rules(name: str, given: Any, factors: Mapping[str, tuple[Level, ...]]) -> tuple[dict[str, Any], ...]:
    """Rules such as ``{"machine": "small", "batch_size": [128, 256]}``: a trial fits where every factor does."""
    if isinstance(given, Mapping):
        given = [given]
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise PlanError(f"{name} must be a list of rules, not {show(given)}.", (name,))
    rules: list[dict[str, Any]] = []
    for position, rule in enumerate(given):
        where: tuple[str | int, ...] = (name, position)
        if not isinstance(rule, Mapping) or not rule:
            raise PlanError(f"A rule in {name} must map factors to levels, not {show(rule)}.", where)
        read: dict[str, Any] = {}
        for factor, levels in rule.items():
            check_factor(factor, factors, f"A rule in {name}", (*where, str(factor)))
            several = isinstance(levels, Sequence) and not isinstance(levels, str)
            plain = [read_level(f"{name}: {factor}", level, where) for level in (levels if several else [levels])]
            for level in plain:
                if level not in factors[factor]:
                    known = ", ".join(map(str, factors[factor]))
                    raise PlanError(f"A rule in {name} names {factor} {level!r}; its levels are {known}.", where)
            read[factor] = plain if several else plain[0]
        rules.append(read)
    return tuple(rules)


def check_factor(name: Any, factors: Mapping[str, Any], who: str, where: tuple[str | int, ...]) -> None:
    """Raise where ``name`` is no factor."""
    if name not in factors:
        known = ", ".join(factors) or "none"
        raise PlanError(f"{who} names the unknown factor {show(name)}; the factors are {known}.", where)


def cross(
    factors: Mapping[str, tuple[Level, ...]],
    *,
    exclude: Sequence[Mapping[str, Any]],
    include: Sequence[Mapping[str, Any]],
) -> list[Factors]:
    """Every combination of levels that is allowed, in the order of the factors."""
    size = 1
    for levels in factors.values():
        size *= len(levels)
    if size > MOST_TRIALS:
        raise PlanError(f"The factors make {size:,} combinations, more than {MOST_TRIALS:,}. Use fewer.", ("factors",))
    combined = [dict(zip(factors, levels, strict=True)) for levels in itertools.product(*factors.values())]
    kept = [c for c in combined if not _fits_any(c, exclude) and (not include or _fits_any(c, include))]
    if not kept:
        raise PlanError("The rules leave no candidate to run. Exclude less.", ("exclude",))
    return kept


def order(
    combinations: Sequence[Factors], *, repetitions: int, blocks: Sequence[str], seed: int | None
) -> list[tuple[int, int, str]]:
    """Positions in ``combinations`` with their repetition and block, in the order in which they are to run.

    Blocks run one after the other, in random order, and each is shuffled inside; without a seed nothing is.
    """
    if len(combinations) * repetitions > MOST_TRIALS:
        total = len(combinations) * repetitions
        raise PlanError(f"{total:,} trials are more than {MOST_TRIALS:,}. Use fewer.", ("repetitions",))
    grouped: dict[tuple[Any, ...], list[tuple[int, int, str]]] = {}
    for repetition in range(1, repetitions + 1):
        for position, factors in enumerate(combinations):
            levels = {**factors, REPETITION: repetition}
            key = tuple(levels[name] for name in blocks)
            name = ", ".join(f"{b} {level}" for b, level in zip(blocks, key, strict=True))
            grouped.setdefault(key, []).append((position, repetition, name))
    groups = list(grouped.values())
    if seed is not None:
        chance = random.Random(seed)
        chance.shuffle(groups)
        for group in groups:
            chance.shuffle(group)
    return [trial for group in groups for trial in group]


def _fits_any(factors: Factors, rules: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        all(
            factors[name] in levels if isinstance(levels, list) else factors[name] == levels
            for name, levels in rule.items()
        )
        for rule in rules
    )


# The plan of a sweep: which trials run where, in which order, and what they may cost at most.


Value = TypeVar("Value")
MOST_MINUTES = 7 * 24 * 60.0
"""A probe takes minutes; a cap of more than a week is a typing error."""

CLOUDS = ("aws", "azure", "gcp")
"""Providers that have the same name in SkyPilot and in the catalog."""

_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL|PRIVATE|ACCESS_?KEY", re.IGNORECASE)


@dataclass(frozen=True)
class Trial:
    """One run of the command: its number, the levels of its factors, and where it runs."""

    id: str
    factors: Mapping[str, Level]
    arguments: tuple[str, ...]
    machine: Machine
    repetition: int = 1
    block: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The command as typed in a shell."""
        return shlex.join(self.arguments)

    @property
    def instance_type(self) -> str | None:
        """The machine's name in the record."""
        named = self.factors.get("instance_type", self.machine.instance_type or self.machine.name)
        return str(named) if named else None

    @property
    def region(self) -> str | None:
        """The planned region."""
        return str(self.factors["region"]) if "region" in self.factors else self.machine.region

    @property
    def market(self) -> str:
        """The planned market."""
        return str(self.factors.get("market", self.machine.market or "on_demand"))

    @property
    def offer(self) -> str:
        """A key that trials on machines of one price share."""
        return "|".join(part or "" for part in (self.machine.name, self.instance_type, self.region, self.market))

    @property
    def nodes(self) -> int:
        """The number of machines."""
        return int(self.factors.get("nodes", 1))


class Plan:
    """Which command runs with which factors, where, how often and how long at most.

    ``factors`` maps names to levels. Every combination is a trial, except those that match a rule in ``exclude``; with
    ``include``, only those that match one of its rules. ``{name}`` in the command stands for a level. Every level is
    also in the command's environment as ``VMSELECT_FACTOR_<NAME>``. The factors ``machine``, ``instance_type``,
    ``region``, ``market`` and ``nodes`` determine where a trial runs. ``seed`` shuffles the trials within ``blocks``.

    >>> plan = Plan("python train.py --batch {batch_size}",
    ...             factors={"machine": ["small", "big"], "batch_size": [64, 256]},
    ...             machines={"small": {"cores": 1}, "big": {"cores": 2}}, repetitions=2, minutes=5,
    ...             exclude=[{"machine": "small", "batch_size": 256}])
    >>> len(plan.trials), sorted({trial.command for trial in plan.trials})
    (6, ['python train.py --batch 256', 'python train.py --batch 64'])
    """

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        runner: str = "local",
        factors: Mapping[str, Any] | None = None,
        machines: Mapping[str, Any] | None = None,
        repetitions: int = 1,
        minutes: float = 10.0,
        expected_minutes: float | None = None,
        seed: int | None = 0,
        exclude: Sequence[Mapping[str, Any]] = (),
        include: Sequence[Mapping[str, Any]] = (),
        blocks: str | Sequence[str] = (REPETITION,),
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        self._arguments = _checked(lambda _, given: split_command(given), "command", command)
        self.command = command if isinstance(command, str) else list(command)
        self.runner = _checked(check_choice, "runner", runner, choices=RUNNERS)
        self.factors = read_factors({} if factors is None else factors)
        self.machines = self._read_machines({} if machines is None else machines)
        self.repetitions = _checked(check_count, "repetitions", repetitions, most=10_000)
        self.minutes = _checked(check_number, "minutes", minutes, above=0, most=MOST_MINUTES)
        self.expected_minutes = (
            None if expected_minutes is None
            else _checked(check_number, "expected_minutes", expected_minutes, above=0, most=self.minutes)
        )  # fmt: skip
        self.seed = None if seed is None else _checked(check_count, "seed", seed, least=0)
        self.exclude = read_rules("exclude", exclude, self.factors)
        self.include = read_rules("include", include, self.factors)
        self.blocks = self._read_blocks(blocks)
        self.environment = self._read_environment({} if environment is None else environment)
        self._check_placeholders()
        self._check_locations()

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """The trials in running order; their numbers count combinations in written order."""
        combinations = cross(self.factors, exclude=self.exclude, include=self.include)
        turns = order(combinations, repetitions=self.repetitions, blocks=self.blocks, seed=self.seed)
        width = max(3, len(str(len(turns))))
        trials = []
        for position, repetition, block in turns:
            factors = combinations[position]
            number = (repetition - 1) * len(combinations) + position + 1
            name = str(factors["machine"]) if "machine" in factors else ""
            trials.append(
                Trial(
                    id=f"{number:0{width}d}",
                    factors=factors,
                    arguments=tuple(fill(part, factors) for part in self._arguments),
                    machine=self.machines.get(name, Machine(name, hosts=(name,) if self.runner == "ssh" else ())),
                    repetition=repetition,
                    block=block,
                    environment={k: None if v is None else fill(v, factors) for k, v in self.environment.items()},
                )
            )
        return tuple(trials)

    @property
    def ending_seconds(self) -> float:
        """The paid time that ending a trial may take beyond ``minutes``."""
        return ENDING_SECONDS.get(self.runner, 0.0)

    @property
    def paid_seconds(self) -> float:
        """The longest time for which a trial may be paid."""
        return 60 * self.minutes + self.ending_seconds

    def worst_usd(self, usd_per_hour: float) -> float:
        """The worst-case cost of a trial at this price."""
        return cost_usd(self.paid_seconds, usd_per_hour)

    def estimated_usd(self, usd_per_hour: float) -> float:
        """The cost of a trial of the expected duration at this price."""
        return cost_usd(60 * (self.expected_minutes or self.minutes), usd_per_hour)

    def to_frame(self, catalog: Catalog | None = None) -> pd.DataFrame:
        """A row per trial in running order, with its price per hour, estimated and worst-case cost.

        >>> from vmselect import Catalog
        >>> plan = Plan("python train.py", factors={"instance_type": ["g4dn.xlarge"]}, minutes=30)
        >>> float(plan.to_frame(Catalog.embedded("2026-08-22"))["worst_usd"][0])
        0.263
        """
        return self.tabulate(self.trials, self.prices(catalog))

    def tabulate(self, trials: Sequence[Trial], prices: Mapping[str, float]) -> pd.DataFrame:
        """The table of ``trials`` at known prices per hour, as :meth:`to_frame` returns it."""
        import pandas as pd

        return pd.DataFrame(
            {
                "trial": trial.id, **trial.factors, "repetition": trial.repetition, "block": trial.block,
                "instance_type": trial.instance_type, "nodes": trial.nodes, "usd_per_hour": prices[trial.id],
                "estimated_usd": self.estimated_usd(prices[trial.id]),
                "worst_usd": self.worst_usd(prices[trial.id]), "command": trial.command,
            }
            for trial in trials
        )  # fmt: skip

    def prices(self, catalog: Catalog | None = None) -> dict[str, float]:
        """Trial to USD per hour of all its nodes; a machine that is not rented and has no price costs nothing."""
        catalog = _or_default(catalog)
        quotes = {offer: self._quote(trial, catalog) for offer, trial in self._offers.items()}
        return {trial.id: quotes[trial.offer][0] * trial.nodes for trial in self.trials}

    def locations(self, catalog: Catalog | None = None) -> dict[str, str]:
        """Rented machine to the cloud and region of its price, in SkyPilot's notation: ``aws/us-east-1``.

        >>> Plan("python t.py", runner="skypilot", factors={"instance_type": ["g5.xlarge"]}).locations()
        {'|g5.xlarge||on_demand': 'aws/us-east-1'}
        """
        locations: dict[str, str] = {}
        for offer, trial in self._offers.items() if self.runner == "skypilot" else ():
            with suppress(PlanError):
                locations[offer] = self._quote(trial, _or_default(catalog))[1]
        return {offer: location for offer, location in locations.items() if location}

    def to_dict(self) -> dict[str, Any]:
        """The arguments of the constructor, without empty ones."""
        given: dict[str, Any] = {
            "command": self.command, "runner": self.runner,
            "factors": {name: list(levels) for name, levels in self.factors.items()},
            "machines": self._given_machines, "repetitions": self.repetitions, "minutes": self.minutes,
            "expected_minutes": self.expected_minutes, "seed": self.seed,
            "exclude": [dict(rule) for rule in self.exclude], "include": [dict(rule) for rule in self.include],
            "blocks": list(self.blocks), "environment": dict(self.environment),
        }  # fmt: skip
        kept = {"seed", "blocks"}  # None and empty have a meaning there
        return {name: value for name, value in given.items() if name in kept or value not in (None, {}, [])}

    @property
    def fingerprint(self) -> str:
        """A hash that equal plans share."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def save(self, path: str | Path) -> Path:
        """Write the plan as YAML, which :meth:`load` reads back."""
        from vmselect.sweeps.plan_file import write_plan

        return write_plan(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan from a YAML file whose keys are the arguments of this class; errors name the line.

        >>> saved = Plan("python train.py", factors={"batch_size": [64, 256]}).save("plan.yaml")
        >>> len(Plan.load(saved).trials)
        2
        """
        from vmselect.sweeps.plan_file import read_plan

        return read_plan(path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<Plan: {len(self.trials)} trials of {show(self.command)} with runner {self.runner}>"

    # -- checks

    def _read_machines(self, given: Any) -> dict[str, Machine]:
        named = _checked(check_mapping, "machines", given)
        machines = {name: read_machine(name, facts, runner=self.runner) for name, facts in named.items()}
        self._given_machines = {name: dict(facts or {}) for name, facts in named.items()}
        levels = [str(level) for level in self.factors.get("machine", ())]
        for level in levels:
            if machines and level not in machines:
                known = ", ".join(machines)
                raise PlanError(f"machine {level!r} is not among machines ({known}).", ("factors", "machine"))
        if unused := [name for name in machines if name not in levels]:
            raise PlanError(
                f"machines describes {', '.join(unused)}, which no trial uses. Make it a level of the factor machine.",
                ("machines", unused[0]),
            )
        return machines

    def _read_blocks(self, given: Any) -> tuple[str, ...]:
        if given is None or (isinstance(given, (str, list, tuple, set)) and not given):
            return ()
        names = _checked(lambda name, value: several(check_name, name, value), "blocks", given)
        for name in names:
            if name != REPETITION:
                check_factor(name, self.factors, "blocks", ("blocks",))
        return names

    def _read_environment(self, given: Any) -> dict[str, str | None]:
        variables: dict[str, str | None] = {}
        for name, value in _checked(check_mapping, "environment", given).items():
            where = ("environment", name)
            if not _VARIABLE.fullmatch(name) or name.startswith("VMSELECT_"):
                raise PlanError(f"{show(name)} cannot name a variable of the command's environment.", where)
            if value is not None and _SECRET.search(name):
                raise PlanError(
                    f"{name} looks like a secret, and a plan is stored with its results. Leave its value empty: "
                    "it is then taken from your own environment and not stored.",
                    where,
                )
            level = None if value is None else read_level(f"environment: {name}", value, where)
            variables[name] = None if level is None else as_text(level)
        return variables

    def _check_placeholders(self) -> None:
        for name in placeholders(self._arguments):
            check_factor(name, self.factors, "The command", ("command",))
        for variable, text in self.environment.items():
            for name in placeholders([text or ""]):
                check_factor(name, self.factors, "environment", ("environment", variable))

    def _check_locations(self) -> None:
        for level in self.factors.get("nodes", ()):
            _checked(check_count, "nodes", level, where=("factors", "nodes"), most=MOST_NODES)
        named = all("instance_type" in trial.factors or trial.machine.instance_type for trial in self.trials)
        if self.runner == "skypilot" and not named:
            raise PlanError("A plan for skypilot needs the factor instance_type: the machines to rent.", ("factors",))
        if self.runner == "ssh" and "machine" not in self.factors:
            raise PlanError("A plan for ssh needs the factor machine: the hosts.", ("factors",))

    @property
    def _offers(self) -> dict[str, Trial]:
        return {trial.offer: trial for trial in self.trials}

    def _quote(self, trial: Trial, catalog: Catalog) -> tuple[float, str]:
        """USD per hour of one node, and the cloud and region of that price, if SkyPilot knows them."""
        machine, name = trial.machine, trial.instance_type
        if machine.usd_per_hour is not None or name is None:
            return machine.usd_per_hour or 0.0, ""
        if "accelerators" in machine.options:
            raise PlanError(
                f"Trial {trial.id} attaches accelerators to {name}, and the catalog has no price of both. Give one "
                f"(machines: {machine.name}: usd_per_hour), or a type that includes them, such as n1-standard-4+1xT4.",
                ("machines", machine.name),
            )
        cloud, _, region = str(machine.options.get("cloud", "")).lower().partition("/")
        try:
            offer = catalog.offer(name, region=trial.region or region or None, market=trial.market,
                                  provider=cloud if cloud in CLOUDS else None)  # fmt: skip
        except CatalogError as unknown:
            if "instance_type" not in trial.factors and machine.instance_type is None:
                return 0.0, ""  # not rented
            raise PlanError(f"Trial {trial.id} has no price: {unknown}", ("factors", "instance_type")) from None
        known = offer.provider in CLOUDS and (not cloud or cloud in CLOUDS)
        return float(offer.usd_per_hour), f"{offer.provider}/{offer.region}" if known else ""


def _checked(
    check: Callable[..., Value], name: str, value: Any, *, where: tuple[str | int, ...] = (), **bounds: Any
) -> Value:
    """The result of ``check``; its error names the location in the plan."""
    try:
        return check(name, value, **bounds)
    except ArgumentError as bad:
        raise PlanError(str(bad), where or (name,)) from None


def _or_default(catalog: Catalog | None) -> Catalog:
    if catalog is not None:
        return catalog
    from vmselect.catalog import Catalog as Default

    return Default.default()
