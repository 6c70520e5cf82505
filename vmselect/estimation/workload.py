"""Workloads: the size of a training, such as batch size, number of examples and steps per epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmselect._checks import MAX_COUNT, check_count, check_number, check_seconds, maybe, show, suggest_fields
from vmselect.errors import ArgumentError, EstimateError
from vmselect.records import Epoch, Profile, Setup

EVERY_EPOCH = "after every epoch"
"""Text of the default schedule of validations."""

MIN_COUNTS = {
    "batch_size": 1,
    "examples": 1,
    "partial_batch": 0,
    "validation_examples": 0,
    "validation_steps": 1,
    "validation_freq": 1,
    "validation_from": 1,
    "validation_until": 1,
}


@suggest_fields
@dataclass(frozen=True)
class Workload:
    """The size of a training. The value of a field that is None comes from the profile.

    ``steps_per_epoch`` may be fractional (the dissertation divides examples by batch size without rounding).
    ``partial_batch`` is the number of examples in the smaller last batch, or 0 if all batches have the same size.
    Validation follows epoch ``validation_from`` (by default ``validation_freq``) and every ``validation_freq`` epochs
    from there on, until epoch ``validation_until`` (by default until the end of the training).
    ``boot_seconds`` is the time that a machine takes to boot, which is added.

    >>> Workload.of(examples=1000, batch_size=64).steps_per_epoch
    16
    >>> Workload(batch_size=64.0).batch_size
    64
    """

    steps_per_epoch: float | None = None
    batch_size: int | None = None
    examples: int | None = None
    partial_batch: int | None = None
    validation_examples: int | None = None
    validation_steps: int | None = None
    validation_freq: int | None = None
    validation_from: int | None = None
    validation_until: int | None = None
    boot_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, least in MIN_COUNTS.items():
            object.__setattr__(self, name, maybe(check_count, name, getattr(self, name), least=least))
        object.__setattr__(self, "boot_seconds", maybe(check_seconds, "boot_seconds", self.boot_seconds))
        if self.steps_per_epoch is not None:
            steps = check_number("steps_per_epoch", self.steps_per_epoch, least=1, most=MAX_COUNT)
            object.__setattr__(self, "steps_per_epoch", int(steps) if steps.is_integer() else steps)

    @property
    def given(self) -> dict[str, Any]:
        """Names and values of the fields that are not None."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def validation_schedule(self) -> str:
        """Text that states after which epochs validation runs.

        >>> Workload(validation_from=1000, validation_freq=20).validation_schedule
        'after epoch 1000 and then every 20 epochs'
        """
        every, last = self.validation_freq or 1, self.validation_until
        first = self.validation_from or every
        until = f" until epoch {last}" if last else ""
        if every == 1:
            return f"{EVERY_EPOCH}{f' from epoch {first} on' if first > 1 else ''}{until}"
        return f"after epoch {first} and then every {every} epochs{until}"

    @classmethod
    def merge(cls, workload: Workload | None, fields: Mapping[str, Any]) -> Workload:
        """``workload`` combined with ``fields``. Raises ArgumentError if they contradict each other."""
        if workload is not None and not isinstance(workload, Workload):
            raise ArgumentError(f"workload must be a vmselect.Workload, not {show(workload)}.")
        single = cls(**fields).given
        whole = workload.given if workload else {}
        for name in single.keys() & whole.keys():
            if single[name] != whole[name]:
                raise ArgumentError(
                    f"{name}={single[name]} contradicts the workload, which has {whole[name]}. Pass {name} once."
                )
        return cls(**(whole | single))

    @classmethod
    def of(cls, profile: Profile | None = None, **fields: Any) -> Workload:
        """The workload of ``profile``, with values replaced by ``fields``.

        The number of steps per epoch is ``ceil(examples / batch_size)``, or rounded down if the profile shows that the
        input drops the remainder. The field ``steps_per_epoch`` overrides both.
        """
        title = profile.title if profile is not None else "workload"
        asked = cls(**fields)
        setup = profile.setup if profile is not None else Setup()
        examples = asked.examples
        if asked.batch_size and setup.batch_size and asked.batch_size != setup.batch_size:
            raise EstimateError(
                f"{title}: the profile was measured at batch size {setup.batch_size}, not {asked.batch_size}. Omit "
                f"batch_size=, or probe with batch size {asked.batch_size}."
            )
        batch = asked.batch_size or setup.batch_size
        if examples is not None and batch is None and asked.steps_per_epoch is None:
            raise EstimateError(
                f"{title}: the batch size is unknown, so the number of steps for {examples} examples is unknown too. "
                "Pass batch_size= or steps_per_epoch=."
            )
        # A smaller last batch is known if the number of steps follows from the number of examples.
        partial = 0
        steps = asked.steps_per_epoch
        if steps is not None:
            if batch and examples and math.ceil(examples / batch) == steps:
                partial = examples % batch
            elif examples is None and setup.steps_per_epoch == steps:
                partial = setup.partial_batch or 0
        elif examples is None or batch is None:
            steps, partial = _measured_steps(setup, profile.timeline.epochs if profile is not None else ())
        elif _drops_remainder(setup):
            steps = max(1, examples // batch)
        else:
            steps, partial = math.ceil(examples / batch), examples % batch
        # A new size replaces both fields of the profile, and a new schedule its other parts.
        same_validation = asked.validation_steps is None and asked.validation_examples is None
        reschedules = asked.validation_freq or asked.validation_from
        return cls(
            steps_per_epoch=steps,
            batch_size=batch,
            examples=setup.examples if examples is None else examples,
            partial_batch=partial if asked.partial_batch is None else asked.partial_batch,
            validation_examples=setup.validation_examples if same_validation else asked.validation_examples,
            validation_steps=setup.validation_steps if same_validation else asked.validation_steps,
            validation_freq=asked.validation_freq or setup.validation_freq,
            validation_from=asked.validation_from or (None if asked.validation_freq else setup.validation_from),
            validation_until=asked.validation_until or (None if reschedules else setup.validation_until),
        )

    def count_validation_batches(self, setup: Setup) -> float | None:
        """Number of batches of a training step with as many examples as a validation; None if its size is unknown.

        A validation of ``setup`` whose size is given in batches may have another batch size than a step.
        """
        examples, batch = self.validation_examples, self.batch_size
        if examples == 0:
            return 0.0
        if examples and batch:
            return examples / batch
        if self.validation_steps is None:
            return None
        own = setup.validation_batch_size if self.validation_steps == setup.validation_steps else None
        return self.validation_steps * (own / batch if own and batch else 1.0)

    def require_steps(self, title: str) -> float:
        """Steps per epoch. Raises EstimateError if they are unknown."""
        if self.steps_per_epoch is None:
            raise EstimateError(
                f"{title}: the number of steps per epoch is unknown. Pass steps_per_epoch= or examples=."
            )
        return self.steps_per_epoch


def _drops_remainder(setup: Setup) -> bool:
    if setup.partial_batch == 0 and setup.examples and setup.batch_size and setup.steps_per_epoch:
        return setup.steps_per_epoch * setup.batch_size < setup.examples
    return False


def _measured_steps(setup: Setup, epochs: Sequence[Epoch]) -> tuple[float | None, int]:
    """Steps per epoch (None if unknown) and number of examples in the smaller last batch, from a profile."""
    partial = setup.partial_batch or 0
    if setup.examples and setup.batch_size:
        counted = math.ceil(setup.examples / setup.batch_size)
        if setup.steps_per_epoch in (None, counted):
            return counted, setup.examples % setup.batch_size
    if setup.steps_per_epoch is not None:
        return setup.steps_per_epoch, partial
    # Data of unknown size: a complete epoch has counted the steps.
    whole = [epoch.steps for epoch in epochs if epoch.complete and epoch.steps]
    return (whole[-1], partial) if whole else (None, 0)
