"""The supervisor: runs a trial's command on its host, and leaves no process behind.

A standalone program that needs nothing but Python's standard library, because it is sent to hosts that have no
vmselect. ``run FOLDER TOKEN`` reads a request (one line of JSON) from standard input or from ``FOLDER/request.json``,
runs its workers, and ends the whole process tree when the command ends, at the time cap, when heartbeats stop, or when
the connection is cut. ``end`` reads identifiers from standard input and ends all processes that carry one of them.

There are two supervisors, one the child of the other. Each adopts what its descendants orphan (a child that changed its
session included) and ends everything when the other is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

TOKEN_VARIABLE, SUPERVISOR_VARIABLE = "VMSELECT_TOKEN", "VMSELECT_SUPERVISOR"
TICK_SECONDS = 0.1
HEAD_BYTES, TAIL_BYTES = 1 << 20, 1 << 17  # of a command's output its beginning and its end are kept
KILL_SECONDS = 30.0
"""How long killed processes are waited for; one that is stuck in the kernel longer is reported as left."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
FAILED = 4
THIS_BOOT = "@" + "".join(p.read_text().strip() for p in Path("/proc/sys/kernel/random").glob("boot_id"))
"""Marks identifiers that are valid on this machine until it restarts."""


def main(arguments: list[str]) -> int:
    """Run as a program."""
    if len(arguments) == 3 and arguments[0] == "run":
        return run(arguments[1], arguments[2])
    if arguments == ["end"]:
        left = end_processes(sys.stdin.read().split())
        _send({"left": left})
        return 1 if left else 0
    sys.stderr.write("usage: run FOLDER TOKEN | end\n")
    return 2


