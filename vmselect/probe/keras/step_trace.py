"""A trace of a few steps of a ``fit``: which steps, and what the stopwatch makes of them."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING

from vmselect.probe.tensorflow_trace import STEPS, TensorFlowTrace

if TYPE_CHECKING:
    from vmselect.probe.recorder.stopwatch import StepTimer

LEAST = 2
"""With room for fewer steps than this, none is traced."""

SETTLED = 3
"""Steps of an epoch after which it may be traced."""


class StepTrace:
    """Traces a few steps once: after those that are timed, off the clock, or in passing where all are timed."""

    def __init__(self, trace: TensorFlowTrace | None = None, *, steps_per_execution: int = 1) -> None:
        self._trace = trace
        self._covers = steps_per_execution
        self._left_out = ExitStack()
        self._first = self._seen = 0
        self.running = False
        self.until: float = math.inf

    def room(self, batch: float, last_batch: float) -> float:
        """How many steps after ``batch`` can be traced so that at least one is left after them; 0 for too few."""
        room = 0.0 if self._trace is None else min(STEPS * self._covers, last_batch - batch - 1)
        return room if room >= LEAST else 0

    def latest(self, last_batch: float) -> float:
        """The last batch after which there is still room for a whole trace, if there is one to be made."""
        return math.inf if self._trace is None else last_batch - 1 - STEPS * self._covers

    def plan_in_passing(self, wanted: int, last_batch: float) -> float:
        """The batch after which to trace in an epoch that is timed whole."""
        at = min(wanted, self.latest(last_batch))
        return at if at >= SETTLED and self.room(at, last_batch) else math.inf

    def begin(self, batch: int, last_batch: float, *, timer: StepTimer | None = None) -> bool:
        """Trace the steps after ``batch``; with ``timer``, off its clock. False where that is not possible."""
        room = self.room(batch, last_batch)
        if self._trace is None or not room:
            return False
        if timer is not None:
            self._left_out.enter_context(timer.leave_out())
        if not self._trace.begin():
            self._left_out.close()
            self._trace = None
            return False
        self._first = self._seen = batch
        self.until = batch + room
        self.running = True
        return True

    def see(self, batch: int) -> bool:
        """A traced step has ended; whether it was the last."""
        self._seen = batch
        return batch >= self.until

    def end(self) -> None:
        """The traced steps are over; later calls change nothing."""
        if self._trace is not None and self.running:
            self._trace.end(self._seen - self._first)
            self._left_out.close()
            self._trace, self.running = None, False
