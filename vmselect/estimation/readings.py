"""What profiles of the same setup say, sorted by what each reading measures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import NamedTuple

from vmselect.records import Epoch, Pause, Profile, Validation

FIRST_RUN_SECONDS = 0.12
"""How long a step of TensorFlow that has just been compiled runs beyond an ordinary one. Chosen on six probes of
scripts (``tests/benchmarks/corpus.py``) that waited after their first epoch: there the next wake-up was nearer."""


@dataclass(frozen=True)
class Opening:
    """The way into an epoch: what lies before its first step, and that step with the steps that it covers.

    ``pipeline_seconds`` is how long the input of the epoch before had been running by then, None where not known.
    """

    before_seconds: float
    step_seconds: float = 0.0
    covers: int = 0
    pipeline_seconds: float | None = None
    cut_short: bool = False


class Block(NamedTuple):
    """Readings in order: seconds, and the steps that each of them covers."""

    seconds: list[float]
    covers: list[int]


@dataclass
class Readings:
    """Readings of one setup, over all its repetitions.

    ``blocks`` holds the steady readings per repetition and epoch. In profiles of whole epochs the unit is the epoch,
    and ``unit`` says so. A boundary has three parts: the wrap-up of an epoch,
    before its validation; its ending, in which other callbacks work; and the opening of the next one. ``finals`` come
    after the last epoch. Where the parts were not told apart, an opening holds them all; ``first_openings`` are those
    that others followed. ``pauses`` are, per repetition, those with a known cause, among ``steps_seen`` steps.
    Validations stand together by epoch: ``first_validations`` are those of the first one, and what came once.
    """

    unit: str = "step"
    init: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    first_units: int = 0
    warmup: list[Block] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
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

    @property
    def steady(self) -> Block:
        """Every steady reading."""
        return Block(
            list(chain.from_iterable(block.seconds for block in self.blocks)),
            list(chain.from_iterable(block.covers for block in self.blocks)),
        )

    @property
    def validations(self) -> list[Validation]:
        """Every validation."""
        return list(chain.from_iterable(self.first_validations + self.later_validations))


def collect(profiles: Sequence[Profile]) -> Readings:
    """Sort the readings of repetitions by what they measure."""
    readings = Readings(unit="epoch" if all(_only_epochs(profile) for profile in profiles) else "step")
    in_parts = all(_boundaries_in_parts(profile) for profile in profiles)
    for profile in profiles:
        timeline = profile.timeline
        if timeline.init_seconds is not None or timeline.fit_to_first_batch_seconds is not None:
            readings.init.append((timeline.init_seconds or 0.0) + (timeline.fit_to_first_batch_seconds or 0.0))
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
    """Validations by epoch: a program may pass over several sets of data after each.

    Where it is known how often a validation comes in an epoch, each stands by itself. What only the last epoch has, a
    test when all is done, comes once: it is put with the first. A last epoch that was interrupted between two of its
    sets tells nothing.
    """
    seen = profile.timeline.validations
    if profile.setup.validations_per_epoch is not None:
        return [[one] for one in seen]
    epochs = [list(passes) for _, passes in groupby(seen, key=lambda one: one.epoch)]
    if len(epochs) > 1:
        usual = len(epochs[-2])
        if profile.outcome == "interrupted" and len(epochs[-1]) < usual:
            return epochs[:-1]
        epochs[0] += epochs[-1][usual:]
        del epochs[-1][usual:]
    return epochs


def whole_epochs(profile: Profile) -> list[Epoch]:
    """The epochs that were seen to their end, each with the pauses that lay in it.

    Where steps were watched, and in older files of whole epochs, pauses were taken out; others hold them and list none.
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
    """Whole epochs are all there is, or they were given and say more than a few given steps."""
    timeline = profile.timeline
    whole = [epoch for epoch in timeline.epochs if epoch.complete]
    return bool(whole) and (not len(timeline.steps) or profile.outcome == "given")


