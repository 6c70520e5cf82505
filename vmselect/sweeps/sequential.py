"""Sequential sweeps: which trials can still change the result, which cannot, and which are tied.

Trials are compared if all factors that do not determine their location are equal. They are compared by cost (by time
if none has a price) of a training of ``epochs`` epochs, or of one epoch of a long training. The published performance
figures of GPUs bound how much faster a machine can be than a measured machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect.catalog import gpu_specs
from vmselect.diagnosis import find_causes
from vmselect.errors import CatalogError, VmselectError
from vmselect.estimation import RuntimeModel, fit_runtime
from vmselect.grouping import check_comparable
from vmselect.intervals import Interval
from vmselect.records import Profile, load_records
from vmselect.sweeps.plan import Trial
from vmselect.units import cost_usd, format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.sweeps.journal import State

Key = tuple[tuple[str, Any], ...]
LOCATION = ("machine", "instance_type", "region", "market", "nodes")
"""Factors that determine where a trial runs; all other factors determine its work."""

MAX_ADDED = 3
"""Maximum number of repetitions that are added to a combination of factors of the plan."""

_WITHOUT_TENSOR_CORES = ("Kepler", "Maxwell", "Pascal")
"""Architectures without tensor cores: half precision is as fast as single precision, unless a rate is published."""

_WITHOUT_TF32 = (*_WITHOUT_TENSOR_CORES, "Volta", "Turing")
"""Architectures without TF32. Later ones by NVIDIA compute single precision at half the rate of half precision."""

_HARMLESS = ("gpu-memory-empty", "gpu-memory-full")
"""Codes of findings about GPU memory, which do not slow steps down."""


@dataclass(frozen=True)
class Figures:
    """Published performance of all GPUs of a trial in sum, and its number of vCPUs."""

    vendor: str
    gpus: float
    single_tflops: float
    half_tflops: float
    tf32_tflops: float | None
    memory_gb_per_second: float
    vcpus: float


def figures_of(trial: Trial, catalog: Catalog) -> Figures | None:
    """Published GPU figures of a trial, summed over its nodes; None without a GPU or published figures."""
    named = trial.instance_type
    if named is None:
        return None
    try:
        offers = catalog.offers(instance_type=named, market=None)
    except CatalogError:
        return None
    machines = offers[["gpu_model", "gpu_count", "vcpus"]].drop_duplicates()
    if len(machines) != 1:  # one name of two clouds, or none at all
        return None
    model, gpus, vcpus = machines.iloc[0]
    specs = gpu_specs()
    if model not in specs.index or not gpus > 0 or not vcpus > 0:
        return None
    row = specs.loc[model]
    single, half, memory = (
        float(value) if value is not None and math.isfinite(value) else None
        for value in (row["fp32_tflops"], row["fp16_tflops"], row["memory_gb_per_second"])
    )
    if half is None and row["architecture"] in _WITHOUT_TENSOR_CORES:
        half = single
    if single is None or half is None or memory is None or str(row["basis"]).startswith("assumed"):
        return None
    tf32 = max(single, half / 2) if row["vendor"] == "NVIDIA" and row["architecture"] not in _WITHOUT_TF32 else None
    one = Figures(str(row["vendor"]), 1.0, single, half, tf32, memory, vcpus * trial.nodes)
    return _times(one, gpus * trial.nodes)


def speed_up(measured: Figures, candidate: Figures) -> float | None:
    """Upper bound of the speed-up of ``candidate`` over ``measured``: the largest ratio of their figures, at least 1.

    Any figure may limit a training, or none (then all machines are equally fast), so the largest ratio is the bound.
    None for GPUs of different vendors, whose software differs.
    """
    if measured.vendor != candidate.vendor:
        return None
    names = ("single_tflops", "half_tflops", "memory_gb_per_second", "vcpus")
    ratios: list[float] = [getattr(candidate, name) / getattr(measured, name) for name in names]
    if candidate.tf32_tflops is not None:
        ratios.append(candidate.tf32_tflops / (measured.tf32_tflops or measured.single_tflops))
    return max(1.0, *ratios)


def figures_used(published: Figures | None, profiles: Sequence[Profile]) -> Figures | None:
    """Published figures of the GPUs that a measured training used; None if its times do not depend on GPUs.

    A training that used no GPU, or that input, CPU or other tenants limit, gives no bound for other machines. A
    training that used one of four GPUs is compared by the figures of one.
    """
    if published is None:
        return None
    for profile in profiles:
        if profile.environment.framework_gpus == 0 or any(c.code not in _HARMLESS for c in find_causes(profile)):
            return None
        if published.tf32_tflops is None and "bfloat16" in (profile.environment.precision or ""):
            return None  # these GPUs have no bfloat16 units, which later GPUs have
    used = min(published.gpus, min(profile.environment.replicas for profile in profiles))
    return _times(published, used / published.gpus)


def _times(one: Figures, gpus: float) -> Figures:
    names = ("gpus", "single_tflops", "half_tflops", "tf32_tflops", "memory_gb_per_second")
    scaled = {name: value * gpus for name in names if (value := getattr(one, name)) is not None}
    return replace(one, **scaled)


@dataclass(frozen=True)
class Standing:
    """A measured combination of factors: cost, lower bound of the time of its steps, and figures of the GPUs used."""

    name: str
    cost: Interval[float]
    steps_seconds: float
    used: Figures | None


@dataclass
class Sequential:
    """Orders the trials of one sweep and selects trials to skip, based on the records so far."""

    catalog: Catalog
    prices: Mapping[str, float]
    folder: Path
    epochs: int | None = None
    _figures: dict[Key, Figures | None] = field(default_factory=dict)
    _fitted: dict[tuple[str, ...], tuple[list[Profile], RuntimeModel] | None] = field(default_factory=dict)

    def arrange(
        self, queue: Sequence[Trial], trials: Iterable[Trial], state: State
    ) -> tuple[list[Trial], list[tuple[Trial, str]]]:
        """The trials of ``queue`` that may change the result, ordered; and those that cannot, each with the reason."""
        ranked: list[tuple[tuple[float, float], Trial]] = []
        hopeless: list[tuple[Trial, str]] = []
        groups = self._groups(trials)
        found = {work: self._standings(settings, state) for work, settings in groups.items()}
        for trial in queue:
            standings = found[work_of(trial)]
            priced = self._priced(groups[work_of(trial)])
            leader = min(standings.values(), key=lambda s: s.cost.high, default=None)
            own, price = standings.get(setting_of(trial)), self._price(trial, priced)
            if leader is None or price is None:
                published = self._published(trial)  # before the first is measured: by USD per hour and TFLOPS
                rate = (self.prices[trial.id] or 1.0) / published.single_tflops if published else math.inf
                ranked.append(((0.0, rate), trial))
                continue
            bound = None if own else self._bound(trial, price, standings.values())
            least = own.cost.low if own else bound[0] if bound else 0.0
            if least <= leader.cost.high:
                ranked.append(((2.0 if own else 1.0, least), trial))
                continue
            high = f"the training on {leader.name} was measured at {self._format(leader.cost.high, priced)} or less"
            if bound is None:
                reason = f"the training was measured at {self._format(least, priced)} or more"
            else:
                _, times, name = bound
                faster = "no faster than" if times == 1 else f"at most {times:.1f} times as fast as"
                reason = (
                    f"by the published figures of its GPUs its steps are {faster} those of {name}, so the training "
                    f"{'costs' if priced else 'takes'} at least {self._format(least, priced)}"
                )
            hopeless.append((trial, f"{reason}; {high}"))
        ranked.sort(key=lambda pair: pair[0])
        return [trial for _, trial in ranked], hopeless

    def to_repeat(self, trials: Iterable[Trial], state: State) -> list[tuple[Trial, str]]:
        """Trials to repeat, with the reason: the two cheapest combinations of factors of a group, if they are tied."""
        wanted = []
        for settings in self._groups(trials).values():
            standings = self._standings(settings, state)
            first_two = sorted(standings, key=lambda setting: standings[setting].cost.value)[:2]
            if len(first_two) < 2:
                continue
            ahead, behind = (standings[setting] for setting in first_two)
            if behind.cost.low > ahead.cost.high:
                continue
            fewest = min(len(settings[setting]) for setting in first_two)
            for setting in first_two:
                several = settings[setting]
                added = sum(trial.id in state.added for trial in several)
                if len(several) == fewest and added < MAX_ADDED:
                    wanted.append((several[0], f"{ahead.name} and {behind.name} are tied"))
        return wanted

    def _groups(self, trials: Iterable[Trial]) -> dict[Key, dict[Key, list[Trial]]]:
        groups: dict[Key, dict[Key, list[Trial]]] = {}
        for trial in trials:
            groups.setdefault(work_of(trial), {}).setdefault(setting_of(trial), []).append(trial)
        return groups

    def _standings(self, settings: Mapping[Key, Sequence[Trial]], state: State) -> dict[Key, Standing]:
        """The measured combinations of factors of a group; empty if their times cannot be compared."""
        priced = self._priced(settings)
        standings: dict[Key, Standing] = {}
        everything: list[Profile] = []
        for setting, several in settings.items():
            price = self._price(several[0], priced)
            files = tuple(sorted(file for trial in several for file in state.records.get(trial.id, ())))
            fitted = self._fit(files) if files else None
            if fitted is None or price is None:
                continue
            profiles, model = fitted
            everything += profiles
            seconds, steps = span(model, self.epochs)
            cost = Interval(*(cost_usd(end, price) for end in seconds))
            used = figures_used(self._published(several[0]), profiles)
            standings[setting] = Standing(location_of(several[0]), cost, steps, used)
        try:
            if everything:
                check_comparable(everything)
            return standings
        except VmselectError:
            return {}

    def _fit(self, files: tuple[str, ...]) -> tuple[list[Profile], RuntimeModel] | None:
        if files not in self._fitted:
            self._fitted[files] = None
            try:
                profiles = [r for r in load_records([self.folder / file for file in files]) if isinstance(r, Profile)]
                if profiles:
                    self._fitted[files] = (profiles, fit_runtime(profiles))
            except VmselectError:
                pass  # records that cannot be estimated are ignored
        return self._fitted[files]

    def _published(self, trial: Trial) -> Figures | None:
        setting = setting_of(trial)
        if setting not in self._figures:
            self._figures[setting] = figures_of(trial, self.catalog)
        return self._figures[setting]

    def _priced(self, settings: Mapping[Key, Sequence[Trial]]) -> bool:
        return any(self.prices[several[0].id] > 0 for several in settings.values())

    def _price(self, trial: Trial, priced: bool) -> float | None:
        """USD per hour of a trial; None if only other trials of its group have a price, so it cannot be compared."""
        return (self.prices[trial.id] or None) if priced else 1.0

    def _bound(self, trial: Trial, price: float, standings: Iterable[Standing]) -> tuple[float, float, str] | None:
        """Lower bound of a trial's cost, its maximum speed-up, and the measured machine to which that refers."""
        published = self._published(trial)
        bounds = [
            (cost_usd(known.steps_seconds / times, price), times, known.name)
            for known in standings
            if published and known.used and (times := speed_up(known.used, published)) is not None
        ]
        return max(bounds, key=lambda bound: bound[0], default=None)

    def _format(self, value: float, priced: bool) -> str:
        amount = format_usd(value) if priced else format_seconds(value * 3600)
        return amount + ("" if self.epochs else " an epoch")


