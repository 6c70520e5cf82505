"""The next probe: expected improvement of the choice per dollar, and when no probe is worth its price."""

from __future__ import annotations

import json
from typing import Any

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.ranking.next_probe import default_regret, explain_no_probe, probe_seconds, rank_probes
from vmselect.ranking.output import answer_next_probe
from vmselect.units import format_usd

PROBED = make_profile("g4dn.xlarge", 0.2, steps_per_epoch=1000, model="net")


def rank(epochs: int = 500, machines: Any = ("g5.xlarge", "g6.xlarge"), **options: Any) -> vs.Ranking:
    catalog = vs.Catalog.embedded("2026-08-22")
    return vs.rank([PROBED], epochs=epochs, machines=machines, catalog=catalog, **options)


def test_a_long_training_is_worth_a_probe_of_a_machine_that_may_be_best() -> None:
    probe = rank().next_probe
    assert probe is not None
    assert probe.instance_type in {"g5.xlarge", "g6.xlarge"}
    assert 0 < probe.probe_usd < probe.expected_saving_usd
    assert 0 < probe.expected_saving < 1
    assert probe.instance_type in str(probe)


def test_all_possible_probes_are_ordered_by_improvement_per_dollar() -> None:
    ranking = rank()
    probes = rank_probes(ranking)
    unprobed = {row.instance_type for row in ranking.deciding_rows if row.basis == "predicted"}
    assert {ranking.row(one.candidate, 0).instance_type for one in probes} == unprobed
    assert len(unprobed) > 1
    rates = [one.gain_per_usd for one in probes]
    assert rates == sorted(rates, reverse=True)
    first = next(one for one in probes if one.is_worthwhile)
    assert ranking.next_probe is not None
    assert (first.cost_usd, first.saving_usd) == (ranking.next_probe.probe_usd, ranking.next_probe.expected_saving_usd)


def test_a_probe_costs_its_paid_time() -> None:
    ranking = rank()
    usual, longer = rank_probes(ranking), rank_probes(ranking, seconds=2 * probe_seconds(ranking))
    assert [one.cost_usd for one in longer] == pytest.approx([2 * one.cost_usd for one in usual])
    assert [one.saving_usd for one in longer] == [one.saving_usd for one in usual]


def test_a_history_lowers_the_regret_that_is_enough() -> None:
    assert default_regret(history=True) < default_regret(history=False)


def test_a_short_training_is_worth_no_probe() -> None:
    assert rank(epochs=1).next_probe is None


def test_the_reason_against_a_probe_contains_its_cost_and_saving() -> None:
    for ranking in (rank(epochs=1), rank()):
        probes = rank_probes(ranking)
        best = next((one for one in probes if one.is_worthwhile), probes[0])
        text = explain_no_probe(ranking)
        assert format_usd(best.cost_usd) in text
        assert format_usd(best.saving_usd) in text
    assert "$" not in explain_no_probe(rank(machines=None))


def test_the_reason_names_what_rules_out_all_predictions() -> None:
    slow = vs.Profile.from_times(
        instance_type="c5.xlarge", batch_size=32, steps_per_epoch=100, iteration_seconds=[0.9] * 10
    )
    ranking = vs.rank(slow, epochs=50, machines="all", catalog=vs.Catalog.embedded("2026-08-22"))
    answer = answer_next_probe(ranking)
    assert answer.next_probe is None
    assert "c5.xlarge trained without a GPU" in answer.reason
    assert "left to probe" in explain_no_probe(rank(machines=None))


def test_without_unprobed_machines_there_is_nothing_to_probe() -> None:
    assert rank(machines=None).next_probe is None


def test_a_small_regret_is_worth_no_probe() -> None:
    assert rank().choose_probe(enough_regret=1.0) is None
    assert rank().choose_probe() == rank().next_probe


def test_a_probe_of_the_recommended_machine_ends_the_search() -> None:
    ranking = rank()
    assert ranking.next_probe is not None
    fast = ranking.best
    steps = [fast.terms["steady_iterations"] / fast.epochs / 1000] * 20
    probed = make_profile(fast.instance_type, steps[0], steps_per_epoch=1000, model="net")
    catalog = vs.Catalog.embedded("2026-08-22")
    names = ("g5.xlarge", "g6.xlarge")
    later = vs.rank([PROBED, probed], epochs=500, machines=names, catalog=catalog)
    before, after = (one.expected_regret["cost"] / one.best.cost_usd for one in (ranking, later))
    assert after < before


def test_the_json_contains_the_next_probe() -> None:
    payload = json.loads(rank().to_json())
    assert payload["next_probe"]["probe_usd"] == pytest.approx(rank().next_probe.probe_usd)  # type: ignore[union-attr]
    assert json.loads(rank(epochs=1).to_json())["next_probe"] is None


def test_machines_with_the_same_gpu_share_its_error() -> None:
    """Two machines with one GPU type differ by price and host only, so the cheaper one is nearly always better."""
    ranking = rank(machines=["g5.xlarge", "g5.8xlarge"])
    chance = {row.instance_type: row.chance for row in ranking.deciding_rows}
    assert chance["g5.8xlarge"] < 0.02
    assert sum(chance.values()) == pytest.approx(1.0)
