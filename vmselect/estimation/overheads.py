"""Time of a training besides ordinary steps, and the findings about it.

That is: epoch boundaries, the smaller last batch, pauses, checkpoints, validation, and cold first
runs. The first run on a new machine is often slower than later runs, because caches are empty. A
training on a newly rented machine is a first run. So if the first of several repetitions is much
slower than all others, the estimate is the time of the first run, and its interval extends down to
the times of later runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vmselect.errors import EstimateError
from vmselect.estimation.autotune_wait import (
    NO_WAITING,
    UNKNOWN_SECONDS,
    Evidence,
    Waiting,
    count_pipelines,
    expect_waiting,
    split_wait,
    weigh_evidence,
)
from vmselect.estimation.level import NOTHING, Level, locate, predict_once
from vmselect.estimation.readings import Opening, Readings, epochs_include_validation
from vmselect.estimation.runtime import LONG_WAIT, TURN_OFF, HalfWidths, RuntimeModel
from vmselect.estimation.workload import EVERY_EPOCH, Workload
from vmselect.findings import Finding
from vmselect.records import Profile, Validation
from vmselect.units import format_seconds

BOUNDARY_SPREAD = 0.25
"""Prior relative spread of the times of epoch boundaries."""

LONE_BOUNDARY_STEPS = 128.0
"""If only one epoch boundary was recorded, at most the time of this many steps is used for it, because longer
boundaries were mostly stalls that did not recur."""

TRUNCATED_BOUNDARY = 0.3
"""Assumed relative excess of the boundary after a complete epoch over one after an epoch that the probe ended early."""

STALL_RECURS = 0.3
"""Share of the boundary time beyond ``LONE_BOUNDARY_STEPS`` that the upper bound includes for every boundary."""

FULL_PAUSE = 2.0
"""A garbage collection that takes more than this many times as long as any other in its run was of the whole heap."""

FULL_RECURS = 0.3
"""Share of the observed rate of whole-heap garbage collections that the upper bound includes (an assumption)."""

SEEN_TWICE = 2
"""Minimum number of checkpoints during a probe for which the mean step time is taken to include checkpoints."""

SELDOM, SELDOM_SHARE = 10.0, 0.5
"""If callbacks take ``SELDOM`` times as long at the end of the first epoch as at the end of later epochs, they may save
a checkpoint every few epochs. The upper bound then includes it for the share ``SELDOM_SHARE`` of the epochs, because
the second epoch had none."""

VALIDATION_SHARE = 0.35
"""Assumed time of a validation batch relative to a training step, if no validation was measured. From published
trainings."""

MIN_READINGS = 5
"""Minimum number of measured batches of a validation to detect a single stalled batch."""

VALIDATION_SPREAD = 0.15
"""Prior relative spread of the times of validations."""

COLD_EXCESS, COLD_RANGES = 0.5, 3.0
"""A first run is cold if it takes longer than every later run by more than ``COLD_EXCESS`` times the median of the
later runs and by more than ``COLD_RANGES`` times their range. Without being cold, repeated trainings on a shared
machine differed by up to 29 %."""


@dataclass(frozen=True)
class Boundaries:
    """Seconds of the parts of an epoch boundary, and boundary seconds that occur ``once`` per training.

    ``shortened`` is True if the only recorded boundary was so long that only a part of it is assumed to recur.
    ``waiting`` is the autotune wait after every epoch, and ``last_waiting`` the one at the end of the training.
    """

    wrap_up: Level = NOTHING
    opening: Level = NOTHING
    first_wrap_up: Level = NOTHING
    ending: Level = NOTHING
    first_ending: Level = NOTHING
    once: float = 0.0
    shortened: bool = False
    waiting: Waiting = NO_WAITING
    last_waiting: Waiting = NO_WAITING

    def findings(self, profile: Profile, epoch_seconds: float) -> Iterator[Finding]:
        """Yield findings about boundaries that widen the interval; ``epoch_seconds`` is the time of an epoch."""
        title, setup, last = profile.title, profile.setup, self.last_waiting
        if last.longest > LONG_WAIT * (setup.epochs or 1) * epoch_seconds:
            yield Finding(
                "waits-at-the-end",
                f"{title}: TensorFlow waits up to {format_seconds(last.longest)} for the tf.data autotuner when fit "
                f"ends. The estimate includes {format_seconds(last.each.value)} for this wait.",
                f"{TURN_OFF} and probe again.",
                "info",
            )
        if self.shortened:
            limit = f"{LONE_BOUNDARY_STEPS:.0f} steps"
            yield Finding(
                "long-boundary",
                f"{title}: the only recorded epoch boundary took longer than {limit}. The estimate assumes the time of "
                f"{limit} for each later boundary, the upper bound more.",
                "Probe twice and estimate from both profiles.",
                "info",
            )
        if setup.saving == "best" and self.ending.value > LONG_WAIT * epoch_seconds:
            yield Finding(
                "saves-the-best",
                f"{title}: a checkpoint is saved only if an epoch is the best so far. The estimate includes "
                f"{format_seconds(self.ending.value)} for a checkpoint after every epoch, the lower bound none.",
                "If only few epochs will save a checkpoint, expect a time near the lower bound of the interval.",
                "info",
            )


@dataclass(frozen=True)
class PartialBatch:
    """Seconds of the smaller last batch of an epoch (``each``), and of its compilation (``once``)."""

    each: Level = NOTHING
    once: Level = NOTHING


def time_boundaries(
    profile: Profile,
    readings: Readings,
    *,
    step: Level,
    epoch_seconds: Sequence[tuple[float, float]],
    confidence: float,
) -> Boundaries:
    """Estimate the time of epoch boundaries from recorded boundaries.

    Recorded autotune waits are replaced by the waits expected after complete epochs. These depend on the duration of
    epochs: ``epoch_seconds`` contains pairs of (seconds of steps and validation, share of epochs of this duration).
    """
    # After a complete epoch of unknown length, a wait cannot be separated from the rest of the boundary.
    mixed = any(not o.cut_short and o.pipeline_seconds is None for o in readings.openings + readings.first_openings)
    tunes = bool(profile.setup.self_tuning_input) and not mixed
    goes_on = bool(profile.setup.continuous_input)
    pipelines = count_pipelines(profile)
    evidence: list[Evidence] = []

    def lost(opening: Opening) -> float:
        seconds = max(0.0, opening.before_seconds + opening.step_seconds - step.value * opening.covers)
        if not tunes or goes_on:
            return seconds
        wait, waited = split_wait(seconds, opening.pipeline_seconds, pipelines)
        evidence.append(weigh_evidence(waited, cut_short=opening.cut_short, pipelines=pipelines))
        return seconds - wait

    def find(seconds: Sequence[float]) -> Level:
        if not seconds:
            return NOTHING
        return locate(seconds, prior_spread=BOUNDARY_SPREAD, unseen=False, confidence=confidence)

    wrap_up = find(readings.later_wrap_ups)
    if readings.first_wrap_ups and not readings.later_wrap_ups:
        # All of it or none of it may be compilation.
        wrap_up = replace(wrap_up, half_width_above=max(readings.first_wrap_ups))
    ending = find(readings.later_endings)
    if readings.first_endings and not readings.later_endings:
        # A first save can take a hundred times as long as later ones, or the same time.
        half = max(readings.first_endings) / 2
        ending = Level(half, half, half, 0.0)
    if profile.setup.saving == "best":  # every epoch counts as the best so far, but perhaps none is
        ending = replace(ending, half_width_below=max(ending.half_width_below, ending.value))
    seen, beyond = [lost(opening) for opening in readings.openings], 0.0
    # One boundary cannot tell a stall from what recurs; a limit in steps separated them on real trainings.
    if len(seen) == 1 and readings.unit == "step" and not readings.first_openings:
        limit = LONE_BOUNDARY_STEPS * step.value
        beyond, seen = max(0.0, seen[0] - limit), [min(seen[0], limit)]
    opening = find(seen)
    final = statistics.median(readings.finals) if readings.finals else 0.0
    once = wrap_up.stall + ending.stall + opening.stall + beyond + final
    if readings.first_openings:
        # The sum stays positive, or a training of one epoch would gain time.
        once += max(-once, statistics.fmean(map(lost, readings.first_openings)) - opening.value)
    # An epoch that was cut short leaves less to clean up than a whole one.
    longer = TRUNCATED_BOUNDARY * opening.value if readings.truncated_boundaries else 0.0
    waiting = last_waiting = NO_WAITING
    lengths = [(seconds + wrap_up.value + ending.value, often) for seconds, often in epoch_seconds]
    if tunes and goes_on:
        epochs, epoch = profile.setup.epochs, math.fsum(seconds * often for seconds, often in lengths)
        lasts = epochs * epoch if epochs else UNKNOWN_SECONDS
        last_waiting = expect_waiting(profile, (), [(lasts, 1.0)], confidence=confidence)
    elif tunes:
        waiting = expect_waiting(profile, evidence, lengths, confidence=confidence)
    return Boundaries(
        wrap_up=wrap_up,
        ending=ending,
        first_ending=predict_once(readings.first_endings, confidence=confidence),
        opening=replace(opening, half_width_above=math.hypot(opening.half_width_above, longer, STALL_RECURS * beyond)),
        first_wrap_up=predict_once(readings.first_wrap_ups, confidence=confidence),
        once=once,
        shortened=beyond > 0,
        waiting=waiting,
        last_waiting=last_waiting,
    )


def time_partial_batch(
    profile: Profile, readings: Readings, workload: Workload, *, step: Level, first: Level, confidence: float
) -> PartialBatch:
    """Estimate the time of the smaller last batch from recorded last batches, or else from the ordinary step time."""
    if readings.unit == "epoch" or not workload.partial_batch:
        return PartialBatch()
    if readings.later_partials:
        each = locate(readings.later_partials, prior_spread=BOUNDARY_SPREAD, unseen=False, confidence=confidence)
    else:
        # Step time is affine in the batch size with an unknown fixed part: the middle, and all of it as interval.
        share = workload.partial_batch / workload.batch_size if workload.batch_size else 1.0
        half = step.value * (1 - share) / 2
        each = Level(step.value * (1 + share) / 2, half, half, 0.0)
    if readings.first_partials:
        extra = [max(0.0, seconds - each.value) for seconds in readings.first_partials]
        return PartialBatch(each, predict_once(extra, confidence=confidence))
    # XLA compiles each shape of a batch; whether that takes as long as the first time is not known.
    if profile.environment.backend == "jax" or profile.environment.jit:
        again = max(0.0, first.value - step.value * readings.first_units)
        return PartialBatch(each, Level(again, again / 2, again / 2, 0.0))
    return PartialBatch(each)


@dataclass(frozen=True)
class Pauses:
    """Mean seconds of garbage collection per step (``each``), and seconds of it that occur ``once`` per training."""

    each: Level = NOTHING
    once: float = 0.0


def time_pauses(readings: Readings) -> Pauses:
    """Estimate the pauses by garbage collection from the pauses recorded in all repetitions.

    Python's garbage collector examines young objects often. It examines the whole heap rarely, after the heap has grown
    by a quarter, as it does while a framework starts. Therefore collections of the whole heap and collections in the
    very first step, which compiles, count once; all others count at their observed rate. In records that do not
    distinguish collections, a pause far longer than all others counts as a collection of the whole heap.
    """
    full, others = [], []
    first = 0.0
    for run in readings.pauses:
        if any(pause.whole_heap is not None for pause in run):
            first += math.fsum(pause.seconds for pause in run if pause.epoch == pause.batch == 0)
            later = [pause for pause in run if not pause.epoch == pause.batch == 0]
            full += [pause.seconds for pause in later if pause.whole_heap]
            others += [pause.seconds for pause in later if not pause.whole_heap]
            continue
        ordered = sorted((pause.seconds for pause in run), reverse=True)
        lone = bool(ordered) and (len(ordered) == 1 or ordered[0] > FULL_PAUSE * ordered[1])
        full += ordered[:1] if lone else []
        others += ordered[1:] if lone else ordered
    if not readings.steps_seen:
        return Pauses()
    rate = math.fsum(others) / readings.steps_seen
    again = FULL_RECURS * math.fsum(full) / readings.steps_seen
    # The relative error of a rate is one over the square root of the number of pauses.
    half = rate / math.sqrt(len(others)) if others else 0.0
    once = (first + math.fsum(full)) / len(readings.pauses)
    return Pauses(Level(rate, half, math.hypot(half, again), 0.0), once)


@dataclass(frozen=True)
class Saves:
    """Time of checkpoints that is added only to the upper bound of the interval.

    ``by_batches`` is True if checkpoints are saved every few batches; ``per_epoch`` is their number per epoch, or 0 if
    unknown. ``longest`` is the seconds of the longest recorded checkpoint, or 0. ``now_and_then`` is the mean
    number of seconds per epoch of checkpoints that may be saved every few epochs, which is assumed if callbacks took
    far longer after the first epoch (``first_ending`` seconds) than after later ones (``later_ending``); otherwise 0.
    """

    by_batches: bool = False
    per_epoch: float = 0.0
    longest: float = 0.0
    now_and_then: float = 0.0
    first_ending: float = 0.0
    later_ending: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of checkpoints per epoch that the upper bound includes."""
        return self.per_epoch * self.longest + self.now_and_then

    def findings(self, profile: Profile, epoch_seconds: float) -> Iterator[Finding]:
        """Yield findings about checkpoints that the estimate does not include, or only once."""
        if self.by_batches:
            allowed = "The interval does not include them either, because no checkpoint was recorded"
            if self.per_epoch and self.longest:
                each = format_seconds(self.longest)
                allowed = f"The upper bound includes {self.per_epoch:.3g} per epoch, {each} each"
            every = profile.setup.save_freq or "few"
            yield Finding(
                "saves-by-batches",
                f"{profile.title}: the estimate does not include the checkpoints every {every} batches, which a short "
                f"probe rarely records. {allowed}.",
                "Save once per epoch (save_freq='epoch'), or record a whole epoch with stop=False (--watch).",
            )
        if self.now_and_then > LONG_WAIT * epoch_seconds:
            first, later = format_seconds(self.first_ending), format_seconds(self.later_ending)
            yield Finding(
                "saves-now-and-then",
                f"{profile.title}: callbacks took {first} after the first epoch and at most {later} after later "
                "epochs. The estimate includes the long time once; if it recurs, as a checkpoint would, the training "
                "takes longer.",
                "Record more epochs with stop=False (--watch) to find out whether the long time recurs.",
                "info",
            )


