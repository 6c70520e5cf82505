"""What ``vmselect probe`` says while it measures: a line at the start, and in a terminal one that is updated."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from vmselect.cli.output import is_quiet
from vmselect.units import format_seconds, printable
from vmselect.watching.display import CLEAR, has_tqdm_bar

if TYPE_CHECKING:
    from vmselect.probe.recording import Recording

LINE_SECONDS = 2.0
"""Least seconds between two updates of the line."""
BAR_SECONDS = 20.0
"""Least seconds between two lines above a progress bar of the training."""


def describe_plan(
    script: str, *, steps: int, validations: int, steady_seconds: float | None, seconds: float | None, **_: Any
) -> str:
    """The line at the start: what the probe does, and when it ends.

    >>> describe_plan("train.py", steps=20, validations=2, steady_seconds=2.0, seconds=None)
    'probing train.py: 2 epochs, of each at least 21 steps (2 s) and its validation; --seconds N would limit it'
    """
    least = f" ({format_seconds(steady_seconds)})" if steady_seconds else ""
    validation = " and its validation" if validations else ""
    epochs = f"{validations} epochs, of each" if validations > 1 else "1 epoch, of it"
    limit = "--seconds N would limit it" if seconds is None else f"at most {format_seconds(seconds)} in total"
    return f"probing {script}: {epochs} at least {steps + 1} steps{least}{validation}; {limit}"


class Progress:
    """Shows in a terminal how far a probe is. A closed terminal is ignored."""

    def __init__(self) -> None:
        self._is_open = False
        self._next = 0.0

    def follow(self, recording: Recording, *, can_stop: bool = True) -> None:
        """Show the progress of ``recording`` from now on, if standard error is a terminal.

        ``can_stop`` is not used: a loop is followed like any other training.
        """
        with suppress(OSError, ValueError):
            if recording.is_chief and not is_quiet() and sys.stderr.isatty():
                recording.observer = self._observe
                self._show("the training begins: first step", recording)

    def _observe(self, recording: Recording, *, final: bool = False) -> float:
        with suppress(OSError, ValueError):
            if final:
                self.close()
            elif time.monotonic() >= self._next:
                self._show(_describe(recording), recording)
        return recording.timer.clock() / 1e9 + LINE_SECONDS

    def _show(self, text: str, recording: Recording) -> None:
        has_bar = recording.shows_progress or has_tqdm_bar()
        self._next = time.monotonic() + (BAR_SECONDS if has_bar else LINE_SECONDS)
        # A line that wraps could not be overwritten.
        line = printable(f"vmselect: {text}")[: shutil.get_terminal_size().columns - 1]
        sys.stderr.write(CLEAR + line + "\n" * has_bar)  # the bar is drawn again on the next line
        sys.stderr.flush()
        self._is_open = not has_bar

    def close(self) -> None:
        """Remove the line."""
        if self._is_open:
            self._is_open = False
            with suppress(OSError, ValueError):
                sys.stderr.write(CLEAR)
                sys.stderr.flush()


def _describe(recording: Recording) -> str:
    """Epoch and step of ``recording``."""
    timer, options = recording.timer, recording.options
    epochs, least = max(1, getattr(options, "validations", 1)), getattr(options, "steps", 0) + 1
    if timer.epochs_ended >= epochs:
        return "all epochs were measured"
    where = f"epoch {timer.epochs_ended + 1} of {epochs}"
    step = 0 if timer.current is None else timer.steps - timer.current.steps_before
    if not step:
        return f"{where} begins"
    return f"{where}: step {step} of {least}" if step < least else f"{where}: step {step}, then the end of the epoch"
