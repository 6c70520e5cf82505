"""The supervisor: runs the command of a trial on its host, and ends all processes of the trial.

A standalone program that needs only Python's standard library, because it is sent to hosts without vmselect.
``run FOLDER TOKEN`` reads a JSON request from ``FOLDER/request.json`` or, as one line, from standard input. It runs the
workers of the request, and ends their process trees when the command ends, at the time limit, when heartbeats stop, or
when the connection is cut. ``end`` reads identifiers from standard input and ends all processes that have one of them.
``address`` prints the address of this host for workers on other hosts.

``run`` consists of two processes, an outer supervisor and its child. Each becomes the parent of orphaned descendants,
also of those in another session, and ends all processes of the trial when the other is killed.

With several nodes, a supervisor with the same request runs on each node. Slurm or SkyPilot number the nodes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
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
"""Time limit for killed processes to end; processes that the kernel keeps longer are reported as left."""
MEET_SECONDS = 300.0
"""Time limit for workers to wait for each other; a shared disk may show their files late."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
FAILED = 4
BOOT = "".join(p.read_text().strip() for p in Path("/proc/sys/kernel/random").glob("boot_id"))
THIS_BOOT = f"@{BOOT}"
"""Suffix of identifiers that are valid on this machine until it restarts."""

Address = dict[str, Any]
"""``host`` of a worker, two free ``ports`` there, and ``boot``, which is equal for workers that share a loopback."""


def main(arguments: list[str]) -> int:
    """Run the command ``run``, ``end`` or ``address``; returns the exit code."""
    if len(arguments) == 3 and arguments[0] == "run":
        return run(arguments[1], arguments[2])
    if arguments == ["end"]:
        left = end_processes(sys.stdin.read().split())
        _send({"left": left})
        return 1 if left else 0
    if arguments == ["address"]:
        return 0 if _send(find_address(socket.gethostname())) else 1
    sys.stderr.write("usage: run FOLDER TOKEN | end | address\n")
    return 2


def run(folder: str, token: str) -> int:
    """Run the request of a trial and write its outcome; returns 0, or with several nodes 1 if the worker failed."""
    for number in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    request = _read_request(folder)
    if request is None:
        return 3
    if strict := "nodes" in request:
        rank, addresses = _meet(request, Path(folder))
        if len(addresses) != request["nodes"]:
            sys.stderr.write(f"The trial needs {request['nodes']} workers, and {len(addresses)} were found.\n")
            return 1
        folder = str(worker_folder(folder, rank))
        records = Path(folder, "records")
        records.mkdir(parents=True, exist_ok=True)
        request["workers"][0]["env"] |= {**worker_environments(addresses)[rank], "VMSELECT_FOLDER": str(records)}
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    began, outer = time.monotonic(), os.getpid()
    if not (inner := os.fork()):
        os._exit(Supervisor(request, folder, token, began, outer).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: _signal(inner, received))
    pid, status = 0, 1
    while pid != inner:
        pid, status = os.waitpid(-1, 0)
    if os.waitstatus_to_exitcode(status) not in (0, FAILED):
        left = end_all(lambda: own_processes(folder), grace=1.0, statuses={})
        _report(folder, {"exit": None, "why": "guard", "seconds": time.monotonic() - began, "left": left})
    return 1 if status and strict else 0


def worker_environments(addresses: Sequence[Address]) -> list[dict[str, str]]:
    """Environment variables by which workers find each other, for each worker, the chief first; empty for one worker.

    TensorFlow reads ``TF_CONFIG``, torch ``MASTER_ADDR`` to ``LOCAL_RANK``, JAX and Keras those with their name.
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
    """Address of this machine, which other workers reach by the name ``host``."""
    # Containers of one machine may have separate networks.
    return {"host": host, "boot": BOOT and BOOT + _target("/proc/self/ns/net"), "ports": free_ports(2)}


def free_ports(count: int) -> list[int]:
    """Find ``count`` unused ports of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def worker_folder(folder: str | Path, rank: int) -> Path:
    """Folder of the supervisor of worker ``rank``; that of the chief (rank 0) is the trial's ``folder``."""
    return Path(folder, f"worker-{rank}") if rank else Path(folder)


def _read_request(folder: str) -> dict[str, Any] | None:
    path = Path(folder, "request.json")
    if path.exists():
        return dict(json.loads(path.read_text(encoding="utf-8")))
    with os.fdopen(0, "rb", buffering=0, closefd=False) as connection:  # unbuffered: heartbeats follow the line
        line = connection.readline()
    return dict(json.loads(line)) if line.endswith(b"\n") else None


