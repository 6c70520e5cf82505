"""Power of a machine during a training: measured by its probe, or by the fraction of TDP that a GPU uses.

The energy of a training is its time multiplied by the power of the machine in steady steps. That power is::

    measured GPUs, CPU and memory, plus a share for the rest      if the probe read the power of all GPUs and of the CPU
    measured GPUs, divided by the usual share of GPUs             if the probe read the power of all GPUs only
    fraction of TDP x TDP of the other GPU, divided by that share for a machine that was not measured

The fraction is that of the same training on the measured GPUs. Without any measured GPU, it follows from the
description of the training: the more of a step is spent on starting kernels, the more the GPU waits. Without a
description, it is that of a typical training.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from vmselect.catalog.gpus import identify_gpu, tdp_watts
from vmselect.intervals import Interval
from vmselect.records import Profile
from vmselect.units import JOULES_PER_KWH

Floats = npt.NDArray[np.float64]

METER_DEVIATION = 0.05
"""Standard deviation of the log of measured power. NVIDIA states 5 % for the power readings of Fermi and Kepler GPUs
(documentation of NVML) and nothing for later ones; newer GPUs and energy counters of CPUs are assumed to be as good."""
GPU_SHARE, GPU_SHARE_DEVIATION = 0.60, 0.12
"""Share of the GPUs in the power of a machine, and standard deviation of its log. GPUs have 0.49 of the largest power
of a DGX A100 (8 x 400 W of 6.5 kW) and 0.55 of that of a DGX H100 (8 x 700 W of 10.2 kW) by NVIDIA's user guides. In
a training on one GPU, it used 187 of the 252 W of GPU, CPU and memory (0.74; Dodge et al., Measuring the Carbon
Intensity of AI in Cloud Instances, 2022, table 1), which is 0.65 of the machine with :data:`REST_SHARE`. The interval
at 90 % is 0.49 to 0.73."""
REST_SHARE, REST_DEVIATION = 0.15, 0.08
"""Power of the rest of a machine (power supply, fans, disks, main board) relative to its GPUs, CPU and memory, and
standard deviation of the log of the sum. Chosen by judgement: power supplies lose 4 to 15 % of their input."""
IDLE_FRACTION = 0.12
"""Fraction of TDP that a GPU uses while it waits, such as 10 W of a T4 (70 W) or 50 W of an A100 (400 W). Chosen by
judgement."""
FRACTION_SPREAD, BUSIEST_FRACTION = 0.55, 0.95
"""Standard deviation of the log of the fraction of TDP of one training on another GPU, divided by the square root of
the unused fraction (at least 1 - 0.95): a GPU that is busy has little room for another fraction, one that mostly waits
has much. The first number is that of all tasks of Zeus' measurements, by ``benchmarks/energy.py``, which also reports
the coverage on tasks that did not choose it."""
TYPICAL_FRACTION, TYPICAL_DEVIATION = 0.6, 0.55
"""Fraction of TDP of a training about which nothing is known, and standard deviation of its log. The quartiles of the
public measurements of Zeus are 0.28 and 0.82, and their range is 0.13 to 0.97. The logs of six tasks have the mean
of 0.56, with a standard deviation of 0.57 between tasks."""
WAITING_FRACTION, FULL_FRACTION, WAITING_EXPONENT, DESCRIBED_DEVIATION = 0.16, 0.83, 1.7, 0.35
"""Fraction of TDP of a described training: ``WAITING_FRACTION`` if a step consists of starting kernels only, and
``FULL_FRACTION`` if it consists of none of that. In between, the difference is multiplied by one minus the share of a
step that starting kernels takes to the power of ``WAITING_EXPONENT``. Fitted to 157 measurements of Zeus (four tasks on
four GPUs). Fitted without the task, intervals at 90 % with ``DESCRIBED_DEVIATION`` cover 97 to 100 % of BERT, ResNet-50
and ShuffleNet and 83 % of NCF (``tests/benchmarks/described_factors.py``)."""
OTHER_BATCH_DEVIATION = 0.15
"""Standard deviation of the log of power between batch sizes of one training on one GPU: that of the half of
Zeus' tasks in which it is larger, rounded up."""


