"""A driver library for tests: compiled from ``nvml_stub.c``, found by the real binding, answering from a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_stub.c")
COMPILER = shutil.which("cc") or shutil.which("gcc")

CARD = {
    "utilization": 80,
    "used": 4 * 2**30,
    "total": 16 * 2**30,
    "milliwatts": 60_000,
    "limit": 70_000,
    "temperature": 55,
    "clock": 1500,
    "memory_clock": 5000,
    "reasons": 0,
}


@cache
def _compile(*flags: str) -> bytes:
    assert COMPILER, "no C compiler"
    with tempfile.TemporaryDirectory() as name:
        library = Path(name) / "library.so"
        subprocess.run([COMPILER, "-shared", "-fPIC", "-Wall", *flags, "-o", library, SOURCE], check=True)
        return library.read_bytes()


class Driver:
    """The library in ``folder``, and its answers."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.answers = folder / "answers.txt"
        self._folder = folder
        (folder / "libnvidia-ml.so.1").write_bytes(_compile(*flags))

    def answer(self, *cards: Mapping[str, int]) -> None:
        """From now on, these cards with these answers."""
        lines = [f"-1 cards {len(cards)}"]
        lines += [f"{index} {name} {value}" for index, card in enumerate(cards) for name, value in card.items()]
        # Whole or not at all: somebody may be reading.
        draft = self.answers.with_suffix(".new")
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(self.answers)

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which a program finds this driver."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self._folder), "NVML_STUB": str(self.answers)}
