"""Detects every system call that is about to change a file, by a process and all processes that it starts.

The process installs a filter for these calls (``seccomp`` of Linux 5.5 or later), which needs no privilege. The kernel
suspends each such call until another process, the listener, has backed up the file and lets the call continue. All
other calls, such as opening a file for reading, are not suspended and take as long as without the filter.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import platform
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from vmselect.probe.file_backup import Backup

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _NEW_LISTENER, _SPEC_ALLOW = 1, 1 << 3, 1 << 2
_ALLOW, _NOTIFY, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = 0x100, 0x1000
_RENAME_EXCHANGE = 2


class Call(NamedTuple):
    """What a system call does to a file (``event``), and the positions of its arguments.

    ``path`` is a pair of positions: that of a folder's file descriptor (None for the working folder), and that of the
    name in this folder (None if the file descriptor is that of the file itself). ``second`` is the same pair for the
    new name in a rename or link.
    """

    event: str
    path: tuple[int | None, int | None]
    second: tuple[int | None, int | None] = (None, None)
    flags: int | None = None


OPEN, OPENAT, OPENAT2 = (
    Call("open", (None, 0), flags=1),
    Call("open", (0, 1), flags=2),
    Call("open2", (0, 1), flags=2),
)
COMMON = {
    "openat": OPENAT,
    "openat2": OPENAT2,
    "truncate": Call("write", (None, 0)),
    "renameat": Call("rename", (0, 1), (2, 3)),
    "renameat2": Call("rename", (0, 1), (2, 3), flags=4),
    "unlinkat": Call("remove", (0, 1)),
    "linkat": Call("link", (0, 1), (2, 3)),
    "symlinkat": Call("make", (1, 2)),
    "mkdirat": Call("make", (0, 1)),
    "mknodat": Call("make", (0, 1)),
    "fchmod": Call("change", (0, None)),
    "fchmodat": Call("change", (0, 1)),
    "fchmodat2": Call("change", (0, 1), flags=3),
    "fchown": Call("change", (0, None)),
    "fchownat": Call("change", (0, 1), flags=4),
    "utimensat": Call("change", (0, 1), flags=3),
}
OLD = {
    "open": OPEN,
    "creat": Call("create", (None, 0)),
    "rename": Call("rename", (None, 0), (None, 1)),
    "unlink": Call("remove", (None, 0)),
    "rmdir": Call("remove", (None, 0)),
    "link": Call("link", (None, 0), (None, 1)),
    "symlink": Call("make", (None, 1)),
    "mkdir": Call("make", (None, 0)),
    "mknod": Call("make", (None, 0)),
    "chmod": Call("change", (None, 0)),
    "chown": Call("change", (None, 0)),
    "lchown": Call("change", (None, 0)),
    "utime": Call("change", (None, 0)),
    "utimes": Call("change", (None, 0)),
    "futimesat": Call("change", (0, 1)),
}
IO_URING_SETUP = 425
"""Number of a system call that always fails under the filter: it would allow changes of files without further system
calls. Programs can do without it, because many systems forbid it."""


class Machine(NamedTuple):
    """A processor architecture: its code in audit messages, and the ``numbers`` of its system calls."""

    audit: int
    seccomp: int
    numbers: dict[str, int]


MACHINES = {
    "x86_64": Machine(
        0xC000003E, 317,
        {
            "open": 2, "truncate": 76, "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87,
            "symlink": 88, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "utime": 132,
            "mknod": 133, "utimes": 235, "openat": 257, "mkdirat": 258, "mknodat": 259, "fchownat": 260,
            "futimesat": 261, "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "fchmodat": 268,
            "utimensat": 280, "renameat2": 316, "openat2": 437, "fchmodat2": 452,
        },
    ),
    "aarch64": Machine(
        0xC00000B7, 277,
        {
            "mknodat": 33, "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38,
            "truncate": 45, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "openat": 56, "utimensat": 88,
            "renameat2": 276, "openat2": 437, "fchmodat2": 452,
        },
    ),
}  # fmt: skip


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def _build_filter(machine: Machine) -> list[tuple[int, int, int, int]]:
    """Return the filter program: suspend the calls that change files or open them for writing, and allow all others."""
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06
    program = [(load, 0, 0, 4), (equal, 1, 0, machine.audit), (give, 0, 0, _ALLOW), (load, 0, 0, 0)]
    opening = {"open": 1, "openat": 2}
    for name, position in opening.items():
        if name in machine.numbers:
            program += [
                (equal, 0, 4, machine.numbers[name]),
                (load, 0, 0, 16 + 8 * position),
                (any_bit, 1, 0, _WRITING),
                (give, 0, 0, _ALLOW),
                (give, 0, 0, _NOTIFY),
            ]
    program += [(equal, 0, 1, IO_URING_SETUP), (give, 0, 0, _ERRNO | errno.ENOSYS)]
    for name, number in machine.numbers.items():
        if name not in opening:
            program += [(equal, 0, 1, number), (give, 0, 0, _NOTIFY)]
    return [*program, (give, 0, 0, _ALLOW)]


def install(channel: socket.socket) -> None:
    """Install the filter in this process, and send the file descriptor for the listener through ``channel``.

    Raise OSError if the system does not support this. The filter cannot be removed.
    """
    machine = MACHINES.get(platform.machine())
    if machine is None or struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, "unknown processor architecture")
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = [_Instruction(*one) for one in _build_filter(machine)]
    program = _Program(len(instructions), (_Instruction * len(instructions))(*instructions))
    # Without _SPEC_ALLOW, Linux before 5.16 would slow down the whole process.
    flags = _NEW_LISTENER | _SPEC_ALLOW
    arguments = (machine.seccomp, _SET_MODE_FILTER, flags, ctypes.byref(program))
    listener = libc.syscall(*arguments)
    if listener < 0 and ctypes.get_errno() == errno.EACCES:  # not an administrator
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "no_new_privs")
        listener = libc.syscall(*arguments)
    if listener < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    channel.sendmsg([b"l"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])
    os.close(listener)


def receive_listener(channel: socket.socket) -> int | None:
    """Receive the file descriptor that :func:`install` has sent; None if the filter could not be installed."""
    message, ancillary, *_ = channel.recvmsg(1, socket.CMSG_SPACE(4))
    if message != b"l" or not ancillary:
        return None
    handle = array.array("i", ancillary[0][2][:4])[0]
    os.set_inheritable(handle, False)
    return handle


class Listener:
    """Calls ``backup`` for each suspended system call, and lets the call continue.

    If a backup fails, ``refused`` is called, and the system call fails. With ``backup=None`` every call continues.
    """

    def __init__(self, handle: int, backup: Backup | None, refused: Callable[[str, OSError], None]) -> None:
        self.handle = handle
        self._backup = backup
        self._refused = refused
        numbers = MACHINES[platform.machine()].numbers
        calls = COMMON | OLD
        self._calls = {number: calls[name] for name, number in numbers.items()}
        self._alarms: dict[int, bool] = {}

    def answer(self) -> None:
        """Receive one suspended call, back up the file that it changes, and let it continue."""
        request = bytearray(80)
        try:
            fcntl.ioctl(self.handle, _RECEIVE, request)
        except OSError:
            return  # the call was interrupted
        identity, process, _, number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", request)
        error = 0
        try:
            if self._backup is not None:
                self._report(self._calls[number], process, arguments)
        except _GoneError:
            pass
        except OSError as cannot:  # such as a full disk
            error = cannot.errno or errno.EIO
            self._refused(str(cannot.filename or "a file"), cannot)
        except Exception as unknown:  # noqa: BLE001 - the script must neither hang nor change a file unprotected
            error = errno.EIO
            self._refused("a file", OSError(errno.EIO, f"{type(unknown).__name__}: {unknown}"))
        response = struct.pack("=QqiI", identity, 0, -error, 0 if error else _CONTINUE)
        with suppress(FileNotFoundError):  # the process has ended
            fcntl.ioctl(self.handle, _SEND, response)

    def _report(self, call: Call, process: int, arguments: list[int]) -> None:
        backup = self._backup
        if backup is None:
            return
        path = self._read_path(process, call.path, arguments)
        if path is None:
            return
        if path.startswith(("/dev/", "/sys/")) or self._is_alarm(process):
            return
        event, flags = call.event, arguments[call.flags] if call.flags is not None else 0
        if event == "open2":  # the flags are in a structure
            event, flags = "open", struct.unpack("=Q", _read_memory(process, flags, 8))[0]
            if not flags & _WRITING:
                return
        if event == "create":
            backup.will_write(path, truncates=True)
        elif event == "open":
            if flags & os.O_TMPFILE == os.O_TMPFILE or flags & (os.O_CREAT | os.O_EXCL) == os.O_CREAT | os.O_EXCL:
                if not flags & os.O_DIRECTORY:
                    backup.will_make(path)
            elif flags & os.O_NOFOLLOW and os.path.islink(path):
                return  # fails
            elif flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC) or not os.path.lexists(path):
                backup.will_write(path, truncates=bool(flags & os.O_TRUNC))
        elif event == "write":
            backup.will_write(path)
        elif event == "remove":
            if os.path.lexists(path):
                backup.will_remove(path)
        elif event == "make":
            backup.will_make(path)
        elif event == "change":
            nofollow = flags & _AT_SYMLINK_NOFOLLOW and call.flags is not None
            backup.will_change(path, follow=not nofollow)
        else:
            second = self._read_path(process, call.second, arguments)
            if second is None:
                return
            if event == "link":
                backup.will_link(path, second)
            else:
                backup.will_rename(path, second, swap=bool(flags & _RENAME_EXCHANGE))

    def _is_alarm(self, process: int) -> bool:
        """Return whether ``process`` is the command of an alarm, whose files are not protected."""
        if process not in self._alarms:
            if len(self._alarms) > 10_000:
                self._alarms.clear()
            try:
                with open(f"/proc/{process}/environ", "rb") as file:
                    self._alarms[process] = b"\0VMSELECT_ALARM=" in b"\0" + file.read(2**20)
            except OSError:
                return False
        return self._alarms[process]

    def _read_path(self, process: int, where: tuple[int | None, int | None], arguments: list[int]) -> str | None:
        folder, name = where
        handle = _AT_FDCWD if folder is None else ctypes.c_int(arguments[folder]).value
        address = 0 if name is None else arguments[name]
        text = os.fsdecode(_read_text(process, address)) if address else ""
        if text.startswith("/"):
            return _resolve_self(text, process)
        place = f"/proc/{process}/cwd" if handle == _AT_FDCWD else f"/proc/{process}/fd/{handle}"
        try:
            base = os.readlink(place)
        except OSError:
            raise _GoneError from None
        if not base.startswith("/"):
            return None  # a pipe or socket
        if not text:
            return base.removesuffix(" (deleted)")
        return os.path.join(base, text)


class _GoneError(Exception):
    """The process that made the call has ended, or its memory cannot be read."""


def _resolve_self(path: str, process: int) -> str:
    for name in ("/proc/self/", "/proc/thread-self/"):
        if path.startswith(name):
            return f"/proc/{process}/{path[len(name) :]}"
    return path


def _read_memory(process: int, address: int, size: int) -> bytes:
    try:
        handle = os.open(f"/proc/{process}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(handle, size, address)
        finally:
            os.close(handle)
    except (OSError, OverflowError):
        raise _GoneError from None


def _read_text(process: int, address: int) -> bytes:
    """Return the zero-terminated text of at most 4096 bytes at ``address`` in the memory of ``process``."""
    return _read_memory(process, address, 4096).split(b"\0", 1)[0]
