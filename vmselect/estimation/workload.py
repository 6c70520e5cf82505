"""What is to be trained: the numbers that turn seconds per step into seconds per training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vmselect._checks import check_count, check_number, maybe, show
from vmselect.errors import ArgumentError, EstimateError
from vmselect.records import Profile

LEAST_COUNTS = {
    "batch_size": 1,
    "examples": 1,
    "partial_batch": 0,
    "validation_examples": 0,
    "validation_steps": 1,
    "validation_freq": 1,
}


@dataclass(frozen=True)
class Workload:
    """The size of a training, as far as the machine does not change it; what is None is as it was probed.

    ``steps_per_epoch`` may be fractional (the dissertation divides examples by batch size and does not round);
    ``partial_batch`` is the number of examples in a smaller last batch, 0 where there is none.

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

    def __post_init__(self) -> None:
        for name, least in LEAST_COUNTS.items():
            object.__setattr__(self, name, maybe(check_count, name, getattr(self, name), least=least))
        steps = maybe(check_number, "steps_per_epoch", self.steps_per_epoch, least=1)
        whole = steps is not None and steps.is_integer()
        object.__setattr__(self, "steps_per_epoch", int(steps) if steps is not None and whole else steps)

    @property
    def given(self) -> dict[str, Any]:
        """What was said, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def saying(cls, workload: Workload | None, fields: Mapping[str, Any]) -> Workload:
        """``workload`` and single ``fields`` as one; a field that both say differently is refused."""
        if workload is not None and not isinstance(workload, Workload):
            raise ArgumentError(f"workload must be a vmselect.Workload, not {show(workload)}.")
        single = cls(**fields).given
        said = workload.given if workload else {}
        for name in single.keys() & said.keys():
            if single[name] != said[name]:
                raise ArgumentError(f"{name} is {single[name]}, and {said[name]} in the workload. Say it once.")
        return cls(**(said | single))

    @classmethod
    def of(
        cls,
        profile: Profile | None = None,
        *,
        batch_size: int | None = None,
        examples: int | None = None,
        validation_examples: int | None = None,
        steps_per_epoch: float | None = None,
        partial_batch: int | None = None,
        validation_steps: int | None = None,
        validation_freq: int | None = None,
    ) -> Workload:
        """The workload of ``profile``, with what the caller says put over it.

        The number of steps is the true one, ``ceil(examples / batch_size)``, unless the probe saw that the input
        drops the remainder; ``steps_per_epoch`` overrides both.
        """
        title = profile.title if profile is not None else "workload"
        said = cls(
            steps_per_epoch, batch_size, examples, partial_batch, validation_examples, validation_steps, validation_freq
        )
        batch_size, examples, validation_examples = said.batch_size, said.examples, said.validation_examples
        steps_per_epoch = said.steps_per_epoch
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
        if validation_steps is None and setup and validation_examples is None:
            validation_steps = setup.validation_steps
        if validation_examples is None and setup:
            validation_examples = setup.validation_examples
        return cls(
            steps_per_epoch=steps,
            batch_size=batch,
            examples=examples if examples is not None else (setup.examples if setup else None),
            partial_batch=partial if said.partial_batch is None else said.partial_batch,
            validation_examples=validation_examples,
            validation_steps=validation_steps,
            validation_freq=said.validation_freq or (setup.validation_freq if setup else 1),
        )


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
