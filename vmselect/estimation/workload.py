"""What is to be trained: the numbers that turn seconds per step into seconds per training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeGuard

from vmselect.errors import ArgumentError, EstimateError
from vmselect.records import Profile


@dataclass(frozen=True)
class Workload:
    """The size of a training, as far as the machine does not change it.

    ``steps_per_epoch`` may be fractional (the dissertation divides examples by batch size and does not round);
    ``partial_batch`` is the number of examples in a smaller last batch, 0 where there is none.

    >>> Workload.of(examples=1000, batch_size=64)
    Workload(steps_per_epoch=16, batch_size=64, examples=1000, partial_batch=40, validation_examples=None, \
validation_steps=None, validation_freq=1)
    """

    steps_per_epoch: float | None = None
    batch_size: int | None = None
    examples: int | None = None
    partial_batch: int = 0
    validation_examples: int | None = None
    validation_steps: int | None = None
    validation_freq: int = 1

    @classmethod
    def of(
        cls,
        profile: Profile | None = None,
        *,
        batch_size: int | None = None,
        examples: int | None = None,
        validation_examples: int | None = None,
        steps_per_epoch: float | None = None,
    ) -> Workload:
        """The workload of ``profile``, with what the caller says put over it.

        The number of steps is the true one, ``ceil(examples / batch_size)``, unless the probe saw that the input
        drops the remainder; ``steps_per_epoch`` overrides both.
        """
        title = profile.title if profile is not None else "workload"
        batch_size = _count(title, "batch_size", batch_size)
        examples = _count(title, "examples", examples)
        validation_examples = _count(title, "validation_examples", validation_examples, least=0)
        if steps_per_epoch is not None:
            if not is_number(steps_per_epoch) or not 1 <= steps_per_epoch < math.inf:
                raise ArgumentError(
                    f"{title}: steps_per_epoch={steps_per_epoch!r} cannot be used. Give a number, 1 or more."
                )
            steps_per_epoch = steps_per_epoch if isinstance(steps_per_epoch, int) else float(steps_per_epoch)
        setup = profile.setup if profile is not None else None
        measured = setup.batch_size if setup else None
        if batch_size is not None and measured is not None and batch_size != measured:
            raise EstimateError(
                f"{title}: its step times are those of batch size {measured}, not {batch_size}. Leave batch_size out, "
                f"or probe with batch size {batch_size}."
            )
        batch = batch_size or measured
        if examples is not None and batch is None and steps_per_epoch is None:
            raise EstimateError(
                f"{title}: its batch size is not known, so {examples} examples make no number of steps. Pass "
                "batch_size= or steps_per_epoch= too."
            )
        drops = setup is not None and _drops_remainder(profile)
        partial = 0
        steps: float | None
        if steps_per_epoch is not None:
            steps = steps_per_epoch
            if batch and examples and math.ceil(examples / batch) == steps:
                partial = examples % batch
            elif examples is None and setup is not None and setup.steps_per_epoch == steps:
                partial = setup.partial_batch or 0
        elif examples is not None and batch is not None:
            steps = max(1, examples // batch) if drops else math.ceil(examples / batch)
            partial = 0 if drops else examples % batch
        elif setup is not None:
            steps, partial = _measured_steps(profile)
        else:
            steps = None
        return cls(
            steps_per_epoch=steps,
            batch_size=batch,
            examples=examples if examples is not None else (setup.examples if setup else None),
            partial_batch=partial,
            validation_examples=(
                validation_examples
                if validation_examples is not None
                else (setup.validation_examples if setup else None)
            ),
            validation_steps=setup.validation_steps if setup and validation_examples is None else None,
            validation_freq=setup.validation_freq if setup else 1,
        )


def check_epochs(epochs: Any, *, title: str) -> int:
    """``epochs`` as a whole number of at least one, or an error that names the profile."""
    whole = not isinstance(epochs, (bool, str, bytes)) and _is_whole(epochs)
    if not whole or epochs < 1:
        raise ArgumentError(f"{title}: epochs={epochs!r} is not a number of epochs. Give a whole number, 1 or more.")
    return int(epochs)


def check_confidence(confidence: float, *, title: str) -> float:
    """``confidence`` as a share between 0.5 and 0.999."""
    if not is_number(confidence) or not 0.5 <= confidence <= 0.999:
        raise ArgumentError(f"{title}: confidence={confidence!r} is not usable. Give a share from 0.5 to 0.999.")
    return float(confidence)


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a number of Python's or numpy's, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    try:
        return bool(float(value) == int(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _count(title: str, name: str, value: Any, *, least: int = 1) -> int | None:
    if value is None:
        return None
    if not is_number(value) or not _is_whole(value) or value < least:
        raise ArgumentError(f"{title}: {name}={value!r} cannot be used. Give a whole number, {least} or more.")
    return int(value)


def _drops_remainder(profile: Profile | None) -> bool:
    if profile is None:
        return False
    setup = profile.setup
    if setup.partial_batch == 0 and setup.examples and setup.batch_size and setup.steps_per_epoch:
        return setup.steps_per_epoch * setup.batch_size < setup.examples
    return False


def _measured_steps(profile: Profile | None) -> tuple[float | None, int]:
    """Steps per epoch and the size of the smaller last batch, as the probe saw them."""
    if profile is None:
        return None, 0
    setup = profile.setup
    partial = setup.partial_batch or 0
    if setup.examples and setup.batch_size:
        counted = math.ceil(setup.examples / setup.batch_size)
        if setup.steps_per_epoch in (None, counted):
            return counted, setup.examples % setup.batch_size
    if setup.steps_per_epoch is not None:
        return setup.steps_per_epoch, partial
    whole = [epoch.steps for epoch in profile.timeline.epochs if epoch.complete and epoch.steps]
    return (whole[-1], partial) if whole else (None, 0)


def agree(profiles: Sequence[Profile]) -> None:
    """Refuse to merge profiles that did not train the same thing on the same machine."""
    first = profiles[0]
    for other in profiles[1:]:
        for what, here, there in (
            ("batch size", first.batch_size, other.batch_size),
            ("instance type", first.instance_type, other.instance_type),
            ("model", first.model, other.model),
            ("steps per execution", first.setup.steps_per_execution, other.setup.steps_per_execution),
        ):
            if here is not None and there is not None and here != there:
                raise EstimateError(
                    f"{first.title} and {other.title} are no repetitions of one another: {what} {here} against "
                    f"{there}. Estimate them one by one."
                )
