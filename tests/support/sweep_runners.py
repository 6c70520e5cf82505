"""Stand-ins for runners, a clock that a test sets, and step times consistent with published figures of GPUs."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import vmselect as vs
from vmselect.catalog import Catalog
from vmselect.catalog.gpus import GpuFigures
from vmselect.sweeps.journal import NEEDED
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners.runner import Handle, Job, Runner, Seen

STEPS_PER_EPOCH = 100
NEEDED["simulated"] = ("token",)


class Clock:
    """Seconds since 1970 that a test sets."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class SimulatedRunner(Runner):
    """Ends every trial at once, with the record that ``measure`` makes of it; None is a trial that fails."""

    poll_seconds = 0.0

    def __init__(self, measure: Callable[[Trial], vs.Profile | None]) -> None:
        self.measure, self.order = measure, list[str]()

    def announce(self, job: Job) -> Handle:
        return {"runner": "simulated", "token": job.token}

    def start(self, job: Job, handle: Handle) -> Handle:
        self.order.append(job.trial.id)
        if profile := self.measure(job.trial):
            profile.save(job.folder / "records")
        return {}

    def watch(self, handle: Handle) -> Seen:
        return Seen("ended", exit=0)

    def stop(self, handle: Handle) -> str:
        return ""


class RentedRunner(SimulatedRunner):
    """Rents a machine for each trial; ``watch`` returns its state, ``during`` is called with the name of each act."""

    rents = survives = True

    def __init__(self, watch: Callable[[Handle], Seen] | None = None) -> None:
        super().__init__(lambda trial: vs.Profile.from_times(batch_size=8, iteration_seconds=0.1))
        self.rented: set[str] = set()
        self.stops: list[str] = []
        self.allowed_seconds: list[float] = []
        """The time limit of each fetch."""
        self.during: Callable[[str], None] = lambda act: None
        self._seen = watch or super().watch
        self._lock = threading.Lock()

    def start(self, job: Job, handle: Handle) -> Handle:
        with self._lock:
            self.rented.add(job.token)
        self.during("start")
        super().start(job, handle)
        return {"job": len(self.order)}

    def watch(self, handle: Handle) -> Seen:
        self.during("watch")
        return self._seen(handle)

    def fetch(self, handle: Handle, into: Path, *, seconds: float) -> None:
        self.allowed_seconds.append(seconds)
        self.during("fetch")

    def stop(self, handle: Handle) -> str:
        self.during("stop")
        with self._lock:
            self.rented.discard(handle["token"])
            self.stops.append(handle["token"])
        return ""


def step_seconds(figures: GpuFigures, work: Sequence[float], fixed: float) -> float:
    """A step as a sum of work over the rates of a GPU: single precision, half precision, memory."""
    rates = (figures.fp32_tflops, figures.fp16_tflops, figures.memory_gb_per_second)
    return fixed + sum(share / rate for share, rate in zip(work, rates, strict=True))


def profile_trial(trial: Trial, seconds: float, *, noise: float = 0.0, seed: int = 0) -> vs.Profile:
    """The record of a probe of ``trial`` whose steps take ``seconds``."""
    generator = random.Random(f"{trial.id}-{seed}")
    steps = [seconds * generator.lognormvariate(0.0, noise) if noise else seconds for _ in range(20)]
    return vs.Profile.from_times(
        instance_type=trial.instance_type, batch_size=64, steps_per_epoch=STEPS_PER_EPOCH, init_seconds=1.0,
        first_iteration_seconds=2.0, iteration_seconds=steps,
    )  # fmt: skip


def priced_catalog(prices: dict[str, float]) -> Catalog:
    """The shipped catalog with other prices."""
    known = Catalog.embedded()
    rows = [
        {"provider": offer.provider, "instance_type": name, "region": offer.region, "market": "on_demand",
         "usd_per_hour": usd}
        for name, usd in prices.items() for offer in [known.offer(name)]
    ]  # fmt: skip
    return known.with_offers(rows)
