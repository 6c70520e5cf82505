"""The default method "robust": equation 5.3 of the dissertation plus overheads, insensitive to single outliers.

docs/explanation/runtime-equations.md explains how the constants were chosen.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from operator import truediv

from vmselect.diagnosis.disturbance import Disturbance
from vmselect.errors import EstimateError
from vmselect.estimation.overheads import (
    find_unseen_saves,
    time_boundaries,
    time_partial_batch,
    time_pauses,
    time_validations,
)
from vmselect.estimation.readings import Readings, collect
from vmselect.estimation.runtime import HalfWidths, RuntimeModel, Waits
from vmselect.estimation.statistics import (
    PRIOR_SPREAD,
    Level,
    fastest_rate,
    find_drift,
    locate,
    predict_once,
    quantile,
)
from vmselect.estimation.totals import fit_totals
from vmselect.estimation.warnings import (
    check_validation_schedule,
    find_changes,
    find_changing_epochs,
    find_warnings,
)
from vmselect.estimation.workload import Workload
from vmselect.records import Profile

DRIFT_FASTER, DRIFT_SLOWER, DRIFT_BLOCKS = 0.03, 0.06, 4.0
"""Prior relative standard deviations of a machine's speed during a run (towards faster and slower), and the number of
observed blocks of steps that this prior weighs as much as. Machines slow down (heat, other tenants) more easily than
they speed up."""

EPOCH_SPREAD, EPOCH_READINGS, EPOCH_LASTING, EPOCH_DRIFT = 0.0075, 2.0, 1.0, 0.005
"""Constants for times of whole epochs: prior relative spread; number of observed epochs that this prior weighs as much
as; variance of the difference between the recorded epochs and the rest of the training, relative to the variance of
single epochs; and prior relative standard deviation between runs. Chosen on MLPerf v0.7 and v1.1 and DAWNBench
(``tests/benchmarks/intervals.py``)."""

GIVEN_SPREAD = 0.03
"""Prior relative spread of step times that the user gives (``Profile.from_times``), usually means of many steps on
machines without other load. The other constants are those of whole epochs. Half of this spread would cover repetitions
of PROFET and Lambda's benchmarks, but the dissertation gives times of single steps."""

EPOCH_STALL, MIN_EPOCHS = 0.05, 3
"""A single epoch that is longer than the others by the share ``EPOCH_STALL`` is assumed not to recur, if there are at
least ``MIN_EPOCHS`` epochs. Chosen on MLPerf v0.7 and v1.1."""


