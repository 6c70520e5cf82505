"""The batch size of several workers, as each backend counts it."""

from __future__ import annotations

import sys
import types

import pytest

from vmselect.probe import environment
from vmselect.probe.keras_fit import FitFacts


@pytest.mark.parametrize(
    ("backend", "shards", "given", "counted"),
    [
        ("tensorflow", None, 96, 96),  # the batch of all workers is given, and counted once
        ("jax", False, 32, 96),  # each brings its own, and all are counted
        ("jax", True, 96, 96),  # Keras splits what is given
        ("torch", None, 32, 32),  # each brings its own, and counts it alone
    ],
)
def test_batch_size_is_that_of_all_workers(
    backend: str, shards: bool | None, given: int, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution = types.SimpleNamespace(distribution=lambda: types.SimpleNamespace(auto_shard_dataset=shards))
    monkeypatch.setitem(sys.modules, "keras", types.SimpleNamespace(distribution=distribution))  # type: ignore[arg-type]
    feeders, counters = environment.count_feeders(3, backend)
    assert FitFacts(batch_size=given, partial_batch=given // 2).times(feeders).batch_size == 96
    assert counted * counters == 96
    assert environment.count_feeders(1, backend) == (1, 1)
