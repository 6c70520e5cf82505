"""Profiles for tests: plausible defaults, and any value of a record can be set by its name.

``make_profile`` builds a probe of steps, ``make_epoch_profile`` one of whole epochs, ``make_truncated_profile`` one of
several epochs that a probe cut short. All three take these keyword arguments:

- every argument of ``vs.Profile.from_times`` (``batch_size=32``, ``region="here"``, ``validation_seconds=[2.0, 1.0]``);
  None removes a default.
- every field of a profile (``outcome="out_of_memory"``, ``factors={"nodes": 2}``, ``fit=Fit(...)``, ``usage=...``).
- ``setup=``, ``timeline=`` and ``environment=``: mappings of fields to set in that part of the profile.

>>> profile = make_profile("p3.2xlarge", 0.2, batch_size=32, factors={"nodes": 2}, environment={"backend": "jax"})
>>> profile.instance_type, profile.batch_size, profile.environment.backend, dict(profile.factors)
('p3.2xlarge', 32, 'jax', {'nodes': 2})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import vmselect as vs
from vmselect.records import Environment, Epoch, Profile, Setup, Step, Steps, Timeline

PARTS = ("setup", "timeline", "environment")


def make_profile(
    instance_type: str | None = "a", step_seconds: float | Sequence[float] = 0.1, *, steps: int = 20, **changes: Any
) -> Profile:
    """A probe of ``steps`` steady steps (or those given) of a training with 100 steps per epoch at batch size 64.

    >>> vs.estimate(make_profile(step_seconds=0.1), epochs=2).seconds  # 1 s of initialization, 1 s for the first step
    21.9
    """
    readings = [step_seconds] * steps if isinstance(step_seconds, (int, float)) else list(step_seconds)
    times = {
        "batch_size": 64,
        "steps_per_epoch": 100,
        "init_seconds": 1.0,
        "first_iteration_seconds": 1.0,
        "iteration_seconds": readings,
        "model": "net",
    }
    return _build({"instance_type": instance_type, **times, **changes})


def make_gpu_profile(
    size: int | None, peak_gib: float | None, *, instance_type: str | None = "g4dn.xlarge", **changes: Any
) -> Profile:
    """A probe on one T4 with a batch of ``size`` and this peak GPU memory, counted by torch.

    >>> make_gpu_profile(64, 3.5).environment.peak_gpu_memory_bytes / 2**30
    3.5
    """
    environment = {
        "backend": "torch",
        "framework_gpus": 1,
        "gpus": ({"name": "Tesla T4", "memory_bytes": 15 * 2**30},),
        "peak_gpu_memory_bytes": None if peak_gib is None else int(peak_gib * 2**30),
        "gpu_memory": {"source": "torch"},
    } | changes.pop("environment", {})
    return make_profile(instance_type, batch_size=size, environment=environment, **changes)


def make_epoch_profile(instance_type: str | None = "a", *epoch_seconds: float, **changes: Any) -> Profile:
    """A probe of whole epochs, the first of them first; one number is the time of every epoch.

    >>> vs.estimate(make_epoch_profile("a", 12.0, 10.0), epochs=3, method="malta-epoch").seconds
    32.0
    """
    first, *later = epoch_seconds or (10.0,)
    times = {"batch_size": 64, "init_seconds": 0.0, "first_epoch_seconds": first, "later_epoch_seconds": later or first}
    return _build({"instance_type": instance_type, **times, **changes})


def make_truncated_profile(
    epochs: Iterable[Sequence[float]],
    *,
    first: float = 3.0,
    opening: float = 0.1,
    partials: Sequence[float] = (),
    complete: bool = False,
    **changes: Any,
) -> Profile:
    """A probe of several epochs: an opening step each, the steady readings given, then a partial batch where given."""
    rows = []
    for number, readings in enumerate(epochs):
        rows.append(Step(number, 0, opening if number else first, 1, "opening" if number else "first"))
        rows += [Step(number, batch, seconds, 1, "steady") for batch, seconds in enumerate(readings, 1)]
        if number < len(partials):
            rows.append(Step(number, len(readings) + 1, partials[number], 1, "partial"))
    taken: dict[int, list[float]] = {}
    for row in rows:
        taken.setdefault(row.epoch, []).append(row.seconds)
    seen = tuple(
        Epoch(epoch=number, seconds=sum(seconds), steps=len(seconds), complete=complete)
        for number, seconds in taken.items()
    )
    timeline = {"steps": Steps.of(rows), "epochs": seen, **changes.pop("timeline", {})}
    return make_profile(**{"probe": "iteration", "outcome": "stopped", "timeline": timeline, **changes})


def _build(given: Mapping[str, Any]) -> Profile:
    own = {name: given[name] for name in Profile.model_fields if name in given and name not in (*PARTS, "metrics")}
    times = {name: value for name, value in given.items() if name not in own and name not in PARTS}
    made = vs.Profile.from_times(**times)
    for name in PARTS:
        part = getattr(made, name)
        own[name] = type(part)(**{**dict(part), **given.get(name, {})})
    return Profile(**{**dict(made), **own})


def probed(
    *,
    environment: Mapping[str, Any] | None = None,
    timeline: Mapping[str, Any] | None = None,
    usage: Any = None,
    **setup: Any,
) -> Profile:
    """A profile that contains the given fields only, as a probe writes it. Other names are fields of its setup."""
    return Profile(
        outcome="stopped",
        setup=Setup(**setup),
        timeline=Timeline(**(timeline or {})),
        environment=Environment(**(environment or {})),
        usage=usage,
    )
