"""Readings (measured durations) of all repetitions of one setup, grouped by what each reading measures.

A :class:`Level` is the mean of few readings with an interval, robust against a single outlier. Total time is a sum, so
the *mean* of the readings matters: a median ignores recurring slow steps. A single extreme reading, however, can change
the mean of twenty readings by half. Therefore a lone stall (see :mod:`vmselect.records.step_times`) counts once per
training. If it is uncertain whether it recurs, half of its excess counts once and half is assumed to recur at the
observed rate. Two or more such readings stay in the mean.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby
from operator import truediv
from typing import NamedTuple

from vmselect.records import Epoch, Pause, Profile, Validation
from vmselect.records.step_times import MIN_READINGS, STALL_STEPS, UNCERTAIN_STEPS, take_lone_stall
from vmselect.units import format_seconds

PRIOR_SPREAD, PRIOR_READINGS = 0.10, 3.0
"""Prior relative spread of single readings, and the number of readings that this prior weighs as much as."""

ONCE_SPREAD = 0.12
"""Prior relative spread between runs of times that occur once per run, such as compilation. Measured on 18 pairs of
runs (``tests/benchmarks/accuracy.py --parts cross-run``)."""

BLOCK, BLOCKS, MIN_BLOCKS = 5, 8, 3
"""Minimum number of readings per block, number of blocks into which many readings are divided, and minimum number of
blocks. Step times are correlated over seconds, even if steps are short, so the spread between blocks is used too."""

UNSEEN_RATE, UNSEEN_STEPS = 0.06, 2.0
"""The largest assumed share of slow steps that a few readings can miss, and the assumed excess of a slow step over an
ordinary step, relative to the ordinary step."""


@dataclass(frozen=True)
class Level:
    """Mean seconds per step or epoch (``value``) and the half-widths of its interval.

    ``noise`` is the standard deviation of single readings. ``stall`` is the excess in seconds of a single outlier,
    which ``value`` does not include.
    """

    value: float
    half_width_below: float
    half_width_above: float
    noise: float
    stall: float = 0.0

    def times(self, count: float) -> Level:
        """The sum of ``count`` such durations whose errors are fully correlated."""
        return Level(self.value * count, self.half_width_below * count, self.half_width_above * count, 0.0)


NOTHING = Level(0.0, 0.0, 0.0, 0.0)


@lru_cache(maxsize=256)
def quantile(confidence: float, freedom: float) -> float:
    """Student t quantile of a two-sided interval at ``confidence``, with ``freedom`` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def locate(
    seconds: Sequence[float],
    *,
    units: Sequence[int] | None = None,
    prior_spread: float = PRIOR_SPREAD,
    stall: float = STALL_STEPS,
    uncertain: float = UNCERTAIN_STEPS,
    min_readings: int = MIN_READINGS,
    unseen: bool = True,
    prior_readings: float = PRIOR_READINGS,
    lasting: float = 0.0,
    confidence: float = 0.9,
) -> Level:
    """Mean seconds per step with its interval. ``units`` is the number of steps that each of ``seconds`` covers.

    With at least ``min_readings`` readings, a single reading whose excess over an ordinary step is longer than
    ``stall`` ordinary steps is excluded from the mean, and one longer than ``uncertain`` ordinary steps in part.
    ``unseen`` widens the interval for slow steps that are too rare to have been recorded. The prior spread weighs as
    much as ``prior_readings`` readings. ``lasting`` is the variance of the difference between the readings and the rest
    of the training, relative to the variance of single readings.
    """
    values = list(seconds)
    weights = [1] * len(values) if units is None else list(units)
    beyond = take_lone_stall(values, weights, stall, uncertain) if len(values) >= min_readings else 0.0
    per_unit = list(map(truediv, values, weights))
    covered = sum(weights)
    mean = math.fsum(values) / covered
    # The prior acts as further readings, so that two equal readings do not give an interval of zero width.
    freedom = prior_readings + len(values) - 1
    prior = prior_readings * (prior_spread * mean) ** 2
    variance = (prior + math.fsum((x - mean) ** 2 for x in per_unit)) / freedom
    # Readings close in time resemble each other: their spread alone would make the interval too narrow.
    error = max(variance / len(values), _block_variance(per_unit, mean, prior, prior_readings)) + lasting * variance
    width = quantile(confidence, freedom) * math.sqrt(error)
    # If a share of the steps is slow, that many readings miss all of them with the probability 1 - confidence.
    rate = min(UNSEEN_RATE, -math.log(1 - confidence) / covered) if unseen else 0.0
    return Level(
        value=mean,
        half_width_below=min(width, mean),
        half_width_above=math.hypot(width, rate * UNSEEN_STEPS * mean, beyond / (covered + 1)),
        noise=math.sqrt(variance * covered / len(values)),
        stall=beyond,
    )