PowerBasis = Literal["measured", "predicted", "described", "assumed"]
"""Where the power of a machine comes from: measured; or the fraction of TDP on other GPUs (``predicted``), of the
description of the training (``described``) or of a typical training (``assumed``)."""


class Fraction(NamedTuple):
    """Fraction of TDP that a training uses on GPUs that were not measured, and the standard deviation of its log."""

    value: float
    deviation: float
    basis: PowerBasis


@dataclass(frozen=True)
class Power:
    """Power of a whole machine in steady steps: ``watts``, and the standard deviation of its log."""

    watts: float
    deviation: float
    basis: PowerBasis
    group: str
    """Machines of the same group share the error of their power: the GPU model, or the machine if it was measured."""

    def interval(self, confidence: float) -> Interval[float]:
        """The power with its interval at ``confidence``."""
        spread = math.exp(NormalDist().inv_cdf(0.5 + confidence / 2) * self.deviation)
        return Interval.within_factor(self.watts, spread)


class UnknownPower(NamedTuple):
    """Why the power of a machine is unknown, and what to do."""

    problem: str
    remedy: str

    @property
    def reason(self) -> str:
        """Problem and remedy as one phrase."""
        return f"{self.problem}; {self.remedy}"


NO_RAPL = UnknownPower(
    "the probe could not read the power of the CPU", "probe on a machine that lets you read /sys/class/powercap"
)
NO_TDP = UnknownPower("the power of its GPU is not published", "probe this machine")


def measured_power(profiles: Sequence[Profile], *, name: str, other_batch: bool = False) -> Power | None:
    """Power of the machine ``name``, from the profiles measured there; None if none of them has its power.

    ``other_batch`` states that the profiles have another batch size than the training.
    """
    logs, deviations = [], []
    for profile in profiles:
        watts = _machine_watts(profile)
        if watts is not None:
            logs.append(math.log(watts[0]))
            deviations.append(watts[1])
    if not logs:
        return None
    # Repetitions share the meter and the assumed share, so their mean is no more certain than one of them.
    deviation = math.hypot(METER_DEVIATION, max(deviations), OTHER_BATCH_DEVIATION if other_batch else 0.0)
    return Power(math.exp(fmean(logs)), deviation, "measured", name)


def _machine_watts(profile: Profile) -> tuple[float, float] | None:
    """Power of the whole machine, and the standard deviation of the log of the assumed part; None if unknown."""
    energy = profile.energy
    gpus, cpu = (energy.gpu_watts, energy.cpu_watts) if energy else (None, None)
    measured = (gpus or 0.0) + (cpu or 0.0)
    if energy is None or energy.missing or measured <= 0:
        return None
    if cpu is not None:
        return measured * (1 + REST_SHARE), REST_DEVIATION
    return measured / GPU_SHARE, GPU_SHARE_DEVIATION


def tdp_fraction(profile: Profile, *, gpu: str | None = None) -> float | None:
    """Power of the GPUs that the training used relative to their TDP; None if one of the two is unknown.

    ``gpu`` is the model of the GPU, if the profile does not name it.
    """
    energy = profile.energy
    if energy is None or energy.missing:
        return None
    # Idle GPUs of the machine draw least: the busiest ones are those that the training used.
    watts = sorted((part.watts or 0.0 for part in energy.parts if part.name.startswith("gpu")), reverse=True)
    seen = profile.environment
    used = watts[: min(seen.framework_gpus, seen.replicas) or 1] if seen.framework_gpus is not None else watts
    name = identify_gpu(seen.gpus[0].name) if seen.gpus else gpu
    limit = seen.gpus[0].power_limit_watts if seen.gpus else None
    tdp = (tdp_watts(name) if name else None) or limit  # the driver's limit, where no TDP is published
    if not used or not tdp or sum(used) <= 0:
        return None
    return sum(used) / (len(used) * tdp)


