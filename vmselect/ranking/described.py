"""Machine estimates without any probe on a GPU: the runtime from the description of a training.

The step time is predicted from the operations of the step. All other times have typical values with wide intervals,
because a description does not contain them. docs/how-to/no-gpu.md shows how to use it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

from vmselect.estimation import RuntimeModel, Workload
from vmselect.estimation.methods import find_early_stopping
from vmselect.estimation.runtime import HalfWidths
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.prediction.machines import Prediction
from vmselect.records import Profile
from vmselect.records.identity import has_validation, identify
from vmselect.units import format_seconds

SettingsKey = tuple[tuple[str, str], ...]
METHOD = "described"
"""Name of the estimation method in rows and records."""


class Typical(NamedTuple):
    """A typical time (or ratio) and the standard deviation of its log."""

    value: float
    deviation: float

    def interval(self, confidence: float) -> Interval[float]:
        """The typical time with its interval at ``confidence``."""
        spread = math.exp(NormalDist().inv_cdf(0.5 + confidence / 2) * self.deviation)
        return Interval.within_factor(self.value, spread)


INITIALIZATION = Typical(20.0, 1.0)
"""Seconds from the start of a program to its first step: imports, data, model, GPU context. At 90 % confidence, 4 to
104 s. MLPerf v0.7 and v1.1 on up to 16 GPUs: median 36 s, 9 to 189 s (5 to 95 %); the dissertation: 0.2 to 23 s."""
FIRST_STEP = Typical(5.0, 1.0)
"""Seconds by which the first step is longer than others (tracing, compilation): 1 to 26 s. The dissertation: 3.3 to
14 s on one GPU, 22 s on 16 GPUs; measured here on a CPU: TensorFlow 0.9 s, with XLA 7 to 10 s, JAX 4 to 7 s."""
FIRST_VALIDATION = Typical(1.0, 1.0)
"""Seconds by which the first validation is longer than others: 0.2 to 5 s. Measured here on a CPU: the first takes 3
times as long as the second on TensorFlow, 32 times on JAX and equally long on torch."""
VALIDATION = Typical(0.35, 0.4)
"""Time of an example in validation relative to training: 0.18 to 0.68. MLPerf v0.7 and v1.1: 0.35. A forward pass has
a third of the operations of a training step."""
EPOCH_BOUNDARY = Typical(0.1, 1.0)
"""Seconds between two epochs (callbacks, restart of the input): 0.02 to 0.5 s. Measured here on a CPU: 0.02 s on JAX
and torch, up to some seconds on TensorFlow."""


@dataclass(frozen=True)
class Descriptions:
    """Profiles that describe the training and are of no machine that can be ranked; and how the training differs."""

    profiles: Sequence[Profile]
    workload: Workload

    @classmethod
    def of(cls, profiles: Sequence[Profile], workload: Workload, sizes: Sequence[int] | None) -> Descriptions:
        """The descriptions among ``profiles`` at the batch sizes ``sizes`` (None: at all)."""
        about = [
            profile
            for profile in profiles
            if profile.work is not None
            and (is_only_description(profile) or not profile.instance_type)
            and (sizes is None or profile.batch_size in sizes)
        ]
        return cls(about, workload)

    def by_settings(self) -> dict[SettingsKey, list[Profile]]:
        """The profiles by batch size and varied factors."""
        groups: dict[SettingsKey, list[Profile]] = {}
        for profile in self.profiles:
            settings = identify(profile).settings
            if not {"nodes", "workers"} & settings.keys():
                groups.setdefault(settings_key(settings), []).append(profile)
        return groups


NO_DESCRIPTIONS = Descriptions((), Workload())


def settings_key(settings: Mapping[str, Any]) -> SettingsKey:
    """Key of a batch size and varied factors, which machine estimates and descriptions of one training share."""
    return tuple(sorted((name, str(value)) for name, value in settings.items()))


def is_only_description(profile: Profile) -> bool:
    """Whether a profile contains no measured times."""
    return profile.outcome == "described"


def describe_runtime(
    profile: Profile, workload: Workload, step: Interval[float], *, title: str, confidence: float
) -> RuntimeModel:
    """Runtime of the training that ``profile`` describes, if a step takes ``step`` seconds.

    ``workload`` replaces fields of the profile. Raises EstimateError if the number of steps per epoch is unknown.
    """
    size = Workload.of(profile, **{**workload.given, "boot_seconds": None})
    steps = size.require_steps(profile.title)
    batch = size.batch_size or 1
    partial = (size.partial_batch or 0) / batch
    full = steps - (1 if partial else 0)
    # All validations of an epoch are one, as in an estimate from a probe.
    several = profile.setup.validations_per_epoch or 1.0
    batches = several * (size.count_validation_batches(profile.setup) or 0.0)
    freq = size.validation_freq or 1
    validation = VALIDATION.value * step.value * batches
    widths = HalfWidths()
    validated = VALIDATION.value * batches / freq
    widths.add_sides(step.value - step.low, step.high - step.value, per_epoch=full + partial + validated)

    def add(typical: Typical, *, once: float = 0.0, per_epoch: float = 0.0) -> float:
        value, low, high = typical.interval(confidence)
        widths.add_sides(value - low, high - value, once=once, per_epoch=per_epoch)
        return value

    terms = {
        "boot": (workload.boot_seconds or 0.0, 0.0),
        "initialization": (add(INITIALIZATION, once=1.0), 0.0),
        "first_iteration": (add(FIRST_STEP, once=1.0), 0.0),
        "steady_iterations": (0.0, step.value * full),
        "partial_batch": (0.0, step.value * partial),
        "epoch_boundaries": (0.0, add(EPOCH_BOUNDARY, per_epoch=1.0)),
    }
    first = 0.0
    if batches:
        first = validation + add(FIRST_VALIDATION, once=1.0)
        share = VALIDATION.interval(confidence)
        sides = (step.value * batches * (end - share.value) for end in (share.low, share.high))
        below, above = (abs(side) for side in sides)
        widths.add_sides(below, above, per_epoch=1 / freq)
    return RuntimeModel(
        title=title, method=METHOD, confidence=confidence, terms={n: pair for n, pair in terms.items() if any(pair)},
        first_validation_seconds=first, validation_seconds=validation, validation_freq=freq,
        validation_from=size.validation_from, validation_until=size.validation_until,
        low=widths.low, high=widths.high, basis="described", early_stopping=find_early_stopping([profile]),
    )  # fmt: skip


def find_unseen_validations(profiles: Iterable[Profile], workload: Workload) -> list[Finding]:
    """A finding if a training validates, but neither its description nor ``workload`` states on how many examples."""
    for profile in profiles:
        size = Workload.of(profile, **{**workload.given, "boot_seconds": None})
        if has_validation(profile) and size.count_validation_batches(profile.setup) is None:
            message = (
                "The training seems to validate, but its description does not state on how many examples: the times "
                "contain no validation."
            )
            remedy = "Pass validation_examples= (--validation-examples); 0 if it does not validate."
            return [Finding("validation-unseen", message, remedy)]
    return []


def described_findings(
    title: str, prediction: Prediction, confidence: float, *, validates: bool | None
) -> list[Finding]:
    """Findings about a machine whose time is computed from the description of the training.

    ``validates`` is None if it is not known whether the training validates, so that its time has no validation.
    """
    low, high = prediction.interval(confidence)
    name = prediction.machine.instance_type
    findings = [
        Finding(
            "described",
            f"{title}: there is no usable probe on a GPU at this batch size. The step time is estimated from the "
            f"definition of the model, {format_seconds(low)} to {format_seconds(high)}, without waiting for data; all "
            f"other times are typical ones{', without a validation' if validates is None else ''}.",
            f"Probe {name} for a few steps before you rent it for long.",
            "info",
        )
    ]
    if prediction.input_seconds:
        waits = format_seconds(prediction.input_seconds)
        message = f"A step of the probe without a GPU waits {waits} for its data, and a GPU does not shorten this wait."
        remedy = f"Speed up the input, or probe {name} to see how fast its CPU prepares the data."
        findings.append(Finding("input-floor", message, remedy, "info"))
    return [*findings, *prediction.cautions]
