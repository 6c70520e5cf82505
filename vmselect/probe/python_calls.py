"""Detects that Python code in this process is about to change a file, so that the file can be backed up before.

Python calls audit hooks before it opens, renames or removes a file. Functions of libraries that change files from C,
C++ or Rust are listed here and wrapped. This module is used where :mod:`~vmselect.probe.system_calls` does not work.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from vmselect.probe.file_backup import Backup


class Function(NamedTuple):
    """A function that changes files: module, class (``owner``) and name; ``arguments`` are those that are paths."""

    module: str
    owner: str | None
    name: str
    arguments: tuple[str, ...]


FUNCTIONS = (
    Function("h5py._hl.files", "File", "__init__", ("name",)),
    Function("safetensors.torch", None, "serialize_file", ("filename",)),
    Function("safetensors.numpy", None, "serialize_file", ("filename",)),
    Function("torch.serialization", "_open_zipfile_writer_file", "__init__", ("name",)),
    Function("pyarrow.parquet.core", "ParquetWriter", "__init__", ("where",)),
    Function("cv2", None, "imwrite", ("filename",)),
    Function("tensorflow.python.lib.io.file_io", "FileIO", "__init__", ("name",)),
    Function("tensorflow.python.lib.io.file_io", None, "delete_file_v2", ("path",)),
    Function("tensorflow.python.lib.io.file_io", None, "delete_recursively_v2", ("path",)),
    Function("tensorflow.python.lib.io.file_io", None, "rename_v2", ("src", "dst")),
    Function("tensorflow.python.lib.io.file_io", None, "copy_v2", ("dst",)),
    Function("tensorflow.python.ops.gen_io_ops", None, "save_v2", ("prefix",)),
    Function("tensorflow.python.ops.gen_io_ops", None, "write_file", ("filename",)),
)
"""Functions that change files without Python's ``open``. Their paths may be folders or beginnings of file names."""

POSITIONS = {
    "safetensors.torch.serialize_file": 1,
    "safetensors.numpy.serialize_file": 1,
    "cv2.imwrite": 0,
}
"""Position of the path among the arguments of functions whose signature Python cannot read."""

STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn")
"""Audit events that mean that another program is about to start."""