def find_unseen_saves(profile: Profile, readings: Readings, *, step: Level, steps_per_epoch: float) -> Saves:
    """Estimate the time of checkpoints that the probe did not see, neither in steps nor at the ends of epochs."""
    if readings.unit == "epoch":  # whole epochs include them
        return Saves()
    setup = profile.setup
    first, later = max(readings.first_endings, default=0.0), max(readings.later_endings, default=0.0)
    # The first save of Keras' callbacks is slow once, so it does not count.
    seldom = bool(readings.later_endings) and setup.saving is None and first > SELDOM * later
    longest = max(first, later, step.stall)
    if setup.saving == "batches" and longest <= step.value:  # no checkpoint was recorded
        longest = 0.0
    rare = SELDOM_SHARE * first if seldom else 0.0
    saves = Saves(longest=longest, now_and_then=rare, first_ending=first, later_ending=later)
    if setup.save_freq is None:
        return replace(saves, by_batches=setup.saving == "batches")
    if profile.timeline.steps.steps >= SEEN_TWICE * setup.save_freq:
        return saves  # the mean step includes them
    return replace(saves, by_batches=True, per_epoch=steps_per_epoch / setup.save_freq)


@dataclass(frozen=True)
class ValidationTimes:
    """Seconds of the first validation and of each later validation; ``assumed`` if they were not measured."""

    first: Level
    later: Level
    findings: tuple[Finding, ...] = ()
    assumed: bool = False


