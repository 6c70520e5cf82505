"""Machine estimates: the runtime model of each measured machine, and its number of epochs from a convergence study.

:class:`Measured` makes machine estimates from profiles: it merges repetitions and excludes profiles from which no time
can be estimated. The runtime at a batch size that was not probed is interpolated between probed batch sizes.

:class:`Studied` implements methodology 1 of the dissertation (see docs/explanation). The number of epochs depends on
the batch size and not on the machine, so it comes from the study. Seconds per epoch depend on both, so they come from
the profiles.

:class:`Transfer` adds time and cost of moving the data to the machine and the model away from it.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from vmselect._checks import check_name, check_number, maybe, suggest_fields
from vmselect.catalog import Catalog, describe_nearest
from vmselect.convergence import ConvergenceStudy, EpochsEstimate
from vmselect.diagnosis import Disturbance, Examination
from vmselect.diagnosis.checks import REMEDY
from vmselect.errors import ArgumentError, EstimateError, RankingError
from vmselect.estimation import RuntimeModel
from vmselect.findings import Finding
from vmselect.prediction.hardware import UNKNOWN_MEMORY, Machine, MachineTypes, MemoryCheck, Refusal, knows_memory
from vmselect.prediction.machines import Prediction
from vmselect.ranking.rows import Bools, Excluded, Floats, only_finite
from vmselect.records import Profile
from vmselect.records.base import NAME_THE_MACHINE
from vmselect.records.egress import egress_price
from vmselect.records.forecast import Basis
from vmselect.records.identity import (
    Identity,
    check_repetitions,
    count_nodes,
    group_repetitions,
    identify,
    list_values,
    other_settings,
    read_records,
)
from vmselect.records.transfer import TransferRecord
from vmselect.scoring.recalibration import Adjustment, Recalibration

Fit = Callable[[Sequence[Profile], int | None, Mapping[str, Disturbance]], RuntimeModel]
"""Function that fits a runtime model to profiles of one machine, for a batch size (None: the probed batch size).

The last argument maps the ids of the profiles to their disturbances.
"""

MachineKey = tuple[str, str, tuple[tuple[str, str], ...]]
"""Instance type, provider, and the names and texts of all factors except the batch size."""
STEP_TERMS = ("steady_iterations", "partial_batch")
"""Names of the terms of a runtime model that are proportional to the step time."""

BELOW_REQUIRED, UNKNOWN_METRIC, UNKNOWN_EPOCHS = "below_required_metric", "metric_unknown", "epochs_unknown"
FALLING = (
    "loss", "error", "mae", "mse", "mape", "msle", "rmse", "crossentropy", "hinge", "divergence", "poisson", "logcosh",
    "log_cosh", "perplexity", "false_",
)  # fmt: skip
"""Substrings in the names of metrics where smaller is better.

