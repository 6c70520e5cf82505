"""Sweeps with ``stop_when_sure``: which trials are skipped, repeated and recorded."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.records.training import InputWait
from vmselect.sweeps import SweepResult, read_state
from vmselect.sweeps import run as session
from vmselect.sweeps.journal import read_journal
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.run import status_rows
from vmselect.sweeps.sequential import Sequential

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from sweep_runners import SimulatedRunner, priced_catalog, profile_trial

STEPS = {"g5.xlarge": 0.1, "p3.2xlarge": 0.12}
TIED = {"g4dn.xlarge": 0.1, "g5.xlarge": 0.1001}
EQUAL_PRICES = {"g4dn.xlarge": 1.0, "g5.xlarge": 1.0}
CATALOG = vs.Catalog.embedded("2026-08-22")

Sweep = Callable[..., tuple[SweepResult, SimulatedRunner]]


def wait_for_input(profile: vs.Profile, share: float) -> vs.Profile:
    """The profile of a training that waited for its input during ``share`` of its time."""
    if not share:
        return profile
    waited = InputWait(seconds=share * 10, wall_seconds=10.0, steps=10, method="test")
    return profile.model_copy(update={"timeline": profile.timeline.model_copy(update={"input_wait": waited})})


def probed_types(result: SweepResult) -> set[str | None]:
    return {record.instance_type for record in result.records}


@pytest.fixture
def sweep_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A sweep over the machines of ``steps``, each with its seconds per step; 0 is one that fails."""

    def sweep(
        steps: dict[str, float],
        *,
        plan: dict[str, Any] | None = None,
        noise: float = 0.0,
        waiting: float = 0.0,
        **options: Any,
    ) -> tuple[SweepResult, SimulatedRunner]:
        def measure(trial: Trial) -> vs.Profile | None:
            seconds = steps[str(trial.instance_type)]
            return wait_for_input(profile_trial(trial, seconds, noise=noise), waiting) if seconds else None

        runner = SimulatedRunner(measure)
        monkeypatch.setattr(session, "make_runner", lambda *_: runner)
        arguments = {"factors": {"instance_type": list(steps)}} | (plan or {})
        made = vs.Plan("python -c pass", minutes=10, expected_minutes=5, stand_ins=True, **arguments)
        options = {"catalog": CATALOG, "yes": True, "stop_when_sure": True} | options
        return vs.sweep(made, tmp_path / "out", **options), runner

    return sweep


def test_trial_that_is_not_worth_running_is_skipped_and_its_cost_is_saved(tmp_path, sweep_with) -> None:
    steps = {"g4dn.xlarge": 0.4, "p5.48xlarge": 0.05, "c5.4xlarge": 5.0, **STEPS}
    result, _ = sweep_with(steps)
    assert [(missing.trial.instance_type, missing.sure) for missing in result.skipped] == [("p3.2xlarge", True)]
    assert len(result.records) == 4
    worst = 10 / 60 * CATALOG.price("p3.2xlarge")
    assert (result.saved_usd, result.saved_worst_usd) == (pytest.approx(worst / 2), pytest.approx(worst))
    ranked = vs.rank(result.records, epochs=50).with_findings(result.findings)
    assert ranked.best.instance_type == "g5.xlarge"
    assert [missing.code for missing in ranked.findings if "p3.2xlarge" in missing.message] == ["not-probed"]
    command = ["rank", str(tmp_path / "out"), "--epochs", "50", "--verbose"]
    assert "p3.2xlarge" in CliRunner().invoke(app, command).output
    assert not result.added


