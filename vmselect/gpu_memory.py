"""Peak GPU memory of a training as a function of the batch size, and the part of a GPU that a training can use.

A training keeps weights, gradients and optimizer state whatever the batch size is. Activations are proportional to the
batch size. With two or more probed batch sizes, the memory is the line through neighbouring peaks. With one, the fixed
part is that of weights, gradients and optimizer, and the rest is proportional to the batch size.

The widths of the intervals and the memory that drivers and frameworks keep are chosen by judgement.
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
"""Relative half-width of the peak at a probed batch size on another GPU, whose libraries choose other algorithms."""
MARGIN_PER_DOUBLING = 0.1
"""Relative half-width of the part that grows, per doubling of the batch size outside the probed ones."""
HIDDEN_FIXED = 0.25
"""With one probed size: largest share of the growing part that may be independent of the batch size (workspaces)."""
BYTES_PER_PARAMETER = 16
"""Assumed bytes per parameter if they were not recorded: weight, gradient and the two moments of Adam, in float32."""
LEAST_BYTES_PER_PARAMETER = 4
"""The same without moments, as with plain SGD, if gradients are freed as soon as they have been applied."""
LEAST_GROWTH = 0.02
"""If the peaks of all probed sizes differ by a smaller share, something else than the batch determines them."""

REPORTED_SHARE = 0.93
"""Least share of its nominal memory that a GPU offers; cards with error correction keep up to 7 %."""
CONTEXT_BYTES = {"tensorflow": 1.5 * GIB}
OTHER_CONTEXT_BYTES = 0.6 * GIB
"""Memory that driver, libraries and framework keep; TensorFlow leaves the most free for them."""
JAX_SHARE = 0.75
"""Share of the GPU that JAX uses unless its settings say otherwise."""

MemoryBasis = Literal["measured", "interpolated", "extrapolated"]
MAX_SIZE = 2**40


@dataclass(frozen=True, kw_only=True)
class MemoryModel:
    """Peak memory in bytes of one GPU as a function of the number of examples that it gets per step.

    >>> model = MemoryModel(peaks=((64, 4e9), (128, 7e9)))
    >>> round(model.peak(256).value / 1e9, 1), model.basis(100)
    (13.0, 'interpolated')

    ``peaks`` are the probed sizes and peaks, ascending. ``fixed`` is the part that does not depend on the size; it is
    used with one probed size only, and None if unknown. ``low`` and ``high`` bound it.
    """

    peaks: tuple[tuple[int, float], ...]
    fixed: Interval[float] | None = None
    backend: str | None = None
    limit_share: float | None = None
    """Share of the GPU that the framework may use, if a record states it."""

    @property
    def grows(self) -> bool:
        """Whether the memory at sizes above the probed ones is known."""
        (_, least), (_, most) = self.peaks[0], self.peaks[-1]
        return self.fixed is not None if len(self.peaks) == 1 else most - least >= LEAST_GROWTH * most

    def basis(self, size: int) -> MemoryBasis:
        """What the memory at ``size`` rests on."""
        if any(size == known for known, _ in self.peaks):
            return "measured"
        return "interpolated" if self.peaks[0][0] < size < self.peaks[-1][0] else "extrapolated"

    def peak(self, size: int) -> Interval[float]:
        """Peak at ``size``; the value and the upper end never fall as the size grows. NaN if it is unknown."""
        known = dict(self.peaks)
        smallest, largest = self.peaks[0][0], self.peaks[-1][0]
        if size in known:
            return _widen(known[size], 0.0)
        if not (self.grows or smallest < size < largest):
            return Interval(math.nan, math.nan, math.nan)
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
        """Largest size whose peak, at the upper end of its interval, is at most ``usable_bytes``; 0 if none is.

        None if that is unknown, because only sizes that fit were probed and the growth is not known.
        """
        if self.grows:
            return _search(lambda size: self.peak(size).high <= usable_bytes)
        fits = [size for size, _ in self.peaks if self.peak(size).high <= usable_bytes]
        return None if fits[-1:] == [self.peaks[-1][0]] or len(self.peaks) == 1 else fits[-1] if fits else 0

    def usable_bytes(self, reported_bytes: float) -> float:
        """Bytes that the training can use of a GPU that reports this memory."""
        if self.limit_share is not None or self.backend == "jax":
            return (self.limit_share or JAX_SHARE) * reported_bytes
        return max(0.0, reported_bytes - CONTEXT_BYTES.get(self.backend or "", OTHER_CONTEXT_BYTES))

    def _from_one(self, size: int) -> Interval[float]:
        assert self.fixed is not None
        ((probed, peak),) = self.peaks
        value, *ends = (fixed + (peak - fixed) * size / probed for fixed in self.fixed)
        middle = _widen(value, 0.0)
        return Interval(value, min(middle.low, *ends), max(middle.high, (1 + MARGIN) * max(ends)))


def _slope(first: tuple[int, float], last: tuple[int, float]) -> float:
    return (last[1] - first[1]) / (last[0] - first[0])


def _widen(value: float, more: float) -> Interval[float]:
    return Interval(value, max(0.0, (1 - MARGIN) * value - more), (1 + MARGIN) * value + more)


def _search(fits: Callable[[int], bool]) -> int:
    """Largest size for which ``fits`` is true; it is false for all larger ones."""
    low, high = 0, 1
    while high < MAX_SIZE and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def examples_per_gpu(profile: Profile) -> int | None:
    """Number of examples that one GPU gets per step; None if unknown."""
    return max(1, profile.batch_size // profile.environment.replicas) if profile.batch_size else None


def read_peak(profile: Profile) -> int | None:
    """Peak GPU memory of a complete step in bytes; None if the record does not tell what the training needs.

    The driver reports the pool that JAX and TensorFlow reserve at their start, not the part in use.
    """
    environment = profile.environment
    pooled = environment.gpu_memory and environment.gpu_memory.source == "nvml" and environment.backend != "torch"
    return None if profile.outcome == "out_of_memory" or pooled else environment.peak_gpu_memory_bytes or None


def fit_memory(profiles: Iterable[Profile]) -> MemoryModel | None:
    """Memory of the training that ``profiles`` measured, on any machines; None if no profile has its peak memory.

    The highest peak of each size counts. A size with a lower peak than a smaller size has the peak of that.
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
    """The part of ``peak`` that does not depend on the batch size; None if unknown."""
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
    """The part of ``peak`` that does not depend on the batch size: ``value``, or ``low`` if not all gradients are kept.

    A compiled step applies and frees a gradient before it computes the next one, so its peak may be below ``value``.
    """
    return Interval(value, low, value + HIDDEN_FIXED * (peak - value)) if value < peak else Interval(low, low, peak)


def _limit_share(profiles: Iterable[Profile]) -> float | None:
    """Share of its GPU that JAX was allowed to use; None if unknown."""
    for profile in profiles:
        limit = profile.environment.gpu_memory and profile.environment.gpu_memory.limit_bytes
        whole = reported_bytes(profile)
        if limit and whole:
            return min(1.0, limit / whole)
    return None


def reported_bytes(profile: Profile) -> int | None:
    """Memory of the smallest GPU of the machine, as its driver reported it; None if unknown."""
    return min((gpu.memory_bytes for gpu in profile.environment.gpus if gpu.memory_bytes), default=None)
