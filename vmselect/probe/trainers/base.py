"""What the probes in a trainer share: how a training is recorded, cut short, and ended.

A step is a batch, as in ``steps_per_epoch``. Where gradients of several batches are added up, a reading covers all
batches up to the step of the optimizer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sized
from dataclasses import replace
from typing import Any

from vmselect.probe.base import StepProbe
from vmselect.probe.ending import EndWatch
from vmselect.probe.facts.framework import synchronize_devices
from vmselect.probe.recording import Recording
from vmselect.probe.scratch import Scratch


class TrainerProbe(StepProbe):
    """Base of the probes in a trainer; a subclass translates the events of its library."""

    _way = "Let the trainer train with this probe in its callbacks."

    def __getattr__(self, name: str) -> Any:
        # A trainer calls every hook that it has; the probe has something to do in some.
        if name.startswith("on_"):
            return _do_nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _reset(self) -> None:
        super()._reset()
        self._scratch: Scratch | None = None
        self._batches = self._read = 0
        self._epochs = self._validations_seen = 0
        self._cut_epoch = self._cut_short = self._validating = False
        self._validates = False

    # -- called by subclasses --------------------------------------------------------------------------------

    def _begin(self, alive: Callable[[], bool] | None = None) -> None:
        """The training begins: nothing of it is known yet.

        ``alive()`` is true while it goes on, for a trainer that does not report every end.
        """
        self._close("interrupted")  # an earlier training whose end was not reported
        scratch = self._scratch
        self._reset()
        self._recording = recording = Recording("loop", backend="torch", options=self.options)
        with recording.timer.leave_out():
            self._scratch = scratch
            self._watch = EndWatch(self._end_early, anchor=self)
            recording.observe(alive=alive)

    def _describe(
        self,
        model: Any,
        loader: Any,
        *,
        steps: int | None,
        epochs: int | None,
        validation_freq: int = 1,
        validations_per_epoch: float = 1.0,
        validates: bool = False,
    ) -> None:
        """What is trained is known now. ``steps`` are batches of an epoch."""
        recording = self._recording
        if recording is None:
            return
        with recording.timer.leave_out():
            self._validates = validates
            recording.model_name = type(model).__name__
            weights = [(name, tuple(one.shape), bool(one.requires_grad)) for name, one in model.named_parameters()]
            recording.parameters = sum(math.prod(shape) for _, shape, _ in weights)
            recording.structure = hashlib.sha256(repr(weights).encode()).hexdigest()[:16]
            recording.steps, recording.epochs = steps, epochs
            recording.fit = replace(recording.fit, validation_freq=validation_freq)
            recording.validations_per_epoch = validations_per_epoch if validations_per_epoch != 1 else None
            size = getattr(loader, "batch_size", None) or getattr(
                getattr(loader, "batch_sampler", None), "batch_size", None
            )
            recording.counted_batch_size = size * recording.workers if isinstance(size, int) else None
            data = getattr(loader, "dataset", None)
            if isinstance(data, Sized) and size and recording.workers == 1 and not getattr(loader, "drop_last", True):
                recording.counted_examples = len(data) if math.ceil(len(data) / size) == steps else None

    def _time_fetches(self, owner: Any, first: str, last: str) -> None:
        """Learn the wait for data, which lasts from a call of ``first``, a function of ``owner``, to ``last``'s end."""
        if self._recording is not None:
            self._recording.observation.time_fetches(owner, first, last)

    def _begin_epoch(self) -> None:
        recording = self._recording
        if recording is not None:
            self._batches = self._read = 0
            self._cut_epoch = False
            recording.timer.begin_epoch(self._epochs)
            recording.timer.open()

    def _end_batch(self, *, stepped: bool) -> bool:
        """A batch has ended; ``stepped`` if the optimizer has. Whether to leave the epoch now."""
        recording = self._recording
        if recording is None:
            return False
        self._batches += 1
        if not stepped:
            return False
        synchronize_devices()
        recording.timer.end_step(self._batches - 1, self._batches - self._read)
        if not self._epochs and not self._read:
            recording.note()
        self._read = self._batches
        if not self.stop or self._batches == recording.steps:
            return False
        # An epoch that is only passed on the way to a validation costs one step.
        passing = self._epochs >= max(1, self.validations)
        enough = self._batches > self.steps and recording.is_steady(self.steady_seconds)
        if passing or enough or recording.is_late(self.seconds):
            self._cut_epoch = self._cut_short = True
        return self._cut_epoch

    def _begin_validation(self) -> None:
        recording = self._recording
        if recording is not None and recording.saw_anything and not self._validating:
            synchronize_devices()
            self._validating = True
            recording.timer.begin_validation()

    def _end_validation_batch(self) -> None:
        if self._recording is not None and self._validating:
            self._recording.timer.end_validation_batch()

    def _end_validation(self) -> None:
        recording = self._recording
        if recording is not None and self._validating:
            synchronize_devices()
            self._validating = False
            self._validations_seen += 1
            recording.timer.end_validation()
            recording.note()

    def _end_epoch(self) -> bool:
        """The epoch has ended. Whether enough has been seen."""
        recording = self._recording
        if recording is None or recording.timer.current is None:
            return False
        whole = not self._cut_epoch and recording.steps in (None, self._batches)
        if whole and recording.steps is None:
            recording.counted_steps = self._batches
        recording.timer.end_epoch(complete=whole)
        recording.note()
        self._epochs += 1
        if not self.stop:
            return False
        seen = self._validations_seen >= self.validations or not self._validates
        enough = (self._epochs >= max(1, self.validations) and seen) or recording.is_late(self.seconds)
        if enough and self._has_more(recording):
            self._cut_short = True
        return enough

    def _has_more(self, recording: Recording) -> bool:
        """Whether the training would go on after this epoch. One that is counted in steps is recorded as one epoch."""
        epochs, steps = recording.epochs, recording.steps
        if epochs is None or steps is None:
            return epochs is None or epochs > self._epochs
        return recording.timer.steps < epochs * steps

    def _release(self) -> Recording | None:
        recording = super()._release()
        if recording is not None and self._scratch is not None:
            recording.redirected = self._scratch.redirected
        return recording

    def finish(self, error: BaseException | None = None) -> None:
        """The training has come to its end, by itself, by the probe, or by an exception."""
        if error is not None:
            self._end_early(error, None)
        else:
            self._close("stopped" if self._cut_short else "watched")
        self._unprotect()

    def _end_early(self, error: BaseException | None, detail: str | None) -> None:
        super()._end_early(error, detail)
        self._unprotect()

    def _unprotect(self) -> None:
        """Nothing is redirected any more."""
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None


def count_batches(updates: int, accumulate: int, in_epoch: int | None) -> int:
    """Batches of so many steps of the optimizer, each of ``accumulate``; the last of an epoch takes what is left.

    >>> count_batches(40, 4, 63)
    158
    >>> count_batches(40, 4, None)
    160
    """
    if not in_epoch:
        return updates * accumulate
    epochs, more = divmod(updates, math.ceil(in_epoch / accumulate))
    return epochs * in_epoch + more * accumulate


def _do_nothing(*_: Any, **__: Any) -> None:
    """A hook that the probe does not need."""
