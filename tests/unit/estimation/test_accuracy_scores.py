"""The accuracy benchmark's view of the first part of a training is what a probe would have seen."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.records import Boundary, Epoch, Profile, Setup, Steps, Timeline, Validation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from accuracy_scores import cut, first_epochs, score

STEPS, EPOCHS = 50, 5


@pytest.fixture
def watched() -> Profile:
    rows = [
        (epoch, batch, 2.0 if epoch == batch == 0 else 0.1, "steady" if batch else ("opening" if epoch else "first"))
        for epoch in range(EPOCHS)
        for batch in range(STEPS)
    ]
    epoch, batch, seconds, label = zip(*rows, strict=True)
    total = sum(seconds) + EPOCHS * 0.5 + (EPOCHS - 1) * 0.2
    given = vs.Profile.from_times(instance_type="local", iteration_seconds=0.1)
    timeline = Timeline(
        steps=Steps(
            epoch=epoch,
            batch=batch,
            seconds=seconds,
            covers=(1,) * len(rows),
            label=label,
            readings=len(rows),
            steps=len(rows),
            total_seconds=sum(seconds),
        ),
        epochs=tuple(Epoch(epoch=n, seconds=5.0 + (1.9 if n == 0 else 0), steps=STEPS) for n in range(EPOCHS)),
        validations=tuple(Validation(epoch=n, seconds=0.5) for n in range(EPOCHS)),
        boundaries=tuple(Boundary(epoch=n, seconds=0.2) for n in range(EPOCHS - 1)),
        fit_seconds=total,
    )
    setup = Setup(steps_per_epoch=STEPS, epochs=EPOCHS, batch_size=8)
    return given.model_copy(update={"timeline": timeline, "outcome": "watched", "setup": setup, "probe": "iteration"})


def test_a_cut_profile_holds_two_short_epochs(watched: Profile) -> None:
    seen = cut(watched, steps=20)
    assert seen.timeline.steps.steps == 42
    assert [v.epoch for v in seen.timeline.validations] == [0, 1]
    assert [(b.epoch, b.truncated, b.final) for b in seen.timeline.boundaries] == [(0, False, False)]
    assert seen.timeline.epochs == ()
    assert seen.total_seconds is None


def test_whole_epochs_for_the_equation_that_needs_them(watched: Profile) -> None:
    seen = first_epochs(watched)
    assert seen.timeline.steps.steps == 2 * STEPS
    assert len(seen.timeline.epochs) == 2


def test_scores_of_a_training_without_noise(watched: Profile) -> None:
    scores = {one.method: one for one in score("in-run", "torch", "made-up", watched, steps=20)}
    assert scores["robust"].error == pytest.approx(0.0, abs=1e-9)
    assert scores["robust"].holds
    assert scores["5.1 two epochs"].error == pytest.approx(0.0, abs=1e-9)
    assert scores["5.3 second"].error < -0.02, "it knows nothing of boundaries"
    assert scores["SkyPilot formula"].error < scores["5.4 second"].error < scores["5.3 second"].error
