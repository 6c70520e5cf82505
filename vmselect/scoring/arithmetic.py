"""Measures of error: estimated against real times, and the order of machines by estimates against the real order."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from statistics import NormalDist

import numpy as np

from vmselect.intervals import Interval
from vmselect.records import Profile

_AZURE = re.compile(r"Standard_([A-Z]+)\d+(?:-\d+)?([a-z]*)((?:_\w+)?)")
_GOOGLE = re.compile(r"([a-z]+\d+[a-z]*)-\w[\w-]*")


def list_run_seconds(profiles: Iterable[Profile]) -> list[float]:
    """Seconds of all whole trainings that ``profiles`` contain."""
    return [run for one in profiles for run in one.timeline.run_seconds or (one.total_seconds or 0.0,)]


def error_percent(estimate: float, real: float) -> float:
    """(estimate - real) / real in percent; NaN if the real value is zero."""
    return 100 * (estimate / real - 1) if real else math.nan


def kendall_tau(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Kendall's tau-b rank correlation of ``pairs`` of (estimate, real value); None if all values of a side are equal.

    >>> kendall_tau([(1.0, 10.0), (2.0, 20.0), (3.0, 15.0)])
    0.3333333333333333
    """
    one, other = (np.sign(np.subtract.outer(column, column)) for column in np.array(pairs, dtype=float).T)
    norm = math.sqrt(float((one * one).sum()) * float((other * other).sum()))
    return float((one * other).sum()) / norm if norm else None


def regret(pairs: Sequence[tuple[float, float]]) -> float:
    """Relative excess of the real value of the pair with the lowest estimate over the lowest real value.

    ``pairs`` are (estimate, real value). If several pairs have the lowest estimate, the mean of their real values is
    used.

    >>> regret([(1.0, 12.0), (2.0, 10.0)])
    0.19999999999999996
    """
    estimate, least = (min(column) for column in zip(*pairs, strict=True))
    chosen = statistics.fmean(real for estimated, real in pairs if estimated == estimate)
    return chosen / least - 1 if least else 0.0


def normal_quantile(confidence: float) -> float:
    """Half-width of the central interval of a standard normal distribution with probability ``confidence``."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def coverage_interval(inside: int, count: int, confidence: float = 0.9) -> Interval[float]:
    """Observed coverage (``inside`` of ``count`` values) with its Wilson interval.

    >>> [round(part, 2) for part in coverage_interval(18, 20)]
    [0.9, 0.74, 0.97]
    """
    z, share = normal_quantile(confidence), inside / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


def machine_family(instance_type: str | None) -> str | None:
    """The family of an instance type (the same hardware in several sizes).

    A name that does not have the form of a cloud's instance types is returned unchanged.

    >>> [machine_family(name) for name in ("g4dn.xlarge", "ml.g4dn.2xlarge", "Standard_NC4as_T4_v3", "n1-standard-8")]
    ['g4dn', 'g4dn', 'NCas_T4_v3', 'n1']
    >>> machine_family("lab-pc")
    'lab-pc'
    """
    if instance_type is None:
        return None
    if found := _AZURE.fullmatch(instance_type):
        return "".join(found.groups())
    if found := _GOOGLE.fullmatch(instance_type):
        return found[1]
    return instance_type.removeprefix("ml.").partition(".")[0] or instance_type
