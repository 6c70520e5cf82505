"""Seconds of the first and of later validations, from complete, truncated, single or missing validations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmselect.errors import EstimateError
from vmselect.estimation.readings import Readings, epochs_include_validation
from vmselect.estimation.statistics import NOTHING, Level, locate, predict_once
from vmselect.estimation.workload import Workload
from vmselect.findings import Finding
from vmselect.records import Profile, Validation

VALIDATION_SHARE = 0.35
"""Time of validating an example relative to training on it, where no validation was measured. From published runs."""

MIN_READINGS = 5
"""Minimum batches of a validation for the detection of a lone stall."""

VALIDATION_SPREAD = 0.15
"""Prior relative spread of validations."""


@dataclass(frozen=True)
class ValidationTimes:
    """Seconds of the first validation and of each later one."""

    first: Level
    later: Level
    findings: tuple[Finding, ...] = ()


def time_validations(
    profiles: Sequence[Profile], readings: Readings, workload: Workload, *, step: Level, confidence: float
) -> ValidationTimes:
    """The validations of ``workload``, from those that the profiles contain."""
    profile = profiles[0]
    if workload.validation_examples == 0 and not epochs_include_validation(profile, readings.unit):
        return ValidationTimes(NOTHING, NOTHING)
    if all(one.truncated and len(one.batch_seconds) < 2 for one in readings.validations):
        return _assume(profile, readings, workload, step)
    batches, covers = _batches(profile, readings), profile.setup.steps_per_execution
    findings = list(_find_within_epochs(profiles))
    if readings.later_validations:
        totals = [
            math.fsum(_whole_seconds(one, batches, covers) for one in epoch) for epoch in readings.later_validations
        ]
        later = locate(totals, prior_spread=VALIDATION_SPREAD, unseen=False, confidence=confidence)
    else:
        later, finding = _later_from_first(profile, readings.first_validations, batches, confidence)
        findings.append(finding)
    # Stalls of the first validation do not recur, so it counts as recorded.
    firsts = [
        math.fsum(_whole_seconds(v, batches, covers) if v.truncated else v.seconds for v in epoch)
        for epoch in readings.first_validations
    ]
    first = predict_once(firsts, confidence=confidence)
    scale = _scale(profile, readings, workload)
    if scale != 1.0:
        extra = later.value * (scale - 1)
        first = Level(max(0.0, first.value + extra), first.half_width_below, first.half_width_above, 0.0)
        later = later.times(scale)
    per_epoch = profile.setup.validations_per_epoch or 1.0
    if per_epoch != 1.0:
        more = per_epoch - 1
        first = Level(
            max(0.0, first.value + more * later.value),
            math.hypot(first.half_width_below, more * later.half_width_below),
            math.hypot(first.half_width_above, more * later.half_width_above),
            0.0,
        )
        later = later.times(per_epoch)
    return ValidationTimes(first, later, tuple(findings))


def _batches(profile: Profile, readings: Readings) -> int | None:
    """Batches of a complete validation; None where an epoch has several validations."""
    if any(len(epoch) > 1 for epoch in readings.first_validations + readings.later_validations):
        return None
    whole = [one.batches for one in readings.validations if not one.truncated and one.batches]
    if whole:
        return whole[0]
    setup = profile.setup
    if setup.validation_steps:
        return setup.validation_steps
    if setup.validation_examples and setup.batch_size:
        return math.ceil(setup.validation_examples / setup.batch_size)
    return None


def _whole_seconds(validation: Validation, batches: int | None, covers: int) -> float:
    """Seconds of a validation if it were complete and without a lone stall. A reading covers ``covers`` batches."""
    read = validation.batch_seconds
    if validation.truncated:
        total = batches
    else:
        total = validation.batches if len(read) >= MIN_READINGS else None
        if total is not None and math.ceil(total / covers) != len(read):
            total = None  # readings were dropped, but the sum is exact
    if total is None or not read:
        return validation.seconds
    around = max(0.0, validation.seconds - math.fsum(read))
    typical = locate(read[1:]).value if len(read) > 1 else read[0]
    return around + read[0] + typical / covers * max(0, total - covers)


def _later_from_first(
    profile: Profile, first: Sequence[Sequence[Validation]], batches: int | None, confidence: float
) -> tuple[Level, Finding]:
    """A later validation from the batches of the first one without its slow first batch."""
    tail = [seconds for epoch in first for one in epoch for seconds in one.batch_seconds[1:]]
    if tail and batches:
        later = locate(tail, confidence=confidence).times(batches / profile.setup.steps_per_execution)
        how = "later ones are estimated from its batches after the first"
    else:
        seconds = math.fsum(one.seconds for epoch in first for one in epoch) / len(first)
        later = Level(seconds, 0.7 * seconds, 0.2 * seconds, 0.0)
        how = "later ones count as much, but may be faster"
    message = f"{profile.title}: only the first validation was recorded; {how}."
    return later, Finding("one-validation", message, "Probe with validations=2.", "info")


def _scale(profile: Profile, readings: Readings, workload: Workload) -> float:
    """The size of the workload's validation relative to the measured one."""
    if not _differs(profile, workload):
        return 1.0
    examples, steps, measured = workload.validation_examples, workload.validation_steps, profile.setup
    if steps is None and examples and measured.validation_examples:
        return examples / measured.validation_examples
    if steps is None and examples and workload.batch_size:
        steps = math.ceil(examples / workload.batch_size)
    if steps and (batches := _batches(profile, readings)):
        return steps / batches
    name = "examples" if workload.validation_steps is None else "steps"
    raise EstimateError(
        f"{profile.title}: the number of validation {name} is unknown, so it cannot be scaled to "
        f"{workload.validation_steps or examples}. Omit validation_{name}, or probe with the whole validation set."
    )


