"""A probe that is going to end a training leaves the user's files as they were.

What Keras' own saving callbacks would write goes to a scratch folder that is removed afterwards: the time they take is
measured, and a checkpoint of a few steps replaces nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

WRITERS = {
    "ModelCheckpoint": "filepath",
    "BackupAndRestore": "backup_dir",
    "CSVLogger": "filename",
    "TensorBoard": "log_dir",
    "SaveBestEpoch": "filepath",
}
"""Callbacks that write, the last of them keras-tuner's, and which attribute says where; subclasses write there too."""


class Scratch:
    """Sends what ``callbacks`` write elsewhere until :meth:`close`."""

    def __init__(self, callbacks: Iterable[Any]) -> None:
        self._folders: list[Path] = []
        self._before: list[tuple[Any, dict[str, Any]]] = []
        self.redirected: list[str] = []
        """What was redirected, for people."""
        for callback in callbacks:
            attribute = _where_written(callback)
            target = vars(callback).get(attribute) if attribute else None
            if target:
                self._redirect(callback, str(target))

    def close(self) -> None:
        """Put every path back, and remove what was written."""
        for callback, attributes in self._before:
            vars(callback).update(attributes)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        self._before, self._folders = [], []

    def _redirect(self, callback: Any, target: str) -> None:
        folder = make_scratch_folder(Path(target))
        self._folders.append(folder)
        elsewhere = str(folder / (os.path.basename(target.rstrip("/\\")) or "files"))  # noqa: PTH119 - may be an address
        # Some keep further paths that were made from the first.
        moved = {
            name: elsewhere + value[len(target) :]
            for name, value in vars(callback).items()
            if isinstance(value, str) and (value == target or value.startswith((target + "/", target + os.sep)))
        }
        self._before.append((callback, {name: vars(callback)[name] for name in moved}))
        vars(callback).update(moved)
        self.redirected.append(f"{type(callback).__name__} ({target})")


def make_scratch_folder(near: Path) -> Path:
    """A new folder on the disk on which ``near`` is or would be, because how fast that is, is part of the time."""
    parent = next((folder for folder in near.absolute().parents if folder.is_dir()), None)
    usual = Path(tempfile.gettempdir())
    elsewhere = parent is not None and parent.stat().st_dev != usual.stat().st_dev and os.access(parent, os.W_OK)
    return Path(tempfile.mkdtemp(prefix=".vmselect-scratch-", dir=parent if elsewhere else usual))


def _where_written(callback: Any) -> str | None:
    frameworks = ("keras.", "keras_tuner.", "tf_keras.")
    for base in type(callback).__mro__:
        if base.__name__ in WRITERS and f"{base.__module__}.".startswith(frameworks):
            return WRITERS[base.__name__]
    return None
