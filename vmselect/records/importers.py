"""Profiles from times that somebody else measured: a paper, a log, another tool."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from vmselect._checks import check_count, check_mapping, check_name, check_number, check_seconds, list_items, maybe
from vmselect.errors import ArgumentError
from vmselect.records.record import Placement, given_as
from vmselect.records.training import Epoch, Profile, Setup, Step, Steps, Timeline, Validation


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
