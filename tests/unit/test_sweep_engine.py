"""The engine with a simulated cloud: confirmation, cost, and that nothing stays rented."""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.sweeps import engine as engine_module
from vmselect.sweeps import read_state, run
from vmselect.sweeps.journal import Event, Journal, State
from vmselect.sweeps.runners import skypilot, slurm
from vmselect.sweeps.runners.runner import Seen

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from sweep_rented import Clock, RentedRunner

Rent = Callable[[RentedRunner], RentedRunner]


@pytest.fixture
def rent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rent:
    """Sweeps of this test rent from the runner that this is given."""
    monkeypatch.chdir(tmp_path)

    def use(runner: RentedRunner) -> RentedRunner:
        monkeypatch.setattr(run, "make_runner", lambda *_: runner)
        return runner

    return use


def plan_of(trials: int = 1, **given: Any) -> vs.Plan:
    """Each trial costs a dollar a minute."""
    factors = {"machine": ["m"], "number": list(range(trials))}
    machine = {"instance_type": "invented", "usd_per_hour": 60.0}
    facts: dict[str, Any] = {"runner": "skypilot", "machines": {"m": machine}, "minutes": 10}
    return vs.Plan("python -c pass", factors=factors, **(facts | given))


def crash_while(event: str, plan: vs.Plan, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep whose process dies right after it announced something."""

    class Killed(BaseException):
        pass

    def write(self: Journal, name: str, **facts: Any) -> Event:
        line = original(self, name, **facts)
        if name == event:
            raise Killed
        return line

    original = Journal.write
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", write)
        with pytest.raises(Killed):
            vs.sweep(plan, folder, budget_usd=100, yes=True)


def test_an_interrupted_trial_is_confirmed_before_it_is_rented_again(
    rent: Rent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = rent(RentedRunner(lambda handle: Seen("lost")))
    crash_while("start", plan_of(), tmp_path / "out", monkeypatch)
    assert [attempt.trial for attempt in read_state(tmp_path / "out").open_attempts] == ["001"]
    asked: list[tuple[str, ...]] = []

    def refuse(proposal: vs.sweeps.Proposal) -> bool:
        asked.append(proposal.to_run)
        return False

    with pytest.raises(vs.errors.SweepError):
        vs.sweep(plan_of(), tmp_path / "out", confirm=refuse)
    assert asked == [("001",)]
    assert not runner.starts
    assert not read_state(tmp_path / "out").open_attempts


@pytest.mark.parametrize("event", ["start", "started", "gone", "record"])
def test_a_listener_that_fails_ends_the_sweep_and_leaves_nothing_rented(event: str, rent: Rent, tmp_path: Path) -> None:
    runner = rent(RentedRunner())

    def show(_state: object, shown: Event) -> None:
        if shown["event"] == event:
            raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        vs.sweep(plan_of(3), tmp_path / "out", budget_usd=100, yes=True, listener=show)
    state = read_state(tmp_path / "out")
    assert not runner.rented
    assert not state.open_attempts
    assert len(state.all_attempts) == 1
    assert len(state.records) == len(runner.starts) == (0 if event == "start" else 1)


@pytest.mark.parametrize("wrong", [OSError(11, "no more processes"), RuntimeError("a bug")])
def test_after_a_failed_start_nothing_stays_rented(wrong: Exception, rent: Rent, tmp_path: Path) -> None:
    runner = rent(RentedRunner())

    def fail(act: str) -> None:
        if act == "start":
            raise wrong

    runner.during = fail
    with pytest.raises(type(wrong)):
        vs.sweep(plan_of(2), tmp_path / "out", budget_usd=100, yes=True)
    assert len(runner.starts) == 1
    assert not runner.rented


def run_with(clock: Clock, plan: vs.Plan, folder: Path, *, budget: float | None = None) -> State:
    """Run or resume with a simulated clock."""
    with run.opened(plan, folder, limit=budget, catalog=None, listener=lambda state, event: None) as engine:
        engine.clock = clock
        engine.reconcile(adopt=True)
        engine.run(1)
    return read_state(folder)


def test_a_rented_machine_is_paid_from_its_launch_to_its_end_within_the_budget(rent: Rent, tmp_path: Path) -> None:
    runner, clock = rent(RentedRunner(lambda handle: Seen("running"))), Clock(time.time())

    def pass_time(act: str) -> None:
        # The launch takes most of the cap; fetching all that it may, taking down as long as is left for it.
        fetch = runner.allowed_seconds[-1] if act == "fetch" else 0.0
        clock.now += {"start": 9 * 60, "watch": 10, "fetch": fetch, "stop": 140}[act]

    runner.during = pass_time
    state = run_with(clock, plan_of(), tmp_path / "out", budget=15.0)
    assert state.all_attempts[0].why == "cap"
    assert 14 < state.spent_usd <= 15.0
    assert not runner.rented
    assert runner.allowed_seconds == [pytest.approx(10 * 60 + 150 - 9 * 60 - 70, abs=5)]


def test_the_worst_case_includes_the_time_to_end_a_trial(tmp_path: Path) -> None:
    assert plan_of(2).to_frame()["worst_usd"].tolist() == [pytest.approx(15.0)] * 2
    assert plan_of(2, expected_minutes=4).to_frame()["estimated_usd"].tolist() == [pytest.approx(4.0)] * 2
    own = vs.Plan("python -c pass", factors={"machine": ["m"]}, machines={"m": {"usd_per_hour": 60.0}}, minutes=10)
    assert own.to_frame()["worst_usd"].tolist() == [pytest.approx(10.0)]
    plan_of().save(tmp_path / "plan.yaml")
    arguments = ["sweep", "plan", str(tmp_path / "plan.yaml"), "--budget-usd"]
    assert [CliRunner().invoke(app, [*arguments, usd]).exit_code for usd in ("14.9", "15.1")] == [1, 0]


def test_a_resume_counts_on_from_the_launch(rent: Rent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rent(RentedRunner())
    crash_while("start", plan_of(), tmp_path / "out", monkeypatch)
    clock, looks = Clock(time.time() + 11 * 60), []
    rent(RentedRunner(lambda handle: looks.append(handle) or Seen("running")))  # type: ignore[func-returns-value]
    state = run_with(clock, plan_of(), tmp_path / "out", budget=100.0)
    assert len(looks) == 2, "once to adopt it, once to see that its time is up"
    assert state.attempts["001"][0].why == "cap"
    assert state.spent_usd == pytest.approx(11.0, abs=0.1)


def test_a_machine_that_is_found_gone_is_not_charged_for_the_absence(
    rent: Rent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rent(RentedRunner())
    crash_while("start", plan_of(), tmp_path / "out", monkeypatch)
    runner = rent(RentedRunner(lambda handle: Seen("gone", why="cut", error="it was found gone: an estimate")))
    days = Clock(time.time() + 30 * 86400)
    with run.opened(plan_of(), tmp_path / "out", limit=None, catalog=None, listener=lambda *_: None) as engine:
        engine.clock = days
        engine.reconcile(adopt=True)
    assert read_state(tmp_path / "out").spent_usd == pytest.approx(15.0)
    assert not runner.allowed_seconds, "there is nothing to fetch from"


def test_time_in_a_queue_does_not_count(rent: Rent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "LATE_SECONDS", 0.0)
    answers = iter(["starting", "unknown", *["starting"] * 20, "ended"])
    runner = RentedRunner(lambda handle: Seen(next(answers), exit=0))
    runner.rents, runner.queues, runner.poll_seconds = False, True, 0.01
    rent(runner)
    factors = {"machine": ["m"]}
    result = vs.sweep(vs.Plan("python -c pass", factors=factors, minutes=0.05 / 60), tmp_path / "out", yes=True)
    assert len(result.records) == 1, result.failed
    assert not runner.stops


def test_slurm_that_does_not_answer_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(command: list[str], *, text: str = "") -> str:
        raise vs.errors.SweepError("squeue did not answer (TimeoutExpired). Is the cluster up?")

    monkeypatch.setattr(slurm, "call", silent)
    assert slurm.SlurmRunner().watch({"token": "t", "folder": "f"}).state == "unknown"


def test_skypilot_calls_are_retried_and_limited_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = type("ClusterDoesNotExist", (ValueError,), {})
    there: list[str] = ["c"]
    sky = types.SimpleNamespace(
        get=lambda request: request(), StatusRefreshMode=types.SimpleNamespace(FORCE="force"),
        status=lambda cluster_names, refresh: lambda: list(there),
    )  # fmt: skip

    def fail(kind: type[Exception]) -> Callable[..., object]:
        def raise_it() -> None:
            raise kind("why")

        return lambda cluster, job_ids: raise_it

    monkeypatch.setattr(skypilot, "load_sky", lambda: sky)
    runner, handle = skypilot.SkyPilotRunner(), {"cluster": "c", "token": "t"}
    sky.job_status = fail(ConnectionError)
    states = [runner.watch(handle).state for _ in range(skypilot.PATIENCE)]
    assert states == ["unknown"] * (skypilot.PATIENCE - 1) + ["lost"]
    sky.job_status = fail(missing)
    assert runner.watch(handle).state == "lost", "its status says that it is there"
    there.clear()
    assert runner.watch(handle).state == "gone"
    never = threading.Event()
    with pytest.raises(vs.errors.SweepError):
        skypilot.asked(never.wait, seconds=0.01)
    never.set()
