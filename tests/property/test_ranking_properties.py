"""What must hold of every ranking, whatever the machines, prices and settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from priced import sell

Machines = list[tuple[float, float, float]]
"""Intercept and slope of the runtime, and price."""

machines = st.lists(st.tuples(st.floats(0, 1e4), st.floats(1e-3, 1e3), st.floats(0.01, 100)), min_size=1, max_size=6)
weights = st.floats(0, 1)
EPOCHS = [3, 17]


def rank(given_machines: Machines, *, order: list[int] | None = None, **options: Any) -> vs.Ranking:
    profiles = [
        vs.Profile.from_times(
            instance_type=f"m{i}", batch_size=8, init_seconds=a, first_epoch_seconds=b, later_epoch_seconds=[b]
        )
        for i, (a, b, _) in enumerate(given_machines)
    ]
    catalog = sell(on_demand=[price for _, _, price in given_machines]).where(billing=options.pop("billing", None))
    chosen = [profiles[i] for i in order] if order else profiles
    return vs.rank(chosen, **({"epochs": EPOCHS, "catalog": catalog} | options))


def mixed(weight: float) -> dict[str, float]:
    return {"cost": weight, "time": 1 - weight}


def positions(ranking: vs.Ranking) -> dict[str, int]:
    return {row.instance_type: row.rank for row in ranking.deciding_rows}


@settings(max_examples=30, deadline=None)
@given(machines, weights, st.randoms(use_true_random=False))
def test_permuting_profiles_changes_nothing(given_machines: Machines, weight: float, random: Any) -> None:
    order = list(range(len(given_machines)))
    random.shuffle(order)
    one = rank(given_machines, objective=mixed(weight))
    other = rank(given_machines, order=order, objective=mixed(weight))
    assert list(one) == list(other)
    assert one.verdict == other.verdict


@settings(max_examples=30, deadline=None)
@given(machines, weights, st.data())
def test_adding_a_dominated_candidate_never_changes_the_winner(
    given_machines: Machines, weight: float, data: st.DataObject
) -> None:
    before = rank(given_machines, objective=mixed(weight))
    a, b, price = given_machines[data.draw(st.integers(0, len(given_machines) - 1))]
    worse = (a + data.draw(st.floats(0.1, 100)), b * 1.01, price * data.draw(st.floats(1, 3)))
    after = rank([*given_machines, worse], objective=mixed(weight))
    assert min(row.score for row in after) == min(row.score for row in before)
    assert after.best.instance_type == before.best.instance_type


@settings(max_examples=30, deadline=None)
@given(machines, weights, st.floats(1, 10), st.data())
def test_raising_a_price_never_improves_that_candidate(
    given_machines: Machines, weight: float, factor: float, data: st.DataObject
) -> None:
    which = data.draw(st.integers(0, len(given_machines) - 1))
    a, b, price = given_machines[which]
    dearer = [*given_machines]
    dearer[which] = (a, b, min(price * factor, 1e5))
    before, after = rank(given_machines, objective=mixed(weight)), rank(dearer, objective=mixed(weight))
    assert positions(after)[f"m{which}"] >= positions(before)[f"m{which}"]
    was, is_now = (
        next(row.chance for row in one.deciding_rows if row.instance_type == f"m{which}") for one in (before, after)
    )
    assert is_now <= was + 1e-9


@settings(max_examples=30, deadline=None)
@given(machines)
def test_extreme_weights_equal_the_single_objectives(given_machines: Machines) -> None:
    assert list(rank(given_machines, objective=mixed(1))) == list(rank(given_machines, objective="cost"))
    assert list(rank(given_machines, objective=mixed(0))) == list(rank(given_machines, objective="time"))


@settings(max_examples=30, deadline=None)
@given(machines, weights)
def test_the_pareto_front_holds_every_winner_and_nothing_dominated(given_machines: Machines, weight: float) -> None:
    for objective in ("cost", "time", mixed(min(max(weight, 0.01), 0.99))):
        ranking = rank(given_machines, objective=objective)
        front = ranking.pareto
        assert ranking.best in front
        decided = [row for row in ranking if row.epochs == EPOCHS[-1]]
        for row in decided:
            beaten = any(
                (o.seconds <= row.seconds and o.cost_usd < row.cost_usd)
                or (o.seconds < row.seconds and o.cost_usd <= row.cost_usd)
                for o in decided
            )
            assert row.pareto == (not beaten)


@settings(max_examples=30, deadline=None)
@given(machines, weights)
def test_scores_start_at_the_best_and_intervals_hold_their_value(given_machines: Machines, weight: float) -> None:
    ranking = rank(given_machines, objective=mixed(weight), market="all", billing="provider")
    for row in ranking:
        assert row.score >= 1 - 1e-12
        assert row.seconds_low <= row.seconds <= row.seconds_high
        assert row.cost_low <= row.cost_usd <= row.cost_high
    scores = [row.score for row in ranking.deciding_rows]
    assert scores == sorted(scores)
    assert ranking.best.tied_with_best


@settings(max_examples=25, deadline=None)
@given(machines, st.floats(0.001, 20), st.floats(0.001, 20))
def test_every_candidate_is_ranked_or_excluded_never_both(
    given_machines: Machines, deadline_hours: float, budget_usd: float
) -> None:
    ranking = rank(given_machines, deadline_hours=deadline_hours, budget_usd=budget_usd)
    assert len(ranking) + len(ranking.excluded) == len(given_machines) * len(EPOCHS)
    for row in ranking:
        assert row.seconds <= deadline_hours * 3600
        assert row.cost_usd <= budget_usd


def test_what_ranks_first_has_the_score_of_one_under_a_single_objective() -> None:
    assert rank([(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)]).best.score == pytest.approx(1.0)
