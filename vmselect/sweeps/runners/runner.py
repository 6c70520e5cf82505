"""Interface and common code of all runners (connections to supervisors, requests, outcomes), and the local runner."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from vmselect.errors import PlanError, SweepError
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners import supervisor as supervisor
from vmselect.sweeps.runners.supervisor import Json, free_ports, worker_environments, worker_folder

Handle = Json
"""Reference to a started trial, by which any process can find the trial. It is stored in the journal and contains no
secrets."""

SUPERVISOR = Path(supervisor.__file__)

START_SECONDS = 30.0  # a supervisor answers at once, but a busy host may take a while to start it
STOP_SECONDS = 15.0  # the grace period, and time to kill what ignores it
GRACE_SECONDS = 5.0  # from SIGTERM to SIGKILL: enough for a program to write its last record


@dataclass(frozen=True)
class Job:
    """One attempt of a trial, ready to start."""

    trial: Trial
    token: str
    """Unique text in the environment of every process of the attempt, by which its processes are found."""
    folder: Path
    """Local folder for records, output and status of the attempt."""
    work: Path
    """Local folder in which the sweep was started, and in which commands run."""
    cap_seconds: float


@dataclass(frozen=True)
class Seen:
    """The observed state of a trial."""

    state: str
    """One of ``starting``, ``running``, ``unknown`` (the machine does not answer), ``ended`` (no process is left),
    ``lost`` (the trial may still run), or ``gone`` (the machine was terminated at an unknown time)."""
    exit: int | None = None
    why: str = ""
    error: str = ""


class Runner(Protocol):
    """Starts, watches and stops trials, and fetches their records. Errors are :class:`vmselect.errors.SweepError`."""

    rents: bool = False
    """Whether the runner rents machines, so that a budget is required."""
    survives: bool = False
    """Whether a trial continues when vmselect exits, so that a resumed sweep can watch it again."""
    queues: bool = False
    """Whether a started trial may wait in a queue before it runs, at no cost."""
    poll_seconds: float = 1.0
    """Seconds between two calls of :meth:`watch`."""

    def programs(self, trials: Sequence[Trial]) -> Sequence[str]:
        """Return the programs for ``trials`` that are searched for in the PATH of this process."""
        return ()

    def check(self, trials: Sequence[Trial]) -> None:
        """Raise an error if one of ``trials`` cannot run. Called before the first trial starts."""
        return

    def has_room(self, trial: Trial) -> bool:
        """Return whether the machine or CPU cores for ``trial`` are free, so that it can start now."""
        return True

    def announce(self, job: Job) -> Handle:
        """Reserve the machine or CPU cores of a trial before it starts, and return its handle. Called by one thread."""

    def start(self, job: Job, handle: Handle) -> Handle:
        """Start a trial. Return fields to add to its handle."""

    def watch(self, handle: Handle) -> Seen:
        """Return the current state of a trial."""

    def fetch(self, handle: Handle, into: Path, *, seconds: float) -> None:
        """Copy the folder of a trial to ``into`` within ``seconds``. After a failure, it can be called again."""
        return

    def stop(self, handle: Handle) -> str:
        """End a trial and free its machine or CPU cores. Return "", or the reason why its end could not be proved."""

    def close(self) -> None:
        """Close the connections and files of the runner."""
        return


class ConnectedRunner(Runner):
    """Watches trials over connections to their supervisors, and reserves their CPU cores or hosts until they end."""

    close_seconds = 3.0
    """Longest wait, in seconds, for a supervisor to exit after its connection was closed."""

    def __init__(self) -> None:
        self.connections: dict[str, list[Connection]] = {}
        self.reserved: dict[str, list[int | str]] = {}

    @property
    def busy(self) -> set[int | str]:
        """All CPU cores or hosts that are reserved for trials."""
        return {resource for resources in list(self.reserved.values()) for resource in resources}

    def disconnect(self, token: str, *, gone: bool = False) -> None:
        """Close the connections of a trial. With ``gone=True``, free its CPU cores or hosts."""
        for connection in self.connections.pop(token, []):
            connection.close(seconds=self.close_seconds)
        if gone:
            self.reserved.pop(token, None)

    def reported_end(self, token: str) -> bool:
        """Return whether all supervisors of a trial have reported that none of its processes is left."""
        outcomes = [connection.outcome() for connection in self.connections.get(token, [])]
        return bool(outcomes) and all(outcome and not outcome.get("left") for outcome in outcomes)

    def close(self) -> None:
        """Close all connections, which ends the trials that still run."""
        for token in list(self.connections):
            self.disconnect(token)


class Connection:
    """Sends a request and heartbeats to a supervisor, and receives its two messages: ``started`` and ``ended``."""

    def __init__(self, command: Sequence[str], request: Json) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._closed, self._answered = threading.Event(), threading.Event()
        self._started: Json = {}
        self._outcome: Json = {}
        self._threads = [threading.Thread(target=act, daemon=True) for act in (self._read, self._beat)]
        try:
            self._send(json.dumps(request).encode() + b"\n")
        except OSError as cut:
            raise SweepError(
                f"The connection to a supervisor was cut ({cut}). Check the host, then resume the sweep."
            ) from cut
        finally:
            for thread in self._threads:
                thread.start()

    def wait_started(self) -> Json:
        """Wait for the supervisor's message ``started``. Return it: process IDs and output pipes of the trial."""
        self._answered.wait(START_SECONDS)
        return self._started

    def outcome(self) -> Json | None:
        """Return the outcome of the trial; None while it runs, empty if the connection ended without an outcome."""
        if self._process.poll() is None and not self._outcome:
            return None
        self._threads[0].join(timeout=5.0)
        return self._outcome

    def stop(self) -> None:
        """Ask the supervisor to end the trial, and wait until the supervisor exits."""
        with suppress(OSError, ValueError, subprocess.TimeoutExpired):  # what is left is found by its token
            self._send(b"S")
            self._process.wait(timeout=STOP_SECONDS)

    def close(self, *, seconds: float) -> None:
        """Close the connection, which ends the trial. After ``seconds``, kill the process of the connection."""
        self._closed.set()
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(timeout=5.0)
        self._process.stdout.close()  # type: ignore[union-attr]

    def _send(self, data: bytes) -> None:
        self._process.stdin.write(data)  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]

    def _read(self) -> None:
        for line in self._process.stdout:  # type: ignore[union-attr]
            try:
                message = json.loads(line)
            except ValueError:
                continue  # the host's greeting
            if isinstance(message, dict) and isinstance(message.get("ended"), dict):
                self._outcome = message["ended"]
            elif isinstance(message, dict) and "pipes" in message:
                self._started = message
                self._answered.set()
        self._answered.set()

    def _beat(self) -> None:
        with suppress(OSError, ValueError):
            while not self._closed.wait(1.0):
                self._send(b".")


