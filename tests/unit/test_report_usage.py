"""The charts of a machine's use and of a training's course: the numbers first, then that they draw."""

from datetime import UTC, datetime

import pytest

import vmselect as vs
from vmselect.errors import RankingError
from vmselect.records.convergence import ConvergenceRecord, ConvergenceRun, Curve
from vmselect.records.rule import StoppingRule
from vmselect.records.usage import Limits, Usage
from vmselect.report.course import course_chart, course_points
from vmselect.report.usage import usage_chart, usage_points

USAGE = Usage(
    interval_seconds=1.0,
    limits=Limits(cores=2),
    seconds=(0.5, 2.0, 3.0, 4.0, 5.0),
    phase=("initialization", "first_step", "steady_steps", "steady_steps", "validation"),
    series={
        "usable_cpu_share": (0.2, 0.6, 0.9, 0.95, 0.7),
        "process_cores": (0.4, 1.1, 1.8, 2.1, None),
        "memory_available_share": (0.7, 0.6, 0.5, 0.5, 0.5),
        "gpu0_busy_share": (0.0, 0.1, 0.9, None, 0.5),
        "gpu1_busy_share": (0.0, 0.3, 0.7, 0.8, 0.5),
    },
)


@pytest.fixture
def profile():
    made = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=40, later_epoch_seconds=[30, 31])
    return made.model_copy(update={"usage": USAGE})


def test_usage_as_numbers(profile):
    points = usage_points(profile)
    samples = points["samples"]
    by = {name: list(group["share"]) for name, group in samples.groupby("quantity")}
    assert by["processors"] == [0.2, 0.6, 0.9, 0.95, 0.7]
    assert by["this training"] == pytest.approx([0.2, 0.55, 0.9, 1.0])
    assert by["memory"] == pytest.approx([0.3, 0.4, 0.5, 0.5, 0.5])
    assert by["GPUs"] == pytest.approx([0.0, 0.2, 0.8, 0.8, 0.5])
    assert points["phases"].to_dict("records") == [
        {"phase": "initialization", "begin": 0.0, "end": 0.5},
        {"phase": "first step", "begin": 0.5, "end": 2.0},
        {"phase": "steady steps", "begin": 2.0, "end": 4.0},
        {"phase": "validation", "begin": 4.0, "end": 5.0},
    ]


def test_usage_draws(profile, tmp_path):
    from vmselect.report import save_chart

    assert "what the machine did" in usage_chart(profile).to_dict()["title"]
    assert save_chart(usage_chart(profile), tmp_path / "usage.png").stat().st_size > 1_000


def test_usage_of_a_ranking(profile):
    ranking = vs.rank([profile], epochs=10)
    assert "g4dn.xlarge" in ranking.chart("usage").to_dict()["title"]
    with pytest.raises(RankingError, match="not sampled"):
        ranking.chart("usage", instance_type="p3.2xlarge")


def test_what_was_not_sampled_cannot_be_drawn(profile):
    with pytest.raises(RankingError, match="Probe again with sample"):
        usage_points(profile.model_copy(update={"usage": None}))


def study(instance_type, values):
    run = ConvergenceRun(
        created=datetime.now(UTC),
        batch_size=64,
        rule=StoppingRule(monitor="val_accuracy", patience=5, min_delta=0.0, mode="max"),
        epochs_run=float(len(values)),
        curve=Curve.of(dict(enumerate(values, 1))),
        instance_type=instance_type,
    )
    return ConvergenceRecord(runs=(run,))


def test_the_course_as_numbers(profile):
    points = course_points([profile, study("g4dn.xlarge", [0.5, float("nan"), 0.7])])
    assert list(points["times"]["seconds"]) == [40, 30, 31]
    assert list(points["times"]["epoch"]) == [1, 2, 3]
    assert list(points["metrics"]["value"]) == [0.5, 0.7]
    assert set(points["metrics"]["metric"]) == {"val_accuracy"}


def test_the_course_draws_what_there_is(profile):
    assert len(course_chart([profile, study("g4dn.xlarge", [0.5, 0.7])]).to_dict()["hconcat"]) == 2
    assert len(course_chart([profile]).to_dict()["hconcat"]) == 1
    with pytest.raises(RankingError, match="EpochProbe"):
        course_chart([])
