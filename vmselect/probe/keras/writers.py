"""Keras' own saving callbacks, and where each of them writes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vmselect.records.training import Saving

WRITERS = {
    "ModelCheckpoint": "filepath",
    "BackupAndRestore": "backup_dir",
    "CSVLogger": "filename",
    "TensorBoard": "log_dir",
    "OrbaxCheckpoint": "directory",
    "SaveBestEpoch": "filepath",
}
"""Callbacks that write, the last of them keras-tuner's, and the attribute with the path; subclasses write there too."""

_SAVES = tuple(WRITERS[name] for name in ("ModelCheckpoint", "BackupAndRestore", "OrbaxCheckpoint"))


def find_writers(callbacks: Iterable[Any]) -> list[tuple[Any, str]]:
    """Those of the callbacks that write, each with the attribute of the path."""
    return [(callback, attribute) for callback in callbacks if (attribute := _where_written(callback))]


def describe_saving(callbacks: Iterable[Any]) -> tuple[Saving | None, int | None]:
    """When Keras' callbacks save the model, and after how many batches where that is so.

    What a subclass does after an epoch is unknown, so it does not count as saving after each.
    """
    saving = [one for one in callbacks if _where_written(one) in _SAVES]
    by_batches = [one.save_freq for one in saving if _saves_by_batches(one)]
    after_epochs = [one for one in saving if getattr(one, "save_freq", None) == "epoch"]
    freq = min(by_batches, default=None)
    if any(getattr(one, "save_best_only", False) for one in after_epochs):
        return "best", freq
    if any(_is_known(type(one)) for one in after_epochs):
        return "epochs", freq
    return "batches" if by_batches else None, freq


def take_back(callbacks: Iterable[Any]) -> list[Any]:
    """Remove what a TensorBoard before the probe has just begun to write; returns those that must begin again.

    It opens a file of its own in ``set_model``. The name holds the process, and no other is newer.
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
        with suppress(OSError):  # a folder that holds more is the user's
            if own:
                own[-1].unlink()
            Path(folder).rmdir()
            Path(folder).parent.rmdir()
        begun.append(callback)
    return begun


def bind_elsewhere(callback: Any, folder: str) -> dict[str, Any]:
    """What a callback that is bound to its folder from the start must have instead in order to write to ``folder``."""
    base = _find_base(callback)
    if base is None or base.__name__ != "OrbaxCheckpoint":
        return {}
    return {"checkpointer": base(folder, max_to_keep=callback.max_to_keep).checkpointer}


def _where_written(callback: Any) -> str | None:
    base = _find_base(callback)
    return None if base is None else WRITERS[base.__name__]


def _find_base(callback: Any) -> Any:
    """The class of a framework that makes a callback one of those that write; None for others."""
    return next((base for base in type(callback).__mro__ if _is_known(base)), None)


def _is_known(kind: type) -> bool:
    return kind.__name__ in WRITERS and f"{kind.__module__}.".startswith(("keras.", "keras_tuner.", "tf_keras."))


def _saves_by_batches(callback: Any) -> bool:
    freq = getattr(callback, "save_freq", None)
    return isinstance(freq, int) and freq > 0  # False is for saving before the machine is taken away only
