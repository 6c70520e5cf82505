"""The journal of a sweep: events as lines of JSON, each on disk before its action."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vmselect._files import has_file, read_bytes
from vmselect.errors import SweepError

NAME = "journal.jsonl"
FORMAT = 1
LIMIT_BYTES = 256 << 20
Event = dict[str, Any]


class Journal:
    """Appends events to ``folder/journal.jsonl``; only one process may, at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file = -1

    @contextmanager
    def opened(self) -> Iterator[Journal]:
        """Lock the journal for writing; raise if another process holds the lock."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as cannot:
            raise SweepError(f"{self.path}: cannot write: {cannot.strerror}. Choose a writable folder.") from cannot
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SweepError(
                    f"{self.path.parent}: a sweep is running here. Wait for it, or end it with Ctrl-C where it runs."
                ) from None
            self._end_torn_line()
            yield self
        finally:
            os.close(self._file)
            self._file = -1

    def write(self, event: str, **facts: Any) -> Event:
        """Append one event and bring it to disk; when this returns, a crash cannot lose it."""
        line = {"event": event, "at": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"), **facts}
        data = json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        try:
            written = os.write(self._file, data)
            if written != len(data):
                raise OSError(28, "No space left on device")
            os.fsync(self._file)
        except OSError as cannot:
            raise SweepError(
                f"{self.path}: cannot write: {cannot.strerror}. What runs is being stopped; make room, then resume."
            ) from cannot
        return line

    def _end_torn_line(self) -> None:
        """End a line that a killed writer left incomplete."""
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")


def read_journal(folder: Path) -> list[Event]:
    """The events so far; an incomplete line, which a crash may leave, is ignored."""
    path = folder / NAME
    if not has_file(path):
        raise SweepError(f"{folder}: no sweep was started here ({NAME} is missing or not readable). Check the folder.")
    events = []
    for line in read_bytes(path, noun="journal", limit=LIMIT_BYTES, error=SweepError).split(b"\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            events.append(event)
    if events and events[0].get("format", FORMAT) > FORMAT:
        raise SweepError(f"{path}: written by a newer vmselect. Upgrade it: pip install --upgrade vmselect")
    return events


def this_machine() -> dict[str, str]:
    """Identifies this machine since its last boot: process ids in a journal are valid only there."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return {"host": platform.node(), "boot": boot}
