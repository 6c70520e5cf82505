"""Finds which records are repetitions of the same setup, and which can be compared.

* :func:`group_repetitions` groups records by instance type, provider, batch size, workers, nodes and varied factors.
* :func:`check_repetitions` checks that the records of a group agree in all of :data:`CONDITIONS`.
* :func:`check_comparable` checks that all records are of the same task. Different software gives a finding.
* :func:`find_differences` compares a training with the conditions of a forecast.
* :func:`distinct` removes duplicates of a record.

An unknown value is compatible with every value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from vmselect._checks import list_items, show
from vmselect.errors import ArgumentError, EstimateError, RankingError, VmselectError
from vmselect.findings import Finding
from vmselect.records import Forecast, Profile, Record
from vmselect.records.registry import KINDS
from vmselect.units import list_some

AnyRecord = TypeVar("AnyRecord", bound=Record)

KNOWN_FACTORS = frozenset({"instance_type", "machine", "provider", "region", "market", "batch_size", "nodes"})
"""Factors that are not compared as factors, because they are also fields of a record."""


class Condition(NamedTuple):
    """A property of a training that should be equal in all compared records.

    ``read`` reads it from a profile, and ``remedy`` is the advice if records differ in it. ``part`` is "task" (what was
    trained), "software" or "run" (how it was run). If the user passes one of the arguments named in ``given``, that
    argument replaces the property in all records, so records may differ in it.
    """

    name: str
    read: Callable[[Profile], Any]
    part: str
    given: frozenset[str] = frozenset()
    remedy: str = "Rank the profiles separately."


DATA = frozenset({"examples", "steps_per_epoch"})
VALIDATION = frozenset({"validation_examples"})
SCHEDULE = frozenset({"validation_freq", "validation_from", "validation_until"})


def _validates(profile: Profile) -> bool:
    """Return whether the training has validation data, even if the probe ended before the first validation."""
    setup = profile.setup
    return bool(profile.timeline.validations or setup.validation_examples or setup.validation_steps or setup.validates)


def _task(
    name: str, field: str, given: frozenset[str] = frozenset(), remedy: str = "Rank the profiles separately."
) -> Condition:
    return Condition(name, attrgetter(f"setup.{field}"), "task", given, remedy)


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
        lambda p: p.setup.validation_freq if _validates(p) else None,
        "task",
        SCHEDULE,
        "Probe all machines with the same validation_freq, or pass a workload with validation_freq.",
    ),
    Condition(
        "first epoch with a validation",
        lambda p: p.setup.validation_from or p.setup.validation_freq if _validates(p) else None,
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
    Condition("replicas", lambda p: p.environment.replicas if p.outcome != "given" else None, "run"),
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


class Identity(NamedTuple):
    """Machine, batch size and factors of a record. Records with equal identities are repetitions."""

    instance_type: str | None
    provider: str | None
    batch_size: int | None
    workers: int
    nodes: int
    factors: tuple[tuple[str, Any], ...]


def distinct(records: Iterable[AnyRecord]) -> list[AnyRecord]:
    """Return ``records`` in the original order, with only the first of several records with the same id."""
    first: dict[str, AnyRecord] = {}
    for record in records:
        first.setdefault(record.id, record)
    return list(first.values())


def read_records(
    given: Any, model: type[AnyRecord], *, error: type[VmselectError] | None = ArgumentError
) -> list[AnyRecord]:
    """Return ``given``, a record or an iterable of records, as a list without duplicates.

    Raise ArgumentError if an item is not an instance of ``model``. If there are no records, raise ``error``, or return
    an empty list if ``error`` is None.
    """
    noun = next(kind.noun for kind in KINDS.values() if kind.model is model)
    records = [given] if isinstance(given, (Record, str, bytes)) else list_items(given)
    for one in records:
        if not isinstance(one, model):
            loader = "load_profiles" if model is Profile else "load_records"
            raise ArgumentError(f"{show(one)} is not a {noun}. Load {noun} files with vmselect.{loader}(...).")
    if not records and error is not None:
        raise error(f"There are no {noun}s. Pass at least one {noun}.")
    return distinct(records)


def identify(profile: Profile) -> Identity:
    """Return the identity of ``profile``, by which repetitions are grouped."""
    varied = {name: value for name, value in profile.factors.items() if name not in KNOWN_FACTORS}
    nodes = count_nodes(profile)
    return Identity(
        profile.instance_type,
        profile.provider,
        profile.batch_size,
        max(nodes, profile.environment.workers),
        nodes,
        tuple(sorted(varied.items(), key=lambda item: item[0])),
    )


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


class Difference(NamedTuple):
    """A property in which a training differs from its forecast.

    ``other_work`` is True if the difference changes what was trained, so that the forecast does not apply.
    """

    name: str
    forecast: Any
    training: Any
    other_work: bool

    def __str__(self) -> str:
        return f"{self.name} ({show(self.training)} instead of {show(self.forecast)})"


GIVEN_CONDITIONS = {
    "examples": "number of training examples",
    "validation_examples": "number of validation examples",
    "steps_per_epoch": "steps per epoch",
    "validation_steps": "validation steps",
}
"""Maps arguments that the user may pass to the names of the conditions that they replace."""


def read_conditions(profiles: Sequence[Profile], given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the values of :data:`CONDITIONS` that are equal in all ``profiles``.

    Arguments that the user passed, in ``given``, replace the values of the profiles.
    """
    given = given or {}
    found: dict[str, Any] = {}
    for condition in CONDITIONS:
        values = _distinct_values(profiles, condition.read)
        if len(values) == 1 and condition.given.isdisjoint(given):
            found[condition.name] = values[0]
    sizes = {profile.batch_size for profile in profiles} - {None}
    if len(sizes | ({given["batch_size"]} if given.get("batch_size") else set())) > 1:
        # Steps per epoch follow from the batch size.
        for name in ("steps per epoch", "validation steps"):
            found.pop(name, None)
    return found | {name: given[key] for key, name in GIVEN_CONDITIONS.items() if given.get(key) is not None}


