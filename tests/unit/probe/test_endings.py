"""How trainings end: the watch for it leaves nothing behind, and a record states what ended a training."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.probe.endings import EndWatch, classify
from vmselect.records.training import ENDING_DETAILS, Ending


class Anchor:
    """Something that a training keeps alive."""


def test_a_signal_that_another_thread_could_not_put_back_is_taken_over() -> None:
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    notes: list[str | None] = []
    first, second = Anchor(), Anchor()
    try:
        watch = EndWatch(lambda error, ending: notes.append(ending), anchor=first)
        thread = threading.Thread(target=watch.stop)
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGTERM) == watch._on_signal
        later = EndWatch(lambda error, ending: notes.append(ending), anchor=second)
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
    watch = EndWatch(lambda error, ending: (tmp_path / "noted").touch(), anchor=anchor)
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


@pytest.mark.parametrize(
    ("error", "ending", "outcome"),
    [
        (None, "killed", "interrupted"),
        (None, "terminated", "interrupted"),
        (None, None, "interrupted"),
        (KeyboardInterrupt(), None, "interrupted"),
        (RuntimeError("SIGTERM"), None, "interrupted"),
        (MemoryError(), None, "out_of_memory"),
    ],
)
def test_a_record_states_what_ended_a_training_from_outside(
    error: BaseException | None, ending: Ending | None, outcome: str, tmp_path: Path
) -> None:
    end = classify(error, ending)
    made = vs.Profile.from_times(batch_size=8, iteration_seconds=[1.0]).model_copy(update=end._asdict())
    assert (made.outcome, made.preemption) == (outcome, ending)
    assert vs.Profile.load(made.save(tmp_path)).preemption == ending
    older = made.model_copy(update={"ending": None})
    assert vs.Profile.load(older.save(tmp_path)).preemption == ending


def test_the_details_of_older_records_are_known() -> None:
    """Files of earlier versions contain these texts: a change of one would lose their interruptions."""
    assert ENDING_DETAILS == {
        "killed": "the process ended without an error message: it was killed, or the machine was shut down",
        "terminated": "SIGTERM",
    }
    whole = vs.Profile.from_times(batch_size=8, iteration_seconds=[1.0], epochs=3)
    assert whole.model_copy(update={"detail": "SIGTERM", "outcome": "stopped"}).preemption is None
