"""The supervisor: runs the command of a trial on its host, and ends all processes of the trial.

It is a standalone program that needs only Python's standard library, because it is sent to hosts without vmselect.
``run FOLDER TOKEN`` reads a JSON request from ``FOLDER/request.json`` or, as one line, from standard input. It runs the
workers of the request, and ends their process trees when the command ends, at the time limit, when heartbeats stop, or
when the connection is cut. With a third argument ``scope``, it may move to a scope of the user's systemd first.
``end FOLDER IDENTIFIER...`` ends all processes of a trial and prints whether it is proved that none is left.
``address`` prints the address of this host for workers on other hosts.

``run`` consists of two processes, an outer supervisor and its child, the inner supervisor. Each of them becomes the
parent of orphaned descendants, also of those in another session, and ends all processes of the trial when the other
supervisor is killed. Where this user may create control groups (cgroup version 2), the workers run in their own control
group. Its processes can be found even if both supervisors were killed. Without a control group, the end of such a trial
cannot be proved.

The ``state`` in ``FOLDER/status.json`` is ``starting`` before the first worker starts, then ``running``, and ``ended``
when no process is left. ``cgroup`` is the folder of the control group, or "" if it could not be created.

If a trial has several nodes, a supervisor with the same request runs on each node. Slurm or SkyPilot number the nodes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

TOKEN_VARIABLE, SUPERVISOR_VARIABLE = "VMSELECT_TOKEN", "VMSELECT_SUPERVISOR"
TICK_SECONDS = 0.1
HEAD_BYTES, TAIL_BYTES = 1 << 20, 1 << 17  # kept from the beginning and the end of a command's output
KILL_SECONDS = 30.0
"""Longest wait, in seconds, for killed processes to end. Processes that exist longer are reported as left."""
MEET_SECONDS = 300.0
"""Longest time, in seconds, for which workers wait for each other; a shared disk may show new files late."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
FAILED = 4
BOOT = "".join(p.read_text().strip() for p in Path("/proc/sys/kernel/random").glob("boot_id"))
THIS_BOOT = f"@{BOOT}"
"""Suffix of identifiers that are valid only on this machine, and only until it restarts."""

SCOPE = ("systemd-run", "--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes")
SCOPE_SECONDS = 5.0

Json = dict[str, Any]
"""A JSON object: a request, a status or an outcome. Another version of this program may have written it."""

Address = Json
"""Address of a worker: ``host``, two free ``ports`` there, and ``boot``, which is equal for workers that share a
loopback interface."""


def main(arguments: list[str]) -> int:
    """Run the command ``run``, ``end`` or ``address``, and return the exit code."""
    if len(arguments) == 4 and arguments[0] == "run" and arguments[3] == "scope":
        enter_scope(arguments[:3])
        return run(arguments[1], arguments[2])
    if len(arguments) == 3 and arguments[0] == "run":
        return run(arguments[1], arguments[2])
    if len(arguments) > 2 and arguments[0] == "end":
        answer = end_trial(arguments[1], arguments[2:])
        _send(answer)
        return 1 if any(answer.values()) else 0
    if arguments == ["address"]:
        return 0 if _send(find_address(socket.gethostname())) else 1
    sys.stderr.write("usage: run FOLDER TOKEN [scope] | end FOLDER IDENTIFIER... | address\n")
    return 2


def run(folder: str, token: str) -> int:
    """Run the request of a trial and write its outcome. Return the exit code.

    It is 0, or 1 if the trial has several nodes and its worker on this node failed.
    """
    for number in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    request = _read_request(folder)
    if request is None:
        return 3
    if strict := "nodes" in request:
        rank, addresses = _meet(request, Path(folder))
        if len(addresses) != request["nodes"]:
            sys.stderr.write(f"The trial needs {request['nodes']} workers, but {len(addresses)} were found.\n")
            return 1
        folder = str(worker_folder(folder, rank))
        records = Path(folder, "records")
        records.mkdir(parents=True, exist_ok=True)
        request["workers"][0]["env"] |= {**worker_environments(addresses)[rank], "VMSELECT_FOLDER": str(records)}
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    began, outer, cgroup = time.monotonic(), os.getpid(), make_cgroup(token)
    if not (inner := os.fork()):
        os._exit(Supervisor(request, folder, token, began, outer, cgroup).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: _signal(inner, received))
    pid, status = 0, 1
    while pid != inner:
        pid, status = os.waitpid(-1, 0)
    if os.waitstatus_to_exitcode(status) not in (0, FAILED):
        left = end_all(lambda: own_processes(folder, cgroup), grace=1.0, statuses={}, cgroup=cgroup)
        _report(folder, {"exit": None, "why": "guard", "seconds": time.monotonic() - began, "left": left})
    remove_cgroup(cgroup)
    return 1 if status and strict else 0


