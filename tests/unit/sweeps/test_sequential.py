"""Sweeps with ``stop_when_sure``: which trials are skipped, repeated and recorded."""

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

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from sweep_runners import SimulatedRunner, priced_catalog, profile_trial

STEPS = {"g5.xlarge": 0.1, "p3.2xlarge": 0.12}
TIED = {"g4dn.xlarge": 0.1, "g5.xlarge": 0.1001}
EQUAL_PRICES = {"g4dn.xlarge": 1.0, "g5.xlarge": 1.0}
CATALOG = vs.Catalog.embedded("2026-08-22")

Sweep = Callable[..., tuple[SweepResult, SimulatedRunner]]


@pytest.fixture
def sweep_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A sweep over the machines of ``steps``, each with its seconds per step; 0 is one that fails."""

    def sweep(
        steps: dict[str, float], *, plan: dict[str, Any] | None = None, noise: float = 0.0, **options: Any
    ) -> tuple[SweepResult, SimulatedRunner]:
        def measure(trial: Trial) -> vs.Profile | None:
            seconds = steps[str(trial.instance_type)]
            return profile_trial(trial, seconds, noise=noise) if seconds else None

        runner = SimulatedRunner(measure)
        monkeypatch.setattr(session, "make_runner", lambda *_: runner)
        given = {"factors": {"instance_type": list(steps)}} | (plan or {})
        made = vs.Plan("python -c pass", minutes=10, expected_minutes=5, stand_ins=True, **given)
        options = {"catalog": CATALOG, "yes": True, "stop_when_sure": True} | options
        return vs.sweep(made, tmp_path / "out", **options), runner

    return sweep


def test_trial_that_cannot_win_is_skipped_and_its_cost_is_saved(tmp_path, sweep_with) -> None:
    steps = {"g4dn.xlarge": 0.4, "p5.48xlarge": 0.05, "c5.4xlarge": 5.0, **STEPS}
    result, _ = sweep_with(steps)
    assert [(one.trial.instance_type, one.sure) for one in result.skipped] == [("p3.2xlarge", True)]
    assert len(result.records) == 4
    worst = 10 / 60 * CATALOG.price("p3.2xlarge")
    assert (result.saved_usd, result.saved_worst_usd) == (pytest.approx(worst / 2), pytest.approx(worst))
    ranked = vs.rank(result.records, epochs=50).with_findings(result.findings)
    assert ranked.best.instance_type == "g5.xlarge"
    assert [one.code for one in ranked.findings if "p3.2xlarge" in one.message] == ["not-probed"]
    assert "p3.2xlarge" in CliRunner().invoke(app, ["rank", str(tmp_path / "out"), "--epochs", "50"]).output
    assert not result.added


@pytest.mark.parametrize(
    "steps",
    [
        {"g5.xlarge": 0.1, "c5.4xlarge": 50.0, "mine": 50.0, "trn1.2xlarge": 50.0},
        {"c5.4xlarge": 0.01, "p5.48xlarge": 0.1},  # a measured machine without a GPU bounds no other
    ],
)
def test_machine_without_a_known_gpu_is_never_skipped(steps, sweep_with) -> None:
    mine = {"provider": "lab", "instance_type": "mine", "region": "here", "market": "on_demand", "usd_per_hour": 9.0,
            "gpu_model": "Unheard-of", "gpu_count": 1, "vcpus": 4}  # fmt: skip
    catalog = priced_catalog({"g5.xlarge": 0.01}).with_offers([mine])
    assert not sweep_with(steps, catalog=catalog)[0].skipped


def test_only_a_training_that_its_gpus_limit_bounds_others() -> None:
    plan = vs.Plan("python t.py", factors={"instance_type": ["g5.xlarge", "p4d.24xlarge"]}, seed=None)
    small, large = (figures_of(trial, CATALOG) for trial in plan.trials)
    assert large
    assert large.single_tflops == pytest.approx(8 * 19.5)
    good = profile_trial(plan.trials[0], 0.1)

    def with_environment(**facts: object) -> vs.Profile:
        return good.model_copy(update={"environment": good.environment.model_copy(update=facts)})

    assert figures_used(small, [good]) == small
    assert figures_used(large, [good]) == Figures("NVIDIA", 1, 19.5, 312, 156, 1555, 96), "it used one GPU of eight"
    slowing = vs.Profile.from_times(first_epoch_seconds=40, later_epoch_seconds=[30, 33, 36, 40])
    assert figures_used(small, [slowing]) is None
    assert figures_used(small, [with_environment(framework_gpus=0)]) is None
    memory = 24 * 2**30
    for share, code in ((0.1, "gpu-memory-empty"), (0.97, "gpu-memory-full")):
        profile = with_environment(framework_gpus=1, gpus=(Gpu(name="A10G", memory_bytes=memory),),
                                   peak_gpu_memory_bytes=int(share * memory))  # fmt: skip
        assert code in {cause.code for cause in vs.diagnose(profile)}
        assert figures_used(small, [profile]) == small


def test_speed_up_uses_tensor_cores_and_compares_one_vendor() -> None:
    v100 = Figures("NVIDIA", 1, 15.7, 125, None, 900, 8)
    a100 = Figures("NVIDIA", 1, 19.5, 312, 156, 1555, 8)
    assert speed_up(v100, a100) == pytest.approx(156 / 15.7)
    assert speed_up(a100, v100) == 1.0
    assert speed_up(v100, Figures("AMD", 1, 163, 1307, None, 5300, 8)) is None


def test_tied_trials_are_repeated_three_times(tmp_path, sweep_with) -> None:
    catalog = priced_catalog(EQUAL_PRICES)
    result, runner = sweep_with(TIED, catalog=catalog, noise=0.02)
    assert len(result.added) == 6
    assert sorted(runner.order) == [f"00{number}" for number in range(1, 9)]
    state = read_state(tmp_path / "out")
    assert [row["status"] for row in status_rows(state)] == ["done"] * 8
    assert state.added["003"]["like"] in ("001", "002")
    again, after = sweep_with(TIED, catalog=catalog, noise=0.02)
    assert (len(again.records), after.order) == (8, [])


def test_repetitions_stay_within_the_budget(sweep_with, monkeypatch) -> None:
    monkeypatch.setattr("vmselect.sweeps.engine.Engine._seconds", lambda *_: 600.0)  # each takes all of its time
    result, _ = sweep_with(TIED, catalog=priced_catalog(EQUAL_PRICES), noise=0.02, budget_usd=5.0)
    assert result.added == ()
    assert result.spent_usd == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("steps", "plan", "skipped"),
    [
        ({"g4dn.xlarge": 0.1, "g5.xlarge": 1.0}, {"repetitions": 3}, ["g5.xlarge"] * 2),
        # Batch sizes are not compared with each other.
        (STEPS, {"factors": {"instance_type": list(STEPS), "batch_size": [64, 128]}}, ["p3.2xlarge"] * 2),
        # Machines without any price are compared by time.
        ({"a": 0.1, "b": 0.5}, {"factors": {"machine": ["a", "b"]}, "repetitions": 2}, ["b"]),
        ({**STEPS, "g5.xlarge": 0.0}, {}, []),  # a failed trial bounds no other
    ],
)
def test_skipped_trials_of_a_plan(steps, plan, skipped, sweep_with) -> None:
    catalog = priced_catalog(EQUAL_PRICES) if "g4dn.xlarge" in steps else CATALOG
    result, _ = sweep_with(steps, plan=plan, catalog=catalog)
    assert [one.trial.instance_type for one in result.skipped] == skipped
    assert len(result.failed) == list(steps.values()).count(0.0)


@pytest.mark.parametrize("usd_per_hour", [0.0, 1.0])
def test_reason_of_a_skipped_trial_is_a_time_where_nothing_has_a_price(usd_per_hour, sweep_with) -> None:
    types = {"fast": "p5.48xlarge", "slow": "g4dn.xlarge", "as-slow": "g4dn.xlarge"}
    machines = {name: {"instance_type": kind, "usd_per_hour": usd_per_hour} for name, kind in types.items()}
    plan = {"factors": {"machine": list(types)}, "machines": machines}
    result, _ = sweep_with({"p5.48xlarge": 0.05, "g4dn.xlarge": 0.4}, plan=plan)
    (skipped,) = result.skipped
    assert ("$" in skipped.reason) is bool(usd_per_hour)
    assert ("$" in skipped.reason) == bool(usd_per_hour)


def test_resume_keeps_the_setting_unless_another_is_given(tmp_path, sweep_with) -> None:
    sweep_with(STEPS, epochs=1000)
    assert read_state(tmp_path / "out").stop_when_sure
    same, runner = sweep_with(STEPS, stop_when_sure=None)
    assert (len(same.skipped), runner.order) == (1, [])
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

    options = ("--yes", "--stop-when-sure", "--epochs", "50", "--date", "2026-08-22")
    assert invoke("run", str(plan), folder, *options).exit_code == 0, "a skipped trial is no failure"
    assert read_state(folder).epochs == 50
    assert "1 skipped" in invoke("status", folder).output
    lines = invoke("resume", folder, "--yes", "--format", "json").stdout.splitlines()
    assert json.loads(lines[-1])["sure"] == ["002"]
    assert invoke("resume", folder, "--yes", "--run-all").exit_code == 0
    assert runner.order == ["001", "002"]


@pytest.mark.parametrize("wrong", [{"stop_when_sure": "yes"}, {"epochs": 0}])
def test_wrong_settings_are_rejected(wrong, tmp_path) -> None:
    with pytest.raises(vs.errors.ArgumentError):
        vs.sweep(vs.Plan("python -c pass"), tmp_path / "out", yes=True, **wrong)  # type: ignore[arg-type]
