"""Recorded parts of a training of ten epochs, which was killed and resumed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tests.support.forecasts import START
from tests.support.profiles import make_profile
from vmselect.records import Boundary, Epoch, Profile, Steps, Validation

EPOCHS, STEP, FIRST, INIT, STARTUP, VALIDATION, BOUNDARY = 10, 0.1, 0.9, 2.0, 0.5, 0.3, 0.2


def make_part(start: int, done: int, *, begun: float = 0.0, number: int = 0, **changes: object) -> Profile:
    """A recorded part that began at epoch ``start``, completed ``done`` epochs, and ``begun`` seconds of another."""
    first = FIRST - STEP
    epochs = [Epoch(epoch=start + k, seconds=1.0 + (first if k == 0 else 0.0), steps=10) for k in range(done)]
    if begun:
        epochs.append(Epoch(epoch=start + done, seconds=begun, steps=5, complete=False))
    readings = {
        "epochs": tuple(epochs),
        "validations": tuple(Validation(epoch=start + k, seconds=VALIDATION) for k in range(done)),
        "boundaries": tuple(Boundary(epoch=start + k, seconds=BOUNDARY) for k in range(done)),
    }
    wall = STARTUP + sum(reading.seconds for column in readings.values() for reading in column)
    ended = start + done == EPOCHS
    timeline = {
        **readings, "init_seconds": INIT, "init_source": "process start", "fit_to_first_batch_seconds": STARTUP,
        "steps": Steps.of(make_profile(step_seconds=STEP, first_iteration_seconds=FIRST).timeline.steps.rows),
        "wall_seconds": wall, "fit_seconds": wall if ended else None,
    }  # fmt: skip
    values = {
        "outcome": "watched" if ended else "interrupted", "ending": None if ended else "killed",
        "created": START + timedelta(hours=1 + number), "timeline": timeline,
        "setup": {"initial_epoch": start, "epochs": EPOCHS, "steps_per_epoch": 10},
    }  # fmt: skip
    return make_profile(**{"instance_type": "g4dn.xlarge", **values, **changes})


def split(ends: Sequence[int], repeated: int = 0, begun: float = 0.0) -> list[Profile]:
    """Parts that were killed after these epochs, and resumed ``repeated`` epochs earlier."""
    parts, start = [], 0
    for number, end in enumerate([*ends, EPOCHS]):
        last = end == EPOCHS
        parts.append(make_part(start, end - start, begun=0.0 if last else begun, number=number))
        start = max(start, end - repeated, 1)  # a training that begins anew is not resumed
    return parts