def predict_once(seconds: Sequence[float], *, spread: float = ONCE_SPREAD, confidence: float = 0.9) -> Level:
    """Mean of a duration that occurs once per run, such as initialization, with a prediction interval for a new run.

    ``spread`` is the relative standard deviation between runs that is assumed before any measurement.
    """
    if not seconds:
        return NOTHING
    runs = len(seconds)
    # A single run is all that most users have: the prior then gives the whole width.
    mean = math.fsum(seconds) / runs
    freedom = PRIOR_READINGS + runs - 1
    squares = PRIOR_READINGS * (spread * mean) ** 2 + math.fsum((x - mean) ** 2 for x in seconds)
    width = quantile(confidence, freedom) * math.sqrt(squares / freedom * (1 + 1 / runs) / 2)
    return Level(mean, min(width, mean), width, 0.0)


def find_drift(values: Sequence[float]) -> float:
    """Drift: relative spread between the means of blocks of readings, beyond the spread of independent readings."""
    size, means = _block_means(values)
    if len(means) < MIN_BLOCKS:
        return 0.0
    # Independent readings make the means of blocks differ too; only what exceeds that is drift.
    single = statistics.fmean(
        statistics.variance(values[i * size : (i + 1) * size], mean) for i, mean in enumerate(means)
    )
    return math.sqrt(max(0.0, statistics.variance(means) - single / size)) / (statistics.fmean(means) or 1.0)


