"""Ctrl-C while the command ``vmselect`` is imported: one line and exit code 130 instead of a traceback.

The package imports this module first. It does nothing if another program imports the package.
"""

from __future__ import annotations

import os
import sys


def catch() -> bool:
    """Handle Ctrl-C until :func:`release` is called. Return False if the program handles or ignores it otherwise."""
    import signal  # here, because other programs that import the package do not need it

    # A background job of a shell ignores the signal, and should go on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    return signal.getsignal(signal.SIGINT) is _stop


def release() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    import signal

    signal.signal(signal.SIGINT, signal.default_int_handler)


def once() -> None:
    """Let the first Ctrl-C raise KeyboardInterrupt, and ignore others from then on, while files are removed.

    For a process that another one would kill, so that it ends in any case.
    """
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise_once)


def _raise_once(_number: int, _frame: object) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _stop(_number: int, _frame: object) -> None:
    # An exception within an import may be caught and reported as a missing package. Nothing was opened yet.
    sys.stderr.write("vmselect: stopped by Ctrl-C.\n")
    sys.stderr.flush()
    os._exit(130)


def _is_command() -> bool:
    """Whether this process is ``vmselect`` or ``python -m vmselect``."""
    name = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""  # noqa: PTH119 - pathlib takes longer
    as_module = name == "-m" and "vmselect" in sys.orig_argv[1:4]
    return as_module or name in ("vmselect", "vmselect.exe")


if _is_command():
    catch()
