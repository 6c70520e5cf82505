"""What is to be trained: the numbers that turn seconds per step into seconds per training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmselect._checks import MOST, check_count, check_number, maybe, show
from vmselect.errors import ArgumentError, EstimateError
from vmselect.records import Epoch, Profile, Setup

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
        steps = maybe(check_number, "steps_per_epoch", self.steps_per_epoch, least=1, most=MOST)
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
        setup = profile.setup if profile is not None else Setup()
        examples = said.examples
        if said.batch_size and setup.batch_size and said.batch_size != setup.batch_size:
            raise EstimateError(
                f"{title}: its step times are those of batch size {setup.batch_size}, not {said.batch_size}. Leave "
                f"batch_size out, or probe with batch size {said.batch_size}."
            )
        batch = said.batch_size or setup.batch_size
        if examples is not None and batch is None and said.steps_per_epoch is None:
            raise EstimateError(
                f"{title}: its batch size is not known, so {examples} examples make no number of steps. Pass "
                "batch_size= or steps_per_epoch= too."
            )
        partial = 0
        steps = said.steps_per_epoch
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
        same_validation = said.validation_steps is None and said.validation_examples is None
        return cls(
            steps_per_epoch=steps,
            batch_size=batch,
            examples=setup.examples if examples is None else examples,
            partial_batch=partial if said.partial_batch is None else said.partial_batch,
            validation_examples=setup.validation_examples if same_validation else said.validation_examples,
            validation_steps=setup.validation_steps if same_validation else said.validation_steps,
            validation_freq=said.validation_freq or setup.validation_freq,
        )


def _drops_remainder(setup: Setup) -> bool:
    if setup.partial_batch == 0 and setup.examples and setup.batch_size and setup.steps_per_epoch:
        return setup.steps_per_epoch * setup.batch_size < setup.examples
    return False


def _measured_steps(setup: Setup, epochs: Sequence[Epoch]) -> tuple[float | None, int]:
    """Steps per epoch and the size of the smaller last batch, as the probe saw them."""
    partial = setup.partial_batch or 0
    if setup.examples and setup.batch_size:
        counted = math.ceil(setup.examples / setup.batch_size)
        if setup.steps_per_epoch in (None, counted):
            return counted, setup.examples % setup.batch_size
    if setup.steps_per_epoch is not None:
        return setup.steps_per_epoch, partial
    whole = [epoch.steps for epoch in epochs if epoch.complete and epoch.steps]
    return (whole[-1], partial) if whole else (None, 0)
