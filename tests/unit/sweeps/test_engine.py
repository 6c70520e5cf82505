"""The engine with a simulated cloud: confirmation, cost, skipped trials, and that nothing stays rented."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.records.files import RecordFile, parse_record
from vmselect.sweeps import clean, read_state, run
from vmselect.sweeps import engine as engine_module
from vmselect.sweeps.engine import MAX_NAME_BYTES, collect
from vmselect.sweeps.journal import Event, Journal, State
from vmselect.sweeps.plan import Trial
from vmselect.sweeps.runners.runner import Job, Seen

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from sweep_runners import Clock, RentedRunner

Rent = Callable[[RentedRunner], RentedRunner]


@pytest.fixture
def rent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rent:
    """Make sweeps of this test use the given runner."""
    monkeypatch.chdir(tmp_path)

    def use(runner: RentedRunner) -> RentedRunner:
        monkeypatch.setattr(run, "make_runner", lambda *_: runner)
        return runner

    return use


def plan_of(trials: int = 1, **arguments: Any) -> vs.Plan:
    """Each trial costs a dollar a minute."""
    factors = {"machine": ["m"], "number": list(range(trials))}
    machine = {"instance_type": "invented", "usd_per_hour": 60.0}
    return vs.Plan("python -c pass", factors=factors,
                   **({"runner": "skypilot", "machines": {"m": machine}, "minutes": 10} | arguments))  # fmt: skip


def crash_at_start(plan: vs.Plan, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a sweep whose process dies right after it announced a start."""

    class Killed(BaseException):
        pass

    def write(self: Journal, name: str, **facts: Any) -> Event:
        line = original(self, name, **facts)
        if name == "start":
            raise Killed
        return line

    original = Journal.write
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", write)
        with pytest.raises(Killed):
            vs.sweep(plan, folder, budget_usd=100, yes=True)


def run_with(clock: Clock, folder: Path, *, budget: float | None = None, run_trials: bool = True) -> State:
    """Run or resume with a simulated clock."""
    with run.opened(plan_of(), folder, limit=budget, catalog=None, listener=lambda state, event: None) as engine:
        engine.clock = clock
        engine.reconcile(adopt=True)
        if run_trials:
            engine.run(1)
    return read_state(folder)


def test_interrupted_trial_is_confirmed_before_it_is_rented_again(rent, tmp_path, monkeypatch) -> None:
    runner = rent(RentedRunner(lambda handle: Seen("lost")))
    crash_at_start(plan_of(), tmp_path / "out", monkeypatch)
    assert [attempt.trial for attempt in read_state(tmp_path / "out").open_attempts] == ["001"]
    asked: list[tuple[str, ...]] = []
    with pytest.raises(vs.errors.SweepError):
        vs.sweep(plan_of(), tmp_path / "out", confirm=lambda proposal: bool(asked.append(proposal.to_run)))
    assert asked == [("001",)]
    assert not runner.order
    assert not read_state(tmp_path / "out").open_attempts


@pytest.mark.parametrize("event", ["start", "started", "gone", "record"])
def test_failing_listener_ends_the_sweep_and_leaves_nothing_rented(event, rent, tmp_path) -> None:
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
    assert len(state.records) == len(runner.order) == (0 if event == "start" else 1)


def test_after_a_failed_start_nothing_stays_rented(rent, tmp_path) -> None:
    runner = rent(RentedRunner())
    acts: list[str] = []

    def fail(act: str) -> None:
        acts.append(act)
        if act == "start":
            raise OSError(11, "no more processes")

    runner.during = fail
    with pytest.raises(OSError, match="processes"):
        vs.sweep(plan_of(2), tmp_path / "out", budget_usd=100, yes=True)
    assert acts.count("start") == 1
    assert not runner.rented


def test_rented_machine_is_paid_from_its_launch_to_its_end_within_the_budget(rent, tmp_path) -> None:
    runner, clock = rent(RentedRunner(lambda handle: Seen("running"))), Clock(time.time())

    def pass_time(act: str) -> None:
        # The launch takes most of the cap, fetching all of its limit, terminating what is left.
        fetch = runner.allowed_seconds[-1] if act == "fetch" else 0.0
        clock.now += {"start": 9 * 60, "watch": 10, "fetch": fetch, "stop": 140}[act]

    runner.during = pass_time
    state = run_with(clock, tmp_path / "out", budget=15.0)
    assert state.all_attempts[0].why == "cap"
    assert 14 < state.spent_usd <= 15.0
    assert not runner.rented
    assert runner.allowed_seconds == [pytest.approx(10 * 60 + 150 - 9 * 60 - 70, abs=5)]


