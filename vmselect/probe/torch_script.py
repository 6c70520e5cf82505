"""A plain PyTorch script, measured without a change to it.

torch calls a hook at every optimizer's step. A wrapped ``DataLoader`` reports when a pass over its data begins, how
long it is and when the next batch is requested. A pass with gradients in which an optimizer steps is an epoch of
training; one without gradients is a validation. A step is read from one request for a batch to the next, once the
optimizer has stepped: with accumulated gradients a reading covers several batches. Epochs are cut short by ending the
iteration.

A training goes on as long as the same weights are trained and the same ones are frozen, from whatever loader: some
loops make a new one for each epoch.
"""

from __future__ import annotations

import functools
import hashlib
import math
import sys
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vmselect.probe.environment import length_of, synchronize_devices, take_initialization
from vmselect.probe.exit_hooks import EndWatch
from vmselect.probe.options import Options
from vmselect.probe.recording import Probe, Recording

if TYPE_CHECKING:
    from vmselect.records.training import Outcome, Profile

LOADER_MODULE = "torch.utils.data.dataloader"
OPTIMIZER_MODULE = "torch.optim.optimizer"


class EnoughSteps(BaseException):
    """All that was wanted of the training has been seen: the script need not go on."""


class TorchScript(Probe):
    """Watches the trainings of this process once its two modules have been handed over; :meth:`close` ends it.

    Those whose numbers are ``wanted`` are measured, all if that is empty; each takes a name from the front of
    ``names``. What need not be seen is hurried past, an epoch a step. After training number ``last`` the script is
    ended.
    """

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
        names: list[str] | None = None,
        wanted: Collection[int] = (),
        last: float = math.inf,
    ) -> None:
        self._options = options
        self._steps_wanted = steps
        self._epochs_wanted = max(1, validations)
        self._seconds = seconds
        self._steady_seconds = steady_seconds
        self._stop = stop
        self._model = model
        self._names = names or []
        self._wanted = wanted
        self._last = last
        self._number = 0
        self._weights: list[tuple[weakref.ref[Any], bool]] = []
        self._training: weakref.ref[_Pass] | None = None
        self._validation: _Pass | None = None
        self._epochs = 0
        self._whole = self._cut_short = False
        self._undo: list[Any] = []
        self._looking_away = self._must_wait = self._new_pass = False
        self._optimizer: weakref.ref[Any] | None = None
        self.updates = 0
        self.measured = 0
        """How many trainings have left a profile."""

    @property
    def profile(self) -> Profile | None:
        """What was measured last, once that training has ended."""
        return self._profile

    # -- events of torch ----------------------------------------------------------------------------------------------

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
        self.updates += 1
        if self._new_pass:
            self._new_pass = False
            self._optimizer = weakref.ref(optimizer)  # what it trains may be large, and is not ours to keep

    def _begin_pass(self, loader: Any, iterate: Any) -> Any:
        import torch

        self._end_validation()
        running = self._running()
        if torch.is_grad_enabled():
            if running is not None and running.read and running.loader is not loader:
                return iterate(loader)  # data that is read beside a training
            self._end_epoch()
            self._end_when_enough()
            if self._recording is None and not self._number and self._is_wanted(1):
                self._start()
            self._must_wait = torch.cuda.is_available()
            begun = _Pass(self, loader, time.perf_counter_ns(), training=True)
            begun.start(iterate)
            self._training = weakref.ref(begun)
            self._new_pass = True
            return begun
        if self._recording is None or not self._recording.saw_anything:
            return iterate(loader)
        synchronize_devices()
        begun = self._validation = _Pass(self, loader, 0, training=False)
        if running is not None:
            running.end_step = None  # where the validation is left early, it ends with the next step
        self._recording.timer.begin_validation()
        begun.start(iterate)
        return begun

    def _running(self) -> _Pass | None:
        return self._training() if self._training is not None else None

    def _is_wanted(self, number: int) -> bool:
        return not self._wanted or number in self._wanted

    def _start(self) -> Recording:
        self._recording = recording = Recording("loop", backend="torch", options=self._options)
        with recording.timer.leave_out():
            recording.model_name = self._model
            self._watch = EndWatch(self._end_early, anchor=self)
            recording.observe()
        return recording

    def _recognize(self, now: _Pass) -> None:
        """An optimizer has stepped within this pass: it trains. Other passes may only inspect some batches."""
        self._training = weakref.ref(now)
        optimizer = self._optimizer() if self._optimizer is not None else None
        weights = [one for group in optimizer.param_groups for one in group["params"]] if optimizer is not None else []
        same = len(weights) == len(self._weights) and all(
            trained == one.requires_grad and weight() is one
            for (weight, trained), one in zip(self._weights, weights, strict=True)
        )
        if not self._number or (weights and not same):
            self._begin_training(now, weights)
        # Where gradients of several batches are added up, no GPU is waited for after each of them.
        if self._recording is not None and not (self._must_wait and now.batches > 1):
            now.fetch = self._recording.observation.fetcher()

    def _begin_training(self, first: _Pass, weights: Sequence[Any]) -> None:
        """Weights are trained that were not before, or as they were not: the training before this one is over."""
        since = time.perf_counter_ns() - first.began
        if self._number:
            if self._recording is not None:
                self._recording.timer.finish(at=first.began)
            self._close("stopped" if self._cut_short else "watched")
            if self._number >= self._last:
                raise EnoughSteps
        self._number += 1
        self._weights = [(weakref.ref(one), one.requires_grad) for one in weights]
        self._epochs, self._cut_short = 0, False
        if not self._is_wanted(self._number):
            take_initialization()  # it counts nevertheless
            return
        recording = self._recording
        if recording is None:
            recording = self._start()
            recording.timer.start_earlier(since)
        self._describe(recording, first.loader, weights)

    def _describe(self, recording: Recording, loader: Any, weights: Sequence[Any]) -> None:
        recording.options = replace(recording.options, name=self._names.pop(0) if self._names else None)
        if weights:
            shapes = [(tuple(one.shape), bool(one.requires_grad)) for one in weights]
            recording.parameters = sum(math.prod(shape) for shape, _ in shapes)
            recording.structure = hashlib.sha256(repr(shapes).encode()).hexdigest()[:16]
        recording.steps = length_of(loader)
        size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        recording.counted_batch_size = size * recording.workers if isinstance(size, int) else None
        if not loader.drop_last and recording.steps is not None and recording.workers == 1:
            recording.counted_examples = length_of(loader.dataset)

    def next_step(self, now: _Pass) -> bool:
        """The next batch is asked for: what came before has ended. Whether the pass is to go on."""
        if not now.training:
            if self._recording is not None:
                self._recording.timer.end_validation_batch()
            return True
        if self.updates == now.updates:
            return True
        running = self._running()
        if running is not None and running is not now and running.read:
            return True  # read beside a training
        if self._must_wait:
            synchronize_devices()
        self._end_validation()
        if not now.read:
            before = time.perf_counter_ns()
            self._recognize(now)
            now.began += time.perf_counter_ns() - before
        read, now.read, now.updates = now.read, now.batches, self.updates
        recording = self._recording
        if recording is None:  # not to be measured, or measured already: skip the rest of the epoch
            return not self._stop
        timer = recording.timer
        if not read:
            timer.begin_epoch(self._epochs)
            timer.open(at=now.began)
        timer.end_step(now.read - 1, now.read - read)
        if not read and not self._epochs:
            recording.note()
        if self._stop:
            return self._goes_on(now, recording)
        if not self._must_wait:
            now.end_step = timer.end_step
        return True

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
            synchronize_devices()
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

    def _end_when_enough(self) -> None:
        """Before another epoch: of a training that is to be cut short enough may have been seen."""
        recording = self._recording
        if recording is None or not (self._stop and recording.saw_anything):
            return
        if self._epochs >= self._epochs_wanted or recording.is_late(self._seconds):
            self._cut_short = True
            self._close("stopped")
            if self._number >= self._last:
                raise EnoughSteps

    def _close(self, outcome: Outcome, detail: str | None = None) -> None:
        self._end_validation()
        recording = self._recording
        if recording is not None and recording.timer.current is not None and outcome in ("stopped", "watched"):
            recording.timer.end_epoch(complete=self._whole)
        before = self._profile
        super()._close(outcome, detail)
        self.measured += self._profile is not before


class _Pass:
    """One pass over a loader's data, as the loop sees it."""

    __slots__ = (
        "__weakref__", "_batches", "_watch", "batches", "began", "end_step", "fetch", "loader", "read", "training",
        "updates",
    )  # fmt: skip

    def __init__(self, watch: TorchScript, loader: Any, began: int, *, training: bool) -> None:
        self.loader, self.began, self.training = loader, began, training
        self.batches = self.read = 0
        self.updates = watch.updates
        self.end_step: Callable[[int, int], None] | None = None
        """Reads a step after the first where nothing else is to be done at its end: every nanosecond here is paid."""
        self.fetch: Callable[[Iterator[Any]], Any] = next
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
            batch = self.fetch(self._batches)
        except StopIteration:
            self._watch.end_pass(self, whole=True)
            raise
        self.batches = batches + 1
        return batch

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)
