"""Saves of the model that a short probe does not see: no part of the estimate, but the interval allows for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vmselect.estimation.location import Level
from vmselect.estimation.readings import Readings
from vmselect.records import Profile

SEEN_TWICE = 2
"""Saves by batches that fit so often into what was probed are in the mean of its steps."""

SELDOM = 10.0
"""How many times as long as any later one the first end of an epoch must be to be taken for a save that comes only now
and then..."""

SELDOM_SHARE = 0.5
"""...and the share of epochs for which the high end then allows one: the second epoch had none."""


@dataclass(frozen=True)
class Saves:
    """Saves that are not counted: ``per_epoch`` by batches, and perhaps some after a few of the epochs.

    ``by_batches`` says that there are such saves, even where their number is not known. ``longest`` is the longest that
    callbacks worked at the end of an epoch, or that a step stood out by; 0 where no save was seen. ``now_and_then`` is
    what an epoch takes on average if what came after the first one comes again.
    """

    by_batches: bool = False
    per_epoch: float = 0.0
    longest: float = 0.0
    now_and_then: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds an epoch that the high end allows for."""
        return self.per_epoch * self.longest + self.now_and_then


def find_unseen_saves(profile: Profile, readings: Readings, *, step: Level, steps_per_epoch: float) -> Saves:
    """What of the saves that callbacks announce, or that the first epoch showed, steps and boundaries do not hold."""
    if readings.unit == "epoch":  # saves are part of whole epochs
        return Saves()
    setup = profile.setup
    first, later = max(readings.first_endings, default=0.0), max(readings.later_endings, default=0.0)
    # The first save of Keras' own callbacks is slow once, so it says nothing about later ones.
    seldom = bool(readings.later_endings) and setup.saving is None and first > SELDOM * later
    longest = max(first, later, step.stall)
    if setup.saving == "batches" and longest <= step.value:  # nothing that was seen can have been a save
        longest = 0.0
    saves = Saves(longest=longest, now_and_then=SELDOM_SHARE * first if seldom else 0.0)
    if setup.save_freq is None:
        return replace(saves, by_batches=setup.saving == "batches")
    if profile.timeline.steps.steps >= SEEN_TWICE * setup.save_freq:
        return saves
    return replace(saves, by_batches=True, per_epoch=steps_per_epoch / setup.save_freq)
