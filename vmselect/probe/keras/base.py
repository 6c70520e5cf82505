"""What the probes inside ``model.fit`` share: how a recording begins, ends and is saved, whatever happens."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from vmselect.errors import ProbeError
from vmselect.probe.base import CallbackProbe
from vmselect.probe.ending import EndWatch
from vmselect.probe.keras.callback import Logs, PlainCallback
from vmselect.probe.keras.writers import bind_elsewhere, describe_saving, find_writers, take_back
from vmselect.probe.recorder.stopwatch import StepTimer
from vmselect.probe.recording import Recording
from vmselect.probe.scratch import Scratch


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
