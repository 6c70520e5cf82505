"""Stopping when sure, in simulated sweeps: what is skipped, repeated and recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.records import Gpu
from vmselect.sweeps import SweepResult, read_state
from vmselect.sweeps import run as session
from vmselect.sweeps.journal import read_journal
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.run import status_rows
from vmselect.sweeps.sequential import Figures, figures_of, figures_used, speed_up

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from sweep_simulated import SimulatedRunner, make_profile, priced_catalog

STEPS = {"g4dn.xlarge": 0.4, "g5.xlarge": 0.1, "p3.2xlarge": 0.12, "p5.48xlarge": 0.05, "c5.4xlarge": 5.0}


Sweep = Callable[..., tuple[SweepResult, SimulatedRunner]]


@pytest.fixture
def sweep_with(monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A sweep over the machines of ``steps``, each with its seconds per step; 0 is one that fails."""

    def sweep(
        steps: dict[str, float], folder: Path, *, plan: dict[str, Any] | None = None, noise: float = 0.0, **options: Any
    ) -> tuple[SweepResult, SimulatedRunner]:
        def measure(trial: Trial) -> vs.Profile | None:
            seconds = steps[str(trial.instance_type)]
            return make_profile(trial, seconds, noise=noise) if seconds else None

        runner = SimulatedRunner(measure)
        monkeypatch.setattr(session, "make_runner", lambda *_: runner)
        given = {"factors": {"instance_type": list(steps)}} | (plan or {})
        made = vs.Plan("python -c pass", minutes=10, expected_minutes=5, **given)
        options = {"catalog": vs.Catalog.embedded("2026-08-22"), "yes": True, "stop_when_sure": True} | options
        return vs.sweep(made, folder, **options), runner

    return sweep


def test_what_cannot_win_is_skipped_with_its_reason_and_what_that_saved(tmp_path: Path, sweep_with: Sweep) -> None:
    result, _ = sweep_with(STEPS, tmp_path / "out")
    by_type = {one.trial.instance_type: one for one in result.skipped}
    assert set(by_type) == {"p3.2xlarge"}, "the only one whose figures cannot make up for its price"
    assert by_type["p3.2xlarge"].sure
    assert len(result.records) == 4
    worst = 10 / 60 * vs.Catalog.embedded("2026-08-22").price("p3.2xlarge")
    assert (result.saved_usd, result.saved_worst_usd) == (pytest.approx(worst / 2), pytest.approx(worst))
    ranked = vs.rank(result.records, epochs=50).with_findings(result.findings)
    assert ranked.best.instance_type == "g5.xlarge"
    assert [one.code for one in ranked.findings if "p3.2xlarge" in one.message] == ["not-probed"]
    ranking = CliRunner().invoke(app, ["rank", str(tmp_path / "out"), "--epochs", "50"])
    assert "p3.2xlarge" in ranking.output
    assert "1 skipped" in CliRunner().invoke(app, ["sweep", "status", str(tmp_path / "out")]).output
    assert not result.added


def test_a_machine_without_a_gpu_or_with_an_unknown_one_is_never_skipped(tmp_path: Path, sweep_with: Sweep) -> None:
    steps = {"g5.xlarge": 0.1, "c5.4xlarge": 50.0, "mine": 50.0, "trn1.2xlarge": 50.0}
    catalog = priced_catalog({"g5.xlarge": 0.01}).with_offers(
        [{"provider": "lab", "instance_type": "mine", "region": "here", "market": "on_demand", "usd_per_hour": 9.0,
          "gpu_model": "Unheard-of", "gpu_count": 1, "vcpus": 4}]
    )  # fmt: skip
    result, _ = sweep_with(steps, tmp_path / "out", catalog=catalog)
    assert not result.skipped
    # A measured machine without a GPU says nothing about those that have one.
    result, _ = sweep_with({"c5.4xlarge": 0.01, "p5.48xlarge": 0.1}, tmp_path / "other")
    assert not result.skipped


def with_environment(profile: vs.Profile, **facts: object) -> vs.Profile:
    return profile.model_copy(update={"environment": profile.environment.model_copy(update=facts)})


