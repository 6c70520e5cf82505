"""A Keras callback without Keras: every hook, each doing nothing.

Keras accepts any object with these methods, so a probe can be created, copied and pickled where Keras is not
installed. Keras does not wait for the device before a batch hook that is marked as default.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from vmselect._checks import check_count, maybe
from vmselect.errors import ProbeError
from vmselect.probe.environment import count_validation_batches, synchronize_devices
from vmselect.probe.exit_hooks import EndWatch, release_data_before_exit
from vmselect.probe.file_protection import Scratch, bind_elsewhere, describe_saving, find_writers, take_back
from vmselect.probe.input_wait import StepTrace
from vmselect.probe.options import check_whole
from vmselect.probe.recording import CallbackProbe, Recording, StepProbe
from vmselect.probe.timer import StepTimer

Logs = Mapping[str, Any] | None


class PlainCallback:
    """Base of the probes: stores what Keras passes to a callback. A subclass overrides the hooks that it needs."""

    params: Mapping[str, Any] = MappingProxyType({})
    _model: Any = None

    def set_params(self, params: Mapping[str, Any] | None) -> None:
        """Keras' own: number of epochs and steps."""
        self.params = dict(params or {})

    def set_model(self, model: Any) -> None:
        """Keras' own: the model that is trained."""
        # torch's wrapper for distributed training holds the Keras model inside.
        wrapped = type(model).__name__ == "DistributedDataParallel"
        self._model = model.module if wrapped else model

    @property
    def model(self) -> Any:
        """The model of the last training."""
        return self._model

    def _ignore(self, logs: Logs = None) -> None:
        """A hook that the probe does not need."""

    def _ignore_epoch(self, epoch: int, logs: Logs = None) -> None:
        """A hook that the probe does not need."""

    def _ignore_batch(self, batch: int, logs: Logs = None) -> None:
        """A hook that the probe does not need."""

    _ignore_batch._is_default = True  # type: ignore[attr-defined]

    on_train_begin = on_train_end = on_test_begin = on_test_end = on_predict_begin = on_predict_end = _ignore
    on_epoch_begin = on_epoch_end = _ignore_epoch
    on_batch_begin = on_train_batch_begin = on_test_batch_begin = on_predict_batch_begin = _ignore_batch
    on_batch_end = on_train_batch_end = on_test_batch_end = on_predict_batch_end = _ignore_batch


# What the probes inside ``model.fit`` share: how a recording begins, ends and is saved, whatever happens.


class _OwnStop(int):
    """A true value that marks the probe's own stop; another callback's stop is True."""


OWN_STOP = _OwnStop(1)

THREADED = (
    "Keras would call this probe from worker threads, where step times mean nothing. "
    "Pass the probe in a list: model.fit(..., callbacks=[probe])."
)

EVENTS = ("train", "epoch", "train_batch", "test", "test_batch")
HOOKS = ("set_params", *(f"on_{what}_{when}" for what in EVENTS for when in ("begin", "end")))
"""The methods by which a callback list calls its callbacks during a training, after ``set_model``."""


