"""Trials on rented machines, with SkyPilot: one cluster per trial, named before its launch, terminated after it."""

from __future__ import annotations

import os
import queue
import re
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vmselect._files import write_text
from vmselect._optional import require
from vmselect.errors import PlanError, SweepError
from vmselect.sweeps import workers
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners.runner import (
    SUPERVISOR,
    WORKERS,
    Handle,
    Job,
    Seen,
    count_supervisors,
    make_request,
    request_files,
    supervisor_command,
    supervisor_name,
)
from vmselect.sweeps.runners.ssh import end_remote, fetch_all

DOWN_SECONDS = 120.0
"""The part of a trial's time cap that is reserved for terminating the machine."""

GONE_SECONDS = 900.0
IDLE_MINUTES = 1
CALL_SECONDS = 60.0
"""The default time limit for an answer of SkyPilot's server."""

PATIENCE = 5
"""A trial counts as lost after so many unanswered calls in a row."""


class SkyPilotRunner:
    """Rents a cluster per trial, of one machine or several."""

    rents = True
    survives = True
    queues = False
    poll_seconds = 10.0

    def __init__(self, locations: Mapping[str, str] = MappingProxyType({})) -> None:
        self._locations = locations
        self._unanswered: dict[str, int] = {}

    def check(self, trials: Sequence[Trial]) -> None:
        """Raise if SkyPilot does not accept a task."""
        sky = load_sky()
        for trial in trials:
            make_resources(sky, trial, self._locations.get(trial.offer, ""))

    def has_room(self, trial: Trial) -> bool:
        """The cloud decides."""
        return True

    def announce(self, job: Job) -> Handle:
        """The cluster's name, fixed before the launch."""
        short = re.sub(r"[^a-z0-9-]", "-", job.token.lower())
        return {"runner": "skypilot", "token": job.token, "cluster": short, "far": f"/tmp/{short}",
                "guards": job.trial.nodes, "program": SUPERVISOR.name}  # fmt: skip

    def start(self, job: Job, handle: Handle) -> Handle:
        """Launch one cluster that terminates itself when idle, and the trial on it."""
        if job.cap_seconds <= DOWN_SECONDS:
            raise SweepError(
                f"minutes must be above {DOWN_SECONDS / 60:g} for rented machines, which take time to end."
            )
        sky = load_sky()
        remote = handle["far"]
        request = make_request(job, remote, ".", deadline_unix=time.time() + job.cap_seconds - DOWN_SECONDS)
        mounts = {f"{remote}/{program.name}": str(program) for program in (SUPERVISOR, WORKERS)}
        for file, text in request_files(job, request, ports=workers.PORTS).items():
            mounts[f"{remote}/{file}"] = str(write_text(job.folder / file, text, error=SweepError))
        task = make_task(sky, job.trial, work=job.work, command=remote_command(job, remote),
                         location=self._locations.get(job.trial.offer, ""))  # fmt: skip
        task.set_file_mounts(mounts)
        own = {n: os.environ[n] for n, v in job.trial.environment.items() if v is None and n in os.environ}
        # Older releases have no secrets, and keep these values where they keep the task.
        getattr(task, "update_secrets", task.update_envs)(own)
        name = handle["cluster"]
        number, _ = asked(
            lambda: sky.get(sky.launch(task, cluster_name=name, down=True, idle_minutes_to_autostop=IDLE_MINUTES)),
            seconds=job.cap_seconds - DOWN_SECONDS,  # a later machine would have no time left
        )
        return {"job": number}

    def watch(self, handle: Handle) -> Seen:
        """Running until SkyPilot calls the job ended."""
        sky = load_sky()
        numbers = [handle["job"]] if "job" in handle else None
        name = handle["cluster"]
        try:
            states = asked(lambda: sky.get(sky.job_status(name, job_ids=numbers)))
        except SweepError as cannot:
            if isinstance(cannot, NoClusterError) and not is_there(sky, name, otherwise=True):
                estimate = "it was found gone, so what it cost is an estimate, and no more than its worst case"
                return Seen("gone", why="cut", error=estimate)
            self._unanswered[name] = self._unanswered.get(name, 0) + 1
            return Seen("unknown" if self._unanswered[name] < PATIENCE else "lost", why="cut", error=str(cannot))
        self._unanswered.pop(name, None)
        state = next(iter(states.values()), None)
        if state is None or not state.is_terminal():
            return Seen("running")
        good = str(getattr(state, "value", state)).upper() == "SUCCEEDED"  # on every node
        return Seen(
            "ended", exit=0 if good else None, why="exit" if good or count_supervisors(handle) == 1 else "worker"
        )

    def fetch(self, handle: Handle, into: Path, *, seconds: float) -> None:
        """Copy the trial's folder over the ssh entries that SkyPilot makes for its cluster."""
        name = handle["cluster"]
        hosts = [name, *(f"{name}-worker{rank}" for rank in range(1, count_supervisors(handle)))]
        until = time.monotonic() + seconds
        for host in hosts:  # files that are still written cannot be copied completely
            share = (until - time.monotonic()) / 2
            program = f"{handle['far']}/{supervisor_name(handle)}"
            end_remote(host, program, "python3", [handle["token"]], seconds=share)
        fetch_all(hosts, handle["far"], into, seconds=until - time.monotonic())

    def stop(self, handle: Handle) -> str:
        """Terminate the cluster and wait until SkyPilot no longer lists it."""
        sky = load_sky()
        name, problem, until = handle["cluster"], "", time.monotonic() + GONE_SECONDS
        while time.monotonic() < until:
            try:
                asked(lambda: sky.get(sky.down(name)), seconds=GONE_SECONDS)
            except NoClusterError:
                problem = ""  # what does not exist is gone; its status is asked all the same
            except SweepError as cannot:
                problem = str(cannot)
            try:
                if not is_there(sky, name):
                    return ""
                problem = problem or f"{name} is still there"
            except SweepError as cannot:
                problem = f"its status is not known: {cannot}"
            time.sleep(self.poll_seconds)
        return f"{problem}; look at `sky status --refresh` and at the cloud's console"

    def close(self) -> None:
        """SkyPilot's own server holds everything."""


