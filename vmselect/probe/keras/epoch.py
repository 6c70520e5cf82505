"""The probe that watches whole epochs and leaves every step alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from vmselect._checks import check_count
from vmselect.probe.facts.framework import count_validation_batches
from vmselect.probe.keras.base import KerasProbe
from vmselect.probe.keras.callback import Logs
from vmselect.probe.recording import Recording


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