MINE = {"provider": "lab", "instance_type": "mine", "region": "here", "market": "on_demand", "usd_per_hour": 9.0,
        "gpu_model": "Unheard-of", "gpu_count": 1, "vcpus": 4}  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        # Without a GPU, without published figures, of another vendor, with several GPUs.
        ({"g5.xlarge": 0.1, "c5.4xlarge": 50.0, "mine": 50.0, "g4ad.xlarge": 50.0, "g5.12xlarge": 50.0}, {}),
        ({"c5.4xlarge": 0.01, "p3.2xlarge": 0.1}, {}),  # nothing is predicted from a machine without a GPU
        ({"g5.xlarge": 0.1}, {"plan": {"factors": {"instance_type": ["g5.xlarge"], "nodes": [1, 2]}}}),
        ({"g5.xlarge": 0.1, "p3.2xlarge": 0.5}, {"waiting": 0.6}),  # nor from one that waited for its input
    ],
)
def test_machine_that_cannot_be_predicted_is_never_skipped(steps, options, sweep_with) -> None:
    catalog = priced_catalog({"g5.xlarge": 0.01, "c5.4xlarge": 0.001}).with_offers([MINE])
    assert not sweep_with(steps, catalog=catalog, enough_regret=1.0, **options)[0].skipped


def test_only_one_gpu_is_predicted_so_a_predictable_machine_is_skipped_beside_the_others(sweep_with) -> None:
    steps = {"g5.xlarge": 0.1, "c5.4xlarge": 50.0, "g5.2xlarge": 0.1}
    (skipped,) = sweep_with(steps, enough_regret=1.0)[0].skipped
    assert skipped.trial.instance_type == "g5.2xlarge"


@pytest.mark.parametrize("epochs", [None, 100_000])
def test_nothing_is_skipped_while_the_regret_is_above_the_limit(epochs, sweep_with) -> None:
    steps = {"g4dn.xlarge": 0.4, "g6.xlarge": 0.2, **STEPS}
    result, _ = sweep_with(steps, enough_regret=0.0, epochs=epochs)
    assert probed_types(result) == set(steps)


def test_the_choice_itself_is_measured_before_the_others_are_skipped(sweep_with) -> None:
    steps = {"g4dn.xlarge": 0.05, "g5.xlarge": 1.0, "g6.xlarge": 1.0, "p3.2xlarge": 1.0}
    result, _ = sweep_with(steps, enough_regret=1.0, catalog=priced_catalog({"g5.xlarge": 0.01}))
    assert result.skipped
    ranking = vs.rank(
        result.records, epochs=1000, machines=["g5.xlarge", "g6.xlarge"], catalog=priced_catalog({"g5.xlarge": 0.01})
    )
    assert ranking.best.basis == "measured"


def test_probe_that_costs_more_than_it_saves_is_skipped(sweep_with, monkeypatch) -> None:
    monkeypatch.setattr("vmselect.sweeps.engine.Engine._seconds", lambda *_: 600.0)
    steps = {"g4dn.xlarge": 0.4, "g6.xlarge": 0.2, **STEPS}
    short, _ = sweep_with(steps, enough_regret=0.0, epochs=2)
    assert short.skipped
    for missing in short.skipped:
        cost, saving = (float(amount) for amount in re.findall(r"\$([\d.]+)", missing.reason))
        assert 0 <= saving < cost, missing.reason


def test_reason_of_a_skipped_trial_has_its_probability_and_the_regret(sweep_with) -> None:
    (skipped,) = sweep_with({"g4dn.xlarge": 0.4, **STEPS}, epochs=50)[0].skipped
    chance, regret, limit = (float(part) for part in re.findall(r"([\d.]+)%", skipped.reason))
    assert chance <= 100
    assert regret < limit == 5
    assert "$" in skipped.reason


def test_other_offers_of_a_measured_machine_share_its_time(sweep_with) -> None:
    plan = {"factors": {"instance_type": ["g5.xlarge"], "market": ["on_demand", "spot"]}}
    result, runner = sweep_with({"g5.xlarge": 0.1}, plan=plan)
    assert len(runner.order) == 1
    assert len(result.skipped) == 1