def epochs_include_validation(profile: Profile, unit: str) -> bool:
    """Whether the readings are whole epochs with their validation in them, as they are when they were given."""
    return unit == "epoch" and profile.outcome == "given"


def _collect_epochs(profile: Profile, readings: Readings) -> None:
    whole = whole_epochs(profile)
    readings.first.append(whole[0].seconds)
    readings.first_units = 1
    if later := [epoch.seconds for epoch in whole[1:]]:
        readings.blocks.append(Block(later, [1] * len(later)))
    lengths = _pipeline_seconds(profile)
    for boundary in profile.timeline.boundaries:
        if boundary.final:
            readings.finals.append(boundary.seconds)
        else:
            # The wrap-up belongs to the life of the input, and whatever of it is known is a part of the boundary.
            wrap_up = boundary.before_validation_seconds or 0.0
            length = lengths.get(boundary.epoch)
            readings.openings.append(
                Opening(boundary.seconds, pipeline_seconds=None if length is None else length + wrap_up)
            )


def _pipeline_seconds(profile: Profile) -> dict[int, float]:
    """By epoch, from its first batch to the end of its validation, as far as that was measured.

    TensorFlow asks for the very first batch when it has compiled the step, and then runs it for the first time.
    """
    if profile.outcome == "given":
        return {}
    timeline = profile.timeline
    lengths = {epoch.epoch: epoch.seconds for epoch in timeline.epochs}
    # The labels as written: this median only separates compiling from running, and old estimates stay the same.
    columns = zip(timeline.steps.seconds, timeline.steps.covers, timeline.steps.label, strict=True)
    steady = [seconds / covers for seconds, covers, label in columns if label == "steady"]
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
    for epoch, seconds, covers, label in zip(steps.epoch, steps.seconds, steps.covers, steps.labels, strict=True):
        if label in ("steady", "warmup"):
            block = warm if label == "warmup" else steady.setdefault(epoch, Block([], []))
            block.seconds.append(seconds)
            block.covers.append(covers)
    readings.warmup.append(warm)
    dropped = steps.readings > len(steps)
    aggregates = _epoch_aggregates(profile, partials=bool(partials)) if dropped else Block([], [])
    readings.blocks.extend([aggregates] if aggregates.seconds else [steady[epoch] for epoch in sorted(steady)])


def _epoch_aggregates(profile: Profile, *, partials: bool) -> Block:
    """Whole epochs as one reading each, where single steps were too many to keep."""
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
    """Whether every boundary says what lies before validation, and means the same by it.

    With a validation only every few epochs it does not: what callbacks do lies before the end of the others.
    """
    known = [boundary.before_validation_seconds is not None for boundary in profile.timeline.boundaries]
    return all(known) and profile.setup.validation_freq == 1


def _collect_boundaries(profile: Profile, readings: Readings, *, in_parts: bool) -> None:
    timeline = profile.timeline
    opened = {step.epoch: (step.seconds, step.covers) for step in timeline.steps.labelled("opening")}
    by_number: dict[int, Epoch] = {epoch.epoch: epoch for epoch in timeline.epochs}
    lengths = _pipeline_seconds(profile)
    several = len([boundary for boundary in timeline.boundaries if not boundary.final]) > 1
    for number, boundary in enumerate(timeline.boundaries):
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
        if following in opened:
            opening, covers = opened[following]
        elif following in by_number and by_number[following].opening_seconds is not None:
            opening, covers = by_number[following].opening_seconds or 0.0, profile.setup.steps_per_execution
        else:
            opening, covers = 0.0, 0
        apart = several and number == 0 and not in_parts
        length = lengths.get(boundary.epoch)
        pipeline = None if length is None else length + wrap_up + ending
        (readings.first_openings if apart else readings.openings).append(
            Opening(rest, opening, covers, pipeline, cut_short=boundary.truncated)
        )
