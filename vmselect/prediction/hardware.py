"""Machine types of a catalog with their GPUs, and which of them a training fits (``estimate_memory``).

The peak of GPU memory is a function of the batch size. The memory of weights, gradients and optimizer state does not
depend on the batch size; the memory of activations is proportional to it. If two or more batch sizes were probed, peaks
at other sizes are interpolated or extrapolated linearly. If one was probed, weights, gradients and optimizer state are
subtracted from its peak, and the rest is scaled with the batch size. If none was probed, the description of the
training is used (:mod:`vmselect.prediction.memory`). "Size" is the number of examples that one GPU gets
per step.

The widths of the intervals and the memory that drivers and frameworks reserve are the authors' assumptions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import pandas as pd

from vmselect._checks import check_count, check_name, several, show, suggest_arguments
from vmselect.catalog import Catalog
from vmselect.catalog.gpus import GpuFigures, figures_of, fold_gpu, gpu_vendor, identify_gpu, nominal_memory_gib
from vmselect.diagnosis.causes import Cause, find_unused_gpu
from vmselect.errors import ArgumentError, EstimateError
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.prediction.memory import GROWING_FACTOR, DescribedMemory, describe_memory, fixed_bytes
from vmselect.records import Profile
from vmselect.records.identity import count_nodes, read_records, work_key
from vmselect.units import format_bytes

NO_GPU, NO_FIGURES, SEVERAL_GPUS = "no_gpu_probed", "no_gpu_figures", "several_gpus"
CONTRADICTORY = "contradictory_records"


class Machine(NamedTuple):
    """A machine type of the price catalog, with its GPUs."""

    instance_type: str
    provider: str
    gpu_model: str
    gpu_count: float
    gpu_memory_gib: float | None = None


class Refusal(NamedTuple):
    """Reason why a time cannot be predicted, and which probe would help."""

    code: str
    reason: str
    misleading: bool = False
    """Whether the records are wrong or wait for data, so that a description of the training would mislead too."""


@dataclass(frozen=True)
class MachineTypes:
    """The machine types of a catalog, by instance type."""

    catalog: Catalog

    @cached_property
    def by_name(self) -> Mapping[str, tuple[Machine, ...]]:
        """Machine types by instance type; two providers may use the same name."""
        columns = ["instance_type", "provider", "gpu_model", "gpu_count", "gpu_memory_gib"]
        # Facts of probed machines are needed also where the catalog is restricted to other machines.
        rows = self.catalog.unrestricted.offers(market=None)[columns].drop_duplicates(["instance_type", "provider"])
        by_name: dict[str, list[Machine]] = {}
        for name, provider, gpu, count, gib in rows.itertuples(index=False):
            gpus = 0.0 if count is None or math.isnan(count) else float(count)
            memory = nominal_memory_gib(str(gpu or "")) if gib is None or math.isnan(gib) else float(gib)
            machine = Machine(str(name), str(provider), str(gpu or ""), gpus, memory)
            by_name.setdefault(machine.instance_type, []).append(machine)
        return {name: tuple(machines) for name, machines in by_name.items()}

    def find(self, instance_type: str | None, provider: str | None) -> Machine | None:
        """The machine type of a record; None if the catalog does not contain it."""
        machines = self.by_name.get(instance_type or "", ())
        return next((machine for machine in machines if provider in (None, machine.provider)), None)


def find_gpu_at_rest(profile: Profile, types: MachineTypes) -> Cause | None:
    """The cause that a training used no GPU although its machine has one, by the record and by the catalog."""
    if profile.environment.framework_gpus != 0:
        return None
    machine = types.find(profile.instance_type, profile.provider)
    return find_unused_gpu(profile, gpus_of_type=None if machine is None else machine.gpu_count)


def read_gpu(profile: Profile, types: MachineTypes) -> GpuFigures | Refusal:
    """Published figures of the single GPU on which a profile was trained; a refusal if there is no such GPU."""
    seen, machine = profile.environment, types.find(profile.instance_type, profile.provider)
    name = profile.instance_type or "this machine"
    sold = machine.gpu_model if machine and machine.gpu_count > 0 else None
    recorded = identify_gpu(seen.gpus[0].name) if seen.gpus else None
    if seen.framework_gpus == 0 or not (seen.gpus or sold):
        problem = f"{name} trained without a GPU"
        return Refusal(NO_GPU, f"{problem}; probe a machine with one NVIDIA GPU, such as g4dn.xlarge")
    if recorded and sold and not _same_gpu(recorded, sold):
        problem = f"the record of {name} names the GPU {recorded}, but {name} has {sold}"
        return Refusal(CONTRADICTORY, f"{problem}; probe again with the actual instance_type=", misleading=True)
    used = max(seen.replicas, seen.workers, count_nodes(profile))
    unknown = _unknown_gpus(profile, machine)
    if used > 1 or unknown:
        many = "an unknown number of GPUs" if unknown else f"{used} GPUs"
        return Refusal(SEVERAL_GPUS, f"{name} trained on {many}; probe a machine with one GPU, such as g4dn.xlarge")
    gpu = recorded or sold or seen.gpus[0].name
    figures = figures_of(gpu)
    if figures is None:
        problem = f"the GPU of {name} ({gpu}) has no published figures"
        return Refusal(NO_FIGURES, f"{problem}; probe a machine with a GPU of pricing/gpu-specs.csv, such as T4")
    return figures


def _unknown_gpus(profile: Profile, machine: Machine | None) -> bool:
    """Whether it is unknown how many of the machine's GPUs were used: the user gave times without that number."""
    unstated = profile.outcome == "given" and profile.environment.framework_gpus is None
    return unstated and machine is not None and machine.gpu_count > 1


