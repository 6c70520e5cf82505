"""The accuracy benchmark's view of the first part of a training is what a probe would have seen."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.profiles import make_truncated_profile, probed
from vmselect.records import Boundary, Profile, Validation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from accuracy_scores import cut, first_epochs, score

STEPS, EPOCHS = 50, 5


@pytest.fixture
def watched() -> Profile:
    profile = make_truncated_profile([[0.1] * (STEPS - 1)] * EPOCHS, first=2.0, complete=True)
    steps = profile.timeline.steps
    timeline = {
        "steps": steps,
        "epochs": profile.timeline.epochs,
        "validations": tuple(Validation(epoch=n, seconds=0.5) for n in range(EPOCHS)),
        "boundaries": tuple(Boundary(epoch=n, seconds=0.2) for n in range(EPOCHS - 1)),
        "fit_seconds": steps.total_seconds + EPOCHS * 0.5 + (EPOCHS - 1) * 0.2,
    }
    made = probed(timeline=timeline, steps_per_epoch=STEPS, epochs=EPOCHS, batch_size=8)
    return made.model_copy(update={"outcome": "watched", "probe": "iteration"})


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
