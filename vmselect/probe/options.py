"""What every probe takes beside its own counts: numbers of the user's, what was varied, and where records go.

What a caller does not pass, the environment may define: a program that starts trainings sets ``VMSELECT_FOLDER`` and
``VMSELECT_FACTORS``, and the scripts it starts need nothing but their probe.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmselect._checks import check_count, check_mapping, check_name, check_path, maybe, show
from vmselect._checks import check_factors as check_factors
from vmselect.errors import ArgumentError
from vmselect.probe.monitoring import check_sample
from vmselect.probe.sampling import Alarm

Metrics = Mapping[str, float | Callable[[], float]]
Factors = Mapping[str, bool | int | float | str]


@dataclass(frozen=True)
class Options:
    """The arguments that all probes of trainings share, checked."""

    path: Path | None
    batch_size: int | None
    instance_type: str | None
    region: str | None
    metrics: Metrics
    factors: Factors
    name: str | None
    sample: float | None
    alarm: Alarm | None
    verbose: int

    @classmethod
    def of(cls, path: str | os.PathLike[str] | None, **given: Any) -> Options:
        """Check what a probe was given, which is every field by name, and name the one that cannot be used."""
        sample, alarm = check_sample(given["sample"], given["alarm"])
        checked: dict[str, Any] = {
            "path": maybe(check_path, "path", path),
            "batch_size": maybe(check_count, "batch_size", given["batch_size"]),
            "metrics": check_metrics(given["metrics"]),
            "factors": check_factors("factors", given["factors"]),
            "sample": sample,
            "alarm": alarm,
            "verbose": check_count("verbose", given["verbose"], least=0),
        }
        names = {name: maybe(check_name, name, given[name]) for name in ("instance_type", "region", "name")}
        return cls(**given | checked | names)


def check_whole(stop: bool, **limits: Any) -> None:
    """Refuse limits, by name, that would cut short what is to be watched whole."""
    for name, limit in limits.items():
        if not stop and limit is not None:
            raise ArgumentError(f"{name}= cuts short what stop=False promises to watch whole. Give one of them.")


def check_metrics(value: Any) -> dict[str, float | Callable[[], float]]:
    """A mapping of names to numbers or to functions that return one; None is an empty one."""
    metrics = check_mapping("metrics", {} if value is None else value)
    return {name: metric if callable(metric) else _as_number(name, metric) for name, metric in metrics.items()}


def evaluate_metrics(metrics: Metrics) -> dict[str, float]:
    """Every metric as a number, functions called now."""
    return {name: _as_number(name, metric() if callable(metric) else metric) for name, metric in metrics.items()}


def read_factors(given: Factors) -> Factors:
    """What was varied: the environment's factors, overridden by the caller's."""
    text = os.environ.get("VMSELECT_FACTORS", "").strip()
    try:
        defined = json.loads(text) if text else None
    except ValueError:
        defined = text
    return check_factors("VMSELECT_FACTORS", defined) | dict(given)


def choose_path(given: Path | None) -> Path | None:
    """Where a record goes: the caller's path, else the folder in the environment, else None."""
    folder = os.environ.get("VMSELECT_FOLDER", "").strip()
    return given or (Path(folder) if folder else None)


def check_target(path: Path | None, kind: str) -> None:
    """Find out now, before anything is measured, whether a record of that ``kind`` can be written later."""
    from vmselect._files import check_writable, is_folder
    from vmselect.records.store import check_replaceable

    if path is not None:
        check_writable(path)
        if not is_folder(path):
            check_replaceable(path, kind)


def _as_number(name: str, value: Any) -> float:
    try:
        number = float(value)  # a framework's scalar is a number too
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or isinstance(value, str):
        raise ArgumentError(f"metrics: {name} must be a number or a function that returns one, not {show(value)}.")
    return number
