"""The plan of a sweep: which trials run where, in which order, and what they may cost at most."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_choice, check_count, check_mapping, check_name, check_number, maybe, several, show
from vmselect.errors import ArgumentError, CatalogError, PlanError
from vmselect.sweeps import design
from vmselect.sweeps.command import as_text, check_text, fill, placeholders, split_command
from vmselect.sweeps.design import Level
from vmselect.sweeps.machines import ENDING_SECONDS, MOST_NODES, RUNNERS, Machine, read_machine
from vmselect.units import cost_usd

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.catalog import Catalog, Offer

MOST_MINUTES = 7 * 24 * 60.0
"""A probe takes minutes; a cap of more than a week is a slip of the pen."""

CLOUDS = ("aws", "azure", "gcp")
"""Providers that SkyPilot calls as the catalog does."""

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
        """The command as one would type it."""
        return shlex.join(self.arguments)

    @property
    def instance_type(self) -> str | None:
        """What the record will call the machine."""
        named = self.factors.get("instance_type", self.machine.instance_type or self.machine.name)
        return str(named) if named else None

    @property
    def region(self) -> str | None:
        """The region that was planned."""
        return str(self.factors["region"]) if "region" in self.factors else self.machine.region

    @property
    def market(self) -> str:
        """The market that was planned."""
        return str(self.factors.get("market", self.machine.market or "on_demand"))

    @property
    def offer(self) -> str:
        """The same for trials on machines of one price."""
        said = (self.machine.name, self.instance_type, self.region, self.market)
        return "|".join("" if one is None else one for one in said)

    @property
    def nodes(self) -> int:
        """How many machines take part."""
        return int(self.factors.get("nodes", 1))


class Plan:
    """Which command runs with which factors, where, how often and how long at most.

    ``factors`` maps names to levels; every combination is a trial, less those that a rule in ``exclude`` fits, and only
    those that a rule in ``include`` fits. ``{name}`` in the command stands for a level; every level is also in the
    command's environment as ``VMSELECT_FACTOR_<NAME>``. The factors ``machine``, ``instance_type``, ``region``,
    ``market`` and ``nodes`` say where a trial runs. Trials run in an order shuffled by ``seed`` within ``blocks``.

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
        blocks: str | Sequence[str] = (design.REPETITION,),
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        with _placed("command"):
            self._arguments = split_command(command)
        self.command = command if isinstance(command, str) else list(command)
        with _placed("runner"):
            self.runner = check_choice("runner", runner, RUNNERS)
        self.factors = design.read_factors({} if factors is None else factors)
        self.machines = self._read_machines({} if machines is None else machines)
        with _placed("repetitions"):
            self.repetitions = check_count("repetitions", repetitions, most=10_000)
        with _placed("minutes"):
            self.minutes = check_number("minutes", minutes, above=0, most=MOST_MINUTES)
        with _placed("expected_minutes"):
            self.expected_minutes = maybe(
                check_number, "expected_minutes", expected_minutes, above=0, most=self.minutes
            )
        with _placed("seed"):
            self.seed = maybe(check_count, "seed", seed, least=0)
        self.exclude = design.read_rules("exclude", exclude, self.factors)
        self.include = design.read_rules("include", include, self.factors)
        self.blocks = self._read_blocks(blocks)
        self.environment = self._read_environment({} if environment is None else environment)
        self._check_placeholders()
        self._check_places()
        self.trials  # noqa: B018  # a plan without trials should fail here

    # -- what it says

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """The trials in the order in which they are to run; their numbers count combinations in written order."""
        combinations = design.cross(self.factors, exclude=self.exclude, include=self.include)
        turns = design.order(combinations, repetitions=self.repetitions, blocks=self.blocks, seed=self.seed)
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
        """What ending a trial may take beyond ``minutes``, and is paid for where machines are rented."""
        return ENDING_SECONDS.get(self.runner, 0.0)

    def worst_usd(self, usd_per_hour: float) -> float:
        """The most that a trial may cost at this price."""
        return cost_usd(60 * self.minutes + self.ending_seconds, usd_per_hour)

    def estimated_usd(self, usd_per_hour: float) -> float:
        """What a trial costs at this price if it takes as long as is expected."""
        return cost_usd(60 * (self.expected_minutes or self.minutes), usd_per_hour)

    def to_frame(self, catalog: Catalog | None = None) -> pd.DataFrame:
        """A row per trial in the order in which they run, with its price per hour, estimated and worst-case cost.

        >>> from vmselect import Catalog
        >>> plan = Plan("python train.py", factors={"instance_type": ["g4dn.xlarge"]}, minutes=30)
        >>> float(plan.to_frame(Catalog.embedded("2026-08-22"))["worst_usd"][0])
        0.263
        """
        import pandas as pd

        prices = self.prices(catalog)
        rows = [
            {
                "trial": trial.id, **trial.factors, "repetition": trial.repetition, "block": trial.block,
                "instance_type": trial.instance_type, "nodes": trial.nodes, "usd_per_hour": prices[trial.id],
                "estimated_usd": self.estimated_usd(prices[trial.id]),
                "worst_usd": self.worst_usd(prices[trial.id]), "command": trial.command,
            }
            for trial in self.trials
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def prices(self, catalog: Catalog | None = None) -> dict[str, float]:
        """Trial to USD per hour of all its nodes; a machine of one's own without a price costs nothing."""
        if catalog is None:
            from vmselect.catalog import Catalog

            catalog = Catalog.default()
        seen: dict[str, float] = {}
        prices = {}
        for trial in self.trials:
            if (key := trial.offer) not in seen:
                seen[key] = self._price(trial, catalog)
            prices[trial.id] = seen[key] * trial.nodes
        return prices

    def places(self, catalog: Catalog | None = None) -> dict[str, str]:
        """What is rented to the place whose price was taken, as SkyPilot names it: ``aws/us-east-1``.

        >>> Plan("python t.py", runner="skypilot", factors={"instance_type": ["g5.xlarge"]}).places()
        {'|g5.xlarge||on_demand': 'aws/us-east-1'}
        """
        if self.runner != "skypilot":
            return {}
        if catalog is None:
            from vmselect.catalog import Catalog

            catalog = Catalog.default()
        places = {}
        for trial in {trial.offer: trial for trial in self.trials}.values():
            cloud = str(trial.machine.options.get("cloud", "")).lower().partition("/")[0]
            if trial.machine.usd_per_hour is not None or (cloud and cloud not in CLOUDS):
                continue  # whoever names a price, or another cloud, says where that is
            with suppress(CatalogError):
                offer = self._offer(trial, catalog)
                if offer.provider in CLOUDS:
                    places[trial.offer] = f"{offer.provider}/{offer.region}"
        return places

    def to_dict(self) -> dict[str, Any]:
        """The plan in the words of its constructor, less what was left at its default."""
        said: dict[str, Any] = {
            "command": self.command, "runner": self.runner,
            "factors": {name: list(levels) for name, levels in self.factors.items()},
            "machines": self._machines_said, "repetitions": self.repetitions, "minutes": self.minutes,
            "expected_minutes": self.expected_minutes, "seed": self.seed,
            "exclude": [dict(rule) for rule in self.exclude], "include": [dict(rule) for rule in self.include],
            "blocks": list(self.blocks), "environment": dict(self.environment),
        }  # fmt: skip
        kept = {"seed", "blocks"}  # None and empty mean something there
        return {word: value for word, value in said.items() if word in kept or value not in (None, {}, [])}

    @property
    def fingerprint(self) -> str:
        """The same for plans that say the same."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def save(self, path: str | Path) -> Path:
        """Write the plan as YAML, which :meth:`load` reads back."""
        from vmselect.sweeps.plan_file import write_plan

        return write_plan(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan from a YAML file whose keys are the words of this class; errors name the line.

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

    # -- reading what was given

    def _read_machines(self, given: Any) -> dict[str, Machine]:
        with _placed("machines"):
            named = check_mapping("machines", given)
        machines = {}
        for name, facts in named.items():
            with _placed("machines", name):
                check_text("machine", name)
                machines[name] = read_machine(name, facts, runner=self.runner)
        self._machines_said = {name: dict(facts or {}) for name, facts in named.items()}
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
        with _placed("blocks"):
            names = several(check_name, "blocks", given)
        for name in names:
            if name != design.REPETITION:
                design.check_factor(name, self.factors, "blocks", ("blocks",))
        return names

    def _read_environment(self, given: Any) -> dict[str, str | None]:
        with _placed("environment"):
            named = check_mapping("environment", given)
        said: dict[str, str | None] = {}
        for name, value in named.items():
            where = ("environment", name)
            if not _VARIABLE.fullmatch(name) or name.startswith("VMSELECT_"):
                raise PlanError(f"{show(name)} cannot name a variable of the command's environment.", where)
            if value is not None and _SECRET.search(name):
                raise PlanError(
                    f"{name} looks like a secret, and a plan is kept beside its results. Leave its value empty: "
                    "it is then taken from your own environment and not kept.",
                    where,
                )
            said[name] = None if value is None else as_text(design.read_level(f"environment: {name}", value, where))
        return said

    def _check_placeholders(self) -> None:
        for name in placeholders(self._arguments):
            design.check_factor(name, self.factors, "The command", ("command",))
        for variable, text in self.environment.items():
            for name in placeholders([text or ""]):
                design.check_factor(name, self.factors, "environment", ("environment", variable))

    def _check_places(self) -> None:
        for level in self.factors.get("nodes", ()):
            with _placed("factors", "nodes"):
                check_count("nodes", level, most=MOST_NODES)
        if self.runner == "skypilot" and not all(
            "instance_type" in t.factors or t.machine.instance_type for t in self.trials
        ):
            raise PlanError("A plan for skypilot needs the factor instance_type: what is to be rented.", ("factors",))
        if self.runner == "ssh" and "machine" not in self.factors:
            raise PlanError("A plan for ssh needs the factor machine: the hosts.", ("factors",))

    def _price(self, trial: Trial, catalog: Catalog) -> float:
        machine = trial.machine
        if machine.usd_per_hour is not None:
            return machine.usd_per_hour
        named = trial.instance_type
        if named is None:
            return 0.0
        if "accelerators" in machine.options:
            raise PlanError(
                f"Trial {trial.id} attaches accelerators to {named}, and the catalog has no price of both. Say "
                f"what it costs (machines: {machine.name}: usd_per_hour), or name a type that has them, such as "
                "n1-standard-4+1xT4.",
                ("machines", machine.name),
            )
        try:
            return float(self._offer(trial, catalog).usd_per_hour)
        except CatalogError as unknown:
            if "instance_type" not in trial.factors and machine.instance_type is None:
                return 0.0  # a machine of one's own
            raise PlanError(f"Trial {trial.id} has no price: {unknown}", ("factors", "instance_type")) from None

    def _offer(self, trial: Trial, catalog: Catalog) -> Offer:
        """The price of a trial's machine, in the cloud that it names, if it does."""
        cloud, _, region = str(trial.machine.options.get("cloud", "")).lower().partition("/")
        return catalog.offer(str(trial.instance_type), region=trial.region or region or None, market=trial.market,
                             provider=cloud if cloud in CLOUDS else None)  # fmt: skip


class _placed:  # noqa: N801  # reads as a word in a with statement
    """Says where in the plan an argument stood that could not be used."""

    def __init__(self, *where: str | int) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, PlanError):
            error.where = error.where or self.where
        elif isinstance(error, ArgumentError):
            raise PlanError(str(error), self.where) from None
