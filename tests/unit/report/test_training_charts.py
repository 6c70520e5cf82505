"""The charts of a machine's use and of a training's course: the numbers first, then that they draw."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest

import vmselect as vs
from vmselect.errors import RankingError
from vmselect.probe.sampling import Tally
from vmselect.records.convergence import ConvergenceRecord, ConvergenceRun, Curve, StoppingRule
from vmselect.records.usage import Limits, Usage
from vmselect.report.page_data import MOST_SAMPLED_SHOWN, page_content
from vmselect.report.training_charts import (
    MOST_BANDS,
    MOST_SAMPLES,
    course_chart,
    course_points,
    usage_chart,
    usage_points,
)

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


def test_usage_as_numbers():
    points = usage_points("m", USAGE)
    by = {one["name"]: [share for _, share in one["points"]] for one in points["quantities"]}
    assert by["processors"] == [0.2, 0.6, 0.9, 0.95, 0.7]
    assert by["this training"] == pytest.approx([0.2, 0.55, 0.9, 1.0])
    assert by["memory"] == pytest.approx([0.3, 0.4, 0.5, 0.5, 0.5])
    assert by["GPUs"] == pytest.approx([0.0, 0.2, 0.8, 0.8, 0.5])
    assert points["phases"] == [
        {"phase": "initialization", "begin": 0.0, "end": 0.5},
        {"phase": "first step", "begin": 0.5, "end": 2.0},
        {"phase": "steady steps", "begin": 2.0, "end": 4.0},
        {"phase": "validation", "begin": 4.0, "end": 5.0},
    ]


@pytest.mark.parametrize(("steady", "validation"), [(290.0, 10.0), (60.0, 60.0), (30.0, 0.4), (100.0, 200.0)])
def test_phases_keep_their_share_of_a_long_training(steady, validation):
    tally, at, lasted = Tally(), 0.0, {"steady steps": 0.0, "validation": 0.0}
    while at < 10 * 3600:
        for phase, seconds in (("steady_steps", steady), ("validation", validation)):
            lasted[phase.replace("_", " ")] += seconds
            end = at + seconds
            while at < end:
                taken = min(1.0, end - at)
                at += taken
                tally.add(phase, at, taken, {"usable_cpu_share": 0.5})
    usage = tally.build(1.0, Limits())
    bands = usage_points("m", usage)["phases"]
    drawn = dict.fromkeys(lasted, 0.0)
    for band in bands:
        drawn[band["phase"]] += band["end"] - band["begin"]
    assert drawn == pytest.approx(lasted, rel=0.03)
    assert all(before["end"] == after["begin"] for before, after in pairwise(bands))


def test_usage_draws(profile, tmp_path):
    from vmselect.report import save_chart

    assert profile.title in usage_chart(profile).to_dict()["title"]
    assert save_chart(usage_chart(profile), tmp_path / "usage.png").stat().st_size > 1_000


def test_usage_of_a_ranking(profile):
    ranking = vs.rank([profile], epochs=10)
    assert "g4dn.xlarge" in ranking.chart("usage").to_dict()["title"]
    with pytest.raises(RankingError):
        ranking.chart("usage", instance_type="p3.2xlarge")


def test_what_was_not_sampled_cannot_be_drawn(profile):
    with pytest.raises(RankingError):
        usage_chart(profile.model_copy(update={"usage": None}))


def study(instance_type, values, monitor="val_accuracy"):
    run = ConvergenceRun(
        created=datetime.now(UTC),
        batch_size=64,
        rule=StoppingRule(monitor=monitor, patience=5, min_delta=0.0, mode="max"),
        epochs_run=float(len(values)),
        curve=Curve.of(dict(enumerate(values, 1))),
        instance_type=instance_type,
    )
    return ConvergenceRecord(runs=(run,))


def test_the_course_as_numbers(profile):
    points = course_points([profile, study("g4dn.xlarge", [0.5, float("nan"), 0.7])])
    assert points["times"] == [{"name": profile.title, "points": [[1, 40.0], [2, 30.0], [3, 31.0]]}]
    assert points["metrics"] == [{"name": "g4dn.xlarge, batch 64", "points": [[1, 0.5], [3, 0.7]]}]
    assert points["metric"] == "val_accuracy"


def test_the_course_draws_what_there_is(profile):
    assert len(course_chart([profile, study("g4dn.xlarge", [0.5, 0.7])]).to_dict()["hconcat"]) == 2
    assert len(course_chart([profile]).to_dict()["hconcat"]) == 1
    with pytest.raises(RankingError):
        course_chart([])


# -- in the page -------------------------------------------------------------------------------------------------------


def test_the_page_holds_use_and_course(profile):
    content = page_content(vs.rank([profile], epochs=10))["page"]
    (one,) = content["usage"]
    assert one["title"] == profile.title
    assert [band["phase"] for band in one["phases"]] == ["initialization", "first step", "steady steps", "validation"]
    named = {line["name"]: line["points"] for line in one["quantities"]}
    assert named["processors"] == [[0.5, 0.2], [2.0, 0.6], [3.0, 0.9], [4.0, 0.95], [5.0, 0.7]]
    assert len(named["this training"]) == 4  # what was not read is left out
    assert content["epoch_curves"]["times"] == [{"name": profile.title, "points": [[1, 40.0], [2, 30.0], [3, 31.0]]}]
    assert content["epoch_curves"]["metrics"] == []


def test_what_the_page_holds_is_bounded(profile):
    count = 700
    long = Usage(
        interval_seconds=1.0,
        seconds=tuple(float(i + 1) for i in range(4_000)),
        phase=tuple("steady_steps" if i % 2 else "validation" for i in range(4_000)),
        series={"usable_cpu_share": (0.5,) * 4_000},
    )
    lines = usage_points("m", long)
    assert len(lines["quantities"][0]["points"]) <= MOST_SAMPLES
    assert len(lines["phases"]) <= MOST_BANDS
    many = [
        vs.Profile.from_times(instance_type=f"m{i}", first_epoch_seconds=40, later_epoch_seconds=[30.0] * count)
        for i in range(9)
    ]
    course = course_points(many)
    assert len(course["times"]) == 7
    assert max(len(line["points"]) for line in course["times"]) <= 300
    sampled = [one.model_copy(update={"usage": USAGE}) for one in many * 3]
    offers = [{"provider": "lab", "instance_type": f"m{i}", "region": "r", "usd_per_hour": 1.0} for i in range(9)]
    catalog = vs.Catalog.embedded("2026-08-22").with_offers(offers)
    assert len(page_content(vs.rank(sampled, epochs=5, catalog=catalog))["page"]["usage"]) <= MOST_SAMPLED_SHOWN


def test_repetitions_are_one_line_and_the_first_metric_is_drawn(profile):
    again = vs.Profile.from_times(instance_type="g4dn.xlarge", first_epoch_seconds=44, later_epoch_seconds=[32, 31])
    studies = [study("m", [0.5, 0.7]), study("m", [0.75, 0.7]), study("m", [3.0, 2.0], monitor="val_loss")]
    points = course_points([profile, again, *studies])
    assert points["times"][0]["points"] == [[1, 42.0], [2, 31.0], [3, 31.0]]
    assert points["metrics"][0]["points"] == [[1, 0.625], [2, 0.7]]


def test_what_waits_for_data_says_so_beside_the_machine(profile):
    from vmselect.records import InputWait
    from vmselect.report import to_html

    wait = InputWait(seconds=7.7, wall_seconds=10.0, steps=20, method="test")
    on_gpu = profile.environment.model_copy(update={"framework_gpus": 1})
    timeline = profile.timeline.model_copy(update={"input_wait": wait})
    waiting = profile.model_copy(update={"timeline": timeline, "environment": on_gpu})
    ranking = vs.rank([waiting], epochs=10)
    bound = "a faster GPU gains at most 1.3x here"
    assert ranking.best.bound == bound
    assert bound in str(ranking)
    assert bound in to_html(ranking)
    payload = page_content(ranking)
    numbers = payload["candidates"][0]["findings"]
    assert bound in {payload["findings"][number].get("bound") for number in numbers}
    assert vs.rank([profile], epochs=10).best.bound == ""


def test_a_record_of_calls_draws(tmp_path):
    calls = Usage(
        interval_seconds=1.0, seconds=(1.0, 2.0), phase=("first_call", "calls"), series={"usable_cpu_share": (0.2, 0.9)}
    )
    record = vs.InferenceRecord.from_times(instance_type="g5.xlarge", batch_size=32, call_seconds=[0.02] * 9)
    assert "calls" in str(usage_chart(record.model_copy(update={"usage": calls})).to_dict())
