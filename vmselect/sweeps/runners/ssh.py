"""Runs trials on other hosts over ssh. An archive with the supervisor and the work folder is sent to each host."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tarfile
import tempfile
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vmselect._checks import check_host, show
from vmselect.errors import ArgumentError, PlanError, SweepError
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners.runner import (
    SUPERVISOR,
    ConnectedRunner,
    Connection,
    Handle,
    Job,
    Seen,
    end_command,
    identifiers_of,
    make_handle,
    make_request,
    merge_outcomes,
    name_lost,
    read_json,
    read_status,
    run_program,
    seen_from,
    why_unproved,
)
from vmselect.sweeps.runners.supervisor import Json, worker_environments, worker_folder
from vmselect.units import format_bytes

MAX_BUNDLE_BYTES = 512 << 20  # scripts are small; more is a data set in the folder of the scripts
# Folders that belong to this machine, or that the host can make itself.
EXCLUDED = {".git", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "node_modules"}
OPTIONS = [f"-o{option}" for option in
           ("BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=5", "ServerAliveCountMax=3")]  # fmt: skip
SILENCE_SECONDS = 20.0
"""Seconds without a message over the connection after which a supervisor ends its trial."""

CALL_SECONDS, COPY_SECONDS = 120.0, 1200.0
MAX_TRIES = 3  # a short failure of the network must not lose a paid record
SWEEPS = ".vmselect-sweeps"
SILENT = "no answer from the host"


class SshRunner(ConnectedRunner):
    """Runs trials on hosts over ssh, each node of a trial on another host."""

    poll_seconds = 0.2

    def __init__(self, sweep_id: str, folder: Path, pythons: Collection[str] = ()) -> None:
        super().__init__()
        self._base = f"{SWEEPS}/{sweep_id}"  # below the home folder of the host
        self._folder = folder
        self._pythons = pythons
        self._contacted: set[str] = set()
        self._locks: dict[str, threading.Lock] = {}
        self._homes: dict[str, str] = {}
        self._lock = threading.Lock()
        self._bundle: Path | None = None

    def programs(self, trials: Sequence[Trial]) -> Sequence[str]:
        """Return the client of OpenSSH."""
        return ("ssh",)

    def check(self, trials: Sequence[Trial]) -> None:
        """Raise an error if ssh is not installed, or if a trial has more nodes than its machine has hosts."""
        for program in self.programs(trials):
            if shutil.which(program) is None:
                raise SweepError(f"{program} is not installed on this machine. Install the OpenSSH client.")
        for trial in trials:
            name, hosts = trial.machine.name, trial.machine.hosts
            if len(hosts) < trial.nodes:
                raise PlanError(
                    f"Trial {trial.id} needs {trial.nodes} hosts, but the machine {name} has {len(hosts)}. "
                    f"List more hosts in 'hosts' of the machine {name}."
                )

    def has_room(self, trial: Trial) -> bool:
        """Return whether no other trial runs on the hosts of ``trial``, as both trials would be slower."""
        return self.busy.isdisjoint(trial.machine.hosts[: trial.nodes])

    def announce(self, job: Job) -> Handle:
        """Reserve hosts for a trial. Return a handle with the hosts, the folder of the trial there and its token."""
        hosts = self.reserved[job.token] = list(job.trial.machine.hosts[: job.trial.nodes])
        return make_handle(
            "ssh", job, hosts=hosts, far=self._remote(job.token), base=self._base, python=job.trial.machine.python
        )

    def start(self, job: Job, handle: Handle) -> Handle:
        """Send the archive to each host, and start a supervisor there over a connection that stays open."""
        hosts, python = handle["hosts"], handle["python"]
        homes = [self._send(host, job.work) for host in hosts]
        addresses = [find_address(host, python, handle["base"]) for host in hosts] if len(hosts) > 1 else [{}]
        connections = self.connections[job.token] = []
        for rank, (host, home, worker) in enumerate(zip(hosts, homes, worker_environments(addresses), strict=True)):
            remote, base = f"{home}/{handle['far']}", f"{home}/{handle['base']}"
            own = str(worker_folder(remote, rank))
            call(host, f"mkdir -p {shlex.quote(own)}/records")
            request = make_request(
                job, remote, f"{base}/work", workers=[worker], listen=True, silence_seconds=SILENCE_SECONDS
            )
            for name, value in job.trial.environment.items():
                if value is None and name in os.environ:
                    request["workers"][0]["env"][name] = os.environ[name]  # over the connection only: never on a disk
            command = shlex.join([python, f"{base}/{SUPERVISOR.name}", "run", own, job.token, "scope"])
            connections.append(Connection(ssh_command(host, command), request))
        pipes = [pipe for connection in connections for pipe in connection.wait_started().get("pipes", [])]
        return {"homes": homes, "pipes": pipes}

    def watch(self, handle: Handle) -> Seen:
        """Return the state of a trial: "ended" if all supervisors report this, "lost" if a worker has failed."""
        connections = self.connections.get(handle["token"])
        if not connections:
            return Seen("lost")
        outcomes = [connection.outcome() for connection in connections]
        ended = [outcome for outcome in outcomes if outcome]
        if len(ended) == len(connections) and not any(outcome.get("left") for outcome in ended):
            self.disconnect(handle["token"], gone=True)
            return seen_from(merge_outcomes(ended))
        if {} in outcomes or any(outcome.get("exit") != 0 for outcome in ended):
            states = [{"state": "running"} if outcome is None else outcome for outcome in outcomes]
            lost = name_lost(states, [str(host) for host in handle.get("hosts", ())])
            return Seen("lost", why="cut" if {} in outcomes else "worker", error=lost)
        return Seen("running")

    def fetch(self, handle: Handle, into: Path, *, seconds: float) -> None:
        """Copy the folders of all workers to ``into``, and remove those that were copied on the hosts.

        Raise an error if the folder of the chief cannot be copied.
        """
        remote = self._remote(handle["token"])
        if handle.get("far", remote) != remote:  # an edited journal could name any folder
            raise SweepError(
                f"The journal contains {show(handle['far'])} as the folder of this trial, but the sweep did not create "
                "this folder, so nothing was copied or removed. Undo any edits of the journal."
            )
        self._contacted.update(handle["hosts"])
        missing = fetch_all(handle["hosts"], remote, into, seconds=seconds)
        # Workers on one host share the folder of the trial, so it stays until all of them were copied.
        for host in (host for host in dict.fromkeys(handle["hosts"]) if host not in missing):
            with suppress(SweepError):
                call(host, f"rm -rf {shlex.quote(remote)}")

    def stop(self, handle: Handle) -> str:
        """End the processes of a trial on all hosts. Return "", or the reason why its end could not be proved."""
        token = handle["token"]
        for connection in self.connections.get(token, []):
            connection.stop()
        reported = self.reported_end(token)
        self.disconnect(token)
        self.reserved[token] = list(handle["hosts"])  # until the end is proved, also after a resume
        problems = []
        python = handle["python"] if handle.get("python") in self._pythons else "python3"
        self._contacted.update(handle["hosts"])
        for rank, host in enumerate(handle["hosts"] if not reported else ()):
            folder = worker_folder(self._remote(token), rank)
            # A process that was killed between fetching and noting the end has removed the folder on the host.
            fetched = read_status(worker_folder(self._local(token), rank)).get("state") == "ended"
            for _ in range(MAX_TRIES):
                problem = end_remote(host, python, folder, [token] if fetched else identifiers_of(handle))
                if not problem.startswith(SILENT):
                    break
            problems += [f"{host}: {problem}"] if problem else []
        self.disconnect(token, gone=not problems)
        return "; ".join(problems)

    def close(self) -> None:
        """Close all connections, which ends running trials, and remove the files of the sweep from the hosts.

        Folders of trials that may still run, or whose records were not fetched, are kept.
        """
        super().close()
        for host in self._contacted:
            with suppress(SweepError):
                call(host, remove_command(self._base))
        if self._bundle:
            self._bundle.unlink(missing_ok=True)

    def _remote(self, token: str) -> str:
        """Return the folder of a trial on its hosts."""
        trial, _, unique = _split(token)
        return f"{self._base}/{trial}-{unique}"

    def _local(self, token: str) -> Path:
        """Return the folder of a trial on this machine."""
        trial, number, _ = _split(token)
        return self._folder / "trials" / trial / number

    def _send(self, host: str, work: Path) -> str:
        """Send the archive to ``host``, unless it was sent before. Return the home folder on ``host``."""
        with self._lock:
            lock = self._locks.setdefault(host, threading.Lock())
            if self._bundle is None:
                self._bundle = pack(work, exclude=self._folder)
        with lock:
            if host not in self._homes:
                self._contacted.add(host)
                base = shlex.quote(self._base)
                with self._bundle.open("rb") as file:
                    answer = call(host, f"mkdir -p -m 700 {base} && tar -xzf - -C {base} && pwd", stdin=file,
                                  seconds=COPY_SECONDS)  # fmt: skip
                self._homes[host] = answer.strip().splitlines()[-1]
        return self._homes[host]


def _split(token: str) -> list[str]:
    """Split a token into the trial, the number of the attempt and a random part."""
    parts = token.split("-")[-3:]
    if len(parts) < 3:
        raise SweepError(
            f"The journal contains {show(token)}, which is not a valid token of a trial. Undo any edits of the journal."
        )
    return parts


def pack(work: Path, *, exclude: Path) -> Path:
    """Write a temporary archive with the supervisor and the folder ``work``; return its path.

    The folder ``exclude`` and folders with a name in ``EXCLUDED``, such as ".git", are left out.
    """
    total = 0

    def keep(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal total
        path = work / Path(entry.name).relative_to("work")
        if path == exclude or path.name in EXCLUDED or not (entry.isfile() or entry.isdir() or entry.issym()):
            return None
        total += entry.size
        if total > MAX_BUNDLE_BYTES:
            raise SweepError(
                f"{work} contains more than {format_bytes(MAX_BUNDLE_BYTES)}, which is too much to send to the hosts. "
                "Start the sweep in a folder that contains only the scripts, and keep the data on the hosts."
            )
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    bundle = tempfile.NamedTemporaryFile(prefix="vmselect-", suffix=".tar.gz", delete=False)  # noqa: SIM115 - kept
    try:
        with bundle, tarfile.open(fileobj=bundle, mode="w:gz", compresslevel=1) as archive:
            archive.add(work, arcname="work", filter=keep)
            archive.add(SUPERVISOR, arcname=SUPERVISOR.name)
    except (OSError, SweepError) as cannot:
        Path(bundle.name).unlink()
        if isinstance(cannot, SweepError):
            raise
        raise SweepError(
            f"The folder {work} could not be packed for the hosts: {cannot}. Check its permissions."
        ) from cannot
    return Path(bundle.name)


def fetch_all(hosts: Sequence[str], remote: str, into: Path, *, seconds: float) -> list[str]:
    """Copy the folder of the chief from the first host, with retries, and those of other workers if possible.

    After ``seconds``, no other copy is started. Return the hosts whose folders were not copied.
    """
    until = time.monotonic() + seconds
    for attempt in range(1, MAX_TRIES + 1):
        try:
            copy_folder(hosts[0], remote, into, seconds=max(0.0, until - time.monotonic()))
            break
        except SweepError:
            if attempt == MAX_TRIES or time.monotonic() >= until:
                raise
    missing = []  # the missing status of a worker shows the failure, too
    for rank, host in enumerate(hosts[1:], start=1):
        left = until - time.monotonic()
        folder = worker_folder(into, rank)
        try:
            if left <= 0:
                raise SweepError(f"There was no time left to copy the folder of {host}. Resume the sweep.")
            folder.mkdir(parents=True, exist_ok=True)
            copy_folder(host, str(worker_folder(remote, rank)), folder, seconds=left)
        except SweepError:
            missing.append(host)
    return missing


def copy_folder(host: str, remote: str, into: Path, *, seconds: float) -> None:
    """Copy the folder ``remote`` on ``host`` to ``into`` within ``seconds``, completely or not at all.

    Exit code 1 of tar is accepted: it means that the trial still writes its output. Records are never written in place.
    """
    there = shlex.quote(remote)
    with (
        tempfile.TemporaryFile(dir=into.parent) as archive,
        tempfile.TemporaryDirectory(dir=into.parent, prefix=".fetch-") as part,
    ):
        call(host, f"test ! -d {there} || tar -C {there} -cf - .", stdout=archive, fine=(0, 1),
             seconds=min(COPY_SECONDS, seconds))  # fmt: skip
        if not archive.seek(0, os.SEEK_END):
            return  # the trial ended before it made its folder
        archive.seek(0)
        try:
            with tarfile.open(fileobj=archive) as files:
                files.extractall(part, filter="data")
        except (tarfile.TarError, EOFError) as damaged:
            raise SweepError(
                f"The copy of {remote} from {host} is damaged: {damaged}. Resume the sweep to copy it again."
            ) from None
        for path in Path(part).rglob("*"):
            if path.is_file():
                target = into / path.relative_to(part)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)


def end_remote(
    host: str, python: str, folder: str | Path, identifiers: Sequence[str], *, seconds: float = CALL_SECONDS
) -> str:
    """End all processes of a trial on ``host``, where its folder is ``folder``.

    Return "", or the reason why its end could not be proved.
    """
    try:
        answer = call(host, shlex.join(end_command(python, folder, identifiers)),
                      text=SUPERVISOR.read_text(encoding="utf-8"), fine=(0, 1), seconds=seconds)  # fmt: skip
        return why_unproved(read_json(answer))
    except (SweepError, ValueError, KeyError, TypeError) as cannot:
        return f"{SILENT}: {cannot}"


def find_address(host: str, python: str, base: str) -> Json:
    """Return the address by which workers on other hosts reach ``host``, as ssh resolves it, with free ports."""
    try:
        address = read_json(call(host, shlex.join([python, f"{base}/{SUPERVISOR.name}", "address"])))
        config = run_program(["ssh", "-G", "--", host], label=f"ssh -G {host}", seconds=CALL_SECONDS)
        resolved = re.search(r"^hostname (\S+)$", config, re.MULTILINE)  # resolves an alias
        return {**address, "host": resolved[1] if resolved else host.rpartition("@")[2]}
    except (ValueError, TypeError) as cannot:
        raise SweepError(f"{host} did not report its address: {cannot}. Check that {python} runs there.") from cannot


def remove_command(base: str) -> str:
    """Return a shell command that removes the files of the sweep in ``base`` on a host.

    If folders of trials are left there, it removes only the copy of the work folder.
    """
    programs = f"{SUPERVISOR.name} guard.py"  # its name in earlier versions
    script = (
        f'cd {shlex.quote(base)} 2>/dev/null || exit 0; rm -rf work; set -- [0-9]*-*; [ -e "$1" ] && exit 0; '
        f"rm -f {programs}; cd ../..; rmdir {shlex.quote(base)} {SWEEPS} 2>/dev/null; exit 0"
    )
    return f"sh -c {shlex.quote(script)}"


def ssh_command(host: str, command: str) -> list[str]:
    """Return the ssh command line that runs a shell command on ``host``. Raise an error if ``host`` is no host name."""
    try:
        return ["ssh", "-T", *OPTIONS, "--", check_host("host", host), command]
    except ArgumentError as bad:
        raise SweepError(str(bad)) from None


def call(host: str, command: str, *, seconds: float = CALL_SECONDS, **options: Any) -> str:
    """Run a shell command on ``host`` and return its output; see :func:`run_program` for ``options``."""
    return run_program(ssh_command(host, command), label=f"ssh {host}", seconds=seconds, **options)
