"""What every engine does: start, watch, fetch, stop."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from vmselect.sweeps import workers
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.workers import worker_folder

Handle = dict[str, Any]
"""What finds a running trial again, from another process too; it stands in the journal and holds no secret."""

GUARD = Path(__file__).with_name("guard.py")
WORKERS = Path(workers.__file__)
GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Job:
    """One attempt at a trial, ready to start."""

    trial: Trial
    token: str
    folder: Path
    """Where its records, output and status come to lie on this machine."""
    work: Path
    """The folder from which the sweep was started."""
    cap_seconds: float
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Seen:
    """What watching a trial showed."""

    state: str
    """starting, running, unknown (nobody answers now), ended (and nothing of it is left), lost (it may still run), or
    gone (its machine is there no more, nobody knows since when)."""
    exit: int | None = None
    why: str = ""
    error: str = ""
    left: Sequence[int] = field(default_factory=tuple)


class Runner(Protocol):
    """An engine. Whatever goes wrong while starting is a :class:`vmselect.errors.SweepError`."""

    rents: bool
    """Whether starting costs money, so that a budget must be named."""
    survives: bool
    """Whether a trial goes on when vmselect ends, and can be watched again."""
    queues: bool
    """Whether a started trial may wait before it runs, at no cost."""
    poll_seconds: float
    """How often watching pays."""

    def check(self, trials: Sequence[Trial]) -> None:
        """Raise where a trial could not run, before anything is started."""

    def has_room(self, trial: Trial) -> bool:
        """Whether the trial could start now."""

    def announce(self, job: Job) -> Handle:
        """Take the trial's place, and say what will find it again, before it is started; called by one thread."""

    def start(self, job: Job, handle: Handle) -> Handle:
        """Start it; returns what more is known of it then."""

    def watch(self, handle: Handle) -> Seen:
        """How it is doing."""

    def fetch(self, handle: Handle, into: Path, *, seconds: float) -> None:
        """Bring its folder here, whole, within so many seconds; may be asked again after a failure."""

    def stop(self, handle: Handle) -> str:
        """End it and wait until it is gone; "" when that is proved, which frees its place, else why it could not be."""

    def close(self) -> None:
        """Let go of what this process holds."""


def make_request(
    job: Job,
    folder: str,
    work: str,
    *,
    cores: Sequence[Sequence[int]] = (),
    workers: Sequence[Mapping[str, str]] = ({},),
    **more: Any,
) -> dict[str, Any]:
    """What the guard is asked: the workers of this machine, in ``folder`` and ``work`` as they are called there."""
    made: list[dict[str, Any]] = []
    for index, own in enumerate(workers):
        rank = int(own.get("RANK", index))
        chief = rank == 0
        place = {"VMSELECT_FOLDER": f"{folder}/records" if chief else f"{folder}/worker-{rank}"}
        made.append(
            {
                "argv": list(job.trial.arguments), "cwd": work, "env": {**job.environment, **place, **own},
                "cores": list(cores[index]) if cores else [],
                "output": "output.txt" if chief else f"output-{rank}.txt",
            }
        )  # fmt: skip
    return {"workers": made, "cap_seconds": job.cap_seconds, "grace_seconds": GRACE_SECONDS, **more}


def divide_request(job: Job, request: dict[str, Any], *, ports: Sequence[int] = ()) -> dict[str, str]:
    """Files to put beside the guard, name to content, so that every node makes its own part of ``request``.

    With ``ports`` SkyPilot tells the nodes of each other; without, they meet in the folder, which they share.
    """
    if job.trial.nodes == 1:
        return {"request.json": json.dumps(request)}
    return {"workers.json": json.dumps({"request": request, "count": job.trial.nodes, "ports": list(ports)})}


def guard_words(job: Job, python: str, folder: str) -> list[str]:
    """The command that runs what :func:`divide_request` left in ``folder``, beside copies of our programs."""
    program = GUARD if job.trial.nodes == 1 else WORKERS
    return [python, f"{folder}/{program.name}", "run", folder, job.token]


def marks_of(handle: Handle) -> list[str]:
    """What tells the processes of a trial from all others where it runs."""
    return [str(handle["token"]), *map(str, handle.get("pipes", ()))]


def guards_of(handle: Handle) -> int:
    """How many guards a trial has: one, unless its workers are on machines of their own."""
    return int(handle.get("guards", 1))


def read_status(folder: Path, guards: int = 1) -> dict[str, Any]:
    """What the guard wrote last, or all of several together; empty where none came to it."""
    return merge_outcomes([_read_status(worker_folder(folder, rank)) for rank in range(guards)])


def merge_outcomes(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the guards of a trial's workers told, the chief's first, as if one had.

    They have ended when all have, and well when all ended well: one that is lost has lost the trial.

    >>> merge_outcomes([{"exit": -15, "why": "stop"}, {"exit": 1, "why": "exit"}])["why"]
    'worker'
    """
    status = several[0]
    if len(several) == 1 or not any(several) or all(one.get("exit") == 0 for one in several):
        return status
    reasons = [str(one.get("why", "")) for one in several]
    ended = all(one.get("state") == "ended" for one in several)
    # Whoever was asked to end because another was lost says "stop".
    why = next((reason for reason in reasons if reason in ("start", "cap", "cut", "silent", "guard")), "")
    stopped = set(reasons) == {"stop"}
    codes = [one["exit"] for one, reason in zip(several, reasons, strict=True) if one.get("exit") and reason == "exit"]
    return {
        **status, "state": "ended" if ended else "running", "exit": codes[0] if codes else None,
        "why": why or ("stop" if stopped else "worker"),
        "error": next((one["error"] for one in several if one.get("error")), ""),
    }  # fmt: skip


def _read_status(folder: Path) -> dict[str, Any]:
    try:
        status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


def seen_from(outcome: Mapping[str, Any], end: Callable[[], list[int]]) -> Seen:
    """What an outcome that the guard told means; ``end`` ends what it says is left."""
    left = end() if outcome.get("left") else []
    state = "lost" if left else "ended"
    code = outcome.get("exit")
    return Seen(state, exit=code if isinstance(code, int) else None, why=str(outcome.get("why", "")),
                error=str(outcome.get("error", "")), left=left)  # fmt: skip
