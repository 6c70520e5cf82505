"""Sequential when it pays: which trial may still change the answer, which cannot, and where the answer is a tie.

Only trials that do the same work are compared: all factors but the place must be equal. What is compared is cost (time
where nothing has a price), of a training of so many epochs or, where none are named, of an epoch of a long one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect.errors import VmselectError
from vmselect.estimation import RuntimeModel, fit_runtime
from vmselect.grouping import check_comparable
from vmselect.records import Profile
from vmselect.sweeps.collection import load_all
from vmselect.sweeps.figures import Figures, figures_of, figures_used, speed_up
from vmselect.sweeps.plan import Trial
from vmselect.units import cost_usd, format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.sweeps.state import State

PLACE = ("machine", "instance_type", "region", "market", "nodes")
"""Factors that say where a trial runs; all others say what it does."""

MOST_ADDED = 3
"""Repetitions that are added to a setting at most, beyond those that were planned."""

Key = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Standing:
    """What is known of a setting that was measured: its cost with its interval, and its steps in seconds at least."""

    name: str
    low: float
    value: float
    high: float
    steps_seconds: float
    used: Figures | None


@dataclass(frozen=True)
class Bound:
    """The cheapest imaginable result of a setting that was not measured, and by which machine it is known."""

    value: float
    times_faster: float
    against: str


@dataclass
class Sequential:
    """Decides over the trials of one sweep, from the records that came so far."""

    catalog: Catalog
    prices: Mapping[str, float]
    folder: Path
    epochs: int | None = None
    _figures: dict[Key, Figures | None] = field(default_factory=dict)
    _fitted: dict[tuple[str, ...], tuple[list[Profile], RuntimeModel] | None] = field(default_factory=dict)

    def arrange(
        self, queue: Sequence[Trial], trials: Iterable[Trial], state: State
    ) -> tuple[list[Trial], list[tuple[Trial, str]]]:
        """The trials that wait in the order of what they may change, and those that can change nothing, with why."""
        ranked: list[tuple[tuple[float, float], Trial]] = []
        hopeless = []
        groups = self._groups(trials)
        found = {work: self._standings(settings, state) for work, settings in groups.items()}
        for trial in queue:
            standings = found[work_of(trial)]
            priced = self._priced(groups[work_of(trial)])
            leader = min((s for s in standings.values()), key=lambda s: s.high, default=None)
            own = standings.get(setting_of(trial))
            price = self._price(trial, priced)
            if leader is None or price is None:
                ranked.append(((0.0, self._guess(trial)), trial))
            elif own is not None:
                if own.low > leader.high:
                    hopeless.append((trial, self._why_beaten(own, leader, priced)))
                else:
                    ranked.append(((2.0, own.low), trial))
            else:
                bound = self._bound(trial, price, standings.values())
                if bound is not None and bound.value > leader.high:
                    hopeless.append((trial, self._why_bound(trial, bound, leader, priced)))
                else:
                    ranked.append(((1.0, bound.value if bound else 0.0), trial))
        ranked.sort(key=lambda pair: pair[0])
        return [trial for _, trial in ranked], hopeless

    def to_repeat(self, trials: Iterable[Trial], state: State) -> list[tuple[Trial, str]]:
        """Where the two cheapest settings of a group are tied: a trial of each that may be run once more, with why."""
        wanted = []
        for settings in self._groups(trials).values():
            standings = self._standings(settings, state)
            first_two = sorted(standings, key=lambda setting: standings[setting].value)[:2]
            if len(first_two) < 2:
                continue
            ahead, behind = (standings[setting] for setting in first_two)
            if behind.low > ahead.high:
                continue
            fewest = min(len(settings[setting]) for setting in first_two)
            for setting in first_two:
                several = settings[setting]
                added = sum(trial.id in state.added for trial in several)
                if len(several) == fewest and added < MOST_ADDED:
                    wanted.append((several[0], f"{ahead.name} and {behind.name} are tied"))
        return wanted

    # -- what is known

    def _groups(self, trials: Iterable[Trial]) -> dict[Key, dict[Key, list[Trial]]]:
        groups: dict[Key, dict[Key, list[Trial]]] = {}
        for trial in trials:
            groups.setdefault(work_of(trial), {}).setdefault(setting_of(trial), []).append(trial)
        return groups

    def _standings(self, settings: Mapping[Key, Sequence[Trial]], state: State) -> dict[Key, Standing]:
        """Every setting of a group that was measured; none where their times cannot be compared."""
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
            low, value, high, steps = span(model, self.epochs)
            standings[setting] = Standing(
                place_of(several[0]), cost_usd(low, price), cost_usd(value, price), cost_usd(high, price), steps,
                figures_used(self._published(several[0]), profiles),
            )  # fmt: skip
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
                pass  # records that say nothing about a whole training decide nothing
        return self._fitted[files]

    def _published(self, trial: Trial) -> Figures | None:
        setting = setting_of(trial)
        if setting not in self._figures:
            self._figures[setting] = figures_of(trial, self.catalog)
        return self._figures[setting]

    # -- what follows

    def _priced(self, settings: Mapping[Key, Sequence[Trial]]) -> bool:
        return any(self.prices[several[0].id] > 0 for several in settings.values())

    def _price(self, trial: Trial, priced: bool) -> float | None:
        """Dollars per hour; one's own machine without a price is not compared with those that have one."""
        if not priced:
            return 1.0
        return self.prices[trial.id] or None

    def _guess(self, trial: Trial) -> float:
        """Dollars per published rate, which says where to begin."""
        published = self._published(trial)
        return math.inf if published is None else (self.prices[trial.id] or 1.0) / published.single_tflops

    def _bound(self, trial: Trial, price: float, standings: Iterable[Standing]) -> Bound | None:
        published = self._published(trial)
        if published is None:
            return None
        bounds = [
            Bound(cost_usd(known.steps_seconds / times, price), times, known.name)
            for known in standings
            if known.used is not None and (times := speed_up(known.used, published)) is not None
        ]
        return max(bounds, key=lambda bound: bound.value, default=None)

    def _why_bound(self, trial: Trial, bound: Bound, leader: Standing, priced: bool) -> str:
        faster = "no faster" if bound.times_faster == 1 else f"at most {bound.times_faster:.1f} times as fast"
        return (
            f"by its published figures its steps are {faster} than those of {bound.against}, which makes "
            f"{self._say(bound.value, priced)} at best; {leader.name} is measured at no more than "
            f"{self._say(leader.high, priced)}"
        )

    def _why_beaten(self, own: Standing, leader: Standing, priced: bool) -> str:
        return (
            f"it was measured at {self._say(own.low, priced)} or more; {leader.name} at no more than "
            f"{self._say(leader.high, priced)}"
        )

    def _say(self, value: float, priced: bool) -> str:
        amount = format_usd(value) if priced else format_seconds(value * 3600)
        return amount + ("" if self.epochs else " an epoch")


