"""Stopping when sure: in simulated sweeps, trials are skipped by the rule only, and the choice is nearly best."""

from __future__ import annotations

import functools
import random
import sys
import tempfile
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.catalog import Catalog
from vmselect.catalog.gpus import figures_of
from vmselect.ranking.next_probe import relative_regret
from vmselect.ranking.options import ENOUGH_REGRET_WITHOUT_HISTORY
from vmselect.sweeps.journal import State
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.sequential import Sequential

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from sweep_runners import priced_catalog, profile_trial, step_seconds

GPUS = ("g4dn.xlarge", "g4dn.2xlarge", "g5.xlarge", "g5.2xlarge", "g6.xlarge", "g6e.xlarge", "p3.2xlarge", "p2.xlarge")
UNPREDICTABLE = ("c5.4xlarge", "c5.12xlarge", "trn1.2xlarge", "g4dn.12xlarge", "p3.8xlarge", "g4ad.xlarge")
REGION = "us-east-1"
SIMULATIONS = 12
"""docs/how-to/sweeps.md has the numbers of 40."""
CATALOG = Catalog.embedded()


@functools.cache
def list_price(name: str) -> float:
    """Dollars an hour, 0 where the catalog has no price."""
    known = name in set(CATALOG.offers(region=REGION)["instance_type"])
    return CATALOG.price(name, region=REGION) if known else 0.0


class SimulatedSweep:
    """A plan over some machines, what each truly takes, and what each costs."""

    def __init__(self, seed: int, noise: float) -> None:
        chance = random.Random(seed)
        names = chance.sample([n for n in GPUS if list_price(n)], k=chance.randint(3, 6))
        names += chance.sample([n for n in UNPREDICTABLE if list_price(n)], k=chance.choice((0, 0, 1, 2)))
        self.noise, self.seed = noise, seed
        self.plan = vs.Plan("python train.py", factors={"instance_type": names}, seed=seed)
        self.prices = {name: list_price(name) * chance.lognormvariate(0, 0.4) for name in names}
        self.catalog = priced_catalog(self.prices)
        work = [chance.choice((0.0, chance.random())) * scale for scale in (1.0, 8.0, 40.0)]
        fixed = chance.choice((0.005, 0.01, 0.1))
        models = dict(CATALOG.offers()[["instance_type", "gpu_model"]].astype(str).itertuples(index=False))
        self.steps: dict[str, float] = {}
        for name in names:
            figures = None if name in UNPREDICTABLE else figures_of(models[name])
            host = chance.lognormvariate(0, 0.05)
            self.steps[name] = host * step_seconds(figures, work, fixed) if figures else chance.uniform(0.05, 1.0)

    def cost(self, name: str) -> float:
        return self.steps[name] * self.prices[name]

    def measure(self, trial: Trial) -> vs.Profile:
        seconds = self.steps[str(trial.instance_type)]
        return profile_trial(trial, seconds, noise=self.noise, seed=self.seed)

    def run(self, folder: Path, **options: float) -> tuple[list[str], list[str]]:
        """What the engine does, without machines: asks, measures, asks again. Returns measured and skipped types."""
        by_id = {trial.id: self.prices[str(trial.instance_type)] for trial in self.plan.trials}
        deciding, state = Sequential(self.catalog, by_id, folder, **options), State(folder)
        queue, skipped, profiles = list(self.plan.trials), [], []
        while queue:
            queue, others = deciding.arrange(queue, self.plan.trials, state)
            if others:
                skipped += [str(trial.instance_type) for trial, _ in others]
                self.check_skips(profiles, [(str(trial.instance_type), why) for trial, why in others])
            if queue:
                trial = queue.pop(0)
                profiles.append(self.measure(trial))
                state.records[trial.id] = [profiles[-1].save(folder / f"{trial.id}.json").name]
        return [str(one.instance_type) for one in profiles], skipped

    def check_skips(self, profiles: list[vs.Profile], skipped: list[tuple[str, str]]) -> None:
        """By a ranking of the same records, the regret is small enough and the choice is a measured machine."""
        names = [name for name, _ in skipped]
        assert not set(names) & set(UNPREDICTABLE)
        ranking = vs.rank(profiles, epochs=1_000_000, machines=names, catalog=self.catalog, region=REGION)
        assert ranking.best.basis == "measured"
        assert relative_regret(ranking) < 1.2 * ENOUGH_REGRET_WITHOUT_HISTORY  # another order of draws
        assert all("%" in why and "$" in why for _, why in skipped)


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_trials_are_skipped_by_the_rule_and_the_choice_is_nearly_best(noise: float) -> None:
    spared = total = 0
    excess = []
    for seed in range(SIMULATIONS):
        simulated = SimulatedSweep(seed, noise)
        with tempfile.TemporaryDirectory() as folder:
            measured, skipped = simulated.run(Path(folder))
        assert sorted(measured + skipped) == sorted(simulated.steps)
        found = min(measured, key=simulated.cost)
        excess.append(simulated.cost(found) / min(map(simulated.cost, simulated.steps)) - 1)
        spared, total = spared + len(skipped), total + len(simulated.steps)
    assert spared > total / 10, "a rule that never skips would be right, and worth nothing"
    assert sum(excess) / len(excess) < ENOUGH_REGRET_WITHOUT_HISTORY
    assert sum(one < 0.05 for one in excess) >= 0.9 * len(excess), sorted(excess)[-8:]


def test_no_trial_is_skipped_if_no_regret_is_small_enough() -> None:
    for seed in range(5):
        simulated = SimulatedSweep(seed, 0.0)
        with tempfile.TemporaryDirectory() as folder:
            assert not simulated.run(Path(folder), enough_regret=0.0)[1]
