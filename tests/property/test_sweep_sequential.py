"""Stopping when sure: over many simulated sweeps the winner is the one that running everything would have found."""

from __future__ import annotations

import functools
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.catalog import Catalog
from vmselect.estimation import fit_runtime
from vmselect.sweeps.journal import State
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.sequential import Sequential, figures_of, span, speed_up

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from sweep_runners import profile_trial, step_seconds

GPUS = ("g4dn.xlarge", "g4dn.12xlarge", "g5.xlarge", "g5.2xlarge", "g6.xlarge", "g6e.xlarge", "p3.2xlarge",
        "p3.8xlarge", "p2.xlarge", "p4d.24xlarge", "p5.48xlarge", "Standard_NC4as_T4_v3",
        "Standard_NC24ads_A100_v4")  # fmt: skip
OTHERS = ("c5.4xlarge", "c5.12xlarge", "trn1.2xlarge")
SIMULATIONS = 40
CATALOG = Catalog.embedded()
FIGURES: dict[str | None, Any] = {}


@functools.cache
def list_price(name: str) -> float:
    """Dollars an hour, 0 where the catalog has no price."""
    known = name in set(CATALOG.offers()["instance_type"])
    return CATALOG.price(name) if known else 0.0


def find_figures(trial: Trial) -> Any:
    """The same for every trial on machines of one type."""
    name = trial.instance_type
    if name not in FIGURES:
        FIGURES[name] = figures_of(trial, CATALOG)
    return FIGURES[name]


class SimulatedSweep:
    """A plan over some machines, what each truly takes, and what each costs."""

    def __init__(self, seed: int, noise: float) -> None:
        chance = random.Random(seed)
        names = chance.sample([n for n in GPUS if list_price(n)], k=chance.randint(3, 8))
        names += chance.sample([n for n in OTHERS if list_price(n)], k=chance.choice((0, 1)))
        self.catalog, self.noise, self.seed = CATALOG, noise, seed
        self.plan = vs.Plan("python train.py", factors={"instance_type": names}, seed=seed,
                            repetitions=chance.choice((1, 1, 2)))  # fmt: skip
        self.prices: dict[str | None, float] = {
            name: list_price(name) * chance.lognormvariate(0, 0.4) for name in names
        }
        work = [chance.choice((0.0, chance.random())) * scale for scale in (1.0, 8.0, 2.0, 40.0, 0.5)]
        fixed = chance.choice((0.0, 0.01, 0.1))
        self.steps: dict[str | None, float] = {}
        for trial in self.plan.trials:
            figures = find_figures(trial)
            taken = step_seconds(figures, work, fixed) if figures else chance.uniform(0.05, 1.0)
            self.steps.setdefault(trial.instance_type, max(taken, 1e-3))

    def cost(self, trial: Trial) -> float:
        return self.steps[trial.instance_type] * self.prices[trial.instance_type]

    def run(self, folder: Path) -> tuple[State, list[str]]:
        """What the engine does, without machines: asks, measures, asks again."""
        by_id = {trial.id: self.prices[trial.instance_type] for trial in self.plan.trials}
        deciding, state = Sequential(self.catalog, by_id, folder), State(folder)
        queue, skipped = list(self.plan.trials), []
        while queue:
            queue, hopeless = deciding.arrange(queue, self.plan.trials, state)
            skipped += [trial.id for trial, _ in hopeless]
            if queue:
                trial = queue.pop(0)
                profile = profile_trial(trial, self.steps[trial.instance_type], noise=self.noise, seed=self.seed)
                state.records[trial.id] = [profile.save(folder / f"{trial.id}.json").name]
        return state, skipped


def measured(simulated: SimulatedSweep, trial: Trial) -> tuple[float, float, float]:
    """Low end, value and high end of the trial's cost, by its own record."""
    profile = profile_trial(trial, simulated.steps[trial.instance_type], noise=simulated.noise, seed=simulated.seed)
    price = simulated.prices[trial.instance_type]
    seconds, _ = span(fit_runtime(profile), None)
    return seconds.low * price, seconds.value * price, seconds.high * price


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_the_winner_is_that_of_the_full_sweep(noise: float) -> None:
    spared = total = 0
    for seed in range(SIMULATIONS):
        simulated = SimulatedSweep(seed, noise)
        with tempfile.TemporaryDirectory() as folder:
            state, skipped = simulated.run(Path(folder))
        trials = {trial.id: trial for trial in simulated.plan.trials}
        best = min(trials.values(), key=simulated.cost)
        found = min((trials[name] for name in state.records), key=lambda t: measured(simulated, t)[1])
        if not noise:
            assert simulated.cost(found) == pytest.approx(simulated.cost(best)), (seed, found.factors, best.factors)
        else:
            assert measured(simulated, found)[0] <= measured(simulated, best)[2], (seed, found.factors, best.factors)
            assert best.id in state.records or simulated.cost(found) <= measured(simulated, best)[2], seed
        probed = {trials[name].instance_type for name in state.records}
        for name in skipped:  # without figures, only what was measured
            assert find_figures(trials[name]) or trials[name].instance_type in probed, seed
        assert len(skipped) + len(state.records) == len(trials)
        spared, total = spared + len(skipped), total + len(trials)
    assert spared > total / 10, "a rule that never skips would be right, and worth nothing"


def test_no_machine_of_a_simulated_sweep_is_faster_than_its_figures_allow() -> None:
    for seed in range(30):
        simulated = SimulatedSweep(seed, 0.0)
        figures = {t.instance_type: find_figures(t) for t in simulated.plan.trials}
        for one, ours in figures.items():
            for other, theirs in figures.items():
                if ours and theirs and (times := speed_up(ours, theirs)):
                    assert simulated.steps[other] >= simulated.steps[one] / times * (1 - 1e-9)
