"""When a program began: where initialization is counted from."""

from __future__ import annotations

import os
import secrets
import sys
import time
from pathlib import Path
from typing import Literal

InitSource = Literal["process start", "mark_start"]

_marked_ns: int | None = None
_marked_before: int | None = None
_fits = 0
_token: tuple[int, str] | None = None


def mark_start() -> None:
    """Mark where the program's own work begins, so that initialization is counted from this line.

    Needed where the start of the process is not the start of the program (in a notebook), or where a process trains
    more than once. It holds for the next training.

    >>> mark_start()
    """
    global _marked_ns
    _marked_ns = time.perf_counter_ns()


def take_initialization() -> tuple[float, InitSource] | None:
    """Seconds of initialization until now and where they were counted from; None where that cannot be known.

    Only the first training of a process began with the process, so this also counts the training that begins.
    """
    global _marked_ns, _marked_before, _fits
    marked = _marked_before = _marked_ns
    _marked_ns = None
    _fits += 1
    if marked is not None:
        return (time.perf_counter_ns() - marked) / 1e9, "mark_start"
    if _fits > 1 or in_notebook():
        return None
    age = process_age_seconds()
    return (age, "process start") if age is not None else None


def give_back_initialization() -> None:
    """What began was not a training: the next one gets the initialization time and the number."""
    global _marked_ns, _fits
    _marked_ns, _fits = _marked_before, max(0, _fits - 1)


def number_fit() -> tuple[int, str]:
    """The number of the training that began last in this process, and a name for the process that no other has."""
    global _token
    if _token is None or _token[0] != os.getpid():  # a child made by fork is another process
        _token = os.getpid(), secrets.token_hex(4)
    return max(1, _fits), f"{_token[0]}-{_token[1]}"


def in_notebook() -> bool:
    """Whether the program runs interactively: a notebook, IPython, or Python's own prompt."""
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", None)
    return hasattr(sys, "ps1") or (shell is not None and shell() is not None)


def process_age_seconds(stat: Path = Path("/proc/self/stat"), *, ticks_per_second: int | None = None) -> float | None:
    """Seconds since this process was created, or None where the system does not report it.

    On Linux the kernel's own count is used: it is exact to 10 ms, while a start time derived from the wall clock can
    be a whole second off.
    """
    try:
        # The command's name may hold spaces and brackets: count the fields after its last bracket.
        fields = stat.read_text().rpartition(")")[2].split()
        started = int(fields[19]) / (ticks_per_second or os.sysconf("SC_CLK_TCK"))
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, IndexError, ValueError, AttributeError):
        return _age_by_wall_clock()


def _age_by_wall_clock() -> float | None:
    import psutil

    try:
        return max(0.0, time.time() - float(psutil.Process().create_time()))
    except psutil.Error:
        return None
