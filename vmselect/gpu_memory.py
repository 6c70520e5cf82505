"""Peak GPU memory of a training as a function of the batch size, and the part of a GPU that a training can use.

The memory of weights, gradients and optimizer state does not depend on the batch size; the memory of activations is
proportional to it. If two or more batch sizes were probed, peaks at other sizes are interpolated or extrapolated
linearly. If one was probed, weights, gradients and optimizer state are subtracted from its peak, and the rest is scaled
with the batch size. "Size" in this module is the number of examples that one GPU gets per step.

The widths of the intervals and the memory that drivers and frameworks reserve are the authors' assumptions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from vmselect.intervals import Interval
from vmselect.records import Profile

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

MemoryBasis = Literal["measured", "interpolated", "extrapolated"]
MAX_SIZE = 2**40


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

    @property
    def grows(self) -> bool:
        """Whether the peak can be extrapolated to sizes above the largest probed size."""
        (_, least), (_, most) = self.peaks[0], self.peaks[-1]
        return self.fixed is not None if len(self.peaks) == 1 else most - least >= LEAST_GROWTH * most

    def basis(self, size: int) -> MemoryBasis:
        """Return whether the peak at ``size`` was measured, is interpolated between probed sizes or extrapolated."""
        if any(size == known for known, _ in self.peaks):
            return "measured"
        return "interpolated" if self.peaks[0][0] < size < self.peaks[-1][0] else "extrapolated"

    def peak(self, size: int) -> Interval[float]:
        """Return the peak in bytes at ``size``; NaN if unknown. Value and upper bound never decrease with the size."""
        known = dict(self.peaks)
        smallest, largest = self.peaks[0][0], self.peaks[-1][0]
        if size in known:
            return _widen(known[size], 0.0)
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
        slope = min(whole, known[smallest] / smallest) if size < smallest else max(whole, _slope(*self.peaks[-2:]))
        doublings = abs(math.log2(size / nearest))
        return _widen(known[nearest] + slope * (size - nearest), MARGIN_PER_DOUBLING * doublings * slope * size)

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


def fit_memory(profiles: Iterable[Profile]) -> MemoryModel | None:
    """Fit a memory model to ``profiles`` of one training, on any machines; None if no profile has a peak.

    For each size, the highest measured peak is used. A peak that is lower than that of a smaller size is raised to it.
    """
    usable = [profile for profile in profiles if read_peak(profile) and examples_per_gpu(profile)]
    highest: dict[int, float] = {}
    for profile in usable:
        size = examples_per_gpu(profile) or 0
        highest[size] = max(highest.get(size, 0.0), float(read_peak(profile) or 0))
    if not highest:
        return None
    so_far, peaks = 0.0, []
    for size in sorted(highest):
        so_far = max(so_far, highest[size])
        peaks.append((size, so_far))
    first = usable[0]
    fixed = _read_fixed(usable, so_far) if len(peaks) == 1 else None
    return MemoryModel(
        peaks=tuple(peaks), fixed=fixed, backend=first.environment.backend, limit_share=_limit_share(usable)
    )


def _read_fixed(profiles: Sequence[Profile], peak: float) -> Interval[float] | None:
    """Return the bytes of ``peak`` that do not depend on the batch size; None if unknown."""
    for profile in profiles:
        seen = profile.environment.gpu_memory
        if seen and seen.weights_bytes is not None:
            low = float(seen.weights_bytes + (seen.optimizer_bytes or 0))
            value = low + (seen.gradients_bytes or 0)
        elif profile.setup.parameters is not None:
            value = float(profile.setup.parameters * BYTES_PER_PARAMETER)
            low = float(profile.setup.parameters * LEAST_BYTES_PER_PARAMETER)
        else:
            continue
        if low < peak:
            return bound_fixed(value, low, peak)
    return None


def bound_fixed(value: float, low: float, peak: float) -> Interval[float]:
    """Return an interval of the part of the peak memory that does not depend on the batch size, in bytes.

    The argument ``value`` contains the bytes of weights, optimizer state and all gradients, ``low`` those without
    gradients, and ``peak`` the measured peak. If ``peak`` is below ``value``, the step freed gradients early (as a
    compiled step may), and the estimate is ``low``.
    """
    return Interval(value, low, value + HIDDEN_FIXED * (peak - value)) if value < peak else Interval(low, low, peak)


def _limit_share(profiles: Iterable[Profile]) -> float | None:
    """Return the share of the GPU memory that the framework was allowed to use; None if unknown."""
    for profile in profiles:
        limit = profile.environment.gpu_memory and profile.environment.gpu_memory.limit_bytes
        whole = reported_bytes(profile)
        if limit and whole:
            return min(1.0, limit / whole)
    return None


def reported_bytes(profile: Profile) -> int | None:
    """Return the memory in bytes of the machine's smallest GPU, as its driver reported it; None if unknown."""
    return min((gpu.memory_bytes for gpu in profile.environment.gpus if gpu.memory_bytes), default=None)
