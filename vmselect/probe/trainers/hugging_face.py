"""The probe for Hugging Face's ``Trainer``: one of its callbacks."""

from __future__ import annotations

import sys
from typing import Any

from vmselect.probe.facts.framework import length_of
from vmselect.probe.keras.fit import walk_up
from vmselect.probe.observation import watch_call
from vmselect.probe.scratch import Scratch
from vmselect.probe.trainers.base import TrainerProbe, count_batches


class HuggingFaceProbe(TrainerProbe):
    """A callback that measures a few batches and evaluations of a Hugging Face ``Trainer``, then ends it.

    It takes the arguments of :class:`~vmselect.IterationProbe`, but for ``validation_steps``. A step is a batch; with
    ``gradient_accumulation_steps`` a reading covers all batches up to the step of the optimizer. A training whose
    length is given by ``max_steps``, or is no whole number of epochs, is recorded as one epoch of so many.

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
        """``train`` has been called; without this call the recording begins with the first event of the training.

        The trainer calls no callback when it fails: an earlier training may have failed, with another
        output folder. While this one lasts, ``train`` is among the calls of this thread.
        """
        self._end_early(None, None)
        self.protect(arguments)
        self._begin(alive=watch_call(sys._getframe(), "train"))
        self._begun = True

    def protect(self, arguments: Any) -> None:
        """Let checkpoints and logs go to a scratch folder, unless the training is watched whole."""
        if self.stop and self.protect_files and self._scratch is None:
            self._scratch = Scratch([(arguments, "output_dir"), (arguments, "logging_dir")])

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Everything is ready for the first epoch."""
        if not self._begun or self._recording is None:
            self.begin(args)
        self._begun = False
        saves = _word(args.save_strategy) == "steps" and 1 <= state.save_steps <= state.max_steps
        if self._recording is not None and saves:
            self._recording.saving = "batches"
            self._recording.save_freq = int(state.save_steps) * args.gradient_accumulation_steps
        loader, accumulate = known.get("train_dataloader"), args.gradient_accumulation_steps
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
        self._time_fetches(trainer, "get_batch_samples", "get_batch_samples")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """An epoch begins."""
        self._end_epoch()  # unless it has ended already
        self._begin_epoch()

    def on_step_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """The batches of a step begin. If one fails, no event follows: nothing is redirected meanwhile."""
        if self._scratch is not None:
            self._scratch.put_back()

    def on_substep_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """A batch has ended whose gradients are kept for later."""
        self._end_batch(stepped=False)

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """The optimizer has stepped; a checkpoint may follow."""
        self._send_away()
        if self._end_batch(stepped=True):
            control.should_epoch_stop = True
            control.should_evaluate = control.should_evaluate or self._forced
        if control.should_evaluate:
            self._begin_validation()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """A validation batch has ended."""
        if self._scratch is not None:
            self._scratch.put_back()
        self._end_validation_batch()

    def on_evaluate(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """A validation has ended; a checkpoint may follow."""
        self._end_validation()
        self._send_away()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """The steps of an epoch have ended; its evaluation, and perhaps a checkpoint, are still to come."""
        self._send_away()
        if control.should_evaluate:
            self._begin_validation()
            coming = 1
        else:
            coming = 0
        # What comes after belongs to this epoch still; whether it is the last is decided now.
        self._validations_seen += coming
        if self._end_epoch():
            control.should_training_stop = True
        self._validations_seen -= coming

    def on_train_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """The training has ended, and the best model has been loaded where that was wanted."""
        self.finish()

    def _send_away(self) -> None:
        if self._scratch is not None:
            self._scratch.send_away()


def _word(strategy: Any) -> str:
    return str(getattr(strategy, "value", strategy))