def worker_environments(addresses: Sequence[Address]) -> list[dict[str, str]]:
    """Return, for each worker, the environment variables by which workers find each other; empty for a single worker.

    The chief comes first. TensorFlow reads ``TF_CONFIG``, torch the variables ``MASTER_ADDR`` to ``LOCAL_RANK``, JAX
    and Keras those that begin with their name.
    """
    count = len(addresses)
    if count == 1:
        return [{}]
    boots = [address.get("boot") for address in addresses]
    one_machine = bool(boots[0]) and len(set(boots)) == 1  # whatever its names are
    hosts = ["127.0.0.1" if one_machine else str(address["host"]) for address in addresses]
    workers = [_join(host, address["ports"][1]) for host, address in zip(hosts, addresses, strict=True)]
    port = addresses[0]["ports"][0]
    coordinator = _join(hosts[0], port)
    return [
        {
            "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}),
            "MASTER_ADDR": hosts[0], "MASTER_PORT": str(port), "RANK": str(index), "WORLD_SIZE": str(count),
            "LOCAL_RANK": str(boots[:index].count(boots[index]) if boots[index] else 0),
            "JAX_COORDINATOR_ADDRESS": coordinator, "JAX_NUM_PROCESSES": str(count), "JAX_PROCESS_ID": str(index),
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": ",".join([coordinator, *workers[1:]]),
            "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count), "KERAS_DISTRIBUTION_PROCESS_ID": str(index),
            "VMSELECT_NODES": str(count), "VMSELECT_NODE": str(index),
        }
        for index in range(count)
    ]  # fmt: skip


def find_address(host: str) -> Address:
    """Return the address of this machine, which workers on other machines reach by the name ``host``."""
    # Containers of one machine may have separate networks.
    return {"host": host, "boot": BOOT and BOOT + _target("/proc/self/ns/net"), "ports": free_ports(2)}


