"""Simulated sweeps: how long a step takes on each machine, consistent with published figures."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import vmselect as vs
from vmselect.catalog import Catalog
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners.runner import Handle, Job, Seen
from vmselect.sweeps.sequential import Figures

STEPS_PER_EPOCH = 100


def step_seconds(figures: Figures, work: Sequence[float], fixed: float) -> float:
    """A step as a sum of work over rates: no machine can then be faster than its best figure allows."""
    rates = (figures.single_tflops, figures.half_tflops, figures.tf32_tflops or figures.single_tflops,
             figures.memory_gb_per_second, figures.vcpus)  # fmt: skip
    return fixed + sum(share / rate for share, rate in zip(work, rates, strict=True))


def make_profile(trial: Trial, seconds: float, *, noise: float = 0.0, seed: int = 0) -> vs.Profile:
    """What a probe of ``trial`` would record where a step takes ``seconds``."""
    chance = random.Random(f"{trial.id}-{seed}")
    steps = [seconds * chance.lognormvariate(0.0, noise) if noise else seconds for _ in range(20)]
    return vs.Profile.from_times(
        instance_type=trial.instance_type, batch_size=64, steps_per_epoch=STEPS_PER_EPOCH, init_seconds=1.0,
        first_iteration_seconds=2.0, iteration_seconds=steps,
    )  # fmt: skip


class SimulatedRunner:
    """Ends every trial at once, with the record that ``measure`` makes of it; None is a trial that fails."""

    rents = survives = queues = False
    poll_seconds = 0.0

    def __init__(self, measure: Callable[[Trial], vs.Profile | None]) -> None:
        self.measure, self.order = measure, list[str]()

    def check(self, trials: Sequence[Trial]) -> None:
        return None

    def has_room(self, trial: Trial) -> bool:
        return True

    def announce(self, job: Job) -> Handle:
        return {"runner": "simulated", "token": job.token}

    def start(self, job: Job, handle: Handle) -> Handle:
        self.order.append(job.trial.id)
        if profile := self.measure(job.trial):
            profile.save(job.folder / "records")
        return {}

    def watch(self, handle: Handle) -> Seen:
        return Seen("ended", exit=0)

    def fetch(self, handle: Handle, into: Path, *, seconds: float) -> None:
        return None

    def stop(self, handle: Handle) -> str:
        return ""

    def close(self) -> None:
        return None


def priced_catalog(prices: dict[str, float]) -> Catalog:
    """The shipped catalog with other prices."""
    known = Catalog.embedded()
    rows = [
        {"provider": offer.provider, "instance_type": name, "region": offer.region, "market": "on_demand",
         "usd_per_hour": usd}
        for name, usd in prices.items() for offer in [known.offer(name)]
    ]  # fmt: skip
    return known.with_offers(rows)
