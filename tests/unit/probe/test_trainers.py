"""Early stopping of a Hugging Face ``Trainer``, whose patience is counted in evaluations."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vmselect.probe.trainers import _find_earliest_stop


class EarlyStoppingCallback:
    """As in transformers, as far as the probe reads it."""

    early_stopping_patience = 3


class OwnRule(EarlyStoppingCallback):
    """A class of the user."""

    early_stopping_patience = 5


@pytest.mark.parametrize(
    ("callbacks", "evaluations_per_epoch", "earliest"),
    [
        ([EarlyStoppingCallback()], 1.0, 4),
        ([OwnRule(), EarlyStoppingCallback(), object()], 1.0, 4),
        ([OwnRule()], 4.0, 2),
        ([EarlyStoppingCallback()], 0.5, 8),
        ([object()], 1.0, None),
        ([], 1.0, None),
    ],
)
def test_earliest_stop(callbacks: list[object], evaluations_per_epoch: float, earliest: int | None) -> None:
    trainer = SimpleNamespace(callback_handler=SimpleNamespace(callbacks=callbacks))
    assert _find_earliest_stop(trainer, evaluations_per_epoch) == earliest


def test_an_unknown_trainer_has_no_callbacks() -> None:
    assert _find_earliest_stop(None, 1.0) is None