def free_ports(count: int) -> list[int]:
    """Find ``count`` unused ports of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("", 0))
        return [listener.getsockname()[1] for listener in sockets]


def worker_folder(folder: str | Path, rank: int) -> Path:
    """Return the folder of worker ``rank``. That of the chief (rank 0) is ``folder``, the folder of the trial."""
    return Path(folder, f"worker-{rank}") if rank else Path(folder)


def _read_request(folder: str) -> Json | None:
    path = Path(folder, "request.json")
    if path.exists():
        return dict(json.loads(path.read_text(encoding="utf-8")))
    with os.fdopen(0, "rb", buffering=0, closefd=False) as connection:  # unbuffered: heartbeats follow the line
        line = connection.readline()
    return dict(json.loads(line)) if line.endswith(b"\n") else None


def _meet(request: Json, folder: Path) -> tuple[int, list[Address]]:
    """Return the rank of this worker, and the addresses of all workers (empty if some are not known in time).

    SkyPilot sets them as environment variables. With Slurm, each worker writes its address to the shared disk.
    """
    if request.get("ports"):
        hosts = os.environ["SKYPILOT_NODE_IPS"].split()
        return int(os.environ["SKYPILOT_NODE_RANK"]), [{"host": host, "ports": request["ports"]} for host in hosts]
    rank = int(os.environ["SLURM_PROCID"])
    _write(folder / f"address-{rank}.json", find_address(_reachable_name()))
    files = [f"address-{other}.json" for other in range(request["nodes"])]
    until = time.monotonic() + min(MEET_SECONDS, float(request["cap_seconds"]))
    while time.monotonic() < until:
        if {path.name for path in folder.iterdir()}.issuperset(files):  # a listing shows new files soonest
            return rank, [json.loads((folder / file).read_text(encoding="utf-8")) for file in files]
        time.sleep(0.2)
    return rank, []


def _reachable_name() -> str:
    """Return a name of this machine that the network resolves: its name in the Slurm cluster if possible."""
    for name in filter(None, (os.environ.get("SLURMD_NODENAME"), socket.gethostname())):
        with contextlib.suppress(OSError):
            socket.getaddrinfo(name, None)
            return name
    return socket.gethostname()


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Supervisor:
    """The inner supervisor: starts the workers, watches them and the connection, and ends all workers."""

    def __init__(self, request: Json, folder: str, token: str, began: float, outer: int, cgroup: str) -> None:
        self.request, self.folder, self.token, self.began, self.outer = request, folder, token, began, outer
        self.cgroup = cgroup
        self.listening = bool(request.get("listen"))
        # The grace period ends before the cap.
        self.grace = min(float(request.get("grace_seconds", 5.0)), float(request["cap_seconds"]) / 10)
        self.heard, self.stopped = time.monotonic(), False
        self.statuses: dict[int, int] = {}
        self.outputs: list[Output] = []
        self.workers: list[int] = []
        self.pipes: list[str] = []

    def run(self) -> int:
        """Run the workers to their end and report the outcome. Return the exit code.

        It is 0 if all workers succeeded, ``FAILED`` if not, and 3 if the outcome could neither be sent nor written.
        """
        signal.signal(signal.SIGTERM, self._ask_stop)
        signal.signal(signal.SIGINT, self._ask_stop)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        why, failure, subject = "exit", "", "the status could not be written"
        try:
            self._note("starting")  # before the first worker: without it, nothing has started
            for worker in self.request["workers"]:
                subject = worker["argv"][0]
                self._start(worker)
        except (OSError, ValueError, subprocess.SubprocessError) as cannot:
            why, failure = "start", f"{subject}: {cannot}"
        with contextlib.suppress(OSError):
            self._note("running")
        if why == "exit":
            _send({"started": self.workers, "pipes": self.pipes})
            why = self._watch()
            failure = self._name_failed() if why == "worker" else ""
        grace = self.grace if why != "exit" else min(1.0, self.grace)
        left = end_all(
            lambda: own_processes(self.folder, self.cgroup), grace=grace, turn=self._turn, statuses=self.statuses,
            cgroup=self.cgroup,
        )  # fmt: skip
        remove_cgroup(self.cgroup)
        for output in self.outputs:
            output.close()
        exits = [self.statuses.get(pid) for pid in self.workers]
        failed = next((code for code in exits if code), None)
        outcome = {
            "exit": 0 if set(exits) == {0} else failed, "why": why, "left": left,
            "seconds": time.monotonic() - self.began,
            "error": failure or next((o.error for o in self.outputs if o.error), ""),
        }  # fmt: skip
        reported = _report(self.folder, outcome, send=why not in ("cut", "silent"))
        return (0 if outcome["exit"] == 0 else FAILED) if reported else 3

    def _name_failed(self) -> str:
        """Return a text that names the failed worker, if there are several; else "". Called before all are ended."""
        codes = [self.statuses.get(pid) for pid in self.workers]
        index = next((index for index, code in enumerate(codes) if code), None)
        if index is None or len(codes) < 2:
            return ""
        rank = self.request["workers"][index]["env"].get("RANK", index)
        return f"worker {rank} of {len(codes)} ended with exit code {codes[index]}"

    def _note(self, state: str) -> None:
        """Write the status file, by which the command ``end`` finds the processes if both supervisors are killed."""
        status = {"state": state, "pipes": self.pipes, "cgroup": self.cgroup, **describe_machine()}
        _write(Path(self.folder, "status.json"), status)

    def _ask_stop(self, _number: int, _frame: object) -> None:
        self.stopped = True

    def _start(self, worker: Json) -> None:
        environment = {**os.environ, **worker["env"], TOKEN_VARIABLE: self.token, SUPERVISOR_VARIABLE: self.folder}
        cores, memory = worker.get("cores"), worker.get("memory_bytes")
        if count := worker.get("core_count"):
            usable = sorted(os.sched_getaffinity(0))
            if count > len(usable):
                raise OSError(f"the trial needs {count} CPU cores, but {len(usable)} are usable")
            cores = usable[:count]
        if memory and exceeds_memory(memory):
            raise OSError(f"the trial may use {memory / 2**30:g} GiB, but the machine has {total_memory() / 2**30:.3g}")
        if memory and self.cgroup:
            limit_memory(self.cgroup, memory * len(self.request["workers"]))

        def prepare() -> None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            for number in (signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            if cores:
                os.sched_setaffinity(0, cores)
            if memory:  # of each process, also where control groups do not limit memory
                resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
            if self.cgroup:
                enter_cgroup(self.cgroup)

        read, write = os.pipe()
        self.outputs.append(Output(read, Path(self.folder, worker["output"])))
        self.pipes.append(_target(f"/proc/self/fd/{read}") + THIS_BOOT)
        try:
            started = subprocess.Popen(  # a list, so no shell interprets it
                worker["argv"], stdin=subprocess.DEVNULL, stdout=write, stderr=write, env=environment,
                cwd=worker["cwd"], start_new_session=True, preexec_fn=prepare,
            )  # fmt: skip
        finally:
            os.close(write)
        started.returncode = 0  # this supervisor waits for it with waitpid
        self.workers.append(started.pid)

    def _watch(self) -> str:
        """Wait until the workers have ended or must be ended. Return the reason, such as "exit" or "worker"."""
        cap = float(self.request["cap_seconds"])
        cap -= self.grace + min(0.5, cap / 10)
        silence = self.request.get("silence_seconds")
        deadline = self.request.get("deadline_unix")
        while True:
            cut = self._turn()
            reap(self.statuses)
            ended = [self.statuses[pid] for pid in self.workers if pid in self.statuses]
            reasons = {
                "exit": len(ended) == len(self.workers),
                "worker": any(ended),
                "cut": cut,
                "stop": self.stopped,
                "cap": time.monotonic() - self.began >= cap or (deadline and time.time() >= deadline - self.grace),
                "silent": self.listening and silence and time.monotonic() - self.heard > silence,
                "guard": os.getppid() != self.outer,
            }
            if why := next((why for why, holds in reasons.items() if holds), ""):
                return why

    def _turn(self) -> bool:
        """Read output and heartbeats for at most ``TICK_SECONDS``. Return True if the connection was cut."""
        files = [output.file for output in self.outputs if output.file >= 0]
        heard = [0] if self.listening else []
        ready, _, _ = select.select([*files, *heard], [], [], TICK_SECONDS)
        for output in (output for output in self.outputs if output.file in ready):
            output.take()
        if 0 in ready and heard:
            try:
                received = os.read(0, 4096)
            except OSError:
                received = b""
            if not received:
                self.listening = False
                return True
            self.heard = time.monotonic()
            self.stopped = self.stopped or b"S" in received
        return False


class Output:
    """Copies the output of a worker to a file: its beginning at once, its end when the trial ends.

    Of a long output, the middle is left out.
    """

    def __init__(self, file: int, path: Path) -> None:
        self.file, self.path, self.error = file, path, ""
        self.total, self.head, self.tail = 0, 0, b""

    def take(self) -> None:
        """Read the output of the worker that is available now."""
        try:
            data = os.read(self.file, 1 << 16)
        except OSError:
            data = b""
        if not data:
            os.close(self.file)
            self.file = -1
            return
        self.total += len(data)
        if self.head < HEAD_BYTES:
            self._append(data)
            self.head += len(data)
        else:
            self.tail = (self.tail + data)[-TAIL_BYTES:]

    def close(self) -> None:
        """Append the last part of the worker's output to the file."""
        while self.file >= 0 and select.select([self.file], [], [], 0)[0]:
            self.take()
        if omitted := self.total - self.head - len(self.tail):
            self._append(b"\n[... %d bytes are omitted here ...]\n" % omitted)
        self._append(self.tail)

    def _append(self, data: bytes) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(data)
        except OSError as full:  # the trial continues
            self.error = f"the output could not be written: {full.strerror}"


