"""What is known about model, data and schedule of a training, and how it becomes the setup of a profile.

Frameworks report some of these facts before the first step, others are counted while the training runs, so that most
can be unknown (None).
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from vmselect.probe.environment import Callback, CallbackList, Loader

if TYPE_CHECKING:
    from vmselect.describing.validations import ValidationSize
    from vmselect.records.training import Saving, Setup

ENDLESS_EPOCHS = 10**9
"""Number of epochs from which on it is no plan: something else ends such a training, as with epochs=sys.maxsize."""


@dataclass(frozen=True)
class FitFacts:
    """Arguments of one call of ``fit``, and properties of its data; None if unknown."""

    callback_list: weakref.ref[CallbackList] | None = None
    """Weak reference to Keras' callback list, which is deleted when ``fit`` ends."""
    threaded: bool = False
    """Whether Keras calls ``on_train_batch_end`` from worker threads."""
    test_threaded: bool = False
    """Whether Keras calls ``on_test_batch_end`` from worker threads."""
    batch_size: int | None = None
    partial_batch: int | None = None
    validation_steps: int | None = None
    validation_examples: int | None = None
    """Number of validation examples that the data state before the first step."""
    validation_batch_size: int | None = None
    validation_freq: int | Collection[int] = 1
    has_validation: bool | None = None
    can_restart: bool = True
    """Whether Keras can start another epoch after the probe ended one early."""
    self_tuning_input: bool | None = None
    """Whether the data comes from a tf.data pipeline with autotuning."""
    inputs: Any = None
    """Shape and type of the inputs of a batch, nested as the model takes them."""
    stated_batch_size: int | None = None
    """Batch size that the pipeline of the data states. A function of the user may change it, so a step counts it."""
    continuous_input: bool | None = None
    """Whether one iterator over endless data provides the batches of all epochs."""

    def times(self, feeders: int) -> FitFacts:
        """Return a copy with the total batch sizes of ``feeders`` processes, each of which adds a batch to a step."""
        names = ("batch_size", "partial_batch", "validation_batch_size")
        sizes = {name: getattr(self, name) for name in names}
        total = replace(self, **{name: size * feeders for name, size in sizes.items() if size is not None})
        # Each process may validate on its part of the data, or on all of them.
        return total if feeders == 1 else replace(total, validation_examples=None)

    def with_validation(self, size: ValidationSize) -> FitFacts:
        """Return a copy with the ``size`` of its validations. Batches are kept only if examples are not known."""
        stated = self.validation_steps
        return replace(
            self,
            validation_examples=size.examples,
            validation_steps=stated if stated or size.examples is not None else size.steps,
            validation_batch_size=size.batch_size,
        )

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


