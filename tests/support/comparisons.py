"""Records and series for tests of comparisons: known levels, known noise, from a seeded generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.signal import lfilter

import vmselect as vs


def profile(
    rng: np.random.Generator,
    *,
    level: float = 0.010,
    between: float = 0.02,
    instance_type: str = "a",
    batch_size: int = 64,
    steps: int = 40,
    factors: Mapping[str, Any] | None = None,
    **more: Any,
) -> vs.Profile:
    """A training whose step time is ``level``, but for what differs from run to run and from step to step."""
    mean = level * (1 + between * rng.standard_normal())
    seconds = mean * (1 + 0.03 * np.abs(rng.standard_normal(steps)))
    fields: dict[str, Any] = {
        "steps_per_epoch": 100,
        "init_seconds": 1.0,
        "first_iteration_seconds": 1.0,
        "validation_seconds": [0.4, 0.2],
        "model": "net",
        **more,
    }
    made = vs.Profile.from_times(
        instance_type=instance_type, batch_size=batch_size, iteration_seconds=[float(s) for s in seconds], **fields
    )
    return made.model_copy(update={"factors": dict(factors or {})})


def factorial(*names: str, sizes: Sequence[int] = (64, 128), runs: int = 3) -> list[vs.Profile]:
    """Runs of every machine at every batch size; the factor ``machine`` holds the name."""
    rng = np.random.default_rng(0)
    return [
        profile(rng, level=0.01 * size / 64, instance_type=name, batch_size=size, factors={"machine": name})
        for name in names
        for size in sizes
        for _ in range(runs)
    ]


def autoregressive(rng: np.random.Generator, *, count: int, coefficient: float) -> np.ndarray:
    """A series about 1 with a spread of 0.1 in which neighbours resemble each other."""
    series = lfilter([1.0], [1.0, -coefficient], rng.standard_normal(count + 200))
    return 1 + 0.1 * np.sqrt(1 - coefficient**2) * series[200:]


def machines(*, runs: int = 5, levels: dict[str, float] | None = None, **more) -> list[vs.Profile]:
    """Profiles of ``runs`` runs of each machine, whose step times differ by 30 % unless ``levels`` says otherwise."""
    rng = np.random.default_rng(3)
    levels = levels or {"a": 0.010, "b": 0.013}
    return [
        profile(rng, level=level, instance_type=name, **more) for name, level in levels.items() for _ in range(runs)
    ]
