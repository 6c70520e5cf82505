"""Sampled usage of a machine (CPU, memory, GPU and others), summarized by phase.

The name of a quantity ends in its unit; ``_share`` is a fraction from 0 to 1. ``process_cores`` and ``other_cores``
count busy CPU cores among the cores that the process may use: those busy with the process and its children, and those
busy with other programs.

Measured energy follows from the power samples: probes sample the power of each GPU (``gpu0_power_watts``), and of CPU
and memory where the machine reports it (``cpu_power_watts``, ``memory_power_watts``). The energy of a part is its mean
power times the sampled time, summed over all phases. What was not measured is unknown, never zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from vmselect.records.base import Count, Facts, Number, PositiveCount, Seconds, Text

MAX_SAMPLES = 4_000
MAX_QUANTITIES = 2_000
COMPLETE_SHARE = 0.98
"""Least share of the sampled time that the power readings of a part must cover. A GPU that the driver lost covers less.
Chosen by judgement."""
_POWER = re.compile(r"(gpu\d+|cpu|memory)_power_watts")

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
        summary = self.summary(quantity, phase)
        return None if summary is None else summary.mean

    def summed_up(self) -> Usage:
        """A copy with the statistics but without the series of samples, for records that contain many runs."""
        return self.model_copy(update={"seconds": (), "phase": (), "series": {}})

    def quantities(self) -> Iterator[str]:
        """Names of all quantities that were sampled in any phase."""
        yield from dict.fromkeys(name for phase in self.phases.values() for name in phase)


@dataclass(frozen=True)
class MeasuredPart:
    """Energy of one part of a machine (``gpu0``, ``cpu``, ``memory``) while its power was read, for ``seconds``."""

    name: str
    joules: float
    seconds: float
    watts: float | None
    """Mean power in the main phase, such as steady steps; None if it was not read there."""
    source: str
    """``counter``, ``samples``, ``rapl`` or ``given``; see :class:`Usage`."""


@dataclass(frozen=True)
class MeasuredEnergy:
    """Energy of the parts of a machine whose power was read, during the ``seconds`` in which usage was sampled.

    >>> measured = MeasuredEnergy(60.0, (MeasuredPart("gpu0", 4200.0, 60.0, 70.0, "counter"),))
    >>> measured.joules, measured.watts, measured.gpu_watts, measured.cpu_watts
    (4200.0, 70.0, 70.0, None)
    """

    seconds: float
    parts: tuple[MeasuredPart, ...]
    missing: tuple[str, ...] = ()
    """Parts whose power was not read, or not until the end. The sums below are then None."""

    @property
    def joules(self) -> float | None:
        """Total energy of ``parts`` in joules; None if ``missing`` is not empty, as the total would be too low."""
        return None if self.missing else math.fsum(part.joules for part in self.parts)

    @property
    def watts(self) -> float | None:
        """Total mean power of ``parts`` in the main phase; None if one is not known, or ``missing`` is not empty."""
        return self._sum("gpu", "cpu", "memory")

    @property
    def gpu_watts(self) -> float | None:
        """Total mean power of the GPUs in the main phase; None if there are none, or as for ``watts``."""
        return self._sum("gpu")

    @property
    def cpu_watts(self) -> float | None:
        """Total mean power of CPU and memory (if read) in the main phase; None without the CPU, or as for ``watts``."""
        named = {part.name for part in self.parts}
        return self._sum("cpu", "memory") if "cpu" in named else None

    def _sum(self, *kinds: str) -> float | None:
        watts = [part.watts for part in self.parts if part.name.rstrip("0123456789") in kinds]
        measured = [value for value in watts if value is not None]
        # A sum without one of the parts would be too low, so it is unknown.
        return math.fsum(measured) if measured and len(measured) == len(watts) and not self.missing else None


def measured_energy(usage: Usage | None, *, gpus: int = 0) -> MeasuredEnergy | None:
    """The measured energy of a record with ``usage`` of a machine with ``gpus`` GPUs; None if no power was read."""
    if usage is None:
        return None
    # Quantities of a phase are sampled together. A part that was lost covers less time than the others.
    sampled = math.fsum(max(summary.seconds for summary in phase.values()) for phase in usage.phases.values() if phase)
    names = [match[1] for quantity in usage.quantities() if (match := _POWER.fullmatch(quantity))]
    parts = tuple(_read_part(usage, name) for name in names)
    if not parts:
        return None
    lost = [part.name for part in parts if part.seconds < COMPLETE_SHARE * sampled]
    unread = [f"gpu{index}" for index in range(gpus) if f"gpu{index}" not in names]
    return MeasuredEnergy(sampled, parts, (*lost, *unread))


def _read_part(usage: Usage, name: str) -> MeasuredPart:
    quantity = f"{name}_power_watts"
    summaries = [phase[quantity] for phase in usage.phases.values() if quantity in phase]
    return MeasuredPart(
        name=name,
        joules=math.fsum(summary.mean * summary.seconds for summary in summaries),
        seconds=math.fsum(summary.seconds for summary in summaries),
        watts=usage.mean(quantity),
        source=(usage.power_sources or {}).get(name, "samples"),
    )
