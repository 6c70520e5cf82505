"""The cost of choosing, against running everything to its end."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile, make_profile
from tests.support.rankings import rank, rank_epochs
from vmselect.ranking import MethodologyCost, SelectionCost

CATALOG = prices(("a", 2.0), ("b", 4.0))
STUDY = vs.ConvergenceStudy.from_epochs(
    {128: [10, 12], 256: [13, 12], 512: [20, 18]}, metrics={128: 0.98, 256: 0.97, 512: 0.93}
)


def sized(*sizes: int, names: Sequence[str] = "ab") -> list[vs.Profile]:
    """Probes of 3 s of initialization, 2 s of the first step and 10 steps, a thousandth of a second per example."""
    return [
        make_profile(
            name, size / 1000, steps=10, batch_size=size, steps_per_epoch=40_960 // size, init_seconds=3.0,
            first_iteration_seconds=2.0,
        )
        for name in names
        for size in sizes
    ]  # fmt: skip


def cost_of(profiles: list[vs.Profile], study: vs.ConvergenceStudy = STUDY, **options: Any) -> MethodologyCost:
    cost = vs.rank(profiles, epochs=study, catalog=CATALOG, **options).selection_cost()
    assert isinstance(cost, MethodologyCost)
    return cost


def test_the_fraction_is_the_share_of_the_exhaustive_cost() -> None:
    sums = {"probe_seconds": 1.0, "probe_usd": 2.0, "exhaustive_seconds": 1.0, "exhaustive_usd": 8.0}
    assert SelectionCost(**sums).fraction == 0.25
    assert MethodologyCost(**sums, study_seconds=1.0, study_usd=4.0).fraction == 0.75
    assert math.isnan(SelectionCost(**(sums | {"exhaustive_usd": 0.0})).fraction)


def test_probes_are_weighed_against_full_runs_as_often_as_measured() -> None:
    profiles = [make_profile(name, steps=40, steps_per_epoch=1000, init_seconds=5.0) for name in ("a", "a", "b")]
    spent = rank(profiles, catalog=CATALOG).selection_cost()
    assert spent.probe_seconds == pytest.approx(3 * (5 + 1 + 4))
    assert spent.probe_usd == pytest.approx((20 * 2 + 10 * 4) / 3600)
    full = 5 + 1 + 0.1 * 9999
    assert spent.exhaustive_seconds == pytest.approx(3 * full)
    assert spent.exhaustive_usd == pytest.approx((2 * full * 2 + full * 4) / 3600)
    assert spent.fraction == pytest.approx(10 / full)
    assert spent.without_times == ()


@pytest.mark.parametrize(
    ("times", "timeline", "seconds"),
    [
        ({"validation_seconds": [3.0, 1.0], "first_iteration_seconds": 2.0}, {}, 8.0),
        ({"iteration_seconds": None, "first_epoch_seconds": 5.0, "later_epoch_seconds": [4.0]}, {}, 9.0),
        ({"init_seconds": 1.0}, {"fit_to_first_batch_seconds": 0.25}, 3.25),
        ({}, {"fit_seconds": 20.0}, 20.0),
        ({"init_seconds": 1.5}, {"fit_seconds": 20.0}, 21.5),
    ],
)
def test_a_probe_takes_its_fit_or_the_sum_of_its_parts(times: Any, timeline: Any, seconds: float) -> None:
    given = {"init_seconds": None, "first_iteration_seconds": None} | times
    method = "malta-epoch" if "first_epoch_seconds" in times else "robust"
    ranking = rank([make_profile("a", 0.5, steps=4, timeline=timeline, **given)], catalog=CATALOG, method=method)
    assert ranking.candidates.machine_estimates[0].probe_seconds == pytest.approx(seconds)


def test_a_machine_without_a_price_is_in_no_sum() -> None:
    both = [make_epoch_profile("a", 360.0), make_epoch_profile("unpriced", 360.0)]
    spent = rank_epochs(both, CATALOG).selection_cost()
    assert (spent.exhaustive_seconds, spent.exhaustive_usd) == pytest.approx((3600.0, 2.0))
    assert rank_epochs(both[1:], CATALOG).selection_cost().exhaustive_usd == 0.0


def test_with_a_study_its_trainings_and_the_probes_are_weighed_against_every_pair() -> None:
    cost = cost_of(sized(128, names="a"), vs.ConvergenceStudy.from_epochs({128: [10, 12]}))
    assert cost.probe_seconds == pytest.approx(3.0 + 2.0 + 1.28)
    assert cost.probe_usd == pytest.approx(6.28 / 3600 * 2.0)
    whole = 3.0 + 2.0 + 0.128 * (40_960 // 128 * 11 - 1)
    assert cost.exhaustive_seconds == pytest.approx(2 * whole)  # as often as the study trained at that size
    assert cost.exhaustive_usd == pytest.approx(2 * whole / 3600 * 2.0)
    assert cost.without_times == ("study, batch 128",)  # the time of its trainings is not known
    assert (cost.study_seconds, cost.study_usd) == (0.0, 0.0)
    run = STUDY.runs[0].model_copy(update={"fit_seconds": 3600.0, "instance_type": "b"})
    priced = cost_of(sized(128, 256, 512), vs.ConvergenceStudy.of([run, *STUDY.runs[1:]]))
    assert priced.study_usd == pytest.approx(4.0)
    assert priced.fraction == pytest.approx((4.0 + priced.probe_usd) / priced.exhaustive_usd)


def test_a_selection_with_a_machine_without_a_price_has_a_cost_and_json() -> None:
    selection = vs.rank(sized(128, names=("a", "unpriced")), epochs=STUDY, catalog=CATALOG)
    assert selection.selection_cost().probe_usd == pytest.approx(6.28 / 3600 * 2.0)
    assert json.loads(selection.to_json())["study"]


def test_the_cost_of_choosing_does_not_depend_on_what_is_excluded_then() -> None:
    everything = cost_of(sized(128, 256, 512))
    for metric in (0.965, 0.999):
        assert cost_of(sized(128, 256, 512), STUDY.require(metric)) == everything
    assert cost_of(sized(128, 256, 512), budget_usd=0.001) == everything
    between = cost_of(sized(128, 256, 512), batch_size=[200])
    assert between.probe_usd == everything.probe_usd
    assert 0 < between.exhaustive_usd < everything.exhaustive_usd


def test_pairs_whose_epochs_are_unknown_are_in_no_exhaustive_cost() -> None:
    near = cost_of(sized(128, 512), batch_size=[128, 512])
    far = cost_of(sized(128, 512, 2048), batch_size=[128, 512, 2048])
    assert far.exhaustive_usd == pytest.approx(near.exhaustive_usd)
    assert far.probe_usd > near.probe_usd
