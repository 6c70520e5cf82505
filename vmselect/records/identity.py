"""What makes two records the same machine, the same training, the same setting or repetitions of each other.

| question | answer |
|---|---|
| the same record, copied? | equal ``id``: :func:`distinct` |
| repetitions of one setup? | equal :class:`Identity`: :func:`identify`, :func:`group_repetitions` |
| the same machine and factors at another batch size? | equal :attr:`Identity.machine` |
| the same model? | equal :func:`model_key` |
| the same computation on any machine? | equal :func:`work_key` |
| the same training of the same program? | equal :func:`training_key` |
| the same conditions (data, software, validation, callbacks)? | equal :data:`CONDITIONS`: :func:`check_comparable` |

Everything that groups or matches records uses these functions. An unknown value is compatible with every value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from vmselect._checks import list_items, show
from vmselect.errors import ArgumentError, EstimateError, RankingError, VmselectError
from vmselect.findings import Finding
from vmselect.records import Forecast, Profile, Record
from vmselect.records.files import KINDS
from vmselect.units import list_some

AnyRecord = TypeVar("AnyRecord", bound=Record)
Value = bool | int | float | str
"""A value of a factor or of a condition."""

Factors = tuple[tuple[str, Value], ...]
"""Names and values of varied factors, sorted by name."""

MACHINE_NAMES = frozenset({"instance_type", "machine", "provider", "region"})
"""Factors that name the machine. They change together, so grouping by one of them is like grouping by another."""

NOT_FACTORS = MACHINE_NAMES | {"market", "batch_size", "nodes"}
"""Names in ``record.factors`` that are not compared as factors: the machine, its price, or fields of a record."""


# -- repetitions -------------------------------------------------------------------------------------------------------


class Identity(NamedTuple):
    """Machine, batch size and factors of a record. Records with equal identities are repetitions."""

    instance_type: str | None
    provider: str | None
    batch_size: int | None
    workers: int
    nodes: int
    factors: Factors

    @property
    def machine(self) -> Identity:
        """The identity without its batch size: machine, nodes, workers and factors."""
        return self._replace(batch_size=None)

    @property
    def settings(self) -> dict[str, Value]:
        """Batch size if known, numbers of nodes and workers if above 1, and varied factors, by name."""
        settings: dict[str, Value] = {"batch_size": self.batch_size} if self.batch_size else {}
        settings |= {"nodes": self.nodes} if self.nodes > 1 else {}
        # Each machine has at least one worker, so only further workers are a setting of their own.
        settings |= {"workers": self.workers} if self.workers > self.nodes else {}
        return settings | dict(self.factors)

    @classmethod
    def of_settings(cls, instance_type: str | None, provider: str | None, settings: Mapping[str, Any]) -> Identity:
        """The identity with these ``settings``: the inverse of :attr:`settings`."""
        nodes = int(settings.get("nodes", 1))
        workers = max(nodes, int(settings.get("workers", 1)))
        varied = {name: value for name, value in settings.items() if name not in ("batch_size", "nodes", "workers")}
        return cls(instance_type, provider, settings.get("batch_size"), workers, nodes, _sorted_factors(varied))


def identify(profile: Profile) -> Identity:
    """Return the identity of ``profile``, by which repetitions are grouped."""
    nodes = count_nodes(profile)
    return Identity(
        profile.instance_type,
        profile.provider,
        profile.batch_size,
        max(nodes, profile.environment.workers),
        nodes,
        varied_factors(profile),
    )


def identify_forecast(forecast: Forecast) -> Identity:
    """Return the identity that the profile of a training has if the training runs as ``forecast`` assumes."""
    return Identity(
        forecast.instance_type,
        forecast.provider,
        forecast.batch_size,
        forecast.workers,
        forecast.nodes,
        _sorted_factors(forecast.factors),
    )


def other_settings(settings: Mapping[str, Value]) -> tuple[tuple[str, str], ...]:
    """All ``settings`` except the batch size, as a key that can be sorted."""
    return tuple(sorted((name, str(value)) for name, value in settings.items() if name != "batch_size"))


def varied_factors(profile: Profile) -> Factors:
    """The factors of a record that are compared as factors, sorted by name."""
    return _sorted_factors({name: value for name, value in profile.factors.items() if name not in NOT_FACTORS})


def _sorted_factors(factors: Mapping[str, Value]) -> Factors:
    return tuple(sorted(factors.items(), key=lambda item: item[0]))


def has_factors(profile: Profile) -> bool:
    """Return whether the factors of a profile are known, even if there are none. Old record formats lack factors."""
    return "factors" in profile.model_fields_set


def count_nodes(profile: Profile) -> int:
    """Return the number of machines that trained together.

    It is the factor ``nodes``, or else the number of workers divided by the workers per machine (1 if unknown).
    """
    nodes, environment = profile.factors.get("nodes"), profile.environment
    if isinstance(nodes, int | float) and nodes >= 1:
        return int(nodes)
    return math.ceil(environment.workers / (environment.workers_per_machine or 1))


def group_repetitions(profiles: Iterable[Profile]) -> dict[Identity, list[Profile]]:
    """Group ``profiles`` by identity, without duplicates. Each group is sorted from oldest to newest.

    A profile without a provider is added to the group that differs only in the provider, if there is exactly one.
    """
    groups: dict[Identity, list[Profile]] = {}
    for profile in sorted(distinct(profiles), key=lambda profile: profile.created):
        groups.setdefault(identify(profile), []).append(profile)
    # Old records and times from papers name no provider. With two candidates, either choice could be wrong.
    with_provider: dict[Identity, list[Identity]] = {}
    for identity in groups:
        if identity.provider:
            with_provider.setdefault(identity._replace(provider=None), []).append(identity)
    for identity in [identity for identity in groups if identity.provider is None]:
        if len(others := with_provider.get(identity, [])) == 1:
            together = [*groups[others[0]], *groups.pop(identity)]
            groups[others[0]] = sorted(together, key=lambda profile: profile.created)
    return groups


def distinct(records: Iterable[AnyRecord]) -> list[AnyRecord]:
    """Return ``records`` in the original order, with only the first of several records with the same id."""
    first: dict[str, AnyRecord] = {}
    for record in records:
        first.setdefault(record.id, record)
    return list(first.values())


def read_records(
    records: object, model: type[AnyRecord], *, error: type[VmselectError] | None = ArgumentError
) -> list[AnyRecord]:
    """Return ``records``, a record or an iterable of records, as a list without duplicates.

    Raise ArgumentError if an item is not an instance of ``model``. If there are no records, raise ``error``, or return
    an empty list if ``error`` is None.
    """
    noun = next((kind.noun for kind in KINDS.values() if kind.model is model), "record")
    items = [records] if isinstance(records, (Record, str, bytes)) else list_items(records)
    for item in items:
        if not isinstance(item, model):
            loader = "load_profiles" if model is Profile else "load_records"
            raise ArgumentError(f"{show(item)} is not a {noun}. Load {noun} files with vmselect.{loader}(...).")
    if not items and error is not None:
        raise error(f"There are no {noun}s. Pass at least one {noun}.")
    return distinct(items)


# -- trainings ---------------------------------------------------------------------------------------------------------


def model_key(profile: Profile) -> tuple[Hashable, ...]:
    """Key of the trained model: its name and number of parameters."""
    return profile.model, profile.setup.parameters


def work_key(profile: Profile, batch_size: int | None) -> Hashable:
    """Key of the computation of a step on any machine: model, ``batch_size``, software settings and varied factors."""
    environment, setup = profile.environment, profile.setup
    # Versions of the software are left out, so that an update does not split the history.
    software = environment.precision, environment.backend, environment.jit
    return (*model_key(profile), batch_size, *software, setup.structure, varied_factors(profile))


def training_key(profile: Profile) -> Hashable:
    """Key of the same training before and after a change of the code: model, fit of the program, and identity."""
    fit = (profile.fit.number, profile.fit.name) if profile.fit is not None else None
    return profile.setup.model, fit, identify(profile)


# -- conditions --------------------------------------------------------------------------------------------------------


class Condition(NamedTuple):
    """A property of a training that should be equal in all compared records.

    ``read`` reads it from a profile, and ``remedy`` is the advice if records differ in it. ``part`` has three values:
    "task" (what was trained; profiles that differ in it are never compared), "software" (backend, precision, jit; a
    difference is a finding) and "run" (how it was run; only repetitions must agree in it). If the user passes one of
    the arguments in ``replaced_by``, that argument replaces the property in all records, so records may differ in it.
    """

    name: str
    read: Callable[[Profile], Value | None]
    part: str
    replaced_by: frozenset[str] = frozenset()
    remedy: str = "Rank the profiles separately."


DATA = frozenset({"examples", "steps_per_epoch"})
VALIDATION = frozenset({"validation_examples"})
SCHEDULE = frozenset({"validation_freq", "validation_from", "validation_until"})


def has_validation(profile: Profile) -> bool:
    """Return whether the training has validation data, even if the probe ended before the first validation."""
    setup = profile.setup
    return bool(profile.timeline.validations or setup.validation_examples or setup.validation_steps or setup.validates)


def _task(
    name: str, field: str, replaced_by: frozenset[str] = frozenset(), remedy: str = "Rank the profiles separately."
) -> Condition:
    return Condition(name, attrgetter(f"setup.{field}"), "task", replaced_by, remedy)


def _run(name: str, field: str) -> Condition:
    remedy = f"Remove the profiles whose setup.{field} differs from that of your training."
    return Condition(name, attrgetter(f"setup.{field}"), "run", remedy=remedy)


def _read_dispatch(profile: Profile) -> str | None:
    """Return how Keras called the callbacks; None if the probe itself may have changed that, as older versions did."""
    environment = profile.environment
    return environment.dispatch if profile.probe == "epoch" or environment.step_timing else None


def _read_step_timing(profile: Profile) -> str | None:
    """Return "steps" or "blocks", whichever the probe of a training loop on a GPU has measured; None for others.

    Probes of older versions measured steps.
    """
    environment = profile.environment
    return (environment.step_timing or "steps") if profile.probe == "loop" and environment.framework_gpus else None


def _read_replicas(profile: Profile) -> int | None:
    """Return the number of replicas; None if times were given without the number of GPUs that were used."""
    unstated = profile.outcome == "given" and profile.environment.framework_gpus is None
    return None if unstated else profile.environment.replicas


CONDITIONS: tuple[Condition, ...] = (
    _task("model", "model", remedy="Choose one model with model=, or rank the models separately."),
    _task("number of parameters", "parameters"),
    _task(
        "structure of the model",
        "structure",
        remedy="Rank one fit of the program with fit=, or estimate each fit separately.",
    ),
    _task("number of training examples", "examples", DATA, "Rank the profiles separately, or pass examples=."),
    _task(
        "number of validation examples",
        "validation_examples",
        VALIDATION,
        "Rank the profiles separately, or pass validation_examples=.",
    ),
    Condition(
        "number of epochs between validations",
        lambda profile: profile.setup.validation_freq if has_validation(profile) else None,
        "task",
        SCHEDULE,
        "Probe all machines with the same validation_freq, or pass a workload with validation_freq.",
    ),
    Condition(
        "first epoch with a validation",
        lambda profile: (
            profile.setup.validation_from or profile.setup.validation_freq if has_validation(profile) else None
        ),
        "task",
        SCHEDULE,
        "Probe all machines with the same schedule of validations, or pass a workload with validation_from.",
    ),
    _task(
        "number of validations within an epoch",
        "validations_per_epoch",
        remedy="Probe all machines with the same interval between validations.",
    ),
    Condition("backend", attrgetter("environment.backend"), "software"),
    Condition("precision", attrgetter("environment.precision"), "software"),
    Condition("jit", attrgetter("environment.jit"), "software"),
    Condition("steps per epoch", attrgetter("setup.steps_per_epoch"), "run", DATA),
    Condition("validation steps", attrgetter("setup.validation_steps"), "run", VALIDATION),
    Condition("steps per execution", attrgetter("setup.steps_per_execution"), "run"),
    Condition("replicas", _read_replicas, "run"),
    Condition(
        "way in which Keras calls callbacks",
        _read_dispatch,
        "run",
        remedy="Probe with the callbacks of your training: batch-level callbacks make Keras wait for each step.",
    ),
    Condition(
        "way in which steps are timed",
        _read_step_timing,
        "run",
        remedy="Probe again: older probes of GPU trainings waited for the end of every step.",
    ),
    _run("autotuning of the input", "self_tuning_input"),
    _run("input that continues through all epochs", "continuous_input"),
    _run("schedule of checkpoints", "saving"),
    _run("number of batches between checkpoints", "save_freq"),
)

ARGUMENT_CONDITIONS = {
    "examples": "number of training examples",
    "validation_examples": "number of validation examples",
    "steps_per_epoch": "steps per epoch",
    "validation_steps": "validation steps",
}
"""Maps arguments that the user may pass to the names of the conditions that they replace."""


def distinct_values(profiles: Sequence[Profile], read: Callable[[Profile], Value | None]) -> list[Value]:
    """The values that ``read`` returns for ``profiles``, without None and without duplicates."""
    return list({value for profile in profiles if (value := read(profile)) is not None})


def read_conditions(profiles: Sequence[Profile], arguments: Mapping[str, Any] | None = None) -> dict[str, Value]:
    """Return the values of :data:`CONDITIONS` that are equal in all ``profiles``.

    ``arguments`` that the user passed replace the values of the profiles.
    """
    arguments = arguments or {}
    conditions: dict[str, Value] = {}
    for condition in CONDITIONS:
        values = distinct_values(profiles, condition.read)
        if len(values) == 1 and condition.replaced_by.isdisjoint(arguments):
            conditions[condition.name] = values[0]
    sizes = {profile.batch_size for profile in profiles} - {None}
    if len(sizes | ({arguments["batch_size"]} if arguments.get("batch_size") else set())) > 1:
        # Steps per epoch follow from the batch size.
        for name in ("steps per epoch", "validation steps"):
            conditions.pop(name, None)
    passed = {name: arguments.get(argument) for argument, name in ARGUMENT_CONDITIONS.items()}
    return conditions | {name: value for name, value in passed.items() if value is not None}


class Difference(NamedTuple):
    """A property in which a training differs from its forecast.

    ``other_work`` is True if the difference changes what was trained, so that the forecast does not apply.
    """

    name: str
    forecast: object
    training: object
    other_work: bool

    def __str__(self) -> str:
        return f"{self.name} ({show(self.training)} instead of {show(self.forecast)})"


class Assumed(NamedTuple):
    """Everything that :func:`compare_assumed` compares. Equal values are compared only once."""

    identity: Identity
    conditions: tuple[Value | None, ...]
    """Values of :data:`CONDITIONS`; None if unknown."""
    factors_known: bool = True


def assumed_by(forecast: Forecast) -> Assumed:
    """What ``forecast`` assumes about the training."""
    values = tuple(forecast.conditions.get(condition.name) for condition in CONDITIONS)
    return Assumed(identify_forecast(forecast), values)


def assumed_of(profile: Profile) -> Assumed:
    """The real values of the training ``profile``, to compare with what a forecast assumed."""
    values = tuple(condition.read(profile) for condition in CONDITIONS)
    return Assumed(identify(profile), values, has_factors(profile))


def find_differences(forecast: Forecast, profile: Profile) -> list[Difference]:
    """Return all values in which the training ``profile`` differs from ``forecast``. Unknown values are ignored."""
    return compare_assumed(assumed_by(forecast), assumed_of(profile))


def compare_assumed(expected: Assumed, real: Assumed) -> list[Difference]:
    """Return all values in which a training differs from what its forecast assumed. Unknown values are ignored."""
    differences: list[Difference] = []
    for field, forecast_value, real_value in zip(Identity._fields, expected.identity, real.identity, strict=True):
        if forecast_value is None or real_value is None or forecast_value == real_value:
            continue
        if field == "factors":
            if real.factors_known:
                pair = dict(expected.identity.factors), dict(real.identity.factors)
                differences.append(Difference(field, *pair, True))
            continue
        differences.append(Difference(field.replace("_", " "), forecast_value, real_value, True))
    for condition, assumed, value in zip(CONDITIONS, expected.conditions, real.conditions, strict=True):
        if value is None or assumed is None or value == assumed:
            continue
        # One step more or less is the smaller last batch, kept or dropped.
        numbers = isinstance(value, int | float) and isinstance(assumed, int | float)
        if condition.part == "run" and condition.replaced_by and numbers and abs(float(value) - float(assumed)) <= 1:
            continue
        other_work = condition.part == "task" or bool(condition.replaced_by)
        differences.append(Difference(condition.name, assumed, value, other_work))
    return differences


def check_repetitions(
    profiles: Sequence[Profile],
    *,
    arguments: Collection[str] = (),
    error: type[VmselectError] = EstimateError,
) -> tuple[Finding, ...]:
    """Raise ``error`` unless ``profiles`` are repetitions of one setup on one kind of machine.

    ``arguments`` contains the names of the workload arguments that the user passed; profiles may differ in these.
    Return a finding if only some of the profiles have validations.
    """
    if len(profiles) == 1:
        return ()
    problem = f"{profiles[0].title}: the {len(profiles)} profiles are not repetitions of one setup; they differ in"
    identities = [identify(profile) for profile in profiles]
    for field in Identity._fields:
        values = {getattr(identity, field) for identity in identities} - {None}
        if len(values) > 1:
            listed = "; ".join(sorted(map(str, values)))
            raise error(f"{problem} {field.replace('_', ' ')} ({listed}). Estimate or rank the profiles separately.")
    for condition in CONDITIONS:
        readings = distinct_values(profiles, condition.read)
        if len(readings) > 1 and condition.replaced_by.isdisjoint(arguments):
            raise error(f"{problem} the {condition.name} ({list_values(readings)}). {condition.remedy}")
    return _find_unvalidated(profiles, arguments)


def check_comparable(
    profiles: Sequence[Profile],
    *,
    arguments: Collection[str] = (),
    ignore: Collection[str] = (),
    error: type[VmselectError] = RankingError,
) -> tuple[Finding, ...]:
    """Raise ``error`` if ``profiles`` trained different tasks. Return findings if software or validation differ.

    ``arguments`` contains the names of the workload arguments that the user passed; profiles may differ in these.
    ``ignore`` contains names of software conditions (backend, precision, jit) about which no finding is made.
    """
    findings = []
    for condition in CONDITIONS:
        values = distinct_values(profiles, condition.read)
        is_replaced = not condition.replaced_by.isdisjoint(arguments)
        # Machines may run a task differently, so conditions of the part "run" only matter between repetitions.
        if len(values) < 2 or is_replaced or condition.part == "run":
            continue
        if condition.part == "task":
            raise error(
                f"The profiles differ in the {condition.name} ({list_values(values)}), so they cannot be compared. "
                f"{condition.remedy}"
            )
        if condition.name not in ignore:
            findings.append(
                Finding(
                    "software-differs",
                    f"The machines were measured with different {condition.name} ({list_values(values)}).",
                    f"Probe all machines with the same {condition.name}.",
                )
            )
    _check_steps(profiles, arguments, error)
    return (*findings, *_find_unvalidated(profiles, arguments))


def _check_steps(profiles: Sequence[Profile], arguments: Collection[str], error: type[VmselectError]) -> None:
    """Raise ``error`` if profiles with the same batch size differ in the steps of an epoch or of a validation.

    Their data then differ in size, even if the profiles do not contain the number of examples.
    """
    for replacing, field, option in (
        (DATA, "steps_per_epoch", "examples"),
        (VALIDATION, "validation_steps", "validation_examples"),
    ):
        for size in {profile.batch_size for profile in profiles} if replacing.isdisjoint(arguments) else ():
            same_size = [profile for profile in profiles if profile.batch_size == size]
            steps = [int(count) for count in distinct_values(same_size, attrgetter(f"setup.{field}"))]
            # One step more or less is the smaller last batch, kept or dropped.
            if steps and max(steps) - min(steps) > 1:
                raise error(
                    f"The profiles at batch size {size or 'unknown'} differ in {field.replace('_', ' ')} "
                    f"({list_values(steps)}), so their data differ. Rank the profiles separately, or pass {option}=."
                )


def list_values(values: Iterable[Value | None], *, most: int = 4) -> str:
    """Return the smallest ``most`` values as text for a message, followed by the number of values left out."""
    ordered = sorted(values, key=lambda value: (str(type(value)), value))
    return list_some([str(value)[:60] for value in ordered], most)


def _find_unvalidated(profiles: Sequence[Profile], arguments: Collection[str]) -> tuple[Finding, ...]:
    """Return a finding if some profiles have validations and others do not."""
    if not VALIDATION.isdisjoint(arguments):
        return ()
    # Epoch times that the user gave include their validation. A description has no time, nor has a training that ran
    # out of memory.
    without_time = ("out_of_memory", "described")
    timed = [p for p in profiles if p.outcome not in without_time and not (p.outcome == "given" and p.timeline.epochs)]
    without = {profile.title for profile in timed if not has_validation(profile)}
    if not without or not any(map(has_validation, timed)):
        return ()
    message = f"Some profiles have validations, but others have none: {list_values(without)}."
    remedy = "Probe all machines with validation data, or pass validation_examples= (0 for no validation)."
    return (Finding("validation-differs", message, remedy),)
