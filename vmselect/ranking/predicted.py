"""Machine estimates of machines that were never probed.

Their runtime is that of a probed machine with predicted step times or, without any probe on a GPU, that of a
description (:mod:`vmselect.ranking.described`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from vmselect._checks import check_name, several
from vmselect.catalog import Catalog, find_nearest
from vmselect.catalog.offer import OWN_PRICE
from vmselect.diagnosis.causes import NEGLIGIBLE_WAIT
from vmselect.estimation import RuntimeModel, Workload
from vmselect.estimation.readings import quantile
from vmselect.estimation.runtime import HalfWidths, Waits
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.prediction.hardware import NO_GPU, Machine, MachineTypes, Refusal, count_gpus
from vmselect.prediction.machines import (
    SHORT_SECONDS,
    Prediction,
    Predictor,
    Probe,
    choose_machines,
    read_history,
    read_profiles,
)
from vmselect.prediction.posterior import Point
from vmselect.prediction.scaling import (
    MAX_GPUS,
    MAX_NODES,
    NO_TWO_NODES,
    TOO_MANY_GPUS,
    GpuRecords,
    Scale,
    Scaler,
    more_nodes,
    refuse_nodes,
)
from vmselect.ranking.described import (
    NO_DESCRIPTIONS,
    Descriptions,
    SettingsKey,
    describe_runtime,
    described_findings,
    settings_key,
)
from vmselect.ranking.estimates import STEP_TERMS, MachineEstimate, Measured, Studied, title_of
from vmselect.ranking.options import Settings, is_all
from vmselect.ranking.rows import Excluded
from vmselect.records import Profile, Record
from vmselect.records.base import NAME_THE_MACHINE
from vmselect.records.identity import has_validation, identify
from vmselect.records.step_times import typical_step_seconds
from vmselect.units import format_chance, format_seconds

Machines: TypeAlias = Literal["catalog", "all"] | str | Iterable[str] | None
FIXED_SPREAD = 0.5
"""Standard deviation of the log of the times that are taken from another machine (initialization, first step, epoch
boundaries, validation): a factor of 2.3 up or down at 90 % confidence. Chosen by judgement."""
FIXED_FREEDOM = 30.0
NO_PROBE = "no_probe_to_predict_from"
SMALLER_BATCH = (
    "a description holds for one batch size per GPU, and the same batch on more GPUs gives each a smaller one; probe a "
    "machine with one GPU at that size, or pass constant_batch='per_gpu' (--constant-batch per_gpu)"
)
NO_PROBE_OF_NODES = "machines that train together cannot be predicted from a description; probe two of them together"


@dataclass(frozen=True, kw_only=True)
class MachineFilter:
    """Selection of machines to rank although they were never probed. ``names`` is None for all machines with a GPU."""

    names: tuple[str, ...] | None = None
    provider: tuple[str, ...] | None = None
    gpu: tuple[str, ...] | None = None

    @classmethod
    def read(cls, machines: Machines) -> MachineFilter | None:
        """Check the argument of :func:`vmselect.rank`; returns None if only probed machines are wanted."""
        if machines is None:
            return None
        everything = is_all(machines) or (isinstance(machines, str) and machines == "catalog")
        return cls(names=None if everything else several(check_name, "machines", machines))


def add_predicted(
    estimates: Sequence[MachineEstimate],
    profiles: Sequence[Profile],
    catalog: Catalog,
    settings: Settings,
    *,
    chosen: MachineFilter,
    history: Iterable[Record] = (),
    scaler: Scaler | None = None,
    descriptions: Descriptions = NO_DESCRIPTIONS,
) -> tuple[list[MachineEstimate], list[Excluded]]:
    """``estimates`` plus predictions for the chosen machines that were not probed; and the exclusions.

    Each batch size and combination of factors is predicted from the machines that were probed with it, and from the
    ``descriptions`` of it. With ``scaler``, only machines whose number of GPUs is in ``scaler.gpus`` are added, and the
    training uses all of these GPUs.
    """
    types = MachineTypes(catalog)
    machines = choose_machines(
        types, names=chosen.names, regions=settings.region or (), markets=settings.market, provider=chosen.provider,
        gpu=chosen.gpu,
    )  # fmt: skip
    excluded = _missing(chosen, types, machines)
    if scaler:
        machines = [machine for machine in machines if machine.gpu_count in scaler.gpus]
        refused = {machine: why for machine in machines if (why := scaler.refuse(machine))}
        excluded += [Excluded(machine.instance_type, why.code, why.reason) for machine, why in refused.items()]
        machines = [machine for machine in machines if machine not in refused]
    described = descriptions.by_settings()
    if not estimates and not described and chosen.names:
        excluded += _unpredictable(machines, profiles, scaled=scaler is not None)
    points = read_history([*read_profiles(history), *profiles], types)
    works: dict[SettingsKey, list[MachineEstimate]] = {}
    for estimate in estimates:
        if estimate.nodes == 1 and "workers" not in estimate.factors:
            works.setdefault(settings_key(estimate.factors), []).append(estimate)
    extended = list(estimates)
    for key in dict.fromkeys([*works, *described]):
        training = _Training.of(works.get(key, []), described.get(key, []), descriptions.workload)
        group, size = training.group, training.factors.get("batch_size")
        tried: set[tuple[str | None, str | None, int | None]]
        tried = {(p.instance_type, p.provider, p.batch_size) for p in profiles if p.batch_size}
        tried |= {(estimate.instance_type, estimate.provider, estimate.batch_size) for estimate in group}
        others = []
        for machine in machines:
            asked = size * int(machine.gpu_count) if scaler and size else size
            if not {(machine.instance_type, seller, asked) for seller in (machine.provider, None)} & tried:
                others.append(machine)
        results = training.predict(others, types, points, settings, scaler)
        for machine, result in zip(others, results, strict=True):
            if isinstance(result, MachineEstimate):
                extended.append(result)
            else:
                excluded.append(Excluded(training.title_on(machine), result.code, result.reason))
    return extended, list(dict.fromkeys(excluded))


def predict_estimates(
    group: Sequence[MachineEstimate],
    machines: Sequence[Machine],
    types: MachineTypes,
    history: Sequence[Point],
    settings: Settings,
    scaler: Scaler | None = None,
) -> list[MachineEstimate | Refusal]:
    """Predict each of ``machines`` from the probed machines ``group``, which share batch size and factors.

    The result is a machine estimate or, if no prediction is possible, a :class:`Refusal` with the reason.
    """
    return _Training.of(group, [], Workload()).predict(machines, types, history, settings, scaler)


@dataclass(frozen=True)
class _Training:
    """What is known about a training at one batch size and with one combination of factors."""

    group: Sequence[MachineEstimate]
    """The machines that were probed with it."""
    described: Sequence[Profile]
    """Profiles that describe it and are of no machine that can be ranked."""
    factors: Mapping[str, Any]
    workload: Workload
    """How the training differs from the profiles that describe it."""

    @classmethod
    def of(cls, group: Sequence[MachineEstimate], described: Sequence[Profile], workload: Workload) -> _Training:
        """Make the object; one of ``group`` and ``described`` is not empty."""
        return cls(group, described, group[0].factors if group else identify(described[0]).settings, workload)

    def title_on(self, machine: Machine) -> str:
        """Title of this training on ``machine``."""
        return title_of(machine.instance_type, self.factors)

    def predict(
        self,
        machines: Sequence[Machine],
        types: MachineTypes,
        history: Sequence[Point],
        settings: Settings,
        scaler: Scaler | None = None,
    ) -> list[MachineEstimate | Refusal]:
        """Machine estimate of each of ``machines``, or a refusal with the reason."""
        predictor = Predictor([_as_probe(estimate) for estimate in self.group], types, history, self.described)
        estimates: list[MachineEstimate | Refusal] = []
        for result in predictor.predict(machines):
            if isinstance(result, Refusal):
                estimates.append(result)
            elif result.nearest is None:
                estimates.append(self._describe(result, settings, scaler))
            else:
                base = self.group[result.nearest]
                estimates.append(_estimate(base, result.nearest, result, predictor, settings, self.group, scaler))
        return estimates

    def _describe(self, prediction: Prediction, settings: Settings, scaler: Scaler | None) -> MachineEstimate:
        """Machine estimate without any probe on a GPU, from the description of the training."""
        profiles = [*(record for estimate in self.group for record in estimate.records), *self.described]
        profile = next(profile for profile in profiles if profile.work is not None)
        machine, factors, gpus = prediction.machine, dict(self.factors), Interval.exact(1.0)
        step = Interval(prediction.seconds, *prediction.interval(settings.confidence))
        if scaler and machine.gpu_count > 1 and profile.batch_size:
            prediction, gpus = scaler.scale(prediction, profile, profile.batch_size, prediction.seconds)
            step = step.times(gpus, per=machine.gpu_count)
            factors["batch_size"] = profile.batch_size * int(machine.gpu_count)
        title = title_of(machine.instance_type, factors)
        runtime = describe_runtime(profile, self.workload, step, title=title, confidence=settings.confidence)
        described = MachineEstimate(
            instance_type=machine.instance_type, provider=machine.provider, factors=factors, runtime=runtime,
            basis="described", prediction=prediction, priced_in=_places(machine, self.group), description=profile,
        )  # fmt: skip
        validates = has_validation(profile) or runtime.validation_seconds > 0 or profile.setup.validates
        findings = described_findings(title, prediction, settings.confidence, validates=validates)
        findings += _gpu_findings(described, machine, profile.batch_size, scaler, gpus)
        remedies = tuple(finding.remedy for finding in findings)
        return replace(described, findings=tuple(findings), narrowed_by=remedies)


def _missing(chosen: MachineFilter, types: MachineTypes, machines: Sequence[Machine]) -> list[Excluded]:
    """Exclusions of machines that the user named but that have no matching offer."""
    sold = {machine.instance_type for machine in machines}
    return [Excluded(name, "no_price", _why_missing(name, types)) for name in chosen.names or () if name not in sold]


def _why_missing(name: str, types: MachineTypes) -> str:
    if name in types.by_name:
        return "no offer of this machine matches the filters, regions and markets; change these"
    near = find_nearest(name, types.by_name)
    similar = f"correct the name (similar names: {', '.join(near)}), or " if near else ""
    return f"the catalog has no price of this machine; {similar}add a price with {OWN_PRICE}"


def _unpredictable(machines: Sequence[Machine], profiles: Sequence[Profile], *, scaled: bool) -> list[Excluded]:
    """Exclusions of the ``machines`` machines, if there is no machine estimate from which to predict them."""
    nothing = "so there is nothing to predict from"
    if all(profile.instance_type is None for profile in profiles):
        reason = f"no profile names its instance type, {nothing}; {NAME_THE_MACHINE}"
    elif scaled:
        reason = f"no training on one GPU could be estimated, {nothing}; probe a machine with one GPU"
    else:
        reason = f"no training time could be estimated, {nothing}; probe a machine again"
    return [Excluded(name, NO_PROBE, reason) for name in dict.fromkeys(machine.instance_type for machine in machines)]


def _as_probe(estimate: MachineEstimate) -> Probe:
    """Measured step time of a machine estimate.

    If the batch size of the estimate was not probed, the step time at a probed batch size is multiplied by the ratio of
    the batch sizes.
    """
    # Of a script with several fits, the one with the most work says how machines differ.
    records = max(estimate.fits, key=_step_seconds_of_fit, default=estimate.records)
    here = [record for record in records if record.batch_size == estimate.batch_size]
    seconds = typical_step_seconds(here or records) if _step_seconds(estimate.runtime)[1] > 0 else None
    if seconds and not here and estimate.batch_size and records[0].batch_size:
        seconds *= estimate.batch_size / records[0].batch_size  # a rough size: only ratios between machines matter
    return Probe(estimate.instance_type, estimate.provider, seconds, records, estimate.batch_size)


def _step_seconds_of_fit(records: Sequence[Profile]) -> float:
    """Seconds that the steps of a fit take, as far as its records state their number."""
    setup = records[0].setup
    return (typical_step_seconds(records) or 0.0) * (setup.steps_per_epoch or 1) * (setup.epochs or 1)


def _step_seconds(runtime: RuntimeModel) -> tuple[float, float]:
    parts = [runtime.terms[name] for name in STEP_TERMS if name in runtime.terms]
    return math.fsum(once for once, _ in parts), math.fsum(each for _, each in parts)


def _estimate(
    base: MachineEstimate,
    number: int,
    prediction: Prediction,
    predictor: Predictor,
    settings: Settings,
    group: Sequence[MachineEstimate],
    scaler: Scaler | None,
) -> MachineEstimate:
    """Machine estimate with a predicted step time; all other times are those of the probed machine ``base``.

    ``number`` is the index of ``base`` in the probes of the ``predictor``.
    """
    machine = prediction.machine
    measured = predictor.probes[number].seconds
    assert measured is not None
    low, high = (side / measured for side in prediction.interval(settings.confidence))
    ratio, factors, gpus = prediction.seconds / measured, dict(base.factors), Interval.exact(1.0)
    if scaler and machine.gpu_count > 1 and base.batch_size:
        seconds = _step_time(base) * ratio
        prediction, gpus = scaler.scale(prediction, base.records[0], base.batch_size, seconds or prediction.seconds)
        ratio, low, high = Interval(ratio, low, high).times(gpus, per=machine.gpu_count)
        factors["batch_size"] = base.batch_size * int(machine.gpu_count)
    predicted = replace(
        base, instance_type=machine.instance_type, provider=machine.provider, basis="predicted", records=(),
        prediction=prediction, priced_in=_places(machine, group), factors=factors,
    )  # fmt: skip
    runtime = scale_steps(base.runtime, ratio, low, high, title=predicted.title, confidence=settings.confidence)
    findings = _findings(predicted, prediction, base, predictor.short, scaler, gpus)
    remedies = tuple(finding.remedy for finding in findings)
    return replace(predicted, runtime=runtime, findings=findings, narrowed_by=remedies)


def _step_time(base: MachineEstimate) -> float:
    """Seconds per step of a machine estimate, also at a batch size that was not probed; 0 if it is not known."""
    first = base.records[0]
    if not first.steps_per_epoch or not first.batch_size or not base.batch_size:
        return 0.0
    return _step_seconds(base.runtime)[1] * base.batch_size / (first.steps_per_epoch * first.batch_size)


def add_scaled(
    estimates: Sequence[MachineEstimate],
    measured: Measured,
    profiles: Sequence[Profile],
    catalog: Catalog,
    settings: Settings,
    *,
    scale: Scale,
    chosen: MachineFilter | None,
    history: Iterable[Record] = (),
    studied: Studied | None = None,
    descriptions: Descriptions = NO_DESCRIPTIONS,
) -> tuple[list[MachineEstimate], list[Excluded]]:
    """``estimates`` plus predictions for other numbers of GPUs and nodes; and the exclusions.

    If ``chosen`` is None, machines with the probed GPU models from the probed providers are added.
    """
    types = MachineTypes(catalog)
    gpus, providers = _probed_gpus(measured.machine_estimates, types)
    added: list[MachineEstimate] = []
    excluded: list[Excluded] = []
    if chosen or gpus:
        chosen_machines = chosen or MachineFilter(provider=tuple(sorted(providers)), gpu=tuple(sorted(gpus)))
        records = GpuRecords.read([*read_profiles(history), *profiles], types)
        counts = scale.gpu_counts if chosen else tuple(count for count in scale.gpu_counts if count > 1)
        constant = scale.constant_batch == "per_gpu"
        # Machines that are predicted together share the error of their GPU, whatever their number of GPUs.
        for together in [counts] if constant and counts else [(count,) for count in counts]:
            bases, missing = _one_gpu(estimates, measured, types, 1 if constant else together[0])
            one_size = constant or together == (1,)
            if descriptions.profiles and not one_size and not bases:
                missing = [*missing, Excluded(f"{together[0]} GPUs", NO_GPU, SMALLER_BATCH)]
            scaler = Scaler(together, records, settings.confidence, grows=constant)
            # A description holds for one batch size per GPU.
            predicted, refused = add_predicted(
                bases, profiles, catalog, settings, chosen=chosen_machines, history=history, scaler=scaler,
                descriptions=descriptions if one_size else NO_DESCRIPTIONS,
            )  # fmt: skip
            added += predicted[len(bases) :]
            excluded += [*missing, *refused]
        many = max(counts, default=1)
        if many > MAX_GPUS and not any(candidate.reason_code == TOO_MANY_GPUS for candidate in excluded):
            reason = f"more than {MAX_GPUS} GPUs of one machine cannot be predicted; probe such a machine itself"
            excluded.append(Excluded(f"{many} GPUs", TOO_MANY_GPUS, reason))
    elif max(scale.gpu_counts) > 1:
        reason = "no probed machine has a GPU; probe a machine with one NVIDIA GPU, such as g4dn.xlarge"
        excluded.append(Excluded(f"{max(scale.gpu_counts)} GPUs", NO_GPU, reason))
    for nodes in (nodes for nodes in scale.node_counts if nodes > 1):
        predicted, refused = _several_nodes(estimates, measured, nodes, scale, settings)
        added += predicted
        excluded += refused
    if studied:
        pairs = [studied.pair(candidate) for candidate in added]
        added = [candidate for candidate in pairs if isinstance(candidate, MachineEstimate)]
        excluded += [candidate for candidate in pairs if isinstance(candidate, Excluded)]
    return [*estimates, *added], list(dict.fromkeys(excluded))


def _one_gpu(
    estimates: Sequence[MachineEstimate], measured: Measured, types: MachineTypes, parts: int
) -> tuple[list[MachineEstimate], list[Excluded]]:
    """Those of the ``estimates`` that train on one GPU; and the exclusions.

    If ``parts`` is not 1, they are estimated anew at their batch sizes divided by ``parts``; batch sizes that are not
    divisible are left out.
    """

    def is_one(estimate: MachineEstimate) -> bool:
        used = [count_gpus(record, types) for record in estimate.records]
        return estimate.nodes == 1 and all(gpu is None or gpu[1] == 1 for gpu in used) and bool(used)

    alone = [estimate for estimate in estimates if is_one(estimate)]
    if parts == 1:
        return alone, []
    sizes = sorted(
        {estimate.batch_size // parts for estimate in alone if estimate.batch_size and estimate.batch_size % parts == 0}
    )
    resized, missing = measured.at_sizes(sizes, name_others=False) if sizes else ([], [])
    return [estimate for estimate in resized if is_one(estimate)], missing


def _several_nodes(
    estimates: Sequence[MachineEstimate], measured: Measured, nodes: int, scale: Scale, settings: Settings
) -> tuple[list[MachineEstimate], list[Excluded]]:
    """Estimates for ``nodes`` nodes, from probes on two nodes; and exclusions of machines without such a probe."""
    probed = {(estimate.instance_type, estimate.nodes, estimate.batch_size) for estimate in estimates}
    pairs = [estimate for estimate in estimates if estimate.nodes == 2]
    if scale.constant_batch == "global" and nodes > 2:
        sizes = sorted({estimate.batch_size * 2 // nodes for estimate in pairs if estimate.batch_size})
        pairs = [
            estimate
            for estimate in (measured.at_sizes(sizes, name_others=False)[0] if sizes else [])
            if estimate.nodes == 2
        ]
    scalable = {two.instance_type for two in pairs} | {name for name, count, _ in probed if count == nodes}
    excluded = []
    for name in sorted({estimate.instance_type for estimate in estimates if estimate.basis != "predicted"}):
        if name not in scalable or nodes > MAX_NODES:
            why = refuse_nodes(name, nodes)
            excluded.append(Excluded(f"{nodes} x {name}", why.code, why.reason))
    if not estimates:  # the training is only described
        excluded.append(Excluded(f"{nodes} machines", NO_TWO_NODES, NO_PROBE_OF_NODES))
    predicted: list[MachineEstimate] = []
    for two in pairs if 2 < nodes <= MAX_NODES else ():
        estimate, ratio = _scale_nodes(two, nodes, settings.confidence)
        if (estimate.instance_type, nodes, estimate.batch_size) in probed:
            continue
        runtime = scale_steps(two.runtime, *ratio, title=estimate.title, confidence=settings.confidence)
        message = f"{estimate.title} was never probed: its step time is predicted from that on two nodes."
        finding = Finding("nodes-predicted", message, f"Probe {nodes} x {estimate.instance_type}.", "info")
        held = epochs_findings(estimate, two.batch_size) if scale.constant_batch == "per_gpu" else ()
        predicted.append(replace(estimate, runtime=runtime, findings=(finding, *held), narrowed_by=(finding.remedy,)))
    return predicted, excluded


def describe_missing_nodes(scale: Scale, ranked: Collection[int]) -> list[Finding]:
    """A warning for each number of nodes of ``scale`` that none of the ``ranked`` numbers of nodes is."""
    remedy = (
        "ranking.excluded (--verbose) states why. Predictions for several machines start from a probe of two that "
        "train together."
    )
    return [
        Finding("nodes-not-ranked", f"No candidate of {nodes} machines that train together could be ranked.", remedy)
        for nodes in scale.node_counts
        if nodes > 1 and nodes not in ranked
    ]


def scale_steps(
    base: RuntimeModel, ratio: float, low: float, high: float, *, title: str, confidence: float
) -> RuntimeModel:
    """The runtime model ``base`` with steps that take ``ratio`` (interval: ``low`` to ``high``) times as long.

    All other parts keep their times and get wide intervals, which include a change by the same ratio.
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
        waits=Waits(),
        narrowed_by=(),
        repetitions=(),
    )


