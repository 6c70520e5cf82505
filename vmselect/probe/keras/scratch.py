"""Keras' own saving callbacks, and where each of them writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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


def _where_written(callback: Any) -> str | None:
    frameworks = ("keras.", "keras_tuner.", "tf_keras.")
    for base in type(callback).__mro__:
        if base.__name__ in WRITERS and f"{base.__module__}.".startswith(frameworks):
            return WRITERS[base.__name__]
    return None
