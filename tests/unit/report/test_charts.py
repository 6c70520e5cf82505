"""Charts of what was measured: the numbers first, then that they can be drawn."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.errors import RankingError
from vmselect.probe.sampling import Tally
from vmselect.records import EpochLogs, InferenceRecord, InputWait
from vmselect.records.convergence import ConvergenceRecord, ConvergenceRun, Curve, StoppingRule
from vmselect.records.usage import Limits, Usage
from vmselect.report import save_chart, to_html
from vmselect.report.charts import (
    MAX_BANDS,
    MAX_PAGE_SAMPLES,
    epoch_curve_points,
    epoch_curves_chart,
    step_points,
    usage_chart,
    usage_points,
)
from vmselect.report.page import MAX_SAMPLED, page_data

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from priced import prices
from profiles import make_epoch_profile, make_profile

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
PROFILE = make_epoch_profile("g4dn.xlarge", 40, 30, 31, usage=USAGE)


def make_study(instance_type: str, values: list[float], monitor: str = "val_accuracy") -> ConvergenceRecord:
    run = ConvergenceRun(
        created=datetime.now(UTC),
        batch_size=64,
        rule=StoppingRule(monitor=monitor, patience=5, min_delta=0.0, mode="max"),
        epochs_run=float(len(values)),
        curve=Curve.of(dict(enumerate(values, 1))),
        instance_type=instance_type,
    )
    return ConvergenceRecord(runs=(run,))


def test_steps_keep_the_warm_up_and_thin_the_rest() -> None:
    profile = make_profile("m", 0.1, steps=999, first_iteration_seconds=9.0)
    whole, thin = step_points(profile), step_points(profile, most=100)
    assert whole["position"] == list(range(1, 1001))
    assert whole["steady_seconds"] == pytest.approx(0.1)
    assert len(thin["seconds"]) <= 100
    assert (thin["label"][0], thin["seconds"][0]) == ("first", 9.0)
    assert thin["readings"] == 1000


def test_usage_points_are_shares_and_phases() -> None:
    points = usage_points("m", USAGE)
    by = {one["name"]: [share for _, share in one["points"]] for one in points["quantities"]}
    assert by == {
        "CPU cores": [0.2, 0.6, 0.9, 0.95, 0.7],
        "this training": pytest.approx([0.2, 0.55, 0.9, 1.0]),
        "memory": pytest.approx([0.3, 0.4, 0.5, 0.5, 0.5]),
        "GPUs": pytest.approx([0.0, 0.2, 0.8, 0.8, 0.5]),
    }
    assert points["phases"] == [
        {"phase": "initialization", "begin": 0.0, "end": 0.5},
        {"phase": "first step", "begin": 0.5, "end": 2.0},
        {"phase": "steady steps", "begin": 2.0, "end": 4.0},
        {"phase": "validation", "begin": 4.0, "end": 5.0},
    ]


@pytest.mark.parametrize(("steady", "validation"), [(290.0, 10.0), (60.0, 60.0), (30.0, 0.4), (100.0, 200.0)])
def test_phases_keep_their_share_of_a_long_training(steady: float, validation: float) -> None:
    tally, at, lasted = Tally(), 0.0, {"steady steps": 0.0, "validation": 0.0}
    while at < 10 * 3600:
        for phase, seconds in (("steady_steps", steady), ("validation", validation)):
            lasted[phase.replace("_", " ")] += seconds
            end = at + seconds
            while at < end:
                taken = min(1.0, end - at)
                at += taken
                tally.add(phase, at, taken, {"usable_cpu_share": 0.5})  # type: ignore[arg-type]
    bands = usage_points("m", tally.build(1.0, Limits()))["phases"]
    drawn = dict.fromkeys(lasted, 0.0)
    for band in bands:
        drawn[band["phase"]] += band["end"] - band["begin"]
    assert drawn == pytest.approx(lasted, rel=0.03)
    assert all(before["end"] == after["begin"] for before, after in pairwise(bands))


def test_usage_is_drawn_of_a_record_and_of_a_ranking(tmp_path: Path) -> None:
    drawn = usage_chart(PROFILE)
    assert PROFILE.title in drawn.to_dict()["title"]
    samples = drawn.layer[1].data
    assert samples[samples["quantity"] == "memory"]["phase"].tolist() == [
        "initialization", "first step", "steady steps", "steady steps", "validation",
    ]  # fmt: skip
    assert save_chart(drawn, tmp_path / "usage.png").stat().st_size > 1_000
    ranking = vs.rank([PROFILE], epochs=10)
    assert "g4dn.xlarge" in ranking.chart("usage").to_dict()["title"]
    with pytest.raises(RankingError):
        ranking.chart("usage", instance_type="p3.2xlarge")
    with pytest.raises(RankingError):
        usage_chart(make_profile())
    calls = Usage(
        interval_seconds=1.0, seconds=(1.0, 2.0), phase=("first_call", "calls"), series={"usable_cpu_share": (0.2, 0.9)}
    )
    record = InferenceRecord.from_times(instance_type="g5.xlarge", batch_size=32, call_seconds=[0.02] * 9)
    assert "calls" in str(usage_chart(record.model_copy(update={"usage": calls})).to_dict())


def test_epoch_curves_are_medians_per_machine_of_the_first_metric() -> None:
    again = make_epoch_profile("g4dn.xlarge", 44, 32, 31)
    studies = [
        make_study("m", [0.5, float("nan"), 0.7]),
        make_study("m", [0.75, 0.7]),
        make_study("m", [3.0, 2.0], monitor="val_loss"),
    ]
    points = epoch_curve_points([PROFILE, again, *studies])
    assert points["times"] == [{"name": PROFILE.title, "points": [[1, 42.0], [2, 31.0], [3, 31.0]]}]
    assert points["metrics"] == [{"name": "m, batch 64", "points": [[1, 0.625], [2, 0.7], [3, 0.7]]}]
    assert points["metric"] == "val_accuracy"
    assert len(epoch_curves_chart([PROFILE, *studies]).to_dict()["hconcat"]) == 2
    assert len(epoch_curves_chart([PROFILE]).to_dict()["hconcat"]) == 1
    with pytest.raises(RankingError):
        epoch_curves_chart([])


def test_the_page_holds_a_bounded_part_of_usage_and_epoch_curves() -> None:
    page = page_data(vs.rank([PROFILE], epochs=10))["page"]
    assert page["usage"] == [usage_points(PROFILE.title, USAGE)]
    assert page["epoch_curves"] == epoch_curve_points([PROFILE])
    long = Usage(
        interval_seconds=1.0,
        seconds=tuple(float(i + 1) for i in range(4_000)),
        phase=tuple("steady_steps" if i % 2 else "validation" for i in range(4_000)),
        series={"usable_cpu_share": (0.5,) * 4_000},
    )
    lines = usage_points("m", long)
    assert len(lines["quantities"][0]["points"]) <= MAX_PAGE_SAMPLES
    assert len(lines["phases"]) <= MAX_BANDS
    many = [make_epoch_profile(f"m{i}", 40, *[30.0] * 700, usage=USAGE) for i in range(9)]
    curves = epoch_curve_points(many)
    assert len(curves["times"]) == 7
    assert max(len(line["points"]) for line in curves["times"]) <= 300
    ranking = vs.rank(many * 3, epochs=5, catalog=prices(*((f"m{i}", 1.0) for i in range(9))))
    assert len(page_data(ranking)["page"]["usage"]) <= MAX_SAMPLED


def test_a_machine_that_waits_for_data_shows_the_bound() -> None:
    wait = InputWait(seconds=7.7, wall_seconds=10.0, steps=20, method="test")
    waiting = make_epoch_profile(
        "g4dn.xlarge", 40, 30, timeline={"input_wait": wait}, environment={"framework_gpus": 1}
    )
    ranking = vs.rank([waiting], epochs=10)
    bound = ranking.best.bound
    assert "1.3x" in bound
    assert bound in str(ranking)
    assert bound in to_html(ranking)
    data = page_data(ranking)
    assert bound in {data["findings"][number].get("bound") for number in data["candidates"][0]["findings"]}
    assert vs.rank([PROFILE], epochs=10).best.bound == ""


def test_logs_of_watched_trainings_are_epoch_curves() -> None:
    logs = EpochLogs(epoch=(0, 1, 2), values={"loss": (3.0, 2.0, 1.0), "val_accuracy": (0.5, None, 0.8)})
    watched = make_profile(logs=logs, outcome="watched")
    points = epoch_curve_points([watched])
    assert (points["metric"], points["metrics"][0]["points"]) == ("val_accuracy", [[1, 0.5], [3, 0.8]])
    assert epoch_curve_points([watched], metric="loss")["metrics"][0]["points"][-1] == [3, 1.0]
