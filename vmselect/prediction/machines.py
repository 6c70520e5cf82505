"""Predicted step times of machine types (``predict``): read profiles, predict, and refuse what cannot be predicted.

A work is the computation of a training step: model, batch size, software settings and varied factors. If its
operations are known (``Profile.work``), no probe is needed: the basis of the prediction is then ``described``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from vmselect._checks import check_count, check_name, check_number, list_items, maybe, several, show, suggest_arguments
from vmselect.catalog import Catalog
from vmselect.catalog.gpus import GpuFigures, Precision, figures_of, gpu_vendor, read_precision
from vmselect.diagnosis.causes import NEGLIGIBLE_WAIT, Kind, find_host_limit
from vmselect.errors import ArgumentError, EstimateError
from vmselect.estimation.readings import locate
from vmselect.findings import Finding
from vmselect.prediction.cautions import explain_interval, find_cautions, is_interval_only
from vmselect.prediction.hardware import (
    CONTRADICTORY,
    NO_FIGURES,
    Machine,
    MachineTypes,
    MemoryCheck,
    Refusal,
    examples_per_gpu,
    read_gpu,
)
from vmselect.prediction.posterior import CONSTANTS, Computation, Floats, Point, Posterior, Target, predict_log_times
from vmselect.prediction.roofline import StepCost
from vmselect.records import Profile, Record
from vmselect.records.identity import (
    check_comparable,
    group_repetitions,
    list_values,
    model_key,
    read_records,
    work_key,
)
from vmselect.records.step_times import step_seconds, typical_step_seconds
from vmselect.units import list_some

RUN_SPREAD = 0.03
"""Standard deviation of log step time between two runs on machines of one type, as for total times of trainings."""
CONTRADICTION = 2.0
"""Ratio of two step times of the same computation on one machine type above which records contradict each other."""
LEAST_WAIT = 0.02
"""Share of the step time below which waiting for data is ignored, because every fetch of a batch takes some time."""
SHORT_SECONDS = CONSTANTS.short_seconds
COLUMNS = ("instance_type", "step_seconds", "low", "high", "basis", "reason")
NEVER_PROBED, OTHER_VENDOR, INPUT_BOUND, NO_STEPS = "never_probed", "other_vendor", "input_bound", "no_steps"
SHARED_GPU, NO_GPU_SOLD, NO_COST = "share_of_gpu", "no_gpu", "no_cost"
DESCRIBED_VENDOR = "NVIDIA"
"""The constants of the roofline were fitted to GPUs of this vendor only."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction:
    """Predicted step time of one machine type: a column of the joint posterior of all predicted machines."""

    machine: Machine
    posterior: Posterior = field(repr=False)
    column: int
    nearest: int | None
    """Index of the usable probe whose step time is nearest to the predicted step time; None if the prediction uses a
    description and no probe."""
    gpus: int = 1
    """Number of GPUs of the machine that the training uses."""
    scaling_sd: float = 0.0
    """Additional standard deviation of the log time on several GPUs, which the posterior does not contain."""
    precision: Precision = "single"
    probed_seconds: float = 0.0
    """Seconds per step of the nearest probe."""
    wait_share: float = 0.0
    """Share of ``probed_seconds`` in which a step waited for its data; a faster GPU does not shorten this wait."""
    input_seconds: float = 0.0
    """Seconds per step in which a probe without a GPU waited for its data: no machine is predicted to be faster."""
    cost: StepCost | None = field(default=None, repr=False)
    """Operations of the step, if it was described."""

    @property
    def basis(self) -> Literal["described", "predicted"]:
        """``described`` if no probe of the training was used, only its description; else ``predicted``."""
        return "described" if self.nearest is None else "predicted"

    @cached_property
    def launch_share(self) -> float:
        """Share of the step that the host spends on starting operations; 0 if the training was not described."""
        figures = figures_of(self.machine.gpu_model)
        if self.cost is None or figures is None:
            return 0.0
        return self.cost.roofline(figures, self.precision).launch_share

    @property
    def interval_only(self) -> bool:
        """Whether only the interval should be shown, because a single number would be misleading."""
        return self.nearest is None and is_interval_only(self.seconds, self.launch_share)

    @property
    def cautions(self) -> list[Finding]:
        """Findings about the prediction, if it uses a description and no probe."""
        return find_cautions(self.cost, self.seconds, self.launch_share) if self.cost and self.nearest is None else []

    @property
    def seconds(self) -> float:
        """Predicted seconds per step."""
        return float(self._keep_wait(np.exp(self.posterior.mean[self.column])))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Lower and upper bound of the seconds per step."""
        ends = self.posterior.interval(confidence, self.column)
        low, high = (float(self._keep_wait(np.exp(end))) for end in ends)
        # If the input was prepared in parallel and limited the steps already, a faster GPU gains nothing.
        return low, max(high, self.probed_seconds) if self.wait_share >= NEGLIGIBLE_WAIT else high

    def factors(self, count: int, *, seed: int = 0) -> Floats:
        """Random draws of the step time relative to ``seconds``. Machines drawn with the same seed are correlated."""
        draws = self.posterior.draws(count, seed=seed)[:, self.column]
        return np.asarray(self._keep_wait(np.exp(self.posterior.mean[self.column] + draws)) / self.seconds)

    def _keep_wait(self, seconds: Floats) -> Floats:
        """Correct those predicted ``seconds`` that are shorter than ``probed_seconds``.

        A faster GPU does not shorten the time that a step of the probe waited for its data, only the rest of the step.
        """
        waited = self.wait_share * self.probed_seconds + (1 - self.wait_share) * seconds
        return np.maximum(self.input_seconds, np.where(seconds < self.probed_seconds, waited, seconds))


class Probe(NamedTuple):
    """Profiles of the same computation on one machine type, and its step time.

    ``seconds`` is None if the profiles contain no step times.
    """

    instance_type: str
    provider: str | None
    seconds: float | None
    profiles: tuple[Profile, ...]
    batch_size: int | None


def host_bound(profiles: Iterable[Profile]) -> Kind | None:
    """Kind of the first cause by which CPU or input limits the steps; None if no profile shows such a cause.

    The time of such steps does not show the speed of the GPU.
    """
    return next((cause.kind for profile in profiles if (cause := find_host_limit(profile))), None)


def read_wait_share(profiles: Iterable[Profile]) -> float:
    """Share of the step time in which the steps of a probe waited for their data; 0 if small or not recorded."""
    waits = [profile.timeline.input_wait for profile in profiles]
    shares = [wait.share for wait in waits if wait is not None and wait.wall_seconds]
    share = statistics.median(shares) if shares else 0.0
    return share if share >= LEAST_WAIT else 0.0


def read_history(records: Iterable[Profile], types: MachineTypes) -> list[Point]:
    """Measured step times (points) of the usable records. Repetitions become one point, their median.

    Records with neither a model name nor a number of parameters, records of several GPUs, and records of steps that
    are limited by CPU or input are left out. All points of a work have the description of any of its records.
    """
    grouped: dict[tuple[Hashable, Hashable, Target], list[float]] = {}
    costs: dict[Hashable, StepCost] = {}
    for profile in records:
        seconds, gpu = step_seconds(profile), read_gpu(profile, types)
        named = profile.model is not None or profile.setup.parameters is not None
        if not seconds or not named or not isinstance(gpu, GpuFigures) or host_bound([profile]):
            continue
        target = Target(gpu, read_training_precision(profile), profile.instance_type)
        work = work_key(profile, profile.batch_size)
        grouped.setdefault((model_key(profile), work, target), []).append(math.log(seconds))
        if work not in costs and gpu.vendor == DESCRIBED_VENDOR and (cost := read_cost([profile], profile.batch_size)):
            costs[work] = cost
    return [
        Point(model, work, target, statistics.median(times), RUN_SPREAD, costs.get(work))
        for (model, work, target), times in grouped.items()
    ]


def read_cost(profiles: Iterable[Profile], batch_size: int | None) -> StepCost | None:
    """Operations of a step at ``batch_size``, from the first of ``profiles`` that describes it; None if none does."""
    for profile in profiles:
        work = profile.work
        same = profile.batch_size == batch_size or batch_size is None
        if work is not None and work.operations.kind and same and work.batch_size == examples_per_gpu(profile):
            return StepCost.of(work)
    return None


def read_training_precision(profile: Profile) -> Precision:
    """Precision class in which most products of a training are computed.

    torch computes convolutions of float32 in TF32, but not other products, unless a program asks for something else.
    """
    precision, work = read_precision(profile.environment.precision), profile.work
    if precision != "single" or work is None:
        return precision
    settings = profile.environment
    return "strict" if (settings.tf32 if work.matrix_share > 0.5 else settings.convolution_tf32) is False else precision


class Predictor:
    """Predicts step times of machine types for the computation that some machines were probed with.

    ``described`` are further profiles of the computation that need no usable times, such as that of ``vs.describe``. If
    they or the probes contain a description, machines are predicted even without any usable probe.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        types: MachineTypes,
        history: Sequence[Point] = (),
        described: Sequence[Profile] = (),
    ) -> None:
        self.types, self.history = types, history
        self.refused: dict[int, Refusal] = {}
        """Reasons why probes cannot be used, by the index of the probe."""
        self._points: dict[int, Point] = {}
        for number, probe in enumerate(probes):
            point = _read_probe(probe, types)
            if isinstance(point, Point):
                self._points[number] = point
            else:
                self.refused[number] = point
        self.probes = probes
        sizes = {probe.batch_size for probe in probes} or {profile.batch_size for profile in described}
        self._profiles = [*(profile for probe in probes for profile in probe.profiles), *described]
        misled = not self._points and any(refusal.misleading for refusal in self.refused.values())
        self.cost = None if misled else read_cost(self._profiles, next(iter(sizes), None))
        """Operations of the computation, if any profile describes it."""

    @property
    def short(self) -> bool:
        """Whether a usable probe has steps so short that their time depends on the host more than on the GPU."""
        return any(math.exp(point.log_seconds) < SHORT_SECONDS for point in self._points.values())

    def predict(self, machines: Sequence[Machine]) -> list[Prediction | Refusal]:
        """Prediction of the step time of each machine type, or a refusal with the reason."""
        results: dict[int, Prediction | Refusal] = {}
        by_vendor: dict[str, list[tuple[int, GpuFigures]]] = {}
        for position, machine in enumerate(machines):
            gpu = self._check(machine)
            if isinstance(gpu, Refusal):
                results[position] = gpu
            else:
                by_vendor.setdefault(gpu.vendor, []).append((position, gpu))
        for vendor, targets in by_vendor.items():
            here = [(machines[position], gpu) for position, gpu in targets]
            for (position, _), prediction in zip(targets, self._predict(vendor, here), strict=True):
                results[position] = prediction
        return [results[position] for position in range(len(machines))]

    def _predict(self, vendor: str, machines: Sequence[tuple[Machine, GpuFigures]]) -> list[Prediction]:
        """Predictions of ``machines``, which all have GPUs of ``vendor``."""
        mine = {number: p for number, p in self._points.items() if p.target.figures.vendor == vendor}
        points = [p for p in self.history if p.target.figures.vendor == vendor]
        cost = self.cost if vendor == DESCRIBED_VENDOR else None
        # All probes of one work have one precision, apart from software that differs, which is a finding.
        # Repetitions may name their model differently, but rank compares them as one training.
        first = next(iter(mine.values()), None)
        computation, precision = self._computation(first, cost)
        hardware = [Target(gpu, precision, machine.instance_type) for machine, gpu in machines]
        same_work = [p._replace(model=computation.model, work=computation.work, cost=cost) for p in mine.values()]
        posterior = predict_log_times(same_work, hardware, history=points, computation=computation)
        if not mine:
            waited = self._input_seconds()
            return [
                Prediction(
                    machine=machine, posterior=posterior, column=column, nearest=None, precision=precision,
                    input_seconds=waited, cost=cost,
                )
                for column, (machine, _) in enumerate(machines)
            ]  # fmt: skip
        numbers, times = list(mine), np.array([p.log_seconds for p in mine.values()])
        waits = {number: read_wait_share(self.probes[number].profiles) for number in mine}
        nearest = np.abs(posterior.mean[:, None] - times[None, :]).argmin(axis=1)
        return [
            Prediction(
                machine=machine, posterior=posterior, column=column, nearest=numbers[nearest[column]],
                precision=precision, cost=cost, probed_seconds=math.exp(mine[numbers[nearest[column]]].log_seconds),
                wait_share=waits[numbers[nearest[column]]],
            )
            for column, (machine, _) in enumerate(machines)
        ]  # fmt: skip

    def _computation(self, first: Point | None, cost: StepCost | None) -> tuple[Computation, Precision]:
        """What is predicted, and its precision: that of the probe ``first``, or of the description without a probe."""
        if first is not None:
            return Computation(first.model, first.work, cost), first.target.precision
        profile = next(profile for profile in self._profiles if profile.work is not None)
        size = examples_per_gpu(profile)
        precision = read_training_precision(profile)
        return Computation(model_key(profile), work_key(profile, size), cost), precision

    def _input_seconds(self) -> float:
        """Seconds per step in which probes without a GPU waited for their data; 0 if this is not recorded.

        The time of their steps says nothing about GPUs, but a GPU does not shorten the wait for data.
        """
        waits = [profile.timeline.input_wait for profile in self._profiles]
        times = [w.seconds / w.steps for w in waits if w is not None and w.steps and w.share >= LEAST_WAIT]
        return statistics.median(times) if times else 0.0

    def _check(self, machine: Machine) -> GpuFigures | Refusal:
        name, gpu = machine.instance_type, machine.gpu_model
        if machine.gpu_count <= 0 or not gpu:
            return Refusal(NO_GPU_SOLD, f"{name} has no GPU, so its speed cannot be predicted; probe {name} itself")
        if machine.gpu_count < 1:
            problem = f"{name} has only a share of a GPU ({machine.gpu_count:.2g} x {gpu})"
            return Refusal(SHARED_GPU, f"{problem}, which has no published figures; probe {name} itself")
        if not self._points and self.cost is None:
            return self._why_none(machine)
        figures, vendor = figures_of(gpu), gpu_vendor(gpu)
        probed = {point.target.figures.vendor for point in self._points.values()}
        vendors = sorted(probed | ({DESCRIBED_VENDOR} if self.cost else set()))
        if vendor is not None and vendor not in vendors:
            what = "the probed GPUs are of" if self._points else "a description predicts only GPUs of"
            problem = f"{what} {list_some(vendors, 3)}, but {gpu} is of {vendor}"
            return Refusal(OTHER_VENDOR, f"{problem}; probe {name} or another machine with a GPU of {vendor}")
        if figures is None:
            return Refusal(NO_FIGURES, f"the GPU {gpu} has no published figures; probe {name} itself")
        return figures

    def _why_none(self, machine: Machine) -> Refusal:
        """The reason why no probe can be used: that of the first probe in the order of instance types."""
        if not self.probes and self._profiles:
            problem = "the operations of the training could not be counted"
            return Refusal(NO_COST, f"{problem}; probe a machine with one NVIDIA GPU, such as g4dn.xlarge")
        if not self.refused:
            return Refusal(NEVER_PROBED, f"no machine was probed at this batch size; probe {machine.instance_type}")
        first = min(self.refused, key=lambda number: (self.probes[number].instance_type, self.refused[number]))
        return self.refused[first]


