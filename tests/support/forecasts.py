"""Forecasts and outcomes for tests."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from vmselect.records import Forecast, OutcomeRecord, Placement
from vmselect.records.forecast import Bounds

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_forecast(
    instance_type: str = "g4dn.xlarge", seconds: float = 100.0, *, width: float = 0.1, day: int = 0, **fields: Any
) -> Forecast:
    """A forecast of ``seconds``, with an interval of ``width`` (a share) to both sides."""
    bounds = Bounds(value=seconds, low=max(0.0, seconds * (1 - width)), high=seconds * (1 + width))
    usual: dict[str, Any] = {
        "placement": Placement.given(instance_type=instance_type), "batch_size": 64, "epochs": 10.0,
        "method": "robust", "basis": "measured", "confidence": 0.9, "seconds": bounds, "model": "net",
        "created": START + timedelta(days=day),
    }  # fmt: skip
    return Forecast(**{**usual, **fields})


def make_pair(error: float, **fields: Any) -> tuple[Forecast, OutcomeRecord]:
    """A forecast and its outcome, which took ``exp(error)`` times as long as forecast."""
    forecast = make_forecast(**fields)
    real = forecast.outcome(seconds=forecast.own.value * math.exp(error))
    return forecast, real.model_copy(update={"created": forecast.created + timedelta(hours=1)})