def test_resumed_trial_is_paid_from_its_launch(rent, tmp_path, monkeypatch) -> None:
    rent(RentedRunner())
    crash_at_start(plan_of(), tmp_path / "out", monkeypatch)
    watched: list[str] = []
    runner = rent(RentedRunner(lambda handle: Seen("running")))
    runner.during = watched.append
    state = run_with(Clock(time.time() + 11 * 60), tmp_path / "out", budget=100.0)
    assert watched.count("watch") == 2, "once to adopt it, once to see that its time is up"
    assert state.attempts["001"][0].why == "cap"
    assert state.spent_usd == pytest.approx(11.0, abs=0.1)


def test_vanished_machine_costs_at_most_its_worst_case(rent, tmp_path, monkeypatch) -> None:
    rent(RentedRunner())
    crash_at_start(plan_of(), tmp_path / "out", monkeypatch)
    runner = rent(RentedRunner(lambda handle: Seen("gone", why="cut")))
    state = run_with(Clock(time.time() + 30 * 86400), tmp_path / "out", run_trials=False)
    assert state.spent_usd == pytest.approx(15.0)
    assert not runner.allowed_seconds, "there is nothing to fetch from"


def test_time_in_a_queue_does_not_count(rent, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "LATE_SECONDS", 0.0)
    answers = iter(["starting", "unknown", *["starting"] * 20, "ended"])
    runner = RentedRunner(lambda handle: Seen(next(answers), exit=0))
    runner.rents, runner.queues, runner.poll_seconds = False, True, 0.01
    rent(runner)
    plan = vs.Plan("python -c pass", factors={"machine": ["m"]}, minutes=0.05 / 60)
    result = vs.sweep(plan, tmp_path / "out", yes=True)
    assert len(result.records) == 1, result.failed
    assert not runner.stops


@pytest.mark.parametrize("ends", [True, False])
def test_trial_whose_machine_stays_busy_is_skipped_after_a_retry(ends, rent, tmp_path) -> None:
    class OneMachine(RentedRunner):
        taken: str | None = None

        def has_room(self, trial: Trial) -> bool:
            return self.taken is None

        def announce(self, job: Job) -> dict[str, Any]:
            assert self.taken is None, "two trials on one machine"
            self.taken = job.token
            return super().announce(job)

        def stop(self, handle: dict[str, Any]) -> str:
            super().stop(handle)
            if self.stops.count(handle["token"]) == 1 or not ends:
                return "no route to it"
            self.taken = None
            return ""

    runner = rent(OneMachine())
    result = vs.sweep(plan_of(2), tmp_path / "out", budget_usd=100, yes=True, parallel=2)
    assert len(runner.order) == (2 if ends else 1)
    assert len(result.skipped) == (0 if ends else 1)


def test_draft_of_a_killed_trial_is_collected(tmp_path) -> None:
    records = tmp_path / "attempt" / "records"
    records.mkdir(parents=True)
    if not (child := os.fork()):
        RecordFile(records).write(vs.Profile.from_times(instance_type="x", batch_size=8, iteration_seconds=0.1))
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    files, faults = collect(vs.Plan("python t.py").trials[0], tmp_path / "attempt", tmp_path)
    assert (len(files), faults) == (1, [])
    assert vs.load_records(files[0])[0].instance_type == "x"


def test_clean_reads_the_journal_even_if_the_plan_changed(rent, tmp_path) -> None:
    rent(RentedRunner())
    plan = vs.Plan("python -c pass", factors={"n": [1, 2]}, seed=None)
    with run.opened(plan, tmp_path / "out", limit=None, catalog=None, listener=lambda *_: None) as engine:
        engine._announce(plan.trials[0])
    vs.Plan("python -c pass", factors={"n": [1.0, 2.5]}, seed=None).save(tmp_path / "out" / "plan.yaml")
    assert [attempt.gone for attempt in clean(tmp_path / "out")] == [True]
    assert not read_state(tmp_path / "out").open_attempts


