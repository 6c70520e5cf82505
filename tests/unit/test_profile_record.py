"""The profile record: what it holds, what it refuses, how it looks."""

from __future__ import annotations

import pydantic
import pytest

import vmselect as vs
from vmselect.records import Profile, Steps, Timeline
from vmselect.records.training import InputWait, table_html


def given(**changes: object) -> Profile:
    times: dict[str, object] = {
        "instance_type": "p3.2xlarge",
        "batch_size": 256,
        "steps_per_epoch": 159,
        "init_seconds": 0.2,
        "first_iteration_seconds": 3.4,
        "iteration_seconds": [0.13, 0.13],
        "validation_seconds": [0.17, 0.02],
        "model": "seismic-fcn",
    }
    return Profile.from_times(**{**times, **changes})  # type: ignore[arg-type]


def test_from_times_keeps_what_was_given_and_says_so() -> None:
    profile = given()
    assert profile.outcome == "given"
    assert profile.placement.instance_type is not None
    assert profile.placement.instance_type.source == "given"
    assert profile.timeline.steps.seconds == (3.4, 0.13, 0.13)
    assert profile.timeline.steps.label == ("first", "steady", "steady")
    assert [v.seconds for v in profile.timeline.validations] == [0.17, 0.02]
    assert profile.timeline.init_seconds == 0.2
    assert (profile.model, profile.batch_size, profile.steps_per_epoch) == ("seismic-fcn", 256, 159)


def test_from_times_of_epochs_has_no_steps() -> None:
    profile = Profile.from_times(first_epoch_seconds=13.69, later_epoch_seconds=[11.05, 11.1], batch_size=256)
    assert [epoch.seconds for epoch in profile.timeline.epochs] == [13.69, 11.05, 11.1]
    assert len(profile.timeline.steps) == 0


def test_from_times_derives_steps_per_epoch_from_examples() -> None:
    assert given(steps_per_epoch=None, examples=1000).steps_per_epoch == 4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"iteration_seconds": None}, "iteration_seconds"),
        ({"iteration_seconds": [-1.0]}, "iteration_seconds"),
        ({"iteration_seconds": [float("nan")]}, "iteration_seconds"),
        ({"init_seconds": -1.0}, "init_seconds"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"later_epoch_seconds": [3.0]}, "first_epoch_seconds"),
        ({"instance_type": ""}, "instance_type"),
    ],
)
def test_impossible_times_are_refused_by_name(change: dict[str, object], named: str) -> None:
    with pytest.raises(vs.errors.ArgumentError, match=named):
        given(**change)


def test_a_profile_cannot_be_changed() -> None:
    with pytest.raises(pydantic.ValidationError):
        given().outcome = "watched"  # type: ignore[misc]


def test_step_columns_must_agree() -> None:
    with pytest.raises(pydantic.ValidationError, match="differ in length"):
        Steps(epoch=(0,), batch=(0, 1), seconds=(1.0,), covers=(1,), label=("first",), readings=1, steps=1)


def test_sums_cannot_be_smaller_than_what_was_kept() -> None:
    with pytest.raises(pydantic.ValidationError, match="smaller than"):
        Steps(epoch=(0,), batch=(0,), seconds=(1.0,), covers=(4,), label=("first",), readings=1, steps=3)


def test_rows_are_those_of_the_columns_also_after_a_copy() -> None:
    steps = given().timeline.steps
    assert [(row.seconds, row.label) for row in steps.rows] == [(3.4, "first"), (0.13, "steady"), (0.13, "steady")]
    assert steps.steady_seconds == (0.13, 0.13)
    slower = steps.model_copy(update={"seconds": (4.0, 1.0, 1.0), "covers": (1, 2, 1), "steps": 4})
    assert [row.seconds for row in slower.rows] == [4.0, 1.0, 1.0]
    assert slower.steady_seconds == (0.5, 1.0)
    assert steps == given().timeline.steps
    assert Steps.of(steps.rows) == steps
    assert [row.each for row in steps.labelled("steady")] == [0.13, 0.13]


def test_total_is_known_only_when_the_whole_fit_was_watched() -> None:
    profile = given()
    assert profile.total_seconds is None
    timeline = Timeline(init_seconds=2.0, init_source="given", fit_seconds=10.0)
    assert profile.model_copy(update={"outcome": "watched", "timeline": timeline}).total_seconds == 12.0


def test_a_notebook_shows_a_table_and_no_markup_of_the_user() -> None:
    page = given(model="<script>alert(1)</script>", metrics={"<b>": 1.0})._repr_html_()
    assert "<table>" in page
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "<b>" not in page


def test_text_names_the_machine_and_the_step() -> None:
    text = str(given())
    assert "p3.2xlarge" in text
    assert "130 ms (median of 2)" in text


def test_the_summary_in_numbers() -> None:
    profile = given(iteration_seconds=[0.1, 0.3, 0.2], validation_seconds=[1.0, 2.0, 3.0, 4.0])
    rows = profile.summary()
    assert rows["first step"] == "3.4 s"
    assert rows["steady step"] == "200 ms (median of 3)"
    assert rows["validations"] == "1 s, 2 s, 3 s"  # of many, the first three
    assert rows["initialization"] == "200 ms"
    assert "epochs" not in rows
    epochs = Profile.from_times(first_epoch_seconds=4.0, later_epoch_seconds=[3.0, 2.0, 1.0])
    assert epochs.summary()["epochs"] == "4 s, 3 s, 2 s"
    assert epochs.summary()["machine"] == "unknown"
    lines = str(profile).splitlines()
    assert len({line.index(rows[name]) for name, line in zip(rows, lines, strict=False)}) == 1  # in one column


def test_a_table_of_many_profiles_shows_a_hundred() -> None:
    profile = given()
    page = table_html([profile] * 101)
    assert page.count("<tr>") == 101  # with the head
    assert "<p>The first 100 of 101 profiles.</p>" in page
    assert "The first" not in table_html([profile] * 100)
    doubts = sum(finding.severity == "warning" for finding in profile.findings)
    assert table_html([profile]).count(f"<td>{doubts or ''}</td>") == 1


def test_the_true_time_of_a_training_that_was_watched() -> None:
    watched = given(total_seconds=100.0).model_copy(update={"outcome": "watched"})
    assert watched.total_seconds == pytest.approx(100.0)
    assert given(total_seconds=100.0).total_seconds is None
    no_start = watched.model_copy(
        update={"timeline": watched.timeline.model_copy(update={"init_seconds": None, "init_source": None})}
    )
    assert no_start.total_seconds == pytest.approx(99.8)
    with pytest.raises(vs.errors.ArgumentError, match="total_seconds is less than init_seconds"):
        given(total_seconds=0.1)
    assert given(total_seconds=0.2).timeline.fit_seconds == 0.0


@pytest.mark.parametrize(("seconds", "wall", "share"), [(1.0, 4.0, 0.25), (5.0, 4.0, 1.0), (1.0, 0.0, 0.0)])
def test_the_share_of_waiting_for_data(seconds: float, wall: float, share: float) -> None:
    assert InputWait(seconds=seconds, wall_seconds=wall, steps=1, method="test").share == share
