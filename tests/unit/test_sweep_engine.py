"""The engine, by a cloud in memory: who is asked, what is paid, and that nothing stays rented."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.sweeps import read_state, session
from vmselect.sweeps.journal import Event, Journal
from vmselect.sweeps.runners.base import Seen

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from sweep_rented import RentedRunner


@pytest.fixture
def rent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[RentedRunner], RentedRunner]:
    """Sweeps of this test rent from the runner that this is given."""
    monkeypatch.chdir(tmp_path)

    def use(runner: RentedRunner) -> RentedRunner:
        monkeypatch.setattr(session, "make_runner", lambda *_: runner)
        return runner

    return use


def plan_of(trials: int = 1, **given: Any) -> vs.Plan:
    """Each trial costs a dollar a minute."""
    factors = {"machine": ["m"], "number": list(range(trials))}
    facts: dict[str, Any] = {"machines": {"m": {"usd_per_hour": 60.0}}, "minutes": 10}
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


def test_what_a_crash_left_open_is_not_rented_again_without_asking(
    rent: Callable[[RentedRunner], RentedRunner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = rent(RentedRunner(lambda handle: Seen("lost")))
    crash_while("start", plan_of(), tmp_path / "out", monkeypatch)
    assert [attempt.trial for attempt in read_state(tmp_path / "out").open_attempts] == ["001"]
    asked: list[tuple[str, ...]] = []

    def refuse(proposal: vs.sweeps.Proposal) -> bool:
        asked.append(proposal.to_run)
        return False

    with pytest.raises(vs.errors.SweepError, match="not confirmed"):
        vs.sweep(plan_of(), tmp_path / "out", confirm=refuse)
    assert asked == [("001",)]
    assert not runner.starts
    assert not read_state(tmp_path / "out").open_attempts


@pytest.mark.parametrize("event", ["start", "started", "gone", "record"])
def test_a_screen_that_fails_ends_the_sweep_and_leaves_nothing_rented(
    event: str, rent: Callable[[RentedRunner], RentedRunner], tmp_path: Path
) -> None:
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
def test_whatever_goes_wrong_while_starting_nothing_stays_rented(
    wrong: Exception, rent: Callable[[RentedRunner], RentedRunner], tmp_path: Path
) -> None:
    runner = rent(RentedRunner())

    def fail(act: str) -> None:
        if act == "start":
            raise wrong

    runner.during = fail
    with pytest.raises(type(wrong)):
        vs.sweep(plan_of(2), tmp_path / "out", budget_usd=100, yes=True)
    assert len(runner.starts) == 1
    assert not runner.rented
