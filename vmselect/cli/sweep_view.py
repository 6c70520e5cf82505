"""The live view of a sweep: a table on a terminal, plain lines elsewhere, lines of JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from vmselect.cli.output import print_err
from vmselect.sweeps.state import STATUSES
from vmselect.units import format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.sweeps import Plan
    from vmselect.sweeps.journal import Event
    from vmselect.sweeps.state import State

REFRESH_PER_SECOND = 1.0
_SPOKEN = {"start": "starting", "started": "running", "skip": "skipped", "add": "added", "unproved": "may still run"}


class View:
    """Shows each event of the journal as it comes; drawn once a second at most, so that watching costs nothing."""

    def __init__(self, plan: Plan, *, machine: bool = False) -> None:
        self._machine = machine
        self._factors = {t.id: " ".join(f"{k}={v}" for k, v in t.factors.items()) for t in plan.trials}
        self._state: State | None = None
        self._began = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __call__(self, state: State, event: Event) -> None:
        """Take in one event."""
        self._state = state
        if event["event"] == "add":
            self._factors[event["trial"]] = f"{self._factors.get(event['like'], '')} (added)"
        if self._machine:
            shown = {
                name: value for name, value in event.items() if name not in ("handle", "token", "trials", "prices")
            }
            sys.stdout.write(json.dumps(shown) + "\n")
            sys.stdout.flush()
        elif sys.stderr.isatty():
            if self._live is None and event["event"] == "start":
                self._live = Live(
                    get_renderable=self._draw, console=Console(stderr=True), refresh_per_second=REFRESH_PER_SECOND
                )
                self._live.start()
        elif "trial" in event and (line := self._line(state, event)):
            print_err([line])

    def ask_stop(self) -> bool:
        """On Ctrl-C: ask once, where somebody is there to answer."""
        running = len(self._state.open_attempts) if self._state else 0
        self._close()
        if not sys.stdin.isatty() or not running:
            return True
        try:
            return typer.confirm(f"End the {running} trials that run, and keep what came?", default=True, err=True)
        except (typer.Abort, KeyboardInterrupt):
            return True

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _line(self, state: State, event: Event) -> str:
        kind, trial = event["event"], event["trial"]
        spoken = _SPOKEN.get(kind)
        if kind == "record":
            spoken = f"done, {event['file']}"
        elif kind == "empty":
            spoken = f"failed, {state.reason_of(trial)}"
        if not spoken:
            return ""
        why = f": {event['why']}" if event.get("why") and kind != "empty" else ""
        return f"trial {trial} {self._factors.get(trial, '')} {spoken}{why}"

    def _draw(self) -> Any:
        table = Table(box=None, pad_edge=False)
        for column in (*STATUSES, "spent", "worst case", "elapsed"):
            table.add_column(column, justify="right")
        state = self._state
        if state is None:
            return table
        spent = sum(a.spent_usd for a in state.all_attempts if not a.open)
        table.add_row(
            *map(str, state.count_statuses().values()), format_usd(spent), format_usd(state.spent_usd),
            format_seconds(time.monotonic() - self._began),
        )  # fmt: skip
        for attempt in state.open_attempts[:10]:
            table.add_row(f"{attempt.trial} {self._factors.get(attempt.trial, '')}")
        return table