def test_only_a_training_that_its_gpus_limit_bounds_others() -> None:
    plan = vs.Plan("python t.py", factors={"instance_type": ["g5.xlarge", "p4d.24xlarge"]}, seed=None)
    small, large = (figures_of(trial, vs.Catalog.embedded("2026-08-22")) for trial in plan.trials)
    assert small
    assert large
    assert large.single_tflops == pytest.approx(8 * 19.5)
    good = make_profile(plan.trials[0], 0.1)
    assert figures_used(small, [good]) == small
    assert figures_used(large, [good]) == Figures("NVIDIA", 1, 19.5, 312, 156, 1555, 96), "it used one GPU of eight"
    slowing = vs.Profile.from_times(first_epoch_seconds=40, later_epoch_seconds=[30, 33, 36, 40])
    assert figures_used(small, [slowing]) is None
    assert figures_used(small, [with_environment(good, framework_gpus=0)]) is None
    memory = 24 * 2**30
    for held, code in ((0.1, "gpu-memory-empty"), (0.97, "gpu-memory-full")):
        profile = with_environment(good, framework_gpus=1, gpus=(Gpu(name="A10G", memory_bytes=memory),),
                                   peak_gpu_memory_bytes=int(held * memory))  # fmt: skip
        assert code in {cause.code for cause in vs.diagnose(profile)}
        assert figures_used(small, [profile]) == small


def test_single_precision_on_tensor_cores_counts_where_only_one_of_the_two_has_it() -> None:
    v100 = Figures("NVIDIA", 1, 15.7, 125, None, 900, 8)
    a100 = Figures("NVIDIA", 1, 19.5, 312, 156, 1555, 8)
    assert speed_up(v100, a100) == pytest.approx(156 / 15.7)
    assert speed_up(a100, v100) == 1.0
    assert speed_up(v100, Figures("AMD", 1, 163, 1307, None, 5300, 8)) is None


def test_what_is_tied_is_repeated_within_what_was_agreed_to(tmp_path: Path, sweep_with: Sweep) -> None:
    catalog = priced_catalog({"g4dn.xlarge": 1.0, "g5.xlarge": 1.0})
    steps = {"g4dn.xlarge": 0.1, "g5.xlarge": 0.1001}
    result, runner = sweep_with(steps, tmp_path / "out", catalog=catalog, noise=0.02)
    assert len(result.added) == 6, "three more of each, and no more"
    assert sorted(runner.order) == [f"00{number}" for number in range(1, 9)]
    state = read_state(tmp_path / "out")
    assert [row["status"] for row in status_rows(state)] == ["done"] * 8
    assert state.added["003"]["like"] in ("001", "002")
    again, after = sweep_with(steps, tmp_path / "out", catalog=catalog, noise=0.02)
    assert (len(again.records), after.order) == (8, [])


