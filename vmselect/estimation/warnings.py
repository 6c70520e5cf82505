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
"""Share of an epoch beyond which waiting after it is worth a word."""

TURN_OFF = "options = tf.data.Options(); options.autotune.enabled = False; model.fit(data.with_options(options))"
ARRAYS = "arrays x and y become data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(n)"

PART, UNSTEADY = 10, 0.2
"""How many steps a part of a probe has at least, and how far the middle ones of its parts may lie apart, as a share."""

CHANGE = 0.1
"""Share by which later epochs must differ from earlier ones to be called another recipe."""


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
    seen = sum(len(block.seconds) for block in readings.blocks)
    if seen < FEW_READINGS:
        yield Finding(
            "few-readings",
            f"{title}: the estimate rests on {seen or 'no'} steady {readings.unit}{'' if seen == 1 else 's'}, so its "
            "interval is mostly assumption.",
            "Measure more, or give every single time that was measured.",
        )
    if step.stall:
        yield Finding(
            "lone-stall",
            f"{title}: one {readings.unit} took longer than all others, and what may not recur of it counts once; if "
            "such stalls do recur, the training takes longer, which the high end of the interval allows for.",
            "Probe more steps to see whether it recurs.",
            "info",
        )
    yield from _changing_speed(title, readings)
    if boundaries.shortened:
        yield Finding(
            "long-boundary",
            f"{title}: the one opening of a later epoch that was seen took over {LONE_BOUNDARY_STEPS:.0f} steps; every "
            "other counts as that many, and the high end of the interval allows for part of the rest.",
            "Probe twice and estimate from both profiles: what recurs is then believed.",
            "info",
        )
    if profiles[0].setup.saving == "best" and boundaries.ending.value > LONG_WAIT * epoch_seconds:
        yield Finding(
            "saves-the-best",
            f"{title}: a checkpoint keeps the best epochs only. Every epoch counts as one, with "
            f"{format_seconds(boundaries.ending.value)} for what callbacks do at its end; the low end of the interval "
            "allows for none.",
            "If few epochs will be the best so far, expect a time towards the low end.",
            "info",
        )
    yield from _unseen_saves(profiles[0], readings, saves, epoch_seconds=epoch_seconds)
    waiting = boundaries.waiting
    if waiting.longest > LONG_WAIT * epoch_seconds:
        each, most, epoch = (format_seconds(x) for x in (waiting.each.value, waiting.longest, epoch_seconds))
        bill = waiting.each.value / (epoch_seconds + waiting.each.value)
        yield Finding(
            WAITS,
            f"{title}: its tf.data pipeline tunes itself, and TensorFlow may idle up to {most} after each epoch of "
            f"{epoch}. By how seldom a core was free, it does so after {waiting.share:.0%} of them: {each} an epoch "
            f"are counted, {bill:.0%} of the time and of the bill.",
            f"Turn it off ({TURN_OFF}; {ARRAYS}) and probe again, or watch whole epochs with EpochProbe.",
            "warning" if bill > LONG_WAIT else "info",
        )
    last, epochs = boundaries.last_waiting, profiles[0].setup.epochs or 1
    if last.longest > LONG_WAIT * epochs * epoch_seconds:
        once, most = (format_seconds(seconds) for seconds in (last.each.value, last.longest))
        yield Finding(
            "waits-at-the-end",
            f"{title}: its tf.data pipeline goes on through all epochs and tunes itself; when fit returns, TensorFlow "
            f"may idle up to {most} until it can be taken down. {once} are counted for that, once.",
            f"Turn it off: {TURN_OFF}.",
            "info",
        )
    yield from _changing_epochs(title, profiles)


def _unseen_saves(profile: Profile, readings: Readings, saves: Saves, *, epoch_seconds: float) -> Iterator[Finding]:
    """Saves that the estimate does not hold, and what the interval allows for."""
    setup = profile.setup
    if saves.by_batches:
        allowed = "No save was seen, so the interval does not allow for them either."
        if saves.per_epoch and saves.longest:
            allowed = (
                f"The high end of the interval allows for {saves.per_epoch:.3g} of them an epoch, "
                f"{format_seconds(saves.longest)} each: the longest that callbacks worked after an epoch, or that a "
                "step stood out by."
            )
        yield Finding(
            "saves-by-batches",
            f"{profile.title}: a checkpoint is saved every {setup.save_freq or 'so many'} batches, which a short probe "
            f"does not see often enough to count; the time of these saves is not part of the estimate. {allowed}",
            "Save once an epoch (save_freq='epoch'), or watch a whole epoch with stop=False (--watch).",
        )
    if saves.now_and_then > LONG_WAIT * epoch_seconds:
        once, later = (format_seconds(max(ends)) for ends in (readings.first_endings, readings.later_endings))
        yield Finding(
            "saves-now-and-then",
            f"{profile.title}: callbacks worked for {once} after the first epoch, and for {later} at most after later "
            "ones. The first counts once. If it was a save that comes every few epochs, or when the model is the best "
            "so far, the training takes longer; the high end of the interval allows for one after every second epoch.",
            "Watch more epochs with stop=False (--watch) to see whether it recurs.",
            "info",
        )


def _changing_speed(title: str, readings: Readings) -> Iterator[Finding]:
    """Parts of the probe in which ordinary steps took longer than in others, beyond what chance explains."""
    each = [seconds / covers for seconds, covers in zip(*readings.steady, strict=True)]
    size = max(PART, len(each) // BLOCKS)
    levels = [statistics.median(each[i : i + size]) for i in range(0, len(each) - size + 1, size)]
    if readings.unit == "step" and levels and max(levels) - min(levels) > UNSTEADY * statistics.median(levels):
        slow, fast = (format_seconds(seconds) for seconds in (max(levels), min(levels)))
        yield Finding(
            "changing-speed",
            f"{title}: while it was probed, ordinary steps took {fast} at one time and {slow} at another. The machine "
            "was not equally fast, and the training may run at either speed.",
            "End other programs and probe again, or for longer (steady_seconds=10); estimate from several probes.",
        )


def _changing_epochs(title: str, profiles: Sequence[Profile]) -> Iterator[Finding]:
    """Epochs whose time per step changes along the run beyond their noise."""
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
        if abs(late - early) > max(CHANGE * early, 4 * noise):
            yield Finding(
                "changing-epochs",
                f"{title}: later epochs take {late / early - 1 if early else 1:+.0%} against earlier ones, beyond "
                "their noise: the recipe changes during the run (image size, batch size, data).",
                "Probe each phase and pass phases=[(epochs, profile), ...] (--phase EPOCHS:PROFILE).",
            )
            return
