"""The verdict and the table of a ranking as text, and the cost of choosing, against running everything to its end."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile, make_profile
from tests.support.rankings import probe, rank, rank_epochs
from vmselect.prediction import hardware, machines, scaling
from vmselect.ranking import MethodologyCost, SelectionCost, estimates
from vmselect.ranking.measures import LIMITED
from vmselect.ranking.predicted import NO_PROBE
from vmselect.ranking.rows import Excluded
from vmselect.ranking.views import PLURALS, PROVIDER_NAMES, REASONS, describe_reason

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


def test_probes_are_weighed_against_a_number_of_full_runs() -> None:
    ranking = rank([make_profile(name, steps_per_epoch=1000) for name in ("a", "a", "b")], catalog=CATALOG)
    once, five_times = (ranking.selection_cost(trainings=count) for count in (1, 5))
    assert five_times.exhaustive_usd == pytest.approx(5 * once.exhaustive_usd)
    assert five_times.probe_usd == once.probe_usd == ranking.selection_cost().probe_usd
    study = vs.rank(sized(256), epochs=STUDY, catalog=CATALOG)
    assert study.selection_cost(trainings=2).exhaustive_usd == pytest.approx(study.selection_cost().exhaustive_usd)
    with pytest.raises(vs.errors.ArgumentError, match="trainings"):
        ranking.selection_cost(trainings=0)


def test_json_has_the_relative_tables_of_every_number_of_epochs() -> None:
    profiles = [
        make_profile("a", 0.2, steps_per_epoch=10),
        make_profile("b", 0.1, steps_per_epoch=10, init_seconds=9.0),
    ]
    ranking = vs.rank(profiles, epochs=[1, 100], catalog=CATALOG)
    payload = json.loads(ranking.to_json())
    assert set(payload["relative"]) == {"time", "cost"}
    for objective, rows in payload["relative"].items():
        table = ranking.relative(objective)
        names = [payload["candidates"][row["candidate"]]["instance_type"] for row in rows]
        assert names == list(table.index)
        for row, name in zip(rows, names, strict=True):
            assert row["ratios"] == {"1": table.loc[name, 1], "100": table.loc[name, 100]}
    first = json.loads(ranking.to_json(top=1))
    assert {row["candidate"] for row in first["relative"]["time"]} == {0}


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


SOURCES = sorted((Path(vs.__file__).parent / "ranking").glob("*.py"))
SERVING = {"no_calls", "over_latency", "over_capacity"}
"""Codes of rankings for serving, which do not count reasons."""


def rank_many(count: int, step: float = 1.0, **options: Any) -> vs.Ranking:
    """Machines m00, m01, ..., each ``step`` dollars more expensive than the one before."""
    names = [f"m{number:02}" for number in range(count)]
    catalog = prices(*((name, 1.0 + step * number) for number, name in enumerate(names)))
    return rank_epochs([make_epoch_profile(name, 360.0) for name in names], catalog, **options)


def test_the_text_shows_the_verdict_and_ten_rows_and_counts_the_others() -> None:
    lines = str(rank_many(12)).splitlines()
    assert sum(one.split()[:1] in ([str(n)] for n in range(1, 13)) for one in lines) == 10
    assert "... and 2 more" in lines
    assert "more" not in str(rank_many(10))
    for text in ("m00 at lab here on demand", "batch 64", "10 epochs", "1 h (1 h to 1 h)", "$1.00", "cost", "12 "):
        assert text in lines[0]
    assert "1 epoch " in str(rank_many(1, epochs=1).best)


def test_excluded_candidates_are_counted_and_three_are_named() -> None:
    text = str(rank_many(12, budget_usd=5.0))
    assert "Excluded: 7 candidates" in text
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  m")] == ["m05", "m06", "m07"]
    assert "Excluded: 1 candidate " in str(rank_many(6, budget_usd=5.0))
    nothing = rank_many(3, budget_usd=0.5)
    assert "3 candidates" in nothing.verdict
    assert "m00" in nothing.verdict
    assert str(nothing) == nothing.verdict


def test_one_other_likely_candidate_is_named_and_several_are_counted() -> None:
    assert "m01 (lab, here, on_demand), batch 64 ($1.00 in 1 h, 50%)" in rank_many(2, step=0.0).verdict
    assert "m01" not in rank_many(4, step=0.0).verdict
    assert " 5 others " in rank_many(6, step=0.0).verdict
    assert "m01" not in rank_many(2).verdict


def test_the_table_shows_the_probability_and_the_front() -> None:
    assert str(rank_many(1)).splitlines()[3].endswith("1.00   100%  pareto")
    assert [line.split()[-2:] for line in str(rank_many(2, step=0.0)).splitlines()[3:5]] == [["50%", "pareto"]] * 2


@pytest.mark.parametrize(("price", "named"), [(1.2, False), (1.3, True), (1200.0, True)])
def test_the_verdict_names_a_much_cheaper_machine_that_is_nearly_as_fast(price: float, named: bool) -> None:
    profiles = [make_epoch_profile(name, seconds) for name, seconds in (("quick", 360.0), ("cheap", 370.0))]
    ranking = rank_epochs(profiles, prices(("quick", price), ("cheap", 1.0)), objective="time")
    assert ranking.best.instance_type == "quick"
    assert ("cheap" in ranking.verdict) == named
    assert ("3% worse" in ranking.verdict) == named


def test_mean_epochs_are_rounded() -> None:
    study = vs.ConvergenceStudy.from_epochs({64: [18, 18, 19]})
    ranking = rank(probe(), epochs=study)
    assert ranking.best.epochs == pytest.approx(55 / 3)
    assert "18.3 epochs" in str(ranking.best)
    assert ranking.rerank(deadline_hours=1e-5).excluded[0].reason.startswith("18.3 epochs")


def find_lines(ranking: vs.Ranking, code: str) -> list[str]:
    texts = {str(finding) for row in ranking.deciding_rows for finding in row.findings if finding.code == code}
    return [line for line in str(ranking).splitlines() if any(line.endswith(f": {text}") for text in texts)]


def test_findings_of_all_shown_rows_are_printed_once_with_their_ranks() -> None:
    cheap, dear = (probe(name, seconds, steps=3) for name, seconds in (("small", 0.1), ("big", 0.3)))
    alike = rank([cheap, dear], market="all")
    (line,) = find_lines(alike, "spot-uninterrupted")  # small spot, big spot, ...
    spots = [row.rank for row in alike if row.market == "spot"]
    assert line.startswith(f"Warning (rows {', '.join(map(str, spots))}): ")
    (line,) = find_lines(rank([cheap, dear], market="spot"), "spot-uninterrupted")
    assert line.startswith("Warning: ")  # concerns every row
    gpus = [probe(name, 0.1, environment={"framework_gpus": 1}, outcome="stopped") for name in ("small", "big")]
    offer = {"provider": "lab", "region": "here", "market": "on_demand", "gpu_model": "T4"}
    sold = [
        offer | {"instance_type": name, "usd_per_hour": usd, "gpu_count": count}
        for name, usd, count in (("small", 1.0, 4), ("big", 3.0, 8))
    ]
    (line,) = find_lines(rank(gpus, catalog=vs.Catalog.embedded("2021-02-28").with_offers(sold)), "unused-gpus")
    assert line.startswith("Warning (row 1; similar: 2): small")


def test_the_text_shows_findings_of_the_winner() -> None:
    text = str(rank([probe("small"), probe("unheard-of")], market="spot"))
    assert "Excluded: 1 candidate " in text
    assert "Warning: " in text


codes = st.sampled_from([*sorted(REASONS), "another", "a_new_reason"])


@given(codes, st.integers(1, 10**7))
def test_a_counted_reason_is_a_clause_with_a_verb(code: str, count: int) -> None:
    number, noun, verb, *rest = describe_reason(code, count).split(" ")
    assert int(number.replace(",", "")) == count
    verbs = PLURALS if count == 1 else PLURALS.values()
    assert noun == ("candidate" if count == 1 else "candidates")
    assert verb in (*verbs, "can", "cannot", "ran")
    assert rest
    assert "_" not in "".join(rest)
    assert rest[-1][-1] not in ".,;:"


@given(st.text(), st.text().filter(lambda text: text.rstrip(". ")))
def test_a_reason_ends_a_sentence_with_one_period(candidate: str, reason: str) -> None:
    sentence = f"Excluded: {Excluded(candidate, 'no_price', reason)}."
    assert not sentence.endswith(("..", " ."))


def test_every_reason_code_has_a_text() -> None:
    limits = {measure.limit.reason_code for measure in LIMITED if measure.limit}
    predicted = {
        hardware.NO_GPU, hardware.NO_FIGURES, hardware.SEVERAL_GPUS, hardware.CONTRADICTORY, NO_PROBE,
        machines.NEVER_PROBED, machines.OTHER_VENDOR, machines.INPUT_BOUND, machines.NO_STEPS, machines.SHARED_GPU,
        machines.NO_GPU_SOLD,
    }  # fmt: skip
    scaled_codes = {scaling.TOO_MANY_GPUS, scaling.TOO_MANY_NODES, scaling.NO_TWO_NODES, hardware.TOO_LITTLE_MEMORY}
    studied = {estimates.BELOW_REQUIRED, estimates.UNKNOWN_METRIC, estimates.UNKNOWN_EPOCHS}
    written = set(re.findall(r'Excluded\([^"\n]*?"(\w+)", ', "".join(path.read_text() for path in SOURCES)))
    assert {"no_price", "retired", "out_of_memory"} <= written
    assert (limits | predicted | scaled_codes | studied | written) - SERVING <= set(REASONS)


def test_a_disturbed_probe_is_excluded_in_one_sentence() -> None:
    reason = Excluded("m", "too_disturbed", "the probe was disturbed. Stop the cause and probe again.").reason
    assert reason.endswith("probe again")
    assert "1 candidate has no instance type" in rank([probe(None)]).verdict
    assert ".." not in rank([probe(None), probe(None, 0.2)]).verdict


def test_every_provider_with_a_shipped_price_has_a_name() -> None:
    providers = vs.Catalog.embedded().offers(market=None)["provider"].astype(str).unique()
    assert set(providers) <= PROVIDER_NAMES.keys()
