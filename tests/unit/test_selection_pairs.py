"""vs.select: which pairs there are, in what order, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, RankingError

PRICES = vs.Catalog.embedded("2026-08-22")
EXAMPLES = 40_960


def profile(
    machine: str = "g4dn.xlarge", batch_size: int = 256, per_example: float = 1e-3, **options: Any
) -> vs.Profile:
    step = 0.02 + per_example * batch_size
    given = {"iteration_seconds": [step] * 12, "first_iteration_seconds": 2.0, "init_seconds": 1.0} | options
    return vs.Profile.from_times(
        instance_type=machine, batch_size=batch_size, steps_per_epoch=EXAMPLES // batch_size, **given
    )


def machines(*sizes: int) -> list[vs.Profile]:
    speeds = {"g4dn.xlarge": 1e-3, "g5.xlarge": 4e-4}
    return [profile(name, size, speed) for name, speed in speeds.items() for size in sizes]


STUDY = vs.ConvergenceStudy.from_epochs(
    {128: [10, 11], 256: [13, 12], 512: [20, 18]}, metrics={128: 0.98, 256: 0.97, 512: 0.93}
)


def test_every_pair_is_ranked_with_the_epochs_of_its_batch_size() -> None:
    selection = vs.select(machines(128, 256, 512), STUDY, catalog=PRICES)
    assert isinstance(selection, vs.Ranking)
    assert len(selection) == 6
    assert {(row.batch_size, row.epochs) for row in selection} == {(128, 10.5), (256, 12.5), (512, 19)}
    for row in selection:
        assert sum(row.terms.values()) == pytest.approx(row.seconds)
        assert row.seconds_low < row.seconds < row.seconds_high
    costs = [row.cost_usd for row in selection]
    assert costs == sorted(costs)


def test_the_interval_holds_both_uncertainties() -> None:
    sure = vs.ConvergenceStudy.from_epochs({256: [13] * 30})
    unsure = vs.ConvergenceStudy.from_epochs({256: [6, 20]})
    narrow, wide = (vs.select(profile(), study, catalog=PRICES).best for study in (sure, unsure))
    assert narrow.seconds == wide.seconds
    assert wide.seconds_high - wide.seconds_low > narrow.seconds_high - narrow.seconds_low
    fixed = vs.rank(profile(), epochs=13, catalog=PRICES).best
    assert narrow.seconds_high > fixed.seconds_high


def test_mean_epochs_are_written_for_people() -> None:
    study = vs.ConvergenceStudy.from_epochs({256: [18, 18, 19]})
    best = vs.select(profile(), study, catalog=PRICES).best
    assert best.epochs == pytest.approx(55 / 3)
    assert ": 18.3 epochs in " in str(best)
    late = vs.select(profile(), study, catalog=PRICES, deadline_hours=1e-5)
    assert late.excluded[0].reason.startswith("18.3 epochs take")


def test_a_size_without_a_probe_is_interpolated_and_says_so() -> None:
    selection = vs.select(machines(128, 512), STUDY, catalog=PRICES)
    between = [row for row in selection if row.batch_size == 256]
    assert len(between) == 2
    assert all("batch-size-interpolated" in {f.code for f in row.findings} for row in between)
    measured = vs.select(machines(128, 256, 512), STUDY, catalog=PRICES)
    truth = {row.instance_type: row.seconds for row in measured if row.batch_size == 256}
    assert all(row.seconds == pytest.approx(truth[row.instance_type], rel=1e-3) for row in between)


def test_a_size_without_a_study_is_interpolated_too() -> None:
    study = vs.ConvergenceStudy.from_epochs({128: 10, 512: 20})
    (row,) = vs.select(machines(256)[:1], study, catalog=PRICES, batch_size=256)
    assert 10 < row.epochs < 20


def test_sizes_too_far_from_the_study_are_left_out() -> None:
    selection = vs.select(machines(128, 2048), STUDY, catalog=PRICES)
    assert 2048 not in selection.batch_sizes
    assert {e.reason_code for e in selection.excluded if "2048" in e.candidate} == {"epochs_unknown"}


def test_a_size_that_ran_out_of_memory_is_left_out_on_that_machine_alone() -> None:
    failed = profile("g4dn.xlarge", 512).model_copy(update={"outcome": "out_of_memory"})
    profiles = [p for p in machines(128, 256, 512) if (p.instance_type, p.batch_size) != ("g4dn.xlarge", 512)]
    selection = vs.select([*profiles, failed], STUDY, catalog=PRICES)
    assert [(row.instance_type, row.batch_size) for row in selection if row.batch_size == 512] == [("g5.xlarge", 512)]
    assert [e.reason_code for e in selection.excluded] == ["out_of_memory"]


def test_the_minimum_metric_excludes_batch_sizes_and_shows_the_metric() -> None:
    selection = vs.select(machines(128, 256, 512), STUDY, catalog=PRICES, objective="time", minimum_metric=0.965)
    assert selection.batch_sizes == (128, 256)
    assert {e.reason_code for e in selection.excluded} == {"below_minimum_metric"}
    assert set(selection.to_frame()["metric"]) == {0.98, 0.97}
    named = vs.select(machines(128, 256, 512), STUDY, catalog=PRICES, minimum_metric={"val_accuracy": 0.965})
    assert named.batch_sizes == selection.batch_sizes


def test_a_minimum_that_nothing_reaches_is_nothing_feasible_with_reasons() -> None:
    selection = vs.select(machines(128, 256), STUDY, catalog=PRICES, minimum_metric=0.999)
    assert not selection
    with pytest.raises(RankingError, match="below minimum metric"):
        _ = selection.best


def test_a_metric_that_should_fall_is_bounded_from_above() -> None:
    study = vs.ConvergenceStudy.from_epochs(
        {128: 5, 256: 5}, metrics={128: 0.1, 256: 0.3}, monitor="val_loss", mode="min"
    )
    assert vs.select(machines(128, 256), study, catalog=PRICES, minimum_metric=0.2).batch_sizes == (128,)


def test_epochs_are_shared_by_the_machines_of_a_batch_size_so_they_make_no_tie() -> None:
    study = vs.ConvergenceStudy.from_epochs({256: [5, 30]})
    slow, fast = profile("g4dn.xlarge", 256, 1e-3), profile("g5.xlarge", 256, 4e-4)
    selection = vs.select([slow, fast], study, catalog=PRICES, objective="time")
    first, second = selection.rows
    assert second.seconds_low < first.seconds_high
    assert not second.tied_with_best


def test_batch_sizes_whose_mean_epochs_may_be_alike_are_tied() -> None:
    study = vs.ConvergenceStudy.from_epochs({256: 10, 512: 11})
    selection = vs.select(machines(256, 512)[:2], study, catalog=PRICES)
    assert all(row.tied_with_best for row in selection)


def test_what_choosing_cost() -> None:
    cost = vs.select(machines(128, 256, 512), STUDY, catalog=PRICES).selection_cost()
    assert cost.study_usd == 0  # times of the study's runs are not known here, which is told
    assert cost.without_times == ("study, batch 128", "study, batch 256", "study, batch 512")
    assert 0 < cost.probe_usd < cost.exhaustive_usd
    assert cost.fraction == pytest.approx(cost.total_usd / cost.exhaustive_usd)
    run = STUDY.runs[0].model_copy(update={"fit_seconds": 3600.0, "instance_type": "g4dn.xlarge"})
    study = vs.ConvergenceStudy.of([run, *STUDY.runs[1:]])
    priced = vs.select(machines(128, 256, 512), study, catalog=PRICES).selection_cost()
    assert priced.study_usd == pytest.approx(PRICES.price("g4dn.xlarge"))


def test_what_choosing_cost_does_not_depend_on_what_is_then_left_out() -> None:
    everything = vs.select(machines(128, 256, 512), STUDY, catalog=PRICES).selection_cost()
    for choice in ({"minimum_metric": 0.965}, {"minimum_metric": 0.999}, {"budget_usd": 0.001}):
        assert vs.select(machines(128, 256, 512), STUDY, catalog=PRICES, **choice).selection_cost() == everything
    between = vs.select(machines(128, 256, 512), STUDY, catalog=PRICES, batch_size=[200]).selection_cost()
    assert between.probe_usd == everything.probe_usd
    assert 0 < between.exhaustive_usd < everything.exhaustive_usd


def test_what_is_left_out_is_said_once_and_as_part_of_a_sentence() -> None:
    failed = profile("g4dn.xlarge", 256).model_copy(update={"outcome": "out_of_memory"})
    given = [profile("g4dn.xlarge", 128), failed, *machines(128, 256, 512)[3:]]
    told = [str(excluded) for excluded in vs.select(given, STUDY, catalog=PRICES).excluded]
    assert told == [
        "g4dn.xlarge, batch 256: the training ran out of memory",
        "g4dn.xlarge, batch 512: a training with batch size 256 ran out of memory. Use a smaller batch size",
    ]
    alone = vs.select(profile("my-pc", 128), STUDY, catalog=PRICES)
    assert ".." not in alone.verdict


def test_other_metrics_that_should_fall_are_bounded_from_above() -> None:
    runs = [
        run.model_copy(update={"metrics": {"val_accuracy": 0.9, "val_mae": run.batch_size / 1000}})
        for run in STUDY.runs
    ]
    study = vs.ConvergenceStudy.of(runs)
    selection = vs.select(machines(128, 256, 512), study, catalog=PRICES, minimum_metric={"val_mae": 0.2})
    assert selection.batch_sizes == (128,)


def test_the_payload_carries_the_study_and_reranking_keeps_it() -> None:
    selection = vs.select(machines(128, 256), STUDY, catalog=PRICES, minimum_metric=0.9)
    plain = json.loads(selection.to_json())
    assert [row["batch_size"] for row in plain["study"]["sizes"]] == [128, 256, 512]
    assert plain["study"]["monitor"] == "val_accuracy"
    assert plain["study"]["demands"] == {"val_accuracy": 0.9}
    assert plain["machines"][0]["epochs"][0] == 10.5
    again = selection.rerank(objective="time")
    assert again.study is STUDY
    assert again.best.seconds <= selection.best.seconds
    with pytest.raises(ArgumentError, match="come from the study"):
        selection.rerank(epochs=5)
    assert "epochs until val_accuracy stabilizes" in str(selection)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"study": {256: 13}}, ArgumentError, "ConvergenceStudy.load"),
        ({"minimum_metric": {"val_f1": 0.5}}, ArgumentError, "val_f1"),
        ({"minimum_metric": "high"}, ArgumentError, "must be a finite number"),
        ({"study": vs.ConvergenceStudy.from_epochs({256: 13}, model="other")}, RankingError, "another model"),
        ({"study": vs.ConvergenceStudy.from_epochs({8192: 13})}, RankingError, "No batch size is common"),
        ({"batch_size": 5000}, RankingError, "Batch size 5000 cannot be estimated"),
        (
            {"profiles": profile().model_copy(update={"outcome": "out_of_memory"})},
            RankingError,
            r"No profile gives.*ran out of memory",
        ),
        ({"batch_size": 0}, ArgumentError, "batch_size"),
        ({"profiles": []}, RankingError, "no profiles"),
    ],
)
def test_bad_input_is_a_clear_error(change: dict[str, Any], error: type[Exception], words: str) -> None:
    given: dict[str, Any] = {"profiles": profile(model="mine"), "study": STUDY, "catalog": PRICES} | change
    with pytest.raises(error, match=words):
        vs.select(given.pop("profiles"), given.pop("study"), **given)


@pytest.mark.parametrize(("size", "known"), [(63, False), (64, True), (1024, True), (1025, False)])
def test_epochs_are_told_from_half_the_smallest_size_to_twice_the_largest(size: int, known: bool) -> None:
    selection = vs.select(machines(64, 128, 512, 1024), STUDY, catalog=PRICES, batch_size=[256, size])
    assert (size in selection.batch_sizes) is known
    if not known:
        reasons = {excluded.reason_code: excluded.reason for excluded in selection.excluded}
        assert reasons["epochs_unknown"] == (
            f"the study has epochs for batch sizes 128 to 512; train at {size} to extend it"
        )


@pytest.mark.parametrize(
    ("demand", "sizes"), [(0.97, (128, 256)), (0.9701, (128,)), (0.93, (128, 256, 512)), (0.98, (128,))]
)
def test_a_demand_may_be_met_exactly(demand: float, sizes: tuple[int, ...]) -> None:
    assert vs.select(machines(128, 256, 512), STUDY, catalog=PRICES, minimum_metric=demand).batch_sizes == sizes


def test_what_choosing_cost_in_numbers() -> None:
    runs = vs.ConvergenceStudy.from_epochs({128: [10, 12]})
    lone = profile("g4dn.xlarge", 128, iteration_seconds=[0.5] * 10, first_iteration_seconds=2.0, init_seconds=3.0)
    selection = vs.select(lone, runs, catalog=PRICES)
    cost, price = selection.selection_cost(), PRICES.price("g4dn.xlarge")
    assert cost.probe_seconds == pytest.approx(3.0 + 2.0 + 5.0)
    assert cost.probe_usd == pytest.approx(10.0 / 3600 * price)
    whole = 3.0 + 2.0 + 0.5 * (EXAMPLES // 128 * 11 - 1)
    assert cost.exhaustive_seconds == pytest.approx(2 * whole)  # as often as the study trained at that size
    assert cost.exhaustive_usd == pytest.approx(2 * whole / 3600 * price)
    assert cost.without_times == ("study, batch 128",)  # how long its trainings took is not known
    assert (cost.study_seconds, cost.study_usd) == (0.0, 0.0)  # type: ignore[attr-defined]
    assert cost.fraction == pytest.approx(cost.probe_usd / cost.exhaustive_usd)


def test_pairs_whose_epochs_nobody_knows_are_not_what_choosing_is_weighed_against() -> None:
    near = vs.select(machines(128, 512), STUDY, catalog=PRICES, batch_size=[128, 512]).selection_cost()
    probes = [*machines(128, 512), *machines(2048)]
    far = vs.select(probes, STUDY, catalog=PRICES, batch_size=[128, 512, 2048]).selection_cost()
    assert far.exhaustive_usd == pytest.approx(near.exhaustive_usd)
    assert far.probe_usd > near.probe_usd
