"""What the probes inside ``model.fit`` share: how a recording begins, ends and is saved, whatever happens."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vmselect._checks import check_count, check_flag, check_name, check_path, maybe
from vmselect.errors import ProbeError
from vmselect.probe.ending import EndWatch, classify
from vmselect.probe.keras.callback import Logs, PlainCallback
from vmselect.probe.keras.fit import is_running
from vmselect.probe.observation import check_sample
from vmselect.probe.options import (
    Factors,
    Metrics,
    check_factors,
    check_metrics,
    check_target,
    choose_path,
    read_factors,
)
from vmselect.probe.recording import Recording
from vmselect.probe.saving import keep_profile

if TYPE_CHECKING:
    from vmselect.probe.sampling import Alarm
    from vmselect.records.training import Outcome, Profile


class _OwnStop(int):
    """A truth value that is ours: tells the probe's own stop from one that another callback asked for."""


OWN_STOP = _OwnStop(1)

GUARDED_HOOKS = tuple(
    f"on_{what}_{when}" for what in ("epoch", "train_batch", "test", "test_batch") for when in ("begin", "end")
)

THREADED = (
    "Keras would call this probe from worker threads, where step times mean nothing. "
    "Pass the probe in a list: model.fit(..., callbacks=[probe])."
)


class KerasProbe(PlainCallback):
    """Base of the probes that are callbacks; a subclass decides what to watch and when to stop."""

    _kind: ClassVar[Literal["iteration", "epoch"]]
    _needs_batch_hooks: ClassVar[bool]

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        stop: bool = True,
        batch_size: int | None = None,
        instance_type: str | None = None,
        region: str | None = None,
        metrics: Metrics | None = None,
        factors: Factors | None = None,
        sample: float | None = 1.0,
        alarm: Alarm | None = None,
        verbose: int = 1,
    ) -> None:
        self.path = maybe(check_path, "path", path)
        self.stop = check_flag("stop", stop)
        self.batch_size = maybe(check_count, "batch_size", batch_size)
        self.instance_type = maybe(check_name, "instance_type", instance_type)
        self.region = maybe(check_name, "region", region)
        self.metrics = check_metrics(metrics)
        self.factors = check_factors("factors", factors)
        self.sample, self.alarm = check_sample(sample, alarm)
        self.verbose = check_count("verbose", verbose, least=0)
        self.params = {}
        self._profile: Profile | None = None
        self._reset()

    def _reset(self) -> None:
        self._recording: Recording | None = None
        self._watch: EndWatch | None = None
        self._thread = 0
        self._target: Path | None = None
        self._cut_short = False

    def __getstate__(self) -> dict[str, Any]:
        # A copy is a fresh probe with the same settings: a recording belongs to one training in one process.
        return {name: value for name, value in self.__dict__.items() if name[0] != "_" or name == "_profile"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    @property
    def profile(self) -> Profile:
        """The :class:`~vmselect.Profile` of the last training that was recorded."""
        recording = self._recording
        if recording is not None and recording.fit.token and not is_running(recording.fit.token, self._thread):
            self._end_early(sys.exc_info()[1], None)
        if self._profile is None:
            raise ProbeError("Nothing has been measured yet. Train with model.fit(..., callbacks=[probe]) first.")
        return self._profile

    # -- hooks -------------------------------------------------------------------------------------------------------

    def on_train_begin(self, logs: Logs = None) -> None:
        """Start recording."""
        self._end_early(None, None)  # a training before this one that ended without a word
        self._reset()
        frame = sys._getframe(1)
        self._target = choose_path(self.path)
        check_target(self._target)
        recording = Recording(
            self._kind,
            model=self._model,
            params=self.params,
            frame=frame,
            batch_size=self.batch_size,
            instance_type=self.instance_type,
            region=self.region,
            factors=read_factors(self.factors),
            sample=self.sample,
            alarm=self.alarm,
        )
        with recording.timer.leave_out():
            self._check_fit(recording)
            self._thread = threading.get_ident()
            self._watch = self._watch_end(recording)
            self._recording = recording
            recording.observe(frame)
            self._prepare(recording)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """An epoch begins."""
        recording = self._recording
        if recording is not None:
            if recording.initial_epoch is None:
                recording.initial_epoch = epoch
            recording.timer.begin_epoch(epoch)

    def on_train_end(self, logs: Logs = None) -> None:
        """Stop recording and keep the profile."""
        if self._recording is not None:
            self._recording.timer.finish()
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

    def _give_up(self) -> None:
        """Forget the recording without a profile."""
        if self._watch is not None:
            self._watch.stop()
        if self._recording is not None:
            self._recording.observation.end()
        self._reset()

    # -- the end -----------------------------------------------------------------------------------------------------

    def _watch_end(self, recording: Recording) -> EndWatch:
        reference = recording.fit.callback_list
        callback_list = None if reference is None else reference()
        watch = EndWatch(self._end_early, anchor=self._model if callback_list is None else callback_list)
        watch.guard(self._model, "train_function")
        if callback_list is not None:
            watch.guard(callback_list, *GUARDED_HOOKS)
        return watch

    def _end_early(self, error: BaseException | None, detail: str | None) -> None:
        if self._recording is not None:
            self._recording.timer.finish()
            self._close(*classify(error, detail))

    def _close(self, outcome: Outcome, detail: str | None = None) -> None:
        recording, target = self._recording, self._target
        self._give_up()
        # Without a single step there is nothing to keep, unless that itself is the news.
        if recording is None or (not recording.saw_anything and outcome != "out_of_memory"):
            return
        self._profile = keep_profile(
            recording, outcome, detail=detail, metrics=self.metrics, path=target, verbose=self.verbose
        )