def end_trial(folder: str, identifiers: Sequence[str]) -> Json:
    """End all processes on this host of the trial whose supervisor uses ``folder``.

    ``identifiers`` contains the token of the trial, and its output pipes if it has started. In the result, ``left`` are
    the IDs of processes that could not be ended, and ``unproved`` is the reason why other processes may be left, or "".
    """
    status = _read_status(folder)
    token = identifiers[0]
    cgroup = find_cgroup(status, token)
    left = end_processes([*identifiers, *map(str, _list(status.get("pipes")))], cgroup)
    status = _read_status(folder)  # a supervisor that was asked to end has written it
    cgroup = cgroup or find_cgroup(status, token)
    unproved = "" if left else explain_unproved(status, cgroup, started=len(identifiers) > 1)
    if not left and not unproved:
        remove_cgroup(cgroup)
        if status.get("state") in ("starting", "running"):
            with contextlib.suppress(OSError):
                _write(Path(folder, "status.json"), {**status, "state": "ended", "why": "guard", "left": []})
    return {"left": left, "unproved": unproved}


def explain_unproved(status: Json, cgroup: str, *, started: bool) -> str:
    """Return the reason why processes may be left although none was found, or "".

    ``status`` is the content of the status file of a supervisor that has exited. ``started`` is True if the trial had
    started.
    """
    state, here = status.get("state"), describe_machine()
    if cgroup:
        return f"the control group {cgroup} of the trial still has processes" if is_populated(cgroup) else ""
    if state == "ended":
        alive = [pid for pid in _list(status.get("left")) if Path(f"/proc/{pid}").exists()]
        return f"the processes {alive} could not be ended" if alive else ""
    if not status:  # the supervisor writes it before the first worker starts
        return "the status file of the trial is missing, so its supervisor may have been killed" if started else ""
    if status.get("host", here["host"]) != here["host"]:
        return f"the trial ran on {str(status['host'])[:80]!r}, but this machine is {here['host']}"
    if BOOT and status.get("boot") and status["boot"] != BOOT:
        return ""  # the machine has restarted since
    return (
        "both supervisors of the trial were killed, so a process that cleared its environment and changed its session "
        "cannot be found"
    )


