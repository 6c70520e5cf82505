"""Records the times of steps, validations and epochs of a training.

The timer depends on no framework: probes report the beginning and end of each event to it. Every method takes constant
time. A step costs one query of the clock, a few additions and a tuple. Memory is bounded however long the training
runs, because a :class:`Reservoir` keeps a sample of the readings. Sums are exact.
"""

from __future__ import annotations

import gc
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from vmselect.probe.environment import InitSource
    from vmselect.records.training import FirstStep, InputWait, Label, Timeline
    from vmselect.records.usage import Phase

Item = TypeVar("Item")
Clock = Callable[[], int]
Reading = tuple[int, int, int, int]
"""Measured time of one or several steps: epoch, number of the last batch in the epoch, nanoseconds, and number of steps
that the time covers. It is a plain tuple for speed, because one is created at every step."""

STEPS_ALWAYS = 1_000
STEPS_SAMPLED = 1_000
EPOCHS_ALWAYS = 1_000
EPOCHS_SAMPLED = 1_000
MAX_VALIDATIONS = 15_000
"""Validations that are kept apart, fewer than a record may have. From then on, those of an epoch are added up."""
EDGE_EPOCHS = 500
"""Number of epochs whose first and last steps are always kept, even if the random sample does not include them."""
MAX_BATCHES_PER_VALIDATION = 2_000
MAX_VALIDATION_BATCHES = 8_000
MAX_PAUSES = 2_000
MIN_PAUSE_NS = 1_000_000
"""Garbage collections of at least this many nanoseconds are excluded from their step. Shorter ones occur every few
steps and count as part of the step."""
BLOCK_STEPS = 5
"""Number of steps in a block."""
OLDEST_GENERATION = 2
"""Number that Python's ``gc`` module gives to a garbage collection of the whole heap."""


class Reservoir(Generic[Item]):
    """Keeps the first ``always`` items, and a uniform random sample of ``size`` later items.

    Whether an item is kept is decided before it arrives (Li's algorithm L): ``due`` is the number of the next item that
    the caller must offer, so that every other item costs only one comparison. The reservoir has its own random
    generator, because a training may depend on the global generator.
    """

    __slots__ = ("_always", "_first", "_random", "_sample", "_size", "_weight", "due")

    def __init__(self, *, always: int, size: int, seed: int = 0) -> None:
        self._always = always
        self._size = size
        self._first: list[Item] = []
        self._sample: list[Item] = []
        self._random = random.Random(seed)
        self._weight = 1.0
        self.due: float = 1

    def offer(self, number: int, item: Item) -> None:
        """Keep ``item``, the item with this ``number``, counted from 1.

        The caller must offer each item whose number equals ``due``, exactly once.
        """
        if number <= self._always:
            self._first.append(item)
        elif len(self._sample) < self._size:
            self._sample.append(item)
        else:
            self._sample[self._random.randrange(self._size)] = item
        if number < self._always + self._size:
            self.due = number + 1
            return
        # 1 - random() lies in (0, 1], so that its logarithm exists.
        self._weight *= math.exp(math.log(1.0 - self._random.random()) / self._size)
        chance = math.log1p(-self._weight) if self._weight < 1.0 else -math.inf
        gap = math.log(1.0 - self._random.random()) / chance if chance else math.inf
        self.due = number + math.floor(gap) + 1 if gap < 2**62 else math.inf

    def items(self) -> list[Item]:
        """Return the first items in their order, followed by the sample in no particular order."""
        return self._first + self._sample


class ValidationTally(NamedTuple):
    """Times of one validation, in nanoseconds."""

    taken: int
    batches: int | None
    batch_readings: tuple[int, ...]
    truncated: bool
    covers: int = 1

    def plus(self, other: ValidationTally) -> ValidationTally:
        """The times of both, added up."""
        batches = None if self.batches is None or other.batches is None else self.batches + other.batches
        taken, covers = self.taken + other.taken, self.covers + other.covers
        return ValidationTally(taken, batches, (), self.truncated or other.truncated, covers)