def _read_probe(probe: Probe, types: MachineTypes) -> Point | Refusal:
    """The measured step time of a probe as a point, or a refusal with the reason why it cannot be used."""
    name = probe.instance_type
    for profile in probe.profiles:
        gpu = read_gpu(profile, types)
        if isinstance(gpu, Refusal):
            return gpu
    bound = host_bound(probe.profiles)
    if bound is not None:
        problem = f"the steps on {name} are limited by its CPU or input ({bound}), not by its GPU"
        remedy = "speed up the input, or probe a machine with more vCPUs"
        return Refusal(INPUT_BOUND, f"{problem}; {remedy}", misleading=True)
    times = [seconds for profile in probe.profiles if (seconds := step_seconds(profile))]
    if times and max(times) > CONTRADICTION * min(times):
        problem = f"the step times in the records of {name} differ by a factor of {max(times) / min(times):.2g}"
        return Refusal(CONTRADICTORY, f"{problem}; remove wrong records, or probe {name} again", misleading=True)
    if not probe.seconds:
        return Refusal(NO_STEPS, f"the records of {name} contain no step times; probe {name} with IterationProbe")
    first = probe.profiles[0]
    figures = read_gpu(first, types)
    assert isinstance(figures, GpuFigures)
    target = Target(figures, read_training_precision(first), name)
    key = work_key(first, probe.batch_size)
    return Point(model_key(first), key, target, math.log(probe.seconds), RUN_SPREAD)


