"""Threads that run together: the first error is everybody's end, and so is an impatient user's."""

from __future__ import annotations

import threading

import pytest

from vmselect.probe.load_generator import run_together


def test_the_first_error_stops_the_others_and_is_raised_when_all_have_ended() -> None:
    stop, ended = threading.Event(), []

    def fail() -> None:
        raise OSError("gone")

    def wait() -> None:
        assert stop.wait(30)
        ended.append("waited")

    with pytest.raises(OSError, match="gone"):
        run_together([wait, fail, wait], stop=stop, name="test")
    assert ended == ["waited", "waited"]


def test_whoever_ends_the_waiting_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, ended = threading.Event(), []
    join = threading.Thread.join

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        if not stop.is_set():
            raise KeyboardInterrupt
        join(thread, timeout)

    def wait() -> None:
        assert stop.wait(30)
        ended.append("waited")

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_together([wait, wait], stop=stop, name="test", patience=30)
    assert ended == ["waited", "waited"]
