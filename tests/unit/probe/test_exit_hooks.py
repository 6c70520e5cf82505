"""The watch for a training's end: what it leaves behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from vmselect.probe.exit_hooks import EndWatch


class Anchor:
    """Something that a training keeps alive."""


def test_a_signal_that_another_thread_could_not_put_back_is_taken_over() -> None:
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    notes: list[str | None] = []
    first, second = Anchor(), Anchor()
    try:
        watch = EndWatch(lambda error, detail: notes.append(detail), anchor=first)
        thread = threading.Thread(target=watch.stop)
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGTERM) == watch._on_signal
        later = EndWatch(lambda error, detail: notes.append(detail), anchor=second)
        assert signal.getsignal(signal.SIGTERM) == later._on_signal
        later.stop()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert notes == []
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_made_by_fork_that_is_terminated_ends_without_a_note(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    anchor = Anchor()
    watch = EndWatch(lambda error, detail: (tmp_path / "noted").touch(), anchor=anchor)
    try:
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not (tmp_path / "noted").exists()
        assert signal.getsignal(signal.SIGTERM) == watch._on_signal
    finally:
        watch.stop()
        signal.signal(signal.SIGTERM, before)
