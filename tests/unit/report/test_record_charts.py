"""Charts of parts of records: the numbers first, then that they can be drawn."""

from __future__ import annotations

import pytest

import vmselect as vs
from tests.support.priced import prices
from vmselect.errors import RankingError
from vmselect.records.usage import Limits, Usage
from vmselect.report.record_charts import (
    classes_chart,
    confusion_points,
    disk_chart,
    disk_points,
    validation_points,
    validations_chart,
)

DISK = Usage(
    interval_seconds=1.0,
    limits=Limits(cores=2),
    seconds=(1.0, 2.0, 3.0),
    phase=("steady_steps",) * 3,
    series={
        "disk_read_operations_per_second": (300.0, None, 2.0),
        "disk_write_operations_per_second": (0.0, 5.0, 6.0),
    },
)


def validated(name: str, *seconds: float) -> vs.Profile:
    return vs.Profile.from_times(
        instance_type=name, batch_size=256, steps_per_epoch=100, first_iteration_seconds=2.0,
        iteration_seconds=[0.1] * 5, validation_seconds=list(seconds),
    )  # fmt: skip


def test_validations_are_the_first_and_the_mean_of_the_later_ones() -> None:
    points = validation_points([validated("a", 3.0, 1.0, 2.0), validated("b", 5.0)])
    assert points["kind"].tolist() == ["first", "later", "first"]
    assert points["seconds"].tolist() == [3.0, 1.5, 5.0]


def test_repetitions_are_averaged() -> None:
    points = validation_points([validated("a", 3.0, 1.0), validated("a", 5.0, 1.0)])
    assert points["seconds"].tolist() == [4.0, 1.0]


def test_a_ranking_draws_the_validations_of_every_machine() -> None:
    ranking = vs.rank(
        [validated("a", 3.0, 1.0), validated("b", 5.0, 2.0)], epochs=5, catalog=prices(("a", 2.0), ("b", 4.0))
    )
    drawn = ranking.chart("validations").to_dict()
    rows = next(iter(drawn["datasets"].values()))
    assert {(row["training"].split(",")[0], row["kind"], row["value"]) for row in rows} == {
        ("a", "first", 3.0), ("a", "later", 1.0), ("b", "first", 5.0), ("b", "later", 2.0),
    }  # fmt: skip
    with pytest.raises(RankingError, match="no complete validation"):
        validations_chart([])


def test_disk_operations_are_drawn_by_direction() -> None:
    points = disk_points(DISK)
    assert points[points["direction"] == "reads"]["operations"].tolist() == [300.0, 2.0]
    assert points[points["direction"] == "writes"]["seconds"].tolist() == [1.0, 2.0, 3.0]
    profile = validated("a", 1.0).model_copy(update={"usage": DISK})
    drawn = disk_chart(profile).to_dict()
    assert [panel["encoding"]["y"]["title"] for panel in drawn["vconcat"]] == ["Reads per second", "Writes per second"]
    with pytest.raises(RankingError, match="disk operations"):
        disk_chart(validated("a", 1.0))


def test_peaks_of_disk_operations_stay_in_a_long_chart() -> None:
    reads = tuple(18_000.0 if number == 1001 else 1.0 for number in range(4000))
    usage = Usage(
        interval_seconds=1.0, limits=Limits(cores=2), seconds=tuple(map(float, range(4000))),
        phase=("steady_steps",) * 4000, series={"disk_read_operations_per_second": reads},
    )  # fmt: skip
    drawn = disk_chart(validated("a", 1.0).model_copy(update={"usage": usage})).to_dict()
    points = max(drawn["datasets"].values(), key=len)
    assert len(points) == 1000
    assert [point["seconds"] for point in points if point["operations"] > 1] == [1001.0]


def test_a_confusion_matrix_is_drawn_with_the_quality_of_each_class() -> None:
    metrics = vs.stats.classification_metrics({"ill": {"ill": 9, "well": 1}, "well": {"ill": 2, "well": 8}})
    profile = vs.Profile.from_times(iteration_seconds=0.1, metrics=metrics)
    points = confusion_points(profile.metrics)
    assert points[["true", "given", "count"]].to_numpy().tolist()[:2] == [["ill", "ill", 9.0], ["ill", "well", 1.0]]
    assert points["share"].tolist() == [0.9, 0.1, 0.2, 0.8]
    bars = max(classes_chart(profile).to_dict()["datasets"].values(), key=len)
    assert {(row["class"], row["metric"]) for row in bars} >= {("ill", "precision"), ("well", "f1")}
    with pytest.raises(RankingError, match="confusion matrix"):
        classes_chart(vs.Profile.from_times(iteration_seconds=0.1))
