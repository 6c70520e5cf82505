"""Pinned numbers of estimates: a changed formula or constant fails here.

The timelines come from seeds and contain all that a probe can record: warm-up, stalls, smaller last batches, truncated
and complete validations, boundaries with and without parts, pauses, self-tuning inputs. After an intended change, write
the numbers with ``python tests/unit/estimation/test_pinned_estimates.py``.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from vmselect.convergence import predict_epochs
from vmselect.errors import VmselectError
from vmselect.estimation import METHODS, fit_runtime
from vmselect.estimation.batch_sizes import interpolate_time
from vmselect.estimation.overheads import next_wake_up
from vmselect.records import Boundary, Environment, Epoch, Pause, Profile, Setup, Steps, Timeline, Validation
from vmselect.records.training import Step

PINNED = Path(__file__).parents[2] / "data" / "estimates" / "numbers.json"
SEEDS = range(45)


def make_profile(seed: int) -> Profile:
    """A profile with a little of everything."""
    pick = random.Random(seed)
    whole_epochs = pick.random() < 0.25
    step, covers, epochs = pick.choice([0.001, 0.02, 0.5]), pick.choice([1, 1, 1, 4]), pick.choice([1, 2, 2, 3, 6])
    partial, validates, parts = pick.choice([0, 0, 5]), pick.random() < 0.7, pick.random() < 0.7
    rows: list[Step] = []
    seen: dict[str, list[Any]] = {"epochs": [], "validations": [], "boundaries": []}
    for epoch in range(epochs):
        count = 0 if whole_epochs else pick.choice([3, 6, 12, 21])
        readings: list[Step] = []
        for number in range(count):
            seconds, label = step * covers * (1 + abs(pick.gauss(0, 0.1))), "steady"
            if epoch == 0 and number == 0:
                seconds, label = seconds + 3 * pick.random(), "first"
            elif number == 0:
                seconds, label = 2 * seconds, "opening"
            elif number == count - 1 and partial:
                seconds, label = 0.7 * seconds, "partial"
            elif epoch == 0 and number < 4 and pick.random() < 0.5:
                seconds *= 3
            if label == "steady" and pick.random() < 0.04:
                seconds *= pick.choice([3, 12])
            readings.append(Step(epoch, (number + 1) * covers - 1, seconds, covers, label))  # type: ignore[arg-type]
        rows += readings
        complete = whole_epochs or pick.random() < 0.3
        length = sum(row.seconds for row in readings) or step * 100 * (1 + abs(pick.gauss(0, 0.1))) + 2 * (epoch == 0)
        seen["epochs"].append(Epoch(epoch=epoch, seconds=length, steps=covers * count or None, complete=complete))
        if validates:
            batches = tuple(step * pick.random() for _ in range(pick.choice([1, 5, 9])))
            seen["validations"].append(
                Validation(
                    epoch=epoch,
                    seconds=sum(batches) + 0.01,
                    batches=len(batches),
                    batch_seconds=batches,
                    truncated=pick.random() < 0.2,
                )
            )
        between = pick.random() * step * pick.choice([1, 5, 200])
        seen["boundaries"].append(
            Boundary(
                epoch=epoch,
                seconds=between,
                before_validation_seconds=0.3 * between if parts else None,
                epoch_end_seconds=0.2 * between if parts and seed % 2 else None,
                truncated=not complete,
                final=epoch == epochs - 1,
            )
        )
    pauses = [Pause(cause="garbage collection", epoch=0, batch=n, seconds=0.1 / (n + 1) ** 2) for n in range(seed % 4)]
    return Profile(
        created=datetime(2026, 1, 1, tzinfo=UTC),
        outcome="watched" if whole_epochs else "stopped",
        setup=Setup(
            batch_size=64,
            steps_per_epoch=pick.choice([10, 50, 333]),
            examples=pick.choice([None, 5_000]),
            partial_batch=partial,
            steps_per_execution=covers,
            validation_freq=pick.choice([1, 1, 2]),
            self_tuning_input=pick.random() < 0.5,
        ),
        timeline=Timeline(
            init_seconds=2.5,
            init_source="given",
            fit_to_first_batch_seconds=0.2,
            steps=Steps.of(rows),
            wall_seconds=10.0,
            cpu_seconds=pick.choice([2.0, 15.0]),
            pauses=tuple(pauses),
            **{name: tuple(some) for name, some in seen.items()},
        ),
        environment=Environment(backend=pick.choice(["tensorflow", "jax", "torch"]), usable_cores=2),
    )


def compute() -> dict[str, Any]:
    """Every number by name."""
    numbers: dict[str, Any] = {}
    for seed in SEEDS:
        profile = make_profile(seed)
        for method in METHODS if seed % 5 == 0 else ["robust"]:
            for name, options in {"": {}, " more": {"examples": 7_777, "validation_examples": 99}}.items():
                numbers[f"{seed} {method}{name}"] = answer(profile, method=method, **options)
        if seed % 2 == 0:
            numbers[f"{seed} repeated"] = answer([profile, repeat(profile, seed)], method="robust")
            numbers[f"{seed} long"] = answer(lengthen(profile), method="robust")
        if seed % 3 == 0:
            numbers[f"{seed} sure"] = answer(profile, method="robust", confidence=0.99, steps_per_epoch=17.5)
    for size in (16, 24, 40, 100, 128, 200):
        times = [{32: 0.2, 128: 0.5}, {32: 0.2, 64: 0.21, 128: 0.5}, {32: 0.3, 128: 0.2}, {32: 0.1, 128: 9.0}]
        numbers[f"time at {size}"] = [vars(interpolate_time(one, size)) for one in times]
        numbers[f"epochs at {size}"] = list(predict_epochs({32: [10, 12], 128: [20.0]}, size))
    numbers["wake-ups"] = [next_wake_up(seconds) for seconds in (0.001, 0.02, 3.0, 81.0, 90.0, 500.0)]
    return numbers


def repeat(profile: Profile, seed: int) -> Profile:
    """Another profile of the same setup."""
    other = make_profile(seed + 1_000)
    return other.model_copy(update={"setup": profile.setup, "environment": profile.environment})


def lengthen(profile: Profile) -> Profile:
    """The same profile as if not all readings had been kept."""
    timeline = profile.timeline
    steps = timeline.steps.model_copy(update={"readings": timeline.steps.readings + 9})
    epochs = tuple(
        epoch.model_copy(
            update={"complete": True, "opening_seconds": 0.2 * epoch.seconds, "closing_seconds": 0.1 * epoch.seconds}
        )
        for epoch in timeline.epochs
    )
    return profile.model_copy(update={"timeline": timeline.model_copy(update={"steps": steps, "epochs": epochs})})


def answer(profile: Profile | list[Profile], **options: Any) -> Any:
    try:
        model = fit_runtime(profile, **options)
    except VmselectError as refused:
        return type(refused).__name__
    estimates = [model.at(epochs) for epochs in (1, 2, 50)]
    return {
        "seconds": [[one.seconds, one.low, one.high] for one in estimates],
        "terms": dict(estimates[-1].terms),
        "idle": model.waits.mean_seconds,
        "findings": sorted(finding.code for finding in estimates[-1].findings),
    }


def assert_same(found: Any, pinned: Any, where: str) -> None:
    if isinstance(pinned, dict):
        assert list(found) == list(pinned), where
        for name, value in pinned.items():
            assert_same(found[name], sorted(value) if name == "findings" else value, f"{where}, {name}")
    elif isinstance(pinned, list):
        assert len(found) == len(pinned), where
        for number, value in enumerate(pinned):
            assert_same(found[number], value, f"{where} [{number}]")
    elif isinstance(pinned, float):
        assert found == pytest.approx(pinned, rel=1e-9, abs=1e-12), where
    else:
        assert found == pinned, where


def test_no_number_changed() -> None:
    found, pinned = compute(), json.loads(PINNED.read_text(encoding="utf-8"))
    assert list(found) == list(pinned)
    for name, value in pinned.items():
        assert_same(found[name], value, name)


if __name__ == "__main__":
    PINNED.parent.mkdir(exist_ok=True)
    short = json.loads(json.dumps(compute()), parse_float=lambda text: float(f"{float(text):.11g}"))
    PINNED.write_text(json.dumps(short, indent=0) + "\n", encoding="utf-8")
