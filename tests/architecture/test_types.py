"""Types are strict. The last file of its folder: mypy has had the time of the others."""

from __future__ import annotations

import subprocess


def test_types_are_strict(mypy: subprocess.Popen[str]) -> None:
    said, _ = mypy.communicate()
    assert mypy.returncode == 0, said