def _meet(request: dict[str, Any], folder: Path) -> tuple[int, list[Address]]:
    """Rank of this worker, and the addresses of all workers (empty if they did not meet in time).

    SkyPilot sets them as environment variables. On Slurm, each worker writes its address to the shared disk.
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
    """Name of this machine that the network resolves: its name in the Slurm cluster if possible."""
    for name in filter(None, (os.environ.get("SLURMD_NODENAME"), socket.gethostname())):
        with contextlib.suppress(OSError):
            socket.getaddrinfo(name, None)
            return name
    return socket.gethostname()


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Supervisor:
    """The inner supervisor: starts the workers, watches them and the connection, and ends all workers."""

    def __init__(self, request: dict[str, Any], folder: str, token: str, began: float, outer: int) -> None:
        self.request, self.folder, self.token, self.began, self.outer = request, folder, token, began, outer
        self.listening = bool(request.get("listen"))
        # The grace period ends before the cap.
        self.grace = min(float(request.get("grace_seconds", 5.0)), float(request["cap_seconds"]) / 10)
        self.heard, self.stopped = time.monotonic(), False
        self.statuses: dict[int, int] = {}
        self.outputs: list[Output] = []
        self.workers: list[int] = []
        self.pipes: list[str] = []

    def run(self) -> int:
        """Run the workers to their end and report the outcome; returns 3 if it could neither be sent nor written."""
        signal.signal(signal.SIGTERM, self._ask_stop)
        signal.signal(signal.SIGINT, self._ask_stop)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        why, failure = "exit", ""
        try:
            for worker in self.request["workers"]:
                self._start(worker)
        except (OSError, ValueError) as cannot:
            why, failure = "start", f"{worker['argv'][0]}: {cannot}"
        with contextlib.suppress(OSError):
            host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
            _write(Path(self.folder, "status.json"), {"state": "running", "host": host, "pipes": self.pipes})
        if why == "exit":
            _send({"started": self.workers, "pipes": self.pipes})
            why = self._watch()
        grace = self.grace if why != "exit" else min(1.0, self.grace)
        left = end_all(lambda: own_processes(self.folder), grace=grace, turn=self._turn, statuses=self.statuses)
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

    def _ask_stop(self, _number: int, _frame: object) -> None:
        self.stopped = True

    def _start(self, worker: dict[str, Any]) -> None:
        environment = {**os.environ, **worker["env"], TOKEN_VARIABLE: self.token, SUPERVISOR_VARIABLE: self.folder}
        cores = worker.get("cores")

        def prepare() -> None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            for number in (signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            if cores:
                os.sched_setaffinity(0, cores)

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
        """Wait until the workers have ended or must be ended; returns the reason, such as ``exit`` or ``cap``."""
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
        """Read output and heartbeats for at most one tick; returns True if the connection was cut."""
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
    """Copies the output of a worker to a file: its beginning at once, its last part when the trial ends."""

    def __init__(self, file: int, path: Path) -> None:
        self.file, self.path, self.error = file, path, ""
        self.total, self.head, self.tail = 0, 0, b""

    def take(self) -> None:
        """Read the output that is available now."""
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
        """Append the last part of the output to the file."""
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


def end_processes(identifiers: list[str]) -> list[int]:
    """End all processes that have one of ``identifiers``, and their supervisors; returns IDs of those that remain."""
    kept = {os.getpid(), os.getppid()}
    return end_all(lambda: [pid for pid in find_processes(identifiers, supervisors=True) if pid not in kept], grace=8.0)


def end_all(
    alive: Callable[[], list[int]], *, grace: float, turn: Callable[[], object] = bool,
    statuses: dict[int, int] | None = None,
) -> list[int]:  # fmt: skip
    """Terminate the processes that ``alive`` lists, and kill them after ``grace`` seconds; returns those that remain.

    ``turn`` is called while waiting. The exit codes of ended children are added to ``statuses``, if given.
    """
    asked: set[int] = set()
    began = time.monotonic()
    while pids := alive():
        late = time.monotonic() - began
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


def own_processes(folder: str) -> list[int]:
    """IDs of this supervisor's processes, without processes of the trial's other workers on this machine."""
    return [*descendants(os.getpid()), *find_processes([folder], supervisors=False, variable=SUPERVISOR_VARIABLE)]


def find_processes(identifiers: Iterable[str], *, supervisors: bool, variable: str = TOKEN_VARIABLE) -> list[int]:
    """IDs of processes whose environment variable ``variable`` is in ``identifiers``, optionally with ``supervisors``.

    An identifier is a token, or an output pipe ``pipe:[123]@BOOT``, by which processes that write to it are found.
    """
    pipes = {one.removesuffix(THIS_BOOT) for one in identifiers if one.startswith("pipe:") and one.endswith(THIS_BOOT)}
    names = {one.encode() for one in identifiers}
    entries = {variable.encode() + b"=" + name for name in names}
    found = []
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
            found.append(pid)
    return found


def descendants(root: int) -> list[int]:
    """IDs of all running descendants of the process ``root``, parents before children."""
    children: dict[int, list[int]] = {}
    for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
        try:
            state, parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state != b"Z":
            children.setdefault(int(parent), []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def reap(statuses: dict[int, int]) -> None:
    """Add the exit codes of ended children to ``statuses``; a child killed by a signal has its negative number."""
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


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _report(folder: str, outcome: dict[str, Any], *, send: bool = True) -> bool:
    # After the connection was cut, a full pipe would block the supervisor.
    reported = send and _send({"ended": outcome})
    with contextlib.suppress(OSError):
        _write(Path(folder, "status.json"), {"state": "ended", **outcome})
        reported = True
    return reported


def _send(message: dict[str, Any]) -> bool:
    with contextlib.suppress(OSError):
        return os.write(1, json.dumps(message).encode() + b"\n") > 0
    return False


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write ``content`` as JSON to ``path`` atomically, because other processes wait for the file."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
