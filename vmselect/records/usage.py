"""Sampled utilization of a machine, summarized by phase.

A quantity's name ends in its unit. ``_share`` is a part of 1. ``process_cores`` and ``other_cores`` count the cores, of
those that the process may use, that were busy with the process and its children, and with other programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from vmselect.records.record import Count, Facts, Number, PositiveCount, Seconds, Text

MAX_SAMPLES = 4_000
MAX_QUANTITIES = 2_000

Phase = Literal[
    "initialization", "first_step", "steady_steps", "validation", "boundary",
    "first_call", "calls",
    "upload", "download",
]  # fmt: skip
"""Phases of a training, of inference, of a transfer. ``boundary`` is the time from the last step of an epoch to the
first of the next without validation. After a validation in mid-epoch it lasts until the next step has ended."""

PHASES: tuple[Phase, ...] = get_args(Phase)
WORK: tuple[Phase, ...] = ("steady_steps", "calls", "upload", "download")
"""The main phase of each kind of record."""


class Summary(Facts):
    """One quantity over one phase: ``count`` samples over ``seconds``. Percentiles are of the samples kept.

    The mean is weighted by time.
    """

    count: Count
    seconds: Seconds
    mean: Number
    maximum: Number
    p50: Number
    p95: Number


class Limits(Facts):
    """Cores and memory that the process may use; None is no limit, or unknown."""

    cores: PositiveCount | None = None
    container_cores: Annotated[float, Field(gt=0)] | None = None
    container_memory_bytes: Count | None = None


class Usage(Facts):
    """Samples taken every ``interval_seconds`` and at changes of phase: a summary of each quantity, a bounded series.

    ``seconds`` (since the start of the fit, at the end of a sample) and ``phase`` are columns like those of ``series``,
    which holds None where a quantity could not be read. Single cores have summaries only.
    """

    interval_seconds: Seconds
    limits: Limits = Limits()
    phases: Mapping[Phase, Annotated[Mapping[Text, Summary], Field(max_length=MAX_QUANTITIES)]] = Field(
        default_factory=dict
    )
    seconds: tuple[Seconds, ...] = Field(default=(), max_length=MAX_SAMPLES)
    phase: tuple[Phase, ...] = Field(default=(), max_length=MAX_SAMPLES)
    series: Mapping[Text, Annotated[tuple[Number | None, ...], Field(max_length=MAX_SAMPLES)]] = Field(
        default_factory=dict, max_length=MAX_QUANTITIES
    )

    @model_validator(mode="after")
    def _columns_agree(self) -> Usage:
        if len({len(self.seconds), len(self.phase), *(len(column) for column in self.series.values())}) != 1:
            raise ValueError("the columns seconds, phase and those of series differ in length")
        return self

    @property
    def working(self) -> Mapping[str, Summary]:
        """Every quantity in the main phase: steady steps, calls or uploads."""
        return next((self.phases[phase] for phase in WORK if phase in self.phases), {})

    def summary(self, quantity: str, phase: Phase | None = None) -> Summary | None:
        """The summary of a quantity in a phase, by default the main one; None where it was not read."""
        return (self.working if phase is None else self.phases.get(phase, {})).get(quantity)

    def mean(self, quantity: str, phase: Phase | None = None) -> float | None:
        """The mean of a quantity in a phase, or None where it was not read."""
        found = self.summary(quantity, phase)
        return None if found is None else found.mean

    def summed_up(self) -> Usage:
        """A copy without the series, for records that hold many runs."""
        return self.model_copy(update={"seconds": (), "phase": (), "series": {}})

    def quantities(self) -> Iterator[str]:
        """Every quantity that was read in any phase."""
        yield from dict.fromkeys(name for phase in self.phases.values() for name in phase)
