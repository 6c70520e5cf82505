"""Starting programs of this folder in processes of their own, and programs side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parent
AT_ONCE = 2


def start(program: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Start ``program`` (a file of this folder) with the tests' Python."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VMSELECT_")}
    return subprocess.Popen(
        [sys.executable, str(SUPPORT / program), *map(str, arguments)],
        env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def run_ahead(run: Callable[[Any], Any], cases: Mapping[str, Any]) -> Iterator[Callable[[str], Any]]:
    """``run`` on every case, some at once, from now on; yields who waits for the answer of one by its name.

    For programs that spend most of their time importing a framework, and whose timing nobody looks at.
    """
    pool = ThreadPoolExecutor(AT_ONCE)
    started = {name: pool.submit(run, case) for name, case in cases.items()}
    try:
        yield lambda name: started[name].result()
    finally:
        pool.shutdown(cancel_futures=True)  # those that no selected test has waited for