def make_request(
    job: Job,
    folder: str,
    work: str,
    *,
    cores: Sequence[Sequence[int]] = (),
    workers: Sequence[Mapping[str, str]] = ({},),
    **more: object,
) -> Json:
    """Return the request to a supervisor to run the ``workers`` of one host.

    ``folder`` and ``work`` are paths on that host. ``workers`` contains the environment variables of each worker.
    """
    made: list[Json] = []
    trial = job.trial
    # The machine's own property is a reservation, which local trials get as a list of cores, and jobs from Slurm.
    limits: Json = {"core_count": trial.factors["cores"]} if "cores" in trial.factors and not cores else {}
    if trial.machine.memory_gib:
        limits["memory_bytes"] = int(trial.machine.memory_gib * 2**30)
    for index, own in enumerate(workers):
        rank = int(own.get("RANK", index))
        target = {"VMSELECT_FOLDER": f"{folder}/worker-{rank}" if rank else f"{folder}/records"}
        made.append(
            {
                "argv": list(job.trial.arguments), "cwd": work, "env": {**job.trial.variables, **target, **own},
                "cores": list(cores[index]) if cores else [], **limits,
                "output": f"output-{rank}.txt" if rank else "output.txt",
            }
        )  # fmt: skip
    return {"workers": made, "cap_seconds": job.cap_seconds, "grace_seconds": GRACE_SECONDS, **more}


def make_request_file(job: Job, folder: str, work: str, **more: Any) -> str:
    """Return the content of ``request.json``, which the supervisors of all nodes read. Each of them runs one worker."""
    if job.trial.nodes > 1:
        more["nodes"] = job.trial.nodes
    return json.dumps(make_request(job, folder, work, **more))


def this_machine() -> dict[str, str]:
    """Return name and boot ID of this machine. Process IDs in a journal are valid only if both are equal."""
    return {"host": platform.node(), "boot": supervisor.BOOT}


def make_handle(runner: str, job: Job, **more: object) -> Handle:
    """Return the handle of a trial that has a supervisor on each of its nodes."""
    return {"runner": runner, "token": job.token, "guards": job.trial.nodes, **more}


def identifiers_of(handle: Handle) -> list[str]:
    """Return the token and the output pipes of a trial, by which its processes are found on their host."""
    return [str(handle["token"]), *map(str, handle.get("pipes", ()))]


def end_command(python: str, folder: str | Path, identifiers: Sequence[str]) -> list[str]:
    """Return the command that ends a trial on its host. Its standard input must be the source code of the supervisor.

    The supervisor's file on the host is not used, because it may have been removed or be of an earlier version.
    """
    return [python, "-I", "-", "end", str(folder), *identifiers]


def why_unproved(answer: Json) -> str:
    """Return the reason why ``answer``, of :func:`supervisor.end_trial`, does not prove the end of a trial, or ""."""
    if left := answer["left"]:
        return f"the processes {', '.join(map(str, left))} could not be ended"
    return str(answer["unproved"])


def count_supervisors(handle: Handle) -> int:
    """Return the number of supervisors of a trial, one per host."""
    return int(handle.get("guards", 1))


