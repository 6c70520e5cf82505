"""A cloud that exists in memory only: what it rents, and what a sweep then pays, by a clock that a test turns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import vmselect as vs
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners.runner import Handle, Job, Seen


class Clock:
    """Seconds since 1970 that pass only when they are told to."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class RentedRunner:
    """Rents a machine for each trial; what happens meanwhile is said by functions of a test."""

    rents = survives = True
    queues = False
    poll_seconds = 0.0

    def __init__(self, watch: Callable[[Handle], Seen] | None = None) -> None:
        self.rented: set[str] = set()
        self.starts: list[str] = []
        self.stops: list[str] = []
        self.allowed_seconds: list[float] = []
        """What each fetch was told to keep to."""
        self.during: Callable[[str], None] = lambda act: None
        """Called with the name of each act while it is done."""
        self._seen = watch or (lambda handle: Seen("ended", exit=0))
        self._lock = threading.Lock()

    def check(self, trials: Sequence[Trial]) -> None:
        return None

    def has_room(self, trial: Trial) -> bool:
        return True

    def announce(self, job: Job) -> Handle:
        return {"runner": "rented", "token": job.token}

    def start(self, job: Job, handle: Handle) -> Handle:
        with self._lock:
            self.rented.add(job.token)
            self.starts.append(job.trial.id)
        self.during("start")
        vs.Profile.from_times(batch_size=8, iteration_seconds=0.1).save(job.folder / "records")
        return {"job": len(self.starts)}

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

    def close(self) -> None:
        return None
