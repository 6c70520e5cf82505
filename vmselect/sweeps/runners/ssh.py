"""Trials on hosts that one has, through the user's own ssh and sftp, each under a guard that was sent along."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vmselect.errors import PlanError, SweepError
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners.base import (
    GUARD,
    WORKERS,
    Handle,
    Job,
    Seen,
    make_request,
    marks_of,
    merge_outcomes,
    seen_from,
)
from vmselect.sweeps.runners.link import OPTIONS, Link
from vmselect.sweeps.runners.parcel import checksums, pack
from vmselect.sweeps.workers import worker_environments, worker_folder

SILENCE_SECONDS = 20.0
"""After so long without a sign of life from here, the guard ends its trial."""

LIST_FILES = """
import json, os, sys, zlib
found = {}
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) <= 33 << 20:
            data = open(path, "rb").read()
            found[os.path.relpath(path, sys.argv[1])] = "%d %d" % (len(data), zlib.crc32(data))
print(json.dumps(found))
"""
CALL_SECONDS, COPY_SECONDS = 120.0, 1200.0
TRIES = 3
SILENT = "it cannot be asked"


class SshRunner:
    """Runs trials on hosts that ssh reaches; a trial of several nodes runs on as many hosts."""

    rents = False
    survives = False
    queues = False
    poll_seconds = 0.2

    def __init__(self, sweep_id: str, folder: Path) -> None:
        self._base = f".vmselect-sweeps/{sweep_id}"  # below the home folder of the far side
        self._folder = folder
        self._links: dict[str, list[Link]] = {}
        self._busy: dict[str, list[str]] = {}
        self._sent: dict[str, threading.Lock] = {}
        self._ready: set[str] = set()
        self._lock = threading.Lock()
        self._parcel: Path | None = None

    def check(self, trials: Sequence[Trial]) -> None:
        """Raise where ssh is missing or a trial has fewer hosts than nodes."""
        for program in ("ssh", "sftp"):
            if shutil.which(program) is None:
                raise SweepError(f"{program} is not on this machine. Install OpenSSH's client.")
        for trial in trials:
            hosts = hosts_of(trial)
            if len(hosts) < trial.nodes:
                raise PlanError(
                    f"Trial {trial.id} wants {trial.nodes} nodes, and {trial.machine.name} has {len(hosts)} hosts. "
                    f"List them: machines: {trial.machine.name}: hosts."
                )

    def has_room(self, trial: Trial) -> bool:
        """Whether no other trial runs on one of its hosts: two would disturb each other's times."""
        busy = {host for hosts in list(self._busy.values()) for host in hosts}
        return busy.isdisjoint(hosts_of(trial)[: trial.nodes])

    def announce(self, job: Job) -> Handle:
        """Hosts, now its own, the folder over there, and the token that every process of the trial carries."""
        hosts = self._busy[job.token] = list(hosts_of(job.trial)[: job.trial.nodes])
        far = f"{self._base}/{job.trial.id}-{job.token.rsplit('-', 1)[1]}"
        return {"runner": "ssh", "token": job.token, "hosts": hosts, "far": far, "base": self._base,
                "python": job.trial.machine.python, "guards": len(hosts)}  # fmt: skip

    def start(self, job: Job, handle: Handle) -> Handle:
        """Send the work folder and the guard, then start a guard on every host over a connection that stays open."""
        hosts, python = handle["hosts"], handle["python"]
        homes = [self._send(host, python, job.work) for host in hosts]
        places = [find_place(host, python, handle["base"]) for host in hosts] if len(hosts) > 1 else [{}]
        links = self._links[job.token] = []
        for rank, (host, home, worker) in enumerate(zip(hosts, homes, worker_environments(places), strict=True)):
            far = f"{home}/{handle['far']}"
            own = str(worker_folder(far, rank))
            call(host, f"mkdir -p {shlex.quote(own)}/records")
            request = make_request(
                job, far, f"{home}/{handle['base']}/work", workers=[worker], listen=True,
                silence_seconds=SILENCE_SECONDS,
            )  # fmt: skip
            for name, value in job.trial.environment.items():
                if value is None and name in os.environ:
                    request["workers"][0]["env"][name] = os.environ[name]  # over the connection only: never on a disk
            links.append(Link(host, shlex.join([python, f"{home}/{handle['base']}/guard.py", "run", own, job.token])))
            links[-1].ask(request)
        return {"homes": homes, "pipes": [pipe for link in links for pipe in link.wait_started()]}

    def watch(self, handle: Handle) -> Seen:
        """Ended when every guard said so; one that failed, or was lost, ends the others."""
        links = self._links.get(handle["token"])
        if not links:
            return Seen("lost")
        states = [link.look() for link in links]
        if all(outcome is None for outcome in states):
            return Seen("running")
        told = [outcome for outcome in states if outcome]
        if len(told) == len(links) and not any(outcome.get("left") for outcome in told):
            outcome = merge_outcomes(told)
            self._forget(handle["token"])
            self._busy.pop(handle["token"], None)
            return seen_from(outcome, list)
        if any(outcome == {} or (outcome and outcome.get("exit") != 0) for outcome in states):
            return Seen("lost", why="cut" if {} in states else "worker")
        return Seen("running")

    def fetch(self, handle: Handle, into: Path, *, seconds: float) -> None:
        """Copy the chief's folder here, whole or not at all, and of the others what can be had; then remove them."""
        fetch_all(handle["hosts"], handle["far"], handle["python"], into, seconds=seconds)
        for each in handle["hosts"]:
            quietly(each, f"rm -rf {shlex.quote(handle['far'])}")

    def stop(self, handle: Handle) -> str:
        """Ask the guards, then end whatever carries the token on every host; proved when each host says so."""
        for link in self._links.get(handle["token"], []):
            link.end()
        self._forget(handle["token"])
        problems = []
        for host in handle["hosts"]:
            problem = ""
            for _ in range(TRIES):
                problem = end_there(host, f"{handle['base']}/guard.py", handle["python"], marks_of(handle))
                if not problem.startswith(SILENT):
                    break
            problems += [f"{host}: {problem}"] if problem else []
        if not problems:
            self._busy.pop(handle["token"], None)
        return "; ".join(problems)

    def close(self) -> None:
        """Cut every connection, which ends what runs behind it, and take back the copies of the work folder."""
        for token in list(self._links):
            self._forget(token)
        for host in self._ready:
            quietly(host, f"rm -rf {shlex.quote(self._base)}/work {shlex.quote(self._base)}/work.tar.gz")
        if self._parcel:
            self._parcel.unlink(missing_ok=True)

    def _forget(self, token: str) -> None:
        for link in self._links.pop(token, []):
            link.close()

    def _send(self, host: str, python: str, work: Path) -> str:
        """Bring guard and work folder to ``host`` once; returns its home folder."""
        with self._lock:
            lock = self._sent.setdefault(host, threading.Lock())
            if self._parcel is None:
                self._parcel = pack(work, leave_out=self._folder)
        base = shlex.quote(self._base)
        with lock:
            home = call(host, "pwd").strip()
            if host not in self._ready:
                call(host, f"mkdir -p -m 700 {base}/work")
                sent = {self._parcel: "work.tar.gz", GUARD: GUARD.name, WORKERS: WORKERS.name}
                sftp(host, [f"put {quoted(path)} {quoted(f'{self._base}/{name}')}" for path, name in sent.items()])
                call(host, f"tar -xzf {base}/work.tar.gz -C {base}/work")
                self._ready.add(host)
        return home