@pytest.mark.parametrize("exists", [False, True])
def test_unconfirmed_sweep_leaves_nothing_behind(exists, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results" / "first"
    if exists:
        folder.mkdir(parents=True)
        (folder / "notes.txt").write_text("mine")
    with pytest.raises(vs.errors.SweepError):
        vs.sweep(vs.Plan("python -c pass"), folder, confirm=lambda proposal: False)
    assert [path.name for path in (tmp_path / "results").rglob("*")] == (["first", "notes.txt"] if exists else [])


def test_interrupted_sweep_counts_the_trials_that_never_started(rent, tmp_path) -> None:
    def interrupt(state: State, event: Event) -> None:
        if event["event"] == "record":
            raise KeyboardInterrupt

    rent(RentedRunner())
    result = vs.sweep(plan_of(3), tmp_path / "out", budget_usd=100, yes=True, listener=interrupt)
    assert (len(result.records), len(result.failed), len(result.not_started)) == (1, 0, 2)
    assert "vmselect sweep resume" in str(result)
    assert not vs.sweep(plan_of(3), tmp_path / "out", yes=True).not_started


def without_steady_step() -> vs.Profile:
    profile = vs.Profile.from_times(batch_size=8, first_iteration_seconds=0.3, iteration_seconds=0.1)
    changed = parse_record(profile.to_json().replace('"steady"', '"first"').encode(), source="test")
    assert isinstance(changed, vs.Profile)
    return changed


def test_record_is_collected_only_if_it_is_of_the_trial_and_usable(tmp_path) -> None:
    trial = plan_of().trials[0]
    records = tmp_path / "attempt" / "records"
    records.mkdir(parents=True)
    good = vs.Profile.from_times(batch_size=8, iteration_seconds=0.1)
    good.save(tmp_path / "good.json")
    other = good.model_copy(update={"factors": {"machine": "another"}})
    (records / "link.json").symlink_to(tmp_path / "good.json")
    other.save(records / "other.json")
    without_steady_step().save(records / "no-step.json")
    files, faults = collect(trial, tmp_path / "attempt", tmp_path)
    assert not files
    assert len(faults) == 3
    names = ("a" * 250 + ".json", "line\nbreak.json", os.fsdecode(b"\xff.json"))
    for name in names:
        (records / name).write_text(good.to_json())
    files, _ = collect(trial, tmp_path / "attempt", tmp_path)
    assert len(set(files)) == len(names)
    assert all(len(os.fsencode(file.name)) <= MAX_NAME_BYTES and file.name.isprintable() for file in files)
    assert files == collect(trial, tmp_path / "attempt", tmp_path)[0]
    moved = tmp_path / "moved"
    records.rename(moved)
    records.symlink_to(moved)
    assert collect(trial, tmp_path / "attempt", tmp_path)[0] == []


def test_trial_with_an_unusable_record_failed_and_is_repeated(rent, tmp_path) -> None:
    runner = rent(RentedRunner())
    runner.measure = lambda trial: without_steady_step()
    result = vs.sweep(plan_of(), tmp_path / "out", budget_usd=100, yes=True)
    assert [missing.id for missing in result.failed] == ["001"]
    runner.measure = lambda trial: vs.Profile.from_times(batch_size=8, iteration_seconds=0.1)
    assert len(vs.sweep(plan_of(), tmp_path / "out", yes=True).records) == 1


def test_damaged_lines_are_reported_and_the_others_count(rent, tmp_path) -> None:
    rent(RentedRunner())
    folder = tmp_path / "out"
    vs.sweep(plan_of(2), folder, budget_usd=100, yes=True)
    lines = (folder / "journal.jsonl").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if json.loads(line)["event"] == "gone")
    lines[at] = json.dumps({**json.loads(lines[at]), "seconds": "long"})
    (folder / "journal.jsonl").write_text("\n".join(lines) + "\n")
    state = read_state(folder)
    assert len(state.damaged) == 1
    assert f"line {at + 1} " in state.damaged[0]
    assert list(state.count_statuses().values()).count(2) == 1
    assert [attempt.gone for attempt in clean(folder)] == [True]
    (folder / "journal.jsonl").write_text("\n".join(["{}", *lines[1:]]) + "\n")
    assert [attempt.gone for attempt in clean(folder)] == [True]
    with pytest.raises(vs.errors.SweepError):
        vs.sweep(plan_of(2), folder, yes=True)
