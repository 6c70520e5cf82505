"""Known disturbances of a measurement, and how much they widen the interval of an estimate.

All readings of a disturbed probe are slow, so their spread does not show the disturbance. The sampled usage shows it:
steal time, other programs, throttling, and waiting for input. Each disturbance extends the interval towards the time
that the training takes without it.
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
"""Exponent of the slowdown by lost CPU time: with a share ``s`` of the CPU left, steps may take ``1 / s**LOST_POWER``
times as long, because threads wait for each other. From one training of 12 s that was predicted as 195 s while other
programs used 74 % of the cores."""

THROTTLED_SLOWDOWN = 0.3
"""Assumed relative slowdown while a GPU is throttled. A longer training may be throttled more often than the probe."""

WAIT_CHANGE = 0.5
"""Assumed relative change of the time that steps wait for input: disks, caches and CPU cores differ between machines of
one type."""

MAX_FACTOR = 10.0
"""If an undisturbed training may be more than this factor faster, the estimate is not used in a ranking."""


@dataclass(frozen=True)
class Disturbance:
    """By which share of its time a training may be ``faster`` or ``slower`` than the disturbed probe.

    ``lost`` is ``faster`` without waits for input, which an undisturbed training may have too. ``evidence`` contains a
    phrase per cause.
    """

    faster: float = 0.0
    slower: float = 0.0
    lost: float = 0.0
    evidence: tuple[str, ...] = ()

    @property
    def kept(self) -> float:
        """Minimum time of an undisturbed training, as a share of the estimated time."""
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
                "Stop the cause of the disturbance and probe again.",
            )
        else:
            yield Finding(
                "disturbed",
                f"{title}: the probe was disturbed ({why}), so the interval is wider: undisturbed, the training may "
                f"be up to {self.faster:.0%} faster.",
                "Stop the cause of the disturbance and probe again.",
            )


def find_disturbance(profiles: Sequence[Profile]) -> Disturbance:
    """Mean disturbance of ``profiles``, computed from the numbers that their findings contain as evidence."""
    found = [_combine(list(_find_causes(profile))) for profile in profiles]
    return Disturbance(
        faster=statistics.fmean(one.faster for one in found),
        slower=statistics.fmean(one.slower for one in found),
        lost=statistics.fmean(one.lost for one in found),
        evidence=tuple(dict.fromkeys(text for one in found for text in one.evidence)),
    )


def _combine(causes: Sequence[Disturbance]) -> Disturbance:
    """Combine independent causes by multiplying the shares of the time that each leaves."""
    return Disturbance(
        faster=1 - math.prod(1 - cause.faster for cause in causes),
        slower=math.fsum(cause.slower for cause in causes),
        lost=1 - math.prod(1 - cause.lost for cause in causes),
        evidence=tuple(text for cause in causes for text in cause.evidence),
    )


def _lose(share: float) -> float:
    """Share of the training time that may be saved if the lost share ``share`` of the CPU becomes available again."""
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
    return Disturbance(faster, 0.0, faster, (f"the CPU was throttled in {share:.0%} of the scheduler periods",))


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
"""Functions that compute disturbances from the evidence of a finding, by the code of the finding."""


def _find_causes(profile: Profile) -> Iterator[Disturbance]:
    if profile.usage is None and profile.timeline.input_wait is None:
        return  # nothing was sampled
    for finding in profile.findings:
        evidence = getattr(finding, "evidence", {})
        yield from filter(None, (cause(evidence) for cause in CAUSES.get(finding.code, ())))