def end_processes(identifiers: Sequence[str], cgroup: str = "") -> list[int]:
    """End all processes that have one of ``identifiers`` or are in ``cgroup``, and their supervisors.

    Return the IDs of processes that remain. Supervisors are asked first to end their trial, because they know all of
    its processes.
    """
    kept = {os.getpid(), os.getppid()}

    def find(*, supervisors: bool) -> list[int]:
        pids = {*find_processes(identifiers, supervisors=supervisors), *cgroup_processes(cgroup)}
        return sorted(pids - kept)

    for pid in set(find(supervisors=True)) - set(find(supervisors=False)):
        _signal(pid, signal.SIGTERM)
    left = end_all(lambda: find(supervisors=False), grace=8.0, cgroup=cgroup)
    return left or end_all(lambda: find(supervisors=True), grace=15.0, cgroup=cgroup)


def end_all(
    alive: Callable[[], list[int]], *, grace: float, turn: Callable[[], object] = bool,
    statuses: dict[int, int] | None = None, cgroup: str = "",
) -> list[int]:  # fmt: skip
    """Terminate the processes that ``alive()`` lists, and kill them after ``grace`` seconds. Return those that remain.

    ``turn`` is called while waiting. The exit codes of ended children are added to ``statuses``, if given. All
    processes in ``cgroup`` are killed at the same time, so that none of them can start another one.
    """
    asked: set[int] = set()
    began = time.monotonic()
    while pids := alive():
        late = time.monotonic() - began
        if late > grace and cgroup:
            with contextlib.suppress(OSError):
                Path(cgroup, "cgroup.kill").write_text("1", encoding="ascii")
        for pid in pids:
            if late > grace:
                _signal(pid, signal.SIGKILL)
            elif pid not in asked:
                _signal(pid, signal.SIGTERM)
                asked.add(pid)
        if statuses is not None:
            reap(statuses)
        if late > grace + KILL_SECONDS:
            return pids
        turn()
        time.sleep(TICK_SECONDS / 5)
    if statuses is not None:
        reap(statuses)
    return []


