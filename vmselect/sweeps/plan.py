"""The plan of a sweep: a command, factors and machines, and the trials that result from them.

A plan is written in Python or as a YAML file. Errors name the argument and, in a file, the line. The command is split
into arguments once, and placeholders are replaced for each trial. No shell interprets the command.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import math
import random
import re
import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from vmselect._checks import (
    check_choice,
    check_count,
    check_flag,
    check_host,
    check_mapping,
    check_name,
    check_number,
    check_path,
    is_number,
    list_items,
    several,
    show,
    suggest_fields,
)
from vmselect._io import has_file, read_text, write_text
from vmselect.errors import ArgumentError, CatalogError, PlanError
from vmselect.units import cost_usd, format_count, list_some

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.catalog import Catalog

Level = str | int | float | bool
Factors = dict[str, Level]
Where = tuple[str | int, ...]
Rule = dict[str, Level | list[Level]]
Value = TypeVar("Value")

RUNNERS = ("local", "ssh", "slurm", "skypilot")
CLOUDS = ("aws", "azure", "gcp")
"""Providers that have the same name in SkyPilot and in the catalog."""

REPETITION = "repetition"
LIMITS = ("cores", "memory_gib")
"""Factors that limit what a trial may use of its machine, as the properties of a machine with these names do."""
# A placeholder in the code of a shell would let a level of a factor be executed.
SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "fish"}
MAX_TRIALS = 100_000  # more is a slip in the levels: at a minute each, they would take ten weeks
MAX_MINUTES = 7 * 24 * 60.0
"""Largest time limit of a trial, in minutes. A probe takes minutes, so more than a week is a typing error."""

SHOWN = 10  # names listed in a message
_MAX_LENGTH = 4096
_MAX_FILE_BYTES = 1 << 20
_MAX_FILE_VALUES = 200_000
_MAX_FILE_DEPTH = 8
# Who writes one of these expects a shell, but the command starts without one.
_OPERATORS = "|&;<>`"
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_FACTOR = re.compile(r"[A-Za-z_]\w{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
# Names of variables that usually hold a credential. Their values must not be stored with the results.
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL|PRIVATE|ACCESS_?KEY", re.IGNORECASE)


@dataclass(frozen=True)
class Machine:
    """A machine of a plan, or a type of machine to rent.

    ``options`` are properties that only one runner supports, such as a Slurm partition.
    """

    name: str
    cores: int | None = None
    memory_gib: float | None = None
    threads: int | None = None
    hosts: tuple[str, ...] = ()
    python: str = "python3"
    instance_type: str | None = None
    region: str | None = None
    market: str | None = None
    usd_per_hour: float | None = None
    options: Mapping[str, str | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """One command with one combination of levels of the factors, to run on one machine. ``id`` is a number as text."""

    id: str
    factors: Mapping[str, Level]
    arguments: tuple[str, ...]
    machine: Machine
    repetition: int = 1
    block: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The command of the trial as one line of text, quoted as for a shell."""
        return shlex.join(self.arguments)

    @property
    def instance_type(self) -> str | None:
        """Instance type of the machine, or its name if it has none."""
        named = self.factors.get("instance_type", self.machine.instance_type or self.machine.name)
        return str(named) if named else None

    @property
    def region(self) -> str | None:
        """Region in which to rent the machine; None if the plan names no region."""
        return str(self.factors["region"]) if "region" in self.factors else self.machine.region

    @property
    def market(self) -> str:
        """Market in which to rent the machine, such as "spot"."""
        return str(self.factors.get("market", self.machine.market or "on_demand"))

    @property
    def offer(self) -> str:
        """Machine, instance type, region and market as one text; they determine the price of a node."""
        return "|".join(part or "" for part in (self.machine.name, self.instance_type, self.region, self.market))

    @property
    def nodes(self) -> int:
        """Number of machines on which the trial runs."""
        return int(self.factors.get("nodes", 1))

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that every runner sets for the command."""
        variables = {f"VMSELECT_FACTOR_{name.upper()}": str(level) for name, level in self.factors.items()}
        variables |= {"VMSELECT_FACTORS": json.dumps(dict(self.factors)), "VMSELECT_TRIAL": self.id}
        places = {"VMSELECT_INSTANCE_TYPE": self.instance_type, "VMSELECT_REGION": self.region, **self.environment}
        return variables | {name: value for name, value in places.items() if value is not None}


@suggest_fields
class Plan:
    """A command, the factors to vary, the machines, the number of repetitions, and the time limit per trial.

    ``factors`` maps names to lists of levels. Every combination of levels is a trial, except combinations that match a
    rule in ``exclude``. If ``include`` is given, only combinations that match one of its rules are trials. ``{name}``
    in the command is replaced by the level of the factor ``name``, which is also in the environment variable
    ``VMSELECT_FACTOR_<NAME>``. The factors ``machine``, ``instance_type``, ``region``, ``market`` and ``nodes``
    determine where a trial runs; ``cores`` and ``memory_gib`` limit what it may use there. Trials with equal levels of
    the factors in ``blocks`` form a block and run one after another. The order of the blocks, and of the trials in each
    block, is shuffled with ``seed``. ``minutes`` is the time limit of a trial, and ``expected_minutes`` its expected
    duration, for estimates of the cost. The runner ``local`` accepts cloud instance types only with ``stand_ins=True``:
    this computer then stands in for them, which means that its times are recorded under their names. Nothing is rented.

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
        factors: Mapping[str, object] | None = None,
        machines: Mapping[str, object] | None = None,
        repetitions: int = 1,
        minutes: float = 10.0,
        expected_minutes: float | None = None,
        seed: int | None = 0,
        exclude: Sequence[Mapping[str, object]] = (),
        include: Sequence[Mapping[str, object]] = (),
        blocks: str | Sequence[str] = (REPETITION,),
        environment: Mapping[str, object] | None = None,
        stand_ins: bool = False,
    ) -> None:
        self._arguments = _checked(_split_command, "command", command)
        self.command = command if isinstance(command, str) else list(command)
        self.runner = _checked(check_choice, "runner", runner, choices=RUNNERS)
        self.factors = _read_factors({} if factors is None else factors)
        self.machines = self._read_machines({} if machines is None else machines)
        self.repetitions = _checked(check_count, "repetitions", repetitions, most=10_000)
        self.minutes = _checked(check_number, "minutes", minutes, above=0, most=MAX_MINUTES)
        self.expected_minutes = None if expected_minutes is None else _checked(
            check_number, "expected_minutes", expected_minutes, above=0, most=self.minutes
        )  # fmt: skip
        self.seed = None if seed is None else _checked(check_count, "seed", seed, least=0)
        self.exclude = _read_rules("exclude", exclude, self.factors)
        self.include = _read_rules("include", include, self.factors)
        self.blocks = self._read_blocks(blocks)
        self.environment = self._read_environment({} if environment is None else environment)
        self.stand_ins = _checked(check_flag, "stand_ins", stand_ins)
        for name in _placeholders(self._arguments):
            _check_factor(name, self.factors, "The command", ("command",))
        self._check_locations()

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """The trials in the order in which they run. Their IDs number the combinations in the order of ``factors``."""
        combinations = self._combine_levels()
        turns = self._order(combinations)
        width = max(3, len(str(len(turns))))
        trials = []
        for position, repetition, block in turns:
            factors = combinations[position]
            number = (repetition - 1) * len(combinations) + position + 1
            name = str(factors["machine"]) if "machine" in factors else ""
            machine = self.machines.get(name, Machine(name, hosts=(name,) if self.runner == "ssh" else ()))
            limits: dict[str, Any] = {limit: factors[limit] for limit in LIMITS if limit in factors}
            machine = replace(machine, **limits) if limits else machine
            arguments = tuple(_fill(part, factors) for part in self._arguments)
            environment = {k: None if v is None else _fill(v, factors) for k, v in self.environment.items()}
            trials.append(Trial(f"{number:0{width}d}", factors, arguments, machine, repetition, block, environment))
        return tuple(trials)

    @property
    def ending_seconds(self) -> float:
        """Paid seconds after the time limit, in which records are fetched and the rented machine is terminated."""
        return 300.0 if self.runner == "skypilot" else 0.0

    @property
    def paid_seconds(self) -> float:
        """Largest number of paid seconds of a trial."""
        return 60 * self.minutes + self.ending_seconds

    def worst_usd(self, usd_per_hour: float) -> float:
        """Return the worst-case cost in USD of a trial at the price ``usd_per_hour``."""
        return cost_usd(self.paid_seconds, usd_per_hour)

    def estimated_usd(self, usd_per_hour: float) -> float:
        """Return the cost in USD of a trial of the expected duration at the price ``usd_per_hour``."""
        return cost_usd(60 * (self.expected_minutes or self.minutes), usd_per_hour)

    def to_frame(self, catalog: Catalog | None = None) -> pd.DataFrame:
        """Return a table of the trials in the order in which they run, with price, estimated and worst-case cost.

        >>> from vmselect import Catalog
        >>> plan = Plan("python train.py", factors={"instance_type": ["g4dn.xlarge"]}, minutes=30)
        >>> float(plan.to_frame(Catalog.embedded("2026-08-22"))["worst_usd"][0])
        0.263
        """
        return self.tabulate(self.trials, self.prices(catalog))

    def tabulate(self, trials: Sequence[Trial], prices: Mapping[str, float]) -> pd.DataFrame:
        """Return the table of :meth:`to_frame` for these ``trials``. ``prices`` maps their IDs to USD per hour."""
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

    @property
    def location(self) -> str:
        """Where the trials run, as text for messages."""
        if self.runner == "local":
            note = ", as a substitute for the instance types of the plan; nothing is rented" if self.stand_ins else ""
            return f"on this computer{note}"
        if self.runner == "ssh":
            hosts = sorted({host for trial in self.trials for host in trial.machine.hosts})
            return f"over ssh on {list_some(hosts, SHOWN)}"
        return "as Slurm jobs" if self.runner == "slurm" else "on machines that SkyPilot rents"

    def check_stand_ins(self, catalog: Catalog | None = None) -> None:
        """Raise an error if a trial on this computer has a cloud instance type and ``stand_ins`` is False.

        Cloud instance types are those of the default catalog, and those of ``catalog`` that a cloud sells. A machine of
        any other provider in ``catalog``, such as one in a price file of the user, may be this computer.
        """
        from vmselect.catalog import Catalog

        if self.runner != "local" or self.stand_ins:
            return
        default = Catalog.default()
        for name in sorted({trial.instance_type for trial in self.trials if trial.instance_type}):
            sellers = _sellers(name, catalog) if catalog is not None else set()
            if _sellers(name, default) or not sellers.isdisjoint(CLOUDS):
                raise PlanError(
                    f"{name} is a cloud instance type, but this plan runs on this computer. Set 'runner' to skypilot "
                    "or ssh, or set 'stand_ins' to true to record the times of this computer under that name.",
                    ("runner",),
                )

    def prices(self, catalog: Catalog | None = None) -> dict[str, float]:
        """Map the ID of each trial to the USD per hour of all its nodes; 0 for machines without a price."""
        quotes = self._quotes(catalog)
        return {trial.id: quotes[trial.offer][0] * trial.nodes for trial in self.trials}

    def locations(self, catalog: Catalog | None = None) -> dict[str, str]:
        """Map each ``Trial.offer`` to the cloud and region of its price, as in ``aws/us-east-1``; only for SkyPilot."""
        quotes = self._quotes(catalog, PlanError) if self.runner == "skypilot" else {}
        return {offer: location for offer, (_, location) in quotes.items() if location}

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments of the constructor as a dictionary, without empty values."""
        arguments: dict[str, Any] = {name: getattr(self, name) for name in inspect.signature(Plan).parameters}
        arguments["factors"] = {name: list(levels) for name, levels in self.factors.items()}
        arguments["machines"] = self._given_machines
        arguments |= {name: list(arguments[name]) for name in ("exclude", "include", "blocks")}
        kept = {"seed", "blocks"}  # None and empty have a meaning there
        arguments["stand_ins"] = self.stand_ins or None  # plans of earlier versions keep their fingerprint
        return {name: value for name, value in arguments.items() if name in kept or value not in (None, {}, [])}

    @property
    def fingerprint(self) -> str:
        """A hash of the plan; equal plans have equal hashes."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def save(self, path: str | Path) -> Path:
        """Write the plan as a YAML file for :meth:`load`. Raise an error if ``path`` is a file that is not a plan."""
        target = check_path("path", path)
        if has_file(target) and target.stat().st_size:
            try:
                Plan.load(target)
            except PlanError:
                raise PlanError(
                    f"{target} exists and is not a plan, so it is not overwritten. Choose another path."
                ) from None
        return write_text(target, as_yaml(self.to_dict()), error=PlanError)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan from a YAML file whose keys are the arguments of this class. Errors contain the line number."""
        path = check_path("path", path)
        text = read_text(path, noun="plan", limit=_MAX_FILE_BYTES, error=PlanError)
        root: yaml.Node | None = None
        try:
            loader = _Loader(text)
            root = loader.get_single_node()
            if root is None or _count_values(root) > _MAX_FILE_VALUES:
                raise PlanError("the file is empty, too large or too deeply nested. Write at least the key 'command'.")
            content = loader.construct_document(root)
            if not isinstance(content, dict) or "command" not in content:
                raise PlanError("the key 'command' is missing. Set it to the command to run.")
            names = list(inspect.signature(Plan).parameters)
            for name in content:
                if name not in names:
                    raise PlanError(f"unknown key {show(name)}. {_suggest(name, names)}", (name,))
            return cls(**content)
        except (yaml.YAMLError, RecursionError, ValueError) as bad:
            where, mark = getattr(bad, "where", ()), getattr(bad, "problem_mark", None)
            line = mark.line + 1 if mark else _find_line(root, where)
            problem = bad if isinstance(bad, PlanError) else f"{getattr(bad, 'problem', '') or 'not YAML'}. Correct it."
            raise PlanError(f"{path}{f' line {line}' if line else ''}: {problem}", where) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<Plan: {format_count(len(self.trials), 'trial')} of {show(self.command)} with runner {self.runner}>"

    def _combine_levels(self) -> list[Factors]:
        levels = self.factors.values()
        if (size := math.prod(map(len, levels))) > MAX_TRIALS:
            raise PlanError(
                f"The factors have {size:,} combinations, more than {MAX_TRIALS:,}. Remove levels.", ("factors",)
            )
        combined = [dict(zip(self.factors, chosen, strict=True)) for chosen in itertools.product(*levels)]
        excluded, included = _matcher(self.exclude, self.factors), _matcher(self.include, self.factors)
        kept = [
            factors for factors in combined if not excluded(factors) and (not self.include or included(factors))
        ]  # fmt: skip
        if not kept:
            raise PlanError("'exclude' and 'include' leave no trial to run. Change their rules.", ("exclude",))
        if (size := len(kept) * self.repetitions) > MAX_TRIALS:
            raise PlanError(
                f"The plan has {size:,} trials, more than {MAX_TRIALS:,}. Lower 'repetitions'.", ("repetitions",)
            )
        return kept

    def _order(self, combinations: Sequence[Factors]) -> list[tuple[int, int, str]]:
        """Return position in ``combinations``, repetition and block of each trial, in the order in which they run."""
        grouped: dict[tuple[Level, ...], list[tuple[int, int, str]]] = {}
        for repetition in range(1, self.repetitions + 1):
            for position, factors in enumerate(combinations):
                levels = {**factors, REPETITION: repetition}
                key = tuple(levels[name] for name in self.blocks)
                name = ", ".join(f"{b} {level}" for b, level in zip(self.blocks, key, strict=True))
                grouped.setdefault(key, []).append((position, repetition, name))
        groups = list(grouped.values())
        # In random order, a drift of the machine (heat, neighbours) does not look like the effect of a factor.
        if self.seed is not None:
            generator = random.Random(self.seed)
            generator.shuffle(groups)
            for group in groups:
                generator.shuffle(group)
        return [trial for group in groups for trial in group]

    def _read_machines(self, properties_by_name: object) -> dict[str, Machine]:
        named = _checked(check_mapping, "machines", properties_by_name)
        machines = {name: _read_machine(name, properties, self.runner) for name, properties in named.items()}
        self._given_machines = {name: dict(properties or {}) for name, properties in named.items()}
        levels = [str(level) for level in self.factors.get("machine", ())]
        for level in levels:
            if machines and level not in machines:
                listed = list_some(list(machines), SHOWN)
                raise PlanError(
                    f"'machines' does not contain {show(level)}, but only {listed}. Add it to 'machines'.",
                    ("factors", "machine"),
                )
        used = frozenset(levels)
        if unused := [name for name in machines if name not in used]:
            raise PlanError(
                f"'machines' contains {list_some(unused, SHOWN)}, which no trial uses. Add it to the levels of the "
                "factor 'machine'.",
                ("machines", unused[0]),
            )
        return machines

    def _read_blocks(self, blocks: object) -> tuple[str, ...]:
        if blocks is None or not list_items(blocks):
            return ()
        names = _checked(lambda name, value: several(check_name, name, value), "blocks", blocks)
        for name in names:
            _check_factor(name, {**self.factors, REPETITION: ()}, "blocks", ("blocks",))
        return names

    def _read_environment(self, environment: object) -> dict[str, str | None]:
        variables: dict[str, str | None] = {}
        for name, value in _checked(check_mapping, "environment", environment).items():
            where = ("environment", name)
            if not _VARIABLE.fullmatch(name) or name.startswith("VMSELECT_"):
                raise PlanError(
                    f"{show(name)} is not an allowed name of an environment variable. Use letters, digits and _, and "
                    "do not begin with VMSELECT_.",
                    where,
                )
            if value is not None and _SECRET.search(name):
                raise PlanError(
                    f"{name} appears to be a secret, and the plan is stored with its results. Leave its value empty "
                    f"and set the environment variable {name}, whose value is used but not stored.",
                    where,
                )
            variables[name] = None if value is None else _as_text(_read_level(f"environment: {name}", value, where))
            for factor in _placeholders([variables[name] or ""]):
                _check_factor(factor, self.factors, "environment", where)
        return variables

    def _check_locations(self) -> None:
        for level in self.factors.get("nodes", ()):
            _checked(check_count, "nodes", level, where=("factors", "nodes"), most=1024)
        for name in LIMITS:
            for level in self.factors.get(name, ()):
                _checked(_PROPERTIES[name], f"factor {name}", level, where=("factors", name))
        named = all("instance_type" in trial.factors or trial.machine.instance_type for trial in self.trials)
        if self.runner == "skypilot" and not named:
            raise PlanError("The runner skypilot needs the factor 'instance_type': the types to rent.", ("factors",))
        if self.runner == "ssh" and "machine" not in self.factors:
            raise PlanError("The runner ssh needs the factor 'machine': the names of the hosts.", ("factors",))
        for level in self.factors["machine"] if self.runner == "ssh" and not self.machines else ():
            _checked(check_host, "factor machine: level", str(level), where=("factors", "machine"))

    def _quotes(self, catalog: Catalog | None, *ignored: type[Exception]) -> dict[str, tuple[float, str]]:
        from vmselect.catalog import Catalog

        catalog = Catalog.default() if catalog is None else catalog
        quotes = {}
        for offer, trial in {trial.offer: trial for trial in self.trials}.items():
            with suppress(*ignored):
                quotes[offer] = self._quote(trial, catalog)
        return quotes

    def _quote(self, trial: Trial, catalog: Catalog) -> tuple[float, str]:
        """Return the USD per hour of one node, and its cloud and region as text ("" if they are unknown)."""
        from vmselect.catalog.catalog import explain_flaw

        machine, name = trial.machine, trial.instance_type
        if machine.usd_per_hour is not None or name is None:
            return machine.usd_per_hour or 0.0, ""
        if "accelerators" in machine.options:
            raise PlanError(
                f"Trial {trial.id} attaches accelerators to {name}, and the catalog has no price for this combination. "
                f"Set 'usd_per_hour' of the machine {machine.name}, or use a type such as n1-standard-4+1xT4.",
                ("machines", machine.name),
            )
        # SkyPilot accepts cloud and region in one text, aws/us-east-1.
        cloud, _, region = str(machine.options.get("cloud", "")).lower().partition("/")
        try:
            offer = catalog.offer(name, region=trial.region or region or None, market=trial.market,
                                  provider=cloud if cloud in CLOUDS else None)  # fmt: skip
        except CatalogError as unknown:
            if "instance_type" not in trial.factors and machine.instance_type is None:
                return 0.0, ""  # not rented
            raise PlanError(f"Trial {trial.id} has no price: {unknown}", ("factors", "instance_type")) from None
        # A price of half of the true one would let the sweep spend twice its budget.
        if flaw := explain_flaw(offer, catalog, stale=False):
            raise PlanError(
                f"The price of trial {trial.id} ({name}, {offer.region}) cannot be relied on: {flaw}. Set "
                "'usd_per_hour' of its machine, pass your own price in a catalog, or run `vmselect prices refresh`.",
                ("factors", "instance_type"),
            )
        same_names = offer.provider in CLOUDS and (not cloud or cloud in CLOUDS)
        return float(offer.usd_per_hour), f"{offer.provider}/{offer.region}" if same_names else ""


def _sellers(name: str, catalog: Catalog) -> set[str]:
    """Return the providers that have an offer of the instance type ``name`` in ``catalog``, in any market."""
    try:
        return set(catalog.offers(instance_type=name, market=None)["provider"].astype(str))
    except CatalogError:  # no offer
        return set()


def check_scripts(trials: Iterable[Trial], folder: Path) -> None:
    """Raise an error if the script in the command of a trial is not in ``folder``, in which the command will run."""
    for trial in trials:
        before = itertools.takewhile(lambda argument: argument not in ("-m", "-c"), trial.arguments)
        scripts = (part for part in before if part.endswith((".py", ".sh")) and not part.startswith("-"))
        if (script := next(scripts, None)) and not has_file(folder / script):
            raise PlanError(
                f"The script {script} is not in {folder}, or cannot be read. Start the sweep in the script's folder."
            )


def as_yaml(values: Mapping[str, object]) -> str:
    """Return ``values`` as YAML text, in the given order."""
    return str(
        yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    )


def _checked(check: Callable[..., Value], name: str, value: object, *, where: Where = (), **bounds: Any) -> Value:
    try:
        return check(name, value, **bounds)
    except ArgumentError as bad:
        raise PlanError(str(bad), where or (name,)) from None


def _suggest(name: object, names: Iterable[str]) -> str:
    near = get_close_matches(str(name), list(names), n=1)
    return f"Did you mean {near[0]}?" if near else f"Choose one of: {', '.join(names)}."


def _split_command(_name: str, command: object) -> tuple[str, ...]:
    if isinstance(command, str):
        unquoted = re.sub(r"""'[^']*('|\Z)|"[^"]*("|\Z)""", "''", command)
        if sign := re.search(rf"[{_OPERATORS}\n\r]|\$(?=[A-Za-z_({{])", unquoted):
            raise PlanError(
                f"The command contains {sign[0]!r}, which has a meaning only in a shell, but no shell runs the "
                f"command. Quote {sign[0]!r} if it is part of an argument, or put the command into a script."
            )
        try:
            arguments = tuple(shlex.split(command))
        except ValueError as unfinished:
            raise PlanError(
                f"The command {show(command)} cannot be split into arguments: {unfinished}. Close all quotes."
            ) from None
    elif isinstance(command, Sequence) and all(isinstance(part, str) for part in command):
        arguments = tuple(command)
    else:
        raise PlanError(f"The command must be a string or a list of strings, not {show(command)}.")
    if not arguments or not arguments[0].strip():
        raise PlanError("The command is empty. Set it to the command that trains, such as 'python train.py'.")
    for argument in arguments:
        if "\0" in argument or len(argument) > _MAX_LENGTH:
            raise PlanError(f"The argument {show(argument)} is too long or contains a NUL. Put the text into a file.")
    shell = PurePath(arguments[0]).name in SHELLS
    for option, text in itertools.pairwise(arguments):
        if shell and re.fullmatch(r"-\w*c", option) and (named := _placeholders([text])):
            raise PlanError(
                f"The placeholder {{{named[0]}}} is in code that the shell {arguments[0]} would execute. "
                f'Write "$VMSELECT_FACTOR_{named[0].upper()}" there instead, in double quotes.'
            )
    return arguments


def _placeholders(texts: Iterable[str]) -> list[str]:
    return [name for text in texts for name in _PLACEHOLDER.findall(text)]


def _fill(text: str, factors: Mapping[str, Level]) -> str:
    return _PLACEHOLDER.sub(lambda placeholder: _as_text(factors[placeholder[1]]), text)


def _as_text(level: Level) -> str:
    return str(level).lower() if isinstance(level, bool) else str(level)


def _read_factors(levels_by_name: object) -> dict[str, tuple[Level, ...]]:
    if not isinstance(levels_by_name, Mapping):
        raise PlanError(f"'factors' must map names to lists of levels, not {show(levels_by_name)}.", ("factors",))
    factors: dict[str, tuple[Level, ...]] = {}
    variables: dict[str, str] = {}
    for name, levels in levels_by_name.items():
        where = ("factors", str(name))
        if not isinstance(name, str) or not _FACTOR.fullmatch(name) or name == REPETITION:
            raise PlanError(
                f"{show(name)} cannot be the name of a factor. Use letters, digits and _, as in batch_size.", where
            )
        if (other := variables.setdefault(name.upper(), name)) != name:
            raise PlanError(
                f"The factors {other} and {name} would have the same environment variable "
                f"VMSELECT_FACTOR_{name.upper()}. Rename one of them.",
                where,
            )
        levels = [levels] if isinstance(levels, (str, bytes, Mapping)) else list_items(levels)
        factors[name] = tuple(_read_level(f"factor {name}: level", level, where) for level in levels)
        if not levels:
            raise PlanError(f"The factor {name} has no levels, so no trial can run. Add at least one level.", where)
        level, count = Counter(map(str, factors[name])).most_common(1)[0]
        if count > 1:
            raise PlanError(f"The factor {name} has the level {level} more than once. List each level once.", where)
    return factors


def _read_level(name: str, level: Any, where: Where) -> Level:
    if hasattr(level, "item") and not isinstance(level, str):
        level = level.item()  # a number of numpy
    if isinstance(level, str) and level.strip():
        return _checked(_check_text, name, level, where=where)
    if isinstance(level, bool) or (isinstance(level, (int, float)) and is_number(level)):
        return level
    raise PlanError(f"{name} must be a string, a number or a bool, not {show(level)}.", where)


def _check_text(name: str, text: str) -> str:
    control = "" if text.isprintable() else "a control character"
    bad = next((mark for mark in ("$(", "${", *_OPERATORS) if mark in text), control)
    if bad or len(text) > _MAX_LENGTH:
        raise PlanError(
            f"{name} {show(text)} contains {bad or 'too many characters'}, which is not allowed. Put the text into a "
            "file, and pass the name of the file."
        )
    return text


def _read_rules(name: str, listed_rules: object, factors: Mapping[str, tuple[Level, ...]]) -> tuple[Rule, ...]:
    """Check and return the rules of ``exclude`` or ``include``.

    A rule such as ``{"machine": "small", "batch_size": [128, 256]}`` matches if all of its factors match.
    """
    if isinstance(listed_rules, Mapping):
        listed_rules = [listed_rules]
    if not isinstance(listed_rules, Sequence) or isinstance(listed_rules, (str, bytes)):
        raise PlanError(f"'{name}' must be a list of rules, not {show(listed_rules)}.", (name,))
    rules: list[Rule] = []
    levels_of = {factor: frozenset(levels) for factor, levels in factors.items()}
    for position, rule in enumerate(listed_rules):
        where: Where = (name, position)
        if not isinstance(rule, Mapping) or not rule:
            raise PlanError(f"A rule in '{name}' must map factors to levels, not {show(rule)}.", where)
        read: Rule = {}
        for factor, levels in rule.items():
            _check_factor(factor, factors, f"A rule in '{name}'", (*where, str(factor)))
            listed = isinstance(levels, Sequence) and not isinstance(levels, str)
            plain = [_read_level(f"{name}: {factor}", level, where) for level in (levels if listed else [levels])]
            for level in plain:
                if level not in levels_of[factor]:
                    listed_levels = list_some(factors[factor], SHOWN)
                    raise PlanError(
                        f"A rule in '{name}' has the unknown {factor} {show(level)}. Choose one of: {listed_levels}.",
                        where,
                    )
            read[factor] = plain if listed else plain[0]
        rules.append(read)
    return tuple(rules)


def _check_factor(name: object, factors: Mapping[str, object], place: str, where: Where) -> None:
    if name not in factors:
        names = ", ".join(factors) or "none"
        raise PlanError(f"{place} contains {show(name)}, which is not a factor. The factors are: {names}.", where)


def _matcher(rules: Sequence[Rule], factors: Mapping[str, tuple[Level, ...]]) -> Callable[[Factors], bool]:
    """Return a function that checks whether a combination of levels matches one of ``rules``.

    The function is fast even with thousands of rules.
    """
    index: dict[str, dict[Level, list[dict[str, frozenset[Level]]]]] = {}
    for rule in rules:
        sets = {name: frozenset(levels if isinstance(levels, list) else [levels]) for name, levels in rule.items()}
        key = max(sets, key=lambda name: len(factors[name]))
        for level in sets[key]:
            index.setdefault(key, {}).setdefault(level, []).append(sets)

    def matches(chosen: Factors) -> bool:
        return any(
            all(chosen[name] in levels for name, levels in rule.items())
            for key, by_level in index.items()
            for rule in by_level.get(chosen[key], ())
        )

    return matches


def _read_text(name: str, value: object) -> str:
    return _check_text(name, check_name(name, value))


def _read_program(name: str, value: object) -> str:
    text = _read_text(name, value)
    if text.startswith("-"):  # srun would take it for an option
        raise PlanError(f"{name} {show(text)} is not the name of a program. Write the name or the path of a program.")
    return text


_PROPERTIES: dict[str, Callable[[str, Any], Any]] = {
    "cores": lambda name, value: check_count(name, value, most=4096),
    "memory_gib": lambda name, value: check_number(name, value, least=0.0625, most=65536),
    "threads": lambda name, value: check_count(name, value, most=65536),
    "instance_type": _read_text,
    "region": _read_text,
    "market": _read_text,
    "usd_per_hour": lambda name, value: check_number(name, value, least=0, most=100_000),
}
_SSH_PROPERTIES: dict[str, Callable[[str, Any], Any]] = {
    "hosts": lambda name, value: several(check_host, name, value),
    "host": lambda name, value: (check_host(name, value),),
    "python": _read_program,
}
_OPTIONS: dict[str, tuple[str, ...]] = {
    "slurm": ("partition", "account", "qos", "constraint", "gres", "gpus", "mem", "nodelist", "exclusive"),
    "skypilot": ("cloud", "image_id", "disk_size", "accelerators"),
}


def _read_machine(name: str, properties: object, runner: str) -> Machine:
    where = ("machines", name)
    if properties is not None and not isinstance(properties, Mapping):
        raise PlanError(f"machines: {name} must map properties to values, not {show(properties)}.", where)
    _checked(_check_text, "machine", name, where=where)
    options = _OPTIONS.get(runner, ())
    checks = _PROPERTIES | (
        _SSH_PROPERTIES if runner == "ssh" else {"python": _read_program} if runner == "slurm" else {}
    )
    checks |= {option: lambda name, value: _read_text(name, str(value)) for option in options}
    checks |= {"exclusive": check_flag} if "exclusive" in options else {}
    values: dict[str, Any] = {}
    for key, value in (properties or {}).items():
        label = f"machines: {name}: {key}"
        if key not in checks:
            raise PlanError(f"{label} is an unknown property. {_suggest(key, checks)}", (*where, str(key)))
        values["hosts" if key == "host" else key] = _checked(checks[key], label, value, where=where)
    if runner == "ssh" and "hosts" not in values:
        values["hosts"] = (_checked(check_host, f"machines: {name}: its name", name, where=where),)
    chosen = {key: values.pop(key) for key in list(values) if key in options}
    return Machine(name=name, options=chosen, **values)


class _Loader(yaml.SafeLoader):
    """YAML loader that reads 1e-3 as a number and dates as text. It rejects duplicate keys and keys other than text."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node. Fail at the depth limit, because the time of PyYAML is quadratic in the depth."""
        self._depth += 1
        if self._depth > _MAX_FILE_DEPTH + 1:
            problem = f"the values are nested more than {_MAX_FILE_DEPTH} levels deep"
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, problem, mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str) or key in seen:
                problem = f"the key {key} occurs twice" if isinstance(key, str) else f"{show(key)} is not a string"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes strings which :class:`_Loader` would read as numbers."""


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("+-.0123456789")
    )
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)


def _count_values(node: yaml.Node, level: int = 0) -> int:
    """Return the number of values in ``node``, counting aliases each time.

    If ``node`` is nested too deeply, return a number above the limit.
    """
    if level > _MAX_FILE_DEPTH:
        return _MAX_FILE_VALUES + 1
    count = 1
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        count += _count_values(child[1] if isinstance(child, tuple) else child, level + 1)
        if count > _MAX_FILE_VALUES:
            break
    return count


def _find_line(node: yaml.Node | None, where: Where) -> int | None:
    """Return the line of the key or list item to which the keys ``where`` lead, or of its innermost existing parent."""
    line = None
    for step in where:
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
            line = node.start_mark.line + 1
            continue
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        key, node = next((pair for pair in pairs if pair[0].value == str(step)), (None, None))
        line = key.start_mark.line + 1 if key else line
    return line
