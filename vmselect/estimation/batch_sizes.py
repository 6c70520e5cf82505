"""Step times at batch sizes that were not probed, interpolated or extrapolated from probed sizes.

The time of a step is modeled as affine in the batch size: a fixed part and a part per example, neither negative.
Between two probed sizes, the line through their step times is used. Outside the probed sizes, from half the smallest to
twice the largest, the nearest line is extrapolated with a finding; farther sizes raise an error. If the step time grows
faster than the batch size (for example because memory runs short), the fixed part would be negative, so the time is in
proportion to the batch size, starting from the smaller probed size. A third probed size shows the curvature: it narrows
the interval if it lies on the line, and widens it otherwise. See docs/validation/accuracy.md.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from statistics import NormalDist
from typing import Literal

from vmselect.errors import EstimateError
from vmselect.estimation.runtime import Quadratic, RuntimeModel, Waits
from vmselect.estimation.workload import Workload
from vmselect.findings import Finding
from vmselect.records import Profile
from vmselect.records.identity import check_comparable, identify, list_values

REACH = 2.0
"""Step times are extrapolated by at most this factor beyond the probed batch sizes."""

INTERPOLATION_WIDTH, HINGE_SHARE, PRIOR_SIZES, EXTRAPOLATION_WIDTH = 0.08, 0.8, 2.0, 0.31
"""Relative half-widths at confidence 0.9.

``INTERPOLATION_WIDTH``: for two probed sizes that differ by a factor of 2; it grows with the square root of the number
of doublings. ``HINGE_SHARE``: the lower bound also includes this share of the distance to a step time that is constant
up to some batch size and then proportional to it. ``PRIOR_SIZES``: number of further probed sizes that these two
constants weigh as much as; with fewer than 2, Gavel is covered in less than 84 %. ``EXTRAPOLATION_WIDTH``: per doubling
from the nearest probed size. The constants of interpolation were chosen on PROFET, gavel, Zeus and Sia
(``tests/benchmarks/calibration.py``), that of extrapolation on one half of the setups of PROFET and gavel, as the
narrowest that covers 90 % of both
(``tests/benchmarks/batch_sizes.py --choose``).
"""

TRAINING_TERMS = ("steady_iterations", "partial_batch")

Source = Literal["measured", "interpolated", "extrapolated"]


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step at a batch size, with the relative half-widths of the interval ``below`` and ``above``."""

    value: float
    below: float
    above: float
    source: Source


def interpolate_time(times: Mapping[int, float], batch_size: int) -> StepTime:
    """Step time at ``batch_size``, from ``times``, which maps two or more probed batch sizes to step times."""
    if batch_size in times:
        return StepTime(times[batch_size], 0.0, 0.0, "measured")
    sizes = sorted(times)
    if len(sizes) < 2:
        raise EstimateError(
            f"Batch size {batch_size} was not probed and cannot be interpolated from a single other size ({sizes[0]}). "
            f"Probe at batch size {batch_size}, or at one more size, so that it lies between two probed sizes."
        )
    lower, upper = sizes[0] / REACH, sizes[-1] * REACH
    if not lower <= batch_size <= upper:
        raise EstimateError(
            f"Batch size {batch_size} is too far from the probed sizes ({sizes[0]} to {sizes[-1]}), which allow "
            f"estimates for {math.ceil(lower)} to {upper:.0f}. Probe at batch size {batch_size}."
        )
    smaller, larger = neighbors(sizes, batch_size)
    rise = (times[larger] - times[smaller]) / (larger - smaller)
    bend, doublings = _curvature(times, smaller, larger)
    saved = max(0.0, _over(times[smaller], times[larger]))
    if smaller < batch_size < larger:
        line = times[smaller] + rise * (batch_size - smaller)
        value = min(line, times[smaller] * batch_size / smaller)
        hinge = min(value, max(times[smaller], times[larger] * batch_size / larger))
        weight = PRIOR_SIZES / (PRIOR_SIZES + 1) if len(sizes) > 2 else 1.0  # of the prior, against the third size
        square = weight * INTERPOLATION_WIDTH**2 + (1 - weight) * bend**2 / doublings
        width = math.hypot(math.sqrt(square * math.log2(larger / smaller)), saved)
        share = HINGE_SHARE * math.sqrt(weight)
        below = math.hypot(width, share * _over(value, hinge) * hinge / value if value > 0 else 0.0)
        return StepTime(value, below, math.hypot(width, _over(line, value)), "interpolated")
    near = smaller if batch_size < smaller else larger
    slope = min(max(rise, 0.0), times[near] / near)  # neither part of the affine time is negative
    value = times[near] + slope * (batch_size - near)
    width = math.hypot(EXTRAPOLATION_WIDTH * abs(math.log2(batch_size / near)), bend, saved)
    return StepTime(value, width, width, "extrapolated")


