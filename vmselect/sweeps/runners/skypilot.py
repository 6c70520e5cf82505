"""Runs trials on machines that SkyPilot rents, and converts estimates, prices and plans to SkyPilot's formats.

The runner rents a cluster for each trial, and terminates it after the trial.
"""

from __future__ import annotations

import os
import queue
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_count, list_items
from vmselect._imports import require
from vmselect._io import write_text
from vmselect.errors import ArgumentError, EstimateError, PlanError, SweepError
from vmselect.records import Profile
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners.runner import (
    SUPERVISOR,
    Handle,
    Job,
    Runner,
    Seen,
    count_supervisors,
    make_handle,
    make_request_file,
)
from vmselect.sweeps.runners.ssh import end_remote, fetch_all

if TYPE_CHECKING:
    pass

DOWN_SECONDS = 120.0
"""Seconds of a trial's time limit that are reserved for terminating its machines."""

GONE_SECONDS = 900.0
IDLE_MINUTES = 1
CALL_SECONDS = 60.0
MAX_UNANSWERED = 5
"""Number of failed calls of SkyPilot in a row after which a trial is treated as lost."""

Sky = Any
"""SkyPilot's module and its objects, which have no types here because it is an optional package."""

PORTS = (29500, 29501)
"""Ports over which the workers communicate. On a rented machine no other program uses them."""


class SkyPilotRunner(Runner):
    """Rents a cluster for each trial, with a machine for each of its nodes."""

    rents = True
    survives = True
    poll_seconds = 10.0

    def __init__(self, locations: Mapping[str, str]) -> None:
        self._locations = locations
        self._unanswered: dict[str, int] = {}

    def check(self, trials: Sequence[Trial]) -> None:
        """Raise an error if SkyPilot does not accept the machines of a trial."""
        sky = load_sky()
        for trial in trials:
            make_resources(sky, trial, self._locations.get(trial.offer, ""))

    def announce(self, job: Job) -> Handle:
        """Return the handle of a trial with the name of its cluster, before the cluster is launched."""
        short = re.sub(r"[^a-z0-9-]", "-", job.token.lower())
        return make_handle("skypilot", job, cluster=short, far=f"/tmp/{short}")

    def start(self, job: Job, handle: Handle) -> Handle:
        """Launch a cluster that terminates itself when it is idle, and start the trial on it."""
        seconds = job.cap_seconds - DOWN_SECONDS
        if seconds <= 0:
            raise SweepError(
                f"The time limit of the trial is too short: its last {DOWN_SECONDS / 60:g} minutes are reserved for "
                "terminating the rented machine. Set 'minutes' in the plan to this plus the time that the trial needs."
            )
        sky = load_sky()
        remote = handle["far"]
        request = make_request_file(job, remote, ".", deadline_unix=time.time() + seconds, ports=PORTS)
        file = write_text(job.folder / "request.json", request, error=SweepError)
        task = make_task(sky, job, remote, self._locations.get(job.trial.offer, ""))
        task.set_file_mounts({f"{remote}/{path.name}": str(path) for path in (SUPERVISOR, file)})
        own = {n: os.environ[n] for n, v in job.trial.environment.items() if v is None and n in os.environ}
        # Older releases have no secrets, and keep these values where they keep the task.
        getattr(task, "update_secrets", task.update_envs)(own)
        name = handle["cluster"]
        number, _ = call(
            lambda: sky.get(sky.launch(task, cluster_name=name, down=True, idle_minutes_to_autostop=IDLE_MINUTES)),
            seconds=seconds,  # a later machine would have no time left
        )
        return {"job": number}

    def watch(self, handle: Handle) -> Seen:
        """Return the state of a trial. It is "running" until SkyPilot reports the end of its job."""
        sky, name = load_sky(), handle["cluster"]
        numbers = [handle["job"]] if "job" in handle else None
        try:
            states = call(lambda: sky.get(sky.job_status(name, job_ids=numbers)))
        except SweepError as cannot:
            with suppress(SweepError):
                if isinstance(cannot, NoClusterError) and not cluster_exists(sky, name):
                    terminated = "the rented machine was terminated at an unknown time, so the cost is an estimate"
                    return Seen("gone", why="cut", error=terminated)
            self._unanswered[name] = self._unanswered.get(name, 0) + 1
            lost = self._unanswered[name] >= MAX_UNANSWERED
            return Seen("lost" if lost else "unknown", why="cut", error=str(cannot))
        self._unanswered.pop(name, None)
        state = next(iter(states.values()), None)
        if state is None or not state.is_terminal():
            return Seen("running")
        good = str(getattr(state, "value", state)).upper() == "SUCCEEDED"  # on every node
        worker = not good and count_supervisors(handle) > 1
        return Seen("ended", exit=0 if good else None, why="worker" if worker else "exit")

    def fetch(self, handle: Handle, into: Path, *, seconds: float) -> None:
        """End the processes of a trial and copy its folder to ``into``, over the ssh hosts that SkyPilot configures."""
        name = handle["cluster"]
        hosts = [name, *(f"{name}-worker{rank}" for rank in range(1, count_supervisors(handle)))]
        until = time.monotonic() + seconds
        for host in hosts:  # files that are still written cannot be copied completely
            share = max(0.0, until - time.monotonic()) / 2
            end_remote(host, "python3", handle["far"], [handle["token"]], seconds=share)
        fetch_all(hosts, handle["far"], into, seconds=until - time.monotonic())

    def stop(self, handle: Handle) -> str:
        """Terminate the cluster of a trial and wait until SkyPilot no longer lists it.

        Return "", or the reason why its end could not be proved.
        """
        sky, name, problem = load_sky(), handle["cluster"], ""
        until = time.monotonic() + GONE_SECONDS
        while time.monotonic() < until:
            try:
                call(lambda: sky.get(sky.down(name)), seconds=GONE_SECONDS)
            except NoClusterError:
                problem = ""  # its status is checked all the same
            except SweepError as cannot:
                problem = str(cannot)
            try:
                if not cluster_exists(sky, name):
                    return ""
                problem = problem or f"the cluster {name} still exists"
            except SweepError as cannot:
                problem = f"the status of the cluster is unknown: {cannot}"
            time.sleep(self.poll_seconds)
        return f"{problem}; check with `sky status --refresh` and in the cloud's console that the cluster is terminated"


