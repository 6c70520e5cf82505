"""Runs trials as jobs of a Slurm cluster, with the commands sbatch, squeue, scancel and srun.

The folder of the sweep must be on a disk that the nodes share: supervisors read their requests and write records there.
A job continues when vmselect exits; ``vmselect sweep resume`` watches the job again, ``vmselect sweep clean`` ends it.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from vmselect._io import write_text
from vmselect.errors import SweepError
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners.runner import (
    SUPERVISOR,
    Handle,
    Job,
    Runner,
    Seen,
    count_supervisors,
    end_command,
    identifiers_of,
    limit_threads,
    make_handle,
    make_request_file,
    read_json,
    read_status,
    run_program,
    seen_from,
    why_unproved,
)
from vmselect.sweeps.runners.supervisor import worker_folder

COMMANDS = ("sbatch", "squeue", "scancel", "srun")
CALL_SECONDS = 60.0
GONE_SECONDS = 180.0
"""Longest wait for the end of a cancelled job. Slurm kills processes that ignore SIGTERM after about 30 seconds."""

STATUS_SECONDS = 5.0
"""Longest wait for the status file of an ended job to appear on the shared disk."""

_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"}


class SlurmRunner(Runner):
    """Runs each trial as one job, with a supervisor on each node."""

    survives = True
    queues = True

    def programs(self, trials: Sequence[Trial]) -> Sequence[str]:
        """Return the commands of Slurm, and the programs of ``trials``: jobs inherit the environment of sbatch."""
        return [*COMMANDS, *dict.fromkeys(trial.arguments[0] for trial in trials)]

    def check(self, trials: Sequence[Trial]) -> None:
        """Raise an error if a command of Slurm is not installed."""
        for program in COMMANDS:
            if shutil.which(program) is None:
                raise SweepError(
                    f"The Slurm command {program} is not installed here. Start the sweep on a login node of a cluster."
                )

    def announce(self, job: Job) -> Handle:
        """Return the handle of a trial. Its token is also the name of the job, by which Slurm finds the job."""
        return make_handle("slurm", job, folder=str(job.folder))

    def start(self, job: Job, handle: Handle) -> Handle:
        """Write the supervisor and its request to the folder of a trial, and submit the job with sbatch."""
        machine, nodes = job.trial.machine, job.trial.nodes
        folder = str(job.folder)
        request = make_request_file(job, folder, str(job.work), workers=[limit_threads(job.trial)])
        write_text(job.folder / "request.json", request, error=SweepError)
        # The nodes need no vmselect.
        write_text(job.folder / SUPERVISOR.name, SUPERVISOR.read_text(encoding="utf-8"), error=SweepError)
        cores = [f"--cpus-per-task={machine.cores}"] if machine.cores else []
        command = [machine.python, f"{folder}/{SUPERVISOR.name}", "run", folder, job.token]
        if nodes > 1:  # a worker that fails ends all
            command = ["srun", f"--ntasks={nodes}", "--ntasks-per-node=1", *cores, "--kill-on-bad-exit=1",
                       f"--output={folder}/slurm-%t.txt", *command]  # fmt: skip
        minutes = math.ceil(job.cap_seconds / 60) + 1
        options = [
            "--parsable", f"--job-name={job.token}", f"--output={folder}/slurm.txt", f"--chdir={job.work}",
            f"--time={minutes}", "--no-requeue", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", *cores,
            *(f"--{key}" if value is True else f"--{key}={value}" for key, value in machine.options.items() if value),
        ]  # fmt: skip
        answer = call(["sbatch", *options], text=f"#!/bin/sh\nexec {shlex.join(command)}\n")
        number = re.match(r"\s*(\d+)", answer.strip().splitlines()[-1] if answer.strip() else "")
        if not number:
            raise SweepError(
                f"sbatch printed {answer[:100]!r}, which contains no job number. Check the jobs with squeue --me."
            )
        return {"job": int(number[1])}

    def watch(self, handle: Handle) -> Seen:
        """Return the state of a trial: "starting" while its job is queued, "running" while squeue lists the job."""
        try:
            states = list_jobs(handle["token"])
        except SweepError as silent:  # a controller that restarts answers again
            return Seen("unknown", error=str(silent))
        if states:
            return Seen("starting" if all(state in _WAITING for state in states) else "running")
        until = time.monotonic() + STATUS_SECONDS
        while True:
            status = read_status(Path(handle["folder"]), count_supervisors(handle))
            if status.get("state") == "ended":
                return seen_from(status)
            if time.monotonic() >= until:
                break
            time.sleep(0.2)
        problem = end_on_nodes(handle)
        note = "the Slurm job ended, but its supervisor wrote no status; see slurm.txt in the folder of the trial"
        why = str(status.get("why") or "guard")
        return Seen("lost" if problem else "ended", why=why, error=problem or note)

    def stop(self, handle: Handle) -> str:
        """Cancel the job of a trial and wait until none of its processes runs.

        Return "", or the reason why its end could not be proved.
        """
        until, problem = time.monotonic() + GONE_SECONDS, ""
        while True:
            try:
                call(["scancel", f"--name={handle['token']}", f"--user={os.getuid()}"])
                states = list_jobs(handle["token"])
                if not states and not (problem := end_on_nodes(handle)):
                    return ""
                problem = problem if not states else f"the Slurm job of the trial is still {', '.join(states)}"
            except SweepError as cannot:
                problem = str(cannot)
            if time.monotonic() > until:
                return problem
            time.sleep(1.0)


def end_on_nodes(handle: Handle) -> str:
    """Run a job on each node that ends the processes of killed supervisors, which Slurm may not have ended.

    Return "", or the reason why their end could not be proved.
    """
    folder, problems = Path(handle["folder"]), []
    for rank in range(count_supervisors(handle)):
        status = read_status(worker_folder(folder, rank))
        if status.get("state") not in ("starting", "running"):
            continue  # it has ended in order, or never began
        host = status.get("host")
        where = [f"--nodelist={host}"] if re.fullmatch(r"[\w.-]+", str(host or "")) else []
        command = ["srun", "--nodes=1", "--ntasks=1", "--time=3", "--quiet", f"--chdir={folder}", *where]
        ending = end_command("python3", worker_folder(folder, rank), identifiers_of({**handle, **status}))
        try:
            answer = read_json(call([*command, *ending], text=SUPERVISOR.read_text(encoding="utf-8"), fine=(0, 1)))
            problem = why_unproved(answer)
            if problem and (answer["left"] or not kills_all_processes()):
                problems.append(f"{host}: {problem}")
        except (SweepError, ValueError, KeyError, TypeError) as cannot:
            problems.append(f"the processes of the killed supervisor on {host} could not be checked: {cannot}")
    return "; ".join(problems)


def kills_all_processes() -> bool:
    """Return whether Slurm itself ends every process of a job, because it tracks processes by control groups."""
    try:
        answer = call(["scontrol", "show", "config"])
    except SweepError:
        return False
    return re.search(r"^ProctrackType\s*=\s*proctrack/cgroup\s*$", answer, re.MULTILINE) is not None


def list_jobs(name: str) -> list[str]:
    """Return the states of this user's jobs called ``name`` that have not ended."""
    return call(["squeue", "--noheader", f"--name={name}", f"--user={os.getuid()}", "--format=%T"]).split()


def call(command: list[str], *, text: str = "", fine: Sequence[int] = (0,)) -> str:
    """Run a command of Slurm and return its output. ``fine`` contains the exit codes that mean success."""
    return run_program(command, label=command[0], text=text, fine=fine, seconds=CALL_SECONDS)
