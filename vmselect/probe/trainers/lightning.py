"""The probe for Lightning: a callback of its ``Trainer``, of either package that it comes in."""

from __future__ import annotations

import math
from typing import Any

from vmselect.probe.scratch import Scratch
from vmselect.probe.trainers.base import TrainerProbe, count_batches

WHERE = ("_default_root_dir", "dirpath", "_root_dir", "_save_dir")
"""What trainer, checkpoints and loggers call the folder that they write to."""


class LightningProbe(TrainerProbe):
    """A callback that measures a few batches and validations of a Lightning training, then ends it.

    It takes the arguments of :class:`~vmselect.IterationProbe`, but for ``validation_steps``. A step is a batch; with
    ``accumulate_grad_batches`` a reading covers all batches up to the step of the optimizer. A training whose length
    is given by ``max_steps`` is recorded as one epoch of so many.

    ::

        trainer = lightning.Trainer(max_epochs=50, callbacks=[vs.LightningProbe("profiles/")])
        trainer.fit(model, train_loader, validation_loader)

    >>> LightningProbe(steps=5).steps
    5
    """

    _limits: tuple[Any, Any] | None = None

    @property
    def state_key(self) -> str:
        """Lightning's own: what to call the callback's state in a checkpoint."""
        return type(self).__qualname__

    _legacy_state_key = state_key

    def state_dict(self) -> dict[str, Any]:
        """Lightning's own: nothing of the probe belongs into a checkpoint."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Lightning's own: there is nothing to restore."""

    def protect(self, trainer: Any) -> None:
        """Let checkpoints and logs of ``trainer`` go to a scratch folder, unless the training is watched whole."""
        if self.stop and self.protect_files and self._scratch is None:
            writers = [trainer, *trainer.callbacks, *trainer.loggers]
            self._scratch = Scratch(
                (one, name) for one in writers for name in WHERE if isinstance(vars(one).get(name, 0), str | None)
            )

    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        """The trainer gets ready: the earliest event."""
        if stage == "fit":
            self.protect(trainer)
            self._begin()

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """The first epoch is about to begin."""
        loop = trainer.fit_loop
        batches = loop.max_batches if math.isfinite(loop.max_batches) else None
        accumulate = trainer.accumulate_grad_batches
        steps, epochs = batches, trainer.max_epochs if trainer.max_epochs not in (None, -1) else None
        if epochs is None and trainer.max_steps > 0 and self.stop:
            steps, epochs = count_batches(trainer.max_steps, accumulate, batches), 1
        each = trainer.val_check_batch
        often = steps / each if steps and each and math.isfinite(each) and each < steps else 1.0
        self._describe(
            module,
            _first(trainer.train_dataloader),
            steps=steps,
            epochs=epochs,
            validation_freq=trainer.check_val_every_n_epoch or 1,
            validations_per_epoch=often,
            validates=bool(trainer.enable_validation),
        )
        # Where gradients of several batches are added up, no GPU is waited for after each of them.
        if accumulate == 1 or module.device.type == "cpu":
            self._time_fetches(loop.epoch_loop, "_on_before_fetch", "_on_after_fetch")
        self._updates = trainer.global_step
        if self.stop:
            # A minimum that the user has set would keep the trainer from being ended.
            self._limits = (loop.min_epochs, loop.epoch_loop.min_steps)
            loop.min_epochs, loop.epoch_loop.min_steps = None, None

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        """An epoch begins."""
        self._begin_epoch()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch has ended."""
        updates = trainer.global_step
        stepped, self._updates = updates != self._updates, updates
        if self._end_batch(stepped=stepped or trainer.is_last_batch):
            trainer.should_stop = True

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """A validation begins, perhaps the one that only checks whether validating works."""
        if not trainer.sanity_checking:
            self._begin_validation()

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """A validation batch has ended."""
        self._end_validation_batch()

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """A validation has ended."""
        self._end_validation()

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """An epoch has ended: go on to the next, or end the training."""
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
        """The trainer is done."""
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
