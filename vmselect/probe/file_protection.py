"""Redirects the files that callbacks write, in a training that a probe ends early, to scratch folders.

A probed training saves its state after a few steps, which must not replace a file of the user. With a scratch folder,
the time of saving is still measured. A script that is run by ``vmselect probe`` is protected by
:mod:`~vmselect.probe.protected_run` instead.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect.probe.file_backup import try_lock

if TYPE_CHECKING:
    from vmselect.records.training import Saving

MARK = ".vmselect-scratch-"
"""Prefix of the names of all scratch folders."""

LOCKED_WITHIN_SECONDS = 60.0
"""A scratch folder that is older and not locked is treated as left by a killed process. A new folder is locked just
after its creation."""

_locks: dict[Path, int | None] = {}
"""Maps each scratch folder of this process to the file descriptor of its lock."""

marks: Path | None = None
"""Folder in which :func:`note` creates files, if ``vmselect probe`` protects the files of this process; else None."""


def note(event: str) -> None:
    """Record that a training has begun (``event="training"``) or was ended early by the probe (``event="cut"``).

    When the script ends, the files that it wrote are kept or removed accordingly.
    """
    if marks is not None:
        with suppress(OSError):
            (marks / event).touch()


def make_scratch_folder(near: Path) -> Path:
    """Create a scratch folder on the same disk as the path ``near``, so that saving a file takes as long as there.

    The folder is locked while this process exists. Scratch folders of killed processes beside it are removed.
    """
    parent = next((folder for folder in near.absolute().parents if folder.is_dir()), None)
    usual = Path(tempfile.gettempdir())
    other_disk = parent is not None and parent.stat().st_dev != usual.stat().st_dev and os.access(parent, os.W_OK)
    place = parent if other_disk and parent is not None else usual
    remove_abandoned(place)
    folder = Path(tempfile.mkdtemp(prefix=MARK, dir=place))
    _locks[folder] = try_lock(folder)
    return folder


def remove_scratch_folder(folder: Path) -> None:
    """Remove a scratch folder and release its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    handle = _locks.pop(folder, None)
    if handle is not None:
        os.close(handle)