def _same_gpu(recorded: str, sold: str) -> bool:
    """Whether two names may be of one GPU. Records do not always name the variant (memory size, SXM or PCIe)."""
    return recorded == sold or recorded.split("-")[0] == sold.split("-")[0]


def count_gpus(profile: Profile, types: MachineTypes) -> tuple[str, int] | None:
    """Model and number of the GPUs of one machine on which the profile trained; None if they are not known."""
    seen, machine = profile.environment, types.find(profile.instance_type, profile.provider)
    sold = machine.gpu_model if machine and machine.gpu_count > 0 else None
    gpu = sold or (identify_gpu(seen.gpus[0].name) or seen.gpus[0].name if seen.gpus else None)
    # One process per GPU reports workers, one process for all GPUs reports replicas: both count all machines.
    total, nodes = max(seen.replicas, seen.workers), count_nodes(profile)
    unknown = total == 1 and _unknown_gpus(profile, machine)
    if gpu is None or seen.framework_gpus == 0 or unknown or max(total, nodes) % nodes:
        return None
    return gpu, max(total, nodes) // nodes


# -- GPU memory ------------------------------------------------------------------------------------

GIB = 2**30
MARGIN = 0.05
"""Relative half-width of the interval at a probed size: libraries choose other algorithms on another kind of GPU."""
MARGIN_PER_DOUBLING = 0.1
"""Additional half-width of an extrapolated peak per doubling of the size, relative to the part that grows with it."""
GROWTH_EXPONENT_MARGIN = 0.1
"""If one size was probed: the part that grows is taken as proportional to the size, and its bounds to powers of the
size with exponents of 1 minus and 1 plus this number. So the interval widens with the distance from the probed size."""
HIDDEN_FIXED = 0.25
"""If one size was probed: share of the remaining memory that may not grow with the size, such as workspaces."""
BYTES_PER_PARAMETER = 16
"""Bytes per parameter, if the record has none: weight, gradient and the two moments of Adam in float32."""
LEAST_BYTES_PER_PARAMETER = 4
"""Least bytes per parameter: the float32 weight alone, as with SGD if each gradient is freed once it was applied."""
LEAST_GROWTH = 0.02
"""If the smallest and the largest peak differ by a smaller share, the peak is assumed not to depend on the size."""