def run_program(
    command: Sequence[str],
    *,
    label: str,
    text: str = "",
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
    fine: Sequence[int] = (0,),
    seconds: float,
) -> str:
    """Run a program with a time limit of ``seconds`` and return its output.

    ``label`` is its name in error messages, and ``fine`` contains the exit codes that mean success.
    """
    try:
        done = subprocess.run(
            command, input=None if stdin else text.encode(), stdin=stdin, stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE, timeout=max(0.0, seconds), check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as cannot:
        raise SweepError(
            f"`{label}` failed or did not end in time ({type(cannot).__name__}). Check the connection."
        ) from cannot
    if done.returncode not in fine:
        lines = done.stderr.decode(errors="replace").split("\n")
        problem = next((line for line in reversed(lines) if line.strip()), f"exit code {done.returncode}")
        raise SweepError(f"`{label}` failed: {problem.strip()[:200]}. Run `{label}` in a shell to see the problem.")
    return "" if stdout else done.stdout.decode(errors="replace")


def read_json(text: str) -> Any:
    """Return the JSON value in the last line of a program's output. A host may print a greeting before that line."""
    lines = [line for line in text.splitlines() if line.strip()]
    return json.loads(lines[-1]) if lines else None


def read_status(folder: Path, supervisors: int = 1) -> Json:
    """Read and merge the status files of a trial's supervisors in ``folder``; empty if there are none."""
    statuses: list[Json] = []
    for rank in range(supervisors):
        try:
            status = json.loads((worker_folder(folder, rank) / "status.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            status = {}
        statuses.append(status if isinstance(status, dict) else {})
    return merge_outcomes(statuses)


def merge_outcomes(outcomes: Sequence[Json]) -> Json:
    """Merge the outcomes of a trial's supervisors. The first outcome is that of the chief.

    A trial has ended when all workers have ended. It has succeeded when all workers have succeeded.
    """
    status = outcomes[0]
    if len(outcomes) == 1 or not any(outcomes) or all(outcome.get("exit") == 0 for outcome in outcomes):
        return status
    reasons = [str(outcome.get("why", "")) for outcome in outcomes]
    ended = all(outcome.get("state") == "ended" for outcome in outcomes)
    # Workers that were ended because another was lost report "stop".
    why = next((reason for reason in reasons if reason in ("start", "cap", "cut", "silent", "guard")), "")
    codes = [
        outcome["exit"]
        for outcome, reason in zip(outcomes, reasons, strict=True)
        if outcome.get("exit") and reason == "exit"
    ]
    return {
        **status, "state": "ended" if ended else "running", "exit": codes[0] if codes else None,
        "why": why or ("stop" if set(reasons) == {"stop"} else "worker"),
        "error": next((outcome["error"] for outcome in outcomes if outcome.get("error")), "")
        or name_lost([outcome or {"state": "running"} for outcome in outcomes]),
    }  # fmt: skip


def name_lost(outcomes: Sequence[Json], hosts: Sequence[str] = ()) -> str:
    """Return a text that names the worker that failed or was lost first, with its host if known; "" if none did."""
    for rank, outcome in enumerate(outcomes):
        host = f" ({hosts[rank]})" if rank < len(hosts) else ""
        if not outcome:
            return f"worker {rank} of {len(outcomes)}{host} was lost"
        if outcome.get("exit") and outcome.get("why") == "exit":
            return f"worker {rank} of {len(outcomes)}{host} ended with exit code {outcome['exit']}"
    return ""


def seen_from(outcome: Json, problem: str = "") -> Seen:
    """Return the state of a trial with this outcome. ``problem`` is the reason why its end is not proved, or ""."""
    code = outcome.get("exit")
    return Seen("lost" if problem else "ended", exit=code if isinstance(code, int) else None,
                why=str(outcome.get("why", "")), error=str(outcome.get("error", "")))  # fmt: skip


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

    def programs(self, trials: Sequence[Trial]) -> Sequence[str]:
        """Return the programs of ``trials``."""
        return list(dict.fromkeys(trial.arguments[0] for trial in trials))

    def check(self, trials: Sequence[Trial]) -> None:
        """Raise an error if a program is not installed, or if cores or memory of a trial are more than those here."""
        for program in self.programs(trials):
            if shutil.which(program) is None:
                raise PlanError(
                    f"The program {program} is not installed on this machine. Install it, or write its complete path."
                )
        there = len(available_cores())
        for trial in trials:
            needed = (trial.machine.cores or 0) * trial.nodes
            if needed > there:
                raise PlanError(
                    f"Trial {trial.id} needs {needed} CPU cores, but vmselect may use {there}. Lower 'cores' of the "
                    "machine, or the factors 'cores' and 'nodes'."
                )
            gib = trial.machine.memory_gib or 0.0
            if supervisor.exceeds_memory(gib * 2**30):
                raise PlanError(
                    f"Trial {trial.id} may use {gib:g} GiB of memory, but this machine has "
                    f"{supervisor.total_memory() / 2**30:.3g}, so that nothing is limited. Lower 'memory_gib'."
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
