"""The work folder as one file, to be sent to other machines; and what proves that files came whole."""

from __future__ import annotations

import os
import tarfile
import tempfile
import zlib
from pathlib import Path

from vmselect.errors import SweepError
from vmselect.units import format_bytes

MOST_BYTES = 512 << 20
LEFT_OUT = {".git", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "node_modules"}


def pack(work: Path, *, leave_out: Path) -> Path:
    """A compressed copy of ``work`` in a temporary file, without the sweep's own folder, caches and environments."""
    handle, name = tempfile.mkstemp(prefix="vmselect-", suffix=".tar.gz")
    os.close(handle)
    target, total = Path(name), 0

    def keep(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal total
        path = work / entry.name
        if path == leave_out or path.name in LEFT_OUT or not (entry.isfile() or entry.isdir() or entry.issym()):
            return None
        total += entry.size
        if total > MOST_BYTES:
            raise SweepError(
                f"{work} holds more than {format_bytes(MOST_BYTES)}, too much to send along. Start the sweep in a "
                "folder with the script only, and keep data where the machines find it."
            )
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    try:
        with tarfile.open(target, "w:gz", compresslevel=1) as archive:
            archive.add(work, arcname=".", filter=keep)
    except (OSError, SweepError) as cannot:
        target.unlink(missing_ok=True)
        if isinstance(cannot, SweepError):
            raise
        raise SweepError(f"{work} could not be packed: {cannot}.") from cannot
    return target


def checksums(folder: Path) -> dict[str, str]:
    """Files below ``folder`` to size and CRC-32."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            found[str(path.relative_to(folder))] = f"{len(data)} {zlib.crc32(data)}"
    return found
