"""Of every selection: more epochs are never cheaper, an excluded size never wins, order changes nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs

PRICES = vs.Catalog.embedded("2026-08-22")
MACHINES = ("g4dn.xlarge", "g5.xlarge", "g6.xlarge")
SIZES = (32, 64, 128)

steps = st.lists(st.floats(0.001, 5.0), min_size=9, max_size=9)
epochs = st.lists(st.floats(1, 300), min_size=3, max_size=3)
metrics = st.lists(st.floats(0, 1), min_size=3, max_size=3)
objectives = st.sampled_from(["cost", "time", {"cost": 0.6, "time": 0.4}])


def profiles(seconds: list[float]) -> list[vs.Profile]:
    pairs = [(machine, size) for machine in MACHINES for size in SIZES]
    return [
        vs.Profile.from_times(
            instance_type=machine, batch_size=size, steps_per_epoch=6_400 // size, iteration_seconds=[step] * 3
        )
        for (machine, size), step in zip(pairs, seconds, strict=True)
    ]


def study(counts: list[float], values: list[float]) -> vs.ConvergenceStudy:
    return vs.ConvergenceStudy.from_epochs(
        dict(zip(SIZES, counts, strict=True)), metrics=dict(zip(SIZES, values, strict=True))
    )


def summary(selection: Any) -> list[tuple[Any, ...]]:
    return [(r.instance_type, r.batch_size, r.epochs, r.seconds, r.seconds_low, r.seconds_high, r.cost_usd, r.score)
            for r in selection]  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(steps, epochs, metrics, st.integers(0, 2), st.floats(1, 100))
def test_more_epochs_are_never_cheaper_nor_faster(
    seconds: list[float], counts: list[float], values: list[float], which: int, more: float
) -> None:
    longer = [count + more if k == which else count for k, count in enumerate(counts)]
    before, after = (
        {(r.instance_type, r.batch_size): r for r in vs.rank(profiles(seconds), epochs=known, catalog=PRICES)}
        for known in (study(counts, values), study(longer, values))
    )
    for pair, row in before.items():
        assert after[pair].cost_usd >= row.cost_usd
        assert after[pair].seconds >= row.seconds
        assert after[pair].seconds_high >= row.seconds_high


@settings(max_examples=30, deadline=None)
@given(steps, epochs, metrics, st.floats(0, 1), objectives)
def test_a_size_excluded_by_the_required_metric_never_wins(
    seconds: list[float], counts: list[float], values: list[float], minimum: float, objective: Any
) -> None:
    selection = vs.rank(
        profiles(seconds), epochs=study(counts, values).require(minimum), catalog=PRICES, objective=objective
    )
    allowed = {size for size, value in zip(SIZES, values, strict=True) if value >= minimum}
    assert {row.batch_size for row in selection} == allowed
    assert len(selection) == len(MACHINES) * len(allowed)


@settings(max_examples=30, deadline=None)
@given(steps, epochs, metrics, objectives, st.randoms())
def test_permutations_change_nothing(
    seconds: list[float], counts: list[float], values: list[float], objective: Any, random: Any
) -> None:
    made, known = profiles(seconds), study(counts, values)
    shuffled, runs = list(made), list(known.runs)
    random.shuffle(shuffled)
    random.shuffle(runs)
    once = vs.rank(made, epochs=known, catalog=PRICES, objective=objective)
    again = vs.rank(shuffled, epochs=vs.ConvergenceStudy.of(runs), catalog=PRICES, objective=objective)
    assert summary(once) == summary(again)
