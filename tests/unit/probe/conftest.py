"""Fixtures of the tests of probes."""

from __future__ import annotations

import pytest

from vmselect.probe.recording import Recording


@pytest.fixture
def no_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore frameworks that other tests have imported in this process: steps of JAX would be measured in blocks."""
    monkeypatch.setattr(Recording, "is_asynchronous", False)
