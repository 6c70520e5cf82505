"""A connection to the supervisor of a trial, on this machine or over ssh, which lasts as long as the trial."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from vmselect.errors import SweepError

START_SECONDS = 30.0
STOP_SECONDS = 15.0


class Connection:
    """Sends the request and heartbeats to a supervisor, and receives its two messages: started and ended."""

    def __init__(self, command: Sequence[str], request: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._closed, self._answered = threading.Event(), threading.Event()
        self._started: dict[str, Any] = {}
        self._outcome: dict[str, Any] = {}
        self._threads = [threading.Thread(target=act, daemon=True) for act in (self._read, self._beat)]
        try:
            self._send(json.dumps(request).encode() + b"\n")
        except OSError as cut:
            raise SweepError(f"{command[0]}: the connection was cut ({cut}). Check it, then resume.") from cut
        finally:
            for thread in self._threads:
                thread.start()

    def wait_started(self) -> dict[str, Any]:
        """The supervisor's first message: process ids and output pipes of the trial."""
        self._answered.wait(START_SECONDS)
        return self._started

    def outcome(self) -> dict[str, Any] | None:
        """None while the trial runs, then the outcome; empty if the connection ended without one."""
        if self._process.poll() is None and not self._outcome:
            return None
        self._threads[0].join(timeout=5.0)
        return self._outcome

    def stop(self) -> None:
        """Ask the supervisor to end the trial, and wait for it."""
        with suppress(OSError, ValueError, subprocess.TimeoutExpired):  # what is left is found by its token
            self._send(b"S")
            self._process.wait(timeout=STOP_SECONDS)

    def close(self, *, seconds: float = 3.0) -> None:
        """Cut the connection, which ends the trial; the supervisor has so many seconds to exit."""
        self._closed.set()
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(timeout=5.0)
        self._process.stdout.close()  # type: ignore[union-attr]

    def _send(self, data: bytes) -> None:
        self._process.stdin.write(data)  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]

    def _read(self) -> None:
        for line in self._process.stdout:  # type: ignore[union-attr]
            try:
                message = json.loads(line)
            except ValueError:
                continue  # the host's greeting
            if isinstance(message, dict) and isinstance(message.get("ended"), dict):
                self._outcome = message["ended"]
            elif isinstance(message, dict) and "pipes" in message:
                self._started = message
                self._answered.set()
        self._answered.set()

    def _beat(self) -> None:
        with suppress(OSError, ValueError):
            while not self._closed.wait(1.0):
                self._send(b".")
