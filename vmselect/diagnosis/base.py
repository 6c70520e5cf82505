"""A diagnosis, and the few quantities that several checks ask for."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vmselect.findings import Finding

if TYPE_CHECKING:
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


def count_cores(profile: Profile) -> int | None:
    """The cores that the process may use."""
    limits = None if profile.usage is None else profile.usage.limits
    return (limits.cores if limits else None) or profile.environment.usable_cores or profile.environment.cpu_cores


def device(profile: Profile) -> str:
    """What does the computing, in a word."""
    return "GPU" if profile.environment.framework_gpus else "processor"


def steady_step(profile: Profile) -> float | None:
    """Seconds of an ordinary step, or None where steps were not watched."""
    steady = profile.timeline.steps.steady_seconds
    return statistics.median(steady) if steady else None
