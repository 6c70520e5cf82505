"""Measures the time of steps that a device executes asynchronously, in blocks of several steps."""

from __future__ import annotations

import math
from collections.abc import Callable

from vmselect.probe.timer import StepTimer

BLOCK_STEPS = 5
"""Number of steps in a block."""


class StepBlocks:
    """Measures the time of blocks of steps. The device is synchronized at the end of each block, and not within it.

    The host submits a step while the device executes earlier steps, so that a step takes as long as its submission or
    its execution, whichever is slower. At the beginning of a block the device waits until the first step is submitted;
    at the end of the block the host waits until the device has finished. A training without the probe has no such
    waits, so the shorter of the two waits is subtracted from the time of the block. With ``overlap=False`` nothing is
    subtracted: on a CPU, submission and execution use the same cores.

    The steps are the training steps of an epoch, or the batches of a validation. ``watched_after`` is a number of
    steps, given if the whole training is measured: after this number, a block lasts until the end of its epoch. At the
    end of each block, ``drained`` is called with the nanoseconds that the host waited for the device.

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
        if not (last or alone) and self.steps < self._length:
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
