"""Checks of what a probe is given, made when it is given."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable, Mapping
from typing import Any

from vmselect.errors import ArgumentError

MetricValue = float | Callable[[], float]
Metrics = Mapping[str, MetricValue]


def check_count(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """``value`` as an int of at least ``least``, or an :class:`ArgumentError`."""
    bounds = f"at least {least}" if most is None else f"from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ArgumentError(f"{name} must be a whole number {bounds}, not {value!r}.")
    count = int(value)
    if count < least or (most is not None and count > most):
        raise ArgumentError(f"{name} must be {bounds}, not {count}.")
    return count


def check_optional_count(name: str, value: Any) -> int | None:
    """None, or a count of at least 1."""
    return None if value is None else check_count(name, value, least=1)


def check_seconds(name: str, value: Any) -> float | None:
    """None, or a positive finite number of seconds."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value) or value <= 0:
        raise ArgumentError(f"{name} must be a number of seconds above 0, or None, not {value!r}.")
    return float(value)


def check_flag(name: str, value: Any) -> bool:
    """A truth value, and nothing that merely looks like one."""
    if isinstance(value, bool) or value in (0, 1):
        return bool(value)
    raise ArgumentError(f"{name} must be True or False, not {value!r}.")


def check_name(name: str, value: Any) -> str | None:
    """None, or a text that is not empty."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > 200:
        raise ArgumentError(f"{name} must be a name of 1 to 200 characters, or None, not {value!r}.")
    return value.strip()


def check_path(value: Any) -> str | None:
    """None, or a path as text."""
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise ArgumentError(f"path must be a file, a folder or None, not {value!r}.")
    return os.fspath(value)


def check_metrics(value: Any) -> dict[str, MetricValue]:
    """A mapping of names to numbers or to functions that return one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ArgumentError(f"metrics must map names to numbers or functions, not {value!r}.")
    for name, metric in value.items():
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"metrics: {name!r} is not a name. Use texts as keys.")
        if not callable(metric):
            _check_number(name, metric)
    return dict(value)


def evaluate_metrics(metrics: Metrics) -> dict[str, float]:
    """Every metric as a number, functions called now."""
    return {name: _check_number(name, metric() if callable(metric) else metric) for name, metric in metrics.items()}


def _check_number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"metrics: {name} must be a number or a function that returns one, not {value!r}."
        ) from None
    if not math.isfinite(number):
        raise ArgumentError(f"metrics: {name} must be a finite number, not {value!r}.")
    return number
