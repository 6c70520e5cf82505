"""Probes for the trainers of two libraries: :class:`LightningProbe` and :class:`HuggingFaceProbe`.

A step is a batch, as in ``steps_per_epoch``. If the gradients of several batches are accumulated, a reading covers
all batches up to the optimizer's update.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sized
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from vmselect.describing.huggingface import Schedule, measure_evaluation, name_strategy, read_precision
from vmselect.describing.validations import UNKNOWN_SIZE, ValidationSize, add_sizes, measure_validation
from vmselect.probe.checkpoints import Scratch
from vmselect.probe.environment import (
    Batch,
    Callback,
    Loader,
    Model,
    Optimizer,
    Trainer,
    length_of,
    synchronize_devices,
    walk_up,
)
from vmselect.probe.facts import find_earliest_stop
from vmselect.probe.recording import Recording, StepProbe
from vmselect.probe.sampling import watch_call

if TYPE_CHECKING:
    from vmselect.records.training import Ending

Arguments: TypeAlias = Any
State: TypeAlias = Any
Control: TypeAlias = Any

FOLDERS = ("_default_root_dir", "dirpath", "_root_dir", "_save_dir")
"""Attributes of Lightning's trainer, checkpoints and loggers that contain the path of a folder."""

NOT_REDIRECTED = Scratch(())


