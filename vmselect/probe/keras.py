"""Callbacks for Keras ``model.fit``: :class:`IterationProbe` measures steps, :class:`EpochProbe` whole epochs.

Keras accepts any object with the methods of a callback. Therefore a probe does not import Keras, and can be created,
copied and pickled where Keras is not installed.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from vmselect._checks import check_count, maybe, suggest_fields
from vmselect.describing.inputs import find_batch_size
from vmselect.errors import ProbeError
from vmselect.probe.checkpoints import Scratch, bind_elsewhere, describe_saving, find_writers
from vmselect.probe.endings import EndWatch, release_data_before_exit
from vmselect.probe.environment import (
    CallbackList,
    Model,
    attempt,
    count_validation_batches,
    synchronize_devices,
    walk_up,
)
from vmselect.probe.facts import FitFacts, find_earliest_stop
from vmselect.probe.input_wait import StepTrace
from vmselect.probe.options import check_uncut
from vmselect.probe.recording import CallbackProbe, EnoughTrainings, Recording, StepProbe
from vmselect.probe.timer import StepBlocks, StepTimer

if TYPE_CHECKING:
    from vmselect.describing.validations import ValidationSize

Logs = Mapping[str, Any] | None
Adapter: TypeAlias = Any
"""Keras' access to the data of a ``fit``."""

THREADED = (
    "Keras called this probe from a worker thread, where it cannot measure step times. "
    "Measure whole epochs with vmselect.EpochProbe instead."
)

EVENTS = ("train", "epoch", "train_batch", "test", "test_batch")
HOOKS = ("set_params", *(f"on_{event}_{when}" for event in EVENTS for when in ("begin", "end")))
"""Methods of Keras' callback list that Keras calls during a training, after ``set_model``."""


