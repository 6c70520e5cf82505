"""What goes wrong from epoch to epoch: long pauses between them, and epochs that grow."""

from __future__ import annotations

import statistics
from itertools import combinations

from vmselect.diagnosis.evidence import Causes, Diagnosis, steady_step
from vmselect.records import Profile
from vmselect.units import format_seconds

PAUSE_SHARE = 0.1
PAUSE_SECONDS = 0.3
"""Pauses between epochs are said when they take this much of an epoch, and this long."""

FEWEST_EPOCHS = 4
GROWTH = 0.2
AGREEMENT = 0.7
"""Epochs grow when the last is this much longer than the first, and this many pairs more agree than disagree."""


def find_pauses(profile: Profile) -> Causes:
    """Time between the steps of one epoch and those of the next in which nothing is trained."""
    boundaries = profile.timeline.boundaries
    between = [boundary.seconds for boundary in boundaries if not boundary.final]
    epoch = _epoch_seconds(profile)
    if not between or epoch is None:
        return
    pause = statistics.median(between)
    if len(between) == 1:
        # What happens once, such as the first saving of a model, is no pause of every epoch.
        pause = min(boundary.seconds for boundary in boundaries)
    share = pause / (epoch + pause) if epoch + pause > 0 else 0.0
    if share < PAUSE_SHARE or pause < PAUSE_SECONDS:
        return
    yield Diagnosis(
        "slow-boundaries",
        f"Between two epochs {format_seconds(pause)} pass in which nothing is trained, {share:.0%} of an epoch's time.",
        "Look at what callbacks do at the end of an epoch (saving, logging), and let tf.data tune itself no more "
        "(options.autotune.enabled = False).",
        "info",
        {"boundary_seconds": pause, "epoch_seconds": epoch, "boundary_share": share},
    )


def find_growth(profile: Profile) -> Causes:
    """Epochs that take longer and longer."""
    seconds = [epoch.seconds for epoch in profile.timeline.epochs if epoch.complete][1:]
    if len(seconds) < FEWEST_EPOCHS - 1:
        return
    pairs = list(combinations(seconds, 2))
    agreement = sum((later > earlier) - (later < earlier) for earlier, later in pairs) / len(pairs)
    growth = seconds[-1] / seconds[0] - 1 if seconds[0] > 0 else 0.0
    if growth < GROWTH or agreement < AGREEMENT:
        return
    yield Diagnosis(
        "slowing-down",
        f"Epochs take longer and longer: {format_seconds(seconds[0])} for the second, {format_seconds(seconds[-1])} "
        f"for the last of the {len(seconds) + 1} seen, {growth:.0%} more.",
        "Look for data, logs or memory that grow as the training goes on: a prediction from early epochs is too low.",
        "warning",
        {"second_epoch_seconds": seconds[0], "last_epoch_seconds": seconds[-1], "growth_share": growth},
    )


def _epoch_seconds(profile: Profile) -> float | None:
    """What an epoch takes, steps and validation together."""
    timeline = profile.timeline
    whole = [epoch.seconds for epoch in timeline.epochs if epoch.complete]
    step, steps = steady_step(profile), profile.steps_per_epoch
    if step is not None and steps is not None:
        training = step * steps
    elif whole:
        training = statistics.median(whole)
    else:
        return None
    validations = [validation.seconds for validation in timeline.validations if not validation.truncated]
    return training + (statistics.median(validations) if validations else 0.0)
