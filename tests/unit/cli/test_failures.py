"""Remedies for scripts that fail before they train."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.error import URLError

import pytest

from vmselect.cli.failures import PACKAGES, explain_failure


def chained() -> Exception:
    """An error without a connection that a library has replaced by its own."""
    try:
        try:
            raise URLError("Name or service not known")
        except URLError as problem:
            raise OSError("no such file in the cache") from problem
    except OSError as error:
        return error


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (chained(), "weights=None"), (ConnectionRefusedError(111, "refused"), "weights=None"),
        (AssertionError("Torch not compiled with CUDA enabled"), "torch.cuda.is_available()"),
        (RuntimeError("Found no NVIDIA driver on your system."), "torch.cuda.is_available()"),
        (RuntimeError("Distributed package doesn't have NCCL built in"), "torch.cuda.is_available()"),
        (SystemError("This needs 2 GPUs"), "torch.cuda.is_available()"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), f"pip install {PACKAGES['torch']}"),
        (ImportError("needs accelerate>=1"), sys.prefix),
    ],
)  # fmt: skip
def test_the_remedy_fits_the_error(error: Exception, part: str) -> None:
    assert part in (explain_failure("train.py", error, describes=True) or "")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("mine"), ValueError("--gpus is not a number"), FileNotFoundError("no gpu.txt"),
        BrokenPipeError(32, "a worker of a loader has ended"),
        ImportError("cannot import name 'net' from 'models'", name="models"),
    ],
)  # fmt: skip
def test_other_errors_have_their_traceback_only(error: Exception) -> None:
    assert explain_failure("train.py", error, describes=True) is None


def test_a_measurement_needs_what_the_script_downloads() -> None:
    assert explain_failure("train.py", chained()) is None


def test_the_remedy_is_printed_below_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise RuntimeError('Found no NVIDIA driver')")
    command = [sys.executable, "-m", "vmselect", "recommend", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert not done.stdout
    lines = [line for line in done.stderr.splitlines() if line]
    assert lines[-3].startswith("RuntimeError")
    assert "torch.cuda.is_available()" in lines[-2]
    assert "vmselect.recommend(model, ...)" in lines[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]
