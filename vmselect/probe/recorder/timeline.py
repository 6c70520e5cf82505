"""From a stopwatch's record to the timeline of a profile: nanoseconds become seconds, readings get their labels."""

from __future__ import annotations

from vmselect.probe.facts.process import InitSource
from vmselect.probe.recorder.stopwatch import EpochTally, Reading, StepTimer
from vmselect.records.training import Boundary, Epoch, InputWait, Label, Pause, Step, Steps, Timeline, Validation


def build_timeline(
    timer: StepTimer,
    *,
    init: tuple[float, InitSource] | None = None,
    partial_batch: int | None = None,
    watched: bool = False,
    input_wait: InputWait | None = None,
) -> Timeline:
    """What ``timer`` recorded, as a profile keeps it.

    ``init`` is the initialization time and how it was learnt, ``partial_batch`` the size of a smaller last batch
    (0 for none, None for unknown), ``watched`` says that the whole training was seen,
    ``input_wait`` how long steps waited for input where that is known.
    """
    tallies = timer.epoch_tallies()
    taken, cpu_taken = timer.taken_so_far()
    return Timeline(
        init_seconds=init[0] if init else None,
        init_source=init[1] if init else None,
        fit_to_first_batch_seconds=_maybe_seconds(timer.fit_to_first_batch),
        steps=_build_steps(timer, tallies, has_partial_batch=bool(partial_batch)),
        epochs=tuple(_build_epoch(tally) for tally in tallies),
        validations=tuple(validation for tally in tallies for validation in _build_validations(tally)),
        boundaries=tuple(
            Boundary(
                epoch=tally.epoch,
                seconds=_seconds(tally.boundary),
                before_validation_seconds=_maybe_seconds(tally.before_validation),
                epoch_end_seconds=_maybe_seconds(tally.epoch_end),
                truncated=not tally.complete,
                final=tally is timer.previous and timer.taken is not None and timer.current is None,
            )
            for tally in tallies
            if tally.boundary is not None
        ),
        input_wait=input_wait,
        pauses=tuple(
            Pause(cause="garbage collection", epoch=epoch, batch=batch, seconds=_seconds(taken), whole_heap=whole)
            for epoch, batch, taken, whole in timer.pauses
        ),
        wall_seconds=_seconds(taken),
        cpu_seconds=_seconds(cpu_taken),
        fit_seconds=_seconds(taken) if watched else None,
    )


def label_steps(readings: list[Reading], tallies: list[EpochTally], *, has_partial_batch: bool) -> list[Label]:
    """The label of each kept reading, in order.

    The first step of all is "first"; the last of a whole epoch is "partial" where the last batch is smaller; the
    first of a later epoch is "opening"; others are "steady". Warm-up is detected by the record.
    """
    openings = {tally.opening for tally in tallies if tally.opening}
    partials = {tally.closing for tally in tallies if tally.closing and tally.complete} if has_partial_batch else set()
    labels: list[Label] = []
    for position, reading in enumerate(readings):
        if position == 0:
            labels.append("first")
        elif reading in partials:
            labels.append("partial")
        elif reading in openings:
            labels.append("opening")
        else:
            labels.append("steady")
    return labels


def _build_steps(timer: StepTimer, tallies: list[EpochTally], *, has_partial_batch: bool) -> Steps:
    readings = timer.step_readings()
    labels = label_steps(readings, tallies, has_partial_batch=has_partial_batch)
    steps = Steps.of(
        (
            Step(epoch, batch, _seconds(taken), covers, label)
            for (epoch, batch, taken, covers), label in zip(readings, labels, strict=True)
        ),
        readings=timer.readings,
        steps=timer.steps,
        total_seconds=_seconds(timer.steps_taken),
    )
    return steps.model_copy(update={"label": steps.labels})


def _build_epoch(tally: EpochTally) -> Epoch:
    return Epoch(
        epoch=tally.epoch,
        seconds=_seconds(tally.taken),
        steps=tally.steps,
        opening_seconds=_seconds(tally.opening[2]) if tally.opening else None,
        closing_seconds=_seconds(tally.closing[2]) if tally.closing else None,
        complete=tally.complete,
    )


def _build_validations(tally: EpochTally) -> list[Validation]:
    return [
        Validation(
            epoch=tally.epoch,
            seconds=_seconds(validation.taken),
            batches=validation.batches,
            batch_seconds=tuple(_seconds(taken) for taken in validation.batch_readings),
            truncated=validation.truncated,
        )
        for validation in tally.validations
    ]


def _maybe_seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else _seconds(nanoseconds)


def _seconds(nanoseconds: int) -> float:
    # A clock that was set back gives a negative time; the record must not carry it.
    return max(0, nanoseconds) / 1e9
