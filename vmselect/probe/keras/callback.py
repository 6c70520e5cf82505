"""A Keras callback without Keras: every hook, each doing nothing.

Keras accepts any object with these methods, so a probe can be created, copied and pickled where Keras is not
installed. Keras does not wait for the device before a batch hook that is marked as default.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

Logs = Mapping[str, Any] | None


class PlainCallback:
    """Base of the probes: stores what Keras passes to a callback. A subclass overrides the hooks that it needs."""

    params: Mapping[str, Any] = MappingProxyType({})
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

    def _ignore(self, logs: Logs = None) -> None:
        """A hook that the probe does not need."""

    def _ignore_epoch(self, epoch: int, logs: Logs = None) -> None:
        """A hook that the probe does not need."""

    def _ignore_batch(self, batch: int, logs: Logs = None) -> None:
        """A hook that the probe does not need."""

    _ignore_batch._is_default = True  # type: ignore[attr-defined]

    on_train_begin = on_train_end = on_test_begin = on_test_end = on_predict_begin = on_predict_end = _ignore
    on_epoch_begin = on_epoch_end = _ignore_epoch
    on_batch_begin = on_train_batch_begin = on_test_batch_begin = on_predict_batch_begin = _ignore_batch
    on_batch_end = on_train_batch_end = on_test_batch_end = on_predict_batch_end = _ignore_batch
