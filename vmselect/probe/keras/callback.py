"""A Keras callback without Keras: every hook, each doing nothing.

Keras takes any object with these methods, so that a probe can be made, copied and pickled where Keras is not even
installed. A hook that is marked as default is one that Keras knows it need not wait for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

Hook = TypeVar("Hook")
Logs = Mapping[str, Any] | None


def unused(hook: Hook) -> Hook:
    """Mark a hook as doing nothing, in Keras' own way."""
    hook._is_default = True  # type: ignore[attr-defined]
    return hook


class PlainCallback:
    """Base of the probes: accepts what Keras hands over and keeps it."""

    params: Mapping[str, Any]
    _model: Any = None

    def set_params(self, params: Mapping[str, Any] | None) -> None:
        """Keras' own: number of epochs and steps."""
        self.params = dict(params or {})

    def set_model(self, model: Any) -> None:
        """Keras' own: the model that is trained."""
        # torch's wrapper for distributed training holds the Keras model inside.
        wrapped = type(model).__name__ == "DistributedDataParallel"
        self._model = model.module if wrapped else model

    @property
    def model(self) -> Any:
        """The model of the last training."""
        return self._model

    def on_train_begin(self, logs: Logs = None) -> None:
        """Training begins."""

    def on_train_end(self, logs: Logs = None) -> None:
        """Training has ended."""

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """An epoch begins."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """An epoch has ended, its validation included."""

    def on_test_begin(self, logs: Logs = None) -> None:
        """A validation or evaluation begins."""

    def on_test_end(self, logs: Logs = None) -> None:
        """A validation or evaluation has ended."""

    def on_predict_begin(self, logs: Logs = None) -> None:
        """A prediction begins."""

    def on_predict_end(self, logs: Logs = None) -> None:
        """A prediction has ended."""

    @unused
    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """An older name of on_train_batch_begin."""

    @unused
    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """An older name of on_train_batch_end."""

    @unused
    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """A training batch begins."""

    @unused
    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """A training batch has ended."""

    @unused
    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """A validation batch begins."""

    @unused
    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """A validation batch has ended."""

    @unused
    def on_predict_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """A prediction batch begins."""

    @unused
    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        """A prediction batch has ended."""