def _block_means(values: Sequence[float]) -> tuple[int, list[float]]:
    """Number of readings per block, and the mean of each block."""
    size = max(BLOCK, len(values) // BLOCKS)
    return size, [math.fsum(values[i : i + size]) / size for i in range(0, len(values) - size + 1, size)]


def _block_variance(values: Sequence[float], mean: float, prior: float, prior_readings: float) -> float:
    """Variance of the mean, computed from the means of blocks of readings, so that it includes slow drift."""
    _, means = _block_means(values)
    if len(means) < MIN_BLOCKS:
        return 0.0
    squares = prior / BLOCK + math.fsum((m - mean) ** 2 for m in means)
    return squares / (prior_readings + len(means) - 1) / len(means)


def fastest_rate(values: Sequence[float], units: Sequence[int]) -> float:
    """Seconds per step of the fastest block of readings. Blocks of 0 s are ignored; the result is 0 if all are."""
    size = max(BLOCK, len(values) // BLOCKS)
    starts = range(0, max(1, len(values) - size + 1), size)
    # Blocks instead of single readings, whose minimum depends on how many there are.
    rates = [math.fsum(values[i : i + size]) / sum(units[i : i + size]) for i in starts]
    return min((rate for rate in rates if rate > 0), default=0.0)


FIRST_RUN_SECONDS = 0.12
"""Extra seconds of the first execution of a TensorFlow step after its compilation. Chosen on six probes of scripts
(``tests/benchmarks/corpus.py``) that waited after their first epoch."""

PARTS, MIN_PART, MAX_DIFFERENCE = 8, 10, 0.2
"""Number of parts into which a probe is divided, minimum number of steps in a part, and relative difference of the step
times of two parts above which the speed is taken to have changed."""

MIN_CHANGE = 0.1
"""Relative difference between the times of earlier and later epochs above which the work is taken to have changed."""

FEW_CHANGE, LONE_CHANGE = 0.3, 1.0
"""Relative excess of the longest epoch over the shortest above which the work is taken to have changed, without and
with a single long epoch. Of 2,100 published trainings (MLPerf v0.7 and v1.1, DAWNBench) with three to five used epochs,
1 % exceeded these limits. Half of this 1 % were predicted wrong by more than 10 %, and 4 % of all trainings."""


@dataclass(frozen=True)
class Opening:
    """The opening of an epoch: seconds before its first step (``before_seconds``) and of its first step.

    ``step_seconds`` is the first measured time, which covers ``covers`` steps. ``pipeline_seconds`` is how long the
    input pipeline of the previous epoch had been running; None if unknown. ``cut_short`` is True if the probe ended the
    previous epoch early.
    """

    before_seconds: float
    step_seconds: float = 0.0
    covers: int = 0
    pipeline_seconds: float | None = None
    cut_short: bool = False


class Block(NamedTuple):
    """Readings in chronological order: seconds, and the number of steps that each reading covers."""

    seconds: list[float]
    covers: list[int]


@dataclass
class Readings:
    """Readings of all repetitions of one setup, in seconds.

    ``unit`` is "step" or "epoch": what a reading measures. ``runs`` contains the steady readings of each repetition, in
    a block per epoch. An epoch boundary has three parts: the wrap-up of an epoch before its validation, the ending with
    the work of other callbacks, and the opening of the next epoch. If the parts were not recorded, the opening contains
    all three, and ``first_openings`` contains the first boundary of each profile with several boundaries. ``finals``
    contains the times after the last epoch. ``pauses`` contains a list of pauses per repetition; all repetitions
    together have ``steps_seen`` steps. Validations are grouped by epoch; ``first_validations`` also contains
    validations that occur once. ``summarized`` is True if equal times were given, which count as one.
    """

    unit: str = "step"
    init: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    first_units: int = 0
    warmup: list[Block] = field(default_factory=list)
    runs: list[list[Block]] = field(default_factory=list)
    first_partials: list[float] = field(default_factory=list)
    later_partials: list[float] = field(default_factory=list)
    first_wrap_ups: list[float] = field(default_factory=list)
    later_wrap_ups: list[float] = field(default_factory=list)
    first_endings: list[float] = field(default_factory=list)
    later_endings: list[float] = field(default_factory=list)
    first_openings: list[Opening] = field(default_factory=list)
    openings: list[Opening] = field(default_factory=list)
    truncated_boundaries: bool = False
    finals: list[float] = field(default_factory=list)
    pauses: list[list[Pause]] = field(default_factory=list)
    steps_seen: int = 0
    first_validations: list[list[Validation]] = field(default_factory=list)
    later_validations: list[list[Validation]] = field(default_factory=list)
    summarized: bool = False

    def add_run(self, profile: Profile, blocks: Sequence[Block]) -> None:
        """Add the steady readings of ``profile``, a block per epoch.

        Measured times differ. If all times that the user gave are equal, they are one mean or median of another tool.
        """
        seconds = [time for block in blocks for time in block.seconds]
        if profile.outcome == "given" and len(seconds) > 1 and len(set(seconds)) == 1:
            self.summarized, blocks = True, [Block(seconds[:1], blocks[0].covers[:1])]
        self.runs.append(list(blocks))

    @property
    def blocks(self) -> list[Block]:
        """The steady readings of each repetition and epoch."""
        return list(chain.from_iterable(self.runs))

    @property
    def steady(self) -> Block:
        """All steady readings, in one block."""
        return Block(
            list(chain.from_iterable(block.seconds for block in self.blocks)),
            list(chain.from_iterable(block.covers for block in self.blocks)),
        )

    @property
    def validations(self) -> list[Validation]:
        """All validations: first the first validation of each repetition, then all later validations."""
        return list(chain.from_iterable(self.first_validations + self.later_validations))


def collect(profiles: Sequence[Profile]) -> Readings:
    """Collect the readings of repetitions, grouped by what they measure."""
    readings = Readings(unit="epoch" if all(_only_epochs(profile) for profile in profiles) else "step")
    # Parts of boundaries are used only if all repetitions have them, so that each list means the same in all.
    in_parts = all(_boundaries_in_parts(profile) for profile in profiles)
    for profile in profiles:
        timeline = profile.timeline
        if timeline.startup_seconds is not None:
            readings.init.append(timeline.startup_seconds)
        if readings.unit == "epoch":
            _collect_epochs(profile, readings)
        else:
            _collect_steps(profile, readings)
            _collect_boundaries(profile, readings, in_parts=in_parts)
            readings.pauses.append(list(timeline.pauses))
            readings.steps_seen += timeline.steps.steps
        if not epochs_include_validation(profile, readings.unit):
            validations = group_validations(profile)
            readings.first_validations.extend(validations[:1])
            readings.later_validations.extend(validations[1:])
    return readings


def group_validations(profile: Profile) -> list[list[Validation]]:
    """Validations grouped by epoch; an epoch may have several, for example on several data sets.

    If ``setup.validations_per_epoch`` is set, each validation is a group of its own instead. Otherwise, a validation
    that only the last epoch has, such as a final test, occurs once and is added to the first group. An interrupted last
    epoch with fewer validations is excluded.
    """
    seen = profile.timeline.validations
    if profile.setup.validations_per_epoch is not None:
        return [[part] for validation in seen for part in validation.split()]
    epochs = [list(passes) for _, passes in groupby(seen, key=lambda validation: validation.epoch)]
    if len(epochs) > 1:
        usual = len(epochs[-2])  # the last epoch may have a final test in addition
        if profile.outcome == "interrupted" and len(epochs[-1]) < usual:
            return epochs[:-1]
        epochs[0] += epochs[-1][usual:]
        del epochs[-1][usual:]
    return epochs


def whole_epochs(profile: Profile) -> list[Epoch]:
    """The complete epochs, with the pauses included in their seconds.

    Profiles of steps, and older profiles of epochs, list pauses separately; newer profiles of epochs include them.
    """
    paused: dict[int, float] = {}
    for pause in profile.timeline.pauses:
        paused[pause.epoch] = paused.get(pause.epoch, 0.0) + pause.seconds
    return [
        epoch.model_copy(update={"seconds": epoch.seconds + paused.get(epoch.epoch, 0.0)})
        for epoch in profile.timeline.epochs
        if epoch.complete
    ]


def _only_epochs(profile: Profile) -> bool:
    """Whether to estimate from times of whole epochs: no steps were recorded, or the user gave epoch times."""
    timeline = profile.timeline
    whole = [epoch for epoch in timeline.epochs if epoch.complete]
    return bool(whole) and (not len(timeline.steps) or profile.outcome == "given")


def epochs_include_validation(profile: Profile, unit: str) -> bool:
    """Whether the readings are epoch times that include validation, as those passed to ``Profile.from_times``."""
    return unit == "epoch" and profile.outcome == "given"


def _collect_epochs(profile: Profile, readings: Readings) -> None:
    whole = whole_epochs(profile)
    readings.first.append(whole[0].seconds)
    readings.first_units = 1
    if later := [epoch.seconds for epoch in whole[1:]]:
        readings.add_run(profile, [Block(later, [1] * len(later))])
    lengths = _pipeline_seconds(profile)
    for boundary in profile.timeline.boundaries:
        if boundary.final:
            readings.finals.append(boundary.seconds)
        else:
            length = lengths.get(boundary.epoch)
            # The input pipeline runs until after the wrap-up.
            lived = None if length is None else length + (boundary.before_validation_seconds or 0.0)
            readings.openings.append(Opening(boundary.seconds, pipeline_seconds=lived))


def _pipeline_seconds(profile: Profile) -> dict[int, float]:
    """Seconds from the first batch of each epoch to the end of its validation, by epoch.

    TensorFlow requests the very first batch after compiling the step, so the time of compilation is subtracted.
    """
    if profile.outcome == "given":
        return {}
    timeline = profile.timeline
    lengths = {epoch.epoch: epoch.seconds for epoch in timeline.epochs}
    steady = timeline.steps.steady_seconds
    if profile.environment.backend == "tensorflow" and steady:
        for first in timeline.steps.labelled("first"):
            compiling = max(0.0, first.seconds - statistics.median(steady) * first.covers - FIRST_RUN_SECONDS)
            if first.epoch in lengths:
                lengths[first.epoch] = max(0.0, lengths[first.epoch] - compiling)
    for validation in timeline.validations:
        if validation.epoch in lengths:
            lengths[validation.epoch] += validation.seconds
    return lengths


def _collect_steps(profile: Profile, readings: Readings) -> None:
    steps = profile.timeline.steps
    partials = [step.seconds for step in steps.labelled("partial")]
    readings.first_partials.extend(partials[:1])
    readings.later_partials.extend(partials[1:])
    for first in steps.labelled("first"):
        readings.first.append(first.seconds)
        readings.first_units = first.covers
    warm = Block([], [])
    steady: dict[int, Block] = {}
    for epoch, seconds, covers, label in zip(steps.epoch, steps.seconds, steps.covers, steps.label, strict=True):
        if label in ("steady", "warmup"):
            block = warm if label == "warmup" else steady.setdefault(epoch, Block([], []))
            block.seconds.append(seconds)
            block.covers.append(covers)
    readings.warmup.append(warm)
    # A long training stores a sample of its steps. Sums over whole epochs then tell more than the sample.
    dropped = steps.readings > len(steps)
    aggregates = _epoch_aggregates(profile, partials=bool(partials)) if dropped else Block([], [])
    readings.add_run(profile, [aggregates] if aggregates.seconds else [steady[epoch] for epoch in sorted(steady)])


def _epoch_aggregates(profile: Profile, *, partials: bool) -> Block:
    """One reading per complete epoch, for profiles that do not contain all step times because there were too many."""
    covers = profile.setup.steps_per_execution
    rows = Block([], [])
    for epoch in profile.timeline.epochs[1:]:
        if not epoch.complete or not epoch.steps or epoch.opening_seconds is None:
            continue
        seconds, steps = epoch.seconds - epoch.opening_seconds, epoch.steps - min(covers, epoch.steps)
        if partials and epoch.closing_seconds is not None:
            seconds, steps = seconds - epoch.closing_seconds, steps - 1
        if steps > 0:
            rows.seconds.append(max(0.0, seconds))
            rows.covers.append(steps)
    return rows


def _boundaries_in_parts(profile: Profile) -> bool:
    """Whether ``before_validation_seconds`` is known at all epoch boundaries and measures the same work at each.

    It does not if validation runs only every few epochs: in epochs without validation, it then includes callbacks.
    """
    recorded = (boundary.before_validation_seconds is not None for boundary in profile.timeline.boundaries)
    return all(recorded) and profile.setup.validation_freq == 1


def _collect_boundaries(profile: Profile, readings: Readings, *, in_parts: bool) -> None:
    timeline = profile.timeline
    opened = {step.epoch: (step.seconds, step.covers) for step in timeline.steps.labelled("opening")}
    recorded = {epoch.epoch: epoch.opening_seconds for epoch in timeline.epochs}
    lengths = _pipeline_seconds(profile)
    several = sum(not boundary.final for boundary in timeline.boundaries) > 1
    for number, boundary in enumerate(timeline.boundaries):
        # Clocks of different callbacks can disagree slightly, so a part is never longer than the whole.
        wrap_up = min(boundary.before_validation_seconds or 0.0, boundary.seconds) if in_parts else 0.0
        if in_parts:
            (readings.later_wrap_ups if number else readings.first_wrap_ups).append(wrap_up)
        ending = min(boundary.epoch_end_seconds or 0.0, boundary.seconds - wrap_up)
        if boundary.epoch_end_seconds is not None:
            (readings.later_endings if number else readings.first_endings).append(ending)
        rest = boundary.seconds - wrap_up - ending
        readings.truncated_boundaries |= boundary.truncated
        if boundary.final:
            readings.finals.append(rest)
            continue
        following = boundary.epoch + 1
        opening, covers = opened.get(following, (0.0, 0))
        if following not in opened and (first := recorded.get(following)) is not None:
            opening, covers = first, profile.setup.steps_per_execution
        # Without parts, the first boundary includes compilation of the validation, so it is kept apart.
        apart = several and number == 0 and not in_parts
        length = lengths.get(boundary.epoch)
        pipeline = None if length is None else length + wrap_up + ending
        (readings.first_openings if apart else readings.openings).append(
            Opening(rest, opening, covers, pipeline, cut_short=boundary.truncated)
        )


class ChangingEpochs(NamedTuple):
    """Times of the shortest (``low``) and longest (``high``) epoch relative to the mean, and text with ``evidence``."""

    low: float
    high: float
    evidence: str


def find_changing_epochs(profiles: Sequence[Profile], unit: str) -> ChangingEpochs | None:
    """Evidence that the work changes from epoch to epoch (image size, batch size, data); None if there is none.

    With many epochs, evidence is a difference between the medians of earlier and later epochs that exceeds the noise.
    With few whole epochs, it is a larger difference between the longest and the shortest epoch than in published
    trainings with constant work. The first epoch, which includes compilation, is ignored.
    """
    for profile in profiles:
        complete = [epoch for epoch in profile.timeline.epochs if epoch.complete]
        later = [epoch.seconds / (epoch.steps or 1) for epoch in complete[1:]]
        if min(later, default=0.0) <= 0:
            continue
        evidence = _compare_halves(later) or (_compare_ends(later) if unit == "epoch" else "")
        if evidence:
            mean = statistics.fmean(later)
            return ChangingEpochs(min(later) / mean, max(later) / mean, evidence)
    return None


def _compare_halves(later: Sequence[float]) -> str:
    # Medians of halves, so that one slow epoch is no change. An odd epoch in the middle belongs to neither.
    half = len(later) // 2
    if half < 2:
        return ""
    parts = (later[:half], later[-half:])
    early, late = map(statistics.median, parts)
    noise = max(
        statistics.median(abs(seconds - level) for seconds in part)
        for part, level in zip(parts, (early, late), strict=True)
    )
    if abs(late - early) <= max(MIN_CHANGE * early, 4 * noise):
        return ""
    return f"the time per step in later epochs differs by {late / early - 1:+.0%} from that in earlier epochs"


def _compare_ends(later: Sequence[float]) -> str:
    ordered = sorted(later)
    lone = len(ordered) > 2 and ordered[-1] > (1 + FEW_CHANGE) * ordered[-2]
    longest = ordered[-2] if lone else ordered[-1]
    if longest <= (1 + FEW_CHANGE) * ordered[0] and ordered[-1] <= (1 + LONE_CHANGE) * ordered[0]:
        return ""
    return f"epochs after the first took between {format_seconds(ordered[0])} and {format_seconds(ordered[-1])}"


def find_changing_speed(readings: Readings) -> tuple[float, float] | None:
    """Seconds per step of the fastest and of the slowest part of a probe; None if they hardly differ."""
    each = [seconds / covers for seconds, covers in zip(*readings.steady, strict=True)]
    size = max(MIN_PART, len(each) // PARTS)
    levels = [statistics.median(each[i : i + size]) for i in range(0, len(each) - size + 1, size)]
    if readings.unit != "step" or not levels:
        return None
    lowest, highest = min(levels), max(levels)
    return (lowest, highest) if highest - lowest > MAX_DIFFERENCE * statistics.median(levels) else None
