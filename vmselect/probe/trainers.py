"""Probes for the trainers of two libraries: :class:`LightningProbe` and :class:`HuggingFaceProbe`.

A step is a batch, as in ``steps_per_epoch``. If the gradients of several batches are accumulated, a reading covers
all batches up to the step of the optimizer.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sized
from dataclasses import replace
from typing import Any

from vmselect.probe.environment import length_of, synchronize_devices
from vmselect.probe.file_protection import Scratch
from vmselect.probe.keras_fit import walk_up
from vmselect.probe.recording import Recording, StepProbe
from vmselect.probe.sampling import watch_call

FOLDERS = ("_default_root_dir", "dirpath", "_root_dir", "_save_dir")
"""The attributes with the folders of Lightning's trainer, checkpoints and loggers."""

NOT_REDIRECTED = Scratch(())


class TrainerProbe(StepProbe):
    """Base of the probes in a trainer; a subclass translates the events of its library."""

    _remedy = "Train with this probe among the callbacks of the trainer."

    def __getattr__(self, name: str) -> Any:
        # A trainer calls all hooks that exist; most need no action.
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _reset(self) -> None:
        super()._reset()
        self._scratch = NOT_REDIRECTED
        self._batches = self._read = 0
        self._epochs = self._validations_seen = 0
        self._cut_epoch = self._cut_short = self._validating = False
        self._validates = False

    def _begin(self, alive: Callable[[], bool] | None = None) -> None:
        """The training begins, before model and data are known.

        ``alive()`` is true while it runs, for a trainer that does not report every end.
        """
        self._close("interrupted")  # an earlier training whose end was not reported
        scratch = self._scratch
        self._reset()
        self._start(self, backend="torch", alive=alive)
        self._scratch = scratch

    def _describe(
        self,
        recording: Recording,
        model: Any,
        loader: Any,
        *,
        steps: int | None,
        epochs: int | None,
        validation_freq: int,
        validations_per_epoch: float,
        validates: bool,
    ) -> None:
        """Record model and data, which are known now. ``steps`` are batches of an epoch."""
        with recording.timer.leave_out():
            self._validates = validates
            recording.model_name = type(model).__name__
            weights = [(name, tuple(one.shape), bool(one.requires_grad)) for name, one in model.named_parameters()]
            recording.describe_torch(weights, loader)
            recording.steps, recording.epochs = steps, epochs
            recording.fit = replace(recording.fit, validation_freq=validation_freq)
            recording.validations_per_epoch = validations_per_epoch if validations_per_epoch != 1 else None
            data, size = getattr(loader, "dataset", None), recording.counted_batch_size
            if isinstance(data, Sized) and size and recording.workers == 1 and not getattr(loader, "drop_last", True):
                recording.counted_examples = len(data) if math.ceil(len(data) / size) == steps else None

    def _begin_epoch(self, *_: Any) -> None:
        recording = self._recording
        if recording is not None:
            self._batches = self._read = 0
            self._cut_epoch = False
            recording.timer.begin_epoch(self._epochs)
            recording.timer.open()

    def _end_batch(self, *, stepped: bool) -> bool:
        """A batch has ended, and with ``stepped`` a step of the optimizer. Returns whether to leave the epoch now."""
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
        # An epoch that only leads to the next validation costs one step.
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

    def _end_validation_batch(self, *_: Any, **__: Any) -> None:
        if self._recording is not None and self._validating:
            self._recording.timer.end_validation_batch()

    def _end_validation(self, *_: Any) -> None:
        recording = self._recording
        if recording is not None and self._validating:
            synchronize_devices()
            self._validating = False
            self._validations_seen += 1
            recording.timer.end_validation()
            recording.note()

    def _end_epoch(self) -> bool:
        """The epoch has ended. Returns whether enough has been measured."""
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
        epochs, steps = recording.epochs, recording.steps
        if enough and epochs is not None and steps is not None:  # one that is counted in steps is a single epoch
            self._cut_short |= recording.timer.steps < epochs * steps
        elif enough:
            self._cut_short |= epochs is None or epochs > self._epochs
        return enough

    def _release(self) -> Recording | None:
        recording = super()._release()
        if recording is not None:
            recording.redirected = self._scratch.redirected
        return recording

    def finish(self, error: BaseException | None = None) -> None:
        """The training has ended: by itself, by the probe, or by an exception."""
        self._finish(error)
        self._unprotect()

    def _end_early(self, error: BaseException | None, detail: str | None = None) -> None:
        super()._end_early(error, detail)
        self._unprotect()

    def _redirect(self, writers: Iterable[tuple[Any, str]]) -> None:
        """Redirect files to a scratch folder, unless the training is recorded whole."""
        if self.stop and self.protect_files and self._scratch is NOT_REDIRECTED:
            self._scratch = Scratch(writers)

    def _unprotect(self) -> None:
        self._scratch.close()
        self._scratch = NOT_REDIRECTED


