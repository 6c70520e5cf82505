"""The profile: what one probe saw of one training on one machine, as it was seen.

The readings of a fit cover its whole wall time without overlap::

    init | fit_to_first_batch | step step ... step | validation | boundary | step ... | validation | boundary (final)

so that their sum, when the whole fit was watched, is the time the training took.
"""

from __future__ import annotations

import html
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, model_validator

from vmselect.findings import Finding, findings_html
from vmselect.records.record import Count, Facts, Number, Part, PositiveCount, Record, Seconds, Text
from vmselect.records.usage import Usage
from vmselect.records.warmup import find_warmup
from vmselect.units import format_bytes, format_seconds, printable

FORMAT: Final = 3
"""Number of the file format that this version writes; :attr:`Profile.format` repeats it."""

MAX_STEP_READINGS = 20_000
MAX_EPOCHS = 20_000
MAX_BATCH_READINGS = 4_000

Label = Literal["first", "warmup", "opening", "steady", "partial"]
"""What a step reading is: the very first step (tracing and compilation), a later warm-up step, the first step of a
later epoch, an ordinary step, or a smaller last batch."""

Outcome = Literal["stopped", "watched", "interrupted", "out_of_memory", "given"]
"""How the recording ended: the probe had enough, the fit came to its end, an exception, no memory; or the times were
measured elsewhere."""

Saving = Literal["best", "epochs", "batches"]
"""When checkpoints are saved: after the best epochs only, after each epoch, or only after so many batches."""


class Step(NamedTuple):
    """One step reading: ``covers`` steps took ``seconds``, the last of them is number ``batch`` of its epoch."""

    epoch: int
    batch: int
    seconds: float
    covers: int
    label: Label

    @property
    def each(self) -> float:
        """Seconds of a single step."""
        return self.seconds / self.covers


