"""Warnings about an estimate, from its readings."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from vmselect.estimation.autotune_wait import WAITS
from vmselect.estimation.overheads import LONE_BOUNDARY_STEPS, Boundaries, Saves
from vmselect.estimation.readings import Readings
from vmselect.estimation.statistics import BLOCKS, Level
from vmselect.findings import Finding
from vmselect.records import Profile
from vmselect.units import format_seconds

FEW_READINGS = 3
LONG_WAIT = 0.05
"""Share of an epoch above which waits and saves have a finding."""

TURN_OFF = "options = tf.data.Options(); options.autotune.enabled = False; model.fit(data.with_options(options))"

MIN_PART, MAX_DIFFERENCE = 10, 0.2
"""Minimum steps of a part of a probe, and the relative difference between parts above which the speed changed."""

MIN_CHANGE = 0.1
"""Relative difference between earlier and later epochs above which the training changed."""


def find_warnings(
    profiles: Sequence[Profile],
    readings: Readings,
    *,
    step: Level,
    boundaries: Boundaries,
    saves: Saves,
    epoch_seconds: float,
) -> Iterator[Finding]:
    """All findings about the readings of an estimate."""
    title = profiles[0].title
    count = sum(len(block.seconds) for block in readings.blocks)
    if count < FEW_READINGS:
        yield Finding(
            "few-readings",
            f"{title}: the estimate is based on {count or 'no'} steady {readings.unit}{'' if count == 1 else 's'}, so "
            "its interval is mostly assumed.",
            "Probe more, or give every single time that was measured.",
        )
    if step.stall:
        yield Finding(
            "lone-stall",
            f"{title}: one {readings.unit} was much longer than all others and counts once; the high end of the "
            "interval allows for more.",
            "Probe more steps to see whether it recurs.",
            "info",
        )
    yield from _changing_speed(title, readings)
    if boundaries.shortened:
        yield Finding(
            "long-boundary",
            f"{title}: the only boundary between epochs took over {LONE_BOUNDARY_STEPS:.0f} steps. Others count as "
            "that many, and the high end of the interval allows for more.",
            "Probe twice and estimate from both profiles.",
            "info",
        )
    if profiles[0].setup.saving == "best" and boundaries.ending.value > LONG_WAIT * epoch_seconds:
        yield Finding(
            "saves-the-best",
            f"{title}: a checkpoint is saved after the best epochs only, but the estimate counts "
            f"{format_seconds(boundaries.ending.value)} after every epoch. The low end of the interval counts none.",
            "If few epochs will be the best so far, expect a time near the low end.",
            "info",
        )
    yield from _unseen_saves(profiles[0], readings, saves, epoch_seconds=epoch_seconds)
    yield from _waits(title, boundaries, profiles[0].setup.epochs or 1, epoch_seconds)
    yield from _changing_epochs(title, profiles)


def _waits(title: str, boundaries: Boundaries, epochs: int, epoch_seconds: float) -> Iterator[Finding]:
    waiting, last = boundaries.waiting, boundaries.last_waiting
    if waiting.longest > LONG_WAIT * epoch_seconds:
        share = waiting.each.value / (epoch_seconds + waiting.each.value)
        yield Finding(
            WAITS,
            f"{title}: TensorFlow waits up to {format_seconds(waiting.longest)} for the tf.data autotuner after "
            f"{waiting.share:.0%} of the epochs (estimated from the CPU load). That is "
            f"{format_seconds(waiting.each.value)} per epoch, {share:.0%} of the time and cost.",
            f"Turn autotuning off ({TURN_OFF}) and probe again, or record whole epochs with EpochProbe.",
            "warning" if share > LONG_WAIT else "info",
        )
    if last.longest > LONG_WAIT * epochs * epoch_seconds:
        yield Finding(
            "waits-at-the-end",
            f"{title}: TensorFlow waits up to {format_seconds(last.longest)} for the tf.data autotuner when fit ends. "
            f"The estimate includes {format_seconds(last.each.value)} for that.",
            f"Turn autotuning off: {TURN_OFF}.",
            "info",
        )


def _unseen_saves(profile: Profile, readings: Readings, saves: Saves, *, epoch_seconds: float) -> Iterator[Finding]:
    """Saves that the estimate does not contain."""
    if saves.by_batches:
        allowed = "no save was recorded, so neither does the interval"
        if saves.per_epoch and saves.longest:
            allowed = f"the high end allows for {saves.per_epoch:.3g} per epoch of {format_seconds(saves.longest)} each"
        yield Finding(
            "saves-by-batches",
            f"{profile.title}: the estimate does not include checkpoints every {profile.setup.save_freq or 'so many'} "
            f"batches, which a short probe rarely records; {allowed}.",
            "Save once per epoch (save_freq='epoch'), or record a whole epoch with stop=False (--watch).",
        )
    if saves.now_and_then > LONG_WAIT * epoch_seconds:
        first, later = (format_seconds(max(ends)) for ends in (readings.first_endings, readings.later_endings))
        yield Finding(
            "saves-now-and-then",
            f"{profile.title}: callbacks took {first} after the first epoch and at most {later} after later ones. If "
            "that was a checkpoint that recurs, the training takes longer, up to the high end of the interval.",
            "Record more epochs with stop=False (--watch) to see whether it recurs.",
            "info",
        )


def _changing_speed(title: str, readings: Readings) -> Iterator[Finding]:
    """Parts of the probe in which steps took longer than in others."""
    each = [seconds / covers for seconds, covers in zip(*readings.steady, strict=True)]
    size = max(MIN_PART, len(each) // BLOCKS)
    levels = [statistics.median(each[i : i + size]) for i in range(0, len(each) - size + 1, size)]
    if readings.unit == "step" and levels and max(levels) - min(levels) > MAX_DIFFERENCE * statistics.median(levels):
        yield Finding(
            "changing-speed",
            f"{title}: the speed of the machine changed during the probe, from {format_seconds(min(levels))} to "
            f"{format_seconds(max(levels))} per step. The training may run at either speed.",
            "End other programs and probe again, or for longer (steady_seconds=10).",
        )


def _changing_epochs(title: str, profiles: Sequence[Profile]) -> Iterator[Finding]:
    """Epochs whose time per step changes during the run beyond their noise."""
    for profile in profiles:
        later = [epoch.seconds / (epoch.steps or 1) for epoch in profile.timeline.epochs[1:] if epoch.complete]
        half = len(later) // 2
        if half < 2:
            continue
        early, late = (statistics.median(part) for part in (later[:half], later[-half:]))
        noise = max(
            statistics.median(abs(seconds - level) for seconds in part)
            for part, level in ((later[:half], early), (later[-half:], late))
        )
        if abs(late - early) > max(MIN_CHANGE * early, 4 * noise):
            yield Finding(
                "changing-epochs",
                f"{title}: later epochs take {late / early - 1 if early else 1:+.0%} against earlier ones, so the "
                "training changes during the run (image size, batch size, data).",
                "Probe each phase and pass phases=[(epochs, profile), ...] (--phase EPOCHS:PROFILE).",
            )
            return