def _differs(profile: Profile, workload: Workload) -> bool:
    """Whether the validations of the workload and the profile differ in size."""
    if workload.validation_steps is not None:
        return workload.validation_steps != profile.setup.validation_steps
    return workload.validation_examples not in (None, profile.setup.validation_examples)


def _find_within_epochs(profiles: Sequence[Profile]) -> Iterator[Finding]:
    """Validations within epochs that were cut short: a complete epoch has more of them."""
    for profile in profiles:
        if profile.probe != "loop" or profile.setup.validations_per_epoch is not None:
            continue
        cut = {
            boundary.epoch
            for boundary in profile.timeline.boundaries
            if boundary.truncated and boundary.before_validation_seconds is None
        }
        if any(one.epoch in cut for one in profile.timeline.validations):
            yield Finding(
                "validations-within-epochs",
                f"{profile.title}: validations occur within epochs that were cut short, so the estimate has too few.",
                "Record whole epochs (stop=False, --watch), or validate once at the end of each.",
            )
            return


def _assume(profile: Profile, readings: Readings, workload: Workload, step: Level) -> ValidationTimes:
    """A validation that was not measured: a share of the training time per example."""
    if readings.unit == "epoch" and _differs(profile, workload):
        raise EstimateError(
            f"{profile.title}: the time of validation within its epochs is unknown, so it cannot be scaled. Omit "
            "validation_examples and validation_steps, or probe steps with IterationProbe."
        )
    batches: float | None = workload.validation_steps
    if batches is None and workload.validation_examples and workload.batch_size:
        batches = workload.validation_examples / workload.batch_size
    # A validation that was cut after one batch is mostly compilation.
    compiling = max((one.seconds for epoch in readings.first_validations for one in epoch), default=0.0)
    if readings.unit == "epoch" or (not batches and not compiling):
        return ValidationTimes(NOTHING, NOTHING)
    if not batches:
        finding = Finding(
            "validation-unknown",
            f"{profile.title}: validations were cut after one batch and their size is unknown, so they are excluded.",
            "Pass validation_examples=, or probe with validations=2.",
        )
        return ValidationTimes(Level(compiling, 0.0, compiling, 0.0), NOTHING, (finding,))
    seconds = VALIDATION_SHARE * step.value * batches
    later = Level(seconds, 0.6 * seconds, 1.0 * seconds, 0.0)
    finding = Finding(
        "validation-assumed",
        f"{profile.title}: no validation was measured; a batch is assumed to take {VALIDATION_SHARE:.2f} of a step.",
        "Probe with validation data and validations=2.",
    )
    return ValidationTimes(
        Level(seconds + compiling, later.half_width_below, later.half_width_above, 0.0), later, (finding,)
    )