def test_records_of_other_trainings_lower_the_limit(sweep_with) -> None:
    history = [
        vs.Profile.from_times(instance_type=name, model="other", batch_size=8, iteration_seconds=[seconds] * 5)
        for name, seconds in {"g4dn.xlarge": 0.4, "g5.xlarge": 0.1, "p3.2xlarge": 0.13}.items()
    ]
    result, _ = sweep_with({"g4dn.xlarge": 0.4, **STEPS}, history=history)
    assert [missing.trial.instance_type for missing in result.skipped if "limit of 2%" in missing.reason]


def test_tied_trials_are_repeated_three_times(tmp_path, sweep_with) -> None:
    catalog = priced_catalog(EQUAL_PRICES)
    result, runner = sweep_with(TIED, catalog=catalog, noise=0.02, enough_regret=0.0)
    assert len(result.added) == 6
    assert sorted(runner.order) == [f"00{number}" for number in range(1, 9)]
    assert all(event["why"].count("%") == 2 for event in read_journal(tmp_path / "out") if event["event"] == "add")
    state = read_state(tmp_path / "out")
    assert [row["status"] for row in status_rows(state)] == ["done"] * 8
    assert state.added["003"]["like"] in ("001", "002")
    again, after = sweep_with(TIED, catalog=catalog, noise=0.02)
    assert (len(again.records), after.order) == (8, [])


def test_skipping_an_added_repetition_saves_nothing(sweep_with, monkeypatch) -> None:
    """The cost of the plan does not include it."""

    def skip_added(self, queue, trials, state) -> tuple[list[Trial], list[tuple[Trial, str]]]:
        added = [trial for trial in queue if trial.id in state.added]
        return [trial for trial in queue if trial not in added], [(trial, "untied") for trial in added]

    monkeypatch.setattr(Sequential, "arrange", skip_added)
    result, _ = sweep_with(TIED, catalog=priced_catalog(EQUAL_PRICES), noise=0.02)
    assert result.added
    assert {missing.id for missing in result.skipped} == {trial.id for trial in result.added}
    assert (result.saved_usd, result.saved_worst_usd) == (0, 0)


def test_trials_that_run_at_the_same_time_are_on_different_machines(sweep_with) -> None:
    plan = {"factors": {"instance_type": ["g5.xlarge", "g4dn.xlarge", "g6.xlarge"]}, "repetitions": 3}
    _, runner = sweep_with({"g4dn.xlarge": 0.4, "g6.xlarge": 0.2, "g5.xlarge": 0.1}, plan=plan, parallel=2)
    types = {trial.id: trial.instance_type for trial in vs.Plan("python -c pass", stand_ins=True, **plan).trials}
    first, second = (types[name] for name in runner.order[:2])
    assert first != second


def test_repetitions_stay_within_the_budget(sweep_with, monkeypatch) -> None:
    monkeypatch.setattr("vmselect.sweeps.engine.Engine._seconds", lambda *_: 600.0)  # each takes all of its time
    result, _ = sweep_with(TIED, catalog=priced_catalog(EQUAL_PRICES), noise=0.02, budget_usd=5.0, enough_regret=0.0)
    assert result.added == ()
    assert result.spent_usd == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("steps", "plan", "skipped"),
    [
        # Repetitions are run only of tied machines.
        ({"g4dn.xlarge": 0.9, "g5.xlarge": 0.3}, {"repetitions": 2}, ["g4dn.xlarge"] * 2 + ["g5.xlarge"]),
        # Batch sizes are not compared with each other.
        (STEPS, {"factors": {"instance_type": list(STEPS), "batch_size": [64, 128]}}, ["p3.2xlarge"] * 2),
        # Machines without any price are compared by time.
        ({"a": 0.1, "b": 0.5}, {"factors": {"machine": ["a", "b"]}, "repetitions": 2}, ["a", "b"]),
        ({"a": 0.1, "b": 0.1}, {"factors": {"machine": ["a", "b"]}, "repetitions": 2}, []),
        ({**STEPS, "g5.xlarge": 0.0}, {}, []),  # nothing is predicted from a failed trial
    ],
)
def test_skipped_trials_of_a_plan(steps, plan, skipped, sweep_with) -> None:
    catalog = priced_catalog(EQUAL_PRICES) if "g4dn.xlarge" in steps else CATALOG
    result, _ = sweep_with(steps, plan=plan, catalog=catalog, enough_regret=0.2)
    assert sorted(str(missing.trial.instance_type) for missing in result.skipped) == skipped
    assert len(result.failed) == list(steps.values()).count(0.0)


