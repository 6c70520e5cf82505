"""Redirects the files of checkpoint callbacks, in a training that a probe ends early, to scratch folders.

A checkpoint of such a training must not replace a good one, but the time that it takes is part of the estimate. So it
is written to a folder on the same disk that is removed afterwards. :mod:`~vmselect.probe.saves` ends a program that
saves elsewhere.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vmselect.probe.environment import Callback
from vmselect.probe.saves import SCRATCH

if TYPE_CHECKING:
    from vmselect.records.training import Saving

ABANDONED_SECONDS = 86_400.0
"""Age at which a scratch folder counts as left by a killed process. A probe redirects files for seconds to minutes."""

_folders: set[Path] = set()
"""Scratch folders of this process."""


def make_scratch_folder(near: Path) -> Path:
    """Create a scratch folder on the same disk as the path ``near``, so that saving a file takes as long as there."""
    parent = next((folder for folder in near.absolute().parents if folder.is_dir()), None)
    usual = Path(tempfile.gettempdir())
    other_disk = parent is not None and parent.stat().st_dev != usual.stat().st_dev and os.access(parent, os.W_OK)
    place = parent if other_disk and parent is not None else usual
    for folder in place.glob(f"{SCRATCH}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=place))
    _folders.add(folder)
    return folder


def remove_scratch_folder(folder: Path) -> None:
    """Remove a scratch folder."""
    shutil.rmtree(folder, ignore_errors=True)
    _folders.discard(folder)


def remove_scratch_folders() -> None:
    """Remove all scratch folders of this process, because it ends without running exit functions."""
    for folder in list(_folders):
        remove_scratch_folder(folder)


class Scratch:
    """Redirects the files of callbacks to scratch folders until :meth:`put_back` is called.

    ``writers`` contains each callback with the name of its attribute that contains the path. ``bind`` takes a callback
    and its new path and returns further attributes that have to be replaced.
    """

    def __init__(
        self,
        writers: Iterable[tuple[Callback, str]],
        bind: Callable[[Callback, str], dict[str, object]] = lambda writer, place: {},
    ) -> None:
        self._bind = bind
        self._folders: list[Path] = []
        self._paths: list[tuple[Callback, dict[str, object], dict[str, object]]] = []
        self._unset: list[tuple[Callback, str]] = []
        self._away = True
        self.redirected: list[str] = []
        """Class and original path of each redirected callback, for messages."""
        try:
            for writer, attribute in writers:
                original = writer.__dict__.get(attribute)
                target = _read_path(original)
                if original is None:
                    self._unset.append((writer, attribute))  # derived from other paths later
                elif target and SCRATCH not in target:
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
            writer.__dict__.update(before)

    def send_away(self) -> None:
        """Redirect the files of the callbacks to the scratch folders again."""
        self._away = True
        for writer, _, moved in self._paths:
            writer.__dict__.update(moved)

    def close(self) -> None:
        """Restore all original paths and remove the scratch folders."""
        self.put_back()
        for writer, attribute in self._unset:
            if SCRATCH in str(writer.__dict__.get(attribute)):
                writer.__dict__[attribute] = None
        for folder in self._folders:
            remove_scratch_folder(folder)
        self._paths, self._unset, self._folders = [], [], []

    def _redirect(self, writer: Callback, target: str) -> None:
        folder = make_scratch_folder(Path(target))
        substitute = str(folder / (Path(_absolute(target)).name or "files"))
        self._folders.append(folder)
        start = target.rstrip("/" + os.sep)
        # Some writers have further attributes with paths inside this path.
        moved: dict[str, object] = {
            name: _alike(substitute + path[len(start) :], value)
            for name, value in writer.__dict__.items()
            if (path := _read_path(value)) and f"{path}/".startswith((start + "/", start + os.sep))
        }
        moved |= self._bind(writer, substitute)
        self._paths.append((writer, {name: writer.__dict__[name] for name in moved}, moved))
        writer.__dict__.update(moved)
        self.redirected.append(f"{type(writer).__name__} ({target})")


def _read_path(value: object) -> str | None:
    """Return ``value`` as text if it is a path, else None."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    return path if isinstance(path, str) else None


def _alike(path: str, original: object) -> str | Path:
    """Return ``path`` as a Path if ``original`` is a Path, else as text."""
    return Path(path) if isinstance(original, Path) else path


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


def find_writers(callbacks: Iterable[Callback]) -> list[tuple[Callback, str]]:
    """Return those of ``callbacks`` that write files, each with the name of its path attribute."""
    return [(callback, attribute) for callback in callbacks if (attribute := _where_written(callback))]


def describe_saving(callbacks: Iterable[Callback]) -> tuple[Saving | None, int | None]:
    """Return when ``callbacks`` save the model ("epochs", "best" or "batches"), and the batches between two saves.

    Each value is None if it does not apply. User-defined subclasses of Keras' callbacks do not count as saving after
    each epoch, because their behavior is unknown.
    """
    saving = [callback for callback in callbacks if _where_written(callback) in _SAVES]
    frequencies = [getattr(callback, "save_freq", None) for callback in saving]
    # With save_freq=False, Keras saves only before a preemption.
    by_batches = [freq for freq in frequencies if isinstance(freq, int) and freq > 0]
    after_epochs = [callback for callback, freq in zip(saving, frequencies, strict=True) if freq == "epoch"]
    freq = min(by_batches, default=None)
    if any(getattr(callback, "save_best_only", False) for callback in after_epochs):
        return "best", freq
    if any(_is_known(type(callback)) for callback in after_epochs):
        return "epochs", freq
    return "batches" if by_batches else None, freq


def bind_elsewhere(callback: Callback, folder: str) -> dict[str, object]:
    """Return the attributes that ``callback`` needs, besides its path attribute, in order to write to ``folder``."""
    base = _find_base(callback)
    kind = None if base is None else base.__name__
    if kind == "OrbaxCheckpoint":
        return {"checkpointer": base(folder, max_to_keep=callback.max_to_keep).checkpointer}
    if kind == "TensorBoard" and callback.__dict__.get("_writers"):
        # Keras has passed the model to this callback before the probe, so that it has opened a file for the graph.
        callback._close_writers()
        callback._writers = {}
        return {"_writers": {}}
    return {}


def _where_written(callback: Callback) -> str | None:
    base = _find_base(callback)
    return None if base is None else WRITERS[base.__name__]


def _find_base(callback: Callback) -> Callback:
    """Return the class of ``callback``, or its base class, that is listed in ``WRITERS``; None if there is none."""
    return next((base for base in type(callback).__mro__ if _is_known(base)), None)


def _is_known(kind: type) -> bool:
    return kind.__name__ in WRITERS and f"{kind.__module__}.".startswith(("keras.", "keras_tuner.", "tf_keras."))