def time_validations(
    profiles: Sequence[Profile], readings: Readings, workload: Workload, *, step: Level, confidence: float
) -> ValidationTimes:
    """Estimate the time of the validations of ``workload`` from the validations that the profiles contain."""
    profile = profiles[0]
    if workload.validation_examples == 0 and not epochs_include_validation(profile, readings.unit):
        return ValidationTimes(NOTHING, NOTHING)
    if all(validation.truncated and len(validation.batch_seconds) < 2 for validation in readings.validations):
        return _assume(profile, readings, workload, step)
    batches, covers = _count_batches(profile, readings), profile.setup.steps_per_execution
    findings = list(_find_within_epochs(profiles))
    if readings.later_validations:
        totals = [
            math.fsum(_whole_seconds(validation, batches, covers) for validation in epoch)
            for epoch in readings.later_validations
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
    # Compilation takes the same time for every size, so only a later validation is scaled.
    scale = _scale(profile, readings, workload)
    if scale != 1.0:
        extra = later.value * (scale - 1)
        first = Level(max(0.0, first.value + extra), first.half_width_below, first.half_width_above, 0.0)
        later = later.times(scale)
    # With several validations per epoch, only the very first one compiles.
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


def _count_batches(profile: Profile, readings: Readings) -> int | None:
    """Number of batches in a complete validation; None if unknown or if an epoch has several validations."""
    if any(len(epoch) > 1 for epoch in readings.first_validations + readings.later_validations):
        return None
    complete = (validation for validation in readings.validations if not validation.truncated)
    whole = [validation.batches for validation in complete if validation.batches]
    if whole:
        return whole[0]
    setup = profile.setup
    if setup.validation_steps:
        return setup.validation_steps
    if setup.validation_examples and setup.batch_size:
        return math.ceil(setup.validation_examples / setup.batch_size)
    return None


def _whole_seconds(validation: Validation, batches: int | None, covers: int) -> float:
    """Seconds that ``validation`` would have taken if it had been complete and no single batch had stalled.

    ``batches`` is the number of batches in a complete validation. Each measured time covers ``covers`` batches.
    """
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
    """Time of a later validation, estimated from the first one without its slow first batch; and a finding."""
    tail = [seconds for epoch in first for validation in epoch for seconds in validation.batch_seconds[1:]]
    if tail and batches:
        later = locate(tail, confidence=confidence).times(batches / profile.setup.steps_per_execution)
        how = "the time of later validations is estimated from its batches after the first"
    else:
        seconds = math.fsum(validation.seconds for epoch in first for validation in epoch) / len(first)
        later = Level(seconds, 0.7 * seconds, 0.2 * seconds, 0.0)
        how = "later validations are assumed to take as long, but may be faster"
    message = f"{profile.title}: only one validation was recorded; {how}."
    return later, Finding("one-validation", message, "Probe with validations=2.", "info")


def _scale(profile: Profile, readings: Readings, workload: Workload) -> float:
    """Size of the validation of ``workload`` relative to the measured validation."""
    if not _differs(profile, workload):
        return 1.0
    examples, steps, measured = workload.validation_examples, workload.validation_steps, profile.setup
    if steps is None and examples and measured.validation_examples:
        return examples / measured.validation_examples
    if steps is None and examples and workload.batch_size:
        steps = math.ceil(examples / workload.batch_size)
    if steps and (batches := _count_batches(profile, readings)):
        return steps / batches
    name = "examples" if workload.validation_steps is None else "steps"
    raise EstimateError(
        f"{profile.title}: the profile does not contain the number of validation {name}, so its validation time cannot "
        f"be scaled to {workload.validation_steps or examples} {name}. Omit validation_{name}=, or probe with the "
        "whole validation set."
    )


def _differs(profile: Profile, workload: Workload) -> bool:
    """Whether the validations of ``workload`` and of ``profile`` differ in size."""
    if workload.validation_steps is not None:
        return workload.validation_steps != profile.setup.validation_steps
    return workload.validation_examples not in (None, profile.setup.validation_examples)


def _find_within_epochs(profiles: Sequence[Profile]) -> Iterator[Finding]:
    """Yield a finding if validations occur within epochs that the probe ended early, so that too few were recorded."""
    for profile in profiles:
        if profile.probe != "loop" or profile.setup.validations_per_epoch is not None:
            continue
        cut = {
            boundary.epoch
            for boundary in profile.timeline.boundaries
            if boundary.truncated and boundary.before_validation_seconds is None
        }
        if any(validation.epoch in cut for validation in profile.timeline.validations):
            yield Finding(
                "validations-within-epochs",
                f"{profile.title}: the training validates within epochs, and the probe ended an epoch early. The "
                "estimate therefore counts too few validations and is too low.",
                "Record whole epochs (stop=False, --watch), or validate only at the end of each epoch.",
            )
            return


def _find_unseen(profile: Profile, readings: Readings, workload: Workload) -> Iterator[Finding]:
    """Yield a finding if the training validates, but no validation was recorded and its size is unknown."""
    if profile.setup.validates is False or epochs_include_validation(profile, readings.unit):
        return
    if profile.setup.validates or workload.validation_schedule != EVERY_EPOCH:
        yield Finding(
            "validation-unseen",
            f"{profile.title}: the training validates {workload.validation_schedule}, but the profile has no "
            "validation. The estimate does not include validations.",
            "Probe until the first validation (without seconds=, or with more epochs= in EpochProbe), or pass the size "
            "of the validation set with validation_examples= (--validation-examples).",
        )


def _assume(profile: Profile, readings: Readings, workload: Workload, step: Level) -> ValidationTimes:
    """Times of validations if none was measured: a batch is assumed to take a fixed share of the step time."""
    if readings.unit == "epoch" and _differs(profile, workload):
        raise EstimateError(
            f"{profile.title}: the profile has times of whole epochs, so the validation time in them is unknown and "
            "cannot be scaled. Omit validation_examples= and validation_steps=, or probe with IterationProbe."
        )
    batches: float | None = workload.validation_steps
    if batches is None and workload.validation_examples and workload.batch_size:
        batches = workload.validation_examples / workload.batch_size
    # A validation that the probe ended after one batch is mostly compilation.
    first_seconds = (validation.seconds for epoch in readings.first_validations for validation in epoch)
    compiling = max(first_seconds, default=0.0)
    if readings.unit == "epoch" or (not batches and not compiling):
        return ValidationTimes(NOTHING, NOTHING, tuple(_find_unseen(profile, readings, workload)))
    if not batches:
        finding = Finding(
            "validation-unknown",
            f"{profile.title}: the probe ended validations after one batch and the size of the validation set is "
            "unknown, so the estimate includes only one batch of the first validation and no other validations.",
            "Pass validation_examples=, or probe with validations=2.",
        )
        return ValidationTimes(Level(compiling, 0.0, compiling, 0.0), NOTHING, (finding,), assumed=True)
    seconds = VALIDATION_SHARE * step.value * batches
    later = Level(seconds, 0.6 * seconds, 1.0 * seconds, 0.0)
    finding = Finding(
        "validation-assumed",
        f"{profile.title}: no validation was measured. A validation batch is assumed to take {VALIDATION_SHARE:.2f} "
        "times as long as a training step.",
        "Probe with validation data and validations=2.",
    )
    first = Level(seconds + compiling, later.half_width_below, later.half_width_above, 0.0)
    return ValidationTimes(first, later, (finding,), assumed=True)


def check_validation_schedule(profile: Profile) -> Iterator[Finding]:
    """Yield a finding if complete epochs had no validation although the setup validates after every epoch."""
    setup, validated = profile.setup, sorted({validation.epoch for validation in profile.timeline.validations})
    if not validated or setup.validation_freq > 1 or setup.validation_from or setup.validations_per_epoch:
        return
    whole = {epoch.epoch for epoch in profile.timeline.epochs if epoch.complete}
    if profile.outcome != "given" and any(epoch not in validated for epoch in whole if epoch < validated[-1]):
        yield Finding(
            "validation-schedule",
            f"{profile.title}: only {len(validated)} of {validated[-1] + 1} epochs were followed by a validation, the "
            f"first of them epoch {validated[0] + 1}. The estimate includes a validation after every epoch.",
            "Pass workload=vmselect.Workload(validation_from=..., validation_freq=...) (--validation-from and "
            "--validation-freq).",
        )


def is_cold(seconds: Sequence[float]) -> bool:
    """Whether the first of several runs was cold; ``seconds`` are the times of the runs in order."""
    if len(seconds) < 2:
        return False
    first, *later = seconds
    return first - max(later) > max(COLD_EXCESS * statistics.median(later), COLD_RANGES * (max(later) - min(later)))


def describe_cold_run(title: str, seconds: Sequence[float], *, predicted: bool) -> Finding:
    """The finding about a cold first run; ``predicted`` is True if the estimate is the time of the first run."""
    first, *later = seconds
    used = "The estimate is the time of a first run, and the interval extends down to the time of later runs."
    if not predicted:
        used = "The method uses the mean of all runs."
    others = format_seconds(statistics.median(later))
    return Finding(
        "cold-first-run",
        f"{title}: the first run took {format_seconds(first)} and the others {others} (one epoch each). A newly "
        f"rented machine has nothing cached, so its run is a first run. {used}",
        "If your training follows others on the same machine, remove the profile of the first run.",
    )


def predict_first_run(first: RuntimeModel, later: RuntimeModel) -> RuntimeModel:
    """The runtime model of the first run, with an interval that extends down to the times of later runs."""
    widths = HalfWidths()
    widths.low, widths.high = first.low, first.high
    once = max(0.0, first.fixed_seconds - later.fixed_seconds)
    once += max(0.0, first.first_validation_seconds - later.first_validation_seconds)
    each = max(0.0, first.epoch_seconds - later.epoch_seconds)
    each += max(0.0, first.validation_seconds - later.validation_seconds) / first.validation_freq
    widths.add_sides(1.0, 0.0, once=once, per_epoch=each)
    # A training may also find a warm machine, so nothing beyond the later runs is certain.
    certain = (min(first.certain[0], later.certain[0]), min(first.certain[1], later.certain[1]))
    return replace(first, low=widths.low, certain=certain)