@pytest.mark.parametrize("usd_per_hour", [0.0, 1.0])
def test_reason_of_a_skipped_trial_is_a_time_where_nothing_has_a_price(usd_per_hour, sweep_with) -> None:
    types = {"fast": "p5.48xlarge", "slow": "g4dn.xlarge", "as-slow": "g4dn.xlarge"}
    machines = {name: {"instance_type": kind, "usd_per_hour": usd_per_hour} for name, kind in types.items()}
    plan = {"factors": {"machine": list(types)}, "machines": machines}
    result, _ = sweep_with({"p5.48xlarge": 0.05, "g4dn.xlarge": 0.4}, plan=plan)
    (skipped,) = result.skipped
    assert ("$" in skipped.reason) is bool(usd_per_hour)


def test_resume_keeps_the_setting_unless_another_is_given(tmp_path, sweep_with) -> None:
    sweep_with(STEPS, epochs=1000, enough_regret=0.2)
    assert read_state(tmp_path / "out").stop_when_sure
    same, runner = sweep_with(STEPS, stop_when_sure=None)
    assert (len(same.skipped), runner.order) == (1, [])
    state = read_state(tmp_path / "out")
    assert (state.epochs, state.enough_regret) == (1000, 0.2)
    assert [event["sure"] for event in read_journal(tmp_path / "out") if event["event"] == "skip"] == [True]
    shown: list[tuple[str, ...]] = []
    everything, runner = sweep_with(
        STEPS, stop_when_sure=False, yes=False, confirm=lambda proposal: shown.append(proposal.to_run) or True
    )
    assert shown == [("002",)], "a skipped trial is shown again before it is paid for"
    assert (len(everything.records), runner.order, everything.skipped) == (2, ["002"], ())


def test_commands_skip_and_run_all(tmp_path, monkeypatch) -> None:
    runner = SimulatedRunner(lambda trial: profile_trial(trial, STEPS[str(trial.instance_type)]))
    monkeypatch.setattr(session, "make_runner", lambda *_: runner)
    plan = vs.Plan("python -c pass", factors={"instance_type": list(STEPS)}, minutes=10, stand_ins=True).save(
        tmp_path / "plan.yaml"
    )
    folder = str(tmp_path / "out")

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["sweep", *arguments])

    options = ("--yes", "--stop-when-sure", "--epochs", "50", "--enough-regret", "0.2", "--date", "2026-08-22")
    assert invoke("run", str(plan), folder, *options).exit_code == 0, "a skipped trial is no failure"
    assert read_state(folder).epochs == 50
    assert "1 skipped" in invoke("status", folder).output
    lines = invoke("resume", folder, "--yes", "--format", "json").stdout.splitlines()
    assert json.loads(lines[-1])["sure"] == ["002"]
    assert invoke("resume", folder, "--yes", "--run-all").exit_code == 0
    assert runner.order == ["001", "002"]


@pytest.mark.parametrize(
    "wrong", [{"stop_when_sure": "yes"}, {"epochs": 0}, {"enough_regret": -0.1}, {"history": "team/"}]
)
def test_wrong_settings_are_rejected(wrong, tmp_path) -> None:
    with pytest.raises(vs.errors.ArgumentError):
        vs.sweep(vs.Plan("python -c pass"), tmp_path / "out", yes=True, **wrong)  # type: ignore[arg-type]