class PythonCalls:
    """Calls ``backup`` before Python code in this process or in its forked children changes a file.

    Before another program is started for the first time, the files in the working folder are backed up. If a backup
    fails, ``refused`` is called, and the function that would change the file raises the same error.
    """

    def __init__(self, backup: Backup, refused: Callable[[str, OSError], None]) -> None:
        self._backup = backup
        self._refused = refused
        self._inside = threading.local()
        self._ran: set[str] = set()
        self._active = True

    def install(self, after_import: Callable[[str, Callable[[Any], None]], None]) -> None:
        """Detect all changes from now on. Audit hooks cannot be removed; after :meth:`stop`, this one does nothing."""
        for one in FUNCTIONS:
            after_import(one.module, functools.partial(self._wrap, one))
        sys.addaudithook(self._on_event)

    def stop(self) -> None:
        """Stop detecting changes."""
        self._active = False

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active or not (event in _EVENTS or event in STARTS) or getattr(self._inside, "busy", False):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITING):
            return
        self._guarded(lambda: self._report(event, arguments))

    def _guarded(self, report: Callable[[], None]) -> None:
        self._inside.busy = True
        try:
            report()
        except OSError as cannot:
            self._refused(str(cannot.filename or "a file"), cannot)
            raise
        finally:
            self._inside.busy = False

    def _report(self, event: str, arguments: tuple[Any, ...]) -> None:
        backup = self._backup
        if event in STARTS:
            folder = os.path.realpath(os.getcwd())
            if folder not in self._ran:
                self._ran.add(folder)
                backup.will_run(folder)
            return
        first = _path_of(arguments[0], _folder_of(event, arguments))
        if first is None:
            return
        if event == "open":
            flags = arguments[2]
            if flags & os.O_CREAT and flags & os.O_EXCL:
                backup.will_make(first)
            else:
                backup.will_write(first, truncates=bool(flags & os.O_TRUNC))
        elif event == "sqlite3.connect":
            for ending in ("", "-journal", "-wal", "-shm"):
                backup.will_write(first + ending)
        elif event == "os.truncate":
            backup.will_write(first)
        elif event in ("os.remove", "os.rmdir"):
            backup.will_remove(first)
        elif event == "os.mkdir":
            backup.will_make(first)
        elif event in ("os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr"):
            backup.will_change(first)
        else:
            second = _path_of(arguments[1], arguments[3] if event in ("os.rename", "os.link") else arguments[2])
            if second is None:
                return
            if event == "os.rename":
                backup.will_rename(first, second)
            elif event == "os.link":
                backup.will_link(first, second)
            else:
                backup.will_make(second)  # a symbolic link

    def _wrap(self, function: Function, module: Any) -> None:
        owner = module if function.owner is None else getattr(module, function.owner, None)
        bare = getattr(owner, function.name, None)
        if owner is None or not callable(bare):
            return  # another version of the library
        position = POSITIONS.get(f"{function.module}.{function.name}")
        try:
            parameters = list(inspect.signature(bare).parameters)
        except (TypeError, ValueError):
            parameters = []
        places = [(name, position if position is not None else _index(parameters, name)) for name in function.arguments]

        @functools.wraps(bare)
        def reported(*args: Any, **options: Any) -> Any:
            if self._active and not getattr(self._inside, "busy", False):
                for name, at in places:
                    value = options.get(name, args[at] if at is not None and at < len(args) else None)
                    self._guarded(functools.partial(self._report_path, value))
            return bare(*args, **options)

        setattr(owner, function.name, reported)

    def _report_path(self, value: Any) -> None:
        """Back up the file or folder ``value``, or the files of the TensorFlow checkpoint with this name."""
        if hasattr(value, "numpy"):  # a tensor of TensorFlow
            value = getattr(value.numpy(), "item", value.numpy)()
        path = _path_of(value, -1)
        if path is None or "://" in path:
            return
        parent, name = os.path.split(os.path.abspath(path))
        folder = os.path.isdir(path)
        if folder:
            for place, _, files in os.walk(path):
                for file in files:
                    self._backup.will_write(os.path.join(place, file))
        elif os.path.isdir(parent):
            for other in sorted(os.listdir(parent)):
                # TensorFlow writes name.index and name.data-00000-of-00001.
                if other == name or other.startswith((f"{name}.index", f"{name}.data-")):
                    self._backup.will_write(os.path.join(parent, other))
            self._backup.will_write(path)


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_EVENTS = frozenset(
    (
        "open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
        "os.chown", "os.utime", "os.setxattr", "os.removexattr", "sqlite3.connect",
    )
)  # fmt: skip
_FOLDER_AT = {"os.rename": 2, "os.link": 2, "os.remove": 1, "os.rmdir": 1, "os.mkdir": 2, "os.chmod": 2, "os.utime": 3}
"""Maps audit events to the position of ``dir_fd`` (the folder to which a path is relative) among their arguments."""


def _folder_of(event: str, arguments: Sequence[Any]) -> int:
    at = _FOLDER_AT.get(event, 3 if event == "os.chown" else None)
    found = arguments[at] if at is not None and at < len(arguments) else -1
    return found if isinstance(found, int) else -1


def _path_of(value: Any, folder: int) -> str | None:
    """Return the absolute path of ``value``, a path or a file descriptor; None if unknown.

    A relative path is relative to the folder with the file descriptor ``folder``, or to the working folder if it is -1.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        try:
            value = os.readlink(f"/proc/self/fd/{value}")
        except OSError:
            return None
    elif isinstance(value, (str, bytes, os.PathLike)):
        value = os.fsdecode(value)
    if not isinstance(value, str) or not value or value == ":memory:" or "\0" in value:
        return None
    if folder >= 0 and not value.startswith("/"):
        try:
            return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), value)
        except OSError:
            return None
    return value if value.startswith("/") else os.path.join(os.getcwd(), value)


def _index(names: list[str], name: str) -> int | None:
    return names.index(name) if name in names else None
