"""Keras' own saving callbacks, and where each of them writes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

WRITERS = {
    "ModelCheckpoint": "filepath",
    "BackupAndRestore": "backup_dir",
    "CSVLogger": "filename",
    "TensorBoard": "log_dir",
    "SaveBestEpoch": "filepath",
}
"""Callbacks that write, the last of them keras-tuner's, and which attribute says where; subclasses write there too."""


def find_writers(callbacks: Iterable[Any]) -> list[tuple[Any, str]]:
    """Those of the callbacks that write, each with the attribute that says where."""
    return [(callback, attribute) for callback in callbacks if (attribute := _where_written(callback))]


def describe_saving(callbacks: Iterable[Any]) -> Literal["best", "batches"] | None:
    """How a checkpoint is saved that two short epochs do not show: by batches, or for the best epochs only."""
    saving = [one for one in callbacks if _where_written(one) == WRITERS["ModelCheckpoint"]]
    if any(isinstance(getattr(one, "save_freq", None), int) for one in saving):
        return "batches"
    return "best" if any(getattr(one, "save_best_only", False) for one in saving) else None


def take_back(callbacks: Iterable[Any]) -> list[Any]:
    """Remove what a TensorBoard before the probe has just begun to write; returns those that must begin again.

    It opens a file of its own as soon as it is told its model. The name holds the process, and no other is newer.
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
        with suppress(OSError):  # a folder that holds more is somebody's
            if own:
                own[-1].unlink()
            Path(folder).rmdir()
            Path(folder).parent.rmdir()
        begun.append(callback)
    return begun


def _where_written(callback: Any) -> str | None:
    frameworks = ("keras.", "keras_tuner.", "tf_keras.")
    for base in type(callback).__mro__:
        if base.__name__ in WRITERS and f"{base.__module__}.".startswith(frameworks):
            return WRITERS[base.__name__]
    return None
