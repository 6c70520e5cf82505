"""Runs a probed script in a child process and, when the script has ended, restores the files that it changed.

The child process runs the script. The parent process backs up files before the script changes them, forwards signals,
and restores the files when the child has ended, however it ended. Two mechanisms can detect changes; the first one that
works is used:

1. :mod:`~vmselect.probe.system_calls`, which covers all processes and all libraries;
2. :mod:`~vmselect.probe.python_calls`, which covers Python code in the process of the script.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import select
import shutil
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NoReturn

from vmselect.errors import ProbeError
from vmselect.probe import file_backup, file_protection, system_calls
from vmselect.probe.file_backup import Backup, Settled
from vmselect.probe.python_calls import PythonCalls
from vmselect.units import list_some

Mechanism = Literal["system-calls", "python-calls"]

VARIABLE = "VMSELECT_PROTECTION"
"""Environment variable that selects one of the mechanisms. By default, the first one that works is used."""

OUTER = "VMSELECT_PROTECTED_BY"
"""Environment variable that a probe sets for the script whose files it protects by system calls, and for the programs
that the script starts. It contains the process ID of the probe and the folder of its backups."""

CAUTION = {
    "system-calls": "Not covered: caches such as ~/.cache, and changes by services or other machines.",
    "python-calls": "Not covered: caches such as ~/.cache, files outside the working folder that other programs or "
    "C libraries change, and changes by services or other machines.",
}

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_SI_USER_MOST = 0
"""Largest ``si_code`` of a signal that was sent by a process. Only these signals are forwarded: the terminal sends its
signals to the child process too."""


def run_protected(
    unprotected: Sequence[str | os.PathLike[str]],
    say: Callable[[str], None],
    after_import: Callable[..., None],
    *,
    verbose: bool = True,
) -> None:
    """Fork a child process whose changes of existing files will be undone, and return in the child process only.

    When the child has ended and the files have been restored, the parent process ends as the child did: by SystemExit
    with its exit code, or by its signal. ``say`` prints a line; with ``verbose=False`` only problems are printed.
    ``after_import(module, function)`` must call ``function`` when the script imports ``module``. If this process was
    started by another probe, which protects its files already, nothing is forked.
    """
    outer = _find_outer()
    if outer is not None:
        file_protection.marks = outer
        if verbose:
            say("existing files will be restored by the probe that started this probe.")
        return
    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted not in ("", *CAUTION):
        raise ProbeError(f"{VARIABLE} must be {' or '.join(CAUTION)}, not {wanted!r}. Correct or remove the variable.")
    try:
        folder, lock = file_backup.begin()
    except OSError as cannot:
        raise ProbeError(
            f"Files cannot be protected, because backups cannot be written: {cannot}. Set XDG_STATE_HOME to a writable "
            "folder, or pass --touch-files to run without protection."
        ) from None
    if sys.platform != "linux":
        _protect_here(folder, unprotected, say, after_import)
        return
    for mechanism in ("system-calls", "python-calls") if not wanted else (wanted,):
        parent = _Parent(folder, lock, tuple(unprotected), mechanism, say, verbose=verbose)
        if parent.fork(after_import):
            return
        if parent.started:
            parent.supervise()
    shutil.rmtree(folder, ignore_errors=True)
    raise ProbeError(
        f"Files cannot be protected by {wanted} on this machine. Remove the environment variable {VARIABLE}, or pass "
        "--touch-files to run without protection."
    )


def _find_outer() -> Path | None:
    """Return the backup folder of a running probe that started this process and protects its files, or None."""
    probe, _, folder = os.environ.get(OUTER, "").partition(":")
    process = os.getppid()
    with suppress(OSError, ValueError, IndexError):
        while str(process) != probe:
            if process <= 1:
                return None
            # The name, in parentheses, may contain spaces; then follow the state and the parent.
            process = int(Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        return Path(folder) if file_backup.is_in_use(Path(folder)) else None
    return None


def _protect_here(
    folder: Path, unprotected: Sequence[str | os.PathLike[str]], say: Callable[[str], None], after_import: Any
) -> None:
    """Back up and restore files in this process, on other systems than Linux.

    If the process is killed, the next ``vmselect`` command restores the files.
    """
    say(f"existing files will be restored when the script ends (method: python calls). {CAUTION['python-calls']}")
    calls = PythonCalls(
        Backup(folder, unprotected=unprotected), lambda path, cannot: say(_cannot_protect(path, cannot))
    )
    calls.install(after_import)
    file_protection.marks = folder

    def end() -> None:
        calls.stop()
        for line in describe(file_backup.settle(folder)):
            say(line)

    atexit.register(end)


class _Parent:
    def __init__(
        self,
        folder: Path,
        lock: int,
        unprotected: Sequence[str | os.PathLike[str]],
        mechanism: str,
        say: Callable[[str], None],
        *,
        verbose: bool,
    ) -> None:
        self._folder, self._lock, self._unprotected, self._mechanism = folder, lock, unprotected, mechanism
        self._say, self._verbose = say, verbose
        self._mask: set[Any] = set()
        self._listener: system_calls.Listener | None = None
        self.child = 0
        self.started = False

    def fork(self, after_import: Callable[..., None]) -> bool:
        """Start the child process. Return True in the child, False in the parent.

        In the parent, ``started`` is then True if the mechanism works and the child runs the script. If not, the
        child has been killed, and another mechanism can be tried.
        """
        here, there = socket.socketpair()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.child = os.fork()
        if not self.child:
            here.close()
            os.close(self._lock)
            self._begin_child(there, parent, after_import)
            return True
        there.close()
        self.started = self._meet(here)
        here.close()
        if not self.started:
            with suppress(OSError):
                os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        return False

    def _begin_child(self, channel: socket.socket, parent: int, after_import: Callable[..., None]) -> None:
        """Prepare the child process: kill it if the parent ends, report its file changes, and wait for the parent."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        try:
            if self._mechanism == "system-calls":
                system_calls.install(channel)
                with suppress(FileNotFoundError):
                    (self._folder / "nothing").unlink()  # the first call to be answered
            else:
                backup = Backup(self._folder, unprotected=self._unprotected)
                PythonCalls(backup, self._refuse).install(after_import)
            channel.sendall(b"r")
            if channel.recv(1) != b"g":
                os._exit(1)
        except OSError:
            os._exit(1)
        channel.close()
        if self._mechanism == "system-calls":
            os.environ[OUTER] = f"{parent}:{self._folder}"
        file_protection.marks = self._folder
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _meet(self, channel: socket.socket) -> bool:
        """Connect to the child process; return whether its file changes are reported, so that it may run the script."""
        channel.settimeout(20)
        try:
            if self._mechanism == "system-calls":
                handle = system_calls.receive_listener(channel)
                if handle is None:
                    return False
                ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
                backup = Backup(self._folder, unprotected=self._unprotected)
                self._listener = system_calls.Listener(handle, backup, self._refuse)
                self._listener.answer()
            if channel.recv(1) != b"r":
                return False
            channel.sendall(b"g")
        except OSError:  # this version of Linux does not support continuing a call
            return False
        return True

    def _inform(self, line: str) -> None:
        if self._verbose:
            self._say(line)

    def _refuse(self, path: str, cannot: OSError) -> None:
        self._say(_cannot_protect(path, cannot))

    # -- while the script runs -----------------------------------------------------------------------------------------

    def supervise(self) -> NoReturn:
        """Back up files before the script changes them. When it has ended, restore them and exit as the script did."""
        self._inform(
            "when the script ends, existing files will be restored, and new files of a training that the probe ended "
            f"early will be removed (method: {self._mechanism.replace('-', ' ')}). {CAUTION[self._mechanism]}"
        )
        status = self._wait()
        ended = file_backup.settle(self._folder)
        for line in describe(ended) if self._verbose or ended.failed else ():
            self._say(line)
        self._stay_for_others()
        if os.WIFSIGNALED(status):
            import resource

            number = os.WTERMSIG(status)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
            os.kill(os.getpid(), number)
        raise SystemExit(os.waitstatus_to_exitcode(status))

    def _wait(self) -> int:
        signals = _open_signals()
        child = os.pidfd_open(self.child)
        poll = select.poll()
        poll.register(signals, select.POLLIN)
        poll.register(child, select.POLLIN)
        if self._listener is not None:
            poll.register(self._listener.handle, select.POLLIN)
        while True:
            for handle, _ in poll.poll():
                if handle == signals:
                    number, _, code = struct.unpack("=Iii", os.read(signals, 128)[:12])
                    if code <= _SI_USER_MOST:
                        with suppress(ProcessLookupError):
                            os.kill(self.child, number)
                elif handle == child:
                    return os.waitpid(self.child, 0)[1]
                elif self._listener is not None:
                    self._listener.answer()

    def _stay_for_others(self) -> None:
        """If programs that the script started still run, answer their system calls in the background until they end."""
        if self._listener is None:
            return
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        poll = select.poll()
        poll.register(self._listener.handle, select.POLLIN)
        if any(state & select.POLLHUP for _, state in poll.poll(0)) or os.fork():
            return
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(null, handle)
        os.close(self._lock)
        listener = system_calls.Listener(self._listener.handle, None, self._refuse)
        while True:
            if any(state & select.POLLHUP for _, state in poll.poll()):
                os._exit(0)
            listener.answer()