def remove_abandoned(place: Path) -> None:
    """Remove the scratch folders of processes that were killed from the folder ``place``."""
    newest = time.time() - LOCKED_WITHIN_SECONDS
    for folder in place.glob(f"{MARK}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder in _locks or folder.stat().st_ctime > newest:
                continue
            handle = try_lock(folder)
            if handle is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(handle)


class Scratch:
    """Redirects the files of callbacks to scratch folders until :meth:`put_back` is called.

    ``writers`` contains each callback with the name of its attribute that contains the path. ``bind`` takes a callback
    and its new path and returns further attributes that have to be replaced.
    """

    def __init__(
        self, writers: Iterable[tuple[Any, str]], bind: Callable[[Any, str], dict[str, Any]] = lambda writer, place: {}
    ) -> None:
        self._bind = bind
        self._folders: list[Path] = []
        self._paths: list[tuple[Any, dict[str, Any], dict[str, Any]]] = []
        self._unset: list[tuple[Any, str]] = []
        self._away = True
        self.redirected: list[str] = []
        """Class and original path of each redirected callback, for messages."""
        try:
            for writer, attribute in writers:
                given = vars(writer).get(attribute)
                target = _read_path(given)
                if given is None:
                    self._unset.append((writer, attribute))  # derived from other paths later
                elif target and MARK not in target:
                    self._redirect(writer, target)
        except BaseException:  # such as a full disk
            self.close()
            raise

    def put_back(self) -> None:
        """Restore the original paths of the callbacks, until :meth:`send_away` is called."""
        if not self._away:  # another object may have redirected the writers in the meantime
            return
        self._away = False
        for writer, before, _ in self._paths:
            vars(writer).update(before)

    def send_away(self) -> None:
        """Redirect the files of the callbacks to the scratch folders again."""
        self._away = True
        for writer, _, moved in self._paths:
            vars(writer).update(moved)

    def close(self) -> None:
        """Restore all original paths and remove the scratch folders."""
        self.put_back()
        for writer, attribute in self._unset:
            if MARK in str(vars(writer).get(attribute)):
                vars(writer)[attribute] = None
        for folder in self._folders:
            remove_scratch_folder(folder)
        self._paths, self._unset, self._folders = [], [], []

    def _redirect(self, writer: Any, target: str) -> None:
        folder = make_scratch_folder(Path(target))
        there = str(folder / (Path(_absolute(target)).name or "files"))
        self._folders.append(folder)
        start = target.rstrip("/" + os.sep)
        # Some writers have further attributes with paths inside this path.
        moved: dict[str, Any] = {
            name: _alike(there + path[len(start) :], value)
            for name, value in vars(writer).items()
            if (path := _read_path(value)) and f"{path}/".startswith((start + "/", start + os.sep))
        }
        moved |= self._bind(writer, there)
        self._paths.append((writer, {name: vars(writer)[name] for name in moved}, moved))
        vars(writer).update(moved)
        self.redirected.append(f"{type(writer).__name__} ({target})")


def _read_path(value: Any) -> str | None:
    """Return ``value`` as text if it is a path, else None."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    return path if isinstance(path, str) else None


def _alike(path: str, given: Any) -> str | Path:
    """Return ``path`` as a Path if ``given`` is a Path, else as text."""
    return Path(path) if isinstance(given, Path) else path


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 - must not follow links


WRITERS = {
    "ModelCheckpoint": "filepath",
    "BackupAndRestore": "backup_dir",
    "CSVLogger": "filename",
    "TensorBoard": "log_dir",
    "OrbaxCheckpoint": "directory",
    "SaveBestEpoch": "filepath",
}
"""Maps the callback classes of Keras and keras-tuner that write files to the name of their path attribute. Subclasses
of these classes write files too."""

_SAVES = tuple(WRITERS[name] for name in ("ModelCheckpoint", "BackupAndRestore", "OrbaxCheckpoint"))


def find_writers(callbacks: Iterable[Any]) -> list[tuple[Any, str]]:
    """Return those of ``callbacks`` that write files, each with the name of its path attribute."""
    return [(callback, attribute) for callback in callbacks if (attribute := _where_written(callback))]


def describe_saving(callbacks: Iterable[Any]) -> tuple[Saving | None, int | None]:
    """Return when ``callbacks`` save the model ("epochs", "best" or "batches"), and the batches between two saves.

    Each value is None if it does not apply. User-defined subclasses of Keras' callbacks do not count as saving after
    each epoch, because their behavior is unknown.
    """
    saving = [one for one in callbacks if _where_written(one) in _SAVES]
    frequencies = [getattr(one, "save_freq", None) for one in saving]
    # With save_freq=False, Keras saves only before a preemption.
    by_batches = [freq for freq in frequencies if isinstance(freq, int) and freq > 0]
    after_epochs = [one for one, freq in zip(saving, frequencies, strict=True) if freq == "epoch"]
    freq = min(by_batches, default=None)
    if any(getattr(one, "save_best_only", False) for one in after_epochs):
        return "best", freq
    if any(_is_known(type(one)) for one in after_epochs):
        return "epochs", freq
    return "batches" if by_batches else None, freq


def take_back(callbacks: Iterable[Any]) -> list[Any]:
    """Remove the event file that a TensorBoard callback opened in ``set_model`` before the probe could redirect it.

    Return the callbacks that must open an event file again. The removed file is the newest one whose name contains the
    ID of this process.
    """
    begun = []
    for callback in callbacks:
        writers, folder = vars(callback).get("_writers"), vars(callback).get("_train_dir")
        if not writers or not folder or _where_written(callback) != WRITERS["TensorBoard"]:
            continue
        for writer in writers.values():
            writer.close()
        own = sorted(
            Path(folder).glob(f"events.out.tfevents.*.{os.getpid()}.*"), key=lambda file: file.stat().st_mtime_ns
        )
        with suppress(OSError):  # a folder with other files remains
            if own:
                own[-1].unlink()
            Path(folder).rmdir()
            Path(folder).parent.rmdir()
        begun.append(callback)
    return begun


def bind_elsewhere(callback: Any, folder: str) -> dict[str, Any]:
    """Return the attributes that ``callback`` needs, besides its path attribute, in order to write to ``folder``."""
    base = _find_base(callback)
    if base is None or base.__name__ != "OrbaxCheckpoint":
        return {}
    return {"checkpointer": base(folder, max_to_keep=callback.max_to_keep).checkpointer}


def _where_written(callback: Any) -> str | None:
    base = _find_base(callback)
    return None if base is None else WRITERS[base.__name__]


def _find_base(callback: Any) -> Any:
    """Return the class of ``callback``, or its base class, that is listed in ``WRITERS``; None if there is none."""
    return next((base for base in type(callback).__mro__ if _is_known(base)), None)


def _is_known(kind: type) -> bool:
    return kind.__name__ in WRITERS and f"{kind.__module__}.".startswith(("keras.", "keras_tuner.", "tf_keras."))