def test_repetitions_stay_within_the_budget(tmp_path: Path, sweep_with: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = priced_catalog({"g4dn.xlarge": 1.0, "g5.xlarge": 1.0})
    steps = {"g4dn.xlarge": 0.1, "g5.xlarge": 0.1001}
    monkeypatch.setattr("vmselect.sweeps.engine.Engine._seconds", lambda *_: 600.0)  # each takes all of its time
    result, _ = sweep_with(steps, tmp_path / "out", catalog=catalog, noise=0.02, budget_usd=5.0)
    assert result.added == ()
    assert result.spent_usd == pytest.approx(2 / 6)


def test_planned_repetitions_of_what_is_clearly_dearer_are_skipped(tmp_path: Path, sweep_with: Sweep) -> None:
    catalog = priced_catalog({"g4dn.xlarge": 1.0, "g5.xlarge": 1.0})
    result, _ = sweep_with({"g4dn.xlarge": 0.1, "g5.xlarge": 1.0}, tmp_path / "out", catalog=catalog,
                           plan={"repetitions": 3})  # fmt: skip
    assert [one.trial.instance_type for one in result.skipped] == ["g5.xlarge"] * 2


def test_batch_sizes_are_not_compared_with_each_other(tmp_path: Path, sweep_with: Sweep) -> None:
    plan = {"factors": {"instance_type": ["g5.xlarge", "p3.2xlarge"], "batch_size": [64, 128]}}
    result, runner = sweep_with({"g5.xlarge": 0.1, "p3.2xlarge": 0.12}, tmp_path / "out", plan=plan)
    assert {(one.trial.instance_type, one.trial.factors["batch_size"]) for one in result.skipped} == {
        ("p3.2xlarge", 64), ("p3.2xlarge", 128)
    }  # fmt: skip
    assert len(runner.order) == 2


def test_a_failed_trial_leads_nothing(tmp_path: Path, sweep_with: Sweep) -> None:
    result, _ = sweep_with({"g5.xlarge": 0.0, "p3.2xlarge": 0.12}, tmp_path / "out")
    assert [one.trial.instance_type for one in result.failed] == ["g5.xlarge"]
    assert len(result.records) == 1


def test_resuming_stays_as_it_was_begun_and_running_everything_can_be_asked_for(
    tmp_path: Path, sweep_with: Sweep
) -> None:
    steps = {"g5.xlarge": 0.1, "p3.2xlarge": 0.12}
    sweep_with(steps, tmp_path / "out")
    assert read_state(tmp_path / "out").stop_when_sure
    same, runner = sweep_with(steps, tmp_path / "out", stop_when_sure=None)
    assert (len(same.skipped), runner.order) == (1, [])
    assert [event["sure"] for event in read_journal(tmp_path / "out") if event["event"] == "skip"] == [True]
    shown: list[tuple[str, ...]] = []
    everything, runner = sweep_with(
        steps, tmp_path / "out", stop_when_sure=False, yes=False,
        confirm=lambda proposal: shown.append(proposal.to_run) or True,
    )  # fmt: skip
    assert shown == [("002",)], "what was skipped is shown again before it is paid for"
    assert (len(everything.records), runner.order, everything.skipped) == (2, ["002"], ())


def test_epochs_decide_and_machines_without_any_price_are_compared_by_time(tmp_path: Path, sweep_with: Sweep) -> None:
    steps = {"g5.xlarge": 0.1, "p3.2xlarge": 0.12}
    long, _ = sweep_with(steps, tmp_path / "long", epochs=1000)
    assert len(long.skipped) == 1
    free = {"factors": {"machine": ["a", "b"]}}
    result, _ = sweep_with({"a": 0.1, "b": 0.5}, tmp_path / "free", plan={**free, "repetitions": 2})
    assert [one.trial.factors["machine"] for one in result.skipped] == ["b"]


def test_the_commands_skip_and_run_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"g5.xlarge": 0.1, "p3.2xlarge": 0.12}
    runner = SimulatedRunner(lambda trial: make_profile(trial, steps[str(trial.instance_type)]))
    monkeypatch.setattr(session, "make_runner", lambda *_: runner)
    plan = vs.Plan("python -c pass", factors={"instance_type": list(steps)}, minutes=10).save(tmp_path / "plan.yaml")
    folder = str(tmp_path / "out")
    prices = ["--date", "2026-08-22"]
    run = ["sweep", "run", str(plan), folder, "--yes", "--stop-when-sure", "--epochs", "50", *prices]
    done = CliRunner().invoke(app, run)
    assert done.exit_code == 0, "what cannot win is no failure"
    assert read_state(folder).epochs == 50
    lines = CliRunner().invoke(app, ["sweep", "resume", folder, "--yes", "--format", "json"]).stdout.splitlines()
    assert json.loads(lines[-1])["sure"] == ["002"]
    assert CliRunner().invoke(app, ["sweep", "resume", folder, "--yes", "--run-all"]).exit_code == 0
    assert runner.order == ["001", "002"]


@pytest.mark.parametrize("wrong", [{"stop_when_sure": "yes"}, {"epochs": 0}, {"epochs": "many"}])
def test_what_is_no_answer_is_refused(wrong: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(vs.errors.ArgumentError):
        vs.sweep(vs.Plan("python -c pass"), tmp_path / "out", yes=True, **wrong)  # type: ignore[arg-type]
