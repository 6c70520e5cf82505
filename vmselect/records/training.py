"""Profiles: recorded times of one training on one machine.

The readings cover the whole wall time of a ``fit`` call without overlap::

    init | fit_to_first_batch | step step ... step | validation | boundary | step ... | validation | boundary (final)

If the whole ``fit`` call was measured, the sum of the readings is the time that the training took.

The tables for notebooks are made here and not in the report package, because that would import pandas and all charts
into a training program that prints its profile.
"""

from __future__ import annotations

import math
import os
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from vmselect._checks import (
    check_choice,
    check_count,
    check_mapping,
    check_name,
    check_number,
    check_seconds,
    list_items,
    maybe,
    suggest_arguments,
)
from vmselect._imports import hook
from vmselect.errors import ArgumentError
from vmselect.findings import Finding, findings_html, table_html
from vmselect.records.base import (
    Count,
    Environment,
    Facts,
    Number,
    Parallelism,
    Part,
    Placement,
    PositiveCount,
    Record,
    Seconds,
    Text,
    given_as,
)
from vmselect.records.step_times import find_warmup, step_seconds
from vmselect.records.usage import MeasuredEnergy, Summary, Usage, measured_energy
from vmselect.records.work import Work
from vmselect.units import format_bytes, format_seconds, list_all, printable

MAX_STEP_READINGS = 20_000
MAX_EPOCHS = 20_000
MAX_VALIDATIONS = 2_000_000
"""Maximum number of validations, with those that were added up. They are divided again when a record is used."""
MAX_BATCH_READINGS = 4_000
MAX_RUNS = 10_000

Label = Literal["first", "warmup", "opening", "steady", "partial"]
"""Class of a measured step: the very first step (tracing and compilation), a later warm-up step, the first step of a
later epoch (``opening``), an ordinary step (``steady``), or the smaller last batch of an epoch (``partial``)."""

Outcome = Literal["stopped", "watched", "interrupted", "out_of_memory", "given", "described"]
"""How the recording ended: the probe stopped the training after enough readings, the training ended by itself, an
exception interrupted it, it ran out of memory; or the times were measured by another tool; or nothing was measured
and the record only describes the training."""

Ending = Literal["killed", "terminated"]
"""What ended an interrupted training from outside, as when a spot machine is reclaimed: its process was killed without
a word, or by SIGTERM. A record that is still written says "killed", because nobody can correct it afterwards."""

ENDING_DETAILS: Mapping[Ending, str] = {
    "killed": "the process ended without an error message: it was killed, or the machine was shut down",
    "terminated": "SIGTERM",
}
"""Text of each ending in ``Profile.detail``. Files without the field ``ending`` contain only this text."""

Saving = Literal["best", "epochs", "batches"]
"""When checkpoints are saved: after each epoch that is the best so far, after every epoch, or every few batches."""


class Step(NamedTuple):
    """One step reading (measured duration): ``covers`` steps took ``seconds``.

    ``batch`` is the position of the last of these steps in its epoch.
    """

    epoch: int
    batch: int
    seconds: float
    covers: int
    label: Label

    @property
    def each(self) -> float:
        """Mean seconds per step of this reading."""
        return self.seconds / self.covers


