"""Sequential sweeps: decides which trial to run next, which trials to skip, and which tied trials to repeat.

Trials form a group if they do the same work: they differ only in factors that determine where they run. The trials of a
group are compared by the cost (or the time, if none has a price) of a training of ``epochs`` epochs. If ``epochs`` is
None, they are compared by the cost or time per epoch of a very long training. The times of machines that were not
measured yet are predicted. The order follows :mod:`vmselect.ranking.next_probe`. A "setting" is one combination of
factors, whatever the repetition.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from vmselect.catalog.gpus import figures_of
from vmselect.errors import VmselectError
from vmselect.estimation import RuntimeModel, fit_runtime
from vmselect.prediction.hardware import Machine, MachineTypes
from vmselect.prediction.machines import read_history
from vmselect.prediction.posterior import Point
from vmselect.ranking.candidates import Candidates
from vmselect.ranking.estimates import MachineEstimate
from vmselect.ranking.next_probe import PossibleProbe, default_regret, rank_probes, relative_regret
from vmselect.ranking.options import ALL, Settings
from vmselect.ranking.predicted import predict_estimates
from vmselect.ranking.result import Ranking
from vmselect.ranking.views import HORIZON
from vmselect.records import Profile, load_records
from vmselect.records.identity import check_comparable
from vmselect.sweeps.plan import Level, Trial
from vmselect.units import format_chance, format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.sweeps.journal import State

Key = tuple[tuple[str, Level], ...]
Order = tuple[int, float]
Group = Mapping[Key, Sequence[Trial]]
"""Trials that do the same work: each setting with its repetitions."""

LOCATION = ("machine", "instance_type", "region", "market", "nodes")
"""Factors that determine where a trial runs; all other factors determine its work."""

HARDWARE = ("machine", "instance_type", "nodes")
"""Factors that determine the time of a trial; region and market determine only its price."""

# A tie that three more measurements do not break is a matter of a few percent, for which no more money is spent.
MAX_ADDED = 3
"""Largest number of repetitions that are added for a combination of factors."""

# What cannot be predicted comes first: only its measurement informs about it, and improves the predictions.
ANYWAY, PREDICTED, REPEATED = range(3)
"""Order of trials: first those whose time cannot be predicted, then predicted ones, then repetitions."""


@dataclass(frozen=True)
class Comparison:
    """A ranking of the measured and predicted settings of a group, and the position of each setting in it."""

    ranking: Ranking
    position: Mapping[Key, int]
    names: Sequence[str]
    epochs: int
    is_priced: bool

    @property
    def best(self) -> int:
        """Position of the setting with the lowest expected cost or time."""
        return int(self.ranking.assessment.order[0][0])

    def chance(self, at: int) -> float:
        """Return the probability that the setting at the position ``at`` is the best one."""
        return float(self.ranking.assessment.chance[at, 0])

    def is_measured(self, at: int) -> bool:
        """Return whether the machine of the setting at the position ``at`` was measured."""
        return self.ranking.candidates.of(at).basis == "measured"

    def find_tie(self) -> tuple[int, ...]:
        """Return the positions of the best setting and of its most probable rival on another machine.

        Return an empty tuple if no setting on another machine is tied with the best one.
        """
        machine, tied = self.ranking.candidates.machine_estimate, self.ranking.assessment.tied[:, 0]
        rivals = [int(at) for at in np.flatnonzero(tied) if machine[at] != machine[self.best]]
        return (self.best, max(rivals, key=self.chance)) if rivals else ()


@dataclass
class Sequential:
    """Orders the trials of one sweep and selects trials to skip, based on the records so far.

    ``history`` contains records of other trainings, which improve the predictions. Trials are skipped when the expected
    regret (the expected extra cost or time of the chosen machine over the best one, as a fraction) is below
    ``enough_regret`` (default: 2 % with a history, 5 % without).
    """

    catalog: Catalog
    prices: Mapping[str, float]
    folder: Path
    epochs: int | None = None
    history: Sequence[Profile] = ()
    enough_regret: float | None = None
    _read: dict[str, tuple[Profile, ...]] = field(default_factory=dict)
    _fitted: dict[tuple[str, ...], RuntimeModel | None] = field(default_factory=dict)
    _points: tuple[Collection[str], list[Point]] = ((), [])
    _compared: dict[tuple[Key, bool], tuple[object, Comparison | None]] = field(default_factory=dict)

    def arrange(
        self, queue: Sequence[Trial], trials: Iterable[Trial], state: State
    ) -> tuple[list[Trial], list[tuple[Trial, str]]]:
        """Return the trials of ``queue`` to run, in order, and the trials to skip, each with the reason."""
        waiting = self._groups(queue)
        ordered: list[tuple[Order, Trial]] = []
        skipped: list[tuple[Trial, str]] = []
        for work, settings in self._groups(trials).items():
            if work in waiting:
                kept, others = self._decide(work, settings, waiting[work], state)
                ordered += kept
                skipped += others
        ordered.sort(key=lambda pair: pair[0])
        return [trial for _, trial in ordered], skipped

    def to_repeat(self, trials: Iterable[Trial], state: State) -> list[tuple[Trial, str]]:
        """Return the trials to repeat, each with the reason.

        If settings of a group on different machines are tied, two of them are candidates: the best one, and the tied
        one on another machine with the highest probability of being the best. The candidate with fewer trials is
        repeated, or both if they have equally many. At most :data:`MAX_ADDED` repetitions of a setting are added.
        """
        repeats = []
        for work, settings in self._groups(trials).items():
            comparison = self._compare(work, settings, (), state)
            tied = comparison.find_tie() if comparison else ()
            if not comparison or not tied:
                continue
            chances = " and ".join(f"{comparison.names[at]} ({format_chance(comparison.chance(at))})" for at in tied)
            tied_trials = [
                repetitions for setting, repetitions in settings.items() if comparison.position.get(setting) in tied
            ]
            fewest = min(len(repetitions) for repetitions in tied_trials)
            for repetitions in tied_trials:
                added = sum(trial.id in state.added for trial in repetitions)
                if len(repetitions) == fewest and added < MAX_ADDED:
                    repeats.append(
                        (repetitions[0], f"these are tied, with the probability of being the best: {chances}")
                    )
        return repeats

    def _decide(
        self, work: Key, settings: Group, waiting: Group, state: State
    ) -> tuple[list[tuple[Order, Trial]], list[tuple[Trial, str]]]:
        """Return the waiting trials of a group with their order, and the trials to skip with the reason."""
        running = {
            setting
            for setting, repetitions in settings.items()
            if any(state.status_of(trial.id) in ("starting", "running") for trial in repetitions)
        }
        pending = [setting for setting in settings if setting in waiting or setting in running]
        comparison = self._compare(work, settings, pending, state)
        probes: dict[int, PossibleProbe] = {}
        if comparison:
            probes = {
                probe.candidate: probe
                for probe in rank_probes(comparison.ranking, seconds=_paid_seconds(settings, state))
            }
        enough = comparison is not None and self._is_enough(comparison, probes.values())
        # A predicted machine may be the choice, but the sweep goes on until that choice has been measured.
        stop = enough and comparison is not None and comparison.is_measured(comparison.best)
        # Trials of tied machines are kept after that: their repetitions may break the tie.
        tied: Collection[int] = ()
        if comparison and stop and (measured := self._compare(work, settings, (), state)):
            named = {at: setting for setting, at in measured.position.items()}
            tied = [comparison.position[named[at]] for at in measured.find_tie()]
        # A machine that can only be measured may still tie with a measured one, which then needs its repetitions.
        unknown = comparison is not None and any(setting not in comparison.position for setting in pending)
        kept: list[tuple[Order, Trial]] = []
        skipped: list[tuple[Trial, str]] = []
        for setting, repetitions in waiting.items():
            at = comparison.position.get(setting) if comparison else None
            if comparison is None or at is None:
                first: Order = (ANYWAY, self._prior(repetitions[0]))
                later: Order = (REPEATED, 0.0)
            elif stop and at not in tied and not (unknown and comparison.is_measured(at)):
                skipped += [(trial, self._explain(comparison, at, probes)) for trial in repetitions]
                continue
            else:
                first = later = (REPEATED, -comparison.chance(at))
                if enough and not stop and at == comparison.best:  # the choice itself has to be measured
                    first = (PREDICTED, -math.inf)
                elif at in probes:
                    first = (PREDICTED, -probes[at].gain_per_usd)
            # The first measurement of a setting is worth most; its repetitions wait until the others have one.
            orders = [later if setting in running else first, *[later] * (len(repetitions) - 1)]
            kept += zip(orders, repetitions, strict=True)
        return kept, skipped

    @property
    def _enough_regret(self) -> float:
        if self.enough_regret is not None:
            return self.enough_regret
        return default_regret(history=bool(self.history))

    def _is_enough(self, comparison: Comparison, probes: Collection[PossibleProbe]) -> bool:
        """Return whether the expected regret of the chosen machine is small enough, or no probe is worth its cost."""
        if relative_regret(comparison.ranking) < self._enough_regret:
            return True
        return bool(
            self.epochs and comparison.is_priced and probes and not any(probe.is_worthwhile for probe in probes)
        )

    def _explain(self, comparison: Comparison, at: int, probes: Mapping[int, PossibleProbe]) -> str:
        """Return a text that explains why the trials of the setting at the position ``at`` are skipped."""
        chance = f"this setting is the best with a probability of {format_chance(comparison.chance(at))}"
        regret, limit = relative_regret(comparison.ranking), self._enough_regret
        if regret >= limit:
            probe = probes.get(at) or max(probes.values(), key=lambda probed: probed.saving_usd)
            named = f"even the most useful probe ({comparison.names[probe.candidate]})"
            whose = "probing it" if probe.candidate == at else named
            costs = f"costs about {format_usd(probe.cost_usd)}"
            return f"{chance}; {whose} {costs} and saves {format_usd(probe.saving_usd)} of the training on average"
        (amount,) = comparison.ranking.expected_regret.values()
        value = amount / (1 if self.epochs else comparison.epochs)
        amount_text = format_usd(value) if comparison.is_priced else format_seconds(value)
        more = amount_text + ("" if self.epochs else " an epoch")
        choice = f"{comparison.names[comparison.best]}, the present choice,"
        verb = "costs" if comparison.is_priced else "takes"
        return (
            f"{chance}; {choice} {verb} on average {more} ({regret:.2%}) more than the best setting, which is below "
            f"the limit of {100 * limit:.3g}%"
        )

    def _compare(self, work: Key, settings: Group, pending: Collection[Key], state: State) -> Comparison | None:
        """Rank the measured settings of a group, and those of ``pending`` that can be predicted; None without any."""
        files = tuple(sorted(file for files in state.records.values() for file in files))
        # The engine asks at every free slot, but the answer changes only with a record or a trial.
        cached, key = (work, bool(pending)), (files, tuple(pending))
        if cached not in self._compared or self._compared[cached][0] != key:
            self._compared[cached] = key, self._rank(settings, pending, state)
        return self._compared[cached][1]

    def _rank(self, settings: Group, pending: Collection[Key], state: State) -> Comparison | None:
        # Machines of a laboratory often have no price; they are compared by their time.
        is_priced = any(self.prices[repetitions[0].id] > 0 for repetitions in settings.values())
        count = self.epochs or HORIZON
        rules = Settings.read(epochs=count, objective="cost" if is_priced else "time", market=ALL)
        estimates = self._measure(settings, state)
        trials = [settings[setting][0] for setting in pending]
        estimates |= self._predict(estimates, trials, rules, state)
        which: list[int] = []
        rows: list[tuple[str, float]] = []
        position: dict[Key, int] = {}
        names: list[str] = []
        machines = list(estimates)
        for setting, repetitions in settings.items():
            machine, price = hardware_of(repetitions[0]), self.prices[repetitions[0].id]
            measurable = setting in pending or any(state.records.get(trial.id) for trial in repetitions)
            if machine not in estimates or not measurable or (is_priced and not price):
                continue  # without a price among others with one, it cannot be compared
            position[setting] = len(rows)
            which.append(machines.index(machine))
            rows.append((repetitions[0].market, price / repetitions[0].nodes))
            names.append(location_of(repetitions[0]))
        if not rows:
            return None
        nothing = np.zeros(len(rows))
        candidates = Candidates(
            machine_estimates=tuple(estimates.values()), offers=pd.DataFrame(rows, columns=["market", "usd_per_hour"]),
            machine_estimate=np.array(which, dtype=np.intp), offer=np.arange(len(rows), dtype=np.intp),
            increment_seconds=nothing, minimum_seconds=nothing,
        )  # fmt: skip
        return Comparison(Ranking(candidates, rules), position, names, count, is_priced)

    def _measure(self, settings: Group, state: State) -> dict[Key, MachineEstimate]:
        """Return estimates of the measured machines of a group; an empty dict if their times cannot be compared."""
        files: dict[Key, list[str]] = {}
        trials: dict[Key, Trial] = {}
        for repetitions in settings.values():
            machine = hardware_of(repetitions[0])
            trials[machine] = repetitions[0]
            files.setdefault(machine, []).extend(
                file for trial in repetitions for file in state.records.get(trial.id, ())
            )
        estimates: dict[Key, MachineEstimate] = {}
        everything: list[Profile] = []
        for machine, machine_files in files.items():
            profiles = tuple(profile for file in sorted(machine_files) for profile in self._profiles(file))
            model = self._fit(tuple(sorted(machine_files)), profiles) if profiles else None
            if model is None:
                continue
            trial, size = trials[machine], profiles[0].batch_size
            factors = ({"batch_size": size} if size else {}) | ({"nodes": trial.nodes} if trial.nodes > 1 else {})
            estimate = MachineEstimate(
                instance_type=trial.instance_type or "", factors=factors, runtime=model, records=profiles
            )
            sold = self._sold(trial)
            if estimate.gpus_used == 0 and sold is not None and sold.gpu_count > 0:
                continue  # rankings exclude a GPU machine whose GPU was not used
            estimates[machine] = estimate
            everything += profiles
        try:
            if everything:
                check_comparable(everything)
            return estimates
        except VmselectError:
            return {}

    def _predict(
        self, measured: Mapping[Key, MachineEstimate], trials: Iterable[Trial], rules: Settings, state: State
    ) -> dict[Key, MachineEstimate]:
        """Predict estimates of the machines of ``trials`` that were not measured.

        Predictions exist for one GPU only: trials on several GPUs or nodes, or on some cores of a machine, have none.
        """
        unmeasured: dict[Key, Machine] = {}
        for trial in trials:
            machine, sold = hardware_of(trial), self._sold(trial)
            whole = trial.nodes == 1 and trial.machine.cores is None
            if machine not in measured and whole and sold is not None and sold.gpu_count <= 1:
                unmeasured[machine] = sold
        group = [estimate for estimate in measured.values() if estimate.nodes == 1]
        if not unmeasured or not group:
            return {}
        results = predict_estimates(group, list(unmeasured.values()), self._types, self._learned(state), rules)
        pairs = zip(unmeasured, results, strict=True)
        return {machine: result for machine, result in pairs if isinstance(result, MachineEstimate)}

    def _learned(self, state: State) -> list[Point]:
        """Return the speeds of GPUs that the history and all records of the sweep contain, for predictions."""
        files = {file for files in state.records.values() for file in files}
        if self._points[0] != files:
            profiles = [profile for file in sorted(files) for profile in self._profiles(file)]
            self._points = files, read_history([*self.history, *profiles], self._types)
        return self._points[1]

    def _profiles(self, file: str) -> tuple[Profile, ...]:
        if file not in self._read:
            self._read[file] = ()
            with suppress(VmselectError):  # records that cannot be read are ignored
                self._read[file] = tuple(r for r in load_records([self.folder / file]) if isinstance(r, Profile))
        return self._read[file]

    def _fit(self, files: tuple[str, ...], profiles: Sequence[Profile]) -> RuntimeModel | None:
        if files not in self._fitted:
            self._fitted[files] = None
            with suppress(VmselectError):  # records that cannot be estimated are ignored
                self._fitted[files] = fit_runtime(profiles)
        return self._fitted[files]

    @cached_property
    def _types(self) -> MachineTypes:
        return MachineTypes(self.catalog)

    def _sold(self, trial: Trial) -> Machine | None:
        """Return the machine type of a trial from the catalog; None if it is unknown, or differs between two clouds."""
        machines = self._types.by_name.get(trial.instance_type or "", ())
        return machines[0] if len({(machine.gpu_model, machine.gpu_count) for machine in machines}) == 1 else None

    def _prior(self, trial: Trial) -> float:
        """Return the USD per hour of a trial's machines divided by their TFLOPS.

        Trials whose time cannot be predicted yet run in ascending order of this ratio.
        A trial without a price counts as 1 USD per hour. Return infinity if the TFLOPS are unknown: the machine type is
        not in the catalog (or differs between clouds), has no GPU, or has a GPU without published TFLOPS.
        """
        sold = self._sold(trial)
        figures = figures_of(sold.gpu_model) if sold and sold.gpu_count > 0 else None
        if sold is None or figures is None:
            return math.inf
        return (self.prices[trial.id] or 1.0) / (figures.fp32_tflops * sold.gpu_count * trial.nodes)

    @staticmethod
    def _groups(trials: Iterable[Trial]) -> dict[Key, dict[Key, list[Trial]]]:
        groups: dict[Key, dict[Key, list[Trial]]] = {}
        for trial in trials:
            groups.setdefault(work_of(trial), {}).setdefault(setting_of(trial), []).append(trial)
        return groups


def _paid_seconds(settings: Group, state: State) -> float | None:
    """Return the median paid seconds of the trials of a group with a record; None if there is no such trial."""
    ended = [trial.id for repetitions in settings.values() for trial in repetitions if state.records.get(trial.id)]
    paid = [
        attempt.seconds for trial in ended for attempt in state.attempts.get(trial, ()) if attempt.seconds is not None
    ]
    return statistics.median(paid) if paid else None


def work_of(trial: Trial) -> Key:
    """Return the factors of ``trial`` that determine its work, and not where it runs."""
    return tuple((name, level) for name, level in trial.factors.items() if name not in LOCATION)


def hardware_of(trial: Trial) -> Key:
    """Return the factors of ``trial`` that determine its machine."""
    return tuple((name, level) for name, level in trial.factors.items() if name in HARDWARE)


def setting_of(trial: Trial) -> Key:
    """Return all factors of ``trial``, which are equal for its repetitions."""
    return tuple(trial.factors.items())


def location_of(trial: Trial) -> str:
    """Return a text for messages that describes where ``trial`` runs."""
    levels = [str(trial.factors[name]) for name in LOCATION if name in trial.factors]  # nodes last
    return " ".join([*levels, "nodes"] if "nodes" in trial.factors else levels) or "this machine"