@dataclass
class TrainingFacts:
    """Model, data and schedule of a training. The probe of a framework sets what the framework reports."""

    stated_batch_size: int | None = None
    """Batch size that the user passed to the probe."""
    steps: int | None = None
    """Number of steps per epoch, as the framework reports it."""
    epochs: int | None = None
    steps_left: int | None = None
    """Number of steps from the start of this recording to the end of the training, if it may end within an epoch."""
    steps_per_execution: int = 1
    model_name: str | None = None
    parameters: int | None = None
    structure: str | None = None
    initial_epoch: int | None = None
    counted_batch_size: int | None = None
    counts_inputs: bool = False
    """Whether a call of the model is a step, so that its inputs show the batch size if nothing else does."""
    counted_steps: int | None = None
    counted_examples: int | None = None
    validation_examples: int | None = None
    validations_per_epoch: float | None = None
    saving: Saving | None = None
    save_freq: int | None = None
    early_stopping: int | None = None
    fit: FitFacts = field(default_factory=FitFacts)

    @property
    def stated_epochs(self) -> int | None:
        """Number of epochs of the training; None if it is unknown, or if the training ends for another reason."""
        return _finite(self.epochs)

    @property
    def batch_size(self) -> int | None:
        """Number of examples per step: the probe's argument, else read from the data, else counted; None if unknown."""
        return self.stated_batch_size or self.fit.batch_size or self.counted_batch_size

    @property
    def steps_per_epoch(self) -> int | None:
        """Number of steps in a complete epoch, reported by the framework or counted; None if unknown."""
        return self.steps or self.counted_steps

    @property
    def examples(self) -> int | None:
        """Number of training examples in an epoch, or None if unknown."""
        if self.counted_examples is not None:
            return self.counted_examples
        steps, batch_size = self.steps_per_epoch, self.fit.batch_size
        if steps is None or batch_size is None or self.fit.partial_batch is None:
            return None
        return steps * batch_size - (batch_size - self.fit.partial_batch if self.fit.partial_batch else 0)

    @property
    def partial_batch(self) -> int | None:
        """Number of examples in the smaller last batch of an epoch; 0 if there is none, None if unknown."""
        if self.counted_examples is not None and self.batch_size and self.steps_per_epoch:
            missing = self.steps_per_epoch * self.batch_size - self.counted_examples
            if 0 <= missing < self.batch_size:
                return self.batch_size - missing if missing else 0
        return self.fit.partial_batch

    def describe_torch(self, weights: Sequence[tuple[Any, ...]], loader: Loader, *, workers: int) -> None:
        """Set the size of a torch model and the batch size of its ``loader``, which each of ``workers`` processes has.

        Each tuple in ``weights`` describes a tensor; its last two items are its shape and whether it is trainable.
        """
        if weights:
            self.parameters = sum(math.prod(weight[-2]) for weight in weights)
            self.structure = hashlib.sha256(repr(weights).encode()).hexdigest()[:16]
        sampler = getattr(loader, "batch_sampler", None)
        size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
        self.counted_batch_size = size * workers if isinstance(size, int) else None

    def build(self, *, workers: int) -> Setup:
        """Return the facts as a profile stores them. ``workers`` is the number of processes that train together."""
        from vmselect.records.training import Setup, largest_share

        source: Literal["argument", "data"] | None = "argument" if self.stated_batch_size else "data"
        initial_epoch = self.initial_epoch or 0
        schedule = read_schedule(self.fit.validation_freq, initial_epoch=initial_epoch, epochs=self.stated_epochs)
        validates = self.fit.has_validation and schedule is not None
        stated = self.fit if validates else FitFacts()
        return Setup(
            model=self.model_name,
            parameters=self.parameters,
            structure=self.structure,
            batch_size=self.batch_size,
            worker_batch_size=largest_share(self.batch_size, workers),
            batch_size_source=source if self.batch_size else None,
            steps_per_epoch=self.steps_per_epoch,
            steps_per_execution=self.steps_per_execution,
            epochs=self.stated_epochs,
            initial_epoch=initial_epoch,
            examples=self.examples,
            partial_batch=self.partial_batch,
            validation_examples=stated.validation_examples
            if self.validation_examples is None
            else self.validation_examples,
            validation_steps=stated.validation_steps,
            validation_batch_size=stated.validation_batch_size
            if stated.validation_batch_size != self.batch_size
            else None,
            validates=validates,
            validation_freq=schedule.every if schedule else 1,
            validation_from=schedule.first if schedule else None,
            validation_until=schedule.last if schedule else None,
            validations_per_epoch=self.validations_per_epoch,
            saving=self.saving,
            save_freq=self.save_freq,
            early_stopping=_finite(self.early_stopping),
            self_tuning_input=self.fit.self_tuning_input,
            continuous_input=self.fit.continuous_input,
        )


def _finite(epochs: int | None) -> int | None:
    """``epochs``, or None for 0, because fit(epochs=0) trains nothing, and for :data:`ENDLESS_EPOCHS`."""
    return epochs if epochs and epochs < ENDLESS_EPOCHS else None


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
    numbers = sorted({int(number) - initial_epoch for number in frequency if isinstance(number, Integral)})
    remaining = None if epochs is None else epochs - initial_epoch
    numbers = [number for number in numbers if number > 0 and (remaining is None or number <= remaining)]
    if not numbers:
        return None
    first, more = numbers[0], len(numbers) - 1
    every = (numbers[-1] - first) // more if more else first
    last = first + every * more
    continues = remaining is not None and last + every > remaining
    return Schedule(every, first if first != every else None, None if continues else last)


def find_earliest_stop(callbacks: Iterable[Callback]) -> int | None:
    """Return the least number of epochs after which early stopping can end the training; None if it is not used."""
    earliest = [
        max(0, getattr(callback, "start_from_epoch", 0)) + max(1, getattr(callback, "patience", 0)) + 1
        for callback in callbacks
        if any(kind.__name__ == "EarlyStopping" for kind in type(callback).__mro__)
    ]
    return min(earliest, default=None)
