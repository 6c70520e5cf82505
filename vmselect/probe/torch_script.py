"""Measures the trainings in an unmodified PyTorch script.

torch calls a hook after every update by an optimizer. A wrapped ``DataLoader`` reports the beginning of a pass over its
data, the number of batches, and each request for a batch. A pass with gradients and updates is an epoch of training; a
pass without gradients is a validation. A step lasts from one request for a batch to the next. If gradients are
accumulated, a reading covers all batches up to the update. The probe ends an epoch early by ending the pass.

A pass over another data loader than that of the training is a validation too, unless an optimizer updates weights
during the pass: some scripts turn gradients off only inside the loop over the validation data.

A training that selects its batches by index, without a ``DataLoader``, is one epoch of unknown length: a step lasts
from one update to the next, and the probe ends the script in the hook. Its first step begins with the first call of a
model, or else with the first gradients.

In a script without an optimizer of torch, the computation of gradients counts as the update.

A new training begins when other weights are trained or frozen than before. Another data loader does not begin a new
training, because some scripts create a loader for each epoch.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from vmselect.probe.calls import FirstCalls
from vmselect.probe.compiling import CompileTimes
from vmselect.probe.environment import (
    Batch,
    Loader,
    Model,
    Optimizer,
    Tensor,
    length_of,
    synchronize_devices,
    take_initialization,
)
from vmselect.probe.epoch_loop import Place, find_epochs, find_length, find_loops
from vmselect.probe.gradients import ManualUpdates, watch_autograd
from vmselect.probe.recording import LEAST_STEPS, EnoughTrainings, Recording, StepProbe
from vmselect.probe.validation_signs import seems_to_validate

if TYPE_CHECKING:
    from vmselect.records.training import Ending, Outcome

Context: TypeAlias = Any
"""An object with which torch turns gradients off, or its class."""
Iterate: TypeAlias = Callable[[Loader], Iterator[Batch]]
"""The method ``__iter__`` of a ``DataLoader``."""

LOADER_MODULE = "torch.utils.data.dataloader"
OPTIMIZER_MODULE = "torch.optim.optimizer"
GRADIENT_MODULE = "torch.autograd.grad_mode"
NETWORK_MODULE = "torch.nn.modules.module"

MIN_STEPS_BETWEEN = 2
"""Least number of steps between two validations in a loop without a ``DataLoader``. A model that runs without gradients
more often, such as a teacher model in every step, counts as a part of the step."""


@dataclass(eq=False, repr=False, kw_only=True)
class TorchScript(StepProbe):
    """Measures torch trainings of this process, after :meth:`watch_loader` and :meth:`watch_optimizer` were called.

    ``chosen`` contains the numbers of the trainings to measure, counted from 1; if it is empty, all are measured. Their
    records get the ``names``, in order. Each epoch of other trainings is ended after one step. The script ends
    after training number ``last``.
    """

    _remedy = "Run a script that trains with torch first."
    _advises = False

    _backend = "torch"

    model: str | None = None
    names: list[str] = field(default_factory=list)
    chosen: Collection[int] = ()
    last: float = math.inf
    note_gradients: Callable[[str], object] = lambda _: None
    """Function that is called with the name of a function that has computed gradients."""

    def _reset(self) -> None:
        super()._reset()
        self._number = 0
        self._weights: list[tuple[weakref.ref[Tensor], bool]] = []
        self._training: weakref.ref[_Pass] | None = None
        self._validation: _Pass | None = None
        self._epochs = 0
        self._epochs_to_see = max(1, self.validations)
        self._whole = self._cut_short = False
        self._undo: list[Callable[[], object]] = []
        self._disabled = self._new_pass = False
        self._optimizer: weakref.ref[Optimizer] | None = None
        self._loader: weakref.ref[Loader] | None = None
        self._without_loader = False
        self._validated_at = 0
        self._ignores_gradients = False
        self._manual: ManualUpdates | None = None
        self._first_step_began: int | None = None
        self._compiling: CompileTimes | None = None
        self._calls = FirstCalls()
        self._calls.on_call = self._end_described
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._outer_loops: set[Place] = set()
        self._iterated: weakref.WeakSet[Loader] = weakref.WeakSet()
        self._gradients = 0
        self.updates = 0
        """Number of updates of weights so far, by any optimizer."""
        self.profiles_kept = 0

    # -- events of torch ---------------------------------------------------------------------------------------------

    def watch_loader(self, module: ModuleType) -> None:
        """Detect every pass over a ``DataLoader`` from now on. ``module`` is ``torch.utils.data.dataloader``."""
        loader = module.DataLoader
        iterate = loader.__iter__

        @functools.wraps(iterate)
        def watched(this: Loader) -> Iterator[Batch]:
            # Keras and vmselect use loaders too. Trainings with Keras have their own probe.
            caller = sys._getframe(1).f_globals.get("__name__", "")
            others = self._disabled or caller.startswith(("keras.", "vmselect."))
            if not others:
                self._iterated.add(this)
            return iterate(this) if others else self._begin_pass(this, iterate)

        loader.__iter__ = watched
        self._undo.append(lambda: setattr(loader, "__iter__", iterate))

    def watch_optimizer(self, module: ModuleType) -> None:
        """Detect every update by an optimizer from now on. ``module`` is ``torch.optim.optimizer``."""
        self._undo.append(module.register_optimizer_step_post_hook(self._on_update).remove)
        optimizer = module.Optimizer
        initialize = optimizer.__init__

        @functools.wraps(initialize)
        def watched(this: Optimizer, *arguments: object, **options: object) -> None:
            initialize(this, *arguments, **options)
            if not self._disabled:
                self._optimizers.add(this)
                self.ignore_gradients()
                if self.describes_only:  # what repeats around it, such as for several seeds, repeats the training
                    self._outer_loops = {loop.place for loop in find_loops(sys._getframe(1))}

        optimizer.__init__ = watched
        self._undo.append(lambda: setattr(optimizer, "__init__", initialize))

    def watch_autograd(self, module: ModuleType) -> None:
        """Detect from now on when gradients are computed. ``module`` is ``torch.autograd``.

        Without an optimizer, this is how steps are recognized.
        """
        self._undo.append(watch_autograd(module, self._see_first_step, self._on_gradients))

    def watch_networks(self, module: ModuleType) -> None:
        """Detect the first call of a model, with which the first step begins.

        ``module`` is ``torch.nn.modules.module``.
        """
        if self.describes_only:
            self._watch_calls(module.Module)
        handle: Any = module.register_module_forward_pre_hook(lambda called, *_: self._see_network(handle, called))
        self._undo.append(handle.remove)

    def _watch_calls(self, network: Any) -> None:
        """Note calls of whole models before they compute: a hook that is added during a call comes too late."""
        call: Callable[..., object] = network.__call__
        inside = threading.local()

        @functools.wraps(call)
        def noted(this: Model, *args: Any, **kwargs: Any) -> object:
            import torch

            trains = torch.is_grad_enabled() and self._optimizers and not (self._disabled or self.updates)
            if not trains or getattr(inside, "model", None) is not None:
                return call(this, *args, **kwargs)
            inside.model = this
            try:
                self._calls.note(this, args, kwargs)
                return call(this, *args, **kwargs)
            finally:
                inside.model = None

        network.__call__ = noted
        self._undo.append(lambda: setattr(network, "__call__", call))

    def watch_gradients(self, module: ModuleType) -> None:
        """Detect from now on when the script turns gradients off. ``module`` is ``torch.autograd.grad_mode``.

        In a loop without a ``DataLoader``, a validation is recognized by this.
        """
        for kind in (module.no_grad, module.inference_mode):
            self._watch_contexts(kind)

    def _watch_contexts(self, kind: Context) -> None:
        enter, leave = kind.__enter__, kind.__exit__
        running: list[_Validation] = []

        @functools.wraps(enter)
        def entering(this: Context) -> None:
            enter(this)
            recording = self._recording if self._without_loader else None
            if recording is not None and not running and not _is_called_by_torch(sys._getframe(1)):
                often = recording.steps_begun - self._validated_at < MIN_STEPS_BETWEEN
                running.append(_Validation(this, recording, count=not often))

        @functools.wraps(leave)
        def leaving(this: Context, *error: object) -> None:
            leave(this, *error)
            if running and running[0].context is this and running.pop().end() and self._recording is not None:
                self._validated_at = self._recording.steps_begun

        kind.__enter__, kind.__exit__ = entering, leaving
        self._undo.append(lambda: setattr(kind, "__enter__", enter))
        self._undo.append(lambda: setattr(kind, "__exit__", leave))

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Context manager in which trainings are ignored, because another probe measures them."""
        before, self._disabled = self._disabled, True
        try:
            yield
        finally:
            self._disabled = before

    def close(self, error: BaseException | None = None) -> None:
        """Remove the hooks from torch and save the profile. Called after the script has ended, perhaps by ``error``."""
        while self._undo:
            self._undo.pop()()
        if self._compiling is not None:
            self._compiling.stop()
        if self._recording is not None and self._is_manual() and self._recording.steps_begun < LEAST_STEPS:
            self.ignore_gradients()
        self._finish(error)

    def _see_network(self, handle: Any, called: Model) -> None:
        import torch

        if torch.is_grad_enabled() and not self._disabled:
            self._see_first_step()
            handle.remove()
            self._calls.watch(called)

    def _end_described(self) -> None:
        """Describe the training at the first call of its model, if a single optimizer says which weights it trains."""
        running, optimizers = self._running(), list(self._optimizers)
        if not self.describes_only or len(optimizers) != 1 or self._disabled or self.updates:
            return
        recording, optimizer = self._recording, optimizers[0]
        if recording is None:
            recording = self._start(self, backend=self._backend)
            recording.facts.model_name = self.model
        self._optimizer = weakref.ref(optimizer)
        if running is not None:
            self._describe(recording, _weights_of(optimizer), running.loader)
        else:
            recording.facts.describe_torch(_shapes_of(_weights_of(optimizer)), None, workers=recording.workers)
            recording.torch_state, recording.calls = self._read_state, self._calls
        if running is not None:
            recording.facts.epochs = find_epochs(sys._getframe(1), running.loader, self._outer_loops)
        else:
            recording.facts.epochs, recording.facts.steps = find_length(sys._getframe(1), self._outer_loops)
            recording.facts.counts_inputs = True
        self._look_for_validation(recording, sys._getframe(1), None if running is None else running.loader)
        with self.disabled():
            super()._end_described()
        if running is None:
            recording.drop()
            self._release()

    def _see_first_step(self) -> None:
        if self._first_step_began is None and not self._disabled:
            self._compiling = self._compiling or CompileTimes()
            self._first_step_began = time.perf_counter_ns()

    def ignore_gradients(self) -> None:
        """Ignore gradients without an optimizer from now on, because the script trains in another way.

        Such gradients then explain or test a model. Those that were recorded until now are no training either.
        """
        self._ignores_gradients = True
        if self._recording is not None and self._is_manual():
            self._recording.drop()
            self._release()
            self._first_step_began = None
            self._number, self._without_loader, self._weights = 0, False, []

    def _is_manual(self) -> bool:
        return self._optimizer is not None and isinstance(self._optimizer(), ManualUpdates)

    def _on_gradients(self, find_weights: Callable[[], list[Tensor]], function: str) -> None:
        if self._disabled:
            return
        self._gradients += 1
        self.note_gradients(function)
        if not self._ignores_gradients:
            self._manual = self._manual or ManualUpdates(find_weights())
            self._on_update(self._manual)

    def _on_update(self, optimizer: Optimizer, *_: object) -> None:
        self.updates += 1
        if self._new_pass:
            self._new_pass = False
            self._optimizer = weakref.ref(optimizer)  # the probe must not keep the weights in memory
        if self._without_loader:
            self._end_loop_step(optimizer)
        elif not self._number and not self._disabled and not self._reads_batches() and self._is_chosen(1):
            self._begin_loop(optimizer)

    def _read_state(self) -> tuple[list[Tensor], list[Optimizer]]:
        """Return the weights that the optimizer updates, and the optimizer; empty if it no longer exists."""
        optimizer = self._optimizer() if self._optimizer is not None else None
        if optimizer is None:
            return [], []
        return _weights_of(optimizer), [optimizer]

    # -- a loop without a loader -------------------------------------------------------------------------------------

    def _begin_loop(self, optimizer: Optimizer) -> None:
        """Start recording a loop without a ``DataLoader``, after its first update.

        If it is not known when the first step began, the first step counts as initialization.
        """
        if self._recording is not None:  # of a pass that was no training
            self._recording.drop()
            self._release()
        self._without_loader, self._number = True, 1
        synchronize_devices()
        self._optimizer = weakref.ref(optimizer)
        began = self._first_step_began
        since = time.perf_counter_ns() - began if began is not None else None
        recording = self._start(self, backend=self._backend)
        with recording.timer.leave_out():
            recording.facts.model_name = self.model
            recording.name = self.names.pop(0) if self.names else None
            recording.facts.describe_torch(_shapes_of(_weights_of(optimizer)), None, workers=recording.workers)
            recording.torch_state, recording.calls = self._read_state, self._calls
        recording.facts.counts_inputs, self._gradients = True, 0
        timer = recording.timer
        if since is not None:
            timer.start_earlier(since)
            if self._compiling is not None:
                recording.watch_compiling_since(self._compiling)
            if recording.init is not None:
                recording.init = (max(0.0, recording.init[0] - since / 1e9), recording.init[1])
        timer.begin_epoch(0)
        timer.open(at=timer.mark if since is not None else None)
        if since is not None:
            recording.end_step(0, last=True)
            recording.note()

    def _end_loop_step(self, optimizer: Optimizer) -> None:
        recording = self._recording
        # With several optimizers, as in a GAN, a step ends with the update of the first one.
        if recording is None or (self._optimizer is not None and self._optimizer() not in (optimizer, None)):
            return
        # A step that accumulates the gradients of several batches has more examples than the first call of the model.
        recording.facts.counts_inputs, self._gradients = recording.facts.counts_inputs and self._gradients == 1, 0
        timer, number = recording.timer, recording.steps_begun
        late = self.stop and recording.is_late(self.seconds)
        if not recording.end_step(number, last=late or (self.stop and number == self.steps)):
            return
        if timer.steps == 1:
            recording.note()
        enough = timer.steps > self.steps and recording.is_steady(self.steady_seconds)
        if self.stop and (enough or late):
            self._cut_short = True
            self._close("stopped")
            raise EnoughTrainings

    # -- passes over data --------------------------------------------------------------------------------------------

    def _may_train(self) -> bool:
        """Whether a pass over data that begins now may be an epoch of training."""
        import torch

        return bool(torch.is_grad_enabled())

    def _begin_pass(self, loader: Loader, iterate: Iterate) -> Iterator[Batch]:
        self._end_validation()
        running = self._running()
        if self._without_loader:
            return iterate(loader)
        unsure, may_train = False, self._may_train()
        if may_train:
            if running is not None and running.read and running.loader is not loader:
                return iterate(loader)  # additional data of a training
            usual = self._loader() if self._loader is not None else loader
            unsure = loader is not usual and self._recording is not None and self._recording.timer.current is not None
        if may_train and not unsure:
            self._end_epoch()
            self._end_when_enough()
            if self._recording is None and not self._number and self._is_chosen(1):
                self._start(self, backend=self._backend).facts.model_name = self.model
            begun = _Pass(self, loader, iterate, training=True)
            self._training = weakref.ref(begun)
            self._new_pass = True
            return begun
        if self._recording is None or not self._recording.saw_anything:
            return iterate(loader)
        self._recording.close_block()
        synchronize_devices()
        if running is not None:
            running.end_step = None  # a validation that the script ends early lasts until the next step
        self._recording.timer.begin_validation()
        self._validation = _Pass(self, loader, iterate, training=False)
        if unsure:
            self._validation.unsure = self._new_pass = True
        return self._validation

    def _running(self) -> _Pass | None:
        return self._training() if self._training is not None else None

    def _reads_batches(self) -> bool:
        """Whether the script is in a pass over its data, so that this pass measures the steps."""
        return self._running() is not None

    def _is_chosen(self, number: int) -> bool:
        return not self.chosen or number in self.chosen

    def _recognize(self, now: _Pass) -> None:
        """Find out whether the pass ``now``, in which an optimizer has updated weights, belongs to a new training."""
        self._training = weakref.ref(now)
        optimizer = self._optimizer() if self._optimizer is not None else None
        weights = _weights_of(optimizer) if optimizer is not None else []
        same = len(weights) == len(self._weights) and all(
            trained == _is_trained(weight) and reference() is weight
            for (reference, trained), weight in zip(self._weights, weights, strict=True)
        )
        if not self._number or (weights and not same):
            self._begin_training(now, weights)
        # With accumulated gradients, the probe does not wait for the GPU after each batch.
        recording = self._recording
        if recording is not None and (recording.blocks is None or now.batches == 1):
            now.fetch = recording.observation.fetcher()

    def _begin_training(self, first: _Pass, weights: Sequence[Tensor]) -> None:
        """End the previous training and start a new one, because other weights are trained or frozen than before."""
        since = time.perf_counter_ns() - first.began
        if self._number:
            if self._recording is not None:
                # The previous training ended when this pass began, one step before other weights were seen.
                self._recording.timer.finish(at=first.began)
            self._finish()
            if self._number >= self.last:
                raise EnoughTrainings
        self._number += 1
        self._weights = [(weakref.ref(weight), _is_trained(weight)) for weight in weights]
        self._epochs, self._cut_short = 0, False
        if not self._is_chosen(self._number):
            take_initialization()  # counts the training
            return
        recording = self._recording
        if recording is None:
            recording = self._start(self, backend=self._backend)
            recording.timer.start_earlier(since)
            recording.facts.model_name = self.model
        loader = first.loader
        recording.name = self.names.pop(0) if self.names else None
        self._describe(recording, weights, loader)
        if self.describes_only:
            recording.facts.epochs = find_epochs(sys._getframe(1), loader, self._outer_loops)
            self._look_for_validation(recording, sys._getframe(1), loader)

    def _look_for_validation(self, recording: Recording, frame: FrameType, loader: Loader) -> None:
        """Note that the script around ``frame`` seems to validate, if it has signs of that; else it is not known."""
        if seems_to_validate(frame, loader, self._iterated):
            recording.facts.fit = replace(recording.facts.fit, has_validation=True)

    def _describe(self, recording: Recording, weights: Sequence[Tensor], loader: Loader) -> None:
        recording.facts.describe_torch(_shapes_of(weights), loader, workers=recording.workers)
        recording.torch_state, recording.calls = self._read_state, self._calls
        recording.facts.steps = length_of(loader)
        if not loader.drop_last and recording.facts.steps is not None and recording.workers == 1:
            recording.facts.counted_examples = length_of(loader.dataset)

    def next_step(self, now: _Pass) -> bool:
        """Record that a step of the pass ``now`` has ended. Return whether the pass continues.

        Called when the script requests the next batch.
        """
        if now.unsure and self.updates != now.updates:
            self._train_after_all(now)
        if not now.training:
            if self._recording is not None:
                self._recording.timer.end_validation_batch()
            return True
        if self.updates == now.updates:
            return True
        running = self._running()
        if running is not None and running is not now and running.read:
            return True  # additional data of a training
        self._end_validation()
        if not now.read:
            if self.stop or not self._number:
                synchronize_devices()  # the device must not execute the step in the time that is excluded
            before = time.perf_counter_ns()
            self._recognize(now)
            now.began += time.perf_counter_ns() - before
            self._loader = weakref.ref(now.loader)
        read, now.read, now.updates = now.read, now.batches, self.updates
        recording = self._recording
        if recording is None:  # a training not requested, or measured already: skip the rest of the epoch
            self._cut_short = self._cut_short or self.stop
            return not self.stop
        timer = recording.timer
        if not read:
            timer.begin_epoch(self._epochs)
            timer.open(at=now.began)
        late = self.stop and recording.is_late(self.seconds)
        reached = self.stop and read <= self.steps < now.read
        ended = recording.end_step(now.read - 1, now.read - read, last=late or reached)
        if not read and not self._epochs:
            recording.note()
        if self.stop:
            return not ended or self._continues(now, recording, late=late)
        now.end_step = timer.end_step if recording.blocks is None else recording.end_step
        return True

    def _train_after_all(self, now: _Pass) -> None:
        """Treat the pass ``now``, which was recorded as a validation, as an epoch of training."""
        recording, now.training, now.unsure = self._recording, True, False
        self._validation, self._training = None, weakref.ref(now)
        if recording is not None:
            recording.timer.cancel_validation()
            self._end_epoch(note=False)  # the epoch ended when the pass began
            if self._has_enough(recording):
                recording.timer.finish(at=now.began)
            self._end_when_enough()

    def _continues(self, now: _Pass, recording: Recording, *, late: bool) -> bool:
        """Return whether the pass ``now`` continues.

        It does if more steps have to be measured, or if its last batch has been reached, so that it ends by itself.
        """
        enough = now.batches > self.steps and recording.is_steady(self.steady_seconds)
        if not (enough or late) or now.batches == recording.facts.steps:
            return True
        self._cut_short = True
        if self.describes_only:  # what follows the pass, such as a save, is not needed
            self._close("stopped")
            raise EnoughTrainings
        if late:
            self._epochs = max(self._epochs, self._epochs_to_see)
        return False

    def end_pass(self, ended: _Pass, *, whole: bool) -> None:
        """Record that a pass over the data has ended. ``whole`` is False if the probe ended it early."""
        if ended is self._validation:
            self._end_validation()
        elif ended.read:
            self._whole = whole
            if self._recording is not None:
                self._recording.close_block()
            if self._recording is not None and whole and self._recording.facts.steps is None:
                self._recording.facts.counted_steps = ended.batches
            self._training = None
        elif self._recording is not None and not self._recording.saw_anything:
            self._recording.drop()  # without an update by an optimizer, the pass was not a training
            self._recording = self._training = None

    def _end_validation(self) -> None:
        unsure = self._validation is not None and self._validation.unsure and self._validation.updates != self.updates
        if unsure and self._recording is not None:  # additional data of a training
            self._recording.timer.cancel_validation()
        elif self._validation is not None and self._recording is not None:
            synchronize_devices()
            self._recording.timer.end_validation()
            self._recording.note()
        self._validation = None

    def _end_epoch(self, *, note: bool = True) -> None:
        recording = self._recording
        if recording is not None and recording.timer.current is not None:
            recording.close_block()
            recording.timer.end_epoch(complete=self._whole)
            if note:
                recording.note()
            self._epochs += 1
        self._whole = False

    def _end_when_enough(self) -> None:
        """End the training if enough has been measured. Called before an epoch begins."""
        recording = self._recording
        if recording is not None and self._has_enough(recording):
            self._cut_short = True
            self._close("stopped")
            if self._number >= self.last:
                raise EnoughTrainings

    def _has_enough(self, recording: Recording) -> bool:
        seen = self.stop and recording.saw_anything
        return seen and (self._epochs >= self._epochs_to_see or recording.is_late(self.seconds))

    def _close(self, outcome: Outcome, detail: str | None = None, ending: Ending | None = None) -> None:
        self._end_validation()
        recording = self._recording
        if recording is not None and outcome in ("stopped", "watched"):
            recording.close_block()
        if recording is not None and self._without_loader and outcome == "watched":
            recording.facts.counted_steps, recording.facts.epochs, self._whole = recording.timer.steps or None, 1, True
        if recording is not None and recording.timer.current is not None and outcome in ("stopped", "watched"):
            recording.timer.end_epoch(complete=self._whole)
        before = self._profile
        super()._close(outcome, detail, ending)
        self.profiles_kept += self._profile is not before


