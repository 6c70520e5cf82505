"""Times at batch sizes that were not probed, from those that were.

The time of a step is affine in the batch size: a part that is always paid and a part per example, neither of them
negative. Between two probed sizes the straight line through them is used (so with three or more the fit is
piecewise); up to twice the largest, or down to half the smallest, the nearest line is continued and the result
flagged; beyond that nothing is said. Where a step grows by more than the batch does, the line would need a negative
fixed part: the machine does something else at the larger size (memory that runs short), so the sizes below it are
taken in proportion to the smaller one. A third size nearby tells how far the line bends, and so how wide the interval
must be. The numbers behind this stand in docs/validation/methodology-1-experiments.md.
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
"""How far beyond the probed sizes a time is still given, as a factor."""

BETWEEN_PER_OCTAVE = 0.05
"""Relative half-width (confidence 0.9) between two sizes, per doubling from one to the other..."""

HINGE_BETWEEN = 0.75
"""...and on top, below the line, this share of the way to what it would be if a machine were either full or not:
constant up to some size, in proportion to it from there..."""

BEYOND_PER_OCTAVE = 0.31
"""...and beyond all sizes, per doubling from the nearest. How far a third size lies from the line through two others,
and how much *less* time a larger batch took than a smaller, counts in full. Chosen on one half of the setups of PROFET
and of gavel, by a grid (``tests/benchmarks/batch_sizes.py --choose``): the narrowest that covers 90 % of both. The
other halves and Zeus' epoch times are for the report (docs/validation/methodology-1-experiments.md)."""

BATCHES = ("steady_iterations", "partial_batch")
"""The terms that make up the passing of the training data."""

Source = Literal["measured", "interpolated", "extrapolated"]


@dataclass(frozen=True)
class TimeAt:
    """A time at one batch size: ``value`` with relative half-widths ``below`` and ``above`` it, and its ``source``."""

    value: float
    below: float
    above: float
    source: Source


def interpolate_time(times: Mapping[int, float], batch_size: int) -> TimeAt:
    """The time of a step at ``batch_size`` from ``times``, batch size to time, of at least two sizes.

    >>> interpolate_time({16: 1.0, 64: 2.5}, 32).value
    1.5
    >>> interpolate_time({16: 1.0, 64: 2.5}, 128).source
    'extrapolated'
    """
    if batch_size in times:
        return TimeAt(times[batch_size], 0.0, 0.0, "measured")
    sizes = sorted(times)
    if len(sizes) < 2:
        raise EstimateError(
            f"Batch size {batch_size} was not probed, and one other size ({sizes[0]}) does not tell how time depends "
            f"on it. Probe at {batch_size}, or at two sizes around it."
        )
    lower, upper = sizes[0] / REACH, sizes[-1] * REACH
    if not lower <= batch_size <= upper:
        raise EstimateError(
            f"Batch size {batch_size} lies too far from those probed ({sizes[0]} to {sizes[-1]}): times are given from "
            f"{math.ceil(lower)} to {upper:.0f}. Probe at {batch_size}."
        )
    smaller, larger = neighbours(sizes, batch_size)
    rise = (times[larger] - times[smaller]) / (larger - smaller)
    odd = math.hypot(_curvature(times, smaller, larger), max(0.0, _over(times[smaller], times[larger])))
    if smaller < batch_size < larger:
        line = times[smaller] + rise * (batch_size - smaller)
        value = min(line, times[smaller] * batch_size / smaller)
        hinge = min(value, max(times[smaller], times[larger] * batch_size / larger))
        width = math.hypot(BETWEEN_PER_OCTAVE * math.log2(larger / smaller), odd)
        below = math.hypot(width, HINGE_BETWEEN * _over(value, hinge) * hinge / value if value > 0 else 0.0)
        return TimeAt(value, below, math.hypot(width, _over(line, value)), "interpolated")
    near = smaller if batch_size < smaller else larger
    slope = min(max(rise, 0.0), times[near] / near)  # neither part of the affine time is negative
    value = times[near] + slope * (batch_size - near)
    width = math.hypot(BEYOND_PER_OCTAVE * abs(math.log2(batch_size / near)), odd)
    return TimeAt(value, width, width, "extrapolated")


