"""The estimation methods of the dissertation: its equations, applied to recorded times, without an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from vmselect.diagnosis.checks import Disturbance
from vmselect.errors import EstimateError
from vmselect.estimation import equations
from vmselect.estimation.drift import Learned
from vmselect.estimation.readings import group_validations, whole_epochs
from vmselect.estimation.runtime import RuntimeModel
from vmselect.estimation.workload import Workload
from vmselect.findings import Finding
from vmselect.records import Profile

NO_INTERVAL = Finding(
    "no-interval",
    "Methods whose names start with malta- give an estimate without an interval.",
    'Use method="robust" for an interval.',
    "info",
)


def fit_epochs(
    profiles: Sequence[Profile], workload: Workload, *, confidence: float, disturbance: Disturbance, learned: Learned
) -> RuntimeModel:
    """Runtime model by equation 5.1 of the dissertation, from times of whole epochs."""
    times = _average([_epoch_times(profile) for profile in profiles])
    return _model("malta-epoch", profiles, workload, equations.epoch_runtime_with_init, times, confidence=confidence)


def fit_iterations(
    profiles: Sequence[Profile],
    workload: Workload,
    *,
    confidence: float,
    disturbance: Disturbance,
    learned: Learned,
    validates: bool,
    mean: bool,
) -> RuntimeModel:
    """Runtime model by equation 5.3 of the dissertation, or by equation 5.4 if ``validates`` is False.

    The time of all iterations after the first is that of the second or, if ``mean`` is True, the mean of iterations 2
    to 10.
    """
    times = _average([_iteration_times(profile, mean=mean) for profile in profiles])
    steps = workload.require_steps(profiles[0].title)

    def runtime(init: float, first: float, later: float, epochs: float) -> float:
        # The model adds validations itself, because they may occur every few epochs only.
        if validates:
            return equations.iteration_runtime(init, first, later, steps, 0.0, 0.0, epochs)
        return equations.iteration_runtime_without_validation(init, first, later, steps, epochs)

    name = "malta-iteration" if validates else "malta-iteration-no-validation"
    validations = _average([_validation_times(profile) for profile in profiles]) if validates else (0.0, 0.0)
    return _model(name, profiles, workload, runtime, times, validations, confidence=confidence)


def _average(rows: Sequence[Sequence[float]]) -> list[float]:
    return [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]


def _model(
    method: str,
    profiles: Sequence[Profile],
    workload: Workload,
    runtime: Callable[..., float],
    times: Sequence[float],
    validations: Sequence[float] = (0.0, 0.0),
    *,
    confidence: float,
) -> RuntimeModel:
    """Runtime model by the equation ``runtime``, which is linear in three ``times`` and in the number of epochs.

    ``times`` are the seconds of initialization, of the first epoch or iteration, and of a later one. ``validations``
    are the seconds of the first and of a later validation.
    """
    terms = {}
    for term, name in enumerate(("initialization", "first_iteration", "steady_iterations")):
        alone = [seconds if position == term else 0.0 for position, seconds in enumerate(times)]
        once = runtime(*alone, 0)
        terms[name] = (once, runtime(*alone, 1) - once)
    return RuntimeModel(
        title=profiles[0].title,
        method=method,
        confidence=confidence,
        terms={name: pair for name, pair in terms.items() if any(pair)},
        first_validation_seconds=validations[0],
        validation_seconds=validations[1],
        validation_freq=workload.validation_freq or 1,
        validation_from=workload.validation_from,
        validation_until=workload.validation_until,
        findings=(NO_INTERVAL,),
    )


def _epoch_times(profile: Profile) -> tuple[float, float, float]:
    """Seconds of initialization and of the first epoch, and mean seconds of a later epoch.

    Epochs include their validation and epoch boundary.
    """
    timeline = profile.timeline
    whole = whole_epochs(profile)
    if len(whole) < 2:
        raise EstimateError(
            f"{profile.title}: the profile has {len(whole)} complete epochs, and the method malta-epoch needs two. "
            'Probe two epochs with EpochProbe, or use method="robust".'
        )
    validations: dict[int, float] = {}
    # Epoch times that the user gives include their validation.
    for passes in group_validations(profile) if profile.outcome != "given" else ():
        epoch = passes[0].epoch
        validations[epoch] = validations.get(epoch, 0.0) + math.fsum(validation.seconds for validation in passes)
    # The pause between two epochs counts as part of the later one.
    boundaries = {boundary.epoch + 1: boundary.seconds for boundary in timeline.boundaries if not boundary.final}
    seconds = [epoch.seconds + validations.get(epoch.epoch, 0.0) + boundaries.get(epoch.epoch, 0.0) for epoch in whole]
    return timeline.startup_seconds or 0.0, seconds[0], math.fsum(seconds[1:]) / len(seconds[1:])


def _iteration_times(profile: Profile, *, mean: bool) -> tuple[float, float, float]:
    """Seconds of initialization, of the first iteration and of an ordinary iteration."""
    if not len(profile.timeline.steps):
        raise EstimateError(
            f"{profile.title}: the profile has times of whole epochs and no step times. Use "
            'method="malta-epoch" or "robust", or probe with IterationProbe.'
        )
    ordinary = profile.mean_2_10_seconds if mean else profile.second_iteration_seconds
    if ordinary is None:
        raise EstimateError(
            f"{profile.title}: the profile has one step, and the method requires two. Probe more steps (steps=20)."
        )
    first = profile.first_iteration_seconds
    return profile.timeline.startup_seconds or 0.0, ordinary if first is None else first, ordinary


def _validation_times(profile: Profile) -> tuple[float, float]:
    """Seconds of the first and second validation: equal if only one was recorded, zero if none was."""
    groups = group_validations(profile)[:2]
    seconds = [math.fsum(validation.seconds for validation in group) for group in groups] or [0.0]
    return seconds[0], seconds[-1]
