"""Checks of a single profile, and its examination: all that is known about its measurement, computed once.

All readings of a disturbed probe are slow, so their spread does not show the disturbance. The sampled usage shows it:
steal time, other programs, throttling, and waiting for input. Each disturbance extends the interval towards the time
that the training takes without it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from vmselect.diagnosis.causes import Cause, describe_causes, find_causes
from vmselect.findings import Finding, warnings_first
from vmselect.records.training import Profile
from vmselect.units import format_count

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
INPUT_REMEDY = "Speed up the input, or probe for longer, so that the wait is known better."


@dataclass(frozen=True)
class Disturbance:
    """By which share of its time a training may be ``faster`` or ``slower`` than the disturbed probe.

    ``lost`` is ``faster`` without waits for input, which an undisturbed training may have too. ``evidence`` contains a
    phrase per cause, ``waits`` one about the input of the training itself.
    """

    faster: float = 0.0
    slower: float = 0.0
    lost: float = 0.0
    evidence: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()

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
        """Findings about the disturbance of the profile ``title`` and about its waits for input; empty without both."""
        findings = []
        if self.evidence:
            findings.append(Finding("too-disturbed" if self.too_strong else "disturbed", f"{title}: {self}", REMEDY))
        if self.waits:
            message = f"{title}: {' and '.join(self.waits)}, which may change, so the interval is wider."
            findings.append(Finding("input-wait", message, INPUT_REMEDY, "info"))
        return tuple(findings)


UNDISTURBED = Disturbance()


def find_disturbance(causes: Iterable[Cause]) -> Disturbance:
    """The disturbance by all ``causes``, which multiply the share of the time that each leaves."""
    parts = [part for part in map(_measure, causes) if part is not None]
    return Disturbance(
        faster=1 - math.prod(1 - part.faster for part in parts),
        slower=math.fsum(part.slower for part in parts),
        lost=1 - math.prod(1 - part.lost for part in parts),
        evidence=tuple(text for part in parts for text in part.evidence),
        waits=tuple(text for part in parts for text in part.waits),
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
        waits=tuple(dict.fromkeys(text for disturbance in disturbances for text in disturbance.waits)),
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
            return Disturbance(change, change, 0.0, waits=(f"steps waited for input {share:.0%} of the time",))
        case _:
            return None


def _lose(share: float) -> float:
    """Share of the training time that may be saved if the lost share ``share`` of the CPU becomes available again."""
    return 1 - math.pow(1 - min(0.99, max(0.0, share)), LOST_POWER)


UNSTABLE_SPREAD = 0.25
"""Spread of steady step times (interquartile range divided by median) above which they are reported as unstable."""

CONTENTION_RATIO = 0.6
"""CPU seconds per wall second below which a training without GPU waits for input or for other programs."""

FEW_STEPS = 5

SHORT_STEP_SECONDS = 0.005
"""Step time in seconds below which, on JAX and torch, the extra thread in which Keras starts steps is measurable."""


@dataclass(frozen=True)
class Examination:
    """What a profile shows about its own measurement: causes as numbers, and all else that is made from them."""

    profile: Profile
    causes: tuple[Cause, ...]

    @classmethod
    def of(cls, profile: Profile) -> Examination:
        """Examine ``profile``. Rankings call this once per profile and pass the result on."""
        return cls(profile, find_causes(profile))

    @cached_property
    def disturbance(self) -> Disturbance:
        """How much known disturbances may have slowed down the probe."""
        return find_disturbance(self.causes)

    @property
    def narrowed_by(self) -> tuple[str, ...]:
        """What narrows the interval of an estimate from this profile, the most effective first."""
        checks = (_contention, _unstable_steps, _few_steps)
        return tuple(finding.remedy for check in checks for finding in check(self.profile))

    def findings(self, *, early_stopping: bool = True) -> tuple[Finding, ...]:
        """All findings about the profile, warnings first.

        Without ``early_stopping``, the finding about a callback that may end the training is left out: a row of a
        ranking states it for its number of epochs.
        """
        profile = self.profile
        if profile.outcome == "described":  # nothing was measured that could be wrong
            return tuple(_setup(profile))
        checks = (
            _outcome,
            _dispatch,
            *([_early_stopping] if early_stopping else []),
            Profile.find_unknown_machine,
            _setup,
            _few_steps,
            _unstable_steps,
            _contention,
        )
        # A training that its device limits is in the desired state, which needs no finding.
        problems = [cause for cause in self.causes if cause.kind != "compute-bound"]
        return warnings_first([
            *(finding for check in checks for finding in check(profile)),
            *describe_causes(profile, problems),
            *_missing_parts(profile),
        ])  # fmt: skip


def check_profile(profile: Profile) -> tuple[Finding, ...]:
    """All findings about ``profile``, warnings first. Implements ``profile.findings``."""
    return Examination.of(profile).findings()


def _outcome(profile: Profile) -> Iterator[Finding]:
    detail = f" ({profile.detail})" if profile.detail else ""
    if profile.outcome == "out_of_memory":
        yield Finding(
            "out-of-memory",
            f"The training ran out of memory{detail}.",
            "Use a smaller batch size on this machine, or a machine with more memory.",
        )
    elif profile.outcome == "interrupted":
        yield Finding(
            "interrupted",
            f"The training was interrupted{detail}, so the profile is incomplete.",
            "Probe again.",
        )


def _dispatch(profile: Profile) -> Iterator[Finding]:
    environment, steady = profile.environment, profile.timeline.steps.steady_seconds
    if profile.timed_in_threads:
        yield Finding(
            "threaded-dispatch",
            "Keras called the probe from worker threads, not between steps, so the step times are wrong.",
            "Probe again with this version of vmselect.",
        )
    # Only Keras on these two backends starts steps in a thread of its own.
    if profile.probe != "iteration" or environment.dispatch != "direct" or environment.backend not in ("jax", "torch"):
        return
    if environment.step_timing is not None:  # the user's own callbacks caused the direct calls
        return
    if steady and statistics.median(steady) < SHORT_STEP_SECONDS:
        yield Finding(
            "direct-dispatch",
            f"With a batch-level callback such as the probe, Keras on {environment.backend} starts steps without an "
            "extra thread. Steps as short as these may therefore be faster with the probe than without it.",
            "If your training has no other batch-level callback, measure it with EpochProbe and use that profile.",
            "info",
        )


def _early_stopping(profile: Profile) -> Iterator[Finding]:
    if profile.setup.early_stopping:
        yield Finding(
            "early-stopping",
            f"A callback may end the training after {profile.setup.early_stopping} epochs or more, so the training "
            "may have fewer epochs than planned.",
            "Find the number of epochs with a convergence study (ConvergenceProbe), and pass epochs= (--epochs).",
            "info",
        )


def _few_steps(profile: Profile) -> Iterator[Finding]:
    steady = profile.timeline.steps.steady_seconds
    # A larger steps= does not help a training that was ended: another finding says so.
    ended = profile.outcome in ("out_of_memory", "interrupted")
    if profile.probe in ("iteration", "loop") and len(steady) < FEW_STEPS and not ended:
        yield Finding(
            "few-steps",
            f"Only {format_count(len(steady), 'steady step')} {'was' if len(steady) == 1 else 'were'} recorded, so the "
            "estimate is uncertain.",
            "Probe with a larger steps= (--steps), or on more data.",
        )


def _unstable_steps(profile: Profile) -> Iterator[Finding]:
    steady = profile.timeline.steps.steady_seconds
    if len(steady) < FEW_STEPS:
        return
    quartiles = statistics.quantiles(steady, n=4)
    median = statistics.median(steady)
    spread = (quartiles[2] - quartiles[0]) / median if median > 0 else 0.0
    if spread > UNSTABLE_SPREAD:
        yield Finding(
            "unstable-steps",
            f"The step times vary widely: their interquartile range is {spread:.0%} of the median.",
            "Close other programs on the machine, or probe with a larger steps= (--steps).",
        )


def _contention(profile: Profile) -> Iterator[Finding]:
    timeline = profile.timeline
    # A training on a GPU leaves the CPU idle in any case.
    if timeline.cpu_seconds is None or profile.environment.framework_gpus:
        return
    if not timeline.wall_seconds or timeline.wall_seconds < 1:  # too short for a meaningful ratio
        return
    if timeline.input_wait is not None and timeline.input_wait.share > 1 - CONTENTION_RATIO:
        return  # the finding about input wait reports the cause
    ratio = timeline.cpu_seconds / timeline.wall_seconds
    if ratio < CONTENTION_RATIO:
        yield Finding(
            "contention",
            f"The training used the CPU for only {ratio:.0%} of the wall time: it waited for input or other programs.",
            "End other programs on the machine and probe again, unless such waits are normal for your training.",
        )


def _setup(profile: Profile) -> Iterator[Finding]:
    if profile.batch_size is None:
        yield Finding(
            "unknown-batch-size",
            "The batch size is unknown: the probe could not infer it from the data.",
            "Pass batch_size= (--batch-size) to the probe.",
        )
    if profile.steps_per_epoch is None and not profile.only_totals:
        yield Finding(
            "unknown-steps",
            "The number of steps per epoch is unknown, because the data are a generator or a dataset of unknown size.",
            "Pass examples= (--examples) or steps_per_epoch= (--steps-per-epoch) when you estimate or rank.",
        )


def _missing_parts(profile: Profile) -> Iterator[Finding]:
    if profile.timeline.init_seconds is None and not profile.only_totals:
        why = "The start of this training is unknown, because another training ran before in the same process"
        if profile.environment.notebook:
            why = "The initialization time is unknown, because a notebook starts its process long before the program"
        elif profile.outcome == "given":
            why = "No initialization time was given"
        yield Finding(
            "unknown-initialization",
            f"{why}. The estimate assumes that initialization takes zero seconds.",
            "Call vmselect.mark_start() where the program begins, or pass init_seconds= to Profile.from_times.",
            "info",
        )
    if profile.probe in ("iteration", "loop") and not profile.timeline.validations:
        yield Finding(
            "no-validation",
            "No validation was recorded.",
            "If your training validates, probe with validation data and validations=2.",
            "info",
        )
