"""The order of candidates and the Pareto front."""

from __future__ import annotations

import numpy as np
import pytest

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_profile
from tests.support.rankings import probe, rank
from vmselect.ranking.decision import _sort, pareto_front


def test_one_candidate_is_the_best_one() -> None:
    ranking = rank(probe())
    assert (ranking.best.score, ranking.best.pareto, ranking.best.tied_with_best, len(ranking)) == (1.0, True, True, 1)
    assert ranking.crossovers("cost") == ()
    assert ranking.tables.settled_from("cost") == 1


def test_identical_candidates_are_tied_and_both_on_the_front() -> None:
    ranking = rank([probe("same"), probe("small")])
    assert [(row.score, row.tied_with_best, row.pareto) for row in ranking] == [(1.0, True, True)] * 2


def test_the_best_estimate_is_recommended_whatever_other_measures_are() -> None:
    catalog = prices(("quick", 100.0), ("cheap", 1.0))
    pair = [
        make_profile(name, seconds, steps=5, steps_per_epoch=1000, init_seconds=0.0, first_iteration_seconds=seconds)
        for name, seconds in (("quick", 0.1), ("cheap", 0.101))
    ]
    ranking = rank(pair, catalog=catalog, objective="time")
    assert all(row.tied_with_best for row in ranking)
    assert [row.instance_type for row in ranking] == ["quick", "cheap"]


def test_rounding_puts_no_winner_off_the_front() -> None:
    catalog = prices(("a", 0.010000000000000002), ("b", 0.01))
    ranking = rank([probe("a"), probe("b")], catalog=catalog, objective="time", epochs=range(1, 60))
    assert all(row.pareto for row in ranking if row.rank == 1)
    # With the prices as they are, some epoch counts distinguish the two and some do not.
    assert {row.instance_type for row in ranking if row.rank == 1} == {"a", "b"}


@pytest.mark.parametrize(
    ("seconds", "cost", "front"),
    [
        ([1.0, 1.0], [2.0, 2.0], [True, True]),
        ([1.0, 2.0], [2.0, 2.0], [True, False]),
        ([1.0, 1.0], [2.0, 3.0], [True, False]),
        ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [True, True, True]),
        ([1.0, 2.0, 2.0, 3.0], [3.0, 2.0, 2.0, 2.0], [True, True, True, False]),
        ([3.0, 1.0, 1.0, 2.0, 1.0, 5.0], [1.0, 4.0, 4.0, 4.0, 5.0, 1.0], [True, True, True, False, False, False]),
        ([], [], []),
    ],
)
def test_no_point_beats_the_front_in_both(seconds: list[float], cost: list[float], front: list[bool]) -> None:
    assert pareto_front(np.array(seconds), np.array(cost)).tolist() == front


def test_machines_share_the_epochs_of_a_batch_size_so_these_make_no_tie() -> None:
    study = vs.ConvergenceStudy.from_epochs({64: [5, 30]})
    first, second = rank([probe("small", 0.1), probe("big", 0.05)], epochs=study, objective="time").rows
    assert second.seconds_low < first.seconds_high
    assert not second.tied_with_best


def test_batch_sizes_whose_mean_epochs_may_be_alike_are_tied() -> None:
    study = vs.ConvergenceStudy.from_epochs({256: 10, 512: 11})
    sizes = [probe(step_seconds=0.001 * size, batch_size=size, steps_per_epoch=40_960 // size) for size in (256, 512)]
    assert [row.tied_with_best for row in rank(sizes, epochs=study)] == [True, True]


@pytest.mark.parametrize("levels", [2, 5, 10**6])
def test_equal_scores_are_ordered_by_the_measures_and_then_by_position(levels: int) -> None:
    random = np.random.default_rng(levels)
    scores, cost, time = (1.0 + random.integers(0, levels, 200) for _ in range(3))
    whole = 0.5 * (cost / 2.0) + 0.5 * (time / 3.0)
    expected = np.lexsort((time, cost, whole, scores))
    assert np.array_equal(_sort(scores, {"cost": cost, "time": time}, {"cost": 2.0, "time": 3.0}), expected)
