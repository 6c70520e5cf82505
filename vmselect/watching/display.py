"""Shows the account of a training: an updating line in a terminal, a live cell in a notebook, plain lines in a log."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from vmselect.probe.environment import in_notebook
from vmselect.units import printable
from vmselect.watching.account import Status

LOG_SECONDS = 180.0
"""Least seconds between two lines in a log file, which nobody reads live."""
BAR_SECONDS = 60.0
"""Least seconds between two lines above a progress bar of the training."""

CLEAR = "\r\x1b[2K"
"""Moves the cursor to the beginning of the line and clears it."""


class Display:
    """Shows a status whenever there is a new one. A closed terminal or notebook is ignored."""

    def __init__(self, *, log_seconds: float = LOG_SECONDS, beside_bar: Callable[[], bool] = lambda: False) -> None:
        self._handle: Any = None
        self._beside_bar = beside_bar
        self._log_seconds = log_seconds
        self._next_line = 0.0
        self._open_line = False

    def __call__(self, status: Status, final: bool) -> None:
        """Show ``status``; ``final`` is True at the end of the training."""
        with suppress(OSError, ValueError):
            if in_notebook() and "IPython" in sys.modules:
                self._show_in_notebook(status)
            elif sys.stderr.isatty():
                self._show_in_terminal(status, final=final)
            else:
                self._write_log(status, final=final)

    def say(self, line: str) -> None:
        """Print a message on a line of its own, in place of a status or progress bar that is drawn again below."""
        with suppress(OSError, ValueError):
            bar = self._beside_bar() or has_tqdm_bar()
            start = ""
            if sys.stderr.isatty():
                start = CLEAR if self._open_line or bar else ""
            elif bar:
                start = "\n"
            self._open_line = False
            sys.stderr.write(f"{start}vmselect: {printable(line)}\n")
            sys.stderr.flush()

    def _show_in_terminal(self, status: Status, *, final: bool) -> None:
        import shutil

        if self._beside_bar() or has_tqdm_bar():
            self._write_above_bar(status, final=final)
            return
        # A line that wraps could not be overwritten.
        width = shutil.get_terminal_size().columns - len("vmselect: ") - 1
        text = printable(str(status) if final else status.fit(width))
        sys.stderr.write(f"{CLEAR}vmselect: {text}" + ("\n" if final else ""))
        sys.stderr.flush()
        self._open_line = not final

    def _write_above_bar(self, status: Status, *, final: bool) -> None:
        """Write a line in place of the progress bar, which is drawn again on the next line."""
        now = time.monotonic()
        if final or (now >= self._next_line and not _awaits_forecast(status)):
            self._next_line = now + BAR_SECONDS
            sys.stderr.write(f"{CLEAR}vmselect: {printable(str(status))}\n")
            sys.stderr.flush()

    def _show_in_notebook(self, status: Status) -> None:
        from IPython.display import HTML, display  # both untyped

        content = HTML(to_html(status))  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = display(content, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(content)

    def _write_log(self, status: Status, *, final: bool) -> None:
        now = time.monotonic()
        if final or (now >= self._next_line and not _awaits_forecast(status)):
            self._next_line = now + self._log_seconds
            self.say(str(status))


def to_html(status: Status) -> str:
    """The cell of a notebook: a progress bar, and texts that are not broken within."""
    bar = (
        f'<progress value="{status.epoch}" max="{status.epochs}" style="margin-right: 1em"></progress> '
        if status.epochs
        else ""
    )
    style = "display: inline-block; margin-right: 1.5em"
    texts = "".join(f'<span style="{style}">{html.escape(text)}</span> ' for text in status.describe())
    return f'<p dir="auto">{bar}{texts}</p>'


def _awaits_forecast(status: Status) -> bool:
    """Whether the first forecast will come soon, so that a line without it would only delay the next one."""
    return status.remaining is None and status.epochs is not None


def has_tqdm_bar() -> bool:
    """Whether a progress bar of tqdm is shown at the moment."""
    tqdm = sys.modules.get("tqdm.std")
    return bool(tqdm and any(not bar.disable for bar in list(getattr(tqdm.tqdm, "_instances", ()))))