class Steps(Part):
    """Step readings, end to end, one column a fact; bounded however long the fit was.

    Every reading covers ``covers`` training steps (more than one under ``steps_per_execution``), the last of which
    has the index ``batch`` within ``epoch``. ``readings``, ``steps`` and ``total_seconds`` are exact sums over all
    that happened, including readings that were not kept.
    """

    epoch: tuple[Count, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    batch: tuple[Count, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    seconds: tuple[Seconds, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    covers: tuple[PositiveCount, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    label: tuple[Label, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    readings: Count = 0
    steps: Count = 0
    total_seconds: Seconds = 0.0

    @model_validator(mode="after")
    def _columns_agree(self) -> Steps:
        lengths = {len(self.epoch), len(self.batch), len(self.seconds), len(self.covers), len(self.label)}
        if len(lengths) != 1:
            raise ValueError("the columns epoch, batch, seconds, covers and label differ in length")
        if self.readings < len(self.seconds) or self.steps < sum(self.covers):
            raise ValueError("readings and steps are smaller than the number of readings kept")
        return self

    @classmethod
    def of(cls, rows: Iterable[Step], **sums: Any) -> Steps:
        """Steps from rows; ``sums`` are the exact sums where not every reading is among the rows."""
        rows = tuple(rows)
        columns: dict[str, Any] = dict(zip(Step._fields, zip(*rows, strict=True), strict=True)) if rows else {}
        exact = {
            "readings": len(rows),
            "steps": sum(row.covers for row in rows),
            "total_seconds": sum(row.seconds for row in rows),
        }
        return cls(**columns, **(exact | sums))

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """The label of each reading, with warm-up detected anew; ``label`` is what the writer of the file detected."""
        warm = find_warmup(self.epoch, self.seconds, self.covers, self.label)
        ordinary: Mapping[Label, Label] = {"warmup": "steady"}
        return tuple(
            "warmup" if position in warm else ordinary.get(label, label) for position, label in enumerate(self.label)
        )

    @cached_property
    def rows(self) -> tuple[Step, ...]:
        """The readings that were kept, in order."""
        return tuple(map(Step, self.epoch, self.batch, self.seconds, self.covers, self.labels))

    @cached_property
    def steady_seconds(self) -> tuple[float, ...]:
        """Seconds of a single step, of every steady reading."""
        columns = zip(self.seconds, self.covers, self.labels, strict=True)
        return tuple(seconds / covers for seconds, covers, label in columns if label == "steady")

    def __copy__(self) -> Steps:
        # A copy may get other columns, so it computes its own cached properties.
        copied = super().__copy__()
        for name in ("labels", "rows", "steady_seconds"):
            copied.__dict__.pop(name, None)
        return copied

    def labelled(self, *labels: Label) -> list[Step]:
        """The readings with one of these labels; most are steady, and rows are made of those asked for only."""
        columns = zip(self.epoch, self.batch, self.seconds, self.covers, self.labels, strict=True)
        return [Step(*row) for row in columns if row[-1] in labels]

    def __len__(self) -> int:
        return len(self.seconds)


class Epoch(Part):
    """One epoch's training part, exact even where single steps were not kept.

    ``seconds`` is the sum of the step readings; ``opening_seconds`` the first of them, ``closing_seconds`` the last.
    ``steps`` is None where the probe did not count steps. ``complete`` is False for an epoch that a probe cut short.
    """

    epoch: Count
    seconds: Seconds
    steps: Count | None = None
    opening_seconds: Seconds | None = None
    closing_seconds: Seconds | None = None
    complete: bool = True


class Validation(Part):
    """One validation pass: ``seconds`` in all, and its batches end to end (the first counted from the start)."""

    epoch: Count
    seconds: Seconds
    batches: Count | None = None
    batch_seconds: tuple[Seconds, ...] = Field(default=(), max_length=MAX_BATCH_READINGS)
    truncated: bool = False


class Boundary(Part):
    """Time outside steps and validation, from the last step of ``epoch`` to the first of the next one.

    ``before_validation_seconds`` of that lie before the validation, or before the end of the epoch where there was
    none: frameworks wrap up the epoch there, and may compile for that once. ``epoch_end_seconds`` are those in which
    other callbacks did their work at the end of the epoch, such as saving the model. Either is None where that was not
    watched.
    ``final`` marks the time between the last step and the end of the fit; ``truncated`` an epoch that a probe cut
    short, whose boundary may be shorter than that of a whole epoch.
    """

    epoch: Count
    seconds: Seconds
    before_validation_seconds: Seconds | None = None
    epoch_end_seconds: Seconds | None = None
    truncated: bool = False
    final: bool = False


class Pause(Part):
    """Time inside the step ``batch`` of ``epoch`` with a known cause; the step's own reading is without it."""

    cause: Literal["garbage collection"]
    epoch: Count
    batch: Count
    seconds: Seconds
    whole_heap: bool | None = None
    """Whether the collector looked through all objects, which it does ever more seldom."""


class InputWait(Facts):
    """How long steps waited for their data: ``seconds`` of the ``wall_seconds`` that ``steps`` of them took."""

    seconds: Seconds
    wall_seconds: Seconds
    steps: Count
    method: Text

    @property
    def share(self) -> float:
        """The share of the time that went into waiting."""
        return min(1.0, self.seconds / self.wall_seconds) if self.wall_seconds else 0.0


class Timeline(Part):
    """Every recorded time, in seconds."""

    init_seconds: Seconds | None = None
    init_source: Literal["process start", "mark_start", "given"] | None = None
    fit_to_first_batch_seconds: Seconds | None = None
    steps: Steps = Steps()
    epochs: tuple[Epoch, ...] = Field(default=(), max_length=MAX_EPOCHS)
    validations: tuple[Validation, ...] = Field(default=(), max_length=MAX_EPOCHS)
    boundaries: tuple[Boundary, ...] = Field(default=(), max_length=MAX_EPOCHS)
    pauses: tuple[Pause, ...] = Field(default=(), max_length=MAX_STEP_READINGS)
    input_wait: InputWait | None = None
    wall_seconds: Seconds | None = None
    cpu_seconds: Seconds | None = None
    fit_seconds: Seconds | None = None

    @model_validator(mode="after")
    def _init_has_a_source(self) -> Timeline:
        if (self.init_seconds is None) != (self.init_source is None):
            raise ValueError("init_seconds and init_source go together")
        return self


class Setup(Part):
    """What was trained: the part of the workload that the machine does not change."""

    model: Text | None = None
    parameters: Count | None = None
    structure: Text | None = None
    """A digest of the model's layers and of which of them are trained: frozen and fine-tuned differ in it."""
    batch_size: PositiveCount | None = None
    batch_size_source: Literal["argument", "data", "given"] | None = None
    worker_batch_size: PositiveCount | None = None
    """Examples per step of one worker; ``batch_size`` is that of all of them together."""
    steps_per_epoch: PositiveCount | None = None
    steps_per_execution: PositiveCount = 1
    epochs: PositiveCount | None = None
    initial_epoch: Count = 0
    examples: PositiveCount | None = None
    partial_batch: Annotated[int, Field(ge=0)] | None = None
    validation_examples: Count | None = None
    validation_steps: PositiveCount | None = None
    validation_freq: PositiveCount = 1
    validations_per_epoch: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """How often validation comes within an epoch, where that is not once at its end."""
    saving: Saving | None = None
    """How checkpoints are saved: after each epoch, after the best ones only, or only by batches."""
    save_freq: PositiveCount | None = None
    """After how many batches a checkpoint is saved, where that is so; of several the smallest number."""
    self_tuning_input: bool | None = None
    """Whether the data come from a tf.data pipeline that tunes itself as it runs."""
    continuous_input: bool | None = None
    """Whether one pass over data without an end goes on through all epochs, as with ``steps_per_epoch``."""


class Fit(Part):
    """Which training of its process this was: the ``number``-th, in the order of the program."""

    number: PositiveCount
    process: Text
    name: Text | None = None


class Profile(Record):
    """What a probe saw of a training on one machine.

    >>> profile = Profile.from_times(instance_type="p3.2xlarge", batch_size=256, steps_per_epoch=159,
    ...     init_seconds=0.2, first_iteration_seconds=3.4, iteration_seconds=[0.13, 0.13],
    ...     validation_seconds=[0.17, 0.02], model="seismic-fcn")
    >>> profile.instance_type, profile.batch_size
    ('p3.2xlarge', 256)
    """

    kind: Literal["training"] = "training"
    format: Literal[3] = FORMAT
    probe: Literal["iteration", "epoch", "loop"] | None = None
    outcome: Outcome
    detail: Text | None = None
    setup: Setup = Setup()
    timeline: Timeline
    fit: Fit | None = None
    usage: Usage | None = None
    metrics: Mapping[Text, Number] = Field(default_factory=dict, max_length=1_000)

    # -- what most readers ask for -------------------------------------------------------------------------------

    @property
    def model(self) -> str | None:
        """Name of the model that was trained."""
        return self.setup.model

    @property
    def batch_size(self) -> int | None:
        """Examples per training step, over all replicas."""
        return self.setup.batch_size

    @property
    def steps_per_epoch(self) -> int | None:
        """Training steps in a whole epoch."""
        return self.setup.steps_per_epoch

    @property
    def total_seconds(self) -> float | None:
        """The true time of the training from initialization to its end, where the whole fit was watched."""
        if self.outcome != "watched" or self.timeline.fit_seconds is None:
            return None
        return (self.timeline.init_seconds or 0.0) + self.timeline.fit_seconds

    @property
    def title(self) -> str:
        """A short name for messages and tables: instance type and batch size."""
        batch = f"batch {self.batch_size}" if self.batch_size else "unknown batch size"
        return f"{self.instance_type or 'unknown machine'}, {batch}"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Warnings and information about this profile, each with a remedy, and the certain diagnoses."""
        from vmselect.records.warnings import find_warnings

        return find_warnings(self)

    @property
    def file_stem(self) -> str:
        """Instance type and batch size."""
        return f"{self.instance_type or 'unknown'}-{self.batch_size or 'x'}"

    # -- files ---------------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a profile, of this format or an older one; anything else is a :class:`ProfileError`."""
        from vmselect.records.store import load_profile

        return load_profile(path)

    # -- times measured elsewhere --------------------------------------------------------------------------------

    @classmethod
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
        total_seconds: float | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> Profile:
        """A profile from times that were measured elsewhere: a paper, a log, another tool. All times in seconds.

        Give either iterations (``first_iteration_seconds`` and ``iteration_seconds``) or epochs
        (``first_epoch_seconds`` and ``later_epoch_seconds``, each with its validation), or both.
        """
        from vmselect.records.importers import profile_from_times

        return profile_from_times(locals())

    # -- showing -------------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, str]:
        """What a person wants to see of this profile: name to printable value, in reading order."""

        return summarise(self)

    def __str__(self) -> str:

        return as_text(self)

    def _repr_html_(self) -> str:

        return as_html(self)


# A profile as a person reads it: a few lines of text, or a small table in a notebook.


def summarise(profile: Profile) -> dict[str, str]:
    """Name to printable value, in reading order; what is unknown is left out."""
    setup, timeline, environment = profile.setup, profile.timeline, profile.environment
    rows: dict[str, str | None] = {
        "machine": profile.instance_type or "unknown",
        "learnt from": profile.placement.instance_type.source if profile.placement.instance_type else None,
        "region": profile.region,
        "model": setup.model,
        "batch size": _text(setup.batch_size),
        "steps per epoch": _text(setup.steps_per_epoch),
        "backend": _backend(profile),
        "cores": _text(environment.usable_cores or environment.cpu_cores),
        "GPUs": f"{len(environment.gpus)} x {environment.gpus[0].name}" if environment.gpus else None,
        "initialization": _seconds(timeline.init_seconds),
        "first step": _first_step(profile),
        "steady step": _steady_step(profile),
        "validations": ", ".join(format_seconds(v.seconds) for v in timeline.validations[:3]) or None,
        "epochs": ", ".join(format_seconds(e.seconds) for e in timeline.epochs[:3] if e.complete) or None,
        "waits for data": _input_wait(profile),
        "processors": _processors(profile),
        "probe took": _seconds(timeline.wall_seconds),
        "whole training": _seconds(profile.total_seconds),
        "peak memory": format_bytes(environment.peak_memory_bytes) if environment.peak_memory_bytes else None,
        "outcome": profile.outcome.replace("_", " ") + (f": {profile.detail}" if profile.detail else ""),
    }
    rows.update({name: f"{value:g}" for name, value in profile.metrics.items()})
    return {printable(name): printable(value) for name, value in rows.items() if value is not None}


def as_text(profile: Profile) -> str:
    """The summary as aligned lines, then the findings."""
    rows = summarise(profile)
    width = max(len(name) for name in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows.items()]
    return "\n".join(lines + [f"! {printable(str(finding))}" for finding in profile.findings])


def as_html(profile: Profile) -> str:
    """The summary as an HTML table; everything in it is escaped."""
    left = 'style="text-align:left"'
    rows = "".join(
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(value)}</td></tr>"
        for name, value in summarise(profile).items()
    )
    return f"<table><tbody>{rows}</tbody></table>{findings_html(profile.findings)}"


COLUMNS = ("machine", "model", "batch size", "steps per epoch", "steady step", "outcome")
"""What a table of several profiles shows of each, if any has it."""

MOST_ROWS = 100


def table_html(profiles: Sequence[Profile], *, most: int = MOST_ROWS) -> str:
    """A row for each profile, as HTML; everything in it is escaped."""
    summaries = [summarise(one) for one in profiles[:most]]
    shown = [name for name in COLUMNS if any(name in row for row in summaries)]
    left = 'style="text-align:left"'
    head = "".join(f"<th {left}>{name}</th>" for name in (*shown, "warnings"))
    body = "".join(
        "<tr>"
        + "".join(f"<td {left}><bdi>{html.escape(row.get(name, ''))}</bdi></td>" for name in shown)
        + f"<td>{sum(finding.severity == 'warning' for finding in one.findings) or ''}</td></tr>"
        for row, one in zip(summaries, profiles, strict=False)
    )
    more = f"<p>The first {most} of {len(profiles):,} profiles.</p>" if len(profiles) > most else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _seconds(value: float | None) -> str | None:
    return None if value is None else format_seconds(value)


def _backend(profile: Profile) -> str | None:
    name = profile.environment.backend
    version = profile.environment.versions.get(name or "")
    return f"{name} {version}" if name and version else name


def _input_wait(profile: Profile) -> str | None:
    wait = profile.timeline.input_wait
    return None if wait is None else f"{wait.share:.0%} of the steps' time"


def _processors(profile: Profile) -> str | None:
    busy = None if profile.usage is None else profile.usage.mean("usable_cpu_share")
    return None if busy is None else f"{busy:.0%} busy in steady steps"


def _first_step(profile: Profile) -> str | None:
    first = profile.timeline.steps.labelled("first")
    return format_seconds(first[0].seconds) if first else None


def _steady_step(profile: Profile) -> str | None:
    steady = profile.timeline.steps.steady_seconds
    if not steady:
        return None
    return f"{format_seconds(statistics.median(steady))} (median of {len(steady)})"