class PlainCallback:
    """Base class of Keras callbacks: stores the model and parameters. A subclass overrides the methods it needs."""

    params: Mapping[str, Any] = MappingProxyType({})
    _model: Model = None

    def set_params(self, params: Mapping[str, Any] | None) -> None:
        """Store the number of epochs and steps. Called by Keras."""
        self.params = dict(params or {})

    def set_model(self, model: Model) -> None:
        """Store the model to train. Called by Keras."""
        # torch's wrapper for distributed training contains the Keras model.
        wrapped = type(model).__name__ == "DistributedDataParallel"
        self._model = model.module if wrapped else model

    @property
    def model(self) -> Model:
        """Model of the last training."""
        return self._model

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Do nothing. Used for all callback methods that a subclass does not override."""

    # Keras does not wait for the device before a batch-level method with this mark.
    _ignore._is_default = True  # type: ignore[attr-defined]

    on_train_begin = on_train_end = on_test_begin = on_test_end = on_predict_begin = on_predict_end = _ignore
    on_epoch_begin = on_epoch_end = _ignore
    on_batch_begin = on_train_batch_begin = on_test_batch_begin = on_predict_batch_begin = _ignore
    on_batch_end = on_train_batch_end = on_test_batch_end = on_predict_batch_end = _ignore


class _OwnStop(int):
    """Value of ``model.stop_training`` that means True and marks a stop by the probe; other callbacks set ``True``."""


OWN_STOP = _OwnStop(1)


class KerasProbe(CallbackProbe, PlainCallback):
    """Base class of the probes for Keras. A subclass determines what to measure and when to end the training."""

    _kind: ClassVar[Literal["iteration", "epoch"]]
    _remedy = "Train with model.fit(..., callbacks=[probe]) first."
    _scratch: Scratch | None = None

    def _reset(self) -> None:
        super()._reset()
        self._undo: list[Callable[[], None]] = []
        self._cut_short = self._validating = False
        self._epochs_seen = 0

    def set_model(self, model: Model) -> None:
        """Store the model and redirect the files of checkpoint callbacks. Called by Keras."""
        super().set_model(model)
        caller = sys._getframe(1)
        # Only the frame of Keras' callback list is read: reading the variables of a frame keeps them alive.
        if self.stop and self.protect_files and caller.f_code.co_name == "set_model":
            callback_list: CallbackList = caller.f_locals.get("self")
            if hasattr(callback_list, "callbacks"):
                self._scratch = _redirect_files(callback_list)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Start recording a training. Called by Keras."""
        self._end_early(None)  # an earlier training whose end was not reported
        self._reset()
        frame = sys._getframe(1)
        fit = read_fit(frame)
        recording = Recording(self._kind, model=self._model, params=self.params, fit=fit, options=self)
        with recording.timer.leave_out():
            try:
                self._check_fit(recording)
            except ProbeError:
                recording.drop()  # it listens to the frameworks already
                raise
            self._watch = self._watch_end(recording)
            self._recording = recording
            recording.observe(frame)
            self._prepare(recording)
            if self._scratch is not None:
                recording.redirected = self._scratch.redirected
            recording.stopper = functools.partial(setattr, self._model, "stop_training", True)
            self.on_start(recording)
            if self.describes_only and recording.facts.batch_size is None:
                recording.facts.counted_batch_size = fit.stated_batch_size
            self._end_described()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Record that an epoch begins. Called by Keras."""
        recording = self._recording
        if recording is not None:
            if recording.facts.initial_epoch is None:
                recording.facts.initial_epoch = epoch
            recording.timer.begin_epoch(epoch)

    def on_test_begin(self, logs: Logs = None) -> None:
        """Record that the steps of the epoch have ended and its validation begins. Called by Keras."""
        recording = self._recording
        if recording is None or recording.timer.current is None:
            return
        self._close_block()
        self._end_steps(recording)
        with recording.timer.leave_out():
            if self._watch is not None:
                self._watch.guard(self._model, "test_function")
            self._validating = True
            self._prepare_validation()
        recording.timer.begin_validation()

    def on_test_end(self, logs: Logs = None) -> None:
        """Record that a validation has ended. Called by Keras."""
        recording = self._recording
        if recording is None or not self._validating:
            return
        self._close_block()
        batches, truncated = self._count_validation()
        recording.timer.end_validation(truncated=truncated, batches=batches)
        with recording.timer.leave_out():
            self._validating = False
            if self._watch is not None:
                self._watch.release("test_function")
            if not truncated and recording.facts.validation_examples is None:
                recording.facts.validation_examples = recording.count_examples(steps=batches)
        recording.note()

    def on_train_end(self, logs: Logs = None) -> None:
        """Stop recording and save the profile. Called by Keras."""
        listed, earlier = self._recording is not None and self._recording.facts.fit.callback_list, self._profile
        self._finish()
        if not listed:  # otherwise after the other callbacks
            self._exit_if_stopped(earlier)

    # -- for subclasses ----------------------------------------------------------------------------------------------

    # Called before the first step, to reject a training that cannot be measured and to set up, at the start of a
    # validation, once or twice per epoch after its last step, and before that if steps may not have ended yet.
    _check_fit = _prepare = _prepare_validation = _end_steps = _close_block = PlainCallback._ignore

    def _count_validation(self) -> tuple[int | None, bool]:
        """Return the number of batches of the last validation, and whether the probe ended it early."""
        return count_validation_batches(self._model), False

    def _stop_fit(self, epoch: int) -> None:
        """Make Keras end the training after epoch number ``epoch``, counted from 0."""
        if self._recording is not None and (self._recording.facts.epochs or epoch + 2) > epoch + 1:
            self._cut_short = True
        self._model.stop_training = True

    def _watch_end(self, recording: Recording) -> EndWatch:
        facts = recording.facts
        callback_list: CallbackList = facts.fit.callback_list and facts.fit.callback_list()
        watch = EndWatch(self._end_early, anchor=callback_list or self._model)
        watch.guard(self._model, "train_function")
        if callback_list is not None:
            self._undo.append(_time_epoch_ends(callback_list, recording.timer, self._close_block))
            facts.saving, facts.save_freq = describe_saving(callback_list.callbacks)
            facts.early_stopping = find_earliest_stop(callback_list.callbacks)
            if self.exit_program:
                _call_after_training(callback_list, functools.partial(self._exit_if_stopped, self._profile))
        return watch

    def _release(self) -> Recording | None:
        recording = super()._release()
        while self._undo:
            self._undo.pop()()
        self._reset()
        return recording


def _time_epoch_ends(
    callback_list: CallbackList, timer: StepTimer, close_block: Callable[[], None]
) -> Callable[[], None]:
    """Make ``timer`` record the total time of ``on_epoch_end`` of all callbacks, which may save the model.

    Before each ``on_epoch_end``, ``close_block`` is called to end the current block of steps, whose time is not part of
    that total. Return a function that undoes the change of ``callback_list``.
    """

    def wrap(call: Callable[..., None]) -> Callable[..., None]:
        def on_epoch_end(epoch: int, logs: Logs = None) -> None:
            close_block()
            with timer.epoch_end():
                call(epoch, logs)

        return on_epoch_end

    return _wrap_method(callback_list, "on_epoch_end", wrap)


def _wrap_method(
    callback_list: CallbackList, name: str, wrap: Callable[[Callable[..., None]], Callable[..., None]]
) -> Callable[[], None]:
    """Replace the method ``name`` of ``callback_list`` by ``wrap(method)``. Return a function that restores it."""
    reference, before = weakref.ref(callback_list), vars(callback_list).get(name)
    method: Callable[[], Any] = weakref.WeakMethod(getattr(callback_list, name)) if before is None else lambda: before
    wrapped = wrap(lambda *arguments, **options: method()(*arguments, **options))

    def undo() -> None:
        here = reference()
        if here is not None and vars(here).get(name) is wrapped:
            delattr(here, name)
            if before is not None:
                setattr(here, name, before)

    setattr(callback_list, name, wrapped)
    return undo


def _call_after_training(callback_list: CallbackList, then: Callable[[], None]) -> None:
    """Make ``callback_list`` call ``then`` once, after ``on_train_end`` of all callbacks."""
    reference, before = weakref.ref(callback_list), vars(callback_list).get("on_train_end")
    method: Callable[[], Any] = weakref.WeakMethod(callback_list.on_train_end) if before is None else lambda: before

    def on_train_end(logs: Logs = None) -> None:
        here = reference()
        if here is not None and vars(here).get("on_train_end") is on_train_end:
            del here.on_train_end
        method()(logs)
        then()

    callback_list.on_train_end = on_train_end


def _redirect_files(callback_list: CallbackList) -> Scratch | None:
    """Until the training ends, redirect the files of all callbacks to scratch folders while a callback method runs.

    Between the calls of these methods the original paths are restored: ``fit`` may fail at any time without calling a
    callback, and a notebook keeps all objects of a failed call. Return None if no callback writes files.
    """
    scratch = Scratch(find_writers(callback_list.callbacks), bind_elsewhere)
    if not scratch.redirected:
        return None
    own, reference = callback_list.__dict__, weakref.ref(callback_list)
    weakref.finalize(callback_list, scratch.close)
    for name in HOOKS:
        own[name] = functools.partial(_call_redirected, scratch, getattr(type(callback_list), name), reference)
    call = own["on_train_end"]

    def on_train_end(logs: Logs = None) -> None:
        try:
            call(logs)
        finally:
            scratch.close()
            for name in HOOKS:
                vars(reference()).pop(name, None)  # the callback list may be used for another training

    callback_list.on_train_end = on_train_end
    return scratch


def _call_redirected(
    scratch: Scratch,
    method: Callable[..., None],
    reference: weakref.ref[CallbackList],
    *arguments: object,
    **options: object,
) -> None:
    scratch.send_away()
    try:
        method(reference(), *arguments, **options)
    finally:
        scratch.put_back()


@suggest_fields
@dataclass(eq=False, repr=False, kw_only=True)
class IterationProbe(StepProbe, KerasProbe):
    """A callback that measures a few steps and validations of a training, then ends the training.

    By default it measures two epochs and their validations. It ends each epoch after its first step and ``steps``
    further steps; the validation follows. If ``validations`` is 0 or 1, it measures one epoch. The model has then been
    trained for a few steps: create a new one for the real training.

    Args:
        path: file or folder for the profile; in a folder the file is named ``<instance>-<batch>-<time>.json``. By
            default the folder in the environment variable VMSELECT_FOLDER, else ``profiles``; with False, nothing is
            written.
        steps: number of steps to measure in each epoch, after its first step.
        validations: number of validations to measure, at most 2. With 0, the validation is ended after one batch.
        seconds: wall time after which to end the training, even if fewer steps were measured.
        steady_seconds: least total time of the measured steps of an epoch; more than ``steps`` are measured if these
            take less. Ignored with several workers, which must stop at the same step.
        stop: with False, do not end the training, but record all of it, including its total time.
        batch_size: number of examples per step over all replicas; required only if the data does not define it.
        validation_steps: number of batches after which to end the second validation; by default it is not ended early.
        instance_type: instance type of this machine; required only if it cannot be detected.
        region: region of this machine; required only if it cannot be detected.
        metrics: additional metrics for the profile: maps names to numbers, or to functions called at the end.
        factors: settings that differ between runs, for the profile: maps names to numbers, texts or bools.
        sample: seconds between two samples of machine usage; with None, usage is not sampled.
        alarm: an :class:`~vmselect.probe.sampling.Alarm` that reports, such as high CPU utilization.
        name: name of this training, if the program runs several.
        protect_files: with True, let ModelCheckpoint, OrbaxCheckpoint, BackupAndRestore, CSVLogger and TensorBoard
            write to a scratch folder, so that none of your files is replaced. Ignored with ``stop=False``.
        exit_program: with True, end the program with exit code 0 when the probe has ended the training, so that code
            after ``fit`` saves no untrained model.
        verbose: with 1, print a line when the probe has ended the training or redirected files; with 0, nothing.

    >>> import keras, numpy
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> probe = IterationProbe(path=False, steps=5, instance_type="my-laptop", verbose=0)
    >>> _ = model.fit(numpy.ones((640, 4)), numpy.ones(640), batch_size=8, epochs=50, verbose=0, callbacks=[probe])
    >>> probe.profile.batch_size, probe.profile.steps_per_epoch, probe.profile.timeline.steps.steps
    (8, 80, 12)
    """

    _kind: ClassVar[Literal["iteration"]] = "iteration"

    async_safe: ClassVar[bool] = True
    """Read by Keras, which may call callbacks from worker threads if all of them set this attribute to True."""

    validation_steps: int | None = None

    def __post_init__(self) -> None:
        self.validation_steps = maybe(check_count, "validation_steps", self.validation_steps)
        super().__post_init__()
        check_uncut(self.stop, validation_steps=self.validation_steps)

    def _reset(self) -> None:
        super()._reset()
        self._timer: StepTimer | None = None
        self._stop_at = self._deadline_ns = self._last_batch = self._last_test_batch = self._enough_batches = math.inf
        self._thread = self._first_of_execution = 0
        self._first_step = True
        self._epochs_to_see = self._validations_seen = 0
        self._cut_epoch = False
        self._whole_epoch: bool | None = None
        self._cut_validation = False
        self._batches_in_validation = 0
        self._whole_validation: int | None = None
        self._trace = StepTrace()
        self._in_passing = False
        self._cut_at = math.inf
        self._train_threaded = self._test_threaded = False
        self._partial_after = math.inf
        self._blocks: StepBlocks | None = None

    # -- hooks of every step, which must be fast ---------------------------------------------------------------------

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Record that a step begins. Called by Keras."""
        self._first_of_execution = batch
        timer = self._timer
        if timer is not None and timer.opening:
            timer.open()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Record that a step has ended. Called by Keras after it has fetched the loss, so the device has finished.

        If Keras calls this method from a worker thread, it does nothing: ``_submit_step`` measures the step instead.
        """
        timer = self._timer
        if self._train_threaded:
            return
        if timer is None:
            if self._trace.running and self._trace.see(batch):  # after the timed steps
                self._end_trace()
            return
        if not logs:  # Keras fetched no loss, so it did not wait for the device
            synchronize_devices(self._model)
        if batch > self._last_batch:  # with steps_per_execution, Keras also counts steps after the last
            batch = int(self._last_batch)
        timer.end_step(batch, batch - self._first_of_execution + 1)
        if self._first_step:
            self._check_first_step(batch)
        if batch >= self._stop_at or timer.mark > self._deadline_ns:
            self._reach(batch, timer)

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Record that a validation batch begins. Called by Keras."""
        self._first_of_execution = batch

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Record that a validation batch has ended. Called by Keras."""
        timer = self._timer
        if timer is None or self._test_threaded or not self._validating:
            return
        if batch > self._last_test_batch:
            batch = int(self._last_test_batch)
        now = timer.end_validation_batch(batch - self._first_of_execution + 1)
        self._batches_in_validation = batch + 1
        if batch + 1 >= self._enough_batches or now > self._deadline_ns:
            self._cut_test()

    # -- the same if Keras calls hooks from worker threads: called on the thread of ``fit`` after a step's submission --

    def _submit_step(self, batch: int, timer: StepTimer) -> None:
        if batch > self._last_batch:
            batch = int(self._last_batch)
        covers = batch - self._first_of_execution + 1
        late = timer.clock() > self._deadline_ns
        if self._blocks is None:
            timer.end_step(batch, covers)
        else:
            last = late or batch >= min(self._stop_at, self._partial_after, self._last_batch)
            if not self._blocks.submit(batch, covers, last=last):
                return
        if self._first_step:
            self._check_first_step(batch)
        if batch >= self._stop_at or late:
            self._reach(batch, timer)

    def _submit_test(self, batch: int, timer: StepTimer) -> None:
        if not self._validating:
            return
        if batch > self._last_test_batch:
            batch = int(self._last_test_batch)
        covers, late = batch - self._first_of_execution + 1, timer.clock() > self._deadline_ns
        cut = batch + 1 >= self._enough_batches or late
        if self._blocks is None:
            timer.end_validation_batch(covers)
        else:
            last, first = cut or batch >= self._last_test_batch, not self._batches_in_validation
            self._blocks.end_step(batch, covers, last=last, alone=first)
        self._batches_in_validation = batch + 1
        if cut:
            self._cut_test()

    def _cut_test(self) -> None:
        if self.stop:
            self._cut_validation = True
            self._model.stop_evaluating = True

    # -- hooks of every epoch ----------------------------------------------------------------------------------------

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Record that an epoch begins. Called by Keras."""
        super().on_epoch_begin(epoch)
        self._cut_epoch, self._whole_epoch = False, None
        recording = self._recording
        if recording is None:
            return
        if self.stop:
            # An epoch that is run only for its validation is cut short after one step.
            enough = self.steps if self._epochs_seen < self._epochs_to_see else 0
            self._stop_at = enough + recording.facts.steps_per_execution - 1
        self._plan_trace(recording)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Record that an epoch has ended; end the training if enough has been measured. Called by Keras."""
        recording = self._recording
        if recording is None:
            return
        self._end_trace()
        recording.timer.leave_steps()
        self._end_steps(recording)
        recording.timer.end_epoch(complete=bool(self._whole_epoch))
        if not self.stop:
            recording.add_logs(epoch, logs)
        recording.note()
        if not self.stop:
            return
        self._epochs_seen += 1
        if self._has_enough(recording, epoch):
            self._stop_fit(epoch)
        elif self._model.stop_training is OWN_STOP:
            self._model.stop_training = False

    def _check_fit(self, recording: Recording) -> None:
        if self.seconds is not None and recording.workers > 1:
            raise ProbeError(
                f"seconds= would stop the {recording.workers} workers of this training at different steps, but they "
                "must all stop at the same step. Pass steps= instead of seconds=."
            )

    def _prepare(self, recording: Recording) -> None:
        facts, self._timer = recording.facts, recording.timer
        self._thread = threading.get_ident()
        self._epochs_to_see = max(1, self.validations)
        if recording.workers == 1:
            self._trace = StepTrace(recording.observation.trace, steps_per_execution=facts.steps_per_execution)
        if facts.steps is not None:
            self._last_batch = facts.steps - 1
            if facts.partial_batch:
                self._partial_after = self._last_batch - 1
        if self.seconds is not None:
            self._deadline_ns = recording.timer.mark + self.seconds * 1e9
        callback_list: CallbackList = facts.fit.callback_list and facts.fit.callback_list()
        self._train_threaded, self._test_threaded = facts.fit.threaded, facts.fit.test_threaded
        if self._train_threaded:
            self._undo.append(_wrap_method(callback_list, "on_train_batch_end", self._call_after(self._submit_step)))
        if self._test_threaded:
            self._undo.append(_wrap_method(callback_list, "on_test_batch_end", self._call_after(self._submit_test)))
        if recording.is_asynchronous and (self._train_threaded or self._test_threaded):
            self._blocks = StepBlocks(
                recording.timer,
                functools.partial(synchronize_devices, self._model),
                overlap=recording.has_gpu,
                watched_after=None if self.stop else self.steps,
                drained=recording.observation.drained,
            )

    def _call_after(
        self, see: Callable[[int, StepTimer], None]
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        def wrap(call: Callable[..., None]) -> Callable[..., None]:
            def on_batch_end(batch: int, logs: Logs = None) -> None:
                call(batch, logs)
                if self._timer is not None:
                    see(batch, self._timer)

            return on_batch_end

        return wrap

    def _close_block(self) -> None:
        if self._blocks is not None:
            self._blocks.close()

    def _prepare_validation(self) -> None:
        self._cut_validation = False
        self._batches_in_validation = 0
        self._last_test_batch = (count_validation_batches(self._model) or math.inf) - 1
        if self.stop and self.validations == 0:
            self._enough_batches = 1
        elif self.validation_steps is not None and self._validations_seen:
            self._enough_batches = self.validation_steps

    def _count_validation(self) -> tuple[int | None, bool]:
        batches = self._batches_in_validation
        truncated = self._cut_validation and batches not in (self._whole_validation, self._last_test_batch + 1)
        self._validations_seen += 1
        if not truncated and self._whole_validation is None:
            self._whole_validation = batches
        return batches or None, truncated

    def _check_first_step(self, batch: int) -> None:
        self._first_step = False
        recording = self._recording
        if recording is None:
            return
        with recording.timer.leave_out():
            if threading.get_ident() != self._thread:
                self._release()
                recording.drop()
                raise ProbeError(THREADED)
            if recording.facts.batch_size is None:
                steps = batch - self._first_of_execution + 1
                examples = recording.count_examples(steps=steps)
                if examples is not None and examples % steps == 0:
                    recording.facts.counted_batch_size = examples // steps
        if self.describes_only:  # neither further steps nor a validation would show more
            self._cut_short = True
            self._close("stopped")
            raise EnoughTrainings
        recording.note()

    def _release(self) -> Recording | None:
        self._trace.end()
        return super()._release()

    def _plan_trace(self, recording: Recording) -> None:
        """Plan to trace some of the measured steps of this epoch, if no steps after them can be traced.

        TensorFlow's profiler traces a few steps of one epoch, which gives the input wait. In an epoch that the probe
        ends early, these are the steps after the measured ones (see :meth:`_reach`). Measured steps are traced if the
        training is not ended early, and in the last epoch of the probe if too few steps follow the measured ones.
        """
        last = self._epochs_seen + 1 >= self._epochs_to_see or not recording.facts.fit.can_restart
        if self.stop and (not last or self._trace.room(self._stop_at, self._last_batch)):
            return
        at = self._trace.plan_in_passing(self.steps, self._last_batch)
        self._cut_at, self._stop_at = self._stop_at, min(self._stop_at, at)
        self._in_passing = self._stop_at == at

    def _reach(self, batch: int, timer: StepTimer) -> None:
        """Begin a trace, end a trace or end the epoch, because the step planned for this, ``batch``, has ended."""
        trace = self._trace
        if timer.mark > self._deadline_ns:
            self._end_trace()
            self._cut_training(batch)
        elif self._in_passing:
            with timer.leave_out():
                begun = not trace.running and trace.begin(batch, self._last_batch)
                self._stop_at = trace.until if begun else self._cut_at
                if not begun:
                    trace.see(batch)
                    trace.end()
                    self._in_passing = False
        elif self._needs_more(batch, timer):
            pass
        elif trace.begin(batch, self._last_batch, timer=timer):
            self._cut_epoch = self._cut_short = True
            self._timer = None
        else:
            self._cut_training(batch)

    def _needs_more(self, batch: int, timer: StepTimer) -> bool:
        """Return whether the epoch continues because its steady steps have not yet lasted ``steady_seconds``.

        If so, set the step after which this is checked again.
        """
        recording, latest = self._recording, self._trace.latest(self._last_batch)
        if recording is None or recording.is_steady(self.steady_seconds) or batch >= latest:
            return False
        if self._epochs_seen >= self._epochs_to_see:
            return False
        seen = timer.steady_taken()
        more = math.ceil(((self.steady_seconds or 0) * 1e9 - seen) * batch / seen) if seen else 1
        self._stop_at = min(batch + max(1, more), latest)
        return True

    def _end_trace(self) -> None:
        """Stop tracing. If the traced steps followed the measured steps, end the epoch as well."""
        self._trace.end()
        if self._timer is None and self._recording is not None:
            self._timer = self._recording.timer
            self._cut_training(0)

    def _cut_training(self, batch: int) -> None:
        """Make Keras end the epoch after step ``batch``, unless it is the last step of the epoch."""
        if batch >= self._last_batch:
            return
        self._cut_epoch = self._cut_short = True
        release_data_before_exit()
        if self._timer is not None:
            self._timer.enter("boundary")
        if not self._model.stop_training:  # keep the stop of another callback
            self._model.stop_training = OWN_STOP

    def _end_steps(self, recording: Recording) -> None:
        self._end_trace()
        with recording.timer.leave_out():
            last = recording.timer.last
            if self._whole_epoch is not None:  # determined before its validation
                return
            if self._cut_epoch or last is None:
                self._whole_epoch = False
                return
            has_length = recording.facts.steps is not None
            self._whole_epoch = last[1] >= self._last_batch if has_length else not self._model.stop_training
            # The first whole epoch determines the number of steps and examples of an epoch.
            if self._whole_epoch and recording.facts.counted_steps is None:
                recording.facts.counted_steps = last[1] + 1
                if recording.facts.examples is None:
                    recording.facts.counted_examples = recording.count_examples(steps=recording.facts.counted_steps)

    def _has_enough(self, recording: Recording, epoch: int) -> bool:
        if recording.is_late(self.seconds) or (self._cut_epoch and not recording.facts.fit.can_restart):
            return True
        if self._epochs_seen < self._epochs_to_see:
            return False
        if self._validations_seen >= self.validations:
            return True
        return not recording.facts.fit.validates_between(epoch + 1, recording.facts.epochs or 0)


@suggest_fields
@dataclass(eq=False, repr=False, kw_only=True)
class EpochProbe(KerasProbe):
    """A callback that measures whole epochs of a training, then ends the training.

    It has no batch-level methods and never waits for the device. Measuring whole epochs takes longer than measuring a
    few steps. See :class:`~vmselect.IterationProbe` for arguments that are not listed here.

    Args:
        epochs: number of epochs to measure.
        stop: with False, do not end the training, but record all of it, including its total time.

    >>> import keras, numpy
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> probe = EpochProbe(path=False, epochs=3, instance_type="my-laptop", verbose=0)
    >>> _ = model.fit(numpy.ones((64, 4)), numpy.ones(64), batch_size=8, epochs=50, verbose=0, callbacks=[probe])
    >>> [epoch.steps for epoch in probe.profile.timeline.epochs]
    [8, 8, 8]
    """

    _kind: ClassVar[Literal["epoch"]] = "epoch"

    epochs: int = 2

    def __post_init__(self) -> None:
        self.epochs = check_count("epochs", self.epochs)
        super().__post_init__()

    def _reset(self) -> None:
        super()._reset()
        self._stepping = False

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Record that an epoch begins. Called by Keras."""
        super().on_epoch_begin(epoch)
        if self._recording is not None:
            self._recording.timer.open()
            self._stepping = True

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Record that an epoch has ended; end the training if enough epochs have been measured. Called by Keras."""
        recording = self._recording
        if recording is None:
            return
        self._end_steps(recording)
        recording.timer.end_epoch(complete=True)
        if not self.stop:
            recording.add_logs(epoch, logs)
        recording.note()
        self._epochs_seen += 1
        if self.stop and self._epochs_seen >= self.epochs:
            self._stop_fit(epoch)

    def _end_steps(self, recording: Recording) -> None:
        if not self._stepping:
            return
        self._stepping = False
        recording.timer.end_training(steps=recording.facts.steps)
        with recording.timer.leave_out():
            if recording.facts.examples is None:
                recording.facts.counted_examples = recording.count_examples(steps=recording.facts.steps)


# -- arguments of a running ``fit`` -----------------------------------------------------------------------------------
# Keras passes only the number of epochs and steps to callbacks. Batch size, validation frequency and the kind of
# data are arguments and local variables of ``fit``, read from its stack frame. A value is unknown if a version of
# Keras gives its variable another name.


def read_fit(frame: FrameType | None) -> FitFacts:
    """Return the arguments of the Keras ``fit`` call found among the callers of ``frame``."""
    local, callback_list = find_call(frame, "fit")
    return _describe_list(callback_list) if local is None else _read_locals(local, callback_list)


def find_call(frame: FrameType | None, function: str) -> tuple[dict[str, Any] | None, CallbackList]:
    """Find Keras' ``function``, such as "fit", among the callers of ``frame``; return its locals and its callback list.

    Each of the two is None if it was not found.
    """
    callback_list: CallbackList = None
    for name, local in walk_up(frame):
        if callback_list is None and hasattr(local.get("self"), "_async_train"):
            callback_list = local["self"]
        if name == function and "callbacks" in local:
            return local, callback_list
    return None, callback_list


def _read_locals(local: dict[str, Any], callback_list: CallbackList) -> FitFacts:
    adapter: Adapter = getattr(local.get("epoch_iterator"), "data_adapter", None)
    frequency = local.get("validation_freq", 1)
    batches, partial = attempt(lambda: adapter.num_batches), attempt(lambda: adapter.partial_batch_size)
    if partial is None and attempt(lambda: adapter.has_partial_batch) is False:
        partial = 0
    if local.get("steps_per_epoch") not in (None, batches):
        partial = None  # an epoch is not one pass over the data, so the size of its last batch is unknown
    facts = replace(
        _describe_list(callback_list),
        batch_size=positive(attempt(lambda: adapter.batch_size)),
        partial_batch=partial if isinstance(partial, int) else None,
        validation_steps=positive(local.get("validation_steps")),
        validation_freq=frequency if isinstance(frequency, (int, Collection)) else 1,
        has_validation=local["validation_data"] is not None if "validation_data" in local else None,
        # The worker threads of a PyDataset outlive an epoch that was cut short, and cannot be started again.
        can_restart="PyDataset" not in type(adapter).__name__,
        self_tuning_input=None if adapter is None else _autotunes_input(local["epoch_iterator"], adapter),
        # Keras creates a new iterator at each epoch, unless steps_per_epoch is given for endless data.
        inputs=attempt(lambda: _read_inputs(adapter)),
        stated_batch_size=attempt(lambda: find_batch_size(adapter._dataset)),
        continuous_input=None if adapter is None else batches is None and local.get("steps_per_epoch") is not None,
    )
    return facts.with_validation(_measure_validation(local)) if facts.has_validation else facts


def _measure_validation(local: dict[str, Any]) -> ValidationSize:
    """Size of the validation data of ``fit``, which divides arrays into batches itself."""
    from vmselect.describing.inputs import DEFAULT_BATCH_SIZE
    from vmselect.describing.validations import measure_validation

    stated = local.get("validation_batch_size") or local.get("batch_size")
    size = measure_validation(local.get("val_x"), batch_size=positive(stated) or DEFAULT_BATCH_SIZE)
    return size.limited(positive(local.get("validation_steps")))


@dataclass(frozen=True)
class BatchShape:
    """Shape and type of an array of a batch, without its values."""

    shape: tuple[int | None, ...]
    dtype: str


def _read_inputs(adapter: Adapter) -> Any:
    """Shapes of the inputs that ``adapter`` provides; None if an extent is not known before a batch is read."""
    if hasattr(adapter, "_inputs"):  # arrays
        batch = adapter._inputs
    elif hasattr(adapter, "_first_batches"):  # a generator
        batch = adapter._first_batches[0]
    else:
        batch = adapter._dataset.element_spec
    inputs = batch[0] if isinstance(batch, (list, tuple)) else batch

    def shape_of(array: Any) -> BatchShape:
        shape = tuple(array.shape)
        if None in shape[1:]:
            raise ValueError
        return BatchShape(shape, sys.modules["keras"].backend.standardize_dtype(array.dtype))

    return sys.modules["keras"].tree.map_structure(shape_of, inputs)


def _autotunes_input(iterator: object, adapter: Adapter) -> bool:
    """Return whether a thread of tf.data tunes the input pipeline during the training.

    TensorFlow may wait for this thread after an epoch (see :mod:`vmselect.estimation.overheads`).
    """
    enabled = attempt(lambda: [adapter._dataset.options().autotune.enabled])
    if enabled is not None:  # a tf.data dataset, with autotuning unless disabled
        return bool(enabled[0] is not False)
    # On TensorFlow Keras converts all data to tf.data, and turns autotuning off for a PyDataset only.
    return type(iterator).__name__.startswith("TF") and "PyDataset" not in type(adapter).__name__


def _describe_list(callback_list: CallbackList) -> FitFacts:
    return FitFacts(
        callback_list=None if callback_list is None else weakref.ref(callback_list),
        threaded=bool(getattr(callback_list, "_async_train", False)),
        test_threaded=bool(getattr(callback_list, "_async_test", False)),
    )


def positive(value: object) -> int | None:
    """Return ``value`` if it is a positive integer, else None."""
    return int(value) if isinstance(value, int) and value > 0 else None
