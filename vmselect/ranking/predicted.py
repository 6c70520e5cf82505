"""Machine estimates of machines that were never probed: the predicted step time in the runtime of a probed machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from vmselect._checks import check_name, check_number, maybe, several
from vmselect.catalog import Catalog, provider_terms
from vmselect.errors import ArgumentError
from vmselect.estimation import RuntimeModel
from vmselect.estimation.runtime import HalfWidths
from vmselect.estimation.statistics import quantile
from vmselect.findings import Finding
from vmselect.prediction.machines import (
    SHORT_SECONDS,
    Machine,
    MachineTypes,
    Prediction,
    Predictor,
    Probe,
    Refusal,
    choose_machines,
    read_history,
    step_seconds,
)
from vmselect.prediction.posterior import Point
from vmselect.prediction.step_times import read_profiles
from vmselect.ranking.estimates import STEP_TERMS, MachineEstimate
from vmselect.ranking.measures import ALL, Settings
from vmselect.ranking.rows import Excluded
from vmselect.records import Profile
from vmselect.units import format_seconds

Machines: TypeAlias = Literal["catalog", "all"] | str | Iterable[str] | None
FIXED_SPREAD = 0.5
"""Standard deviation of the log of parts that are carried over from another machine (initialization, first step, epoch
boundaries, validation): a factor of 2.3 up or down at 90 %. Chosen by judgement."""
FIXED_FREEDOM = 30.0


@dataclass(frozen=True, kw_only=True)
class MachineFilter:
    """Which machines that were never probed are ranked. ``names`` is None for all with a GPU."""

    names: tuple[str, ...] | None = None
    provider: tuple[str, ...] | None = None
    gpu: tuple[str, ...] | None = None
    gpu_memory_gib: float | None = None
    max_usd_per_hour: float | None = None

    @classmethod
    def read(cls, machines: Machines, **filters: Any) -> MachineFilter | None:
        """Check the arguments of :func:`vmselect.rank`; returns None if only probed machines are wanted."""
        given = {name: value for name, value in filters.items() if value is not None}
        if machines is None:
            if given:
                raise ArgumentError(f'{next(iter(given))} needs machines that were not probed. Pass machines="all".')
            return None
        everything = isinstance(machines, str) and machines in (ALL, "catalog")
        names = None if everything else several(check_name, "machines", machines)
        for name in ("provider", "gpu"):
            if name in given:
                given[name] = several(check_name, name, given[name])
        for name in ("gpu_memory_gib", "max_usd_per_hour"):
            given[name] = maybe(check_number, name, given.get(name), above=0)
        return cls(names=names, **given)


def add_predicted(
    estimates: Sequence[MachineEstimate],
    profiles: Sequence[Profile],
    catalog: Catalog,
    settings: Settings,
    *,
    chosen: MachineFilter,
    history: Any = (),
) -> tuple[list[MachineEstimate], list[Excluded]]:
    """``estimates`` and those of the chosen machines that were not probed; and the ones that are refused.

    Each batch size and combination of factors is predicted from the machines estimated for it.
    """
    types = MachineTypes(catalog)
    markets = settings.markets
    wanted = choose_machines(
        types, names=chosen.names, regions=settings.regions or (), markets=markets, provider=chosen.provider,
        include_retired=settings.include_retired, gpu=chosen.gpu, gpu_memory_gib=chosen.gpu_memory_gib,
        max_usd_per_hour=chosen.max_usd_per_hour,
    )  # fmt: skip
    excluded = _missing(chosen, types, wanted)
    points = read_history([*read_profiles(history), *profiles], types)
    works: dict[tuple[Any, ...], list[MachineEstimate]] = {}
    for one in estimates:
        if one.nodes == 1 and "workers" not in one.factors:
            works.setdefault(tuple(sorted((k, str(v)) for k, v in one.factors.items())), []).append(one)
    found = list(estimates)
    for group in works.values():
        size = group[0].batch_size
        tried = {(p.instance_type, p.provider) for p in profiles if p.batch_size == size}
        tried |= {(one.instance_type, one.provider) for one in group}
        others = [m for m in wanted if not {(m.instance_type, m.provider), (m.instance_type, None)} & tried]
        results = predict_estimates(group, others, types, points, settings)
        for machine, result in zip(others, results, strict=True):
            if isinstance(result, MachineEstimate):
                found.append(result)
            else:
                like = replace(group[0], instance_type=machine.instance_type, provider=machine.provider, records=())
                excluded.append(Excluded(like.title, result.code, result.reason))
    return found, list(dict.fromkeys(excluded))


def predict_estimates(
    group: Sequence[MachineEstimate],
    machines: Sequence[Machine],
    types: MachineTypes,
    history: Sequence[Point],
    settings: Settings,
) -> list[MachineEstimate | Refusal]:
    """The machine estimate of each of ``machines`` for the work of ``group``, or why there is none."""
    predictor = Predictor([_as_probe(one) for one in group], types, history)
    return [
        _estimate(group[result.nearest], result, predictor, settings, group)
        if isinstance(result, Prediction)
        else result
        for result in predictor.predict(machines)
    ]


def _missing(chosen: MachineFilter, types: MachineTypes, wanted: Sequence[Machine]) -> list[Excluded]:
    """Named machines without an offer that fits."""
    found = {machine.instance_type for machine in wanted}
    reasons = {
        name: "no offer of it fits the filters, regions and markets; choose others"
        if name in types.by_name
        else "the catalog has no price of it; add one with Catalog.with_offers or --own-prices"
        for name in chosen.names or ()
        if name not in found
    }
    return [Excluded(name, "no_price", reason) for name, reason in reasons.items()]


def _as_probe(one: MachineEstimate) -> Probe:
    """The probe of a machine estimate; an interpolated step time follows from the time of its epochs."""
    here = [record for record in one.records if record.batch_size == one.batch_size]
    times = [seconds for record in here or one.records if (seconds := step_seconds(record))]
    seconds = sorted(times)[len(times) // 2] if times and _step_seconds(one.runtime)[1] > 0 else None
    if seconds and not here and one.batch_size and one.records[0].batch_size:
        seconds *= one.batch_size / one.records[0].batch_size  # a rough size: only ratios between machines matter
    return Probe(one.instance_type, one.provider, seconds, one.records, one.batch_size)


def _step_seconds(runtime: RuntimeModel) -> tuple[float, float]:
    parts = [runtime.terms[name] for name in STEP_TERMS if name in runtime.terms]
    return math.fsum(once for once, _ in parts), math.fsum(each for _, each in parts)


def _estimate(
    base: MachineEstimate,
    prediction: Prediction,
    predictor: Predictor,
    settings: Settings,
    group: Sequence[MachineEstimate],
) -> MachineEstimate:
    """The machine estimate of a predicted machine, with the fixed parts of the probed machine ``base``."""
    machine = prediction.machine
    measured = predictor.probes[prediction.nearest].seconds
    assert measured is not None
    low, high = prediction.interval(settings.confidence)
    one = replace(
        base, instance_type=machine.instance_type, provider=machine.provider, basis="predicted", records=(),
        prediction=prediction, priced_in=_places(machine, group),
    )  # fmt: skip
    runtime = scale_steps(
        base.runtime, prediction.seconds / measured, low / measured, high / measured, title=one.title,
        confidence=settings.confidence,
    )  # fmt: skip
    return replace(one, runtime=runtime, findings=_findings(one, prediction, base, predictor.short))


def scale_steps(
    base: RuntimeModel, ratio: float, low: float, high: float, *, title: str, confidence: float
) -> RuntimeModel:
    """The runtime model ``base`` with steps that take ``ratio`` times as long, between ``low`` and ``high``.

    All other parts stay as they are, with wide intervals. Their times may also change as the steps do, so the intervals
    include that.
    """
    once, each = _step_seconds(base)
    terms: Mapping[str, tuple[float, float]] = {
        name: (pair[0] * ratio, pair[1] * ratio) if name in STEP_TERMS else pair for name, pair in base.terms.items()
    }
    spread = math.exp(quantile(confidence, FIXED_FREEDOM) * FIXED_SPREAD)
    down, up = max(1 - 1 / spread, 1 - ratio), max(spread - 1, ratio - 1)
    widths = HalfWidths()
    widths.low, widths.high = (
        (side[0] * ratio**2, side[1] * ratio**2, side[2] * ratio**2) for side in (base.low, base.high)
    )
    widths.add_sides(ratio - low, high - ratio, once=once, per_epoch=each)
    widths.add_sides(down, up, once=base.fixed_seconds - once + base.first_validation_seconds - base.validation_seconds)
    widths.add_sides(down, up, per_epoch=base.epoch_seconds - each + base.validation_seconds / base.validation_freq)
    least = min(low**2 / ratio if ratio else 0.0, 1 - down)  # of steps, twice as far from the ratio as its low end
    return replace(
        base,
        title=title,
        terms=terms,
        low=widths.low,
        high=widths.high,
        certain=(least * base.certain[0], least * base.certain[1]),
        findings=(),
        repetitions=(),
    )


def _places(machine: Machine, group: Sequence[MachineEstimate]) -> tuple[str, ...]:
    """Regions in which a machine is priced if none is given: where its provider was probed, or its reference region."""
    probed = {region for one in group if one.provider in (None, machine.provider) for region in one.regions}
    terms = provider_terms(machine.provider)
    return tuple(sorted(probed)) or ((terms.reference_region,) if terms else ())


def _findings(one: MachineEstimate, prediction: Prediction, base: MachineEstimate, short: bool) -> tuple[Finding, ...]:
    machine = prediction.machine
    found = [
        Finding(
            "never-probed",
            f"{one.title} was never probed: its step time is predicted from figures of its GPU, and all other parts "
            f"are those of {base.title}.",
            f"Probe {machine.instance_type} before you rent it for long.",
            "info",
        )
    ]
    if machine.gpu_count > 1:
        many = f"{machine.gpu_count:g} x {machine.gpu_model}"
        message = f"{one.title} has {many}, but its time is predicted for one GPU."
        found.append(Finding("one-gpu-predicted", message, "Rent a machine with one GPU, or probe this one.", "info"))
    if short or prediction.seconds < SHORT_SECONDS:
        message = f"Steps shorter than {format_seconds(SHORT_SECONDS)} depend on the host more than on the GPU."
        remedy = f"Use a larger batch size, or probe {machine.instance_type}."
        found.append(Finding("short-steps-predicted", message, remedy))
    return tuple(found)