class _Pass:
    """Iterator over the batches of a data loader that measures the steps. It replaces the loader's own iterator."""

    __slots__ = (
        "__weakref__", "_batches", "_watch", "batches", "began", "end_step", "fetch", "loader", "read", "training",
        "unsure", "updates",
    )  # fmt: skip

    def __init__(self, watch: TorchScript, loader: Loader, iterate: Iterate, *, training: bool) -> None:
        self.loader, self.training = loader, training
        self.began = time.perf_counter_ns()
        self.batches = self.read = 0
        self.unsure = False
        """Whether the pass is recorded as a validation, but may turn out to be an epoch of training."""
        self.updates = watch.updates
        self.end_step: Callable[[int, int], object] | None = None
        """Function that records a step, set if nothing else has to be done at the end of a step (the fast path)."""
        self.fetch: Callable[[Iterator[Batch]], Batch] = next
        self._watch = watch
        self._batches: Iterator[Batch] = iterate(loader)

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Batch:
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


class _Validation:
    """Measures a block of code without gradients as a validation, if a model runs in it and ``count`` is True.

    On an asynchronous device the time is measured from the first call of a model in the block, not from the beginning
    of the block: blocks without a model are frequent, and synchronizing at each of them would slow the steps down.
    """

    def __init__(self, context: Context, recording: Recording, *, count: bool) -> None:
        from torch.nn.modules.module import register_module_forward_pre_hook

        self.context = context
        self._recording, self._count = recording, count
        self._begun = self._ran = False
        if count and recording.blocks is None:
            self._begin()
        self._hook = register_module_forward_pre_hook(self._see)

    def _begin(self) -> None:
        self._begun = True
        self._recording.close_block()
        synchronize_devices()
        self._recording.timer.begin_validation()

    def _see(self, *_: object) -> None:
        self._ran = True
        if self._count and not self._begun:
            self._begin()

    def end(self) -> bool:
        """Record that the block has ended. Return whether a model ran in it."""
        self._hook.remove()
        if self._begun and self._ran:
            synchronize_devices()
            self._recording.timer.end_validation()
        elif self._begun:
            self._recording.timer.cancel_validation()
        return self._ran


def _weights_of(optimizer: Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _shapes_of(weights: Iterable[Tensor]) -> list[tuple[tuple[int, ...], bool]]:
    """Return shape of each weight, and whether it is trained."""
    return [(tuple(weight.shape), _is_trained(weight)) for weight in weights]


def _is_trained(weight: Tensor) -> bool:
    return bool(getattr(weight, "requires_grad", True))  # a variable of TensorFlow has gradients


def _is_called_by_torch(frame: FrameType) -> bool:
    """Return whether the code of ``frame``, which turns gradients off, is part of torch and not of the script."""
    function = frame.f_locals.get("func") if frame.f_code.co_name == "decorate_context" else None
    module = getattr(function, "__module__", None) or frame.f_globals.get("__name__", "")
    return str(module).partition(".")[0] == "torch"
