"""Known disturbances of a measurement, and how much they widen the interval of an estimate.

The readings of a disturbed probe agree with each other, so their spread does not show the disturbance. What was sampled
beside them does: steal time, other programs, throttling, and waiting for input. Each widens the side of the interval to
which the training moves without it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmselect.findings import Finding
from vmselect.records import Profile

TOO_DISTURBED = "too-disturbed"
"""Code of the finding about an estimate from which nothing can be concluded."""

LOST_POWER = 2.0
"""A training that lost a share of the CPU may have been slower by this power of the loss, because its threads wait for
each other. From one training of 12 s, predicted as 195 s while other programs used 74 % of the cores."""

THROTTLED_SLOWDOWN = 0.3
"""Assumed relative slowdown while a GPU is throttled. The share of the time that it is throttled may grow."""

WAIT_CHANGE = 0.5
"""Assumed relative change of the time that steps wait for input: disks, caches and CPU cores differ between machines of
one type."""

MAX_FACTOR = 10.0
"""An interval that is wider than this factor because of disturbances supports no decision."""


@dataclass(frozen=True)
class Disturbance:
    """By how much a training may be ``faster`` (share of its time) or ``slower`` than a disturbed probe.

    ``lost`` is the part of ``faster`` that is certain to be a disturbance. ``evidence`` contains a phrase per cause.
    """

    faster: float = 0.0
    slower: float = 0.0
    lost: float = 0.0
    evidence: tuple[str, ...] = ()

    @property
    def kept(self) -> float:
        """Share of the time that an undisturbed training takes at least."""
        return 1 - self.faster

    def findings(self, title: str) -> Iterator[Finding]:
        """Yield the finding about the disturbances."""
        if not self.evidence:
            return
        why = " and ".join(self.evidence)
        if 1 - self.lost < 1 / MAX_FACTOR:
            yield Finding(
                TOO_DISTURBED,
                f"{title}: the probe was too disturbed to rank the machine ({why}). Without the disturbance, the "
                f"training may be more than {MAX_FACTOR:.0f} times as fast.",
                "End what disturbs the training and probe again.",
            )
        else:
            yield Finding(
                "disturbed",
                f"{title}: the probe was disturbed ({why}), so the interval is wider: undisturbed, the training may "
                f"be up to {self.faster:.0%} faster.",
                "End what disturbs the training and probe again.",
            )


def find_disturbance(profiles: Sequence[Profile]) -> Disturbance:
    """The mean disturbance of ``profiles``, from the evidence of their findings."""
    found = [_combine(list(_find_causes(profile))) for profile in profiles]
    return Disturbance(
        faster=statistics.fmean(one.faster for one in found),
        slower=statistics.fmean(one.slower for one in found),
        lost=statistics.fmean(one.lost for one in found),
        evidence=tuple(dict.fromkeys(text for one in found for text in one.evidence)),
    )


def _combine(causes: Sequence[Disturbance]) -> Disturbance:
    """Independent causes: the remaining shares are multiplied."""
    return Disturbance(
        faster=1 - math.prod(1 - cause.faster for cause in causes),
        slower=math.fsum(cause.slower for cause in causes),
        lost=1 - math.prod(1 - cause.lost for cause in causes),
        evidence=tuple(text for cause in causes for text in cause.evidence),
    )


def _lose(share: float) -> float:
    """Share of the time that a training may save without a loss of this share of the CPU."""
    return 1 - math.pow(1 - min(0.99, max(0.0, share)), LOST_POWER)


def _steal(evidence: Mapping[str, float]) -> Disturbance | None:
    share = evidence.get("steal_share")
    if share is None:
        return None
    # Other virtual machines may take less or as much again.
    faster = _lose(share)
    return Disturbance(faster, 1 / (1 - faster) - 1, faster, (f"{share:.0%} steal time",))


def _other_programs(evidence: Mapping[str, float]) -> Disturbance | None:
    others, cores = evidence.get("other_cores"), evidence.get("usable_cores")
    if others is None or not cores:
        return None
    faster = _lose(others / cores)
    return Disturbance(faster, 0.0, faster, (f"other programs used {others / cores:.0%} of the CPU cores",))


def _gpu_throttling(evidence: Mapping[str, float]) -> Disturbance | None:
    shares = [share for name, share in evidence.items() if "throttled_by" in name and "power" not in name]
    if not shares:
        return None
    text = f"a GPU was throttled {max(shares):.0%} of the time"
    faster = THROTTLED_SLOWDOWN * min(1.0, max(shares))
    return Disturbance(faster, THROTTLED_SLOWDOWN, faster, (text,))


def _cpu_throttling(evidence: Mapping[str, float]) -> Disturbance | None:
    share = evidence.get("container_throttled_share")
    if share is None:
        return None
    faster = min(0.99, share)
    return Disturbance(faster, 0.0, faster, (f"the CPU was throttled in {share:.0%} of the periods",))


def _input_wait(evidence: Mapping[str, float]) -> Disturbance | None:
    share = evidence.get("input_wait_share")
    if share is None:
        return None
    change = WAIT_CHANGE * min(1.0, share)
    return Disturbance(change, change, 0.0, (f"steps waited for input {share:.0%} of the time",))


CAUSES: Mapping[str, tuple[Callable[[Mapping[str, float]], Disturbance | None], ...]] = {
    "noisy-neighbour": (_steal, _other_programs),
    "throttled": (_gpu_throttling,),
    "cpu-limited": (_cpu_throttling,),
    "input-bound": (_input_wait,),
}
"""The disturbances that follow from the evidence of a finding, by its code."""


def _find_causes(profile: Profile) -> Iterator[Disturbance]:
    if profile.usage is None and profile.timeline.input_wait is None:
        return  # nothing was sampled
    for finding in profile.findings:
        evidence = getattr(finding, "evidence", {})
        yield from filter(None, (cause(evidence) for cause in CAUSES.get(finding.code, ())))
