"""The default method: equation 5.3's structure, each term estimated so that one odd reading cannot spoil it.

How each number below was chosen is written in docs/explanation/runtime-equations.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from vmselect.errors import EstimateError
from vmselect.estimation.location import Level, locate, predict_once, quantile
from vmselect.estimation.readings import Readings, collect
from vmselect.estimation.runtime import RuntimeModel
from vmselect.estimation.spread import Spread
from vmselect.estimation.validation import time_validations
from vmselect.estimation.workload import Workload
from vmselect.profile import Finding, Profile

DRIFT = 0.03
"""Relative standard deviation of a machine's speed over a run that is assumed before any was seen..."""

DRIFT_BLOCKS = 4.0
"""...and how many blocks of readings that assumption counts for."""

EPOCH_SPREAD = 0.03
"""Relative spread of whole epochs, before any was seen: their steps have averaged out."""

BOUNDARY_SPREAD = 0.5
"""Relative spread of the time between epochs, before any was seen."""

LONE_BOUNDARY_STEPS = 64.0
"""A boundary seen once counts for no more steps than this: longer ones were stalls more often than not."""

TRUNCATED_BOUNDARY = 1.0
"""How much longer, as a share of what was seen, the boundary of a whole epoch may be than that of one cut short."""

RECOMPILE_UNSEEN = 1.0
"""Where a smaller last batch was not reached: its compilation against that of the first step (JAX and XLA only)."""


def fit_robust(profiles: Sequence[Profile], workload: Workload, *, confidence: float) -> RuntimeModel:
    """The robust model of repetitions of one setup."""
    title = profiles[0].title
    readings = collect(profiles)
    units = _units_per_epoch(profiles, workload, readings.unit)
    step = _steady_level(profiles, readings, confidence)
    findings: list[Finding] = []
    first = _first_iteration(readings, step, units, confidence)
    validation = time_validations(profiles, readings, workload, step=step, confidence=confidence)
    overhead, final = _boundaries(readings, step, confidence)
    partial, recompile = _partial_batch(profiles[0], readings, workload, step, first, confidence)
    full = units - (1 if workload.partial_batch and readings.unit == "step" else 0)
    init = predict_once(readings.init, confidence=confidence)

    terms: dict[str, tuple[float, float]] = {
        "initialization": (init.value, 0.0),
        "first_iteration": (first.value, 0.0),
        "steady_iterations": (-step.value * readings.first_units, step.value * full),
        "partial_batch": (recompile.value, partial.value),
        "epoch_boundaries": (final - overhead.value, overhead.value),
    }
    spread = Spread()
    spread.add_level(init, once=1.0)
    spread.add_level(first, once=1.0)
    spread.add_level(step, once=-readings.first_units, per_epoch=full)
    spread.add_noise(quantile(confidence, 30.0) * step.noise, per_epoch=full)
    spread.add_level(partial, per_epoch=1.0)
    spread.add_level(recompile, once=1.0)
    spread.add_level(overhead, once=-1.0, per_epoch=1.0)
    spread.add_level(validation.first, once=1.0)
    spread.add_level(validation.later, once=-1.0, per_epoch=1.0 / workload.validation_freq)
    moving = step.value * full + partial.value + overhead.value
    moving += validation.later.value / workload.validation_freq
    spread.add(_drift(readings, confidence) * moving, per_epoch=1.0)
    findings += [*validation.findings, *_doubts(profiles, readings, step, overhead)]
    return RuntimeModel(
        title=title,
        method="robust",
        confidence=confidence,
        terms={name: pair for name, pair in terms.items() if any(pair)},
        first_validation_seconds=validation.first.value,
        validation_seconds=validation.later.value,
        validation_freq=workload.validation_freq,
        low=spread.low,
        high=spread.high,
        findings=tuple(findings),
    )


def _units_per_epoch(profiles: Sequence[Profile], workload: Workload, unit: str) -> float:
    """Steps per epoch; where epochs were measured, the epochs of that size that one epoch of the workload makes."""
    title = profiles[0].title
    if unit == "step":
        if workload.steps_per_epoch is None:
            raise EstimateError(
                f"{title}: the number of steps per epoch is not known. Pass steps_per_epoch=, or examples= with "
                "batch_size=."
            )
        return workload.steps_per_epoch
    setup = profiles[0].setup
    wanted, measured = workload.steps_per_epoch, Workload.of(profiles[0]).steps_per_epoch
    if wanted is not None and measured is not None:
        return wanted / measured
    if workload.examples and setup.examples:
        return workload.examples / setup.examples
    if workload.examples or wanted:
        raise EstimateError(
            f"{title}: it holds whole epochs of unknown size, which cannot be scaled to another one. Leave examples= "
            "and steps_per_epoch= out, or probe steps with IterationProbe."
        )
    return 1.0


def _steady_level(profiles: Sequence[Profile], readings: Readings, confidence: float) -> Level:
    steady = readings.steady
    if not steady and readings.unit == "epoch":
        # One epoch, the first: all there is. Its compilation cannot be told from its steps.
        return locate(readings.first, confidence=confidence)
    if readings.unit == "epoch":
        return locate([s for s, _ in steady], prior_spread=EPOCH_SPREAD, unseen=False, confidence=confidence)
    if not steady:
        raise EstimateError(
            f"{profiles[0].title}: it holds no steady step. Probe more steps (IterationProbe(steps=20)) on enough data "
            "for them."
        )
    return locate([s for s, _ in steady], units=[n for _, n in steady], confidence=confidence)


