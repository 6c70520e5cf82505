"""The dissertation's methods, for comparison: its equations on the readings that it used, without an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vmselect.errors import EstimateError
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


def fit_malta(profiles: Sequence[Profile], workload: Workload, *, method: str, confidence: float) -> RuntimeModel:
    """The model of equation 5.1, 5.3 or 5.4; the times of repetitions are averaged."""
    name, _, iteration = method.partition(":")
    rows = [
        _epoch_row(profile) if name == "malta-epoch" else _iteration_row(profile, iteration) for profile in profiles
    ]
    init, first, later, first_validation, later_validation = (
        math.fsum(column) / len(rows) for column in zip(*rows, strict=True)
    )
    if name == "malta-epoch":
        per_epoch, validates = 1.0, False
    else:
        if workload.steps_per_epoch is None:
            raise EstimateError(
                f"{profiles[0].title}: the number of steps per epoch is not known. Pass steps_per_epoch=, or examples= "
                "with batch_size=."
            )
        per_epoch, validates = workload.steps_per_epoch, name == "malta-iteration"
    terms = {
        "initialization": (init, 0.0),
        "first_iteration": (first, 0.0),
        "steady_iterations": (-later, later * per_epoch),
    }
    return RuntimeModel(
        title=profiles[0].title,
        method=method,
        confidence=confidence,
        terms={key: pair for key, pair in terms.items() if any(pair)},
        first_validation_seconds=first_validation if validates else 0.0,
        validation_seconds=later_validation if validates else 0.0,
        validation_freq=workload.validation_freq,
        findings=(NO_INTERVAL,),
    )


def _epoch_row(profile: Profile) -> tuple[float, float, float, float, float]:
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


def _iteration_row(profile: Profile, iteration: str) -> tuple[float, float, float, float, float]:
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
    chosen = after[:9] if iteration == "mean-2-10" else after[:1]
    ordinary = math.fsum(step.seconds for step in chosen) / sum(step.covers for step in chosen)
    validations = [one.seconds for one in timeline.validations[:2]] or [0.0]
    init = (timeline.init_seconds or 0.0) + (timeline.fit_to_first_batch_seconds or 0.0)
    return init, first if first is not None else ordinary, ordinary, validations[0], validations[-1]