def _over(value: float, base: float) -> float:
    """Relative excess of ``value`` over ``base``; 0 if ``base`` is not positive."""
    return value / base - 1 if base > 0 else 0.0


def _curvature(times: Mapping[int, float], smaller: int, larger: int) -> tuple[float, float]:
    """Largest relative deviation from linearity of the step times at ``smaller``, ``larger`` and a third probed size.

    The deviation is the distance of the step time at the middle size from the line through the other two. The second
    result is the number of doublings between the smallest and the largest of the three sizes.
    """
    bends = [(0.0, 1.0)]
    for third in times.keys() - {smaller, larger}:
        low, middle, high = sorted((smaller, larger, third))
        line = times[low] + (times[high] - times[low]) * (middle - low) / (high - low)
        bends.append((abs(_over(times[middle], line)), math.log2(high / low)))
    return max(bends)


def neighbors(sizes: Sequence[int], batch_size: int) -> tuple[int, int]:
    """The two ``sizes`` (in ascending order) below and above ``batch_size``, or the nearest two if it lies outside."""
    index = min(max(bisect_left(sizes, batch_size), 1), len(sizes) - 1)
    return sizes[index - 1], sizes[index]


def fit_other_batch_size(
    groups: Mapping[int, Sequence[Profile]],
    workload: Workload,
    batch_size: int,
    *,
    fit: Callable[[Sequence[Profile], Workload], RuntimeModel],
) -> RuntimeModel:
    """Runtime model at ``batch_size``, from profiles at other batch sizes.

    ``groups`` maps each probed size to its profiles; ``fit`` computes the runtime model of one group.
    """
    every = [profile for group in groups.values() for profile in group]
    machine = every[0].instance_type or "unknown machine"
    try:
        interpolate_time(dict.fromkeys(groups, 0.0), batch_size)  # raises before any fit
    except EstimateError as impossible:
        raise EstimateError(f"{machine}: {impossible}") from None
    if workload.validation_steps is not None:
        raise EstimateError(
            f"{machine}: validation_steps is ambiguous, because it depends on the batch size and {batch_size} was not "
            "probed. Pass validation_examples= instead."
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
        validation_from=workload.validation_from,
        validation_until=workload.validation_until,
    )
    models = {size: fit(group, data) for size, group in near.items()}
    steps = {size: Workload.of(group[0], **data.given).steps_per_epoch for size, group in near.items()}
    probed_steps, steps_here = count_steps(steps, batch_size, workload.examples, every)
    return _blend(models, probed_steps, steps_here, batch_size, machine, steps_per_epoch=workload.steps_per_epoch)


def group_by_batch_size(
    profiles: Sequence[Profile], batch_size: int, *, arguments: Collection[str] = ()
) -> dict[int, list[Profile]]:
    """Usable profiles of one machine by batch size.

    Raises EstimateError if a training with at most ``batch_size`` ran out of memory or if no profile has a known batch
    size. If ``batch_size`` was not probed, the profiles must agree in software and validation. ``arguments`` contains
    the names of the workload arguments that the user passed.
    """
    machines = {identify(profile).machine._replace(provider=None) for profile in profiles}
    if len(machines) > 1:
        names = list_values({machine.instance_type or "unknown machine" for machine in machines})
        raise EstimateError(
            f"The profiles differ in machine or factors ({names}). Pass the profiles of one machine and setup."
        )
    machine = profiles[0].instance_type or "unknown machine"
    differences = check_comparable(profiles, arguments=arguments, error=EstimateError)
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
        raise EstimateError(f"{machine}: {differences[0]}")
    return dict(sorted(groups.items()))


