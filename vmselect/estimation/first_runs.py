"""Cold first runs: the first run on a new machine is often slower than later runs, because caches are empty.

A training on a newly rented machine is a first run. So if the first of several repetitions is much slower than all
others, the estimate is the time of the first run, and its interval extends down to the times of later runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from vmselect.estimation.runtime import HalfWidths, RuntimeModel
from vmselect.findings import Finding
from vmselect.units import format_seconds

COLD_EXCESS, COLD_RANGES = 0.5, 3.0
"""A first run is cold if it takes longer than every later run by more than ``COLD_EXCESS`` times the median of the
later runs and by more than ``COLD_RANGES`` times their range. Without being cold, repeated trainings on a shared
machine differed by up to 29 %."""


def is_cold(seconds: Sequence[float]) -> bool:
    """Whether the first of several runs was cold; ``seconds`` are the times of the runs in order."""
    if len(seconds) < 2:
        return False
    first, *later = seconds
    return first - max(later) > max(COLD_EXCESS * median(later), COLD_RANGES * (max(later) - min(later)))


def describe_cold_run(title: str, seconds: Sequence[float], *, predicted: bool) -> Finding:
    """The finding about a cold first run; ``predicted`` is True if the estimate is the time of the first run."""
    first, *later = seconds
    what = "The estimate is the time of a first run, and the interval extends down to the time of later runs."
    if not predicted:
        what = "The method uses the mean of all runs."
    return Finding(
        "cold-first-run",
        f"{title}: the first run took {format_seconds(first)} and the others {format_seconds(median(later))} (one "
        f"epoch each). A newly rented machine has nothing cached, so its run is a first run. {what}",
        "If your training follows others on the same machine, remove the profile of the first run.",
    )


def predict_first_run(first: RuntimeModel, later: RuntimeModel) -> RuntimeModel:
    """The runtime model of the first run, with an interval that extends down to the times of later runs."""
    widths = HalfWidths()
    widths.low, widths.high = first.low, first.high
    once = max(0.0, first.fixed_seconds - later.fixed_seconds)
    once += max(0.0, first.first_validation_seconds - later.first_validation_seconds)
    each = max(0.0, first.epoch_seconds - later.epoch_seconds)
    each += max(0.0, first.validation_seconds - later.validation_seconds) / first.validation_freq
    widths.add_sides(1.0, 0.0, once=once, per_epoch=each)
    certain = (min(first.certain[0], later.certain[0]), min(first.certain[1], later.certain[1]))
    return replace(first, low=widths.low, certain=certain)
