"""Journals of earlier versions stay readable."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from pathlib import Path

import pytest

from vmselect.sweeps import Plan, clean, read_state
from vmselect.sweeps.journal import FORMAT, NAME
from vmselect.sweeps.runners import ssh
from vmselect.sweeps.runners.runner import count_supervisors

DATA = Path(__file__).parents[2] / "data" / "sweeps"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep over ssh of version 0.1.0 of November 2026, when the supervisor was ``guard.py``, killed in a trial."""
    shutil.copy(DATA / "journal-1.jsonl", tmp_path / NAME)
    shutil.copy(DATA / "plan-1.yaml", tmp_path / "plan.yaml")
    return tmp_path


def test_old_journal_is_read_completely(folder: Path) -> None:
    state = read_state(folder)
    assert state.damaged == []
    assert (state.about["format"], state.about["places"]) == (FORMAT, {})
    assert [state.status_of(trial) for trial, _ in state.trials] == ["done", "running"]
    ended, running = state.all_attempts
    assert (ended.exit, ended.why, ended.fetched, ended.seconds) == (0, "exit", True, 0.5564570489987091)
    assert count_supervisors(running.handle) == 2
    assert len(running.handle["pipes"]) == 2
    assert Plan.load(folder / "plan.yaml").fingerprint == state.about["plan"]


def test_trial_of_an_old_journal_is_ended_by_the_present_program(folder: Path, monkeypatch) -> None:
    calls: list[tuple[str, str, str]] = []

    def call(host: str, command: str, *, text: str = "", **_: object) -> str:
        calls.append((host, command, text))
        return '{"left": [], "unproved": ""}' if text else ""

    monkeypatch.setattr(ssh, "call", call)
    assert [(attempt.trial, attempt.gone) for attempt in clean(folder)] == [("002", True)]
    ends = [(host, command.split()[:5]) for host, command, text in calls if text]
    far = read_state(folder).all_attempts[1].handle["far"]
    assert ends == [
        ("far", ["python3", "-I", "-", "end", far]),
        ("far2", ["python3", "-I", "-", "end", f"{far}/worker-1"]),
    ]


def write_attempts(folder: Path, count: int) -> None:
    """Write a journal in which one trial was started ``count`` times."""
    lines = (DATA / "journal-1.jsonl").read_text().splitlines()
    start = next(event for event in map(json.loads, lines) if event["event"] == "start")
    events = [json.loads(lines[0])]
    for number in range(1, count + 1):
        events.append({**start, "attempt": number})
        events.append({"event": "gone", "trial": start["trial"], "attempt": number, "seconds": float(number)})
    (folder / NAME).write_text("".join(json.dumps(event) + "\n" for event in events))


def test_reading_grows_with_the_lines(tmp_path: Path) -> None:
    """A journal in which a trial was repeated for days takes ten times as long as a tenth of it, not a hundred.

    Calls are counted, not seconds, because a busy machine slows down the larger journal more than the smaller one.
    """
    calls = []
    for count in (300, 3_000):
        write_attempts(tmp_path, count)
        counter = itertools.count()
        sys.setprofile(lambda *_, counter=counter: next(counter))
        try:
            state = read_state(tmp_path)
        finally:
            sys.setprofile(None)
        calls.append(next(counter))
        assert [attempt.seconds for attempt in state.all_attempts] == list(range(1, count + 1))
    assert calls[1] < 15 * calls[0]
