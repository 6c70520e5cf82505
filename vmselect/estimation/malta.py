"""The dissertation's methods, for comparison: its equations on the readings that it used, without an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from vmselect.errors import EstimateError
from vmselect.estimation import equations
from vmselect.estimation.runtime import RuntimeModel
from vmselect.estimation.workload import Workload
from vmselect.findings import Finding
from vmselect.records import Profile

NO_INTERVAL = Finding(
    "no-interval",
    "The dissertation's equations give one number and no interval.",
    'Use method="robust" for an interval.',
    "note",
)


Row = tuple[float, float, float, float, float]
"""Initialization, first and later epoch or iteration, first and later validation."""


def fit_epochs(profiles: Sequence[Profile], workload: Workload, *, confidence: float) -> RuntimeModel:
    """The model of equation 5.1."""
    init, first, later, _, _ = _average([_epoch_row(profile) for profile in profiles])
    terms = {
        "initialization": _linear(lambda n: equations.epoch_runtime_with_init(init, 0.0, 0.0, n)),
        "first_iteration": _linear(lambda n: equations.epoch_runtime_with_init(0.0, first, 0.0, n)),
        "steady_iterations": _linear(lambda n: equations.epoch_runtime_with_init(0.0, 0.0, later, n)),
    }
    return _model(profiles, "malta-epoch", terms, workload, confidence=confidence)


def fit_iterations(
    profiles: Sequence[Profile], workload: Workload, *, confidence: float, validates: bool, mean: bool
) -> RuntimeModel:
    """The model of equation 5.3, or of 5.4 where nothing ``validates``; iterations by the second, or by a ``mean``."""
    steps = workload.steps_per_epoch
    init, first, later, *validations = _average([_iteration_row(profile, mean=mean) for profile in profiles])
    if steps is None:
        raise EstimateError(
            f"{profiles[0].title}: the number of steps per epoch is not known. Pass steps_per_epoch=, or examples= "
            "with batch_size=."
        )

    def runtime(init: float, first: float, later: float, epochs: float) -> float:
        # How often a training validates is its own affair, so the model adds validations to the equation's iterations.
        if validates:
            return equations.iteration_runtime(init, first, later, steps, 0.0, 0.0, epochs)
        return equations.iteration_runtime_without_validation(init, first, later, steps, epochs)

    terms = {
        "initialization": _linear(lambda n: runtime(init, 0.0, 0.0, n)),
        "first_iteration": _linear(lambda n: runtime(0.0, first, 0.0, n)),
        "steady_iterations": _linear(lambda n: runtime(0.0, 0.0, later, n)),
    }
    name = "malta-iteration" if validates else "malta-iteration-no-validation"
    return _model(profiles, name, terms, workload, confidence=confidence, validations=validations if validates else ())


def _average(rows: Sequence[Row]) -> Row:
    init, first, later, first_validation, later_validation = (
        math.fsum(column) / len(rows) for column in zip(*rows, strict=True)
    )
    return init, first, later, first_validation, later_validation


def _linear(runtime: Callable[[float], float]) -> tuple[float, float]:
    """An equation, linear in the number of epochs, as seconds spent once and seconds per epoch."""
    return runtime(0), runtime(1) - runtime(0)


def _model(
    profiles: Sequence[Profile],
    method: str,
    terms: Mapping[str, tuple[float, float]],
    workload: Workload,
    *,
    confidence: float,
    validations: Sequence[float] = (),
) -> RuntimeModel:
    first, later = validations or (0.0, 0.0)
    return RuntimeModel(
        title=profiles[0].title,
        method=method,
        confidence=confidence,
        terms={key: pair for key, pair in terms.items() if any(pair)},
        first_validation_seconds=first,
        validation_seconds=later,
        validation_freq=workload.validation_freq or 1,
        findings=(NO_INTERVAL,),
    )


def _epoch_row(profile: Profile) -> Row:
    """Initialization, first epoch and mean later epoch, each with its validation and the way to it."""
    timeline = profile.timeline
    whole = [epoch for epoch in timeline.epochs if epoch.complete]
    if len(whole) < 2:
        raise EstimateError(
            f"{profile.title}: it holds {len(whole)} whole epochs and equation 5.1 needs two. Probe with "
            'EpochProbe, or use method="robust".'
        )
    inside = profile.outcome == "given"
    validations = {one.epoch: one.seconds for one in timeline.validations if not inside}
    boundaries = {one.epoch + 1: one.seconds for one in timeline.boundaries if not one.final}
    seconds = [e.seconds + validations.get(e.epoch, 0.0) + boundaries.get(e.epoch, 0.0) for e in whole]
    init = (timeline.init_seconds or 0.0) + (timeline.fit_to_first_batch_seconds or 0.0)
    return init, seconds[0], math.fsum(seconds[1:]) / len(seconds[1:]), 0.0, 0.0


def _iteration_row(profile: Profile, *, mean: bool) -> Row:
    """Initialization, first and ordinary iteration, first and second validation."""
    timeline = profile.timeline
    rows = timeline.steps.rows
    if not rows:
        raise EstimateError(
            f'{profile.title}: it holds whole epochs and no single step. Use method="malta-epoch" or "robust", or '
            "probe with IterationProbe."
        )
    first = rows[0].each if rows[0].label == "first" else None
    after = rows[1:] if first is not None else rows
    if not after:
        raise EstimateError(f"{profile.title}: it holds one step and the equations need a second. Probe more steps.")
    chosen = after[:9] if mean else after[:1]
    ordinary = math.fsum(step.seconds for step in chosen) / sum(step.covers for step in chosen)
    validations = [one.seconds for one in timeline.validations[:2]] or [0.0]
    init = (timeline.init_seconds or 0.0) + (timeline.fit_to_first_batch_seconds or 0.0)
    return init, first if first is not None else ordinary, ordinary, validations[0], validations[-1]
