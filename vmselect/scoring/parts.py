"""The parts of a training that was resumed from a checkpoint, as one training."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmselect.units import format_seconds

if TYPE_CHECKING:
    from vmselect.records import Profile


@dataclass(frozen=True)
class Parts:
    """The recorded parts of one training, oldest first. A training that was never resumed has one part."""

    profiles: tuple[Profile, ...]

    @classmethod
    def of(cls, last: Profile, records: Sequence[Profile]) -> Parts:
        """The training whose last part is ``last``, with the earlier parts that are among ``records``."""
        return cls((*reversed(find_parts(last, records, last.setup.initial_epoch)), last))

    @property
    def last(self) -> Profile:
        """The newest part."""
        return self.profiles[-1]

    @property
    def is_whole(self) -> bool:
        """Whether the first part begins with the first epoch."""
        return self.profiles[0].setup.initial_epoch == 0

    @property
    def seconds(self) -> float:
        """Time of all parts with initialization and lost time, but without the time between parts."""
        return sum(map(part_seconds, self.profiles))

    @property
    def interruptions(self) -> int:
        """Number of parts that were killed from outside, unlike those ended by an error or by their user."""
        return sum(part.preemption is not None for part in self.profiles)

    @property
    def is_complete(self) -> bool:
        """Whether the training ended with its last epoch, so that nothing is left to resume."""
        epochs = self.last.setup.epochs
        return self.last.outcome == "watched" and epochs is not None and self.epochs_done >= epochs

    @property
    def epochs_done(self) -> int:
        """Number of completed epochs of the training."""
        return self.last.setup.initial_epoch + self.last.timeline.complete_epochs

    @property
    def lost_seconds(self) -> float:
        """Time that a training in one part would not have taken: work after the last checkpoint that was done again,
        and in every later part its initialization and what its first step takes longer than others."""
        lost = 0.0
        for number, part in enumerate(self.profiles):
            useful = part_seconds(part)
            if part is not self.last:
                following = self.profiles[number + 1]
                useful = _kept_seconds(part, following.setup.initial_epoch - part.setup.initial_epoch)
            if number:
                useful -= _resume_seconds(part)
            lost += part_seconds(part) - max(0.0, useful)
        return max(0.0, lost)

    def join(self) -> Profile:
        """A profile of the whole training with its total time, under the ID of the last part."""
        first, last = self.profiles[0], self.last
        return last.model_copy(
            update={
                "outcome": "given",
                "created": first.created,
                "setup": last.setup.model_copy(update={"initial_epoch": 0, "epochs": max(1, self.epochs_done)}),
                "timeline": last.timeline.model_copy(update={"run_seconds": (self.seconds,)}),
            }
        )

    def __str__(self) -> str:
        return f"parts ({len(self.profiles)}, with {format_seconds(self.lost_seconds)} for resuming and repeated work)"


def part_seconds(part: Profile) -> float:
    """Seconds of one part, with its initialization."""
    return (part.timeline.init_seconds or 0.0) + (part.timeline.wall_seconds or 0.0)


def epoch_seconds(part: Profile) -> dict[int, float]:
    """Seconds of each recorded epoch by its number, with its validations and what follows it."""
    timeline = part.timeline
    seconds = dict.fromkeys((epoch.epoch for epoch in timeline.epochs), 0.0)
    readings = [(reading.epoch, reading.seconds) for reading in timeline.epochs]
    readings += [(reading.epoch, reading.seconds) for reading in timeline.validations]
    readings += [(reading.epoch, reading.seconds) for reading in timeline.boundaries]
    for epoch, taken in readings:
        if epoch in seconds:
            seconds[epoch] += taken
    return seconds


def _kept_seconds(part: Profile, epochs: int) -> float:
    """Seconds of ``part`` until its first ``epochs`` were done.

    The readings cover its whole time, or that of a sample of the epochs, if there are thousands.
    """
    every = epoch_seconds(part)
    if not every:
        return part.timeline.startup_seconds or 0.0
    first = min(every)
    done = [seconds for number, seconds in every.items() if number - first < epochs]
    reached = min(epochs, max(every) - first + 1)
    kept = sum(done) * max(1.0, reached / len(done)) if done else 0.0
    return (part.timeline.startup_seconds or 0.0) + kept


def _resume_seconds(part: Profile) -> float:
    """Seconds of ``part`` until its training ran again: startup, and the excess of the first step over the second."""
    first, second = part.first_iteration_seconds, part.second_iteration_seconds
    excess = 0.0 if first is None or second is None else max(0.0, first - second)
    return (part.timeline.startup_seconds or 0.0) + excess


def find_parts(profile: Profile, records: Iterable[Profile], first: int) -> list[Profile]:
    """The records of earlier parts of the training of ``profile``, which continues at epoch ``first``; newest first.

    A part belongs to the same training if its model, batch size, number of epochs and factors are equal, and it began
    at the same or an earlier epoch. The newest part that began at the first epoch is the first part. Probes, which
    end a training early on purpose, are no parts, nor are complete trainings: what continues from a checkpoint of one
    is another training.
    """
    alike = [
        record
        for record in records
        if record.id != profile.id
        and record.created <= profile.created
        and record.outcome not in ("stopped", "described")
        and work_of(record) == work_of(profile)
        and not Parts((record,)).is_complete
    ]
    parts: list[Profile] = []
    for record in sorted(alike, key=lambda record: record.created, reverse=True):
        if first > 0 and record.setup.initial_epoch <= first:
            parts.append(record)
            first = record.setup.initial_epoch
    return parts


def work_of(profile: Profile) -> tuple[Hashable, ...]:
    """What is equal in all parts of a training."""
    setup = profile.setup
    factors = tuple(sorted((name, value) for name, value in profile.factors.items()))
    return setup.model, setup.structure, setup.batch_size, setup.epochs, factors, profile.fit and profile.fit.name
