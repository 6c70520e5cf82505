"""A diagnosis, and the few quantities that several checks ask for."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from vmselect.findings import Finding
from vmselect.records import Profile

INPUT_BOUND = 0.3
"""Share of the time that steps wait for data from which they are called input-bound: faster input then gains up to
1.4x, about what the next larger machine would have to be worth its price."""

HARDLY = 0.1
"""Share under which the wait for data is no matter: all of it gone would gain 1.1x."""

SEEN_SECONDS = 0.5
"""Samples that cover less than this say nothing."""


@dataclass(frozen=True)
class Diagnosis(Finding):
    """A finding about speed, with the numbers that it rests on: name to value, units in the names.

    ``bound`` says in a few words what can be gained at most, where that follows: it stands beside a machine.
    """

    evidence: Mapping[str, float] = field(default_factory=dict, hash=False, compare=False)
    bound: str = ""


Causes = Iterator[Diagnosis]


def input_share(profile: Profile) -> float | None:
    """The share of the time that steps waited for data, or None where that is unknown."""
    wait = profile.timeline.input_wait
    return None if wait is None or not wait.wall_seconds else wait.share


def waits_for_input(profile: Profile) -> bool:
    """Whether steps are known to wait for data for much of the time."""
    return (input_share(profile) or 0.0) >= INPUT_BOUND


def steady_mean(profile: Profile, quantity: str) -> float | None:
    """The mean of a quantity over the steady steps, or None where too little was seen of it."""
    summary = None if profile.usage is None else profile.usage.summary(quantity)
    return None if summary is None or summary.seconds < SEEN_SECONDS else summary.mean


def usable_cores(profile: Profile) -> int | None:
    """The cores that the process may run on."""
    limits = None if profile.usage is None else profile.usage.limits
    return (limits.cores if limits else None) or profile.environment.usable_cores or profile.environment.cpu_cores


def container_cores(profile: Profile) -> float | None:
    """How many cores' worth of time a container allows, where that is less than the cores; None is no such limit."""
    limit, cores = None if profile.usage is None else profile.usage.limits.container_cores, usable_cores(profile)
    return limit if limit is not None and (cores is None or limit < cores) else None


def count_cores(profile: Profile) -> float | None:
    """The cores' worth of time that the process may use."""
    return container_cores(profile) or usable_cores(profile)


class Busy(NamedTuple):
    """How busy the processors are that the process may use: a share, in words, its evidence, and how to get more."""

    share: float
    said: str
    evidence: dict[str, float]
    more: str


def busy_processors(profile: Profile) -> Busy | None:
    """How busy the processors are in steady steps; None where that was not seen.

    Where a container allows less than all cores' time, that is what counts: it can be used up while most cores idle.
    """
    limit, used = container_cores(profile), steady_mean(profile, "process_cores")
    if limit is not None and used is not None:
        share = min(1.0, used / limit)
        said = f"The container's {limit:g} core{' is' if limit == 1 else 's are'} {share:.0%} busy"
        return Busy(share, said, {"process_cores": used, "container_cores": limit}, "give the container more cores")
    seen = steady_mean(profile, "usable_cpu_share")
    if limit is not None or seen is None:
        return None
    said = f"The processors are {seen:.0%} busy"
    return Busy(seen, said, {"usable_cpu_share": seen}, "take a machine with more cores")


def device(profile: Profile) -> str:
    """What does the computing, in a word."""
    return "GPU" if profile.environment.framework_gpus else "processor"


def steady_step(profile: Profile) -> float | None:
    """Seconds of an ordinary step, or None where steps were not watched."""
    steady = profile.timeline.steps.steady_seconds
    return statistics.median(steady) if steady else None