def count_steps(
    steps: Mapping[int, float | None], batch_size: int, examples: int | None, profiles: Sequence[Profile]
) -> tuple[Mapping[int, float], float]:
    """Steps per epoch at each probed batch size, and at ``batch_size``.

    If any of them is unknown, the results are 1 / batch size, which is proportional to the steps per epoch.
    """
    counts = {size: count for size, count in steps.items() if count is not None}
    if len(counts) < len(steps):
        return {size: 1 / size for size in steps}, 1 / batch_size
    examples = examples or next((p.setup.examples for p in profiles if p.setup.examples), None)
    if examples is None:
        whole = all(float(count).is_integer() for count in counts.values())
        # Counts are rounded up, so the smallest product is nearest to the number of examples.
        product = min(count * size for size, count in counts.items())
        return counts, math.ceil(product / batch_size) if whole else product / batch_size
    # Inputs that drop the remainder have fewer steps than a rounded-up count.
    drops = any(count < examples / size and count >= 1 for size, count in counts.items())
    return counts, max(1, examples // batch_size) if drops else math.ceil(examples / batch_size)


def _blend(
    models: Mapping[int, RuntimeModel],
    steps: Mapping[int, float],
    steps_here: float,
    batch_size: int,
    machine: str,
    *,
    steps_per_epoch: float | None = None,
) -> RuntimeModel:
    """Runtime model at ``batch_size``, from ``models`` at probed batch sizes.

    Step times are interpolated by :func:`interpolate_time`, all other times linearly. The first two of ``models`` are
    the neighbors of ``batch_size``. ``steps`` maps the probed sizes to steps per epoch; ``steps_here`` is the number of
    steps per epoch at ``batch_size``.
    """
    (smaller, here), (larger, there) = itertools.islice(models.items(), 2)
    weight = min(max((batch_size - smaller) / (larger - smaller), 0.0), 1.0)

    def mix(first: float, second: float) -> float:
        return (1 - weight) * first + weight * second

    def time_batches(read: Callable[[RuntimeModel], float], batches: float) -> StepTime:
        times = {size: read(model) / steps[size] for size, model in models.items()}
        step = interpolate_time(times, batch_size)
        return replace(step, value=step.value * batches)

    zero = (0.0, 0.0)
    training = time_batches(
        lambda model: sum(model.terms.get(name, zero)[1] for name in TRAINING_TERMS), steps_per_epoch or steps_here
    )
    fastest = time_batches(lambda model: model.certain[1], steps_per_epoch or steps_here)
    terms: dict[str, tuple[float, float]] = {}
    for name in dict.fromkeys([*here.terms, *there.terms]):
        once, per_epoch = map(mix, here.terms.get(name, zero), there.terms.get(name, zero))
        terms[name] = (once, per_epoch)
    # Whether there is a smaller last batch depends on the size, so the line includes its seconds.
    for name, per_epoch in (("partial_batch", 0.0), ("steady_iterations", training.value)):
        terms[name] = (terms.get(name, zero)[0], per_epoch)
    # The first iteration contains at most one epoch: where epochs are shorter than at the probed sizes, so is it.
    once, per_epoch = terms["steady_iterations"]
    if (beyond := -once - per_epoch) > 0:
        terms["steady_iterations"] = (-per_epoch, per_epoch)
        terms["first_iteration"] = (max(0.0, terms.get("first_iteration", zero)[0] - beyond), 0.0)
    validation = time_batches(lambda model: model.validation_seconds, steps_here).value
    first_extra = mix(*(m.first_validation_seconds - m.validation_seconds for m in (here, there)))
    quantile = NormalDist().inv_cdf
    scale = quantile(0.5 + here.confidence / 2) / quantile(0.95)
    epoch = training.value + validation / here.validation_freq
    remedy = f"Probe at batch size {batch_size}."
    return RuntimeModel(
        title=f"{machine}, batch {batch_size}",
        method=here.method,
        confidence=here.confidence,
        terms={name: pair for name, pair in terms.items() if any(pair)},
        first_validation_seconds=max(0.0, validation + first_extra),
        validation_seconds=validation,
        validation_freq=here.validation_freq,
        validation_from=here.validation_from,
        validation_until=here.validation_until,
        early_stopping=here.early_stopping or there.early_stopping,
        certain=(mix(here.certain[0], there.certain[0]), fastest.value / (1 + fastest.below)),
        low=_widen(here.low, there.low, scale * training.below * epoch),
        high=_widen(here.high, there.high, scale * training.above * epoch),
        basis=training.source,
        # One disturbed probe of the two disturbs the interpolated time.
        disturbance=max(here.disturbance, there.disturbance, key=lambda disturbance: disturbance.lost),
        waits=Waits(*map(mix, astuple(here.waits), astuple(there.waits))),
        narrowed_by=(remedy, *dict.fromkeys([*here.narrowed_by, *there.narrowed_by])),
        findings=(
            *dict.fromkeys([*here.findings, *there.findings]),
            Finding(
                f"batch-size-{training.source}",
                f"{machine}: the time at batch size {batch_size} is {training.source} from those at {smaller} and "
                f"{larger}.",
                remedy,
                "info" if training.source == "interpolated" else "warning",
            ),
        ),
    )


def _widen(first: Quadratic, second: Quadratic, per_epoch: float) -> Quadratic:
    """Squared half-width with the larger of each two coefficients, plus ``(per_epoch * n)**2`` for ``n`` epochs."""
    a, b, c = map(max, first, second)
    return a, b, c + per_epoch**2
