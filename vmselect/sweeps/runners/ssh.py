"""Trials on hosts that one has, through the user's own ssh and sftp, each under a guard that was sent along."""

from __future__ import annotations

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
from vmselect.sweeps.runners.parcel import checksums, pack
from vmselect.sweeps.workers import worker_environments, worker_folder

OPTIONS = (
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=15",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
)
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
START_SECONDS = 30.0


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
        busy = {link.host for links in list(self._links.values()) for link in links}
        return busy.isdisjoint(hosts_of(trial)[: trial.nodes])

    def announce(self, job: Job) -> Handle:
        """Hosts, the folder over there, and the token that every process of the trial carries."""
        hosts = list(hosts_of(job.trial)[: job.trial.nodes])
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
            guard = shlex.quote(f"{handle['base']}/guard.py")
            problem = ""
            for _ in range(TRIES):
                try:
                    answer = call(host, f"test ! -e {guard} || {shlex.quote(handle['python'])} {guard} end",
                                  text=" ".join(marks_of(handle)), fine=(0, 1))  # fmt: skip
                    left = json.loads(answer.strip().splitlines()[-1])["left"] if answer.strip() else []
                    problem = f"processes {left} do not end" if left else ""
                    break
                except (SweepError, ValueError, KeyError) as cannot:
                    problem = f"{host} cannot be asked: {cannot}"
            problems += [f"{host}: {problem}"] if problem else []
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


class Link:
    """A connection to a guard: our signs of life go one way, its two messages the other."""

    def __init__(self, host: str, command: str) -> None:
        self.host = host
        self._process = subprocess.Popen(
            ["ssh", "-T", *OPTIONS, host, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._outcome: dict[str, Any] | None = None
        self._closed, self._started = threading.Event(), threading.Event()
        self._pipes: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._beat = threading.Thread(target=self._live, daemon=True)

    def ask(self, request: dict[str, Any]) -> None:
        """Send the request and begin to give signs of life."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as cut:
            raise SweepError(f"{self.host}: the connection was cut ({cut}).") from cut
        finally:
            self._reader.start()
            self._beat.start()

    def wait_started(self) -> list[str]:
        """The pipes that the trial prints into, once the guard says that it runs."""
        self._started.wait(START_SECONDS)
        return self._pipes

    def look(self) -> dict[str, Any] | None:
        """None while it runs, what the guard told, or nothing where the connection ended without a word."""
        if self._process.poll() is None and self._outcome is None:
            return None
        self._reader.join(timeout=5.0)
        return self._outcome or {}

    def end(self) -> None:
        """Ask the guard to end the trial, and give it the time to."""
        try:
            if self._process.stdin and self._process.poll() is None:
                self._process.stdin.write(b"S")
                self._process.stdin.flush()
                self._process.wait(timeout=15.0)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return  # the token will find what is left

    def close(self) -> None:
        """Cut the connection."""
        self._closed.set()
        try:
            if self._process.stdin:
                self._process.stdin.close()
        except OSError:
            pass  # it was cut already
        try:
            self._process.wait(timeout=3.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader.ident:
            self._reader.join(timeout=5.0)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            try:
                told = json.loads(line)
            except ValueError:
                continue  # a host that greets
            if isinstance(told, dict) and isinstance(told.get("ended"), dict):
                self._outcome = told["ended"]
            elif isinstance(told, dict) and isinstance(told.get("pipes"), list):
                self._pipes = [str(pipe) for pipe in told["pipes"]]
                self._started.set()
        self._started.set()

    def _live(self) -> None:
        while not self._closed.wait(1.0) and self._process.stdin:
            try:
                self._process.stdin.write(b".")
                self._process.stdin.flush()
            except (OSError, ValueError):
                return


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
    """Copy the files of the folder ``far`` into ``into``, all of them whole or none, within so many seconds."""
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
        if bad := [path for path, described in wanted.items() if here.get(path) != described]:
            raise SweepError(f"{host}: {', '.join(bad[:3])} came damaged or not at all. Resume to fetch it again.")
        for path in here:  # what came, by names that this side gave
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            (part / path).replace(into / path)


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


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]