REPORTED_SHARE = 0.93
"""Least share of the nominal memory of a GPU that its driver reports; error correction takes up to 7 %."""
CONTEXT_BYTES = {"tensorflow": 1.5 * GIB}
OTHER_CONTEXT_BYTES = 0.6 * GIB
"""GPU memory that driver, libraries and framework reserve and a training cannot use, if the backend is another one."""
JAX_SHARE = 0.75
"""Share of the GPU memory that JAX uses by default."""

DRIVER_CONTEXT = Interval(0.8 * GIB, 0.3 * GIB, 1.6 * GIB)
"""Memory of the context and the libraries of CUDA in a torch process, which the driver counts and torch does not. It
does not depend on the batch size. Chosen by judgement."""
GROWING_SHARE = 0.1
"""Least share of a peak, without weights and optimizer state, that is taken to grow with the batch size."""

MemoryBasis = Literal["measured", "interpolated", "extrapolated", "described"]
MAX_SIZE = 2**40

TOO_LITTLE_MEMORY = "too_little_gpu_memory"
TIGHT_MEMORY = "tight-gpu-memory"
UNKNOWN_MEMORY = Finding(
    "gpu-memory-unknown",
    "No record contains the peak GPU memory of the training or a description of it, so it is not known whether the "
    "training fits into the GPU memory of machines that were never probed.",
    "Probe on a GPU with this version of vmselect, or pass the memory that a GPU must have at least, in GiB, as "
    "gpu_memory_gib= (--gpu-memory-gib).",
    "info",
)
PEAK_COLUMNS = ("model", "batch_size", "peak_gib", "low_gib", "high_gib", "basis")
COLUMNS = ("answer", "model", "gpu_model", "gpu_memory_gib", "usable_gib", *PEAK_COLUMNS[1:])


