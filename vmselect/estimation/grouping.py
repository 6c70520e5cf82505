"""Checks that profiles are repetitions of one setup, or that they can be compared.

Both use the conditions of :mod:`vmselect.records.identity`. An unknown value is compatible with every value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter

from vmselect.errors import EstimateError, RankingError, VmselectError
from vmselect.findings import Finding
from vmselect.records import Profile
from vmselect.records.identity import (
    CONDITIONS,
    DATA,
    VALIDATION,
    Identity,
    Value,
    distinct_values,
    has_validation,
    identify,
)
from vmselect.units import list_some


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
        if len(values) < 2 or condition.part == "run" or not condition.replaced_by.isdisjoint(arguments):
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
    return (*findings, *_find_unvalidated(profiles, arguments))


def list_values(values: Iterable[Value | None], *, most: int = 4) -> str:
    """Return the smallest ``most`` values as text for a message, followed by the number of values left out."""
    ordered = sorted(values, key=lambda value: (str(type(value)), value))
    return list_some([str(value)[:60] for value in ordered], most)


def _find_unvalidated(profiles: Sequence[Profile], arguments: Collection[str]) -> tuple[Finding, ...]:
    """Return a finding if some profiles have validations and others do not."""
    if not VALIDATION.isdisjoint(arguments):
        return ()
    # Epoch times that the user gave include their validation, and a training that ran out of memory has no time.
    timed = [p for p in profiles if p.outcome != "out_of_memory" and not (p.outcome == "given" and p.timeline.epochs)]
    without = {profile.title for profile in timed if not has_validation(profile)}
    if not without or not any(map(has_validation, timed)):
        return ()
    message = f"Some profiles have validations, but others have none: {list_values(without)}."
    remedy = "Probe all machines with validation data, or pass validation_examples= (0 for no validation)."
    return (Finding("validation-differs", message, remedy),)
