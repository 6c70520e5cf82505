"""Warnings about a single profile."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from vmselect._hooks import hook
from vmselect.findings import Finding, warnings_first
from vmselect.records.record import UNKNOWN_INSTANCE_TYPE
from vmselect.records.training import Profile

UNSTABLE_SPREAD = 0.25
"""Spread of steady steps (interquartile range over median) from which they are called unstable."""

CONTENTION_RATIO = 0.6
"""CPU seconds per wall second and busy core under which a CPU-only fit is called contended."""

FEW_STEPS = 5

SHORT_STEP_SECONDS = 0.005
"""Under this, Keras' threaded dispatch on JAX and torch made a difference when it was measured."""


def find_warnings(profile: Profile) -> tuple[Finding, ...]:
    """All findings about the profile, warnings first."""
    return warnings_first(finding for check in _CHECKS for finding in check(profile))


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
            f"The training ended early{detail}; the profile holds what was measured until then.",
            "Probe again if the estimate matters.",
        )


def _threaded_dispatch(profile: Profile) -> Iterator[Finding]:
    if profile.environment.dispatch == "threaded" and profile.probe != "epoch":  # whole epochs are waited for
        yield Finding(
            "threaded-dispatch",
            "Keras ran the probe's hooks on worker threads, where step times are not what they seem.",
            "Pass the probe in a list: model.fit(..., callbacks=[probe]).",
        )


def _direct_dispatch(profile: Profile) -> Iterator[Finding]:
    environment, steady = profile.environment, profile.timeline.steps.steady_seconds
    if profile.probe != "iteration" or environment.dispatch != "direct" or environment.backend not in ("jax", "torch"):
        return
    if steady and statistics.median(steady) < SHORT_STEP_SECONDS:
        yield Finding(
            "direct-dispatch",
            "Steps are so short that watching them changes them: a batch hook turns Keras' threaded dispatch off, and "
            f"the probed steps may be faster than unprobed ones on {environment.backend}.",
            "If nothing else watches batches in the real training, compare with EpochProbe, which leaves steps alone.",
            "info",
        )


def _unstable_steps(profile: Profile) -> Iterator[Finding]:
    steady = profile.timeline.steps.steady_seconds
    if profile.probe in ("iteration", "loop") and len(steady) < FEW_STEPS and profile.outcome != "out_of_memory":
        yield Finding(
            "few-steps",
            f"Only {len(steady)} steady steps were seen.",
            "Probe with a larger steps=, or train on more data.",
        )
    if len(steady) < FEW_STEPS:
        return
    quartiles = statistics.quantiles(steady, n=4)
    median = statistics.median(steady)
    spread = (quartiles[2] - quartiles[0]) / median if median > 0 else 0.0
    if spread > UNSTABLE_SPREAD:
        yield Finding(
            "unstable-steps",
            f"Steady steps vary widely: the middle half spreads over {spread:.0%} of the median.",
            "Close other programs on the machine, or probe again with a larger steps=.",
        )


def _contention(profile: Profile) -> Iterator[Finding]:
    timeline, environment = profile.timeline, profile.environment
    if not timeline.wall_seconds or timeline.cpu_seconds is None or environment.framework_gpus:
        return
    if timeline.wall_seconds < 1:  # too short for a meaningful ratio
        return
    if timeline.input_wait is not None and timeline.input_wait.share > 1 - CONTENTION_RATIO:
        return  # the cause is known, and is told as such
    ratio = timeline.cpu_seconds / timeline.wall_seconds
    if ratio < CONTENTION_RATIO:
        yield Finding(
            "contention",
            f"The process had a CPU for {ratio:.0%} of the probe's wall time: it waited for input, for other "
            "programs, or slept.",
            "If that is not how the training runs elsewhere, probe on an idle machine.",
        )


def _causes(profile: Profile) -> Iterator[Finding]:
    yield from hook("find_causes")(profile)


def _unknown_setup(profile: Profile) -> Iterator[Finding]:
    if profile.batch_size is None:
        yield Finding(
            "unknown-batch-size",
            "The batch size could not be learnt from the data.",
            "Pass it: IterationProbe(batch_size=...).",
        )
    if profile.steps_per_epoch is None:
        yield Finding(
            "unknown-steps",
            "The number of steps per epoch is not known (a generator, or a dataset of unknown size).",
            "Give examples= or steps_per_epoch= to vmselect.estimate, or steps_per_epoch= to fit.",
        )


def _initialization(profile: Profile) -> Iterator[Finding]:
    if profile.timeline.init_seconds is not None:
        return
    if profile.environment.notebook:
        why = "In a notebook the start of the process is not the start of the program"
    elif profile.outcome == "given":
        why = "No initialization time was given"
    else:
        why = "An earlier fit ran in the same process"
    yield Finding(
        "unknown-initialization",
        f"{why}, so initialization counts as zero.",
        "Call vmselect.mark_start() where the program's own work begins, or give init_seconds=.",
        "info",
    )


def _validation(profile: Profile) -> Iterator[Finding]:
    if profile.probe in ("iteration", "loop") and not profile.timeline.validations:
        yield Finding(
            "no-validation",
            "No validation was seen.",
            "If the real training validates, probe with validation data and validations=2.",
            "info",
        )


def _placement(profile: Profile) -> Iterator[Finding]:
    if profile.instance_type is None:
        yield UNKNOWN_INSTANCE_TYPE


def _unused_gpu(profile: Profile) -> Iterator[Finding]:
    environment = profile.environment
    if environment.gpus and environment.framework_gpus == 0:
        yield Finding(
            "unused-gpu",
            f"The machine has {len(environment.gpus)} x {environment.gpus[0].name}, but the framework uses none.",
            "Install the GPU build of the framework and its drivers, then probe again.",
        )


_CHECKS: tuple[Callable[[Profile], Iterator[Finding]], ...] = (
    _outcome,
    _threaded_dispatch,
    _direct_dispatch,
    _unused_gpu,
    _placement,
    _unknown_setup,
    _unstable_steps,
    _contention,
    _causes,
    _initialization,
    _validation,
)