def fit_robust(
    profiles: Sequence[Profile], workload: Workload, *, confidence: float, disturbance: Disturbance
) -> RuntimeModel:
    """Runtime model by the method "robust", from repetitions of one setup, which a ``disturbance`` may have slowed.

    Profiles that contain only total times are used only if there are no other profiles.
    """
    if all(profile.only_totals for profile in profiles):
        return fit_totals(profiles, scale=_units_per_epoch(profiles, workload, "epoch"), confidence=confidence)
    profiles = [profile for profile in profiles if not profile.only_totals]
    title = profiles[0].title
    readings = collect(profiles)
    units = _units_per_epoch(profiles, workload, readings.unit)
    step = _steady_level(profiles, readings, confidence)
    first = _first_iteration(readings, step, units, confidence)
    validation = time_validations(profiles, readings, workload, step=step, confidence=confidence)
    partial = time_partial_batch(profiles[0], readings, workload, step=step, first=first, confidence=confidence)
    full = units - (1 if workload.partial_batch and readings.unit == "step" else 0)
    freq = workload.validation_freq or 1
    late = (workload.validation_from or freq) > freq
    training = step.value * full + partial.each.value
    inside = training + validation.later.value / freq
    lengths = [(training + validation.later.value, 1 / freq), *([(training, 1 - 1 / freq)] if freq > 1 else [])]
    boundaries = time_boundaries(profiles[0], readings, step=step, epoch_seconds=lengths, confidence=confidence)
    idle, last_idle = boundaries.waiting.each, boundaries.last_waiting.each
    init = predict_once(readings.init, confidence=confidence)
    between = boundaries.wrap_up.value + boundaries.ending.value + boundaries.opening.value
    pauses = time_pauses(readings)
    saves = find_unseen_saves(profiles[0], readings, step=step, steps_per_epoch=units)

    terms: dict[str, tuple[float, float]] = {
        "initialization": (init.value, 0.0),
        "first_iteration": (first.value, 0.0),
        "steady_iterations": (
            step.stall + pauses.once - step.value * readings.first_units,
            (step.value + pauses.each.value) * full,
        ),
        "partial_batch": (partial.once.value, partial.each.value),
        "epoch_boundaries": (
            boundaries.once
            + boundaries.first_wrap_up.value
            + boundaries.first_ending.value
            - between
            + last_idle.value,
            between + idle.value,
        ),
    }
    widths = HalfWidths()
    widths.add_level(init, once=1.0)
    widths.add_level(first, once=1.0)
    widths.add_level(step, once=-readings.first_units, per_epoch=full)
    widths.add_noise(quantile(confidence, 30.0) * step.noise, per_epoch=full)
    widths.add_level(pauses.each, per_epoch=full)
    widths.add_level(partial.each, per_epoch=1.0)
    widths.add_level(partial.once, once=1.0)
    widths.add_level(boundaries.first_wrap_up, once=1.0)
    widths.add_level(boundaries.wrap_up, once=-1.0, per_epoch=1.0)
    widths.add_level(boundaries.first_ending, once=1.0)
    widths.add_level(boundaries.ending, once=-1.0, per_epoch=1.0)
    widths.add_level(boundaries.opening, once=-1.0, per_epoch=1.0)
    widths.add_level(idle, per_epoch=1.0)
    widths.add_noise(quantile(confidence, 30.0) * idle.noise, per_epoch=1.0)
    widths.add_sides(last_idle.value, boundaries.last_waiting.longest - last_idle.value, once=1.0)
    widths.add_sides(0.0, saves.seconds, per_epoch=1.0)
    widths.add_level(validation.first, once=1.0)
    widths.add_level(validation.later, once=0.0 if late else -1.0, per_epoch=1.0 / freq)
    moving = inside + between
    steady = readings.unit == "epoch" or _are_given(profiles)
    priors = (EPOCH_DRIFT, EPOCH_DRIFT) if steady else (DRIFT_FASTER, DRIFT_SLOWER)
    rates = [math.fsum(block.seconds) / sum(block.covers) for block in readings.blocks if len(block.seconds) > 2]
    runs = max(1, len(readings.first))
    within_run = find_drift([*map(truediv, *readings.steady)]) if readings.unit == "step" else 0.0
    faster, slower = (_drift(rates, prior, within_run, runs, confidence) for prior in priors)
    widths.add_sides(faster * moving, slower * moving, per_epoch=1.0)
    # The rest of the training can be faster than the fastest block only by the error of a block and by drift.
    error = min(PRIOR_SPREAD, step.half_width_below / step.value) if step.value else 0.0
    fastest = _fastest(readings, step) / (1 + faster + error)
    widths.add_sides(disturbance.faster, disturbance.slower, once=init.value + first.value, per_epoch=moving)
    if changed := find_changing_epochs(profiles, readings.unit):
        # The other epochs may be like the shortest or like the longest.
        shorter, longer = step.value * (1 - changed.low), step.value * (changed.high - 1)
        widths.add_sides(shorter, longer, once=-readings.first_units, per_epoch=full)
    waits = Waits(idle.value, boundaries.waiting.longest, boundaries.waiting.share, inside)
    changes = [*disturbance.findings(title), *find_changes(profiles, readings)]
    widening = [
        *find_warnings(profiles, readings, step=step, boundaries=boundaries, saves=saves, epoch_seconds=inside),
        *(validation.findings if validation.assumed else ()),
    ]
    others = [*(() if validation.assumed else validation.findings), *check_validation_schedule(profiles[0])]
    return RuntimeModel(
        title=title,
        method="robust",
        confidence=confidence,
        terms={name: pair for name, pair in terms.items() if any(pair)},
        first_validation_seconds=validation.first.value,
        validation_seconds=validation.later.value,
        validation_freq=freq,
        validation_from=workload.validation_from,
        validation_until=workload.validation_until,
        low=widths.low,
        high=widths.high,
        certain=(
            disturbance.kept * (init.value - init.half_width_below + first.value - first.half_width_below)
            - disturbance.kept * fastest * readings.first_units,
            disturbance.kept * fastest * full,
        ),
        disturbance=disturbance,
        waits=waits,
        narrowed_by=(
            *(finding.remedy for finding in changes),
            *([waits.remedy] if waits.are_long else []),
            *(finding.remedy for finding in widening),
        ),
        findings=(*others, *changes, *widening),
    )


