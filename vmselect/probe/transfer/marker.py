"""The mark that a probe leaves in a store before it writes anything else there, so that all of it can be found again.

Everything that one probe writes lies in one folder whose name no other program uses. The marker in it names
the process at work. A process that was killed leaves folder and marker; :func:`clean_transfers` finds them by name and
removes them, unless their process is, or may be, still running.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from vmselect._checks import check_flag
from vmselect.errors import TransferError
from vmselect.probe.transfer.address import read_address
from vmselect.probe.transfer.storage import Storage

MARKER = "marker.json"
FOLDER = re.compile(r"vmselect-transfer-[0-9a-f]{32}")
PATIENCE_SECONDS = 24 * 3600.0
"""A probe on another machine is taken to have ended after this time."""


def folder_name(run: str) -> str:
    """The folder of one probe."""
    return f"vmselect-transfer-{run}"


def make_marker(made: list[str]) -> bytes:
    """The content of a marker: who is at work here, since when, and which folders above had to be made."""
    process = psutil.Process()
    content = {
        "host": platform.node(), "pid": os.getpid(), "process_started": process.create_time(),
        "written": time.time(), "made": made,
    }  # fmt: skip
    return json.dumps(content).encode()


@dataclass(frozen=True)
class Leftover:
    """A folder that a probe left: its name, whether it was removed, and why not."""

    name: str
    removed: bool
    reason: str = ""


def clean_transfers(
    url: str, *, options: Mapping[str, Any] | None = None, everything: bool = False
) -> tuple[Leftover, ...]:
    """Remove what killed probes left at ``url``.

    Folders of probes that are still running are kept, as are those of other machines that are less than a day old;
    ``everything`` removes these as well.
    """
    take_all = check_flag("everything", everything)
    address = read_address(url, options)
    storage = Storage(address)
    try:
        parts = [key[len(storage.root.lstrip("/").partition("/")[2]) :].lstrip("/") for key in storage.unfinished()]
        names = {*storage.names(), *(part.partition("/")[0] for part in parts)}
        return tuple(_clean(storage, name, take_all) for name in sorted(names) if FOLDER.fullmatch(name))
    finally:
        storage.close()


def _clean(storage: Storage, name: str, everything: bool) -> Leftover:
    marker = _read_marker(storage, name)
    reason = "" if everything else _why_keep(marker)
    if reason:
        return Leftover(name, False, reason)
    storage.remove(name)
    made = marker.get("made")
    if isinstance(made, list) and all(isinstance(path, str) for path in made):
        storage.remove_empty(made)
    return Leftover(name, True)


def _read_marker(storage: Storage, name: str) -> dict[str, Any]:
    try:
        content = json.loads(storage.read(name, MARKER))
    except (TransferError, ValueError):  # killed before it was written
        return {}
    return content if isinstance(content, dict) else {}


def _why_keep(marker: dict[str, Any]) -> str:
    if not marker:
        return ""
    if marker.get("host") == platform.node():
        return "its probe is still running" if _is_running(marker) else ""
    written = marker.get("written")
    recent = isinstance(written, (int, float)) and time.time() - written < PATIENCE_SECONDS
    return f"written less than a day ago by {marker.get('host')}, where its probe may be running" if recent else ""


def _is_running(marker: dict[str, Any]) -> bool:
    try:
        process = psutil.Process(marker["pid"])
        # Process numbers are used again: only one that started at the same moment is the same.
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - marker["process_started"]) < 1.0
    except (KeyError, TypeError, ValueError, psutil.Error):
        return False