def load_sky() -> Any:
    """SkyPilot, with its telemetry off unless the user turned it on; importing it takes seconds."""
    for name in ("SKYPILOT_DISABLE_USAGE_COLLECTION", "DO_NOT_TRACK"):
        os.environ.setdefault(name, "1")
    return require("sky", extra="skypilot", needed_by="The runner skypilot")


class NoClusterError(SweepError):
    """SkyPilot knows no cluster of this name."""


def asked(act: Callable[[], Any], *, seconds: float = CALL_SECONDS) -> Any:
    """Call SkyPilot with a time limit; its errors become :class:`SweepError`."""
    answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put((act(), None))
        except BaseException as failed:  # noqa: BLE001 - raised below, by the thread that asked
            answers.put((None, failed))

    threading.Thread(target=ask, daemon=True).start()  # its calls have no time limit of their own
    try:
        answer, wrong = answers.get(timeout=seconds)
    except queue.Empty:
        raise SweepError(f"SkyPilot did not answer within {seconds:.0f} seconds. Look at `sky api status`.") from None
    if wrong is None:
        return answer
    lines = str(wrong).strip().splitlines()
    kind = NoClusterError if type(wrong).__name__ == "ClusterDoesNotExist" else SweepError
    raise kind(f"SkyPilot: {(lines[0] if lines else type(wrong).__name__)[:200].rstrip('.')}.") from wrong


def is_there(sky: Any, name: str, *, otherwise: bool | None = None) -> bool:
    """Whether the cloud still has the cluster; ``otherwise``, if given, when that is unknown."""
    try:
        return bool(asked(lambda: sky.get(sky.status(cluster_names=[name], refresh=sky.StatusRefreshMode.FORCE))))
    except SweepError:
        if otherwise is None:
            raise
        return otherwise


def make_resources(sky: Any, trial: Trial, location: str = "") -> Any:
    """Exactly one instance type in the location of its price, so that SkyPilot has no choice."""
    options = resources_of(trial, location)
    try:
        return asked(lambda: sky.Resources(**options, autostop={"idle_minutes": IDLE_MINUTES, "down": True}))
    except SweepError as wrong:
        raise PlanError(f"SkyPilot does not take trial {trial.id} ({trial.instance_type}): {wrong}") from wrong


def resources_of(trial: Trial, location: str = "") -> dict[str, Any]:
    """What a trial rents, as fields of a SkyPilot task; ``location`` is the cloud and the region of its price."""
    fields: dict[str, Any] = {"instance_type": trial.instance_type, "region": trial.region, **trial.machine.options}
    if location:
        fields |= {"region": None, "cloud": None, "infra": location}
    elif "cloud" in fields:  # SkyPilot takes both in one field, or the region alone
        fields["infra"] = "/".join(filter(None, (str(fields.pop("cloud")), fields.pop("region"))))
    # The catalog's notation for Google's GPUs, which are attached to N1 machines.
    if attached := re.fullmatch(r"(n1-[\w-]+)\+(\d+)x([\w-]+)", str(fields["instance_type"])):
        fields |= {"instance_type": attached[1], "accelerators": f"{attached[3]}:{attached[2]}"}
    fields["use_spot"] = trial.market == "spot"
    return {name: value for name, value in fields.items() if value not in (None, "")}


def make_task(sky: Any, trial: Trial, *, work: Path, command: str, location: str = "") -> Any:
    """The task of one trial."""
    several = {"num_nodes": trial.nodes} if trial.nodes > 1 else {}
    task = sky.Task(name=f"vmselect-{trial.id}", run=command, workdir=str(work), **several)
    task.set_resources(make_resources(sky, trial, location))
    return task


def remote_command(job: Job, remote: str) -> str:
    """The command that runs the supervisor on every machine."""
    return f"mkdir -p {shlex.quote(remote)}/records && {shlex.join(supervisor_command(job, 'python3', remote))}"