def identify_forecast(forecast: Forecast) -> Identity:
    """Return the identity that the profile of a training has if the training runs as ``forecast`` assumes."""
    factors = tuple(sorted(forecast.factors.items(), key=lambda item: item[0]))
    return Identity(
        forecast.instance_type, forecast.provider, forecast.batch_size, forecast.workers, forecast.nodes, factors
    )


def find_differences(forecast: Forecast, profile: Profile) -> list[Difference]:
    """Return all values in which the training ``profile`` differs from ``forecast``. Unknown values are ignored."""
    found: list[Difference] = []
    expected, real = identify_forecast(forecast), identify(profile)
    for field in Identity._fields:
        if field == "factors" and not has_factors(profile):
            continue
        one, other = getattr(expected, field), getattr(real, field)
        if one is not None and other is not None and one != other:
            one, other = (dict(one), dict(other)) if field == "factors" else (one, other)
            found.append(Difference(field.replace("_", " "), one, other, True))
    for condition in CONDITIONS:
        value, known = condition.read(profile), forecast.conditions.get(condition.name)
        if value is None or known is None or value == known:
            continue
        # One step more or less is the smaller last batch, kept or dropped.
        close = condition.part == "run" and bool(condition.given) and abs(value - known) <= 1
        other_work = condition.part == "task" or bool(condition.given)
        if not close:
            found.append(Difference(condition.name, known, value, other_work))
    return found


def group_repetitions(profiles: Iterable[Profile]) -> dict[Identity, list[Profile]]:
    """Group ``profiles`` by identity, without duplicates. Each group is sorted from oldest to newest.

    A profile without a provider is added to the group that differs only in the provider, if there is exactly one.
    """
    groups: dict[Identity, list[Profile]] = {}
    for profile in sorted(distinct(profiles), key=lambda p: p.created):
        groups.setdefault(identify(profile), []).append(profile)
    named: dict[Identity, list[Identity]] = {}
    for key in groups:
        if key.provider:
            named.setdefault(key._replace(provider=None), []).append(key)
    for key in [key for key in groups if key.provider is None]:
        if len(others := named.get(key, [])) == 1:
            groups[others[0]] = sorted([*groups[others[0]], *groups.pop(key)], key=lambda p: p.created)
    return groups


