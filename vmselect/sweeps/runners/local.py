"""Trials as processes of this machine, each under a guard; cores and threads can be pinned."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from vmselect.errors import PlanError, SweepError
from vmselect.sweeps.journal import this_machine
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners import guard
from vmselect.sweeps.runners.base import GUARD, Handle, Job, Seen, make_request, marks_of, read_status, seen_from
from vmselect.sweeps.workers import free_ports, worker_environments


class LocalRunner:
    """Runs trials on this machine."""

    rents = False
    survives = False
    queues = False
    poll_seconds = 0.1

    def __init__(self) -> None:
        self._guards: dict[str, subprocess.Popen[bytes]] = {}
        self._busy: dict[str, list[int]] = {}

    def check(self, trials: Sequence[Trial]) -> None:
        """Raise where a program is missing or a machine asks for more cores than there are."""
        there = len(available_cores())
        for trial in trials:
            program = trial.arguments[0]
            if shutil.which(program) is None:
                raise PlanError(f"The program {program} is not on this machine. Install it, or give its path.")
            wanted = (trial.machine.cores or 0) * trial.nodes
            if wanted > there:
                raise PlanError(
                    f"Trial {trial.id} ({trial.machine.name}) wants {wanted} cores, and this process may use {there}. "
                    "Ask for fewer."
                )

    def has_room(self, trial: Trial) -> bool:
        """Whether enough cores are free; trials that pin none share what is left."""
        return (trial.machine.cores or 0) * trial.nodes <= len(self._free_cores())

    def announce(self, job: Job) -> Handle:
        """The token that every process of the trial carries, its folder, and the cores that are now its own."""
        wanted, free = job.trial.machine.cores or 0, self._free_cores()
        cores = [free[i * wanted : (i + 1) * wanted] for i in range(job.trial.nodes)] if wanted else []
        self._busy[job.token] = [core for several in cores for core in several]
        return {"runner": "local", "token": job.token, "folder": str(job.folder), "cores": cores, **this_machine()}

    def start(self, job: Job, handle: Handle) -> Handle:
        """Start the trial under a guard and wait until the guard says that it runs."""
        trial = job.trial
        try:
            ports = free_ports(2 * trial.nodes)
        except OSError as cannot:
            raise SweepError(f"Trial {trial.id}: no free ports could be had on this machine: {cannot}.") from cannot
        places = [{"host": "127.0.0.1", "boot": "here", "ports": ports[2 * i : 2 * i + 2]} for i in range(trial.nodes)]
        workers = [
            {**environment, **limit_threads(trial.machine.threads or trial.machine.cores or 0)}
            for environment in worker_environments(places)
        ]
        request = make_request(job, str(job.folder), str(job.work), cores=handle["cores"], workers=workers, listen=True)
        process = subprocess.Popen(
            [sys.executable, str(GUARD), "run", str(job.folder), job.token],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._guards[job.token] = process
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], 30.0)
            told = json.loads(process.stdout.readline() or b"{}") if ready else {}
        except (OSError, ValueError) as cannot:
            raise SweepError(f"Trial {trial.id} could not be started: {cannot}.") from cannot
        return {"guard": process.pid, "pids": told.get("started", []), "pipes": told.get("pipes", [])}

    def watch(self, handle: Handle) -> Seen:
        """Ended once the guard is gone and nothing carries the token any more."""
        process = self._guards.get(handle["token"])
        if process is not None and process.poll() is None:
            return Seen("running")
        if handle["host"] == this_machine()["host"]:
            if process is None and guard.holders(marks_of(handle), guards=True):
                return Seen("lost", error="its guard belongs to another vmselect")
            self._forget(handle["token"])
            status = read_status(Path(handle["folder"]))
            if status.get("state") == "ended":
                seen = seen_from(status, lambda: guard.end_tokens(marks_of(handle)))
            else:
                left = guard.end_tokens(marks_of(handle))  # the guards were killed, or the disk was full
                seen = Seen("lost" if left else "ended", why="guard", left=left)
            if seen.state == "ended":
                self._busy.pop(handle["token"], None)
            return seen
        return Seen("lost", error=f"it was started on {handle['host']}")

    def fetch(self, handle: Handle, into: Path, *, seconds: float) -> None:
        """Nothing to do: the trial wrote into its folder here."""

    def stop(self, handle: Handle) -> str:
        """End it with everything it started."""
        here = this_machine()
        if handle["host"] != here["host"]:
            return f"it was started on {handle['host']}, and this is {here['host']}: clean there"
        if handle["boot"] and here["boot"] and handle["boot"] != here["boot"]:
            return ""  # the machine was started anew since
        process = self._guards.get(handle["token"])
        if process is not None and process.poll() is None and process.stdin:
            try:
                process.stdin.write(b"S")
                process.stdin.flush()
                process.wait(timeout=30.0)
            except (OSError, subprocess.TimeoutExpired):
                pass  # it is ended below
        left = guard.end_tokens(marks_of(handle))
        self._forget(handle["token"])
        if not left:
            self._busy.pop(handle["token"], None)
        return f"processes {', '.join(map(str, left))} do not end" if left else ""

    def close(self) -> None:
        """Let every guard that is left see that nobody listens any more."""
        for token in list(self._guards):
            self._forget(token)

    def _forget(self, token: str) -> None:
        process = self._guards.pop(token, None)
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    try:
                        pipe.close()
                    except OSError:
                        continue  # the guard is gone: nobody reads what was left to say
            try:
                process.wait(timeout=60.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _free_cores(self) -> list[int]:
        taken = {core for several in list(self._busy.values()) for core in several}
        return [core for core in available_cores() if core not in taken]


def available_cores() -> list[int]:
    """Cores that this process may use, by number."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def limit_threads(threads: int) -> dict[str, str]:
    """Variables that keep the usual libraries to so many threads; 0 leaves them alone.

    >>> limit_threads(2)["OMP_NUM_THREADS"]
    '2'
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS",
             "NUMEXPR_NUM_THREADS")  # fmt: skip
    return dict.fromkeys(names, str(threads)) if threads else {}
