"""What a running ``fit`` knows and does not pass to callbacks: read once from its frame when training begins.

Keras hands a callback the number of epochs and steps, nothing else. Batch size, first epoch, validation frequency
and the kind of data are arguments and local variables of ``fit``. Reading them changes nothing, and each falls back
to "unknown" when a later Keras names it differently.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from vmselect.probe.environment import attempt

FRAMES_UP = 12
"""How far above the hook ``fit`` is looked for; in Keras 3 it is two frames up."""


@dataclass(frozen=True)
class FitFacts:
    """What ``fit`` was called with, as far as it can be read; None is unknown."""

    callback_list: weakref.ref[Any] | None = None
    """What calls the hooks; held weakly, for it lives exactly as long as the call."""
    threaded: bool = False
    """Whether Keras will call the batch hooks from worker threads."""
    batch_size: int | None = None
    partial_batch: int | None = None
    validation_steps: int | None = None
    validation_freq: int | Collection[int] = 1
    has_validation: bool | None = None
    can_restart: bool = True
    """Whether an epoch that was cut short can be followed by another."""
    self_tuning_input: bool | None = None
    """Whether the data come from a tf.data pipeline that tunes itself as it runs."""
    continuous_input: bool | None = None
    """Whether one pass over data without an end goes on through all epochs."""

    def times(self, feeders: int) -> FitFacts:
        """The same where so many processes bring such batches to every step."""
        batch, partial = self.batch_size, self.partial_batch
        return replace(
            self,
            batch_size=None if batch is None else batch * feeders,
            partial_batch=None if partial is None else partial * feeders,
        )

    def validates_between(self, first: int, end: int) -> bool:
        """Whether a validation will follow any of the epochs from ``first`` to before ``end``, as far as known."""
        if not self.has_validation:
            return False
        if isinstance(self.validation_freq, int):
            # Keras counts epochs from 1 here: it validates after each multiple.
            return end // self.validation_freq > first // self.validation_freq if self.validation_freq > 0 else False
        return any(first < number <= end for number in self.validation_freq)


def read_fit(frame: FrameType | None) -> FitFacts:
    """The facts of the ``fit`` that is running above ``frame``."""
    local, callback_list = find_call(frame, "fit")
    return _describe_list(callback_list) if local is None else _read_locals(local, callback_list)


def find_call(frame: FrameType | None, function: str) -> tuple[dict[str, Any] | None, Any]:
    """The variables of the call of Keras' ``function`` above ``frame``, and the callback list that it runs."""
    callback_list: Any = None
    for name, local in walk_up(frame):
        if callback_list is None and hasattr(local.get("self"), "_async_train"):
            callback_list = local["self"]
        if name == function and "callbacks" in local:
            return local, callback_list
    return None, callback_list


def walk_up(frame: FrameType | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and variables of each call from ``frame`` upwards, as far as Keras' own can reach."""
    for _ in range(FRAMES_UP):
        if frame is None:
            return
        yield frame.f_code.co_name, frame.f_locals
        frame = frame.f_back


def _read_locals(local: dict[str, Any], callback_list: Any) -> FitFacts:
    adapter: Any = getattr(local.get("epoch_iterator"), "data_adapter", None)
    frequency = local.get("validation_freq", 1)
    partial = attempt(lambda: adapter.partial_batch_size)
    if partial is None and attempt(lambda: adapter.has_partial_batch) is False:
        partial = 0
    if local.get("steps_per_epoch") not in (None, attempt(lambda: adapter.num_batches)):
        partial = None  # an epoch is not one pass over the data: its last batch may be any
    return replace(
        _describe_list(callback_list),
        batch_size=positive(attempt(lambda: adapter.batch_size)),
        partial_batch=partial if isinstance(partial, int) else None,
        validation_steps=positive(local.get("validation_steps")),
        validation_freq=frequency if isinstance(frequency, (int, Collection)) else 1,
        has_validation=local["validation_data"] is not None if "validation_data" in local else None,
        # Its worker threads outlive an epoch that was left early, and refuse to be started again.
        can_restart="PyDataset" not in type(adapter).__name__,
        self_tuning_input=None if adapter is None else _tunes_itself(local["epoch_iterator"], adapter),
        continuous_input=None if adapter is None else _goes_on(local.get("steps_per_epoch"), adapter),
    )


def _tunes_itself(iterator: Any, adapter: Any) -> bool:
    enabled = attempt(lambda: [adapter._dataset.options().autotune.enabled])
    if enabled is not None:  # a tf.data dataset: on, unless turned off
        return bool(enabled[0] is not False)
    # On TensorFlow Keras makes one of whatever data there are, and turns tuning off for a PyDataset only.
    return type(iterator).__name__.startswith("TF") and "PyDataset" not in type(adapter).__name__


def _goes_on(steps_per_epoch: Any, adapter: Any) -> bool:
    # Keras asks for a new iterator at each epoch, unless steps_per_epoch is given for endless data.
    return steps_per_epoch is not None and attempt(lambda: adapter.num_batches) is None


def _describe_list(callback_list: Any) -> FitFacts:
    return FitFacts(
        callback_list=None if callback_list is None else weakref.ref(callback_list),
        threaded=bool(getattr(callback_list, "_async_train", False)),
    )


def positive(value: Any) -> int | None:
    """A count, where ``value`` is one."""
    return int(value) if isinstance(value, int) and value > 0 else None