def check_repetitions(
    profiles: Sequence[Profile], *, given: Collection[str] = (), error: type[VmselectError] = EstimateError
) -> tuple[Finding, ...]:
    """Raise ``error`` unless ``profiles`` are repetitions of one setup on one kind of machine.

    ``given`` contains the names of the workload arguments that the user passed; profiles may differ in these. Return a
    finding if only some of the profiles have validations.
    """
    if len(profiles) == 1:
        return ()
    problem = f"{profiles[0].title}: the {len(profiles)} profiles are not repetitions of one setup; they differ in"
    keys = [identify(profile) for profile in profiles]
    for field in Identity._fields:
        known = {getattr(key, field) for key in keys} - {None}
        if len(known) > 1:
            found = "; ".join(sorted(map(str, known)))
            raise error(f"{problem} {field.replace('_', ' ')} ({found}). Estimate or rank the profiles separately.")
    for condition in CONDITIONS:
        values = _distinct_values(profiles, condition.read)
        if len(values) > 1 and condition.given.isdisjoint(given):
            raise error(f"{problem} the {condition.name} ({list_values(values)}). {condition.remedy}")
    return _find_unvalidated(profiles, given)


def check_comparable(
    profiles: Sequence[Profile], *, given: Collection[str] = (), error: type[VmselectError] = RankingError
) -> tuple[Finding, ...]:
    """Raise ``error`` if ``profiles`` trained different tasks. Return findings if software or validation differ.

    ``given`` contains the names of the workload arguments that the user passed; profiles may differ in these.
    """
    findings = []
    for condition in CONDITIONS:
        values = _distinct_values(profiles, condition.read)
        if len(values) < 2 or condition.part == "run" or not condition.given.isdisjoint(given):
            continue
        if condition.part == "task":
            raise error(
                f"The profiles differ in the {condition.name} ({list_values(values)}), so they cannot be compared. "
                f"{condition.remedy}"
            )
        findings.append(
            Finding(
                "software-differs",
                f"The machines were measured with different {condition.name} ({list_values(values)}).",
                f"Probe all machines with the same {condition.name}.",
            )
        )
    for arguments, field, option in (
        (DATA, "steps_per_epoch", "examples"),
        (VALIDATION, "validation_steps", "validation_examples"),
    ):
        for size in {profile.batch_size for profile in profiles} if arguments.isdisjoint(given) else ():
            same_size = [profile for profile in profiles if profile.batch_size == size]
            steps = _distinct_values(same_size, attrgetter(f"setup.{field}"))
            # One step more or less is the smaller last batch, kept or dropped.
            if steps and max(steps) - min(steps) > 1:
                raise error(
                    f"The profiles at batch size {size or 'unknown'} differ in {field.replace('_', ' ')} "
                    f"({list_values(steps)}), so their data differ. Rank the profiles separately, or pass {option}=."
                )
    return (*findings, *_find_unvalidated(profiles, given))


def list_values(values: Iterable[Any], *, most: int = 4) -> str:
    """Return the smallest ``most`` values as text for a message, followed by the number of values left out."""
    ordered = sorted(values, key=lambda value: (str(type(value)), value))
    return list_some([str(value)[:60] for value in ordered], most)


def _find_unvalidated(profiles: Sequence[Profile], given: Collection[str]) -> tuple[Finding, ...]:
    """Return a finding if some profiles have validations and others do not."""
    if not VALIDATION.isdisjoint(given):
        return ()
    # Given epochs include their validation, and a training that ran out of memory has no time.
    timed = [p for p in profiles if p.outcome != "out_of_memory" and not (p.outcome == "given" and p.timeline.epochs)]
    without = {profile.title for profile in timed if not _validates(profile)}
    if not without or not any(map(_validates, timed)):
        return ()
    message = f"Some profiles have validations, but others have none: {list_values(without)}."
    remedy = "Probe all machines with validation data, or pass validation_examples= (0 for no validation)."
    return (Finding("validation-differs", message, remedy),)


def _distinct_values(profiles: Sequence[Profile], read: Callable[[Profile], Any]) -> list[Any]:
    return list({value for profile in profiles if (value := read(profile)) is not None})
