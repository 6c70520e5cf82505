"""Profiles from times that somebody else measured: a paper, a log, another tool."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from vmselect._checks import (
    check_count,
    check_mapping,
    check_name,
    check_number,
    check_path,
    check_seconds,
    list_items,
    maybe,
)
from vmselect._files import read_text
from vmselect.errors import ArgumentError, ProfileError
from vmselect.records.base import Placement, given_as
from vmselect.records.training import Epoch, Profile, Setup, Step, Steps, Timeline, Validation

MAX_SUMMARY_BYTES = 1024 * 1024
MAX_SUMMARY_SECONDS = 1e9
"""Thirty years: time stamps that are farther apart are not of one clock."""


def profile_from_times(given: Mapping[str, Any]) -> Profile:
    """See :meth:`vmselect.Profile.from_times`, whose arguments are ``given`` by name."""
    iterations = _times("iteration_seconds", given)
    validations = _times("validation_seconds", given)
    later_epochs = _times("later_epoch_seconds", given)
    first_iteration = _times("first_iteration_seconds", given)
    first_epoch = _times("first_epoch_seconds", given)
    init = maybe(check_seconds, "init_seconds", given["init_seconds"])
    total = maybe(check_seconds, "total_seconds", given["total_seconds"])
    if not iterations and not later_epochs:
        raise ArgumentError(
            "No steady time was given. Give iteration_seconds= (steps after the first) or later_epoch_seconds= "
            "(whole epochs after the first)."
        )
    if later_epochs and not first_epoch:
        raise ArgumentError("later_epoch_seconds= needs first_epoch_seconds= beside it: the first epoch is slower.")
    if total is not None and total < (init or 0.0):
        raise ArgumentError("total_seconds is less than init_seconds, which is a part of it. Correct one of them.")
    batch_size = maybe(check_count, "batch_size", given["batch_size"])
    examples = maybe(check_count, "examples", given["examples"])
    steps_per_epoch = maybe(check_count, "steps_per_epoch", given["steps_per_epoch"])
    if steps_per_epoch is None and examples is not None and batch_size is not None:
        steps_per_epoch = math.ceil(examples / batch_size)
    numbers = {} if given["metrics"] is None else check_mapping("metrics", given["metrics"])
    with given_as("profile"):
        return Profile(
            created=datetime.now(UTC).replace(microsecond=0),
            outcome="given",
            setup=Setup(
                model=maybe(check_name, "model", given["model"]),
                batch_size=batch_size,
                batch_size_source=None if batch_size is None else "given",
                steps_per_epoch=steps_per_epoch,
                epochs=maybe(check_count, "epochs", given["epochs"]),
                examples=examples,
                validation_examples=maybe(check_count, "validation_examples", given["validation_examples"], least=0),
            ),
            timeline=Timeline(
                init_seconds=init,
                init_source=None if init is None else "given",
                steps=_steps(first_iteration, iterations),
                epochs=tuple(Epoch(epoch=n, seconds=s) for n, s in enumerate(first_epoch + later_epochs)),
                validations=tuple(Validation(epoch=n, seconds=s) for n, s in enumerate(validations)),
                fit_seconds=None if total is None else total - (init or 0.0),
            ),
            placement=Placement.given(**{name: given[name] for name in ("instance_type", "provider", "region")}),
            metrics={name: check_number(f"metrics: {name}", value) for name, value in numbers.items()},
        )


def profile_from_skypilot_summary(
    path: str | os.PathLike[str], *, instance_type: str | None, batch_size: int | None
) -> Profile:
    """See :meth:`vmselect.Profile.from_skypilot_summary`.

    SkyPilot's callback kept time stamps of the boot, the callback's creation, the first step, the end of its warm-up
    and the last step, and nothing of validation or epochs.
    """
    summary = _read_summary(path)
    steps, warmup = _whole(path, summary, "num_steps"), _whole(path, summary, "warmup_steps")
    if steps - warmup < 1:
        raise ProfileError(f"{path}: only {steps} steps, {warmup} of them warm-up. Let the benchmark run longer.")
    boot, created, first, warm, last = (
        _stamp(path, summary, key)
        for key in ("boot_time", "create_time", "first_step_time", "warmup_end_time", "last_step_time")
    )
    if not boot <= created <= first <= warm <= last:
        raise ProfileError(f"{path}: its time stamps are out of order. Is the file whole?")
    if last - boot > MAX_SUMMARY_SECONDS:
        raise ProfileError(f"{path}: its time stamps are more than thirty years apart. Is the file whole?")
    steady = steps - warmup
    rows = [Step(0, 0, first - created, 1, "first")]
    if warmup > 1:
        rows.append(Step(0, warmup - 1, warm - first, warmup - 1, "warmup"))
    rows.append(Step(0, rows[-1].batch + steady, last - warm, steady, "steady"))
    total = maybe(_check_whole, "total_steps", summary.get("total_steps"), path=path)
    return Profile(
        created=datetime.now(UTC).replace(microsecond=0),
        outcome="given",
        detail="SkyPilot benchmark summary: step times are means, validation was not measured",
        setup=Setup(
            batch_size=maybe(check_count, "batch_size", batch_size),
            batch_size_source=None if batch_size is None else "given",
            # SkyPilot counts the steps of the whole training; as one long epoch, they are what they were.
            steps_per_epoch=total or None,
            epochs=1 if total else None,
        ),
        timeline=Timeline(
            init_seconds=created - boot,
            init_source="given",
            steps=Steps.of(rows),
        ),
        placement=Placement.given(instance_type=instance_type),
    )


def _steps(first: list[float], iterations: list[float]) -> Steps:
    start = 1 - len(first)
    return Steps.of(
        Step(0, start + n, seconds, 1, "first" if n < len(first) else "steady")
        for n, seconds in enumerate(first + iterations)
    )


def _times(name: str, given: Mapping[str, Any]) -> list[float]:
    """Times as a list; one may be given alone."""
    if given[name] is None:
        return []
    values = [given[name]] if isinstance(given[name], (str, bytes)) else list_items(given[name])
    return [check_seconds(name, value) for value in values]


def _read_summary(path: str | os.PathLike[str]) -> dict[str, Any]:
    text = read_text(check_path("path", path), noun="SkyPilot summary", limit=MAX_SUMMARY_BYTES)
    try:
        summary = json.loads(text)
    except (ValueError, RecursionError):
        raise ProfileError(
            f"{path}: not a SkyPilot summary: it is not JSON. Give the callback's summary.json."
        ) from None
    if not isinstance(summary, dict):
        raise ProfileError(f"{path}: not a SkyPilot summary: no object. Give the callback's summary.json.")
    return summary


def _stamp(path: str | os.PathLike[str], summary: dict[str, Any], key: str) -> float:
    try:
        return check_number(key, summary.get(key), least=-1e12, most=1e12)
    except ArgumentError:
        raise ProfileError(
            f"{path}: field {key} is missing or not a number. Let the benchmark run past its warm-up."
        ) from None


def _whole(path: str | os.PathLike[str], summary: dict[str, Any], key: str) -> int:
    return _check_whole(key, _stamp(path, summary, key), path=path)


def _check_whole(key: str, value: Any, *, path: str | os.PathLike[str]) -> int:
    try:
        return check_count(key, value, least=0)
    except ArgumentError:
        raise ProfileError(f"{path}: field {key} is not a count. Is the file whole?") from None