def _over(value: float, base: float) -> float:
    """By what share of ``base`` the value is larger."""
    return value / base - 1 if base > 0 else 0.0


def _curvature(times: Mapping[int, float], smaller: int, larger: int) -> float:
    """How far a third size lies from the line through two: the middle one of them, as a share of its time."""
    bends = [0.0]
    for third in times.keys() - {smaller, larger}:
        low, middle, high = sorted((smaller, larger, third))
        line = times[low] + (times[high] - times[low]) * (middle - low) / (high - low)
        bends.append(abs(_over(times[middle], line)))
    return max(bends)


def neighbours(sizes: Sequence[int], batch_size: int) -> tuple[int, int]:
    """The two of ``sizes`` (ascending, at least two) around ``batch_size``, or the two nearest to it."""
    index = min(max(bisect_left(sizes, batch_size), 1), len(sizes) - 1)
    return sizes[index - 1], sizes[index]


def fit_along(
    groups: Mapping[int, Sequence[Profile]],
    workload: Workload,
    batch_size: int,
    *,
    fit: Callable[[Sequence[Profile], Workload], RuntimeModel],
) -> RuntimeModel:
    """The runtime of a training at ``batch_size`` from repetitions at other sizes, with ``fit`` for each of those.

    A size beyond twice the largest or half the smallest that was probed is refused.
    """
    every = [profile for group in groups.values() for profile in group]
    machine = every[0].instance_type or "unknown machine"
    try:
        interpolate_time(dict.fromkeys(groups, 0.0), batch_size)  # refuses what cannot be told, before any fit
    except EstimateError as impossible:
        raise EstimateError(f"{machine}: {impossible}") from None
    if workload.validation_steps is not None:
        raise EstimateError(
            f"{machine}: batch size {batch_size} was not probed, so a number of validation batches of that size says "
            "nothing about those that were. Pass validation_examples= instead of validation_steps."
        )
    near = {size: groups[size] for size in _nearest(sorted(groups), batch_size)}
    # What the caller says holds at the size asked for; at the sizes measured only the data are the same.
    data = Workload(
        examples=workload.examples,
        validation_examples=workload.validation_examples,
        validation_freq=workload.validation_freq,
    )
    models = {size: fit(group, data) for size, group in near.items()}
    steps = {size: Workload.of(group[0], **data.given).steps_per_epoch for size, group in near.items()}
    at, wanted = _count_steps(steps, batch_size, workload.examples, every)
    return _blend(models, at, wanted, batch_size, machine, steps_per_epoch=workload.steps_per_epoch)


def _nearest(sizes: Sequence[int], batch_size: int) -> list[int]:
    """The neighbours of ``batch_size``, and the one more that is next to it, which tells whether their line bends."""
    around = neighbours(sizes, batch_size)
    others = sorted(set(sizes) - set(around), key=lambda size: abs(math.log2(size / batch_size)))
    return [*around, *others[:1]]


def group_by_batch_size(
    profiles: Sequence[Profile], batch_size: int, *, given: Collection[str] = ()
) -> dict[int, list[Profile]]:
    """Usable profiles by batch size; raises where memory forbids ``batch_size`` or nothing is known of any size.

    Where that size was not probed, the others must make one line.

    ``given`` names what the caller says about the workload.
    """
    machines = {identify(profile)._replace(batch_size=None, provider=None) for profile in profiles}
    if len(machines) > 1:
        names = list_values({machine.instance_type or "unknown machine" for machine in machines})
        raise EstimateError(
            f"Times of several machines, or of one under several conditions ({names}), do not make one line. Pass the "
            "profiles of one."
        )
    machine = profiles[0].instance_type or "unknown machine"
    differences = check_comparable(profiles, given=given, error=EstimateError)
    too_large = [p.batch_size for p in profiles if p.outcome == "out_of_memory" and p.batch_size]
    if too_large and batch_size >= min(too_large):
        raise EstimateError(
            f"{machine}, batch {batch_size}: a training with batch size {min(too_large)} ran out of memory there. Use "
            "a smaller batch size."
        )
    groups: dict[int, list[Profile]] = {}
    for profile in profiles:
        if profile.outcome != "out_of_memory" and profile.batch_size:
            groups.setdefault(profile.batch_size, []).append(profile)
    if not groups:
        raise EstimateError(
            f"{machine}: no profile with a known batch size was given. Probe, or pass batch_size= to the probe."
        )
    for differs in differences if batch_size not in groups else ():
        raise EstimateError(f"{machine}: {differs.message} Such times do not make one line. {differs.remedy}")
    return dict(sorted(groups.items()))