def enter_scope(arguments: list[str]) -> None:
    """Restart this program in a scope of the user's systemd, if control groups can be created only there."""
    if not Path("/proc/self/cgroup").exists() or shutil.which(SCOPE[0]) is None or remove_cgroup(make_cgroup("test")):
        return
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # such as a machine without systemd
        test = subprocess.run([*SCOPE, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=SCOPE_SECONDS,
                              check=False)  # fmt: skip
        if test.returncode == 0:
            os.execvp(SCOPE[0], [*SCOPE, sys.executable, str(Path(__file__).absolute()), *arguments])


def make_cgroup(token: str) -> str:
    """Create a control group for the workers of a trial, below that of this process. Return its folder.

    Return "" if this is not possible, for example in a container, or if there is only version 1 of control groups.
    """
    own = _own_cgroup()
    if own is None or not re.fullmatch(r"[\w-]{1,200}", token, re.ASCII):
        return ""
    cgroup = own / f"{token}.{os.getpid()}"
    try:
        cgroup.mkdir()
    except OSError:
        return ""
    if not (child := os.fork()):
        code = 1
        with contextlib.suppress(OSError):
            enter_cgroup(str(cgroup))
            code = 0
        os._exit(code)
    usable = os.waitpid(child, 0)[1] == 0
    if not usable:
        remove_cgroup(str(cgroup))
    return str(cgroup) if usable else ""


def total_memory() -> int:
    """Memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def exceeds_memory(limit: float) -> bool:
    """Whether a limit of so many bytes limits nothing, because this machine has less memory.

    Systems show up to a fifth less memory than a machine is sold with.
    """
    return limit > 1.25 * total_memory()


def limit_memory(cgroup: str, memory: int) -> None:
    """Limit the memory of all processes in ``cgroup`` to ``memory`` bytes, if the controller of memory is enabled."""
    for name, value in (("memory.max", memory), ("memory.swap.max", 0)):
        with contextlib.suppress(OSError):
            if Path(cgroup, name).exists():
                Path(cgroup, name).write_text(str(value), encoding="ascii")


def enter_cgroup(cgroup: str) -> None:
    """Move this process to the control group ``cgroup``. Processes that it starts then belong to it as well."""
    Path(cgroup, "cgroup.procs").write_text("0", encoding="ascii")


def find_cgroup(status: Json, token: str) -> str:
    """Return the control group that ``status`` contains, or "" if it is not one of this trial on this machine."""
    cgroup, mount = status.get("cgroup"), _cgroup_mount()
    if mount is None or not isinstance(cgroup, str) or status.get("cgroups") != describe_machine()["cgroups"]:
        return ""
    path = Path(cgroup)  # the trial could have edited it
    named = re.fullmatch(re.escape(token) + r"\.\d{1,10}", path.name) and ".." not in path.parts
    return cgroup if named and mount[0] in path.parents else ""


def cgroup_processes(cgroup: str) -> list[int]:
    """Return the IDs of the processes in ``cgroup`` and in control groups below it."""
    pids: list[int] = []
    for path in _tree(cgroup):
        with contextlib.suppress(OSError, ValueError):
            pids += map(int, (path / "cgroup.procs").read_text(encoding="ascii").split())
    return [pid for pid in pids if pid > 0]


def is_populated(cgroup: str) -> bool:
    """Return whether the control group ``cgroup`` exists and has processes."""
    try:
        return "populated 1" in Path(cgroup, "cgroup.events").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    except OSError:
        return Path(cgroup).exists()


def remove_cgroup(cgroup: str) -> bool:
    """Remove an empty ``cgroup``, and control groups below it that the trial created. Return whether it was removed."""
    for path in reversed(_tree(cgroup)):
        with contextlib.suppress(OSError):
            path.rmdir()
    return bool(cgroup) and not Path(cgroup).exists()


def _tree(cgroup: str) -> list[Path]:
    return [Path(folder) for folder, _, _ in os.walk(cgroup)] if cgroup else []


def _own_cgroup() -> Path | None:
    """Return the folder of the control group (version 2) of this process; None if there is none."""
    mount = _cgroup_mount()
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        own = next((line[3:] for line in lines if line.startswith("0::")), None)
        if mount is not None and own is not None and not own.endswith(" (deleted)"):
            return mount[0] / Path(own).relative_to(mount[1])
    return None


def _cgroup_mount() -> tuple[Path, Path] | None:
    """Return the mount point of control groups of version 2, and the control group that is mounted there."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            fields, _, kind = line.partition(" - ")
            if kind.startswith("cgroup2 "):
                _, _, _, root, point, *_ = fields.split(" ")
                return Path(point), Path(root)
    return None


def describe_machine() -> dict[str, str]:
    """Return name and boot ID of this machine, and in ``cgroups`` a text about its control groups.

    If this text is equal for two processes, the path of a control group means the same control group in both. It is ""
    if control groups of version 2 are not mounted.
    """
    mount = _cgroup_mount()
    view = f"{BOOT} {_target('/proc/self/ns/cgroup')} {mount[0]} {mount[1]}" if mount else ""
    return {"host": os.environ.get("SLURMD_NODENAME") or os.uname().nodename, "boot": BOOT, "cgroups": view}


def own_processes(folder: str, cgroup: str) -> list[int]:
    """Return the IDs of this supervisor's processes, without processes of other workers of the trial."""
    below = descendants(os.getpid())
    marked = find_processes([folder], supervisors=False, variable=SUPERVISOR_VARIABLE)
    return [*below, *(pid for pid in {*marked, *cgroup_processes(cgroup)} if pid not in below)]


def find_processes(identifiers: Iterable[str], *, supervisors: bool, variable: str = TOKEN_VARIABLE) -> list[int]:
    """Return the IDs of processes with one of ``identifiers``, and of supervisors if ``supervisors`` is True.

    An identifier is a token, which is the value of the environment variable ``variable`` of a process, or an output
    pipe such as ``pipe:[123]@BOOT``, to which a process writes.
    """
    pipes = {
        identifier.removesuffix(THIS_BOOT)
        for identifier in identifiers
        if identifier.startswith("pipe:") and identifier.endswith(THIS_BOOT)
    }
    names = {identifier.encode() for identifier in identifiers}
    entries = {variable.encode() + b"=" + name for name in names}
    pids = []
    for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
        try:
            held = not entries.isdisjoint(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
            if supervisors and not held:
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                held = b"run" in arguments and not names.isdisjoint(arguments)
            held = held or (bool(pipes) and not pipes.isdisjoint(_target(f"/proc/{pid}/fd/{n}") for n in (1, 2)))
        except OSError:
            continue
        if held:
            pids.append(pid)
    return pids


def descendants(root: int) -> list[int]:
    """Return the IDs of all running descendants of the process ``root``, parents before children."""
    children: dict[int, list[int]] = {}
    for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
        try:
            state, parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state != b"Z":
            children.setdefault(int(parent), []).append(pid)
    pids: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        pids += below
        waiting += below
    return pids


def reap(statuses: dict[int, int]) -> None:
    """Add the exit codes of ended child processes to ``statuses``: the negative number if a signal killed the child."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])


def prctl(option: int, value: int) -> None:
    """Set a property of this process on Linux; do nothing on other systems."""
    if _PRCTL is not None:
        _PRCTL(option, value, 0, 0, 0)


_PRCTL = getattr(ctypes.CDLL(None), "prctl", None)


def _target(link: str) -> str:
    with contextlib.suppress(OSError):
        return str(Path(link).readlink())
    return ""


def _read_status(folder: str) -> Json:
    if not folder:  # an old journal does not name it
        return {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        status = json.loads(Path(folder, "status.json").read_text(encoding="utf-8"))
        if isinstance(status, dict):
            return status
    return {"state": "unreadable"} if Path(folder, "status.json").exists() else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _report(folder: str, outcome: Json, *, send: bool = True) -> bool:
    # After the connection was cut, a full pipe would block the supervisor.
    reported = send and _send({"ended": outcome})
    with contextlib.suppress(OSError):
        _write(Path(folder, "status.json"), {"state": "ended", **outcome})
        reported = True
    return reported


def _send(message: Json) -> bool:
    with contextlib.suppress(OSError):
        return os.write(1, json.dumps(message).encode() + b"\n") > 0
    return False


def _write(path: Path, content: Json) -> None:
    """Write ``content`` as JSON to ``path`` atomically, because other processes wait for the file."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
