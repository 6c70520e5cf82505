"""The watch for a training's end: what it leaves behind."""

from __future__ import annotations

import signal
import threading

from vmselect.probe.ending import EndWatch


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