class TrainerProbe(StepProbe):
    """Base class of the probes for trainers. A subclass implements the callbacks of its library."""

    _remedy = "Add the probe to the callbacks of the trainer, and train first."
    stated_precision = None  # no annotation: it is no argument of the probe
    """Mixed precision that the trainer was asked for, if the computer of a description would use another one."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        # A trainer calls every method of a callback; most need no action.
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
        """Start recording a training, before model and data are known.

        ``alive()`` returns whether the training still runs, for a trainer that does not report every end.
        """
        self._close("interrupted")  # an earlier training whose end was not reported
        scratch = self._scratch
        self._reset()
        self._start(self, backend="torch", alive=alive)
        self._scratch = scratch

    def _describe(
        self,
        recording: Recording,
        model: Model,
        loader: Loader,
        *,
        steps: int | None,
        epochs: int | None,
        validation_freq: int,
        validations_per_epoch: float,
        validates: bool,
        optimizers: Callable[[], Iterable[Optimizer]],
        validation: Callable[[], ValidationSize],
    ) -> None:
        """Record properties of model, data and validations. ``steps`` is the number of batches per epoch."""
        with recording.timer.leave_out():
            self._validates = validates
            facts = recording.facts
            facts.model_name = type(model).__name__
            weights = [
                (name, tuple(weight.shape), bool(weight.requires_grad)) for name, weight in model.named_parameters()
            ]
            facts.describe_torch(weights, loader, workers=recording.workers)
            recording.torch_state = lambda: ([*model.parameters(), *model.buffers()], optimizers())
            recording.calls.watch(model)
            recording.calls.on_call = self._end_described
            facts.steps, facts.epochs = steps, epochs
            # Each worker may validate on its part of the data, or on all of them.
            stated = validation() if validates and recording.workers == 1 else UNKNOWN_SIZE
            schedule = replace(facts.fit, validation_freq=validation_freq, has_validation=validates)
            facts.fit = schedule.with_validation(stated)
            once = math.isclose(validations_per_epoch, 1)
            facts.validations_per_epoch = None if once else validations_per_epoch
            data, size = getattr(loader, "dataset", None), facts.counted_batch_size
            if isinstance(data, Sized) and size and recording.workers == 1 and not getattr(loader, "drop_last", True):
                facts.counted_examples = len(data) if math.ceil(len(data) / size) == steps else None

    def _begin_epoch(self, *_: Any, **__: Any) -> None:
        recording = self._recording
        if recording is not None:
            self._batches = self._read = 0
            self._cut_epoch = False
            recording.timer.begin_epoch(self._epochs)
            recording.timer.open()

    def _end_batch(self, *, stepped: bool) -> bool:
        """Record that a batch has ended. Return whether the probe ends the epoch here.

        ``stepped`` is True if the optimizer has updated the weights after this batch.
        """
        recording = self._recording
        if recording is None:
            return False
        self._batches += 1
        if not stepped:
            return False
        final = self._batches == recording.facts.steps
        # An epoch that is run only for its validation is cut short after one step.
        passing = self._epochs >= max(1, self.validations)
        late = recording.is_late(self.seconds)
        reached = self._read <= self.steps < self._batches
        covers, first, self._read = self._batches - self._read, not self._read, self._batches
        if not recording.end_step(self._batches - 1, covers, last=self.stop and (passing or late or reached)):
            return recording.stop_requested
        if not self._epochs and first:
            recording.note()
        if not self.stop or final:
            return recording.stop_requested
        enough = self._batches > self.steps and recording.is_steady(self.steady_seconds)
        if passing or enough or late:
            self._cut_epoch = self._cut_short = True
        return self._cut_epoch

    def _begin_validation(self) -> None:
        recording = self._recording
        if recording is not None and recording.saw_anything and not self._validating:
            recording.close_block()
            synchronize_devices()
            self._validating = True
            recording.timer.begin_validation()

    def _end_validation_batch(self, *_: Any, **__: Any) -> None:
        if self._recording is not None and self._validating:
            self._recording.timer.end_validation_batch()

    def _end_validation(self, *_: Any, **__: Any) -> None:
        recording = self._recording
        if recording is not None and self._validating:
            synchronize_devices()
            self._validating = False
            self._validations_seen += 1
            recording.timer.end_validation()
            recording.note()

    def _end_epoch(self) -> bool:
        """Record that the epoch has ended. Return whether the probe has measured enough to end the training."""
        recording = self._recording
        if recording is None or recording.timer.current is None:
            return False
        recording.close_block()
        # A trainer may itself end an epoch early, for example when max_steps is reached.
        whole = not self._cut_epoch and recording.facts.steps in (None, self._batches)
        if whole and recording.facts.steps is None:
            recording.facts.counted_steps = self._batches
        recording.timer.end_epoch(complete=whole)
        recording.note()
        self._epochs += 1
        if not self.stop:
            return recording.stop_requested
        seen = self._validations_seen >= self.validations or not self._validates
        enough = (self._epochs >= max(1, self.validations) and seen) or recording.is_late(self.seconds)
        epochs, steps = recording.facts.epochs, recording.facts.steps
        if enough and epochs is not None and steps is not None:  # a training limited by max_steps is a single epoch
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
        """End the recording after the training has ended, by itself, by the probe or by the exception ``error``."""
        earlier = self._profile
        self._finish(error)
        self._unprotect()
        if error is None:
            self._exit_if_stopped(earlier)

    def _end_early(self, error: BaseException | None, ending: Ending | None = None) -> None:
        super()._end_early(error, ending)
        self._unprotect()

    def _redirect(self, writers: Iterable[tuple[Callback, str]]) -> None:
        """Redirect the files of ``writers`` to a scratch folder, if the probe will end the training early.

        ``writers`` contains objects, each with the name of its attribute that contains a path.
        """
        if self.stop and self.protect_files and self._scratch is NOT_REDIRECTED:
            self._scratch = Scratch(writers)

    def _unprotect(self) -> None:
        self._scratch.close()
        self._scratch = NOT_REDIRECTED


def count_batches(updates: int, accumulate: int, in_epoch: int | None) -> int:
    """Return the number of batches in ``updates`` of the optimizer, each of which accumulates ``accumulate`` batches.

    The last update of an epoch of ``in_epoch`` batches may have fewer batches.

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
    """A callback that measures a few batches and validations of a Lightning training, then ends the training.

    It takes the arguments of :class:`~vmselect.IterationProbe`, except ``validation_steps``. A step is a batch; with
    ``accumulate_grad_batches`` a reading covers all batches up to the optimizer's update. A training whose length is
    given by ``max_steps`` is recorded as a single epoch with this number of steps.

    ::

        trainer = lightning.Trainer(max_epochs=50, callbacks=[vs.LightningProbe("profiles/")])
        trainer.fit(model, train_loader, validation_loader)

    >>> LightningProbe(steps=5).steps
    5
    """

    _limits: tuple[int | None, int | None] | None = None

    @property
    def state_key(self) -> str:
        """Name of the callback's state in a checkpoint. Read by Lightning."""
        return type(self).__qualname__

    _legacy_state_key = state_key

    def state_dict(self) -> dict[str, object]:
        """Return an empty dict: checkpoints contain no state of the probe. Called by Lightning."""
        return {}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Do nothing: the probe has no state to restore. Called by Lightning."""

    def protect(self, trainer: Trainer) -> None:
        """Redirect checkpoints and logs of ``trainer`` to a scratch folder if the probe will end the training early."""
        writers = [trainer, *trainer.callbacks, *trainer.loggers]
        self._redirect(
            (writer, name)
            for writer in writers
            for name in FOLDERS
            if isinstance(vars(writer).get(name, 0), str | None)
        )

    def setup(self, trainer: Trainer, module: Model, stage: str) -> None:
        """Start recording a training. Called by Lightning, before all other callbacks."""
        if stage == "fit":
            self.protect(trainer)
            self._begin()

    def on_train_start(self, trainer: Trainer, module: Model) -> None:
        """Record model and data before the first epoch. Called by Lightning."""
        recording, loop = self._recording, trainer.fit_loop
        if recording is None:
            return
        batches = loop.max_batches if math.isfinite(loop.max_batches) else None
        accumulate = trainer.accumulate_grad_batches
        steps, epochs = batches, trainer.max_epochs if trainer.max_epochs not in (None, -1) else None
        total = count_batches(trainer.max_steps, accumulate, batches) if trainer.max_steps > 0 else None
        if epochs is None and total and (self.stop or not batches):
            steps, epochs = total, 1
        elif epochs is None and total and batches:
            epochs = math.ceil(total / batches)
        # A float val_check_interval has become a number of batches here; infinity means no validation within epochs.
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
            optimizers=lambda: trainer.optimizers,
            validation=lambda: _measure_loaders(trainer),
        )
        recording.calls.precision = self.stated_precision
        recording.facts.early_stopping = find_earliest_stop(trainer.callbacks)
        recording.facts.initial_epoch = trainer.current_epoch
        if total and not (steps and epochs and steps * epochs < total):
            recording.facts.steps_left = total - count_batches(trainer.global_step, accumulate, batches)
        recording.shows_progress = trainer.progress_bar_callback is not None
        # With accumulated gradients, the probe does not wait for the GPU after each batch.
        if accumulate == 1 or module.device.type == "cpu":
            recording.observation.time_fetches(loop.epoch_loop, "_on_before_fetch", "_on_after_fetch")
        self._updates = trainer.global_step
        if self.stop:
            # A minimum that the user has set would prevent the probe from ending the training.
            self._limits = (loop.min_epochs, loop.epoch_loop.min_steps)
            loop.min_epochs, loop.epoch_loop.min_steps = None, None

    on_train_epoch_start = TrainerProbe._begin_epoch
    on_validation_batch_end = TrainerProbe._end_validation_batch
    on_validation_end = TrainerProbe._end_validation

    def on_train_batch_end(
        self, trainer: Trainer, module: Model, outputs: object, batch: Batch, batch_idx: int
    ) -> None:
        """Record that a batch has ended. Called by Lightning."""
        updates = trainer.global_step
        stepped, self._updates = updates != self._updates, updates
        if self._end_batch(stepped=stepped or trainer.is_last_batch):
            trainer.should_stop = True

    def on_validation_start(self, trainer: Trainer, module: Model) -> None:
        """Record that a validation begins, unless it is the sanity check. Called by Lightning."""
        if not trainer.sanity_checking:
            self._begin_validation()

    def on_train_epoch_end(self, trainer: Trainer, module: Model) -> None:
        """Record that an epoch has ended; end the training if enough has been measured. Called by Lightning."""
        # Lightning ends the training after an epoch in which should_stop was set, unless it is reset here.
        cut = self._cut_epoch
        if self._end_epoch():
            trainer.should_stop = True
        elif cut:
            trainer.should_stop = False

    def on_exception(self, trainer: Trainer, module: Model, exception: BaseException) -> None:
        """End the recording of a training that has failed. Called by Lightning."""
        self._restore(trainer)
        self.finish(exception)

    def teardown(self, trainer: Trainer, module: Model, stage: str) -> None:
        """End the recording after the training. Called by Lightning."""
        if stage == "fit":
            self._restore(trainer)
            self.finish()

    def _restore(self, trainer: Trainer) -> None:
        if self._limits is not None:
            trainer.fit_loop.min_epochs, trainer.fit_loop.epoch_loop.min_steps = self._limits
            self._limits = None


def _measure_loaders(trainer: Trainer) -> ValidationSize:
    """Size of a validation of a Lightning ``trainer``, which may be limited to some batches of each loader."""
    loaders, limits = trainer.val_dataloaders, trainer.num_val_batches
    each = list(loaders.values()) if isinstance(loaders, dict) else loaders
    parts = list(each) if isinstance(each, (list, tuple)) else [each]
    if len(parts) != len(limits):  # loaders that are read together
        return UNKNOWN_SIZE
    sizes = map(measure_validation, parts)
    bounds = (int(limit) if math.isfinite(limit) else None for limit in limits)
    return add_sizes(size.limited(bound) for size, bound in zip(sizes, bounds, strict=True))


def _first(loaders: Loader) -> Loader:
    """Return ``loaders`` if it is one data loader, or the first loader of a list, tuple or dict."""
    while isinstance(loaders, (list, tuple, dict)) and loaders:
        loaders = next(iter(loaders.values())) if isinstance(loaders, dict) else loaders[0]
    return loaders


class HuggingFaceProbe(TrainerProbe):
    """A callback that measures a few batches and evaluations of a Hugging Face ``Trainer``, then ends the training.

    It takes the arguments of :class:`~vmselect.IterationProbe`, except ``validation_steps``. A step is a batch; with
    ``gradient_accumulation_steps`` a reading covers all batches up to the optimizer's update. A training whose length
    is given by ``max_steps``, or is not a whole number of epochs, is recorded as a single epoch.

    ::

        probe = vs.HuggingFaceProbe("profiles/")
        trainer = transformers.Trainer(model, arguments, train_dataset=data, callbacks=[probe])
        trainer.train()

    >>> HuggingFaceProbe(steps=5).steps
    5
    """

    _begun = False
    """Whether :meth:`begin` has started the recording before the trainer calls :meth:`on_train_begin`."""

    def begin(self) -> None:
        """Start recording a training.

        ``vmselect probe`` calls this when ``train`` is called; otherwise :meth:`on_train_begin` calls it.
        """
        self._end_early(None)  # an earlier training may have failed, for which the trainer calls no callback
        self._begin(alive=watch_call(sys._getframe(), "train"))
        self._begun = True

    def on_train_begin(self, args: Arguments, state: State, control: Control, **objects: Model) -> None:
        """Record model and data before the first epoch. Called by the trainer."""
        if not self._begun or self._recording is None:
            self.begin()
        self._begun = False
        # Not earlier: the trainer has found the checkpoint from which to resume in its own folder.
        self._redirect([(args, "output_dir"), (args, "logging_dir")])
        recording = self._recording
        if recording is None:
            return
        loader, accumulate = objects.get("train_dataloader"), args.gradient_accumulation_steps
        if name_strategy(args.save_strategy) == "steps" and 1 <= state.save_steps <= state.max_steps:
            recording.facts.saving, recording.facts.save_freq = "batches", int(state.save_steps) * accumulate
        steps = in_epoch = length_of(loader)
        epochs: int | None = state.num_train_epochs if in_epoch else None
        # In the state, the number of epochs is rounded up.
        limited = args.max_steps > 0 or args.num_train_epochs != state.num_train_epochs
        in_steps = limited and (self.stop or not in_epoch)
        total = count_batches(state.max_steps, accumulate, in_epoch)
        if in_steps:
            steps, epochs = total, 1
        strategy = name_strategy(args.eval_strategy)
        self._forced = strategy == "steps" and bool(state.eval_steps)
        if self._forced and steps:
            often = steps / accumulate / state.eval_steps
        else:
            often = state.num_train_epochs if in_steps and in_epoch and strategy == "epoch" else 1.0
        schedule = Schedule.of(often)
        calls = walk_up(sys._getframe())
        trainer = next((local.get("self") for name, local in calls if name == "_inner_training_loop"), None)
        self._describe(
            recording,
            objects["model"],
            loader,
            steps=steps,
            epochs=epochs,
            validation_freq=schedule.every,
            validations_per_epoch=schedule.per_epoch,
            validates=strategy in ("steps", "epoch") and not (often < 1 and in_steps),
            optimizers=lambda: [objects["optimizer"]],
            validation=lambda: UNKNOWN_SIZE if trainer is None else measure_evaluation(trainer),
        )
        recording.calls.precision = self.stated_precision or read_precision(args)
        recording.facts.early_stopping = _find_earliest_stop(trainer, often)
        recording.facts.initial_epoch = 0 if in_steps else int(state.epoch or 0)  # of a training that is resumed
        recording.facts.steps_left = total - count_batches(state.global_step, accumulate, in_epoch)
        recording.shows_progress = not args.disable_tqdm
        recording.observation.time_fetches(trainer, "get_batch_samples", "get_batch_samples")

    def on_epoch_begin(self, args: Arguments, state: State, control: Control, **objects: Model) -> None:
        """Record that an epoch begins. Called by the trainer."""
        self._end_epoch()  # the previous epoch, unless it has ended already
        self._begin_epoch()

    def on_step_begin(self, args: Arguments, state: State, control: Control, **objects: Model) -> None:
        """Restore the original paths of files until the step ends. Called by the trainer.

        If a step fails, the trainer calls no further callback, so the paths could not be restored after the failure.
        """
        self._scratch.put_back()

    def on_substep_end(self, args: Arguments, state: State, control: Control, **objects: Model) -> None:
        """Record that a batch with accumulated gradients has ended. Called by the trainer."""
        self._end_batch(stepped=False)

    def on_step_end(self, args: Arguments, state: State, control: Control, **objects: Model) -> None:
        """Record that a step has ended; redirect files, because a checkpoint may follow. Called by the trainer."""
        self._scratch.send_away()
        if self._end_batch(stepped=True):
            control.should_epoch_stop = True
            # If evaluations come every few steps, none would come in an epoch that is cut short: it is requested here.
            control.should_evaluate = control.should_evaluate or self._forced
        if control.should_evaluate:
            self._begin_validation()

    def on_prediction_step(self, args: Arguments, state: State, control: Control, **objects: Model) -> None:
        """Record that a validation batch has ended. Called by the trainer."""
        self._scratch.put_back()
        self._end_validation_batch()

    def on_evaluate(self, args: Arguments, state: State, control: Control, **objects: Model) -> None:
        """Record that a validation has ended; redirect files, as a checkpoint may follow. Called by the trainer."""
        self._end_validation()
        self._scratch.send_away()

    def on_epoch_end(self, args: Arguments, state: State, control: Control, **objects: Model) -> None:
        """Record that the steps of an epoch have ended, before its evaluation and checkpoint. Called by the trainer."""
        self._scratch.send_away()
        coming = int(control.should_evaluate)
        if coming:
            self._begin_validation()
        # The evaluation that follows belongs to this epoch, but whether to end the training is decided now.
        self._validations_seen += coming
        if self._end_epoch():
            control.should_training_stop = True
        self._validations_seen -= coming

    def on_train_end(self, args: Arguments, state: State, control: Control, **objects: Model) -> None:
        """End the recording after the training. Called by the trainer."""
        self.finish()


def _find_earliest_stop(trainer: Trainer, evaluations_per_epoch: float) -> int | None:
    """Return the least number of epochs after which a callback can end a training; None if there is no such callback.

    transformers counts the patience in evaluations: the first of them is the best so far.
    """
    callbacks = getattr(getattr(trainer, "callback_handler", None), "callbacks", ())
    waits = [
        callback.early_stopping_patience
        for callback in callbacks
        if any(kind.__name__ == "EarlyStoppingCallback" for kind in type(callback).__mro__)
    ]
    return max(1, math.ceil((min(waits) + 1) / evaluations_per_epoch)) if waits else None
