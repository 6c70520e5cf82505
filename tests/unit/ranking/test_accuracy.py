"""Real against estimated: rows, errors, order and regret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scipy import stats

import vmselect as vs
from tests.support.profiles import make_epoch_profile
from tests.support.rankings import LAB, rank
from vmselect.errors import ArgumentError, RankingError
from vmselect.records import Epoch
from vmselect.scoring.score import kendall_tau

TIMES = {"small": 10.0, "big": 6.0, "same": 8.0}


def probes(**changes: Any) -> list[vs.Profile]:
    return [make_epoch_profile(name, seconds, **({"provider": "lab"} | changes)) for name, seconds in TIMES.items()]


def real(name: str, *seconds: float, **changes: Any) -> vs.Profile:
    fields = {"batch_size": 64, "epochs": 10, "provider": "lab"} | changes
    return vs.Profile.from_times(instance_type=name, total_seconds=seconds, **fields)


def test_estimates_are_compared_with_the_mean_of_the_runs() -> None:
    accuracy = rank(probes(region="here")).against([real("small", 95.0, 105.0), real("big", 50.0), real("same", 160.0)])
    rows = {row.instance_type: row for row in accuracy}
    assert [(rows[name].runs, rows[name].inside) for name in TIMES] == [(2, True), (1, False), (1, False)]
    assert [rows[name].error_percent for name in TIMES] == pytest.approx([0, 20, -50])
    assert (accuracy.mean_error_percent, accuracy.coverage) == (pytest.approx(70 / 3), pytest.approx(1 / 3))
    assert (rows["big"].real_cost_usd, rows["big"].cost_usd) == pytest.approx((50 / 1200, 60 / 1200))
    # Estimated order by time: big, same, small. Real order: big, small, same.
    assert accuracy.kendall_tau["time"] == pytest.approx(1 / 3)
    assert accuracy.regret == {"time": 0.0, "cost": pytest.approx(0.6)}
    plain = json.loads(accuracy.to_json())
    assert plain["rows"][0]["real_seconds"] == 50.0
    assert list(accuracy.to_frame()["epochs"]) == [10, 10, 10]


def test_every_number_of_epochs_has_its_own_estimate() -> None:
    accuracy = rank(probes()).against([real("small", 50.0, epochs=5), real("small", 300.0, epochs=30)])
    assert [row.seconds for row in accuracy] == pytest.approx([50, 300])
    assert accuracy.kendall_tau == accuracy.regret == {"time": None, "cost": None}


def test_trainings_without_an_estimate_are_named() -> None:
    accuracy = rank(probes()).against([real("small", 100.0), real("other", 1.0), real("big", 1.0, factors={"x": 1})])
    assert ([row.instance_type for row in accuracy], len(accuracy.excluded)) == (["small"], 2)
    with pytest.raises(RankingError):
        rank(probes()).against(real("other", 1.0))
    with pytest.raises(RankingError):
        rank(probes()).against([])


def test_only_other_whole_trainings_test_an_estimate() -> None:
    with pytest.raises(ArgumentError, match="total"):
        rank(probes()).against(make_epoch_profile("small", 10.0))
    timeline = {"fit_seconds": 99.0, "epochs": tuple(Epoch(epoch=n, seconds=9.9) for n in range(10))}
    watched = make_epoch_profile("small", 9.9, outcome="watched", timeline=timeline, provider="lab")
    assert rank(probes()).against(watched).rows[0].real_seconds == 99.0
    with pytest.raises(ArgumentError, match="does not test"):
        rank([*probes()[1:], watched]).against(watched)


def test_a_study_predicts_the_number_of_epochs_too() -> None:
    study = vs.ConvergenceStudy.from_epochs({64: [20, 20]})
    accuracy = vs.rank(probes(), epochs=study, catalog=LAB).against(
        [real("small", 160.0, epochs=16), real("big", 120.0)]
    )
    assert [row.seconds for row in accuracy] == pytest.approx([120, 200])
    assert accuracy.kendall_tau["time"] == 1.0


@pytest.mark.parametrize("pairs", [[(1, 2), (2, 1), (3, 3)], [(1, 1), (1, 2), (3, 3), (4, 0)]])
def test_tau_is_that_of_scipy(pairs: list[tuple[float, float]]) -> None:
    assert kendall_tau(pairs) == pytest.approx(stats.kendalltau(*zip(*pairs, strict=True)).statistic)
    assert kendall_tau([(1, 1), (1, 2)]) is None


def test_the_chart_has_a_pair_of_bars_per_training() -> None:
    pytest.importorskip("altair")
    from vmselect.report.ranking_charts import accuracy_points

    accuracy = rank(probes()).against([real("small", 100.0), real("small", 55.0, epochs=5)])
    points = accuracy_points(accuracy)
    assert points["kind"].tolist() == ["real", "estimate"] * 2
    assert points["training"].nunique() == 2
    assert accuracy.chart().to_dict()["layer"]