def span(model: RuntimeModel, epochs: int | None) -> tuple[Interval[float], float]:
    """Seconds of a training (of a late epoch if ``epochs`` is None), and a lower bound of the seconds of its steps.

    The bound assigns the whole uncertainty to the steps.
    """
    if epochs is None:
        value = model.epoch_seconds + model.validation_seconds / model.validation_freq
        low, high = (math.sqrt(max(0.0, square[2])) for square in (model.low, model.high))
        seconds = Interval(value, max(min(value, model.certain[1]), value - low), value + high)
        steps = model.terms.get("steady_iterations", (0.0, 0.0))[1]
    else:
        estimate = model.at(epochs)
        seconds = Interval(estimate.seconds, estimate.low, estimate.high)
        steps = estimate.terms.get("steady_iterations", 0.0)
    return seconds, max(0.0, steps - (seconds.value - seconds.low))


def work_of(trial: Trial) -> Key:
    """Factors of the trial that do not determine its location."""
    return tuple((name, level) for name, level in trial.factors.items() if name not in LOCATION)


def setting_of(trial: Trial) -> Key:
    """All factors of the trial; equal for its repetitions."""
    return tuple(trial.factors.items())


def location_of(trial: Trial) -> str:
    """Location of the trial as text, for messages."""
    levels = [str(trial.factors[name]) for name in LOCATION if name in trial.factors]  # nodes last
    return " ".join([*levels, "nodes"] if "nodes" in trial.factors else levels) or "this machine"
