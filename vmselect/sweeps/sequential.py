"""Sequential sweeps: which trials can still change the result, which cannot, and which are tied.

Only trials that do the same work are compared: all factors but the location must be equal. They are compared by cost
(by time if nothing has a price) of a training of ``epochs`` epochs, or of one epoch of a long training. Published
figures of GPUs bound how much faster than a measured machine another one can be.
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
from vmselect.records import Profile
from vmselect.sweeps.engine import load_all
from vmselect.sweeps.plan import Trial
from vmselect.units import cost_usd, format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.sweeps.journal import State

Key = tuple[tuple[str, Any], ...]
LOCATION = ("machine", "instance_type", "region", "market", "nodes")
"""Factors that determine where a trial runs; all others determine its work."""

MAX_ADDED = 3
"""The most repetitions added to a setting beyond those in the plan."""

_WITHOUT_TENSOR_CORES = ("Kepler", "Maxwell", "Pascal")
"""If no rate of half precision is published, these compute it at the rate of single precision."""

_WITHOUT_TF32 = (*_WITHOUT_TENSOR_CORES, "Volta", "Turing")
"""NVIDIA's later architectures compute single precision on tensor cores too, at half the rate of half precision."""

_HARMLESS = ("gpu-memory-empty", "gpu-memory-full")
"""Findings about GPU memory, which slow no step down."""


@dataclass(frozen=True)
class Figures:
    """The published rates of all GPUs of one trial together, and its processors."""

    vendor: str
    gpus: float
    single_tflops: float
    half_tflops: float
    tf32_tflops: float | None
    memory_gb_per_second: float
    vcpus: float


def figures_of(trial: Trial, catalog: Catalog) -> Figures | None:
    """The figures of all nodes of a trial; None without a GPU, or if something is not published."""
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
    published = _read(specs.loc[model])
    return published and _times(replace(published, vcpus=vcpus * trial.nodes), gpus * trial.nodes)


def speed_up(measured: Figures, candidate: Figures) -> float | None:
    """How many times faster ``candidate`` can be at most: the best ratio of any of their figures, and at least 1.

    Any of them may limit a training, or none (then all machines are equally fast), so the greatest ratio is the bound.
    None between vendors, whose software differs.

    >>> t4 = Figures("NVIDIA", 1, 8.1, 65, None, 320, 4)
    >>> v100 = Figures("NVIDIA", 1, 15.7, 125, None, 900, 8)
    >>> speed_up(t4, v100), speed_up(v100, t4)
    (2.8125, 1.0)
    """
    if measured.vendor != candidate.vendor:
        return None
    names = ("single_tflops", "half_tflops", "memory_gb_per_second", "vcpus")
    ratios: list[float] = [getattr(candidate, name) / getattr(measured, name) for name in names]
    if candidate.tf32_tflops is not None:
        ratios.append(candidate.tf32_tflops / (measured.tf32_tflops or measured.single_tflops))
    return max(1.0, *ratios)


def figures_used(published: Figures | None, profiles: Sequence[Profile]) -> Figures | None:
    """The figures of the GPUs that a measured training used; None if its times do not depend on GPUs.

    A training that something else limits (input, processors, other tenants), or that used no GPU, could be any faster
    on another machine. One that used one GPU of four is compared by that one.
    """
    if published is None:
        return None
    for profile in profiles:
        if profile.environment.framework_gpus == 0 or any(c.code not in _HARMLESS for c in find_causes(profile)):
            return None
        if published.tf32_tflops is None and "bfloat16" in (profile.environment.precision or ""):
            return None  # computed by other means there than on later GPUs
    used = min(published.gpus, min(profile.environment.replicas for profile in profiles))
    return _times(published, used / published.gpus)


def _read(row: Any) -> Figures | None:
    """One GPU's row of the published figures, if it is complete and nothing in it is assumed."""
    single, half, memory = (
        None if value is None or not math.isfinite(value) else float(value)
        for value in (row["fp32_tflops"], row["fp16_tflops"], row["memory_gb_per_second"])
    )
    if half is None and row["architecture"] in _WITHOUT_TENSOR_CORES:
        half = single
    if single is None or half is None or memory is None or str(row["basis"]).startswith("assumed"):
        return None
    tf32 = max(single, half / 2) if row["vendor"] == "NVIDIA" and row["architecture"] not in _WITHOUT_TF32 else None
    return Figures(str(row["vendor"]), 1.0, single, half, tf32, memory, 0.0)


def _times(one: Figures, gpus: float) -> Figures:
    names = ("gpus", "single_tflops", "half_tflops", "tf32_tflops", "memory_gb_per_second")
    scaled = {name: value * gpus for name in names if (value := getattr(one, name)) is not None}
    return replace(one, **scaled)


