"""Starting programs of this folder in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parent


def start(program: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Start ``program`` (a file of this folder) with the tests' Python."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VMSELECT_")}
    return subprocess.Popen(
        [sys.executable, str(SUPPORT / program), *map(str, arguments)],
        env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