def choose_machines(
    types: MachineTypes,
    *,
    names: Sequence[str] | None = None,
    regions: Sequence[str] = (),
    markets: Sequence[str] | None = None,
    include_retired: bool = False,
    provider: Sequence[str] | None = None,
    gpu: Sequence[str] | None = None,
) -> list[Machine]:
    """Machine types with an offer that matches all filters and the restrictions of the catalog.

    ``names`` are instance types, with or without a GPU; if it is None, all machine types with a GPU are considered. An
    empty ``regions``, and None for any other filter, matches all.
    """
    offers = types.catalog.offers(
        market=list(markets) if markets is not None else None, region=list(regions) or None,
        provider=list(provider) if provider else None, gpu=list(gpu) if gpu else None,
        retired=None if include_retired or types.catalog.retired else False,
    )  # fmt: skip
    fits = np.ones(len(offers), dtype=bool)
    if names is None:
        fits &= offers["gpu_count"].to_numpy(dtype=float) > 0
    else:
        fits &= offers["instance_type"].isin(names).to_numpy()
    sold = offers.loc[fits, ["instance_type", "provider"]].drop_duplicates()
    pairs = {(str(name), str(seller)) for name, seller in sold.itertuples(index=False)}
    machines = (machine for name in sorted(types.by_name) for machine in types.by_name[name])
    return [machine for machine in machines if (machine.instance_type, machine.provider) in pairs]