def _count_steps(
    steps: Mapping[int, float | None], batch_size: int, examples: int | None, profiles: Sequence[Profile]
) -> tuple[Mapping[int, float], float]:
    """Steps per epoch at every size measured, and at ``batch_size``.

    Where the true counts are not known, one over the size serves as well.
    """
    known = {size: count for size, count in steps.items() if count is not None}
    if len(known) < len(steps):
        return {size: 1 / size for size in steps}, 1 / batch_size
    examples = examples or next((p.setup.examples for p in profiles if p.setup.examples), None)
    if examples is None:
        whole = all(float(count).is_integer() for count in known.values())
        # Every count is rounded up, so the smallest product is nearest to the number of examples.
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
    """The model at ``batch_size``: steps and validation batches along the line, all else in between by distance.

    The first two of ``models`` are the neighbours; ``steps`` are those of an epoch at their sizes, ``wanted`` those at
    ``batch_size``.
    """
    (smaller, here), (larger, there) = itertools.islice(models.items(), 2)
    weight = min(max((batch_size - smaller) / (larger - smaller), 0.0), 1.0)

    def along(first: float, second: float) -> float:
        """A time that the batch size hardly changes: by distance between the neighbours, never extended."""
        return (1 - weight) * first + weight * second

    def passing(read: Callable[[RuntimeModel], float], batches: float) -> TimeAt:
        """A time to pass over the same data, batch by batch."""
        found = interpolate_time({size: read(model) / steps[size] for size, model in models.items()}, batch_size)
        return replace(found, value=found.value * batches)

    training = passing(lambda model: sum(_coefficients(model, name)[1] for name in BATCHES), steps_per_epoch or wanted)
    terms: dict[str, tuple[float, float]] = {}
    for name in dict.fromkeys([*here.terms, *there.terms]):
        once, per_epoch = map(along, _coefficients(here, name), _coefficients(there, name))
        terms[name] = (once, per_epoch)
    # Whether a smaller last batch remains depends on the size, so its seconds are part of the line.
    for name, per_epoch in (("partial_batch", 0.0), ("steady_iterations", training.value)):
        terms[name] = (terms.get(name, (0.0, 0.0))[0], per_epoch)
    validation = passing(lambda model: model.validation_seconds, wanted).value
    first_extra = along(*(m.first_validation_seconds - m.validation_seconds for m in (here, there)))
    scale = _normal_quantile(here.confidence) / _normal_quantile(0.9)
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
        idle_seconds=along(here.idle_seconds, there.idle_seconds),
        findings=(
            *dict.fromkeys([*here.findings, *there.findings]),
            _explain((smaller, larger), batch_size, machine, training.source),
        ),
    )


def _coefficients(model: RuntimeModel, name: str) -> tuple[float, float]:
    return model.terms.get(name, (0.0, 0.0))


def _normal_quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def _widen(first: Quadratic, second: Quadratic, per_epoch: float) -> Quadratic:
    """The wider of the neighbours' intervals, and on top what the batch size adds."""
    a, b, c = map(max, first, second)
    return a, b, c + per_epoch**2


def _explain(around: Sequence[int], batch_size: int, machine: str, source: Source) -> Finding:
    sizes = ", ".join(str(size) for size in around)
    remedy = f"Probe at batch size {batch_size} to be sure."
    if source == "interpolated":
        message = f"{machine}: the time at batch size {batch_size} is interpolated between probes at {sizes}."
        return Finding("batch-size-interpolated", message, remedy, "info")
    message = f"{machine}: the time at batch size {batch_size} is extrapolated beyond probes at {sizes}."
    return Finding("batch-size-extrapolated", message, remedy)
