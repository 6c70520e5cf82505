"""How much known disturbances of a probe widen the interval of an estimate.

All readings of a disturbed probe are slow, so their spread does not show the disturbance. The sampled usage shows it:
steal time, other programs, throttling, and waiting for input. Each disturbance extends the interval towards the time
that the training takes without it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vmselect.diagnosis.causes import Cause
from vmselect.findings import Finding

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

REMEDY = "Stop the cause of the disturbance and probe again."


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

    @property
    def too_strong(self) -> bool:
        """Whether nothing can be concluded from the disturbed probe."""
        return 1 - self.lost < 1 / MAX_FACTOR

    def __str__(self) -> str:
        why = " and ".join(self.evidence)
        if self.too_strong:
            return (
                f"the probe was too disturbed to rank the machine ({why}). Without the disturbance, the training may "
                f"be more than {MAX_FACTOR:.0f} times as fast."
            )
        return (
            f"the probe was disturbed ({why}), so the interval is wider: undisturbed, the training may be up to "
            f"{self.faster:.0%} faster."
        )

    def findings(self, title: str) -> tuple[Finding, ...]:
        """The finding about the disturbance of the profile ``title``; empty if it was not disturbed."""
        if not self.evidence:
            return ()
        return (Finding("too-disturbed" if self.too_strong else "disturbed", f"{title}: {self}", REMEDY),)


UNDISTURBED = Disturbance()


def find_disturbance(causes: Iterable[Cause]) -> Disturbance:
    """The disturbance by all ``causes``, which multiply the share of the time that each leaves."""
    parts = [part for part in map(_measure, causes) if part is not None]
    return Disturbance(
        faster=1 - math.prod(1 - part.faster for part in parts),
        slower=math.fsum(part.slower for part in parts),
        lost=1 - math.prod(1 - part.lost for part in parts),
        evidence=tuple(text for part in parts for text in part.evidence),
    )


def average_disturbances(disturbances: Sequence[Disturbance]) -> Disturbance:
    """Mean disturbance of several profiles."""
    if not disturbances:
        return UNDISTURBED
    return Disturbance(
        faster=statistics.fmean(disturbance.faster for disturbance in disturbances),
        slower=statistics.fmean(disturbance.slower for disturbance in disturbances),
        lost=statistics.fmean(disturbance.lost for disturbance in disturbances),
        evidence=tuple(dict.fromkeys(text for disturbance in disturbances for text in disturbance.evidence)),
    )


def _measure(cause: Cause) -> Disturbance | None:
    """The disturbance by one cause; None if the cause does not end with the disturbance of the probe."""
    evidence = cause.evidence
    match cause.kind:
        case "steal":
            # Other virtual machines may take less or as much again.
            share = evidence["steal_share"]
            faster = _lose(share)
            return Disturbance(faster, 1 / (1 - faster) - 1, faster, (f"{share:.0%} steal time",))
        case "other-programs":
            share = evidence["other_cores"] / evidence["usable_cores"]
            faster = _lose(share)
            return Disturbance(faster, 0.0, faster, (f"other programs used {share:.0%} of the CPU cores",))
        case "throttled-by-heat" | "throttled-by-hardware":
            # A power limit, in contrast, belongs to the machine and slows down the whole training.
            share = max(evidence.values())
            faster = THROTTLED_SLOWDOWN * min(1.0, share)
            text = f"a GPU was throttled {share:.0%} of the time"
            return Disturbance(faster, THROTTLED_SLOWDOWN, faster, (text,))
        case "cpu-quota":
            share = evidence["container_throttled_share"]
            faster = min(0.99, share)
            return Disturbance(faster, 0.0, faster, (f"the CPU was throttled in {share:.0%} of the scheduler periods",))
        case "input-bound":
            share = evidence["input_wait_share"]
            change = WAIT_CHANGE * min(1.0, share)
            return Disturbance(change, change, 0.0, (f"steps waited for input {share:.0%} of the time",))
        case _:
            return None


def _lose(share: float) -> float:
    """Share of the training time that may be saved if the lost share ``share`` of the CPU becomes available again."""
    return 1 - math.pow(1 - min(0.99, max(0.0, share)), LOST_POWER)
