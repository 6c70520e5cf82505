"""Measured energy: the power samples of a record, integrated over time.

Probes sample the power of each GPU (``gpu0_power_watts``), and of CPU and memory where the machine reports it
(``cpu_power_watts``, ``memory_power_watts``). The energy of a part is its mean power times the sampled time, summed
over all phases. What was not measured is unknown, never zero.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from vmselect.records.usage import Usage

COMPLETE_SHARE = 0.98
"""Least share of the sampled time that the power readings of a part must cover. A GPU that the driver lost covers less.
Chosen by judgement."""
_POWER = re.compile(r"(gpu\d+|cpu|memory)_power_watts")


@dataclass(frozen=True)
class MeasuredPart:
    """Energy of one part of a machine (``gpu0``, ``cpu``, ``memory``) while its power was read, for ``seconds``."""

    name: str
    joules: float
    seconds: float
    watts: float | None
    """Mean power in the main phase, such as steady steps; None if it was not read there."""
    source: str
    """``counter``, ``samples``, ``rapl`` or ``given``; see :class:`~vmselect.records.usage.Usage`."""


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
        known = [one for one in watts if one is not None]
        return math.fsum(known) if known and len(known) == len(watts) and not self.missing else None


def measured_energy(usage: Usage | None, *, gpus: int = 0) -> MeasuredEnergy | None:
    """The measured energy of a record with ``usage`` of a machine with ``gpus`` GPUs; None if no power was read."""
    if usage is None:
        return None
    sampled = math.fsum(max(one.seconds for one in found.values()) for found in usage.phases.values() if found)
    names = [match[1] for quantity in usage.quantities() if (match := _POWER.fullmatch(quantity))]
    parts = tuple(_read_part(usage, name) for name in names)
    if not parts:
        return None
    lost = [part.name for part in parts if part.seconds < COMPLETE_SHARE * sampled]
    unread = [f"gpu{index}" for index in range(gpus) if f"gpu{index}" not in names]
    return MeasuredEnergy(sampled, parts, (*lost, *unread))


def _read_part(usage: Usage, name: str) -> MeasuredPart:
    quantity = f"{name}_power_watts"
    read = [found[quantity] for found in usage.phases.values() if quantity in found]
    return MeasuredPart(
        name=name,
        joules=math.fsum(one.mean * one.seconds for one in read),
        seconds=math.fsum(one.seconds for one in read),
        watts=usage.mean(quantity),
        source=(usage.power_sources or {}).get(name, "samples"),
    )