def _cannot_protect(path: str, cannot: OSError) -> str:
    return (
        f"{path} cannot be backed up before the script changes it: {cannot.strerror or cannot}. Pass --unprotected "
        "with its path to vmselect probe, or --touch-files to run without protection."
    )


def describe(done: Settled) -> list[str]:
    """Return the lines to print about restored, removed and kept files."""
    lines = []

    def show(paths: Sequence[str]) -> str:
        here = f"{Path.cwd()}{os.sep}"
        return list_some([path.removeprefix(here) for path in sorted(paths)], 8)

    if done.restored:
        lines.append(f"restored {show(done.restored)}.")
    if done.removed:
        lines.append(f"removed new files of a training that the probe ended early: {show(done.removed)}.")
    if done.versions:
        lines.append(
            "the probe ended no training early, so new files were kept. The script's versions of the restored files "
            f"({show(done.versions)}) are in {done.versions_folder}."
        )
    if done.failed:
        lines.append(f"could not restore {list_some(done.failed, 8)}. The backups are listed in {done.journal}.")
    return lines


def recover(say: Callable[[str], None]) -> None:
    """Restore the files that scripts of killed probes had changed, and print what was restored."""
    for done in file_backup.recover():
        for line in describe(done):
            say(f"after an earlier probe was killed: {line}")


def _open_signals() -> int:
    """Return a file descriptor from which the signals in ``_FORWARDED`` can be read."""
    libc: Any = ctypes.CDLL(None, use_errno=True)
    mask = (ctypes.c_ulong * 16)()
    libc.sigemptyset(mask)
    for number in _FORWARDED:
        libc.sigaddset(mask, int(number))
    handle = int(libc.signalfd(-1, mask, os.O_CLOEXEC))
    if handle < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return handle
