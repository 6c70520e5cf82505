"""The default method "robust": equation 5.3 of the dissertation, with each term made robust.

Equation 5.3 for n epochs of N steps, with its constant parts collected::

    T(n) = T(init) + T(it1) + T(it2) (N n - 1) + T(val1) + T(val2) (n - 1)

This module adds what a probe sees besides steps and validations::

    + T(partial) n + T(boundary) (n - 1) + T(wait) n + T(once)

The terms of the dissertation are single measurements; here they are::

    T(init)      the mean over repetitions, with an interval for a new run
    T(it1)       the first step, and what the steps of the detected warm-up take longer than steady ones
    T(it2)       the mean of all steady steps without a lone stall, which counts once
    T(val1)      the first validation, completed if the probe ended it early
    T(val2)      the mean of later validations; from the batches of the first if there is no other
    T(partial)   the smaller last batch of an epoch; N then counts the full batches only
    T(boundary)  callbacks, checkpoints and the restart of the input between epochs
    T(wait)      the mean wait for TensorFlow's autotuner (:mod:`vmselect.estimation.overheads`)
    T(once)      stalls, garbage collections of the whole heap, compilation of the partial batch

If a profile contains times of whole epochs instead of steps, N is 1 and T(it2) is the time of an
epoch. If it contains only total times, see :func:`fit_totals`. Squared half-widths of all terms
are added, each a quadratic in n, with those of drift, disturbances and changing epochs.
docs/explanation/runtime-equations.md explains how the constants were chosen.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from vmselect.diagnosis.checks import Disturbance
from vmselect.errors import EstimateError
from vmselect.estimation.drift import Learned, bound_speed, find_trend
from vmselect.estimation.overheads import (
    Boundaries,
    PartialBatch,
    Pauses,
    Saves,
    ValidationTimes,
    check_validation_schedule,
    describe_cold_run,
    find_unseen_saves,
    is_cold,
    time_boundaries,
    time_partial_batch,
    time_pauses,
    time_validations,
)
from vmselect.estimation.readings import (
    PRIOR_SPREAD,
    Level,
    Readings,
    collect,
    fastest_rate,
    find_changing_epochs,
    find_changing_speed,
    locate,
    predict_once,
    quantile,
)
from vmselect.estimation.runtime import HalfWidths, RuntimeModel, Waits
from vmselect.estimation.workload import Workload
from vmselect.findings import Finding
from vmselect.records import Profile
from vmselect.units import format_epoch_count, format_seconds

EPOCH_SPREAD, EPOCH_READINGS, EPOCH_LASTING = 0.005, 2.0, 1.0
"""Constants for times of whole epochs: prior relative spread; number of observed epochs that this prior weighs as much
as; and variance of the difference between the recorded epochs and the rest of the training, relative to the variance of
single epochs. Chosen on MLPerf v0.7 and v1.1 and DAWNBench (``tests/benchmarks/calibration.py``): every source is
covered in at least 88 %, from units of the run and of another run."""

GIVEN_SPREAD = 0.0125
"""Prior relative spread of step times that the user gives (``Profile.from_times``), usually means of many steps on
machines without other load. The other constants are those of whole epochs. With the difference between processes
(:mod:`vmselect.estimation.drift`), a single number has a half-width of 6.7 %, 1.5 times the one that would cover 90 %
of the repetitions of PROFET: a user may also give the time of a single step, as the dissertation does."""

EPOCH_STALL, MIN_EPOCHS = 0.05, 3
"""A single epoch that is longer than the others by the share ``EPOCH_STALL`` is assumed not to recur, if there are at
least ``MIN_EPOCHS`` epochs. Chosen on MLPerf v0.7 and v1.1."""

RUN_SPREAD = 0.03
"""Prior relative standard deviation between total times of runs, from 24 setups with three runs
each in Table 4.2 of the dissertation (0.029, root mean square). Table 4.1 was not used, because its
runs have different numbers of epochs."""

FEW_READINGS = 3
"""Number of readings below which the width of an interval comes mostly from the priors above."""


@dataclass(frozen=True)
class _Parts:
    """All estimated durations of which a training consists, before they are summed.

    ``full`` is the number of full batches per epoch, or the relative size of an epoch. Validation
    follows every ``freq`` epochs, ``late`` if the first validation comes later than that.
    """

    init: Level
    first: Level
    step: Level
    partial: PartialBatch
    validation: ValidationTimes
    boundaries: Boundaries
    pauses: Pauses
    saves: Saves
    full: float
    freq: int
    late: bool

    @property
    def inside_seconds(self) -> float:
        """Seconds of steps and validation per epoch."""
        training = self.step.value * self.full + self.partial.each.value
        return training + self.validation.later.value / self.freq

    @property
    def between_seconds(self) -> float:
        """Seconds of an epoch boundary, without autotune waits."""
        return self.boundaries.wrap_up.value + self.boundaries.ending.value + self.boundaries.opening.value


def fit_robust(
    profiles: Sequence[Profile], workload: Workload, *, confidence: float, disturbance: Disturbance, learned: Learned
) -> RuntimeModel:
    """Runtime model by the method "robust", from repetitions of one setup, which a ``disturbance`` may have slowed.

    ``learned`` is what all records show about differences between processes. Profiles that contain only total times are
    used only if there are no other profiles.
    """
    if all(profile.only_totals for profile in profiles):
        return fit_totals(profiles, scale=_units_per_epoch(profiles, workload, "epoch"), confidence=confidence)
    profiles = [profile for profile in profiles if not profile.only_totals]
    readings = collect(profiles)
    parts = _estimate_parts(profiles, readings, workload, confidence)
    faster, slower = bound_speed(profiles, readings, learned, confidence)
    widths = _add_widths(parts, readings, confidence)
    moving = parts.inside_seconds + parts.between_seconds
    widths.add_sides(faster * moving, slower * moving, per_epoch=1.0)
    occurring_once = parts.init.value + parts.first.value
    widths.add_sides(disturbance.faster, disturbance.slower, once=occurring_once, per_epoch=moving)
    if changed := find_changing_epochs(profiles, readings.unit):
        # The other epochs may be like the shortest or like the longest.
        shorter, longer = parts.step.value * (1 - changed.low), parts.step.value * (changed.high - 1)
        widths.add_sides(shorter, longer, once=-readings.first_units, per_epoch=parts.full)
    waiting = parts.boundaries.waiting
    model = RuntimeModel(
        title=profiles[0].title,
        method="robust",
        confidence=confidence,
        terms={name: pair for name, pair in _sum_terms(parts, readings).items() if any(pair)},
        first_validation_seconds=parts.validation.first.value,
        validation_seconds=parts.validation.later.value,
        validation_freq=parts.freq,
        validation_from=workload.validation_from,
        validation_until=workload.validation_until,
        low=widths.low,
        high=widths.high,
        certain=_find_certain(parts, readings, faster, disturbance),
        disturbance=disturbance,
        waits=Waits(waiting.each.value, waiting.longest, waiting.share, parts.inside_seconds),
    )
    return _add_findings(model, profiles, readings, parts)


def _estimate_parts(profiles: Sequence[Profile], readings: Readings, workload: Workload, confidence: float) -> _Parts:
    """Estimate each duration of which a training consists, from the readings of all repetitions."""
    units = _units_per_epoch(profiles, workload, readings.unit)
    step = _steady_level(profiles, readings, confidence)
    first = _first_iteration(readings, step, units, confidence)
    validation = time_validations(profiles, readings, workload, step=step, confidence=confidence)
    partial = time_partial_batch(profiles[0], readings, workload, step=step, first=first, confidence=confidence)
    full = units - (1 if workload.partial_batch and readings.unit == "step" else 0)
    freq = workload.validation_freq or 1
    training = step.value * full + partial.each.value
    # Autotune waits depend on the length of an epoch, which differs if only some epochs are validated.
    lengths = [(training + validation.later.value, 1 / freq), *([(training, 1 - 1 / freq)] if freq > 1 else [])]
    return _Parts(
        init=predict_once(readings.init, confidence=confidence),
        first=first,
        step=step,
        partial=partial,
        validation=validation,
        boundaries=time_boundaries(profiles[0], readings, step=step, epoch_seconds=lengths, confidence=confidence),
        pauses=time_pauses(readings),
        saves=find_unseen_saves(profiles[0], readings, step=step, steps_per_epoch=units),
        full=full,
        freq=freq,
        late=(workload.validation_from or freq) > freq,
    )


def _sum_terms(parts: _Parts, readings: Readings) -> dict[str, tuple[float, float]]:
    """The terms of the equation except validation: seconds that occur once, and seconds per epoch.

    No term is negative for one epoch or more.
    """
    step, pauses, boundaries, between = parts.step, parts.pauses, parts.boundaries, parts.between_seconds
    inside, beyond = _split_first_units(parts, readings)
    return {
        "initialization": (parts.init.value, 0.0),
        "first_iteration": (max(0.0, parts.first.value - step.value * beyond), 0.0),
        # The first epoch has one steady step less, because its first step is a term of its own.
        "steady_iterations": (
            step.stall + pauses.once - step.value * inside,
            (step.value + pauses.each.value) * parts.full,
        ),
        "partial_batch": (parts.partial.once.value, parts.partial.each.value),
        # There is one boundary less than epochs, but after the last epoch TensorFlow waits too.
        "epoch_boundaries": (
            boundaries.once
            + boundaries.first_wrap_up.value
            + boundaries.first_ending.value
            - between
            + boundaries.last_waiting.each.value,
            between + boundaries.waiting.each.value,
        ),
    }


def _split_first_units(parts: _Parts, readings: Readings) -> tuple[float, float]:
    """Number of units of the first reading that an epoch has, and the number by which the epoch is shorter.

    An epoch is shorter than the first reading if it is smaller than a measured epoch, has fewer steps than one
    execution, or is a single partial batch.
    """
    inside = min(readings.first_units, parts.full)
    return inside, readings.first_units - inside


def _add_widths(parts: _Parts, readings: Readings, confidence: float) -> HalfWidths:
    """Squared half-widths of all parts; each part occurs as often as in :func:`_sum_terms`."""
    widths, boundaries, full = HalfWidths(), parts.boundaries, parts.full
    idle, last_idle = boundaries.waiting.each, boundaries.last_waiting.each
    widths.add_level(parts.init, once=1.0)
    widths.add_level(parts.first, once=1.0)
    widths.add_level(parts.step, once=-readings.first_units, per_epoch=full)
    widths.add_noise(quantile(confidence, 30.0) * parts.step.noise, per_epoch=full)
    widths.add_level(parts.pauses.each, per_epoch=full)
    widths.add_level(parts.partial.each, per_epoch=1.0)
    widths.add_level(parts.partial.once, once=1.0)
    widths.add_level(boundaries.first_wrap_up, once=1.0)
    widths.add_level(boundaries.wrap_up, once=-1.0, per_epoch=1.0)
    widths.add_level(boundaries.first_ending, once=1.0)
    widths.add_level(boundaries.ending, once=-1.0, per_epoch=1.0)
    widths.add_level(boundaries.opening, once=-1.0, per_epoch=1.0)
    widths.add_level(idle, per_epoch=1.0)
    widths.add_noise(quantile(confidence, 30.0) * idle.noise, per_epoch=1.0)
    widths.add_sides(last_idle.value, boundaries.last_waiting.longest - last_idle.value, once=1.0)
    widths.add_sides(0.0, parts.saves.seconds, per_epoch=1.0)
    widths.add_level(parts.validation.first, once=1.0)
    widths.add_level(parts.validation.later, once=0.0 if parts.late else -1.0, per_epoch=1.0 / parts.freq)
    return widths


def _find_certain(parts: _Parts, readings: Readings, faster: float, disturbance: Disturbance) -> tuple[float, float]:
    """Seconds (once, per epoch) that the training takes in any case, as in :class:`RuntimeModel`."""
    init, first, step = parts.init, parts.first, parts.step
    # The rest of the training can be faster than the fastest block only by the error of a block and by drift.
    error = min(PRIOR_SPREAD, step.half_width_below / step.value) if step.value else 0.0
    fastest = _fastest(readings, step) / (1 + faster + error)
    inside, beyond = _split_first_units(parts, readings)
    start = max(0.0, first.value - first.half_width_below - fastest * beyond)
    return (
        disturbance.kept * (init.value - init.half_width_below + start) - disturbance.kept * fastest * inside,
        disturbance.kept * fastest * parts.full,
    )


def _add_findings(model: RuntimeModel, profiles: Sequence[Profile], readings: Readings, parts: _Parts) -> RuntimeModel:
    """``model`` with findings about its measured times, and with the remedies of those that widen the interval."""
    title, epoch_seconds = model.title, parts.inside_seconds
    changes = [*model.disturbance.findings(title), *_find_changes(profiles, readings)]
    widening = [
        *(parts.validation.findings if parts.validation.assumed else ()),
        *parts.boundaries.findings(profiles[0], epoch_seconds),
        *parts.saves.findings(profiles[0], epoch_seconds),
        *_find_disturbed_steps(title, readings, parts.step),
    ]
    others = [*(() if parts.validation.assumed else parts.validation.findings), *check_validation_schedule(profiles[0])]
    return replace(
        model,
        findings=(*others, *changes, *widening),
        narrowed_by=(
            *(finding.remedy for finding in changes),
            *([model.waits.remedy] if model.waits.are_long else []),
            *(finding.remedy for finding in widening),
        ),
    )


def _find_changes(profiles: Sequence[Profile], readings: Readings) -> Iterator[Finding]:
    """Yield a finding each if the time of an epoch or of a step changes during the measurement."""
    title = profiles[0].title
    if changed := find_changing_epochs(profiles, readings.unit):
        yield Finding(
            "changing-epochs",
            f"{title}: {changed.evidence}, so the work changes during the training (image size, batch size, data). The "
            "interval reaches from the shortest epoch to the longest.",
            "Probe each phase of the training and pass phases=[(epochs, profile), ...] (--phase EPOCHS:PROFILE).",
        )
    elif change := find_trend(readings):
        yield Finding(
            "drifting-epochs",
            f"{title}: epochs after the first became {abs(change):.1%} {'longer' if change > 0 else 'shorter'} while "
            f"they were measured. The interval is wider on the side of {'longer' if change > 0 else 'shorter'} times.",
            "Measure more epochs, until their times no longer change.",
            "info",
        )
    if speeds := find_changing_speed(readings):
        yield Finding(
            "changing-speed",
            f"{title}: the step time changed during the probe, between {format_seconds(speeds[0])} and "
            f"{format_seconds(speeds[1])}. The training may run at either speed.",
            "End other programs on the machine and probe again, or probe for longer (--steady-seconds 10; in Python "
            "steady_seconds=10).",
        )


def _find_disturbed_steps(title: str, readings: Readings, step: Level) -> Iterator[Finding]:
    """Yield a finding each about a step that stalled, about equal times, and about too few steps."""
    if step.stall:
        yield Finding(
            "lone-stall",
            f"{title}: one {readings.unit} was much longer than all others. The estimate assumes that this delay "
            "happens once; the upper bound of the interval assumes more delays.",
            f"Probe more {readings.unit}s to find out whether such a delay recurs.",
            "info",
        )
    count = sum(len(block.seconds) for block in readings.blocks)
    if readings.summarized:
        yield Finding(
            "equal-times",
            f"{title}: all times of {readings.unit}s that were given are equal, so they count as one mean or median, "
            "not as several measurements.",
            "Pass all measured times to Profile.from_times, or those of several runs.",
            "info",
        )
    elif count < FEW_READINGS:
        yield Finding(
            "few-readings",
            f"{title}: the profile has {count or 'no'} steady {readings.unit}{'' if count == 1 else 's'}, so the width "
            "of the interval comes mostly from default assumptions.",
            f"Measure more {readings.unit}s. In Profile.from_times, pass a list of all measured times.",
        )


def _units_per_epoch(profiles: Sequence[Profile], workload: Workload, unit: str) -> float:
    """Steps per epoch; if ``unit`` is "epoch", the size of an epoch of ``workload`` relative to a measured epoch."""
    title = profiles[0].title
    if unit == "step":
        return workload.require_steps(title)
    setup = profiles[0].setup
    steps, measured_steps = workload.steps_per_epoch, Workload.of(profiles[0]).steps_per_epoch
    if steps is not None and measured_steps is not None:
        return steps / measured_steps
    if workload.examples and setup.examples:
        return workload.examples / setup.examples
    if workload.examples or steps:
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


def fit_totals(profiles: Sequence[Profile], *, scale: float, confidence: float) -> RuntimeModel:
    """Runtime model from the total times of ``profiles``, multiplied by ``scale`` (relative size of an epoch).

    At the measured number of epochs, the time is the mean of the runs. It is unknown which part of it occurs only once,
    such as the initialization. For other numbers of epochs, the estimate is proportional to the number of epochs, as if
    no part occurred only once. Its interval extends to the other extreme: the whole time occurs only once.
    """
    title = profiles[0].title
    counts = {profile.setup.epochs for profile in profiles}
    (epochs,) = counts if len(counts) == 1 else (None,)
    if epochs is None:
        raise EstimateError(
            f"{title}: the total times are of different or unknown numbers of epochs. Pass the same epochs= to "
            "Profile.from_times for all repetitions."
        )
    runs = [seconds * scale for profile in profiles for seconds in profile.timeline.run_seconds]
    runs = runs[:1] if len(set(runs)) == 1 else runs  # equal totals are a mean that was given several times
    widths = HalfWidths()
    cold = is_cold(runs)
    total = predict_once(runs[:1] if cold else runs, spread=RUN_SPREAD, confidence=confidence)
    each = total.value / epochs
    if cold:  # the low end is that of later runs
        widths.add_sides(each - statistics.fmean(runs[1:]) / epochs, 0.0, per_epoch=1.0)
    widths.add_sides(total.half_width_below / epochs, total.half_width_above / epochs, per_epoch=1.0)
    widths.add_sides(each, each, once=-epochs, per_epoch=1.0)
    measured = format_epoch_count(epochs)
    remedy = f"Estimate {measured}, or probe the machine to measure step times."
    return RuntimeModel(
        title=title,
        method="robust",
        confidence=confidence,
        terms={"steady_iterations": (0.0, each)},
        low=widths.low,
        high=widths.high,
        certain=(min(runs) / epochs, 0.0),
        findings=(
            *([describe_cold_run(title, [seconds / epochs for seconds in runs], predicted=True)] if cold else []),
            Finding(
                "only-totals",
                f"{title}: only the total time of {measured} is known, so the intervals of other numbers of epochs are "
                "wide.",
                remedy,
                "info",
            ),
        ),
        narrowed_by=(remedy,),
    )
