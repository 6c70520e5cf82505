"""A plain PyTorch script, measured without a change to it.

torch tells a hook of every optimizer's step, and a ``DataLoader`` tells when a pass over its data begins, how long it
is and when the next batch is asked for. A pass with gradients in which an optimizer steps is an epoch of training; one
without gradients is a validation. A step is read from one request for a batch to the next, once the optimizer has
stepped: with accumulated gradients a reading covers several batches. Epochs are cut short by telling the loop that
there are no more batches.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vmselect.probe.base import Probe
from vmselect.probe.ending import EndWatch
from vmselect.probe.facts.framework import synchronise
from vmselect.probe.options import Options
from vmselect.probe.recording import Recording

if TYPE_CHECKING:
    from vmselect.records.training import Outcome, Profile

LOADER_MODULE = "torch.utils.data.dataloader"
OPTIMIZER_MODULE = "torch.optim.optimizer"


class EnoughSteps(BaseException):
    """All that was wanted of the training has been seen: the script need not go on."""


class TorchScript(Probe):
    """Watches the trainings of this process once its two modules have been handed over; :meth:`close` ends it."""

    def __init__(
        self,
        options: Options,
        *,
        steps: int = 20,
        validations: int = 2,
        seconds: float | None = None,
        steady_seconds: float | None = None,
        stop: bool = True,
        model: str | None = None,
    ) -> None:
        self._options = options
        self._steps_wanted = steps
        self._epochs_wanted = max(1, validations)
        self._seconds = seconds
        self._steady_seconds = steady_seconds
        self._stop = stop
        self._model = model
        self._training: weakref.ref[_Pass] | None = None
        self._validation: _Pass | None = None
        self._epochs = 0
        self._whole = self._cut_short = False
        self._undo: list[Any] = []
        self._looking_away = self._must_wait = False
        self.updates = 0
        self._parameters: int | None = None

    @property
    def profile(self) -> Profile | None:
        """What was measured, once the training has ended."""
        return self._profile

    @property
    def measured(self) -> bool:
        """Whether there is a profile."""
        return self._profile is not None

    # -- what torch tells ----------------------------------------------------------------------------------------------

    def watch_loader(self, module: Any) -> None:
        """From now on, see every pass over a ``DataLoader``."""
        loader = module.DataLoader
        iterate = loader.__iter__

        @functools.wraps(iterate)
        def watched(this: Any) -> Any:
            # Keras feeds its fits through loaders, by way of our own watch for input; they have a probe of their own.
            asking = sys._getframe(1).f_globals.get("__name__", "")
            others = self._looking_away or asking.startswith(("keras.", "vmselect."))
            return iterate(this) if others else self._begin_pass(this, iterate)

        loader.__iter__ = watched
        self._undo.append(lambda: setattr(loader, "__iter__", iterate))

    def watch_optimizer(self, module: Any) -> None:
        """From now on, see every step of an optimizer."""
        self._undo.append(module.register_optimizer_step_post_hook(self._on_update).remove)

    @contextmanager
    def look_away(self) -> Iterator[None]:
        """What is trained in this block has a probe of its own."""
        before, self._looking_away = self._looking_away, True
        try:
            yield
        finally:
            self._looking_away = before

    def close(self, error: BaseException | None = None) -> None:
        """The script has ended: nothing of this stays in torch."""
        while self._undo:
            self._undo.pop()()
        if error is not None and not isinstance(error, (SystemExit, EnoughSteps)):
            self._end_early(error, None)
        else:
            self._close("stopped" if self._cut_short else "watched")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _on_update(self, optimizer: Any, *_: Any) -> None:
        self.updates = updates = self.updates + 1
        if updates == 1:
            groups = optimizer.param_groups
            self._parameters = sum(weight.numel() for group in groups for weight in group["params"])

    def _begin_pass(self, loader: Any, iterate: Any) -> Any:
        import torch

        self._end_validation()
        if torch.is_grad_enabled():
            running = self._training() if self._training is not None else None
            if running is not None and running.read and running.loader is not loader:
                return iterate(loader)  # data that is read beside a training
            self._end_epoch()
            recording = self._recording or self._start()
            if self._stop and self._has_enough(recording):
                self._cut_short = True
                recording.timer.finish()
                raise EnoughSteps
            self._must_wait = torch.cuda.is_available()
            begun = _Pass(self, loader, recording.timer.clock(), training=True)
            begun.start(iterate)
            self._training = weakref.ref(begun)
            return begun
        if self._recording is None or not self._recording.saw_anything:
            return iterate(loader)
        synchronise()
        begun = self._validation = _Pass(self, loader, 0, training=False)
        self._recording.timer.begin_validation()
        begun.start(iterate)
        return begun

    def _start(self) -> Recording:
        self._recording = recording = Recording("loop", backend="torch", options=self._options)
        with recording.timer.leave_out():
            recording.model_name = self._model
            self._watch = EndWatch(self._end_early, anchor=self)
            recording.observe()
        return recording

    def _claim(self, first: _Pass, recording: Recording) -> None:
        """An optimizer has stepped within this pass: it trains. Others may only have been looks at some batches."""
        self._training = weakref.ref(first)
        if not (self._stop or self._must_wait):
            first.end_step = recording.timer.end_step
        if recording.saw_anything:
            return
        loader = first.loader
        recording.parameters = self._parameters
        recording.steps = _length(loader)
        size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        recording.counted_batch_size = size * recording.workers if isinstance(size, int) else None
        if not loader.drop_last and recording.steps is not None and recording.workers == 1:
            recording.counted_examples = _length(loader.dataset)

    def next_step(self, now: _Pass) -> bool:
        """The next batch is asked for: what came before has ended. Whether the pass is to go on."""
        recording = self._recording
        if not now.training:
            if recording is not None:
                recording.timer.end_validation_batch()
            return True
        if self.updates == now.updates:
            return True
        running = self._training() if self._training is not None else None
        if running is not None and running is not now and running.read:
            return True  # read beside a training
        if self._must_wait:
            synchronise()
        recording = recording or self._start()
        timer = recording.timer
        if not now.read:
            self._claim(now, recording)
        read, now.read, now.updates = now.read, now.batches, self.updates
        if not read:
            timer.begin_epoch(self._epochs)
            timer.open(at=now.began)
        timer.end_step(now.read - 1, now.read - read)
        if not read and not self._epochs:
            recording.note()
        return not self._stop or self._goes_on(now, recording)

    def _goes_on(self, now: _Pass, recording: Recording) -> bool:
        """Whether an epoch that may be cut short is to go on."""
        late = recording.is_late(self._seconds)
        enough = now.batches > self._steps_wanted and recording.is_steady(self._steady_seconds)
        if not (enough or late) or now.batches == recording.steps:
            return True
        self._cut_short = True
        if late:
            self._epochs = max(self._epochs, self._epochs_wanted)
        return False

    def end_pass(self, ended: _Pass, *, whole: bool) -> None:
        """A pass over the data has ended: all of it, or as much as was wanted."""
        if ended is self._validation:
            self._end_validation()
        elif ended.read:
            self._whole = whole
            if self._recording is not None and whole and self._recording.steps is None:
                self._recording.counted_steps = ended.batches
            self._training = None
        elif self._recording is not None and not self._recording.saw_anything:
            self._recording.drop()  # no optimizer stepped: this was no training
            self._recording = self._training = None

    def _end_validation(self) -> None:
        if self._validation is not None and self._recording is not None:
            synchronise()
            self._recording.timer.end_validation()
            self._recording.note()
        self._validation = None

    def _end_epoch(self) -> None:
        recording = self._recording
        if recording is not None and recording.timer.current is not None:
            recording.timer.end_epoch(complete=self._whole)
            recording.note()
            self._epochs += 1
        self._whole = False

    def _has_enough(self, recording: Recording) -> bool:
        return self._epochs >= self._epochs_wanted or recording.is_late(self._seconds)

    def _close(self, outcome: Outcome, detail: str | None = None) -> None:
        self._end_validation()
        recording = self._recording
        if recording is not None and recording.timer.current is not None and outcome in ("stopped", "watched"):
            recording.timer.end_epoch(complete=self._whole)
        super()._close(outcome, detail)


class _Pass:
    """One pass over a loader's data, as the loop sees it."""

    __slots__ = (
        "__weakref__", "_batches", "_watch", "batches", "began", "end_step", "loader", "read", "training", "updates",
    )  # fmt: skip

    def __init__(self, watch: TorchScript, loader: Any, began: int, *, training: bool) -> None:
        self.loader, self.began, self.training = loader, began, training
        self.batches = self.read = 0
        self.updates = watch.updates
        self.end_step: Callable[[int, int], None] | None = None
        """Reads a step after the first where nothing else is to be done at its end: every nanosecond here is paid."""
        self._watch = watch
        self._batches: Iterator[Any] = iter(())

    def start(self, iterate: Any) -> None:
        """Let the loader begin: its workers start now."""
        self._batches = iterate(self.loader)

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        batches, end_step = self.batches, self.end_step
        if end_step is not None:
            updates = self._watch.updates
            if updates != self.updates:
                self.updates = updates
                end_step(batches - 1, batches - self.read)
                self.read = batches
        elif batches and not self._watch.next_step(self):
            self._watch.end_pass(self, whole=False)
            raise StopIteration
        try:
            batch = next(self._batches)
        except StopIteration:
            self._watch.end_pass(self, whole=True)
            raise
        self.batches = batches + 1
        return batch

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def _length(data: Any) -> int | None:
    try:
        return len(data) or None
    except TypeError:  # data of unknown length
        return None