@dataclass(frozen=True, kw_only=True)
class MemoryModel:
    """Peak memory in bytes of one GPU as a function of the number of examples that it gets per step.

    >>> model = MemoryModel(peaks=((64, 4e9), (128, 7e9)))
    >>> round(model.peak(256).value / 1e9, 1), model.basis(100)
    (13.0, 'interpolated')

    ``peaks`` contains pairs of a probed size and its peak in bytes, by ascending size. ``fixed`` are the bytes of the
    peak that do not depend on the size. They are used only if one size was probed; None means unknown.
    """

    peaks: tuple[tuple[int, float], ...]
    fixed: Interval[float] | None = None
    backend: str | None = None
    limit_share: float | None = None
    """Share of the GPU memory that the framework may use; None if no record contains it."""
    described: DescribedMemory | None = None
    """Memory by the description of the training, which is used only if there are no peaks."""
    with_context: bool = False
    """Whether the peaks are those of the driver, which counts the memory that a training cannot use, too."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Probed sizes, or the size that was described."""
        probed = tuple(size for size, _ in self.peaks)
        return probed or ((self.described.size,) if self.described else ())

    @property
    def grows(self) -> bool:
        """Whether the peak can be extrapolated to sizes above the largest probed size."""
        if not self.peaks:
            return self.described is not None
        (_, least), (_, most) = self.peaks[0], self.peaks[-1]
        return self.fixed is not None if len(self.peaks) == 1 else most - least >= LEAST_GROWTH * most

    def basis(self, size: int) -> MemoryBasis:
        """Return whether the peak at ``size`` was measured, is interpolated between probed sizes or extrapolated."""
        if not self.peaks:
            return "described"
        if any(size == probed for probed, _ in self.peaks):
            return "measured"
        return "interpolated" if self.peaks[0][0] < size < self.peaks[-1][0] else "extrapolated"

    def peak(self, size: int) -> Interval[float]:
        """Return the peak in bytes at ``size``; NaN if unknown. Value and upper bound never decrease with the size."""
        if not self.peaks:
            return self.described.peak(size) if self.described else Interval.exact(math.nan)
        peaks = dict(self.peaks)
        smallest, largest = self.peaks[0][0], self.peaks[-1][0]
        if size in peaks:
            return _widen(peaks[size], 0.0)
        if not (self.grows or smallest < size < largest):
            return Interval.exact(math.nan)
        if len(self.peaks) == 1 and self.fixed is not None:
            return self._from_one(size)
        steps = itertools.pairwise(self.peaks)
        if smallest < size < largest:
            (a, low), (b, high) = next(pair for pair in steps if pair[0][0] < size < pair[1][0])
            return _widen(low + _slope((a, low), (b, high)) * (size - a), 0.0)
        nearest, whole = (smallest if size < smallest else largest), _slope(self.peaks[0], self.peaks[-1])
        # A smaller size has a fixed part of at least 0. Above, the steeper of the last and the whole line is safe.
        slope = min(whole, peaks[smallest] / smallest) if size < smallest else max(whole, _slope(*self.peaks[-2:]))
        doublings = abs(math.log2(size / nearest))
        return _widen(peaks[nearest] + slope * (size - nearest), MARGIN_PER_DOUBLING * doublings * slope * size)

    def largest(self, usable_bytes: float) -> int | None:
        """Return the largest size for which the upper bound of the peak is at most ``usable_bytes``; 0 if none fits.

        Return None if larger sizes may fit, but the peak cannot be extrapolated.
        """
        if self.grows:
            return _search(lambda size: self.peak(size).high <= usable_bytes)
        fits = [size for size, _ in self.peaks if self.peak(size).high <= usable_bytes]
        return None if fits[-1:] == [self.peaks[-1][0]] or len(self.peaks) == 1 else fits[-1] if fits else 0

    def usable_bytes(self, reported_bytes: float) -> float:
        """Return the bytes that a training can use of a GPU whose driver reports ``reported_bytes`` of memory."""
        if self.with_context:
            return reported_bytes
        if self.limit_share is not None or self.backend == "jax":
            return (self.limit_share or JAX_SHARE) * reported_bytes
        return max(0.0, reported_bytes - CONTEXT_BYTES.get(self.backend or "", OTHER_CONTEXT_BYTES))

    def _from_one(self, size: int) -> Interval[float]:
        assert self.fixed is not None
        value = self._grow(self.fixed.value, size, 1.0)
        exponents = (1 - GROWTH_EXPONENT_MARGIN, 1 + GROWTH_EXPONENT_MARGIN)
        ends = [self._grow(fixed, size, exponent) for fixed in self.fixed[1:] for exponent in exponents]
        middle = _widen(value, 0.0)
        return Interval(value, min(middle.low, *ends), max(middle.high, (1 + MARGIN) * max(ends)))

    def _grow(self, fixed: float, size: int, exponent: float) -> float:
        """Return the peak at ``size`` if ``fixed`` bytes do not grow, and the rest with a power of the size."""
        ((probed, peak),) = self.peaks
        return float(fixed + (peak - fixed) * (size / probed) ** exponent)


def _slope(first: tuple[int, float], last: tuple[int, float]) -> float:
    return (last[1] - first[1]) / (last[0] - first[0])


def _widen(value: float, more: float) -> Interval[float]:
    return Interval(value, max(0.0, (1 - MARGIN) * value - more), (1 + MARGIN) * value + more)


