"""rank(): the join, the limits, what is left out and why, and clear answers to mistakes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, RankingError
from vmselect.ranking import result
from vmselect.ranking.measures import Measure
from vmselect.records import Environment, Gpu, Profile
from vmselect.records.training import Fit

CATALOG = vs.Catalog.embedded(date="2021-02-28").with_offers(
    [
        {"provider": "lab", "instance_type": name, "region": region, "market": market, "usd_per_hour": price}
        for name, region, market, price in (
            ("small", "here", "on_demand", 1.0),
            ("small", "there", "on_demand", 0.8),
            ("small", "here", "spot", 0.3),
            ("big", "here", "on_demand", 3.0),
            ("big", "here", "spot", 1.0),
            ("same", "here", "on_demand", 1.0),
        )
    ]
)


def profile(name: str | None = "small", step_seconds: float = 0.1, **changes: Any) -> Profile:
    """A probe of a training of 100 steps an epoch."""
    top = {key: changes.pop(key) for key in ("environment", "outcome", "detail", "created") if key in changes}
    given: dict[str, Any] = {
        "instance_type": name, "batch_size": 64, "steps_per_epoch": 100, "init_seconds": 10.0, "model": "net",
        "first_iteration_seconds": 1.0, "iteration_seconds": [step_seconds] * 20, "region": "here", "provider": "lab",
    }  # fmt: skip
    return Profile.from_times(**(given | changes)).model_copy(update=top)


BOTH = [profile("small", 0.1), profile("big", 0.05)]


def rank(profiles: Any = BOTH, **options: Any) -> vs.Ranking:
    return vs.rank(profiles, **({"epochs": 10, "catalog": CATALOG} | options))


def test_cost_is_time_times_price_and_terms_sum_to_the_time() -> None:
    ranking = rank(epochs=[5, 10])
    assert [row.instance_type for row in ranking.rows[:2]] == ["small", "big"]
    for row in ranking:
        assert row.cost_usd == pytest.approx(row.seconds / 3600 * row.usd_per_hour)
        assert sum(row.terms.values()) == pytest.approx(row.seconds)
        measured = profile(row.instance_type, {"small": 0.1, "big": 0.05}[row.instance_type])
        estimate = vs.estimate(measured, epochs=int(row.epochs))
        assert (row.seconds, row.seconds_low, row.seconds_high) == pytest.approx(
            (estimate.seconds, estimate.low, estimate.high)
        )


def test_the_last_epoch_count_decides_unless_told_otherwise() -> None:
    ranking = rank(epochs=[1, 1000], objective="cost")
    assert (ranking.best.epochs, ranking.rows[0].epochs, len(ranking)) == (1000, 1000, 4)
    assert rank(epochs=[1, 1000], decide_at=1).best.epochs == 1
    assert ranking.rows[0] == ranking.best
    with pytest.raises(ArgumentError, match="decide_at"):
        rank(epochs=[1, 10], decide_at=5)


def test_numbers_of_numpy_are_numbers() -> None:
    both = [profile("small", batch_size=64), profile("small", batch_size=128)]
    sizes, several = np.array([64, 128]), np.array([5, 10])
    ranking = rank(
        both,
        epochs=several,
        decide_at=np.int64(5),
        batch_size=sizes,
        deadline_hours=np.float32(9),
        budget_usd=np.int64(9),
    )
    assert (ranking.best.epochs, {row.batch_size for row in ranking}) == (5, {64, 128})
    assert json.loads(ranking.to_json())["settings"]["decide_at"] == 5
    assert rank(both, epochs=np.int64(7), batch_size=np.int64(64)).best.epochs == 7
    assert ranking.rerank(epochs=np.int32(3)).best.epochs == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", None), ("epochs", [None]), ("epochs", 10**400), ("epochs", {5, 10}), ("epochs", "5"),
        ("decide_at", True), ("decide_at", "10"), ("batch_size", 64.5), ("batch_size", []), ("batch_size", "64"),
        ("objective", None), ("objective", 5), ("objective", ["cost"]), ("objective", {"cost": "much"}),
        ("objective", {"cost": None}), ("objective", {"cost": float("nan")}), ("objective", {"cost": -1, "time": 2}),
        ("objective", {"cost": 0, "time": 0}), ("objective", {"carbon": 1}),
        ("deadline_hours", True), ("deadline_hours", "1"), ("budget_usd", float("nan")), ("budget_usd", 0),
        ("market", 5), ("region", 5), ("catalog", "prices.csv"), ("profiles", None), ("profiles", Path("profiles")),
        ("profiles", "profiles/"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=name):
        rank(**{name: value})


def test_objectives_choose_differently() -> None:
    assert rank(objective="cost").best.instance_type == "small"
    assert rank(objective="time").best.instance_type == "big"
    mixed = rank(objective={"cost": 0.5, "time": 0.5})
    by_hand = {
        row.instance_type: 0.5 * row.cost_usd / min(r.cost_usd for r in mixed)
        + 0.5 * row.seconds / min(r.seconds for r in mixed)
        for row in mixed
    }
    assert {row.instance_type: row.score for row in mixed} == pytest.approx(by_hand)


def test_limits_exclude_with_the_reason() -> None:
    ranking = rank(epochs=[10, 100], deadline_hours=0.2)
    assert [(e.reason_code, e.epochs) for e in ranking.excluded] == [("over_deadline", 100)]
    assert "small (lab, here, on_demand), batch 64" in str(ranking.excluded[0])
    assert rank(epochs=1, deadline_hours=1e-6).excluded[0].reason.startswith("1 epoch takes ")
    assert ": 1 epoch in " in str(rank(epochs=1).best)
    assert "over the deadline of 12 min" in ranking.excluded[0].reason
    all_over = rank(epochs=[10, 100], deadline_hours=0.001)
    assert [e.epochs for e in all_over.excluded] == [100, 100, 10, 10]
    assert [e.epochs for e in all_over.deciding_excluded] == [100, 100]
    assert "2 candidates over deadline" in all_over.verdict
    assert [e.reason_code for e in rank(budget_usd=0.04).excluded] == ["over_budget"]


def test_a_limit_within_the_interval_is_a_doubt() -> None:
    seconds = rank(profile()).best.seconds
    assert not rank(profile(), deadline_hours=2 * seconds / 3600).best.findings
    risky = rank(profile(), deadline_hours=seconds * 1.001 / 3600, budget_usd=seconds * 1.001 / 3600)
    assert [f.code for f in risky.best.findings] == ["may-miss-deadline", "may-exceed-budget"]


def test_nothing_feasible_is_an_answer_not_an_accident() -> None:
    ranking = rank(budget_usd=1e-6)
    assert not ranking
    assert list(ranking) == []
    assert ranking.pareto == ()
    assert "Nothing is feasible: 2 candidates over budget" in ranking.verdict
    with pytest.raises(RankingError, match="over budget"):
        _ = ranking.best
    assert json.loads(ranking.to_json())["rows"] == []
    assert len(ranking.to_frame()) == 0
    assert ranking.relative("cost").empty


def test_one_candidate_is_the_best_one() -> None:
    ranking = rank(profile())
    assert (ranking.best.score, ranking.best.pareto, ranking.best.tied_with_best, len(ranking)) == (1.0, True, True, 1)
    assert ranking.crossovers("cost") == ()
    assert ranking.settled_from("cost") == 1


def test_identical_candidates_are_tied_and_both_on_the_front() -> None:
    ranking = rank([profile("same"), profile("small")])
    assert [(row.score, row.tied_with_best, row.pareto) for row in ranking] == [(1.0, True, True)] * 2
    assert "it is a tie with small" in ranking.verdict


def test_ties_within_the_intervals_are_called_ties() -> None:
    close = rank([profile("same", 0.1), profile("small", 0.1001)])
    assert [row.tied_with_best for row in close] == [True, True]
    far = rank([profile("same", 0.1), profile("small", 0.5)])
    assert [row.tied_with_best for row in far] == [True, False]
    assert "tie" not in far.verdict


def test_markets_and_regions_filter_offers() -> None:
    assert {row.market for row in rank()} == {"on_demand"}
    assert {row.market for row in rank(market="all")} == {"on_demand", "spot"}
    assert {row.market for row in rank(market=["spot"])} == {"spot"}
    # Without region= a machine is priced where it was measured; a region that is named decides instead.
    assert {row.region for row in rank()} == {"here"}
    assert {row.region for row in rank(region="there")} == {"there"}
    assert {row.region for row in rank([profile(region=None)])} == {"here", "there"}
    assert [e.reason_code for e in rank(region="there").excluded] == ["no_price"]


def test_every_unpriced_machine_is_listed_with_a_reason() -> None:
    unpriced = [profile("unheard-of"), profile("big", provider="aws"), profile("same", region="moon")]
    ranking = rank([profile("small"), *unpriced])
    reasons = {e.candidate: e.reason for e in ranking.excluded}
    assert "the catalog has no price of unheard-of" in reasons["unheard-of, batch 64"]
    assert "no price of big from aws" in reasons["big, batch 64"]
    assert "no price of same in moon, only in here" in reasons["same, batch 64"]
    assert "no spot price of same, only on_demand" in rank([profile("same")], market="spot").excluded[0].reason


def test_another_market_changes_who_is_left_out_for_want_of_a_price() -> None:
    ranking = rank([profile("small"), profile("same")], market="spot")
    assert [(e.candidate, e.reason_code) for e in ranking.excluded] == [("same, batch 64", "no_price")]
    assert not ranking.rerank(market="on_demand").excluded
    assert not ranking.rerank(market="all").excluded
    nowhere = ranking.rerank(market="reserved_1y")
    assert [e.candidate for e in nowhere.excluded] == ["same, batch 64", "small, batch 64"]
    assert "no reserved_1y price of same, only on_demand" in nowhere.verdict
    assert ranking.payload(rows=False)["excluded"] == []


def test_a_profile_without_instance_type_is_left_out_and_said_so() -> None:
    ranking = rank([profile("small"), profile(None)])
    assert [e.reason_code for e in ranking.excluded] == ["unknown_instance_type"]


def test_a_machine_that_ran_out_of_memory_is_left_out() -> None:
    broken = profile("big", outcome="out_of_memory", detail="OOM when allocating")
    ranking = rank([profile("small"), broken])
    (excluded,) = ranking.excluded
    assert (excluded.reason_code, "OOM when allocating" in excluded.reason) == ("out_of_memory", True)


def test_a_profile_that_supports_no_estimate_is_left_out() -> None:
    empty = profile("big", steps_per_epoch=None, examples=None)
    ranking = rank([profile("small"), empty])
    assert [e.reason_code for e in ranking.excluded] == ["no_estimate"]
    assert str(ranking.excluded[0]).count("batch 64") == 1
    assert ".." not in ranking.verdict


def test_retired_types_are_left_out_unless_asked_for_or_dated() -> None:
    old = [profile("p3.2xlarge", region=None, provider=None)]
    today = vs.rank(old, epochs=10, catalog=vs.Catalog.embedded("2026-08-22"))
    assert [e.reason_code for e in today.excluded] == ["retired"]
    assert (
        vs.rank(old, epochs=10, catalog=vs.Catalog.embedded("2026-08-22"), include_retired=True).best.usd_per_hour > 0
    )
    assert vs.rank(old, epochs=10, catalog=vs.Catalog.embedded(date="2021-02-28")).best.usd_per_hour == 3.06


def test_profiles_of_different_models_are_refused() -> None:
    mixed = [profile("small"), profile("big", model="other")]
    with pytest.raises(RankingError, match=r"differ in the model \(net, other\)"):
        rank(mixed)
    assert rank(mixed, model="other").best.instance_type == "big"
    with pytest.raises(ArgumentError, match="the models are: net, other"):
        rank(mixed, model="third")


def test_profiles_of_different_data_are_refused_unless_the_size_is_given() -> None:
    mixed = [profile("small", examples=6400), profile("big", examples=12800)]
    with pytest.raises(RankingError, match="training examples"):
        rank(mixed)
    assert len(rank(mixed, examples=6400)) == 2


def test_equal_batches_with_different_steps_are_different_data() -> None:
    with pytest.raises(RankingError, match=r"steps per epoch \(100, 700\)"):
        rank([profile("small"), profile("big", steps_per_epoch=700)])
    assert len(rank([profile("small"), profile("big", steps_per_epoch=101)])) == 2


def test_different_batch_sizes_need_a_word() -> None:
    mixed = [profile("small"), profile("small", batch_size=128, steps_per_epoch=50)]
    with pytest.raises(RankingError, match=r"different batch sizes \(64, 128\)"):
        rank(mixed)
    assert [row.batch_size for row in rank(mixed, batch_size=128)] == [128]
    assert [e.reason_code for e in rank(mixed, batch_size=128).excluded] == ["other_batch_size"]
    assert {row.batch_size for row in rank(mixed, batch_size="all")} == {64, 128}
    assert {row.batch_size for row in rank(mixed, batch_size=[64, 128])} == {64, 128}


def test_repetitions_are_merged_into_one_row() -> None:
    ranking = rank([profile("small", 0.09), profile("small", 0.11), profile("big", 0.05)])
    small = next(row for row in ranking if row.instance_type == "small")
    assert len(ranking) == 2
    assert small.terms["steady_iterations"] == pytest.approx(0.1 * 999)
    assert ranking.candidates.machine_estimates[1].repetitions == 2


def test_repetitions_of_different_setups_are_refused() -> None:
    other = profile("small", environment=Environment(precision="mixed_float16"))
    with pytest.raises(RankingError, match="precision"):
        rank([profile("small", environment=Environment(precision="float32")), other])


def test_machines_measured_with_different_software_raise_a_doubt() -> None:
    jax, torch = Environment(backend="jax"), Environment(backend="torch")
    pair = [profile("small", environment=jax), profile("big", environment=torch)]
    assert [f.code for f in rank(pair).findings if f.code == "software-differs"] == ["software-differs"]


def test_profiles_without_provider_join_their_repetitions() -> None:
    assert len(rank([profile("small"), profile("small", provider=None)])) == 1


def test_under_use_of_gpus_is_a_finding() -> None:
    def on(gpus_seen: int, replicas: int, batch_size: int) -> set[str]:
        seen = profile(
            "p2.16xlarge", batch_size=batch_size, region=None, provider=None, outcome="stopped",
            environment=Environment(framework_gpus=gpus_seen, replicas=replicas),
        )  # fmt: skip
        return {f.code for f in rank([seen]).best.findings}

    assert "unused-gpus" in on(16, 1, 64)
    assert "thin-batch" in on(16, 16, 64)
    assert not {"unused-gpus", "thin-batch"} & on(16, 16, 1024)


def test_provider_billing_rounds_up() -> None:
    short = [profile("g4dn.xlarge", 0.001, region=None, provider=None)]
    exact = vs.rank(short, epochs=1, catalog=vs.Catalog.embedded("2026-08-22")).best
    billed = vs.rank(short, epochs=1, catalog=vs.Catalog.embedded("2026-08-22"), billing="provider").best
    assert exact.seconds < 60
    assert billed.cost_usd == pytest.approx(60 / 3600 * billed.usd_per_hour)
    assert billed.seconds == exact.seconds


def test_interruptions_lengthen_spot_runs_only_and_are_marked() -> None:
    plain = rank(market="all")
    spot = rank(market="all", interruptions={"per_hour": 0.5, "checkpoint_minutes": 20, "restart_minutes": 5})
    for before, after in zip(sorted(plain, key=str), sorted(spot, key=str), strict=True):
        assert (before.instance_type, before.market) == (after.instance_type, after.market)
        if after.market == "spot":
            assert after.seconds == pytest.approx(before.seconds / (1 - 0.5 * 15 / 60))
            assert after.terms["interruptions"] == pytest.approx(after.seconds - before.seconds)
            assert [f.code for f in after.findings if f.code.startswith("spot")] == ["spot-expected"]
            assert [f.code for f in before.findings if f.code.startswith("spot")] == ["spot-uninterrupted"]
        else:
            times = (after.seconds, after.seconds_low, after.seconds_high, after.terms, after.cost_usd)
            assert times == (before.seconds, before.seconds_low, before.seconds_high, before.terms, before.cost_usd)


def test_rerank_gives_what_rank_gives() -> None:
    options: dict[str, Any] = {
        "epochs": [3, 30], "objective": "time", "market": None, "deadline_hours": 0.1, "billing": "provider",
        "interruptions": {"per_hour": 1, "checkpoint_minutes": 5},
    }  # fmt: skip
    assert json.loads(rank().rerank(**options).to_json()) == json.loads(rank(**options).to_json())
    with pytest.raises(ArgumentError, match="method"):
        rank().rerank(method="malta-epoch")


def test_the_frame_and_the_json_hold_the_rows() -> None:
    ranking = rank(epochs=[5, 10], market="all")
    frame = ranking.to_frame()
    assert list(frame.columns) == list(vars(ranking.best))
    known = frame.astype(object).where(frame.notna(), None)
    assert known.to_dict("records") == [vars(row) for row in ranking]
    plain = json.loads(ranking.to_json())
    assert [row["cost_usd"] for row in plain["rows"]] == [row.cost_usd for row in ranking]
    assert plain["settings"]["decide_at"] == 10
    assert "rows" not in json.loads(ranking.to_json(rows=False))


def test_text_shows_the_verdict_and_a_table() -> None:
    text = str(rank())
    assert text.startswith("Rent small (lab, here, on_demand), batch 64: 10 epochs in ")
    assert "pareto" in text
    assert "Nothing is feasible" in str(rank(budget_usd=1e-9))


def test_what_is_no_profile_is_refused() -> None:
    with pytest.raises(RankingError, match="no profiles"):
        rank([])
    with pytest.raises(ArgumentError, match="load_profiles"):
        rank(["profiles/"])
    with pytest.raises(ArgumentError, match="epochs is empty"):
        rank(epochs=[])


def test_old_prices_are_a_finding() -> None:
    ranking = rank([profile("p2.xlarge", region=None, provider=None)])
    assert "old-prices" in {f.code for f in ranking.findings}


def test_only_prices_of_the_markets_that_are_ranked_can_be_too_old() -> None:
    offer = {"provider": "lab", "instance_type": "small", "region": "here", "market": "spot", "usd_per_hour": 0.3}
    ranking = rank([profile("small")], catalog=CATALOG.with_offers([{**offer, "date": "2021-02-01"}]))
    for market, old in (("on_demand", False), ("spot", True), ("all", True), (None, False)):
        assert ("old-prices" in {f.code for f in ranking.rerank(market=market).findings}) == old


def test_the_default_catalog_is_used_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vs.Catalog, "default", classmethod(lambda cls: CATALOG))
    assert vs.rank(profile(created=datetime(2026, 1, 1, tzinfo=UTC)), epochs=10).best.provider == "lab"


def test_rows_are_made_only_when_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    usual = result.Row.__init__
    monkeypatch.setattr(result.Row, "__init__", lambda row, **fields: made.append(fields) or usual(row, **fields))
    ranking = rank(epochs=range(1, 2001), market="all")
    assert (len(ranking), len(ranking.pareto) > 0, len(ranking.to_frame())) == (8000, True, 8000)
    made.clear()
    assert ranking.best.rank == ranking.rows[-2000 * 4].rank == 1
    assert len(made) == 2


def test_why_nothing_is_feasible_is_counted_and_not_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    offers = [
        {"provider": "lab", "instance_type": "small", "region": f"r{i}", "market": "on_demand", "usd_per_hour": 1.0}
        for i in range(500)
    ]
    told: list[int] = []
    usual = Measure.explain_excess
    monkeypatch.setattr(Measure, "explain_excess", lambda *given, **facts: told.append(1) or usual(*given, **facts))
    ranking = rank([profile("small", region=None)], deadline_hours=1e-6, catalog=CATALOG.with_offers(offers))
    assert "502 candidates over deadline" in ranking.verdict
    assert len(told) == 1


def test_several_workers_cost_several_machines() -> None:
    def trained_by(workers: int, **factors: Any) -> Profile:
        seen = profile("small", environment=Environment(workers=workers), outcome="stopped")
        return seen.model_copy(update={"factors": factors})

    one, eight = rank([trained_by(1)]).best, rank([trained_by(8)]).best
    assert eight.seconds == one.seconds
    assert eight.cost_usd == pytest.approx(8 * one.cost_usd)
    assert (eight.usd_per_hour, eight.factors["nodes"]) == (8.0, 8)
    assert str(eight).startswith("8 x small (lab, here, on_demand), batch 64")
    assert "several-machines" in {f.code for f in eight.findings}
    shared = rank([trained_by(8, nodes=1)]).best
    assert shared.cost_usd == one.cost_usd
    assert len(rank([trained_by(1), trained_by(8)])) == 2


@pytest.mark.parametrize(
    ("instance_type", "gpus", "contradicts"),
    [
        ("g4dn.xlarge", ("NVIDIA A100-SXM4-40GB",) * 8, True),
        ("g4dn.xlarge", ("NVIDIA A100-SXM4-40GB",), True),
        ("g4dn.xlarge", ("Tesla T4",) * 2, True),
        ("g4dn.xlarge", ("Tesla T4",), False),
        ("g4dn.12xlarge", ("Tesla T4",), False),
        ("g5.xlarge", ("NVIDIA A10G",), False),
    ],
)
def test_hardware_that_contradicts_the_price_is_a_finding(
    instance_type: str, gpus: tuple[str, ...], contradicts: bool
) -> None:
    seen = Environment(gpus=tuple(Gpu(name=name) for name in gpus))
    best = vs.rank(
        profile(instance_type, environment=seen, outcome="stopped", region=None, provider=None),
        epochs=5, catalog=vs.Catalog.embedded("2026-08-22"),
    ).best  # fmt: skip
    assert ("hardware-contradicts-price" in {f.code for f in best.findings}) == contradicts


def test_rounding_puts_no_winner_off_the_front() -> None:
    prices = {"a": 0.010000000000000002, "b": 0.01}
    offers = [
        {"provider": "lab", "instance_type": name, "region": "here", "usd_per_hour": p} for name, p in prices.items()
    ]
    both, counts = [profile("a"), profile("b")], range(1, 60)
    ranking = rank(both, catalog=CATALOG.with_offers(offers), objective="time", epochs=counts)
    assert all(row.pareto for row in ranking if row.rank == 1)
    # With the prices as they are, some epoch counts tell the two apart and some do not.
    assert {row.instance_type for row in ranking if row.rank == 1} == {"a", "b"}


def test_a_tie_prefers_what_no_other_beats_by_much_and_says_what_is_given_up() -> None:
    offers = [
        {"provider": "lab", "instance_type": name, "region": "here", "usd_per_hour": price}
        for name, price in (("slow", 1.0), ("fast", 6.05))
    ]
    pair = [profile("slow", 0.6), profile("fast", 0.1)]
    ranking = rank(pair, epochs=100, catalog=CATALOG.with_offers(offers))
    slow = next(row for row in ranking if row.instance_type == "slow")
    assert (ranking.best.instance_type, slow.score, slow.rank) == ("fast", 1.0, 2)
    assert (
        "tied for the lowest cost of 2 candidates. By the estimates alone slow (lab, here, on_demand), batch 64 has"
        in ranking.verdict
    )
    assert f"{slow.cost_usd:.2f} instead of ${ranking.best.cost_usd:.2f}, but its time is 5.9" in ranking.verdict
    weighed = rank(pair, epochs=100, catalog=CATALOG.with_offers(offers), objective={"cost": 0.99, "time": 0.01})
    assert weighed.best.score == min(row.score for row in weighed)


def test_a_study_a_workload_and_sizes_between_go_through_rank() -> None:
    pair = [profile("small", 0.1 * size / 64, batch_size=size, steps_per_epoch=6400 // size) for size in (64, 256)]
    (row,) = rank(pair, batch_size=128)
    assert (row.batch_size, row.basis) == (128, "interpolated")
    study = vs.ConvergenceStudy.from_epochs({64: 10, 256: 20})
    assert rank(pair, epochs=study).to_frame().equals(vs.select(pair, study, catalog=CATALOG).to_frame())
    longer = rank([pair[0]], workload=vs.Workload(steps_per_epoch=200))
    assert longer.best.seconds == pytest.approx(rank([pair[0]], steps_per_epoch=200).best.seconds)
    assert longer.best.seconds > 1.8 * rank([pair[0]]).best.seconds
    with pytest.raises(ArgumentError, match="in the workload"):
        rank(pair[:1], workload=vs.Workload(examples=5), examples=6)
    with pytest.raises(ArgumentError, match="needs a convergence study"):
        rank(pair[:1], minimum_metric=0.9)
    with pytest.raises(ArgumentError, match="epochs come from the study here"):
        vs.select(pair, study, epochs=5)


def test_rows_have_a_look_in_notebooks() -> None:
    named = vs.rank([profile("small"), profile("<b>big</b>")], catalog=CATALOG, epochs=10)
    shown = named.rows._repr_html_()  # type: ignore[attr-defined]
    assert "<li><bdi>small (" in shown
    assert "Row(" not in shown
    assert "&lt;b&gt;big" in named.excluded._repr_html_()  # type: ignore[attr-defined]


def test_machines_are_ranked_by_one_fit_of_a_program() -> None:
    def measure(name: str, number: int, step_seconds: float) -> Profile:
        one = profile(name, step_seconds)
        setup = one.setup.model_copy(update={"structure": f"layers of fit {number}"})
        fit = Fit(number=number, process=f"on {name}", name="tuned" if number == 2 else None)
        return one.model_copy(update={"setup": setup, "fit": fit})

    program = [measure(name, number, 0.1 / number) for name in ("small", "big") for number in (1, 2)]
    with pytest.raises(RankingError, match="with fit="):
        rank(program)
    apart = rank([program[1], program[3]]).to_frame().drop(columns="findings")
    for fit in (2, 2.0, "tuned"):
        assert rank(program, fit=fit).to_frame().drop(columns="findings").equals(apart)
    with pytest.raises(ArgumentError, match=r"no profile is of the fit 3; the fits are: 1, 2 \(tuned\)\."):
        rank(program, fit=3)
    with pytest.raises(ArgumentError, match="the fits are: not known"):
        rank(fit="tuned")


def test_the_same_measurement_counts_once() -> None:
    once = profile("small", created=datetime(2026, 1, 1, tzinfo=UTC))
    assert rank([once, once]).best.seconds_high == rank([once]).best.seconds_high


@pytest.mark.parametrize("instance_type", ["small", "big"])
def test_a_time_with_a_zone_and_one_without_are_ranked_together(instance_type: str) -> None:
    """Repetitions of one machine, or two machines, in either order; as read from files."""
    texts = []
    for name, created in (("small", "2026-01-01T00:00:00Z"), (instance_type, "2026-01-02T00:00:00")):
        texts.append(json.dumps(json.loads(profile(name).model_dump_json()) | {"created": created}))
    aware, bare = map(Profile.model_validate_json, texts)
    for profiles in ([aware, bare], [bare, aware]):
        assert {row.instance_type for row in rank(profiles).rows} == {"small", instance_type}


def test_print_shows_what_was_left_out_and_the_winners_doubts() -> None:
    text = str(rank([profile("small"), profile("unheard-of")], market="spot"))
    assert "Excluded: 1 candidate no price" in text
    assert "Warning: Spot times and costs assume" in text
