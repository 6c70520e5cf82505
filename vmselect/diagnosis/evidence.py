"""The type of a diagnosis, and the quantities of a profile that several checks use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from vmselect.findings import Finding
from vmselect.records import Profile

MIN_SAMPLED_SECONDS = 0.5
"""Samples that cover less time than this are ignored."""


@dataclass(frozen=True)
class Diagnosis(Finding):
    """A finding about speed, with the numbers it is based on: name to value, units in the names.

    ``bound`` is the largest possible gain in a few words, where known. Rankings show it beside the machine.
    """

    evidence: Mapping[str, float] = field(default_factory=dict, hash=False, compare=False)
    bound: str = ""


def input_share(profile: Profile) -> float | None:
    """The share of the time that steps waited for data, or None if unknown."""
    wait = profile.timeline.input_wait
    return None if wait is None or not wait.wall_seconds else wait.share


def steady_mean(profile: Profile, quantity: str) -> float | None:
    """The mean of a quantity over the steady steps, or None if it was sampled too briefly."""
    summary = None if profile.usage is None else profile.usage.summary(quantity)
    return None if summary is None or summary.seconds < MIN_SAMPLED_SECONDS else summary.mean


def usable_cores(profile: Profile) -> int | None:
    """The cores that the process may run on."""
    limits = None if profile.usage is None else profile.usage.limits
    return (limits.cores if limits else None) or profile.environment.usable_cores or profile.environment.cpu_cores


def container_cores(profile: Profile) -> float | None:
    """The CPU quota of the container in cores, or None if it does not restrict the usable cores."""
    limit, cores = None if profile.usage is None else profile.usage.limits.container_cores, usable_cores(profile)
    return limit if limit is not None and (cores is None or limit < cores) else None


def count_cores(profile: Profile) -> float | None:
    """The cores that the process may keep busy at once: its quota or its usable cores."""
    return container_cores(profile) or usable_cores(profile)


class CpuUse(NamedTuple):
    """CPU utilization in steady steps: a share, as text, its evidence, and how to get more cores."""

    share: float
    text: str
    evidence: dict[str, float]
    more: str


def cpu_use(profile: Profile) -> CpuUse | None:
    """CPU utilization of the cores that the process may use, or None if it was not sampled.

    A container's quota counts where it is lower: it can be used up while most cores idle.
    """
    limit, used = container_cores(profile), steady_mean(profile, "process_cores")
    if limit is not None and used is not None:
        share = min(1.0, used / limit)
        text = f"The container's {limit:g} core{' is' if limit == 1 else 's are'} {share:.0%} busy"
        return CpuUse(share, text, {"process_cores": used, "container_cores": limit}, "give the container more cores")
    seen = steady_mean(profile, "usable_cpu_share")
    if limit is not None or seen is None:
        return None
    text = f"The processors are {seen:.0%} busy"
    return CpuUse(seen, text, {"usable_cpu_share": seen}, "take a machine with more cores")
