"""Runs trials as processes on this machine, each under a supervisor and optionally pinned to CPU cores."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from vmselect.errors import PlanError, SweepError
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners import supervisor as supervisor
from vmselect.sweeps.runners.runner import (
    SUPERVISOR,
    ConnectedRunner,
    Connection,
    Handle,
    Job,
    Seen,
    identifiers_of,
    make_request,
    seen_from,
    this_machine,
    why_unproved,
)
from vmselect.sweeps.runners.supervisor import free_ports, worker_environments

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "NUMEXPR_NUM_THREADS",
)


class LocalRunner(ConnectedRunner):
    """Runs trials on this machine."""

    poll_seconds = 0.1
    close_seconds = 60.0  # longer than a supervisor waits for killed processes, KILL_SECONDS

    def check(self, trials: Sequence[Trial]) -> None:
        """Raise an error if the program of a trial is not installed, or if a trial needs more CPU cores than exist."""
        there = len(available_cores())
        for trial in trials:
            program = trial.arguments[0]
            if shutil.which(program) is None:
                raise PlanError(
                    f"The program {program} is not installed on this machine. Install it, or write its complete path."
                )
            needed = (trial.machine.cores or 0) * trial.nodes
            if needed > there:
                raise PlanError(
                    f"Trial {trial.id} ({trial.machine.name}) needs {needed} CPU cores, but vmselect may use {there}. "
                    "Lower 'cores' of the machine, or the factor 'nodes'."
                )

    def has_room(self, trial: Trial) -> bool:
        """Return whether enough CPU cores are free for ``trial``. Trials of machines without ``cores`` need none."""
        return (trial.machine.cores or 0) * trial.nodes <= len(self._free_cores())

    def announce(self, job: Job) -> Handle:
        """Reserve CPU cores for a trial. Return a handle with its token, folder and cores."""
        cores_per_node, free = job.trial.machine.cores or 0, self._free_cores()
        cores = (
            [free[i * cores_per_node : (i + 1) * cores_per_node] for i in range(job.trial.nodes)]
            if cores_per_node
            else []
        )
        self.reserved[job.token] = [core for several in cores for core in several]
        return {"runner": "local", "token": job.token, "folder": str(job.folder), "cores": cores, **this_machine()}

    def start(self, job: Job, handle: Handle) -> Handle:
        """Start a trial under a supervisor, and wait until the supervisor reports that the trial runs."""
        trial = job.trial
        try:
            ports = free_ports(2 * trial.nodes)
        except OSError as cannot:
            raise SweepError(
                f"Trial {trial.id} needs {2 * trial.nodes} free ports on this machine, which could not be opened "
                f"({cannot}). Close programs that use many ports or files, then resume the sweep."
            ) from cannot
        addresses = [
            {"host": "127.0.0.1", "boot": "here", "ports": ports[2 * i : 2 * i + 2]} for i in range(trial.nodes)
        ]
        workers = [{**own, **limit_threads(trial)} for own in worker_environments(addresses)]
        request = make_request(job, str(job.folder), str(job.work), cores=handle["cores"], workers=workers, listen=True)
        connection = Connection([sys.executable, str(SUPERVISOR), "run", str(job.folder), job.token, "scope"], request)
        self.connections[job.token] = [connection]
        started = connection.wait_started()
        return {"pids": started.get("started", []), "pipes": started.get("pipes", [])}

    def watch(self, handle: Handle) -> Seen:
        """Return the state of a trial. It has ended when it is proved that none of its processes is left."""
        token = handle["token"]
        if token not in self.connections:
            return Seen("lost", error="another vmselect process started the trial")
        outcome = self.connections[token][0].outcome()
        if outcome is None:
            return Seen("running")
        self.disconnect(token)
        problem = self._end(handle) if not outcome or outcome.get("left") else ""
        self.disconnect(token, gone=not problem)
        return seen_from(outcome or {"why": "guard"}, problem)

    def stop(self, handle: Handle) -> str:
        """End all processes of a trial. Return "", or the reason why its end could not be proved."""
        here = this_machine()
        if handle["host"] != here["host"]:
            return f"the trial was started on {handle['host']}: run vmselect sweep clean there, not on {here['host']}"
        if handle["boot"] and here["boot"] and handle["boot"] != here["boot"]:
            return ""  # the machine has restarted since
        token = handle["token"]
        for connection in self.connections.get(token, []):
            connection.stop()
        problem = "" if self.reported_end(token) else self._end(handle)
        if problem:  # also after a resume
            self.reserved[token] = [core for several in handle.get("cores", ()) for core in several]
        self.disconnect(token, gone=not problem)
        return problem

    def _end(self, handle: Handle) -> str:
        return why_unproved(supervisor.end_trial(handle.get("folder", ""), identifiers_of(handle)))

    def _free_cores(self) -> list[int]:
        return [core for core in available_cores() if core not in self.busy]


def available_cores() -> list[int]:
    """Return the IDs of the CPU cores that this process may use, in ascending order."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def limit_threads(trial: Trial) -> dict[str, str]:
    """Return environment variables that limit the threads of libraries to ``threads`` or ``cores`` of the machine."""
    threads = trial.machine.threads or trial.machine.cores
    return dict.fromkeys(THREAD_VARIABLES, str(threads)) if threads else {}