def fetch_all(hosts: Sequence[str], far: str, python: str, into: Path, *, seconds: float) -> None:
    """Copy what the chief wrote on the first of ``hosts``, trying again, and of the others what can be had."""
    chief, *others = hosts
    until = time.monotonic() + seconds
    for left in range(TRIES - 1, -1, -1):
        try:
            copy_folder(chief, far, python, into, seconds=until - time.monotonic())
            break
        except SweepError:
            if not left or time.monotonic() >= until:
                raise
    for rank, host in enumerate(others, start=1):
        folder = worker_folder(into, rank)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            copy_folder(host, str(worker_folder(far, rank)), python, folder, seconds=until - time.monotonic())
        except SweepError:
            continue  # its status is missing then, and says so


def copy_folder(host: str, far: str, python: str, into: Path, *, seconds: float) -> None:
    """Copy the files of the folder ``far`` into ``into`` within so many seconds, all records whole or nothing.

    Whatever else lies there, output and drafts of records, may still grow, and comes as it is.
    """
    until = time.monotonic() + seconds
    answer = call(host, shlex.join([python, "-c", LIST_FILES, far]), seconds=min(CALL_SECONDS, seconds))
    try:
        wanted: dict[str, str] = dict(json.loads(_lines(answer)[-1]))
    except (ValueError, TypeError, IndexError):
        raise SweepError(f"{host}: its answer about {far} cannot be read. Resume to fetch it again.") from None
    if not wanted:
        return
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".fetch-") as name:
        part = Path(name) / "got"
        left = min(COPY_SECONDS, until - time.monotonic())
        sftp(host, [f"get -r {quoted(far)} {quoted(part)}"], seconds=left)
        here = checksums(part)
        if bad := [path for path, said in wanted.items() if _is_record(path) and here.get(path) != said]:
            raise SweepError(f"{host}: {', '.join(bad[:3])} came damaged or not at all. Resume to fetch it again.")
        for path in here:  # what came, by names that this side gave
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            (part / path).replace(into / path)