def _places(machine: Machine, group: Sequence[MachineEstimate]) -> tuple[str, ...]:
    """Regions whose prices apply by default: the probed regions of the provider; none means the cheapest of all."""
    probed = {
        region for estimate in group if estimate.provider in (None, machine.provider) for region in estimate.regions
    }
    return tuple(sorted(probed))


def _findings(
    estimate: MachineEstimate,
    prediction: Prediction,
    base: MachineEstimate,
    short: bool,
    scaler: Scaler | None,
    ratio: Interval[float],
) -> tuple[Finding, ...]:
    machine = prediction.machine
    findings = [
        Finding(
            "never-probed",
            f"{estimate.title} was never probed: its step time is predicted from published figures of its GPU, and all "
            f"other times are those of {base.title}.",
            f"Probe {machine.instance_type} before you rent it for long.",
            "info",
        )
    ]
    findings += _gpu_findings(estimate, machine, base.batch_size, scaler, ratio)
    if prediction.wait_share >= NEGLIGIBLE_WAIT and prediction.seconds < prediction.probed_seconds:
        waits = format_seconds(prediction.wait_share * prediction.probed_seconds)
        message = f"A step on {base.title} waits {waits} for its data, and a faster GPU does not shorten this wait."
        remedy = f"Speed up the input, or probe {machine.instance_type} to see how fast its CPU prepares the data."
        findings.append(Finding("input-floor", message, remedy, "info"))
    if short or prediction.seconds < SHORT_SECONDS:
        message = f"Steps shorter than {format_seconds(SHORT_SECONDS)} depend on the host more than on the GPU."
        remedy = f"Use a larger batch size, or probe {machine.instance_type}."
        findings.append(Finding("short-steps-predicted", message, remedy))
    return tuple(findings)