They are used for metrics other than the monitored metric, for which a record states whether smaller is better.
"""


@dataclass(frozen=True, kw_only=True)
class MachineEstimate:
    """An instance type with its factors and runtime model, and its number of epochs if a convergence study gives it.

    ``basis`` states whether the runtime was measured, interpolated, extrapolated, predicted from probes of other
    machines, or computed from the description of the training alone.
    """

    instance_type: str
    provider: str | None = None
    factors: Mapping[str, Any] = field(default_factory=dict)
    """Batch size, number of nodes, number of workers if several share a machine, and other varied factors."""
    runtime: RuntimeModel
    basis: Basis = "measured"
    records: tuple[Profile, ...] = field(default=(), repr=False)
    fits: tuple[tuple[Profile, ...], ...] = field(default=(), repr=False)
    """The records of each fit, if the machine was measured with a script of several fits; else empty."""
    epochs: EpochsEstimate | None = None
    findings: tuple[Finding, ...] = ()
    narrowed_by: tuple[str, ...] = ()
    """What narrows the interval of the time, the most effective first."""
    measured_as: str | None = None
    """Instance type that was measured, if this one is the same hardware under the name of another service."""
    prediction: Prediction | None = field(default=None, repr=False)
    """Predicted step time, if the machine was never probed. Its errors correlate with those of other machines."""
    description: Profile | None = field(default=None, repr=False)
    """Profile with the description from which the runtime was computed, if no machine with a GPU was probed."""
    priced_in: tuple[str, ...] = ()
    """Regions whose prices apply to a machine that was never probed, if the user names no region."""
    adjustment: Adjustment | None = None
    """Correction of ``runtime`` by the outcomes of earlier forecasts."""
    moving_usd: float = 0.0
    """Cost in USD of moving the data from a store to the machine, paid once."""

    @property
    def batch_size(self) -> int | None:
        """Batch size; None if it is not known."""
        return self.factors.get("batch_size")

    @property
    def nodes(self) -> int:
        """Number of machines that train together."""
        return int(self.factors.get("nodes", 1))

    @property
    def varied(self) -> str | None:
        """Text with all factors except the batch size; None if there are none."""
        several = [f"{self.nodes} machines"] if self.nodes > 1 else []
        return ", ".join([*several, *self._other_factors()]) or None

    @cached_property
    def regions(self) -> tuple[str, ...]:
        """Regions in which the machine was measured, or ``priced_in`` if they are not known."""
        return tuple(sorted({record.region for record in self.records if record.region})) or self.priced_in

    @property
    def step_seconds(self) -> tuple[float, float]:
        """Seconds spent in steps, as (one-time part, part per epoch): the time that ``prediction`` scales.

        A draw of the time of ``n`` epochs is ``runtime.seconds(n) + (factor - 1) * (once + each * n)``, where
        ``factor`` is a draw of ``prediction.factors``.
        """
        once, each = zip(*(self.runtime.terms.get(name, (0.0, 0.0)) for name in STEP_TERMS), strict=True)
        return sum(once), sum(each)

    @property
    def launch_share(self) -> float | None:
        """Share of a step that the host spends on starting operations; None if the training is not described."""
        return self.prediction.launch_share if self.prediction and self.prediction.cost else None

    @property
    def interval_only(self) -> bool:
        """Whether only intervals of time and cost are meaningful, because single numbers are too uncertain."""
        return self.prediction is not None and self.prediction.interval_only

    @property
    def repetitions(self) -> int:
        """Number of merged profiles; 0 if the runtime was not measured at this batch size."""
        if self.basis != "measured" or self.measured_as:
            return 0
        return min(map(len, self.fits), default=len(self.records))

    @cached_property
    def probe_seconds(self) -> float | None:
        """Total duration of the probes of this machine estimate; None if it is not known."""
        if self.measured_as:
            return 0.0  # the probes are those of another machine estimate
        spent = [_probe_seconds(record) for record in self.records] if self.basis == "measured" else []
        return None if None in spent else sum(seconds or 0.0 for seconds in spent)

    @property
    def gpus_used(self) -> int | None:
        """Smallest number of GPUs of one machine on which a recorded training ran; None if it is not known."""
        seen = [record.environment for record in self.records]
        used = [
            min(
                environment.framework_gpus * (environment.workers_per_machine or 1),
                environment.replicas * environment.workers,
            )
            for environment in seen
            if environment.framework_gpus is not None
        ]
        return min(used, default=None)

    @cached_property
    def iterations(self) -> dict[str, float]:
        """Mean seconds of the first step, the second step and steps 2 to 10, as far as they were recorded."""
        times: dict[str, list[float]] = defaultdict(list)
        for record in self.records if self.basis == "measured" else ():
            for name in ("first_iteration", "second_iteration", "mean_2_10"):
                if (seconds := getattr(record, f"{name}_seconds")) is not None:
                    times[name].append(seconds)
        return {name: statistics.fmean(values) for name, values in times.items()}

    @property
    def machine_key(self) -> MachineKey:
        """Instance type, provider and all factors except the batch size."""
        return self.instance_type, self.provider or "", other_settings(self.factors)

    @property
    def title(self) -> str:
        """Short text for messages: nodes, instance type and factors."""
        return self.title_in()

    def title_in(self, *place: str | None) -> str:
        """The title with ``place`` (provider, region and market) in parentheses after the instance type."""
        return title_of(self.instance_type, self.factors, *place)

    def _other_factors(self) -> list[str]:
        return _list_factors(self.factors)


def title_of(instance_type: str, factors: Mapping[str, Any], *place: str | None) -> str:
    """Title of a training with ``factors`` on ``instance_type``, with ``place`` in parentheses after the name."""
    nodes, size = int(factors.get("nodes", 1)), factors.get("batch_size")
    several = f"{nodes} x " if nodes > 1 else ""
    where = f" ({', '.join(filter(None, place))})" if place else ""
    batch = [f"batch {size}"] if size else []
    return ", ".join([f"{several}{instance_type}{where}", *batch, *_list_factors(factors)])


def _list_factors(factors: Mapping[str, Any]) -> list[str]:
    return [f"{name} {value}" for name, value in factors.items() if name not in ("batch_size", "nodes")]


def recalibrate(
    estimates: Sequence[MachineEstimate], learned: Recalibration
) -> tuple[list[MachineEstimate], list[Finding]]:
    """``estimates`` corrected by the outcomes of earlier forecasts, and a finding for each correction."""
    corrected: list[MachineEstimate] = []
    findings: list[Finding] = []
    for machine in estimates:
        # A machine under the name of another service was measured under its own name.
        adjustment = learned.adjust(machine.basis, machine.measured_as or machine.instance_type)
        changed = adjustment.ratio != 1 or adjustment.factor != 1
        findings += adjustment.applied
        corrected.append(
            replace(
                machine,
                runtime=adjustment.apply_to_model(machine.runtime) if changed else machine.runtime,
                findings=(*machine.findings, *adjustment.findings),
                adjustment=adjustment if changed else None,
            )
        )
    return corrected, findings


class Measured:
    """Machine estimates made from profiles, at the probed batch sizes and, on demand, at other batch sizes."""

    def __init__(
        self,
        profiles: Sequence[Profile],
        fit: Fit,
        *,
        arguments: Iterable[str] = (),
        groups: Mapping[Identity, Sequence[list[Profile]]] | None = None,
    ) -> None:
        """Measure each setup; ``groups`` contains the fits of each machine, if a script has several."""
        self.machine_estimates: list[MachineEstimate] = []
        reason = f"the profile does not name its instance type; {NAME_THE_MACHINE}"
        unknown = [profile for profile in profiles if profile.instance_type is None]
        self.excluded = [Excluded(profile.title, "unknown_instance_type", reason) for profile in unknown]
        self._fit, self._records = fit, defaultdict[MachineKey, list[Profile]](list)
        self._examinations = {profile.id: Examination.of(profile) for profile in profiles if profile.instance_type}
        self._disturbances = {name: examination.disturbance for name, examination in self._examinations.items()}
        named = (profile for profile in profiles if profile.instance_type is not None)
        setups = {key: [same] for key, same in group_repetitions(named).items()} if groups is None else groups
        for identity, fits in setups.items():
            if identity.instance_type is not None:
                self._measure(identity, fits, tuple(arguments))
        self.machine_estimates.sort(
            key=lambda machine: (
                machine.instance_type,
                machine.provider or "",
                machine.batch_size or 0,
                machine.machine_key,
            )
        )

    def _measure(self, identity: Identity, fits: Sequence[list[Profile]], arguments: Sequence[str]) -> None:
        group = [profile for same in fits for profile in same]
        machine = MachineEstimate(
            instance_type=identity.instance_type or "", provider=identity.provider, factors=identity.settings,
            runtime=None, records=tuple(group),  # type: ignore[arg-type]
            fits=tuple(map(tuple, fits)) if len(fits) > 1 else (),
        )  # fmt: skip
        self._records[machine.machine_key] += group
        failed = next((p for p in group if p.outcome == "out_of_memory"), None)
        if failed:
            detail = f" ({failed.detail})" if failed.detail else ""
            self.excluded.append(Excluded(machine.title, "out_of_memory", f"the training ran out of memory{detail}"))
            return
        # Records that differ in their setup are no repetitions: merging them would widen the interval wrongly.
        for same in fits:
            check_repetitions(same, arguments=arguments, error=RankingError)
        try:
            runtime = self._fit(group, None, self._disturbances)
        except EstimateError as impossible:
            self.excluded.append(Excluded.unestimated(machine.title, impossible, group[0].title))
            return
        if disturbed := _refuse_disturbed(machine.title, runtime):
            self.excluded.append(disturbed)
            return
        examined = [self._examinations[profile.id] for profile in group]
        about = [finding for examination in examined for finding in examination.findings(early_stopping=False)]
        remedies = [remedy for examination in examined for remedy in examination.narrowed_by]
        self.machine_estimates.append(
            replace(
                machine,
                runtime=runtime,
                findings=tuple(dict.fromkeys([*about, *runtime.findings])),
                narrowed_by=(*remedies, *runtime.narrowed_by),
            )
        )

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """All probed batch sizes, in ascending order."""
        return tuple(sorted({machine.batch_size for machine in self.machine_estimates if machine.batch_size}))

    def at_sizes(self, sizes: Sequence[int], *, name_others: bool) -> tuple[list[MachineEstimate], list[Excluded]]:
        """Machine estimates at each batch size in ``sizes``, probed or interpolated; and the exclusions.

        With ``name_others``, probes at other batch sizes that no interpolation used are listed as excluded.
        """
        machines: dict[MachineKey, dict[int | None, MachineEstimate]] = {}
        for machine in self.machine_estimates:
            machines.setdefault(machine.machine_key, {})[machine.batch_size] = machine
        ranked: list[MachineEstimate] = []
        excluded: list[Excluded] = []
        for key, by_size in machines.items():
            estimates = [by_size[size] if size in by_size else self._interpolate(key, by_size, size) for size in sizes]
            here = [machine for machine in estimates if isinstance(machine, MachineEstimate)]
            missing = [machine for machine in estimates if isinstance(machine, Excluded)]
            ranked += here
            # A machine that was interpolated has used its other batch sizes, so these are not named as left out.
            if name_others and all(machine.basis == "measured" for machine in here):
                named_sizes = ", ".join(map(str, sizes))
                for size, machine in by_size.items():
                    if size not in sizes:
                        reason = f"it was measured at batch size {size or 'unknown'}, not at {named_sizes}"
                        excluded.append(Excluded(machine.title, "other_batch_size", reason))
                missing = missing if len(by_size) > 1 else []
            excluded += missing
        return ranked, excluded

    def _interpolate(
        self, key: MachineKey, by_size: Mapping[int | None, MachineEstimate], size: int
    ) -> MachineEstimate | Excluded:
        first = next(iter(by_size.values()))
        other = replace(first, factors=first.factors | {"batch_size": size})  # type: ignore[operator]
        try:
            runtime = self._fit(self._records[key], size, self._disturbances)
        except EstimateError as impossible:
            return Excluded.unestimated(other.title, impossible)
        if disturbed := _refuse_disturbed(other.title, runtime):
            return disturbed
        records = tuple(record for machine in by_size.values() for record in machine.records)
        return replace(
            other,
            runtime=runtime,
            basis=runtime.basis,
            records=records,
            findings=runtime.findings,
            narrowed_by=runtime.narrowed_by,
        )


def _refuse_disturbed(title: str, runtime: RuntimeModel) -> Excluded | None:
    """Exclusion of a machine whose probe was too disturbed to rank it; None if it was not."""
    if not runtime.disturbance.too_strong:
        return None
    return Excluded(title, "too_disturbed", f"{runtime.disturbance} {REMEDY}")


def _probe_seconds(profile: Profile) -> float | None:
    """Duration of the measurement, from the start of the program; None if it is not known."""
    timeline = profile.timeline
    if timeline.run_seconds:
        return sum(timeline.run_seconds)
    if timeline.fit_seconds is not None:
        return (timeline.init_seconds or 0.0) + timeline.fit_seconds
    trained = timeline.steps.total_seconds or sum(epoch.seconds for epoch in timeline.epochs)
    around = sum(v.seconds for v in timeline.validations) + sum(b.seconds for b in timeline.boundaries)
    before = (timeline.init_seconds or 0.0) + (timeline.fit_to_first_batch_seconds or 0.0)
    return before + trained + around if trained else None


@dataclass(frozen=True, kw_only=True)
class Studied:
    """Convergence study of a ranking, and the compared pairs of machine and batch size."""

    study: ConvergenceStudy
    confidence: float
    catalog: Catalog | None = None
    measured: Sequence[MachineEstimate] = field(default=(), repr=False)
    """Machine estimates at the probed batch sizes, from which the cost of the probes is computed."""
    pairs: Sequence[MachineEstimate] = field(default=(), repr=False)
    """Pairs that would all be trained completely if there were no study, including those below the required metric."""

    @classmethod
    def read(cls, study: ConvergenceStudy, profiles: Sequence[Profile], confidence: float) -> Studied:
        """Make the object; raise RankingError if study and profiles are of different models."""
        facts: tuple[tuple[str, set[str | int | None], set[str | int | None]], ...] = (
            ("model", {p.model for p in profiles}, {r.model for r in study.runs}),
            ("parameters", {p.setup.parameters for p in profiles}, {r.parameters for r in study.runs}),
        )
        for fact, profiled, other in facts:
            profiled, other = profiled - {None}, other - {None}
            if profiled and other and profiled != other:
                raise RankingError(
                    f"The study and the profiles are of different models: {fact} {list_values(other)} in the study, "
                    f"{list_values(profiled)} in the profiles. Load a study and profiles of the same model."
                )
        return cls(study=study, confidence=confidence)

    def make_pairs(
        self, measured: Measured, chosen_sizes: Sequence[int] | None, catalog: Catalog
    ) -> tuple[list[MachineEstimate], list[Excluded], Studied]:
        """Machine estimates with their numbers of epochs; exclusions; and a copy of this object with ``pairs`` set.

        ``chosen_sizes`` are the batch sizes to include, by default those of the study and of the profiles.
        """
        sizes = chosen_sizes or tuple(sorted({*self.study.batch_sizes, *measured.batch_sizes}))
        refused = {size: reason for size in sizes if (reason := self._why_not(size))}
        estimates, missing = measured.at_sizes(sizes, name_others=False)
        pairs = [self._with_epochs(pair) for pair in estimates]
        machine_estimates = [pair for pair in pairs if pair.batch_size not in refused]
        excluded = list(measured.excluded)
        excluded += [Excluded(p.title, *refused[p.batch_size]) for p in pairs if p.batch_size in refused]
        named = {exclusion.candidate for exclusion in excluded}
        excluded += [exclusion for exclusion in missing if exclusion.candidate not in named]
        if not machine_estimates and not any(
            exclusion.reason_code in (BELOW_REQUIRED, UNKNOWN_METRIC) for exclusion in excluded
        ):
            raise RankingError(self._explain_no_pairs(measured, chosen_sizes, excluded))
        compared = [p for p in pairs if refused.get(p.batch_size or 0, (BELOW_REQUIRED,))[0] == BELOW_REQUIRED]
        studied = replace(self, catalog=catalog, measured=measured.machine_estimates, pairs=compared)
        return machine_estimates, excluded, studied

    def metric(self, batch_size: int | None) -> float | None:
        """Final value of the monitored metric at ``batch_size``; None if the study does not contain it."""
        if batch_size is None or not any(self.study.monitor in run.metrics for run in self.study.runs):
            return None
        return self.study.metric(batch_size)

    def to_dict(self, sizes: Iterable[int], cost: Mapping[str, float]) -> dict[str, Any]:
        """Plain values: stopping rule, least metrics to reach, a row per batch size, cost of study and probes."""
        return {
            **self.study.rule.model_dump(),
            "model": self.study.model,
            "required": self.study.required,
            "measured": [only_finite(row) for row in self.study.rows(confidence=self.confidence)],
            "sizes": [
                only_finite({
                    "batch_size": size, "epochs": epochs.value, "epochs_low": epochs.low, "epochs_high": epochs.high,
                    "source": epochs.source, "mean_half_width": epochs.mean_half_width, "metric": self.metric(size),
                })
                for size in sizes
                for epochs in [self.study.epochs(size, confidence=self.confidence)]
            ],
            "cost": only_finite(cost),
        }  # fmt: skip

    def pair(self, machine: MachineEstimate) -> MachineEstimate | Excluded:
        """``machine`` with the number of epochs from the study; or an exclusion with the reason."""
        refused = self._why_not(machine.batch_size or 0)
        return Excluded(machine.title, *refused) if refused else self._with_epochs(machine)

    def _with_epochs(self, pair: MachineEstimate) -> MachineEstimate:
        epochs = self.study.epochs(pair.batch_size or 0, confidence=self.confidence)
        return replace(pair, epochs=epochs, findings=tuple(dict.fromkeys([*pair.findings, *epochs.findings])))

    def _why_not(self, size: int) -> tuple[str, str] | None:
        """Reason code and reason for the exclusion of a batch size; None if it can be ranked."""
        smallest, largest = self.study.batch_sizes[0], self.study.batch_sizes[-1]
        reason = None
        if self.study.epochs(size, confidence=self.confidence).source == "unknown":
            covered = f"the study covers batch sizes {smallest} to {largest}; add runs at batch size {size} to it"
            reason = (UNKNOWN_EPOCHS, covered)
        for name, bound in self.study.required.items():
            value, smaller = self.study.metric(size, name), any(part in name for part in FALLING)
            if name.removeprefix("val_") == self.study.monitor.removeprefix("val_"):
                smaller = self.study.rule.mode == "min"
            if value is None:
                reason = (UNKNOWN_METRIC, f"its final {name} is not known; add runs at batch size {size} to the study")
            elif not (value <= bound if smaller else value >= bound):
                side = "above" if smaller else "below"
                reason = (BELOW_REQUIRED, f"its final {name} is {value:.4g}, {side} the required {bound:.4g}")
        return reason

    def _explain_no_pairs(
        self, measured: Measured, chosen_sizes: Sequence[int] | None, excluded: Sequence[Excluded]
    ) -> str:
        first = f" (for example, {excluded[0]})" if excluded else ""
        if not measured.machine_estimates:
            return f"No training time can be estimated{first}. Probe at batch sizes that fit into memory."
        probed, studied = list_values(measured.batch_sizes) or "none", list_values(self.study.batch_sizes)
        sizes = (
            f"Batch size {list_values(chosen_sizes)} cannot be estimated from"
            if chosen_sizes
            else "No batch size is common to"
        )
        return (
            f"{sizes} the profiles (batch size {probed}) and the study ({studied}){first}. "
            "Probe the machines at the batch sizes of the study."
        )


def check_gpu_memory(
    estimates: Sequence[MachineEstimate], profiles: Sequence[Profile], catalog: Catalog
) -> tuple[list[MachineEstimate], list[Excluded], tuple[Finding, ...]]:
    """Estimates that fit into GPU memory, exclusions, and a finding if the required memory is unknown.

    A machine that was measured at its batch size is not checked, because the training ran there.
    """
    if all(estimate.basis == "measured" for estimate in estimates):
        return list(estimates), [], ()
    predicted = any(estimate.prediction is not None for estimate in estimates)
    if not any(map(knows_memory, profiles)):
        return list(estimates), [], (UNKNOWN_MEMORY,) if predicted else ()
    types = MachineTypes(catalog)
    # Records of one training at all its batch sizes show together how its memory grows.
    works: dict[Any, list[Profile]] = {}
    for profile in profiles:
        works.setdefault(other_settings(identify(profile).settings), []).append(profile)
    checks = {work: MemoryCheck(group, types) for work, group in works.items()}
    kept: list[MachineEstimate] = []
    excluded: list[Excluded] = []
    for estimate in estimates:
        check = checks.get(other_settings(estimate.factors))
        problem = None if check is None or estimate.basis == "measured" else _check_memory(estimate, check, types)
        if isinstance(problem, Refusal):
            excluded.append(Excluded(estimate.title, problem.code, problem.reason))
        else:
            kept.append(replace(estimate, findings=(*estimate.findings, problem)) if problem else estimate)
    unknown = predicted and all(check.model is None for check in checks.values())
    return kept, excluded, (UNKNOWN_MEMORY,) if unknown else ()


def _check_memory(estimate: MachineEstimate, check: MemoryCheck, types: MachineTypes) -> Refusal | Finding | None:
    if not estimate.batch_size:
        return None
    if estimate.prediction is not None:
        return check.check(estimate.prediction.machine, estimate.batch_size // estimate.prediction.gpus)
    if estimate.gpus_used == 0:
        return None
    name, provider = estimate.instance_type, estimate.provider
    memories = (record.environment.smallest_gpu_bytes for record in estimate.records)
    machine = types.find(name, provider) or Machine(name, provider or "", "", 0.0)
    replicas = max(record.environment.replicas * estimate.nodes // count_nodes(record) for record in estimate.records)
    size = max(1, estimate.batch_size // replicas)
    return check.check(machine, size, gpu_bytes=next(filter(None, memories), None))


MB_PER_GB = 1_000
SPREAD = 0.2
"""Minimum relative half-width of the interval of a transfer time, because networks are shared."""


@dataclass(frozen=True)
class Moves:
    """Where the training data are, and for each offer whether its machine is elsewhere and what moving them costs."""

    place: str
    data_gb: float
    model_gb: float
    usd: Floats
    """Price of moving the data to the machine and the model back, as far as the prices are known."""
    elsewhere: Bools
    store_known: bool
    """Whether the price of a gigabyte that leaves the store is known."""
    machine_known: Bools
    """Whether the price of a gigabyte that leaves the provider of the machine is known."""


@suggest_fields
@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Data to move to and from each machine; the speed comes from transfer records or from seconds per megabyte.

    Args:
        data_gb: gigabytes to move from a store to the machine.
        model_gb: gigabytes to move from the machine to a store.
        records: transfer records; each applies to machines of its instance type.
        download_seconds_per_mb: seconds per megabyte from the store, for machines without a transfer record.
        upload_seconds_per_mb: seconds per megabyte to the store, for machines without a transfer record.
        usd_per_gb: price per gigabyte that leaves the store; with ``provider``, for machines elsewhere. Default: the
            provider's egress price if ``provider`` is given, otherwise the price in the records, or 0 if store and
            machine are in the same cloud. A model that goes back to ``provider`` from a machine elsewhere costs the
            egress price of the machine's provider.
        provider: provider whose cloud contains the data, such as ``aws``.
        region: region of the data, such as ``us-east-1``.
    """

    data_gb: float = 0.0
    model_gb: float = 0.0
    records: Sequence[TransferRecord] = field(default=(), repr=False)
    download_seconds_per_mb: float | None = None
    upload_seconds_per_mb: float | None = None
    usd_per_gb: float | None = None
    provider: str | None = None
    region: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", tuple(read_records(self.records, TransferRecord, error=None)))
        for name in ("provider", "region"):
            object.__setattr__(self, name, maybe(check_name, name, getattr(self, name)))
        if self.region is not None and self.provider is None:
            raise ArgumentError(f"region={self.region!r} of the data needs their provider. Pass provider= too.")
        for name in ("data_gb", "model_gb"):
            object.__setattr__(self, name, check_number(name, getattr(self, name), least=0, most=1e9))
        for name in ("download_seconds_per_mb", "upload_seconds_per_mb", "usd_per_gb"):
            object.__setattr__(self, name, maybe(check_number, name, getattr(self, name), least=0))

    def charge(self, machine_estimates: Iterable[MachineEstimate]) -> tuple[list[MachineEstimate], list[Excluded]]:
        """Machine estimates with time and cost of the transfer added, and those whose transfer time is unknown."""
        charged: list[MachineEstimate] = []
        excluded: list[Excluded] = []
        for estimate in machine_estimates:
            provider = estimate.provider
            # Two providers may use one name; a record or an estimate without a provider may be of either.
            records = [
                record
                for record in self.records
                if record.instance_type == estimate.instance_type
                and (not provider or record.provider in (None, provider))
            ]
            durations = {
                "data_in": self._seconds(self.data_gb, records, "download"),
                "model_out": self._seconds(self.model_gb, records, "upload"),
            }
            missing = [name.replace("_", " ") for name, duration in durations.items() if duration is None]
            if missing:
                reason = f"no transfer record of {estimate.instance_type} contains the time of {' and '.join(missing)}"
                remedy = "run vmselect.serving.probe_transfer on this machine"
                excluded.append(Excluded(estimate.title, "no_transfer", f"{reason}; {remedy}"))
            else:
                measured = {name: duration for name, duration in durations.items() if duration}
                charged.append(self._add(estimate, measured, records))
        return charged, excluded

    @property
    def home(self) -> tuple[str, str] | None:
        """Provider and region in which the data are free; None if they are not known."""
        if self.provider is None or self.region is None or not (self.data_gb or self.model_gb):
            return None
        return self.provider, self.region

    def check_place(self, catalog: Catalog) -> Iterator[Finding]:
        """A warning if ``catalog`` has machines of the provider, but none in the region of the data.

        Then nothing is where the data are, perhaps because the region is misspelt.

        >>> moved = Transfer(data_gb=9, download_seconds_per_mb=0.01, provider="aws", region="eu-centrl-1")
        >>> [finding.code for finding in moved.check_place(Catalog.embedded("2026-08-22"))]
        ['data-place-unknown']
        """
        if self.home is None:
            return
        offers = catalog.unrestricted.offers(market=None)
        regions = offers.loc[offers["provider"] == self.provider, "region"].astype(str).unique()
        if len(regions) and self.region not in regions:
            place = f"{self.provider} {self.region}"
            message = f"No machine in {place} has a price, so that the data are elsewhere for all machines."
            hint = describe_nearest(str(self.region), regions)
            yield Finding("data-place-unknown", message, f"Check the region of the data. {hint}")

    def price_offers(self, offers: pd.DataFrame) -> Moves | None:
        """What moving the data to the machine of each of ``offers`` and the model back costs.

        None if it is not known where the data are. A model leaves the cloud of the machine at that provider's price.
        """
        if self.provider is None or not (self.data_gb or self.model_gb):
            return None
        home = (offers["provider"] == self.provider).to_numpy()
        # Without a region, data and machine in one cloud are taken to be in the same region.
        here = home if self.region is None else home & (offers["region"] == self.region).to_numpy()
        price = egress_price(self.provider)
        store_known = price is not None or self.usd_per_gb is not None
        rates = np.full(len(offers), self.usd_per_gb or 0.0)
        if price is not None and self.usd_per_gb is None:
            rates[:] = [price.towards(str(name), same_region=False) for name in offers["provider"]]
        back = {str(name): egress_price(str(name)) for name in offers["provider"].unique()}
        returns = {name: paid.towards(self.provider, same_region=False) if paid else 0.0 for name, paid in back.items()}
        returned = np.array([returns[str(name)] for name in offers["provider"]], dtype=float)
        machine_known = np.array([back[str(name)] is not None for name in offers["provider"]], dtype=bool)
        usd = np.where(here, 0.0, rates * self.data_gb + returned * self.model_gb)
        place = " ".join(filter(None, (self.provider, self.region)))
        return Moves(
            place=place, data_gb=self.data_gb, model_gb=self.model_gb, usd=usd, elsewhere=~here,
            store_known=store_known, machine_known=machine_known,
        )  # fmt: skip

    def _seconds(self, size_gb: float, records: Sequence[TransferRecord], way: str) -> tuple[float, float] | None:
        """Seconds to move ``size_gb`` gigabytes, and their half-width; None if the speed is not known.

        ``way`` is ``download`` or ``upload``.
        """
        if not size_gb:
            return 0.0, 0.0
        name = f"{way}_seconds_per_mb"
        rates = [rate for record in records if (rate := getattr(record, name)) is not None] or [getattr(self, name)]
        if None in rates:
            return None
        seconds = statistics.fmean(rates) * size_gb * MB_PER_GB
        # Half of the range of few records; a single record says nothing about the spread.
        seen = (max(rates) - min(rates)) / 2 * size_gb * MB_PER_GB
        return seconds, max(seen, SPREAD * seconds)

    def _add(
        self,
        estimate: MachineEstimate,
        durations: Mapping[str, tuple[float, float]],
        records: Sequence[TransferRecord],
    ) -> MachineEstimate:
        """``estimate`` with the ``durations`` (seconds and half-widths by name) and the egress price of the data."""
        runtime = estimate.runtime
        # Transfers happen once, so their squared half-widths add to the constant term of the closed form.
        square = math.fsum(width**2 for _, width in durations.values())
        low, high = ((side[0] + square, side[1], side[2]) for side in (runtime.low, runtime.high))
        terms = {name: (seconds, 0.0) for name, (seconds, _) in durations.items()}
        longer = replace(runtime, terms={**runtime.terms, **terms}, low=low, high=high)
        # With the provider of the data, the price depends on the region of the offer: :meth:`price_offers`.
        usd_per_gb = self.usd_per_gb if self.provider is None else 0.0
        if usd_per_gb is None:
            # Data that stays within a cloud costs nothing. Of several prices, the highest is the safe one.
            paid = [
                record.egress_usd_per_gb
                for record in records
                if record.setup.store is None or record.setup.store != estimate.provider
            ]
            usd_per_gb = max((price for price in paid if price is not None), default=0.0)
        return replace(estimate, runtime=longer, moving_usd=self.data_gb * usd_per_gb)
