"""The tutorial's own code, run as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "choose-vm-and-batch-size.md"


def finish(started: list[subprocess.Popen[str]]) -> str:
    """What the programs printed, once all of them have ended."""
    printed = ""
    while started:
        process = started.pop(0)
        output, errors = process.communicate()
        assert process.returncode == 0, errors[-2_000:]
        printed += output
    return printed


@pytest.mark.skipif(not shutil.which("taskset"), reason="the tutorial was not run: this system has no taskset")
def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"```(python|bash)\n(.*?)```", TUTORIAL.read_text(), flags=re.DOTALL)
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    started: list[subprocess.Popen[str]] = []
    printed = ""
    for language, code in blocks:
        if language == "python":
            name = re.match(r"# (\w+\.py)\n", code)
            assert name, "every program of the tutorial names its file"
            (tmp_path / name[1]).write_text(code)
            continue
        for command in code.strip().splitlines():
            if "train.py" not in command:  # trainings need not wait for each other; what comes after needs them all
                printed += finish(started)
            words = [sys.executable if word == "python" else word for word in command.split()]
            pipe = subprocess.PIPE
            started.append(subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True))
    printed += finish(started)
    assert len(list((tmp_path / "study").glob("*.json"))) == 6
    assert len(list((tmp_path / "profiles").glob("*.json"))) == 6
    assert re.search(r"tutorial_mlp.*val_accuracy.*patience 5", printed)
    assert re.search(r"standin-(one-core|all-cores) .* ([2-6] candidates|only candidate)", printed)
    assert all(f"atch size {size}" in printed for size in (128, 512))
    assert (tmp_path / "report.html").stat().st_size > 10_000
    if "VMSELECT_TUTORIAL_OUTPUT" in os.environ:
        Path(os.environ["VMSELECT_TUTORIAL_OUTPUT"]).write_text(printed)
