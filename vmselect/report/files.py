"""Where pages and charts are written to."""

from __future__ import annotations

import os
from pathlib import Path

from vmselect._checks import check_path
from vmselect.errors import ArgumentError


def check_target(path: str | os.PathLike[str]) -> Path:
    """``path`` as that of a file to write."""
    target = check_path("path", path)
    if target.is_dir():
        raise ArgumentError(f"{target} is a folder. Give the path of a file, such as {target / 'report.html'}.")
    return target
