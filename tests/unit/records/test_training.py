"""Profiles: what they hold, what they reject, and how they are shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pydantic
import pytest

import vmselect as vs
from tests.support.profiles import make_epoch_profile, make_profile
from vmselect.records import (
    Boundary,
    Environment,
    Epoch,
    EpochLogs,
    Gpu,
    InputWait,
    Pause,
    Placement,
    Profile,
    Setup,
    Step,
    Steps,
    Timeline,
    Validation,
)
from vmselect.records.files import Profiles
from vmselect.records.identity import count_nodes
from vmselect.records.training import summarize

EMPTY = Profile(outcome="stopped", timeline=Timeline())
QUANTITIES = (
    "init", "first_iteration", "second_iteration", "mean_2_10",
    "first_validation", "second_validation", "first_epoch", "second_epoch",
)  # fmt: skip


def test_from_times_keeps_what_was_given() -> None:
    profile = make_profile("p3.2xlarge", [0.13, 0.2], first_iteration_seconds=3.4, validation_seconds=[0.17, 0.02])
    assert profile.outcome == "given"
    assert profile.placement.instance_type is not None
    assert profile.placement.instance_type.source == "given"
    steps = profile.timeline.steps
    assert (steps.seconds, steps.batch, steps.epoch) == ((3.4, 0.13, 0.2), (0, 1, 2), (0, 0, 0))
    assert steps.label == ("first", "steady", "steady")
    assert [(one.epoch, one.seconds) for one in profile.timeline.validations] == [(0, 0.17), (1, 0.02)]
    assert (profile.model, profile.batch_size, profile.steps_per_epoch) == ("net", 64, 100)
    assert make_profile(first_iteration_seconds=None, steps=2).timeline.steps.batch == (1, 2)


def test_from_times_of_epochs_has_no_steps() -> None:
    timeline = make_epoch_profile("a", 13.69, 11.05, 11.1).timeline
    assert [(epoch.epoch, epoch.seconds) for epoch in timeline.epochs] == [(0, 13.69), (1, 11.05), (2, 11.1)]
    assert len(timeline.steps) == 0


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({"examples": 100, "batch_size": 32}, 4),
        ({"examples": 96, "batch_size": 32}, 3),
        ({"examples": 100, "batch_size": 32, "steps_per_epoch": 3}, 3),
        ({"examples": 100}, None),
        ({"batch_size": 32}, None),
    ],
)
def test_steps_per_epoch_from_examples(given: dict[str, Any], steps: int | None) -> None:
    assert vs.Profile.from_times(iteration_seconds=0.1, **given).steps_per_epoch == steps


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"iteration_seconds": None}, "iteration_seconds"),
        ({"iteration_seconds": [-1.0]}, "iteration_seconds"),
        ({"iteration_seconds": [float("nan")]}, "iteration_seconds"),
        ({"init_seconds": -1.0}, "init_seconds"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"batch_size": 2**63}, "batch_size"),
        ({"later_epoch_seconds": [3.0]}, "first_epoch_seconds"),
        ({"instance_type": ""}, "instance_type"),
        ({"total_seconds": [3.0, 1.9], "init_seconds": 2.0}, "total_seconds"),
        ({"total_seconds": 3.0, "iteration_seconds": None}, "epochs"),
        ({"workers": 0}, "workers"),
    ],
)
def test_from_times_names_an_impossible_argument(change: dict[str, Any], named: str) -> None:
    with pytest.raises(vs.errors.ArgumentError, match=named):
        make_profile(**change)


@pytest.mark.parametrize("factors", [["nodes"], {"nodes": [3]}, {"": 1}])
def test_from_times_rejects_impossible_factors(factors: Any) -> None:
    with pytest.raises(vs.errors.ArgumentError, match="factors"):
        vs.Profile.from_times(iteration_seconds=0.1, factors=factors)


def test_given_times_state_what_was_trained_and_on_which_gpus() -> None:
    made = vs.Profile.from_times(
        iteration_seconds=0.1, gpus=8, factors={"nodes": 2}, precision="mixed_float16", parameters=1000,
        peak_gpu_memory_bytes=2**30,
    )  # fmt: skip
    seen = made.environment
    assert (seen.framework_gpus, seen.replicas, seen.workers, seen.precision) == (8, 16, 1, "mixed_float16")
    assert (made.setup.parameters, seen.peak_gpu_memory_bytes, count_nodes(made)) == (1000, 2**30, 2)
    # Numbers of a table are floats.
    assert vs.Profile.from_times(iteration_seconds=0.1, gpus=8.0).environment.replicas == 8  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("workers", "factors", "nodes"),
    [(2, {}, 1), (8, {"nodes": 2}, 2), (2, {"nodes": 2}, 2), (1, {"nodes": 3}, 3), (1, {}, 1)],
)
def test_given_workers_share_one_machine_unless_nodes_are_given(
    workers: int, factors: dict[str, int], nodes: int
) -> None:
    made = vs.Profile.from_times(iteration_seconds=0.1, workers=workers, factors=factors)
    assert count_nodes(made) == nodes


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"gpus": 3, "workers": 2}, "gpus="),
        ({"workers": 3, "factors": {"nodes": 2}}, "workers="),
        ({"factors": {"nodes": 0.5}}, "nodes"),
        ({"gpus": -1}, "gpus"),
        ({"precision": "amp"}, "precision"),
        ({"parallelism": "ddp"}, "all_reduce"),
        ({"parameters": 0}, "parameters"),
        ({"peak_gpu_memory_bytes": "2 GB"}, "peak_gpu_memory_bytes"),
    ],
)
def test_from_times_rejects_impossible_hardware(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(vs.errors.ArgumentError, match=problem):
        vs.Profile.from_times(iteration_seconds=0.1, **arguments)


def test_totals_of_whole_runs_are_kept() -> None:
    made = make_profile(total_seconds=[5.0, 7.0], init_seconds=2.0, epochs=3)
    assert (made.timeline.run_seconds, made.total_seconds, made.epochs_trained) == ((5.0, 7.0), 6.0, 3)
    assert make_profile().total_seconds is make_profile().epochs_trained is None
    assert not made.only_totals


def test_a_profile_may_have_totals_only(tmp_path: Path) -> None:
    made = vs.Profile.from_times(
        instance_type="a", batch_size=8, total_seconds=90, epochs=4, workers=3, factors={"image": 32}
    )
    assert made.only_totals
    assert (made.environment.workers, dict(made.factors), made.findings) == (3, {"image": 32}, ())
    made.save(tmp_path / "a.json")
    assert Profile.load(tmp_path / "a.json") == made
    watched = make_profile(outcome="watched", timeline={"fit_seconds": 3.0, "epochs": (Epoch(epoch=0, seconds=1.0),)})
    assert (watched.total_seconds, watched.epochs_trained) == (4.0, 1)


def test_the_quantities_of_the_method() -> None:
    given = make_profile(
        step_seconds=[0.5, *[0.1] * 20], first_iteration_seconds=3.0, validation_seconds=[0.4, 0.2], init_seconds=2.0
    )
    found = [getattr(given, f"{name}_seconds") for name in QUANTITIES]
    assert found == pytest.approx([2.0, 3.0, 0.5, (0.5 + 8 * 0.1) / 9, 0.4, 0.2, None, None])
    assert all(getattr(EMPTY, f"{name}_seconds") is None for name in QUANTITIES)
    epochs = make_epoch_profile("a", 13.0, 11.0, 12.0)
    assert (epochs.first_epoch_seconds, epochs.second_epoch_seconds, epochs.second_iteration_seconds) == (13, 11, None)


def test_measured_epochs_include_pauses_validations_and_the_boundary_before_them() -> None:
    parts = {
        "epochs": tuple(Epoch(epoch=n, seconds=10.0) for n in range(2)),
        "validations": (*(Validation(epoch=n, seconds=1.0) for n in (0, 0, 1)), Validation(epoch=2, seconds=9.0)),
        "boundaries": (Boundary(epoch=0, seconds=0.25), Boundary(epoch=1, seconds=5.0, final=True)),
        "pauses": (Pause(cause="garbage collection", epoch=1, batch=0, seconds=0.5),),
    }
    measured = Profile(outcome="watched", timeline=Timeline(**parts))
    assert (measured.first_epoch_seconds, measured.second_epoch_seconds) == (12.0, 11.75)
    assert (measured.first_validation_seconds, measured.second_validation_seconds) == (2.0, 1.0)
    cut = (Epoch(epoch=0, seconds=1.0, complete=False), Epoch(epoch=1, seconds=10.0))
    short = (Validation(epoch=0, seconds=1.0), Validation(epoch=1, seconds=0.1, truncated=True))
    probed = Profile(outcome="stopped", timeline=Timeline(epochs=cut, validations=short))
    assert (probed.first_epoch_seconds, probed.first_validation_seconds) == (None, 1.0)
    assert probed.second_validation_seconds is None


def test_a_profile_cannot_be_changed() -> None:
    with pytest.raises(pydantic.ValidationError):
        EMPTY.outcome = "watched"  # type: ignore[misc]


def test_rows_follow_the_columns_of_a_copy() -> None:
    steps = make_profile(step_seconds=[0.13, 0.13], first_iteration_seconds=3.4).timeline.steps
    assert [(row.seconds, row.label) for row in steps.rows] == [(3.4, "first"), (0.13, "steady"), (0.13, "steady")]
    assert steps.steady_seconds == (0.13, 0.13)
    slower = steps.model_copy(update={"seconds": (4.0, 1.0, 1.0), "covers": (1, 2, 1), "steps": 4})
    assert [row.seconds for row in slower.rows] == [4.0, 1.0, 1.0]
    assert slower.steady_seconds == (0.5, 1.0)
    assert Steps.of(steps.rows) == steps
    assert [row.each for row in slower.labelled("steady")] == [0.5, 1.0]


@pytest.mark.parametrize(("seconds", "wall", "share"), [(1.0, 4.0, 0.25), (5.0, 4.0, 1.0), (1.0, 0.0, 0.0)])
def test_share_of_waiting_for_data(seconds: float, wall: float, share: float) -> None:
    assert InputWait(seconds=seconds, wall_seconds=wall, steps=1, method="test").share == share


def test_json_has_lists_of_plain_values_on_one_line() -> None:
    text = make_profile("x\n[1,\n2]", [0.1, 0.2], first_iteration_seconds=None).to_json()
    assert '"seconds": [ 0.1, 0.2 ]' in text
    assert text.startswith('{\n "kind": ')
    assert json.loads(text)["placement"]["instance_type"]["value"] == "x\n[1,\n2]"


def test_a_time_without_a_zone_is_utc() -> None:
    def created(moment: datetime) -> datetime:
        return Profile(outcome="stopped", timeline=Timeline(), created=moment).created

    east = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    assert created(datetime(2026, 1, 2, 3)) == datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert created(east) == datetime(2026, 1, 2, 1, tzinfo=UTC)


def test_logs_of_epochs_are_kept_and_checked(tmp_path: Path) -> None:
    logs = EpochLogs(epoch=(0, 1), values={"val_accuracy": (0.5, None)})
    made = make_profile(logs=logs)
    made.save(tmp_path / "a.json")
    assert Profile.load(tmp_path / "a.json").logs == logs
    with pytest.raises(pydantic.ValidationError):
        EpochLogs(epoch=(0, 1), values={"loss": (0.5,)})


def test_summary_has_a_row_for_everything_known() -> None:
    rows = [Step(0, 0, 3.0, 1, "first"), *(Step(0, n, 0.1 * n, 1, "steady") for n in (1, 2, 3))]
    profile = Profile(
        outcome="out_of_memory",
        detail="no room",
        timeline=Timeline(
            init_seconds=2.5,
            init_source="given",
            steps=Steps.of(rows),
            epochs=tuple(Epoch(epoch=n, seconds=n + 1.0, complete=n != 1) for n in range(5)),
            validations=tuple(Validation(epoch=n, seconds=n + 0.5) for n in range(5)),
            wall_seconds=90.0,
        ),
        environment=Environment(
            backend="jax",
            versions={"jax": "0.7"},
            cpu_cores=8,
            usable_cores=4,
            gpus=(Gpu(name="T4"), Gpu(name="A100")),
            peak_memory_bytes=2_000_000_000,
        ),
        setup=Setup(model="net", batch_size=8, steps_per_epoch=20),
        placement=Placement.given(instance_type="box", region="north"),
        metrics={"accuracy": 0.25},
    )
    assert summarize(profile) == {
        "machine": "box",
        "machine from": "given",
        "region": "north",
        "model": "net",
        "batch size": "8",
        "steps per epoch": "20",
        "backend": "jax 0.7",
        "cores": "4",
        "GPUs": "2 x T4",
        "initialization": "2.5 s",
        "first step": "3 s",
        "second step": "100 ms",
        "mean of steps 2-10": "200 ms",
        "seconds per step": "200 ms",
        "first validation": "500 ms",
        "second validation": "1.5 s",
        "first epoch": "1.5 s",
        "probe took": "1 min 30 s",
        "peak memory": "1.9 GiB",
        "outcome": "out of memory: no room",
        "accuracy": "0.25",
    }


def test_summary_without_what_is_unknown() -> None:
    assert summarize(EMPTY) == {"machine": "unknown", "outcome": "stopped"}
    assert str(EMPTY).splitlines()[:2] == ["machine  unknown", "outcome  stopped"]
    without_version = EMPTY.model_copy(update={"environment": Environment(backend="jax", cpu_cores=8)})
    assert summarize(without_version)["backend"] == "jax"
    assert summarize(without_version)["cores"] == "8"


def test_a_notebook_shows_tables_without_markup_of_the_user() -> None:
    profile = make_profile(model="<script>", metrics={"<b>": 1.0})
    for page in (profile._repr_html_(), Profiles([profile])._repr_html_()):
        assert "&lt;script&gt;" in page
        assert "<script>" not in page
        assert "<b>" not in page


@pytest.mark.parametrize(("count", "rows", "more"), [(2, 2, False), (100, 100, False), (101, 100, True)])
def test_a_table_shows_a_hundred_profiles(count: int, rows: int, more: bool) -> None:
    page = Profiles([EMPTY] * count)._repr_html_()
    assert page.count("<tr>") == 1 + rows
    assert ("<p>" in page) is more
    warnings = sum(finding.severity == "warning" for finding in EMPTY.findings)
    assert page.count(f"<bdi>{warnings}</bdi>") == rows