def _gpu_findings(
    estimate: MachineEstimate, machine: Machine, size: int | None, scaler: Scaler | None, ratio: Interval[float]
) -> list[Finding]:
    """Findings about a machine with several GPUs; ``size`` is the batch size of one GPU, as for a ``ratio`` of 1."""
    if machine.gpu_count <= 1:
        return []
    if scaler:
        return [
            _efficiency_finding(estimate, machine, ratio),
            *(epochs_findings(estimate, size) if scaler.grows else ()),
        ]
    many = f"{machine.gpu_count:g} x {machine.gpu_model}"
    message = f"{estimate.title} has {many}, but its time is predicted for one GPU."
    remedy = "If the training uses all these GPUs, pass their number as gpus= (--gpus)."
    return [Finding("one-gpu-predicted", message, remedy, "info")]


def _efficiency_finding(estimate: MachineEstimate, machine: Machine, ratio: Interval[float]) -> Finding:
    """Finding with the assumed efficiency; ``ratio`` is the step time on all GPUs relative to one GPU."""
    low, high = (format_chance(min(1.0, 1 / side)) for side in (ratio.high, ratio.low))
    return Finding(
        "gpus-predicted",
        f"{estimate.title} is predicted to train on {machine.gpu_count:g} GPUs with an efficiency of "
        f"{format_chance(min(1.0, 1 / ratio.value))} ({low} to {high}).",
        f"Probe {estimate.instance_type}, or a machine with two such GPUs, to narrow this interval.",
        "info",
    )