@suggest_arguments()
def predict(
    profiles: Profile | Iterable[Profile],
    *,
    machines: Literal["catalog", "all"] | str | Iterable[str] = "catalog",
    history: Iterable[Record] = (),
    batch_size: int | None = None,
    catalog: Catalog | None = None,
    confidence: float = 0.9,
) -> pd.DataFrame:
    """Seconds per step of machine types, with intervals: measured for probed machines, predicted for all others.

    >>> import vmselect as vs
    >>> probe = vs.Profile.from_times(instance_type="g4dn.xlarge", batch_size=256, iteration_seconds=[0.20] * 10)
    >>> times = vs.predict(probe, machines=["g4dn.xlarge", "g5.xlarge", "c5.large"])
    >>> list(times["basis"])
    ['measured', 'predicted', None]

    A profile of ``vs.describe`` needs no probe: its times have the basis ``described``. Where they are too uncertain
    for a single number, ``step_seconds`` is missing and ``reason`` states why; ``low`` and ``high`` are valid.

    ``machines`` are names of instance types, or ``"catalog"`` (also ``"all"``) for all machine types with a GPU.
    ``history`` are records of other trainings on several GPUs, which narrow the intervals. If the time of a machine
    cannot be predicted, or its GPU has too little memory, the column ``reason`` states why and what would help. The
    times are those of one GPU. The method and its limits are described in docs/explanation/prediction.md.
    """
    listed = read_records(profiles, Profile, error=EstimateError)
    confidence = check_number("confidence", confidence, least=0.5, most=0.999)
    size = maybe(check_count, "batch_size", batch_size)
    asked = [profile for profile in listed if size is None or profile.batch_size == size]
    chosen = [profile for profile in asked if profile.instance_type]
    described = [profile for profile in asked if profile.work is not None]
    if not chosen and not described:
        fact = "names its instance type" if size is None else f"is of batch size {size} and names its instance type"
        raise EstimateError(
            f"No profile {fact}. Probe again at the batch size of your training, and pass instance_type= to the probe."
        )
    sizes = {profile.batch_size for profile in chosen or described}
    if len(sizes) > 1:
        raise ArgumentError(f"The profiles have the batch sizes {list_values(sizes)}. Pass batch_size= to choose one.")
    if chosen:
        check_comparable(chosen, error=EstimateError)
    if not isinstance(catalog, Catalog | None):
        raise ArgumentError(f"catalog is {show(catalog)}. Pass a catalog, such as vmselect.Catalog.load(path).")
    types = MachineTypes(Catalog.default() if catalog is None else catalog)
    probes = [_as_probe(group) for group in group_repetitions(chosen).values()]
    probes.sort(key=lambda probe: (probe.instance_type, probe.provider or ""))
    # Profiles of other batch sizes are history too: they show how this model runs on their GPUs.
    records = [*read_profiles(history), *listed]
    predictor = Predictor(probes, types, read_history(records, types), described)
    measured = {probe.instance_type: _measured(probe, confidence) for probe in probes}

    if isinstance(machines, str) and machines in ("catalog", "all"):
        names = None
    else:
        names = several(check_name, "machines", machines)
    # Who names a machine type may rent it although the provider calls it retired.
    selected = choose_machines(types, names=names, include_retired=names is not None)
    others = [machine for machine in selected if machine.instance_type not in measured]
    rows: dict[str, dict[str, Any]] = {name: row for name, row in measured.items() if names is None or name in names}
    memory, examples = MemoryCheck(listed, types), sizes.pop()
    for machine, result in zip(others, predictor.predict(others), strict=True):
        fits = memory.check(machine, examples) if examples and isinstance(result, Prediction) else None
        if isinstance(fits, Refusal):
            row = _row(machine.instance_type, reason=fits.reason)
        elif isinstance(result, Prediction):
            row = _predicted(result, confidence)
        else:
            row = _row(machine.instance_type, reason=result.reason)
        rows.setdefault(machine.instance_type, row)
    for name in names or ():
        rows.setdefault(
            name, _row(name, reason="the catalog does not contain this machine; add it with Catalog.with_offers")
        )
    ordered = sorted(rows) if names is None else dict.fromkeys(names)
    frame = pd.DataFrame([rows[name] for name in ordered], columns=list(COLUMNS))
    return (
        frame.astype({"basis": object, "reason": object})
        .where(frame.notna(), other=None)
        .astype({"step_seconds": float, "low": float, "high": float})
    )