def count_batches(updates: int, accumulate: int, in_epoch: int | None) -> int:
    """Batches of so many steps of the optimizer, each of ``accumulate``; the last step of an epoch may have fewer.

    >>> count_batches(40, 4, 63)
    158
    >>> count_batches(40, 4, None)
    160
    """
    if not in_epoch:
        return updates * accumulate
    epochs, more = divmod(updates, math.ceil(in_epoch / accumulate))
    return epochs * in_epoch + more * accumulate


class LightningProbe(TrainerProbe):
    """A callback that measures a few batches and validations of a Lightning training, then ends it.

    It takes the arguments of :class:`~vmselect.IterationProbe`, except ``validation_steps``. A step is a batch; with
    ``accumulate_grad_batches`` a reading covers all batches up to the step of the optimizer. A training whose length
    is given by ``max_steps`` is recorded as one epoch of so many steps.

    ::

        trainer = lightning.Trainer(max_epochs=50, callbacks=[vs.LightningProbe("profiles/")])
        trainer.fit(model, train_loader, validation_loader)

    >>> LightningProbe(steps=5).steps
    5
    """

    _limits: tuple[Any, Any] | None = None

    @property
    def state_key(self) -> str:
        """Called by Lightning: the name of the callback's state in a checkpoint."""
        return type(self).__qualname__

    _legacy_state_key = state_key

    def state_dict(self) -> dict[str, Any]:
        """Called by Lightning: a checkpoint contains no state of the probe."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Called by Lightning: there is no state to restore."""

    def protect(self, trainer: Any) -> None:
        """Redirect checkpoints and logs of ``trainer`` to a scratch folder, unless the training is recorded whole."""
        writers = [trainer, *trainer.callbacks, *trainer.loggers]
        self._redirect(
            (one, name) for one in writers for name in FOLDERS if isinstance(vars(one).get(name, 0), str | None)
        )

    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        """The trainer is set up: the earliest event."""
        if stage == "fit":
            self.protect(trainer)
            self._begin()

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """The first epoch is about to begin."""
        recording, loop = self._recording, trainer.fit_loop
        if recording is None:
            return
        batches = loop.max_batches if math.isfinite(loop.max_batches) else None
        accumulate = trainer.accumulate_grad_batches
        steps, epochs = batches, trainer.max_epochs if trainer.max_epochs not in (None, -1) else None
        if epochs is None and trainer.max_steps > 0 and self.stop:
            steps, epochs = count_batches(trainer.max_steps, accumulate, batches), 1
        each = trainer.val_check_batch
        often = steps / each if steps and each and math.isfinite(each) and each < steps else 1.0
        self._describe(
            recording,
            module,
            _first(trainer.train_dataloader),
            steps=steps,
            epochs=epochs,
            validation_freq=trainer.check_val_every_n_epoch or 1,
            validations_per_epoch=often,
            validates=bool(trainer.enable_validation),
        )
        # With accumulated gradients nothing waits for the GPU after each batch.
        if accumulate == 1 or module.device.type == "cpu":
            recording.observation.time_fetches(loop.epoch_loop, "_on_before_fetch", "_on_after_fetch")
        self._updates = trainer.global_step
        if self.stop:
            # A minimum that the user has set would prevent the end of the training.
            self._limits = (loop.min_epochs, loop.epoch_loop.min_steps)
            loop.min_epochs, loop.epoch_loop.min_steps = None, None

    on_train_epoch_start = TrainerProbe._begin_epoch
    on_validation_batch_end = TrainerProbe._end_validation_batch
    on_validation_end = TrainerProbe._end_validation

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch has ended."""
        updates = trainer.global_step
        stepped, self._updates = updates != self._updates, updates
        if self._end_batch(stepped=stepped or trainer.is_last_batch):
            trainer.should_stop = True

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """A validation begins, perhaps the sanity check."""
        if not trainer.sanity_checking:
            self._begin_validation()

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """An epoch has ended: continue with the next, or end the training."""
        cut = self._cut_epoch
        if self._end_epoch():
            trainer.should_stop = True
        elif cut:
            trainer.should_stop = False

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """The training has failed."""
        self._restore(trainer)
        self.finish(exception)

    def teardown(self, trainer: Any, module: Any, stage: str) -> None:
        """The trainer has finished."""
        if stage == "fit":
            self._restore(trainer)
            self.finish()

    def _restore(self, trainer: Any) -> None:
        if self._limits is not None:
            trainer.fit_loop.min_epochs, trainer.fit_loop.epoch_loop.min_steps = self._limits
            self._limits = None


def _first(loaders: Any) -> Any:
    """The loader, or the first of several."""
    while isinstance(loaders, (list, tuple, dict)) and loaders:
        loaders = next(iter(loaders.values())) if isinstance(loaders, dict) else loaders[0]
    return loaders


class HuggingFaceProbe(TrainerProbe):
    """A callback that measures a few batches and evaluations of a Hugging Face ``Trainer``, then ends it.

    It takes the arguments of :class:`~vmselect.IterationProbe`, except ``validation_steps``. A step is a batch; with
    ``gradient_accumulation_steps`` a reading covers all batches up to the step of the optimizer. A training whose
    length is given by ``max_steps``, or is no whole number of epochs, is recorded as one epoch of so many steps.

    ::

        probe = vs.HuggingFaceProbe("profiles/")
        trainer = transformers.Trainer(model, arguments, train_dataset=data, callbacks=[probe])
        trainer.train()

    >>> HuggingFaceProbe(steps=5).steps
    5
    """

    _begun = False
    """Whether a recording has begun before ``on_train_begin``."""

    def begin(self, arguments: Any) -> None:
        """``train`` has been called. Without this call the recording begins with the first event of the training."""
        self._end_early(None)  # the trainer calls no callback when it fails: an earlier training may have
        self._redirect([(arguments, "output_dir"), (arguments, "logging_dir")])
        self._begin(alive=watch_call(sys._getframe(), "train"))
        self._begun = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """The first epoch is about to begin."""
        if not self._begun or self._recording is None:
            self.begin(args)
        self._begun = False
        recording = self._recording
        if recording is None:
            return
        loader, accumulate = known.get("train_dataloader"), args.gradient_accumulation_steps
        if _word(args.save_strategy) == "steps" and 1 <= state.save_steps <= state.max_steps:
            recording.saving, recording.save_freq = "batches", int(state.save_steps) * accumulate
        steps = in_epoch = length_of(loader)
        epochs: int | None = state.num_train_epochs if in_epoch else None
        # The state holds epochs rounded up.
        in_steps = self.stop and (args.max_steps > 0 or args.num_train_epochs != state.num_train_epochs)
        if in_steps:
            steps, epochs = count_batches(state.max_steps, accumulate, in_epoch), 1
        strategy = _word(args.eval_strategy)
        self._forced = strategy == "steps" and bool(state.eval_steps)
        if self._forced and steps:
            often = steps / accumulate / state.eval_steps
        else:
            often = state.num_train_epochs if in_steps and in_epoch and strategy == "epoch" else 1.0
        self._describe(
            recording,
            known["model"],
            loader,
            steps=steps,
            epochs=epochs,
            validation_freq=max(1, round(1 / often)),
            validations_per_epoch=max(1.0, often),
            validates=strategy in ("steps", "epoch") and not (often < 1 and in_steps),
        )
        calls = walk_up(sys._getframe())
        trainer = next((local.get("self") for name, local in calls if name == "_inner_training_loop"), None)
        recording.observation.time_fetches(trainer, "get_batch_samples", "get_batch_samples")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """An epoch begins."""
        self._end_epoch()  # unless it has ended already
        self._begin_epoch()

    def on_step_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """The batches of a step begin. No event follows if one fails, so files are not redirected meanwhile."""
        self._scratch.put_back()

    def on_substep_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """A batch has ended whose gradients are accumulated."""
        self._end_batch(stepped=False)

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """The optimizer has stepped; a checkpoint may follow."""
        self._scratch.send_away()
        if self._end_batch(stepped=True):
            control.should_epoch_stop = True
            control.should_evaluate = control.should_evaluate or self._forced
        if control.should_evaluate:
            self._begin_validation()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """A validation batch has ended."""
        self._scratch.put_back()
        self._end_validation_batch()

    def on_evaluate(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """A validation has ended; a checkpoint may follow."""
        self._end_validation()
        self._scratch.send_away()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """The steps of an epoch have ended; its evaluation, and perhaps a checkpoint, are still to come."""
        self._scratch.send_away()
        coming = int(control.should_evaluate)
        if coming:
            self._begin_validation()
        # The evaluation still belongs to this epoch, and whether it is the last is decided now.
        self._validations_seen += coming
        if self._end_epoch():
            control.should_training_stop = True
        self._validations_seen -= coming

    def on_train_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """The training has ended, and the best model has been loaded if requested."""
        self.finish()


def _word(strategy: Any) -> str:
    return str(getattr(strategy, "value", strategy))