def load_sky() -> Sky:
    """Import and return SkyPilot, which takes seconds. Its telemetry is turned off, unless the user turned it on."""
    for name in ("SKYPILOT_DISABLE_USAGE_COLLECTION", "DO_NOT_TRACK"):
        os.environ.setdefault(name, "1")
    return require("sky", extra="skypilot", needed_by="The runner skypilot")


class NoClusterError(SweepError):
    """SkyPilot has no cluster of this name."""


def call(act: Callable[[], Sky], *, seconds: float = CALL_SECONDS) -> Sky:
    """Call ``act``, which calls SkyPilot, with a time limit of ``seconds``. Its errors become :class:`SweepError`."""
    answers: queue.SimpleQueue[tuple[Sky, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((act(), None))
        except BaseException as failed:  # noqa: BLE001 - raised below, by the calling thread
            answers.put((None, failed))

    threading.Thread(target=run, daemon=True).start()  # SkyPilot's calls have no time limit
    try:
        answer, wrong = answers.get(timeout=seconds)
    except queue.Empty:
        raise SweepError(f"SkyPilot did not answer within {seconds:.0f} seconds. Run `sky api status`.") from None
    if wrong is None:
        return answer
    lines = str(wrong).strip().splitlines()
    kind = NoClusterError if type(wrong).__name__ == "ClusterDoesNotExist" else SweepError
    raise kind(f"SkyPilot failed: {(lines[0] if lines else type(wrong).__name__)[:200].rstrip('.')}.") from wrong


def cluster_exists(sky: Sky, name: str) -> bool:
    """Ask the cloud whether the cluster ``name`` exists."""
    return bool(call(lambda: sky.get(sky.status(cluster_names=[name], refresh=sky.StatusRefreshMode.FORCE))))


def make_resources(sky: Sky, trial: Trial, location: str = "") -> Sky:
    """Return ``sky.Resources`` for a trial: its instance type, in the cloud and region ``location``."""
    try:
        return call(lambda: sky.Resources(**resources_of(trial, location)))
    except SweepError as wrong:
        raise PlanError(f"SkyPilot does not accept trial {trial.id} ({trial.instance_type}): {wrong}") from wrong


def resources_of(trial: Trial, location: str = "") -> dict[str, Any]:
    """Return the arguments of ``sky.Resources`` for a trial. ``location`` is the cloud and region of its price."""
    fields: dict[str, Any] = {"instance_type": trial.instance_type, "region": trial.region, **trial.machine.options}
    if location:
        fields |= {"region": None, "cloud": None, "infra": location}
    elif "cloud" in fields:  # SkyPilot accepts both in one field, or the region alone
        fields["infra"] = "/".join(filter(None, (str(fields.pop("cloud")), fields.pop("region"))))
    machine, accelerators = split_attached(str(fields["instance_type"]))
    fields |= {"instance_type": machine, "accelerators": accelerators} if accelerators else {}
    fields |= {"use_spot": trial.market == "spot", "autostop": {"idle_minutes": IDLE_MINUTES, "down": True}}
    return {name: value for name, value in fields.items() if value not in (None, "")}


def split_attached(instance_type: str) -> tuple[str, str]:
    """Machine and accelerators of an instance type, as SkyPilot names them; "" if the type includes its accelerators.

    Google's GPUs are attached to N1 machines, and the name in the catalog contains both.

    >>> split_attached("n1-standard-4+1xT4"), split_attached("g5.xlarge")
    (('n1-standard-4', 'T4:1'), ('g5.xlarge', ''))
    """
    attached = re.fullmatch(r"(n1-[\w-]+)\+(\d+)x([\w-]+)", instance_type)
    return (attached[1], f"{attached[3]}:{attached[2]}") if attached else (instance_type, "")


def make_task(sky: Sky, job: Job, remote: str, location: str = "") -> Sky:
    """Return a ``sky.Task`` that runs the supervisor on each machine of a trial, in the folder ``remote`` there."""
    supervisor = shlex.join(["python3", f"{remote}/{SUPERVISOR.name}", "run", remote, job.token])
    command = f"mkdir -p {shlex.quote(remote)}/records && {supervisor}"
    several = {"num_nodes": job.trial.nodes} if job.trial.nodes > 1 else {}
    task = sky.Task(name=f"vmselect-{job.trial.id}", run=command, workdir=str(job.work), **several)
    task.set_resources(make_resources(sky, job.trial, location))
    return task


def skypilot_estimator(profiles: Iterable[Profile], *, epochs: int, **workload: Any) -> Callable[[Sky], float]:
    """Return a function for ``sky.Task.set_time_estimator``, which estimates the seconds of the training.

    SkyPilot's optimizer then minimizes the total cost instead of the price per hour. The optimizer must run in this
    process (SkyPilot's API server ignores estimators), and each ``sky.Resources`` must have a probed ``instance_type``.
    ``workload`` are arguments of :func:`vmselect.estimate`, such as ``batch_size``.

    >>> import types
    >>> profile = Profile.from_times(instance_type="g5.xlarge", batch_size=64, steps_per_epoch=100,
    ...                              init_seconds=1, first_iteration_seconds=1, iteration_seconds=[0.1, 0.1])
    >>> round(skypilot_estimator([profile], epochs=10)(types.SimpleNamespace(instance_type="g5.xlarge")))
    102
    """
    from vmselect.estimation import fit_runtime

    count = check_count("epochs", epochs)
    if isinstance(profiles, Profile):
        profiles = [profiles]
    groups: dict[str, list[Profile]] = {}
    for profile in list_items(profiles):
        if not isinstance(profile, Profile):
            raise ArgumentError("skypilot_estimator accepts profiles only. Load them with vmselect.load_profiles.")
        if profile.instance_type:
            groups.setdefault(profile.instance_type, []).append(profile)
    if not groups:
        raise EstimateError("None of the profiles contains an instance type. Probe again with instance_type=.")
    models = {name: fit_runtime(several, **workload) for name, several in groups.items()}

    def seconds_on(resources: Sky) -> float:
        name = getattr(resources, "instance_type", None)
        if name not in models:
            raise EstimateError(
                f"{name or 'A resource without instance_type'} was not probed. Set instance_type of each sky.Resources "
                f"to one of: {', '.join(sorted(models))}."
            )
        return float(models[name].at(count).seconds)

    return seconds_on
