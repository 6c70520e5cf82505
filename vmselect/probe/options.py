"""Arguments that the probes share, and the places of their records.

Environment variables provide default values for some of them: a program that starts training scripts can set
``VMSELECT_FOLDER`` and ``VMSELECT_FACTORS``, and the probes in these scripts then need no arguments.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from vmselect._checks import check_count, check_factors, check_mapping, check_name, maybe, show
from vmselect._io import Place, check_place, default_folder
from vmselect.errors import ArgumentError
from vmselect.probe.sampling import Alarm, check_sample

Metrics = Mapping[str, float | Callable[[], float]]
Factors = Mapping[str, bool | int | float | str]
RecordPath = str | os.PathLike[str] | Literal[False] | None
"""Where a probe writes its record: None for the default folder, False for nowhere."""


@dataclass(eq=False, repr=False)
class CommonOptions:
    """Arguments that all probes share. An invalid argument raises an error with its name."""

    path: RecordPath = None
    _: KW_ONLY
    batch_size: int | None = None
    instance_type: str | None = None
    region: str | None = None
    factors: Factors | None = None
    sample: float | None = 1.0
    verbose: int = 1

    def __post_init__(self) -> None:
        self.path = check_record_path(self.path)
        self.batch_size = maybe(check_count, "batch_size", self.batch_size)
        self.instance_type = maybe(check_name, "instance_type", self.instance_type)
        self.region = maybe(check_name, "region", self.region)
        self.factors = check_factors("factors", self.factors)
        self.sample, _ = check_sample(self.sample, None)
        self.verbose = check_count("verbose", self.verbose, least=0)

    def print_line(self, line: str) -> None:
        """Print a line about the measurement, unless ``verbose`` is 0."""
        if self.verbose:
            sys.stdout.write(f"vmselect: {line}\n")
            sys.stdout.flush()


@dataclass(eq=False, repr=False, kw_only=True)
class Options(CommonOptions):
    """Arguments that all probes of trainings share."""

    metrics: Metrics | None = None
    name: str | None = None
    alarm: Alarm | None = None

    describing_seconds = 1.0  # no annotation: it is no argument of the probes
    """Longest time of the description that is made after the measurement."""
    describes_only = False
    """Whether the program ends before the first step of a training that can be described without it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        metrics = check_mapping("metrics", {} if self.metrics is None else self.metrics)
        self.metrics = {
            name: metric if callable(metric) else _as_number(name, metric) for name, metric in metrics.items()
        }
        self.name = maybe(check_name, "name", self.name)
        self.sample, self.alarm = check_sample(self.sample, self.alarm)


def check_uncut(stop: bool, **limits: Any) -> None:
    """Raise an error if ``stop`` is False and one of the arguments ``limits``, which end a training early, is given."""
    for name, limit in limits.items():
        if not stop and limit is not None:
            raise ArgumentError(
                f"{name}= ends the training early, but stop=False records the whole training. Pass only one of the two."
            )


def evaluate_metrics(metrics: Metrics) -> dict[str, float]:
    """Return the values of all metrics as numbers. Metrics that are functions are called."""
    return {name: _as_number(name, metric() if callable(metric) else metric) for name, metric in metrics.items()}


def read_factors(factors: Factors | None) -> Factors:
    """Return the factors in the environment variable ``VMSELECT_FACTORS``, overridden by ``factors``."""
    text = os.environ.get("VMSELECT_FACTORS", "").strip()
    try:
        defined = json.loads(text) if text else None
    except ValueError:
        defined = text
    return check_factors("VMSELECT_FACTORS", defined) | dict(factors or {})


def check_record_path(path: RecordPath) -> Place | Literal[False] | None:
    """Return the argument ``path`` of a probe as a path or URL; None and False stay as they are."""
    return path if path is None or path is False else check_place("path", path)


def choose_path(path: RecordPath) -> Place | None:
    """Return the path or URL for a record: ``path``, else the default folder; None if ``path`` is False."""
    chosen = check_record_path(path)
    return default_folder() if chosen is None else chosen or None


def check_target(path: Place | None, kind: str) -> None:
    """Raise an error before a measurement if a record of this ``kind`` could not be written to ``path`` afterwards."""
    from vmselect.records import files

    if path is not None:
        files.check_target(path, kind)


def _as_number(name: str, value: Any) -> float:
    try:
        number = float(value)  # also converts scalars of frameworks
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or isinstance(value, str):
        raise ArgumentError(
            f"metrics[{name!r}] must be a number or a function that returns a number, not {show(value)}."
        )
    return number
