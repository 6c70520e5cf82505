"""Reads arguments of a running Keras ``fit``, which Keras does not pass to callbacks, from the stack frame of ``fit``.

Keras passes only the number of epochs and steps to callbacks. Batch size, validation frequency and the kind of data are
arguments and local variables of ``fit``. A value is unknown if a version of Keras gives its variable another name.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from types import FrameType
from typing import Any, NamedTuple

from vmselect.probe.environment import attempt

FRAMES_UP = 12
"""Number of calling functions that are searched for ``fit``, from the callback upwards. In Keras 3 it is the second."""


@dataclass(frozen=True)
class FitFacts:
    """Arguments of one call of ``fit``, and properties of its data; None if unknown."""

    callback_list: weakref.ref[Any] | None = None
    """Weak reference to Keras' callback list, which is deleted when ``fit`` ends."""
    threaded: bool = False
    """Whether Keras calls ``on_train_batch_end`` from worker threads."""
    test_threaded: bool = False
    """Whether Keras calls ``on_test_batch_end`` from worker threads."""
    batch_size: int | None = None
    partial_batch: int | None = None
    validation_steps: int | None = None
    validation_freq: int | Collection[int] = 1
    has_validation: bool | None = None
    can_restart: bool = True
    """Whether Keras can start another epoch after the probe ended one early."""
    self_tuning_input: bool | None = None
    """Whether the data comes from a tf.data pipeline with autotuning."""
    continuous_input: bool | None = None
    """Whether one iterator over endless data provides the batches of all epochs."""

    def times(self, feeders: int) -> FitFacts:
        """Return a copy with the total batch sizes of ``feeders`` processes, each of which adds a batch to a step."""
        sizes = {name: getattr(self, name) for name in ("batch_size", "partial_batch")}
        return replace(self, **{name: size * feeders for name, size in sizes.items() if size is not None})

    def validates_between(self, first: int, end: int) -> bool:
        """Return whether Keras validates after any of the epochs ``first`` to ``end - 1``, counted from 0.

        Return False if it is unknown whether the training has validation data.
        """
        frequency = self.validation_freq
        if not self.has_validation:
            return False
        if isinstance(frequency, int):  # Keras counts epochs from 1 here: it validates after each multiple
            return frequency > 0 and end // frequency > first // frequency
        return any(first < number <= end for number in frequency)


class Schedule(NamedTuple):
    """Epochs with a validation, counted from 1: from ``first`` to ``last``, every ``every`` epochs.

    If ``first`` is None, it equals ``every``. If ``last`` is None, the validations continue until the training ends.
    """

    every: int
    first: int | None = None
    last: int | None = None


def read_schedule(
    frequency: int | Collection[int], *, initial_epoch: int = 0, epochs: int | None = None
) -> Schedule | None:
    """Convert Keras' ``validation_freq`` to a schedule, counted from the first epoch; None if there are no validations.

    A list of epochs at unequal distances becomes a schedule with the same number of validations. If the list reaches
    the end of the training (``epochs``), the schedule has no end, so that it also applies to a longer training.

    >>> read_schedule(range(1000, 4001, 20), epochs=4000)
    Schedule(every=20, first=1000, last=None)
    >>> read_schedule([1, 2, 10], epochs=100)
    Schedule(every=4, first=1, last=9)
    """
    if isinstance(frequency, int):
        every = max(1, frequency)
        first = every - initial_epoch % every
        return Schedule(every, first if first != every else None)
    numbers = sorted({int(one) - initial_epoch for one in frequency if isinstance(one, Integral)})
    remaining = None if epochs is None else epochs - initial_epoch
    numbers = [one for one in numbers if one > 0 and (remaining is None or one <= remaining)]
    if not numbers:
        return None
    first, more = numbers[0], len(numbers) - 1
    every = (numbers[-1] - first) // more if more else first
    last = first + every * more
    continues = remaining is not None and last + every > remaining
    return Schedule(every, first if first != every else None, None if continues else last)


