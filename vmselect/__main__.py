"""The command ``vmselect``, also as ``python -m vmselect``: it handles Ctrl-C before anything else is imported."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def run() -> None:
    """Import and run the command line. Ctrl-C ends the import with one line and exit code 130."""
    # A background job of a shell ignores the signal, and should go on doing so.
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handled:
        signal.signal(signal.SIGINT, _stop_import)
    from vmselect.cli import main

    if handled:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def _stop_import(_number: int, _frame: FrameType | None) -> None:
    # An exception within an import may be caught and reported as a missing package. Nothing was opened yet.
    sys.stderr.write("vmselect: stopped by Ctrl-C.\n")
    sys.stderr.flush()
    os._exit(130)


if __name__ == "__main__":
    run()