class KerasProbe(CallbackProbe, PlainCallback):
    """Base of the probes that are callbacks; a subclass decides what to watch and when to stop."""

    _kind: ClassVar[Literal["iteration", "epoch"]]
    _needs_batch_hooks: ClassVar[bool]
    _way = "Train with model.fit(..., callbacks=[probe]) first."
    _scratch: Scratch | None = None

    def _reset(self) -> None:
        super()._reset()
        self._untime: Callable[[], None] | None = None
        self._cut_short = False

    # -- hooks -------------------------------------------------------------------------------------------------------

    def set_model(self, model: Any) -> None:
        """Keras' own: the model that is trained. Only a TensorBoard before the probe has begun to write by now."""
        super().set_model(model)
        caller = sys._getframe(1)
        # Only the frame of Keras' list is read: reading variables keeps them alive as long as the frame.
        if self.stop and self.protect_files and caller.f_code.co_name == "set_model":
            callback_list: Any = caller.f_locals.get("self")
            if hasattr(callback_list, "callbacks"):
                others = callback_list.callbacks
                begun = take_back(others[: next((i for i, one in enumerate(others) if one is self), 0)])
                self._scratch = _redirect_files(callback_list)
                for callback in begun:
                    callback.set_model(model)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Start recording."""
        self._end_early(None, None)  # an earlier training whose end was not reported
        self._reset()
        frame = sys._getframe(1)
        recording = Recording(self._kind, model=self._model, params=self.params, frame=frame, options=self.options)
        with recording.timer.leave_out():
            self._check_fit(recording)
            self._watch = self._watch_end(recording)
            self._recording = recording
            recording.observe(frame)
            self._prepare(recording)
            if self._scratch is not None:
                recording.redirected = self._scratch.redirected

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """An epoch begins."""
        recording = self._recording
        if recording is not None:
            if recording.initial_epoch is None:
                recording.initial_epoch = epoch
            recording.timer.begin_epoch(epoch)

    def on_train_end(self, logs: Logs = None) -> None:
        """Stop recording and keep the profile."""
        self._close("stopped" if self._cut_short else "watched")

    # -- for subclasses ----------------------------------------------------------------------------------------------

    def _prepare(self, recording: Recording) -> None:
        """Get ready for the training that begins."""

    def _check_fit(self, recording: Recording) -> None:
        """Refuse a training that cannot be measured, before its first step."""
        if self._needs_batch_hooks and recording.fit.threaded:
            raise ProbeError(THREADED)

    def _stop_fit(self, epoch: int) -> None:
        """Let the training end with this epoch."""
        if self._recording is not None and (self._recording.epochs or epoch + 2) > epoch + 1:
            self._cut_short = True
        self._model.stop_training = True

    # -- the end -----------------------------------------------------------------------------------------------------

    def _watch_end(self, recording: Recording) -> EndWatch:
        callback_list: Any = recording.fit.callback_list and recording.fit.callback_list()
        watch = EndWatch(self._end_early, anchor=callback_list or self._model)
        watch.guard(self._model, "train_function")
        if callback_list is not None:
            self._untime = _time_epoch_ends(callback_list, recording.timer)
            recording.saving, recording.save_freq = describe_saving(callback_list.callbacks)
        return watch

    def _release(self) -> Recording | None:
        recording = super()._release()
        if self._untime is not None:
            self._untime()
        self._reset()
        return recording


def _time_epoch_ends(callback_list: Any, timer: StepTimer) -> Callable[[], None]:
    """Time ``on_epoch_end`` of all callbacks together: they may be saving the model.

    Returns a function that undoes it.
    """
    own, reference = vars(callback_list), weakref.ref(callback_list)
    before = own.get("on_epoch_end")
    call = before or functools.partial(_call, type(callback_list).on_epoch_end, reference)

    def on_epoch_end(epoch: int, logs: Logs = None) -> None:
        timer.begin_epoch_end()
        call(epoch, logs)
        timer.end_epoch_end()

    def undo() -> None:
        here = reference()
        if here is not None and vars(here).get("on_epoch_end") is on_epoch_end:
            if before is None:
                del here.on_epoch_end
            else:
                here.on_epoch_end = before

    callback_list.on_epoch_end = on_epoch_end
    return undo


def _redirect_files(callback_list: Any) -> Scratch | None:
    """Redirect what the callbacks write while their hooks run, until the training ends.

    Between hooks the paths are the user's own: ``fit`` may fail at any moment without calling a hook, and a notebook
    keeps all that it held.
    """
    scratch = Scratch(find_writers(callback_list.callbacks), bind_elsewhere)
    if not scratch.redirected:
        return None
    own, reference = vars(callback_list), weakref.ref(callback_list)
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
                vars(reference()).pop(name, None)  # the list may serve another training

    callback_list.on_train_end = on_train_end
    return scratch


def _call_redirected(
    scratch: Scratch, method: Callable[..., None], reference: weakref.ref[Any], *arguments: Any, **options: Any
) -> None:
    scratch.send_away()
    try:
        method(reference(), *arguments, **options)
    finally:
        scratch.put_back()


def _call(method: Callable[..., None], reference: weakref.ref[Any], *arguments: Any) -> None:
    method(reference(), *arguments)


# The probe that watches single steps: two short epochs inside the user's unchanged ``fit``.


@dataclass(eq=False, repr=False, kw_only=True)
class IterationProbe(StepProbe, KerasProbe):
    """A callback that measures a few steps and validations of a training, then ends it.

    Two epochs (one, if ``validations`` is 0 or 1) are cut short after their first step and ``steps`` steady ones;
    their validations are watched. The model has then been trained a little: make a new one for the real training.

    Args:
        path: file or folder for the profile; a folder gets ``<instance>-<batch>-<time>.json``.
        steps: steady steps in each epoch that is cut short.
        validations: how many validations to see: 0 (it is cut after one batch), 1 or 2.
        seconds: end the probe after about this wall time, whatever has been seen.
        steady_seconds: go on in each epoch that is cut short until its steady steps have taken this long; more than
            ``steps`` of them where they are short. Of several workers, who wait for each other, ``steps`` alone counts.
        stop: with False, touch nothing and watch the whole training: the profile then holds its true total.
        batch_size: examples per step over all replicas, where the data does not have it.
        validation_steps: cut the second and later validations after this many batches.
        instance_type: this machine's type, where it cannot be found out.
        region: this machine's region, where it cannot be found out.
        metrics: your own numbers for the profile: names to numbers, or to functions that are called at the end.
        factors: what you vary between runs, names to plain values, for the profile.
        sample: seconds between two samples of machine usage; None takes no samples.
        alarm: a :class:`~vmselect.Alarm` to raise while the training runs.
        name: what to call this training among several of a program.
        protect_files: if the probe will end the training, let ModelCheckpoint, OrbaxCheckpoint, BackupAndRestore,
            CSVLogger and TensorBoard write to a scratch folder, so that nothing of yours is replaced.
        verbose: 1 prints one line when the probe ends the training or has redirected files, 0 nothing.

    >>> import keras, numpy
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> probe = IterationProbe(steps=5, instance_type="my-laptop", verbose=0)
    >>> _ = model.fit(numpy.ones((640, 4)), numpy.ones(640), batch_size=8, epochs=50, verbose=0, callbacks=[probe])
    >>> probe.profile.batch_size, probe.profile.steps_per_epoch, probe.profile.timeline.steps.steps
    (8, 80, 12)
    """

    _kind: ClassVar[Literal["iteration"]] = "iteration"
    _needs_batch_hooks = True

    validation_steps: int | None = None

    def __post_init__(self) -> None:
        self.validation_steps = maybe(check_count, "validation_steps", self.validation_steps)
        super().__post_init__()
        check_whole(self.stop, validation_steps=self.validation_steps)

    def _reset(self) -> None:
        super()._reset()
        self._timer: StepTimer | None = None
        self._stop_at = self._deadline_ns = self._last_batch = self._last_test_batch = self._enough_batches = math.inf
        self._thread = self._first_of_execution = 0
        self._first_step = True
        self._epochs_wanted = self._epochs_seen = self._validations_seen = 0
        self._cut_epoch = False
        self._whole_epoch: bool | None = None
        self._cut_validation = self._validating = False
        self._batches_in_validation = 0
        self._whole_validation: int | None = None
        self._trace = StepTrace()
        self._in_passing = False
        self._cut_at = math.inf

    # -- hooks of every step: each nanosecond here is paid at every one --------------------------------------------

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """A step begins."""
        self._first_of_execution = batch
        timer = self._timer
        if timer is not None and timer.opening:
            timer.open()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """A step has ended: Keras has fetched its loss, so the device has done its work."""
        timer = self._timer
        if timer is None:
            if self._trace.running and self._trace.see(batch):  # beyond the steps that are timed
                self._end_trace()
            return
        if not logs:  # Keras fetched nothing, so it did not wait
            synchronize_devices(self._model)
        if batch > self._last_batch:  # Keras counts on when the last of several steps in one call are missing
            batch = int(self._last_batch)
        timer.end_step(batch, batch - self._first_of_execution + 1)
        if self._first_step:
            self._check_first_step(batch)
        if batch >= self._stop_at or timer.mark > self._deadline_ns:
            self._reach(batch, timer)

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """A validation batch begins."""
        self._first_of_execution = batch

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """A validation batch has ended."""
        timer = self._timer
        if timer is None or not self._validating:
            return
        if batch > self._last_test_batch:
            batch = int(self._last_test_batch)
        now = timer.end_validation_batch(batch - self._first_of_execution + 1)
        self._batches_in_validation = batch + 1
        if self.stop and (batch + 1 >= self._enough_batches or now > self._deadline_ns):
            self._cut_validation = True
            self._model.stop_evaluating = True

    # -- hooks of every epoch --------------------------------------------------------------------------------------

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """An epoch begins."""
        super().on_epoch_begin(epoch)
        self._cut_epoch, self._whole_epoch = False, None
        recording = self._recording
        if recording is None:
            return
        if self.stop:
            # An epoch that is only passed on the way to a validation costs one step.
            enough = self.steps if self._epochs_seen < self._epochs_wanted else 0
            self._stop_at = enough + recording.steps_per_execution - 1
        self._plan_trace(recording)

    def on_test_begin(self, logs: Logs = None) -> None:
        """A validation begins."""
        recording = self._recording
        if recording is None or recording.timer.current is None:
            return
        self._end_trace()
        with recording.timer.leave_out():
            self._count_epoch(recording)
            if self._watch is not None:
                self._watch.guard(self._model, "test_function")
            self._validating = True
            self._cut_validation = False
            self._batches_in_validation = 0
            self._last_test_batch = (count_validation_batches(self._model) or math.inf) - 1
            if self.stop and self.validations == 0:
                self._enough_batches = 1
            elif self.validation_steps is not None and self._validations_seen:
                self._enough_batches = self.validation_steps
        recording.timer.begin_validation()

    def on_test_end(self, logs: Logs = None) -> None:
        """A validation has ended."""
        recording = self._recording
        if recording is None or not self._validating:
            return
        batches = self._batches_in_validation
        truncated = self._cut_validation and batches not in (self._whole_validation, self._last_test_batch + 1)
        recording.timer.end_validation(truncated=truncated)
        with recording.timer.leave_out():
            self._validating = False
            self._validations_seen += 1
            if self._watch is not None:
                self._watch.release("test_function")
            if not truncated and self._whole_validation is None:
                self._whole_validation = batches
                recording.validation_examples = recording.count_examples(steps=batches)
        recording.note()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """An epoch has ended: go on to the next, or end the training."""
        recording = self._recording
        if recording is None:
            return
        self._end_trace()
        recording.timer.leave_steps()
        with recording.timer.leave_out():
            self._count_epoch(recording)
        recording.timer.end_epoch(complete=bool(self._whole_epoch))
        recording.note()
        if not self.stop:
            return
        self._epochs_seen += 1
        if self._has_enough(recording, epoch):
            self._stop_fit(epoch)
        elif self._model.stop_training is OWN_STOP:
            self._model.stop_training = False

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check_fit(self, recording: Recording) -> None:
        super()._check_fit(recording)
        if self.seconds is not None and recording.workers > 1:
            raise ProbeError(
                f"seconds= would stop the {recording.workers} workers at different steps, and they wait for each "
                "other. Use steps= alone."
            )

    def _prepare(self, recording: Recording) -> None:
        self._timer = recording.timer
        self._thread = threading.get_ident()
        self._epochs_wanted = max(1, self.validations)
        if recording.workers == 1:
            self._trace = StepTrace(recording.observation.trace, steps_per_execution=recording.steps_per_execution)
        if recording.steps is not None:
            self._last_batch = recording.steps - 1
        if self.seconds is not None:
            self._deadline_ns = recording.timer.mark + self.seconds * 1e9

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
            if recording.batch_size is None:
                steps = batch - self._first_of_execution + 1
                examples = recording.count_examples(steps=steps)
                if examples is not None and examples % steps == 0:
                    recording.counted_batch_size = examples // steps
        recording.note()

    def _release(self) -> Recording | None:
        self._trace.end()
        return super()._release()

    def _plan_trace(self, recording: Recording) -> None:
        """Where all steps of an epoch are timed, trace some of them in passing; otherwise those after the timed ones.

        One epoch is traced: the last of the probe, or the first of a training that is watched whole.
        """
        last = self._epochs_seen + 1 >= self._epochs_wanted or not recording.fit.can_restart
        if self.stop and (not last or self._trace.room(self._stop_at, self._last_batch)):
            return
        at = self._trace.plan_in_passing(self.steps, self._last_batch)
        self._cut_at, self._stop_at = self._stop_at, min(self._stop_at, at)
        self._in_passing = self._stop_at == at

    def _reach(self, batch: int, timer: StepTimer) -> None:
        """The step has come at which something is due: to begin or to end a trace, or to leave the epoch."""
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
        """Whether steady steps have been timed for too short; if so, sets the step of the next check."""
        alone = self._recording is not None and self._recording.workers == 1
        if self.steady_seconds is None or not alone or self._epochs_seen >= self._epochs_wanted:
            return False
        seen = timer.steady_taken()
        missing = self.steady_seconds * 1e9 - seen
        if missing <= 0 or batch >= self._trace.latest(self._last_batch):
            return False
        more = math.ceil(missing * batch / seen) if seen else 1
        self._stop_at = min(batch + max(1, more), self._trace.latest(self._last_batch))
        return True

    def _end_trace(self) -> None:
        """The traced steps are over, or their epoch is."""
        self._trace.end()
        if self._timer is None and self._recording is not None:
            self._timer = self._recording.timer
            self._cut_training(0)

    def _cut_training(self, batch: int) -> None:
        """Have Keras leave the epoch after this step, unless it is the last one anyway."""
        if batch >= self._last_batch:
            return
        self._cut_epoch = self._cut_short = True
        release_data_before_exit()
        if self._timer is not None:
            self._timer.enter("boundary")
        if not self._model.stop_training:  # another callback's stop stays its own
            self._model.stop_training = OWN_STOP

    def _is_whole(self, recording: Recording) -> bool:
        """Whether the epoch has had all its steps."""
        last = recording.timer.last
        if self._cut_epoch or last is None:
            return False
        if recording.steps is not None:
            return last[1] >= self._last_batch
        return not self._model.stop_training

    def _count_epoch(self, recording: Recording) -> None:
        """After the last step: was the epoch whole? The first whole one gives the steps and examples of an epoch."""
        if self._whole_epoch is not None:  # counted before its validation
            return
        self._whole_epoch = self._is_whole(recording)
        last = recording.timer.last
        if not self._whole_epoch or last is None or recording.counted_steps is not None:
            return
        recording.counted_steps = last[1] + 1
        if recording.examples is None:
            recording.counted_examples = recording.count_examples(steps=recording.counted_steps)

    def _has_enough(self, recording: Recording, epoch: int) -> bool:
        late = self.seconds is not None and recording.timer.elapsed_seconds() > self.seconds
        if late or (self._cut_epoch and not recording.fit.can_restart):
            return True
        if self._epochs_seen < self._epochs_wanted:
            return False
        if self._validations_seen >= self.validations:
            return True
        return not recording.fit.validates_between(epoch + 1, recording.epochs or 0)


# The probe that watches whole epochs and leaves every step alone.


@dataclass(eq=False, repr=False, kw_only=True)
class EpochProbe(KerasProbe):
    """A callback that measures whole epochs of a training, then ends it.

    It has no batch hook, so Keras runs exactly as without it; it costs whole epochs instead of a few steps.

    Args:
        path: file or folder for the profile; a folder gets ``<instance>-<batch>-<time>.json``.
        epochs: how many whole epochs to see.
        stop: with False, watch the whole training: the profile then holds its true total.
        batch_size: examples per step over all replicas, where the data does not have it.
        instance_type: this machine's type, where it cannot be found out.
        region: this machine's region, where it cannot be found out.
        metrics: your own numbers for the profile: names to numbers, or to functions that are called at the end.
        factors: what you vary between runs, names to plain values, for the profile.
        sample: seconds between two samples of machine usage; None takes no samples.
        alarm: a :class:`~vmselect.Alarm` to raise while the training runs.
        name: what to call this training among several of a program.
        protect_files: if the probe will end the training, let ModelCheckpoint, OrbaxCheckpoint, BackupAndRestore,
            CSVLogger and TensorBoard write to a scratch folder, so that nothing of yours is replaced.
        verbose: 1 prints one line when the probe ends the training or has redirected files, 0 nothing.

    >>> import keras, numpy
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> probe = EpochProbe(epochs=3, instance_type="my-laptop", verbose=0)
    >>> _ = model.fit(numpy.ones((64, 4)), numpy.ones(64), batch_size=8, epochs=50, verbose=0, callbacks=[probe])
    >>> [epoch.steps for epoch in probe.profile.timeline.epochs]
    [8, 8, 8]
    """

    _kind: ClassVar[Literal["epoch"]] = "epoch"
    _needs_batch_hooks = False

    epochs: int = 2

    def __post_init__(self) -> None:
        self.epochs = check_count("epochs", self.epochs)
        super().__post_init__()

    def _reset(self) -> None:
        super()._reset()
        self._training = self._validating = False
        self._epochs_seen = 0

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """An epoch begins."""
        super().on_epoch_begin(epoch)
        if self._recording is not None:
            self._recording.timer.open()
            self._training = True

    def on_test_begin(self, logs: Logs = None) -> None:
        """The epoch's training is over and its validation begins."""
        recording = self._recording
        if recording is None or recording.timer.current is None:
            return
        self._end_training(recording)
        if self._watch is not None:
            self._watch.guard(self._model, "test_function")
        self._validating = True
        recording.timer.begin_validation()

    def on_test_end(self, logs: Logs = None) -> None:
        """The validation has ended."""
        recording = self._recording
        if recording is None or not self._validating:
            return
        batches = count_validation_batches(self._model)
        recording.timer.end_validation(batches=batches)
        self._validating = False
        if self._watch is not None:
            self._watch.release("test_function")
        with recording.timer.leave_out():
            if recording.validation_examples is None:
                recording.validation_examples = recording.count_examples(steps=batches)
        recording.note()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """An epoch has ended: go on to the next, or end the training."""
        recording = self._recording
        if recording is None:
            return
        self._end_training(recording)
        recording.timer.end_epoch(complete=True)
        recording.note()
        self._epochs_seen += 1
        if self.stop and self._epochs_seen >= self.epochs:
            self._stop_fit(epoch)

    def _end_training(self, recording: Recording) -> None:
        if not self._training:
            return
        self._training = False
        recording.timer.end_training(steps=recording.steps)
        with recording.timer.leave_out():
            if recording.examples is None:
                recording.counted_examples = recording.count_examples(steps=recording.steps)
