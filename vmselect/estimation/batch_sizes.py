"""Times at batch sizes that were not probed, interpolated or extrapolated from other sizes.

The time of a step is affine in the batch size, with a fixed part and a part per example that are not negative. Between
two probed sizes the line through them is used. From half the smallest to twice the largest size the nearest line is
extrapolated with a finding. Farther sizes are errors. Where a step grows faster than the batch, the fixed part would be
negative (for example because memory runs short), so times are in proportion to the smaller size. A third size shows the
curvature, which widens the interval. See docs/validation/methodology-1-experiments.md.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

from vmselect.errors import EstimateError
from vmselect.estimation.runtime import Quadratic, RuntimeModel
from vmselect.estimation.workload import Workload
from vmselect.findings import Finding
from vmselect.grouping import check_comparable, identify, list_values
from vmselect.records import Profile

REACH = 2.0
"""Times are extrapolated by at most this factor beyond the probed sizes."""

INTERPOLATION_WIDTH, HINGE_SHARE, EXTRAPOLATION_WIDTH = 0.05, 0.75, 0.31
"""Relative half-widths at confidence 0.9. Interpolation: per doubling from one size to the other, and below the line
this share of the distance to a time that is constant up to some size and then in proportion to it. Extrapolation: per
doubling from the nearest size. Chosen on one half of the setups of PROFET and gavel as the narrowest that cover 90 % of
both (``tests/benchmarks/batch_sizes.py --choose``)."""

TRAINING_TERMS = ("steady_iterations", "partial_batch")

Source = Literal["measured", "interpolated", "extrapolated"]


@dataclass(frozen=True)
class StepTime:
    """The time of a step at a batch size, with relative half-widths ``below`` and ``above`` the value."""

    value: float
    below: float
    above: float
    source: Source


def interpolate_time(times: Mapping[int, float], batch_size: int) -> StepTime:
    """The time of a step at ``batch_size`` from the ``times`` at two or more sizes."""
    if batch_size in times:
        return StepTime(times[batch_size], 0.0, 0.0, "measured")
    sizes = sorted(times)
    if len(sizes) < 2:
        raise EstimateError(
            f"Batch size {batch_size} was not probed, and one other size ({sizes[0]}) is not enough. Probe at "
            f"{batch_size}, or at two sizes around it."
        )
    lower, upper = sizes[0] / REACH, sizes[-1] * REACH
    if not lower <= batch_size <= upper:
        raise EstimateError(
            f"Batch size {batch_size} is too far from those probed ({sizes[0]} to {sizes[-1]}), which allow sizes from "
            f"{math.ceil(lower)} to {upper:.0f}. Probe at {batch_size}."
        )
    smaller, larger = neighbors(sizes, batch_size)
    rise = (times[larger] - times[smaller]) / (larger - smaller)
    odd = math.hypot(_curvature(times, smaller, larger), max(0.0, _over(times[smaller], times[larger])))
    if smaller < batch_size < larger:
        line = times[smaller] + rise * (batch_size - smaller)
        value = min(line, times[smaller] * batch_size / smaller)
        hinge = min(value, max(times[smaller], times[larger] * batch_size / larger))
        width = math.hypot(INTERPOLATION_WIDTH * math.log2(larger / smaller), odd)
        below = math.hypot(width, HINGE_SHARE * _over(value, hinge) * hinge / value if value > 0 else 0.0)
        return StepTime(value, below, math.hypot(width, _over(line, value)), "interpolated")
    near = smaller if batch_size < smaller else larger
    slope = min(max(rise, 0.0), times[near] / near)  # neither part of the affine time is negative
    value = times[near] + slope * (batch_size - near)
    width = math.hypot(EXTRAPOLATION_WIDTH * abs(math.log2(batch_size / near)), odd)
    return StepTime(value, width, width, "extrapolated")


def _over(value: float, base: float) -> float:
    """The relative excess of the value over ``base``."""
    return value / base - 1 if base > 0 else 0.0


def _curvature(times: Mapping[int, float], smaller: int, larger: int) -> float:
    """The largest relative distance of the middle of three sizes from the line through the others."""
    bends = [0.0]
    for third in times.keys() - {smaller, larger}:
        low, middle, high = sorted((smaller, larger, third))
        line = times[low] + (times[high] - times[low]) * (middle - low) / (high - low)
        bends.append(abs(_over(times[middle], line)))
    return max(bends)


def neighbors(sizes: Sequence[int], batch_size: int) -> tuple[int, int]:
    """The two of ``sizes`` (ascending) around ``batch_size``, or the two nearest to it."""
    index = min(max(bisect_left(sizes, batch_size), 1), len(sizes) - 1)
    return sizes[index - 1], sizes[index]


def fit_other_batch_size(
    groups: Mapping[int, Sequence[Profile]],
    workload: Workload,
    batch_size: int,
    *,
    fit: Callable[[Sequence[Profile], Workload], RuntimeModel],
) -> RuntimeModel:
    """The runtime of a training at ``batch_size`` from repetitions at other sizes, each fitted by ``fit``."""
    every = [profile for group in groups.values() for profile in group]
    machine = every[0].instance_type or "unknown machine"
    try:
        interpolate_time(dict.fromkeys(groups, 0.0), batch_size)  # raises before any fit
    except EstimateError as impossible:
        raise EstimateError(f"{machine}: {impossible}") from None
    if workload.validation_steps is not None:
        raise EstimateError(
            f"{machine}: validation_steps is ambiguous, because batch size {batch_size} was not probed. Pass "
            "validation_examples= instead."
        )
    around = neighbors(sorted(groups), batch_size)
    # The nearest third size shows the curvature.
    others = sorted(set(groups) - set(around), key=lambda size: abs(math.log2(size / batch_size)))
    near = {size: groups[size] for size in (*around, *others[:1])}
    # The arguments hold at the requested size. At the measured sizes only the data are the same.
    data = Workload(
        examples=workload.examples,
        validation_examples=workload.validation_examples,
        validation_freq=workload.validation_freq,
    )
    models = {size: fit(group, data) for size, group in near.items()}
    steps = {size: Workload.of(group[0], **data.given).steps_per_epoch for size, group in near.items()}
    at, wanted = _count_steps(steps, batch_size, workload.examples, every)
    return _blend(models, at, wanted, batch_size, machine, steps_per_epoch=workload.steps_per_epoch)


def group_by_batch_size(
    profiles: Sequence[Profile], batch_size: int, *, given: Collection[str] = ()
) -> dict[int, list[Profile]]:
    """Usable profiles by batch size; an error if memory is too small for ``batch_size`` or no size is known.

    If that size was not probed, the profiles must not differ in software or validation. ``given`` names the workload
    arguments of the caller.
    """
    machines = {identify(profile)._replace(batch_size=None, provider=None) for profile in profiles}
    if len(machines) > 1:
        names = list_values({machine.instance_type or "unknown machine" for machine in machines})
        raise EstimateError(f"The profiles are of several machines or factors ({names}). Pass those of one.")
    machine = profiles[0].instance_type or "unknown machine"
    differences = check_comparable(profiles, given=given, error=EstimateError)
    too_large = [p.batch_size for p in profiles if p.outcome == "out_of_memory" and p.batch_size]
    if too_large and batch_size >= min(too_large):
        raise EstimateError(
            f"{machine}, batch {batch_size}: a training with batch size {min(too_large)} ran out of memory. Use a "
            "smaller batch size."
        )
    groups: dict[int, list[Profile]] = {}
    for profile in profiles:
        if profile.outcome != "out_of_memory" and profile.batch_size:
            groups.setdefault(profile.batch_size, []).append(profile)
    if not groups:
        raise EstimateError(f"{machine}: no profile has a known batch size. Pass batch_size= to the probe.")
    if differences and batch_size not in groups:
        raise EstimateError(f"{machine}: {differences[0].message} {differences[0].remedy}")
    return dict(sorted(groups.items()))


def _count_steps(
    steps: Mapping[int, float | None], batch_size: int, examples: int | None, profiles: Sequence[Profile]
) -> tuple[Mapping[int, float], float]:
    """Steps per epoch at every measured size and at ``batch_size``, or one over the size where they are unknown."""
    known = {size: count for size, count in steps.items() if count is not None}
    if len(known) < len(steps):
        return {size: 1 / size for size in steps}, 1 / batch_size
    examples = examples or next((p.setup.examples for p in profiles if p.setup.examples), None)
    if examples is None:
        whole = all(float(count).is_integer() for count in known.values())
        # Counts are rounded up, so the smallest product is nearest to the number of examples.
        product = min(count * size for size, count in known.items())
        return known, math.ceil(product / batch_size) if whole else product / batch_size
    # Inputs that drop the remainder have fewer steps than a rounded-up count.
    drops = any(count < examples / size and count >= 1 for size, count in known.items())
    return known, max(1, examples // batch_size) if drops else math.ceil(examples / batch_size)


def _blend(
    models: Mapping[int, RuntimeModel],
    steps: Mapping[int, float],
    wanted: float,
    batch_size: int,
    machine: str,
    *,
    steps_per_epoch: float | None = None,
) -> RuntimeModel:
    """The model at ``batch_size``: times of batches by :func:`interpolate_time`, all others linearly.

    The first two of ``models`` are the neighbors. ``steps`` are those of an epoch at their sizes, ``wanted`` those at
    ``batch_size``.
    """
    (smaller, here), (larger, there) = itertools.islice(models.items(), 2)
    weight = min(max((batch_size - smaller) / (larger - smaller), 0.0), 1.0)

    def mix(first: float, second: float) -> float:
        return (1 - weight) * first + weight * second

    def time_batches(read: Callable[[RuntimeModel], float], batches: float) -> StepTime:
        found = interpolate_time({size: read(model) / steps[size] for size, model in models.items()}, batch_size)
        return replace(found, value=found.value * batches)

    zero = (0.0, 0.0)
    training = time_batches(
        lambda model: sum(model.terms.get(name, zero)[1] for name in TRAINING_TERMS), steps_per_epoch or wanted
    )
    terms: dict[str, tuple[float, float]] = {}
    for name in dict.fromkeys([*here.terms, *there.terms]):
        once, per_epoch = map(mix, here.terms.get(name, zero), there.terms.get(name, zero))
        terms[name] = (once, per_epoch)
    # Whether there is a smaller last batch depends on the size, so the line includes its seconds.
    for name, per_epoch in (("partial_batch", 0.0), ("steady_iterations", training.value)):
        terms[name] = (terms.get(name, zero)[0], per_epoch)
    validation = time_batches(lambda model: model.validation_seconds, wanted).value
    first_extra = mix(*(m.first_validation_seconds - m.validation_seconds for m in (here, there)))
    quantile = NormalDist().inv_cdf
    scale = quantile(0.5 + here.confidence / 2) / quantile(0.95)
    epoch = training.value + validation / here.validation_freq
    return RuntimeModel(
        title=f"{machine}, batch {batch_size}",
        method=here.method,
        confidence=here.confidence,
        terms={name: pair for name, pair in terms.items() if any(pair)},
        first_validation_seconds=max(0.0, validation + first_extra),
        validation_seconds=validation,
        validation_freq=here.validation_freq,
        low=_widen(here.low, there.low, scale * training.below * epoch),
        high=_widen(here.high, there.high, scale * training.above * epoch),
        idle_seconds=mix(here.idle_seconds, there.idle_seconds),
        findings=(
            *dict.fromkeys([*here.findings, *there.findings]),
            Finding(
                f"batch-size-{training.source}",
                f"{machine}: the time at batch size {batch_size} is {training.source} from {smaller} and {larger}.",
                f"Probe at batch size {batch_size}.",
                "info" if training.source == "interpolated" else "warning",
            ),
        ),
    )


def _widen(first: Quadratic, second: Quadratic, per_epoch: float) -> Quadratic:
    """The wider of the neighbors' intervals, widened for the batch size."""
    a, b, c = map(max, first, second)
    return a, b, c + per_epoch**2