def read_fit(frame: FrameType | None) -> FitFacts:
    """Return the arguments of the Keras ``fit`` call found among the callers of ``frame``."""
    local, callback_list = find_call(frame, "fit")
    return _describe_list(callback_list) if local is None else _read_locals(local, callback_list)


def find_call(frame: FrameType | None, function: str) -> tuple[dict[str, Any] | None, Any]:
    """Find Keras' ``function``, such as "fit", among the callers of ``frame``; return its locals and its callback list.

    Each of the two is None if it was not found.
    """
    callback_list: Any = None
    for name, local in walk_up(frame):
        if callback_list is None and hasattr(local.get("self"), "_async_train"):
            callback_list = local["self"]
        if name == function and "callbacks" in local:
            return local, callback_list
    return None, callback_list


def walk_up(frame: FrameType | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and local variables of the function of ``frame`` and of its callers, ``FRAMES_UP`` at most."""
    for _ in range(FRAMES_UP):
        if frame is None:
            return
        yield frame.f_code.co_name, frame.f_locals
        frame = frame.f_back


def _read_locals(local: dict[str, Any], callback_list: Any) -> FitFacts:
    adapter: Any = getattr(local.get("epoch_iterator"), "data_adapter", None)
    frequency = local.get("validation_freq", 1)
    batches, partial = attempt(lambda: adapter.num_batches), attempt(lambda: adapter.partial_batch_size)
    if partial is None and attempt(lambda: adapter.has_partial_batch) is False:
        partial = 0
    if local.get("steps_per_epoch") not in (None, batches):
        partial = None  # an epoch is not one pass over the data, so the size of its last batch is unknown
    return replace(
        _describe_list(callback_list),
        batch_size=positive(attempt(lambda: adapter.batch_size)),
        partial_batch=partial if isinstance(partial, int) else None,
        validation_steps=positive(local.get("validation_steps")),
        validation_freq=frequency if isinstance(frequency, (int, Collection)) else 1,
        has_validation=local["validation_data"] is not None if "validation_data" in local else None,
        # The worker threads of a PyDataset outlive an epoch that was cut short, and cannot be started again.
        can_restart="PyDataset" not in type(adapter).__name__,
        self_tuning_input=None if adapter is None else _tunes_itself(local["epoch_iterator"], adapter),
        # Keras creates a new iterator at each epoch, unless steps_per_epoch is given for endless data.
        continuous_input=None if adapter is None else batches is None and local.get("steps_per_epoch") is not None,
    )


def _tunes_itself(iterator: Any, adapter: Any) -> bool:
    enabled = attempt(lambda: [adapter._dataset.options().autotune.enabled])
    if enabled is not None:  # a tf.data dataset, with autotuning unless disabled
        return bool(enabled[0] is not False)
    # On TensorFlow Keras converts all data to tf.data, and turns autotuning off for a PyDataset only.
    return type(iterator).__name__.startswith("TF") and "PyDataset" not in type(adapter).__name__


def _describe_list(callback_list: Any) -> FitFacts:
    return FitFacts(
        callback_list=None if callback_list is None else weakref.ref(callback_list),
        threaded=bool(getattr(callback_list, "_async_train", False)),
        test_threaded=bool(getattr(callback_list, "_async_test", False)),
    )


def find_earliest_stop(callbacks: Iterable[Any]) -> int | None:
    """Return the least number of epochs after which early stopping can end the training; None if it is not used."""
    earliest = [
        max(0, getattr(one, "start_from_epoch", 0)) + max(1, getattr(one, "patience", 0)) + 1
        for one in callbacks
        if any(kind.__name__ == "EarlyStopping" for kind in type(one).__mro__)
    ]
    return min(earliest, default=None)


def positive(value: Any) -> int | None:
    """Return ``value`` if it is a positive integer, else None."""
    return int(value) if isinstance(value, int) and value > 0 else None
