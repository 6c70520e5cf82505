"""Writing a record as it comes to be, so that what was measured outlives the process, however that ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from vmselect.records.base import Record
from vmselect.records.draft import Draft

EVERY_SECONDS = 1.0
SHARE = 0.02
"""No more of the time than this goes into writing: a long record is written less often."""


class WriteAhead:
    """Keeps a draft of the record that ``build`` gives, for ``path``; without a path it does nothing.

    :meth:`note` is to be called between the things that are timed, off the clock.
    """

    def __init__(self, path: Path | None, build: Callable[[], Record], *, identity: str) -> None:
        self._draft = None if path is None else Draft(path, identity=identity)
        self._build = build
        self._next = 0.0

    def note(self) -> None:
        """Something has ended: write what is known now, unless that was done just before."""
        began = time.perf_counter()
        if self._draft is not None and began >= self._next:
            self._draft.write(self._build())
            taken = time.perf_counter() - began
            self._next = began + max(EVERY_SECONDS, taken / SHARE)

    def write(self, record: Record) -> None:
        """Put ``record`` into the draft now."""
        if self._draft is not None:
            self._draft.write(record)

    def finish(self, record: Record) -> Path | None:
        """Give the record its final name."""
        return None if self._draft is None else self._draft.finish(record)

    def discard(self) -> None:
        """There is nothing worth keeping."""
        if self._draft is not None:
            self._draft.discard()
