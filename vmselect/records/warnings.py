"""Warnings about a single profile."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from vmselect._hooks import hook
from vmselect.findings import Finding, warnings_first
from vmselect.records.training import Profile

UNSTABLE_SPREAD = 0.25
"""Spread of steady steps (interquartile range over median) above which they are unstable."""

CONTENTION_RATIO = 0.6
"""CPU seconds per wall second below which a fit without GPU is contended."""

FEW_STEPS = 5

SHORT_STEP_SECONDS = 0.005
"""Below this, Keras' threaded dispatch on JAX and torch made a measurable difference."""


def find_warnings(profile: Profile) -> tuple[Finding, ...]:
    """All findings about the profile, warnings first."""
    checks = (_outcome, _dispatch, _unused_gpu, Profile.find_unknown_machine, _setup, _steps, _contention)
    found = [finding for check in checks for finding in check(profile)]
    return warnings_first([*found, *hook("find_causes")(profile), *_missing_parts(profile)])


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
            f"The training ended early{detail}, so the profile is incomplete.",
            "Probe again.",
        )


def _dispatch(profile: Profile) -> Iterator[Finding]:
    environment, steady = profile.environment, profile.timeline.steps.steady_seconds
    if environment.dispatch == "threaded" and profile.probe != "epoch":  # Keras waits for whole epochs
        yield Finding(
            "threaded-dispatch",
            "Keras ran the probe's hooks on worker threads, so the step times are wrong.",
            "Pass the probe in a list: model.fit(..., callbacks=[probe]).",
        )
    if profile.probe != "iteration" or environment.dispatch != "direct" or environment.backend not in ("jax", "torch"):
        return
    if steady and statistics.median(steady) < SHORT_STEP_SECONDS:
        yield Finding(
            "direct-dispatch",
            f"A batch hook turns off Keras' threaded dispatch, so these short steps on {environment.backend} may be "
            "faster than without the probe.",
            "If the real training has no batch hooks, compare with EpochProbe.",
            "info",
        )


def _steps(profile: Profile) -> Iterator[Finding]:
    steady = profile.timeline.steps.steady_seconds
    if profile.probe in ("iteration", "loop") and len(steady) < FEW_STEPS and profile.outcome != "out_of_memory":
        yield Finding(
            "few-steps",
            f"Only {len(steady)} steady steps were recorded.",
            "Probe with a larger steps=, or on more data.",
        )
    if len(steady) < FEW_STEPS:
        return
    quartiles = statistics.quantiles(steady, n=4)
    median = statistics.median(steady)
    spread = (quartiles[2] - quartiles[0]) / median if median > 0 else 0.0
    if spread > UNSTABLE_SPREAD:
        yield Finding(
            "unstable-steps",
            f"Steady steps vary widely: their interquartile range is {spread:.0%} of the median.",
            "Close other programs on the machine, or probe with a larger steps=.",
        )


def _contention(profile: Profile) -> Iterator[Finding]:
    timeline = profile.timeline
    if timeline.cpu_seconds is None or profile.environment.framework_gpus:
        return
    if not timeline.wall_seconds or timeline.wall_seconds < 1:  # too short for a meaningful ratio
        return
    if timeline.input_wait is not None and timeline.input_wait.share > 1 - CONTENTION_RATIO:
        return  # another finding reports the cause
    ratio = timeline.cpu_seconds / timeline.wall_seconds
    if ratio < CONTENTION_RATIO:
        yield Finding(
            "contention",
            f"The process used a CPU in {ratio:.0%} of the probe's wall time: it waited for input or other programs.",
            "If the real training does not wait, probe on an idle machine.",
        )


def _setup(profile: Profile) -> Iterator[Finding]:
    if profile.batch_size is None:
        yield Finding(
            "unknown-batch-size",
            "The data do not show the batch size.",
            "Pass it: IterationProbe(batch_size=...).",
        )
    if profile.steps_per_epoch is None:
        yield Finding(
            "unknown-steps",
            "The number of steps per epoch is unknown (a generator, or a dataset of unknown size).",
            "Pass examples= or steps_per_epoch= to vmselect.estimate, or steps_per_epoch= to fit.",
        )


def _missing_parts(profile: Profile) -> Iterator[Finding]:
    if profile.timeline.init_seconds is None:
        why = "An earlier fit ran in the same process"
        if profile.environment.notebook:
            why = "In a notebook the start of the process is not the start of the program"
        elif profile.outcome == "given":
            why = "No initialization time was given"
        yield Finding(
            "unknown-initialization",
            f"{why}, so initialization counts as zero.",
            "Call vmselect.mark_start() where the program begins, or give init_seconds=.",
            "info",
        )
    if profile.probe in ("iteration", "loop") and not profile.timeline.validations:
        yield Finding(
            "no-validation",
            "No validation was recorded.",
            "If the real training validates, probe with validation data and validations=2.",
            "info",
        )


def _unused_gpu(profile: Profile) -> Iterator[Finding]:
    environment = profile.environment
    if environment.gpus and environment.framework_gpus == 0:
        yield Finding(
            "unused-gpu",
            f"The machine has {len(environment.gpus)} x {environment.gpus[0].name}, but the framework uses none.",
            "Install the GPU build of the framework and its drivers, then probe again.",
        )
