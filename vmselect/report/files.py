"""Where pages and charts are written to."""

from __future__ import annotations

import os
from pathlib import Path

from vmselect import _files
from vmselect._checks import check_path
from vmselect.errors import ArgumentError

BEGINNINGS = (b"<!doctype html", b"<html", b"<svg", b"\x89png")
"""How pages and charts begin, in small letters."""

LARGEST_BYTES = 64 * 2**20
"""Larger than any page or chart."""

SCHEMA = b"vega.github.io/schema"
"""What a chart as JSON names somewhere."""


def check_target(path: str | os.PathLike[str]) -> Path:
    """``path`` as that of a file to write. Of files that are there, only a page or a chart may be replaced.

    Anything else is a slip, such as a list of profiles behind an option that takes one file.
    """
    target = check_path("path", path)
    if _files.has_folder(target):
        raise ArgumentError(f"{target} is a folder. Give the path of a file, such as {target / 'report.html'}.")
    if _files.has_file(target):
        there = _files.read_bytes(target, noun="page or chart", limit=LARGEST_BYTES, error=ArgumentError)
        if there and not there[:16].lower().startswith(BEGINNINGS) and SCHEMA not in there:
            raise ArgumentError(
                f"{target} is there already and is neither a page nor a chart, so it is not overwritten. Choose "
                "another path."
            )
    return target