def run(folder: str, token: str) -> int:
    """Run the request; returns 0 once its outcome is written, or 1 if asked to be ``strict`` and it ended badly."""
    for number in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    request = _read_request(folder)
    if request is None:
        return 3
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    began, outer = time.monotonic(), os.getpid()
    if not (inner := os.fork()):
        os._exit(Supervisor(request, folder, token, began, outer).run())

    def pass_on(number: int, _frame: object) -> None:
        _signal(inner, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    pid, status = 0, 1
    while pid != inner:
        pid, status = os.waitpid(-1, 0)
    if os.waitstatus_to_exitcode(status) not in (0, FAILED):
        left = end_all(lambda: own_processes(folder), grace=1.0, statuses={})
        _report(folder, {"exit": None, "why": "guard", "seconds": time.monotonic() - began, "left": left})
    return 1 if status and request.get("strict") else 0


def _read_request(folder: str) -> dict[str, Any] | None:
    path = Path(folder, "request.json")
    if path.exists():
        return dict(json.loads(path.read_text(encoding="utf-8")))
    line = bytearray()
    while not line.endswith(b"\n"):  # byte by byte: what follows the line are the caller's signs of life
        byte = os.read(0, 1)
        if not byte:
            return None
        line += byte
    return dict(json.loads(line))


class Supervisor:
    """The inner supervisor: starts the workers, watches them and the caller, ends them all."""

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
        """Run the workers to their end and report; 3 when the outcome could neither be sent nor written."""
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
            _write_status(self.folder, {"state": "running", "host": host, "pipes": self.pipes})
        if why == "exit":
            _send({"started": self.workers, "pipes": self.pipes})
            why = self._watch()
        grace = self.grace if why != "exit" else min(1.0, self.grace)
        left = end_all(lambda: own_processes(self.folder), grace=grace, turn=self._turn, statuses=self.statuses)
        for output in self.outputs:
            output.close()
        exits = [self.statuses.get(pid) for pid in self.workers]
        outcome = {
            "exit": _first_bad(exits), "why": why, "seconds": time.monotonic() - self.began, "left": left,
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
            started = subprocess.Popen(  # the list goes to the program as it is; no shell reads it
                worker["argv"], stdin=subprocess.DEVNULL, stdout=write, stderr=write, env=environment,
                cwd=worker["cwd"], start_new_session=True, preexec_fn=prepare,
            )  # fmt: skip
        finally:
            os.close(write)
        started.returncode = 0  # its end is seen here by waitpid, not by this object
        self.workers.append(started.pid)

    def _watch(self) -> str:
        """Wait for a reason to end everything, and return it."""
        cap = float(self.request["cap_seconds"])
        cap -= self.grace + min(0.5, cap / 10)
        silence = self.request.get("silence_seconds")
        deadline = self.request.get("deadline_unix")
        while True:
            cut = self._turn()
            reap(self.statuses)
            ended = [self.statuses[pid] for pid in self.workers if pid in self.statuses]
            if len(ended) == len(self.workers):
                return "exit"
            if any(ended):
                return "worker"
            if cut:
                return "cut"
            if self.stopped:
                return "stop"
            if time.monotonic() - self.began >= cap or (deadline and time.time() >= deadline - self.grace):
                return "cap"
            if self.listening and silence and time.monotonic() - self.heard > silence:
                return "silent"
            if os.getppid() != self.outer:
                return "guard"

    def _turn(self) -> bool:
        """Read output and heartbeats for one tick; True when the connection is cut."""
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
    """The output of a worker: its beginning goes to a file, its end is appended at the end of the trial."""

    def __init__(self, file: int, path: Path) -> None:
        self.file, self.path, self.error = file, path, ""
        self.written = self.dropped = self.tail_bytes = 0
        self.tail: deque[bytes] = deque()

    def take(self) -> None:
        """Read the available output."""
        try:
            data = os.read(self.file, 1 << 16)
        except OSError:
            data = b""
        if not data:
            os.close(self.file)
            self.file = -1
            return
        if self.written < HEAD_BYTES:
            self._append(data)
            self.written += len(data)
            return
        self.tail.append(data)
        self.tail_bytes += len(data)
        while self.tail and self.tail_bytes - len(self.tail[0]) >= TAIL_BYTES:
            gone = len(self.tail.popleft())
            self.tail_bytes -= gone
            self.dropped += gone

    def close(self) -> None:
        """Write the end."""
        while self.file >= 0 and select.select([self.file], [], [], 0)[0]:
            self.take()
        if self.dropped:
            self._append(b"\n[... %d bytes are omitted here ...]\n" % self.dropped)
        for part in self.tail:
            self._append(part)

    def _append(self, data: bytes) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(data)
        except OSError as full:  # a full disk must not stop the watching
            self.error = f"output could not be kept: {full.strerror}"


def end_processes(identifiers: list[str]) -> list[int]:
    """End every process that carries one of ``identifiers``, supervisors first; returns those that remain."""
    kept = {os.getpid(), os.getppid()}
    return end_all(lambda: [pid for pid in find_processes(identifiers, supervisors=True) if pid not in kept], grace=8.0)


def end_all(
    alive: Callable[[], list[int]], *, grace: float, turn: Callable[[], object] = bool,
    statuses: dict[int, int] | None = None,
) -> list[int]:  # fmt: skip
    """Terminate the processes that ``alive`` lists, then kill them, until it lists none; returns those that remain.

    With ``statuses``, collect ended children meanwhile.
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
    """The processes of this supervisor, without those of the trial's other workers on this machine."""
    return [*descendants(os.getpid()), *find_processes([folder], supervisors=False, variable=SUPERVISOR_VARIABLE)]


def find_processes(identifiers: Iterable[str], *, supervisors: bool, variable: str = TOKEN_VARIABLE) -> list[int]:
    """Processes whose environment carries one of ``identifiers``, and optionally their ``supervisors``.

    An identifier is a token or an output pipe, ``pipe:[123]@BOOT``, which finds the processes that write into it.
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
    """Living children of ``root``, their children, and so on; the nearest first."""
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
    """Collect children that ended; their exit codes go into ``statuses``, a signal as its negative number."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        statuses[pid] = os.waitstatus_to_exitcode(status)


def prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the process group and the token have to do."""
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


def _first_bad(exits: list[int | None]) -> int | None:
    """The exit code of the whole: 0 only where every worker ended with 0."""
    return next((code for code in exits if code), None if None in exits or not exits else 0)


def _report(folder: str, outcome: dict[str, Any], *, send: bool = True) -> bool:
    # After a cut nobody reads, and a full pipe would block the supervisor.
    reported = send and _send({"ended": outcome})
    with contextlib.suppress(OSError):
        _write_status(folder, {"state": "ended", **outcome})
        reported = True
    return reported


def _send(message: dict[str, Any]) -> bool:
    with contextlib.suppress(OSError):
        return os.write(1, json.dumps(message).encode() + b"\n") > 0
    return False


def _write_status(folder: str, status: dict[str, Any]) -> None:
    part = Path(folder, "status.json.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(status, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(part.with_suffix(""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
