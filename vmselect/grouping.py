"""Which records are repetitions of one another, which can be compared, and which were mixed up: the only definition.

Three questions, one table of conditions (:data:`CONDITIONS`). Unknown values agree with everything.

* **Is it the same machine estimate?** Records of one machine type, provider, batch size, number of workers and nodes
  and values of the varied factors belong together (:func:`group_repetitions`).
* **Are they repetitions?** Within a group everything in the table must be the same (:func:`check_repetitions`).
* **Can groups be compared?** What was trained must be the same, or the numbers mean nothing (:func:`check_comparable`);
  where only the software differs, or validation was not seen of all, they can be compared, and a finding says so.

The same measurement given twice, or copied to another file, is one measurement (:func:`distinct`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from vmselect._checks import list_items, show
from vmselect.errors import ArgumentError, EstimateError, RankingError, VmselectError
from vmselect.findings import Finding
from vmselect.records import Profile, Record
from vmselect.records.registry import KINDS
from vmselect.units import list_some

AnyRecord = TypeVar("AnyRecord", bound=Record)

KNOWN_FACTORS = frozenset({"instance_type", "machine", "provider", "region", "market", "batch_size", "nodes"})
"""Factors that a record tells by itself; the others are part of what makes a machine estimate."""


class Condition(NamedTuple):
    """Something that should agree: its name, how to read it, and what it means when it does not.

    Conditions of the ``task`` define what was trained, of the ``software`` with what, and of the ``run`` how. A caller
    who passes one of ``given`` sets it for all records, so that it need not agree.
    """

    name: str
    read: Callable[[Profile], Any]
    part: str
    given: frozenset[str] = frozenset()
    remedy: str = "Rank them apart."


DATA = frozenset({"examples", "steps_per_epoch"})
VALIDATION = frozenset({"validation_examples"})


def _validates(profile: Profile) -> bool:
    """Whether the training is known to validate; a probe may have ended before it did."""
    setup = profile.setup
    return bool(profile.timeline.validations or setup.validation_examples or setup.validation_steps)


def _validation_steps(profile: Profile) -> int | None:
    return profile.setup.validation_steps


CONDITIONS: tuple[Condition, ...] = (
    Condition("model", lambda p: p.model, "task", remedy="Choose one with model=, or rank them apart."),
    Condition("number of parameters", lambda p: p.setup.parameters, "task"),
    Condition(
        "structure of the model",
        lambda p: p.setup.structure,
        "task",
        remedy="They are different fits of a program (frozen and tuned, say): rank one with fit=, or estimate each.",
    ),
    Condition(
        "number of training examples",
        lambda p: p.setup.examples,
        "task",
        DATA,
        "Rank them apart, or pass examples= if only the amount of data differs.",
    ),
    Condition(
        "number of validation examples",
        lambda p: p.setup.validation_examples,
        "task",
        VALIDATION,
        "Rank them apart, or pass validation_examples= to bring them to one size.",
    ),
    Condition(
        "number of epochs between validations",
        lambda p: p.setup.validation_freq if _validates(p) else None,
        "task",
        remedy="Probe with the same validation_freq.",
    ),
    Condition(
        "number of validations within an epoch",
        lambda p: p.setup.validations_per_epoch,
        "task",
        remedy="Probe with the same interval between validations.",
    ),
    Condition("backend", lambda p: p.environment.backend, "software"),
    Condition("precision", lambda p: p.environment.precision, "software"),
    Condition("jit", lambda p: p.environment.jit, "software"),
    Condition("steps per epoch", lambda p: p.setup.steps_per_epoch, "run", DATA),
    Condition("validation steps", _validation_steps, "run", VALIDATION),
    Condition("steps per execution", lambda p: p.setup.steps_per_execution, "run"),
    Condition("replicas", lambda p: p.environment.replicas if p.outcome != "given" else None, "run"),
    Condition(
        "tuning of the input by itself",
        lambda p: p.setup.self_tuning_input,
        "run",
        remedy="Leave out the files made the way you will not train; their setup.self_tuning_input tells.",
    ),
    Condition(
        "input going on through all epochs",
        lambda p: p.setup.continuous_input,
        "run",
        remedy="Leave out the files made the way you will not train; their setup.continuous_input tells.",
    ),
    Condition(
        "way of saving",
        lambda p: p.setup.saving,
        "run",
        remedy="Leave out the files made the way you will not train; their setup.saving tells.",
    ),
    Condition(
        "number of batches between saves",
        lambda p: p.setup.save_freq,
        "run",
        remedy="Leave out the files made the way you will not train; their setup.save_freq tells.",
    ),
)


class Identity(NamedTuple):
    """What makes a machine estimate: records that share it are measurements of the same thing."""

    instance_type: str | None
    provider: str | None
    batch_size: int | None
    workers: int
    nodes: int
    factors: tuple[tuple[str, Any], ...]


def distinct(records: Iterable[AnyRecord]) -> list[AnyRecord]:
    """Each measurement once, in the order given.

    >>> profile = Profile.from_times(iteration_seconds=0.1)
    >>> len(distinct([profile, profile]))
    1
    """
    first: dict[str, AnyRecord] = {}
    for record in records:
        first.setdefault(record.id, record)
    return list(first.values())


def read_records(
    given: Any, model: type[AnyRecord], *, error: type[VmselectError] | None = ArgumentError
) -> list[AnyRecord]:
    """One record or several, each measurement once, all of the kind of ``model``.

    Where there is none ``error`` is raised, unless that is None.

    >>> len(read_records(Profile.from_times(iteration_seconds=0.1), Profile))
    1
    """
    noun = next(kind.noun for kind in KINDS.values() if kind.model is model)
    records = [given] if isinstance(given, (Record, str, bytes)) else list_items(given)
    for one in records:
        if not isinstance(one, model):
            loader = "load_profiles" if model is Profile else "load_records"
            raise ArgumentError(f"{show(one)} is no {noun}. Read files first, with vmselect.{loader}(...).")
    if not records and error is not None:
        raise error(f"There are no {noun}s. Give at least one.")
    return distinct(records)


def identify(profile: Profile) -> Identity:
    """What ``profile`` is a measurement of."""
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


def count_nodes(profile: Profile) -> int:
    """Machines that trained together: the factor ``nodes`` where it was varied, else as many as the workers need.

    Where it is not known how many workers share a machine, each has its own.
    """
    nodes, environment = profile.factors.get("nodes"), profile.environment
    if isinstance(nodes, int | float) and nodes >= 1:
        return int(nodes)
    return math.ceil(environment.workers / (environment.workers_per_machine or 1))


def group_repetitions(profiles: Iterable[Profile]) -> dict[Identity, list[Profile]]:
    """Profiles by what they measure, each once, oldest first; whether they agree is another question.

    A profile that does not name its provider joins those that do, where only one provider has the rest in common.
    """
    groups: dict[Identity, list[Profile]] = {}
    for profile in sorted(distinct(profiles), key=lambda p: (p.created, p.id)):
        groups.setdefault(identify(profile), []).append(profile)
    named: dict[Identity, list[Identity]] = {}
    for key in groups:
        if key.provider:
            named.setdefault(key._replace(provider=None), []).append(key)
    for key in [key for key in groups if key.provider is None]:
        if len(others := named.get(key, [])) == 1:
            groups[others[0]] = sorted([*groups[others[0]], *groups.pop(key)], key=lambda p: (p.created, p.id))
    return groups


def check_repetitions(
    profiles: Sequence[Profile], *, given: Collection[str] = (), error: type[VmselectError] = EstimateError
) -> tuple[Finding, ...]:
    """Raise ``error`` unless the profiles are repetitions of one setup on one machine.

    ``given`` names what the caller says about the workload. A finding says where validation was seen of some only.
    """
    if len(profiles) == 1:
        return ()
    first = profiles[0]
    for what, found in _identities(profiles):
        raise error(
            f"{first.title}: its {len(profiles)} profiles are no repetitions of one setup; they differ in {what} "
            f"({found}). Estimate or rank the setups apart."
        )
    for condition in CONDITIONS:
        values = _distinct_values(profiles, condition.read)
        if len(values) > 1 and condition.given.isdisjoint(given):
            raise error(
                f"{first.title}: its {len(profiles)} profiles are no repetitions of one setup; they differ in the "
                f"{condition.name} ({list_values(values)}). {condition.remedy}"
            )
    return _find_unvalidated(profiles, given)


def check_comparable(
    profiles: Sequence[Profile], *, given: Collection[str] = (), error: type[VmselectError] = RankingError
) -> tuple[Finding, ...]:
    """Raise ``error`` where different things were trained.

    Findings say where only the software differs, or validation was seen of some and not of others.
    """
    findings = []
    for condition in CONDITIONS:
        values = _distinct_values(profiles, condition.read)
        if len(values) < 2 or condition.part == "run" or not condition.given.isdisjoint(given):
            continue
        if condition.part == "task":
            raise error(
                f"The profiles differ in the {condition.name} ({list_values(values)}), so their times cannot be "
                f"compared. {condition.remedy}"
            )
        findings.append(
            Finding(
                "software-differs",
                f"The machines were measured with different {condition.name} ({list_values(values)}).",
                f"Probe them with the same {condition.name} if the machines themselves are to be compared.",
            )
        )
    if DATA.isdisjoint(given):
        _check_steps(profiles, lambda p: p.steps_per_epoch, "steps per epoch", "train", "examples", error)
    if VALIDATION.isdisjoint(given):
        _check_steps(profiles, _validation_steps, "validation steps", "validate", "validation_examples", error)
    return (*findings, *_find_unvalidated(profiles, given))


def list_values(values: Iterable[Any], *, most: int = 4) -> str:
    """Values for a message: the first few, in order.

    >>> list_values([3, 1, 2]), list_values(range(9))
    ('1, 2, 3', '0, 1, 2, 3 and 5 more')
    """
    ordered = sorted(values, key=lambda value: (str(type(value)), value))
    return list_some([str(value)[:60] for value in ordered], most)


def _find_unvalidated(profiles: Sequence[Profile], given: Collection[str]) -> tuple[Finding, ...]:
    """Profiles without validation among others with it: their trainings have none, or were not seen that far."""
    if not VALIDATION.isdisjoint(given):
        return ()
    # Whole epochs that were given hold theirs, and a training that ran out of memory has no time.
    timed = [p for p in profiles if p.outcome != "out_of_memory" and not (p.outcome == "given" and p.timeline.epochs)]
    without = {profile.title for profile in timed if not _validates(profile)}
    if not without or not any(map(_validates, timed)):
        return ()
    return (
        Finding(
            "validation-differs",
            f"Some profiles hold validations and others none ({list_values(without)}), so their times are not those of "
            "one training.",
            "Probe all with validation data, or pass validation_examples= to count the same for all (0 counts none).",
        ),
    )


def _check_steps(
    profiles: Sequence[Profile],
    read: Callable[[Profile], float | None],
    name: str,
    verb: str,
    option: str,
    error: type[VmselectError],
) -> None:
    """Refuse equal batch sizes with different numbers of steps: they mean different data."""
    for size in {profile.batch_size for profile in profiles}:
        steps = _distinct_values([profile for profile in profiles if profile.batch_size == size], read)
        # One step more or less is the smaller last batch, kept or dropped.
        if steps and max(steps) - min(steps) > 1:
            raise error(
                f"At batch size {size or 'unknown'} the profiles have different numbers of {name} "
                f"({list_values(steps)}), so they did not {verb} on the same data. Rank them apart, or pass {option}= "
                "to bring them to one size."
            )


def _identities(profiles: Sequence[Profile]) -> Iterable[tuple[str, str]]:
    """What of their identity differs, with the values; unknown ones agree with everything."""
    keys = [identify(profile) for profile in profiles]
    for field in Identity._fields:
        values = {getattr(key, field) for key in keys} - {None}
        if len(values) > 1:
            yield field.replace("_", " "), "; ".join(sorted(map(str, values)))


def _distinct_values(profiles: Sequence[Profile], read: Callable[[Profile], Any]) -> list[Any]:
    return list({value for profile in profiles if (value := read(profile)) is not None})