def _search(fits: Callable[[int], bool]) -> int:
    """Find the largest size for which ``fits`` is true, by bisection; 0 if it is false for size 1."""
    low, high = 0, 1
    while high < MAX_SIZE and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def examples_per_gpu(profile: Profile) -> int | None:
    """Return the number of examples that one GPU gets per step; None if unknown."""
    return max(1, profile.batch_size // profile.environment.replicas) if profile.batch_size else None


def read_peak(profile: Profile) -> int | None:
    """Return the peak GPU memory in bytes that the training needed; None if unknown.

    Unknown are trainings that ran out of memory, and trainings with JAX or TensorFlow whose memory was read from the
    driver: it reports the pool that these frameworks reserve at their start, not the part in use.
    """
    environment = profile.environment
    pooled = environment.gpu_memory and environment.gpu_memory.source == "nvml" and environment.backend != "torch"
    return None if profile.outcome == "out_of_memory" or pooled else environment.peak_gpu_memory_bytes or None


def knows_memory(profile: Profile) -> bool:
    """Whether a record shows how much GPU memory its training needs: by a peak, by its lack, or by a description."""
    return bool(read_peak(profile)) or profile.outcome == "out_of_memory" or describe_memory(profile) is not None


def _read_by_driver(profile: Profile) -> bool:
    seen = profile.environment.gpu_memory
    return seen is not None and seen.source == "nvml"


def fit_memory(profiles: Iterable[Profile]) -> MemoryModel | None:
    """Fit a memory model to ``profiles`` of one training, on any machines.

    For each size, the highest measured peak is used. A peak that is lower than that of a smaller size is raised to it.
    Counters of the framework are preferred to those of the driver. Without any peak, a description is used; the result
    is None if there is none.
    """
    profiles = list(profiles)
    usable = [profile for profile in profiles if read_peak(profile) and examples_per_gpu(profile)]
    usable = [profile for profile in usable if not _read_by_driver(profile)] or usable
    highest: dict[int, float] = {}
    for profile in usable:
        size = examples_per_gpu(profile) or 0
        highest[size] = max(highest.get(size, 0.0), float(read_peak(profile) or 0))
    if not highest:
        described = next(((p, memory) for p in profiles if (memory := describe_memory(p))), None)
        if described is None:
            return None
        return MemoryModel(peaks=(), backend=described[0].environment.backend, described=described[1])
    so_far, peaks = 0.0, []
    for size in sorted(highest):
        so_far = max(so_far, highest[size])
        peaks.append((size, so_far))
    first = usable[0]
    fixed = _read_fixed(usable, so_far) if len(peaks) == 1 else None
    return MemoryModel(
        peaks=tuple(peaks),
        fixed=fixed,
        backend=first.environment.backend,
        limit_share=_limit_share(usable),
        with_context=any(map(_read_by_driver, usable)),
    )


def _read_fixed(profiles: Sequence[Profile], peak: float) -> Interval[float] | None:
    """Return the bytes of ``peak`` that do not depend on the batch size; None if unknown."""
    for profile in profiles:
        seen = profile.environment.gpu_memory
        if seen and seen.weights_bytes is not None:
            low = float(seen.weights_bytes + (seen.optimizer_bytes or 0))
            value = low + (seen.gradients_bytes or 0)
        elif profile.work is not None:
            value, low = fixed_bytes(profile.work, profile.environment.precision)
        elif profile.setup.parameters is not None:
            value = float(profile.setup.parameters * BYTES_PER_PARAMETER)
            low = float(profile.setup.parameters * LEAST_BYTES_PER_PARAMETER)
        else:
            continue
        if low < peak and _read_by_driver(profile):
            return bound_fixed_with_context(value, low, peak, _described_growth(profile))
        if low < peak:
            return bound_fixed(value, low, peak)
    return None


def _described_growth(profile: Profile) -> Interval[float] | None:
    """Bytes that grow with the size, at the size of ``profile``, by its description; None if it has none."""
    memory, size = describe_memory(profile), examples_per_gpu(profile)
    if memory is None or size is None:
        return None
    growing = memory.growing * size
    return Interval(growing, growing / GROWING_FACTOR, growing * GROWING_FACTOR)


def bound_fixed(value: float, low: float, peak: float) -> Interval[float]:
    """Return an interval of the part of the peak memory that does not depend on the batch size, in bytes.

    The argument ``value`` contains the bytes of weights, optimizer state and all gradients, ``low`` those without
    gradients, and ``peak`` the measured peak. If ``peak`` is below ``value``, the step freed gradients early (as a
    compiled step may), and the estimate is ``low``.
    """
    return Interval(value, low, value + HIDDEN_FIXED * (peak - value)) if value < peak else Interval(low, low, peak)


def bound_fixed_with_context(
    value: float, low: float, peak: float, growth: Interval[float] | None = None
) -> Interval[float]:
    """Return an interval of the constant part of a ``peak`` that the driver reported, in bytes.

    The driver also counts the context of CUDA, which does not depend on the batch size. ``value`` and ``low`` are as in
    :func:`bound_fixed`; ``growth`` is the part that grows, if the training was described.
    """
    most = peak - GROWING_SHARE * (peak - low)
    context = DRIVER_CONTEXT
    least = min(low + context.low, most)
    estimate = value + context.value if growth is None else peak - growth.value
    estimate = min(max(estimate, least), most)
    if growth is None:
        upper = value + context.high + HIDDEN_FIXED * max(0.0, peak - value - context.high)
    else:
        upper = peak - growth.low
    return Interval(estimate, least, min(max(upper, estimate), most))


def _limit_share(profiles: Iterable[Profile]) -> float | None:
    """Return the share of the GPU memory that the framework was allowed to use; None if unknown."""
    for profile in profiles:
        limit = profile.environment.gpu_memory and profile.environment.gpu_memory.limit_bytes
        whole = profile.environment.smallest_gpu_bytes
        if limit and whole:
            return min(1.0, limit / whole)
    return None


class _Run(NamedTuple):
    """A training that ran, or ran out of memory, with ``size`` examples per GPU on GPUs with ``memory`` bytes."""

    size: int
    memory: float
    instance_type: str


class MemoryCheck:
    """Compares the GPU memory that a training requires with the memory of GPUs.

    A batch size fits into a GPU if this or a larger batch size was trained on a GPU with at most as much memory. It
    does not fit if this or a smaller batch size ran out of memory on a GPU with at least as much memory. Otherwise, the
    estimated peak memory decides.
    """

    def __init__(self, profiles: Sequence[Profile], types: MachineTypes) -> None:
        self.model = fit_memory(profiles)
        self._types = types
        self._reported = {
            fold_gpu(name): float(whole)
            for profile in profiles
            if (whole := profile.environment.smallest_gpu_bytes) and (name := self._gpu_name(profile))
        }
        self._ran = list(self._runs(p for p in profiles if p.outcome != "out_of_memory"))
        self._failed = list(self._runs(p for p in profiles if _ran_out(p)))

    def gpu_bytes(self, gpu_model: str, nominal_gib: float | None) -> float | None:
        """Bytes of memory that a GPU reports; None if unknown.

        If no profile recorded them for this GPU model, they are :data:`REPORTED_SHARE` of the nominal memory: the least
        that a driver reports.
        """
        nominal = nominal_memory_gib(gpu_model) if nominal_gib is None else nominal_gib
        reported = self._reported.get(fold_gpu(gpu_model))
        # GPUs of one name are sold in several sizes.
        if reported is not None and (nominal is None or abs(reported / (nominal * GIB) - 1) < 2 * (1 - REPORTED_SHARE)):
            return reported
        return None if nominal is None else REPORTED_SHARE * nominal * GIB

    def check(self, machine: Machine, size: int, *, gpu_bytes: float | None = None) -> Refusal | Finding | None:
        """A refusal if ``size`` examples per GPU do not fit, a finding if they may not fit, or None.

        None means that they fit, or that this is unknown. ``gpu_bytes`` is the memory that the GPU of the machine
        reported, if it was recorded.
        """
        memory = gpu_bytes or self.gpu_bytes(machine.gpu_model, machine.gpu_memory_gib)
        if memory is None or any(run.size >= size and run.memory <= memory for run in self._ran):
            return None
        gpu = f"its GPU ({machine.gpu_model})" if machine.gpu_model else "its GPU"
        failed = next((run for run in self._failed if run.size <= size and run.memory >= memory), None)
        if failed is not None:
            why = f"{gpu} has no more memory than that of {failed.instance_type}, where batch size {failed.size}"
            return Refusal(TOO_LITTLE_MEMORY, f"{why} ran out of memory; {self._advise(memory)}")
        if self.model is None:
            return None
        usable, peak = self.model.usable_bytes(memory), self.model.peak(size)
        if not peak.high > usable:  # also if the peak is not known
            return None
        needs = f"{size} examples per step need about {format_bytes(peak.value)} of GPU memory"
        offers = f"{gpu} offers {format_bytes(usable)} to a training"
        # A description is less certain than a peak: it excludes only what its whole interval excludes.
        if (peak.value if self.model.peaks else peak.low) > usable:
            return Refusal(TOO_LITTLE_MEMORY, f"{needs}, and {offers}; {self._advise(memory)}")
        message = f"{machine.instance_type} may run out of memory: {needs} ({_range(peak)}), and {offers}."
        return Finding(TIGHT_MEMORY, message, f"Probe {machine.instance_type} first; {self._advise(memory)}.")

    def largest(self, memory: float) -> int | None:
        """Largest batch size per GPU that fits into a GPU that reports ``memory`` bytes; None if unknown."""
        estimate = self.model.largest(self.model.usable_bytes(memory)) if self.model is not None else None
        ran = max((run.size for run in self._ran if run.memory <= memory), default=None)
        limit = min((run.size - 1 for run in self._failed if run.memory >= memory), default=None)
        if estimate is None:
            return ran if limit is not None else None
        # What ran or failed on such a GPU overrules the estimate.
        return max(estimate if limit is None else min(estimate, limit), ran or 0)

    def _advise(self, memory: float) -> str:
        size = self.largest(memory)
        if size is None:
            return "use a smaller batch size"
        return f"the largest batch size that fits one GPU is {size}" if size else "no batch size fits"

    def _gpu_name(self, profile: Profile) -> str | None:
        seen = profile.environment.gpus
        machine = self._types.find(profile.instance_type, profile.provider)
        return (machine.gpu_model if machine else "") or (identify_gpu(seen[0].name) if seen else None)

    def _runs(self, profiles: Iterable[Profile]) -> Iterable[_Run]:
        for profile in profiles:
            name, size = self._gpu_name(profile), examples_per_gpu(profile)
            if not size or profile.environment.framework_gpus == 0:
                continue
            machine = self._types.find(profile.instance_type, profile.provider)
            memory: float | None = profile.environment.smallest_gpu_bytes
            if memory is None and name:
                memory = self.gpu_bytes(name, machine.gpu_memory_gib if machine else None)
            if memory:
                yield _Run(size, memory, profile.instance_type or "another machine")


def _ran_out(profile: Profile) -> bool:
    """Whether the memory of a GPU, not of the host, ran out."""
    host = (profile.detail or "").startswith("MemoryError")
    return profile.outcome == "out_of_memory" and bool(profile.environment.framework_gpus) and not host


def _range(peak: Interval[float]) -> str:
    return f"{format_bytes(peak.low)} to {format_bytes(peak.high)}"


@suggest_arguments()
def estimate_memory(
    profiles: Profile | Iterable[Profile],
    *,
    batch_size: int | Iterable[int] | None = None,
    gpu: str | Iterable[str] | None = None,
    catalog: Catalog | None = None,
) -> pd.DataFrame:
    """Peak GPU memory by batch size, and the largest batch size that fits one GPU of each type, with intervals.

    ::

        memory = vs.estimate_memory(vs.load_profiles("profiles/"), batch_size=256)
        memory[memory["answer"] == "largest"]

    The column ``answer`` has two values. Rows with ``peak`` contain the peak memory at each probed batch size (or that
    of the description, if nothing was probed), or at each of ``batch_size``. Rows with ``largest`` contain the largest
    batch size for each GPU type of the catalog, or for each of ``gpu``, and the peak memory at that batch size; the
    batch size is 0 if none fits, and missing if it is unknown. Batch sizes are per GPU. ``usable_gib`` is the part of
    the GPU memory that a training can use. The method is described in docs/explanation/prediction.md.
    """
    listed = read_records(profiles, Profile, error=EstimateError)
    sizes = None if batch_size is None else several(check_count, "batch_size", batch_size)
    models = None if gpu is None else several(check_name, "gpu", gpu)
    if not isinstance(catalog, Catalog | None):
        raise ArgumentError(f"catalog is {show(catalog)}. Pass a catalog, such as vmselect.Catalog.load(path).")
    if not any(read_peak(profile) or describe_memory(profile) for profile in listed):
        raise EstimateError(
            "No profile contains the peak GPU memory of its training, or a description of it. Describe the training "
            "with vmselect.describe, or probe on a GPU."
        )
    types = MachineTypes(Catalog.default() if catalog is None else catalog)
    works: dict[Any, list[Profile]] = {}
    for profile in listed:
        works.setdefault(work_key(profile, None), []).append(profile)
    rows: list[dict[str, Any]] = []
    for group in works.values():
        check = MemoryCheck(group, types)
        if check.model is not None:
            rows += _rows(check, check.model, group[0].model, sizes, _list_gpus(group, types, models))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows(
    check: MemoryCheck,
    model: MemoryModel,
    name: str | None,
    sizes: Sequence[int] | None,
    cards: list[tuple[str, float]],
) -> Iterable[dict[str, Any]]:
    for size in sizes or model.sizes:
        yield {"answer": "peak", "model": name, **_peak(model, size)}
    for card, nominal in cards:
        memory = check.gpu_bytes(card, nominal)
        assert memory is not None
        about = {"answer": "largest", "model": name, "gpu_model": card, "gpu_memory_gib": nominal}
        about |= {"usable_gib": model.usable_bytes(memory) / GIB}
        largest = check.largest(memory)
        yield about | (_peak(model, largest) if largest else {"batch_size": largest})


def _peak(model: MemoryModel, size: int) -> dict[str, Any]:
    peak = model.peak(size)
    gib = {f"{name}_gib": value / GIB for name, value in zip(("peak", "low", "high"), peak, strict=True)}
    return {"batch_size": size, **gib, "basis": None if math.isnan(peak.value) else model.basis(size)}


def _list_gpus(
    profiles: Sequence[Profile], types: MachineTypes, models: Sequence[str] | None
) -> list[tuple[str, float]]:
    """Models and nominal memory (GiB) of GPUs in the catalog: of the probed vendor, or those named in ``models``."""
    sold = {
        (machine.gpu_model, machine.gpu_memory_gib)
        for machines in types.by_name.values()
        for machine in machines
        if machine.gpu_count >= 1 and machine.gpu_model and machine.gpu_memory_gib
    }
    if models is None:
        names = [gpu.name for profile in profiles for gpu in profile.environment.gpus]
        # A framework build runs on GPUs of one vendor; records without GPU names are taken as NVIDIA's.
        vendors = {gpu_vendor(model) for name in names if (model := identify_gpu(name))} - {None} or {"NVIDIA"}
        matching = {(model, memory) for model, memory in sold if gpu_vendor(model) in vendors}
        return sorted(matching, key=lambda pair: (pair[1], pair[0]))
    listed: list[tuple[str, float]] = []
    for name in models:
        same = sorted((model, memory) for model, memory in sold if fold_gpu(model) == fold_gpu(name))
        if not same and (memory := nominal_memory_gib(name)):
            same = [(name, memory)]
        if not same:
            raise ArgumentError(f"The GPU {show(name)} is unknown. Choose a model of the catalog, such as T4 or A100.")
        listed += same
    return listed