def _units_per_epoch(profiles: Sequence[Profile], workload: Workload, unit: str) -> float:
    """Steps per epoch; if ``unit`` is "epoch", the size of an epoch of ``workload`` relative to a measured epoch."""
    title = profiles[0].title
    if unit == "step":
        return workload.require_steps(title)
    setup = profiles[0].setup
    wanted, measured = workload.steps_per_epoch, Workload.of(profiles[0]).steps_per_epoch
    if wanted is not None and measured is not None:
        return wanted / measured
    if workload.examples and setup.examples:
        return workload.examples / setup.examples
    if workload.examples or wanted:
        raise EstimateError(
            f"{title}: the profile has epochs of unknown size, so their time cannot be scaled. Omit examples= and "
            "steps_per_epoch=, or probe with IterationProbe."
        )
    return 1.0


def _steady_level(profiles: Sequence[Profile], readings: Readings, confidence: float) -> Level:
    steady = readings.steady
    if readings.unit == "epoch":
        if not steady.seconds:  # only the first epoch, which includes compilation
            return locate(readings.first, confidence=confidence)
        return locate(
            steady.seconds,
            prior_spread=EPOCH_SPREAD,
            stall=EPOCH_STALL,
            uncertain=EPOCH_STALL,
            min_readings=MIN_EPOCHS,
            unseen=False,
            prior_readings=EPOCH_READINGS,
            lasting=EPOCH_LASTING,
            confidence=confidence,
        )
    if not steady.seconds:
        raise EstimateError(
            f"{profiles[0].title}: the profile has no steps after the warm-up. Probe more steps (steps=20)."
        )
    if _are_given(profiles):
        return locate(
            steady.seconds,
            prior_spread=GIVEN_SPREAD,
            unseen=False,
            prior_readings=EPOCH_READINGS,
            lasting=EPOCH_LASTING,
            confidence=confidence,
        )
    return locate(steady.seconds, units=steady.covers, confidence=confidence)


def _are_given(profiles: Sequence[Profile]) -> bool:
    """Whether the user gave all times (``Profile.from_times``), so that none was measured by a probe."""
    return all(profile.outcome == "given" for profile in profiles)


def _first_iteration(readings: Readings, step: Level, units: float, confidence: float) -> Level:
    """Seconds of the first step plus what warm-up steps take longer than steady steps; of whole epochs, the first."""
    if readings.unit == "epoch":
        # Only what the first epoch takes longer varies from run to run as compilation does.
        longer = predict_once([abs(seconds - step.value) for seconds in readings.first], confidence=confidence)
        mean = statistics.fmean(readings.first)
        return replace(longer, value=mean, half_width_below=min(longer.half_width_below, mean))
    reach = max(0, int(units) - 1)  # epochs shorter than those probed have fewer warm-up steps
    extra = [
        math.fsum(seconds - step.value * covers for seconds, covers in islice(zip(*warm, strict=True), reach))
        for warm in readings.warmup
    ]
    first = readings.first or [0.0] * len(extra)
    if len(first) == len(extra):
        first = [max(0.0, a + b) for a, b in zip(first, extra, strict=True)]
    return predict_once(first, confidence=confidence)


def _fastest(readings: Readings, step: Level) -> float:
    """Seconds per step of the fastest block of steps, or of the fastest epoch."""
    steady = readings.steady
    if readings.unit == "epoch":
        return min([step.value, *filter(None, steady.seconds)])
    return min(step.value, fastest_rate(*steady) or step.value)


def _drift(rates: Sequence[float], prior: float, within_run: float, runs: int, confidence: float) -> float:
    """Relative half-width for the difference between the speed during the probe and during a whole training.

    ``rates`` contains the seconds per step of each epoch in all runs; ``runs`` is the number of runs. ``prior`` is
    the standard deviation of the speed that is assumed before any measurement. ``within_run`` is the drift within the
    runs; the speed is assumed to differ as much between runs.
    """
    squares, freedom = DRIFT_BLOCKS * prior**2, DRIFT_BLOCKS
    if len(rates) > 1 and (center := statistics.median(rates)) > 0:
        squares += math.fsum((rate / center - 1) ** 2 for rate in rates)
        freedom += len(rates) - 1
    return quantile(confidence, freedom) * math.sqrt((squares / freedom + within_run**2) * (1 + 1 / runs) / 2)
