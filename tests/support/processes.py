"""Starting programs of this folder in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parent


def hear_interrupts() -> None:
    """Who starts the tests may ignore SIGINT, as a shell does for what it runs in the background, and a child inherits
    that: Python would then make no KeyboardInterrupt of it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(program: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Start ``program`` (a file of this folder) with the tests' Python."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VMSELECT_")}
    return subprocess.Popen(
        [sys.executable, str(SUPPORT / program), *map(str, arguments)],
        env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1", **environment},
        preexec_fn=hear_interrupts,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
