"""A connection over ssh to the guard of a trial, which lasts as long as the trial does."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import Any

from vmselect.errors import SweepError

OPTIONS = (
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=15",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
)
START_SECONDS = 30.0


class Link:
    """A connection to a guard: our signs of life go one way, its two messages the other."""

    def __init__(self, host: str, command: str) -> None:
        self.host = host
        self._process = subprocess.Popen(
            ["ssh", "-T", *OPTIONS, host, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._outcome: dict[str, Any] | None = None
        self._closed, self._started = threading.Event(), threading.Event()
        self._pipes: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._beat = threading.Thread(target=self._live, daemon=True)

    def ask(self, request: dict[str, Any]) -> None:
        """Send the request and begin to give signs of life."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as cut:
            raise SweepError(f"{self.host}: the connection was cut ({cut}).") from cut
        finally:
            self._reader.start()
            self._beat.start()

    def wait_started(self) -> list[str]:
        """The pipes that the trial prints into, once the guard says that it runs."""
        self._started.wait(START_SECONDS)
        return self._pipes

    def look(self) -> dict[str, Any] | None:
        """None while it runs, what the guard told, or nothing where the connection ended without a word."""
        if self._process.poll() is None and self._outcome is None:
            return None
        self._reader.join(timeout=5.0)
        return self._outcome or {}

    def end(self) -> None:
        """Ask the guard to end the trial, and give it the time to."""
        try:
            if self._process.stdin and self._process.poll() is None:
                self._process.stdin.write(b"S")
                self._process.stdin.flush()
                self._process.wait(timeout=15.0)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return  # the token will find what is left

    def close(self) -> None:
        """Cut the connection."""
        self._closed.set()
        try:
            if self._process.stdin:
                self._process.stdin.close()
        except OSError:
            pass  # it was cut already
        try:
            self._process.wait(timeout=3.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader.ident:
            self._reader.join(timeout=5.0)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            try:
                told = json.loads(line)
            except ValueError:
                continue  # a host that greets
            if isinstance(told, dict) and isinstance(told.get("ended"), dict):
                self._outcome = told["ended"]
            elif isinstance(told, dict) and isinstance(told.get("pipes"), list):
                self._pipes = [str(pipe) for pipe in told["pipes"]]
                self._started.set()
        self._started.set()

    def _live(self) -> None:
        while not self._closed.wait(1.0) and self._process.stdin:
            try:
                self._process.stdin.write(b".")
                self._process.stdin.flush()
            except (OSError, ValueError):
                return
