"""Rankings without any probe on a GPU: from the description of a training, alone or together with probes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import vmselect as vs
from tests.support.descriptions import make_description, make_work
from tests.support.profiles import make_profile
from tests.support.scripts import Scripts
from vmselect.cli import app
from vmselect.errors import EstimateError, MissingNamesError, RankingError
from vmselect.intervals import Interval
from vmselect.ranking.described import FIRST_STEP, FIRST_VALIDATION, INITIALIZATION, VALIDATION, describe_runtime
from vmselect.ranking.next_probe import chance_after_probe, chance_of_choice, rank_probes
from vmselect.records.identity import check_comparable
from vmselect.records.training import InputWait, without_times
from vmselect.units import format_usd

CATALOG = vs.Catalog.embedded("2026-08-22")
NAMES = ["g4dn.xlarge", "g5.xlarge", "g6.xlarge", "g6e.xlarge"]


def rank(profiles: Any = None, **options: Any) -> vs.Ranking:
    given = make_description() if profiles is None else profiles
    return vs.rank(given, **({"epochs": 50, "catalog": CATALOG, "machines": NAMES} | options))


def probe(name: str | None, seconds: float, **changes: Any) -> vs.Profile:
    """A probe of the described training."""
    return make_profile(name, seconds, steps_per_epoch=782, examples=50_000, work=make_work(), **changes)


def on_cpu(name: str | None = None, *, wait: float = 0.0, **changes: Any) -> vs.Profile:
    """A probe on a machine without a GPU; ``wait`` is the share of a step that waits for data."""
    waited = InputWait(seconds=50 * wait, wall_seconds=50, steps=10, method="test")
    environment = {"framework_gpus": 0, "cpu_cores": 2}
    return probe(name, 5.0, environment=environment, timeline={"input_wait": waited}, **changes)


@pytest.fixture(scope="module")
def scripts() -> Iterator[Scripts]:
    engine = Scripts()
    yield engine
    engine.close()


# -- the runtime -------------------------------------------------------------------------------------------------------


def test_a_runtime_consists_of_steps_and_typical_times() -> None:
    described = make_description(examples=6400, validation_examples=640)
    step = Interval(0.5, 0.2, 1.5)
    model = describe_runtime(described, vs.Workload(), step, title="m", confidence=0.9)
    terms = model.terms_at(10)
    assert terms["steady_iterations"] == pytest.approx(10 * 100 * 0.5)
    assert terms["initialization"] == INITIALIZATION.value
    assert terms["first_iteration"] == FIRST_STEP.value
    assert terms["later_validations"] == pytest.approx(9 * 10 * 0.5 * VALIDATION.value)
    assert model.basis == "described"
    low, high = model.interval(1000)
    assert low / model.seconds(1000) == pytest.approx(0.4, abs=0.01)
    assert high / model.seconds(1000) == pytest.approx(3.0, abs=0.02)
    low, high = model.interval(1)
    assert 0 < low < model.seconds(1) < high


def terms_of(workload: vs.Workload = vs.Workload(), epochs: int = 4, **setup: Any) -> dict[str, float]:  # noqa: B008
    """Terms of a described training with batches of 64 examples and steps of 1 s."""
    described, step = make_description(examples=6400, **setup), Interval(1.0, 0.5, 2.0)
    return describe_runtime(described, workload, step, title="m", confidence=0.9).terms_at(epochs)


def test_batches_of_a_validation_may_have_another_size_than_a_step() -> None:
    assert terms_of(validation_steps=5)["later_validations"] == pytest.approx(3 * 5 * VALIDATION.value)
    larger = terms_of(validation_steps=5, validation_batch_size=128)
    assert larger["later_validations"] == pytest.approx(3 * 10 * VALIDATION.value)
    assert terms_of(validation_steps=5, validation_batch_size=128, validation_examples=640) == larger
    # A number of batches that the user states is of the size of a step.
    asked = terms_of(vs.Workload(validation_steps=7), validation_steps=5, validation_batch_size=128)
    assert asked["later_validations"] == pytest.approx(3 * 7 * VALIDATION.value)


def test_validations_follow_their_schedule() -> None:
    often = terms_of(validation_examples=640, validations_per_epoch=2.5)
    assert often["later_validations"] == pytest.approx(3 * 2.5 * 10 * VALIDATION.value)
    assert often["first_validation"] == pytest.approx(2.5 * 10 * VALIDATION.value + FIRST_VALIDATION.value)
    rarely = terms_of(validation_examples=640, validation_freq=2)
    assert rarely["later_validations"] == pytest.approx(10 * VALIDATION.value)


def test_the_size_of_a_description_counts_as_that_of_a_workload() -> None:
    described = make_description(examples=6400, validation_examples=640)
    stated = rank(make_description(examples=6400), workload=vs.Workload(validation_examples=640))
    assert [row.seconds for row in rank(described)] == [row.seconds for row in stated]
    assert {row.terms["later_validations"] > 0 for row in stated} == {True}
    none = rank(described, workload=vs.Workload(validation_examples=0))
    assert [row.seconds for row in none] == [row.seconds for row in rank(make_description(examples=6400))]


UNSEEN = "validation-unseen"


def test_a_validation_of_unknown_size_is_a_warning() -> None:
    ranking = rank(make_description(validates=True))
    (finding,) = (finding for finding in ranking.findings if finding.code == UNSEEN)
    assert finding.severity == "warning"
    assert "--validation-examples" in finding.remedy
    for workload, setup in (
        (vs.Workload(validation_examples=500), {"validates": True}),
        (vs.Workload(validation_examples=0), {"validates": True}),
        (None, {"validates": True, "validation_examples": 500}),
        (None, {"validates": True, "validation_steps": 5}),
        (None, {"validates": False}),
        (None, {}),
    ):
        settled = rank(make_description(**setup), workload=workload)
        assert UNSEEN not in {finding.code for finding in settled.findings}


def test_a_validation_that_a_laptop_has_seen_is_not_forgotten() -> None:
    seen = on_cpu()
    validation = vs.records.Validation(epoch=0, seconds=3.0)
    seen = seen.model_copy(update={"timeline": seen.timeline.model_copy(update={"validations": (validation,)})})
    unseen = seen.model_copy(update={"setup": seen.setup.model_copy(update={"validation_examples": None})})
    assert without_times(unseen).setup.validates is True
    assert UNSEEN in {finding.code for finding in rank(unseen).findings}


def test_a_description_has_no_times_that_could_lack_a_validation() -> None:
    validation = vs.records.Validation(epoch=0, seconds=3.0)
    measured = probe("g5.xlarge", 0.3)
    measured = measured.model_copy(
        update={"timeline": measured.timeline.model_copy(update={"validations": (validation,)})}
    )
    for described in (make_description(), make_description(32), make_description(validation_examples=500)):
        assert not check_comparable([measured, described])
        assert not check_comparable([probe("g5.xlarge", 0.3), described])
    assert check_comparable([measured, probe("g4dn.xlarge", 0.3)])


def test_the_workload_replaces_the_size_of_the_description() -> None:
    described, step = make_description(examples=6400), Interval.exact(1.0)
    twice = describe_runtime(described, vs.Workload(examples=12_832), step, title="m", confidence=0.9)
    assert twice.terms["steady_iterations"][1] == 200
    assert twice.terms["partial_batch"][1] == pytest.approx(0.5)
    with pytest.raises(EstimateError):
        describe_runtime(make_description(examples=None), vs.Workload(), step, title="m", confidence=0.9)


def test_early_stopping_makes_the_time_an_upper_bound(scripts: Scripts) -> None:
    plain = make_description(epochs=100)
    setup = plain.setup.model_copy(update={"early_stopping": 6})
    ranking, whole = (rank(profile, epochs=None) for profile in (plain.model_copy(update={"setup": setup}), plain))
    row, other = ranking.best, whole.best
    assert (row.seconds, row.seconds_high) == (other.seconds, other.seconds_high)
    assert row.seconds_low < 0.2 * other.seconds_low
    assert "early-stopping" in {finding.code for finding in row.findings}
    assert "early-stopping" not in {finding.code for finding in other.findings}
    assert scripts.rank(ranking, {})["verdict"] == ranking.verdict


# -- rankings ----------------------------------------------------------------------------------------------------------


def test_all_machines_are_ranked_without_any_probe() -> None:
    ranking = rank(machines=None)
    assert len({row.instance_type for row in ranking}) > 100
    assert {row.basis for row in ranking} == {"described"}
    assert all(0 < row.seconds_low < row.seconds < row.seconds_high for row in ranking)
    assert sum(row.chance for row in ranking) == pytest.approx(1)
    assert [row.seconds for row in ranking] == [row.seconds for row in rank(machines="all")]
    assert ranking.verdict.startswith("Probably rent ")
    assert {"other_vendor", "share_of_gpu"} <= {exclusion.reason_code for exclusion in ranking.excluded}


def test_step_times_are_those_of_predict() -> None:
    times = vs.predict([make_description()], machines=NAMES, catalog=CATALOG).set_index("instance_type")
    for row in rank():
        assert row.terms["steady_iterations"] == pytest.approx(
            times["step_seconds"][row.instance_type] * 782 * 50, rel=2e-3
        )


def test_a_probe_on_a_gpu_makes_predictions_of_descriptions() -> None:
    ranking = rank([make_description(), probe("g4dn.xlarge", 0.3)])
    assert {row.instance_type: row.basis for row in ranking} == dict.fromkeys(NAMES, "predicted") | {
        "g4dn.xlarge": "measured"
    }
    before = {row.instance_type: row.seconds_high / row.seconds_low for row in rank()}
    after = {row.instance_type: row.seconds_high / row.seconds_low for row in ranking}
    assert all(after[name] < 0.9 * before[name] for name in NAMES)
    # The description says no more than the probe, which contains it.
    alone = rank([probe("g4dn.xlarge", 0.3)])
    assert [(row.title, row.seconds) for row in alone] == [(row.title, row.seconds) for row in ranking]


def test_a_description_serves_a_probe_that_has_none() -> None:
    plain = make_profile("g4dn.xlarge", 0.3, steps_per_epoch=782, examples=50_000)
    with_it, without = (
        {row.instance_type: row for row in rank(profiles)}["g5.xlarge"]
        for profiles in ([make_description(), plain], plain)
    )
    assert with_it.seconds_high / with_it.seconds_low < without.seconds_high / without.seconds_low


@pytest.mark.parametrize("name", [None, "c5.xlarge"])
def test_a_probe_without_a_gpu_contributes_its_description(name: str | None) -> None:
    ranking = rank(on_cpu(name))
    described = {row.instance_type: row.seconds for row in ranking if row.basis == "described"}
    assert set(described) == set(NAMES)
    assert all(seconds < 5.0 * 782 * 50 / 4 for seconds in described.values())
    measured = {row.instance_type for row in ranking if row.basis == "measured"}
    assert measured == ({"c5.xlarge"} if name else set())
    # Without a description, no machine with a GPU can be predicted.
    plain = on_cpu(name).model_copy(update={"work": None})
    assert {row.basis for row in rank(plain, machines="all")} <= {"measured"}


@pytest.mark.parametrize("name", [None, "c5.xlarge"])
def test_no_machine_is_faster_than_the_input_of_a_probe_without_a_gpu(name: str | None) -> None:
    ranking = rank(on_cpu(name, wait=0.2))  # 1 s of each step
    described = [row for row in ranking if row.basis == "described"]
    assert {round(row.terms["steady_iterations"] / 781 / 50, 9) for row in described} == {1.0}
    assert all(row.seconds_low > 781 * 50 for row in described)
    assert all("input-floor" in {finding.code for finding in row.findings} for row in described)


def test_batch_sizes_are_described_one_by_one() -> None:
    both = [make_description(64), make_description(128)]
    with pytest.raises(RankingError):
        rank(both)
    ranking = rank(both, batch_size="all")
    assert {row.batch_size for row in ranking} == {64, 128}
    assert {row.batch_size for row in rank(both, batch_size=128)} == {128}
    with pytest.raises(MissingNamesError):
        rank(both, batch_size=256)


def test_several_gpus_start_from_the_described_time_of_one() -> None:
    ranking = rank(machines="all", gpu="A10G", scale=vs.Scale(gpus=[1, 4]))
    rows = {row.gpu_count: row for row in ranking}
    assert {row.basis for row in ranking} == {"described"}
    assert rows[4].batch_size == 256
    assert 1.5 < rows[1].terms["steady_iterations"] / rows[4].terms["steady_iterations"] <= 4
    assert rows[4].seconds_high / rows[4].seconds_low > rows[1].seconds_high / rows[1].seconds_low


def test_what_a_description_cannot_predict_is_excluded_with_the_reason() -> None:
    together = rank(machines="all", gpu="A10G", scale=vs.Scale(nodes=[1, 2]))
    assert {row.factors.get("nodes", 1) for row in together} == {1}
    assert "no_two_node_probe" in {entry.reason_code for entry in together.excluded}
    (warning,) = (finding for finding in together.findings if finding.code == "nodes-not-ranked")
    assert (warning.severity, "2 machines" in warning.message) == ("warning", True)
    assert "nodes-not-ranked" not in {finding.code for finding in rank(scale=vs.Scale(nodes=1)).findings}
    # The same batch on more GPUs is a smaller one on each, and the description is of another size.
    smaller = rank(machines="all", gpu="A10G", scale=vs.Scale(gpus=[1, 4], constant_batch="global"))
    assert {row.gpu_count for row in smaller} == {1}
    assert [entry.candidate for entry in smaller.excluded if entry.reason_code == "no_gpu_probed"] == ["4 GPUs"]
    assert "per_gpu" in rank(scale=vs.Scale(gpus=[4], constant_batch="global")).verdict


def test_energy_follows_from_the_description() -> None:
    ranking = rank(objective="co2")
    assert len(ranking) == len(NAMES)
    assert {power.basis for power in ranking.candidates.power.powers} == {"described"}  # type: ignore[union-attr]
    assert "energy-assumed" in {finding.code for finding in ranking.findings}


# -- probabilities -----------------------------------------------------------------------------------------------------


def test_the_verdict_states_what_a_probe_is_worth() -> None:
    ranking = rank(machines="all", epochs=2000)
    probe = ranking.next_probe
    assert probe is not None
    sure = chance_of_choice(ranking)
    assert 0 < sure < probe.chance_after < 1
    assert f"({sure:.0%} chance its GPU is cheapest)" in ranking.headline
    assert ranking.verdict.endswith(
        f"A probe on {probe.instance_type} for {format_usd(probe.probe_usd)} raises the chance to "
        f"{probe.chance_after:.0%}."
    )


def test_a_probe_never_lowers_the_expected_probability() -> None:
    ranking = rank(machines="all")
    sure = chance_of_choice(ranking)
    for possible in rank_probes(ranking)[:20]:
        after = chance_after_probe(ranking, int(ranking.candidates.machine_estimate[possible.candidate]))
        assert sure <= after <= 1


def test_the_stated_probabilities_are_those_of_simulated_probes() -> None:
    """Truths are drawn from the posterior with other random numbers, and each probe conditions it on its truth."""
    ranking = rank(epochs=5000, machines=[*NAMES, "g5g.xlarge", "p4d.24xlarge"])
    best = ranking.assessment.order[0]
    offers = best[np.sort(np.unique(ranking.candidates.machine_estimate[best], return_index=True)[1])]
    which = ranking.candidates.machine_estimate[offers]
    predictions = [ranking.candidates.machine_estimates[i].prediction for i in which]
    posterior, columns = predictions[0].posterior, [prediction.column for prediction in predictions]
    assert all(prediction.posterior is posterior for prediction in predictions)
    level = np.log(ranking.assessment.score[offers, 0])
    truth = posterior.draws(20_000, seed=5)[:, columns]
    winner = np.argmin(level + truth, axis=1)
    assert chance_of_choice(ranking) == pytest.approx(np.mean(winner == 0), abs=0.03)
    covariance = posterior.covariance[np.ix_(columns, columns)]
    for at, machine in enumerate(which.tolist()):
        expected = level + truth[:, [at]] * covariance[at] / covariance[at, at]
        right = np.mean(winner == np.argmin(expected, axis=1))
        assert chance_after_probe(ranking, machine) == pytest.approx(right, abs=0.03)


def test_the_winners_of_the_draws_are_those_of_the_probabilities() -> None:
    ranking = rank(machines="all")
    winners, which = ranking.assessment.winners[0], ranking.candidates.machine_estimate
    shares = np.bincount(which[winners], minlength=len(ranking.candidates.machine_estimates)) / len(winners)
    chances = np.bincount(which, weights=ranking.assessment.chance[:, 0], minlength=len(shares))
    assert shares == pytest.approx(chances, abs=1e-3)


# -- output ------------------------------------------------------------------------------------------------------------


def test_launch_bound_steps_are_shown_as_intervals_only() -> None:
    ranking = rank(make_description(2))
    row = ranking.best
    assert row.interval_only
    assert "(" not in row.time_text
    assert "(" not in row.cost_text
    assert "launch-bound" in {finding.code for finding in row.findings}
    assert not rank().best.interval_only


@pytest.mark.parametrize("size", [2, 64])
def test_the_page_shows_the_same_verdict(scripts: Scripts, size: int) -> None:
    ranking = rank(make_description(size), machines="all", provider="aws", epochs=2000)
    page = scripts.rank(ranking, {})
    assert page["verdict"] == ranking.verdict
    assert {row["candidate"]["basis"] for row in page["rows"]} == {"described"}


def test_three_kinds_of_rows_are_told_apart(tmp_path: Path) -> None:
    mixed = [make_description(), probe("g4dn.xlarge", 0.3), make_description(128)]
    ranking = rank(mixed, batch_size="all", machines="all")
    assert {row.basis for row in ranking} == {"measured", "predicted", "described"}
    text, html = str(ranking), ranking._repr_html_()
    for mark in ("never probed", "described only"):
        assert mark in text
        assert mark in html
    output = json.loads(ranking.to_json())
    assert {row["basis"] for row in output["rows"]} == {"measured", "predicted", "described"}
    assert len(ranking.keep(tmp_path, top=5)) == 5


def test_the_command_line_ranks_a_described_record(tmp_path: Path) -> None:
    make_description(epochs=50).save(tmp_path / "described.json")
    result = CliRunner().invoke(app, ["rank", str(tmp_path), "--provider", "aws", "--json"])
    assert result.exit_code == 0
    assert {row["basis"] for row in json.loads(result.stdout)["rows"]} == {"described"}
    result = CliRunner().invoke(
        app, ["rank", str(tmp_path), "--provider", "aws", "--epochs", "2000", "--next", "--json"]
    )
    assert 0 < json.loads(result.stdout)["next_probe"]["chance_after"] <= 1


def test_a_described_forecast_names_its_basis(tmp_path: Path) -> None:
    rank().keep(tmp_path)
    kept = vs.load_records(tmp_path)
    assert {record.basis for record in kept} == {"described"}  # type: ignore[attr-defined]
    assert {record.model for record in kept} == {"net"}  # type: ignore[attr-defined]


def test_a_description_alone_is_no_estimate() -> None:
    with pytest.raises(EstimateError, match=r"vmselect\.rank"):
        vs.estimate(make_description(), epochs=5)
    assert make_description().findings == ()


def test_a_machine_with_an_arm_processor_is_marked() -> None:
    codes = {
        row.instance_type: {finding.code for finding in row.findings} for row in rank(machines=[*NAMES, "g5g.xlarge"])
    }
    assert {name for name, found in codes.items() if "arm-host" in found} == {"g5g.xlarge"}
    probed = rank([probe("g5g.xlarge", 0.3)], machines=None)
    assert "arm-host" not in {finding.code for finding in probed.best.findings}