def end_there(host: str, guard: str, python: str, marks: Sequence[str], *, seconds: float = CALL_SECONDS) -> str:
    """End whatever carries one of ``marks`` on ``host``, with the guard that was sent there; why it may still run."""
    there = shlex.quote(guard)
    try:
        answer = call(host, f"test ! -e {there} || {shlex.quote(python)} {there} end", text=" ".join(marks),
                      fine=(0, 1), seconds=seconds)  # fmt: skip
        left = json.loads(answer.strip().splitlines()[-1])["left"] if answer.strip() else []
    except (SweepError, ValueError, KeyError) as cannot:
        return f"{SILENT}: {cannot}"
    return f"processes {left} do not end" if left else ""


def find_place(host: str, python: str, base: str) -> dict[str, Any]:
    """Where a worker on ``host`` is, by the address that ssh uses and with ports that are free there."""
    try:
        said = json.loads(_lines(call(host, shlex.join([python, f"{base}/workers.py", "place"])))[-1])
        config = subprocess.run(["ssh", "-G", host], capture_output=True, text=True, timeout=CALL_SECONDS, check=True)
    except (ValueError, IndexError, OSError, subprocess.SubprocessError) as cannot:
        raise SweepError(f"{host}: where it is for other workers cannot be found out: {cannot}.") from cannot
    address = re.search(r"^hostname (\S+)$", config.stdout, re.MULTILINE)  # what stands behind an alias
    return {**said, "host": address[1] if address else host.rpartition("@")[2]}


def hosts_of(trial: Trial) -> tuple[str, ...]:
    """The hosts of the trial's machine; without any, its name is one."""
    return trial.machine.hosts or (trial.machine.name,)


def call(host: str, command: str, *, text: str = "", fine: Sequence[int] = (0,), seconds: float = CALL_SECONDS) -> str:
    """Run a command of our own on ``host``; values in it are quoted by the caller."""
    try:
        done = subprocess.run(["ssh", "-T", *OPTIONS, host, command], input=text, capture_output=True, text=True,
                              timeout=max(0.0, seconds), check=False, errors="replace")  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as cannot:
        raise SweepError(f"{host}: ssh did not answer ({type(cannot).__name__}). Check the connection.") from cannot
    if done.returncode not in fine:
        said = (_lines(done.stderr) or [f"exit code {done.returncode}"])[-1]
        raise SweepError(f"{host}: ssh failed: {said[:200]}. Check that `ssh {host}` works without a question.")
    return done.stdout


def quietly(host: str, command: str) -> None:
    """The same for tidying up, which may fail."""
    try:
        call(host, command)
    except SweepError:
        return


def sftp(host: str, commands: Sequence[str], *, seconds: float = COPY_SECONDS) -> None:
    """Copy files with sftp."""
    text = "\n".join(commands) + "\n"
    try:
        done = subprocess.run(["sftp", "-q", *OPTIONS, "-b", "-", host], input=text, text=True, capture_output=True,
                              timeout=max(0.0, seconds), check=False, errors="replace")  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as cannot:
        raise SweepError(f"{host}: sftp did not answer ({type(cannot).__name__}). Check the connection.") from cannot
    if done.returncode:
        said = (_lines(done.stderr) or [f"exit code {done.returncode}"])[-1]
        raise SweepError(f"{host}: sftp failed: {said[:200]}.")


def quoted(path: str | Path) -> str:
    """A path as sftp's own commands take it."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _is_record(path: str) -> bool:
    """Whether a file of a trial's folder is a record that was written to its end.

    >>> [_is_record(path) for path in ("records/a.json", "records/.a.json.draft", "output.txt", "status.json")]
    [True, False, False, False]
    """
    return fnmatch.fnmatch(path, "records/[!.]*.json")


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]