def epochs_findings(estimate: MachineEstimate, size: int | None) -> list[Finding]:
    """Warning that the number of epochs is that of batch size ``size``; empty if a convergence study gives it."""
    if estimate.epochs is not None:
        return []
    message = (
        f"{estimate.title}: the number of epochs is that of batch size {size}, although larger batches often need more."
    )
    remedy = "Pass a convergence study as epochs=, or constant_batch='global' (--constant-batch global)."
    return [Finding("epochs-held-constant", message, remedy)]


def _scale_nodes(two: MachineEstimate, nodes: int, confidence: float) -> tuple[MachineEstimate, Interval[float]]:
    """The machine estimate ``two`` (of two nodes) as one of ``nodes`` nodes; and the ratio of the total step times."""
    size = two.batch_size * nodes // 2 if two.batch_size else None
    factors = {**two.factors, "nodes": nodes, **({"batch_size": size} if size else {})}
    # A step takes as long as on two nodes, and an epoch has fewer steps.
    ratio = more_nodes(1.0, confidence=confidence).map(lambda part: part * 2 / nodes)
    return replace(two, factors=factors, basis="predicted"), ratio


def _probed_gpus(estimates: Sequence[MachineEstimate], types: MachineTypes) -> tuple[set[str], set[str]]:
    """Models of the GPUs of the probed machines in the catalog, and their providers."""
    sold = [types.find(estimate.instance_type, estimate.provider) for estimate in estimates]
    machines = [machine for machine in sold if machine is not None and machine.gpu_model]
    return {machine.gpu_model for machine in machines}, {machine.provider for machine in machines}