@dataclass(slots=True, eq=False)
class EpochTally:
    """Times of one epoch, in nanoseconds."""

    epoch: int
    steps_before: int = 0
    taken_before: int = 0
    steps: int | None = None
    taken: int = 0
    opening: Reading | None = None
    closing: Reading | None = None
    complete: bool = False
    validations: list[ValidationTally] = field(default_factory=list)
    before_validation: int | None = None
    left_after: int | None = None
    boundary: int | None = None
    epoch_end: int | None = None


class StepTimer:
    """Records the times of a training while it runs; :func:`build_timeline` converts them for a record.

    The methods are called in the order of a training: :meth:`start`; for each epoch :meth:`begin_epoch`, :meth:`open`
    at its first step, :meth:`end_step` for each step, optionally :meth:`begin_validation`,
    :meth:`end_validation_batch` and :meth:`end_validation`, and :meth:`end_epoch`; finally :meth:`finish`. The time of
    a step begins at the end of the previous step, so that it includes fetching the batch, which some frameworks do
    before and others after they report the beginning of a step.
    """

    def __init__(
        self, *, clock: Clock = time.perf_counter_ns, cpu_clock: Clock = time.process_time_ns, seed: int = 0
    ) -> None:
        self.clock = clock
        self._cpu_clock = cpu_clock
        self._sample: Reservoir[Reading] = Reservoir(always=STEPS_ALWAYS, size=STEPS_SAMPLED, seed=seed)
        self._tallies: Reservoir[EpochTally] = Reservoir(always=EPOCHS_ALWAYS, size=EPOCHS_SAMPLED, seed=seed + 1)
        self._edges: list[Reading] = []
        self._number = 0
        self._start = self._cpu_start = self._opened = 0
        self._own = self._own_cpu = 0
        self._leaving_out = False
        self.pauses: list[tuple[int, int, int, bool]] = []
        """Garbage collections, which are excluded from steps: epoch, batch, nanoseconds, whether of the whole heap."""
        self.opening = False
        self._steady_next = False  # steady steps begin with the end of the next step
        self._validating: int | None = None
        self._batch_mark = self._batch_count = 0
        self._batch_readings: list[int] = []
        self._batch_budget = MAX_VALIDATION_BATCHES
        self._validation_budget = MAX_VALIDATIONS
        self.mark = 0
        """Clock time, in nanoseconds, at which the next reading begins. A validation, or work of the probe itself,
        moves it forward, which excludes their time from the reading."""
        self.readings = self.steps = self.steps_taken = 0
        self.epochs_ended = 0
        self.fit_to_first_batch: int | None = None
        self.last: Reading | None = None
        self.current: EpochTally | None = None
        self.previous: EpochTally | None = None
        self.first_span: tuple[int, int] | None = None
        """Begin and end of the very first step, in nanoseconds of the clock."""
        self.taken: int | None = None
        self.cpu_taken: int | None = None
        self.enter: Callable[[Phase], object] = lambda phase: None
        """Function that is called with the name of the phase whenever a phase begins, such as "validation"."""
        self.due: float = math.inf
        self.on_due: Callable[[], object] = lambda: None
        """Function that is called after each step that ends at the clock time ``due``, in nanoseconds, or later."""

    # -- events ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Record that the training starts now: data and model exist, and no step has run."""
        self._cpu_start = self._cpu_clock()
        self._start = self.mark = self.clock()

    def start_earlier(self, by: int) -> None:
        """Move the start of the training back by ``by`` nanoseconds."""
        self._start -= by
        self.mark -= by

    def begin_epoch(self, epoch: int) -> None:
        """Record that epoch number ``epoch`` begins, before its first step."""
        self.current = EpochTally(epoch, steps_before=self.steps, taken_before=self.steps_taken)
        self._number = epoch
        self.opening = True

    def open(self, at: int | None = None) -> None:
        """Record that the first step of an epoch begins, now or at the earlier clock time ``at`` in nanoseconds.

        The time before this step is an epoch boundary, or the time from the start of the training to its first batch.
        """
        now = self.clock() if at is None else at
        if self.previous is None:
            self.fit_to_first_batch = now - self.mark
        else:
            self.previous.boundary = now - self.mark
        self.mark = now
        self.opening = False
        self._opened = now
        self._steady_next = True
        self.enter("steady_steps" if self.previous or self.readings else "first_step")

    def end_step(self, batch: int, covers: int = 1) -> None:
        """Record that ``covers`` steps have ended, up to step number ``batch`` of the epoch."""
        now = self.clock()
        taken = now - self.mark
        self.mark = now
        self.steps_taken += taken
        self.steps += covers
        self.readings = number = self.readings + 1
        self.last = reading = (self._number, batch, taken, covers)
        if number >= self._sample.due:
            self._sample.offer(number, reading)
        if self._steady_next:
            self._steady_next = False
            if number == 1:
                self.first_span = self._opened, now
            self.enter("steady_steps")
            if self.current is not None and self.current.opening is None:
                self.current.opening = reading
                if self.epochs_ended < EDGE_EPOCHS:
                    self._edges.append(reading)
        if now >= self.due:
            self.on_due()

    def end_training(self, *, steps: int | None = None) -> None:
        """Record that all ``steps`` of an epoch have ended. Called instead of :meth:`end_step` by the epoch probe."""
        now = self.clock()
        if self.current is not None:
            self.current.taken = now - self.mark
            self.current.steps = steps
        self._steady_next = False
        self.mark = now
        self.enter("boundary")

    def begin_validation(self) -> None:
        """Record that a validation begins."""
        self._validating = self._batch_mark = now = self.clock()
        self._leave_steps(now)
        self._batch_count = 0
        self._batch_readings = []
        self.enter("validation")

    def cancel_validation(self) -> None:
        """Undo :meth:`begin_validation`: it was no validation, so the time belongs to the step or epoch boundary."""
        self._validating = None
        if self.current is not None and self.current.left_after == self.readings:
            self.current.before_validation = self.current.left_after = None

    def leave_steps(self) -> None:
        """Record that the steps of the epoch have ended, without a validation."""
        self._leave_steps(self.clock())
        self.enter("boundary")

    def end_validation_batch(self, covers: int = 1, *, readings: int = 1) -> int:
        """Record that ``covers`` batches of the current validation have ended. Return the clock time in nanoseconds.

        The time of these batches is divided into ``readings`` equal readings.
        """
        now = self.clock()
        room = min(MAX_BATCHES_PER_VALIDATION - len(self._batch_readings), self._batch_budget)
        if room >= readings:
            self._batch_readings += [(now - self._batch_mark) // readings] * readings
            self._batch_budget -= readings
        self._batch_mark = now
        self._batch_count += covers
        return now

    def end_validation(self, *, truncated: bool = False, batches: int | None = None) -> None:
        """Record that the validation has ended. ``truncated`` is True if the probe ended it early.

        ``batches`` is its number of batches, if :meth:`end_validation_batch` was not called for each of them.
        """
        if self._validating is None:
            return
        taken = self.clock() - self._validating
        self._validating = None
        # Not set to now: what the step or epoch boundary had taken before the validation still counts.
        self.mark += taken
        self.enter("boundary")
        self._steady_next = self.current is not None  # unless the epoch ends here
        tally = self.current or self.previous
        if tally is not None:
            batches = self._batch_count or batches
            seen = ValidationTally(taken, batches, tuple(self._batch_readings), truncated)
            if tally.validations and not self._validation_budget:
                tally.validations[-1] = tally.validations[-1].plus(seen)
            else:
                tally.validations.append(seen)
                self._validation_budget = max(0, self._validation_budget - 1)

    def end_epoch(self, *, complete: bool) -> None:
        """Record that the epoch has ended. ``complete`` is False if the probe ended it early."""
        tally = self.current
        self.current = None
        self.opening = self._steady_next = False
        if tally is None:
            return
        self.enter("boundary")
        self._sum_up(tally)
        tally.complete = complete
        if tally.left_after != self.readings:  # steps came after a validation in mid-epoch
            tally.before_validation = None
        if tally.closing is not None and self.epochs_ended < EDGE_EPOCHS:
            self._edges.append(tally.closing)
        self.epochs_ended += 1
        self.previous = tally
        if self.epochs_ended >= self._tallies.due:
            self._tallies.offer(self.epochs_ended, tally)

    @contextmanager
    def epoch_end(self) -> Iterator[None]:
        """Context manager that records the time of the callbacks' ``on_epoch_end`` as a part of the epoch boundary."""
        began, own = self.clock(), self._own
        if self._validating is None:
            self._leave_steps(began)
        yield
        if self.previous is not None:
            self.previous.epoch_end = self.clock() - began - (self._own - own)

    def pause(self, began: int, *, whole_heap: bool = False) -> None:
        """Record a garbage collection from the clock time ``began`` to now, and exclude it from the current step."""
        taken = self.clock() - began
        # Outside of steps, a collection is part of what it interrupts: boundaries and validations occur in every epoch.
        stepping = self.current is not None and not self.opening and self._validating is None
        if taken < MIN_PAUSE_NS or not stepping or self._leaving_out or len(self.pauses) >= MAX_PAUSES:
            return
        batch = self.last[1] + 1 if self.last is not None and self.last[0] == self._number else 0
        self.pauses.append((self._number, batch, taken, whole_heap))
        self.mark += taken

    def finish(self, at: int | None = None) -> None:
        """Record that the training has ended, now or at the earlier clock time ``at`` in nanoseconds. Idempotent."""
        if self.taken is not None:  # a probe and the end of its program may both report the end
            return
        now = self.clock() if at is None else at
        if self.current is not None:  # ended in mid-epoch
            self._sum_up(self.current)
        elif self.previous is not None:
            self.previous.boundary = now - self.mark
        self.taken, self.cpu_taken = self._taken_until(now)

    def skip(self, nanoseconds: int) -> None:
        """Exclude ``nanoseconds``, by which the probe has delayed the training, from the current reading."""
        self.mark += nanoseconds
        self._own += nanoseconds
        if self._validating is not None:
            self._validating += nanoseconds
            self._batch_mark += nanoseconds

    @contextmanager
    def leave_out(self) -> Iterator[None]:
        """Context manager that excludes the time inside it, which is work of the probe, from all readings."""
        began, cpu_began = self.clock(), self._cpu_clock()
        within, self._leaving_out = self._leaving_out, True
        try:
            yield
        finally:
            self._leaving_out = within
            self.skip(self.clock() - began)
            self._own_cpu += self._cpu_clock() - cpu_began

    @property
    def leaves_out(self) -> bool:
        """Whether the probe itself works at the moment."""
        return self._leaving_out

    @property
    def validating(self) -> bool:
        """Whether a validation is running."""
        return self._validating is not None

    @property
    def reading_since(self) -> int:
        """Clock time in nanoseconds at which the current step or validation batch began."""
        return self.mark if self._validating is None else self._batch_mark

    # -- results -----------------------------------------------------------------------------------------------------

    def elapsed_seconds(self) -> float:
        """Return the seconds since the start of the training, including the time of the probe's own work."""
        return (self.clock() - self._start) / 1e9

    def steady_taken(self) -> int:
        """Return the nanoseconds that the steps of the current epoch have taken so far, without its first step."""
        tally = self.current
        if tally is None or tally.opening is None:
            return 0
        return self.steps_taken - tally.taken_before - tally.opening[2]

    def taken_so_far(self) -> tuple[int, int]:
        """Return wall time and CPU time of the training until now, in nanoseconds, without the probe's own work."""
        if self.taken is not None and self.cpu_taken is not None:
            return self.taken, self.cpu_taken
        return self._taken_until(self.clock())

    def _taken_until(self, now: int) -> tuple[int, int]:
        return now - self._start - self._own, max(0, self._cpu_clock() - self._cpu_start - self._own_cpu)

    def step_readings(self) -> list[Reading]:
        """Return the kept readings of steps in chronological order: all of a short training, a sample of a long one."""
        return sorted({*self._sample.items(), *self._edges})

    def epoch_tallies(self) -> list[EpochTally]:
        """Return the kept epochs (all or a sample) in chronological order, including the current, unfinished epoch."""
        if self.current is not None:
            self._sum_up(self.current)
        kept = {id(tally): tally for tally in self._tallies.items()}
        for tally in (self.previous, self.current):
            if tally is not None and (tally.steps or tally.taken or tally.validations):
                kept[id(tally)] = tally
        return sorted(kept.values(), key=lambda tally: (tally.epoch, tally.steps_before))

    def _leave_steps(self, now: int) -> None:
        tally = self.current
        if tally is not None and tally.opening is not None and tally.left_after != self.readings:
            tally.before_validation, tally.left_after = now - self.mark, self.readings

    def _sum_up(self, tally: EpochTally) -> None:
        if tally.opening is not None:
            tally.closing = self.last
            tally.steps = self.steps - tally.steps_before
            tally.taken = self.steps_taken - tally.taken_before


class StepBlocks:
    """Measures the time of blocks of steps. The device is synchronized at the end of each block, and not within it.

    The host submits a step while the device executes earlier steps, so that a step takes as long as its submission or
    its execution, whichever is slower. At the beginning of a block the device waits until the first step is submitted;
    at the end of the block the host waits until the device has finished. A training without the probe has no such
    waits, so the shorter of the two waits is subtracted from the time of the block. With ``overlap=False`` nothing is
    subtracted: on a CPU, submission and execution use the same cores.

    The steps are the training steps of an epoch, or the batches of a validation. ``watched_after`` is a number of
    steps, given if the whole training is measured: after this number, a block lasts until the end of its epoch, or
    until the timer is ``due``. At the end of each block, ``drained`` is called with the nanoseconds that the host
    waited for the device.

    >>> now = iter([3, 3, 23, 23]).__next__  # a submission takes 3, the execution of a step takes 20
    >>> timer = StepTimer(clock=now, cpu_clock=lambda: 0)
    >>> blocks = StepBlocks(timer, lambda: None)
    >>> blocks.end_step(0, 1, last=True), timer.last
    (True, (0, 0, 20, 1))
    """

    def __init__(
        self,
        timer: StepTimer,
        synchronize: Callable[[], object],
        *,
        overlap: bool = True,
        watched_after: int | None = None,
        drained: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._timer = timer
        self._synchronize = synchronize
        self._overlap = overlap
        self._watched_after = watched_after
        self._drained = drained
        self._submission = self._batch = self._calls = 0
        self._was_idle = True  # the device, at the beginning of the block
        self._length: float = BLOCK_STEPS
        self.steps = 0
        """Number of steps submitted in the current block."""

    def submit(self, batch: int, covers: int, *, last: bool) -> bool:
        """Record that ``covers`` steps up to step ``batch`` of an epoch were submitted. Return whether a block ended.

        The first step of an epoch is measured as a block of its own. If the whole training is measured, this is done
        only for the first step of the training; later epochs begin without synchronization.
        """
        timer, watched_after = self._timer, self._watched_after
        opening = timer.current is not None and timer.current.opening is None
        if opening and watched_after is not None and timer.readings:
            self.pass_by(batch, covers)
            return False
        if not self.end_step(batch, covers, last=last, alone=opening):
            return False
        if watched_after is not None and timer.steps > watched_after:
            self._length = math.inf
        return True

    def end_step(self, batch: int, covers: int, *, last: bool, alone: bool = False) -> bool:
        """Record that ``covers`` steps up to step ``batch`` were submitted. Return whether the block has ended.

        ``last=True`` ends the block before its usual length. With ``alone=True`` the step is a block of its own, and
        its submission is not subtracted from its time (see the class): at the first step of an epoch the device is
        idle in every training, so that submission and execution do not overlap.
        """
        if not self.steps:
            self._submission = self._timer.clock() - self._timer.reading_since
        self.steps += covers
        self._calls += 1
        self._batch = batch
        # An observer of the training may be due long before the epoch ends. It is called after steps only: in a
        # validation, being due would end a block with each batch.
        due = math.inf if self._timer.validating else self._timer.due
        if not (last or alone) and self.steps < self._length and self._timer.clock() < due:
            return False
        self.close(alone=alone)
        return True

    def pass_by(self, batch: int, covers: int) -> None:
        """Record the time from the beginning of ``covers`` steps to their submission, without synchronizing.

        A block begins after these steps.
        """
        self._timer.end_step(batch, covers)
        self._was_idle = False

    def close(self, *, alone: bool = False) -> None:
        """End the current block, if there is one; see :meth:`end_step` for ``alone``."""
        if not self.steps:
            return
        timer = self._timer
        began = timer.clock()
        self._synchronize()
        wait = timer.clock() - began
        if self._overlap and self._was_idle and not alone:
            timer.skip(min(self._submission, wait))
        if timer.validating:
            timer.end_validation_batch(self.steps, readings=self._calls)
        else:
            timer.end_step(self._batch, self.steps)
        self.steps = self._calls = 0
        self._was_idle = True
        self._drained(wait)


class PauseWatch:
    """Reports every garbage collection in the training's thread to ``timer``, until :meth:`stop` is called."""

    def __init__(self, timer: StepTimer) -> None:
        self._timer = timer
        self._thread = threading.get_ident()
        self._began: int | None = None
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Stop reporting garbage collections."""
        with suppress(ValueError):
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = self._timer.clock() if threading.get_ident() == self._thread else None
        elif self._began is not None:
            self._timer.pause(self._began, whole_heap=info.get("generation") == OLDEST_GENERATION)


def build_timeline(
    timer: StepTimer,
    *,
    init: tuple[float, InitSource] | None = None,
    partial_batch: int | None = None,
    watched: bool = False,
    in_blocks: bool = False,
    input_wait: InputWait | None = None,
    first_step: FirstStep | None = None,
) -> Timeline:
    """Return the times of ``timer`` as a profile stores them: in seconds, each step with a label such as "steady".

    ``init`` contains the seconds of initialization and how they were measured. ``partial_batch`` is the size of the
    smaller last batch of an epoch: 0 if there is none, None if unknown. ``watched`` is True if the training was
    measured to its end, and ``in_blocks`` if readings cover several steps.
    """
    from vmselect.records.training import Boundary, Epoch, Pause, Step, Steps, Timeline, Validation

    tallies, readings = timer.epoch_tallies(), timer.step_readings()
    taken, cpu_taken = timer.taken_so_far()
    steps = Steps.of(
        (
            Step(epoch, batch, _seconds(taken), covers, label)
            for (epoch, batch, taken, covers), label in zip(
                readings,
                _label_steps(readings, tallies, has_partial_batch=bool(partial_batch), in_blocks=in_blocks),
                strict=True,
            )
        ),
        readings=timer.readings,
        steps=timer.steps,
        total_seconds=_seconds(timer.steps_taken),
    )
    return Timeline(
        init_seconds=init[0] if init else None,
        init_source=init[1] if init else None,
        fit_to_first_batch_seconds=_maybe_seconds(timer.fit_to_first_batch),
        steps=steps,
        epochs=tuple(
            Epoch(
                epoch=tally.epoch,
                seconds=_seconds(tally.taken),
                steps=tally.steps,
                opening_seconds=_seconds(tally.opening[2]) if tally.opening else None,
                closing_seconds=_seconds(tally.closing[2]) if tally.closing else None,
                complete=tally.complete,
            )
            for tally in tallies
        ),
        validations=tuple(
            Validation(
                epoch=tally.epoch,
                seconds=_seconds(validation.taken),
                batches=validation.batches,
                batch_seconds=tuple(_seconds(taken) for taken in validation.batch_readings),
                truncated=validation.truncated,
                covers=validation.covers if validation.covers > 1 else None,
            )
            for tally in tallies
            for validation in tally.validations
        ),
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
        first_step=first_step,
        pauses=tuple(
            Pause(cause="garbage collection", epoch=epoch, batch=batch, seconds=_seconds(taken), whole_heap=whole)
            for epoch, batch, taken, whole in timer.pauses
        ),
        wall_seconds=_seconds(taken),
        cpu_seconds=_seconds(cpu_taken),
        fit_seconds=_seconds(taken) if watched else None,
    )


def _label_steps(
    readings: list[Reading], tallies: list[EpochTally], *, has_partial_batch: bool, in_blocks: bool
) -> list[Label]:
    """Return the label of each reading: "first", "opening" (first of an epoch), "partial" (partial batch) or "steady".

    :class:`Steps` replaces some of these labels by "warmup".
    """
    openings = {tally.opening for tally in tallies if tally.opening}
    partials = {tally.closing for tally in tallies if tally.closing and tally.complete} if has_partial_batch else set()
    if in_blocks:  # a block whose last batch was unexpectedly smaller
        partials = {closing for closing in partials if closing[3] == 1}
    labels: list[Label] = [
        "partial" if reading in partials else "opening" if reading in openings else "steady" for reading in readings
    ]
    return ["first", *labels[1:]] if labels else []


def _maybe_seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else _seconds(nanoseconds)


def _seconds(nanoseconds: int) -> float:
    # A clock that was set back gives a negative time, which a record must not contain.
    return max(0, nanoseconds) / 1e9