@dataclass(frozen=True)
class Standing:
    """A measured setting: its cost, the least seconds of its steps, and the published figures of the GPUs it used."""

    name: str
    cost: Interval[float]
    steps_seconds: float
    used: Figures | None


@dataclass
class Sequential:
    """Orders and skips the trials of one sweep, based on the records so far."""

    catalog: Catalog
    prices: Mapping[str, float]
    folder: Path
    epochs: int | None = None
    _figures: dict[Key, Figures | None] = field(default_factory=dict)
    _fitted: dict[tuple[str, ...], tuple[list[Profile], RuntimeModel] | None] = field(default_factory=dict)

    def arrange(
        self, queue: Sequence[Trial], trials: Iterable[Trial], state: State
    ) -> tuple[list[Trial], list[tuple[Trial, str]]]:
        """The queue, ordered by what its trials may change, and the trials that cannot change anything, with why."""
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
                ranked.append(((0.0, self._usd_per_tflops(trial)), trial))
                continue
            bound = None if own else self._bound(trial, price, standings.values())
            least = own.cost.low if own else bound[0] if bound else 0.0
            if least <= leader.cost.high:
                ranked.append(((2.0 if own else 1.0, least), trial))
                continue
            high = f"{leader.name} was measured at no more than {self._format(leader.cost.high, priced)}"
            if bound is None:
                reason = f"it was measured at {self._format(least, priced)} or more"
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
        """A trial to repeat of each of the two cheapest settings of a group if they are tied, with why."""
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

    # -- measured settings

    def _groups(self, trials: Iterable[Trial]) -> dict[Key, dict[Key, list[Trial]]]:
        groups: dict[Key, dict[Key, list[Trial]]] = {}
        for trial in trials:
            groups.setdefault(work_of(trial), {}).setdefault(setting_of(trial), []).append(trial)
        return groups

    def _standings(self, settings: Mapping[Key, Sequence[Trial]], state: State) -> dict[Key, Standing]:
        """The measured settings of a group; none if their times cannot be compared."""
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
        except VmselectError:
            return {}
        return standings

    def _fit(self, files: tuple[str, ...]) -> tuple[list[Profile], RuntimeModel] | None:
        if files not in self._fitted:
            self._fitted[files] = None
            try:
                profiles = [r for r in load_all(self.folder, list(files)) if isinstance(r, Profile)]
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

    # -- bounds and reasons

    def _priced(self, settings: Mapping[Key, Sequence[Trial]]) -> bool:
        return any(self.prices[several[0].id] > 0 for several in settings.values())

    def _price(self, trial: Trial, priced: bool) -> float | None:
        """USD per hour; a machine without a price is not compared with those that have one."""
        if not priced:
            return 1.0
        return self.prices[trial.id] or None

    def _usd_per_tflops(self, trial: Trial) -> float:
        """USD per published TFLOPS: the order before anything is measured."""
        published = self._published(trial)
        return math.inf if published is None else (self.prices[trial.id] or 1.0) / published.single_tflops

    def _bound(self, trial: Trial, price: float, standings: Iterable[Standing]) -> tuple[float, float, str] | None:
        """The lowest possible cost, how many times faster it is at most, and the measured machine that bounds it."""
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
    """The seconds of a training, or of a late epoch without ``epochs``, and the least that steps take of it.

    The whole uncertainty is assigned to the steps, as if no other term had any.
    """
    if epochs is None:
        value = model.epoch_seconds + model.validation_seconds / model.validation_freq
        low, high = (math.sqrt(max(0.0, square[2])) for square in (model.low, model.high))
        seconds = Interval(value, max(0.0, value - low), value + high)
        steps = model.terms.get("steady_iterations", (0.0, 0.0))[1]
    else:
        estimate = model.at(epochs)
        seconds = Interval(estimate.seconds, estimate.low, estimate.high)
        steps = estimate.terms.get("steady_iterations", 0.0)
    return seconds, max(0.0, steps - (seconds.value - seconds.low))


def work_of(trial: Trial) -> Key:
    """The factors of what the trial does."""
    return tuple((name, level) for name, level in trial.factors.items() if name not in LOCATION)


def setting_of(trial: Trial) -> Key:
    """All factors, which repetitions of a trial share."""
    return tuple(trial.factors.items())


def location_of(trial: Trial) -> str:
    """The location of the trial, for messages."""
    levels = [
        f"{trial.factors[name]}{' nodes' if name == 'nodes' else ''}" for name in LOCATION if name in trial.factors
    ]
    return " ".join(levels) or "this machine"
