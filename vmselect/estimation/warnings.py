"""Findings about the measured times on which an estimate is based."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vmselect.estimation.overheads import LONE_BOUNDARY_STEPS, Boundaries, Saves
from vmselect.estimation.readings import Readings
from vmselect.estimation.runtime import LONG_WAIT, TURN_OFF
from vmselect.estimation.statistics import BLOCKS, Level
from vmselect.findings import Finding
from vmselect.records import Profile
from vmselect.units import format_seconds

FEW_READINGS = 3
MIN_PART, MAX_DIFFERENCE = 10, 0.2
"""Minimum number of steps in a part of a probe, and relative difference of the step times of two parts above which a
change of speed is reported."""

MIN_CHANGE = 0.1
"""Relative difference between the times of earlier and later epochs above which the work is taken to have changed."""

FEW_CHANGE, LONE_CHANGE = 0.3, 1.0
"""Relative excess of the longest epoch over the shortest above which the work is taken to have changed, without and
with a single long epoch. Of 2,100 published trainings (MLPerf v0.7 and v1.1, DAWNBench) with three to five used epochs,
1 % exceeded these limits. Half of this 1 % were predicted wrong by more than 10 %, and 4 % of all trainings."""


def find_changes(profiles: Sequence[Profile], readings: Readings) -> Iterator[Finding]:
    """Yield a finding each if the time of an epoch or of a step changes during the measurement."""
    yield from _changing_epochs(profiles[0].title, profiles, readings.unit)
    yield from _changing_speed(profiles[0].title, readings)


def find_warnings(
    profiles: Sequence[Profile],
    readings: Readings,
    *,
    step: Level,
    boundaries: Boundaries,
    saves: Saves,
    epoch_seconds: float,
) -> Iterator[Finding]:
    """Yield the findings about what widens the interval of an estimate, those with the most effective remedy first."""
    title, setup = profiles[0].title, profiles[0].setup
    yield from _last_wait(title, boundaries, setup.epochs or 1, epoch_seconds)
    if step.stall:
        yield Finding(
            "lone-stall",
            f"{title}: one {readings.unit} was much longer than all others. The estimate assumes that this delay "
            "happens once; the upper bound of the interval assumes more delays.",
            f"Probe more {readings.unit}s to find out whether such a delay recurs.",
            "info",
        )
    if boundaries.shortened:
        yield Finding(
            "long-boundary",
            f"{title}: the only recorded epoch boundary took longer than {LONE_BOUNDARY_STEPS:.0f} steps. The estimate "
            f"assumes the time of {LONE_BOUNDARY_STEPS:.0f} steps for each later boundary, the upper bound more.",
            "Probe twice and estimate from both profiles.",
            "info",
        )
    yield from _saves_by_batches(profiles[0], saves)
    if setup.saving == "best" and boundaries.ending.value > LONG_WAIT * epoch_seconds:
        yield Finding(
            "saves-the-best",
            f"{title}: a checkpoint is saved only if an epoch is the best so far. The estimate includes "
            f"{format_seconds(boundaries.ending.value)} for a checkpoint after every epoch, the lower bound none.",
            "If only few epochs will save a checkpoint, expect a time near the lower bound of the interval.",
            "info",
        )
    yield from _saves_now_and_then(profiles[0], readings, saves, epoch_seconds)
    count = sum(len(block.seconds) for block in readings.blocks)
    if count < FEW_READINGS:
        yield Finding(
            "few-readings",
            f"{title}: the profile has {count or 'no'} steady {readings.unit}{'' if count == 1 else 's'}, so the width "
            "of the interval comes mostly from default assumptions.",
            f"Measure more {readings.unit}s. In Profile.from_times, pass a list of all measured times.",
        )


def check_validation_schedule(profile: Profile) -> Iterator[Finding]:
    """Yield a finding if complete epochs had no validation although the setup validates after every epoch."""
    setup, validated = profile.setup, sorted({one.epoch for one in profile.timeline.validations})
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


def _last_wait(title: str, boundaries: Boundaries, epochs: int, epoch_seconds: float) -> Iterator[Finding]:
    last = boundaries.last_waiting
    if last.longest > LONG_WAIT * epochs * epoch_seconds:
        yield Finding(
            "waits-at-the-end",
            f"{title}: TensorFlow waits up to {format_seconds(last.longest)} for the tf.data autotuner when fit ends. "
            f"The estimate includes {format_seconds(last.each.value)} for this wait.",
            f"{TURN_OFF} and probe again.",
            "info",
        )


def _saves_by_batches(profile: Profile, saves: Saves) -> Iterator[Finding]:
    """Yield a finding about checkpoints every few batches, which the estimate does not include."""
    if saves.by_batches:
        allowed = "The interval does not include them either, because no checkpoint was recorded"
        if saves.per_epoch and saves.longest:
            allowed = f"The upper bound includes {saves.per_epoch:.3g} per epoch, {format_seconds(saves.longest)} each"
        yield Finding(
            "saves-by-batches",
            f"{profile.title}: the estimate does not include the checkpoints every {profile.setup.save_freq or 'few'} "
            f"batches, which a short probe rarely records. {allowed}.",
            "Save once per epoch (save_freq='epoch'), or record a whole epoch with stop=False (--watch).",
        )


def _saves_now_and_then(profile: Profile, readings: Readings, saves: Saves, epoch_seconds: float) -> Iterator[Finding]:
    """Yield a finding about checkpoints every few epochs, which the estimate includes only once."""
    if saves.now_and_then > LONG_WAIT * epoch_seconds:
        first, later = (format_seconds(max(ends)) for ends in (readings.first_endings, readings.later_endings))
        yield Finding(
            "saves-now-and-then",
            f"{profile.title}: callbacks took {first} after the first epoch and at most {later} after later epochs. "
            "The estimate includes the long time once; if it recurs, as a checkpoint would, the training takes longer.",
            "Record more epochs with stop=False (--watch) to find out whether the long time recurs.",
            "info",
        )


def _changing_speed(title: str, readings: Readings) -> Iterator[Finding]:
    """Yield a finding if the step time changes during the probe."""
    each = [seconds / covers for seconds, covers in zip(*readings.steady, strict=True)]
    size = max(MIN_PART, len(each) // BLOCKS)
    levels = [statistics.median(each[i : i + size]) for i in range(0, len(each) - size + 1, size)]
    if readings.unit == "step" and levels and max(levels) - min(levels) > MAX_DIFFERENCE * statistics.median(levels):
        yield Finding(
            "changing-speed",
            f"{title}: the step time changed during the probe, between {format_seconds(min(levels))} and "
            f"{format_seconds(max(levels))}. The training may run at either speed.",
            "End other programs on the machine and probe again, or probe for longer (steady_seconds=10).",
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


def _changing_epochs(title: str, profiles: Sequence[Profile], unit: str) -> Iterator[Finding]:
    """Yield a finding if the work changes from epoch to epoch."""
    if changed := find_changing_epochs(profiles, unit):
        yield Finding(
            "changing-epochs",
            f"{title}: {changed.evidence}, so the work changes during the training (image size, batch size, data). The "
            "interval reaches from the shortest epoch to the longest.",
            "Probe each phase of the training and pass phases=[(epochs, profile), ...] (--phase EPOCHS:PROFILE).",
        )
