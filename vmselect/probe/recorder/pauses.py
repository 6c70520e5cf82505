"""Garbage collections of the interpreter, timed by its callbacks."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from typing import Any

from vmselect.probe.recorder.stopwatch import StepTimer

OLDEST = 2
"""The generation of objects whose collection looks through all of them."""


class PauseWatch:
    """Reports to a stopwatch every collection in the thread that trains, until :meth:`stop`."""

    def __init__(self, timer: StepTimer) -> None:
        self._timer = timer
        self._thread = threading.get_ident()
        self._began: int | None = None
        gc.callbacks.append(self._see)

    def stop(self) -> None:
        """Watch no longer."""
        with suppress(ValueError):
            gc.callbacks.remove(self._see)

    def _see(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = self._timer.clock() if threading.get_ident() == self._thread else None
        elif self._began is not None:
            self._timer.pause(self._began, whole_heap=info.get("generation") == OLDEST)