class Steps(Part):
    """Step readings (measured durations) in chronological order, as columns. Of long trainings, only a part is stored.

    A reading covers several steps if ``steps_per_execution`` is above 1. ``readings``, ``steps`` and ``total_seconds``
    are exact sums over the whole training. They include the readings that are not stored.
    """

    epoch: tuple[Count, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    batch: tuple[Count, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    seconds: tuple[Seconds, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    covers: tuple[PositiveCount, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    label: tuple[Label, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    readings: Count = 0
    steps: Count = 0
    total_seconds: Seconds = 0.0

    @field_validator("label")
    @classmethod
    def _find_warmup(cls, labels: tuple[Label, ...], info: ValidationInfo) -> tuple[Label, ...]:
        """Label the warm-up steps; see :mod:`vmselect.records.step_times` for the rule."""
        epoch, seconds, covers = (info.data.get(name, ()) for name in ("epoch", "seconds", "covers"))
        if any(len(column) != len(labels) for column in (epoch, seconds, covers)):
            return labels  # the next validator rejects it
        warm = find_warmup(epoch, seconds, covers, labels)
        if not warm and "warmup" not in labels:
            return labels  # the usual case, without a copy of up to 20,000 labels
        ordinary: Mapping[Label, Label] = {"warmup": "steady"}
        return tuple(
            "warmup" if position in warm else ordinary.get(label, label) for position, label in enumerate(labels)
        )

    @model_validator(mode="after")
    def _columns_agree(self) -> Steps:
        lengths = {len(self.epoch), len(self.batch), len(self.seconds), len(self.covers), len(self.label)}
        if len(lengths) != 1:
            raise ValueError("the columns epoch, batch, seconds, covers and label differ in length")
        if self.readings < len(self.seconds) or self.steps < sum(self.covers):
            raise ValueError(
                "readings is smaller than the number of stored readings, or steps is smaller than the sum of covers"
            )
        return self

    @classmethod
    def of(cls, rows: Iterable[Step], **sums: Any) -> Steps:
        """Make an object from ``rows``. If ``rows`` is only a part of the readings, ``sums`` has the sums over all."""
        rows = tuple(rows)
        columns: dict[str, Any] = dict(zip(Step._fields, zip(*rows, strict=True), strict=True)) if rows else {}
        exact = {
            "readings": len(rows),
            "steps": sum(row.covers for row in rows),
            "total_seconds": sum(row.seconds for row in rows),
        }
        return cls(**columns, **(exact | sums))

    @cached_property
    def rows(self) -> tuple[Step, ...]:
        """The stored readings in chronological order."""
        return tuple(map(Step, self.epoch, self.batch, self.seconds, self.covers, self.label))

    @cached_property
    def steady_seconds(self) -> tuple[float, ...]:
        """Seconds per step of every measured step after the warm-up (steady step)."""
        columns = zip(self.seconds, self.covers, self.label, strict=True)
        return tuple(seconds / covers for seconds, covers, label in columns if label == "steady")

    def __copy__(self) -> Steps:
        # A copy may get other columns, so its cached properties must be computed again.
        copied = super().__copy__()
        for name in ("rows", "steady_seconds"):
            copied.__dict__.pop(name, None)
        return copied

    def labelled(self, label: Label) -> list[Step]:
        """The readings whose label is ``label``."""
        return [step for step in self.rows if step.label == label]

    def __len__(self) -> int:
        return len(self.seconds)


class Epoch(Part):
    """Training time of one epoch, without validation; exact even if not all step readings of the epoch are stored.

    ``seconds`` is the sum of all step readings, ``opening_seconds`` the first reading and ``closing_seconds`` the last.
    ``steps`` is None if the probe did not count steps. ``complete`` is False if the probe ended the epoch early.
    """

    epoch: Count
    seconds: Seconds
    steps: Count | None = None
    opening_seconds: Seconds | None = None
    closing_seconds: Seconds | None = None
    complete: bool = True


class Validation(Part):
    """One validation pass: its total ``seconds``, and the seconds of each batch.

    The first batch includes the startup of the validation. ``truncated`` is True if the probe ended the pass early.
    ``covers`` is a number of passes in the epoch that were added up, because a record holds only so many.
    """

    epoch: Count
    seconds: Seconds
    batches: Count | None = None
    batch_seconds: tuple[Seconds, ...] = Field(default=(), max_length=MAX_BATCH_READINGS)
    truncated: bool = False
    covers: PositiveCount | None = None

    def split(self) -> list[Validation]:
        """The passes one by one; passes that were added up as equal ones."""
        if self.covers is None:
            return [self]
        batches = None if self.batches is None else self.batches // self.covers
        mean = self.model_copy(update={"seconds": self.seconds / self.covers, "batches": batches, "covers": None})
        return [mean] * self.covers


class Boundary(Part):
    """Time from the last step of ``epoch`` to the first step of the next epoch, without validation.

    ``before_validation_seconds`` is the part from the last step to the start of the validation (in an epoch without
    validation, to the end of the epoch): frameworks wrap up the epoch there and may compile once.
    ``epoch_end_seconds`` is the part in which other callbacks ran at the end of the epoch, for example to save a
    checkpoint. Both are None if not recorded. ``final`` marks the time from the last step to the end of ``fit``.
    ``truncated`` marks the boundary of an epoch that the probe ended early, which may be shorter than after a complete
    epoch.
    """

    epoch: Count
    seconds: Seconds
    before_validation_seconds: Seconds | None = None
    epoch_end_seconds: Seconds | None = None
    truncated: bool = False
    final: bool = False


class Pause(Part):
    """A pause with a known cause during the step ``batch`` of ``epoch``. The measured step time excludes the pause."""

    cause: Literal["garbage collection"]
    epoch: Count
    batch: Count
    seconds: Seconds
    whole_heap: bool | None = None
    """Whether the garbage collector examined all objects, which happens less often as the heap grows."""


class InputWait(Facts):
    """Time that steps waited for their batches: ``seconds`` out of the ``wall_seconds`` that ``steps`` steps took."""

    seconds: Seconds
    wall_seconds: Seconds
    steps: Count
    method: Text

    @property
    def share(self) -> float:
        """Share of the step time that was spent waiting for input, from 0 to 1."""
        return min(1.0, self.seconds / self.wall_seconds) if self.wall_seconds else 0.0


class FirstStep(Facts):
    """Parts of the first step that the framework times: tracing the program, compiling it, trying out kernels.

    None where the framework does not report a part. What remains of the step is its first execution, with the
    allocation of memory, and whatever is not reported. Autotuning, by XLA or by ``torch.compile``, is a part of
    compiling; only torch reports it apart.
    """

    tracing_seconds: Seconds | None = None
    compiling_seconds: Seconds | None = None
    autotuning_seconds: Seconds | None = None
    method: Text
    """What measured it: ``jax.monitoring``, ``tf.function`` or ``torch.compile``."""

    @property
    def seconds(self) -> float:
        """Seconds of tracing and compiling together."""
        return (self.tracing_seconds or 0.0) + (self.compiling_seconds or 0.0)


class Timeline(Part):
    """All recorded times of a training, in seconds."""

    init_seconds: Seconds | None = None
    init_source: Literal["process start", "mark_start", "given"] | None = None
    fit_to_first_batch_seconds: Seconds | None = None
    steps: Steps = Steps()
    epochs: tuple[Epoch, ...] = Field(default=(), max_length=MAX_EPOCHS)
    validations: tuple[Validation, ...] = Field(default=(), max_length=MAX_EPOCHS)
    boundaries: tuple[Boundary, ...] = Field(default=(), max_length=MAX_EPOCHS)
    pauses: tuple[Pause, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    input_wait: InputWait | None = None
    first_step: FirstStep | None = None
    wall_seconds: Seconds | None = None
    cpu_seconds: Seconds | None = None
    fit_seconds: Seconds | None = None
    run_seconds: tuple[Seconds, ...] = Field(default=(), max_length=MAX_RUNS)
    """Total seconds of each run of the training, including initialization, if the user gave them."""

    @model_validator(mode="after")
    def _init_has_a_source(self) -> Timeline:
        if (self.init_seconds is None) != (self.init_source is None):
            raise ValueError("init_seconds and init_source must both be present or both be absent")
        return self

    @model_validator(mode="after")
    def _validations_can_be_divided(self) -> Timeline:
        if sum(validation.covers or 1 for validation in self.validations) > MAX_VALIDATIONS:
            raise ValueError(f"there are more than {MAX_VALIDATIONS:,} validations")
        return self

    @property
    def complete_epochs(self) -> int:
        """Number of complete epochs. Of a training with thousands of epochs, ``epochs`` contains a sample."""
        if not self.epochs:
            return 0
        spanned = self.epochs[-1].epoch - self.epochs[0].epoch + 1
        return max(spanned, len(self.epochs)) - sum(not epoch.complete for epoch in self.epochs)

    @property
    def whole_validations(self) -> list[Validation]:
        """All passes of a validation that the probe did not end early."""
        whole = (validation for validation in self.validations if not validation.truncated)
        return [part for validation in whole for part in validation.split()]

    @property
    def startup_seconds(self) -> float | None:
        """Seconds from the start of the program to the first batch; None if not recorded."""
        parts = (self.init_seconds, self.fit_to_first_batch_seconds)
        return None if parts == (None, None) else (parts[0] or 0.0) + (parts[1] or 0.0)


def largest_share(examples: int | None, workers: int) -> int | None:
    """Examples of the worker with most, for which the others wait, if ``workers`` share ``examples`` per step.

    >>> largest_share(32, 3), largest_share(None, 3)
    (11, None)
    """
    return math.ceil(examples / workers) if examples else None


class Setup(Part):
    """Model, data and settings of the training: all that does not depend on the machine."""

    model: Text | None = None
    parameters: Count | None = None
    structure: Text | None = None
    """Digest of the model's layers and of their trainability: it differs between frozen and unfrozen models."""
    batch_size: PositiveCount | None = None
    batch_size_source: Literal["argument", "data", "given"] | None = None
    worker_batch_size: PositiveCount | None = None
    """Examples per step of the worker with most; ``batch_size`` counts the examples of all workers."""
    steps_per_epoch: PositiveCount | None = None
    steps_per_execution: PositiveCount = 1
    epochs: PositiveCount | None = None
    initial_epoch: Count = 0
    examples: PositiveCount | None = None
    partial_batch: Annotated[int, Field(ge=0)] | None = None
    validation_examples: Count | None = None
    validation_steps: PositiveCount | None = None
    validation_batch_size: PositiveCount | None = None
    """Examples per batch of a validation, if they are known and not as many as those of a training step."""
    validates: bool | None = None
    """Whether the training validates; None if unknown."""
    validation_freq: PositiveCount = 1
    validation_from: PositiveCount | None = None
    """The first epoch (counted from 1) with a validation, if it is not the epoch ``validation_freq``."""
    validation_until: PositiveCount | None = None
    """The last epoch (counted from 1) that may have a validation, if validations end before the training."""
    validations_per_epoch: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Number of validations per epoch, if it is not one validation at the end of the epoch."""
    saving: Saving | None = None
    save_freq: PositiveCount | None = None
    """Number of batches between checkpoints; the smallest if several callbacks save checkpoints."""
    early_stopping: PositiveCount | None = None
    """Smallest number of epochs after which a callback may end the training, if there is such a callback."""
    self_tuning_input: bool | None = None
    """Whether the input is a tf.data pipeline with autotuning."""
    continuous_input: bool | None = None
    """Whether one iterator over endless data is used for all epochs, as with ``steps_per_epoch``."""


class EpochLogs(Part):
    """Metrics after each epoch of a training that was measured to its end; None if a metric was not reported."""

    epoch: tuple[Count, ...] = Field(default=(), max_length=MAX_EPOCHS)
    values: Mapping[Text, Annotated[tuple[Number | None, ...], Field(max_length=MAX_EPOCHS)]] = Field(
        default_factory=dict, max_length=200
    )

    @model_validator(mode="after")
    def _columns_agree(self) -> EpochLogs:
        if any(len(column) != len(self.epoch) for column in self.values.values()):
            raise ValueError("the columns epoch and values differ in length")
        return self


class Fit(Part):
    """Position of this training in its program: ``number`` counts the ``fit`` calls of the process from 1."""

    number: PositiveCount
    process: Text
    name: Text | None = None


class Profile(Record):
    """A record of a training on one machine.

    >>> profile = Profile.from_times(instance_type="p3.2xlarge", batch_size=256, steps_per_epoch=159,
    ...     init_seconds=0.2, first_iteration_seconds=3.4, iteration_seconds=[0.13, 0.13],
    ...     validation_seconds=[0.17, 0.02], model="seismic-fcn")
    >>> profile.instance_type, profile.batch_size
    ('p3.2xlarge', 256)
    """

    kind: Literal["training"] = "training"
    format: Literal[3] = 3
    probe: Literal["iteration", "epoch", "loop"] | None = None
    outcome: Outcome
    detail: Text | None = None
    ending: Ending | None = None
    """What ended the training from outside; None if nothing did, and in older records. See :attr:`preemption`."""
    setup: Setup = Setup()
    timeline: Timeline
    fit: Fit | None = None
    usage: Usage | None = None
    metrics: Mapping[Text, Number] = Field(default_factory=dict, max_length=1_000)
    logs: EpochLogs | None = None
    work: Work | None = None
    """What a step computes, counted from the definition of the model; None in older records."""

    @property
    def preemption(self) -> Ending | None:
        """What ended the training from outside; None if it ended by itself, or by an error, its user or the probe."""
        if self.outcome != "interrupted":
            return None
        older = (ending for ending, detail in ENDING_DETAILS.items() if detail == self.detail)
        return self.ending or next(older, None)

    @property
    def model(self) -> str | None:
        """Name of the model that was trained."""
        return self.setup.model

    @property
    def batch_size(self) -> int | None:
        """Number of examples per training step, over all replicas."""
        return self.setup.batch_size

    @property
    def steps_per_epoch(self) -> int | None:
        """Number of training steps in a complete epoch."""
        return self.setup.steps_per_epoch

    @property
    def total_seconds(self) -> float | None:
        """Measured seconds of the whole training including initialization (mean of the runs, if there are several).

        None unless the whole training was measured, or the user gave its total time.
        """
        if self.timeline.run_seconds:
            return statistics.fmean(self.timeline.run_seconds)
        # A stopped or interrupted training has a duration, too, but not that of the whole training.
        if self.outcome != "watched" or self.timeline.fit_seconds is None:
            return None
        return (self.timeline.init_seconds or 0.0) + self.timeline.fit_seconds

    @property
    def epochs_trained(self) -> int | None:
        """Number of epochs of the whole training; None unless :attr:`total_seconds` is known."""
        if self.total_seconds is None:
            return None
        return (self.timeline.complete_epochs if self.outcome == "watched" else 0) or self.setup.epochs

    @property
    def only_totals(self) -> bool:
        """Whether the profile contains only total times of the training, and no times of steps or epochs."""
        return bool(self.timeline.run_seconds) and not len(self.timeline.steps) and not self.timeline.epochs

    @property
    def init_seconds(self) -> float | None:
        """Seconds before the first step (T(init) in the dissertation); None if not measured."""
        return None if self.timeline.init_seconds is None else self.timeline.startup_seconds

    @property
    def first_iteration_seconds(self) -> float | None:
        """Seconds of the first step, which includes tracing and compilation; None if not measured."""
        return next((step.each for step in self.timeline.steps.rows[:1] if step.label == "first"), None)

    @property
    def second_iteration_seconds(self) -> float | None:
        """Seconds of the second step; None if not measured."""
        return next((step.each for step in self._later_steps), None)

    @property
    def mean_2_10_seconds(self) -> float | None:
        """Mean seconds of steps 2 to 10, or of as many as were measured; None if there are none."""
        steps = self._later_steps
        return math.fsum(step.seconds for step in steps) / sum(step.covers for step in steps) if steps else None

    @property
    def first_validation_seconds(self) -> float | None:
        """Seconds of the first validation; None if not measured to its end."""
        return self._validation_seconds(0)

    @property
    def second_validation_seconds(self) -> float | None:
        """Seconds of the second validation; None if not measured to its end."""
        return self._validation_seconds(1)

    @property
    def first_epoch_seconds(self) -> float | None:
        """Seconds of the first epoch, including its validation; None if not measured to its end."""
        return self._epoch_seconds(0)

    @property
    def second_epoch_seconds(self) -> float | None:
        """Seconds of the second epoch, including its validation and the boundary before it; None if unknown."""
        return self._epoch_seconds(1)

    @property
    def energy(self) -> MeasuredEnergy | None:
        """Measured energy of the GPUs, and of CPU and memory where the machine reports it; None if not measured."""
        return measured_energy(self.usage, gpus=len(self.environment.gpus))

    @property
    def step_joules(self) -> float | None:
        """Measured energy of a steady step in joules, of the parts in :attr:`energy`; None if not measured."""
        seconds, energy = step_seconds(self), self.energy
        watts = energy.watts if energy else None
        return None if watts is None or seconds is None else watts * seconds

    @property
    def method_seconds(self) -> dict[str, float | None]:
        """The times of ``METHOD_TIMES`` in seconds, by the names of their properties; None if not measured."""
        return {name: getattr(self, name) for name in METHOD_TIMES}

    @property
    def _later_steps(self) -> tuple[Step, ...]:
        """Readings of steps 2 to 10."""
        rows = self.timeline.steps.rows[:10]
        return rows[1:] if rows and rows[0].label == "first" else rows[:9]

    def _validation_seconds(self, number: int) -> float | None:
        """Seconds of validation ``number``, counted from 0; None if it was not measured to its end.

        All validation passes in one epoch are one validation, unless ``setup.validations_per_epoch`` is set.
        """
        seen = self.timeline.validations
        keys = [validation.epoch for validation in seen]
        if self.setup.validations_per_epoch is not None:
            keys = [*range(len(seen))]
        chosen = list(dict.fromkeys(keys))[number : number + 1]
        passes = [validation for key, validation in zip(keys, seen, strict=True) if key in chosen]
        if not passes or any(validation.truncated for validation in passes):
            return None
        return math.fsum(validation.seconds for validation in passes)

    def _epoch_seconds(self, number: int) -> float | None:
        timeline = self.timeline
        for epoch in timeline.epochs[number : number + 1]:
            if epoch.complete:
                # Times of epochs from elsewhere include the validation.
                validations = timeline.validations if self.outcome != "given" else ()
                pauses = [pause.seconds for pause in timeline.pauses if pause.epoch == epoch.epoch]
                inside = [validation.seconds for validation in validations if validation.epoch == epoch.epoch]
                before = [
                    boundary.seconds
                    for boundary in timeline.boundaries
                    if boundary.epoch + 1 == epoch.epoch and not boundary.final
                ]
                return math.fsum([epoch.seconds, *pauses, *inside, *before])
        return None

    @property
    def timed_in_threads(self) -> bool:
        """Whether step times are wrong because Keras called the probe from worker threads."""
        environment = self.environment
        return environment.dispatch == "threaded" and environment.step_timing is None and self.probe != "epoch"

    @property
    def title(self) -> str:
        """A short name for messages and tables: instance type and batch size."""
        batch = f"batch {self.batch_size}" if self.batch_size else "unknown batch size"
        return f"{self.instance_type or 'unknown machine'}, {batch}"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about this profile, each with a remedy, including diagnoses of what limits the training."""
        findings: tuple[Finding, ...] = hook("profile_findings")(self)
        return findings

    @property
    def file_stem(self) -> str:
        """Start of the file name: instance type, or that no machine was measured, and batch size."""
        place = "described" if self.outcome == "described" else "unknown"
        return f"{self.instance_type or place}-{self.batch_size or 'x'}"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a profile of the current or an older format. Any other file raises :class:`ProfileError`."""
        from vmselect.records.files import load_record

        profile = load_record(path, kind="training")
        assert isinstance(profile, Profile)
        return profile

    @classmethod
    @suggest_arguments()
    def from_times(
        cls,
        *,
        instance_type: str | None = None,
        batch_size: int | None = None,
        steps_per_epoch: int | None = None,
        init_seconds: float | None = None,
        first_iteration_seconds: float | None = None,
        iteration_seconds: Sequence[float] | float | None = None,
        validation_seconds: Sequence[float] | float | None = None,
        first_epoch_seconds: float | None = None,
        later_epoch_seconds: Sequence[float] | float | None = None,
        model: str | None = None,
        provider: str | None = None,
        region: str | None = None,
        epochs: int | None = None,
        examples: int | None = None,
        validation_examples: int | None = None,
        total_seconds: Sequence[float] | float | None = None,
        workers: int = 1,
        factors: Mapping[str, Any] | None = None,
        gpu_watts: Sequence[float] | float | None = None,
        metrics: Mapping[str, float] | None = None,
        gpus: int | None = None,
        precision: str | None = None,
        parameters: int | None = None,
        peak_gpu_memory_bytes: int | None = None,
        parallelism: Parallelism | None = None,
    ) -> Profile:
        """Create a profile from times in seconds that a paper, a log or another tool reports.

        Pass times of steps (``first_iteration_seconds`` and ``iteration_seconds``), times of epochs including their
        validation (``first_epoch_seconds`` and ``later_epoch_seconds``), or total times of ``epochs`` epochs
        (``total_seconds``, one per run), or several of these. ``factors`` maps varied settings to their values; its
        ``"nodes"`` is the number of machines that trained together (1). ``gpus`` is the number of GPUs of each machine
        that the training used, and ``workers`` the number of its processes on all machines. ``batch_size`` counts the
        examples of a step on all of them. ``parallelism`` is how several GPUs trained together: ``"all_reduce"`` (torch
        DDP, Horovod, JAX), ``"data_parallel"`` (torch) or ``"mirrored"`` (TensorFlow). ``precision`` is a data type or
        dtype policy, such as ``"mixed_float16"``, ``parameters`` the model's number of weights,
        ``peak_gpu_memory_bytes`` the peak of the busiest GPU, and ``gpu_watts`` the mean power of the GPU, or of each
        GPU, during steady steps.

        >>> profile = Profile.from_times(instance_type="p3.2xlarge", batch_size=256, total_seconds=[146.5, 148.0],
        ...     epochs=13, factors={"nodes": 3}, model="seismic-fcn")
        >>> profile.total_seconds, profile.epochs_trained
        (147.25, 13)
        """
        init = maybe(check_seconds, "init_seconds", init_seconds)
        times = {
            "total_seconds": _check_times("total_seconds", total_seconds),
            "first_iteration_seconds": _check_times("first_iteration_seconds", first_iteration_seconds),
            "iteration_seconds": _check_times("iteration_seconds", iteration_seconds),
            "first_epoch_seconds": _check_times("first_epoch_seconds", first_epoch_seconds),
            "later_epoch_seconds": _check_times("later_epoch_seconds", later_epoch_seconds),
            "validation_seconds": _check_times("validation_seconds", validation_seconds),
        }
        _check_given(times, init, epochs)
        size = maybe(check_count, "batch_size", batch_size)
        count = maybe(check_count, "examples", examples)
        steps_per_epoch = maybe(check_count, "steps_per_epoch", steps_per_epoch)
        if steps_per_epoch is None and count is not None and size is not None:
            steps_per_epoch = math.ceil(count / size)
        numbers = {} if metrics is None else check_mapping("metrics", metrics)
        varied = {} if factors is None else check_mapping("factors", factors)
        watts = _check_times("gpu_watts", gpu_watts)
        with given_as("profile"):
            return cls(
                created=datetime.now(UTC).replace(microsecond=0),
                outcome="given",
                setup=Setup(
                    model=maybe(check_name, "model", model),
                    parameters=maybe(check_count, "parameters", parameters),
                    batch_size=size,
                    batch_size_source=None if size is None else "given",
                    steps_per_epoch=steps_per_epoch,
                    epochs=maybe(check_count, "epochs", epochs),
                    examples=count,
                    validation_examples=maybe(check_count, "validation_examples", validation_examples, least=0),
                ),
                timeline=_given_timeline(times, init),
                environment=Environment(
                    **_given_processes(check_count("workers", workers), gpus, varied.get("nodes", 1)),
                    parallelism=maybe(_check_parallelism, "parallelism", parallelism),
                    precision=maybe(check_precision, "precision", precision),
                    peak_gpu_memory_bytes=maybe(check_count, "peak_gpu_memory_bytes", peak_gpu_memory_bytes),
                ),
                factors=varied,
                placement=Placement.given(instance_type=instance_type, provider=provider, region=region),
                usage=_given_power(watts) if watts else None,
                metrics={name: check_number(f"metrics: {name}", value) for name, value in numbers.items()},
            )

    def __str__(self) -> str:
        return to_text(self)

    def _repr_html_(self) -> str:
        return to_html(self)


def _check_given(times: Mapping[str, Sequence[float]], init: float | None, epochs: int | None) -> None:
    """Raise ArgumentError if the arguments of :meth:`Profile.from_times` are too few or contradict each other."""
    steps, epoch_times, totals = times["iteration_seconds"], times["later_epoch_seconds"], times["total_seconds"]
    if not steps and not epoch_times and not totals:
        raise ArgumentError(
            "No step or epoch time after the first was given. Pass iteration_seconds= (steps after the first), "
            "later_epoch_seconds= (epochs after the first) or total_seconds= (whole trainings)."
        )
    if totals and not steps and not epoch_times and epochs is None:
        raise ArgumentError("total_seconds was given without the number of epochs. Pass epochs= too.")
    if epoch_times and not times["first_epoch_seconds"]:
        raise ArgumentError("later_epoch_seconds was given without first_epoch_seconds. Pass first_epoch_seconds= too.")
    if totals and min(totals) < (init or 0.0):
        raise ArgumentError("total_seconds is less than init_seconds, which it includes. Correct one of the two.")


def _given_timeline(times: Mapping[str, Sequence[float]], init: float | None) -> Timeline:
    """The timeline of the arguments of :meth:`Profile.from_times`."""
    first = [Step(0, number, seconds, 1, "first") for number, seconds in enumerate(times["first_iteration_seconds"])]
    later = [Step(0, number + 1, seconds, 1, "steady") for number, seconds in enumerate(times["iteration_seconds"])]
    epochs = [*times["first_epoch_seconds"], *times["later_epoch_seconds"]]
    return Timeline(
        init_seconds=init,
        init_source=None if init is None else "given",
        steps=Steps.of([*first, *later]),
        epochs=tuple(Epoch(epoch=number, seconds=seconds) for number, seconds in enumerate(epochs)),
        validations=tuple(
            Validation(epoch=number, seconds=seconds) for number, seconds in enumerate(times["validation_seconds"])
        ),
        run_seconds=tuple(times["total_seconds"]),
    )


def _given_processes(workers: int, gpus: int | None, nodes: Any) -> dict[str, Any]:
    """Fields of the environment: processes and GPUs of a training on ``nodes`` machines, ``gpus`` of each machine.

    A single worker on several machines is the default of an argument and says nothing, so it is kept as it is.
    """
    machines = check_count("factors: nodes", nodes)
    if workers > 1 and workers % machines:
        raise ArgumentError(
            f"{workers} workers cannot be spread equally over {machines} machines. Correct workers= (processes on all "
            "machines) or the factor nodes."
        )
    local = max(1, workers // machines)
    fields: dict[str, Any] = {"workers": workers, **({"workers_per_machine": local} if workers > 1 else {})}
    if gpus is None:
        return fields
    gpus = check_count("gpus", gpus, least=0)
    if gpus % local:
        raise ArgumentError(
            f"{gpus} GPUs of a machine cannot be spread equally over its {local} workers. Correct gpus= (GPUs per "
            "machine) or workers= (processes on all machines)."
        )
    return fields | {"framework_gpus": gpus // local, "replicas": max(1, gpus) * machines}


def _check_parallelism(name: str, value: Any) -> Parallelism:
    """Validate ``value``, a way in which several GPUs train together."""
    return cast(Parallelism, check_choice(name, value, choices=get_args(Parallelism)))


def check_precision(name: str, value: Any) -> str:
    """Validate ``value``, the name of a data type or dtype policy: without its number of bits it would be ignored."""
    text = check_name(name, value)
    if not re.search("16|32|64", text):
        raise ArgumentError(
            f"{name} must name a data type with 16, 32 or 64 bits, such as mixed_float16, not {text!r}."
        )
    return text


def _given_power(watts: Sequence[float]) -> Usage:
    """Usage with the mean power of each GPU, which another tool measured."""
    powers = {
        f"gpu{index}_power_watts": Summary(count=1, seconds=1.0, mean=power, maximum=power, p50=power, p95=power)
        for index, power in enumerate(watts)
    }
    sources = {f"gpu{index}": "given" for index in range(len(watts))}
    return Usage(interval_seconds=0.0, phases={"steady_steps": powers}, power_sources=sources)


def _check_times(name: str, value: Any) -> list[float]:
    """Validate ``value``, a number or a sequence of numbers, and return it as a list of seconds."""
    if value is None:
        return []
    # A text is checked as one value, so that the error shows it as a whole, not its first character.
    return [check_seconds(name, item) for item in ([value] if isinstance(value, (str, bytes)) else list_items(value))]


METHOD_TIMES = {
    "init_seconds": "initialization",
    "first_iteration_seconds": "first step",
    "second_iteration_seconds": "second step",
    "mean_2_10_seconds": "mean of steps 2-10",
    "first_validation_seconds": "first validation",
    "second_validation_seconds": "second validation",
    "first_epoch_seconds": "first epoch",
    "second_epoch_seconds": "second epoch",
}
"""Properties of a profile that contain the times of the dissertation's equations, and their printed names."""

LIST_COLUMNS = ("machine", "model", "batch size", "steps per epoch", "seconds per step", "outcome")
"""Columns of a table of several profiles. A column without any value is not shown."""

MAX_LISTED = 100


def summarize(profile: Profile) -> dict[str, str]:
    """Names and printable values of the main fields of ``profile``, without unknown values."""
    setup, timeline, environment, usage = profile.setup, profile.timeline, profile.environment, profile.usage
    backend, wait, runs = environment.backend, timeline.input_wait, len(timeline.run_seconds)
    times = {title: _format(getattr(profile, name)) for name, title in METHOD_TIMES.items()}
    before, after = dict([*times.items()][:4]), dict([*times.items()][4:])
    busy = None if usage is None else usage.mean("usable_cpu_share")
    rows: dict[str, object] = {
        "machine": profile.instance_type or "unknown",
        "machine from": profile.placement.instance_type.source if profile.placement.instance_type else None,
        "region": profile.region,
        "model": setup.model,
        "batch size": setup.batch_size,
        "steps per epoch": setup.steps_per_epoch,
        "backend": f"{backend} {environment.versions.get(backend, '')}".strip() if backend else backend,
        "cores": environment.usable_cores or environment.cpu_cores,
        "GPUs": f"{len(environment.gpus)} x {environment.gpus[0].name}" if environment.gpus else None,
        **before,
        "seconds per step": _format(step_seconds(profile)),
        **after,
        "first iteration": _format_first_step(timeline.first_step),
        "waits for data": None if wait is None else f"{wait.share:.0%} of the steps' time",
        "processors": None if busy is None else f"{busy:.0%} busy in steady steps",
        "measured power": _format_power(profile.energy),
        "probe took": _format(timeline.wall_seconds),
        "whole training": _join(
            _format(profile.total_seconds),
            f"mean of {runs} runs" if runs > 1 else None,
            f"{setup.epochs} epochs" if runs and setup.epochs else None,
        ),
        "peak memory": format_bytes(environment.peak_memory_bytes) if environment.peak_memory_bytes else None,
        "peak GPU memory": _format_gpu_memory(environment),
        "outcome": profile.outcome.replace("_", " ") + (f": {profile.detail}" if profile.detail else ""),
        **{name: f"{value:g}" for name, value in profile.metrics.items()},
    }
    return {printable(name): printable(str(value)) for name, value in rows.items() if value is not None}


def to_text(profile: Profile) -> str:
    """The main fields of ``profile``, one per line, followed by its findings."""
    rows = summarize(profile)
    width = max(len(name) for name in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows.items()]
    return "\n".join(lines + [f"! {printable(str(finding))}" for finding in profile.findings])


def to_html(profile: Profile) -> str:
    """The main fields of ``profile`` as an HTML table, followed by its findings."""
    return table_html(summarize(profile).items()) + findings_html(profile.findings)


def list_html(profiles: Sequence[Profile]) -> str:
    """An HTML table with a row per profile, of at most :data:`MAX_LISTED` profiles."""
    listed = profiles[:MAX_LISTED]
    summaries = [summarize(profile) for profile in listed]
    columns = [name for name in LIST_COLUMNS if any(name in row for row in summaries)]
    rows = (
        [*(row.get(name, "") for name in columns), sum(finding.severity == "warning" for finding in profile.findings)]
        for row, profile in zip(summaries, listed, strict=True)
    )
    more = f"<p>The first {MAX_LISTED} of {len(profiles):,} profiles.</p>" if len(profiles) > MAX_LISTED else ""
    return table_html(rows, (*columns, "warnings")) + more


def _format_first_step(first: FirstStep | None) -> str | None:
    if first is None:
        return None
    parts = {"tracing": first.tracing_seconds, "compiling": first.compiling_seconds}
    shown = [f"{name} {format_seconds(seconds)}" for name, seconds in parts.items() if seconds]
    return ", ".join(shown) or None


def _format_power(energy: MeasuredEnergy | None) -> str | None:
    watts = energy.watts if energy else None
    if energy is None or watts is None:
        return None
    return f"{watts:.3g} W in steady steps ({list_all([part.name for part in energy.parts])})"


def _format(seconds: float | None) -> str | None:
    return None if seconds is None else format_seconds(seconds)


def _format_gpu_memory(environment: Environment) -> str | None:
    peak, details = environment.peak_gpu_memory_bytes, environment.gpu_memory
    if not peak:
        return None
    reserved = details.reserved_bytes if details else None
    sampled = "all programs, sampled" if details and details.source == "nvml" else None
    return _join(format_bytes(peak), f"{format_bytes(reserved)} reserved" if reserved else None, sampled)


def _join(*parts: str | None) -> str | None:
    """All ``parts`` that are not None, separated by commas; None if there are none."""
    return ", ".join(filter(None, parts)) or None


def without_times(profile: Profile) -> Profile:
    """The description of a training that a probe has measured: a new profile with its setup and its work only."""
    work, seen = profile.work, profile.environment
    parameters = profile.setup.parameters
    if parameters is None and work is not None:
        parameters = work.parameters + work.constants
    validates = True if profile.timeline.validations else profile.setup.validates
    return Profile(
        outcome="described",
        setup=profile.setup.model_copy(update={"parameters": parameters, "validates": validates}),
        timeline=Timeline(),
        environment=Environment(
            backend=seen.backend,
            versions=seen.versions,
            precision=seen.precision,
            tf32=seen.tf32,
            convolution_tf32=seen.convolution_tf32,
            jit=seen.jit,
        ),
        factors=profile.factors,
        work=work,
    )