def predict_fraction(measured: Iterable[float], *, launch_share: float | None = None) -> Fraction:
    """Fraction of TDP on a GPU that was not measured, from the fractions on those that were.

    Without any, it follows from ``launch_share``, the share of a step that is spent on starting kernels, if the
    training is described; otherwise it is that of a typical training.

    >>> round(predict_fraction([0.4, 0.9]).value, 2), predict_fraction([]).basis
    (0.6, 'assumed')
    """
    logs = [math.log(fraction) for fraction in measured]
    if logs:
        value = min(1.0, math.exp(fmean(logs)))
        return Fraction(value, FRACTION_SPREAD * math.sqrt(1 - min(value, BUSIEST_FRACTION)), "predicted")
    if launch_share is None:
        return Fraction(TYPICAL_FRACTION, TYPICAL_DEVIATION, "assumed")
    busy = 1 - launch_share**WAITING_EXPONENT
    value = WAITING_FRACTION + (FULL_FRACTION - WAITING_FRACTION) * busy
    return Fraction(value, DESCRIBED_DEVIATION, "described")


def predict_power(fraction: Fraction, gpu: str | None, *, used: float, count: float) -> Power | UnknownPower:
    """Power of a machine with ``count`` GPUs of the model ``gpu``, of which the training uses ``used``."""
    tdp = tdp_watts(gpu) if gpu else None
    if not tdp:
        return NO_TDP if gpu else NO_RAPL
    # GPUs that the training does not use are paid for and idle.
    watts = tdp * (fraction.value * used + IDLE_FRACTION * max(0.0, count - used))
    deviation = math.hypot(fraction.deviation, GPU_SHARE_DEVIATION)
    return Power(watts / GPU_SHARE, deviation, fraction.basis, gpu or "")


@dataclass(frozen=True)
class PowerTable:
    """Power of several machines, all of their nodes together, as arrays; NaN if it is unknown.

    ``deviation`` is the standard deviation of its log. Machines with the same ``group`` share that error.
    """

    watts: Floats
    deviation: Floats
    group: npt.NDArray[np.intp]
    powers: tuple[Power | UnknownPower, ...]

    @classmethod
    def of(cls, powers: Sequence[Power | UnknownPower], nodes: Sequence[int]) -> PowerTable:
        """Make the table of machines with these ``powers`` of one node and these numbers of ``nodes``."""
        rows = [power if isinstance(power, Power) else Power(math.nan, 0.0, "predicted", "") for power in powers]
        numbers = {group: number for number, group in enumerate(dict.fromkeys(power.group for power in rows))}
        return cls(
            watts=np.array([power.watts for power in rows], dtype=float) * np.array(nodes, dtype=float),
            deviation=np.array([power.deviation for power in rows], dtype=float),
            group=np.array([numbers[power.group] for power in rows], dtype=np.intp),
            powers=tuple(powers),
        )

    def energy_kwh(self, time: Interval[Floats], machine: npt.NDArray[np.intp], confidence: float) -> Interval[Floats]:
        """Energy in kWh: ``time`` in seconds multiplied by power. ``machine`` is the row of the table for each time.

        The errors of time and power are independent, so their relative half-widths add as squares in log scale.
        """
        value = time.value * (self.watts[machine][:, None] / JOULES_PER_KWH)
        if time.low is time.value and time.high is time.value:
            return Interval.exact(value)
        spread = float(ndtri(0.5 + confidence / 2)) * self.deviation[machine][:, None]
        low, high = (np.exp(np.hypot(side, spread)) for side in time.log_widths())
        return Interval(value, value / low, value * high)

    def to_dict(self, position: int) -> dict[str, Any]:
        """Power of the machine at ``position`` as plain values for JSON, or why it is unknown."""
        power = self.powers[position]
        if isinstance(power, UnknownPower):
            return {"watts": None, "unknown": power.reason}
        watts, deviation = float(self.watts[position]), float(self.deviation[position])
        return {"watts": watts, "deviation": deviation, "group": int(self.group[position]), "basis": power.basis}
