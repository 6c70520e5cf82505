"""Energy and CO2 in rankings: only if asked for, with the uncertainty of time and power, and unknown where unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.energy.power import GPU_SHARE
from vmselect.errors import ArgumentError
from vmselect.ranking.decision import count_reasons
from vmselect.serving import Bill

CATALOG = vs.Catalog.embedded("2026-08-22").with_offers(
    [
        {"provider": "aws", "instance_type": name, "region": region, "market": "on_demand", "usd_per_hour": usd}
        for name, region, usd in (
            ("g4dn.xlarge", "eu-north-1", 0.58), ("g5.xlarge", "eu-north-1", 1.2), ("g4dn.xlarge", "nowhere-1", 0.5),
        )
    ]
)  # fmt: skip


def probe(name: str = "g4dn.xlarge", seconds: float = 0.2, watts: float | None = 60.0, **changes: Any) -> vs.Profile:
    times = {"provider": "aws", "region": "us-east-1", "batch_size": 64, "steps_per_epoch": 1000} | changes
    return vs.Profile.from_times(
        instance_type=name, iteration_seconds=[seconds] * 10, gpu_watts=watts, **times
    )  # fmt: skip


BOTH = [probe(), probe("g5.xlarge", 0.1, 200.0)]


def rank(profiles: Any = BOTH, **options: Any) -> vs.Ranking:
    return vs.rank(profiles, **({"epochs": 10, "catalog": CATALOG} | options))


def without_energy(ranking: vs.Ranking) -> list[Any]:
    return [(row.rank, row.title, row.seconds, row.cost_usd, row.score, row.chance, row.pareto) for row in ranking]


def test_nothing_changes_for_those_who_do_not_ask() -> None:
    with_power, plain = rank(market="all"), rank([probe(watts=None), probe("g5.xlarge", 0.1, None)], market="all")
    assert without_energy(with_power) == without_energy(plain)
    assert with_power.verdict == plain.verdict
    assert str(with_power) == str(plain)
    assert [finding.code for finding in with_power.findings] == [finding.code for finding in plain.findings]
    assert set(with_power.assessment.measures) == {"cost", "time"}
    assert dict(with_power.settings.objective) == {"cost": 1.0, "time": 0.0}


def test_every_row_has_energy_and_co2() -> None:
    row = next(row for row in rank() if row.instance_type == "g4dn.xlarge")
    kwh = 60 / GPU_SHARE * row.seconds / 3.6e6
    factor = vs.energy.Emissions().factor("aws", "us-east-1")
    assert factor is not None
    energy, co2 = row.measures["energy"], row.measures["co2"]
    assert energy is not None
    assert co2 is not None
    assert energy.value == pytest.approx(kwh)
    assert co2.value == pytest.approx(kwh * factor.kg_per_kwh)
    assert energy.low < row.seconds_low * 60 / GPU_SHARE / 3.6e6 < energy.value < energy.high
    assert co2.high / co2.value == pytest.approx(energy.high / energy.value)
    asked = next(row for row in rank(emissions={}) if row.instance_type == "g4dn.xlarge")
    for name, spread in asked.measures.items():
        assert spread == pytest.approx(row.measures[name])


def test_without_power_a_typical_power_is_assumed_and_marked() -> None:
    plain = [probe(watts=None), probe("g5.xlarge", 0.1, None)]
    ranking = rank(plain, objective="co2")
    assert len(ranking) == 2
    assert [power.basis for power in ranking.candidates.power.powers] == ["assumed"] * 2  # type: ignore[union-attr]
    energy, measured = ranking.best.measures["energy"], rank(BOTH, objective="co2").best.measures["energy"]
    assert energy is not None
    assert measured is not None
    assert energy.high / energy.low > 2 * measured.high / measured.low
    assert "energy-assumed" in {finding.code for finding in ranking.findings}
    assert json.loads(ranking.to_json())["machines"][0]["power"]["basis"] == "assumed"


def test_without_a_gpu_energy_is_unknown_and_never_zero() -> None:
    plain = [probe("c5.xlarge", watts=None), probe("m5.xlarge", 0.1, None)]
    assert [(row.measures["energy"], row.measures["co2"]) for row in rank(plain)] == [(None, None)] * 2
    assert rank(plain, emissions={}).to_frame()["energy_kwh"].isna().all()
    assert json.loads(rank(plain).to_json())["rows"][0]["measures"]["co2"] is None
    asked = rank(plain, objective="co2")
    assert not asked
    assert {exclusion.reason_code for exclusion in asked.excluded} == {"energy_unknown"}
    assert count_reasons(asked) == {"energy_unknown": 2}


def test_a_machine_without_power_is_predicted_from_another() -> None:
    ranking = rank([probe(watts=49.0), probe("g5.xlarge", 0.1, None)], emissions={})
    rows = {row.instance_type: row.measures["energy"] for row in ranking}
    measured, predicted = rows["g4dn.xlarge"], rows["g5.xlarge"]
    assert measured is not None
    assert predicted is not None
    assert predicted.high / predicted.low > measured.high / measured.low
    power = ranking.candidates.power.powers
    assert [entry.basis for entry in power] == ["measured", "predicted"]  # type: ignore[union-attr]


def test_unprobed_machines_combine_both_uncertainties() -> None:
    ranking = rank([probe()], machines=["g5.xlarge"], emissions={})
    row = next(row for row in ranking if row.basis == "predicted")
    energy = row.measures["energy"]
    assert energy is not None
    time, power = np.log(row.seconds_high / row.seconds), np.log(ranking.candidates.power.powers[1].interval(0.9).high)  # type: ignore[union-attr]
    spread = power - np.log(ranking.candidates.power.watts[1])
    assert np.log(energy.high / energy.value) == pytest.approx(np.hypot(time, spread))


def test_objectives_and_limits() -> None:
    cheap, clean = rank(region="all"), rank(region="all", objective="co2")
    assert cheap.best.region == "nowhere-1"
    assert clean.best.region == "eu-north-1"
    assert "lowest CO2" in clean.verdict
    limited = rank(region=["us-east-1", "eu-north-1", "nowhere-1"], co2_limit_kg=0.01)
    assert {row.region for row in limited} == {"eu-north-1"}
    codes = {exclusion.reason_code for exclusion in limited.excluded}
    assert codes == {"over_co2_limit", "co2_unknown"}
    assert all(0.5 < row.limit_chances["co2"] <= 1 for row in limited)
    sure = rank(region="all", co2_limit_kg=0.01, chance=0.9)
    assert all(row.limit_chances["co2"] >= 0.9 for row in sure)
    mixed = rank(objective={"cost": 0.8, "co2": 0.2}, co2_limit_kg=5)
    assert dict(mixed.settings.objective) == {"cost": 0.8, "time": 0.0, "co2": 0.2}
    assert set(mixed.expected_regret) == {"cost", "co2"}
    assert sum(row.chance for row in mixed) == pytest.approx(1)
    assert mixed.best.measures["energy"] is not None


def test_a_limit_that_nothing_keeps_states_what_is_missing() -> None:
    ranking = rank(co2_limit_kg=1e-6)
    assert ranking.shortfall is not None
    assert 0.9 < (ranking.shortfall.co2_saving or 0) < 1
    assert "less CO2" in ranking.verdict


def test_the_uncertainty_of_power_makes_choices_uncertain() -> None:
    # The faster machine needs a little more energy if its fraction of TDP is as predicted.
    ranking = rank([probe(watts=49.0), probe("g5.xlarge", 0.05, None)], objective="energy")
    chances = sorted(row.chance for row in ranking)
    assert chances[0] > 0.02
    assert rank([probe(), probe("g5.xlarge", 0.05, 10.0)], objective="energy").best.chance > 0.99


def test_more_offers_of_a_machine_share_its_chance() -> None:
    ranking = rank(region=["us-east-1", "eu-north-1"], objective={"cost": 0.5, "co2": 0.5})
    assert sum(row.chance for row in ranking) == pytest.approx(1)
    assert ranking.best.region == "eu-north-1"


def test_the_same_machine_in_a_cleaner_region_is_suggested() -> None:
    findings = {finding.code: finding for finding in rank(emissions={}).findings}
    assert "eu-north-1" in findings["cleaner-region"].message
    assert "embodied" in findings["co2-scope"].message
    elsewhere = {finding.code: finding for finding in rank(emissions={}, region="eu-north-1").findings}
    assert "cleaner-region" not in elsewhere
    unpriced = rank([probe()], catalog=vs.Catalog.embedded("2026-08-22").where(region="us-east-1"), emissions={})
    message = next(finding for finding in unpriced.findings if finding.code == "cleaner-region")
    assert "refresh" in message.remedy
    codes = {finding.code for finding in rank(emissions={"grid_g_per_kwh": 300}).findings}
    assert "cleaner-region" not in codes


def test_a_factor_of_the_user() -> None:
    row = rank(emissions={"grid_g_per_kwh": 500, "pue": 2}).best
    energy, co2 = row.measures["energy"], row.measures["co2"]
    assert energy is not None
    assert co2 is not None
    assert co2.value == pytest.approx(energy.value)
    hourly = rank(emissions={"hourly": [0, 1000], "start_hour": 0}, epochs=[1, 100])
    first, last = (next(row for row in hourly if row.epochs == n) for n in (1, 100))
    assert first.measures["co2"].value < 0.4 * first.measures["energy"].value  # type: ignore[union-attr]
    assert last.measures["co2"].value > 0.4 * last.measures["energy"].value  # type: ignore[union-attr]


def test_several_nodes_use_more() -> None:
    single, three = rank([probe()], emissions={}), rank([probe(factors={"nodes": 3})], emissions={})
    energy = [ranking.best.measures["energy"].value / ranking.best.seconds for ranking in (single, three)]  # type: ignore[union-attr]
    assert energy[1] / energy[0] == pytest.approx(3)


def test_bills_contain_the_energy_of_the_training() -> None:
    best = rank().best
    bill = Bill.of(storage=0.4, training=best)
    assert bill.energy_kwh == best.measures["energy"].value  # type: ignore[union-attr]
    assert bill.times(2).co2_kg == pytest.approx(2 * (bill.co2_kg or 0))
    assert "without storage" in str(bill)
    assert bill.to_frame()["co2_kg"].isna().tolist() == [True, False]
    assert Bill.of(storage=0.4).co2_kg is None
    assert "CO2" not in str(Bill.of(storage=0.4))


def test_comparisons_have_energy_and_co2() -> None:
    profiles = [probe(seconds=0.2 + i / 1000) for i in range(4)] + [
        probe("g5.xlarge", 0.1 + i / 1000, 200.0) for i in range(4)
    ]
    comparison = vs.compare(profiles, metric="energy", epochs=10)
    assert set(comparison.groups["group"]) == {"g4dn.xlarge", "g5.xlarge"}
    step = vs.compare(profiles, metric="step_joules")
    assert step.groups["mean"].min() == pytest.approx(60 * 0.2015)
    assert vs.compare(profiles, metric="co2_kg", epochs=10).groups["mean"].gt(0).all()


def test_rank_again_with_another_measure() -> None:
    ranking = rank(region="all")
    assert ranking.rerank(objective="co2").best.region == "eu-north-1"
    assert ranking.relative("energy").min().tolist() == [1.0]
    assert ranking.crossovers("co2", up_to=20) == ()
    with pytest.raises(ArgumentError):
        ranking.rerank(chance=0.9)


@pytest.mark.parametrize("wrong", [{"emissions": 3}, {"emissions": {"wind": 1}}, {"co2_limit_kg": 0}, {"chance": 0.9}])
def test_wrong_arguments(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        rank(**wrong)


def test_command_line(tmp_path: Path) -> None:
    saved = [str(profile.save(tmp_path / "records")) for profile in BOTH]
    command = ["rank", *saved, "-e", "10", "--catalog", str(CATALOG.save(tmp_path / "prices.csv"))]
    plain = CliRunner().invoke(app, command)
    assert "kWh" not in plain.stdout
    shown = CliRunner().invoke(app, [*command, "--emissions", "--verbose"])
    assert "co2" in shown.stdout
    assert "embodied" in shown.stderr
    limited = CliRunner().invoke(app, [*command, "--co2-limit-kg", "0.001", "--country", "DE"])
    assert limited.exit_code == 1
    hours = tmp_path / "hours.csv"
    hours.write_text("g_per_kwh\n10\n", encoding="utf-8")
    options = ["--grid-hourly", str(hours), "--objective", "cost=0.5,co2=0.5", "--format", "json"]
    output = json.loads(CliRunner().invoke(app, [*command, *options]).stdout)
    assert output["settings"]["objective"] == {"cost": 0.5, "time": 0.0, "co2": 0.5}
    assert output["rows"][0]["measures"]["co2"]["value"] > 0