def read_profiles(history: Any) -> list[Profile]:
    """The profiles among the records of ``history``; records of other kinds contain no step times."""
    if isinstance(history, (str, bytes)):
        raise ArgumentError(f"history is {show(history)}. Load records with vmselect.load_profiles(folder).")
    records = [history] if isinstance(history, Record) else list_items(history)
    for record in records:
        if not isinstance(record, Record):
            raise ArgumentError(f"history contains {show(record)}. Load records with vmselect.load_profiles(folder).")
    return read_records([record for record in records if isinstance(record, Profile)], Profile, error=None)


def _as_probe(group: list[Profile]) -> Probe:
    first = group[0]
    seconds = typical_step_seconds(group)
    return Probe(first.instance_type or "", first.provider, seconds, tuple(group), first.batch_size)


def _measured(probe: Probe, confidence: float) -> dict[str, Any]:
    if probe.seconds is None:
        return _row(probe.instance_type, reason="its records contain no step times; probe it with IterationProbe")
    steady = [seconds for profile in probe.profiles for seconds in profile.timeline.steps.steady_seconds]
    level = locate(steady or [probe.seconds], confidence=confidence)
    low, high = max(0.0, probe.seconds - level.half_width_below), probe.seconds + level.half_width_above
    return _row(probe.instance_type, probe.seconds, low, high, basis="measured")


def _predicted(prediction: Prediction, confidence: float) -> dict[str, Any]:
    low, high = prediction.interval(confidence)
    name, basis = prediction.machine.instance_type, prediction.basis
    if prediction.interval_only:  # a number would be misleading
        return _row(name, None, low, high, basis=basis, reason=explain_interval(prediction.launch_share))
    return _row(name, prediction.seconds, low, high, basis=basis)


def _row(
    name: str,
    seconds: float | None = None,
    low: float | None = None,
    high: float | None = None,
    *,
    basis: str | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    return dict(zip(COLUMNS, (name, seconds, low, high, basis, reason), strict=True))
