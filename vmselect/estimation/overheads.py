"""Time besides ordinary steps (such as TensorFlow's wait between epochs, validation, checkpoints), and its findings.

That is: epoch boundaries, the smaller last batch, pauses, checkpoints, validation, and cold first
runs. The first run on a new machine is often slower than later runs, because caches are empty. A
training on a newly rented machine is a first run. So if the first of several repetitions is much
slower than all others, the estimate is the time of the first run, and its interval extends down to
the times of later runs.

Autotune waits are part of the epoch boundaries: TensorFlow waits for the autotuner of a tf.data pipeline after an
epoch. A thread tunes the pipeline. It wakes up 10 ms after the first batch, then after 20 ms, 40 ms, and so on up to
once a minute. At the end of an epoch TensorFlow stops the pipeline and wakes the thread, so that the thread ends. If
the thread misses this signal, which is frequent on a busy CPU, TensorFlow waits for the next wake-up. A pipeline runs
from the first batch of an epoch until after the validation of the epoch. The length of the wait therefore follows from
the length of the epoch; whether TensorFlow waits is random. See docs/explanation/measuring-honestly.md.

Endless data (``steps_per_epoch`` over a generator) are one pipeline for all epochs, which stops once. A strategy with
several devices has several pipelines, which stop one after the other, so that several waits can follow each other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import NamedTuple

from vmselect.errors import EstimateError
from vmselect.estimation.readings import (
    NOTHING,
    Level,
    Opening,
    Readings,
    epochs_include_validation,
    locate,
    predict_once,
    quantile,
)
from vmselect.estimation.runtime import LONG_WAIT, TURN_OFF, HalfWidths, RuntimeModel
from vmselect.estimation.workload import EVERY_EPOCH, Workload
from vmselect.findings import Finding
from vmselect.records import Profile, Validation
from vmselect.units import format_seconds

# -- waits for the autotuner of TensorFlow ---------------------------------------------------------

FIRST_PERIOD, MAX_PERIOD = 0.01, 60.0
"""Shortest and longest time in seconds between two wake-ups of the tf.data autotuner. The time doubles after each
wake-up (TensorFlow 2.21)."""

MAX_SHARE, EXPONENT, MIN_SHARE = 0.9, 0.65, 0.02
"""Share of epochs with a wait if no CPU core is ever free (maximum) and if a core is always free (minimum). In between,
the share is a power of the share of time without a free core. Fitted by maximum likelihood on trainings whose steps
sleep and on four models that keep the CPU busy, on one and two cores, idle and loaded (``tests/benchmarks/waiting.py``
without ``--check``)."""

PRIOR_WEIGHT = 2.0
"""Weight of the expected share of epochs with a wait, as a number of observed epochs."""

CUT_WEIGHT = 2.0
"""Weight of a wait after an epoch that a probe ended early. Such waits are rare, so their absence has no weight."""

MIN_SECONDS = 0.06
"""Seconds below which a wait cannot be distinguished from other work between epochs, which took up to half as long."""

LENGTH_SPREAD = 0.1
"""Relative error of the predicted length of an epoch, which determines the next wake-up. Measured on 27 trainings
(``tests/benchmarks/accuracy.py --parts cross-run``)."""

MAX_PIPELINES, NEXT_SHARE = 3, 0.5
"""Largest number of pipelines of a distributed dataset that were observed to wait one after the other, with two and
four devices; and the prior probability that after the wait of one pipeline the next pipeline waits too. Chosen on
trainings with two devices."""

UNKNOWN_SECONDS = 3600.0
"""Assumed lifetime in seconds of a pipeline if the number of epochs is unknown: it then wakes up once a minute."""

LENGTHS = tuple(statistics.NormalDist(1.0, LENGTH_SPREAD).inv_cdf((k + 0.5) / 40) for k in range(40))


@dataclass(frozen=True)
class Waiting:
    """Autotune waits after epochs: ``share`` of epochs with a wait, and mean seconds of waiting per epoch (``each``).

    ``each`` averages over all epochs, with and without a wait; ``each.noise`` is the spread between epochs.
    ``longest`` is the longest possible wait in seconds.
    """

    each: Level = NOTHING
    share: float = 0.0
    longest: float = 0.0


NO_WAITING = Waiting()


def next_wake_up(seconds: float) -> float:
    """When the autotuner of a pipeline that has run for ``seconds`` next wakes up, in seconds since its start."""
    doublings = math.ceil(math.log2(MAX_PERIOD / FIRST_PERIOD))
    doubled = FIRST_PERIOD * (2.0**doublings - 1)
    if seconds <= doubled:
        return FIRST_PERIOD * (2.0 ** max(1, math.ceil(math.log2(seconds / FIRST_PERIOD + 1))) - 1)
    return doubled + MAX_PERIOD * math.ceil((seconds - doubled) / MAX_PERIOD)


def count_pipelines(profile: Profile) -> int:
    """Number of tf.data pipelines that stop one after the other at the end of an epoch."""
    replicas = profile.environment.replicas
    return 1 if replicas == 1 else min(MAX_PIPELINES, 1 + replicas)


def list_waits(pipeline_seconds: float, pipelines: int) -> list[float]:
    """Seconds of waiting if 0, 1, 2, ... ``pipelines`` pipelines wait after having run for ``pipeline_seconds``."""
    waits, wake_up = [0.0], pipeline_seconds
    for _ in range(pipelines):
        wake_up = next_wake_up(wake_up * (1 + 1e-9))
        waits.append(wake_up - pipeline_seconds)
    return waits


def split_wait(lost_seconds: float, pipeline_seconds: float | None, pipelines: int = 1) -> tuple[float, int | None]:
    """Seconds of autotune wait among the ``lost_seconds`` after an epoch, and the number of pipelines that waited.

    The second value is None if it cannot be determined.
    """
    if pipeline_seconds is None:
        return 0.0, None
    # The start of a pipeline is not known exactly, so the pipeline may just have missed the next wake-up.
    missed = next_wake_up(pipeline_seconds) < pipeline_seconds * (1 + 2 * LENGTH_SPREAD)
    waits = list_waits(pipeline_seconds, pipelines + missed)
    waited = max(number for number, wait in enumerate(waits) if lost_seconds >= wait / 2)
    wait = waits[waited]
    # A wait is shorter than expected if the pipeline has run for longer. What is shorter still may be other work.
    least = min(0.9 * wait, wait - 2 * LENGTH_SPREAD * pipeline_seconds)
    if waits[max(1, waited)] <= MIN_SECONDS or (waited and lost_seconds < least):
        return 0.0, None
    return min(wait, lost_seconds), waited


class Evidence(NamedTuple):
    """Weights of a recorded epoch boundary as evidence for and against waits.

    ``waited`` and ``did_not`` are about whether any pipeline waits; ``again`` and ``not_again`` are about whether,
    after the wait of one pipeline, the next pipeline waits too at the same boundary.
    """

    waited: float = 0.0
    did_not: float = 0.0
    again: float = 0.0
    not_again: float = 0.0


def weigh_evidence(waited: int | None, *, cut_short: bool, pipelines: int = 1) -> Evidence:
    """Weights of a recorded epoch boundary at which ``waited`` of ``pipelines`` pipelines have waited.

    ``waited`` is None if it is unknown. ``cut_short`` is True if the probe ended the epoch early.
    """
    # Epochs that a probe cuts short seldom wait, whatever whole epochs do.
    if waited is None or (cut_short and not waited):
        return Evidence()
    if not waited:
        return Evidence(did_not=1.0)
    return Evidence(CUT_WEIGHT if cut_short else 1.0, 0.0, min(waited, pipelines) - 1.0, float(waited < pipelines))


def expect_waiting(
    profile: Profile,
    evidence: Sequence[Evidence],
    lengths: Sequence[tuple[float, float]],
    *,
    confidence: float,
) -> Waiting:
    """Estimate the autotune waits after each epoch.

    ``lengths`` contains pairs: lifetime of a pipeline in seconds, and share of epochs with that lifetime.
    ``evidence`` contains the weights of the recorded boundaries. If several pipelines may wait one after the other, the
    upper bound assumes that each pipeline waits as often as the first. If an epoch may end on either side of a wake-up,
    all epochs do so on the same side, and the bounds include both sides. If no recorded boundary shows whether the
    training waits, the lower bound includes a training without any wait.
    """
    hits, misses, again, not_again = (math.fsum(side) for side in zip(Evidence(), *evidence, strict=True))
    # Beta prior: the share expected from the CPU load counts as PRIOR_WEIGHT observed boundaries.
    weight = PRIOR_WEIGHT + hits + misses
    share = (PRIOR_WEIGHT * expect_share(profile) + hits) / weight
    pipelines = count_pipelines(profile)
    next_share = (PRIOR_WEIGHT * NEXT_SHARE + again) / (PRIOR_WEIGHT + again + not_again)
    mean = variance = among = longest = more = near = far = 0.0
    tail, may_cross = int((1 - confidence) / 2 * len(LENGTHS)), False
    for seconds, often in lengths:
        listed = [list_waits(factor * seconds, pipelines) for factor in LENGTHS]
        waits, squares, most = zip(*(_conditional_wait(sums, next_share) for sums in listed), strict=True)
        mean += often * statistics.fmean(waits)
        more += often * statistics.fmean(_conditional_wait(sums, max(share, next_share))[0] for sums in listed)
        variance += often * statistics.pvariance(waits)
        among += often * statistics.fmean(squares)
        longest = max(longest, *most)
        ordered = sorted(waits)
        near, far = near + often * ordered[tail], far + often * ordered[-1 - tail]
        may_cross |= next_wake_up(LENGTHS[tail] * seconds) != next_wake_up(LENGTHS[-1 - tail] * seconds)
    share_error = math.sqrt(share * (1 - share) / (weight + 1))
    width = quantile(confidence, 30.0) * math.hypot(mean * share_error, share * math.sqrt(variance))
    value = share * mean
    below, beyond = min(width, value), max(width, share * (more - mean))
    if may_cross:
        error = quantile(confidence, 30.0) * share_error
        below = max(below, value - max(0.0, share - error) * near)
        beyond = max(beyond, min(1.0, share + error) * far - value)
    if not hits + misses:
        # The load of the CPU alone does not decide it: some trainings on a busy core never wait.
        below = value
    noise = math.hypot(mean * math.sqrt(share * (1 - share)), math.sqrt(share * among))
    # No epoch waits longer than for the last wake-up, however uncertain the share is.
    above = min(beyond, longest - value)
    return Waiting(Level(value, below, above, noise), share, longest)


def _conditional_wait(waits: Sequence[float], next_share: float) -> tuple[float, float, float]:
    """Mean, variance and maximum of the wait after an epoch, given that at least one pipeline waits."""
    last = len(waits) - 2
    chances = [next_share**number * (1 - next_share if number < last else 1.0) for number in range(last + 1)]
    mean = math.fsum(map(mul, chances, waits[1:]))
    among = math.fsum(chance * (wait - mean) ** 2 for chance, wait in zip(chances, waits[1:], strict=True))
    return mean, among, waits[-1]


def expect_share(profile: Profile) -> float:
    """Expected share of epochs with a wait, from the share of time without a free CPU core.

    If the use of the CPU is unknown, no core is assumed to be free at any time.
    """
    usage, timeline = profile.usage, profile.timeline
    cores = profile.environment.usable_cores or (usage.limits.cores if usage else None) or 1
    sampled = usage.phases.get("steady_steps", {}).get("usable_cpu_share") if usage else None
    if sampled is not None and sampled.count:
        busy = sampled.mean * cores
    elif timeline.cpu_seconds and timeline.wall_seconds and profile.environment.usable_cores:
        busy = timeline.cpu_seconds / timeline.wall_seconds
    else:
        busy = float(cores)
    # TensorFlow misses the signal if no core is free to run the thread at once.
    without_free_core = min(1.0, max(0.0, busy - (cores - 1)))
    return max(MIN_SHARE, MAX_SHARE * math.pow(without_free_core, EXPONENT))


# -- other overheads -------------------------------------------------------------------------------

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
                "Save once per epoch (save_freq='epoch'), or record a whole epoch with stop=False (vmselect watch).",
            )
        if self.now_and_then > LONG_WAIT * epoch_seconds:
            first, later = format_seconds(self.first_ending), format_seconds(self.later_ending)
            yield Finding(
                "saves-now-and-then",
                f"{profile.title}: callbacks took {first} after the first epoch and at most {later} after later "
                "epochs. The estimate includes the long time once; if it recurs, as a checkpoint would, the training "
                "takes longer.",
                "Record more epochs with stop=False (vmselect watch) to find out whether the long time recurs.",
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
    size = setup.validation_batch_size or setup.batch_size
    if setup.validation_examples and size:
        return math.ceil(setup.validation_examples / size)
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
                "Record whole epochs (stop=False, vmselect watch), or validate only at the end of each epoch.",
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
    batches = workload.count_validation_batches(profile.setup)
    batches = None if batches is None else batches * (profile.setup.validations_per_epoch or 1.0)
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
    setup, seen = profile.setup, {validation.epoch for validation in profile.timeline.validations}
    validated = sorted(seen)
    if not validated or setup.validation_freq > 1 or setup.validation_from or setup.validations_per_epoch:
        return
    whole = {epoch.epoch for epoch in profile.timeline.epochs if epoch.complete}
    if profile.outcome != "given" and any(epoch not in seen for epoch in whole if epoch < validated[-1]):
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
