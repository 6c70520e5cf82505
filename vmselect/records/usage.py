"""Sampled usage of a machine (CPU, memory, GPU and others), summarized by phase.

The name of a quantity ends in its unit; ``_share`` is a fraction from 0 to 1. ``process_cores`` and ``other_cores``
count busy CPU cores among the cores that the process may use: those busy with the process and its children, and those
busy with other programs.
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
"""Phases of a training (first line), an inference measurement and a transfer. ``boundary`` is the time from the last
step of an epoch to the first step of the next epoch, without validation. After a validation within an epoch, it is the
time until the next step ends."""

PHASES: tuple[Phase, ...] = get_args(Phase)
WORK: tuple[Phase, ...] = ("steady_steps", "calls", "upload", "download")
"""The main phases of the kinds of records: steady steps of a training, calls of a model, uploads and downloads."""


class Summary(Facts):
    """Statistics of one quantity in one phase, from ``count`` samples during ``seconds``.

    The mean is weighted by time. Percentiles are computed from the samples that the record contains.
    """

    count: Count
    seconds: Seconds
    mean: Number
    maximum: Number
    p50: Number
    p95: Number


class Limits(Facts):
    """CPU cores and memory that the process may use; None if unlimited or unknown."""

    cores: PositiveCount | None = None
    container_cores: Annotated[float, Field(gt=0)] | None = None
    container_memory_bytes: Count | None = None


class Usage(Facts):
    """Usage sampled every ``interval_seconds`` and at changes of phase: statistics by phase and quantity, and a series.

    ``seconds`` (from the start of ``fit`` to the end of a sample), ``phase`` and the columns of ``series`` have the
    same length. A column contains None where the quantity could not be read. Individual CPU cores have statistics but
    no series.
    """

    interval_seconds: Seconds
    limits: Limits = Limits()
    power_sources: Mapping[Text, Text] | None = Field(default=None, max_length=MAX_QUANTITIES)
    """How the power of ``gpu0``, ``cpu`` and other parts was measured: ``counter`` (energy counter of a GPU),
    ``samples`` (power samples), ``rapl`` (energy counters of the CPU) or ``given``; None if none was."""
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
            raise ValueError("the columns seconds and phase and the columns of series differ in length")
        return self

    @property
    def working(self) -> Mapping[str, Summary]:
        """Statistics of every quantity in the main phase: steady steps, calls or uploads."""
        return next((self.phases[phase] for phase in WORK if phase in self.phases), {})

    def summary(self, quantity: str, phase: Phase | None = None) -> Summary | None:
        """Statistics of ``quantity`` in ``phase`` (default: the main phase); None if it was not sampled."""
        return (self.working if phase is None else self.phases.get(phase, {})).get(quantity)

    def mean(self, quantity: str, phase: Phase | None = None) -> float | None:
        """Mean of ``quantity`` in ``phase`` (default: the main phase); None if it was not sampled."""
        found = self.summary(quantity, phase)
        return None if found is None else found.mean

    def summed_up(self) -> Usage:
        """A copy with the statistics but without the series of samples, for records that contain many runs."""
        return self.model_copy(update={"seconds": (), "phase": (), "series": {}})

    def quantities(self) -> Iterator[str]:
        """Names of all quantities that were sampled in any phase."""
        yield from dict.fromkeys(name for phase in self.phases.values() for name in phase)