def span(model: RuntimeModel, epochs: int | None) -> tuple[float, float, float, float]:
    """Low end, value and high end in seconds, and the least that steps take of it; without epochs, of a late epoch.

    The whole uncertainty is taken from the steps, as if no other term had any.
    """
    if epochs is None:
        value = model.epoch_seconds + model.validation_seconds / model.validation_freq
        low, high = (math.sqrt(max(0.0, square[2])) for square in (model.low, model.high))
        low, high = max(0.0, value - low), value + high
        steps = model.terms.get("steady_iterations", (0.0, 0.0))[1]
    else:
        estimate = model.at(epochs)
        low, value, high = estimate.low, estimate.seconds, estimate.high
        steps = estimate.terms.get("steady_iterations", 0.0)
    return low, value, high, max(0.0, steps - (value - low))


def work_of(trial: Trial) -> Key:
    """What the trial does, wherever it runs."""
    return tuple((name, level) for name, level in trial.factors.items() if name not in PLACE)


def setting_of(trial: Trial) -> Key:
    """What repetitions of a trial have in common."""
    return tuple(trial.factors.items())


def place_of(trial: Trial) -> str:
    """Where the trial runs, in words."""
    levels = [f"{trial.factors[name]}{' nodes' if name == 'nodes' else ''}" for name in PLACE if name in trial.factors]
    return " ".join(levels) or "this machine"
