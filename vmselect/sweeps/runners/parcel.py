"""The bundle that is sent to other hosts: a copy of the work folder and the supervisor's programs."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from vmselect.errors import SweepError
from vmselect.units import format_bytes

MOST_BYTES = 512 << 20
EXCLUDED = {".git", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "node_modules"}


def pack(work: Path, programs: Iterable[Path], *, exclude: Path) -> Path:
    """Write a temporary archive of ``programs`` and of ``work`` without the sweep's folder, caches and environments."""
    handle, name = tempfile.mkstemp(prefix="vmselect-", suffix=".tar.gz")
    os.close(handle)
    target, total = Path(name), 0

    def keep(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal total
        path = work / Path(entry.name).relative_to("work")
        if path == exclude or path.name in EXCLUDED or not (entry.isfile() or entry.isdir() or entry.issym()):
            return None
        total += entry.size
        if total > MOST_BYTES:
            raise SweepError(
                f"{work} holds more than {format_bytes(MOST_BYTES)}, too much to send. Start the sweep in a "
                "folder with the script only, and keep data on the hosts."
            )
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    try:
        with tarfile.open(target, "w:gz", compresslevel=1) as archive:
            archive.add(work, arcname="work", filter=keep)
            for program in programs:
                archive.add(program, arcname=program.name)
    except (OSError, SweepError) as cannot:
        target.unlink(missing_ok=True)
        if isinstance(cannot, SweepError):
            raise
        raise SweepError(f"{work} could not be packed: {cannot}.") from cannot
    return target