def _first_iteration(readings: Readings, step: Level, units: float, confidence: float) -> Level:
    """The first step, and what the warm-up steps after it took beyond steady ones."""
    reach = max(0, int(units) - 1)  # a workload of shorter epochs than were probed has fewer warm-up steps
    extra = [math.fsum(seconds - step.value * covers for seconds, covers in warm[:reach]) for warm in readings.warmup]
    first = readings.first or [0.0] * len(extra)
    if len(first) == len(extra):
        first = [max(0.0, a + b) for a, b in zip(first, extra, strict=True)]
    return predict_once(first, confidence=confidence)


def _boundaries(readings: Readings, step: Level, confidence: float) -> tuple[Level, float]:
    """Seconds lost between two epochs, and those after the last one."""
    lost = [max(0.0, seconds + opening - step.value * covers) for seconds, opening, covers in readings.openings]
    final = statistics.median(readings.finals) if readings.finals else 0.0
    if not lost:
        return Level(0.0, 0.0, 0.0, 0.0), final
    beyond = 0.0
    if len(lost) == 1 and readings.unit == "step":
        limit = LONE_BOUNDARY_STEPS * step.value
        beyond, lost = max(0.0, lost[0] - limit), [min(lost[0], limit)]
    level = locate(lost, prior_spread=BOUNDARY_SPREAD, unseen=False, confidence=confidence)
    longer = TRUNCATED_BOUNDARY * level.value if readings.truncated_boundaries else 0.0
    high = math.hypot(level.high, longer, beyond)
    return Level(level.value, level.low, high, level.noise, stalls=1 if beyond else 0), final


def _partial_batch(
    profile: Profile, readings: Readings, workload: Workload, step: Level, first: Level, confidence: float
) -> tuple[Level, Level]:
    """Seconds of the smaller last batch of every epoch, and of compiling for it once."""
    nothing = Level(0.0, 0.0, 0.0, 0.0)
    if readings.unit == "epoch" or not workload.partial_batch:
        return nothing, nothing
    share = workload.partial_batch / workload.batch_size if workload.batch_size else 1.0
    guess = step.value * (1 + share) / 2  # step time is affine in the batch size, with an unknown share that is fixed
    doubt = step.value * (1 - share) / 2
    if readings.later_partials:
        partial = locate(readings.later_partials, prior_spread=BOUNDARY_SPREAD, unseen=False, confidence=confidence)
    else:
        partial = Level(guess, doubt, doubt, 0.0)
    compiles = profile.environment.backend == "jax" or bool(profile.environment.jit)
    if readings.first_partials:
        extra = [max(0.0, seconds - partial.value) for seconds in readings.first_partials]
        return partial, predict_once(extra, confidence=confidence)
    if compiles:
        again = RECOMPILE_UNSEEN * max(0.0, first.value - step.value * readings.first_units)
        return partial, Level(again, again / 2, again / 2, 0.0)
    return partial, nothing


def _drift(readings: Readings, confidence: float) -> float:
    """Relative half-width for a machine whose speed over the whole run is not that of the probe."""
    rates = [math.fsum(s for s, _ in block) / sum(n for _, n in block) for block in readings.blocks if len(block) > 2]
    squares = DRIFT_BLOCKS * DRIFT**2
    freedom = DRIFT_BLOCKS
    if len(rates) > 1 and (centre := statistics.median(rates)) > 0:
        squares += math.fsum((rate / centre - 1) ** 2 for rate in rates)
        freedom += len(rates) - 1
    runs = max(1, len(readings.first))
    return quantile(confidence, freedom) * math.sqrt(squares / freedom * (1 + 1 / runs) / 2)


def _doubts(profiles: Sequence[Profile], readings: Readings, step: Level, overhead: Level) -> list[Finding]:
    found = []
    title = profiles[0].title
    seen = len(readings.steady)
    if seen < 3:
        found.append(
            Finding(
                "few-readings",
                f"{title}: the estimate rests on {seen or 'no'} steady {readings.unit}{'' if seen == 1 else 's'}, so "
                "its interval is mostly assumption.",
                "Measure more, or give every single time that was measured.",
            )
        )
    if step.stalls:
        found.append(
            Finding(
                "lone-stall",
                f"{title}: one {readings.unit} took far longer than all others and was left out; if such stalls recur, "
                "the training takes longer, which the high end of the interval allows for.",
                "Probe more steps to see whether it recurs.",
                "note",
            )
        )
    if overhead.stalls and len(readings.openings) == 1:
        found.append(
            Finding(
                "long-boundary",
                f"{title}: the one boundary between epochs that was seen took over {LONE_BOUNDARY_STEPS:.0f} steps "
                "and counts as that many; the high end of the interval allows for all of it.",
                "Probe twice and estimate from both profiles: what recurs is then believed.",
                "note",
            )
        )
    found.extend(_changing_epochs(title, profiles))
    return found


def _changing_epochs(title: str, profiles: Sequence[Profile]) -> list[Finding]:
    """Epochs whose time per step changes along the run beyond their noise."""
    for profile in profiles:
        later = [epoch.seconds / (epoch.steps or 1) for epoch in profile.timeline.epochs[1:] if epoch.complete]
        if len(later) < 4:
            continue
        half = len(later) // 2
        early, late = later[:half], later[-half:]
        change = statistics.median(late) / statistics.median(early) - 1 if statistics.median(early) > 0 else 0.0
        noise = max(statistics.median(abs(x - statistics.median(part)) for x in part) for part in (early, late))
        if abs(change) > 0.1 and abs(change) * statistics.median(early) > 4 * noise:
            return [
                Finding(
                    "changing-epochs",
                    f"{title}: later epochs take {change:+.0%} of the time of earlier ones, beyond their noise: the "
                    "recipe changes during the run (image size, batch size, data).",
                    "Probe each phase and pass phases=[(epochs, profile), ...].",
                )
            ]
    return []
