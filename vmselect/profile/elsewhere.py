"""Profiles from times that somebody else measured: a paper, a log, another tool."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from vmselect import __version__
from vmselect.errors import ArgumentError, ProfileError
from vmselect.profile.files import read_text
from vmselect.profile.record import Epoch, Fact, Label, Placement, Profile, Setup, Steps, Timeline, Validation


def profile_from_times(
    *,
    instance_type: str | None,
    batch_size: int | None,
    steps_per_epoch: int | None,
    init_seconds: float | None,
    first_iteration_seconds: float | None,
    iteration_seconds: Sequence[float] | float | None,
    validation_seconds: Sequence[float] | float | None,
    first_epoch_seconds: float | None,
    later_epoch_seconds: Sequence[float] | float | None,
    model: str | None,
    provider: str | None,
    region: str | None,
    epochs: int | None,
    examples: int | None,
    validation_examples: int | None,
    total_seconds: float | None,
    metrics: Mapping[str, float] | None,
) -> Profile:
    """See :meth:`vmselect.Profile.from_times`."""
    iterations = _numbers("iteration_seconds", iteration_seconds)
    validations = _numbers("validation_seconds", validation_seconds)
    later_epochs = _numbers("later_epoch_seconds", later_epoch_seconds)
    first_iteration = _numbers("first_iteration_seconds", first_iteration_seconds)
    first_epoch = _numbers("first_epoch_seconds", first_epoch_seconds)
    if not iterations and not later_epochs:
        raise ArgumentError(
            "No steady time was given. Give iteration_seconds= (steps after the first) or later_epoch_seconds= "
            "(whole epochs after the first)."
        )
    if later_epochs and not first_epoch:
        raise ArgumentError("later_epoch_seconds= needs first_epoch_seconds= beside it: the first epoch is slower.")
    if steps_per_epoch is None and examples is not None and batch_size is not None:
        steps_per_epoch = math.ceil(examples / batch_size)
    try:
        return Profile(
            created=datetime.now(UTC).replace(microsecond=0),
            writer=f"vmselect {__version__}",
            outcome="given",
            setup=Setup(
                model=model,
                batch_size=batch_size,
                batch_size_source=None if batch_size is None else "given",
                steps_per_epoch=steps_per_epoch,
                epochs=epochs,
                examples=examples,
                validation_examples=validation_examples,
            ),
            timeline=Timeline(
                init_seconds=None if init_seconds is None else float(init_seconds),
                init_source=None if init_seconds is None else "given",
                steps=_steps(first_iteration, iterations),
                epochs=tuple(Epoch(epoch=n, seconds=s) for n, s in enumerate(first_epoch + later_epochs)),
                validations=tuple(Validation(epoch=n, seconds=s) for n, s in enumerate(validations)),
                fit_seconds=None if total_seconds is None else float(total_seconds) - (init_seconds or 0.0),
            ),
            placement=Placement(
                instance_type=_given("instance_type", instance_type),
                provider=_given("provider", provider),
                region=_given("region", region),
            ),
            metrics=dict(metrics or {}),
        )
    except ValidationError as invalid:
        problem = invalid.errors(include_url=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        raise ArgumentError(f"These times make no profile: {field}: {problem['msg']}. Correct the value.") from None


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
    steady = steps - warmup
    rows: list[tuple[float, int, Label]] = [(first - created, 1, "first")]
    if warmup > 1:
        rows.append((warm - first, warmup - 1, "warmup"))
    rows.append((last - warm, steady, "steady"))
    seconds, covers, labels = zip(*rows, strict=True)
    total = summary.get("total_steps")
    return Profile(
        created=datetime.now(UTC).replace(microsecond=0),
        writer=f"vmselect {__version__}",
        outcome="given",
        detail="SkyPilot benchmark summary: step times are means, validation was not measured",
        setup=Setup(
            batch_size=batch_size,
            batch_size_source=None if batch_size is None else "given",
            # SkyPilot counts the steps of the whole training; as one long epoch, they are what they were.
            steps_per_epoch=total if isinstance(total, int) and total > 0 else None,
            epochs=1 if isinstance(total, int) and total > 0 else None,
        ),
        timeline=Timeline(
            init_seconds=created - boot,
            init_source="given",
            steps=Steps(
                epoch=(0,) * len(rows),
                batch=tuple(sum(covers[: n + 1]) - 1 for n in range(len(rows))),
                seconds=seconds,
                covers=covers,
                label=labels,
                readings=len(rows),
                steps=sum(covers),
                total_seconds=sum(seconds),
            ),
        ),
        placement=Placement(instance_type=_given("instance_type", instance_type)),
    )


def _steps(first: list[float], iterations: list[float]) -> Steps:
    seconds = first + iterations
    labels: list[Label] = ["first" if n < len(first) else "steady" for n in range(len(seconds))]
    return Steps(
        epoch=(0,) * len(seconds),
        batch=tuple(range(1 - len(first), 1 - len(first) + len(seconds))),
        seconds=tuple(seconds),
        covers=(1,) * len(seconds),
        label=tuple(labels),
        readings=len(seconds),
        steps=len(seconds),
        total_seconds=sum(seconds),
    )


def _numbers(name: str, given: Sequence[float] | float | None) -> list[float]:
    if given is None:
        return []
    values = [given] if isinstance(given, (int, float)) else list(given)
    for value in values:
        if isinstance(value, bool) or not math.isfinite(float(value)) or float(value) < 0:
            raise ArgumentError(f"{name}={value!r} is not a time. Give seconds: finite and not negative.")
    return [float(value) for value in values]


def _given(name: str, value: str | None) -> Fact | None:
    if value is not None and (not isinstance(value, str) or not 1 <= len(value) <= 200):
        raise ArgumentError(f"{name}={value!r} is not a name. Give 1 to 200 characters, or leave it out.")
    return None if value is None else Fact(value=value, source="given")


def _read_summary(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        summary = json.loads(read_text(path, noun="SkyPilot summary"))
    except (ValueError, RecursionError):
        raise ProfileError(
            f"{path}: not a SkyPilot summary: it is not JSON. Give the callback's summary.json."
        ) from None
    if not isinstance(summary, dict):
        raise ProfileError(f"{path}: not a SkyPilot summary: no object. Give the callback's summary.json.")
    return summary


def _stamp(path: str | os.PathLike[str], summary: dict[str, Any], key: str) -> float:
    value = summary.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ProfileError(f"{path}: field {key} is missing or not a number. Let the benchmark run past its warm-up.")
    return float(value)


def _whole(path: str | os.PathLike[str], summary: dict[str, Any], key: str) -> int:
    value = _stamp(path, summary, key)
    if value != int(value) or value < 0 or value > 2**53:
        raise ProfileError(f"{path}: field {key} is not a count. Is the file whole?")
    return int(value)
