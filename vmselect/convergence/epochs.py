"""How many epochs a batch size needs, from those that were tried: value, interval and where it comes from.

Between two sizes that were tried, the *rate* of learning (one over epochs) is interpolated along the logarithm of the
batch size. Beyond them, up to twice the largest or down to half the smallest, nothing is fitted: the epochs of the
nearest size are carried over, and the interval is widened to the bracket "constant epochs .. growing in proportion to
the batch size". Farther out that bracket is too wide to act on, so nothing is said. All were chosen on measurements:
see docs/explanation/when-methodology-1-pays.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vmselect._checks import check_count, check_number
from vmselect.findings import Finding
from vmselect.intervals import Interval

REACH = 2.0
"""How far beyond the sizes that were tried epochs are still given, as a factor."""

USUAL_SPREAD = 0.2
"""Spread of epochs between repetitions (standard deviation of their logarithm) before any was seen."""

USUAL_SPREAD_WEIGHT = 8
"""How many repetitions beyond the first the usual spread counts for."""

INTERPOLATION_SPREAD = 0.1
"""Additional spread of a batch size that lies between two that were tried."""

Source = Literal["measured", "interpolated", "extrapolated", "unknown"]


@dataclass(frozen=True)
class EpochsEstimate:
    """Epochs that a training at ``batch_size`` takes: ``value``, and the interval in which the next run should fall.

    Unpacks as ``value, low, high``, which are NaN where the ``source`` is "unknown". ``mean_half_width`` is the
    half-width of the mean over many runs, as a share of ``value``. It is smaller than that of the next run and decides
    ties between batch sizes.
    """

    batch_size: int
    value: float
    low: float
    high: float
    source: Source
    mean_half_width: float = 0.0
    findings: tuple[Finding, ...] = ()

    @property
    def interval(self) -> Interval[float]:
        """The value with its bounds."""
        return Interval(self.value, self.low, self.high)

    def __iter__(self) -> Iterator[float]:
        return iter(self.interval)


@dataclass(frozen=True)
class Spread:
    """Relative spread of epochs between repetitions, and how well it is known."""

    deviation: float
    degrees: int

    def widths(self, repetitions: int, confidence: float, extra: float = 0.0) -> tuple[float, float]:
        """Half the interval of the next run, and of the mean over many, on the logarithmic scale."""
        from scipy.special import stdtrit

        quantile = float(stdtrit(self.degrees, 0.5 + confidence / 2))
        mean = self.deviation**2 / repetitions + extra**2
        return quantile * math.sqrt(self.deviation**2 + mean), quantile * math.sqrt(mean)


def pool_spread(epochs: Mapping[int, Sequence[float]]) -> Spread:
    """The spread between repetitions, pooled over batch sizes and drawn towards the usual one while runs are few."""
    squares, degrees = USUAL_SPREAD_WEIGHT * USUAL_SPREAD**2, USUAL_SPREAD_WEIGHT
    for values in epochs.values():
        if len(values) > 1:
            logs = [math.log(value) for value in values]
            squares += statistics.variance(logs) * (len(logs) - 1)
            degrees += len(logs) - 1
    return Spread(math.sqrt(squares / degrees), degrees)


def predict_epochs(
    epochs: Mapping[int, Sequence[float]], batch_size: int, *, confidence: float = 0.9
) -> EpochsEstimate:
    """Epochs at ``batch_size`` from the repetitions in ``epochs`` (batch size to epochs of each).

    >>> estimate = predict_epochs({256: [13], 1024: [13]}, 512)
    >>> estimate.source, round(estimate.value, 9)
    ('interpolated', 13.0)
    """
    confidence = check_number("confidence", confidence, above=0, most=0.9999)
    batch_size = check_count("batch_size", batch_size)
    spread = pool_spread(epochs)
    sizes = sorted(epochs)
    if batch_size in epochs:
        values = epochs[batch_size]
        half, mean_half_width = spread.widths(len(values), confidence)
        return _estimate(batch_size, statistics.fmean(values), half, half, "measured", mean_half_width)
    if sizes[0] < batch_size < sizes[-1]:
        return _between(epochs, sizes, batch_size, spread, confidence)
    if not sizes[0] / REACH <= batch_size <= sizes[-1] * REACH:
        finding = Finding(
            "epochs-unknown",
            f"Batch size {batch_size} lies too far from those whose epochs were measured ({sizes[0]} to {sizes[-1]}): "
            "how many it needs is unknown.",
            f"Train once at batch size {batch_size} with ConvergenceProbe.",
        )
        return EpochsEstimate(batch_size, math.nan, math.nan, math.nan, "unknown", math.inf, (finding,))
    return _beyond(epochs, sizes, batch_size, spread, confidence)


def _between(
    epochs: Mapping[int, Sequence[float]], sizes: list[int], batch_size: int, spread: Spread, confidence: float
) -> EpochsEstimate:
    below = max(size for size in sizes if size < batch_size)
    above = min(size for size in sizes if size > batch_size)
    weight = math.log(batch_size / below) / math.log(above / below)
    rate = (1 - weight) / statistics.fmean(epochs[below]) + weight / statistics.fmean(epochs[above])
    repetitions = min(len(epochs[below]), len(epochs[above]))
    half, mean_half_width = spread.widths(repetitions, confidence, INTERPOLATION_SPREAD)
    return _estimate(batch_size, 1 / rate, half, half, "interpolated", mean_half_width)


def _beyond(
    epochs: Mapping[int, Sequence[float]], sizes: list[int], batch_size: int, spread: Spread, confidence: float
) -> EpochsEstimate:
    larger = batch_size > sizes[-1]
    nearest = sizes[-1] if larger else sizes[0]
    ratio = max(batch_size / nearest, nearest / batch_size)
    value = statistics.fmean(epochs[nearest])
    half, mean_half_width = spread.widths(len(epochs[nearest]), confidence)
    if larger:
        bracket = f"{value:.3g} epochs (constant) .. {value * ratio:.3g} (growing in proportion)"
    else:
        bracket = f"{value / ratio:.3g} epochs (shrinking in proportion) .. {value * ratio:.3g} (growing in proportion)"
    finding = Finding(
        "epochs-extrapolated",
        f"Batch size {batch_size} lies beyond those whose epochs were measured ({sizes[0]} to {sizes[-1]}); "
        f"the truth may be anywhere in {bracket}.",
        f"Train once at batch size {batch_size} with ConvergenceProbe.",
    )
    below = half if larger else half + math.log(ratio)
    return _estimate(
        batch_size, value, below, half + math.log(ratio), "extrapolated", mean_half_width + math.log(ratio), (finding,)
    )


def _estimate(
    batch_size: int,
    value: float,
    half_below: float,
    half_above: float,
    source: Source,
    mean_half_width: float,
    findings: tuple[Finding, ...] = (),
) -> EpochsEstimate:
    # No training is shorter than one epoch, unless a run was measured that was.
    low = min(value, max(1.0, value * math.exp(-half_below)))
    return EpochsEstimate(batch_size, value, low, value * math.exp(half_above), source, mean_half_width, findings)
